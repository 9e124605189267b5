//! One or several log dirs as one: which partitions there are and where each one lies.

use crate::disk::EntryKind;
use crate::error::{Error, Result};
use crate::log::{Log, OpenOptions};
use offsetlog_format::name::{DirectoryName, DirectoryState, FileName};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A topic's partition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
}

/// One or several log dirs, for reading. Partitions are listed when it is opened and opened when they are asked for.
#[derive(Debug, Clone)]
pub struct LogDir {
    paths: Vec<PathBuf>,
    options: OpenOptions,
    /// Each partition with the directories that hold a replica of it.
    partitions: BTreeMap<TopicPartition, Vec<PathBuf>>,
    warnings: Vec<String>,
}

impl LogDir {
    /// Lists the partition directories of `paths`; a path that is itself a partition directory counts as one. Directories being
    /// deleted, moved in or set aside (`-delete`, `-future`, `-stray`) are left out; others that are no partition's are left out with a warning.
    ///
    /// # Errors
    /// `Io` when a path cannot be listed; `Argument` without any path; `LogDir` when there is neither a partition nor a sign of
    /// a log dir in any of them.
    pub fn open<P: AsRef<Path>>(paths: &[P], options: &OpenOptions) -> Result<Self> {
        if paths.is_empty() {
            return Err(Error::argument(
                "paths",
                "none found, at least one log dir expected",
            ));
        }
        let mut log_dir = Self {
            paths: Vec::new(),
            options: options.clone(),
            partitions: BTreeMap::new(),
            warnings: Vec::new(),
        };
        for path in paths {
            let path = std::path::absolute(path)
                .map_err(|error| Error::io("resolve", path.as_ref(), error))?;
            if !log_dir.paths.contains(&path) {
                log_dir.add(&path)?;
                log_dir.paths.push(path);
            }
        }
        Ok(log_dir)
    }

    fn add(&mut self, path: &Path) -> Result<()> {
        let entries = self
            .options
            .disk
            .list(path)
            .map_err(|error| Error::io("list", path, error))?;
        let own_name = path
            .file_name()
            .and_then(|name| name.to_str())
            .map(DirectoryName::parse);
        let holds_segments = entries.iter().any(|entry| {
            entry.kind == EntryKind::File
                && matches!(FileName::classify(&entry.name), FileName::Segment(_))
        });
        if let (Some(Ok(name)), true) = (own_name, holds_segments) {
            self.insert(&name, path.to_path_buf());
            return Ok(());
        }
        for entry in entries {
            if entry.kind != EntryKind::Directory || entry.name == "remote-log-index-cache" {
                continue;
            }
            match DirectoryName::parse(&entry.name) {
                Ok(name) if name.state == DirectoryState::Live => {
                    self.insert(&name, path.join(&entry.name));
                }
                Ok(_) => {}
                Err(error) => self.warnings.push(format!(
                    "left out: directory {:?} of {} is not topic-partition: {}",
                    entry.name,
                    path.display(),
                    error.fault
                )),
            }
        }
        Ok(())
    }

    fn insert(&mut self, name: &DirectoryName<'_>, path: PathBuf) {
        let partition = TopicPartition {
            topic: name.topic.to_owned(),
            partition: name.partition,
        };
        self.partitions.entry(partition).or_default().push(path);
    }

    /// The log dirs, as given and made absolute.
    #[must_use]
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// What was odd and left out.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// How logs are opened.
    #[must_use]
    pub fn options(&self) -> &OpenOptions {
        &self.options
    }

    /// The topics and their partitions, both ascending.
    #[must_use]
    pub fn topics(&self) -> BTreeMap<String, Vec<i32>> {
        let mut topics: BTreeMap<String, Vec<i32>> = BTreeMap::new();
        for partition in self.partitions.keys() {
            let partitions = topics.entry(partition.topic.clone()).or_default();
            partitions.push(partition.partition);
        }
        topics
    }

    /// The partitions, by topic and number.
    #[must_use]
    pub fn partitions(&self) -> Vec<TopicPartition> {
        self.partitions.keys().cloned().collect()
    }

    /// Opens a partition. Where it stands in several log dirs, the replica with the greatest log end offset is taken, whole batches
    /// with right checksums only; of equals the first.
    ///
    /// # Errors
    /// `LogDir` when there is no such partition; those of [`Log::open`].
    pub fn log(&self, topic: &str, partition: i32) -> Result<Log> {
        let wanted = TopicPartition {
            topic: topic.to_owned(),
            partition,
        };
        let Some(paths) = self.partitions.get(&wanted) else {
            return Err(self.unknown(topic, partition));
        };
        if let [path] = paths.as_slice() {
            return Log::open(path, &self.options);
        }
        let mut best: Option<(i64, Log)> = None;
        let mut failure = None;
        for path in paths {
            let opened =
                Log::open(path, &self.options).and_then(|log| Ok((log.log_end_offset()?, log)));
            match opened {
                Ok((end, log)) => {
                    if best.as_ref().is_none_or(|(longest, _)| end > *longest) {
                        best = Some((end, log));
                    }
                }
                // A replica whose end cannot be found is worse than any that can be read to its end.
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        match (best, failure) {
            (Some((_, log)), _) => Ok(log),
            (None, Some(error)) => Err(error),
            (None, None) => Err(self.unknown(topic, partition)),
        }
    }

    fn unknown(&self, topic: &str, partition: i32) -> Error {
        let path = self.paths.first().map_or(Path::new(""), PathBuf::as_path);
        let topics = self.topics();
        let reason = match topics.get(topic) {
            Some(partitions) => format!(
                "topic {topic:?} has no partition {partition}; it has {}",
                partitions
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
            None => format!("there is no topic {topic:?} among {} topics", topics.len()),
        };
        Error::log_dir(path, reason)
    }
}
