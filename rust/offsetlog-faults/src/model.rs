//! What may be found of a log after a crash: told what is handed in, acknowledged and flushed, it knows nothing of files.

use crate::batch::Batch;

/// How a log ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Its process died.
    Process,
    /// Power was lost.
    Power,
}

/// The legal histories at one moment.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// All batches, those of an append that has not returned at the end.
    pub current: Vec<Batch>,
    /// How many of them were acknowledged.
    pub acknowledged: usize,
    /// How many of them a flush covered.
    pub durable: usize,
    /// Histories that a truncation under way, or a call that failed, may have left.
    pub others: Vec<Vec<Batch>>,
    /// Histories before truncations that no flush covered.
    pub older: Vec<Vec<Batch>>,
    /// Log start offsets that may be found.
    pub log_starts: Vec<i64>,
    /// Offset that the next record gets.
    pub next: i64,
    /// Where truncations were asked for: inside a batch one leaves a gap behind the last, of which files need not tell.
    pub gaps: Vec<i64>,
}

impl Model {
    /// A log that is not there yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            log_starts: vec![0],
            ..Self::default()
        }
    }

    /// The log start offset, when no call is under way.
    #[must_use]
    pub fn log_start(&self) -> i64 {
        self.log_starts.last().copied().unwrap_or(0)
    }

    /// An append begins.
    pub fn appending(&mut self, batches: &[Batch]) {
        self.current.extend_from_slice(batches);
    }

    /// It returned.
    pub fn appended(&mut self) {
        self.acknowledged = self.current.len();
        self.entered();
    }

    /// It failed, and the log says that it has the records all the same: nothing is promised of them.
    pub fn entered(&mut self) {
        self.others.clear();
        if let Some(batch) = self.current.last() {
            self.next = batch.last + 1;
        }
    }

    /// It failed, and what it had is not to be found.
    pub fn refused(&mut self) {
        self.current.truncate(self.acknowledged);
    }

    /// It failed, and what it had may be found or not.
    pub fn unknown(&mut self) {
        self.others.push(self.current.clone());
        self.refused();
    }

    /// A flush returned, or a close.
    pub fn flushed(&mut self) {
        self.durable = self.acknowledged;
        self.older.clear();
        self.others.clear();
    }

    /// A truncation begins.
    pub fn truncating(&mut self, offset: i64) {
        let before = self.current.clone();
        self.gaps.push(offset);
        self.current.retain(|batch| batch.last < offset);
        self.acknowledged = self.acknowledged.min(self.current.len());
        self.durable = self.durable.min(self.current.len());
        if before.len() > self.current.len() {
            self.older.push(before.clone());
        }
        self.others.push(before);
        let log_start = self.log_start();
        self.log_starts = vec![log_start, log_start.min(offset)];
    }

    /// It returned.
    pub fn truncated(&mut self, offset: i64) {
        self.others.clear();
        self.next = self.next.min(offset);
        self.log_starts = vec![self.log_start()];
    }

    /// It failed, and the log says that it ends where it did before: what it should have taken away may be there or not.
    pub fn not_truncated(&mut self, before: Self) {
        let cut = std::mem::replace(&mut self.current, before.current);
        self.others = before.others;
        self.others.push(cut);
        self.log_starts.extend(before.log_starts);
    }

    /// A deletion of records begins.
    pub fn deleting(&mut self, offset: i64) {
        let log_start = self.log_start();
        self.log_starts = vec![log_start, log_start.max(offset)];
    }

    /// It returned.
    pub fn deleted(&mut self) {
        self.log_starts = vec![self.log_start()];
    }

    /// The log was opened again and holds this, which was checked.
    pub fn adopt(&mut self, found: Vec<Batch>, log_start: i64, log_end: i64) {
        self.acknowledged = found.len();
        self.durable = self.durable.min(found.len());
        self.current = found;
        self.others.clear();
        self.log_starts = vec![log_start];
        self.next = log_end;
    }

    /// Compares what was found: F1, F2, F3, F4 and F5.
    ///
    /// # Errors
    /// What does not hold, in words.
    pub fn check(
        &self,
        end: End,
        found: &[Batch],
        log_start: i64,
        log_end: i64,
    ) -> Result<(), String> {
        if !self.log_starts.contains(&log_start) {
            return Err(format!(
                "F1: log start {log_start} found, one of {:?} expected",
                self.log_starts
            ));
        }
        let older: &[Vec<Batch>] = if end == End::Power { &self.older } else { &[] };
        let mut legal = std::iter::once(&self.current)
            .chain(&self.others)
            .chain(older);
        if !legal.any(|legal| legal.starts_with(found)) {
            return Err(format!(
                "F2, F3, F4: no prefix of what was appended.\n  found {found:?}\n  legal {:?}\n  others {:?}\n  older {older:?}",
                self.current, self.others
            ));
        }
        let count = match end {
            End::Process => self.acknowledged,
            End::Power => self.durable,
        };
        let lost = self.current[..count]
            .iter()
            .filter(|batch| batch.last >= log_start)
            .find(|batch| !found.contains(batch));
        if let Some(lost) = lost {
            return Err(format!(
                "F1: {lost:?} is lost ({end:?}); found {found:?}, log start {log_start}"
            ));
        }
        let after = found.last().map_or(0, |batch| batch.last + 1);
        let gap = (log_end == self.next || self.gaps.contains(&log_end)) && log_end > after;
        if log_end != after.max(log_start) && !gap {
            return Err(format!(
                "F5: log end {log_end} found behind {after}, log start {log_start}, next {}",
                self.next
            ));
        }
        Ok(())
    }
}
