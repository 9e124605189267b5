//! What is in the log dirs beside a partition that is restored there: a link in its place, and other directories of it.

use super::super::compare::has_records;
use super::{Placed, Target, Targets};
use crate::adopt::contents;
use crate::places::PartitionPlace;
use offsetlog::OpenOptions;
use offsetlog::format::name::{DIRECTORY_MAXIMUM_CHARACTERS, DirectoryState};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// A directory of a partition that is not the partition's live one.
struct Beside {
    /// Whether the name of the topic may be cut short in that of the directory.
    is_cut: bool,
    state: DirectoryState,
    path: PathBuf,
}

/// All of them. There may be as many as partitions that are restored.
#[derive(Default)]
pub(super) struct AllBeside {
    /// By partition and the name of the topic, as far as the directory has it.
    all: BTreeMap<i32, BTreeMap<String, Vec<Beside>>>,
    /// How much is left of names that may be cut short.
    cut_lengths: BTreeSet<usize>,
}

impl AllBeside {
    /// Adds those of a log dir.
    pub(super) fn extend(&mut self, partitions: &[PartitionPlace]) {
        for found in partitions {
            if found.state == DirectoryState::Live {
                continue;
            }
            let name = found.path.file_name().unwrap_or_default();
            let is_cut =
                found.state != DirectoryState::Future && name.len() >= DIRECTORY_MAXIMUM_CHARACTERS;
            if is_cut {
                self.cut_lengths.insert(found.topic.len());
            }
            let of_partition = self.all.entry(found.partition).or_default();
            let of_topic = of_partition.entry(found.topic.clone()).or_default();
            of_topic.push(Beside {
                is_cut,
                state: found.state,
                path: found.path.clone(),
            });
        }
    }

    /// Those that are, or may be, of this partition.
    fn of(&self, topic: &str, partition: i32) -> impl Iterator<Item = &Beside> {
        let of_partition = self.all.get(&partition);
        let shorter = self.cut_lengths.range(..topic.len());
        let names = shorter.filter_map(|length| topic.get(..*length));
        names.chain([topic]).flat_map(move |name| {
            let found = of_partition.and_then(|of_partition| of_partition.get(name));
            let is_it = move |each: &&Beside| each.is_cut || name == topic;
            found.into_iter().flatten().filter(is_it)
        })
    }
}

impl Targets {
    /// Warns of other directories of a partition that is restored.
    ///
    /// # Errors
    /// In words: what in its place, or beside it, keeps it from being restored.
    pub(super) fn look_beside(
        &mut self,
        topic: &str,
        partition: i32,
        placed: &Placed,
        options: &OpenOptions,
    ) -> std::result::Result<(), String> {
        for (_, path) in &placed.replicas {
            let is_link = options.disk.is_link(path);
            if is_link.map_err(|error| format!("{}: {error}", path.display()))? {
                return Err(format!(
                    "{} is a symbolic link, and would be replaced by a directory on this disk: mount what it leads to in its place, or remove it",
                    path.display()
                ));
            }
        }
        if self.kind == Target::Folder {
            return Ok(());
        }
        let (mut warnings, mut refusal) = (Vec::new(), None);
        for other in self.beside.of(topic, partition) {
            let what = contents(&other.path, options);
            let state = match other.state {
                DirectoryState::Future if has_records(&other.path, options) => {
                    refusal = Some(format!(
                        "{what} is a copy of it on its way from another log dir, and a broker goes on with the move when it starts: if it is \
                         what is wanted, take it in with offsetlog adopt; otherwise move it away"
                    ));
                    continue;
                }
                DirectoryState::Future => "was a copy of it on its way from another log dir",
                DirectoryState::Delete => "is of it too, and waits for its deletion",
                DirectoryState::Live | DirectoryState::Stray => {
                    "is of it too, and was set aside by a broker"
                }
            };
            warnings.push(format!(
                "{topic}-{partition}: {what} {state}: if it has more than what is restored, take it in instead (offsetlog adopt)"
            ));
        }
        self.warnings.extend(warnings);
        refusal.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn place(topic: &str, partition: i32, state: DirectoryState, name: &str) -> PartitionPlace {
        PartitionPlace {
            path: Path::new("/logs").join(name),
            topic: topic.to_owned(),
            partition,
            state,
            topic_id: Ok(None),
        }
    }

    fn names(all: &AllBeside, topic: &str, partition: i32) -> Vec<String> {
        let found = all.of(topic, partition);
        let name = |each: &Beside| {
            each.path
                .file_name()
                .unwrap()
                .to_string_lossy()
                .into_owned()
        };
        found.map(name).collect()
    }

    #[test]
    fn each_is_found_by_its_partition_and_what_its_name_has_of_the_topic() {
        let long = "t".repeat(249);
        let left = "t".repeat(213);
        let aside = |part: &str| format!("{part}-0.{}-stray", "a".repeat(32));
        let (whole, cut) = (aside("orders"), format!("{}x", aside(&left)));
        assert_eq!(cut.len(), DIRECTORY_MAXIMUM_CHARACTERS);
        let mut all = AllBeside::default();
        all.extend(&[
            place("orders", 0, DirectoryState::Live, "orders-0"),
            place("orders", 0, DirectoryState::Stray, &whole),
            place("orders", 0, DirectoryState::Future, "two"),
            place(&left, 0, DirectoryState::Stray, &cut),
            // Kafka does not cut these.
            place(&left, 0, DirectoryState::Future, &format!("{cut}f")),
        ]);
        assert_eq!(names(&all, "orders", 0), [whole, "two".to_owned()]);
        for (topic, partition) in [("orders", 1), ("orders2", 0), ("order", 0), (&*long, 1)] {
            assert_eq!(
                names(&all, topic, partition),
                [""; 0],
                "{topic}-{partition}"
            );
        }
        assert_eq!(names(&all, &long, 0), [&*cut]);
        assert_eq!(names(&all, &left, 0), [cut.clone(), format!("{cut}f")]);
    }

    /// As many restored ones as others beside them: if each were compared with each, this would take minutes.
    #[test]
    fn many_are_found_without_comparing_each_with_each() {
        let mut all = AllBeside::default();
        let topics: Vec<String> = (0..50_000).map(|number| format!("topic{number}")).collect();
        let strays = topics
            .iter()
            .map(|topic| place(topic, 0, DirectoryState::Stray, topic));
        all.extend(&strays.collect::<Vec<_>>());
        for topic in &topics {
            assert_eq!(all.of(topic, 0).count(), 1);
        }
    }
}
