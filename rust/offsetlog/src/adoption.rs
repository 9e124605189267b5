//! Makes a directory that a broker has set aside, or that belongs to another topic id, a partition of its log dir again.
//!
//! The last step but one is a rename. A crash before it leaves the directory under its old name, and one behind it leaves the partition:
//! in both cases a note in the directory tells the next call how far the work is. Whether the cluster has the partition is not asked here.

use crate::checkpoints::Checkpoints;
use crate::disk::{Disk, IoCall, Lock, random, read_whole, write_whole};
use crate::error::{Error, Result};
use crate::folder::has_log_dir_files;
use crate::log::{
    LogDirFiles, LogWriter, OpenOptions, STATE_FILE, WriteOptions, forget_partition, lock_log_dir,
    lock_partition,
};
use crate::log_dir::DUE_FILE;
use offsetlog_format::name::{
    DirectoryState, PARTITION_METADATA, directory_name, directory_name_in_state,
};
use offsetlog_format::partition_metadata::PARTITION_METADATA_VERSION;
use offsetlog_format::{PartitionMetadata, Uuid};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// In a directory that is being adopted: the name that it had, and what is to be told of what goes.
const NOTE: &str = ".offsetlog.adopting";
/// An offset, the name of a directory and [`TOLD_CHARACTERS`] are shorter.
const NOTE_BYTES: u64 = 1 << 20;
/// So much is kept of what is to be told.
const TOLD_CHARACTERS: usize = 200_000;

/// What becomes of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adoption {
    /// The directory; it stays in its folder.
    pub directory: PathBuf,
    /// The topic whose partition it becomes.
    pub topic: String,
    /// The number of the partition.
    pub partition: i32,
    /// The id that its `partition.metadata` names from then on; `None` leaves the file as it is.
    pub topic_id: Option<Uuid>,
    /// Directories of the same partition that are set aside first, as a broker does it: renamed to `-stray`.
    pub in_the_way: Vec<PathBuf>,
    /// Where the log starts; `None` for the base offset of its first segment. That of a tiered log may be below it.
    pub log_start_offset: Option<i64>,
    /// The log is checked up to this offset, exclusive. The rest is recovered, and the files beside its segments are rebuilt.
    pub checked_end_offset: i64,
    /// What is told of what goes, a sentence each: a call that finishes this one finds it in the note alone.
    pub told: Vec<String>,
}

/// A directory that became a partition's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdoptedDirectory {
    /// The partition's directory.
    pub path: PathBuf,
    /// What was set aside: its name before and since.
    pub set_aside: Vec<(PathBuf, PathBuf)>,
    /// Lowest offset that can be read.
    pub log_start_offset: i64,
    /// Offset that the next record gets.
    pub log_end_offset: i64,
}

/// The note of an interrupted adoption.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterruptedAdoption {
    /// The name that the directory had.
    pub name: String,
    /// Where the log starts, as [`Adoption::log_start_offset`].
    pub log_start_offset: Option<i64>,
    /// What has gone by now, perhaps: as [`Adoption::told`].
    pub told: Vec<String>,
}

/// Reads the note that an adoption leaves in a directory until it is done.
///
/// # Errors
/// `Io`.
pub fn interrupted_adoption(
    directory: &Path,
    options: &OpenOptions,
) -> Result<Option<InterruptedAdoption>> {
    let path = directory.join(NOTE);
    let bytes = match read_whole(options.disk.as_ref(), &path, NOTE_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|error| Error::io(IoCall::Read, &path, error))?,
    };
    let text = String::from_utf8_lossy(&bytes);
    let (log_start, rest) = text.split_once(' ').unwrap_or(("", &text));
    // No name has a slash.
    let (name, told) = rest.split_once('/').unwrap_or((rest, ""));
    let told = told.lines().filter(|sentence| !sentence.is_empty());
    Ok(Some(InterruptedAdoption {
        name: name.to_owned(),
        log_start_offset: log_start.parse().ok(),
        told: told.map(ToOwned::to_owned).collect(),
    }))
}

impl Adoption {
    /// Makes the directory the partition's: sets aside directories in its way, removes the partition's lines from the log dir's
    /// checkpoints, writes `partition.metadata`, renames the directory, then opens and closes the log, which writes new checkpoint lines.
    /// Everything is on the disk when this returns. `check` is called while all locks are held; if it fails, nothing has changed except
    /// lock files.
    ///
    /// # Errors
    /// `Locked` if a broker runs or somebody writes one of the directories; the error of `check`; `LogDir` for a name that Kafka does not
    /// accept; `Io`. After the first change, the same call with the old name continues where it ended.
    pub fn run(
        &self,
        options: &OpenOptions,
        check: impl FnOnce() -> Result<()>,
    ) -> Result<AdoptedDirectory> {
        let disk = options.disk.as_ref();
        let target = self.target()?;
        let brokers = self.lock_log_dirs(disk)?;
        let mut locks = vec![lock_partition(disk, &self.directory)?];
        for path in &self.in_the_way {
            locks.push(lock_partition(disk, path)?);
        }
        check()?;
        self.note(options)?;
        let set_aside = self.set_aside(options)?;
        // The lines in the checkpoints are about the directory that was there before, or about nothing.
        forget_partition(&target, options, self.log_start_offset)?;
        let log_dir = self.folder();
        if has_log_dir_files(disk, log_dir)? {
            // It tells of an earlier life in which the log may have been closed. Without it the marker stays away until the log is closed
            // again: a broker that starts before looks at all of it.
            remove(disk, &self.directory.join(STATE_FILE))?;
            sync(disk, &self.directory)?;
            self.files(options).leave_marker(&self.name())?;
        }
        if let Some(topic_id) = self.topic_id {
            let metadata = PartitionMetadata {
                version: PARTITION_METADATA_VERSION,
                topic_id,
            };
            write(
                disk,
                &self.directory.join(PARTITION_METADATA),
                &metadata.write(),
            )?;
        }
        remove(disk, &self.directory.join(DUE_FILE))?;
        if self.directory != target {
            disk.rename(&self.directory, &target)
                .map_err(|error| Error::io(IoCall::Rename, &self.directory, error))?;
        }
        sync(disk, log_dir)?;
        locks.into_iter().for_each(Lock::release);
        let (log_start_offset, log_end_offset) = self.settle(&target, options)?;
        remove(disk, &target.join(NOTE))?;
        sync(disk, &target)?;
        brokers.into_iter().for_each(Lock::release);
        Ok(AdoptedDirectory {
            path: target,
            set_aside,
            log_start_offset,
            log_end_offset,
        })
    }

    fn name(&self) -> String {
        let name = self.directory.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    fn folder(&self) -> &Path {
        self.directory.parent().unwrap_or(Path::new("/"))
    }

    fn target(&self) -> Result<PathBuf> {
        let name = directory_name(&self.topic, self.partition)
            .map_err(|error| Error::log_dir(&self.directory, error.fault.to_string()))?;
        Ok(self.folder().join(name))
    }

    fn files(&self, options: &OpenOptions) -> LogDirFiles {
        let max_bytes = options.limits.max_state_file_bytes;
        let checkpoints = Checkpoints::new(&options.disk, self.folder(), max_bytes);
        LogDirFiles::new(&Arc::new(checkpoints))
    }

    /// Keeps brokers out of every log dir that changes, always in the same order.
    fn lock_log_dirs(&self, disk: &dyn Disk) -> Result<Vec<Lock>> {
        let all = self.in_the_way.iter().chain([&self.directory]);
        let mut log_dirs: Vec<&Path> = all.filter_map(|path| path.parent()).collect();
        log_dirs.sort_unstable();
        log_dirs.dedup();
        let mut locks = Vec::new();
        for log_dir in log_dirs {
            if has_log_dir_files(disk, log_dir)? {
                locks.push(lock_log_dir(disk, log_dir)?);
            }
        }
        Ok(locks)
    }

    /// Writes down the name that the directory has, unless an earlier call has done it, and what is to be told.
    fn note(&self, options: &OpenOptions) -> Result<()> {
        let known = interrupted_adoption(&self.directory, options)?;
        let is_there = known.is_some();
        let mut note = known.unwrap_or_else(|| InterruptedAdoption {
            name: self.name(),
            log_start_offset: self.log_start_offset,
            told: Vec::new(),
        });
        let told = self.told.iter();
        let new: Vec<&String> = told.filter(|each| !note.told.contains(each)).collect();
        if is_there && new.is_empty() {
            return Ok(());
        }
        note.told.extend(new.into_iter().cloned());
        let path = self.directory.join(NOTE);
        write(options.disk.as_ref(), &path, note.text().as_bytes())
    }

    fn set_aside(&self, options: &OpenOptions) -> Result<Vec<(PathBuf, PathBuf)>> {
        let disk = options.disk.as_ref();
        let mut renamed = Vec::new();
        for path in &self.in_the_way {
            let unique = random().u128(..).to_be_bytes();
            let state = DirectoryState::Stray;
            let name = directory_name_in_state(&self.topic, self.partition, state, unique)
                .map_err(|error| Error::log_dir(path, error.fault.to_string()))?;
            let log_dir = path.parent().unwrap_or(Path::new("/"));
            let aside = log_dir.join(name);
            disk.rename(path, &aside)
                .map_err(|error| Error::io(IoCall::Rename, path, error))?;
            sync(disk, log_dir)?;
            if log_dir != self.folder() {
                forget_partition(path, options, None)?;
            }
            renamed.push((path.clone(), aside));
        }
        Ok(renamed)
    }

    /// Opens and closes the log: that mends its end and writes its lines.
    fn settle(&self, target: &Path, options: &OpenOptions) -> Result<(i64, i64)> {
        let how = WriteOptions {
            clean: Some(false),
            recovery_point: Some(self.checked_end_offset),
            log_start_offset: self.log_start_offset,
            internal_topics: [self.topic.clone()].into(),
            single_replica: true,
            is_copy: true,
            ..WriteOptions::default()
        };
        let writer = LogWriter::open(target, options, &how)?;
        let ends = writer
            .log()
            .log_start_offset()
            .and_then(|start| Ok((start, writer.log().log_end_offset()?)));
        let closed = writer.close();
        let ends = ends?;
        closed?;
        Ok(ends)
    }
}

impl InterruptedAdoption {
    /// The note as a file.
    fn text(&self) -> String {
        let log_start = self.log_start_offset.map(|offset| offset.to_string());
        let mut text = format!("{} {}/", log_start.unwrap_or_default(), self.name);
        let mut room = TOLD_CHARACTERS;
        for sentence in &self.told {
            let kept: String = sentence.chars().take(room).collect();
            room -= kept.chars().count();
            text.push('\n');
            text.push_str(&kept);
            if kept.len() < sentence.len() {
                text.push_str(" ...");
                break;
            }
        }
        text
    }
}

fn write(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<()> {
    write_whole(disk, path, bytes).map_err(|failed| Error::failed_call(path, failed))
}

fn remove(disk: &dyn Disk, path: &Path) -> Result<()> {
    match disk.unlink(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(|error| Error::io(IoCall::Remove, path, error)),
    }
}

fn sync(disk: &dyn Disk, folder: &Path) -> Result<()> {
    disk.sync_directory(folder)
        .map_err(|error| Error::io(IoCall::SyncDirectory, folder, error))
}
