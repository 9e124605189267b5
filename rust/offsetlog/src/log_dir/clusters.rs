//! Whether log dirs are of one cluster. Topics, groups and transactions of two clusters have the same names and nothing to do with each
//! other: together they make a log, an offset or a decision that neither cluster has.

use super::LogDir;
use crate::error::{Error, Result};
use crate::log::Surroundings;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The log dirs that a cluster has, by its id in `meta.properties`. Log dirs that have none are of any.
pub(super) struct Clusters {
    found: BTreeMap<String, Vec<PathBuf>>,
    /// Why it is not known of one of several log dirs.
    failed: Option<Error>,
}

impl Clusters {
    /// A partition's directory stands for its log dir.
    pub(super) fn of<'p>(
        surroundings: &Surroundings,
        paths: impl IntoIterator<Item = &'p PathBuf>,
    ) -> Self {
        let mut found: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
        let (mut failed, mut count) = (None, 0);
        for path in paths {
            count += 1;
            let folders = [Some(path.as_path()), path.parent()];
            let mut ids = folders.into_iter().flatten();
            let id = ids.find_map(|folder: &Path| match surroundings.cluster_of(folder) {
                Ok(id) => id.filter(|id| !id.is_empty()),
                Err(error) => {
                    failed.get_or_insert(error);
                    None
                }
            });
            if let Some(id) = id {
                found.entry(id).or_default().push(path.clone());
            }
        }
        let failed = failed.filter(|_| count > 1);
        Self { found, failed }
    }

    /// Which cluster has what; `None` for a single one.
    pub(super) fn several(&self) -> Option<String> {
        let clusters: Vec<String> = self
            .found
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
    /// `LogDir` for several; `Io` where one of them cannot be asked.
    pub(super) fn check(self) -> Result<()> {
        let Some(several) = self.several() else {
            return match self.failed {
                Some(error) => Err(error.advise(
                    "whether all log dirs are of one cluster is not known: make the file readable, or give fewer log dirs",
                )),
                None => Ok(()),
            };
        };
        let first = self.found.values().flatten().next();
        let reason = format!(
            "the log dirs are of {} clusters, by cluster.id in meta.properties: {several}. What they have under one name is not one thing: \
             call once for each cluster",
            self.found.len()
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
    /// `LogDir`, which names the log dirs of each cluster; `Io` where the `meta.properties` of one of several cannot be read.
    pub fn check_one_cluster(&self) -> Result<()> {
        Clusters::of(&self.0.surroundings, &self.0.paths).check()
    }
}
