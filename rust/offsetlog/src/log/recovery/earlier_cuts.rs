//! What earlier recoveries cut and kept. A recovery that goes on where another one ended counts only what it cuts itself: who adds up what is
//! lost must hear of the rest.

use super::repair_segment::count_batches;
use super::report::RecoveryReport;
use crate::disk::{Access, Disk, IoCall};
use crate::error::{Error, ErrorKind, Result};
use crate::folder::is_absent;
use crate::log::OpenOptions;
use crate::log::set_aside::{SetAside, SetAsideFile, set_aside_files};
use crate::segment::segment_path;
use crate::segment::walk::SCAN_BYTES;
use offsetlog_format::counted;
use std::fmt::Write as _;
use std::path::Path;

/// How many files are named.
const NAMED_MAX: usize = 3;

/// The records of what earlier recoveries of a partition cut, as far as the log does not have the same bytes there again.
#[derive(Debug, Default)]
pub(in crate::log) struct EarlierCuts {
    /// The files that hold any, by their names.
    files: Vec<String>,
    records: u64,
    offsets: Option<(i64, i64)>,
    /// What could not be read, a sentence each.
    unread: Vec<String>,
}

impl EarlierCuts {
    /// Reads what is kept beside the log in `directory`. A file that cannot be read keeps nobody from recovering.
    ///
    /// # Errors
    /// Those of this process.
    pub(in crate::log) fn read(directory: &Path, options: &OpenOptions) -> Result<Self> {
        let mut earlier = Self::default();
        let found = match set_aside_files(options.disk.as_ref(), directory) {
            Err(error) if error.is_of_process() => return Err(error),
            Err(error) => {
                earlier.note_unread(&error);
                return Ok(earlier);
            }
            Ok(found) => found,
        };
        let is_cut = |file: &&SetAsideFile| file.cut_at.is_some() && !file.is_truncation;
        let found: Vec<_> = found.iter().filter(is_cut).collect();
        for (at, file) in found.iter().enumerate() {
            match earlier.add(directory, file, (at, &found), options) {
                Err(error) if error.is_of_process() => return Err(error),
                Err(error) => earlier.note_unread(&error),
                Ok(()) => {}
            }
        }
        Ok(earlier)
    }

    fn note_unread(&mut self, error: &Error) {
        self.unread.push(format!(
            "what earlier recoveries cut is not known whole: {error}"
        ));
    }

    /// Adds what `file` holds, the one of this number of `all`, unless another one holds the same.
    fn add(
        &mut self,
        directory: &Path,
        file: &SetAsideFile,
        all: (usize, &[&SetAsideFile]),
        options: &OpenOptions,
    ) -> Result<()> {
        let disk = options.disk.as_ref();
        let (Some(aside), Some(position)) = (SetAside::of(&file.path), file.cut_at) else {
            return Ok(());
        };
        // A recovery that ends before it truncates leaves a copy of what is still in the log, and the next one makes another.
        let source = segment_path(directory, file.base_offset, ".log");
        if has_bytes(disk, &source, position, file)? {
            return Ok(());
        }
        let (at, all) = all;
        for (number, other) in all.iter().enumerate() {
            let is_of_same = (other.base_offset, other.cut_at) == (file.base_offset, file.cut_at);
            // Of equal ones the first counts.
            let may_have_it =
                other.bytes > file.bytes || (other.bytes == file.bytes && number < at);
            if is_of_same && may_have_it && has_bytes(disk, &other.path, 0, file)? {
                return Ok(());
            }
        }
        let check = || match &options.interrupt {
            Some(interrupt) if interrupt() => Err(Error::new(ErrorKind::Interrupted)),
            _ => Ok(()),
        };
        let place = (file.base_offset, None);
        let found = count_batches(&aside.directory(options), place, 0, &check)?;
        let Some((first, last)) = found.offsets else {
            return Ok(());
        };
        let name = file.path.file_name().unwrap_or_default();
        self.files.push(name.to_string_lossy().into_owned());
        self.records += found.records;
        self.offsets = Some(self.offsets.map_or((first, last), |known| {
            (known.0.min(first), known.1.max(last))
        }));
        Ok(())
    }

    /// Whether a log that ends at `log_end` had more before they were cut.
    pub(in crate::log) fn reach_behind(&self, log_end: i64) -> bool {
        self.offsets.is_some_and(|(_, last)| last >= log_end)
    }

    /// Tells of them in the report of a recovery that came later.
    pub(in crate::log) fn tell(&self, report: &mut RecoveryReport) {
        report.warnings.extend(self.unread.iter().cloned());
        let Some((first, last)) = self.offsets else {
            return;
        };
        let records = counted(self.records, "record");
        let first_files = self.files.iter().take(NAMED_MAX).cloned();
        let mut names = first_files.collect::<Vec<_>>().join(", ");
        if let Some(more) = self.files.len().checked_sub(NAMED_MAX + 1) {
            let _ = write!(names, " and {} more", more + 1);
        }
        report.warnings.push(format!(
            "earlier recoveries cut {records} at offsets {first} to {last}, which what is said here does not count: offsetlog-cut has them in {names}"
        ));
    }
}

/// Whether the file `path` has the bytes of `copy` from `position` on. What a full disk or a kill left of a copy is the beginning of what was
/// cut.
fn has_bytes(disk: &dyn Disk, path: &Path, position: u64, copy: &SetAsideFile) -> Result<bool> {
    let failed = |error| Error::io(IoCall::Read, path, error);
    let file = match disk.open(path, Access::Read) {
        Err(error) if is_absent(&error) => return Ok(false),
        opened => opened.map_err(failed)?,
    };
    let size = file.stat().map_err(failed)?.size;
    if position
        .checked_add(copy.bytes)
        .is_none_or(|end| end > size)
    {
        return Ok(false);
    }
    let failed_copy = |error| Error::io(IoCall::Read, &copy.path, error);
    let kept = disk.open(&copy.path, Access::Read).map_err(failed_copy)?;
    let (mut one, mut other) = (vec![0; SCAN_BYTES], vec![0; SCAN_BYTES]);
    let mut at = 0;
    while at < copy.bytes {
        let read = kept.read_at(&mut one, at).map_err(failed_copy)?;
        let room = other.get_mut(..read).unwrap_or_default();
        let there = file.read_at(room, position + at).map_err(failed)?;
        if read == 0 || there != read || one.get(..read) != other.get(..there) {
            return Ok(false);
        }
        at += read as u64;
    }
    Ok(true)
}
