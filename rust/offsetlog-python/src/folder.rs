//! What a folder is.

use crate::interrupt::detached;
use crate::raise::OrRaise;
use offsetlog::FolderKind;
use pyo3::prelude::*;
use std::path::PathBuf;

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
