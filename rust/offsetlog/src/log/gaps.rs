//! Where a log may have lost segments: before the first one, and between two of them.

use super::Log;
use crate::error::Result;

impl Log {
    /// Up to where, exclusive, records may be missing at the beginning: the base offset of the first segment, as retention may have removed
    /// those before, or a file is lost. 0 if the log begins inside of that segment: records before were deleted on purpose then. Without a
    /// segment the log start offset; the greatest offset if damage hides that too.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), offsetlog::Error> {
    /// let log = offsetlog::Log::open("/var/lib/kafka/orders-0", &offsetlog::OpenOptions::default())?;
    /// println!("records before offset {} may be missing", log.lacks_before()?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Io`; `Interrupted`.
    pub fn lacks_before(&self) -> Result<i64> {
        let known = self.look(|view| {
            let first = view.segments.first().map(|first| first.base_offset);
            Ok((view.log_start_offset, first))
        });
        Ok(match unless_hidden(known)? {
            Some((begin, Some(first))) if begin > first => 0,
            Some((begin, first)) => first.unwrap_or(begin),
            None => i64::MAX,
        })
    }

    /// Of several logs of one partition, best first, takes those that rank as the first one does, and puts that one first which lacks the
    /// fewest offsets between its segments, and of those the one that [lacks](Self::lacks_before) the fewest at its beginning; of equals the
    /// first. A segment that is lost leaves such a gap, and so does compaction: a segment lost between two gaps makes one of them, which
    /// is longer. A log that cannot be read is the last one, unless [the process](crate::Error::is_of_process) cannot read any.
    ///
    /// Cost: none where one ranks alone; otherwise a look-up for each segment of each log, and a walk over the batch headers of a segment
    /// for each gap.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), offsetlog::Error> {
    /// use offsetlog::{Log, OpenOptions};
    /// let options = OpenOptions::default();
    /// let mut replicas = [Log::open("/mnt/one/orders-0", &options)?, Log::open("/mnt/two/orders-0", &options)?];
    /// Log::put_most_whole_first(&mut replicas, |_| 0, |log| log)?;
    /// println!("{}", replicas[0].path().display());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Interrupted`; `Io` where the process has as many open files as it may.
    pub fn put_most_whole_first<T, K: PartialEq>(
        all: &mut [T],
        rank: impl Fn(&T) -> K,
        log: impl Fn(&T) -> &Self,
    ) -> Result<()> {
        let first = all.first().map(&rank);
        let equal = all.iter().take_while(|each| Some(rank(each)) == first);
        let equal = equal.count();
        if equal < 2 {
            return Ok(());
        }
        let mut best = (0, (i64::MAX, i64::MAX));
        for (number, each) in all.iter().take(equal).enumerate() {
            let log = log(each);
            let lacks = log
                .gaps_before_segments()
                .and_then(|gaps| Ok((log.offsets_in(&gaps)?, log.lacks_before()?)));
            match lacks {
                Err(error) if error.is_of_process() => return Err(error),
                Ok(lacks) if lacks < best.1 => best = (number, lacks),
                _ => {}
            }
        }
        if let Some(front) = all.get_mut(..=best.0) {
            front.rotate_right(1);
        }
        Ok(())
    }

    /// The base offsets of the segments whose preceding offset is in no batch, ascending. What damage hides does not count.
    ///
    /// # Errors
    /// `Io` of listing the segments; `Interrupted`.
    pub(crate) fn gaps_before_segments(&self) -> Result<Vec<i64>> {
        let mut gaps = Vec::new();
        let Some(begin) = unless_hidden(self.log_start_offset())? else {
            return Ok(gaps);
        };
        for segment in self.segments()?.iter().skip(1) {
            let before = segment.base_offset - 1;
            if before >= begin && self.has_batch_at(before)? == Some(false) {
                gaps.push(segment.base_offset);
            }
        }
        Ok(gaps)
    }

    /// How many offsets are in no batch before these segments, up to the batch before. What damage hides does not count.
    fn offsets_in(&self, gaps: &[i64]) -> Result<i64> {
        let Some(begin) = unless_hidden(self.log_start_offset())? else {
            return Ok(0);
        };
        let segments = self.segments()?;
        let mut offsets = 0_i64;
        for &gap in gaps {
            let before = segments.iter().rev();
            let mut end = begin;
            for segment in before.filter(|segment| segment.base_offset < gap) {
                let start = segment.base_offset.max(begin);
                let last = self
                    .batches(Some(start), Some(gap))
                    .and_then(|mut found| found.try_fold(None, |_, batch| batch.map(Some)));
                match last {
                    // An empty one.
                    Ok(None) => continue,
                    Ok(Some(batch)) => end = batch.last_offset.saturating_add(1),
                    Err(error) if error.is_of_process() => {
                        return Err(error);
                    }
                    Err(_) => end = gap,
                }
                break;
            }
            offsets = offsets.saturating_add((gap - end).max(0));
        }
        Ok(offsets)
    }

    /// Whether a batch has this offset; `None` if that cannot be read, or the offset is outside the log.
    pub(crate) fn has_batch_at(&self, offset: i64) -> Result<Option<bool>> {
        let found = self
            .batches(Some(offset), None)
            .and_then(|mut found| found.next().transpose());
        match found {
            Err(error) if error.is_of_process() => Err(error),
            Err(_) => Ok(None),
            // Behind the last batch an empty segment begins.
            Ok(found) => Ok(Some(found.is_some_and(|batch| batch.base_offset <= offset))),
        }
    }
}

/// `None` if damage hides the value.
fn unless_hidden<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Err(error) if error.is_corruption() => Ok(None),
        read => read.map(Some),
    }
}
