//! Whether the partitions that a scan reads under one name are of one topic: one that is deleted and created again is another topic, and a
//! log dir that was away meanwhile still has partitions of the first.

use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::log::Log;
use crate::log::state::read_small;
use offsetlog_format::name::PARTITION_METADATA;
use offsetlog_format::{PartitionMetadata, Uuid};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Checks that logs which are read under one topic name are of one topic, by their topic ids. A [`Scan`](crate::Scan) over several logs
/// does so itself.
#[derive(Debug, Default)]
pub struct OneTopic(BTreeMap<String, Known>);

#[derive(Debug)]
struct Known {
    /// Directory of the first partition that has an id, or of the first one. Not its log, which holds files.
    path: PathBuf,
    id: Option<Uuid>,
    /// Whether a second partition made the id worth reading.
    is_read: bool,
}

impl OneTopic {
    /// Fails if a log that was checked before has the same topic's name and another topic id. Reads ids (`partition.metadata`) only when a
    /// name has a second log. A log without an id, or with one that cannot be read, passes.
    ///
    /// # Errors
    /// `LogDir`, with both ids and directories; `Interrupted`.
    pub fn check(&mut self, log: &Log) -> Result<()> {
        let Some(known) = self.0.get_mut(log.topic()) else {
            let known = Known {
                path: log.path().to_path_buf(),
                id: None,
                is_read: false,
            };
            self.0.insert(log.topic().to_owned(), known);
            return Ok(());
        };
        if known.path == log.path() {
            return Ok(());
        }
        if !known.is_read {
            known.id = id_in(log.options().disk.as_ref(), &known.path)?;
            known.is_read = true;
        }
        let Some(found) = id_in(log.options().disk.as_ref(), log.path())? else {
            return Ok(());
        };
        match known.id {
            None => {
                *known = Known {
                    path: log.path().to_path_buf(),
                    id: Some(found),
                    is_read: true,
                };
                Ok(())
            }
            Some(before) if before == found => Ok(()),
            Some(before) => Err(other_topic((log.path(), found), (&known.path, before))),
        }
    }
}

/// The error for a directory that has another topic id than one read under the same name.
pub(crate) fn other_topic((path, id): (&Path, Uuid), (first, first_id): (&Path, Uuid)) -> Error {
    Error::log_dir(
        path,
        format!(
            "of another topic of this name, as after a topic is deleted and created again: its topic id is {id}, and that of {} is {first_id}, \
             by partition.metadata. Give the log dirs, or choose the partitions, of one of the topics",
            first.display()
        ),
    )
}

/// The topic id of a partition's directory; `None` also if it cannot be read, because records can be read without.
pub(crate) fn id_in(disk: &dyn Disk, directory: &Path) -> Result<Option<Uuid>> {
    let bytes = match read_small(disk, &directory.join(PARTITION_METADATA)) {
        Err(error) if error.is_of_process() => return Err(error),
        bytes => bytes.ok().flatten(),
    };
    let metadata = bytes.and_then(|bytes| PartitionMetadata::parse(&bytes).ok());
    Ok(metadata.map(|metadata| metadata.topic_id))
}
