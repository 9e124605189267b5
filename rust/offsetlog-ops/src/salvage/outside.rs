//! Offsets that a log has by its log dir's checkpoints, and that are in none of its segments: before the first, or behind the last.

use offsetlog::{Hole, Log, Result, TornTail};

/// What tells of them. Asked before the log is read: what a running broker appends meanwhile is below a later high watermark. And nothing
/// of it can fail when the new log has its name.
pub(super) struct Outside {
    /// The offsets between the line of the log dir's checkpoint, where the log begins, and its first segment.
    pub(super) start: Option<Hole>,
    /// As the log dir has it.
    pub(super) high_watermark: Option<i64>,
    /// Base offset and size of the last segment.
    last: Option<(i64, u64)>,
}

impl Outside {
    pub(super) fn of(log: &Log) -> Result<Self> {
        let segments = log.segments()?;
        Ok(Self {
            start: None,
            high_watermark: log.checkpointed_high_watermark()?,
            last: segments
                .last()
                .map(|last| (last.base_offset, last.size_bytes)),
        })
    }

    /// Looks for what is before the first segment.
    pub(super) fn look_before(&mut self, log: &Log) -> Result<()> {
        self.start = missing_start(log)?;
        Ok(())
    }

    /// The offsets between the end of the log and the high watermark of its log dir.
    pub(super) fn end(
        &self,
        log: &Log,
        torn: Option<&TornTail>,
        (start, stop): (i64, i64),
    ) -> Hole {
        let (path, position, bytes) = if let Some(torn) = torn {
            (torn.path.clone(), torn.position, torn.bytes)
        } else {
            let name = self
                .last
                .map_or_else(String::new, |(base, _)| format!("{base:020}.log"));
            (
                log.path().join(name),
                self.last.map_or(0, |(_, size)| size),
                0,
            )
        };
        Hole {
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
        }
    }
}

fn missing_start(log: &Log) -> Result<Option<Hole>> {
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
