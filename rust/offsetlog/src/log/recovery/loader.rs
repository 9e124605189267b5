//! Loads a partition directory for writing: checks or recovers its segments and rebuilds what is kept beside them.
//!
//! Source: Kafka's `LogLoader`. Order: interrupted swaps, segments (checked, or scanned whole), log end, leader epochs, producers. Where
//! Kafka trusts a file or deletes it silently, this checks it, keeps a copy and reports it. Opening refuses to cut whole batches, except
//! those that lost power explains; [`recover`](crate::recover) cuts them.

use super::due_indexes::DueIndexes;
use super::due_snapshots::DueSnapshots;
use super::interrupted_swaps::{self, Step as Leftover};
use super::page_cache_check;
use super::repair_segment::CUT_FOLDER;
use super::report::{Progress, RecoveryReport};
use super::sanity_check;
use super::scan_segment::{ReplayState, Rule, ScannedSegment};
use crate::config::LogConfig;
use crate::disk::{Entry, EntryKind, IoCall};
use crate::error::{Error, ErrorKind, Result};
use crate::log::Interrupt;
use crate::log::named_offsets::not_here;
use crate::log::producers::ProducerStates;
use crate::log::state::{PartitionState, Start, is_ours};
use crate::log::view::not_a_file;
use crate::segment::{Directory, active, segment_path};
use offsetlog_format::{FileName, FileState, LeaderEpochs, SegmentFile, counted};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How a log is loaded.
pub(in crate::log) struct LoadOptions {
    pub(in crate::log) start: Start,
    /// Whether whole batches after damage may be cut.
    pub(in crate::log) cut_batches: bool,
    pub(in crate::log) dry_run: bool,
    pub(in crate::log) now: i64,
    pub(in crate::log) warnings: Vec<String>,
    pub(in crate::log) progress: Option<Progress>,
}

/// What a loaded directory holds.
#[derive(Debug)]
pub(in crate::log) struct Loaded {
    /// Base offsets, ascending; empty for a new log.
    pub(in crate::log) bases: Vec<i64>,
    /// The contents of the last segment.
    pub(in crate::log) active: Option<active::Contents>,
    pub(in crate::log) epochs: LeaderEpochs,
    pub(in crate::log) producers: ProducerStates,
    pub(in crate::log) snapshots: BTreeSet<i64>,
    pub(in crate::log) last_snapshot: i64,
    pub(in crate::log) log_start: i64,
    pub(in crate::log) recovery_point: i64,
    /// Base offset of the segment after the last offset gap between a segment that was scanned and the next one. Gaps that lost power
    /// explains are cut instead.
    pub(in crate::log) gap: Option<i64>,
    pub(in crate::log) report: RecoveryReport,
}

/// A loading under way.
pub(in crate::log) struct Loading<'l> {
    pub(in crate::log) directory: &'l Arc<Directory>,
    pub(in crate::log) rule: Rule,
    pub(in crate::log) terms: LoadOptions,
    pub(in crate::log) files: Files,
    pub(in crate::log) report: RecoveryReport,
    /// The end of the last segment, if that segment was not scanned whole.
    pub(in crate::log) tail: Option<sanity_check::Tail>,
    pub(in crate::log) gap: Option<i64>,
    pub(super) due_indexes: RefCell<DueIndexes>,
    pub(super) due_snapshots: RefCell<DueSnapshots>,
    compacted: bool,
    interrupt: Option<&'l Interrupt>,
    /// Where losses and unfinished changes are noted; `None` in a dry run.
    pub(in crate::log) place: Option<&'l PartitionState>,
}

/// The live files of a directory, by kind.
#[derive(Debug, Default)]
pub(in crate::log) struct Files {
    /// The kinds of files present, by base offset.
    pub(in crate::log) segments: BTreeMap<i64, BTreeSet<SegmentFile>>,
    pub(in crate::log) snapshots: BTreeSet<i64>,
}

/// Loads a directory, and repairs it as far as `terms` allow.
pub(in crate::log) fn load(
    directory: &Arc<Directory>,
    config: &LogConfig,
    terms: LoadOptions,
    place: &PartitionState,
    interrupt: Option<&Interrupt>,
) -> Result<Loaded> {
    let place = (!terms.dry_run).then_some(place);
    let due_snapshots = RefCell::new(DueSnapshots::new(terms.start.same_boot));
    let mut loading = Loading {
        directory,
        rule: Rule {
            index_bytes: config.segment_index_bytes(),
            index_interval: config.index_interval_bytes(),
        },
        report: RecoveryReport {
            clean: terms.start.clean,
            dry_run: terms.dry_run,
            warnings: terms.warnings.clone(),
            ..RecoveryReport::default()
        },
        terms,
        files: Files::default(),
        tail: None,
        gap: None,
        due_indexes: RefCell::default(),
        due_snapshots,
        compacted: config.is_compacted(),
        interrupt,
        place,
    };
    let loaded = loading.complete_swaps().and_then(|(swapped, entries)| {
        loading.sort_files(entries)?;
        loading.judge_own_mark();
        loading.load(&swapped)
    });
    match place {
        Some(place) => loaded.map_err(|error| with_lost_mark(place, error)),
        None => loaded,
    }
}

/// The error of a recovery that cannot go on, with what it has changed already.
pub(in crate::log) fn with_lost_mark(place: &PartitionState, error: Error) -> Error {
    if place.had_no_room_for_marker() {
        error.advise(NO_MARK)
    } else {
        error
    }
}

impl Loading<'_> {
    pub(in crate::log) fn check(&self) -> Result<()> {
        match self.interrupt {
            Some(interrupt) if interrupt() => Err(Error::new(ErrorKind::Interrupted)),
            _ => Ok(()),
        }
    }

    /// Where `recover` notes that it has begun. Opening does what a broker does that finds the mark of a clean stop.
    pub(in crate::log) fn recovered_place(&self) -> Option<&PartitionState> {
        self.place.filter(|_| self.terms.cut_batches)
    }

    /// Called before a file is changed.
    pub(in crate::log) fn before_change(&self) -> Result<()> {
        match self.recovered_place() {
            Some(place) => place.note_recovery(),
            None => Ok(()),
        }
    }

    /// Called before bytes are cut that hold batches, or that leave the log with the end `end`. When they are gone, only what this notes
    /// can tell of them.
    pub(in crate::log) fn before_cut(&self, had_batches: bool, end: i64) -> Result<()> {
        self.before_change()?;
        let promised = self.terms.start.promised();
        let is_lost = had_batches || promised.is_some_and(|line| line > end);
        if let Some(place) = self.place.filter(|_| is_lost) {
            place.forget_marker()?;
        }
        Ok(())
    }

    /// Reports this number of segment bytes read since the last call, then does what [`check`](Self::check) does.
    pub(in crate::log) fn report_progress(&self, bytes: u64) -> Result<()> {
        if let Some(progress) = &self.terms.progress {
            progress(bytes);
        }
        self.check()
    }

    /// Returns the base offsets of the segments that were put in place, and what the directory holds now.
    fn complete_swaps(&mut self) -> Result<(Vec<i64>, Vec<Entry>)> {
        let mut plan = interrupted_swaps::plan(self.directory)?;
        // Opening does what a broker does, a minute after the truncation.
        if self.terms.cut_batches {
            plan.keep_truncated(self.directory)?;
        }
        for step in &plan.steps {
            self.report.tidied.push(match step {
                Leftover::Remove(name, why) => format!("{name} removed: it {why}"),
                Leftover::Rename(from, to) => format!("{from} renamed to {to}"),
                Leftover::Keep(from, to) => format!(
                    "{from} moved to {CUT_FOLDER}/{to}: a truncation removed it; `offsetlog salvage --include-truncated` takes it back"
                ),
            });
        }
        if self.terms.dry_run {
            if !plan.swapped.is_empty() {
                self.report.warnings.push(
                    "finished output of a compaction or split waits to take its place; what is said of the segments is as they are before that".to_owned(),
                );
            }
            return Ok((Vec::new(), plan.entries));
        }
        if plan.steps.is_empty() {
            return Ok((plan.swapped, plan.entries));
        }
        self.before_change()?;
        interrupted_swaps::apply(self.directory, &plan)?;
        let path = &self.directory.path;
        let entries = self.directory.disk.list(path);
        let entries = entries.map_err(|error| Error::io(IoCall::List, path, error))?;
        Ok((plan.swapped, entries))
    }

    fn sort_files(&mut self, entries: Vec<Entry>) -> Result<()> {
        let disk = Arc::clone(&self.directory.disk);
        let path = &self.directory.path;
        let mut files = Files::default();
        for entry in entries {
            if is_ours(&entry.name) {
                continue;
            }
            match FileName::classify(&entry.name) {
                FileName::Segment(name) if name.state == FileState::Live => {
                    if entry.kind != EntryKind::File {
                        return Err(not_a_file(path, &entry.name));
                    }
                    if name.file == SegmentFile::ProducerSnapshot {
                        files.snapshots.insert(name.offset);
                    } else {
                        files
                            .segments
                            .entry(name.offset)
                            .or_default()
                            .insert(name.file);
                    }
                }
                FileName::BadSegmentName(error) if entry.kind != EntryKind::Directory => {
                    return Err(Error::log_dir(
                        &path.join(&entry.name),
                        format!(
                            "file {:?} is named like a segment but {}; move it out of the directory",
                            entry.name, error.fault
                        ),
                    ));
                }
                _ => {}
            }
        }
        let checked = self.directory.limits.check_segments(files.segments.len());
        checked.map_err(|error| error.at_path(path))?;
        let orphans: Vec<i64> = files
            .segments
            .iter()
            .filter(|(_, kinds)| !kinds.contains(&SegmentFile::Log))
            .map(|(&base, _)| base)
            .collect();
        for base in orphans {
            for kind in files.segments.remove(&base).unwrap_or_default() {
                let file = segment_path(path, base, kind.extension());
                self.report.tidied.push(format!(
                    "{base:020}{} removed: there is no .log beside it",
                    kind.extension()
                ));
                if !self.terms.dry_run {
                    self.before_change()?;
                    interrupted_swaps::remove(disk.as_ref(), &file)?;
                }
            }
        }
        self.files = files;
        Ok(())
    }

    /// Our clean-shutdown mark counts only if the segment that it names is still the last one.
    fn judge_own_mark(&mut self) {
        let last = self.files.segments.last_key_value().map(|(&base, _)| base);
        self.terms.start.own = self.terms.start.own.filter(|&base| last == Some(base));
        self.terms.start.clean |= self.terms.start.own.is_some();
        self.report.clean = self.terms.start.clean;
    }

    fn load(mut self, swapped: &[i64]) -> Result<Loaded> {
        let stored_epochs = self.read_epochs()?;
        let bases: Vec<i64> = self.files.segments.keys().copied().collect();
        let not_here = not_here(self.terms.start.line, bases.first().copied());
        self.report.warnings.extend(not_here);
        self.tell_lost_epochs(&stored_epochs, &bases)?;
        let mut carried = ReplayState::new(stored_epochs.clone());
        let from = if self.terms.start.clean {
            bases.len()
        } else {
            bases
                .partition_point(|&base| base <= self.terms.start.recovery_point)
                .saturating_sub(1)
        };
        let doubtful = self.doubtful(&bases, from);
        if !self.terms.start.clean && self.terms.start.same_boot && !self.terms.dry_run {
            page_cache_check::settle(&mut self, &bases)?;
        }
        let mut kept = bases.clone();
        let looked = self.look_at_segments(swapped, from, doubtful, (&mut kept, &mut carried));
        let is_interrupted = |error: &Error| matches!(error.kind(), ErrorKind::Interrupted);
        let settled = if looked.as_ref().is_err_and(is_interrupted) {
            // It is to end now, and not when a slow disk has synced them.
            self.due_indexes.borrow_mut().forget(self.directory);
            Ok(())
        } else {
            // What is right is kept, wherever this ended.
            self.settle_indexes()
        };
        let (last, ends) = looked?;
        settled?;
        self.warn_of_gaps(&kept, &ends)?;
        self.finish(kept, last.as_ref(), carried, &stored_epochs)
    }

    /// Checks or scans each segment, in their order. Returns the last one if it was scanned, and the ends of those that were.
    fn look_at_segments(
        &mut self,
        swapped: &[i64],
        from: usize,
        doubtful: Option<usize>,
        (kept, carried): (&mut Vec<i64>, &mut ReplayState),
    ) -> Result<(Option<ScannedSegment>, BTreeMap<i64, i64>)> {
        let bases = kept.clone();
        let mut last: Option<ScannedSegment> = None;
        let mut chain_end = None;
        let mut ends = BTreeMap::new();
        for slot in 0..bases.len() {
            let Some(&base) = kept.get(slot) else { break };
            let is_last = slot + 1 == kept.len();
            let is_due = slot >= from || swapped.contains(&base);
            let files: &[SegmentFile] = if is_due {
                &sanity_check::ALL
            } else if doubtful == Some(slot) {
                sanity_check::indexes_to_verify(self, base)?
            } else {
                sanity_check::indexes_to_rebuild(self, base, is_last)?
            };
            if files.is_empty() {
                continue;
            }
            self.check()?;
            let is_whole =
                files.len() == sanity_check::ALL.len() && (is_due || doubtful != Some(slot));
            // A dry run writes no snapshots, so the state carried over from the previous segment is used.
            if !self.terms.dry_run || chain_end.is_none_or(|end| end != slot) {
                carried.producers = self.producers_before(base, kept, is_whole)?;
            }
            let epochs = (!is_whole).then(|| carried.epochs.clone());
            let contents = self.read_segment(kept, slot, (files, is_whole), carried)?;
            if let Some(epochs) = epochs {
                carried.epochs = epochs;
            }
            self.cut_behind_hole(kept, slot, contents.next_offset)?;
            let next = kept.get(slot + 1).copied();
            self.gap = next
                .filter(|&next| contents.next_offset < next)
                .or(self.gap);
            chain_end = Some(slot + 1);
            ends.insert(base, contents.next_offset);
            if slot + 1 == kept.len() {
                last = Some(contents);
            }
        }
        Ok((last, ends))
    }

    /// Puts in place the indexes that wait for it.
    pub(super) fn settle_indexes(&self) -> Result<()> {
        let place = (&**self.directory, &self.due_snapshots);
        self.due_indexes.borrow_mut().settle(place)
    }

    /// Our writer's segment that ends at the recovery point, after an unclean shutdown. The writer may have rolled it after that flush,
    /// without syncing its indexes. A broker would not check it.
    fn doubtful(&self, bases: &[i64], from: usize) -> Option<usize> {
        let start = &self.terms.start;
        let is_ours = !start.clean && start.crashed_beyond.is_some();
        let ends_there = bases.get(from) == Some(&start.recovery_point);
        from.checked_sub(1).filter(|_| is_ours && ends_there)
    }

    /// Warns of offsets that are in no segment: a segment may be missing. A broker does not check this. Compaction makes such gaps
    /// itself.
    fn warn_of_gaps(&mut self, bases: &[i64], ends: &BTreeMap<i64, i64>) -> Result<()> {
        if self.compacted || self.terms.start.own.is_some() {
            return Ok(());
        }
        let mut gaps = Vec::new();
        for pair in bases.windows(2) {
            let &[base, next_base] = pair else { continue };
            let end = match ends.get(&base) {
                Some(&end) => Some(end),
                None => sanity_check::next_offset(self, base)?,
            };
            if let Some(end) = end.filter(|&end| end > base && end < next_base)
                && sanity_check::is_contiguous(self, base)?
                && sanity_check::is_contiguous(self, next_base)?
            {
                gaps.push((end, next_base - 1));
            }
        }
        if let Some((first, last)) = gaps.first() {
            let more = match gaps.len() - 1 {
                0 => String::new(),
                more => format!(" (and {} more)", counted(more, "range")),
            };
            self.report.warnings.push(format!(
                "offsets {first} to {last}{more} are in no segment: a segment may be missing"
            ));
        }
        Ok(())
    }
}

/// The advice for damage that opening does not repair.
pub(in crate::log) const RECOVER: &str = "`offsetlog recover --dry-run` shows what recovering would cut, `offsetlog recover` does it and keeps what it cuts";

const NO_MARK: &str = "for want of room the log dir has lost its mark of a clean stop: its broker recovers all its logs when it starts";

#[cfg(test)]
#[path = "loader_tests.rs"]
mod tests;
