//! The groups that a stopped broker keeps in its own `__consumer_offsets`: what they have committed may lie behind the end of what is put
//! into its log dirs.

use crate::restore::{Committed, commits};
use crate::shell::quoted;
use offsetlog::format::Uuid;
use offsetlog::{Log, OpenOptions, Result};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

const TOPIC: &str = "__consumer_offsets";

/// What the groups have committed by some directories.
#[derive(Debug, Default)]
pub(crate) struct BrokerGroups {
    /// By topic and partition: the groups with what they have committed.
    committed: HashMap<(String, i32), Vec<(String, Committed)>>,
    /// What cannot be read.
    pub(crate) warnings: Vec<String>,
}

/// Whether it is the topic that groups are in.
pub(crate) fn is_of_groups(topic: &str) -> bool {
    topic == TOPIC
}

impl BrokerGroups {
    /// Reads the directories of `__consumer_offsets`; of several of a partition the one that leads.
    ///
    /// # Errors
    /// `Interrupted`. A warning says what cannot be read.
    pub(crate) fn read<'p>(
        directories: impl IntoIterator<Item = &'p PathBuf>,
        options: &OpenOptions,
    ) -> Result<Self> {
        let mut found = Self::default();
        let mut best: BTreeMap<i32, (Option<i32>, i64, Log)> = BTreeMap::new();
        for path in directories {
            let opened = Log::open(path, options)
                .and_then(|log| Ok((log.leader_epoch()?, log.log_end_offset()?, log)));
            let Some((epoch, end, log)) = found.take(path, opened)? else {
                continue;
            };
            log.close_files();
            let known = best.get(&log.partition());
            if known.is_none_or(|(of, until, _)| (*of, *until) < (epoch, end)) {
                best.insert(log.partition(), (epoch, end, log));
            }
        }
        for (_, _, log) in best.into_values() {
            let read = commits(&log, None);
            log.close_files();
            let committed = found.take(log.path(), read)?;
            for ((group, topic, partition), offset) in committed.unwrap_or_default().offsets {
                let of_it = found.committed.entry((topic, partition)).or_default();
                of_it.push((group, offset));
            }
        }
        Ok(found)
    }

    fn take<T>(&mut self, path: &Path, read: Result<T>) -> Result<Option<T>> {
        match read {
            Ok(read) => Ok(Some(read)),
            Err(error) if error.is_of_process() => Err(error),
            Err(error) => {
                self.warnings.push(format!(
                    "whether committed offsets lie behind the end, {} does not say: {error}",
                    path.display()
                ));
                Ok(None)
            }
        }
    }

    /// Whether a group has committed an offset of a partition.
    pub(crate) fn knows(&self, (topic, partition): (&str, i32)) -> bool {
        self.committed.contains_key(&(topic.to_owned(), partition))
    }

    /// The groups that have committed an offset behind this end of a partition, with it.
    pub(crate) fn behind(
        &self,
        (topic, partition): (&str, i32),
        (end, topic_id): (i64, Option<Uuid>),
    ) -> impl Iterator<Item = (&str, i64)> {
        let of_it = self.committed.get(&(topic.to_owned(), partition));
        let of_it = of_it.into_iter().flatten();
        of_it.filter_map(move |(group, commit)| {
            let (committed, of) = (commit.offset, commit.topic_id);
            // A broker passes over what was committed in an earlier topic of the name.
            let is_of_another = topic_id.is_some_and(|id| !of.is_zero() && of != id);
            (committed > end && !is_of_another).then_some((group.as_str(), committed))
        })
    }
}

/// A note about a group; `what` is how the note calls the partition.
pub(crate) fn told(
    group: &str,
    what: &str,
    (topic, partition): (&str, i32),
    committed: i64,
    end: i64,
) -> String {
    format!(
        "group {group:?} has committed offset {committed} of {what}, which ends at {end}: its consumers would begin elsewhere, or pass over what is \
         appended up to there. Set it back before producers start: kafka-consumer-groups.sh --bootstrap-server localhost:9092 --group {} \
         --reset-offsets --to-offset {end} --topic {} --execute",
        quoted(group),
        quoted(&format!("{topic}:{partition}"))
    )
}
