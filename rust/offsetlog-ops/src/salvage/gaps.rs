//! Offsets that no batch has, without any damage around them: compaction leaves them out, and so does a segment that is lost.

use super::{Salvage, everything};
use offsetlog::format::BatchHeader;
use offsetlog::{Hole, Log, Result, ScanOptions};

/// The kind of such holes.
pub(super) const GAP: &str = "Gap";

/// What it means in a log that offsets have no batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gaps {
    /// The log is compacted, or shows that it was.
    Compacted,
    /// The cleaner has never touched the log: they were lost.
    Lost,
    /// Nothing says whether it has: they may have been lost, where a segment begins behind them.
    Unknown,
}

impl Salvage<'_> {
    /// Notes a gap before the next batch of the live log, which begins at `next`, or before the damage that lies before that.
    pub(super) fn note_gap(
        &mut self,
        next: Option<i64>,
        after: Option<&BatchHeader>,
    ) -> Result<()> {
        let reached = next.map(|next| next.min(self.stop));
        // A scan lets damage end where the next segment begins by its name, and that one may be empty.
        if let (Some(stop), Some(next)) = (self.holes.end_of_new(), reached)
            && stop < next
            && self.segments.binary_search(&stop).is_ok()
        {
            let gaps = self.judged_gaps()?;
            if gaps != Gaps::Compacted {
                self.holes.add(gap_before(self.log, (stop, next), gaps)?);
            }
        }
        let first = match self.holes.first_new() {
            Some(hole) => Some(hole.start),
            None => next,
        };
        let end = self.known_end();
        let Some(first) = first.filter(|first| (*first).min(self.stop) > end) else {
            return Ok(());
        };
        // No segment is missing between two batches of one segment.
        if !is_at_border(&self.segments, end, first) {
            return Ok(());
        }
        let gaps = self.judged_gaps()?;
        if gaps != Gaps::Compacted {
            let mut hole = gap_before(self.log, (end, first), gaps)?;
            hole.stop = hole.stop.map(|stop| stop.min(self.stop));
            let time_after = after.map(|after| after.max_timestamp);
            self.holes.add_gap(hole, time_after);
        }
        Ok(())
    }

    /// First offset of a batch of the live log. Compressed messages of magic 0 and 1 say only where they end: `None` if the first of
    /// them cannot be read.
    pub(super) fn first_of(&self, header: &BatchHeader) -> Result<Option<i64>> {
        if header.base_offset.is_some() {
            return Ok(header.base_offset);
        }
        // A second scan, because the first record of a batch is read once.
        let mut scan = self.log.scan(&ScanOptions {
            start: Some(self.live_end.max(self.log_start)),
            stop: Some(header.last_offset.saturating_add(1)),
            ..everything()
        })?;
        let Some(mut batch) = scan.next_batch()? else {
            return Ok(None);
        };
        let found = batch.header();
        if (found.last_offset, found.crc) != (header.last_offset, header.crc) {
            return Ok(None);
        }
        Ok(batch.next_record()?.map(|record| record.offset))
    }

    /// First offset of a batch of the live log, if its header has it, or if a segment is missing before it.
    pub(super) fn known_first_of(&self, header: &BatchHeader) -> Result<Option<i64>> {
        let end = self.known_end();
        let mut behind = self.segments.iter().filter(|base| **base > end);
        if header.base_offset.is_some() || !behind.any(|base| *base <= header.last_offset) {
            return Ok(header.base_offset);
        }
        self.first_of(header)
    }

    /// Behind the last batch of the live log; before there is one, where the log begins: with its first segment, or inside it.
    fn known_end(&self) -> i64 {
        let first = self.segments.first().copied();
        self.live_end.max(self.log_start).max(first.unwrap_or(0))
    }

    /// What gaps mean in this log.
    fn judged_gaps(&mut self) -> Result<Gaps> {
        Ok(match self.gaps {
            Some(gaps) => gaps,
            None => *self.gaps.insert(self.judge_gaps()?),
        })
    }

    /// Looks at the headers of all batches, once, at the first gap.
    fn judge_gaps(&self) -> Result<Gaps> {
        if self.replicas.is_compacted() {
            return Ok(Gaps::Compacted);
        }
        let is_noted = self.log.is_compaction_noted()?;
        Ok(match (shown_by(self.log)?, is_noted) {
            (Some(Trace::Records), _) | (Some(Trace::Batches), false) => Gaps::Compacted,
            (None, true) => Gaps::Lost,
            // A follower copies a log that its leader has compacted, and notes it when it compacts its own.
            (Some(Trace::Batches), true) | (None, false) => Gaps::Unknown,
        })
    }
}

/// What compaction has left in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trace {
    /// Batches without some of their records.
    Records,
    /// Offsets inside of a segment that no batch has.
    Batches,
}

/// Whether a segment begins in a gap, and not before it: one that is missing may have had the offsets.
fn is_at_border(segments: &[i64], end: i64, first: i64) -> bool {
    let behind = segments.partition_point(|base| *base <= end);
    segments.get(behind).is_some_and(|base| *base <= first)
}

/// Whether a log shows that it was compacted, here or by the leader that it was copied from. Reads it until it does.
///
/// # Errors
/// Those of reading it; damage is stepped over.
pub(crate) fn shown_by(log: &Log) -> Result<Option<Trace>> {
    let segments = log.segments()?;
    let segments: Vec<i64> = segments.iter().map(|each| each.base_offset).collect();
    let mut scan = log.scan(&everything())?;
    let report = scan.report();
    let (mut end, mut holes, mut found) = (None, 0, None);
    while let Some(batch) = scan.next_batch()? {
        let header = batch.header();
        if header.is_sparse() {
            return Ok(Some(Trace::Records));
        }
        let is_behind_damage = std::mem::replace(&mut holes, report.hole_count()) != holes;
        let is_inside = end.zip(header.base_offset).is_some_and(|(end, first)| {
            first > end && !is_behind_damage && !is_at_border(&segments, end, first)
        });
        if is_inside {
            found = Some(Trace::Batches);
        }
        end = header.last_offset.checked_add(1);
    }
    Ok(found)
}

/// The offsets between two batches that can be read.
fn gap_before(log: &Log, (start, stop): (i64, i64), gaps: Gaps) -> Result<Hole> {
    let segments = log.segments()?;
    let behind = segments
        .iter()
        .rev()
        .find(|segment| segment.base_offset <= stop);
    let base = behind.map_or(stop, |segment| segment.base_offset);
    let reason = match gaps {
        Gaps::Lost => "no segment has these offsets, and nothing says that the log was compacted",
        _ => {
            "no segment has these offsets: lost, unless the topic is compacted, which nothing here says; give the whole log dir, and the metadata of the cluster"
        }
    };
    Ok(Hole {
        topic: log.topic().to_owned(),
        partition: log.partition(),
        path: log.path().join(format!("{base:020}.log")),
        position: 0,
        bytes: 0,
        start,
        stop: Some(stop),
        kind: GAP,
        reason: reason.to_owned(),
    })
}
