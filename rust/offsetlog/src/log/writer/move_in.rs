//! Takes the segments of a staged log into this one: they are numbered where they are, then renamed, one after the other.
//!
//! Invariant: after a crash at any moment each segment is in its old place or in its new one, whole, and those in the new one are the
//! first ones. For that, everything that is in the log before them is durable, and so is each rename before the next one.

use super::PartitionWriter;
use crate::append_info::AppendInfo;
use crate::disk::{Disk, IoCall, replace_file};
use crate::error::{Error, ErrorKind, Result};
use crate::log::move_log::{Piece, Staged};
use crate::log::state::lock_idle;
use crate::segment::active::{ActiveSegment, Contents, Settings};
use crate::segment::indexing::MaxTimestamp;
use crate::segment::segment_path;
use offsetlog_format::EpochEntry;
use offsetlog_format::index_entry::{
    OFFSET_INDEX_ENTRY_BYTES, TIME_INDEX_ENTRY_BYTES, TimeIndexEntry,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A segment that is moved has at least this part of `segment.bytes`.
const PART_OF_SEGMENT: u64 = 4;
/// A smaller log is copied as quickly, even into an empty one.
const WORTH_BYTES: u64 = 16 << 20;

impl PartitionWriter {
    /// Moves the segments of the staged log in `source`, which has `batches` batches, behind the end of this one. `None`: nothing was
    /// changed, and they are to be copied.
    pub(crate) fn move_in(
        &mut self,
        source: &Path,
        batches: usize,
        leader_epoch: i32,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<Option<AppendInfo>> {
        self.check_usable()?;
        super::append::check_epoch(leader_epoch)?;
        let disk = Arc::clone(&self.directory.disk);
        let Some(_lock) = lock_idle(disk.as_ref(), source)? else {
            return Err(Error::new(ErrorKind::Locked { pid: None }).at_path(source));
        };
        let (is_begun, size) = Staged::look(disk.as_ref(), source)?;
        if !is_begun && !self.is_worth_moving(size) {
            return Ok(None);
        }
        let now = self.now();
        let settings = self.settings(now);
        let limits = &self.directory.limits;
        let staged = Staged::read(disk.as_ref(), source, limits, &settings, is_begun, check)?;
        if let Some(reason) = self.refusal(&staged, source)? {
            if is_begun {
                let reason = format!("was moved in part, and the rest cannot be: {reason}");
                return Err(Error::log_dir(source, reason));
            }
            return Ok(None);
        }
        if staged.batches() != batches {
            let found = staged.batches();
            let reason = format!("holds {found} staged batches, {batches} expected");
            return Err(Error::log_dir(source, reason));
        }
        if !is_begun {
            staged.note(disk.as_ref())?;
        }
        let recovery_point = self.ends.recovery_point();
        self.expire_producers(now);
        for piece in &staged.pieces {
            write_indexes(disk.as_ref(), piece)?;
        }
        self.roll()?;
        // Otherwise a power failure could leave them behind a hole, and recovery would take them out.
        self.settle_for_cleaning()?;
        self.check_in_place()?;
        let base_offset = self.log_end();
        let mut next = base_offset;
        for piece in &staged.pieces {
            piece.number(disk.as_ref(), next, leader_epoch, !is_begun)?;
            next = next.saturating_add(piece.offsets);
        }
        self.begin_epoch(leader_epoch, base_offset)?;
        let maps = Arc::clone(&self.maps);
        let files = maps.changing_files(base_offset..);
        let taken = self.take_in(&staged.pieces, &settings);
        if let Err(error) = &taken {
            // Only the next opening can find out which files exist.
            self.poison(error);
        }
        taken?;
        drop(files);
        let greatest = staged.pieces.iter().map(|piece| piece.max.timestamp).max();
        let info = AppendInfo {
            base_offset,
            last_offset: next.saturating_sub(1),
            max_timestamp: greatest.unwrap_or(-1),
            ..AppendInfo::NOTHING
        };
        self.note_gap().map_err(|error| error.after_append(info))?;
        self.end_append(now, recovery_point);
        Ok(Some(info))
    }

    /// Why the staged log has to be copied, if it has.
    fn refusal(&self, staged: &Staged, source: &Path) -> Result<Option<&'static str>> {
        if staged.refusal.is_some() || staged.pieces.is_empty() {
            return Ok(staged.refusal.or(Some("it holds no batch")));
        }
        let segment_bytes = self.config.effective.segment_bytes().max(0) as u64;
        if staged.pieces.iter().any(|piece| piece.size > segment_bytes) {
            return Ok(Some("a segment is larger than segment.bytes"));
        }
        let offsets: i64 = staged.pieces.iter().map(|piece| piece.offsets).sum();
        if self.log_end().checked_add(offsets).is_none() {
            return Ok(Some("its offsets do not fit 64 bits"));
        }
        let device = |path: &Path| {
            let stat = self.directory.disk.stat(path);
            stat.map(|stat| stat.id.0)
                .map_err(|error| Error::io(IoCall::Stat, path, error))
        };
        let is_same = device(source)? == device(&self.directory.path)?;
        Ok((!is_same).then_some("it is on another file system"))
    }

    fn is_worth_moving(&self, size: u64) -> bool {
        let segment_bytes = self.config.effective.segment_bytes().max(0) as u64;
        let is_empty = self.segments.active.size() == 0;
        size >= segment_bytes / PART_OF_SEGMENT || (is_empty && size >= WORTH_BYTES)
    }

    /// Makes the epoch of the batches to come durable.
    fn begin_epoch(&mut self, epoch: i32, start_offset: i64) -> Result<()> {
        if self
            .epochs
            .latest()
            .is_some_and(|latest| latest.epoch == epoch)
        {
            return Ok(());
        }
        let before = self.epochs.clone();
        let entry = EpochEntry {
            epoch,
            start_offset,
        };
        if self.epochs.assign(entry) {
            self.write_epochs().inspect_err(|_| self.epochs = before)?;
        }
        Ok(())
    }

    fn take_in(&mut self, pieces: &[Piece], settings: &Settings) -> Result<()> {
        let disk = Arc::clone(&self.directory.disk);
        let mut base_offset = self.log_end();
        let mut bases = Vec::new();
        for piece in pieces {
            if !bases.is_empty() {
                self.remove_leftovers_of(base_offset)?;
                self.producers.states.set_end_offset(base_offset);
                self.take_snapshot(true)?;
            }
            // The empty active segment has the place of the first one. The `.log` comes last: indexes alone are no segment.
            for suffix in [".index", ".timeindex", ".log"] {
                let from = beside(&piece.path, suffix);
                let to = segment_path(&self.directory.path, base_offset, suffix);
                disk.rename(&from, &to)
                    .map_err(|error| Error::io(IoCall::Rename, &from, error))?;
            }
            // No file system promises the order of renames: without this a crash could leave a hole.
            self.sync_names()?;
            bases.push(base_offset);
            base_offset = base_offset.saturating_add(piece.offsets);
        }
        let (Some(last), Some(base)) = (pieces.last(), bases.pop()) else {
            return Ok(());
        };
        let contents = contents(last, base);
        let active = ActiveSegment::open(&self.directory, base, settings, &contents)?;
        self.segments.active = active;
        self.segments.active.touch()?;
        for base in bases {
            self.segments.made_with.insert(base, *settings);
            self.segments.closed.push(base);
        }
        self.segments.data_end = base_offset;
        self.segments.cut_inside = None;
        self.producers.states.set_end_offset(base_offset);
        self.publish(base_offset);
        Ok(())
    }
}

/// Rewrites the indexes of a staged segment, whatever it has, so that they follow this log's settings.
fn write_indexes(disk: &dyn Disk, piece: &Piece) -> Result<()> {
    let files = [
        (".index", &piece.entries.offset),
        (".timeindex", &piece.entries.time),
    ];
    for (suffix, bytes) in files {
        let path = beside(&piece.path, suffix);
        replace_file(disk, &path, bytes).map_err(|failed| Error::failed_call(&path, failed))?;
    }
    Ok(())
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(suffix);
    path.with_file_name(name)
}

fn contents(piece: &Piece, base: i64) -> Contents {
    let times = &piece.entries.time;
    let time_entries = times.len() / TIME_INDEX_ENTRY_BYTES;
    let last_time = time_entries.checked_sub(1);
    Contents {
        size: piece.size,
        offset_entries: piece.entries.offset.len() / OFFSET_INDEX_ENTRY_BYTES,
        time_entries,
        last_time: last_time.and_then(|slot| TimeIndexEntry::read(times, slot, base).ok()),
        max: MaxTimestamp {
            timestamp: piece.max.timestamp,
            offset: piece.max.offset.saturating_add(base),
        },
        first_timestamp: piece.first_timestamp,
        rebuilt_entries: piece.rebuilt_entries,
    }
}
