//! Recovers a segment (Kafka's `LogSegment.recover`): scans it, cuts bytes that are not batches, keeps a copy of them and rewrites the
//! indexes.

use super::due_indexes;
use super::index_check;
use super::interrupted_swaps;
use super::loader::{Loading, RECOVER};
use super::report::Cut;
use super::scan_segment::{self, Damage, ReplayState, ScannedSegment};
use crate::disk::{Access, IoCall, read_whole};
use crate::error::{Error, ErrorKind, Result};
use crate::folder::is_there;
use crate::segment::walk::{SCAN_BYTES, Step, Walk};
use crate::segment::{Check, Directory, segment_path};
use offsetlog_format::{Fault, SegmentFile};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The folder for cut bytes, inside the partition directory; brokers ignore folders there.
pub(in crate::log) const CUT_FOLDER: &str = "offsetlog-cut";

/// The whole batches that a cut removes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lost {
    pub(super) records: u64,
    pub(super) offsets: Option<(i64, i64)>,
}

impl Loading<'_> {
    /// Scans the segment in `slot` and repairs its indexes: all of them, as a broker's recovery does, or only `files`. If the segment is
    /// cut, the segments after it are moved out of the log.
    pub(in crate::log) fn read_segment(
        &mut self,
        bases: &mut Vec<i64>,
        slot: usize,
        (files, is_whole): (&[SegmentFile], bool),
        carried: &mut ReplayState,
    ) -> Result<ScannedSegment> {
        let base = bases.get(slot).copied().unwrap_or_default();
        let next = bases.get(slot + 1).copied();
        let check = |bytes| self.report_progress(bytes);
        let mut contents = self.with_files(|| {
            scan_segment::scan_segment(self.directory, base, next, self.rule, carried, &check)
        })?;
        self.report.segments_read += 1;
        self.report.bytes_read += contents.file_bytes;
        for oddity in contents.oddities.drain(..) {
            self.report.warnings.push(oddity);
        }
        if let Some(damage) = contents.damage.take() {
            let later = bases.get(slot + 1..).unwrap_or(&[]).to_vec();
            self.cut(base, &contents, damage, &later)?;
            bases.truncate(slot + 1);
        }
        // Behind the last one more may be appended, by what is known of its indexes.
        let end = contents.next_offset;
        let is_followed = slot + 1 < bases.len() && !self.is_hole(bases, slot, end);
        let wanted = (files, is_whole);
        self.write_beside((base, is_followed), wanted, &mut contents)?;
        if is_whole {
            let written = self.snapshot_behind(bases, &mut carried.producers);
            if self.holds_files_back(&written) {
                self.settle_indexes()?;
                self.snapshot_behind(bases, &mut carried.producers)?;
            } else {
                written?;
            }
        }
        Ok(contents)
    }

    fn cut(
        &mut self,
        base: i64,
        contents: &ScannedSegment,
        damage: Damage,
        later: &[i64],
    ) -> Result<()> {
        let path = segment_path(&self.directory.path, base, ".log");
        let mut had_batches = damage.batches_follow;
        for &later in later {
            had_batches = had_batches || self.holds_batches(later)?;
        }
        let is_unsynced = self.is_unsynced(contents.next_offset);
        if had_batches && !self.terms.cut_batches && !is_unsynced {
            return Err(damage.error.advise(RECOVER));
        }
        let next = later.first().copied();
        let lost = self.lost((base, next), contents.valid_bytes, damage.batches_follow)?;
        self.settle_indexes()?;
        self.before_cut(had_batches, contents.next_offset)?;
        self.due_snapshots
            .borrow_mut()
            .delete_doubted(self.directory)?;
        let reason = reason_of(&damage.error);
        let bytes = contents.file_bytes - contents.valid_bytes;
        let kept = self.save_truncated_bytes(&path, contents.valid_bytes, bytes)?;
        // The damage goes last, and the segment behind it last but one: a recovery that ends in between is begun anew.
        let cuts_before = self.report.cut.len();
        self.quarantine_segments(later, "it stands behind bytes that are no batch")?;
        let quarantined = self.report.cut.split_off(cuts_before);
        if !self.terms.dry_run {
            let disk = self.directory.disk.as_ref();
            if !quarantined.is_empty() {
                disk.sync_directory(&self.directory.path).map_err(|error| {
                    Error::io(IoCall::SyncDirectory, &self.directory.path, error)
                })?;
            }
            disk.open(&path, Access::Write)
                .and_then(|file| file.set_len(contents.valid_bytes))
                .map_err(|error| Error::io(IoCall::Truncate, &path, error))?;
        }
        self.report.cut.push(Cut {
            path,
            position: contents.valid_bytes,
            bytes,
            reason,
            had_batches: damage.batches_follow,
            records: lost.records,
            offsets: lost.offsets,
            kept,
        });
        self.report.cut.extend(quarantined);
        Ok(())
    }

    /// Counts the whole batches that a cut at `position` removes, if there are any.
    fn lost(&self, place: (i64, Option<i64>), position: u64, had_batches: bool) -> Result<Lost> {
        if !had_batches {
            return Ok(Lost::default());
        }
        count_batches(self.directory, place, position, &|| self.check())
    }

    /// Whether bytes from `offset` on may be missing because power was lost. Unsynced bytes reach the disk in any order, so later ones
    /// may be there.
    pub(in crate::log) fn is_unsynced(&self, offset: i64) -> bool {
        let start = &self.terms.start;
        let is_beyond = |point: i64| offset >= point.max(start.recovery_point);
        !start.clean && start.crashed_beyond.is_some_and(is_beyond)
    }

    /// Moves out the segments after a hole that lost power left: the end of the segment in `slot` did not reach the disk, the next
    /// segment did. Nothing after the hole was promised, because a flush covers everything before it.
    pub(in crate::log) fn cut_behind_hole(
        &mut self,
        bases: &mut Vec<i64>,
        slot: usize,
        end: i64,
    ) -> Result<()> {
        if !self.is_hole(bases, slot, end) {
            return Ok(());
        }
        self.settle_indexes()?;
        self.before_cut(true, end)?;
        let later = bases.split_off(slot + 1);
        self.quarantine_segments(&later, "bytes before it were lost, as with the power")
    }

    fn is_hole(&self, bases: &[i64], slot: usize, end: i64) -> bool {
        let next = bases.get(slot + 1);
        next.is_some_and(|&next| end < next && self.is_unsynced(next - 1))
    }

    /// Whether a segment holds at least one whole batch.
    pub(in crate::log) fn holds_batches(&self, base: i64) -> Result<bool> {
        let segment = scan_segment::open(self.directory, base, None)?;
        let mut walk = Walk::new(segment, 0, SCAN_BYTES, Vec::new());
        match walk.step(true) {
            Ok(Step::Batch(_)) => Ok(true),
            Ok(Step::End(_)) => Ok(false),
            Err(error) if error.is_corruption() => walk.valid_batch_follows(),
            Err(error) => Err(error),
        }
    }

    /// Moves whole segments, the last ones of the log, out of it, the last one first: what is left in between has no hole.
    pub(in crate::log) fn quarantine_segments(
        &mut self,
        bases: &[i64],
        reason: &str,
    ) -> Result<()> {
        let cuts_before = self.report.cut.len();
        for (slot, &base) in bases.iter().enumerate().rev() {
            let next = bases.get(slot + 1).copied();
            self.quarantine_segment((base, next), reason)?;
        }
        let cuts = self.report.cut.get_mut(cuts_before..);
        cuts.unwrap_or_default().reverse();
        Ok(())
    }

    /// Moves a whole segment out of the log, and deletes its indexes and its snapshot.
    fn quarantine_segment(&mut self, (base, next): (i64, Option<i64>), reason: &str) -> Result<()> {
        let path = segment_path(&self.directory.path, base, ".log");
        let disk = self.directory.disk.as_ref();
        let bytes = disk
            .stat(&path)
            .map_err(|error| Error::io(IoCall::Stat, &path, error))?
            .size;
        let had_batches = self.holds_batches(base)?;
        let lost = self.lost((base, next), 0, had_batches)?;
        let kept = self.kept_path(&path, 0)?;
        if !self.terms.dry_run {
            self.before_change()?;
            self.make_cut_folder()?;
            disk.rename(&path, &kept)
                .map_err(|error| Error::io(IoCall::Rename, &path, error))?;
            for suffix in [".index", ".timeindex", ".txnindex", ".snapshot"] {
                interrupted_swaps::remove(disk, &segment_path(&self.directory.path, base, suffix))?;
            }
        }
        self.files.segments.remove(&base);
        self.files.snapshots.remove(&base);
        self.report.cut.push(Cut {
            path,
            position: 0,
            bytes,
            reason: reason.to_owned(),
            had_batches,
            records: lost.records,
            offsets: lost.offsets,
            kept: (bytes > 0).then_some(kept),
        });
        Ok(())
    }

    /// Copies the end of a file to the folder for cut bytes. Returns `None` if it holds only zeros: those are not kept.
    fn save_truncated_bytes(
        &self,
        path: &Path,
        position: u64,
        bytes: u64,
    ) -> Result<Option<PathBuf>> {
        let failed = |error| Error::io(IoCall::Read, path, error);
        let disk = self.directory.disk.as_ref();
        let file = disk.open(path, Access::Read).map_err(failed)?;
        let kept = self.kept_path(path, position)?;
        let mut buffer = vec![0; SCAN_BYTES];
        let mut target = None;
        let mut done = 0;
        while done < bytes {
            let want = (bytes - done).min(buffer.len() as u64) as usize;
            let room = buffer.get_mut(..want).unwrap_or_default();
            let read = file.read_at(room, position + done).map_err(failed)?;
            if read == 0 {
                break;
            }
            let part = buffer.get(..read).unwrap_or(&[]);
            if target.is_none() && part.iter().any(|&byte| byte != 0) {
                if self.terms.dry_run {
                    return Ok(Some(kept));
                }
                self.make_cut_folder()?;
                let file = disk
                    .open(&kept, Access::Replace)
                    .map_err(|error| Error::io(IoCall::Create, &kept, error))?;
                // Leading zeros become a hole in the copy, so that positions stay the same.
                file.set_len(done)
                    .map_err(|error| Error::io(IoCall::Write, &kept, error))?;
                target = Some(file);
            }
            if let Some(target) = &target {
                target
                    .write_at(part, done)
                    .map_err(|error| Error::io(IoCall::Write, &kept, error))?;
            }
            done += read as u64;
        }
        let Some(target) = target else {
            return Ok(None);
        };
        self.sync_kept(&*target, &kept)?;
        Ok(Some(kept))
    }

    /// Keeps a copy of a small file that cannot be parsed.
    pub(in crate::log) fn keep_bytes(
        &mut self,
        path: &Path,
        position: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let kept = self.kept_path(path, position)?;
        if !self.terms.dry_run {
            self.make_cut_folder()?;
            let file = self
                .directory
                .disk
                .open(&kept, Access::Replace)
                .map_err(|error| Error::io(IoCall::Create, &kept, error))?;
            file.write_at(bytes, 0)
                .map_err(|error| Error::io(IoCall::Write, &kept, error))?;
            self.sync_kept(&*file, &kept)?;
        }
        self.report.cut.push(Cut {
            path: path.to_path_buf(),
            position,
            bytes: bytes.len() as u64,
            reason: "it cannot be read".to_owned(),
            had_batches: false,
            records: 0,
            offsets: None,
            kept: Some(kept),
        });
        Ok(())
    }

    /// The copy must be durable before the original is cut.
    fn sync_kept(&self, file: &dyn crate::disk::DiskFile, path: &Path) -> Result<()> {
        file.sync_all()
            .and_then(|()| match path.parent() {
                Some(parent) => self.directory.disk.sync_directory(parent),
                None => Ok(()),
            })
            .map_err(|error| Error::io(IoCall::Sync, path, error))
    }

    fn make_cut_folder(&self) -> Result<()> {
        let path = self.directory.path.join(CUT_FOLDER);
        self.directory
            .disk
            .create_directory(&path)
            .map_err(|error| Error::io(IoCall::Create, &path, error))
    }

    /// Returns an unused name: file and position, with a number if an earlier recovery cut at the same position.
    fn kept_path(&self, path: &Path, position: u64) -> Result<PathBuf> {
        let folder = self.directory.path.join(CUT_FOLDER);
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        let mut kept = folder.join(format!("{name}.{position}"));
        let mut number = 1;
        while is_there(self.directory.disk.as_ref(), &kept)? {
            number += 1;
            kept = folder.join(format!("{name}.{position}.{number}"));
        }
        Ok(kept)
    }

    /// Writes the `wanted` files of a segment if they differ from what the batches say. A correct index is kept without the zeros at its
    /// end, unless opening recovers the whole segment: then it is rewritten as a broker's recovery does.
    fn write_beside(
        &mut self,
        (base, is_followed): (i64, bool),
        (wanted, is_whole): (&[SegmentFile], bool),
        contents: &mut ScannedSegment,
    ) -> Result<()> {
        let present = self.files.segments.get(&base).cloned().unwrap_or_default();
        let last = self.files.segments.last_key_value();
        let is_active = last.is_some_and(|(&last, _)| last == base);
        let disk = Arc::clone(&self.directory.disk);
        for &kind in wanted {
            let bytes = match kind {
                SegmentFile::OffsetIndex => &mut contents.entries.offset,
                SegmentFile::TimeIndex => &mut contents.entries.time,
                _ => &mut contents.transactions,
            };
            let is_there = present.contains(&kind);
            let may_wait = is_active && kind != SegmentFile::TransactionIndex;
            if kind == SegmentFile::TransactionIndex && bytes.is_empty() && !is_there {
                continue;
            }
            let path = segment_path(&self.directory.path, base, kind.extension());
            let before = is_there.then(|| self.index_there(&path)).flatten();
            if before.as_ref() == Some(&*bytes) {
                continue;
            }
            let agreed = match &before {
                Some(before) => {
                    let valid = contents.valid_bytes;
                    let check = || self.check();
                    index_check::judge(self.directory, base, valid, kind, (before, bytes), &check)?
                }
                None => None,
            };
            let was_there = before.is_some();
            let mut sound = None;
            match (agreed, before) {
                (Some(entries), Some(mut before)) => {
                    let has_zeros = before.len() > entries;
                    before.truncate(entries);
                    // The newest entries of a writer that was killed were not in the file yet.
                    let lacks_newest = self.terms.cut_batches
                        && may_wait
                        && bytes.len() > before.len()
                        && bytes.starts_with(&before);
                    if (self.terms.cut_batches || !is_whole) && !lacks_newest {
                        bytes.clone_from(&before);
                        if !has_zeros {
                            continue;
                        }
                    }
                    sound = Some(before);
                }
                (_, before) => {
                    let why = if before.is_some() {
                        "it did not agree with the batches"
                    } else {
                        "it was missing"
                    };
                    self.report.rebuilt.push((path.clone(), why.to_owned()));
                }
            }
            if self.terms.dry_run {
                continue;
            }
            self.before_change()?;
            let place = (&**self.directory, &self.due_snapshots);
            if is_followed {
                let mut due = self.due_indexes.borrow_mut();
                if due.put_off(place, (kind, &path, bytes), sound.is_some())? {
                    continue;
                }
            }
            match self.write_index(&path, bytes) {
                Err(error) if error.is_out_of_room() => {
                    if let Some(entries) = sound {
                        // It is correct: it stays, with the zeros at its end.
                        *bytes = entries;
                    } else {
                        // A wrong index is useless: deleting it makes room for the new one.
                        interrupted_swaps::remove(disk.as_ref(), &path)?;
                        match self.write_index(&path, bytes) {
                            // The active segment begins without one, as after a roll, and gets the entries of what is appended.
                            Err(error) if may_wait && error.is_out_of_room() => {
                                bytes.clear();
                                self.report.rebuilt.pop();
                                if was_there {
                                    self.report.tidied.push(format!(
                                        "{}: removed, as it did not agree with the batches",
                                        path.display()
                                    ));
                                }
                                self.report.warnings.push(format!(
                                    "{}: there is no room for it; look-ups in this segment read more",
                                    path.display()
                                ));
                            }
                            written => written?,
                        }
                    }
                }
                written => written?,
            }
        }
        Ok(())
    }

    /// The index in a place; `None` if it cannot be read.
    fn index_there(&self, path: &Path) -> Option<Vec<u8>> {
        let read = || {
            read_whole(self.directory.disk.as_ref(), path, u64::from(u32::MAX))
                .map_err(|error| Error::io(IoCall::Read, path, error))
        };
        self.with_files(read).ok()
    }

    /// Does once more what failed for want of open files, if those of indexes that wait can be closed.
    fn with_files<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        let done = work();
        if self.holds_files_back(&done) {
            self.settle_indexes()?;
            return work();
        }
        done
    }

    fn holds_files_back<T>(&self, done: &Result<T>) -> bool {
        let is_helped = |error: &Error| {
            error.is_of_process() && !matches!(error.kind(), ErrorKind::Interrupted)
        };
        done.as_ref().is_err_and(is_helped) && !self.due_indexes.borrow().is_empty()
    }

    /// Writes an index durably, at once. Those that wait make room when they replace what is in their places, and are open files until then.
    fn write_index(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let place = (&**self.directory, &self.due_snapshots);
        let is_helped = |error: &Error| error.is_out_of_room() || error.is_of_process();
        match due_indexes::write_now(place, path, bytes) {
            Err(error) if is_helped(&error) && !self.due_indexes.borrow().is_empty() => {
                self.settle_indexes()?;
                due_indexes::write_now(place, path, bytes)
            }
            written => written,
        }
    }
}

/// Counts the whole batches of the segment `base` from `position` on. Only those whose offsets can be of this segment, which ends before
/// `next`: no checksum covers a base offset, and of a batch with a wrong one nothing can be said.
pub(super) fn count_batches(
    directory: &Arc<Directory>,
    (base, next): (i64, Option<i64>),
    position: u64,
    check: &Check<'_>,
) -> Result<Lost> {
    // No broker appends an offset that an index entry of the segment cannot hold.
    let end = next.unwrap_or_else(|| base.saturating_add(i64::from(i32::MAX) + 1));
    let segment = scan_segment::open(directory, base, Some(end))?;
    let mut walk = Walk::new(segment, position, SCAN_BYTES, Vec::new());
    let mut lost = Lost::default();
    loop {
        let from = walk.position();
        match walk.step(true) {
            Ok(Step::Batch(header)) => {
                lost.records += u64::try_from(header.record_count).unwrap_or(0);
                let first = header.base_offset.unwrap_or(header.last_offset);
                let first = lost.offsets.map_or(first, |(first, _)| first);
                lost.offsets = Some((first, header.last_offset));
            }
            Ok(Step::End(_)) => return Ok(lost),
            Err(error) if error.is_corruption() => {
                walk.pass_damage()?;
                if walk.position() == from {
                    return Ok(lost);
                }
            }
            Err(error) => return Err(error),
        }
        check()?;
    }
}

fn reason_of(error: &Error) -> String {
    match error.kind() {
        crate::ErrorKind::CorruptBatch(fault)
            if matches!(fault.fault, Fault::Length { found: 0, .. }) =>
        {
            "zeros behind the last batch".to_owned()
        }
        _ => error.words(),
    }
}
