//! `Log`: a partition. Converts, detaches, calls, converts back.

use crate::convert::{self, batch_row, isolation, path_text};
use crate::interrupt::{detached, interrupt};
use crate::options::OpenValues;
use crate::raise::OrRaise;
use crate::record::Record;
use crate::rows;
use offsetlog::{FetchOptions, Limits, OpenOptions};
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::path::PathBuf;
use std::sync::{Mutex, TryLockError};

/// How logs are opened from Python.
pub(crate) fn open_options(values: &OpenValues) -> OpenOptions {
    let limits = &values.limits;
    OpenOptions {
        limits: Limits {
            max_batch_bytes: limits.max_batch_bytes,
            max_decompressed_bytes: limits.max_decompressed_bytes,
            max_headers: limits.max_headers,
            max_segments: limits.max_segments,
            max_state_file_bytes: limits.max_state_file_bytes,
            max_open_files: limits.max_open_files,
        },
        mapped: values.mapped,
        interrupt: Some(interrupt()),
        ..OpenOptions::default()
    }
}

#[pyclass(frozen, module = "offsetlog._offsetlog")]
pub(crate) struct Log(pub(crate) offsetlog::Log);

#[pymethods]
impl Log {
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf, options: OpenValues) -> PyResult<Self> {
        let options = open_options(&options);
        detached(py, || offsetlog::Log::open(&path, &options))
            .or_raise(py)
            .map(Self)
    }

    #[getter]
    fn path<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        path_text(py, self.0.path())
    }

    #[getter]
    fn topic(&self) -> &str {
        self.0.topic()
    }

    #[getter]
    fn partition(&self) -> i32 {
        self.0.partition()
    }

    fn warnings(&self) -> Vec<String> {
        self.0.warnings().to_vec()
    }

    fn refresh(&self, py: Python<'_>) -> PyResult<()> {
        detached(py, || self.0.refresh()).or_raise(py)
    }

    fn topic_id(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let id = detached(py, || self.0.topic_id()).or_raise(py)?;
        Ok(id.map(|id| id.to_string()))
    }

    fn log_start_offset(&self, py: Python<'_>) -> PyResult<i64> {
        detached(py, || self.0.log_start_offset()).or_raise(py)
    }

    fn log_end_offset(&self, py: Python<'_>) -> PyResult<i64> {
        detached(py, || self.0.log_end_offset()).or_raise(py)
    }

    fn high_watermark(&self, py: Python<'_>) -> PyResult<i64> {
        detached(py, || self.0.high_watermark()).or_raise(py)
    }

    fn last_stable_offset(&self, py: Python<'_>) -> PyResult<i64> {
        detached(py, || self.0.last_stable_offset()).or_raise(py)
    }

    fn leader_epoch(&self, py: Python<'_>) -> PyResult<Option<i32>> {
        detached(py, || self.0.leader_epoch()).or_raise(py)
    }

    fn size_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        detached(py, || self.0.size_bytes()).or_raise(py)
    }

    fn segments(&self, py: Python<'_>) -> PyResult<Vec<rows::Segment>> {
        let segments = detached(py, || self.0.segments()).or_raise(py)?;
        let row = |segment: offsetlog::SegmentInfo| rows::Segment {
            base_offset: segment.base_offset,
            path: segment.path.into_os_string(),
            size_bytes: segment.size_bytes,
            index_entries: segment.index_entries,
            is_active: segment.is_active,
        };
        Ok(segments.into_iter().map(row).collect())
    }

    fn get(&self, py: Python<'_>, offset: i64) -> PyResult<Option<Record>> {
        let record = detached(py, || self.0.get(offset)).or_raise(py)?;
        record
            .map(|record| {
                let topic = PyString::intern(py, self.0.topic()).unbind();
                Record::owned(py, topic, self.0.partition(), &record)
            })
            .transpose()
    }

    fn locate(&self, py: Python<'_>, offset: i64) -> PyResult<rows::Location> {
        let location = detached(py, || self.0.locate(offset)).or_raise(py)?;
        Ok(rows::Location {
            index_state: location.index_state_name(),
            text: location.to_string(),
            topic: location.topic,
            partition: location.partition,
            offset: location.offset,
            segment: location.segment,
            segment_path: location.segment_path.into_os_string(),
            segment_slot: location.segment_slot,
            segment_count: location.segment_count,
            entry: location.entry.map(|entry| rows::IndexEntry {
                slot: entry.slot,
                offset: entry.offset,
                position: entry.position,
            }),
            index_entries: location.index_entries,
            scanned_batches: location.scanned_batches,
            scanned_bytes: location.scanned_bytes,
            batch: location.batch.as_ref().map(batch_row),
        })
    }

    #[pyo3(signature = (start, stop))]
    fn batches(
        &self,
        py: Python<'_>,
        start: Option<i64>,
        stop: Option<i64>,
    ) -> PyResult<BatchIterator> {
        let batches = detached(py, || self.0.batches(start, stop)).or_raise(py)?;
        Ok(BatchIterator(Mutex::new(Some(batches))))
    }

    #[pyo3(signature = (offset, *, max_bytes, isolation_level))]
    fn fetch(
        &self,
        py: Python<'_>,
        offset: i64,
        max_bytes: u64,
        isolation_level: &str,
    ) -> PyResult<rows::FetchResult> {
        let options = FetchOptions {
            max_bytes,
            isolation: isolation(py, isolation_level)?,
        };
        let result = detached(py, || self.0.fetch(offset, &options)).or_raise(py)?;
        let aborted = result.aborted.iter();
        Ok(rows::FetchResult {
            records: convert::bytes(py, &result.records)?.unbind(),
            high_watermark: result.high_watermark,
            last_stable_offset: result.last_stable_offset,
            log_start_offset: result.log_start_offset,
            aborted: aborted
                .map(|aborted| rows::AbortedTransaction {
                    producer_id: aborted.producer_id,
                    first_offset: aborted.first_offset,
                })
                .collect(),
        })
    }

    fn offset_for_timestamp(
        &self,
        py: Python<'_>,
        timestamp: i64,
        isolation_level: &str,
    ) -> PyResult<Option<rows::OffsetAndTimestamp>> {
        let isolation = isolation(py, isolation_level)?;
        let found =
            detached(py, || self.0.offset_for_timestamp(timestamp, isolation)).or_raise(py)?;
        Ok(found.map(|found| rows::OffsetAndTimestamp {
            offset: found.offset,
            timestamp: found.timestamp,
            leader_epoch: found.leader_epoch,
        }))
    }

    #[pyo3(signature = (start, stop, *, max_bytes))]
    fn splits(
        &self,
        py: Python<'_>,
        start: Option<i64>,
        stop: Option<i64>,
        max_bytes: u64,
    ) -> PyResult<Vec<rows::Split>> {
        let splits = detached(py, || self.0.splits(start, stop, max_bytes)).or_raise(py)?;
        let row = |split: offsetlog::Split| rows::Split {
            path: self.0.path().as_os_str().to_owned(),
            topic: self.0.topic().to_owned(),
            partition: self.0.partition(),
            start: split.start,
            stop: split.stop,
            size_bytes: split.size_bytes,
        };
        Ok(splits.into_iter().map(row).collect())
    }
}

/// Batch headers one by one.
#[pyclass(frozen, module = "offsetlog._offsetlog")]
pub(crate) struct BatchIterator(Mutex<Option<offsetlog::Batches>>);

#[pymethods]
impl BatchIterator {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<rows::BatchInfo>> {
        let mut guard = match self.0.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(convert::shared_iterator()),
        };
        let Some(batches) = guard.as_mut() else {
            return Ok(None);
        };
        match detached(py, || batches.next()) {
            Some(Ok(batch)) => Ok(Some(batch_row(&batch))),
            ended => {
                // After its end or an error it stays at its end, as generators do.
                *guard = None;
                ended.transpose().or_raise(py).map(|_| None)
            }
        }
    }
}
