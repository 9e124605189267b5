//! What a text names as a path, and what a folder is.

use crate::interrupt::detached;
use crate::raise::OrRaise;
use offsetlog::FolderKind;
use pyo3::prelude::*;
use std::ffi::OsString;
use std::path::PathBuf;

/// The path that is given, also as a `file:` URL; refuses what is not local.
#[pyfunction]
pub(crate) fn given_path(py: Python<'_>, path: PathBuf) -> PyResult<OsString> {
    let given = offsetlog::given_path(&path).or_raise(py)?;
    Ok(given.into_owned().into_os_string())
}

/// What a folder is, in a word.
#[pyfunction]
pub(crate) fn folder_kind(py: Python<'_>, path: PathBuf) -> PyResult<&'static str> {
    let kind = detached(py, || offsetlog::folder_kind(&path)).or_raise(py)?;
    Ok(match kind {
        FolderKind::Partition => "partition",
        FolderKind::LogDir => "log_dir",
        FolderKind::AroundLogDirs(_) => "around_log_dirs",
        FolderKind::ZooKeeper => "zookeeper",
        _ => "other",
    })
}
