//! The target of the batches that are taken: a new log, or a comparison with a log that may already be equal.

use super::cut::Until;
use offsetlog::format::{BatchHeader, counted};
use offsetlog::{
    Batch, BuiltPartition, Error, Log, OnCorrupt, PartitionBuilder, Record, Result, Scan,
    ScanOptions,
};
use std::fmt::Display;

/// What becomes of the batches.
pub(super) struct Sink {
    pub(super) kind: Kind,
    until: Until,
}

/// What takes them.
pub(super) enum Kind {
    /// They are written.
    Build(Box<PartitionBuilder>),
    /// They are compared with those of an existing log.
    Compare(Box<Comparison>),
}

impl Sink {
    pub(super) const fn new(kind: Kind, until: Until) -> Self {
        Self { kind, until }
    }

    /// Takes a batch, up to the first record at the time where the log is cut. Returns the number of its records that can be read,
    /// without control records.
    pub(super) fn add(&mut self, batch: &mut Batch<'_>) -> Result<u64> {
        if let Some(stop) = self.until.look(batch) {
            match &mut self.kind {
                Kind::Build(builder) => builder.stop_at(stop),
                Kind::Compare(comparison) => comparison.stop_at(stop),
            }
        }
        match &mut self.kind {
            Kind::Build(builder) => {
                let before = builder.records();
                builder.add(batch)?;
                Ok(builder.records() - before)
            }
            Kind::Compare(comparison) => comparison.add(batch),
        }
    }

    /// The offset of the first record at that time, or a later one, of the batches that were added.
    pub(super) const fn stop(&self) -> Option<i64> {
        self.until.stop()
    }
}

/// An existing log that may already be what is to be built.
pub(super) struct Comparison {
    log: Log,
    scan: Scan,
    batch: std::vec::IntoIter<Record>,
    stop: i64,
    epochs: Epochs,
    /// Numbers of those that were added: control records are not counted.
    records: u64,
    batches: u64,
}

/// Which leader epochs the existing log may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Epochs {
    /// Those of what is to be built.
    Same,
    /// Any that the cluster takes: the greatest one.
    UpTo(i32),
}

impl Comparison {
    /// With all records of this log. Those of the batches that are added count below `stop` alone.
    pub(super) fn with(log: &Log, stop: Option<i64>, epochs: Epochs) -> Result<Self> {
        let options = ScanOptions {
            control_records: true,
            on_corrupt: OnCorrupt::Raise,
            ..ScanOptions::default()
        };
        Ok(Self {
            scan: log.scan(&options)?,
            log: log.clone(),
            batch: Vec::new().into_iter(),
            stop: stop.unwrap_or(i64::MAX),
            epochs,
            records: 0,
            batches: 0,
        })
    }

    const fn stop_at(&mut self, offset: i64) {
        if offset < self.stop {
            self.stop = offset;
        }
    }

    fn add(&mut self, batch: &mut Batch<'_>) -> Result<u64> {
        let header = *batch.header();
        let mut records = 0;
        for record in batch.to_records()? {
            if record.offset >= self.stop {
                continue;
            }
            match self.next()? {
                Some(found) if !is_same(&record, &found) => {
                    return Err(self.differs(record.offset.min(found.offset)));
                }
                Some(found) => {
                    if let Some(what) = self.differing(&header, &record, &found) {
                        return Err(self.not_it(&format!(
                            "the record at offset {} has the same key and value, and {what}",
                            found.offset
                        )));
                    }
                    records += 1;
                }
                None => return Err(self.differs(record.offset)),
            }
        }
        if header.attributes.is_control() {
            records = 0;
        }
        self.records += records;
        self.batches += 1;
        Ok(records)
    }

    /// What a broker knows of two records beside what a consumer reads: the first that is not the same.
    fn differing(&self, header: &BatchHeader, one: &Record, other: &Record) -> Option<String> {
        let told = |what: &str, one: &dyn Display, other: &dyn Display| {
            Some(format!("another {what}: {other}, and not {one}"))
        };
        if one.producer_id != other.producer_id {
            return told("producer id", &one.producer_id, &other.producer_id);
        }
        if one.producer_epoch != other.producer_epoch {
            return told("producer epoch", &one.producer_epoch, &other.producer_epoch);
        }
        if one.sequence != other.sequence {
            return told("sequence", &one.sequence, &other.sequence);
        }
        if one.is_transactional != other.is_transactional || one.is_control != other.is_control {
            let kind = |record: &Record| match (record.is_control, record.is_transactional) {
                (true, _) => "a control record",
                (false, true) => "one of a transaction",
                (false, false) => "one of no transaction",
            };
            return told("kind", &kind(one), &kind(other));
        }
        // Old messages have no such type, and no epoch, and become batches that do.
        if header.magic == 2 && one.timestamp_type != other.timestamp_type {
            return told(
                "type of timestamp",
                &(one.timestamp_type as i8),
                &(other.timestamp_type as i8),
            );
        }
        match self.epochs {
            Epochs::Same if one.leader_epoch >= 0 && one.leader_epoch != other.leader_epoch => {
                told("leader epoch", &one.leader_epoch, &other.leader_epoch)
            }
            Epochs::UpTo(limit) if other.leader_epoch > limit => Some(format!(
                "a leader epoch above those that the cluster takes: {}, and not {limit} at most",
                other.leader_epoch
            )),
            _ => None,
        }
    }

    /// When all batches were added: nothing more may be there, and the log may not end before `end`. Returns what is there.
    pub(super) fn finish(mut self, end: Option<i64>) -> Result<BuiltPartition> {
        if let Some(found) = self.next()? {
            return Err(self.differs(found.offset));
        }
        let log_end_offset = self.log.log_end_offset()?;
        if let Some(end) = end.filter(|end| log_end_offset < *end) {
            return Err(self.differs(end));
        }
        // A reader ends before it, and so would a broker that is told of a clean end.
        let torn = self.scan.report().torn_tails().pop();
        if let Some((_, torn)) = torn {
            let reason = format!(
                "it has what is to be restored, and {} behind it that are no batch, from position {} of {} on: cut them with offsetlog \
                 recover, or delete the directory or move it away, and run this again",
                counted(torn.bytes, "byte"),
                torn.position,
                torn.path.display()
            );
            return Err(Error::log_dir(self.log.path(), reason));
        }
        Ok(BuiltPartition {
            path: self.log.path().to_path_buf(),
            records: self.records,
            batches: self.batches,
            batches_kept: self.batches,
            bytes_written: 0,
            log_start_offset: self.log.log_start_offset()?,
            log_end_offset,
            last_stable_offset: self.log.last_stable_offset()?,
        })
    }

    fn next(&mut self) -> Result<Option<Record>> {
        loop {
            if let Some(record) = self.batch.next() {
                return Ok(Some(record));
            }
            let Some(mut batch) = self.scan.next_batch()? else {
                return Ok(None);
            };
            self.batch = batch.to_records()?.into_iter();
        }
    }

    fn differs(&self, offset: i64) -> Error {
        self.not_it(&format!("offset {offset} shows it"))
    }

    fn not_it(&self, why: &str) -> Error {
        let reason = format!(
            "it is not what is to be restored: {why}. Delete the directory, or move it away, and run this again"
        );
        Error::log_dir(self.log.path(), reason)
    }
}

fn is_same(one: &Record, other: &Record) -> bool {
    (
        one.offset,
        one.timestamp,
        &one.key,
        &one.value,
        &one.headers,
    ) == (
        other.offset,
        other.timestamp,
        &other.key,
        &other.value,
        &other.headers,
    )
}
