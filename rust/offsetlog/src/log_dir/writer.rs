//! Log dirs that are open for appending: records by topic, partitions opened on use.

use super::listing::Listing;
use super::open_logs::OpenLogs;
use super::routing::{Partitioner, Router};
use super::{Inner, LogDir, TopicPartition};
use crate::batch_builder::BatchBuilder;
use crate::config::{BrokerSettings, LogConfig};
use crate::disk::Lock;
use crate::error::{Error, ErrorKind, Result};
use crate::folder::{is_there, refuse_unless_log_dir};
use crate::log::{AppendInfo, AppendOptions, Log, OpenOptions, WriteOptions, open_for_append_in};
use offsetlog_format::name::directory_name;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How log dirs are opened for appending.
#[derive(Debug, Clone)]
pub struct LogDirOptions {
    /// What holds for topics that do not set it themselves: a broker's settings.
    pub defaults: LogConfig,
    /// How many partitions are open at a time that nobody outside holds: each one takes up to seven files.
    pub max_open_partitions: usize,
    /// Makes what is drawn at random the same in each run: partitions of records without a key, and ids.
    pub seed: Option<u64>,
    /// In a broker's log dir: the folder with the cluster's metadata log, where that is none of the log dirs.
    pub metadata: Option<PathBuf>,
    /// A broker's `server.properties`. In its log dir the layer below the cluster's settings, elsewhere as `defaults`.
    pub broker: Option<BrokerSettings>,
    /// Topics of brokers' own, such as `__consumer_offsets`, that may be deleted, cut and maintained all the same.
    pub internal_topics: BTreeSet<String>,
    /// Whether records may be changed though other brokers have replicas of their partition.
    pub single_replica: bool,
}

impl Default for LogDirOptions {
    fn default() -> Self {
        Self {
            defaults: LogConfig::default(),
            max_open_partitions: 100,
            seed: None,
            metadata: None,
            broker: None,
            internal_topics: BTreeSet::new(),
            single_replica: false,
        }
    }
}

/// How the partition of a record is chosen.
#[derive(Debug, Clone, Copy)]
pub enum Route<'k> {
    /// The caller says it.
    Partition(i32),
    /// As a producer does, by the record's key or without one.
    By(Partitioner, Option<&'k [u8]>),
}

/// A directory that waits for its deletion, and when that is due.
#[derive(Debug, Clone)]
pub(super) struct Doomed {
    pub(super) path: PathBuf,
    pub(super) due: i64,
}

/// What appending log dirs have beside what reading ones have.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) options: LogDirOptions,
    pub(super) logs: OpenLogs,
    pub(super) router: Mutex<Router>,
    pub(super) doomed: Mutex<Vec<Doomed>>,
    /// Held while directories of deleted topics are removed.
    pub(super) removing: Mutex<()>,
    /// Held while topics are made or deleted.
    pub(super) topics: Mutex<()>,
    /// On each log dir's `.lock`, shared with other processes of ours; keeps brokers out.
    locks: Mutex<Vec<Lock>>,
    closed: AtomicBool,
}

impl Writer {
    /// Makes the folders that are missing, and locks them.
    pub(super) fn open(
        paths: &[PathBuf],
        open: &OpenOptions,
        options: &LogDirOptions,
    ) -> Result<Self> {
        let disk = open.disk.as_ref();
        let mut locks = Vec::new();
        // All of them, before anything is made in any.
        for path in paths {
            refuse_unless_log_dir(disk, path)?;
        }
        for path in paths {
            if disk.stat(path).is_err() {
                crate::log::make_directory(disk, path)?;
            }
            locks.push(crate::log::lock_log_dir(disk, path)?);
        }
        Ok(Self {
            options: options.clone(),
            logs: OpenLogs::new(options.max_open_partitions),
            router: Mutex::new(Router::new(options.seed)),
            doomed: Mutex::default(),
            removing: Mutex::default(),
            topics: Mutex::default(),
            locks: Mutex::new(locks),
            closed: AtomicBool::new(false),
        })
    }
}

impl Writer {
    /// For what works aside on a disk of its own: log dirs that are there, held by another writer of this process.
    pub(super) fn aside(options: &LogDirOptions) -> Self {
        Self {
            options: options.clone(),
            logs: OpenLogs::new(options.max_open_partitions),
            router: Mutex::new(Router::new(options.seed)),
            doomed: Mutex::default(),
            topics: Mutex::default(),
            locks: Mutex::default(),
            removing: Mutex::default(),
            closed: AtomicBool::new(false),
        }
    }
}

pub(super) fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LogDir {
    /// Opens log dirs for appending, and makes those that are missing. Takes a shared lock on each one's `.lock`, which a running
    /// broker holds; partitions are opened, and recovered where that is due, when they are used first.
    ///
    /// Directories that a broker had renamed to be deleted wait for `file.delete.delay.ms` from now on; of those that a program of ours
    /// renamed it is known since when.
    ///
    /// # Errors
    /// * `Locked`: a broker runs on one of them.
    /// * `LogDir`: a partition stands in two of the folders, or a folder is itself a partition's.
    /// * As [`open`](Self::open).
    pub fn open_for_append<P: AsRef<Path>>(
        paths: &[P],
        open: &OpenOptions,
        options: &LogDirOptions,
    ) -> Result<Self> {
        let paths = super::absolute(paths)?;
        let writer = Writer::open(&paths, open, options)?;
        let log_dir = Self::list(paths, open, Some(writer))?;
        for (partition, replicas) in &log_dir.0.listing().partitions {
            if let [one, other, ..] = replicas.as_slice() {
                let reason = format!(
                    "{partition} stands in {} too; a broker would not start, move one of them away",
                    other.display()
                );
                return Err(Error::log_dir(one, reason));
            }
            if let [path] = replicas.as_slice()
                && log_dir.0.paths.contains(path)
            {
                let reason = "a partition's directory found, the folder around it expected";
                return Err(Error::log_dir(path, reason));
            }
        }
        let writer = log_dir.writer()?;
        let due = (open.clock)().saturating_add(options.defaults.file_delete_delay_ms());
        let doomed = std::mem::take(&mut log_dir.0.listing_mut().doomed);
        let doomed = doomed.into_iter().map(|path| Doomed {
            due: super::topics::due_of(open.disk.as_ref(), &path, due),
            path,
        });
        guard(&writer.doomed).extend(doomed);
        Ok(log_dir)
    }

    /// Appends the records of `batch`, which are routed as one; gives their partition and offsets. As [`Log::append`].
    ///
    /// # Errors
    /// As [`Log::append`], and as for opening the partition; `LogDir` for a topic or partition that is not there; `Io` for another
    /// partition that had to be closed to make room and could not be made durable.
    pub fn append(
        &self,
        topic: &str,
        route: Route<'_>,
        batch: &mut BatchBuilder,
        options: &AppendOptions,
    ) -> Result<(i32, AppendInfo)> {
        let writer = self.writer()?;
        let bytes = batch.payload_bytes() as u64;
        let (partitioner, key) = match route {
            Route::Partition(partition) => {
                let info = self.with_log(topic, partition, |log| log.append(batch, options))?;
                return Ok((partition, info));
            }
            Route::By(partitioner, key) => (partitioner, key),
        };
        loop {
            let count = self.partition_count(topic)?;
            let partition = guard(&writer.router).route(partitioner, topic, key, count)?;
            let Some(log) = self.writable_of(topic, partition, count)? else {
                continue;
            };
            match log.append(batch, options) {
                Err(error) if is_closed(&error) && log.is_closed() => self.writer()?,
                done => {
                    let info = done?;
                    if (partitioner, key) == (Partitioner::Default, None) {
                        guard(&writer.router).appended(topic, bytes);
                    }
                    return Ok((partition, info));
                }
            };
        }
    }

    /// A partition that was chosen among `count`, open for appending; none where the topic turns out to have another number of them by
    /// now. While somebody holds the log nobody can make the topic anew, so that the choice stays right.
    ///
    /// # Errors
    /// As for opening the partition; `LogDir` for a topic that is gone.
    pub fn writable_of(&self, topic: &str, partition: i32, count: i32) -> Result<Option<Log>> {
        let opened = self.writable(topic, partition);
        match self.partition_count(topic) {
            Ok(now) if now == count => opened.map(Some),
            Ok(_) => Ok(None),
            Err(error) => Err(opened.err().unwrap_or(error)),
        }
    }

    /// The partition to which a record of a topic goes.
    ///
    /// # Errors
    /// `LogDir` for a topic that is not there, or of which some partitions are not: how many it has is not known then.
    pub fn route(&self, topic: &str, partitioner: Partitioner, key: Option<&[u8]>) -> Result<i32> {
        let count = self.partition_count(topic)?;
        guard(&self.writer()?.router).route(partitioner, topic, key, count)
    }

    /// How many partitions a topic has, as far as is known: another process may have made it anew as long as none is open here.
    ///
    /// # Errors
    /// As [`route`](Self::route).
    pub fn partition_count(&self, topic: &str) -> Result<i32> {
        let numbers = self.0.listing().numbers(topic);
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
        Ok(numbers.len() as i32)
    }

    /// A partition, open for appending. It stays open until the log dir is closed, as long as somebody holds it.
    pub(super) fn writable(&self, topic: &str, partition: i32) -> Result<Log> {
        self.writable_if(topic, partition, |_| Ok(true))?
            .ok_or_else(|| self.unknown(topic, partition))
    }

    /// The same, none where there is no such partition or, in a directory that is not open, `wanted` says no.
    pub(super) fn writable_if(
        &self,
        topic: &str,
        partition: i32,
        wanted: impl Fn(&Path) -> Result<bool>,
    ) -> Result<Option<Log>> {
        let writer = self.writer()?;
        let of = TopicPartition {
            topic: topic.to_owned(),
            partition,
        };
        let write = WriteOptions {
            defaults: writer.options.defaults.clone(),
            internal_topics: writer.options.internal_topics.clone(),
            single_replica: writer.options.single_replica,
            ..WriteOptions::default()
        };
        let opened = writer.logs.get(&of, || {
            // Asked here, where nobody of this process deletes it.
            let Some(listed) = self.path_of(&of) else {
                return Ok(None);
            };
            let Some(path) = self.place_of(&of)? else {
                let reason = "another program has deleted the topic, or moved the directory, since this one opened the log dir";
                return Err(Error::log_dir(&listed, reason));
            };
            if !wanted(&path)? {
                return Ok(None);
            }
            let shared = self.0.shared_with(&path);
            let surroundings = Some(&self.0.surroundings);
            let log =
                open_for_append_in(&path, &self.0.options, &write, shared, surroundings)?;
            // Now that this one is held, nobody deletes the topic any more.
            if !self.is_as_listed(topic)? {
                self.list_again(topic)?;
            }
            Ok(Some(log))
        });
        opened.map_err(|error| self.at_first(error))
    }

    /// Where a partition lies now: its topic is looked for again where another process has taken the directory away.
    pub(super) fn place_of(&self, partition: &TopicPartition) -> Result<Option<PathBuf>> {
        let Some(path) = self.path_of(partition) else {
            return Ok(None);
        };
        if is_there(self.disk(), &path)? {
            return Ok(Some(path));
        }
        self.list_again(&partition.topic)?;
        Ok(self.path_of(partition))
    }

    /// Whether a topic still has the partitions that are known, as far as their number tells.
    fn is_as_listed(&self, topic: &str) -> Result<bool> {
        let Some(last) = self.0.listing().numbers(topic).pop() else {
            return Ok(false);
        };
        let stands = |partition: i32| -> Result<bool> {
            let name = directory_name(topic, partition)
                .map_err(|error| Error::argument("topic", error.fault.to_string()))?;
            for parent in &self.0.paths {
                if is_there(self.disk(), &parent.join(&name))? {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        Ok(stands(last)? && !stands(last.saturating_add(1))?)
    }

    /// Looks again which partitions a topic has.
    fn list_again(&self, topic: &str) -> Result<()> {
        let mut found = Listing::default();
        for path in &self.0.paths {
            found.add(self.disk(), path)?;
        }
        let mut listing = self.0.listing_mut();
        listing.partitions.retain(|known, _| known.topic != topic);
        let of_topic = found.partitions.into_iter();
        listing
            .partitions
            .extend(of_topic.filter(|(partition, _)| partition.topic == topic));
        drop(listing);
        guard(&self.writer()?.router).forget(topic);
        Ok(())
    }

    /// Does `work` with a partition's log, and again with the log opened anew where another thread has closed it meanwhile. Work that
    /// fails with `Closed` has changed nothing.
    pub(super) fn with_log<T>(
        &self,
        topic: &str,
        partition: i32,
        mut work: impl FnMut(&Log) -> Result<T>,
    ) -> Result<T> {
        loop {
            let log = self.writable(topic, partition)?;
            match work(&log) {
                Err(error) if is_closed(&error) && log.is_closed() => {
                    self.writer()?;
                }
                done => return done,
            }
        }
    }

    /// Makes everything durable that was appended to any partition. Stops at the first one that fails. A partition that another thread
    /// closes meanwhile is made durable by that.
    ///
    /// # Errors
    /// As [`Log::flush`].
    pub fn flush(&self) -> Result<()> {
        let logs = self.writer()?.logs.all();
        logs.iter().try_for_each(|log| match log.flush() {
            Err(error) if is_closed(&error) => {
                if log.is_durable() || !self.has(log.topic(), log.partition()) {
                    return Ok(());
                }
                let first = "closing it in another thread failed".to_owned();
                Err(Error::new(ErrorKind::Poisoned { first }).at_path(log.path()))
            }
            flushed => flushed,
        })
    }

    /// Closes all partitions cleanly and lets go of the log dirs. Does nothing for readers and when it was done already.
    ///
    /// # Errors
    /// The first of those of [`Log::close`]; everything is closed all the same.
    pub fn close(&self) -> Result<()> {
        let Some(writer) = &self.0.writer else {
            return Ok(());
        };
        if writer.closed.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let mut closed = writer.logs.close_all();
        let written = self.write_lines();
        if written.is_ok() {
            // Behind all the rest, as whoever finds the mark believes it. A log that could not be closed is told by its own file.
            for shared in &self.0.shared {
                closed = closed.and(shared.settle());
            }
        }
        closed = closed.and(written);
        for lock in guard(&writer.locks).drain(..).rev() {
            lock.release();
        }
        closed
    }

    /// Writes what the checkpoints are to say of the partitions.
    pub(super) fn write_lines(&self) -> Result<()> {
        let written = self.0.shared.iter().map(|shared| shared.write_lines());
        written.fold(Ok(()), Result::and)
    }

    /// Whether it was opened for appending.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.0.writer.is_some()
    }

    pub(super) fn writer(&self) -> Result<&Writer> {
        let path = || self.0.paths.first().map_or(Path::new(""), PathBuf::as_path);
        match &self.0.writer {
            None => Err(Error::argument(
                "mode",
                "the log dir was opened for reading; open it with mode \"a\" to write",
            )
            .at_path(path())),
            Some(writer) if writer.closed.load(Ordering::SeqCst) => {
                Err(Error::new(ErrorKind::Closed).at_path(path()))
            }
            Some(writer) => Ok(writer),
        }
    }

    /// An error without a path is about the log dirs as a whole.
    fn at_first(&self, error: Error) -> Error {
        match self.0.paths.first() {
            Some(path) if error.path().is_none() => error.at_path(path),
            _ => error,
        }
    }
}

/// Whether a log was closed before the work on it began.
pub(super) fn is_closed(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Closed) && !error.is_appended()
}

impl Inner {
    pub(super) fn now(&self) -> i64 {
        (self.options.clock)()
    }
}
