//! What the scan of the live log could not read, and what comes back of it.

use super::gaps::{GAP, Gaps};
use super::replicas::Around;
use super::{Loss, Salvage};
use offsetlog::format::BatchHeader;
use offsetlog::{Hole, Result, ScanReport};

/// Number of holes that a scan's report keeps; further ones are only counted.
const HOLES_MAX: usize = 10_000;

/// What the scan of the live log could not read.
#[derive(Default)]
pub(super) struct Holes {
    pub(super) report: ScanReport,
    /// Number of them at the last look.
    seen: u64,
    pub(super) losses: Vec<Loss>,
    /// So many have been filled from what was set aside.
    filled: usize,
    /// Those that no scan could meet: gaps between segments, and the start and end of the log.
    others: u64,
    /// Those that lie behind the cut.
    behind_the_cut: u64,
    time_before: Option<i64>,
}

impl Holes {
    /// Records the holes that the scan has found since the last look, and the time of the batch behind it.
    pub(super) fn look(&mut self, time_after: Option<i64>) {
        let count = self.report.hole_count();
        // The report keeps only this many.
        if count == self.seen || self.losses.len() >= HOLES_MAX {
            return;
        }
        let known = usize::try_from(self.seen).unwrap_or(usize::MAX);
        self.seen = count;
        let timed = |time: i64| Some(time).filter(|&time| time >= 0);
        for hole in self.report.holes().into_iter().skip(known) {
            self.losses.push(Loss {
                hole,
                taken_back: 0,
                time_before: self.time_before.and_then(timed),
                time_after: time_after.and_then(timed),
            });
        }
    }

    /// The number of all.
    pub(super) fn count(&self) -> u64 {
        (self.report.hole_count() + self.others).saturating_sub(self.behind_the_cut)
    }

    /// Forgets what lies behind the cut: nothing was to be restored there.
    pub(super) fn stop_at(&mut self, stop: i64) {
        let before = self.losses.len();
        self.losses.retain(|loss| loss.hole.start < stop);
        self.behind_the_cut += (before - self.losses.len()) as u64;
        self.filled = self.filled.min(self.losses.len());
        let new = self.losses.get_mut(self.filled..).unwrap_or_default();
        for hole in new.iter_mut().map(|loss| &mut loss.hole) {
            hole.stop = Some(hole.stop.unwrap_or(stop).min(stop));
        }
    }

    /// Whether one was not looked at yet by [`Salvage::fill_holes`].
    pub(super) const fn are_new(&self) -> bool {
        self.filled < self.losses.len()
    }

    /// Behind a log that ends at `end` and its holes; `None` where nobody knows where the last one ends.
    pub(super) fn told_up_to(&self, end: i64) -> Option<i64> {
        self.losses
            .last()
            .map_or(Some(end), |last| Some(last.hole.stop?.max(end)))
    }

    /// Adds one that no scan could meet, behind those so far.
    pub(super) fn add(&mut self, hole: Hole) {
        self.others += 1;
        if self.losses.len() < HOLES_MAX {
            self.losses.push(Loss {
                hole,
                taken_back: 0,
                time_before: self.time_before.filter(|&time| time >= 0),
                time_after: None,
            });
        }
    }

    /// Adds one before all others.
    pub(super) fn add_first(&mut self, hole: Hole) {
        self.others += 1;
        self.losses.truncate(HOLES_MAX - 1);
        let loss = Loss {
            hole,
            taken_back: 0,
            time_before: None,
            time_after: None,
        };
        self.losses.insert(0, loss);
    }

    /// The first one that was not looked at yet by [`Salvage::fill_holes`].
    pub(super) fn first_new(&self) -> Option<&Hole> {
        self.losses.get(self.filled).map(|loss| &loss.hole)
    }

    /// Where the last one ends that was not looked at yet, if that is known.
    pub(super) fn end_of_new(&self) -> Option<i64> {
        let new = self.losses.get(self.filled..)?;
        new.last()?.hole.stop
    }

    /// Adds a gap behind the last batch, before those that were not looked at yet.
    pub(super) fn add_gap(&mut self, hole: Hole, time_after: Option<i64>) {
        self.others += 1;
        let timed = |time: i64| Some(time).filter(|&time| time >= 0);
        if self.losses.len() < HOLES_MAX {
            let loss = Loss {
                hole,
                taken_back: 0,
                time_before: self.time_before.and_then(timed),
                time_after: time_after.and_then(timed),
            };
            self.losses.insert(self.filled, loss);
        }
    }

    pub(super) const fn passed(&mut self, max_timestamp: i64) {
        self.time_before = Some(max_timestamp);
    }
}

impl Salvage<'_> {
    /// Takes back batches for the holes found so far, below `end`, where the batch `after` begins.
    pub(super) fn fill_holes(&mut self, end: i64, after: Option<BatchHeader>) -> Result<()> {
        let epoch = after.map_or(i32::MAX, |after| after.leader_epoch);
        let planned = self.stop;
        // A hole that the cut ends may go on behind it, and so may a batch that comes back.
        let room_of = |hole: &Hole| {
            let stop = hole.stop.filter(|stop| *stop < planned);
            stop.unwrap_or(end).min(end)
        };
        let stop_of = |hole: &Hole, cut: i64| room_of(hole).min(cut);
        let live_end = self.live_end;
        // A hole that begins before is of the last batch itself, which cannot be decoded: nothing is taken in its place.
        let is_open = |loss: &Loss| loss.hole.start >= live_end;
        // All of them lie between the same two batches: what replicas have there is looked at together.
        let new = self.holes.losses.get(self.holes.filled..);
        let new = new.unwrap_or_default();
        // Where the log continues behind the cut, they are judged up to there.
        let looked_at = if after.is_some() { end } else { planned };
        let whole = range(
            new.iter()
                .map(|loss| (loss.hole.start, stop_of(&loss.hole, looked_at))),
        );
        let open = new.iter().filter(|loss| is_open(loss));
        let around = Around {
            before: self.before,
            after,
            bytes: open.map(|loss| loss.hole.bytes).sum(),
            has_gaps: self.has_gaps || after.is_some_and(|after| after.is_sparse()),
            is_unknown: self.gaps == Some(Gaps::Unknown)
                && new.iter().any(|loss| loss.hole.kind == GAP),
        };
        let asked = (whole.0.max(live_end).max(self.log_start), whole.1);
        if asked.0 < asked.1 {
            self.aside.add_replicas(&self.replicas, asked, around)?;
        }
        let mut taken_of_open = 0;
        for number in self.holes.filled..self.holes.losses.len() {
            let Some(loss) = self.holes.losses.get(number) else {
                break;
            };
            let (start, stop) = (loss.hole.start.max(live_end), room_of(&loss.hole));
            let before = self.aside.offsets_taken();
            self.take_back((start, stop), epoch)?;
            if let Some(loss) = self.holes.losses.get_mut(number) {
                loss.taken_back = self.aside.offsets_taken() - before;
                if is_open(loss) {
                    taken_of_open += loss.taken_back;
                }
            }
        }
        let cut = self.stop;
        let new = self.holes.losses.get(self.holes.filled..);
        let open = new.unwrap_or_default().iter().filter(|loss| is_open(loss));
        let open = range(open.map(|loss| (loss.hole.start, stop_of(&loss.hole, cut))));
        let offsets = open.1.saturating_sub(open.0);
        if taken_of_open > 0 && u64::try_from(offsets) == Ok(taken_of_open) {
            // Each offset came back, of whatever hole: nobody knows of the first of several where it ends.
            let new = self.holes.losses.get_mut(self.holes.filled..);
            for loss in new
                .unwrap_or_default()
                .iter_mut()
                .filter(|loss| is_open(loss))
            {
                let stop = stop_of(&loss.hole, cut);
                loss.hole.stop = Some(stop);
                loss.taken_back = u64::try_from(stop - loss.hole.start).unwrap_or(0);
            }
        }
        self.holes.filled = self.holes.losses.len();
        Ok(())
    }
}

/// From the first offset of these ranges to the end of all.
fn range(all: impl Iterator<Item = (i64, i64)>) -> (i64, i64) {
    all.fold((i64::MAX, i64::MIN), |whole, each| {
        (whole.0.min(each.0), whole.1.max(each.1))
    })
}
