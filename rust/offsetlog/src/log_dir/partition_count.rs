//! How many partitions a topic has, and which of them a record goes to.

use super::routing::Partitioner;
use super::writer::guard;
use super::{LogDir, TopicPartition};
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the cluster's metadata says of topics, as far as somebody asked.
#[derive(Debug, Default)]
pub(super) struct Registered {
    /// By name, each with the number of changes of the metadata by which it was found out, and to which it holds.
    topics: BTreeMap<String, (u64, Partitions)>,
    /// How often something was forgotten: an answer that was asked for before that is not kept.
    forgotten: u64,
}

/// `None` where no metadata is at hand, or it does not have the topic.
type Partitions = Option<Arc<Vec<i32>>>;

impl Registered {
    /// Forgets a topic of which other directories are here now.
    pub(super) fn forget(&mut self, topic: &str) {
        self.topics.remove(topic);
        self.forgotten += 1;
    }

    /// Forgets all of them.
    pub(super) fn forget_all(&mut self) {
        self.topics.clear();
        self.forgotten += 1;
    }
}

impl LogDir {
    /// Returns the partition to which a record of a topic goes.
    ///
    /// # Errors
    /// Those of [`partition_count`](Self::partition_count) if the key decides. Any other record may go to any partition, as a producer sends it
    /// to one of those that have a leader: then `LogDir` if the topic does not exist, or if some of its partitions are missing between those
    /// that are here.
    pub fn route(&self, topic: &str, partitioner: Partitioner, key: Option<&[u8]>) -> Result<i32> {
        let count = self.count_for(topic, partitioner, key)?;
        guard(&self.writer()?.router).route(partitioner, topic, key, count)
    }

    /// The number of partitions among which a record is routed. Without a key that decides, those that are here do.
    pub(super) fn count_for(
        &self,
        topic: &str,
        partitioner: Partitioner,
        key: Option<&[u8]>,
    ) -> Result<i32> {
        if partitioner == Partitioner::Default && key.is_some() {
            self.partition_count(topic)
        } else {
            self.count_here(topic)
        }
    }

    /// Number of partitions of a topic, as far as known: while none of them is open here, another process may delete and
    /// recreate the topic. Where the cluster's metadata is at hand and has the topic, all that it says must be here.
    ///
    /// # Errors
    /// `LogDir` if the topic does not exist, if some of its partitions are missing here, if the cluster's metadata is at hand and does not tell
    /// how many it has (it cannot be read, a part of it is missing, or it is another cluster's), or if two of the log dirs have the same
    /// partition of it. Where metadata is at hand `MetadataFile` of a `partition.metadata`, `Io`, `Interrupted`.
    pub fn partition_count(&self, topic: &str) -> Result<i32> {
        let count = self.count_here(topic)?;
        let here: Vec<i32> = (0..count).collect();
        let cannot_be_routed = |why: &str| {
            let reason = format!(
                "of topic {topic:?} {why}: records cannot be routed by their keys; name the partition"
            );
            Err(Error::log_dir(self.first_path(), reason))
        };
        match self.registered(topic, count)? {
            Ok(Some(all)) if lacks(&all, count) => cannot_be_routed(&format!(
                "only the partitions {here:?} are here, and the cluster's metadata says that it has {}",
                all.len()
            )),
            Err(why) => cannot_be_routed(&format!(
                "the partitions {here:?} are here, and how many it has in its cluster is not known ({why})"
            )),
            Ok(_) => Ok(count),
        }
    }

    /// Number of a topic's partitions that are here, from 0 on.
    ///
    /// # Errors
    /// `LogDir` if there is none, or if others between them are missing.
    pub(super) fn count_here(&self, topic: &str) -> Result<i32> {
        let numbers: Vec<i32> = self.0.listing().numbers(topic).collect();
        let is_whole = (0..)
            .zip(&numbers)
            .all(|(wanted, &number)| wanted == number);
        if numbers.is_empty() {
            return Err(self.unknown(topic, 0));
        }
        if !is_whole {
            let reason = format!(
                "of topic {topic:?} only the partitions {numbers:?} are here: how many it has is not known, so records cannot be \
                 routed; name the partition"
            );
            return Err(Error::log_dir(self.first_path(), reason));
        }
        Ok(numbers.len() as i32)
    }

    fn first_path(&self) -> &Path {
        self.0.paths.first().map_or(Path::new(""), PathBuf::as_path)
    }

    /// The partitions of a topic by the cluster's metadata; `None` where none is at hand, or it does not have the topic of these. Or why
    /// the metadata that is at hand does not tell.
    fn registered(
        &self,
        topic: &str,
        count: i32,
    ) -> Result<std::result::Result<Partitions, String>> {
        let changes = self.0.surroundings.changes();
        let forgotten = {
            let registered = guard(&self.0.registered);
            if let Some((_, known)) = registered
                .topics
                .get(topic)
                .filter(|(at, _)| *at == changes)
            {
                return Ok(Ok(known.clone()));
            }
            registered.forgotten
        };
        for partition in 0..count {
            let at = TopicPartition {
                topic: topic.to_owned(),
                partition,
            };
            if let Some(path) = self.path_of(&at)? {
                let membership = self.0.surroundings.membership(&path, topic, partition)?;
                let found = match membership.partitions() {
                    Ok(all) => all.map(Arc::new),
                    // Not kept: behind `refresh` the metadata may be whole.
                    Err(why) => return Ok(Err(why.to_owned())),
                };
                let mut registered = guard(&self.0.registered);
                // Of directories that were there before it holds for this call alone.
                if registered.forgotten == forgotten {
                    let known = (changes, found.clone());
                    registered.topics.insert(topic.to_owned(), known);
                }
                return Ok(Ok(found));
            }
        }
        // Gone meanwhile.
        Ok(Ok(None))
    }

    /// Has the cluster's metadata be read again by the next who asks.
    pub(super) fn forget_cluster(&self) {
        self.0.surroundings.forget();
    }
}

/// Whether one of the `registered` partitions is not among those from 0 on, of which there are `count`.
fn lacks(registered: &[i32], count: i32) -> bool {
    !registered.iter().all(|each| (0..count).contains(each))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::OpenOptions;
    use crate::log_dir::{LogDirOptions, partition_for};
    use offsetlog_format::name::{META_PROPERTIES, PARTITION_METADATA};
    use std::fs;

    const KEYS: [&[u8]; 5] = [b"a", b"b", b"c", b"d", b"e"];
    const METADATA: &str = "metadata-dir";

    fn copy(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let target = to.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                copy(&entry.path(), &target);
            } else {
                fs::copy(entry.path(), target).unwrap();
            }
        }
    }

    /// A cluster's log dirs and metadata; of the three partitions of `g-plain` those in `away` are not there.
    fn cluster(into: &Path, away: &[i32]) -> Vec<PathBuf> {
        let clean =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/kafka-4.3.0/clean");
        let folders: Vec<PathBuf> = ["log-dir-1", "log-dir-2", METADATA]
            .map(|name| into.join(name))
            .to_vec();
        for folder in &folders {
            copy(&clean.join(folder.file_name().unwrap()), folder);
            for partition in away {
                let _ = fs::remove_dir_all(folder.join(format!("g-plain-{partition}")));
            }
        }
        folders
    }

    fn open(folders: &[PathBuf]) -> LogDir {
        let (open, options) = (OpenOptions::default(), LogDirOptions::default());
        LogDir::open_for_append(folders, &open, &options).unwrap()
    }

    fn metadata_log(into: &Path) -> PathBuf {
        let log = format!("__cluster_metadata-0/{:020}.log", 0);
        into.join(METADATA).join(log)
    }

    /// Routes each key, and checks that records without one, and those that go in turn, may go to the two partitions that are here.
    fn routed(log_dir: &LogDir) -> Vec<Result<i32>> {
        for (partitioner, key) in [
            (Partitioner::Default, None),
            (Partitioner::RoundRobin, None),
            (Partitioner::RoundRobin, Some(KEYS[0])),
        ] {
            let partition = log_dir.route("g-plain", partitioner, key).unwrap();
            assert!((0..2).contains(&partition));
            let opened = log_dir.writable_of("g-plain", partition, 2).unwrap();
            assert_eq!(opened.unwrap().partition(), partition);
        }
        KEYS.iter()
            .map(|key| log_dir.route("g-plain", Partitioner::Default, Some(key)))
            .collect()
    }

    #[track_caller]
    fn refused(log_dir: &LogDir, why: &str) {
        for routed in routed(log_dir) {
            let told = routed.unwrap_err().to_string();
            assert!(
                told.contains(why) && told.contains("name the partition"),
                "{told}"
            );
        }
    }

    #[test]
    fn metadata_that_does_not_tell_is_not_taken_for_none() {
        for (why, spoil) in [
            ("cannot be read", damage as fn(&Path)),
            ("a part of its metadata is missing", tear),
            ("is the metadata of cluster", replace),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let folders = cluster(folder.path(), &[2]);
            refused(&open(&folders), "it has 3");
            spoil(folder.path());
            refused(&open(&folders), why);
            // Nothing tells of another one.
            let without = open(&folders[..2]);
            let found: Vec<i32> = routed(&without).into_iter().map(Result::unwrap).collect();
            assert_eq!(found, KEYS.map(|key| partition_for(key, 2).unwrap()));
        }
    }

    fn damage(into: &Path) {
        let log = metadata_log(into);
        let mut bytes = fs::read(&log).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(log, bytes).unwrap();
    }

    /// As an end that did not reach the disk leaves it: the last batch is there in part.
    fn tear(into: &Path) {
        let log = metadata_log(into);
        let file = fs::OpenOptions::new().write(true).open(&log).unwrap();
        file.set_len(file.metadata().unwrap().len() - 1).unwrap();
    }

    /// Another cluster's, with a topic of the name.
    fn replace(into: &Path) {
        let properties = into.join(METADATA).join(META_PROPERTIES);
        let text = fs::read_to_string(&properties).unwrap();
        let lines = text.lines().map(|line| {
            let is_id = line.starts_with("cluster.id=");
            if is_id {
                "cluster.id=AQIDBAUGBwgJCgsMDQ4PEA"
            } else {
                line
            }
        });
        fs::write(&properties, lines.collect::<Vec<_>>().join("\n")).unwrap();
        for folder in ["log-dir-1", "log-dir-2"] {
            for partition in ["g-plain-0", "g-plain-1"] {
                let _ = fs::remove_file(into.join(folder).join(partition).join(PARTITION_METADATA));
            }
        }
    }

    #[test]
    fn whole_topics_are_routed_among_all() {
        let folder = tempfile::tempdir().unwrap();
        let log_dir = open(&cluster(folder.path(), &[]));
        for key in KEYS {
            let found = log_dir.route("g-plain", Partitioner::Default, Some(key));
            assert_eq!(found.unwrap(), partition_for(key, 3).unwrap());
        }
    }

    #[test]
    fn no_record_is_routed_around_a_hole() {
        let folder = tempfile::tempdir().unwrap();
        let log_dir = open(&cluster(folder.path(), &[1]));
        for key in [None, Some(KEYS[0])] {
            for partitioner in [Partitioner::Default, Partitioner::RoundRobin] {
                let told = log_dir.route("g-plain", partitioner, key).unwrap_err();
                assert!(told.to_string().contains("[0, 2]"), "{told}");
            }
        }
    }

    #[test]
    fn any_that_is_not_here_counts() {
        for (registered, wanted) in [
            (vec![], false),
            (vec![0, 1], false),
            (vec![1, 0, 2], false),
            (vec![0, 1, 3], true),
            (vec![0, 1, 2, 3], true),
            (vec![-1], true),
        ] {
            assert_eq!(lacks(&registered, 3), wanted, "{registered:?}");
        }
    }

    /// A look through all of them for each would take hours here.
    #[test]
    fn a_topic_may_have_many() {
        let registered: Vec<i32> = (0..4_000_000).collect();
        assert!(!lacks(&registered, 4_000_000));
        assert!(lacks(&registered, 3_999_999));
    }
}
