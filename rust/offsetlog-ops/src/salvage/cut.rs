//! Where a restored log is cut: at an offset, and at the first record at a time, wherever that record comes from.
//!
//! The time is looked for in all that is restored. A hole may hide the first record at that time from a look-up in the log, and another
//! replica, or a file that was set aside, may have it.

use super::sink::Sink;
use super::{Salvage, everything};
use offsetlog::{Batch, BatchDecoder, Result, ScanOptions};

/// Up to where a log is taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Offset, exclusive.
    pub(crate) stop: Option<i64>,
    /// Up to the first record at this time, or a later one.
    pub(crate) until: Option<i64>,
}

/// Looks for the first record at a time, or a later one.
#[derive(Debug, Default)]
pub(super) struct Until {
    time: Option<i64>,
    /// Records before are not restored.
    log_start: i64,
    /// Bytes that a batch is decompressed to, at most.
    limit: u64,
    decoder: BatchDecoder,
    /// The offset of that record.
    stop: Option<i64>,
}

impl Until {
    pub(super) fn new(time: Option<i64>, log_start: i64, limit: u64) -> Self {
        Self {
            time,
            log_start,
            limit,
            ..Self::default()
        }
    }

    /// The offset of that record, if it was found.
    pub(super) const fn stop(&self) -> Option<i64> {
        self.stop
    }

    /// Looks at a batch, whose records stay to be read. Returns the offset when it is found. Records that cannot be read are a hole, which
    /// the scan reports.
    pub(super) fn look(&mut self, batch: &Batch<'_>) -> Option<i64> {
        let time = self.time.filter(|_| self.stop.is_none())?;
        if batch.header().max_timestamp < time {
            return None;
        }
        let mut records = self.decoder.records(batch.bytes(), self.limit).ok()?;
        while let Ok(Some(record)) = records.next_record() {
            if record.timestamp >= time && record.offset >= self.log_start {
                self.stop = Some(record.offset);
                break;
            }
        }
        self.stop
    }
}

impl Salvage<'_> {
    /// Lowers the offset of the cut, if the record at the time has been found.
    pub(super) fn look_for_stop(&mut self) {
        let found = self.sink.as_ref().and_then(Sink::stop);
        if let Some(stop) = found.filter(|stop| *stop < self.stop) {
            self.is_cut_at_time = true;
            self.stop = stop;
            self.aside.stop_at(stop);
            self.holes.stop_at(stop);
        }
    }

    /// Deals with what no batch of the live log has between the last one and the cut, or the end of the log, which is `end` where that is
    /// known. Returns where the log continues behind the cut; the greatest offset where it does not, or nobody knows.
    pub(super) fn pass_end(&mut self, end: i64) -> Result<i64> {
        // The log may continue behind the cut: then the hole is judged, and filled, as it would be without the cut.
        let mut behind = None;
        if self.stop < i64::MAX && self.live_end < self.stop {
            let mut scan = self.log.scan(&ScanOptions {
                start: Some(self.live_end.max(self.log_start)),
                ..everything()
            })?;
            behind = scan.next_batch()?.map(|batch| *batch.header());
        }
        self.holes.look(behind.map(|behind| behind.max_timestamp));
        let next = match &behind {
            Some(behind) => self.first_of(behind)?,
            // Behind the last batch an empty segment may begin.
            None => Some(end),
        };
        self.note_gap(next, behind.as_ref())?;
        let end = next.filter(|_| behind.is_some()).unwrap_or(i64::MAX);
        self.fill_holes(end, behind)?;
        Ok(end)
    }
}
