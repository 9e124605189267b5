//! Why the oldest segments of a partition are not deleted.
//!
//! Source: Kafka's `UnifiedLog.deleteOldSegments`: segments wholly before the log start offset, then by `retention.bytes`, then by
//! `retention.ms`, oldest first, each reason going on where the last one stopped.

use super::{Answer, Case, Question, Reason};
use crate::words::{moment, segments, span};
use offsetlog::{Isolation, Result, SegmentAge, SegmentInfo};
use std::fmt::Write as _;

const POLICY: &str = "cleanup.policy";
const RETENTION_MS: &str = "retention.ms";
const RETENTION_BYTES: &str = "retention.bytes";
const REMOTE: &str = "remote.storage.enable";

/// Segments behind the oldest whose age is looked at.
const SEGMENTS_MAX: usize = 1_000;

pub(super) fn answer(case: &Case<'_>) -> Result<Answer> {
    let held = |reason, sentence| case.answer(Question::Deletion, reason, sentence);
    if case.settings.text(REMOTE) == Some("true") {
        let sentence = format!(
            "{}: a segment is deleted here once it was copied away, by local.retention.ms and local.retention.bytes",
            case.shown(REMOTE)
        );
        return Ok(Answer {
            settings: vec![case.setting(REMOTE)],
            remedy: "the broker's remote log manager deletes it; see its log".to_owned(),
            ..held(Reason::Tiered, sentence)
        });
    }
    if let Some(unknown) = case.unknown(Question::Deletion, &[POLICY]) {
        return Ok(unknown);
    }
    let log_segments = case.log.segments()?;
    let (start, end) = (case.log.log_start_offset()?, case.log.log_end_offset()?);
    let config = case.settings.config();
    let before_start = due_by_start(&log_segments, start);
    let is_compacted_alone = !config.is_deleting() && before_start == 0;
    if case.cleaner_is_off && config.is_compacted() && !is_compacted_alone {
        return Ok(case.cleaner_off(Question::Deletion, total(&log_segments)));
    }
    if !config.is_deleting() {
        if before_start > 0 {
            return Ok(due(case, &log_segments, (before_start, 0, 0), end));
        }
        let sentence = format!("{} deletes no segment by age or size", case.shown(POLICY));
        return Ok(Answer {
            settings: vec![case.setting(POLICY)],
            remedy: format!("{POLICY}=delete or compact,delete, if that is wanted"),
            bytes: Some(total(&log_segments)),
            ..held(Reason::Policy, sentence)
        });
    }
    if let Some(unknown) = case.unknown(Question::Deletion, &[RETENTION_MS, RETENTION_BYTES]) {
        return Ok(unknown);
    }
    let limit = config.retention_ms();
    let is_expired = |age: &SegmentAge| {
        let is_empty = age.is_active && age.size_bytes == 0;
        limit >= 0 && case.now.saturating_sub(age.newest_timestamp) > limit && !is_empty
    };
    let before_size = due_by_size(&log_segments, before_start, config.retention_bytes());
    let expired = if limit < 0 {
        0
    } else {
        expired_from(case, &log_segments, before_size, &is_expired)?
    };
    let by_size = before_size - before_start;
    if before_size + expired > 0 {
        let counts = (before_start, by_size, expired);
        return Ok(due(case, &log_segments, counts, end));
    }
    if start >= end {
        return Ok(held(Reason::Empty, "there is no record".to_owned()));
    }
    by_retention(case, &log_segments, &is_expired)
}

/// The answer where the oldest segment is not due.
fn by_retention(
    case: &Case<'_>,
    log_segments: &[SegmentInfo],
    is_expired: &impl Fn(&SegmentAge) -> bool,
) -> Result<Answer> {
    let held = |reason, sentence| case.answer(Question::Deletion, reason, sentence);
    let config = case.settings.config();
    let both = vec![case.setting(RETENTION_MS), case.setting(RETENTION_BYTES)];
    let limit = config.retention_ms();
    if limit < 0 && config.retention_bytes() < 0 {
        let sentence = format!(
            "{} and {} keep everything",
            case.shown(RETENTION_MS),
            case.shown(RETENTION_BYTES)
        );
        return Ok(Answer {
            remedy: format!("a limit for {RETENTION_MS} or {RETENTION_BYTES}"),
            settings: both,
            bytes: Some(total(log_segments)),
            ..held(Reason::Unlimited, sentence)
        });
    }
    let oldest = log_segments
        .first()
        .map_or(Ok(None), |oldest| case.log.segment_age(oldest.base_offset))?;
    let Some(age) = oldest else {
        return Ok(held(
            Reason::Empty,
            "its segments changed while it was asked".to_owned(),
        ));
    };
    not_due(case, log_segments, &age, is_expired)
}

/// The answer where the oldest segment is neither old enough nor too much.
fn not_due(
    case: &Case<'_>,
    log_segments: &[SegmentInfo],
    age: &SegmentAge,
    is_expired: &impl Fn(&SegmentAge) -> bool,
) -> Result<Answer> {
    let config = case.settings.config();
    let limit = config.retention_ms();
    let stuck = expired_from(case, log_segments, 1, is_expired)?;
    let newest = age.newest_timestamp;
    let offset = if age.is_of_a_record {
        let found = case
            .log
            .offset_for_timestamp(newest, Isolation::ReadUncommitted)?;
        found.map(|found| found.offset)
    } else {
        None
    };
    let (name, end) = (age.base_offset, age.end_offset);
    let which = match offset {
        Some(offset) => format!(
            "its oldest segment, of offsets {name} to {}, has a record at offset {offset} of {}",
            end - 1,
            moment(newest, case.now)
        ),
        None => format!(
            "no record of its oldest segment, of offsets {name} to {}, has a timestamp; the file was last modified {}",
            end - 1,
            moment(newest, case.now)
        ),
    };
    let mut sentence = which;
    let mut settings = Vec::new();
    let mut remedies = Vec::new();
    let mut due_timestamp = None;
    if limit >= 0 {
        let due = newest.saturating_add(limit).saturating_add(1);
        due_timestamp = Some(due);
        settings.push(case.setting(RETENTION_MS));
        let _ = write!(
            sentence,
            ", and {} keeps it for another {}",
            case.shown(RETENTION_MS),
            span(due.saturating_sub(case.now))
        );
        remedies.push(format!("it is due at {}", crate::When(due)));
    } else {
        let _ = write!(sentence, ", and {} keeps it", case.shown(RETENTION_MS));
    }
    if let Ok(allowed) = u64::try_from(config.retention_bytes()) {
        settings.push(case.setting(RETENTION_BYTES));
        let missing = allowed
            .saturating_add(age.size_bytes)
            .saturating_sub(total(log_segments));
        remedies.push(format!(
            "by {} once the log has {missing} bytes more",
            case.shown(RETENTION_BYTES)
        ));
    }
    let is_stuck = stuck > 0;
    let mut bytes = age.size_bytes;
    if is_stuck {
        let behind = log_segments.iter().skip(1).take(stuck);
        bytes += behind.map(|segment| segment.size_bytes).sum::<u64>();
        let words = if stuck == 1 {
            "its own records, but is"
        } else {
            "their own records, but are"
        };
        let _ = write!(
            sentence,
            "; {} behind it would be due by {words} deleted in order",
            segments(stuck)
        );
        // No age is negative: what is of the future is kept by any setting.
        let smaller = if newest < case.now {
            format!(", or a smaller {RETENTION_MS}")
        } else {
            String::new()
        };
        remedies.push(format!(
            "sooner with kafka-delete-records.sh up to offset {end}{smaller}"
        ));
    }
    let reason = if is_stuck {
        Reason::LaterTimestamp
    } else {
        Reason::NotDue
    };
    Ok(Answer {
        remedy: remedies.join("; "),
        segment: Some(name),
        offset,
        timestamp: age.is_of_a_record.then_some(newest),
        due_timestamp,
        bytes: Some(bytes),
        settings,
        ..case.answer(Question::Deletion, reason, sentence)
    })
}

/// How many segments from `first` on are old enough, up to the first that is not.
fn expired_from(
    case: &Case<'_>,
    log_segments: &[SegmentInfo],
    first: usize,
    is_expired: &impl Fn(&SegmentAge) -> bool,
) -> Result<usize> {
    let mut count = 0;
    for segment in log_segments.iter().skip(first).take(SEGMENTS_MAX) {
        let age = match case.log.segment_age_for_retention(segment.base_offset) {
            // Retention ends there, too, after it deleted what is before it.
            Err(error) if error.is_corruption() && first + count > 0 => break,
            age => age?,
        };
        if !age.is_some_and(|age| is_expired(&age)) {
            break;
        }
        count += 1;
    }
    Ok(count)
}

/// The first segments that are wholly before the log start offset.
fn due_by_start(log_segments: &[SegmentInfo], start: i64) -> usize {
    let nexts = log_segments.iter().skip(1);
    nexts.take_while(|next| next.base_offset <= start).count()
}

/// How many segments go by the log start offset and by size.
fn due_by_size(log_segments: &[SegmentInfo], first: usize, limit: i64) -> usize {
    let Ok(limit) = u64::try_from(limit) else {
        return first;
    };
    let rest = log_segments.get(first..).unwrap_or(&[]);
    let mut excess = total(rest).checked_sub(limit);
    let fits = |segment: &&SegmentInfo| {
        excess = excess.and_then(|excess| excess.checked_sub(segment.size_bytes));
        excess.is_some() && !(segment.is_active && segment.size_bytes == 0)
    };
    first + rest.iter().take_while(fits).count()
}

fn total(log_segments: &[SegmentInfo]) -> u64 {
    log_segments.iter().map(|segment| segment.size_bytes).sum()
}

/// The answer where segments are due: so many by the log start offset, then by size, then by age. Behind the first that other brokers may
/// lack none is deleted.
fn due(
    case: &Case<'_>,
    log_segments: &[SegmentInfo],
    (by_start, by_size, by_age): (usize, usize, usize),
    log_end: i64,
) -> Answer {
    let ends = log_segments.iter().skip(1).map(|next| next.base_offset);
    let replicated = ends
        .chain([log_end])
        .take(by_start + by_size + by_age)
        .take_while(|&end| end <= case.removable_end)
        .count();
    if replicated == 0 {
        return not_replicated(case, log_segments, log_end);
    }
    let why = if replicated > by_start + by_size {
        format!("by {}", case.shown(RETENTION_MS))
    } else if replicated > by_start {
        format!("by {}", case.shown(RETENTION_BYTES))
    } else {
        "they are before the log start offset".to_owned()
    };
    let gone = log_segments.get(..replicated).unwrap_or(log_segments);
    let bytes = total(gone);
    let until = log_segments.get(replicated).map(|next| next.base_offset);
    let sentence = format!(
        "nothing holds its first {} ({bytes} bytes{}), due {why}",
        segments(gone.len()),
        until.map_or_else(String::new, |until| format!(", up to offset {until}")),
    );
    Answer {
        remedy: "a broker deletes them at its next check, every log.retention.check.interval.ms, and their files \
                 file.delete.delay.ms later; `offsetlog maintain` does it on a stopped broker's log dir"
            .to_owned(),
        segment: gone.first().map(|first| first.base_offset),
        bytes: Some(bytes),
        ..case.answer(Question::Deletion, Reason::Due, sentence)
    }
}

/// The answer where other brokers may lack a part of the oldest segment, which is due.
fn not_replicated(case: &Case<'_>, log_segments: &[SegmentInfo], log_end: i64) -> Answer {
    let high_watermark = case.removable_end;
    let end = log_segments.get(1).map_or(log_end, |next| next.base_offset);
    let sentence = format!(
        "its oldest segment is due, but only what is below the high watermark {high_watermark} is replicated, and it ends at {end}"
    );
    Answer {
        remedy: "the replicas in the ISR must catch up; a stopped broker's checkpoint may be behind, and rises after its start"
            .to_owned(),
        segment: log_segments.first().map(|first| first.base_offset),
        offset: Some(high_watermark),
        settings: vec![case.setting(RETENTION_MS), case.setting(RETENTION_BYTES)],
        ..case.answer(Question::Deletion, Reason::NotReplicated, sentence)
    }
}
