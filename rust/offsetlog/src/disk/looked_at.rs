//! When something on the disk was looked at. Each look-up asks how long ago that was, so the clock must be cheap: the coarse one of
//! Linux, which is some milliseconds late.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// From which moments are counted where there is no coarse clock.
static START: OnceLock<Instant> = OnceLock::new();

/// What [`late_ns`] found; no lock, because a fork could keep one for ever.
#[cfg(target_os = "linux")]
static LATE: AtomicU64 = AtomicU64::new(u64::MAX);

/// A moment, shared by those who look and those who ask.
#[derive(Debug, Default)]
pub(crate) struct LookedAt(AtomicU64);

/// When a look began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment(u64);

impl Moment {
    /// Now, or up to [`late_ns`] before.
    pub(crate) fn now() -> Self {
        #[cfg(target_os = "linux")]
        if late_ns() > 0 {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
            let seconds = Duration::from_secs(time.tv_sec.unsigned_abs());
            return Self(nanoseconds(seconds) + time.tv_nsec.unsigned_abs());
        }
        Self(nanoseconds(START.get_or_init(Instant::now).elapsed()))
    }
}

impl LookedAt {
    pub(crate) const fn at(moment: Moment) -> Self {
        Self(AtomicU64::new(moment.0))
    }

    pub(crate) fn set(&self, moment: Moment) {
        self.0.store(moment.0, Ordering::Relaxed);
    }

    /// Whether less than `limit` has passed since.
    pub(crate) fn is_within(&self, limit: Duration) -> bool {
        let passed = Moment::now()
            .0
            .saturating_sub(self.0.load(Ordering::Relaxed));
        passed + late_ns() < nanoseconds(limit)
    }
}

/// How late the clock is between two of its ticks; a machine that pauses for a moment may miss some. 0 if the system has no coarse clock,
/// or one whose ticks are more than four milliseconds apart.
fn late_ns() -> u64 {
    #[cfg(target_os = "linux")]
    {
        let known = LATE.load(Ordering::Relaxed);
        if known < u64::MAX {
            return known;
        }
        let step = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
        let late = if step.tv_sec == 0 { step.tv_nsec } else { 0 };
        let late = u64::try_from(late)
            .ok()
            .filter(|&late| late <= 4_000_000)
            .unwrap_or(0);
        LATE.store(late, Ordering::Relaxed);
        late
    }
    #[cfg(not(target_os = "linux"))]
    0
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_looked_at_long_ago_is_not_within_the_limit() {
        let limit = Duration::from_millis(10);
        let before = Instant::now();
        let looked = LookedAt::at(Moment::now());
        // As late as it may be, it never says "within" when more has passed.
        while looked.is_within(limit) {
            assert!(before.elapsed() < limit * 100);
        }
        let asked = Instant::now();
        looked.set(Moment::now());
        let is_within = looked.is_within(limit);
        assert!(is_within || asked.elapsed() >= limit / 4);
        std::thread::sleep(limit);
        assert!(!looked.is_within(limit));
    }
}
