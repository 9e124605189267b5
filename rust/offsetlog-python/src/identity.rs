//! `identity`: what a broker would do with each directory. Converts, detaches, calls, converts back.

use crate::interrupt::detached;
use crate::log::open_options;
use crate::options::OpenValues;
use crate::raise::{OrRaise, raise};
use crate::rows;
use offsetlog_ops::DirectoryIdentity;
use pyo3::prelude::*;
use std::path::PathBuf;

/// Rows, warnings, and the error of metadata that cannot be read.
type Found = (Vec<rows::DirectoryIdentity>, Vec<String>, Option<Py<PyAny>>);

#[pyfunction]
pub(crate) fn identity(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    options: OpenValues,
) -> PyResult<Found> {
    let options = open_options(&options);
    let found = detached(py, || offsetlog_ops::identity(&paths, &options)).or_raise(py)?;
    let error = found.metadata_error.as_ref();
    let error = error.map(|error| raise(py, error).into_value(py).into_any());
    let rows = found.directories.into_iter().map(row);
    Ok((rows.collect(), found.warnings, error))
}

fn row(each: DirectoryIdentity) -> rows::DirectoryIdentity {
    rows::DirectoryIdentity {
        path: each.path.into_os_string(),
        kind: each.kind.name(),
        outcome: each.outcome.name(),
        reason: each.reason,
        topic: each.topic,
        partition: each.partition,
        topic_id: each.topic_id.map(|id| id.to_string()),
        version: each.version,
        cluster_id: each.cluster_id,
        node_id: each.node_id,
        directory_id: each.directory_id.map(|id| id.to_string()),
    }
}
