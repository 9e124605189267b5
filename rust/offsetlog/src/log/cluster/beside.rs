//! Finds the metadata log beside a log dir: of several, as where the folders of several controllers were given, the newest of the log dir's
//! own cluster.

use super::named::metadata_log;
use super::{Surroundings, node_of};
use crate::error::{ErrorKind, Result};
use crate::log::Log;
use crate::log::state::read_small;
use offsetlog_format::name::META_PROPERTIES;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

impl Surroundings {
    /// The metadata log that was found before, or [the one to read](Self::look_beside). Only [`read_again`](Self::read_again) moves on to
    /// another one, and [`forget`](Self::forget).
    pub(super) fn metadata_log_beside(&self, log_dir: &Path) -> Result<Option<PathBuf>> {
        let known = |beside: &BTreeMap<PathBuf, PathBuf>| beside.get(log_dir).cloned();
        if let Some(found) = known(&self.beside.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(Some(found));
        }
        let changes = self.changes();
        let found = self.look_beside(log_dir)?;
        if let Some(found) = &found {
            let mut beside = self.beside.lock().unwrap_or_else(PoisonError::into_inner);
            // What was forgotten meanwhile does not come back.
            if self.changes() == changes {
                beside.insert(log_dir.to_path_buf(), found.clone());
            }
        }
        Ok(found)
    }

    /// The metadata log that is in the log dir or in those around it. Of several, those that `meta.properties` beside them gives to another
    /// cluster do not count, and of the others the one with the greatest leader epoch does, and of equals the longest: what an older one
    /// has beyond that, its controllers never committed. One that cannot be read counts only if there is no other.
    pub(super) fn look_beside(&self, log_dir: &Path) -> Result<Option<PathBuf>> {
        let around = self.around.iter().map(PathBuf::as_path);
        let folders = std::iter::once(log_dir).chain(around.filter(|&folder| folder != log_dir));
        let mut found: Vec<PathBuf> = Vec::new();
        for folder in folders {
            let log = metadata_log(self.disk(), folder)?;
            found.extend(log.filter(|log| !found.contains(log)));
        }
        if found.len() > 1
            && let Some(own) = self.cluster_of(log_dir)?
        {
            let mut of_cluster = Vec::new();
            for log in &found {
                let there = self.cluster_of(log.parent().unwrap_or(Path::new("")))?;
                if there.is_none_or(|there| there == own) {
                    of_cluster.push(log.clone());
                }
            }
            // Without any of its own cluster, whoever reads the first one is told whose it is.
            if !of_cluster.is_empty() {
                found = of_cluster;
            }
        }
        if found.len() < 2 {
            return Ok(found.pop());
        }
        let mut newest: Option<((i32, i64), usize)> = None;
        for (slot, path) in found.iter().enumerate() {
            let reach = Log::open(path, &self.options).and_then(|log| log.metadata_reach());
            match reach {
                Ok(reach) => {
                    if newest.is_none_or(|(known, _)| known < reach) {
                        newest = Some((reach, slot));
                    }
                }
                // An older one says what the cluster said once, by which retention may delete.
                Err(error)
                    if matches!(error.kind(), ErrorKind::Io { .. }) && !error.is_missing_file() =>
                {
                    return Err(error.advise(
                        "which of the cluster's metadata logs is the newest is not known: name the one to be used (metadata=, --metadata DIR)",
                    ));
                }
                Err(_) => {}
            }
        }
        let slot = newest.map_or(0, |(_, slot)| slot);
        Ok(Some(found.swap_remove(slot)))
    }

    /// The cluster that `meta.properties` in this log dir names.
    pub(crate) fn cluster_of(&self, log_dir: &Path) -> Result<Option<String>> {
        let bytes = read_small(self.disk(), &log_dir.join(META_PROPERTIES))?;
        Ok(bytes.and_then(|bytes| node_of(&bytes).cluster_id))
    }
}
