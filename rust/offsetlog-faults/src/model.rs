//! What may be found of a log after a crash: told what is handed in, acknowledged and flushed, it knows nothing of files.

use crate::batch::Batch;
use crate::cleaned;

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
    /// Log start offsets that may be found, the one that the log says last.
    pub log_starts: Vec<i64>,
    /// Offset that the next record gets.
    pub next: i64,
    /// Where truncations were asked for: inside a batch one leaves a gap behind the last, of which files need not tell. And where
    /// segments began that were cleaned: the last batches before may be gone.
    pub gaps: Vec<i64>,
    /// While a cleaning is under way, or after one that failed: where the records begin that it leaves as they are.
    pub cleaning: Option<i64>,
    /// Whether retention may have removed batches below the log start offset.
    pub retained: bool,
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
        self.log_starts.push(self.log_start().min(offset));
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
        self.log_starts.push(self.log_start().max(offset));
    }

    /// It returned. One that had nothing to do leaves what earlier ones that failed may have left.
    pub fn deleted(&mut self) {
        let after = self.log_start();
        self.log_starts.pop();
        if after != self.log_start() {
            self.log_starts = vec![after];
        }
    }

    /// It failed, and the log says that it still starts here.
    pub fn not_deleted(&mut self, log_start: i64) {
        self.log_starts.push(log_start);
    }

    /// Retention begins that is to end with this log start offset.
    pub fn retaining(&mut self, log_start: i64) {
        self.deleting(log_start);
        self.retained = true;
    }

    /// A cleaning begins of a log whose segments begin at `bases`; the last of them it leaves as it is.
    pub fn compacting(&mut self, bases: &[i64]) {
        self.cleaning = bases.last().copied().max(self.cleaning);
        self.gaps.extend(bases);
    }

    /// It returned, and left this.
    ///
    /// # Errors
    /// What it should not have done, in words.
    pub fn compacted(&mut self, found: Vec<Batch>) -> Result<(), String> {
        let uncleaned = self.cleaning.unwrap_or(0);
        let log_start = self.log_start();
        cleaned::check(&found, &self.current, uncleaned, log_start, i64::MAX)?;
        if found != self.current {
            // What took the place of segments is on the disk, and so is what it was made from.
            let settled = self.current.iter().filter(|batch| batch.last < uncleaned);
            self.durable = self.durable.max(settled.count());
        }
        let durable_end = self.current[..self.durable].last().map(|batch| batch.last);
        let durable = found.iter().filter(|batch| Some(batch.last) <= durable_end);
        self.durable = durable.count();
        self.acknowledged = found.len();
        self.current = found;
        self.others.clear();
        self.cleaning = None;
        Ok(())
    }

    /// The log was opened again and holds this, which was checked.
    pub fn adopt(&mut self, found: Vec<Batch>, log_start: i64, log_end: i64) {
        let durable_end = self.current[..self.durable].last().map(|batch| batch.last);
        let durable = found.iter().filter(|batch| Some(batch.last) <= durable_end);
        self.durable = durable.count();
        self.acknowledged = found.len();
        self.cleaning = None;
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
        if !legal.any(|legal| self.is_legal(legal, found, log_start, log_end)) {
            return Err(format!(
                "F2, F3, F4: no prefix of what was appended.\n  found {found:?}, log start {log_start}, log end {log_end}\n  legal {:?}\n  others {:?}\n  older {older:?}\n  cleaning {:?}",
                self.current, self.others, self.cleaning
            ));
        }
        let count = match end {
            End::Process => self.acknowledged,
            End::Power => self.durable,
        };
        // Of what is being cleaned it was checked that the last record of each key is there, up to the log end.
        let is_there = |batch: &Batch| {
            found.contains(batch) || self.cleaning.is_some() && batch.last < log_end
        };
        let lost = self.current[..count]
            .iter()
            .filter(|batch| batch.last >= log_start)
            .find(|batch| !is_there(batch));
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

    /// Whether files may hold this of a history.
    fn is_legal(&self, legal: &[Batch], found: &[Batch], log_start: i64, log_end: i64) -> bool {
        if let Some(uncleaned) = self.cleaning {
            return cleaned::check(found, legal, uncleaned, log_start, log_end).is_ok();
        }
        if !self.retained {
            return legal.starts_with(found);
        }
        // Below the log start whole segments are gone, or not yet.
        let is_below = |batch: &&Batch| batch.last < log_start;
        let (below, there): (Vec<&Batch>, Vec<&Batch>) = found.iter().partition(is_below);
        let (gone, wanted): (Vec<&Batch>, Vec<&Batch>) = legal.iter().partition(is_below);
        let mut gone = gone.into_iter();
        below
            .into_iter()
            .all(|batch| gone.any(|legal| legal == batch))
            && wanted.starts_with(&there)
    }
}
