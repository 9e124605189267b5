//! Writes the files beside the segments: the leader epoch checkpoint, producer snapshots and the topic id.

use crate::disk::{Access, DiskFile, IoCall, temporary, write_whole};
use crate::error::{Error, ErrorKind, Result};
use crate::log::producers::ProducerStates;
use crate::segment::{Directory, segment_path};
use offsetlog_format::name::{LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA};
use offsetlog_format::partition_metadata::PARTITION_METADATA_VERSION;
use offsetlog_format::snapshot::write_producer_snapshot;
use offsetlog_format::{LeaderEpochs, PartitionMetadata, Uuid};
use std::path::PathBuf;
use std::sync::Arc;

/// Returns the offset and the bytes of a snapshot of this state.
pub(in crate::log) fn snapshot_of(producers: &ProducerStates) -> Result<(i64, Vec<u8>)> {
    let bytes = write_producer_snapshot(&producers.to_snapshot())?;
    Ok((producers.end_offset(), bytes))
}

/// Writes a producer snapshot durably.
pub(in crate::log) fn write_snapshot(
    directory: &Directory,
    producers: &ProducerStates,
) -> Result<()> {
    let (offset, bytes) = snapshot_of(producers)?;
    let path = segment_path(&directory.path, offset, ".snapshot");
    write_whole(directory.disk.as_ref(), &path, &bytes)
        .map_err(|failed| Error::failed_call(&path, failed))
}

/// Writes a producer snapshot so that a crash of the process leaves no partial file. The caller syncs the returned file.
pub(in crate::log) fn place_snapshot(
    directory: &Directory,
    producers: &ProducerStates,
) -> Result<(PathBuf, Arc<dyn DiskFile>)> {
    let (offset, bytes) = snapshot_of(producers)?;
    let path = segment_path(&directory.path, offset, ".snapshot");
    let temporary = temporary(&path);
    let written = directory
        .disk
        .open(&temporary, Access::Replace)
        .and_then(|file| {
            file.write_at(&bytes, 0)?;
            directory.disk.rename(&temporary, &path)?;
            Ok(file)
        });
    match written {
        Ok(file) => Ok((path, file)),
        Err(error) => Err(Error::io(IoCall::Write, &path, error)),
    }
}

/// Creates an empty leader epoch checkpoint if there is none, as a broker does for a new log.
pub(in crate::log) fn make_epochs_file(directory: &Directory) -> Result<()> {
    let path = directory.path.join(LEADER_EPOCH_CHECKPOINT);
    directory
        .disk
        .open(&path, Access::WriteOrCreate)
        .map(drop)
        .map_err(|error| Error::io(IoCall::Create, &path, error))
}

pub(in crate::log) fn write_epochs(directory: &Directory, epochs: &LeaderEpochs) -> Result<()> {
    let path = directory.path.join(LEADER_EPOCH_CHECKPOINT);
    let bytes = epochs
        .write()
        .map_err(|error| Error::new(error).at_path(&path))?;
    write_whole(directory.disk.as_ref(), &path, &bytes)
        .map_err(|failed| Error::failed_call(&path, failed))
}

/// Stores the topic id of the partition, or compares it with the stored one.
pub(in crate::log) fn keep_topic_id(directory: &Directory, wanted: Option<Uuid>) -> Result<()> {
    let path = directory.path.join(PARTITION_METADATA);
    let stored = match crate::log::named_offsets::read_optional(directory, &path)? {
        Some(bytes) => Some(
            PartitionMetadata::parse(&bytes)
                .map_err(|error| Error::new(error).at_path(&path))?
                .topic_id,
        ),
        None => None,
    };
    match (stored, wanted) {
        (_, None) => Ok(()),
        (Some(stored), Some(wanted)) if stored == wanted => Ok(()),
        (Some(stored), Some(wanted)) => Err(Error::new(ErrorKind::Argument {
            name: "topic_id",
            reason: format!("{wanted} found, but the partition belongs to the topic {stored}"),
        })
        .at_path(&path)),
        (None, Some(wanted)) if wanted.is_zero() => {
            Err(Error::argument("topic_id", "the id of no topic is zero"))
        }
        (None, Some(topic_id)) => {
            let metadata = PartitionMetadata {
                version: PARTITION_METADATA_VERSION,
                topic_id,
            };
            write_whole(directory.disk.as_ref(), &path, &metadata.write())
                .map_err(|failed| Error::failed_call(&path, failed))
        }
    }
}
