//! Retention: deletes whole segments from the start of the log, by log start offset, `retention.bytes` and `retention.ms`.
//!
//! Source: Kafka's `UnifiedLog.deleteOldSegments`. Unlike Kafka, the age of a segment is that of its batches. A time index
//! counts only as far as the batches confirm it, so a wrong one neither keeps a segment forever nor deletes it early. Where damage
//! hides batches, nothing confirms it: the segments before it are deleted, and it stays, with an error.

use super::PartitionWriter;
use crate::config::LogConfig;
use crate::disk::IoCall;
use crate::error::{Error, Result};
use crate::log::recovery::scan_segment;
use crate::segment::segment_path;
use crate::segment::time_index::SegmentTimes;
use std::sync::Arc;

/// Why retention deletes a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RetentionReason {
    /// All its offsets are below the log start offset.
    LogStartOffset,
    /// Without it the log still has at least `retention.bytes`.
    RetentionBytes,
    /// Its newest record is older than `retention.ms`.
    RetentionMs,
}

impl RetentionReason {
    /// The setting or offset that decided, by Kafka's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LogStartOffset => "log start offset",
            Self::RetentionBytes => "retention.bytes",
            Self::RetentionMs => "retention.ms",
        }
    }
}

/// A segment that retention deleted, or would delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemovedSegment {
    /// Its base offset.
    pub base_offset: i64,
    /// Base offset of the next segment, or the log end offset.
    pub end_offset: i64,
    /// Bytes of its `.log`.
    pub size_bytes: u64,
    /// Why it is deleted.
    pub reason: RetentionReason,
}

/// What retention deletes.
#[derive(Debug, Default)]
pub(crate) struct Due {
    /// Oldest first.
    pub(crate) segments: Vec<RemovedSegment>,
    /// Why it cannot be told whether the next segment is due. That one stays, and with it those behind it.
    pub(crate) stopped: Option<Error>,
}

/// A segment that retention may delete.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    base_offset: i64,
    end_offset: i64,
    is_last: bool,
}

impl PartitionWriter {
    /// Returns what retention with these settings deletes at `now`.
    pub(crate) fn deletable_segments(&self, config: &LogConfig, now: i64) -> Result<Due> {
        Ok(self.deletable_segments_below(config, self.high_watermark()?, now))
    }

    fn deletable_segments_below(&self, config: &LogConfig, high_watermark: i64, now: i64) -> Due {
        let mut walk = Walk {
            writer: self,
            high_watermark,
            candidates: self.candidates(),
            removed: Vec::new(),
        };
        let stopped = self.walk(&mut walk, config, now).err();
        Due {
            segments: walk.removed,
            stopped,
        }
    }

    fn walk(&self, walk: &mut Walk<'_>, config: &LogConfig, now: i64) -> Result<()> {
        let log_start = self.ends.log_start();
        walk.go(RetentionReason::LogStartOffset, |candidate, _| {
            Ok(!candidate.is_last && candidate.end_offset <= log_start)
        })?;
        if !config.is_deleting() {
            return Ok(());
        }
        if let Ok(limit) = u64::try_from(config.retention_bytes()) {
            let mut total = 0;
            for candidate in walk.rest() {
                total += self.size_of(candidate)?;
            }
            let mut excess = total.checked_sub(limit);
            walk.go(RetentionReason::RetentionBytes, |_, size| {
                excess = excess.and_then(|excess| excess.checked_sub(size));
                Ok(excess.is_some())
            })?;
        }
        let limit = config.retention_ms();
        if limit >= 0 {
            walk.go(RetentionReason::RetentionMs, |candidate, _| {
                Ok(now.saturating_sub(self.newest_of(candidate)?) > limit)
            })?;
        }
        Ok(())
    }

    fn candidates(&self) -> Vec<Candidate> {
        let active = self.segments.active.base_offset;
        let bases = self.segments.closed.iter().copied().chain([active]);
        let ends = self.segments.closed.iter().skip(1).copied();
        let ends = ends.chain((!self.segments.closed.is_empty()).then_some(active));
        bases
            .zip(ends.chain([self.log_end()]))
            .map(|(base_offset, end_offset)| Candidate {
                base_offset,
                end_offset,
                is_last: base_offset == active,
            })
            .collect()
    }

    fn size_of(&self, candidate: &Candidate) -> Result<u64> {
        if candidate.is_last {
            return Ok(self.segments.active.size());
        }
        let path = segment_path(&self.directory.path, candidate.base_offset, ".log");
        let stat = self.directory.disk.stat(&path);
        Ok(stat
            .map_err(|error| Error::io(IoCall::Stat, &path, error))?
            .size)
    }

    /// Returns the segment's greatest timestamp; if no record has one, when the file was last modified.
    fn newest_of(&self, candidate: &Candidate) -> Result<i64> {
        let written = if candidate.is_last {
            self.segments.active.max_timestamp()
        } else {
            None
        };
        let timestamp = if let Some(timestamp) = written {
            timestamp
        } else {
            let next = (!candidate.is_last).then_some(candidate.end_offset);
            let segment = scan_segment::open(&self.directory, candidate.base_offset, next)?;
            SegmentTimes::load(&segment, &|| Ok(()))?.max_timestamp
        };
        if timestamp >= 0 {
            return Ok(timestamp);
        }
        let path = segment_path(&self.directory.path, candidate.base_offset, ".log");
        let stat = self.directory.disk.stat(&path);
        Ok(stat
            .map_err(|error| Error::io(IoCall::Stat, &path, error))?
            .modified_ms)
    }

    /// Deletes the segments that retention with these settings selects at `now`, and adds them to `removed`. Fails afterwards if it cannot
    /// be told whether the next segment is due.
    pub(crate) fn retain(
        &mut self,
        config: &LogConfig,
        now: i64,
        removed: &mut Vec<RemovedSegment>,
    ) -> Result<()> {
        self.check_usable()?;
        let due = self.deletable_segments(config, now)?;
        self.drop_segments(&due.segments, config, removed)?;
        due.stopped.map_or(Ok(()), Err)
    }

    /// After a crash the log begins at the old start or at the new one: the new log start offset is durable before the first file is
    /// renamed, and the oldest segments are renamed first.
    fn drop_segments(
        &mut self,
        segments: &[RemovedSegment],
        config: &LogConfig,
        removed: &mut Vec<RemovedSegment>,
    ) -> Result<()> {
        let Some(start) = segments.last().map(|last| last.end_offset) else {
            return Ok(());
        };
        self.mark_unclean()?;
        // Not the time by which ages counted: what is appended next goes by the log's clock.
        let now = self.now();
        if segments.len() > self.segments.closed.len() {
            self.expire_producers(now);
            self.roll_to(self.log_end(), now)?;
        }
        if start > self.ends.log_start() {
            self.delete_records_before(start)?;
        } else {
            // The log start offset stays. If the caller passed it at opening, it may not be stored yet.
            self.save_point()?;
        }
        let maps = Arc::clone(&self.maps);
        let _files = maps.changing_files(..start);
        let due = now.saturating_add(config.file_delete_delay_ms());
        let done: Result<()> = segments.iter().try_for_each(|segment| {
            self.drop_oldest(segment.base_offset, due)?;
            removed.push(*segment);
            Ok(())
        });
        let path = &self.directory.path;
        let synced = self
            .directory
            .disk
            .sync_directory(path)
            .map_err(|error| Error::io(IoCall::SyncDirectory, path, error));
        done?;
        synced?;
        self.durability.names_changed = false;
        Ok(())
    }

    fn drop_oldest(&mut self, base: i64, due: i64) -> Result<()> {
        self.schedule_delete(base, due)?;
        self.segments.closed.retain(|&closed| closed != base);
        self.durability
            .unsettled
            .retain(|&unsettled| unsettled != base);
        self.segments.made_with.remove(&base);
        Ok(())
    }
}

/// Walks the segments from the oldest one. Each reason continues where the previous one stopped.
struct Walk<'a> {
    writer: &'a PartitionWriter,
    high_watermark: i64,
    candidates: Vec<Candidate>,
    removed: Vec<RemovedSegment>,
}

impl Walk<'_> {
    fn rest(&self) -> &[Candidate] {
        self.candidates.get(self.removed.len()..).unwrap_or(&[])
    }

    /// Selects segments as long as they may be deleted and `is_due` returns true for the segment and its size.
    fn go(
        &mut self,
        reason: RetentionReason,
        mut is_due: impl FnMut(&Candidate, u64) -> Result<bool>,
    ) -> Result<()> {
        while let Some(candidate) = self.rest().first().copied() {
            let size_bytes = self.writer.size_of(&candidate)?;
            let may_go = candidate.end_offset <= self.high_watermark
                && !(candidate.is_last && size_bytes == 0);
            if !may_go || !is_due(&candidate, size_bytes)? {
                break;
            }
            self.removed.push(RemovedSegment {
                base_offset: candidate.base_offset,
                end_offset: candidate.end_offset,
                size_bytes,
                reason,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use crate::batch_builder::BatchBuilder;
    use crate::config::LogConfig;
    use crate::log::{AppendOptions, LogWriter, OpenOptions, WriteOptions};

    const NOW: i64 = 1_700_000_000_000;

    /// Three segments of one record each, all old enough to be deleted.
    #[test]
    fn what_is_not_replicated_stays() {
        let folder = tempfile::tempdir().unwrap();
        let settings = [("internal.segment.bytes", "100"), ("retention.ms", "0")];
        let write = WriteOptions {
            config: Some(LogConfig::parse(settings).unwrap()),
            ..WriteOptions::default()
        };
        let path = folder.path().join("orders-0");
        let log = LogWriter::open(path, &OpenOptions::default(), &write).unwrap();
        for _ in 0..3 {
            let mut batch = BatchBuilder::default();
            batch.push(NOW, Some(b"k"), Some(b"v"), &[]).unwrap();
            log.append(&mut batch, &AppendOptions::default()).unwrap();
        }
        let due = |high_watermark| {
            let due = log
                .changing(|writer| {
                    let config = writer.config();
                    Ok(writer.deletable_segments_below(config, high_watermark, NOW + 1))
                })
                .unwrap();
            due.segments
                .iter()
                .map(|one| one.base_offset)
                .collect::<Vec<_>>()
        };
        assert_eq!(due(0), Vec::<i64>::new());
        assert_eq!(due(1), [0]);
        assert_eq!(due(2), [0, 1]);
        assert_eq!(due(3), [0, 1, 2]);
        let all = log
            .changing(|writer| writer.deletable_segments(writer.config(), NOW + 1))
            .unwrap();
        assert_eq!(all.segments.len(), 3);
    }
}
