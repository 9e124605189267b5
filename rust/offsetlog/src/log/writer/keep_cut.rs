//! Copies what a truncation deletes into the folder `offsetlog-cut` before it is deleted.
//!
//! A follower whose log diverged from its leader's deletes its own end. Kafka keeps nothing of it; a copy of a cluster must be able to
//! show what its source once had.

use super::PartitionWriter;
use crate::disk::{Access, IoCall};
use crate::error::{Error, Result};
use crate::folder::is_there;
use crate::log::recovery::CUT_FOLDER;
use crate::log::recovery::scan_segment;
use crate::log::set_aside::TRUNCATED;
use crate::segment::find::{self, Found, ReadAhead, Trace};
use crate::segment::segment_path;
use crate::segment::walk::SCAN_BYTES;
use std::path::{Path, PathBuf};

impl PartitionWriter {
    /// Copies the batches from `offset` on into `offsetlog-cut`, then deletes them as [`truncate_to`](Self::truncate_to) does. Returns
    /// the copies. A crash in between leaves copies of what is still in the log.
    pub(crate) fn truncate_to_keeping(&mut self, offset: i64) -> Result<Vec<PathBuf>> {
        self.check_usable()?;
        let mut kept = Vec::new();
        if (0..self.log_end()).contains(&offset) {
            let bases = self.segments.bases();
            let ends = bases.iter().skip(1).map(Some).chain([None]);
            for (&base, next) in bases.iter().zip(ends) {
                if next.is_some_and(|&next| next <= offset) {
                    continue;
                }
                if let Some(copy) = self.keep_from(base, offset)? {
                    kept.push(copy);
                }
            }
        }
        self.truncate_to(offset)?;
        Ok(kept)
    }

    /// Copies what a segment has from `offset` on. Returns the copy, if there is anything.
    fn keep_from(&self, base: i64, offset: i64) -> Result<Option<PathBuf>> {
        let path = segment_path(&self.directory.path, base, ".log");
        let segment = scan_segment::open(&self.directory, base, None)?;
        // Preallocated bytes are not part of the log.
        let size = if base == self.segments.active.base_offset {
            self.segments.active.size()
        } else {
            segment.stat.size
        };
        let position = if base >= offset {
            0
        } else {
            let found = find::find(
                &segment,
                offset,
                ReadAhead::Bytes(SCAN_BYTES),
                Vec::new(),
                &mut Trace::default(),
            );
            match found {
                Ok((walk, Found::Batch(_))) => walk.batch_position(),
                Ok((_, Found::End(_))) => size,
                Err(error) if size < segment.stat.size && error.is_corruption() => size,
                Err(error) => return Err(error),
            }
        };
        if position >= size {
            return Ok(None);
        }
        self.copy_cut(&path, position, size).map(Some)
    }

    /// Copies the bytes of a file from `position` to `end`, durably, and returns the copy.
    fn copy_cut(&self, path: &Path, position: u64, end: u64) -> Result<PathBuf> {
        let disk = self.directory.disk.as_ref();
        let folder = self.directory.path.join(CUT_FOLDER);
        disk.create_directory(&folder)
            .map_err(|error| Error::io(IoCall::Create, &folder, error))?;
        let kept = self.unused_name(&folder, path, position)?;
        let source = disk
            .open(path, Access::Read)
            .map_err(|error| Error::io(IoCall::Read, path, error))?;
        let target = disk
            .open(&kept, Access::Replace)
            .map_err(|error| Error::io(IoCall::Create, &kept, error))?;
        let mut buffer = vec![0; SCAN_BYTES];
        let mut at = position;
        while at < end {
            let want = (end - at).min(buffer.len() as u64) as usize;
            let room = buffer.get_mut(..want).unwrap_or_default();
            let read = source
                .read_at(room, at)
                .map_err(|error| Error::io(IoCall::Read, path, error))?;
            if read == 0 {
                break;
            }
            target
                .write_at(buffer.get(..read).unwrap_or(&[]), at - position)
                .map_err(|error| Error::io(IoCall::Write, &kept, error))?;
            at += read as u64;
        }
        target
            .sync_all()
            .and_then(|()| disk.sync_directory(&folder))
            .and_then(|()| disk.sync_directory(&self.directory.path))
            .map_err(|error| Error::io(IoCall::Sync, &kept, error))?;
        Ok(kept)
    }

    /// The name that recovery gives to what it cuts, with a word that tells the two apart: `salvage` and `restore` take back what recovery
    /// cut, and not what a leader did not have. With a number if there is an earlier one.
    fn unused_name(&self, folder: &Path, path: &Path, position: u64) -> Result<PathBuf> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let mut kept = folder.join(format!("{name}.{position}.{TRUNCATED}"));
        let mut number = 1;
        while is_there(self.directory.disk.as_ref(), &kept)? {
            number += 1;
            kept = folder.join(format!("{name}.{position}.{TRUNCATED}.{number}"));
        }
        Ok(kept)
    }
}
