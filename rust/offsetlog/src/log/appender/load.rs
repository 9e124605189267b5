//! Opening for writing: from the files of a clean or an unclean end to a log that can be appended to.
//!
//! Source: Kafka's `LogLoader`. Order: leftovers, segments (checked, or read whole), end, leader epochs, producers. Where Kafka
//! trusts or drops without a word, this checks, keeps and tells; what would lose whole batches is refused here and done by
//! [`recover`](super::recover::recover) only.

use super::leftovers::{self, Step as Leftover};
use super::place::{self, LOCK_FILE, Place, Start, is_ours};
use super::rebuild::{Carried, Contents, Rule};
use super::recover::{Progress, RecoveryReport};
use super::settle;
use super::tail;
use super::{Appender, CloseAtEnd, WriteOptions, companions, settings};
use crate::config::LogConfig;
use crate::disk::{Disk, EntryKind, Lock, LockKind, read_whole};
use crate::error::{Error, ErrorKind, Result, is_out_of_room};
use crate::log::producers::ProducerStates;
use crate::log::view::not_a_file;
use crate::log::writers::{RaiseAtEnd, Slot};
use crate::log::{Guard, Interrupt, LogDirFiles, OpenOptions, Surroundings, forget_dead_writers};
use crate::segment::active::{self, ActiveSegment};
use crate::segment::{Directory, segment_path};
use offsetlog_format::name::LOCK;
use offsetlog_format::{FileName, FileState, LeaderEpochs, SegmentFile};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// `producer.id.expiration.ms` of a broker.
pub(super) const PRODUCER_EXPIRATION_MS: i64 = 86_400_000;

/// How a log is loaded.
pub(super) struct Terms {
    pub(super) start: Start,
    /// Whether whole batches behind damage may be cut.
    pub(super) cut_batches: bool,
    pub(super) dry_run: bool,
    pub(super) now: i64,
    pub(super) warnings: Vec<String>,
    pub(super) progress: Option<Progress>,
}

/// What a directory holds.
#[derive(Debug)]
pub(super) struct Loaded {
    /// Base offsets, ascending; none for a new log.
    pub(super) bases: Vec<i64>,
    /// What is in the last segment.
    pub(super) active: Option<active::Contents>,
    pub(super) epochs: LeaderEpochs,
    pub(super) producers: ProducerStates,
    pub(super) snapshots: BTreeSet<i64>,
    pub(super) last_snapshot: i64,
    pub(super) log_start: i64,
    pub(super) recovery_point: i64,
    /// Base offset of the segment behind the last gap that was found after an unclean end and is none that lost power left.
    pub(super) gap: Option<i64>,
    pub(super) report: RecoveryReport,
}

/// One loading under way.
pub(super) struct Loading<'l> {
    pub(super) directory: &'l Arc<Directory>,
    pub(super) rule: Rule,
    pub(super) terms: Terms,
    pub(super) files: Files,
    pub(super) report: RecoveryReport,
    /// The end of the last segment, where it did not have to be read whole.
    pub(super) tail: Option<tail::Tail>,
    pub(super) gap: Option<i64>,
    compacted: bool,
    interrupt: Option<&'l Interrupt>,
}

/// The live files of a directory by what they are.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// Suffixes present, by base offset.
    pub(super) segments: BTreeMap<i64, BTreeSet<SegmentFile>>,
    pub(super) snapshots: BTreeSet<i64>,
}

/// Opens a partition directory for appending.
pub(in crate::log) fn open(
    directory: &Arc<Directory>,
    topic: &str,
    partition: i32,
    options: &OpenOptions,
    write: &WriteOptions,
    shared: Option<&Arc<LogDirFiles>>,
    surroundings: Option<&Arc<Surroundings>>,
) -> Result<Appender> {
    let mut place = Place::new(directory, topic, partition, shared)?;
    let stored = place::read_config(directory.disk.as_ref(), &directory.path)?;
    // Before anything is made: the directory is to be seen as it was found.
    let mut membership = if let Some(known) = surroundings {
        known.membership(&directory.path, topic, partition)?
    } else {
        let (metadata, broker) = (write.metadata.as_deref(), write.broker.as_ref());
        let found = Surroundings::new(options, metadata, &[], broker)?;
        found.membership(&directory.path, topic, partition)?
    };
    if write.config.is_some() {
        membership.keep();
    }
    let guard = Guard {
        membership: Arc::new(membership),
        internal: write.internal_topics.clone(),
        single_replica: write.single_replica,
    };
    place.join(&guard.membership);
    let effective =
        guard
            .membership
            .effective(write.config.as_ref(), stored.as_ref(), &write.defaults)?;
    let config = effective.config().clone();
    let locks = lock(directory, &place)?;
    companions::keep_topic_id(directory, write.topic_id)?;
    let mut warnings = Vec::new();
    let mut start = place.read(&mut warnings)?;
    if let Some(clean) = write.clean {
        start.clean = clean;
        start.own = None;
    }
    if let Some(recovery_point) = write.recovery_point {
        start.recovery_point = recovery_point;
    }
    if let Some(log_start) = write.log_start_offset {
        start.noted_by_us = false;
        start.log_start_offset = log_start;
    }
    // What is made here is ours to keep, whatever is given: the next who opens it finds that out by its settings.
    let is_made = stored.is_none() && !guard.membership.is_brokers() && !write.is_copy;
    if is_made || (write.config.is_some() && stored != write.config) {
        let given = write.config.clone().unwrap_or_default();
        place::write_config(directory.disk.as_ref(), &directory.path, &given)?;
    }
    let terms = Terms {
        start,
        cut_batches: false,
        dry_run: false,
        now: (options.clock)(),
        warnings,
        progress: None,
    };
    let mut appender = assemble(directory, place, config, terms, options, write, locks)?;
    appender.option.clone_from(&write.config);
    appender.stored = stored;
    appender.guard = guard;
    Ok(appender)
}

/// Takes the locks of a writer: shared on the log dir, exclusive on the partition.
pub(super) fn lock(directory: &Directory, place: &Place) -> Result<Vec<Lock>> {
    let disk = directory.disk.as_ref();
    let mut locks = Vec::new();
    if let Some(log_dir) = place.log_dir() {
        locks.push(lock_log_dir(disk, log_dir)?);
    }
    locks.push(lock_partition(disk, &directory.path)?);
    Ok(locks)
}

/// Keeps brokers out of a log dir, and is kept out by one; other processes of ours may have it as well.
pub(crate) fn lock_log_dir(disk: &dyn Disk, log_dir: &Path) -> Result<Lock> {
    forget_dead_writers(disk, log_dir)?;
    let path = log_dir.join(LOCK);
    let lock = disk
        .lock(&path, LockKind::Shared)
        .map_err(|error| Error::io("lock", &path, error))?;
    lock.ok_or_else(|| {
        let pid = disk.lock_holder(&path).ok().flatten().flatten();
        Error::new(ErrorKind::Locked { pid }).at_path(&path)
    })
}

/// Makes this process the only writer of a partition.
pub(crate) fn lock_partition(disk: &dyn Disk, partition: &Path) -> Result<Lock> {
    let path = partition.join(LOCK_FILE);
    let lock = disk
        .lock(&path, LockKind::Exclusive)
        .map_err(|error| Error::io("lock", &path, error))?;
    let Some(lock) = lock else {
        let pid = read_whole(disk, &path, 64)
            .ok()
            .and_then(|text| String::from_utf8(text).ok()?.trim().parse().ok());
        return Err(Error::new(ErrorKind::Locked { pid }).at_path(&path));
    };
    match lock.sign(&format!("{}\n", std::process::id())) {
        // It only helps who finds it locked.
        Err(error) if is_out_of_room(&error) => {}
        signed => signed.map_err(|error| Error::io("write", &path, error))?,
    }
    // Who reads the partition in this process looks again when the lock is given back, whatever was done under it.
    let identity = disk.stat(partition).ok().map(|stat| stat.id);
    Ok(lock.with(RaiseAtEnd::new(Slot::of(disk, identity))))
}

/// Keeps others away from a directory that is about to be removed; `None` where somebody works in it. Makes no file: who works there
/// has made it, and a full disk must not keep anything from going.
pub(crate) fn lock_idle(disk: &dyn Disk, directory: &Path) -> Result<Option<Lock>> {
    let path = directory.join(LOCK_FILE);
    let locked = disk
        .stat(&path)
        .and_then(|_| disk.lock(&path, LockKind::Exclusive));
    match locked {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(Lock::unneeded())),
        locked => locked.map_err(|error| Error::io("lock", &path, error)),
    }
}

/// Loads the directory and builds the writer on it.
pub(super) fn assemble(
    directory: &Arc<Directory>,
    place: Place,
    config: LogConfig,
    terms: Terms,
    options: &OpenOptions,
    write: &WriteOptions,
    locks: Vec<Lock>,
) -> Result<Appender> {
    let (now, durable) = (terms.now, terms.start.durable);
    let is_marked_clean = terms.start.clean || terms.start.own.is_some();
    let loaded = load(directory, &config, terms, options.interrupt.as_ref())?;
    let settings = settings(&config, now);
    let mut bases = loaded.bases;
    let (active, is_new) = match (bases.pop(), &loaded.active) {
        (Some(base), Some(contents)) => (
            ActiveSegment::open(directory, base, &settings, contents)?,
            false,
        ),
        _ => (
            ActiveSegment::create(directory, loaded.log_start, &settings)?,
            true,
        ),
    };
    let ends = directory.ends.clone().unwrap_or_default();
    let changed = loaded.report.is_changed();
    // Where the mark is that of a clean end all is durable.
    let durable = if loaded.report.clean {
        loaded.recovery_point
    } else {
        durable.min(loaded.recovery_point)
    };
    // What an unclean end left behind that point, and the indexes of the segment that ends there.
    let unsettled = if loaded.report.clean {
        Vec::new()
    } else {
        let first = bases.partition_point(|&base| base < durable);
        bases.get(first.saturating_sub(1)..).unwrap_or(&[]).to_vec()
    };
    let mut appender = Appender {
        directory: Arc::clone(directory),
        place,
        config,
        option: None,
        stored: None,
        defaults: write.defaults.clone(),
        upkeep: None,
        guard: Guard::default(),
        clock: super::ClockHolder(Arc::clone(&options.clock)),
        closed: bases,
        active,
        opened_with: settings,
        made_with: BTreeMap::new(),
        epochs: loaded.epochs,
        producers: loaded.producers,
        snapshots: loaded.snapshots,
        last_snapshot: loaded.last_snapshot,
        workshop: super::Workshop::default(),
        doomed: Vec::new(),
        flusher: super::Flusher::default(),
        data_end: loaded.report.log_end_offset,
        cut_inside: None,
        gap: None,
        last_flush: now,
        last_checkpoint: now,
        flush_due: false,
        // What an earlier writer did last may not have reached the disk.
        unsynced: !loaded.report.clean,
        unsettled,
        names_changed: true,
        last_expiry: now,
        started_clean: loaded.report.clean && write.config.is_none() && !changed && !is_new,
        report: loaded.report,
        poisoned: None,
        locks,
        closing: CloseAtEnd(Arc::clone(&ends)),
        ends,
    };
    let log_end = appender.report.log_end_offset;
    appender.place.limit_durable(log_end);
    appender.ends.set_log_start(loaded.log_start);
    appender.ends.set_recovery_point(durable);
    appender.publish(log_end);
    if let Some(base) = loaded.gap.filter(|_| !appender.report.clean) {
        appender.settle_found_gap(base)?;
    }
    if changed || is_new {
        // What was rebuilt counts as written by us: a broker must not believe an older mark.
        match appender.mark_unclean() {
            // There is none. On a full disk it waits for the next change, so that room can be made.
            Err(error) if error.is_out_of_room() && !is_new && !is_marked_clean => {}
            marked => marked?,
        }
    }
    if is_new {
        appender.active.touch()?;
        companions::make_epochs_file(directory)?;
    }
    if loaded.recovery_point > durable {
        // The caller named it, so it is made true.
        let mut job = appender.commit_job()?;
        job.up_to = loaded.recovery_point;
        job.run()?;
    }
    Ok(appender)
}

/// Works out what the directory holds, mending what can be mended.
pub(super) fn load(
    directory: &Arc<Directory>,
    config: &LogConfig,
    terms: Terms,
    interrupt: Option<&Interrupt>,
) -> Result<Loaded> {
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
        compacted: config.is_compacted(),
        interrupt,
    };
    let swapped = loading.tidy()?;
    loading.list()?;
    loading.judge_own_mark();
    loading.load(&swapped)
}

impl Loading<'_> {
    pub(super) fn check(&self) -> Result<()> {
        match self.interrupt {
            Some(interrupt) if interrupt() => Err(Error::new(ErrorKind::Interrupted)),
            _ => Ok(()),
        }
    }

    /// As [`check`](Self::check), after so many more bytes of segments were read.
    pub(super) fn went_on(&self, bytes: u64) -> Result<()> {
        if let Some(progress) = &self.terms.progress {
            progress(bytes);
        }
        self.check()
    }

    fn tidy(&mut self) -> Result<Vec<i64>> {
        let plan = leftovers::plan(self.directory)?;
        for step in &plan.steps {
            self.report.tidied.push(match step {
                Leftover::Remove(name, why) => format!("{name} removed: it {why}"),
                Leftover::Rename(from, to) => format!("{from} renamed to {to}"),
            });
        }
        if self.terms.dry_run {
            if !plan.swapped.is_empty() {
                self.report.warnings.push(
                    "finished output of a compaction or split waits to take its place; what is said of the segments is as they are before that".to_owned(),
                );
            }
            return Ok(Vec::new());
        }
        leftovers::apply(self.directory, &plan)?;
        Ok(plan.swapped)
    }

    fn list(&mut self) -> Result<()> {
        let disk = Arc::clone(&self.directory.disk);
        let path = &self.directory.path;
        let entries = disk
            .list(path)
            .map_err(|error| Error::io("list", path, error))?;
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
                    leftovers::remove(disk.as_ref(), &file)?;
                }
            }
        }
        self.files = files;
        Ok(())
    }

    /// A mark of ours counts while the segment that it names is the last one.
    fn judge_own_mark(&mut self) {
        let last = self.files.segments.last_key_value().map(|(&base, _)| base);
        self.terms.start.own = self.terms.start.own.filter(|&base| last == Some(base));
        self.terms.start.clean |= self.terms.start.own.is_some();
        self.report.clean = self.terms.start.clean;
    }

    fn load(mut self, swapped: &[i64]) -> Result<Loaded> {
        let stored_epochs = self.read_epochs()?;
        let bases: Vec<i64> = self.files.segments.keys().copied().collect();
        let mut carried = Carried::new(stored_epochs.clone());
        let from = if self.terms.start.clean {
            bases.len()
        } else {
            bases
                .partition_point(|&base| base <= self.terms.start.recovery_point)
                .saturating_sub(1)
        };
        let doubtful = self.doubtful(&bases, from);
        if !self.terms.start.clean && self.terms.start.same_boot && !self.terms.dry_run {
            settle::settle(&mut self, &bases)?;
        }
        let mut kept = bases.clone();
        let mut last: Option<Contents> = None;
        let mut chain_end = None;
        let mut ends = BTreeMap::new();
        for slot in 0..bases.len() {
            let Some(&base) = kept.get(slot) else { break };
            let is_last = slot + 1 == kept.len();
            let is_due = slot >= from || swapped.contains(&base);
            let files: &[SegmentFile] = if is_due {
                &tail::ALL
            } else if doubtful == Some(slot) {
                tail::doubtful(&self, base)?
            } else {
                tail::needed(&mut self, base, is_last)?
            };
            if files.is_empty() {
                continue;
            }
            self.check()?;
            let is_whole = files.len() == tail::ALL.len() && (is_due || doubtful != Some(slot));
            // A dry run writes no snapshots to go on from.
            if !self.terms.dry_run || chain_end.is_none_or(|end| end != slot) {
                carried.producers = self.producers_before(base, &kept, is_whole)?;
            }
            let epochs = (!is_whole).then(|| carried.epochs.clone());
            let contents = self.read_segment(&mut kept, slot, (files, is_whole), &mut carried)?;
            carried.epochs = epochs.unwrap_or(carried.epochs);
            self.cut_behind_hole(&mut kept, slot, contents.next_offset)?;
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
        self.warn_of_gaps(&kept, &ends)?;
        self.finish(kept, last.as_ref(), carried, &stored_epochs)
    }

    /// The segment of ours that ends at the recovery point, if its log was not closed: it may have been rolled after that, and its indexes
    /// were not synced then. A broker would not look at it.
    fn doubtful(&self, bases: &[i64], from: usize) -> Option<usize> {
        let start = &self.terms.start;
        let is_ours = !start.clean && start.crashed_beyond.is_some();
        let ends_there = bases.get(from) == Some(&start.recovery_point);
        from.checked_sub(1).filter(|_| is_ours && ends_there)
    }

    /// Tells of offsets that no segment holds: a segment may be missing. A broker says nothing. Compaction makes gaps itself.
    fn warn_of_gaps(&mut self, bases: &[i64], ends: &BTreeMap<i64, i64>) -> Result<()> {
        if self.compacted || self.terms.start.own.is_some() {
            return Ok(());
        }
        let mut gaps = Vec::new();
        for pair in bases.windows(2) {
            let &[base, next_base] = pair else { continue };
            let end = match ends.get(&base) {
                Some(&end) => Some(end),
                None => tail::next_offset(self, base)?,
            };
            if let Some(end) = end.filter(|&end| end > base && end < next_base)
                && tail::is_contiguous(self, base)?
                && tail::is_contiguous(self, next_base)?
            {
                gaps.push((end, next_base - 1));
            }
        }
        if let Some((first, last)) = gaps.first() {
            let more = match gaps.len() - 1 {
                0 => String::new(),
                more => format!(" (and {more} ranges more)"),
            };
            self.report.warnings.push(format!(
                "offsets {first} to {last}{more} are in no segment: a segment may be missing"
            ));
        }
        Ok(())
    }
}

/// What to do about damage that opening does not mend.
pub(super) const RECOVER: &str = "`offsetlog recover --dry-run` shows what recovering would cut, `offsetlog recover` does it and keeps what it cuts";
