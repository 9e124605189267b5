//! `Appender`: a partition that is open for appending. Converts, detaches, calls, converts back.

use crate::clock::LogClock;
use crate::config::{self, Pairs, broker_of};
use crate::interrupt::detached;
use crate::log::{Log, open_options};
use crate::options::{AppendValues, MaintainValues, MarkerValues, OpenValues, WriteValues};
use crate::progress::Raised;
use crate::pushed_records;
use crate::raise::{OrRaise, noted};
use crate::record_arguments::{RecordArguments, checked_epoch};
use crate::rows;
use crate::writer::Writer;
use crate::writers::{self, Writers};
use offsetlog::disk::process_id;
use offsetlog::format::Uuid;
use offsetlog::format::attributes::Codec;
use offsetlog::format::counted;
use offsetlog::{
    AppendInfo, AppendLogOptions, AppendOptions, AppendOrigin, BatchBuilder, CompactOptions,
    Compaction, Cut, MaintainOptions, MaintainReport, MarkerOptions, Producer, RecoverOptions,
    RecoveryReport, RemovedSegment, WriteOptions,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[pyclass(frozen, module = "offsetlog._offsetlog")]
pub(crate) struct Appender {
    log: offsetlog::LogWriter,
    clock: LogClock,
    /// Those that gather records for it; shared by all logs of a log dir.
    writers: Writers,
    /// The process that opened it.
    process: u32,
    /// One batch that is filled and emptied by each append: its buffers stay.
    batch: Mutex<BatchBuilder>,
}

pub(crate) fn info_row(info: &AppendInfo) -> rows::AppendInfo {
    rows::AppendInfo {
        base_offset: info.base_offset,
        last_offset: info.last_offset,
        max_timestamp: info.max_timestamp,
        log_append_time: info.log_append_time,
        duplicate: info.duplicate,
        left_out_bytes: info.left_out_bytes,
    }
}

pub(crate) fn codec(name: Option<&str>) -> PyResult<Codec> {
    Ok(match name {
        None | Some("none" | "uncompressed") => Codec::None,
        Some("gzip") => Codec::Gzip,
        Some("snappy") => Codec::Snappy,
        Some("lz4") => Codec::Lz4,
        Some("zstd") => Codec::Zstd,
        Some(other) => {
            return Err(PyValueError::new_err(format!(
                "compression {other:?} found, none, gzip, snappy, lz4 or zstd expected"
            )));
        }
    })
}

pub(crate) type HeaderRow = (PyBackedBytes, Option<PyBackedBytes>);

/// Key and value of each header as bytes.
pub(crate) fn header_views(headers: &[HeaderRow]) -> Vec<(&[u8], Option<&[u8]>)> {
    headers
        .iter()
        .map(|(name, value)| (&**name, value.as_deref()))
        .collect()
}

#[pymethods]
impl Appender {
    #[staticmethod]
    fn open(
        py: Python<'_>,
        path: PathBuf,
        options: OpenValues,
        write: WriteValues,
    ) -> PyResult<Self> {
        let mut options = open_options(&options);
        let clock = LogClock::of(&mut options, write.clock);
        let cluster = write.cluster;
        let config = write.config;
        let config = config.map(|pairs| config::parse(py, &pairs)).transpose()?;
        let topic_id = write.topic_id;
        let topic_id = topic_id
            .map(|text| {
                Uuid::parse(&text).map_err(|error| PyValueError::new_err(error.to_string()))
            })
            .transpose()?;
        let write = WriteOptions {
            config,
            topic_id,
            clean: write.clean,
            recovery_point: write.recovery_point,
            broker: broker_of(py, cluster.broker.as_deref())?,
            metadata: cluster.metadata,
            internal_topics: cluster.internal_topics.into_iter().collect(),
            single_replica: cluster.single_replica,
            ..WriteOptions::default()
        };
        let open = || offsetlog::LogWriter::open(&path, &options, &write);
        let log = clock.timed(py, open)?.or_raise(py)?;
        Ok(Self::of(log, clock, Writers::default()))
    }

    /// The log, for reading beside the appends.
    fn log(&self) -> Log {
        Log(self.log.log().clone())
    }

    /// Returns the offset, or `None` in a forked child, where nothing was done. The facade asks neither before the call, because a small
    /// append costs no more than a few calls in Python. `RecordArguments` says how the arguments are checked. They come by position:
    /// keywords would make the append of a small record 7 % slower.
    #[pyo3(signature = (value, key, headers, timestamp, leader_epoch, flush))]
    fn append(
        &self,
        value: &Bound<'_, PyAny>,
        key: Option<&Bound<'_, PyAny>>,
        headers: &Bound<'_, PyAny>,
        timestamp: Option<&Bound<'_, PyAny>>,
        leader_epoch: Option<&Bound<'_, PyAny>>,
        flush: &Bound<'_, PyAny>,
    ) -> PyResult<Option<i64>> {
        let py = value.py();
        if self.process != process_id() {
            return Ok(None);
        }
        let record = RecordArguments::checked(value, key, Some(headers), timestamp)?;
        let options = AppendOptions {
            leader_epoch: checked_epoch(leader_epoch)?,
            flush: flush.is_truthy()?,
        };
        let (key, value, views) = (record.key(), record.value(), record.headers());
        let timestamp = record.timestamp;
        let append = || {
            let timestamp = timestamp.unwrap_or_else(|| self.clock.now());
            let mut batch = self.batch();
            batch.clear();
            batch.push(timestamp, key, value, &views)?;
            self.log.append(&mut batch, &options)
        };
        let info = self.clock.timed(py, append)?.or_raise(py)?;
        Ok(Some(info.base_offset))
    }

    #[pyo3(signature = (*, batch_bytes, linger_ms, compression, leader_epoch))]
    fn writer(
        &self,
        py: Python<'_>,
        batch_bytes: usize,
        linger_ms: u64,
        compression: Option<&str>,
        leader_epoch: Option<i32>,
    ) -> PyResult<Writer> {
        Writer::of(py, self, batch_bytes, linger_ms, compression, leader_epoch)
    }

    #[pyo3(signature = (records, *, compression, leader_epoch, flush, producer_id, producer_epoch, base_sequence, transactional))]
    #[allow(
        clippy::too_many_arguments,
        reason = "keywords: a dict would cost a tenth of a small batch"
    )]
    fn append_records(
        &self,
        py: Python<'_>,
        records: &Bound<'_, PyAny>,
        compression: Option<&str>,
        leader_epoch: Option<i32>,
        flush: bool,
        producer_id: i64,
        producer_epoch: i16,
        base_sequence: i32,
        transactional: bool,
    ) -> PyResult<rows::AppendInfo> {
        let producer = Producer {
            producer_id,
            producer_epoch,
            base_sequence,
            is_transactional: transactional,
        };
        // A batch of its own: another thread may append while the records are being read.
        let mut batch = BatchBuilder::new(codec(compression)?, producer);
        pushed_records::push_all(&mut batch, records, || self.clock.told(py))?;
        let options = AppendOptions {
            leader_epoch,
            flush,
        };
        let append = || self.log.append(&mut batch, &options);
        let info = self.clock.timed(py, append)?.or_raise(py)?;
        Ok(info_row(&info))
    }

    #[pyo3(signature = (data, *, leader_epoch, origin, flush))]
    fn append_batches(
        &self,
        py: Python<'_>,
        data: PyBackedBytes,
        leader_epoch: Option<i32>,
        origin: &str,
        flush: bool,
    ) -> PyResult<rows::AppendInfo> {
        let origin = match origin {
            "client" => AppendOrigin::Client,
            "coordinator" => AppendOrigin::Coordinator,
            other => {
                return Err(PyValueError::new_err(format!(
                    "origin {other:?} found, client or coordinator expected"
                )));
            }
        };
        let options = AppendOptions {
            leader_epoch,
            flush,
        };
        let append = || self.log.append_batches(&data, origin, &options);
        let info = self.clock.timed(py, append)?.or_raise(py)?;
        Ok(info_row(&info))
    }

    #[pyo3(signature = (data, *, leader_epoch, flush))]
    fn append_as_follower(
        &self,
        py: Python<'_>,
        data: PyBackedBytes,
        leader_epoch: i32,
        flush: bool,
    ) -> PyResult<rows::AppendInfo> {
        let append = || self.log.append_as_follower(&data, leader_epoch, flush);
        let info = self.clock.timed(py, append)?.or_raise(py)?;
        Ok(info_row(&info))
    }

    #[pyo3(signature = (source, options, *, start, keep_offsets))]
    fn append_log(
        &self,
        py: Python<'_>,
        source: &Bound<'_, Log>,
        options: AppendValues,
        start: Option<i64>,
        keep_offsets: bool,
    ) -> PyResult<rows::AppendInfo> {
        let options = AppendLogOptions {
            start,
            keep_offsets,
            append: options.into(),
        };
        let source = &source.get().0;
        let append = || self.log.append_log(source, &options);
        let info = self.clock.timed(py, append)?.or_raise(py)?;
        Ok(info_row(&info))
    }

    fn move_log(
        &self,
        py: Python<'_>,
        source: PathBuf,
        batches: usize,
        leader_epoch: Option<i32>,
    ) -> PyResult<Option<rows::AppendInfo>> {
        let moved = || self.log.move_log(&source, batches, leader_epoch);
        let info = self.clock.timed(py, moved)?.or_raise(py)?;
        Ok(info.as_ref().map(info_row))
    }

    fn append_marker(
        &self,
        py: Python<'_>,
        marker: MarkerValues,
        options: AppendValues,
    ) -> PyResult<rows::AppendInfo> {
        let marker = MarkerOptions {
            producer_id: marker.producer_id,
            producer_epoch: marker.producer_epoch,
            commit: marker.commit,
            coordinator_epoch: marker.coordinator_epoch,
            timestamp: marker.timestamp,
            transaction_version: marker.transaction_version,
        };
        let options = AppendOptions::from(options);
        let append = || self.log.append_marker(&marker, &options);
        let info = self.clock.timed(py, append)?.or_raise(py)?;
        Ok(info_row(&info))
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        detached(py, || self.log.flush()).or_raise(py)
    }

    fn roll(&self, py: Python<'_>) -> PyResult<i64> {
        detached(py, || self.log.roll()).or_raise(py)
    }

    fn truncate_to(&self, py: Python<'_>, offset: i64) -> PyResult<bool> {
        detached(py, || self.log.truncate_to(offset)).or_raise(py)
    }

    fn truncate_fully_and_start_at(
        &self,
        py: Python<'_>,
        offset: i64,
        log_start_offset: Option<i64>,
    ) -> PyResult<()> {
        detached(py, || {
            self.log
                .truncate_fully_and_start_at(offset, log_start_offset)
        })
        .or_raise(py)
    }

    fn delete_records_before(&self, py: Python<'_>, offset: i64) -> PyResult<bool> {
        detached(py, || self.log.delete_records_before(offset)).or_raise(py)
    }

    fn maintain(&self, py: Python<'_>, options: MaintainValues) -> PyResult<rows::MaintainReport> {
        let options = maintain_options(py, options)?;
        let mut report = MaintainReport::default();
        let maintain = || self.log.maintain_into(&options, &mut report);
        let done = self.clock.timed(py, maintain)?.or_raise(py);
        match done {
            Ok(()) => Ok(maintain_row(report)),
            Err(error) if report.dry_run || report.is_empty() => Err(error),
            Err(error) => Err(noted(py, error, &done_before(&[maintained(&report)]))),
        }
    }

    #[pyo3(signature = (*, first_dirty, map_bytes))]
    fn compact(
        &self,
        py: Python<'_>,
        first_dirty: Option<i64>,
        map_bytes: Option<usize>,
    ) -> PyResult<rows::Compaction> {
        let options = CompactOptions {
            first_dirty,
            map_bytes,
        };
        let compact = || self.log.compact(&options);
        let compaction = self.clock.timed(py, compact)?.or_raise(py)?;
        Ok(compaction_row(compaction))
    }

    fn end_offset_for_epoch(&self, py: Python<'_>, epoch: i32) -> Option<(i32, i64)> {
        detached(py, || self.log.end_offset_for_epoch(epoch))
    }

    fn recovery_point(&self, py: Python<'_>) -> i64 {
        detached(py, || self.log.recovery_point())
    }

    fn config(&self, py: Python<'_>) -> Pairs {
        config::pairs(&detached(py, || self.log.config()))
    }

    fn set_config(&self, py: Python<'_>, pairs: Pairs) -> PyResult<()> {
        let config = config::parse(py, &pairs)?;
        detached(py, || self.log.set_config(&config)).or_raise(py)
    }

    fn recovery_report(&self, py: Python<'_>) -> rows::RecoveryReport {
        recovery_row(detached(py, || self.log.recovery_report()))
    }

    fn is_closed(&self) -> bool {
        self.log.is_closed()
    }

    /// Appends what its writers hold, and closes it whatever becomes of that.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let path = self.log.log().path();
        let lost = self.writers.end(py, Some(path));
        let closed = detached(py, || self.log.close());
        writers::closed(py, lost, closed)
    }

    /// For tests of recovery: as a killed process leaves the files.
    fn abandon(&self, py: Python<'_>) {
        detached(py, || self.log.abandon());
    }
}

impl From<AppendValues> for AppendOptions {
    fn from(values: AppendValues) -> Self {
        Self {
            leader_epoch: values.leader_epoch,
            flush: values.flush,
        }
    }
}

impl Appender {
    pub(crate) fn of(log: offsetlog::LogWriter, clock: LogClock, writers: Writers) -> Self {
        Self {
            log,
            clock,
            writers,
            process: process_id(),
            batch: Mutex::default(),
        }
    }

    fn batch(&self) -> MutexGuard<'_, BatchBuilder> {
        self.batch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn engine(&self) -> (offsetlog::LogWriter, LogClock) {
        (self.log.clone(), self.clock.clone())
    }

    pub(crate) const fn writers(&self) -> &Writers {
        &self.writers
    }
}

fn recovery_row(report: RecoveryReport) -> rows::RecoveryReport {
    let kept = report.kept().map(|path| path.as_os_str().to_owned());
    let kept: rows::Tuple<_> = kept.collect();
    let rebuilt = report.rebuilt.into_iter();
    rows::RecoveryReport {
        cut: report.cut.into_iter().map(cut_row).collect(),
        kept,
        rebuilt: rebuilt
            .map(|(path, reason)| (path.into_os_string(), reason))
            .collect(),
        log_end_offset: report.log_end_offset,
        log_start_offset: report.log_start_offset,
        clean: report.clean,
        dry_run: report.dry_run,
        tidied: report.tidied.into(),
        warnings: report.warnings.into(),
        segments_read: report.segments_read,
        bytes_read: report.bytes_read,
    }
}

fn cut_row(cut: Cut) -> rows::Cut {
    rows::Cut {
        path: cut.path.into_os_string(),
        position: cut.position,
        bytes: cut.bytes,
        reason: cut.reason,
        had_batches: cut.had_batches,
        kept: cut.kept.map(PathBuf::into_os_string),
        records: cut.records,
        offsets: cut.offsets,
    }
}

pub(crate) fn maintain_options(
    py: Python<'_>,
    values: MaintainValues,
) -> PyResult<MaintainOptions> {
    let is_wanted = |name| values.only.iter().any(|wanted| wanted == name);
    let config = values.config.as_ref();
    Ok(MaintainOptions {
        now: values.now,
        dry_run: values.dry_run,
        retention: is_wanted("retention"),
        compaction: is_wanted("compaction"),
        deletes: is_wanted("deletes"),
        config: config.map(|pairs| config::parse(py, pairs)).transpose()?,
        ..MaintainOptions::default()
    })
}

/// What was removed and compacted, in words.
pub(crate) fn maintained(report: &MaintainReport) -> String {
    let removed = report.removed.iter().map(|segment| {
        format!(
            "offsets {} to {} removed ({})",
            segment.base_offset,
            segment.end_offset - 1,
            segment.reason.name()
        )
    });
    let compactions = report.compactions.iter();
    let compactions = compactions.map(|pass| format!("compacted up to offset {}", pass.end_offset));
    let files = Some(report.deleted.len()).filter(|files| *files > 0);
    let deleted = files.map(|files| format!("{} deleted", counted(files, "file")));
    let words: Vec<String> = removed.chain(compactions).chain(deleted).collect();
    words.join(", ")
}

/// The note of what stays done though an error ended the work.
pub(crate) fn done_before(things: &[String]) -> String {
    format!("done before that: {}", things.join("; "))
}

pub(crate) fn maintain_row(report: MaintainReport) -> rows::MaintainReport {
    let compactions = report.compactions.into_iter();
    let deleted = report.deleted.into_iter();
    rows::MaintainReport {
        removed: report.removed.into_iter().map(removed_row).collect(),
        compactions: compactions.map(compaction_row).collect(),
        deleted: deleted.map(PathBuf::into_os_string).collect(),
        log_start_offset: report.log_start_offset,
        log_end_offset: report.log_end_offset,
        dry_run: report.dry_run,
    }
}

fn removed_row(segment: RemovedSegment) -> rows::RemovedSegment {
    rows::RemovedSegment {
        base_offset: segment.base_offset,
        end_offset: segment.end_offset,
        size_bytes: segment.size_bytes,
        reason: segment.reason.name(),
    }
}

fn compaction_row(compaction: Compaction) -> rows::Compaction {
    rows::Compaction {
        first_dirty_offset: compaction.first_dirty_offset,
        end_offset: compaction.end_offset,
        first_uncleanable_offset: compaction.first_uncleanable_offset,
        dirty_ratio: compaction.dirty_ratio,
        keys: compaction.keys,
        segments_before: compaction.segments_before,
        segments_after: compaction.segments_after,
        bytes_before: compaction.bytes_before,
        bytes_after: compaction.bytes_after,
        records_before: compaction.records_before,
        records_after: compaction.records_after,
    }
}

/// In a process that was just forked: closes its copies of the parent's locks, so that these end with the parent.
#[pyfunction]
pub(crate) fn close_inherited_locks() {
    offsetlog::disk::close_inherited_locks();
}

/// Recovers a log without opening it.
#[pyfunction]
#[pyo3(signature = (path, options, *, from_offset, dry_run, progress))]
pub(crate) fn recover(
    py: Python<'_>,
    path: PathBuf,
    options: OpenValues,
    from_offset: Option<i64>,
    dry_run: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<rows::RecoveryReport> {
    let mut options = open_options(&options);
    let raised = Raised::default();
    options.interrupt = Some(raised.interrupts(options.interrupt.take()));
    let recover = RecoverOptions {
        from_offset,
        dry_run,
        progress: raised.of_more(progress),
    };
    let report = detached(py, || offsetlog::recover(&path, &options, &recover));
    raised.or(py, report).map(recovery_row)
}

#[pyfunction]
pub(crate) fn moving_note(
    py: Python<'_>,
    source: PathBuf,
) -> PyResult<Option<Vec<(u32, u32, i32)>>> {
    let read = || offsetlog::moving_note(&offsetlog::disk::RealDisk, &source);
    let batches = detached(py, read).or_raise(py)?;
    let plain =
        |batch: &offsetlog::MovedBatch| (batch.size_bytes, batch.crc, batch.last_offset_delta);
    Ok(batches.map(|batches| batches.iter().map(plain).collect()))
}
