//! Folders without anything of a log dir, among log dirs: mostly the mount points of disks that are not mounted. Partitions would be missing
//! without a word, and a topic would look as if it had fewer of them.

use super::LogDir;
use super::listing::Listing;
use crate::disk::{Disk, EntryKind, IoCall};
use crate::error::{Error, Result};
use crate::folder::{FolderContents, is_there};
use offsetlog_format::name::{DirectoryName, LOCK};
use std::io;
use std::path::Path;

/// The error for a folder in which nothing of a log dir is. `others`: it was given with other paths.
#[must_use]
pub fn not_a_log_dir(path: &Path, others: bool) -> Error {
    let reason = "no partition directory (topic-partition) and no meta.properties or checkpoint found: not a log dir";
    if !others {
        return Error::log_dir(path, reason);
    }
    let advice = "is its disk mounted? Mount it, or leave the path out if nothing of it is wanted: its partitions would be missing \
                  without a word";
    Error::log_dir(path, format!("{reason}; {advice}"))
}

/// Refuses a new log dir beside one that has been written to: if the disk of the new one is only not mounted, records would go to other
/// partitions, and topics and partitions of it would be made again. All of them may be new. A file of a log dir, such as the `.lock` that each
/// writer and each broker leaves, shows that one is not.
///
/// # Errors
/// `LogDir`, which says how a log dir is added on purpose; `Io` if a folder cannot be listed.
pub fn check_new_log_dirs<P: AsRef<Path>>(disk: &dyn Disk, paths: &[P]) -> Result<()> {
    let (mut used, mut new) = (None, None);
    for path in paths {
        let path = path.as_ref();
        let entries = match disk.list(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                new = new.or(Some((path, "not there")));
                continue;
            }
            listed => listed.map_err(|error| Error::io(IoCall::List, path, error))?,
        };
        let contents = FolderContents::from_entries(&entries);
        // A broker follows links.
        let has_partitions = entries.iter().any(|entry| {
            entry.kind != EntryKind::File && DirectoryName::parse(&entry.name).is_ok()
        });
        // A lock alone is also what an opening leaves that made no log dir of the next path.
        if has_partitions || contents.has_broker_files() {
            used = used.or(Some(path));
        } else if !contents.is_marked() {
            new = new.or(Some((path, "nothing of a log dir in it")));
        }
    }
    let (Some(used), Some((new, found))) = (used, new) else {
        return Ok(());
    };
    let reason = format!(
        "{found}, and {} is a log dir in use: is the disk of this one mounted? Keys would go to other partitions, and what it has would be \
         made again. Mount it, or leave the path out if nothing of it is wanted; to add a new log dir on purpose, open it alone for appending \
         first, or make the folder with an empty file {LOCK} in it",
        used.display()
    );
    Err(Error::log_dir(new, reason))
}

impl LogDir {
    /// Refuses log dirs that had partitions and in which nothing is any more: new ones would be made in a mount point, and be gone when its
    /// disk is back. The lock of this writer shows that one is still there.
    ///
    /// # Errors
    /// `LogDir`; `Io` if a folder cannot be listed.
    pub(super) fn check_not_away(&self) -> Result<()> {
        let mut found = Listing::default();
        for path in &self.0.paths {
            let had_partitions = || {
                let listing = self.0.listing();
                let mut known = listing.partitions.values().flatten();
                known.any(|partition| partition.parent() == Some(path))
            };
            if !is_there(self.disk(), &path.join(LOCK))? && had_partitions() {
                found.add(self.disk(), path)?;
            }
        }
        found.refuse_empty(self.0.paths.len() > 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LogConfig;
    use crate::log::{MaintainOptions, OpenOptions};
    use crate::log_dir::{LogDir, LogDirOptions, NewTopic};
    use std::fs;
    use std::path::PathBuf;

    fn for_append(paths: &[&Path]) -> Result<LogDir> {
        let options = LogDirOptions::default();
        LogDir::open_for_append(paths, &OpenOptions::default(), &options)
    }

    fn for_reading(paths: &[&Path]) -> Result<LogDir> {
        LogDir::open(paths, &OpenOptions::default())
    }

    fn topic(name: &str, partitions: i32) -> NewTopic<'_> {
        NewTopic {
            name,
            partitions,
            config: LogConfig::default(),
            topic_id: None,
        }
    }

    /// Two log dirs with a partition of topic `t` each.
    fn two(folder: &Path) -> (PathBuf, PathBuf) {
        let (one, other) = (folder.join("one"), folder.join("other"));
        let log_dir = for_append(&[&one, &other]).unwrap();
        log_dir.create_topic(&topic("t", 2)).unwrap();
        log_dir.close().unwrap();
        (one, other)
    }

    #[track_caller]
    fn check(refused: Result<LogDir>, at: &Path) {
        let error = refused.unwrap_err();
        assert_eq!(error.path(), Some(at), "{error}");
        assert!(error.to_string().contains("mount"), "{error}");
        assert!(error.to_string().contains("leave the path out"), "{error}");
    }

    #[test]
    fn a_mount_point_without_its_disk_is_no_log_dir_without_partitions() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = two(folder.path());
        let (read, aside) = (
            for_reading(&[&one, &other]).unwrap(),
            folder.path().join("aside"),
        );
        for (away, here) in [(&one, &other), (&other, &one)] {
            fs::rename(away, &aside).unwrap();
            check(for_append(&[&one, &other]), away);
            fs::create_dir(away).unwrap();
            check(for_reading(&[&one, &other]), away);
            check(for_append(&[&one, &other]), away);
            read.refresh().unwrap_err();
            assert_eq!(read.topics()["t"], [0, 1]);
            assert_eq!(fs::read_dir(away).unwrap().count(), 0);
            assert_eq!(for_reading(&[here]).unwrap().partitions().len(), 1);
            fs::remove_dir(away).unwrap();
            fs::rename(&aside, away).unwrap();
        }
        for_append(&[&one, &other]).unwrap();
        read.refresh().unwrap();
    }

    #[test]
    fn a_new_log_dir_is_added_by_what_the_error_says() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = two(folder.path());
        let (new, newer) = (folder.path().join("new"), folder.path().join("newer"));
        for_append(&[&new]).unwrap().close().unwrap();
        fs::create_dir(&newer).unwrap();
        check(for_append(&[&one, &other, &new, &newer]), &newer);
        fs::write(newer.join(LOCK), "").unwrap();
        let log_dir = for_append(&[&one, &other, &new, &newer]).unwrap();
        log_dir.create_topic(&topic("u", 4)).unwrap();
        assert!(new.join("u-0").is_dir());
    }

    #[test]
    fn upkeep_and_new_topics_take_no_mount_point_for_a_log_dir() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = two(folder.path());
        let (away, aside) = (
            [&one, &other]
                .into_iter()
                .find(|path| path.join("t-1").is_dir()),
            folder.path().join("aside"),
        );
        let away = away.unwrap();
        let log_dir = for_append(&[&one, &other]).unwrap();
        fs::rename(away, &aside).unwrap();
        fs::create_dir(away).unwrap();
        let report = log_dir.maintain(&MaintainOptions::default()).unwrap();
        let [(failed, error)] = report.failed.as_slice() else {
            panic!("{report:?}");
        };
        assert_eq!((failed.partition, error.path()), (1, Some(away.as_path())));
        assert_eq!(log_dir.topics()["t"], [0, 1]);
        assert_eq!(log_dir.partition_count("t").unwrap(), 2);
        let error = log_dir.create_topic(&topic("u", 2)).unwrap_err();
        assert_eq!(error.path(), Some(away.as_path()));
        assert_eq!(fs::read_dir(away).unwrap().count(), 0);
        // For those who tell what went.
        log_dir.refresh_listing().unwrap();
        assert_eq!(log_dir.topics()["t"], [0]);
        fs::remove_dir(away).unwrap();
        fs::rename(&aside, away).unwrap();
        let report = log_dir.maintain(&MaintainOptions::default()).unwrap();
        assert!(report.failed.is_empty(), "{report:?}");
        assert_eq!(log_dir.topics()["t"], [0, 1]);
        log_dir.create_topic(&topic("u", 2)).unwrap();
    }

    #[test]
    fn partitions_that_are_left_out_make_a_log_dir_too() {
        let folder = tempfile::tempdir().unwrap();
        let (one, _) = two(folder.path());
        let unique = "0123456789abcdef0123456789abcdef";
        for state in ["future", "stray", "delete"] {
            let other = folder.path().join(state);
            fs::create_dir_all(other.join(format!("t-1.{unique}-{state}"))).unwrap();
            assert_eq!(
                for_reading(&[&one, &other]).unwrap().topics(),
                for_reading(&[&one]).unwrap().topics()
            );
            assert!(for_reading(&[&other]).unwrap().topics().is_empty());
            fs::remove_dir(other.join(format!("t-1.{unique}-{state}"))).unwrap();
            check(for_reading(&[&one, &other]), &other);
        }
    }

    #[test]
    fn an_opening_that_failed_at_the_second_log_dir_can_be_repeated() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        fs::create_dir(&one).unwrap();
        fs::write(one.join(LOCK), "").unwrap();
        for_append(&[&one, &other]).unwrap();
    }
}
