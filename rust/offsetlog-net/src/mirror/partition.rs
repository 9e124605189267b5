//! What a mirror knows of one partition, and what it must ask next.

use super::store::Unended;

/// Empty answers after which the source counts as having nothing below its high watermark, and not before `NOTHING_MS`.
const NOTHING_TIMES: u32 = 10;
/// See `NOTHING_TIMES`.
const NOTHING_MS: i64 = 10_000;

/// What a partition waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Records.
    Fetch,
    /// Where the leader's epochs end: of brokers whose fetch does not say it.
    Epoch,
    /// The source's log start offset, after `OFFSET_OUT_OF_RANGE`.
    Earliest,
    /// The source's end, after that.
    Latest,
    /// A look at the metadata that was sent with this number or later: whether it is still the same topic and leader. Then it is cut.
    Confirm {
        /// The leader's answer: an epoch, and where it ends; without an epoch, the leader's end.
        leader: (Option<i32>, i64),
        /// The number of the request.
        look: u64,
    },
    /// The disk.
    Store,
}

/// Answers without records, though the high watermark is above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Nothing {
    /// When the first one came.
    pub(crate) since: i64,
    /// How many there were.
    pub(crate) count: u32,
    /// The lowest high watermark of them.
    pub(crate) below: i64,
}

/// A partition of a mirror.
#[derive(Debug)]
pub(crate) struct Partition {
    /// Node id of its leader.
    pub(crate) leader: Option<i32>,
    /// The leader's epoch, by the metadata.
    pub(crate) leader_epoch: Option<i32>,
    /// Counts what makes answers and work that are under way void.
    pub(crate) generation: u64,
    /// The copy's log start offset.
    pub(crate) start: i64,
    /// The copy's log end offset.
    pub(crate) end: i64,
    /// The copy's greatest leader epoch.
    pub(crate) epoch: Option<i32>,
    /// What is asked for next: `end`, or behind what is about to be appended.
    pub(crate) position: i64,
    /// Where the source's log begins, if the copy ends before: nothing is between, and the next batch is appended behind the gap.
    pub(crate) gap: Option<i64>,
    /// Where the copy ends once all appends of this generation are done: `position`, or before a gap.
    pub(crate) copy_end: i64,
    /// The leader epoch of what lies before `position`.
    pub(crate) position_epoch: Option<i32>,
    /// Up to where a look that was sent later has shown the topic's id. What is fetched by name is beyond it until the next look.
    pub(crate) proven: i64,
    /// What the look that is under way proves.
    pub(crate) proving: i64,
    /// Whether this run made it, and nothing was fetched yet.
    pub(crate) is_fresh: bool,
    /// What it waits for.
    pub(crate) need: Need,
    /// Whether a request for it is under way.
    pub(crate) is_asked: bool,
    /// Not before this time.
    pub(crate) retry_at: i64,
    /// Failures in a row.
    pub(crate) failures: u32,
    /// The source's high watermark, and when it was said.
    pub(crate) high_watermark: Option<(i64, i64)>,
    /// The source's log start offset.
    pub(crate) source_start: Option<i64>,
    /// Up to where deletes were begun here.
    pub(crate) deleted_to: i64,
    /// The log start offset of the source's at which the mirror began the copy, or to which it deleted; of a copy of an earlier version its own
    /// when this one found it.
    pub(crate) noted_start: i64,
    /// Whether an event reported that the copy begins behind the source's log, and not by the mirror.
    pub(crate) told_missing: bool,
    /// Whether an event reported that the source deletes.
    pub(crate) told_deletes: bool,
    /// Where it is to come with `once`.
    pub(crate) target: Option<i64>,
    /// With `once`: up to where the source answered a fetch without an error. Where its log is damaged behind its high watermark, only a
    /// fetch from there on shows it.
    pub(crate) answered_to: Option<i64>,
    /// Whether it came there, or was given up.
    pub(crate) is_done: bool,
    /// Bytes that its next batch needs, if that is more than the others may have.
    pub(crate) next_bytes: usize,
    /// The leader epoch with which the copy's epochs were compared, of brokers whose fetch does not do it.
    #[allow(clippy::option_option)]
    pub(crate) compared: Option<Option<i32>>,
    /// The end of the copy, and the epoch of the leader that agreed with all before it.
    pub(crate) agreed: Option<(i64, Option<i32>)>,
    /// Transactions without a marker at the end of the copy, as far as this run appended to it and did not report them.
    pub(crate) open: Vec<Unended>,
    /// Why it makes no progress.
    pub(crate) problem: Option<String>,
    /// With `once`: since when, and how often, it was asked alone and there was nothing.
    pub(crate) empties: Option<(i64, u32)>,
    /// Without `once`: since when, and how often, nothing came below this high watermark, behind the end of the copy.
    pub(crate) nothing: Option<Nothing>,
    /// Since when the source has no leader for it.
    pub(crate) leaderless_since: Option<i64>,
    /// Appends that are under way to the disk.
    pub(crate) pending: u32,
    /// Up to where an event reported that the source deleted what was not copied.
    pub(crate) told_lost: Option<i64>,
    /// How often the source called its position out of range without a reason.
    pub(crate) unexplained: u32,
    /// Bytes appended.
    pub(crate) bytes: u64,
    /// Batches appended.
    pub(crate) batches: u64,
    /// The end when the mirror began.
    pub(crate) first_end: i64,
}

/// Where a copy stands, as the disk says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Position {
    /// Log start offset.
    pub(crate) start: i64,
    /// Log end offset.
    pub(crate) end: i64,
    /// The greatest leader epoch.
    pub(crate) epoch: Option<i32>,
    /// Where the mirror itself began it; 0 where that is not known.
    pub(crate) noted_start: i64,
}

impl Partition {
    pub(crate) fn new(at: Position, now: i64) -> Self {
        Self {
            leader: None,
            leader_epoch: None,
            generation: 0,
            start: at.start,
            end: at.end,
            epoch: at.epoch,
            position: at.end,
            gap: None,
            copy_end: at.end,
            position_epoch: at.epoch,
            proven: at.end,
            proving: at.end,
            is_fresh: false,
            need: Need::Fetch,
            is_asked: false,
            retry_at: now,
            failures: 0,
            high_watermark: None,
            source_start: None,
            deleted_to: 0,
            noted_start: at.noted_start,
            told_missing: false,
            told_deletes: false,
            target: None,
            answered_to: None,
            is_done: false,
            next_bytes: 0,
            compared: None,
            agreed: None,
            open: Vec::new(),
            problem: None,
            empties: None,
            nothing: None,
            leaderless_since: None,
            pending: 0,
            told_lost: None,
            unexplained: 0,
            bytes: 0,
            batches: 0,
            first_end: at.end,
        }
    }

    /// Voids everything under way: the next request begins at the end of the copy.
    pub(crate) fn restart(&mut self, need: Need) {
        self.generation += 1;
        self.is_asked = false;
        self.position = self.end;
        self.copy_end = self.end;
        self.gap = None;
        self.answered_to = None;
        self.nothing = None;
        self.deleted_to = 0;
        self.position_epoch = self.epoch;
        self.need = need;
        self.proven = self.proven.min(self.end);
        self.proving = self.proving.min(self.end);
    }

    /// The disk was changed other than by an append.
    pub(crate) fn stands(&mut self, at: Position) {
        self.start = at.start;
        self.end = at.end;
        self.epoch = at.epoch;
        self.noted_start = self.noted_start.max(at.noted_start);
        // An append tells which are left.
        self.open.clear();
    }

    /// Up to where the copy has all that the source has: its end, or behind a gap.
    pub(crate) fn reached(&self) -> i64 {
        self.gap.map_or(self.end, |start| start.max(self.end))
    }

    /// Without `once`: whether nothing comes from the source below an offset for some time, because compaction removed the end of its log.
    /// Remote storage that is slow answers the same, for as long as it likes: for a topic that has it this says nothing.
    pub(crate) fn has_nothing_below(&self, offset: i64, now: i64) -> bool {
        self.nothing.is_some_and(|nothing| {
            nothing.count >= NOTHING_TIMES
                && now.saturating_sub(nothing.since) >= NOTHING_MS
                && offset <= nothing.below
        })
    }

    /// The source answered a fetch from this offset on without an error.
    pub(crate) fn answered(&mut self, position: i64, high_watermark: i64, once: bool, now: i64) {
        if high_watermark >= 0 {
            self.high_watermark = Some((high_watermark, now));
            if once && self.target.is_none() {
                self.target = Some(high_watermark);
            }
        }
        if once {
            self.answered_to = self.answered_to.max(Some(position));
        }
    }

    /// With `once`: whether the next fetch is from where it is to come, only to see that the source answers it.
    pub(crate) fn asks_at_its_end(&self) -> bool {
        self.target.is_some_and(|target| self.position >= target)
    }

    /// With `once`: whether appends that are under way reach where it is to come.
    pub(crate) fn has_its_end_pending(&self) -> bool {
        self.pending > 0 && self.asks_at_its_end()
    }

    /// With `once`: whether the copy came where it is to come, and the source answered a fetch from there on.
    pub(crate) fn is_at_its_end(&self) -> bool {
        self.target.is_some_and(|target| self.reached() >= target)
            && self.target <= self.answered_to
    }

    /// Whether the copy holds no record.
    pub(crate) const fn is_empty(&self) -> bool {
        self.start == self.end
    }

    pub(crate) fn lag(&self) -> i64 {
        let high_watermark = self.high_watermark.map_or(self.end, |(offset, _)| offset);
        high_watermark.saturating_sub(self.reached()).max(0)
    }

    /// Why it is given up with `once`.
    pub(crate) fn gives_up(&self) -> String {
        let target = self.target.unwrap_or(self.end);
        match (self.leader, self.high_watermark) {
            (None, _) => {
                "the source has no leader for it; the mirror waited and gave up".to_owned()
            }
            (_, Some((high_watermark, _))) if high_watermark < target => format!(
                "the source's high watermark was {target} when the mirror began, and is {high_watermark} now; the mirror waited and gave up"
            ),
            (_, Some(_)) if self.reached() >= target => format!(
                "all up to offset {target} is here, but the source did not answer a fetch from there on; the mirror waited and gave up"
            ),
            (_, Some(_)) => format!(
                "offsets {} to {target} did not come; the mirror waited and gave up",
                self.end
            ),
            (_, None) => "its leader did not answer; the mirror waited and gave up".to_owned(),
        }
    }

    /// Records a failure: no retry for this many milliseconds, and longer each time.
    pub(crate) fn fail(&mut self, now: i64, wait: impl FnOnce(u32) -> i64) {
        self.failures = self.failures.saturating_add(1);
        self.retry_at = now.saturating_add(wait(self.failures));
    }
}
