//! Opening for writing: from the files of a clean or an unclean end to a log that can be appended to.
//!
//! Source: Kafka's `LogLoader`. Order: leftovers, segments (checked, or read whole), end, leader epochs, producers. Where Kafka
//! trusts or drops without a word, this checks, keeps and tells; what would lose whole batches is refused here and done by
//! [`recover`](super::recover::recover) only.

use super::leftovers::{self, Step as Leftover};
use super::load_producers::ProducerFiles;
use super::place::{self, LOCK_FILE, Place, Start, is_ours};
use super::rebuild::{self, Carried, Contents, Rule};
use super::recover::RecoveryReport;
use super::settle;
use super::tail;
use super::{Appender, WriteOptions, companions, settings};
use crate::config::LogConfig;
use crate::disk::{EntryKind, Lock, LockKind, read_whole};
use crate::error::{Error, ErrorKind, Result};
use crate::log::producers::ProducerStates;
use crate::log::{Interrupt, OpenOptions};
use crate::segment::active::{self, ActiveSegment};
use crate::segment::{Directory, segment_path};
use offsetlog_format::name::{LEADER_EPOCH_CHECKPOINT, LOCK};
use offsetlog_format::{FileName, FileState, LeaderEpochs, SegmentFile};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// `producer.id.expiration.ms` of a broker.
pub(super) const PRODUCER_EXPIRATION_MS: i64 = 86_400_000;

/// How a log is loaded.
#[derive(Debug)]
pub(super) struct Terms {
    pub(super) start: Start,
    /// Whether whole batches behind damage may be cut.
    pub(super) cut_batches: bool,
    pub(super) dry_run: bool,
    pub(super) now: i64,
    pub(super) warnings: Vec<String>,
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
) -> Result<Appender> {
    let place = Place::new(directory, topic, partition);
    let stored = place::read_config(directory)?;
    let config = write
        .config
        .clone()
        .or_else(|| stored.clone())
        .unwrap_or_default();
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
    if write.config.is_some() && stored != write.config {
        place::write_config(directory, &config)?;
    }
    let terms = Terms {
        start,
        cut_batches: false,
        dry_run: false,
        now: (options.clock)(),
        warnings,
    };
    assemble(directory, place, config, terms, options, write, locks)
}

/// Takes the locks of a writer: shared on the log dir, exclusive on the partition.
pub(super) fn lock(directory: &Directory, place: &Place) -> Result<Vec<Lock>> {
    let disk = directory.disk.as_ref();
    let mut locks = Vec::new();
    if let Some(log_dir) = place.log_dir() {
        let path = log_dir.join(LOCK);
        let lock = disk
            .lock(&path, LockKind::Shared)
            .map_err(|error| Error::io("lock", &path, error))?;
        let Some(lock) = lock else {
            let pid = disk.lock_holder(&path).ok().flatten().flatten();
            return Err(Error::new(ErrorKind::Locked { pid }).at_path(&path));
        };
        locks.push(lock);
    }
    let path = directory.path.join(LOCK_FILE);
    let lock = disk
        .lock(&path, LockKind::Exclusive)
        .map_err(|error| Error::io("lock", &path, error))?;
    let Some(lock) = lock else {
        let pid = read_whole(disk, &path, 64)
            .ok()
            .and_then(|text| String::from_utf8(text).ok()?.trim().parse().ok());
        return Err(Error::new(ErrorKind::Locked { pid }).at_path(&path));
    };
    lock.sign(&format!("{}\n", std::process::id()))
        .map_err(|error| Error::io("write", &path, error))?;
    locks.push(lock);
    Ok(locks)
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
    let now = terms.now;
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
    let mut appender = Appender {
        directory: Arc::clone(directory),
        place,
        config,
        clock: super::ClockHolder(Arc::clone(&options.clock)),
        closed: bases,
        active,
        epochs: loaded.epochs,
        producers: loaded.producers,
        snapshots: loaded.snapshots,
        last_snapshot: loaded.last_snapshot,
        workshop: super::Workshop::default(),
        doomed: Vec::new(),
        flusher: super::Flusher::default(),
        data_end: loaded.report.log_end_offset,
        gap: None,
        last_flush: now,
        last_checkpoint: now,
        flush_due: false,
        // What an earlier writer did last may not have reached the disk.
        unsynced: !loaded.report.clean,
        names_changed: true,
        last_expiry: now,
        started_clean: loaded.report.clean && write.config.is_none() && !changed && !is_new,
        report: loaded.report,
        poisoned: None,
        locks,
        ends,
    };
    let log_end = appender.report.log_end_offset;
    appender.ends.set_log_start(loaded.log_start);
    appender.ends.set_recovery_point(loaded.recovery_point);
    appender.publish(log_end);
    if changed || is_new {
        // What was rebuilt counts as written by us: a broker must not believe an older mark.
        appender.mark_unclean()?;
    }
    if is_new {
        appender.active.touch()?;
        companions::make_epochs_file(directory)?;
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
            if is_ours(&entry.name) || entry.kind == EntryKind::Directory {
                continue;
            }
            match FileName::classify(&entry.name) {
                FileName::Segment(name) if name.state == FileState::Live => {
                    if entry.kind != EntryKind::File {
                        return Err(Error::log_dir(
                            &path.join(&entry.name),
                            format!(
                                "{:?} is not a regular file; move it out of the directory",
                                entry.name
                            ),
                        ));
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
                FileName::BadSegmentName(error) => {
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
        let mut carried = Carried {
            producers: ProducerStates::new(),
            epochs: stored_epochs.clone(),
        };
        let from = if self.terms.start.clean {
            bases.len()
        } else {
            let point = self.terms.start.recovery_point;
            // A segment of ours that ends at the recovery point may have been rolled after that: its indexes were not synced then.
            let is_ours = self.terms.start.crashed_beyond.is_some();
            bases
                .partition_point(|&base| base < point || (base == point && !is_ours))
                .saturating_sub(1)
        };
        if !self.terms.start.clean && self.terms.start.same_boot && !self.terms.dry_run {
            settle::settle(&mut self, bases.get(from..).unwrap_or(&[]))?;
        }
        let mut kept = bases.clone();
        let mut last: Option<Contents> = None;
        let mut chain_end = None;
        let mut ends = BTreeMap::new();
        for slot in 0..bases.len() {
            let Some(&base) = kept.get(slot) else { break };
            let is_last = slot + 1 == kept.len();
            let files: &[SegmentFile] = if slot >= from || swapped.contains(&base) {
                &tail::ALL
            } else {
                tail::needed(&mut self, base, is_last)?
            };
            if files.is_empty() {
                continue;
            }
            self.check()?;
            // A dry run writes no snapshots to go on from.
            if !self.terms.dry_run || chain_end.is_none_or(|end| end != slot) {
                carried.producers = self.producers_before(base, &kept)?;
            }
            let contents = self.read_segment(&mut kept, slot, files, &mut carried)?;
            self.cut_behind_hole(&mut kept, slot, contents.next_offset)?;
            chain_end = Some(slot + 1);
            ends.insert(base, contents.next_offset);
            if slot + 1 == kept.len() {
                last = Some(contents);
            }
        }
        self.warn_of_gaps(&kept, &ends)?;
        self.finish(kept, last.as_ref(), carried, &stored_epochs)
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

    /// The leader epochs as stored. A file that is malformed is refused here, as a broker does, and set aside by recovery.
    fn read_epochs(&mut self) -> Result<LeaderEpochs> {
        let path = self.directory.path.join(LEADER_EPOCH_CHECKPOINT);
        let Some(bytes) = crate::log::named_offsets::read_optional(self.directory, &path)? else {
            return Ok(LeaderEpochs::default());
        };
        match LeaderEpochs::parse(&bytes) {
            Ok(epochs) => Ok(epochs),
            Err(error) if self.terms.cut_batches => {
                self.report.rebuilt.push((path.clone(), error.to_string()));
                self.keep_bytes(&path, 0, &bytes)?;
                Ok(LeaderEpochs::default())
            }
            Err(error) => Err(Error::new(error).at_path(&path).advise(RECOVER)),
        }
    }

    fn finish(
        mut self,
        bases: Vec<i64>,
        last: Option<&Contents>,
        mut carried: Carried,
        stored_epochs: &LeaderEpochs,
    ) -> Result<Loaded> {
        let start = self.terms.start;
        let active = match (last, bases.last()) {
            (Some(contents), Some(&base)) => Some(tail::of_contents(contents, base)),
            (None, Some(_)) => self.tail.take(),
            _ => None,
        };
        let first_base = bases.first().copied();
        let log_end = match (&active, bases.last()) {
            (Some(active), Some(_)) => active.next_offset,
            _ => start.log_start_offset.max(0),
        };
        if log_end < start.log_start_offset {
            return self.restart_at(start.log_start_offset, bases, log_end);
        }
        let log_start = start.log_start_offset.max(first_base.unwrap_or(0));
        if let Some(tail) = &active
            && tail.next_offset > log_start
            && start.own.is_none()
        {
            self.complete_epochs(&mut carried.epochs, tail.last_epoch, &bases)?;
        }
        carried.epochs.truncate_from_end(log_end);
        carried.epochs.truncate_from_start(start.log_start_offset);
        if carried.epochs != *stored_epochs && !self.terms.dry_run {
            companions::write_epochs(self.directory, &carried.epochs)?;
        }
        let mut snapshots = std::mem::take(&mut self.files.snapshots);
        let (producers, last_snapshot) = self
            .producer_files(&bases, log_start)
            .rebuild(&mut snapshots, log_end)?;
        self.report.log_start_offset = log_start;
        self.report.log_end_offset = log_end;
        let recovery_point = if start.clean {
            log_end
        } else {
            start.recovery_point.min(log_end)
        };
        Ok(Loaded {
            bases,
            active: active.map(|active| active.contents),
            epochs: carried.epochs,
            producers,
            snapshots,
            last_snapshot,
            log_start,
            recovery_point: recovery_point.max(log_start),
            report: self.report,
        })
    }

    /// The producers' state at the base offset of a segment that is to be read whole, and a snapshot of it: as a broker does
    /// before it recovers a segment.
    fn producers_before(&mut self, base: i64, bases: &[i64]) -> Result<ProducerStates> {
        let mut snapshots = std::mem::take(&mut self.files.snapshots);
        let states = self
            .producer_files(bases, self.terms.start.log_start_offset)
            .before(&mut snapshots, base);
        self.files.snapshots = snapshots;
        states
    }

    fn producer_files<'f>(&'f self, bases: &'f [i64], log_start: i64) -> ProducerFiles<'f> {
        ProducerFiles {
            directory: self.directory,
            bases,
            log_start: log_start.max(bases.first().copied().unwrap_or(0)),
            now: self.terms.now,
            dry_run: self.terms.dry_run,
            drop_stray: true,
            clean: self.terms.start.clean,
        }
    }

    /// Leader epochs that do not reach that of the last batch were lost: a broker goes on without them.
    fn complete_epochs(
        &mut self,
        epochs: &mut LeaderEpochs,
        last_epoch: i32,
        bases: &[i64],
    ) -> Result<()> {
        let known = epochs.latest().map_or(-1, |entry| entry.epoch);
        // Of an empty last segment nothing is known.
        let is_unknown = last_epoch < 0 && known < 0 && bases.len() > 1;
        if known >= last_epoch && !is_unknown {
            return Ok(());
        }
        let found = rebuild::epochs_of(self.directory, bases)?;
        let last_epoch = found.latest().map_or(-1, |entry| entry.epoch);
        if found == *epochs {
            return Ok(());
        }
        *epochs = found;
        let path = self.directory.path.join(LEADER_EPOCH_CHECKPOINT);
        let reason = format!("it knew epochs up to {known}, the last batch has {last_epoch}");
        self.report.rebuilt.push((path, reason));
        Ok(())
    }

    /// A log start offset above the end: a broker throws all segments away. Here only recovery does, and keeps them; but where our
    /// own mark says so, all records were deleted and the last ones truncated.
    fn restart_at(mut self, log_start: i64, bases: Vec<i64>, log_end: i64) -> Result<Loaded> {
        let is_ours = self.terms.start.own.is_some() || self.terms.start.noted_by_us;
        if !self.terms.cut_batches && !is_ours {
            return Err(Error::log_dir(
                &self.directory.path,
                format!("log start offset {log_start} is above the log end offset {log_end}"),
            )
            .advise(RECOVER));
        }
        for base in bases {
            let reason =
                format!("the log start offset {log_start} is above the log end offset {log_end}");
            self.take_out(base, &reason)?;
        }
        if !self.terms.dry_run {
            for &snapshot in &self.files.snapshots {
                let path = segment_path(&self.directory.path, snapshot, ".snapshot");
                leftovers::remove(self.directory.disk.as_ref(), &path)?;
            }
            companions::write_epochs(self.directory, &LeaderEpochs::default())?;
        }
        self.report.log_start_offset = log_start;
        self.report.log_end_offset = log_start;
        Ok(Loaded {
            bases: Vec::new(),
            active: None,
            epochs: LeaderEpochs::default(),
            producers: ProducerStates::new(),
            snapshots: BTreeSet::new(),
            last_snapshot: 0,
            log_start,
            recovery_point: log_start,
            report: self.report,
        })
    }
}

/// What to do about damage that opening does not mend.
pub(super) const RECOVER: &str = "`offsetlog recover --dry-run` shows what recovering would cut, `offsetlog recover` does it and keeps what it cuts";
