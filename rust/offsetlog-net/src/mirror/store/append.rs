//! Appends what a broker sent to a copy.

use super::unended::Transactions;
use super::{Store, is_of_topic, position_of};
use crate::mirror::batches::runs;
use crate::mirror::partition::Position;
use crate::mirror::work::Append;
use offsetlog::{ErrorKind, LogWriter, Result};

/// What became of batches.
#[derive(Debug)]
pub(crate) enum AppendOutcome {
    /// The copy stands there.
    Appended(Position, Transactions),
    /// Nothing was appended: the copy does not end where the batches begin. It stands there.
    Elsewhere(Position),
}

impl Store {
    /// Appends whole batches as a follower does, if the copy ends where they expect it. A follower's log takes a gap in offsets as
    /// compaction leaves it: only this check tells one from batches that are missing.
    ///
    /// # Errors
    /// Those of [`LogWriter::append_as_follower`]. What was appended before the error stays.
    pub(crate) fn append(&mut self, append: &Append, records: &[u8]) -> Result<AppendOutcome> {
        let log = self.log(&append.at)?;
        let (start, end) = (log.log_start_offset()?, log.log_end_offset()?);
        if end != append.copy_end {
            return Ok(AppendOutcome::Elsewhere(position_of(&log)?));
        }
        self.syncs.dirty();
        let mut open =
            self.open_transactions
                .take_out(&append.at, &log, self.open.disk.as_ref())?;
        let mut at_gap = self.open_transactions.take_at_gap(&append.at);
        if append.position > end {
            // What an append that failed had to tell is told once.
            let found = open.at_gap();
            at_gap.retain(|each| !found.contains(each));
            at_gap.extend(found);
        }
        if let Err(error) = Self::append_runs(&log, append, records, (start, end)) {
            self.open_transactions.keep_at_gap(&append.at, at_gap);
            return Err(error);
        }
        self.syncs.appended(records.len());
        let times = ((self.open.clock)(), log.config().delete_retention_ms());
        let transactions = Transactions {
            at_gap,
            compacted: open.take(records, append.position, times),
            open: open.untold(),
        };
        self.open_transactions.keep(&append.at, open);
        let position = Position {
            start: log.log_start_offset()?,
            end: log.log_end_offset()?,
            epoch: match append.walked.leader_epoch {
                Some(epoch) => Some(epoch),
                None => log.leader_epoch()?,
            },
            noted_start: 0,
        };
        Ok(AppendOutcome::Appended(position, transactions))
    }

    fn append_runs(
        log: &LogWriter,
        append: &Append,
        records: &[u8],
        (start, end): (i64, i64),
    ) -> Result<()> {
        let inside = append
            .walked
            .first_offset
            .filter(|&first| first < end && start == end && end == append.position);
        if let Some(first) = inside {
            // The source's log start offset lies inside a batch; a follower begins with the batch, too.
            log.truncate_fully_and_start_at(first, None)?;
        }
        let leader_epoch = append.leader_epoch.unwrap_or(i32::MAX);
        let at_most = usize::try_from(log.config().segment_bytes()).unwrap_or(1);
        for run in runs(records, at_most) {
            match append_run(log, run, leader_epoch) {
                // Of several batches those before the one that is refused: the source may have it for ever.
                Err(error) if is_of_topic(error.kind()) => {
                    for batch in runs(run, 1) {
                        append_run(log, batch, leader_epoch)?;
                    }
                }
                appended => appended?,
            }
        }
        if inside.is_some() {
            log.delete_records_before(append.position)?;
        }
        Ok(())
    }
}

fn append_run(log: &LogWriter, run: &[u8], leader_epoch: i32) -> Result<()> {
    match log.append_as_follower(run, leader_epoch, false) {
        Err(error) => match error.kind() {
            ErrorKind::RecordBatchTooLarge { size, .. } => {
                append_wide(log, run, leader_epoch, *size)
            }
            _ => Err(error),
        },
        Ok(_) => Ok(()),
    }
}

/// Appends one batch that is larger than the topic's `segment.bytes`, which was lowered at the source since it was written.
fn append_wide(log: &LogWriter, run: &[u8], leader_epoch: i32, size: u64) -> Result<()> {
    let stored = log.stored_config()?.unwrap_or_default();
    log.set_config(&stored.with("segment.bytes", &size.to_string())?)?;
    let appended = log.append_as_follower(run, leader_epoch, false);
    let restored = log.set_config(&stored);
    appended.and(restored)
}
