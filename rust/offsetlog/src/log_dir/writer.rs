//! Log dirs that are open for appending: records by topic, partitions opened on use.

use super::open_logs::OpenLogs;
use super::routing::{Partitioner, Router};
use super::{Inner, LogDir, TopicPartition};
use crate::batch_builder::BatchBuilder;
use crate::config::LogConfig;
use crate::disk::Lock;
use crate::error::{Error, ErrorKind, Result};
use crate::log::{AppendInfo, AppendOptions, Log, OpenOptions, WriteOptions, open_for_append_in};
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
}

impl Default for LogDirOptions {
    fn default() -> Self {
        Self {
            defaults: LogConfig::default(),
            max_open_partitions: 100,
            seed: None,
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
            topics: Mutex::default(),
            locks: Mutex::new(locks),
            closed: AtomicBool::new(false),
        })
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
        let partition = match route {
            Route::Partition(partition) => partition,
            Route::By(partitioner, key) => self.route(topic, partitioner, key)?,
        };
        let bytes = batch.payload_bytes() as u64;
        let info = self.writable(topic, partition)?.append(batch, options)?;
        if let Route::By(Partitioner::Default, None) = route {
            guard(&writer.router).appended(topic, bytes);
        }
        Ok((partition, info))
    }

    /// The partition to which a record of a topic goes.
    ///
    /// # Errors
    /// `LogDir` for a topic that is not there, or of which some partitions are not: how many it has is not known then.
    pub fn route(&self, topic: &str, partitioner: Partitioner, key: Option<&[u8]>) -> Result<i32> {
        let count = self.partition_count(topic)?;
        guard(&self.writer()?.router).route(partitioner, topic, key, count)
    }

    /// How many partitions a topic has.
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
        let writer = self.writer()?;
        let wanted = TopicPartition {
            topic: topic.to_owned(),
            partition,
        };
        let Some(path) = self.path_of(&wanted) else {
            return Err(self.unknown(topic, partition));
        };
        let write = WriteOptions {
            defaults: writer.options.defaults.clone(),
            ..WriteOptions::default()
        };
        writer.logs.get(&wanted, || {
            let shared = self.0.shared_with(&path);
            open_for_append_in(&path, &self.0.options, &write, shared)
        })
    }

    /// Makes everything durable that was appended to any partition. Stops at the first one that fails.
    ///
    /// # Errors
    /// As [`Log::flush`].
    pub fn flush(&self) -> Result<()> {
        let logs = self.writer()?.logs.all();
        logs.iter().try_for_each(Log::flush)
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
        let mut closed = Ok(());
        for log in writer.logs.all() {
            closed = closed.and(log.close());
        }
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
}

impl Inner {
    pub(super) fn now(&self) -> i64 {
        (self.options.clock)()
    }
}
