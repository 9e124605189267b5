//! Offsets that a log has by its log dir's checkpoints, and that are in none of its segments: before the first, or behind the last.

use offsetlog::{Hole, Log, Result, TornTail};

/// The offsets between the line of the log dir's checkpoint, where the log begins, and its first segment.
pub(super) fn missing_start(log: &Log) -> Result<Option<Hole>> {
    let missing = log.missing_start()?;
    Ok(missing.map(|(start, first)| Hole {
        topic: log.topic().to_owned(),
        partition: log.partition(),
        path: log.path().join(format!("{first:020}.log")),
        position: 0,
        bytes: 0,
        start,
        stop: Some(first),
        kind: "LogStart",
        reason: format!(
            "the log begins at {start} by its log dir's log-start-offset-checkpoint, and its first segment at {first}: with tiered storage what \
             is before is in the remote store, else a broker deleted it and had not yet noted it, or a segment is missing"
        ),
    }))
}

/// The offsets between the end of the log and the high watermark of its log dir.
pub(super) fn missing_end(
    log: &Log,
    torn: Option<&TornTail>,
    (start, stop): (i64, i64),
) -> Result<Hole> {
    let segments = log.segments()?;
    let last = segments.last();
    let name = last.map_or_else(String::new, |last| format!("{:020}.log", last.base_offset));
    let (path, position, bytes) = if let Some(torn) = torn {
        (torn.path.clone(), torn.position, torn.bytes)
    } else {
        let position = last.map_or(0, |last| last.size_bytes);
        (log.path().join(name), position, 0)
    };
    Ok(Hole {
        topic: log.topic().to_owned(),
        partition: log.partition(),
        path,
        position,
        bytes,
        start,
        stop: Some(stop),
        kind: "HighWatermark",
        reason: format!(
            "the high watermark of its log dir is {stop}: what is below was replicated and acknowledged"
        ),
    })
}
