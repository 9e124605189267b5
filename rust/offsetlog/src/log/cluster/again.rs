//! Notices that a cluster's metadata has changed, and reads it again.

use super::named::{Source, metadata_log};
use super::{Asked, Metadata, MetadataImage, Node, Surroundings};
use crate::disk::{Disk, EntryKind, FileStat};
use crate::error::{ErrorKind, Result};
use crate::folder::is_there;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// The state of the files of a cluster's metadata: equal marks mean that it has not changed. A file that changed a moment ago may change
/// again and look the same; a mark with such a file equals no mark, not even itself.
#[derive(Debug, Clone, Default)]
pub struct MetadataMark {
    files: BTreeMap<PathBuf, Option<FileStat>>,
    is_racy: bool,
}

impl PartialEq for MetadataMark {
    fn eq(&self, other: &Self) -> bool {
        !self.is_racy && !other.is_racy && self.files == other.files
    }
}

impl MetadataMark {
    /// Of the files in these folders.
    pub(crate) fn of(disk: &dyn Disk, places: BTreeSet<PathBuf>) -> Self {
        let mut mark = Self::default();
        for place in places {
            let Ok(entries) = disk.list(&place) else {
                mark.files.insert(place, None);
                continue;
            };
            for entry in entries {
                // The metadata is in no other folder, and controllers lock a file.
                if entry.kind != EntryKind::File {
                    continue;
                }
                let path = place.join(&entry.name);
                let stat = disk.stat(&path).ok();
                mark.is_racy |= stat.is_some_and(|stat| stat.is_racy());
                mark.files.insert(path, stat);
            }
        }
        mark
    }
}

impl Surroundings {
    /// Has the metadata be read again by the next who asks.
    pub(crate) fn forget(&self) {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let mut beside = self.beside.lock().unwrap_or_else(PoisonError::into_inner);
        read.clear();
        beside.clear();
        self.note_change();
    }

    /// What was found out by the metadata holds as long as this number stays: one that was read before it was found out.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// The folders in which the metadata is or may be.
    pub(crate) fn places(&self) -> Vec<PathBuf> {
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let mut places: Vec<PathBuf> = read.keys().map(|(path, _)| path.clone()).collect();
        drop(read);
        match &self.named {
            Some(Source::Log(path)) => places.push(path.clone()),
            Some(Source::ZooKeeper(found)) => places.extend(found.folders()),
            None => {}
        }
        for folder in &self.around {
            // A partition's directory may stand for its log dir.
            for log_dir in [Some(folder.as_path()), folder.parent()]
                .into_iter()
                .flatten()
            {
                // One that cannot be looked at cannot be read either.
                places.extend(metadata_log(self.disk(), log_dir).ok().flatten());
            }
        }
        places
    }

    /// Reads all known metadata again, and returns why some of it was not accepted: it cannot be read, lacks a part that was there, or ends
    /// before what is known. The known version of that part is kept; the rest is replaced. A metadata log whose directory is gone is
    /// replaced by the next one around the same log dir, if that one has no less.
    ///
    /// # Errors
    /// `Interrupted`.
    pub(crate) fn read_again(&self) -> Result<Vec<String>> {
        let known = self
            .read
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let mut failed = BTreeMap::new();
        for (asked, before) in &known {
            match self.read_in_place_of(before, asked)? {
                Ok(now) => self.take(asked.clone(), now),
                Err(why) => {
                    failed.insert(asked.clone(), why);
                }
            }
        }
        self.leave_what_is_gone(&known, &mut failed)?;
        Ok(failed.into_values().collect())
    }

    /// Returns the metadata as read now, or why it does not replace `before`.
    fn read_in_place_of(
        &self,
        before: &Metadata,
        asked: &Asked,
    ) -> Result<std::result::Result<Metadata, String>> {
        let now = match self.read_as(asked) {
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted) => return Err(error),
            Err(error) => return Ok(Err(error.to_string())),
            Ok(now) => now,
        };
        Ok(match now.less_than(before) {
            Some(why) => Err(format!("{}: {why}", now.path.display())),
            None => Ok(now),
        })
    }

    fn take(&self, asked: Asked, metadata: Metadata) {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.insert(asked, Arc::new(metadata));
        self.note_change();
    }

    /// Moves the log dirs whose metadata log is gone to another one.
    fn leave_what_is_gone(
        &self,
        known: &BTreeMap<Asked, Arc<Metadata>>,
        failed: &mut BTreeMap<Asked, String>,
    ) -> Result<()> {
        let beside = self
            .beside
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        for (asked, before) in known {
            // Metadata that the caller named is kept.
            let users: Vec<&PathBuf> = beside
                .iter()
                .filter(|(_, log)| **log == asked.0)
                .map(|(log_dir, _)| log_dir)
                .collect();
            if users.is_empty() || !matches!(is_there(self.disk(), &asked.0), Ok(false)) {
                continue;
            }
            let mut left = 0;
            for log_dir in &users {
                let Ok(Some(next)) = self.look_beside(log_dir) else {
                    continue;
                };
                let next = (next, None);
                match self.read_in_place_of(before, &next)? {
                    Ok(now) => self.take(next.clone(), now),
                    Err(why) => {
                        failed.insert(next, why);
                        continue;
                    }
                }
                let mut beside = self.beside.lock().unwrap_or_else(PoisonError::into_inner);
                beside.insert((*log_dir).clone(), next.0);
                self.note_change();
                left += 1;
            }
            if left == users.len() {
                failed.remove(asked);
                let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
                read.remove(asked);
            }
        }
        Ok(())
    }

    fn read_as(&self, (path, cluster_id): &Asked) -> Result<Metadata> {
        match &self.named {
            Some(Source::ZooKeeper(places)) if places.path() == path => {
                let node = Node {
                    cluster_id: cluster_id.clone(),
                    ..Node::default()
                };
                self.read_zookeeper(places, &node)
            }
            _ => self.read_log(path.clone()),
        }
    }
}

impl Metadata {
    /// Why it is not taken in place of what could be read before.
    fn less_than(&self, before: &Self) -> Option<String> {
        let known = before.image.as_ref().ok()?;
        match &self.image {
            Err(why) => Some(format!("it cannot be read: {why}")),
            Ok(image) => image.less_than(known).map(str::to_owned),
        }
    }
}

impl MetadataImage {
    /// Returns why it does not continue where `known` ended, which a long-running reader takes for damage or for another cluster's
    /// metadata; `None` if it continues.
    #[must_use]
    pub const fn less_than(&self, known: &Self) -> Option<&'static str> {
        if known.is_complete && !self.is_complete {
            return Some("a part of it is in no snapshot and no longer in the log");
        }
        // When a cluster moves from ZooKeeper to KRaft, its offsets restart.
        match (known.is_of_zookeeper, self.is_of_zookeeper) {
            (true, false) => None,
            (false, true) => Some("it is of ZooKeeper, which the cluster had left"),
            _ if self.end_offset < known.end_offset => Some("it ends before what is known of it"),
            _ => None,
        }
    }
}
