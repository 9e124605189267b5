//! Snapshots of the metadata log: which is the newest, and the records in one.

use crate::batch_decoder::BatchDecoder;
use crate::disk::{Access, Disk, DiskFile, EntryKind, IoCall};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::LimitName;
use crate::log::{Log, OpenOptions};
use crate::memory;
use offsetlog_format::control::ControlType;
use offsetlog_format::name::MetadataSnapshotState;
use offsetlog_format::{BatchHeader, Fault, FileName, FormatError, Part};
use std::io;
use std::path::{Path, PathBuf};

/// A whole snapshot.
pub(super) struct Snapshot {
    pub(super) path: PathBuf,
    /// The first offset that it does not hold.
    pub(super) end_offset: i64,
    /// Leader epoch of its last record.
    pub(super) epoch: i32,
}

/// The snapshot of a metadata log's directory that holds most.
pub(super) fn newest_snapshot(disk: &dyn Disk, directory: &Path) -> Result<Option<Snapshot>> {
    let entries = match disk.list(directory) {
        // A file that was set aside from the log, which is read by itself.
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(None),
        listed => listed.map_err(|error| Error::io(IoCall::List, directory, error))?,
    };
    let files = entries
        .iter()
        .filter(|entry| entry.kind == EntryKind::File)
        .filter_map(|entry| match FileName::classify(&entry.name) {
            FileName::MetadataSnapshot {
                end_offset,
                epoch,
                state: MetadataSnapshotState::Live,
            } => Some((end_offset, epoch, &entry.name)),
            _ => None,
        });
    Ok(files.max().map(|(end_offset, epoch, name)| Snapshot {
        path: directory.join(name),
        end_offset,
        epoch,
    }))
}

impl Log {
    /// The leader epoch of the newest snapshot in the directory of a metadata log; `None` without one.
    pub(crate) fn snapshot_epoch(&self) -> Result<Option<i32>> {
        let snapshot = newest_snapshot(self.options().disk.as_ref(), self.path())?;
        Ok(snapshot.map(|snapshot| snapshot.epoch))
    }

    /// Leader epoch and end of a metadata log, whose batches may all be in a snapshot. Of several the greatest is the newest.
    pub(crate) fn metadata_reach(&self) -> Result<(i32, i64)> {
        let extent = self.extent()?;
        let epoch = if extent.leader_epoch < 0 && !extent.is_damaged {
            self.snapshot_epoch()?.unwrap_or(-1)
        } else {
            extent.leader_epoch
        };
        Ok((epoch, extent.log_end_offset))
    }
}

/// Hands over value, offset and greatest timestamp of the batch of each data record; offsets are the snapshot's own. One batch at a time is held.
pub(super) fn each_record(
    path: &Path,
    options: &OpenOptions,
    mut take: impl FnMut(&[u8], i64, i64) -> Result<(), FormatError>,
) -> Result<()> {
    let limits = &options.limits;
    let io = |error| Error::io(IoCall::Read, path, error);
    let disk = options.disk.as_ref();
    let file = disk
        .open(path, Access::Read)
        .map_err(|error| Error::io(IoCall::Open, path, error))?;
    let size = file.stat().map_err(io)?.size;
    let (mut position, mut is_whole) = (0, false);
    let mut bytes = Vec::new();
    let mut decoder = BatchDecoder::default();
    while position < size {
        if let Some(interrupt) = &options.interrupt
            && interrupt()
        {
            return Err(Error::new(ErrorKind::Interrupted));
        }
        let placed = |error: Error| error.at_path(path).at_position(position);
        let left = size - position;
        fill(
            file.as_ref(),
            &mut bytes,
            position,
            left.min(BatchHeader::LONGEST as u64),
        )
        .map_err(placed)?;
        let header = BatchHeader::parse(&bytes).map_err(|error| placed(error.into()))?;
        let batch = header.size_bytes as u64;
        if batch > limits.max_batch_bytes {
            return Err(placed(Error::new(ErrorKind::Limit {
                name: LimitName::MaxBatchBytes,
                limit: limits.max_batch_bytes,
                seen: batch,
            })));
        }
        fill(file.as_ref(), &mut bytes, position, left.min(batch)).map_err(placed)?;
        header
            .check_crc(&bytes)
            .map_err(|error| placed(error.into()))?;
        let mut records = decoder
            .records(&bytes, limits.max_decompressed_bytes)
            .map_err(placed)?;
        while let Some(record) = records.next_record().map_err(placed)? {
            let taken = if header.attributes.is_control() {
                ControlType::parse_key(record.key)
                    .map(|found| is_whole = found == ControlType::SnapshotFooter)
            } else {
                take(
                    record.value.unwrap_or_default(),
                    record.offset,
                    header.max_timestamp,
                )
            };
            taken.map_err(|error| placed(Error::new(error).at_offset(record.offset)))?;
        }
        position += batch;
    }
    if is_whole {
        return Ok(());
    }
    let rule = Fault::Rule("the snapshot ends without a footer: a part of it is missing");
    Err(Error::new(FormatError::new(Part::ControlRecord, 0, rule))
        .at_path(path)
        .at_position(size))
}

/// Reads `count` bytes at `position` into `bytes`; fewer if the file has shrunk since.
fn fill(file: &dyn DiskFile, bytes: &mut Vec<u8>, position: u64, count: u64) -> Result<()> {
    let count = usize::try_from(count).map_err(|_| Error::no_memory())?;
    bytes.clear();
    memory::reserve(bytes, count)?;
    bytes.resize(count, 0);
    let read = file.read_at(bytes, position);
    let read = read.map_err(|source| {
        Error::new(ErrorKind::Io {
            source,
            call: IoCall::Read,
        })
    })?;
    bytes.truncate(read);
    Ok(())
}
