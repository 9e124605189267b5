//! `identity`: what a broker would do with each directory; what makes a cluster's topics again; `zookeeper_node`. Converts, detaches, calls, converts back.

use crate::interrupt::detached;
use crate::log::open_options;
use crate::options::OpenValues;
use crate::progress::Raised;
use crate::raise::raise;
use crate::rows;
use offsetlog::{NodeAnswer, OpenOptions};
use offsetlog_ops::{DirectoryIdentity, Recreation};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;

/// Rows, warnings, and the error of metadata that cannot be read.
type Found = (Vec<rows::DirectoryIdentity>, Vec<String>, Option<Py<PyAny>>);

#[pyfunction]
#[pyo3(signature = (paths, options, *, progress))]
pub(crate) fn identity(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    options: OpenValues,
    progress: Option<Py<PyAny>>,
) -> PyResult<Found> {
    let options = open_options(&options);
    let raised = Raised::default();
    let progress = raised.of_directories(progress);
    let found = detached(py, || offsetlog_ops::identity(&paths, &options, &progress));
    let found = raised.or(py, found)?;
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

/// The data, or the nearest node above and the names below that.
#[derive(IntoPyObject)]
pub(crate) enum Node {
    Data(Py<PyBytes>),
    Missing((String, Vec<String>)),
}

#[pyfunction]
#[pyo3(signature = (folder, node, options, *, show_secrets, progress))]
pub(crate) fn zookeeper_node(
    py: Python<'_>,
    folder: PathBuf,
    node: String,
    options: OpenValues,
    show_secrets: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Node> {
    let options = open_options(&options);
    let raised = Raised::default();
    let progress = raised.of_directories(progress);
    let answer = detached(py, || {
        offsetlog::zookeeper_node(&folder, &node, show_secrets, &options, &progress)
    });
    Ok(match raised.or(py, answer)? {
        NodeAnswer::Data(data) => Node::Data(PyBytes::new(py, &data).unbind()),
        NodeAnswer::Missing { parent, children } => Node::Missing((parent, children)),
    })
}

/// A text, warnings, and the error of metadata that cannot be read.
type Text = (String, Vec<String>, Option<Py<PyAny>>);

#[pyfunction]
#[pyo3(signature = (paths, options, *, topics, bootstrap_server, replica_assignment, show_secrets, progress))]
#[allow(clippy::too_many_arguments, reason = "one parameter an option")]
pub(crate) fn metadata_as_commands(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    options: OpenValues,
    topics: Vec<String>,
    bootstrap_server: String,
    replica_assignment: bool,
    show_secrets: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Text> {
    let options = open_options(&options);
    text(py, (&paths, &topics, &options), progress, |found| {
        Ok(found.commands(&bootstrap_server, replica_assignment, show_secrets))
    })
}

#[pyfunction]
#[pyo3(signature = (paths, options, *, topics, strimzi_cluster, show_secrets, progress))]
pub(crate) fn metadata_as_yaml(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    options: OpenValues,
    topics: Vec<String>,
    strimzi_cluster: String,
    show_secrets: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Text> {
    let options = open_options(&options);
    text(py, (&paths, &topics, &options), progress, |found| {
        found.kafka_topics(&strimzi_cluster, show_secrets)
    })
}

fn text(
    py: Python<'_>,
    (paths, topics, options): (&[PathBuf], &[String], &OpenOptions),
    progress: Option<Py<PyAny>>,
    write: impl Fn(&Recreation) -> offsetlog::Result<String> + Send + Sync,
) -> PyResult<Text> {
    let raised = Raised::default();
    let progress = raised.of_directories(progress);
    let found = detached(py, || {
        let found = offsetlog_ops::recreation(paths, topics, options, &progress)?;
        let text = write(&found)?;
        Ok::<_, offsetlog::Error>((text, found.warnings, found.metadata_error))
    });
    let (text, warnings, error) = raised.or(py, found)?;
    let error = error.map(|error| raise(py, &error).into_value(py).into_any());
    Ok((text, warnings, error))
}
