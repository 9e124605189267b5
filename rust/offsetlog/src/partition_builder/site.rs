//! The place of a new partition directory: where it is built, and how it gets its name.

use crate::disk::{Disk, IoCall, Lock, random};
use crate::error::{Error, Result};
use crate::folder::{has_log_dir_files, refuse_new_partition};
use crate::log::{
    Log, LogDirFiles, OpenOptions, WriteOptions, check_new_partition, forget_partition,
    lock_log_dir, lock_partition, make_directory, open_for_append_in, partition_name,
};
use crate::log_dir::{DEPTH_MAX, remove_all};
use offsetlog_format::name::{DirectoryName, DirectoryState, check_topic, directory_name_in_state};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The place of the new directory, and where it is built.
#[derive(Debug)]
pub(super) struct Site {
    disk: Arc<dyn Disk>,
    pub(super) options: OpenOptions,
    pub(super) new: PathBuf,
    pub(super) topic: String,
    /// The parent directory of `new`.
    parent: PathBuf,
    /// The folder beside `new` that looks like a partition being deleted.
    aside: PathBuf,
    /// The new directory while it is built. It already has its final name, but is not directly in a log dir.
    pub(super) building: PathBuf,
    is_log_dir: bool,
    /// The files that the log dir's partitions share, if somebody gathers their lines.
    shared: Option<Arc<LogDirFiles>>,
    /// Whether a partition that never had a record may be in its place.
    replaces_empty: bool,
    /// Keeps a broker from starting, because it would delete the unfinished directory.
    _lock: Option<Lock>,
}

impl Site {
    /// Checks the name and the place of `new`, and locks its log dir. `shared` are the files that the log dir's partitions share, if the
    /// caller gathers their lines.
    pub(super) fn prepare(
        new: &Path,
        options: &OpenOptions,
        replaces_empty: bool,
        shared: Option<&Arc<LogDirFiles>>,
    ) -> Result<Self> {
        let name = new.file_name().and_then(|name| name.to_str()).unwrap_or("");
        let refused = |reason: String| Error::log_dir(new, reason);
        let parsed = DirectoryName::parse(name)
            .and_then(|parsed| check_topic(parsed.topic).map(|()| parsed))
            .map_err(|error| {
                refused(format!(
                    "directory name {name:?} is not topic-partition: {}",
                    error.fault
                ))
            })?;
        if parsed.state != DirectoryState::Live {
            return Err(refused(format!(
                "directory name {name:?} is that of a partition being deleted or moved"
            )));
        }
        let disk = Arc::clone(&options.disk);
        if !replaces_empty || !never_had_a_record(new, options)? {
            refuse_used(disk.as_ref(), new)?;
        }
        refuse_new_partition(disk.as_ref(), new)?;
        check_new_partition(disk.as_ref(), new)?;
        let parent = new.parent().unwrap_or(Path::new("/")).to_path_buf();
        let unique = random().u128(..).to_be_bytes();
        let state = DirectoryState::Delete;
        let aside = directory_name_in_state(parsed.topic, parsed.partition, state, unique)
            .map_err(|error| refused(format!("directory name {name:?}: {}", error.fault)))?;
        let aside = parent.join(aside);
        let is_log_dir = has_log_dir_files(disk.as_ref(), &parent)?;
        let lock = if is_log_dir {
            Some(lock_log_dir(disk.as_ref(), &parent)?)
        } else {
            None
        };
        Ok(Self {
            building: aside.join(name),
            topic: parsed.topic.to_owned(),
            options: options.clone(),
            new: new.to_path_buf(),
            parent,
            aside,
            is_log_dir,
            shared: shared.map(Arc::clone),
            replaces_empty,
            disk,
            _lock: lock,
        })
    }

    /// Creates the folder and locks it. The lock shows others that the folder is in use.
    pub(super) fn make(&self) -> Result<Lock> {
        make_directory(self.disk.as_ref(), &self.aside)?;
        lock_partition(self.disk.as_ref(), &self.aside)
    }

    /// Moves the finished directory into place.
    pub(super) fn publish(&self, log_start_offset: i64) -> Result<()> {
        // The folder may have become a log dir while the partition was built.
        let became = !self.is_log_dir && has_log_dir_files(self.disk.as_ref(), &self.parent)?;
        let _lock = if became {
            Some(lock_log_dir(self.disk.as_ref(), &self.parent)?)
        } else {
            None
        };
        let is_log_dir = self.is_log_dir || became;
        let replaced = self.take_away_empty()?;
        self.put_in_place(log_start_offset, is_log_dir)
            .inspect_err(|_| {
                if let Some(replaced) = &replaced {
                    self.put_back(replaced);
                }
            })?;
        // If the folder cannot be removed, it does no harm: it is removed like that of a deleted topic.
        self.discard();
        if let Some(replaced) = replaced {
            let _ = remove_all(self.disk.as_ref(), &replaced, DEPTH_MAX);
        }
        // In a log dir only the log dir's checkpoints hold the log start offset, and what a broker need not recover.
        self.give_all_lines(log_start_offset, is_log_dir).map_err(|error| {
            error.advise(
                "the new partition is complete and durable, only lines of its log dir's checkpoints are missing: a broker recovers it \
                 when it starts. To make it again, remove its directory first",
            )
        })
    }

    fn put_in_place(&self, log_start_offset: i64, is_log_dir: bool) -> Result<()> {
        // If somebody else created the directory in the meantime, the log dir's checkpoints belong to it.
        refuse_used(self.disk.as_ref(), &self.new)?;
        if is_log_dir {
            // Lines that the log dir's checkpoints have for an earlier directory of this name do not apply to this one. The log
            // start offset must be there before the log is, or deleted records could be read for a moment.
            let built = Log::open(&self.building, &self.options)?.segments()?;
            let begins_inside = built
                .first()
                .is_some_and(|segment| segment.base_offset < log_start_offset);
            let log_start = Some(log_start_offset).filter(|_| begins_inside);
            match &self.shared {
                Some(shared) => {
                    let name = partition_name(&self.new)?;
                    shared.forget_stale(name.topic, name.partition, log_start)?;
                }
                None => forget_partition(&self.new, &self.options, log_start)?,
            }
        }
        let extent = extent(&self.building, &self.options)?;
        self.disk
            .rename(&self.building, &self.new)
            .map_err(|error| Error::io(IoCall::Rename, &self.building, error))?;
        let synced = [&self.aside, &self.parent]
            .into_iter()
            .try_for_each(|folder| {
                self.disk
                    .sync_directory(folder)
                    .map_err(|error| Error::io(IoCall::SyncDirectory, folder, error))
            });
        // Whether it would survive a loss of power is not known.
        synced.inspect_err(|_| self.take_back(extent))
    }

    /// Moves the directory back to where it was made, unless somebody has opened it, or has appended to it.
    fn take_back(&self, extent: Extent) {
        let Ok(lock) = lock_partition(self.disk.as_ref(), &self.new) else {
            return;
        };
        if self::extent(&self.new, &self.options).is_ok_and(|found| found == extent) {
            let _ = self.disk.rename(&self.new, &self.building);
            let _ = self.disk.sync_directory(&self.parent);
        }
        lock.release();
    }

    /// Gives the partition that was taken away its name again, unless somebody else made one.
    fn put_back(&self, replaced: &Path) {
        let found = self.disk.stat(&self.new);
        if found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            let _ = self.disk.rename(replaced, &self.new);
        }
    }

    fn give_all_lines(&self, log_start_offset: i64, is_log_dir: bool) -> Result<()> {
        if is_log_dir {
            give_lines(
                &self.new,
                &self.topic,
                &self.options,
                self.shared.as_ref(),
                log_start_offset,
            )?;
        }
        match &self.shared {
            Some(shared) => shared.write_lines_in_time((self.options.clock)()),
            None => Ok(()),
        }
    }

    /// Renames the partition in the new one's place, which never had a record, as one that is being deleted. After a crash
    /// neither is there.
    fn take_away_empty(&self) -> Result<Option<PathBuf>> {
        if !self.replaces_empty || !never_had_a_record(&self.new, &self.options)? {
            return Ok(None);
        }
        let lock = lock_partition(self.disk.as_ref(), &self.new)?;
        // Nobody appends from now on.
        let is_empty = never_had_a_record(&self.new, &self.options);
        let unique = random().u128(..).to_be_bytes();
        let taken = is_empty.and_then(|is_empty| {
            let name = partition_name(&self.new)?;
            let state = DirectoryState::Delete;
            let name = directory_name_in_state(name.topic, name.partition, state, unique)
                .map_err(|error| Error::log_dir(&self.new, error.fault.to_string()))?;
            let replaced = self.parent.join(name);
            if is_empty {
                self.disk
                    .rename(&self.new, &replaced)
                    .map_err(|error| Error::io(IoCall::Rename, &self.new, error))?;
            }
            Ok(is_empty.then_some(replaced))
        });
        lock.release();
        taken
    }

    /// Removes the unfinished directory. Anything that remains is the same as after a crash.
    pub(super) fn discard(&self) {
        let _ = remove_all(self.disk.as_ref(), &self.aside, DEPTH_MAX);
    }
}

/// Gives a partition that was made here its lines in the log dir's checkpoints; at once, unless they are gathered.
pub(crate) fn give_lines(
    path: &Path,
    topic: &str,
    options: &OpenOptions,
    shared: Option<&Arc<LogDirFiles>>,
    log_start_offset: i64,
) -> Result<()> {
    let log = open_for_append_in(path, options, &made_here(topic), shared, None)?;
    let deleted = log.delete_records_before(log_start_offset);
    deleted.and_then(|_| log.close_with_lines())
}

/// Options for a partition that was just created here. It belongs to nobody else yet, even if its topic is internal.
pub(super) fn made_here(topic: &str) -> WriteOptions {
    WriteOptions {
        internal_topics: [topic.to_owned()].into(),
        single_replica: true,
        is_copy: true,
        ..WriteOptions::default()
    }
}

/// The log end offset of a log, and the bytes of its segments.
type Extent = (i64, u64);

fn extent(path: &Path, options: &OpenOptions) -> Result<Extent> {
    let log = Log::open(path, options)?;
    let bytes = log
        .segments()?
        .iter()
        .map(|segment| segment.size_bytes)
        .sum();
    Ok((log.log_end_offset()?, bytes))
}

/// Whether the directory is a partition that never had a batch.
fn never_had_a_record(path: &Path, options: &OpenOptions) -> Result<bool> {
    if options.disk.list(path).is_err() {
        return Ok(false);
    }
    let log = Log::open(path, options)?;
    Ok(!log.segments()?.is_empty() && !log.has_begun()?)
}

/// Fails if the directory is not empty.
fn refuse_used(disk: &dyn Disk, new: &Path) -> Result<()> {
    match disk.list(new) {
        Ok(entries) if entries.is_empty() => Ok(()),
        Ok(_) => Err(Error::log_dir(
            new,
            "the directory is not empty; a new one is made",
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::io(IoCall::List, new, error)),
    }
}
