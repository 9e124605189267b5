//! Shows readers what retention and the cleaner use: how old a segment is, and up to where the log was compacted.

use super::Log;
use super::state::{STATE_FILE, read_state};
use crate::disk::IoCall;
use crate::error::{Error, Result};
use crate::folder::{has_log_dir_files, is_absent};
use crate::segment::time_index::SegmentTimes;
use crate::segment::{Check, OpenSegment};
use offsetlog_format::OffsetCheckpointFile;
use offsetlog_format::name::{DirectoryName, DirectoryState};
use std::sync::Arc;

/// Reads the timestamps of a segment.
type Load = fn(&Arc<OpenSegment>, &Check<'_>) -> Result<SegmentTimes>;

/// How old a segment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentAge {
    /// Its base offset.
    pub base_offset: i64,
    /// Base offset of the next segment, or the log end offset.
    pub end_offset: i64,
    /// Bytes of its `.log`.
    pub size_bytes: u64,
    /// Its greatest timestamp in milliseconds since 1970; if no record has one, when the file was last modified.
    pub newest_timestamp: i64,
    /// Whether that is a record's timestamp, and not the file's.
    pub is_of_a_record: bool,
    /// Whether it is the last segment, to which appends go.
    pub is_active: bool,
}

impl Log {
    /// How old the segment with this base offset is; `None` if there is no such segment. Reads its time index, and the batch headers
    /// that the index does not cover. Where damage hides batches of a closed segment the index is believed, as by a broker.
    ///
    /// # Errors
    /// `Io`; those of damage in the segment that hides its timestamps.
    pub fn segment_age(&self, base_offset: i64) -> Result<Option<SegmentAge>> {
        self.age(base_offset, SegmentTimes::load_past_damage)
    }

    /// As [`segment_age`](Self::segment_age), but as retention judges it: an index is believed only as far as the batches confirm it.
    ///
    /// # Errors
    /// `Io`; those of damage in the segment, before which retention ends.
    pub fn segment_age_for_retention(&self, base_offset: i64) -> Result<Option<SegmentAge>> {
        self.age(base_offset, SegmentTimes::load)
    }

    fn age(&self, base_offset: i64, load: Load) -> Result<Option<SegmentAge>> {
        self.ask(|view| {
            let slot = view.floor_slot(base_offset);
            let Some(segment) = view.segments.get(slot) else {
                return Ok(None);
            };
            if segment.base_offset != base_offset {
                return Ok(None);
            }
            let open = view.open(segment)?;
            let newest = load(&open, &|| self.check())?.max_timestamp;
            let next = view.segments.get(slot + 1).map(|next| next.base_offset);
            let end_offset = match next {
                Some(next) => next,
                None => view.end()?.log_end_offset,
            };
            Ok(Some(SegmentAge {
                base_offset,
                end_offset,
                size_bytes: open.stat.size,
                newest_timestamp: if newest >= 0 {
                    newest
                } else {
                    open.stat.modified_ms
                },
                is_of_a_record: newest >= 0,
                is_active: segment.is_active(),
            }))
        })
    }

    /// The log start offset as the log dir's `log-start-offset-checkpoint` has it, which may lie before the first segment; `None` without a
    /// line.
    ///
    /// # Errors
    /// `Io`; those of damage in that file.
    pub fn checkpointed_log_start_offset(&self) -> Result<Option<i64>> {
        let directory = &self.0.directory;
        let Some(parent) = self.path().parent() else {
            return Ok(None);
        };
        if !has_log_dir_files(directory.disk.as_ref(), parent)? {
            return Ok(None);
        }
        let file = OffsetCheckpointFile::LogStartOffset;
        let checkpoints = &directory.checkpoints;
        checkpoints.offset_of(file, self.topic(), self.partition())
    }

    /// The offsets, the end exclusive, that are in the log by its log dir's `log-start-offset-checkpoint` and that lie before its first
    /// segment: with tiered storage they are in the remote store, else a segment is missing, or a broker had just deleted them. `None`
    /// without such offsets, and of a directory that was set aside, which the line is not about.
    ///
    /// # Errors
    /// `Io`. A malformed checkpoint says nothing, as for a broker.
    pub fn missing_start(&self) -> Result<Option<(i64, i64)>> {
        let name = self.path().file_name().and_then(|name| name.to_str());
        let name = DirectoryName::parse(name.unwrap_or_default());
        if !name.is_ok_and(|name| name.state == DirectoryState::Live) {
            return Ok(None);
        }
        let start = match self.checkpointed_log_start_offset() {
            Err(error) if error.is_corruption() => None,
            start => start?,
        };
        let first =
            self.look(|view| Ok(view.segments.first().map(|segment| segment.base_offset)))?;
        Ok(start.zip(first).filter(|(start, first)| start < first))
    }

    /// Whether somebody would have noted that the log was compacted: a broker with a cleaner, in the log dir, or offsetlog, which stores the
    /// settings.
    ///
    /// # Errors
    /// `Io`; those of damage in stored settings.
    pub fn is_compaction_noted(&self) -> Result<bool> {
        if self.stored_config()?.is_some() {
            return Ok(true);
        }
        let Some(log_dir) = self.path().parent() else {
            return Ok(false);
        };
        let file = log_dir.join(OffsetCheckpointFile::CleanerOffset.name());
        match self.0.directory.disk.stat(&file) {
            Ok(_) => Ok(true),
            Err(error) if is_absent(&error) => Ok(false),
            Err(error) => Err(Error::io(IoCall::Stat, &file, error)),
        }
    }

    /// The first offset that was not compacted yet, as the log dir's `cleaner-offset-checkpoint` has it, or offsetlog's own file in the
    /// partition directory; `None` if the log never was.
    ///
    /// # Errors
    /// `Io`; those of damage in that file.
    pub fn cleaner_offset(&self) -> Result<Option<i64>> {
        let directory = &self.0.directory;
        let disk = directory.disk.as_ref();
        if let Some(parent) = self.path().parent()
            && has_log_dir_files(disk, parent)?
        {
            let file = OffsetCheckpointFile::CleanerOffset;
            let checkpoints = &directory.checkpoints;
            return checkpoints.offset_of(file, self.topic(), self.partition());
        }
        let state = read_state(disk, &self.path().join(STATE_FILE), &mut Vec::new())?;
        Ok(state.and_then(|state| state.cleaner))
    }
}
