//! Offsets that no segment of the log to convert has: a segment between two others is missing, unless compaction left it out.

use super::Missing;
use crate::config::LogConfig;
use crate::error::Result;
use crate::log::Log;
use offsetlog_format::BatchHeader;

/// Gaps that a warning names; of the others it gives the number.
const NAMED: usize = 5;

/// Looks at each batch that is copied.
pub(super) struct Gaps {
    bases: Vec<i64>,
    /// Behind the last batch; before there is one, where the log begins. `None` behind the greatest offset.
    end: Option<i64>,
    /// Before the first batch of a segment, or before a segment without one.
    found: Vec<(i64, i64)>,
    /// Whether a batch lacks records: only compaction does that.
    is_compacted: bool,
    /// Whether a segment has a gap inside, which is no missing segment.
    is_any_inside: bool,
}

impl Gaps {
    pub(super) fn of(log: &Log) -> Result<Self> {
        let bases: Vec<i64> = log.look(|view| {
            let segments = view.segments.iter();
            Ok(segments.map(|segment| segment.base_offset).collect())
        })?;
        let first = bases.first().copied().unwrap_or(0);
        Ok(Self {
            bases,
            end: Some(log.log_start_offset()?.max(first)),
            found: Vec::new(),
            is_compacted: false,
            is_any_inside: false,
        })
    }

    pub(super) fn look(&mut self, log: &Log, header: &BatchHeader) -> Result<()> {
        let first = match (header.base_offset, self.end) {
            // Compressed messages of magic 0 and 1 say only where they end. They are asked where a segment is missing or begins.
            (None, Some(end)) if self.is_border_within(end, header.last_offset) => {
                log.first_record(end)?.map(|record| record.offset)
            }
            (first, _) => first,
        };
        if let Some(first) = first {
            self.pass_to(first);
        }
        self.is_compacted |= header.is_sparse();
        self.end = header.last_offset.checked_add(1);
        Ok(())
    }

    /// Whether a segment begins behind `end` and up to `first`.
    fn is_border_within(&self, end: i64, first: i64) -> bool {
        let behind = self.bases.partition_point(|base| *base <= end);
        self.bases.get(behind).is_some_and(|base| *base <= first)
    }

    /// Notes that no batch has the offsets up to `first`, exclusive, if there are any.
    pub(super) fn pass_to(&mut self, first: i64) {
        let Some(end) = self.end.filter(|end| *end < first) else {
            return;
        };
        // A segment that begins at its start, or before, has the gap inside.
        if self.is_border_within(end, first) {
            self.found.push((end, first));
        } else {
            self.is_any_inside = true;
        }
    }

    /// Adds the gaps that were lost for certain, and a warning of those that were or may have been.
    pub(super) fn tell(
        self,
        log: &Log,
        config: Option<&LogConfig>,
        missing: &mut Missing,
    ) -> Result<()> {
        let is_noted = log.is_compaction_noted()?;
        // A follower copies a log that its leader has compacted, and notes it when it compacts its own.
        let is_known = is_noted && !self.is_any_inside;
        let is_compacted = self.is_compacted
            || (self.is_any_inside && !is_noted)
            || config.is_some_and(LogConfig::is_compacted)
            || log
                .stored_config()?
                .is_some_and(|stored| stored.is_compacted())
            || log.cleaner_offset()?.is_some();
        if is_compacted || self.found.is_empty() {
            return Ok(());
        }
        let named: Vec<String> = self
            .found
            .iter()
            .take(NAMED)
            .map(|(start, stop)| format!("{start} to {}", stop - 1))
            .collect();
        let more = self.found.len() - named.len();
        let more = if more == 0 {
            String::new()
        } else {
            format!(" and {more} gaps more")
        };
        let why = if is_known {
            "a segment is missing, so its records are lost"
        } else {
            "a segment is missing, unless the topic is compacted, which its directory alone does not say"
        };
        let warning = format!(
            "offsets {}{more} are in no segment of this directory: {why}",
            named.join(", ")
        );
        missing.warnings.push(warning);
        if is_known {
            missing.offsets.extend(self.found);
            missing.offsets.sort_unstable();
        }
        Ok(())
    }
}
