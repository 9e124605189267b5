//! Why a compacted partition is not compacted further.
//!
//! Source: Kafka's `LogCleanerManager.cleanableOffsets` and `LogToClean`: only whole closed segments below the last stable offset that
//! are old enough are cleaned, and only if their share of the log is above `min.cleanable.dirty.ratio`.

use super::reading::{holder, remedy_of};
use super::{Answer, Case, Question, Reason};
use crate::When;
use crate::producers::{Coordinators, describe, lost_end};
use crate::words::{moment, segments, span};
use offsetlog::{Result, SegmentInfo};
use std::fmt::Write as _;

const POLICY: &str = "cleanup.policy";
const RATIO: &str = "min.cleanable.dirty.ratio";
const MIN_LAG: &str = "min.compaction.lag.ms";
const MAX_LAG: &str = "max.compaction.lag.ms";
const SEGMENT_MS: &str = "segment.ms";
const SEGMENT_BYTES: &str = "segment.bytes";

/// What a cleaner would find.
struct Cleaning {
    segments: Vec<SegmentInfo>,
    /// First offset that was not compacted yet.
    first_dirty: i64,
    /// Base offset of the active segment.
    active: i64,
    /// First offset that no transaction and no missing replica holds back.
    stable: i64,
    log_end: i64,
}

/// The answer for a compacted partition; `None` for others.
pub(super) fn answer(
    case: &Case<'_>,
    coordinators: &mut Coordinators<'_>,
) -> Result<Option<Answer>> {
    let config = case.settings.config();
    if case.settings.text(POLICY).is_none() || !config.is_compacted() {
        return Ok(None);
    }
    if case.cleaner_is_off {
        let bytes = case
            .log
            .segments()?
            .iter()
            .map(|segment| segment.size_bytes)
            .sum();
        return Ok(Some(case.cleaner_off(Question::Compaction, bytes)));
    }
    let decisive = [RATIO, MIN_LAG, MAX_LAG];
    if let Some(unknown) = case.unknown(Question::Compaction, &decisive) {
        return Ok(Some(unknown));
    }
    let (start, log_end) = (case.log.log_start_offset()?, case.log.log_end_offset()?);
    let stable = case.log.last_stable_offset()?.min(case.removable_end);
    let log_segments = case.log.segments()?;
    let Some(active) = log_segments.last().map(|last| last.base_offset) else {
        let sentence = "there is no record".to_owned();
        return Ok(Some(case.answer(
            Question::Compaction,
            Reason::Empty,
            sentence,
        )));
    };
    let point = case.log.cleaner_offset()?;
    let cleaning = Cleaning {
        first_dirty: point
            .filter(|point| (start..=log_end).contains(point))
            .unwrap_or(start),
        segments: log_segments,
        active,
        stable,
        log_end,
    };
    if cleaning.first_dirty >= log_end {
        let sentence =
            format!("nothing was appended since it was compacted up to offset {log_end}");
        return Ok(Some(case.answer(
            Question::Compaction,
            Reason::Clean,
            sentence,
        )));
    }
    if cleaning.first_dirty >= cleaning.active {
        return Ok(Some(in_active_segment(case, &cleaning)?));
    }
    let stable_base = cleaning.floor(cleaning.stable.min(cleaning.active));
    if stable_base <= cleaning.first_dirty {
        return held_back(case, &cleaning, coordinators).map(Some);
    }
    let young = first_young(case, &cleaning)?.unwrap_or(i64::MAX);
    let first_uncleanable = cleaning
        .floor(stable_base.min(young))
        .max(cleaning.first_dirty);
    if first_uncleanable <= cleaning.first_dirty {
        return Ok(Some(too_young(case, young)?));
    }
    by_share(case, &cleaning, first_uncleanable).map(Some)
}

impl Cleaning {
    /// Base offset of the segment that holds `offset`.
    fn floor(&self, offset: i64) -> i64 {
        let slot = self
            .segments
            .partition_point(|segment| segment.base_offset <= offset);
        let found = self.segments.get(slot.saturating_sub(1));
        found.map_or(offset, |found| found.base_offset)
    }

    /// The closed segments with dirty offsets. The first may also hold clean ones.
    fn dirty(&self) -> &[SegmentInfo] {
        let slot = self
            .segments
            .partition_point(|segment| segment.base_offset <= self.first_dirty);
        let closed = self.segments.len().saturating_sub(1);
        self.segments
            .get(slot.saturating_sub(1)..closed)
            .unwrap_or(&[])
    }

    /// Bytes of the segments below `end` that have only clean offsets or some, and of those that have dirty ones.
    fn bytes(&self, end: i64) -> (u64, u64) {
        let sum = |segments: &mut dyn Iterator<Item = &SegmentInfo>| -> u64 {
            segments.map(|segment| segment.size_bytes).sum()
        };
        let clean = sum(&mut self
            .segments
            .iter()
            .filter(|segment| segment.base_offset < self.first_dirty));
        let dirty = sum(&mut self
            .dirty()
            .iter()
            .filter(|segment| segment.base_offset < end));
        (clean, dirty)
    }
}

fn in_active_segment(case: &Case<'_>, cleaning: &Cleaning) -> Result<Answer> {
    let config = case.settings.config();
    let active = cleaning.segments.last();
    let mut sentence = format!(
        "its records that were not compacted yet, from offset {}, are in the active segment, which is never compacted",
        cleaning.first_dirty
    );
    let mut due_timestamp = None;
    let bytes = active.map_or(0, |active| active.size_bytes);
    let first = case
        .log
        .batches(
            Some(cleaning.active.max(case.log.log_start_offset()?)),
            None,
        )?
        .next();
    if let Some(first) = first.transpose()?
        && first.max_timestamp >= 0
    {
        // The age must be above the setting.
        let age = config.segment_ms().saturating_add(1);
        due_timestamp = Some(first.max_timestamp.saturating_add(age));
        let _ = write!(
            sentence,
            "; its first batch is of {}",
            moment(first.max_timestamp, case.now)
        );
    }
    let remedy = format!(
        "an append rolls it once it has {} ({bytes} bytes now){}",
        case.shown(SEGMENT_BYTES),
        due_timestamp.map_or_else(String::new, |due| format!(
            ", or by {} when the record is of {} or later",
            case.shown(SEGMENT_MS),
            When(due)
        )),
    );
    Ok(Answer {
        remedy,
        segment: Some(cleaning.active),
        offset: Some(cleaning.first_dirty),
        due_timestamp,
        bytes: Some(bytes),
        settings: vec![case.setting(SEGMENT_BYTES), case.setting(SEGMENT_MS)],
        ..case.answer(Question::Compaction, Reason::ActiveSegment, sentence)
    })
}

/// The answer where nothing is below the last stable offset.
fn held_back(
    case: &Case<'_>,
    cleaning: &Cleaning,
    coordinators: &mut Coordinators<'_>,
) -> Result<Answer> {
    let segment = cleaning.floor(cleaning.stable);
    let bytes = cleaning
        .dirty()
        .iter()
        .map(|segment| segment.size_bytes)
        .sum();
    let open = case.log.open_transactions()?;
    let oldest = open.first().filter(|open| {
        open.transaction_first_offset
            .is_some_and(|first| first <= cleaning.stable)
    });
    let Some(&oldest) = oldest else {
        let sentence = format!(
            "only what is below the high watermark {} is compacted, and the log ends at {}",
            cleaning.stable, cleaning.log_end
        );
        return Ok(Answer {
            remedy: "the replicas in the ISR must catch up; a stopped broker's checkpoint may be behind, and rises after its start"
                .to_owned(),
            segment: Some(segment),
            offset: Some(cleaning.stable),
            bytes: Some(bytes),
            ..case.answer(Question::Compaction, Reason::NotReplicated, sentence)
        });
    };
    let producer = describe(
        &case.log,
        case.partition,
        oldest,
        lost_end(&case.log)?.as_deref(),
        coordinators,
    )?;
    let sentence = format!(
        "nothing from the segment {segment} on is compacted while the transaction of {}, which begins there at offset {}, has no marker",
        holder(&producer, case.now),
        cleaning.stable,
    );
    Ok(Answer {
        remedy: remedy_of(&producer),
        segment: Some(segment),
        offset: Some(cleaning.stable),
        timestamp: producer.transaction_start_timestamp,
        bytes: Some(bytes),
        producer: Some(producer),
        ..case.answer(Question::Compaction, Reason::OpenTransaction, sentence)
    })
}

/// Base offset of the first dirty segment that is younger than `min.compaction.lag.ms`.
fn first_young(case: &Case<'_>, cleaning: &Cleaning) -> Result<Option<i64>> {
    let lag = case.settings.config().min_compaction_lag_ms();
    if lag <= 0 {
        return Ok(None);
    }
    for segment in cleaning.dirty() {
        let age = case.log.segment_age(segment.base_offset)?;
        if age.is_some_and(|age| age.newest_timestamp > case.now.saturating_sub(lag)) {
            return Ok(Some(segment.base_offset));
        }
    }
    Ok(None)
}

fn too_young(case: &Case<'_>, segment: i64) -> Result<Answer> {
    let lag = case.settings.config().min_compaction_lag_ms();
    let age = case.log.segment_age(segment)?;
    let newest = age.map_or(case.now, |age| age.newest_timestamp);
    let due = newest.saturating_add(lag);
    let sentence = format!(
        "its first segment that was not compacted yet, {segment}, has a record of {}, and {} keeps it for another {}",
        moment(newest, case.now),
        case.shown(MIN_LAG),
        span(due.saturating_sub(case.now)),
    );
    Ok(Answer {
        remedy: format!("it may be compacted from {} on", When(due)),
        segment: Some(segment),
        timestamp: Some(newest),
        due_timestamp: Some(due),
        bytes: age.map(|age| age.size_bytes),
        settings: vec![case.setting(MIN_LAG)],
        ..case.answer(Question::Compaction, Reason::CompactionLag, sentence)
    })
}

/// The answer by the share of dirty bytes.
fn by_share(case: &Case<'_>, cleaning: &Cleaning, end: i64) -> Result<Answer> {
    let config = case.settings.config();
    let (clean, dirty) = cleaning.bytes(end);
    #[allow(clippy::cast_precision_loss, reason = "a ratio")]
    let ratio = if dirty == 0 {
        0.0
    } else {
        dirty as f64 / (clean + dirty) as f64
    };
    let first_dirty = cleaning.first_dirty;
    let is_late = must_be_cleaned(case, cleaning)?;
    let held = |reason, sentence| Answer {
        segment: Some(cleaning.floor(first_dirty)),
        offset: Some(first_dirty),
        bytes: Some(dirty),
        settings: vec![case.setting(RATIO)],
        ..case.answer(Question::Compaction, reason, sentence)
    };
    if dirty > 0 && (ratio > config.min_cleanable_dirty_ratio() || is_late) {
        let count = cleaning
            .dirty()
            .iter()
            .filter(|segment| segment.base_offset < end)
            .count();
        let sentence = format!(
            "nothing holds its {} from offset {first_dirty} to {} ({dirty} of {} bytes, {:.2}): the cleaner is due",
            segments(count),
            end - 1,
            clean + dirty,
            ratio
        );
        return Ok(Answer {
            remedy: "a broker's cleaner takes the dirtiest log next; if it does not, its log says that the partition is uncleanable, or \
                     that the cleaner thread ended. `offsetlog maintain` does it on a stopped broker's log dir"
                .to_owned(),
            ..held(Reason::Due, sentence)
        });
    }
    let sentence = format!(
        "{dirty} of {} bytes below offset {end} were not compacted yet, a share of {ratio:.2}, and {} asks for more",
        clean + dirty,
        case.shown(RATIO),
    );
    Ok(Answer {
        remedy: format!(
            "more appends, a smaller {RATIO}, or a {MAX_LAG} (now {})",
            case.shown(MAX_LAG)
        ),
        ..held(Reason::DirtyRatio, sentence)
    })
}

/// Whether the first batch of a dirty segment is older than `max.compaction.lag.ms`.
fn must_be_cleaned(case: &Case<'_>, cleaning: &Cleaning) -> Result<bool> {
    let lag = case.settings.config().max_compaction_lag_ms().max(0);
    if lag == i64::MAX {
        return Ok(false);
    }
    let until = case.now.saturating_sub(lag);
    let start = case.log.log_start_offset()?;
    for segment in cleaning.dirty() {
        let first = case
            .log
            .batches(Some(segment.base_offset.max(start)), None)?
            .next();
        if first
            .transpose()?
            .is_some_and(|first| (1..until).contains(&first.max_timestamp))
        {
            return Ok(true);
        }
    }
    Ok(false)
}
