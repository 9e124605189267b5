//! Whether log dirs are of one cluster. Topics, groups and transactions of two clusters have the same names and nothing to do with each
//! other: together they make a log, an offset or a decision that neither cluster has.

use super::LogDir;
use crate::error::{Error, Result};
use crate::log::Surroundings;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The log dirs that a cluster has, by its id in `meta.properties`. Log dirs that have none are of any.
pub(super) struct Clusters(BTreeMap<String, Vec<PathBuf>>);

impl Clusters {
    /// A partition's directory stands for its log dir. What cannot be read says nothing: others tell that.
    pub(super) fn of<'p>(
        surroundings: &Surroundings,
        paths: impl IntoIterator<Item = &'p PathBuf>,
    ) -> Self {
        let mut found: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
        for path in paths {
            let folders = [Some(path.as_path()), path.parent()];
            let mut ids = folders.into_iter().flatten();
            let id = ids.find_map(|folder: &Path| {
                surroundings
                    .cluster_of(folder)
                    .ok()
                    .flatten()
                    .filter(|id| !id.is_empty())
            });
            if let Some(id) = id {
                found.entry(id).or_default().push(path.clone());
            }
        }
        Self(found)
    }

    /// Which cluster has what; `None` for a single one.
    pub(super) fn several(&self) -> Option<String> {
        let clusters: Vec<String> = self
            .0
            .iter()
            .map(|(id, paths)| {
                let paths: Vec<String> = paths
                    .iter()
                    .map(|path| path.display().to_string())
                    .collect();
                format!("{} of cluster {id}", paths.join(", "))
            })
            .collect();
        (clusters.len() > 1).then(|| clusters.join("; "))
    }

    /// # Errors
    /// `LogDir` for several.
    pub(super) fn check(&self) -> Result<()> {
        let Some(several) = self.several() else {
            return Ok(());
        };
        let first = self.0.values().flatten().next();
        let reason = format!(
            "the log dirs are of {} clusters, by cluster.id in meta.properties: {several}. What they have under one name is not one thing: \
             call once for each cluster",
            self.0.len()
        );
        Err(Error::log_dir(
            first.map_or(Path::new(""), PathBuf::as_path),
            reason,
        ))
    }
}

impl LogDir {
    /// Refuses log dirs of several clusters, by `cluster.id` in their `meta.properties`; those without one are of any. For what reads them as
    /// one: groups, transactions, and topics that are to be made again.
    ///
    /// # Errors
    /// `LogDir`, which names the log dirs of each cluster.
    pub fn check_one_cluster(&self) -> Result<()> {
        Clusters::of(&self.0.surroundings, &self.0.paths).check()
    }
}
