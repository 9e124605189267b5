//! Opens a partition directory, for reading or for appending.

use super::set_aside::SetAside;
use super::state::PartitionState;
use super::view::is_locked;
use super::writer::{self, WriteOptions};
use super::writers::Slot;
use super::{
    Around, Inner, LiveOffsets, Log, LogDirFiles, LogWriter, OpenOptions, Surroundings, View,
    check_new_partition, lock_log_dir,
};
use crate::checkpoints::Checkpoints;
use crate::disk::{Disk, IoCall, Moment};
use crate::error::{Error, ErrorKind, Result};
use crate::folder;
use crate::local_path::{given_path, local_path};
use crate::segment::Directory;
use crate::segment::index_maps::IndexMaps;
use offsetlog_format::name::{DirectoryName, DirectoryState, check_topic};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

/// How many writers this process has had.
static WRITERS: AtomicU64 = AtomicU64::new(0);

pub(super) fn open(path: &Path, options: &OpenOptions) -> Result<Log> {
    let options = Arc::new(options.clone());
    if let Some(aside) = SetAside::of(path) {
        let inner = build(&aside.directory(&options), &options, None)?;
        return Ok(Log(Arc::new(inner)));
    }
    let directory = directory(path, &options, false, None)?;
    let inner = build(&directory, &options, None)?;
    Ok(Log(Arc::new(inner)))
}

/// Opens a partition for reading that was listed, so its path is absolute. `checkpoints` are those of its log dir, if a program has that
/// open, and `around` is how that was, and when: the caller confirms it afterwards.
pub(crate) fn open_in(
    path: PathBuf,
    options: &Arc<OpenOptions>,
    checkpoints: Option<&Arc<Checkpoints>>,
    around: Option<(Around, Moment)>,
) -> Result<Log> {
    if let Some(aside) = SetAside::of(&path) {
        let inner = build(&aside.directory(options), options, around)?;
        return Ok(Log(Arc::new(inner)));
    }
    let directory = directory_at(path, options, false, checkpoints)?;
    let inner = build(&directory, options, around)?;
    Ok(Log(Arc::new(inner)))
}

pub(super) fn open_for_append(
    path: &Path,
    options: &OpenOptions,
    write: &WriteOptions,
) -> Result<LogWriter> {
    let path = &given_path(path)?;
    let disk = options.disk.as_ref();
    if disk.stat(path).is_err() {
        // The name is checked before anything is created.
        let directory = self::directory(path, options, true, None)?;
        let (path, topic) = (&directory.path, &directory.topic);
        check_topic(topic).map_err(|error| {
            Error::log_dir(path, format!("topic name {topic:?}: {}", error.fault))
        })?;
        folder::refuse_new_partition(disk, path)?;
        check_new_partition(disk, path)?;
        let config = write.config.clone().unwrap_or_default();
        config.or_defaults(&write.defaults)?;
        // So is the log dir's lock: a running broker does not know of a new folder.
        let broker = match path.parent() {
            Some(parent) if folder::has_log_dir_files(disk, parent)? => {
                Some(lock_log_dir(disk, parent)?)
            }
            _ => None,
        };
        // Looked at again under the lock: another writer may have made it meanwhile, and a call that fails says nothing of what is there.
        if broker.is_some() && !folder::is_there(disk, path)? {
            // Lines of an earlier directory of the name, which a deletion left that ended in the middle.
            forget_partition(path, options, None)?;
        }
        make_directory(disk, path)?;
    }
    open_for_append_in(path, options, write, None, None)
}

/// Opens a partition for appending whose directory is there. `shared` is set by a program that has its log dir open.
pub(crate) fn open_for_append_in(
    path: &Path,
    options: &OpenOptions,
    write: &WriteOptions,
    shared: Option<&Arc<LogDirFiles>>,
    surroundings: Option<&Arc<Surroundings>>,
) -> Result<LogWriter> {
    let disk = options.disk.as_ref();
    let checkpoints = shared.map(|shared| shared.checkpoints());
    let directory = self::directory(path, options, true, checkpoints)?;
    super::view::refuse_other(disk, &directory.path)?;
    let writer = writer::open(
        &directory,
        &directory.topic,
        directory.partition,
        options,
        write,
        shared,
        surroundings,
    )?;
    if let Some(ends) = &directory.ends {
        let identity = disk.stat(&directory.path);
        let identity = identity.map_err(|error| Error::io(IoCall::Stat, &directory.path, error))?;
        Slot::of(disk, Some(identity.id)).begin(ends);
    }
    let options = Arc::new(options.clone());
    let mut inner = build(&directory, &options, None)?;
    inner
        .warnings
        .extend(writer.report().warnings.iter().cloned());
    inner.warnings.dedup();
    Ok(LogWriter::new(Log(Arc::new(inner)), writer))
}

/// Creates a directory and its missing parents, and syncs the parent of each new one.
pub(crate) fn make_directory(disk: &dyn Disk, path: &Path) -> Result<()> {
    let missing: Vec<&Path> = path
        .ancestors()
        .take_while(|ancestor| disk.stat(ancestor).is_err())
        .collect();
    disk.create_directory(path)
        .and_then(|()| {
            missing
                .iter()
                .filter_map(|made| made.parent())
                .try_for_each(|parent| disk.sync_directory(parent))
        })
        .map_err(|error| Error::io(IoCall::Create, path, error))
}

/// Removes a partition's lines from the log dir's checkpoints, before another directory gets its name. `log_start` is that one's log
/// start offset, if that is not the base offset of its first segment.
pub(crate) fn forget_partition(
    path: &Path,
    options: &OpenOptions,
    log_start: Option<i64>,
) -> Result<()> {
    let directory = directory(path, options, true, None)?;
    let (topic, partition) = (&directory.topic, directory.partition);
    PartitionState::new(&directory, topic, partition, None)?.forget(log_start)
}

/// Parses the name of a partition directory.
pub(crate) fn partition_name(path: &Path) -> Result<DirectoryName<'_>> {
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or("");
    DirectoryName::parse(name).map_err(|error| {
        Error::log_dir(
            path,
            format!(
                "directory name {name:?} is not topic-partition ({}); a name such as {:?} would do",
                error.fault,
                format!("{}-0", if name.is_empty() { "topic" } else { name })
            ),
        )
    })
}

/// Returns the directory at a path, with the topic and partition in its name.
pub(super) fn directory(
    path: &Path,
    options: &OpenOptions,
    writes: bool,
    checkpoints: Option<&Arc<Checkpoints>>,
) -> Result<Arc<Directory>> {
    // Relative paths are resolved once: the process may change its working directory while the log is open.
    directory_at(local_path(path)?, options, writes, checkpoints)
}

/// The same of an absolute path.
fn directory_at(
    path: PathBuf,
    options: &OpenOptions,
    writes: bool,
    checkpoints: Option<&Arc<Checkpoints>>,
) -> Result<Arc<Directory>> {
    let parsed = match partition_name(&path) {
        Ok(parsed) => parsed,
        Err(error) => {
            // No error advises renaming a log dir. A path that is not a folder has a wrong name, too.
            return Err(
                match folder::refuse_unless_partition(options.disk.as_ref(), &path) {
                    Err(refused) if !matches!(refused.kind(), ErrorKind::Io { .. }) => refused,
                    _ => error,
                },
            );
        }
    };
    let (topic, partition, state) = (parsed.topic.to_owned(), parsed.partition, parsed.state);
    let parent = || path.parent().unwrap_or(Path::new(""));
    // A longer name means that the partition was set aside or waits for its deletion. The log dir's checkpoints are not about it.
    let is_aside = matches!(state, DirectoryState::Delete | DirectoryState::Stray);
    if writes {
        refuse_link(options.disk.as_ref(), &path)?;
        if is_aside && folder::has_log_dir_files(options.disk.as_ref(), parent())? {
            let reason = format!(
                "a directory found that was set aside or waits for its deletion: its marks would be those of {topic}-{partition} in this \
                 log dir; move it out of the log dir, and name it {topic}-{partition}, to write"
            );
            return Err(Error::log_dir(&path, reason));
        }
    }
    let checkpoints = checkpoints.map_or_else(
        || {
            let around = if is_aside { path.as_path() } else { parent() };
            let max_bytes = options.limits.max_state_file_bytes;
            Arc::new(Checkpoints::new(&options.disk, around, max_bytes))
        },
        Arc::clone,
    );
    // No other writer of this process has the same numbers of truncations.
    let first = || WRITERS.fetch_add(1, Ordering::Relaxed) << 32;
    let ends = writes.then(|| Arc::new(LiveOffsets::numbered_from(first())));
    let directory = Directory {
        disk: Arc::clone(&options.disk),
        limits: options.limits,
        // Even if nobody writes now, a broker may start later and truncate a file while it is mapped: only the caller can promise.
        map_indexes: options.mapped && !writes,
        map_logs: options.mapped && !writes,
        maps: ends.as_ref().map(|ends| Arc::new(IndexMaps::new(ends))),
        ends,
        checkpoints,
        path,
        topic,
        partition,
        state: Some(state),
    };
    Ok(Arc::new(directory))
}

/// Refuses to write to a log dir through a symbolic link from elsewhere. The lock, marks and checkpoints are beside the directory, not
/// beside the link, so a broker that runs there would not be noticed.
fn refuse_link(disk: &dyn Disk, path: &Path) -> Result<()> {
    let is_link = disk.is_link(path);
    if !is_link.map_err(|error| Error::io(IoCall::Resolve, path, error))? {
        return Ok(());
    }
    let real = |path: &Path| match disk.real_path(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found
            .map(Some)
            .map_err(|error| Error::io(IoCall::Resolve, path, error)),
    };
    let (Some(target), Some(around)) = (real(path)?, path.parent()) else {
        return Ok(());
    };
    let Some(log_dir) = target.parent() else {
        return Ok(());
    };
    if real(around)?.as_deref() == Some(log_dir) || !folder::has_log_dir_files(disk, log_dir)? {
        return Ok(());
    }
    let reason = format!(
        "a symbolic link found, into the log dir {}: open {} to write",
        log_dir.display(),
        target.display()
    );
    Err(Error::log_dir(path, reason))
}

/// Builds the reading part of a log, with a first view of its directory.
fn build(
    directory: &Arc<Directory>,
    options: &Arc<OpenOptions>,
    around: Option<(Around, Moment)>,
) -> Result<Inner> {
    let log_dir_was_locked = match around {
        Some((around, _)) => Ok(around.is_locked),
        // A writer holds that lock itself.
        None => match directory.path.parent() {
            Some(log_dir) if directory.ends.is_none() => is_locked(options.disk.as_ref(), log_dir),
            _ => Ok(false),
        },
    };
    let view = View::take(directory, None, around, options.interrupt.as_ref())?;
    // Where the directory cannot be read either, that is what the caller wants to know.
    let log_dir_was_locked = log_dir_was_locked?;
    Ok(Inner {
        options: Arc::clone(options),
        log_dir_was_locked,
        warnings: view.warnings.clone(),
        view: RwLock::new(view),
        scratch: Mutex::new(Vec::new()),
        verified: Mutex::default(),
        directory: Arc::clone(directory),
    })
}
