//! Opening a partition directory for reading.

use super::appender::{self, Appender, WriteOptions};
use super::{Ends, Inner, Log, LogDirFiles, OpenOptions, View};
use crate::checkpoints::Checkpoints;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::segment::Directory;
use offsetlog_format::name::{DirectoryName, LOCK, check_topic};
use std::path::Path;
use std::sync::{Arc, Mutex, RwLock};

pub(super) fn open(path: &Path, options: &OpenOptions) -> Result<Log> {
    open_in(path, options, None)
}

/// Opens a partition of a log dir whose checkpoints are known already.
pub(crate) fn open_in(
    path: &Path,
    options: &OpenOptions,
    checkpoints: Option<&Arc<Checkpoints>>,
) -> Result<Log> {
    let (directory, topic, partition) = directory(path, options, false, checkpoints)?;
    build(&directory, topic, partition, options, None)
}

pub(super) fn open_for_append(
    path: &Path,
    options: &OpenOptions,
    write: &WriteOptions,
) -> Result<Log> {
    open_for_append_in(path, options, write, None)
}

/// Opens a partition for a program that has its log dir open.
pub(crate) fn open_for_append_in(
    path: &Path,
    options: &OpenOptions,
    write: &WriteOptions,
    shared: Option<&Arc<LogDirFiles>>,
) -> Result<Log> {
    let disk = options.disk.as_ref();
    let checkpoints = shared.map(|shared| shared.checkpoints());
    if disk.stat(path).is_err() {
        // The name is checked before anything is made.
        let (directory, topic, _) = self::directory(path, options, true, checkpoints)?;
        let path = &directory.path;
        check_topic(&topic).map_err(|error| {
            Error::log_dir(path, format!("topic name {topic:?}: {}", error.fault))
        })?;
        make_directory(disk, path)?;
    }
    let (directory, topic, partition) = self::directory(path, options, true, checkpoints)?;
    super::view::refuse_old(disk, &directory.path)?;
    let appender = appender::open(&directory, &topic, partition, options, write, shared)?;
    let warnings = appender.report().warnings.clone();
    let mut log = build(&directory, topic, partition, options, Some(appender))?;
    if let Some(inner) = Arc::get_mut(&mut log.0) {
        inner.warnings.extend(warnings);
        inner.warnings.dedup();
    }
    Ok(log)
}

/// Makes a directory and those above it, each one durable in the one around it.
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
        .map_err(|error| Error::io("make", path, error))
}

/// Takes a partition out of what its log dir says of all, before a directory gets its name whose log begins at `log_start`, if that is not
/// its first segment's base offset.
pub(crate) fn forget_partition(
    path: &Path,
    options: &OpenOptions,
    log_start: Option<i64>,
) -> Result<()> {
    let (directory, topic, partition) = directory(path, options, true, None)?;
    appender::Place::new(&directory, &topic, partition, None)?.forget(log_start)
}

/// The directory behind a path, and the partition that its name says.
pub(super) fn directory(
    path: &Path,
    options: &OpenOptions,
    writes: bool,
    checkpoints: Option<&Arc<Checkpoints>>,
) -> Result<(Arc<Directory>, String, i32)> {
    // Relative paths are made whole once: the process may change its directory while the log is open.
    let path = std::path::absolute(path).map_err(|error| Error::io("resolve", path, error))?;
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or("");
    let parsed = DirectoryName::parse(name).map_err(|error| {
        Error::log_dir(
            &path,
            format!(
                "directory name {name:?} is not topic-partition ({}); a name such as {:?} would do",
                error.fault,
                format!("{}-0", if name.is_empty() { "topic" } else { name })
            ),
        )
    })?;
    let (topic, partition) = (parsed.topic.to_owned(), parsed.partition);
    let checkpoints = checkpoints.map_or_else(
        || {
            let around = path.parent().unwrap_or(Path::new(""));
            let max_bytes = options.limits.max_state_file_bytes;
            Arc::new(Checkpoints::new(&options.disk, around, max_bytes))
        },
        Arc::clone,
    );
    let directory = Directory {
        disk: Arc::clone(&options.disk),
        limits: options.limits,
        // That nobody writes now says nothing of later: a broker may start, and cut an index under its mapping.
        map_indexes: options.mapped && !writes,
        map_logs: options.mapped && !writes,
        ends: writes.then(|| Arc::new(Ends::default())),
        checkpoints,
        path,
    };
    Ok((Arc::new(directory), topic, partition))
}

fn build(
    directory: &Arc<Directory>,
    topic: String,
    partition: i32,
    options: &OpenOptions,
    appender: Option<Appender>,
) -> Result<Log> {
    let owner = directory
        .path
        .parent()
        .is_some_and(|parent| matches!(options.disk.lock_holder(&parent.join(LOCK)), Ok(Some(_))));
    let view = View::take(directory, None)?;
    Ok(Log(Arc::new(Inner {
        topic,
        partition,
        options: options.clone(),
        owner: owner && appender.is_none(),
        warnings: view.warnings.clone(),
        view: RwLock::new(Arc::new(view)),
        scratch: Mutex::new(Vec::new()),
        directory: Arc::clone(directory),
        appender: appender.map(Mutex::new),
        turn: super::maintain::Turn::default(),
    })))
}
