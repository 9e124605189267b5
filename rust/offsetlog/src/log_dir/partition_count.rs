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
    /// `LogDir` if the topic does not exist, if some of its partitions are missing here, as then their number is unknown, or if two of the
    /// log dirs have the same partition of it. Where metadata is at hand `MetadataFile` of a `partition.metadata`, `Io`, `Interrupted`.
    pub fn route(&self, topic: &str, partitioner: Partitioner, key: Option<&[u8]>) -> Result<i32> {
        let count = self.partition_count(topic)?;
        guard(&self.writer()?.router).route(partitioner, topic, key, count)
    }

    /// Number of partitions of a topic, as far as known: while none of them is open here, another process may delete and
    /// recreate the topic. Where the cluster's metadata is at hand and has the topic, all that it says must be here.
    ///
    /// # Errors
    /// Those of [`route`](Self::route).
    pub fn partition_count(&self, topic: &str) -> Result<i32> {
        let numbers: Vec<i32> = self.0.listing().numbers(topic).collect();
        let is_whole = (0..)
            .zip(&numbers)
            .all(|(wanted, &number)| wanted == number);
        if numbers.is_empty() {
            return Err(self.unknown(topic, 0));
        }
        if !is_whole {
            let path = self.0.paths.first().map_or(Path::new(""), PathBuf::as_path);
            let reason = format!(
                "of topic {topic:?} only the partitions {numbers:?} are here: how many it has is not known, so records cannot be \
                 routed; name the partition"
            );
            return Err(Error::log_dir(path, reason));
        }
        let registered = self.registered(topic, &numbers)?;
        if let Some(registered) = registered.filter(|all| lacks(all, numbers.len())) {
            let path = self.0.paths.first().map_or(Path::new(""), PathBuf::as_path);
            let reason = format!(
                "of topic {topic:?} only the partitions {numbers:?} are here, and the cluster's metadata says that it has {}: records \
                 cannot be routed; name the partition",
                registered.len()
            );
            return Err(Error::log_dir(path, reason));
        }
        Ok(numbers.len() as i32)
    }

    /// The partitions of a topic by the cluster's metadata; `None` where none is at hand, or it does not have the topic of these.
    fn registered(&self, topic: &str, numbers: &[i32]) -> Result<Partitions> {
        let changes = self.0.surroundings.changes();
        let forgotten = {
            let registered = guard(&self.0.registered);
            if let Some((_, known)) = registered
                .topics
                .get(topic)
                .filter(|(at, _)| *at == changes)
            {
                return Ok(known.clone());
            }
            registered.forgotten
        };
        for &partition in numbers {
            let at = TopicPartition {
                topic: topic.to_owned(),
                partition,
            };
            if let Some(path) = self.path_of(&at)? {
                let membership = self.0.surroundings.membership(&path, topic, partition)?;
                let found = membership.partitions().map(Arc::new);
                let mut registered = guard(&self.0.registered);
                // Of directories that were there before it holds for this call alone.
                if registered.forgotten == forgotten {
                    let known = (changes, found.clone());
                    registered.topics.insert(topic.to_owned(), known);
                }
                return Ok(found);
            }
        }
        // Gone meanwhile.
        Ok(None)
    }

    /// Has the cluster's metadata be read again by the next who asks.
    pub(super) fn forget_cluster(&self) {
        self.0.surroundings.forget();
    }
}

/// Whether one of the `registered` partitions is not among those from 0 on, of which there are `count`.
fn lacks(registered: &[i32], count: usize) -> bool {
    let is_here = |each: &i32| usize::try_from(*each).is_ok_and(|each| each < count);
    !registered.iter().all(is_here)
}

#[cfg(test)]
mod tests {
    use super::lacks;

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
