//! The target of the batches that are taken: a new log, or a comparison with a log that may already be equal.

use offsetlog::{
    Batch, Error, Log, OnCorrupt, PartitionBuilder, Record, Result, Scan, ScanOptions,
};

/// What becomes of the batches.
pub(super) enum Sink {
    /// They are written.
    Build(Box<PartitionBuilder>),
    /// They are compared with those of an existing log.
    Compare(Box<Comparison>),
}

impl Sink {
    /// Takes a batch. Returns the number of its records that can be read, without control records.
    pub(super) fn add(&mut self, batch: &mut Batch<'_>) -> Result<u64> {
        match self {
            Self::Build(builder) => {
                let before = builder.records();
                builder.add(batch)?;
                Ok(builder.records() - before)
            }
            Self::Compare(comparison) => comparison.add(batch),
        }
    }
}

/// An existing log that may already be what is to be built.
pub(super) struct Comparison {
    log: Log,
    scan: Scan,
    batch: std::vec::IntoIter<Record>,
    stop: i64,
}

impl Comparison {
    /// With all records of this log. Those of the batches that are added count below `stop` alone.
    pub(super) fn with(log: &Log, stop: Option<i64>) -> Result<Self> {
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
        })
    }

    fn add(&mut self, batch: &mut Batch<'_>) -> Result<u64> {
        let is_control = batch.header().attributes.is_control();
        let mut records = 0;
        for record in batch.to_records()? {
            if record.offset >= self.stop {
                continue;
            }
            match self.next()? {
                Some(found) if is_same(&record, &found) => records += 1,
                Some(found) => return Err(self.differs(record.offset.min(found.offset))),
                None => return Err(self.differs(record.offset)),
            }
        }
        Ok(if is_control { 0 } else { records })
    }

    /// When all batches were added: nothing more may be there.
    pub(super) fn finish(&mut self) -> Result<()> {
        match self.next()? {
            Some(found) => Err(self.differs(found.offset)),
            None => Ok(()),
        }
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
        let reason = format!(
            "it is not what is to be restored, as offset {offset} shows: delete the directory, or move it away"
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
