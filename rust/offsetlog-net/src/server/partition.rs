//! One partition that is served: its log, and its bounds and leader epoch as clients see them.

use crate::error_code::ErrorCode;
use offsetlog::format::Uuid;
use offsetlog::format::leader_epoch::{EpochEntry, LeaderEpochs};
use offsetlog::{Error, ErrorKind, Isolation, Log, RangeOptions, Result};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// For this long a fetch at damage is answered without another look at it.
const DAMAGE_KNOWN_MS: i64 = 1000;
/// This many places of damage are remembered for a partition.
const DAMAGE_MAX: usize = 256;

/// A partition of which a replica is here.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) topic: String,
    pub(crate) number: i32,
    pub(crate) log: Log,
    /// As in its `partition.metadata`.
    pub(crate) topic_id: Option<Uuid>,
    /// The log ends at the checkpointed high watermark.
    until_high_watermark: bool,
    /// Whether what the checkpoint has below the first segment is a part of the log that is not here, and not what a broker had just
    /// deleted.
    begins_elsewhere: bool,
    /// The leader epoch is at least this: of the cluster's state and of committed offsets.
    epoch_floor: AtomicI32,
    seen: Mutex<Seen>,
}

/// What clients have seen.
#[derive(Debug, Default)]
struct Seen {
    /// The greatest checkpointed high watermark.
    high_watermark: Option<i64>,
    leader_epoch: i32,
    /// Where the log begins, by the first offset that is here.
    start: Option<(i64, i64)>,
    /// Damage that fetches have found, by the offset that was asked for.
    damage: BTreeMap<i64, Damage>,
}

/// Damage that a fetch has found.
#[derive(Debug, Clone, Copy)]
struct Damage {
    /// Until then it is believed without another look.
    until_ms: i64,
    /// Whether it hides everything behind it.
    hides_the_end: bool,
}

/// The bounds of a partition for clients, of one moment.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    pub(crate) start: i64,
    /// The first offset that is here: above the start if what is between is in remote storage, or a segment is missing.
    pub(crate) first_here: i64,
    /// Exclusive: the high watermark that clients see.
    pub(crate) end: i64,
    /// The log end offset, even if the log is not served up to it; the greatest number if damage hides it: no client may conclude that its
    /// records were truncated.
    pub(crate) log_end: i64,
    /// What is at or after this offset is not served; `None` without such a bound.
    pub(crate) stop: Option<i64>,
    pub(crate) is_damaged: bool,
    /// -1 if the log has no known epoch.
    pub(crate) leader_epoch: i32,
    /// Those of the log.
    epochs: Arc<LeaderEpochs>,
}

impl Partition {
    pub(crate) fn new(
        log: Log,
        until_high_watermark: bool,
        begins_elsewhere: bool,
        epoch_floor: i32,
    ) -> Self {
        Self {
            topic: log.topic().to_owned(),
            number: log.partition(),
            // A file that cannot be read counts as no id: clients then fetch by name.
            topic_id: log.topic_id().ok().flatten(),
            log,
            until_high_watermark,
            begins_elsewhere,
            epoch_floor: AtomicI32::new(epoch_floor),
            seen: Mutex::new(Seen {
                leader_epoch: -1,
                ..Seen::default()
            }),
        }
    }

    /// The leader epoch is at least this from now on.
    pub(crate) fn raise_epoch(&self, floor: i32) {
        self.epoch_floor.fetch_max(floor, Ordering::Relaxed);
    }

    /// The leader epoch that clients have seen; -1 for none.
    pub(crate) fn told_epoch(&self) -> i32 {
        let floor = self.epoch_floor.load(Ordering::Relaxed);
        self.lock().leader_epoch.max(floor)
    }

    /// Whether clients see at least this leader epoch, if they ask now.
    pub(crate) fn tells(&self, epoch: i32) -> bool {
        epoch <= self.told_epoch()
            || self
                .bounds()
                .is_ok_and(|bounds| epoch <= bounds.leader_epoch)
    }

    pub(crate) fn bounds(&self) -> Result<Bounds> {
        let (extent, epochs) = self.log.extent_and_epochs()?;
        // A broker rebuilds them from the batches. Without them a leader epoch of -1 keeps clients from asking.
        let epochs = epochs.unwrap_or_default();
        let mut seen = self.lock();
        // A checkpoint that moves back must not hide what clients have read, and a deleted one must not expose what is above it. If the log
        // was truncated, what was shown above its end is gone.
        let shown = seen
            .high_watermark
            .map(|shown| shown.min(extent.log_end_offset));
        let stop = extent.high_watermark.max(shown);
        let stop = stop.filter(|_| self.until_high_watermark);
        seen.high_watermark = stop;
        let latest = epochs.latest().map_or(-1, |entry| entry.epoch);
        seen.leader_epoch = latest
            .max(extent.leader_epoch)
            .max(self.epoch_floor.load(Ordering::Relaxed))
            .max(seen.leader_epoch);
        let first_here = extent.log_start_offset;
        let start = match seen.start {
            _ if !self.begins_elsewhere => first_here,
            Some((first, start)) if first == first_here => start,
            _ => {
                let missing = self.log.missing_start()?;
                let missing = missing.filter(|(_, first)| *first == first_here);
                let start = missing.map_or(first_here, |(start, _)| start);
                seen.start = Some((first_here, start));
                start
            }
        };
        // A broker cuts them at the log start, and writes the file later.
        let is_below = |first: &EpochEntry| first.start_offset < start;
        let epochs = if epochs.entries().first().is_some_and(is_below) {
            let mut cut = (*epochs).clone();
            cut.truncate_from_start(start);
            Arc::new(cut)
        } else {
            epochs
        };
        Ok(Bounds {
            start,
            first_here,
            end: stop
                .map_or(extent.log_end_offset, |stop| {
                    stop.min(extent.log_end_offset)
                })
                .max(extent.log_start_offset),
            log_end: if extent.is_damaged {
                i64::MAX
            } else {
                extent.log_end_offset
            },
            stop,
            is_damaged: extent.is_damaged,
            leader_epoch: seen.leader_epoch,
            epochs,
        })
    }

    /// Whether a fetch at this offset found damage a moment ago.
    pub(crate) fn is_damaged_at(&self, offset: i64, now_ms: i64) -> bool {
        let seen = self.lock();
        let mut before = seen.damage.range(..=offset).rev();
        before
            .any(|(&at, damage)| now_ms < damage.until_ms && (at == offset || damage.hides_the_end))
    }

    /// Remembers damage that a fetch has found. Returns whether it was not known.
    pub(crate) fn found_damage(&self, offset: i64, now_ms: i64) -> bool {
        // Damage that hides the end is one place, for every fetch at or behind it.
        let hidden_from = self.log.extent().ok().filter(|extent| extent.is_damaged);
        let hidden_from = hidden_from.map(|extent| extent.log_end_offset);
        let hides_the_end = hidden_from.is_some_and(|from| offset >= from);
        let place = hidden_from.filter(|_| hides_the_end).unwrap_or(offset);
        let damage = Damage {
            until_ms: now_ms.saturating_add(DAMAGE_KNOWN_MS),
            hides_the_end,
        };
        let mut seen = self.lock();
        if seen.damage.len() >= DAMAGE_MAX && !seen.damage.contains_key(&place) {
            seen.damage.pop_last();
        }
        seen.damage.insert(place, damage).is_none()
    }

    /// Where the first damage is that fetches have found and that is there still. Costs a fetch of one batch, and one for each place
    /// that was repaired or truncated.
    pub(crate) fn first_damage(&self) -> Option<i64> {
        loop {
            let first = *self.lock().damage.first_key_value()?.0;
            if self.is_still_damaged(first) {
                return Some(first);
            }
            self.lock().damage.remove(&first);
        }
    }

    fn is_still_damaged(&self, offset: i64) -> bool {
        let is_missing = |bounds: Bounds| (bounds.start..bounds.first_here).contains(&offset);
        let is_corrupt = |isolation| {
            let options = RangeOptions {
                max_bytes: 1,
                isolation,
                ..RangeOptions::default()
            };
            let found = self.log.fetch_range(offset, &options);
            found.is_err_and(|error| code_of(&error) == ErrorCode::CorruptMessage)
        };
        self.bounds().is_ok_and(is_missing)
            || is_corrupt(Isolation::ReadUncommitted)
            || is_corrupt(Isolation::ReadCommitted)
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bounds {
    /// Whether the log has the leader epochs that it had then.
    pub(crate) fn has_epochs_of(&self, earlier: &Self) -> bool {
        self.epochs == earlier.epochs && self.leader_epoch == earlier.leader_epoch
    }

    /// The leader epochs with their first offsets. The one that clients are told is among them.
    pub(crate) fn leader_epochs(&self) -> Cow<'_, LeaderEpochs> {
        let latest = self.epochs.latest();
        if latest.is_some_and(|latest| latest.epoch >= self.leader_epoch) {
            return Cow::Borrowed(&self.epochs);
        }
        let mut epochs = (*self.epochs).clone();
        epochs.assign(EpochEntry {
            epoch: self.leader_epoch,
            start_offset: self.log_end,
        });
        Cow::Owned(epochs)
    }

    /// Whether damage hides records that would be served.
    pub(crate) fn is_end_hidden(&self) -> bool {
        self.is_damaged && self.stop.is_none_or(|stop| stop > self.end)
    }

    /// Which offsets of the log are not here.
    pub(crate) fn missing_start(&self) -> Option<String> {
        (self.start < self.first_here).then(|| {
            format!(
                "offsets {} to {} are not here, in remote storage or missing: fetches there fail",
                self.start,
                self.first_here - 1
            )
        })
    }

    /// Where a leader epoch ends, by [`end_of_epoch`]. Damage may hide the records of an epoch above all known ones.
    pub(crate) fn end_of_epoch(&self, asked: i32) -> std::result::Result<(i32, i64), ErrorCode> {
        let found = end_of_epoch(&self.leader_epochs(), asked, self.log_end);
        if found.1 < 0 && asked >= 0 && self.is_damaged {
            return Err(ErrorCode::CorruptMessage);
        }
        Ok(found)
    }

    /// Whether a caller that takes `current` for the leader epoch is mistaken; a negative one says nothing.
    pub(crate) const fn fence(&self, current: i32) -> std::result::Result<(), ErrorCode> {
        if current < 0 || self.leader_epoch < 0 || current == self.leader_epoch {
            Ok(())
        } else if current < self.leader_epoch {
            Err(ErrorCode::FencedLeaderEpoch)
        } else {
            Err(ErrorCode::UnknownLeaderEpoch)
        }
    }
}

/// Where a leader epoch ends, as the leader answers: the epoch, the largest at or below the one asked for, and the offset after its last
/// record; -1 and -1 for what is not known.
///
/// Source: Kafka's `LeaderEpochFileCache.endOffsetFor`.
fn end_of_epoch(epochs: &LeaderEpochs, asked: i32, end: i64) -> (i32, i64) {
    if asked < 0 {
        return (-1, -1);
    }
    if epochs.latest().is_some_and(|latest| latest.epoch == asked) {
        return (asked, end);
    }
    let entries = epochs.entries();
    let higher = entries.partition_point(|entry| entry.epoch <= asked);
    let Some(next) = entries.get(higher) else {
        return (-1, -1);
    };
    let floor = higher.checked_sub(1).and_then(|slot| entries.get(slot));
    (floor.map_or(asked, |floor| floor.epoch), next.start_offset)
}

/// The error code that reports an error to a client.
pub(crate) fn code_of(error: &Error) -> ErrorCode {
    match error.kind() {
        ErrorKind::OffsetOutOfRange { .. } => ErrorCode::OffsetOutOfRange,
        _ if error.is_corruption() => ErrorCode::CorruptMessage,
        // Its directory was removed; the next listing of the log dir removes the partition.
        ErrorKind::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            ErrorCode::UnknownTopicOrPartition
        }
        ErrorKind::Io { .. } => ErrorCode::KafkaStorageError,
        _ => ErrorCode::UnknownServerError,
    }
}
