//! Opening a partition directory for reading.

use super::{Inner, Log, OpenOptions, View};
use crate::error::{Error, Result};
use crate::segment::Directory;
use offsetlog_format::name::{DirectoryName, LOCK};
use std::path::Path;
use std::sync::{Arc, Mutex, RwLock};

pub(super) fn open(path: &Path, options: &OpenOptions) -> Result<Log> {
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
    let owner = path
        .parent()
        .is_some_and(|parent| matches!(options.disk.lock_holder(&parent.join(LOCK)), Ok(Some(_))));
    let directory = Arc::new(Directory {
        path: path.clone(),
        disk: Arc::clone(&options.disk),
        limits: options.limits,
        map_indexes: !owner,
        map_logs: options.mapped,
    });
    let view = View::take(&directory, None)?;
    Ok(Log(Arc::new(Inner {
        topic: parsed.topic.to_owned(),
        partition: parsed.partition,
        options: options.clone(),
        owner,
        warnings: view.warnings.clone(),
        view: RwLock::new(Arc::new(view)),
        scratch: Mutex::new(Vec::new()),
        directory,
    })))
}
