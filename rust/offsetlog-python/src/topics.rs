//! `LogDirAppender`: log dirs that are open for appending. Converts, detaches, calls, converts back.

use crate::appender::{
    Appender, HeaderRow, done_before, header_views, maintain_options, maintain_row, maintained,
};
use crate::clock::LogClock;
use crate::config::{Pairs, broker_of, pairs, parse};
use crate::convert::path_text;
use crate::interrupt::detached;
use crate::log::open_options;
use crate::log_dir::{LogDir, partition_key};
use crate::options::{LogDirValues, MaintainValues, OpenValues};
use crate::raise::{OrRaise, noted};
use crate::rows;
use crate::scan::Later;
use crate::writers::{self, Writers};
use offsetlog::format::Uuid;
use offsetlog::{
    AppendOptions, BatchBuilder, BrokerSettings, LogDirMaintainReport, LogDirOptions, NewTopic,
    Partitioner, Route, TopicPartition,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList, PyString};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

#[pyclass(frozen, module = "offsetlog._offsetlog")]
pub(crate) struct LogDirAppender {
    log_dir: offsetlog::LogDir,
    clock: LogClock,
    /// Those that gather records for its logs.
    writers: Writers,
    /// One batch that is filled and emptied by each append: its buffers stay.
    batch: Mutex<BatchBuilder>,
}

fn partitioner(name: &str) -> PyResult<Partitioner> {
    match name {
        "default" => Ok(Partitioner::Default),
        "round_robin" => Ok(Partitioner::RoundRobin),
        other => Err(PyValueError::new_err(format!(
            "partitioner {other:?} found, default or round_robin expected"
        ))),
    }
}

#[pymethods]
impl LogDirAppender {
    #[staticmethod]
    fn open(
        py: Python<'_>,
        paths: Vec<PathBuf>,
        options: OpenValues,
        write: LogDirValues,
    ) -> PyResult<Self> {
        let mut open = open_options(&options);
        let clock = LogClock::of(&mut open, write.clock);
        let cluster = write.cluster;
        let options = LogDirOptions {
            defaults: parse(py, &write.defaults)?,
            max_open_partitions: write.max_open_partitions,
            seed: write.seed,
            broker: broker_of(py, cluster.broker.as_deref())?,
            metadata: cluster.metadata,
            internal_topics: cluster.internal_topics.into_iter().collect(),
            single_replica: cluster.single_replica,
            fills_mirror: false,
        };
        let list = || offsetlog::LogDir::open_for_append(&paths, &open, &options);
        let log_dir = clock.timed(py, list)?.or_raise(py)?;
        Ok(Self {
            log_dir,
            clock,
            writers: Writers::default(),
            batch: Mutex::default(),
        })
    }

    /// The log dir, for reading beside the appends.
    fn log_dir(&self) -> LogDir {
        LogDir(self.log_dir.clone())
    }

    /// None where there is no such partition that is not `required`.
    fn log(
        &self,
        py: Python<'_>,
        topic: &str,
        partition: i32,
        required: bool,
    ) -> PyResult<Option<Appender>> {
        let open = || self.log_dir.log_writer_if(topic, partition, required);
        let log = self.clock.timed(py, open)?.or_raise(py)?;
        Ok(log.map(|log| Appender::of(log, self.clock.clone(), self.writers.clone())))
    }

    /// A partition for a scan; one that is gone by then is an error if it is `required`.
    fn later(&self, topic: String, partition: i32, required: bool) -> Later {
        Later(
            self.log_dir
                .later(TopicPartition { topic, partition }, required),
        )
    }

    #[pyo3(signature = (name, *, partitions, config, topic_id))]
    fn create_topic(
        &self,
        py: Python<'_>,
        name: &str,
        partitions: i32,
        config: Pairs,
        topic_id: Option<&str>,
    ) -> PyResult<String> {
        let topic_id = topic_id
            .map(|text| Uuid::parse(text).map_err(|error| PyValueError::new_err(error.to_string())))
            .transpose()?;
        let topic = NewTopic {
            name,
            partitions,
            config: parse(py, &config)?,
            topic_id,
        };
        let create = || self.log_dir.create_topic(&topic);
        let id = self.clock.timed(py, create)?.or_raise(py)?;
        Ok(id.to_string())
    }

    fn delete_topic(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let writers = self.writers.of_topic(name);
        let delete = || self.log_dir.delete_topic(name);
        self.clock.timed(py, delete)?.or_raise(py)?;
        for writer in &writers {
            writer.note_deleted();
        }
        Ok(())
    }

    fn remove_deleted<'py>(
        &self,
        py: Python<'py>,
        dry_run: bool,
    ) -> PyResult<Vec<Bound<'py, PyString>>> {
        let mut removed = Vec::new();
        let remove = || self.log_dir.remove_deleted_into(dry_run, &mut removed);
        let done = self.clock.timed(py, remove)?.or_raise(py);
        done.map_err(|error| with_done(py, error, dry_run, removed_things(&removed).collect()))?;
        removed.iter().map(|path| path_text(py, path)).collect()
    }

    fn set_topic_config(&self, py: Python<'_>, name: &str, config: Pairs) -> PyResult<()> {
        let config = parse(py, &config)?;
        detached(py, || self.log_dir.set_topic_config(name, &config)).or_raise(py)
    }

    fn partition_count(&self, py: Python<'_>, topic: &str) -> PyResult<i32> {
        detached(py, || self.log_dir.partition_count(topic)).or_raise(py)
    }

    /// Gives the place of the record; none where `partition` was chosen `among` another number of them than there are.
    #[pyo3(signature = (topic, *, value, key, headers, timestamp, partition, among, partitioner, leader_epoch, flush))]
    #[allow(clippy::too_many_arguments, reason = "one argument a field")]
    fn append(
        &self,
        py: Python<'_>,
        topic: Bound<'_, PyString>,
        value: Option<PyBackedBytes>,
        key: Option<PyBackedBytes>,
        headers: Vec<HeaderRow>,
        timestamp: Option<i64>,
        partition: Option<i32>,
        among: Option<i32>,
        partitioner: &str,
        leader_epoch: Option<i32>,
        flush: bool,
    ) -> PyResult<Option<rows::RecordMetadata>> {
        let name = topic.to_str()?;
        let by = self::partitioner(partitioner)?;
        let options = AppendOptions {
            leader_epoch,
            flush,
        };
        let append = || {
            let held = match (partition, among) {
                (Some(partition), Some(count)) => {
                    let held = self.log_dir.writable_of(name, partition, count)?;
                    let Some(held) = held else { return Ok(None) };
                    Some(held)
                }
                _ => None,
            };
            let views = header_views(&headers);
            let timestamp = timestamp.unwrap_or_else(|| self.clock.now());
            let mut batch = self.batch.lock().unwrap_or_else(PoisonError::into_inner);
            batch.clear();
            batch.push(timestamp, key.as_deref(), value.as_deref(), &views)?;
            let route = partition.map_or(Route::By(by, key.as_deref()), Route::Partition);
            let appended = self.log_dir.append(name, route, &mut batch, &options);
            drop(held);
            appended.map(Some)
        };
        let appended = self.clock.timed(py, append)?.or_raise(py)?;
        Ok(appended.map(|(partition, info)| rows::RecordMetadata {
            topic: topic.clone().unbind(),
            partition,
            offset: info.base_offset,
        }))
    }

    #[pyo3(signature = (options, *, topics))]
    fn maintain(
        &self,
        py: Python<'_>,
        options: MaintainValues,
        topics: Vec<String>,
    ) -> PyResult<rows::LogDirMaintainReport> {
        let mut options = maintain_options(py, options)?;
        options.topics = topics;
        let mut report = LogDirMaintainReport::default();
        let maintain = || self.log_dir.maintain_into(&options, &mut report);
        let done = self.clock.timed(py, maintain)?.or_raise(py);
        done.map_err(|error| with_report(py, error, &report))?;
        let maintained = report.partitions.into_iter();
        let failed = report.failed.into_iter();
        let removed = report.removed.into_iter();
        Ok(rows::LogDirMaintainReport {
            partitions: maintained
                .map(|(partition, report)| (partition_key(partition), maintain_row(report)))
                .collect(),
            failed: failed
                .map(|(partition, error)| (partition_key(partition), error.to_string()))
                .collect(),
            busy: report.busy.into_iter().map(partition_key).collect(),
            removed: removed.map(PathBuf::into_os_string).collect(),
            looked_at: report.looked_at,
            dry_run: report.dry_run,
            internal: report.internal.into_iter().map(partition_key).collect(),
            metadata_timestamp: report.metadata_timestamp,
        })
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        detached(py, || self.log_dir.flush()).or_raise(py)
    }

    /// Appends what writers of its logs hold, and closes all of them whatever becomes of that.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let lost = self.writers.end(py, None);
        let closed = detached(py, || self.log_dir.close());
        writers::closed(py, lost, closed)
    }
}

/// The error with a note of what was done before it.
fn with_report(py: Python<'_>, error: PyErr, report: &LogDirMaintainReport) -> PyErr {
    let kept = report.partitions.iter();
    let kept = kept.map(|(of, kept)| format!("{of}: {}", maintained(kept)));
    let removed = removed_things(&report.removed);
    let failed = report.failed.iter();
    let failed = failed.map(|(of, error)| format!("{of} not maintained: {error}"));
    let things = kept.chain(removed).chain(failed).collect();
    with_done(py, error, report.dry_run, things)
}

fn removed_things(removed: &[PathBuf]) -> impl Iterator<Item = String> {
    let removed = removed.iter();
    removed.map(|path| format!("{} removed, its topic was deleted", path.display()))
}

/// The error with a note of these things, of which a dry run has done none.
fn with_done(py: Python<'_>, error: PyErr, dry_run: bool, things: Vec<String>) -> PyErr {
    if dry_run || things.is_empty() {
        return error;
    }
    noted(py, error, &done_before(&things))
}

/// The partition of a key.
#[pyfunction]
pub(crate) fn partition_for(py: Python<'_>, key: PyBackedBytes, partitions: i32) -> PyResult<i32> {
    offsetlog::partition_for(&key, partitions).or_raise(py)
}

/// The partitions of many keys; `None` for those that are `None`.
#[pyfunction]
pub(crate) fn partitions_for(
    py: Python<'_>,
    keys: &Bound<'_, PyList>,
    partitions: i32,
) -> PyResult<Vec<Option<i32>>> {
    let found = keys.iter().map(|key| {
        if key.is_none() {
            return Ok(None);
        }
        let key = key.cast::<PyBytes>()?;
        let partition = offsetlog::partition_for(key.as_bytes(), partitions);
        partition.map(Some).or_raise(py)
    });
    found.collect()
}

/// What a `server.properties` says: the settings that topics have by default, and the log dirs.
#[pyfunction]
pub(crate) fn broker_settings(
    py: Python<'_>,
    path: PathBuf,
) -> PyResult<(Pairs, Vec<Bound<'_, PyString>>)> {
    let disk = offsetlog::disk::RealDisk;
    let settings = detached(py, || BrokerSettings::read(&disk, &path)).or_raise(py)?;
    let dirs: PyResult<Vec<_>> = settings
        .log_dirs
        .iter()
        .map(|dir| path_text(py, dir))
        .collect();
    Ok((pairs(&settings.topic_defaults), dirs?))
}
