//! Log dirs that are open for appending: appends by topic, and opens partitions on use.

use super::empty_folders::check_new_log_dirs;
use super::listing::Listing;
use super::open_logs::OpenLogs;
use super::routing::{Partitioner, Router};
use super::{Inner, LogDir, TopicPartition};
use crate::append_info::AppendInfo;
use crate::batch_builder::BatchBuilder;
use crate::config::{BrokerSettings, LogConfig};
use crate::disk::{Disk, Lock};
use crate::error::{Error, ErrorKind, Result};
use crate::folder::{is_there, refuse_unless_log_dir};
use crate::log::{AppendOptions, LogWriter, OpenOptions, WriteOptions, open_for_append_in};
use crate::together::with_each;
use offsetlog_format::OffsetCheckpointFile;
use offsetlog_format::name::{DirectoryState, directory_name, directory_name_in_state};
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Options of log dirs that are opened for appending.
#[derive(Debug, Clone)]
pub struct LogDirOptions {
    /// Defaults for settings that a topic does not have: like a broker's settings.
    pub defaults: LogConfig,
    /// Limit on open partitions, not counting those that callers hold. Each one uses up to seven files.
    pub max_open_partitions: usize,
    /// Seed for all random choices, so that runs repeat: partitions of records without a key, and ids.
    pub seed: Option<u64>,
    /// In a broker's log dir: the directory with the cluster's metadata log, if it is not one of the log dirs.
    pub metadata: Option<PathBuf>,
    /// A broker's `server.properties`. In its log dir it is the layer below the cluster's settings; elsewhere it acts like
    /// `defaults`.
    pub broker: Option<BrokerSettings>,
    /// Kafka's internal topics, such as `__consumer_offsets`, that may be deleted, truncated and maintained even so.
    pub internal_topics: BTreeSet<String>,
    /// Whether records may be changed although other brokers have replicas of the partition.
    pub single_replica: bool,
    /// Whether the caller is the mirror that fills the log dir. Nobody else may change the records there.
    pub fills_mirror: bool,
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
            fills_mirror: false,
        }
    }
}

/// How the partition of a record is chosen.
#[derive(Debug, Clone, Copy)]
pub enum Route<'k> {
    /// The partition that the caller gives.
    Partition(i32),
    /// Chosen as a producer does, by the record's key or without one.
    By(Partitioner, Option<&'k [u8]>),
}

/// A directory that waits for deletion, and its due time in ms since 1970.
#[derive(Debug, Clone)]
pub(super) struct PendingDelete {
    pub(super) path: PathBuf,
    pub(super) due: i64,
}

/// The state of log dirs that are open for appending.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) options: LogDirOptions,
    pub(super) logs: OpenLogs,
    pub(super) router: Mutex<Router>,
    pub(super) pending_deletes: Mutex<Vec<PendingDelete>>,
    /// Held while directories of deleted topics are removed.
    pub(super) removing: Mutex<()>,
    /// Held while topics are created, changed or deleted.
    pub(super) topics: Mutex<()>,
    /// Locks on each log dir's `.lock`, shared with other offsetlog processes. They keep brokers out.
    locks: Mutex<Vec<Lock>>,
    closed: AtomicBool,
}

impl Writer {
    /// Creates missing directories and locks all of them.
    pub(super) fn open(
        paths: &[PathBuf],
        open: &OpenOptions,
        options: &LogDirOptions,
    ) -> Result<Self> {
        let disk = open.disk.as_ref();
        let mut locks = Vec::new();
        // Checks all of them before it creates anything in any.
        for path in paths {
            refuse_unless_log_dir(disk, path)?;
        }
        refuse_twins(disk, paths)?;
        check_new_log_dirs(disk, paths)?;
        for path in paths {
            if disk.stat(path).is_err() {
                crate::log::make_directory(disk, path)?;
            }
            let becoming = crate::log::note_offsets(disk, path)?;
            locks.push(crate::log::lock_log_dir(disk, path)?);
            if let Some(becoming) = becoming {
                becoming.release();
            }
        }
        Ok(Self {
            options: options.clone(),
            logs: OpenLogs::new(options.max_open_partitions),
            router: Mutex::new(Router::new(options.seed)),
            pending_deletes: Mutex::default(),
            removing: Mutex::default(),
            topics: Mutex::default(),
            locks: Mutex::new(locks),
            closed: AtomicBool::new(false),
        })
    }
}

impl Writer {
    /// For work on a separate in-memory disk: the log dirs exist, and another writer in this process holds their locks.
    pub(super) fn aside(options: &LogDirOptions) -> Self {
        Self {
            options: options.clone(),
            logs: OpenLogs::new(options.max_open_partitions),
            router: Mutex::new(Router::new(options.seed)),
            pending_deletes: Mutex::default(),
            topics: Mutex::default(),
            locks: Mutex::default(),
            removing: Mutex::default(),
            closed: AtomicBool::new(false),
        }
    }
}

/// Refuses one folder under two names, as by a link: each partition would stand in it twice, and the locks under one name keep out the other.
fn refuse_twins(disk: &dyn Disk, paths: &[PathBuf]) -> Result<()> {
    // Of what is still to be made: the folder around it, and the names in that.
    let place = |path: &Path| {
        path.ancestors().find_map(|above| {
            let id = disk.id(above).ok()?;
            let inside = path.strip_prefix(above).ok()?;
            Some((id, inside.to_path_buf()))
        })
    };
    let mut known: HashMap<_, &Path> = HashMap::new();
    for path in paths {
        if let Some(place) = place(path)
            && let Some(other) = known.insert(place, path)
        {
            let (one, other) = (other.display(), path.display());
            let reason = format!("{one} and {other} are one folder: give it once");
            return Err(Error::log_dir(path, reason));
        }
    }
    Ok(())
}

pub(super) fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LogDir {
    /// Opens log dirs for appending and creates missing ones, unless another one is in use ([`check_new_log_dirs`]). Takes a shared lock on each one's `.lock`, which a running broker
    /// holds exclusively. Each partition is opened, and recovered if needed, on its first use.
    ///
    /// If a folder was no log dir, notes first in its checkpoint where the logs in it begin that were written by themselves.
    ///
    /// Directories that a broker renamed for deletion wait for `file.delete.delay.ms` from now on. Those that offsetlog renamed
    /// have their due time in a file.
    ///
    /// # Errors
    /// * `Locked`: a broker is running on one of them; a partition is open for appending in a folder that was no log dir.
    /// * `LogDir`: two of the log dirs have the same partition or are the same folder, a path is itself a partition directory, or one is
    ///   new while another one is in use.
    /// * Those of [`open`](Self::open).
    pub fn open_for_append<P: AsRef<Path>>(
        paths: &[P],
        open: &OpenOptions,
        options: &LogDirOptions,
    ) -> Result<Self> {
        let paths = super::absolute(paths)?;
        let writer = Writer::open(&paths, open, options)?;
        let metadata = writer.options.metadata.clone();
        let log_dir = Self::list(paths, open, metadata.as_deref(), Some(writer))?;
        for (partition, replicas) in &log_dir.0.listing().partitions {
            if let [one, other, ..] = replicas.as_slice() {
                return Err(super::in_two_places(partition, one, other));
            }
            if let [path] = replicas.as_slice()
                && log_dir.0.paths.contains(path)
            {
                let reason = "a partition's directory found, the folder around it expected";
                return Err(Error::log_dir(path, reason));
            }
        }
        let found = log_dir.newly_deleted(open.disk.as_ref())?;
        guard(&log_dir.writer()?.pending_deletes).extend(found);
        Ok(log_dir)
    }

    /// Appends the records of `batch` to one partition, chosen by `route`. Returns the partition and the offsets. See
    /// [`LogWriter::append`].
    ///
    /// # Errors
    /// Those of [`LogWriter::append`] and of opening the partition; `LogDir` if the topic or partition does not exist; `Io` if
    /// another partition had to be closed to make room and could not be made durable.
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
            let count = self.count_for(topic, partitioner, key)?;
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

    /// Opens a partition that was chosen among `count` for appending; `None` if the topic now has another number of partitions.
    /// While a caller holds the log, nobody can delete and recreate the topic, so the choice stays valid.
    ///
    /// # Errors
    /// Those of opening the partition; `LogDir` if the topic was deleted.
    pub fn writable_of(
        &self,
        topic: &str,
        partition: i32,
        count: i32,
    ) -> Result<Option<LogWriter>> {
        let opened = self.writable(topic, partition);
        match self.count_here(topic) {
            Ok(now) if now == count => opened.map(Some),
            Ok(_) => Ok(None),
            Err(error) => Err(opened.err().unwrap_or(error)),
        }
    }

    /// Opens a partition for appending. While a caller holds it, it stays open until the log dirs are closed.
    pub(super) fn writable(&self, topic: &str, partition: i32) -> Result<LogWriter> {
        self.writable_if(topic, partition, |_| Ok(true))?
            .ok_or_else(|| self.unknown(topic, partition))
    }

    /// The same, but `None` if the partition does not exist, or if it is not open and `wanted` returns `false` for its
    /// directory.
    pub(super) fn writable_if(
        &self,
        topic: &str,
        partition: i32,
        wanted: impl Fn(&Path) -> Result<bool>,
    ) -> Result<Option<LogWriter>> {
        let writer = self.writer()?;
        let of = TopicPartition {
            topic: topic.to_owned(),
            partition,
        };
        let write = WriteOptions {
            defaults: writer.options.defaults.clone(),
            internal_topics: writer.options.internal_topics.clone(),
            single_replica: writer.options.single_replica,
            fills_mirror: writer.options.fills_mirror,
            ..WriteOptions::default()
        };
        let opened = writer.logs.get(&of, || {
            // Checked while the cell is held, so no thread of this process deletes the partition.
            let Some(listed) = self.path_of(&of)? else {
                return Ok(None);
            };
            let gone = || {
                let reason = "another program has deleted the topic, or moved the directory, since this one opened the log dir";
                Error::log_dir(&listed, reason)
            };
            let Some(path) = self.place_of(&of)? else {
                return Err(gone());
            };
            if !wanted(&path)? {
                return Ok(None);
            }
            let shared = self.0.shared_with(&path);
            let surroundings = Some(&self.0.surroundings);
            let opened = open_for_append_in(&path, &self.0.options, &write, shared, surroundings);
            let log = match opened {
                Err(error) if error.is_missing_file() && !is_there(self.disk(), &path)? => {
                    return Err(gone());
                }
                opened => opened?,
            };
            // The partition's lock is held now, so nobody can delete the topic any more.
            if !self.is_as_listed(topic)? {
                self.list_again(topic)?;
            }
            Ok(Some(log))
        });
        opened.map_err(|error| self.at_first(error))
    }

    /// The new path of a partition's directory that is to be deleted. A program that opens with the same seed again draws the same ids, so
    /// names that are taken are passed over.
    pub(super) fn delete_target(&self, path: &Path, of: &TopicPartition) -> Result<PathBuf> {
        let writer = self.writer()?;
        let parent = path.parent().unwrap_or(Path::new(""));
        loop {
            let (unique, state) = (guard(&writer.router).unique_id(), DirectoryState::Delete);
            let name = directory_name_in_state(&of.topic, of.partition, state, unique)
                .map_err(|error| Error::log_dir(path, error.fault.to_string()))?;
            let target = parent.join(name);
            if !is_there(self.disk(), &target)? {
                return Ok(target);
            }
        }
    }

    /// The current directory of a partition. Lists its topic again if another process removed or moved the directory.
    pub(super) fn place_of(&self, partition: &TopicPartition) -> Result<Option<PathBuf>> {
        let Some(path) = self.path_of(partition)? else {
            return Ok(None);
        };
        if is_there(self.disk(), &path)? {
            return Ok(Some(path));
        }
        self.list_again(&partition.topic)?;
        self.path_of(partition)
    }

    /// Whether a topic still has the listed number of partitions, by its last one and the one after it.
    fn is_as_listed(&self, topic: &str) -> Result<bool> {
        let Some(last) = self.0.listing().numbers(topic).next_back() else {
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

    /// Lists the partitions of a topic again.
    pub(super) fn list_again(&self, topic: &str) -> Result<()> {
        // Held meanwhile: a thread that makes or deletes a topic changes the listing behind the directories, and what was listed between
        // may not take the place of that.
        let mut listing = self.0.listing_mut();
        let mut found = Listing::default();
        for path in &self.0.paths {
            found.add(self.disk(), path)?;
        }
        found.refuse_empty(self.0.paths.len() > 1)?;
        listing.partitions.retain(|known, _| known.topic != topic);
        let of_topic = found.partitions.into_iter();
        listing
            .partitions
            .extend(of_topic.filter(|(partition, _)| partition.topic == topic));
        // Another topic of the name is not the one that the cluster has.
        guard(&self.0.registered).forget(topic);
        drop(listing);
        guard(&self.writer()?.router).forget(topic);
        Ok(())
    }

    /// Runs `work` with a partition's log, and again with a reopened log if another thread closed it meanwhile. `work` that
    /// fails with `Closed` has changed nothing.
    pub(super) fn with_log<T>(
        &self,
        topic: &str,
        partition: i32,
        mut work: impl FnMut(&LogWriter) -> Result<T>,
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

    /// Makes the appended records of all partitions durable, as far as possible. If another thread closes a partition meanwhile, the close
    /// makes it durable.
    ///
    /// # Errors
    /// The first error of [`LogWriter::flush`]. `Poisoned`, until the log dirs are opened again, after a partition that was closed for
    /// another one could not be synced: what was appended to it may be lost.
    pub fn flush(&self) -> Result<()> {
        let writer = self.writer()?;
        let logs = writer.logs.all();
        with_each(&logs, |log| match log.flush() {
            Err(error) if is_closed(&error) => {
                if log.is_durable() || !self.has(log.topic(), log.partition()) {
                    return Ok(());
                }
                let first = "closing it in another thread failed".to_owned();
                Err(Error::new(ErrorKind::Poisoned { first }).at_path(log.path()))
            }
            flushed => flushed,
        })?;
        writer.logs.check_synced()
    }

    /// Closes all partitions cleanly and releases the log dirs. Does nothing for readers or if they are already closed.
    ///
    /// # Errors
    /// The first error of [`LogWriter::close`]; everything is closed even so.
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
            // Written last, because a broker trusts the clean-shutdown marker. A log that could not be closed is marked in its
            // own state file.
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

    /// Writes the lines of partitions that are gone or about to be created. After an error they do not wait for the next write: by then
    /// another process may have created a topic under the name, whose lines they would remove.
    pub(super) fn write_lines_of(&self, topic: &str, partitions: &[i32]) -> Result<()> {
        let written = self.write_lines();
        if written.is_err() {
            let lines = OffsetCheckpointFile::ALL.map(|file| (file, None));
            for shared in &self.0.shared {
                for &partition in partitions {
                    shared.withdraw(&lines, topic, partition);
                }
            }
        }
        written
    }

    /// Writes the checkpoints' lines for the partitions.
    pub(super) fn write_lines(&self) -> Result<()> {
        let written = self.0.shared.iter().map(|shared| shared.write_lines());
        written.fold(Ok(()), Result::and)
    }

    /// Whether the log dirs were opened for appending.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.0.writer.is_some()
    }

    pub(super) fn writer(&self) -> Result<&Writer> {
        let path = || self.0.paths.first().map_or(Path::new(""), PathBuf::as_path);
        match &self.0.writer {
            None => Err(Error::argument(
                "mode",
                "the log dir was opened for reading; open it for appending to write",
            )
            .at_path(path())),
            Some(writer) if writer.closed.load(Ordering::SeqCst) => {
                Err(Error::new(ErrorKind::Closed).at_path(path()))
            }
            Some(writer) => Ok(writer),
        }
    }

    /// An error without a path concerns the log dirs as a whole.
    fn at_first(&self, error: Error) -> Error {
        match self.0.paths.first() {
            Some(path) if error.path().is_none() => error.at_path(path),
            _ => error,
        }
    }
}

/// Whether an operation failed because the log was closed before it started.
pub(super) fn is_closed(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Closed) && !error.is_appended()
}

impl Inner {
    pub(super) fn now(&self) -> i64 {
        (self.options.clock)()
    }
}
