//! One or several log dirs as one: which partitions there are and where each one lies.

use crate::disk::EntryKind;
use crate::error::{Error, Result};
use crate::log::{Log, OpenOptions, ScanOptions};
use offsetlog_format::name::{DirectoryName, DirectoryState, FileName};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Files that a log dir has.
const LOG_DIR_FILES: [&str; 5] = [
    "meta.properties",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    ".kafka_cleanshutdown",
    ".lock",
];

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
    /// Which of several replicas was taken.
    chosen: Arc<Mutex<BTreeMap<TopicPartition, PathBuf>>>,
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
            chosen: Arc::default(),
        };
        for path in paths {
            let path = std::path::absolute(path)
                .map_err(|error| Error::io("resolve", path.as_ref(), error))?;
            if !log_dir.paths.contains(&path) {
                log_dir.add(&path)?;
                log_dir.paths.push(path);
            }
        }
        log_dir.check_found()?;
        for (partition, replicas) in &log_dir.partitions {
            if replicas.len() > 1 {
                log_dir.warnings.push(format!(
                    "{}-{} stands in {} log dirs: the longest valid replica is read",
                    partition.topic,
                    partition.partition,
                    replicas.len()
                ));
            }
        }
        Ok(log_dir)
    }

    /// Without a partition, something must say that this is a log dir at all: a wrong path would otherwise look like an empty one.
    fn check_found(&self) -> Result<()> {
        let is_log_dir = |path: &PathBuf| {
            LOG_DIR_FILES
                .iter()
                .any(|name| self.options.disk.stat(&path.join(name)).is_ok())
        };
        match self.paths.first() {
            Some(first) if self.partitions.is_empty() && !self.paths.iter().any(is_log_dir) => {
                Err(Error::log_dir(
                    first,
                    "no partition directory (topic-partition) and no meta.properties or checkpoint found: not a log dir",
                ))
            }
            _ => Ok(()),
        }
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

    /// Opens a partition. Where it stands in several log dirs, the longest valid replica is taken: the one with the greatest offset
    /// up to which its batches can be read in a row with right checksums; of equals the first. Finding that out reads the
    /// replicas once; the choice is kept.
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
        let mut chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = chosen.get(&wanted) {
            return Log::open(path, &self.options);
        }
        let log = self.longest(paths)?;
        chosen.insert(wanted, log.path().to_path_buf());
        Ok(log)
    }

    fn longest(&self, paths: &[PathBuf]) -> Result<Log> {
        let mut best: Option<(i64, Log)> = None;
        let mut failure = None;
        for path in paths {
            let opened = Log::open(path, &self.options).and_then(|log| Ok((valid_end(&log)?, log)));
            match opened {
                Ok((end, log)) => {
                    if best.as_ref().is_none_or(|(longest, _)| end > *longest) {
                        best = Some((end, log));
                    }
                }
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        match (best, failure) {
            (Some((_, log)), _) => Ok(log),
            (None, Some(error)) => Err(error),
            (None, None) => Err(Error::argument("paths", "none found")),
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

/// Last offset, exclusive, up to which the batches of a log can be read in a row.
fn valid_end(log: &Log) -> Result<i64> {
    let options = ScanOptions {
        control_records: true,
        ..ScanOptions::default()
    };
    let mut scan = log.scan(&options)?;
    let mut end = log.log_start_offset()?;
    loop {
        match scan.next_batch() {
            Ok(Some(batch)) => end = batch.header().last_offset.saturating_add(1),
            Ok(None) => return Ok(end),
            Err(error) if error.is_corruption() => return Ok(end),
            Err(error) => return Err(error),
        }
    }
}
