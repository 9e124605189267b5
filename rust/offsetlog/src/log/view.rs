//! A log at one moment: its segments, its bounds, and what was computed from them.

mod beside;
mod closed;
mod end;
mod listing;
mod stamp;

use super::active_producers::OpenTransactions;
use super::transactions::TxnOutcomes;
use super::writers::Slot;
use super::{Interrupt, LiveOffsets};
use crate::disk::{FileStat, LookedAt, Moment};
use crate::error::Result;
use crate::segment::live_offsets::Roll;
use crate::segment::walk::TornTail;
use crate::segment::{Directory, OpenSegment, Segment, Source};
use beside::{Met, WRITER_WAIT};
use listing::{LISTINGS_MAX, Listing, Names};
use offsetlog_format::leader_epoch::LeaderEpochs;
use offsetlog_format::name::FileState;
use stamp::Stamp;
use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

pub(super) use listing::{not_a_file, refuse_other};
pub(crate) use stamp::{Around, has_holder, is_locked};

/// The end of a log.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) log_end_offset: i64,
    /// Leader epoch of the last batch, -1 if it has none.
    pub(crate) leader_epoch: i32,
    pub(crate) torn: Option<TornTail>,
}

/// A log at one moment.
#[derive(Debug)]
pub(crate) struct View {
    /// Includes the writer's offsets if a writer in this process has the log open.
    directory: Arc<Directory>,
    /// What this process knows of its own changes to the directory, and the version of that when the view was taken.
    slot: Arc<Slot>,
    version: u64,
    /// When the directory was last seen unchanged, in [`moments`].
    looked: LookedAt,
    pub(crate) segments: Vec<Arc<Segment>>,
    base_offsets: Vec<i64>,
    /// Base offsets of segments that an interrupted compaction left with the suffix `.swap`. The next writer or broker renames
    /// them.
    swapped: BTreeSet<i64>,
    /// Offsets of the producer snapshots, ascending.
    pub(crate) snapshots: Vec<i64>,
    pub(crate) log_start_offset: i64,
    /// Our clean-shutdown mark matches the current last segment, so the log start offset is trusted.
    start_is_ours: bool,
    /// A writer in another process was cutting the log, or was killed while it did.
    is_being_cut: bool,
    /// The names in the directory changed until its state file was read.
    has_changed_names: bool,
    pub(crate) high_watermark: Option<i64>,
    pub(crate) warnings: Vec<String>,
    /// The active segment's files. Kept open, so that all users of this view see the same size.
    active: Option<Arc<OpenSegment>>,
    stamp: Stamp,
    /// The directory changed so recently that its modification time might not show another change.
    is_racy: bool,
    /// A file was opened after another process had changed the directory.
    is_mixed: AtomicBool,
    /// A segment was opened by its name after a writer in this process may have replaced it.
    is_replaced: AtomicBool,
    /// The caller wants the state in which it has just found the log, whatever others have done since.
    is_taken_as_found: AtomicBool,
    met: Mutex<Met>,
    end: OnceLock<End>,
    /// Where damage in the active segment begins that hides the end: the offset.
    pub(super) damaged_end: OnceLock<i64>,
    pub(super) leader_epochs: OnceLock<Arc<LeaderEpochs>>,
    pub(super) open_transactions: OnceLock<OpenTransactions>,
    pub(super) txn_outcomes: Mutex<Option<(i64, Arc<TxnOutcomes>)>>,
    /// Greatest timestamp of all segments up to each one, starting at the segment that holds the log start offset.
    pub(super) max_timestamps: Mutex<Vec<i64>>,
    /// Closed segments with open files, in the order in which they were opened.
    opened: Mutex<VecDeque<Arc<Segment>>>,
    max_open_files: usize,
}

/// If another process may write the log, a view answers point look-ups without a new check for this long after the last one: the check
/// stats four files and costs more than the look-up. Checked more often, it shows in the slowest percent of look-ups.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// How often a view is taken again because names changed while it was.
const RENAMED_MAX: u32 = 3;

/// The origin of a view.
struct Origin {
    directory: Arc<Directory>,
    /// Metadata of the directory.
    stat: Option<FileStat>,
    slot: Arc<Slot>,
    version: u64,
    /// The caller has looked at the log dir around it.
    is_looked_around: bool,
}

impl Origin {
    /// Finds out whether this process writes the directory that is now at this path.
    fn of(base: &Arc<Directory>, stat: Option<FileStat>, before: Option<&View>) -> Self {
        let disk = base.disk.as_ref();
        let identity = stat.map(|stat| stat.id);
        let known = before.map(|before| &before.slot).filter(|slot| {
            // If the directory cannot be found, keeps what was known.
            identity.is_none_or(|identity| slot.is_of(disk, identity))
        });
        let slot = known.map_or_else(|| Slot::of(disk, identity), Arc::clone);
        let version = slot.version();
        let ends = slot.ends();
        let is_of = |directory: &&Arc<Directory>| {
            directory.ends.as_ref().map(Arc::as_ptr) == ends.as_ref().map(Arc::as_ptr)
        };
        let kept = before.map(|before| &before.directory);
        let kept = kept.filter(is_of).or_else(|| Some(base).filter(is_of));
        let directory = kept.map(Arc::clone);
        Self {
            directory: directory.unwrap_or_else(|| Arc::new(base.beside(ends))),
            stat,
            slot,
            version,
            is_looked_around: false,
        }
    }
}

impl View {
    /// Lists the directory and reads the log dir's checkpoints. `around` is how the log dir was, and when, if the caller has looked.
    /// While a writer in another process cuts the log, waits for it.
    pub(super) fn take(
        base: &Arc<Directory>,
        before: Option<&Self>,
        mut around: Option<(Around, Moment)>,
        interrupt: Option<&Interrupt>,
    ) -> Result<Arc<Self>> {
        let until = Instant::now() + WRITER_WAIT;
        let mut renamed = 0;
        for _ in 0..LISTINGS_MAX {
            match Self::take_once(base, before, around) {
                // A listed file was renamed in the meantime: lists again.
                Err(error) if error.is_missing_file() => {}
                // So it does, but not as long as many files are renamed, where the names may be older than the state file.
                Ok(view) if view.has_changed_names && renamed < RENAMED_MAX => renamed += 1,
                Ok(view) if view.waits_for_cut(until, interrupt)? => around = None,
                done => return done,
            }
        }
        Self::take_once(base, before, around)
    }

    fn take_once(
        base: &Arc<Directory>,
        before: Option<&Self>,
        around: Option<(Around, Moment)>,
    ) -> Result<Arc<Self>> {
        let looked = around.map_or_else(Moment::now, |(_, looked)| looked);
        let names = Names::new(base, before.is_none());
        let mut origin = Origin::of(base, names.stat(), before);
        origin.is_looked_around = around.is_some();
        let directory = &origin.directory;
        let _files = directory.ends.as_ref().map(|ends| ends.listing());
        // As of a moment ago: the next look sees later changes.
        let mut stamp = Stamp::of(
            directory,
            origin.stat,
            None,
            around.map(|(around, _)| around.checkpoints),
        );
        // A writer in this process counts its own changes, so times do not matter.
        let is_racy = directory.ends.is_none() && stamp.is_racy();
        let is_of_origin = |before: &&Self| {
            !before.is_racy
                && before.version == origin.version
                && Arc::ptr_eq(&before.directory, directory)
        };
        if let Some(before) = before.filter(is_of_origin)
            && let Some(rolls) = before.rolls_until(&stamp)
        {
            // Keeps the closed segments and what was computed from them.
            let closed = before.segments.len().saturating_sub(1);
            let kept = before.segments.get(..closed).unwrap_or(&[]).to_vec();
            let mut listing = Listing {
                base_offsets: before.base_offsets.clone(),
                swapped: before.swapped.clone(),
                snapshots: before.snapshots.clone(),
                warnings: before.warnings.clone(),
                ..Listing::default()
            };
            for roll in rolls {
                // A roll during the listing may already be part of that view.
                let push = |offsets: &mut Vec<i64>| {
                    if offsets.last().is_none_or(|&last| last < roll.base_offset) {
                        offsets.push(roll.base_offset);
                    }
                };
                push(&mut listing.base_offsets);
                if roll.has_snapshot {
                    push(&mut listing.snapshots);
                }
            }
            return Self::build(&origin, &names, stamp, (is_racy, looked), listing, kept);
        }
        let mut listing = names.settled(directory, stamp.directory)?;
        listing.snapshots.sort_unstable();
        listing.finish_swaps(directory)?;
        // The next check notices changes between the first look and the listing.
        stamp.active = None;
        Self::build(
            &origin,
            &names,
            stamp,
            (is_racy, looked),
            listing,
            Vec::new(),
        )
    }

    /// Returns the rolls up to `stamp` if nothing else has changed apart from growth of the active segment and the checkpoints;
    /// otherwise `None`.
    fn rolls_until(&self, stamp: &Stamp) -> Option<Vec<Roll>> {
        match (self.stamp.writer, stamp.writer) {
            // A roll also changes the directory's own metadata, so that is not compared.
            (Some(before), Some(now)) if before.generation != now.generation => {
                let ends = self.directory.ends.as_ref()?;
                ends.rolls_between(before.generation, now.generation)
            }
            (before, now) => {
                let is_same =
                    before.is_some() == now.is_some() && self.stamp.directory == stamp.directory;
                is_same.then(Vec::new)
            }
        }
    }

    fn build(
        origin: &Origin,
        names: &Names<'_>,
        mut stamp: Stamp,
        (mut is_racy, looked): (bool, Moment),
        listing: Listing,
        mut segments: Vec<Arc<Segment>>,
    ) -> Result<Arc<Self>> {
        let directory = &origin.directory;
        let Listing {
            base_offsets,
            swapped,
            snapshots,
            mut warnings,
            has_no_state,
            ..
        } = listing;
        let checked = directory.limits.check_segments(base_offsets.len());
        checked.map_err(|error| error.at_path(&directory.path))?;
        for slot in segments.len()..base_offsets.len() {
            let Some(&base) = base_offsets.get(slot) else {
                break;
            };
            let next = base_offsets.get(slot + 1).copied();
            let mut segment = Segment::new(Arc::clone(directory), base, next);
            if swapped.contains(&base) {
                segment = segment.in_state(FileState::Swap);
            }
            segments.push(Arc::new(segment));
        }
        let active = match segments.last() {
            Some(segment) => Some(segment.open_in(names.opened())?.0),
            None => None,
        };
        stamp.active = match (&active, &directory.ends) {
            (Some(active), None) => Some(active.stat),
            // Beside a writer of this process the view has only the written bytes; the file may be longer.
            (Some(active), Some(_)) => directory.disk.stat(&active.path).ok(),
            (None, _) => None,
        };
        // Bytes that were truncated and rewritten within one clock tick can have the same modification time and the same size.
        is_racy |= directory.ends.is_none() && stamp.active.is_some_and(|stat| stat.is_racy());
        let bounds = super::named_offsets::read_checkpoints(
            directory,
            (&stamp.checkpoints, origin.is_looked_around),
            has_no_state,
        )?;
        let has_changed_names =
            bounds.has_state && directory.disk.stat(&directory.path).ok() != stamp.directory;
        warnings.extend(bounds.warnings);
        let (first, last) = (base_offsets.first().copied(), base_offsets.last().copied());
        warnings.extend(super::named_offsets::not_here(bounds.start_line, first));
        warnings.dedup();
        // A writer knows its log start offset. After a full truncation that starts again at a later offset it can be below the
        // first segment.
        let lowest = if directory.ends.is_some() {
            None
        } else {
            first
        };
        let log_start_offset = bounds.log_start.unwrap_or(0).max(lowest.unwrap_or(0));
        // Shared at once: it is too large to be handed from one to the next.
        Ok(Arc::new(Self {
            directory: Arc::clone(directory),
            slot: Arc::clone(&origin.slot),
            version: origin.version,
            looked: LookedAt::at(looked),
            segments,
            base_offsets,
            swapped,
            snapshots,
            log_start_offset,
            start_is_ours: bounds.closed_with.is_some() && bounds.closed_with == last,
            is_being_cut: bounds.is_being_cut,
            has_changed_names,
            high_watermark: bounds.high_watermark,
            warnings,
            active,
            is_racy,
            is_mixed: AtomicBool::new(false),
            is_replaced: AtomicBool::new(false),
            is_taken_as_found: AtomicBool::new(false),
            met: Mutex::default(),
            stamp,
            end: OnceLock::new(),
            damaged_end: OnceLock::new(),
            leader_epochs: OnceLock::new(),
            open_transactions: OnceLock::new(),
            txn_outcomes: Mutex::new(None),
            max_timestamps: Mutex::new(Vec::new()),
            opened: Mutex::new(VecDeque::new()),
            max_open_files: directory.limits.max_open_files.max(4),
        }))
    }

    /// Whether nothing has changed since this view was taken. This process knows its own changes; otherwise this stats three or
    /// four files and opens none.
    pub(super) fn is_current(&self) -> bool {
        if self.is_racy || !self.is_told_current() {
            return false;
        }
        if self.is_taken_as_found.load(Ordering::Relaxed) {
            return true;
        }
        let looked = Moment::now();
        let is_current = self.stamp_now() == self.stamp;
        if is_current {
            self.looked.set(looked);
        }
        is_current
    }

    /// Whether nothing has changed of what the start and the end of the log depend on: anything but the checkpoint of the high watermarks,
    /// which a running broker writes each 5 seconds. One stat less than [`is_current`](Self::is_current).
    pub(super) fn has_current_bounds(&self) -> bool {
        if self.is_racy || !self.is_told_current() {
            return false;
        }
        self.is_taken_as_found.load(Ordering::Relaxed) || self.stamp.bounds() == self.bounds_now()
    }

    /// Whether this view counts as current until something in this process changes the log.
    pub(super) fn take_as_found(&self, is_taken: bool) {
        self.is_taken_as_found.store(is_taken, Ordering::Relaxed);
    }

    /// Whether the view can answer a point look-up. If this process writes the log: nothing but the end of the active segment
    /// has changed. Otherwise: nothing had changed at most [`LOOK_EVERY`] ago.
    pub(super) fn is_recent(&self) -> bool {
        if self.directory.ends.is_some() {
            return self.is_told_current();
        }
        !self.is_racy && self.is_told_current() && self.looked.is_within(LOOK_EVERY)
    }

    /// Whether nobody in this process has changed more than the end of the log.
    pub(super) fn is_told_current(&self) -> bool {
        let told = self.stamp.writer;
        self.version == self.slot.version()
            && self.directory.ends.as_ref().is_none_or(|ends| {
                !ends.is_closed() && told.is_some_and(|told| told.generation == ends.generation())
            })
    }

    /// Whether all reads through this view saw one state: only the end of the log has changed since it was taken.
    pub(super) fn is_undisturbed(&self) -> bool {
        if !self.is_told_current() {
            return false;
        }
        if self.directory.ends.is_some() {
            return true;
        }
        let now = self.stamp_now();
        let grew = match (self.stamp.active, now.active) {
            (Some(before), Some(now)) => before.id == now.id && before.size <= now.size,
            (before, now) => before == now,
        };
        let rest = |stamp: &Stamp| (stamp.directory, stamp.checkpoints);
        grew && rest(&self.stamp) == rest(&now)
    }

    /// Whether a writer in this process has truncated the end of the log since the view was taken.
    pub(super) fn was_cut(&self) -> bool {
        let told = self.stamp.writer.map(|told| told.cuts);
        let ends = self.directory.ends.as_ref();
        ends.is_some_and(|ends| told != Some(ends.cut_count()))
    }

    /// How often a writer in this process had truncated the end of the log when the view was taken; `None` without a writer.
    pub(super) fn cut_count(&self) -> Option<u64> {
        self.stamp.writer.map(|told| told.cuts)
    }

    /// Whether an open segment is unchanged: its file was neither truncated nor rewritten, and no other file was opened under a
    /// name that had been reused. If another process may write, this stats the open file.
    pub(super) fn is_whole(&self, open: &OpenSegment) -> bool {
        if self.directory.ends.is_some() {
            return self.is_told_current();
        }
        let is_same = match &open.source {
            Source::File(file) => file.stat().is_ok_and(|stat| stat == open.stat),
            // The caller promised that nobody writes.
            Source::Mapped(_) => true,
        };
        is_same && !self.is_mixed.load(Ordering::Relaxed)
    }

    /// Whether an open segment is unchanged, or the active one has grown.
    pub(super) fn has_only_grown(&self, open: &OpenSegment) -> bool {
        let has_grown = match &open.source {
            Source::File(file) => file.stat().is_ok_and(|stat| stat.size > open.stat.size),
            Source::Mapped(_) => false,
        };
        let is_grown_active = open.is_active()
            && has_grown
            && self.directory.ends.is_none()
            && !self.is_mixed.load(Ordering::Relaxed);
        is_grown_active || self.is_whole(open)
    }

    /// Whether a segment of this view was opened by its name after a writer in this process may have replaced it.
    pub(super) fn is_replaced(&self) -> bool {
        self.is_replaced.load(Ordering::Relaxed)
    }

    /// Whether the directory changed so recently that its modification time might not show another change.
    pub(super) const fn is_racy(&self) -> bool {
        self.is_racy
    }

    /// The writer's offsets, if a writer in this process has the log open.
    pub(super) fn ends(&self) -> Option<&Arc<LiveOffsets>> {
        self.directory.ends.as_ref().filter(|ends| {
            // Another writer or another process may have taken over since.
            !ends.is_closed() && self.version == self.slot.version()
        })
    }

    /// What this process does to the directory.
    pub(super) const fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }

    /// The last stable offset that the writer published when the view was taken.
    pub(super) fn told_last_stable(&self) -> Option<i64> {
        self.stamp.writer.map(|told| told.last_stable)
    }

    fn stamp_now(&self) -> Stamp {
        let stat = self.directory.disk.stat(&self.directory.path).ok();
        Stamp::of(&self.directory, stat, self.active_path(), None)
    }

    /// What [`Stamp::bounds`] returns of the stamp now.
    fn bounds_now(&self) -> Stamp {
        let stat = self.directory.disk.stat(&self.directory.path).ok();
        let checkpoints = Some(stamp::bounds_beside(&self.directory));
        Stamp::of(&self.directory, stat, self.active_path(), checkpoints)
    }

    fn active_path(&self) -> Option<&Path> {
        self.active.as_ref().map(|active| active.path.as_path())
    }

    /// Whether another view has the same segments in the same files.
    pub(super) fn has_segments_of(&self, other: &Self) -> bool {
        self.base_offsets == other.base_offsets && self.swapped == other.swapped
    }

    /// Returns the open files of a segment. Above the limit, closes the files that were opened first.
    pub(crate) fn open(&self, segment: &Arc<Segment>) -> Result<Arc<OpenSegment>> {
        if segment.is_active()
            && let Some(active) = &self.active
        {
            return Ok(Arc::clone(active));
        }
        let (open, newly) = segment.open()?;
        if newly {
            // Another process may have reused the name for a file that is not part of this view.
            if self.directory.ends.is_none()
                && self.directory.disk.stat(&self.directory.path).ok() != self.stamp.directory
            {
                self.is_mixed.store(true, Ordering::Relaxed);
            }
            if let (Some(ends), Some(told)) = (&self.directory.ends, self.stamp.writer)
                && !ends.has_only_rolled_since(told.generation)
            {
                self.is_replaced.store(true, Ordering::Relaxed);
            }
            let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
            opened.push_back(Arc::clone(segment));
            if opened.len() > self.max_open_files
                && let Some(oldest) = opened.pop_front()
            {
                oldest.close();
            }
        }
        Ok(open)
    }

    /// Slot of the segment that may hold `offset`: the last one with a base offset at or below it.
    pub(crate) fn floor_slot(&self, offset: i64) -> usize {
        self.base_offsets
            .partition_point(|&base| base <= offset)
            .saturating_sub(1)
    }

    /// The end of the log: after the active segment's last complete batch with a valid checksum. Computed once per view.
    pub(crate) fn end(&self) -> Result<&End> {
        if let Some(end) = self.end.get() {
            return Ok(end);
        }
        let mut end = self.find_end()?;
        // A truncation inside a batch leaves a gap at the end that only the writer knows.
        if let Some(told) = self.stamp.writer {
            end.log_end_offset = told.log_end;
        }
        // If the log ends below its start offset, all records in it were deleted: as when Kafka loads it, the log is empty at
        // its start offset. The same holds while a writer in another process continues after a truncation inside a batch. With
        // a torn tail this does not apply: the torn bytes may have been a batch with records after the start.
        if end.log_end_offset < self.log_start_offset {
            if end.torn.is_some() {
                self.refuse_torn_by_another()?;
            } else if self.start_is_ours || self.is_empty_at_start()? {
                end.log_end_offset = self.log_start_offset;
            }
        }
        Ok(self.end.get_or_init(|| end))
    }

    /// Whether `offset` is within the log.
    pub(crate) fn holds(&self, offset: i64) -> Result<bool> {
        Ok(offset >= self.log_start_offset && offset < self.end()?.log_end_offset)
    }

    /// Exclusive end of the replicated records, clamped to the log.
    pub(crate) fn high_watermark(&self) -> Result<i64> {
        let end = self.end()?.log_end_offset;
        let stored = self.high_watermark.unwrap_or(end);
        Ok(stored.max(self.log_start_offset).min(end))
    }

    fn find_end(&self) -> Result<End> {
        let active = match (&self.active, self.segments.last()) {
            // Its files were closed.
            (None, Some(last)) => Some(self.open(last)?),
            (active, _) => active.clone(),
        };
        let Some(active) = &active else {
            self.is_empty_at_start()?;
            return Ok(End {
                log_end_offset: self.log_start_offset,
                leader_epoch: -1,
                torn: None,
            });
        };
        end::find(active)
    }
}
