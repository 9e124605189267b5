//! Checks partitions and log dirs for damage without changing anything.

mod folder;
mod report;
mod segment;

use super::recovery::Progress;
use super::state::{CONFIG_FILE, LOCK_FILE};
use super::view::{has_holder, is_locked, refuse_other};
use super::{Log, OpenOptions, named_offsets};
use crate::codec::Decompressor;
use crate::config::LogConfig;
use crate::disk::{Disk, EntryKind, FileStat, IoCall};
use crate::error::{Error, ErrorKind, Result};
use crate::folder::is_there;
use crate::segment::{Directory, segment_path};
use offsetlog_format::leader_epoch::LeaderEpochs;
use offsetlog_format::name::{
    DirectoryName, DirectoryState, LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA,
};
use offsetlog_format::partition_metadata::PartitionMetadata;
use offsetlog_format::snapshot::read_producer_snapshot;
use offsetlog_format::{FileName, FileState, SegmentFile};
use report::Effect;
pub use report::{DamageReport, Finding, Severity};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Bytes between two checks for interruption.
const CHECK_BYTES: u64 = 4 << 20;

/// Options of [`verify`].
#[derive(Clone, Default)]
pub struct VerifyOptions {
    /// Called every few MiB with the number of segment bytes read since the last call.
    pub progress: Option<Progress>,
}

impl std::fmt::Debug for VerifyOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerifyOptions").finish_non_exhaustive()
    }
}

/// Checks partitions, or log dirs with all their partitions: framing, checksums, order and ranges of batches, their records,
/// indexes against the log, leader epochs, transactions, snapshots, checkpoints, names. Takes no lock and changes nothing.
///
/// # Errors
/// `Io`; `Limit` for a batch above `max_batch_bytes`; `Interrupted`; `LogDir` if a path is neither a partition nor a log dir.
/// Damage is in the report and not an error.
pub fn verify<P: AsRef<Path>>(
    paths: &[P],
    options: &OpenOptions,
    verify: &VerifyOptions,
) -> Result<DamageReport> {
    let mut report = DamageReport::default();
    let mut seen = BTreeSet::new();
    for path in paths {
        let path = std::path::absolute(path)
            .map_err(|error| Error::io(IoCall::Resolve, path.as_ref(), error))?;
        folder::check(&path, options, verify, &mut report, &mut seen)?;
    }
    Ok(report)
}

impl Log {
    /// Runs [`verify()`] on this partition.
    ///
    /// # Errors
    /// See [`verify()`].
    pub fn verify(&self, options: &VerifyOptions) -> Result<DamageReport> {
        verify(&[self.path()], self.options(), options)
    }
}

/// The check of one partition.
struct Partition<'a> {
    directory: Arc<Directory>,
    options: &'a OpenOptions,
    verify: &'a VerifyOptions,
    report: &'a mut DamageReport,
    decompressor: Decompressor,
    buffer: Vec<u8>,
    /// Bytes read since the last progress call.
    unsaid: u64,
    /// The highest leader epoch so far.
    leader_epoch: i32,
    epochs: Option<LeaderEpochs>,
    /// Files that were already reported as unreadable.
    unread: BTreeSet<PathBuf>,
}

/// How many times a partition is checked if somebody changes it meanwhile.
const LOOKS_MAX: usize = 5;

/// How long a writer may be in the midst of a change, for instance in a sync between the log and its index.
const SETTLES: Duration = Duration::from_secs(1);
/// How often the directory is looked at meanwhile.
const SETTLES_EVERY: Duration = Duration::from_millis(10);

/// Checks one partition directory. If the directory changes during a check that finds damage, or soon afterwards beside a writer,
/// repeats the check and reports only findings that every check had.
fn partition(
    path: &Path,
    options: &OpenOptions,
    verify: &VerifyOptions,
    report: &mut DamageReport,
) -> Result<()> {
    let mut earlier: Option<DamageReport> = None;
    for look in 1..=LOOKS_MAX {
        let before = files_of(options, path);
        let mut found = DamageReport::default();
        let checked = look_at(path, options, verify, &mut found);
        let changed = || changes(path, options, &before);
        match checked {
            // A file was deleted during the check.
            Err(error) if error.is_missing_file() && look < LOOKS_MAX && changed() => continue,
            checked => checked?,
        }
        if let Some(earlier) = &earlier {
            found.keep_common(earlier);
        }
        if look == LOOKS_MAX || !found.is_damaged() || !changed() {
            report.take(found);
            break;
        }
        earlier = Some(found);
    }
    Ok(())
}

/// Whether a broker or a writer of ours holds the partition or its log dir.
fn is_held(disk: &dyn Disk, path: &Path) -> Result<bool> {
    let in_log_dir = || {
        path.parent()
            .map_or(Ok(false), |log_dir| is_locked(disk, log_dir))
    };
    Ok(has_holder(disk, &path.join(LOCK_FILE))? || in_log_dir()?)
}

/// Whether the directory is another one than `before`. If somebody writes it, waits until it is.
fn changes(path: &Path, options: &OpenOptions, before: &[(String, Option<FileStat>)]) -> bool {
    let disk = options.disk.as_ref();
    let is_interrupted = || options.interrupt.as_ref().is_some_and(|asks| asks());
    let until = Instant::now() + SETTLES;
    loop {
        if before != files_of(options, path) {
            return true;
        }
        // Where nobody can say it, somebody may.
        if !is_held(disk, path).unwrap_or(true) || Instant::now() >= until || is_interrupted() {
            return false;
        }
        thread::sleep(SETTLES_EVERY);
    }
}

/// Names, sizes and times of a directory's files, to detect changes.
fn files_of(options: &OpenOptions, path: &Path) -> Vec<(String, Option<FileStat>)> {
    let disk = options.disk.as_ref();
    let mut files: Vec<_> = disk
        .list(path)
        .unwrap_or_default()
        .into_iter()
        .map(|entry| (disk.stat(&path.join(&entry.name)).ok(), entry.name))
        .map(|(stat, name)| (name, stat))
        .collect();
    files.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    files
}

fn look_at(
    path: &Path,
    options: &OpenOptions,
    verify: &VerifyOptions,
    report: &mut DamageReport,
) -> Result<()> {
    let directory = match super::SetAside::of(path) {
        Some(aside) => aside.directory(options),
        None => super::open::directory(path, options, false, None)?,
    };
    refuse_other(directory.disk.as_ref(), &directory.path)?;
    report.partitions += 1;
    let (decompressor, buffer) = segment::tools();
    let mut partition = Partition {
        directory,
        options,
        verify,
        report,
        decompressor,
        buffer,
        unsaid: 0,
        leader_epoch: -1,
        epochs: None,
        unread: BTreeSet::new(),
    };
    partition.check()
}

impl Partition<'_> {
    fn add(&mut self, finding: Finding) {
        self.report.add(finding);
    }

    /// Reports that a file cannot be read. Returns errors that end the whole check.
    fn unreadable(&mut self, path: &Path, error: Error) -> Result<()> {
        if error.is_of_process() || error.is_missing_file() {
            return Err(error);
        }
        if self.unread.insert(path.to_path_buf()) {
            self.add(Effect::unread(path, &error));
        }
        Ok(())
    }

    /// Returns a companion file's bytes; `None` if it does not exist or cannot be read. Reports the latter.
    fn read_file(&mut self, path: &Path) -> Option<Vec<u8>> {
        if self.unread.contains(path) {
            return None;
        }
        match named_offsets::read_optional(&self.directory, path) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.unread.insert(path.to_path_buf());
                self.add(Effect::unread(path, &error));
                None
            }
        }
    }

    fn report_progress(&mut self, bytes: u64) -> Result<()> {
        self.report.bytes += bytes;
        self.unsaid += bytes;
        if self.unsaid >= CHECK_BYTES {
            self.say()?;
        }
        Ok(())
    }

    fn say(&mut self) -> Result<()> {
        let bytes = std::mem::take(&mut self.unsaid);
        if let Some(progress) = &self.verify.progress {
            progress(bytes);
        }
        match &self.options.interrupt {
            Some(interrupt) if interrupt() => Err(Error::new(ErrorKind::Interrupted)),
            _ => Ok(()),
        }
    }

    fn check(&mut self) -> Result<()> {
        let (bases, snapshots) = self.names()?;
        self.companions();
        let (mut end, mut is_damaged) = (None, false);
        for (slot, &base) in bases.iter().enumerate() {
            if let Some(end) = end.filter(|&end| end < base) {
                let path = segment_path(&self.directory.path, base, ".log");
                let reason = format!("offsets {end} to {} are in no segment", base - 1);
                let mut finding = Effect::NOTHING.finding(Severity::Note, "Gap", &path, reason);
                finding.offset = Some(end);
                self.add(finding);
            }
            let walked = self.segment(base, bases.get(slot + 1).copied())?;
            end = Some(walked.end.unwrap_or(base));
            is_damaged = walked.is_damaged();
        }
        if let (Some(&last), true) = (bases.last(), bases.len() > 1)
            && !snapshots.iter().any(|&offset| offset >= last)
        {
            let path = segment_path(&self.directory.path, last, ".snapshot");
            let reason =
                "there is no producer snapshot at or behind the active segment's first offset";
            self.add(Effect::SNAPSHOT.finding(Severity::Warning, "MissingFile", &path, reason));
        }
        if let Some(end) = end {
            let closed_with = bases.last().copied().filter(|_| !is_damaged);
            self.bounds(bases.first().copied(), end, closed_with)?;
        }
        if self.leader_epoch >= 0 && self.epochs.is_none() {
            let path = self.directory.path.join(LEADER_EPOCH_CHECKPOINT);
            if !is_there(self.directory.disk.as_ref(), &path)? {
                let reason = format!(
                    "there is none, and batches have leader epochs up to {}",
                    self.leader_epoch
                );
                self.add(Effect::NO_EPOCHS.finding(
                    Severity::Warning,
                    "MissingFile",
                    &path,
                    reason,
                ));
            }
        }
        self.say()
    }

    /// Lists the directory and reports odd names. Returns the offsets of segments and of snapshots, ascending.
    fn names(&mut self) -> Result<(Vec<i64>, Vec<i64>)> {
        let folder = self.directory.path.clone();
        let entries = self.directory.disk.list(&folder);
        let entries = entries.map_err(|error| Error::io(IoCall::List, &folder, error))?;
        let (mut bases, mut snapshots) = (Vec::new(), Vec::new());
        let mut entries: Vec<_> = entries
            .into_iter()
            .map(|entry| (entry.name, entry.kind))
            .collect();
        entries.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        for (name, kind) in entries {
            let path = folder.join(&name);
            if kind != EntryKind::File {
                if !matches!(FileName::classify(&name), FileName::Other) {
                    let reason = match kind {
                        EntryKind::Directory => "a folder where a file is expected",
                        _ => "a link, a pipe or a device where a file is expected",
                    };
                    self.unread.insert(path.clone());
                    let finding = Effect::NOT_A_FILE;
                    self.add(finding.finding(Severity::Error, "LogDir", &path, reason));
                }
                continue;
            }
            match FileName::classify(&name) {
                FileName::Segment(file) => match (file.state, file.file) {
                    (FileState::Live, SegmentFile::Log) => bases.push(file.offset),
                    (FileState::Live, SegmentFile::ProducerSnapshot) => snapshots.push(file.offset),
                    (FileState::Live, _) => {}
                    (FileState::Swap, _) => {
                        let reason = "output of a compaction that was about to take its place";
                        self.add(Effect::SWAP.finding(Severity::Note, "Leftover", &path, reason));
                    }
                    (FileState::Deleted | FileState::Cleaned, _) => {
                        let reason =
                            "waits for its deletion, or is unfinished output of a compaction";
                        self.add(Effect::DOOMED.finding(Severity::Note, "Leftover", &path, reason));
                    }
                },
                FileName::BadSegmentName(error) => {
                    let reason = format!("named like a segment's file, but {}", error.fault);
                    self.add(Effect::NAME.finding(Severity::Error, "LogDir", &path, reason));
                }
                _ => {}
            }
        }
        self.orphans(&folder, &bases)?;
        for &offset in &snapshots {
            self.snapshot(offset);
        }
        Ok((bases, snapshots))
    }

    /// Reports indexes without a `.log`.
    fn orphans(&mut self, folder: &Path, bases: &[i64]) -> Result<()> {
        let entries = self.directory.disk.list(folder);
        let mut entries = entries.map_err(|error| Error::io(IoCall::List, folder, error))?;
        // The system lists in any order.
        entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        for entry in entries {
            if let FileName::Segment(file) = FileName::classify(&entry.name)
                && file.state == FileState::Live
                && matches!(
                    file.file,
                    SegmentFile::OffsetIndex
                        | SegmentFile::TimeIndex
                        | SegmentFile::TransactionIndex
                )
                && bases.binary_search(&file.offset).is_err()
            {
                let path = folder.join(&entry.name);
                let reason = "an index without its .log";
                self.add(Effect::DOOMED.finding(Severity::Warning, "Leftover", &path, reason));
            }
        }
        Ok(())
    }

    fn snapshot(&mut self, offset: i64) {
        let path = segment_path(&self.directory.path, offset, ".snapshot");
        if let Some(bytes) = self.read_file(&path)
            && let Err(error) = read_producer_snapshot(&bytes)
        {
            let at = error.at as u64;
            let error = Error::from(error).at_position(at).at_offset(offset);
            let mut finding = Effect::SNAPSHOT.error(&path, &error);
            finding.kind = "CorruptSnapshot";
            self.add(finding);
        }
    }

    /// Checks the leader epoch checkpoint, `partition.metadata` and offsetlog's own settings file.
    fn companions(&mut self) {
        let path = self.directory.path.join(LEADER_EPOCH_CHECKPOINT);
        if let Some(bytes) = self.read_file(&path) {
            match LeaderEpochs::parse_strict(&bytes) {
                Ok(epochs) => self.epochs = Some(epochs),
                Err(error) => {
                    let mut finding = Effect::EPOCHS.error(&path, &Error::from(error));
                    finding.kind = "Checkpoint";
                    self.add(finding);
                }
            }
        }
        let path = self.directory.path.join(PARTITION_METADATA);
        if let Some(bytes) = self.read_file(&path)
            && let Err(error) = PartitionMetadata::parse(&bytes)
        {
            self.add(Effect::METADATA.error(&path, &Error::from(error)));
        }
        let path = self.directory.path.join(CONFIG_FILE);
        if let Some(bytes) = self.read_file(&path)
            && let Err(error) = LogConfig::read_file(&bytes)
        {
            self.add(Effect::SETTINGS.error(&path, &error));
        }
    }

    /// Checks the log start offset against the first segment, and against the log end offset by the same rule as a reader.
    fn bounds(&mut self, first: Option<i64>, end: i64, closed_with: Option<i64>) -> Result<()> {
        let bounds = named_offsets::read_checkpoints(&self.directory, (&[None; 2], false), false)?;
        if let Some(reason) = named_offsets::not_here(bounds.start_line, first) {
            let path = self.directory.path.clone();
            let mut finding = Effect::NOTHING.finding(Severity::Note, "Gap", &path, reason);
            finding.offset = bounds.start_line;
            self.add(finding);
        }
        // Our clean-shutdown mark matches: records were deleted and the log was then truncated below them. Nothing is wrong.
        let is_ours = closed_with.is_some() && bounds.closed_with == closed_with;
        // Beside a running broker the checkpoint is older or newer than the segments.
        let name = self
            .directory
            .path
            .file_name()
            .and_then(|name| name.to_str());
        let is_live = name
            .and_then(|name| DirectoryName::parse(name).ok())
            .is_some_and(|name| name.state == DirectoryState::Live);
        if let Some(reason) = named_offsets::lost_end(bounds.high_watermark, end)
            && is_live
            && !is_ours
            && !is_held(self.directory.disk.as_ref(), &self.directory.path)?
        {
            let path = self.directory.path.clone();
            let mut finding = Effect::NOTHING.finding(Severity::Warning, "Gap", &path, reason);
            finding.offset = Some(end);
            self.add(finding);
        }
        let doubtful = bounds.log_start.filter(|_| !is_ours);
        if let Some(start) = doubtful.filter(|&start| start > end) {
            let path = self.directory.path.clone();
            let reason = format!("log start offset {start} is above the log end offset {end}");
            let mut finding = Effect::START.finding(Severity::Error, "LogDir", &path, reason);
            finding.offset = Some(start);
            self.add(finding);
        }
        Ok(())
    }
}
