//! `LogDir`: one or several log dirs as one.

use crate::config::{Pairs, rows};
use crate::interrupt::detached;
use crate::log::{Log, open_options};
use crate::raise::OrRaise;
use pyo3::prelude::*;
use std::path::PathBuf;

#[pyclass(frozen, module = "offsetlog._offsetlog")]
pub(crate) struct LogDir(pub(crate) offsetlog::LogDir);

#[pymethods]
impl LogDir {
    #[staticmethod]
    #[pyo3(signature = (paths, *, mapped, max_batch_bytes, max_decompressed_bytes, max_open_files))]
    fn open(
        py: Python<'_>,
        paths: Vec<PathBuf>,
        mapped: bool,
        max_batch_bytes: u64,
        max_decompressed_bytes: u64,
        max_open_files: usize,
    ) -> PyResult<Self> {
        let options = open_options(
            mapped,
            max_batch_bytes,
            max_decompressed_bytes,
            max_open_files,
        );
        detached(py, || offsetlog::LogDir::open(&paths, &options))
            .or_raise(py)
            .map(Self)
    }

    fn warnings(&self) -> Vec<String> {
        self.0.warnings()
    }

    fn partitions(&self, py: Python<'_>) -> Vec<(String, i32)> {
        let partitions = detached(py, || self.0.partitions());
        partitions
            .into_iter()
            .map(|partition| (partition.topic, partition.partition))
            .collect()
    }

    fn topic_config(&self, py: Python<'_>, topic: &str) -> PyResult<Pairs> {
        let config = detached(py, || self.0.topic_config(topic)).or_raise(py)?;
        Ok(rows(&config))
    }

    fn log(&self, py: Python<'_>, topic: &str, partition: i32) -> PyResult<Log> {
        detached(py, || self.0.log(topic, partition))
            .or_raise(py)
            .map(Log)
    }
}
