//! The offset checkpoints of a log dir: read once for all its partitions, as long as the files stay the same.

use crate::disk::{Disk, FileStat, IoCall, read_whole};
use crate::error::{Error, Result};
use offsetlog_format::{OffsetCheckpoint, OffsetCheckpointFile};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The checkpoints of one log dir. A file is parsed again when its size, time or inode has changed.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    disk: Arc<dyn Disk>,
    log_dir: PathBuf,
    max_bytes: u64,
    known: [Mutex<Option<Known>>; OffsetCheckpointFile::ALL.len()],
}

/// The contents of a checkpoint when its file was in this state.
#[derive(Debug)]
struct Known {
    stat: FileStat,
    offsets: HashMap<String, HashMap<i32, i64>>,
}

impl Checkpoints {
    /// Reads nothing yet.
    pub(crate) fn new(disk: &Arc<dyn Disk>, log_dir: &Path, max_bytes: u64) -> Self {
        Self {
            disk: Arc::clone(disk),
            log_dir: log_dir.to_path_buf(),
            max_bytes,
            known: Default::default(),
        }
    }

    pub(crate) fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    pub(crate) fn log_dir(&self) -> &Path {
        &self.log_dir
    }

    pub(crate) fn path(&self, file: OffsetCheckpointFile) -> PathBuf {
        self.log_dir.join(file.name())
    }

    /// The offset of a partition, of repeated lines the last.
    ///
    /// # Errors
    /// `Io`; those of damage.
    pub(crate) fn offset_of(
        &self,
        file: OffsetCheckpointFile,
        topic: &str,
        partition: i32,
    ) -> Result<Option<i64>> {
        self.offset_of_seen(file, None, topic, partition)
    }

    /// As [`offset_of`](Self::offset_of), for a caller that may have just seen the file with this stat.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn offset_of_seen(
        &self,
        file: OffsetCheckpointFile,
        seen: Option<FileStat>,
        topic: &str,
        partition: i32,
    ) -> Result<Option<i64>> {
        let stat = if let Some(stat) = seen {
            stat
        } else {
            let path = self.path(file);
            match self.disk.stat(&path) {
                Ok(stat) => stat,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(Error::io(IoCall::Stat, &path, error)),
            }
        };
        let offset = |known: &Known| known.offsets.get(topic)?.get(&partition).copied();
        let Some(slot) = self.known.get(file as usize) else {
            return Ok(None);
        };
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = slot.as_ref().filter(|known| known.stat == stat) {
            return Ok(offset(known));
        }
        *slot = None;
        let is_racy = stat.is_racy();
        let known = Known::new(stat, self.read(file)?);
        let offset = offset(&known);
        *slot = Some(known).filter(|_| !is_racy);
        Ok(offset)
    }

    /// All lines as the file has them now; none without a file.
    ///
    /// # Errors
    /// As [`offset_of`](Self::offset_of).
    pub(crate) fn read(&self, file: OffsetCheckpointFile) -> Result<OffsetCheckpoint> {
        let path = self.path(file);
        match read_whole(self.disk.as_ref(), &path, self.max_bytes) {
            Ok(bytes) => {
                OffsetCheckpoint::parse(&bytes).map_err(|error| Error::new(error).at_path(&path))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(OffsetCheckpoint::default())
            }
            Err(error) => Err(Error::state_file(&path, error)),
        }
    }
}

impl Known {
    fn new(stat: FileStat, checkpoint: OffsetCheckpoint) -> Self {
        let mut offsets: HashMap<String, HashMap<i32, i64>> = HashMap::new();
        for entry in checkpoint.entries {
            let of_topic = offsets.entry(entry.topic).or_default();
            of_topic.insert(entry.partition, entry.offset);
        }
        Self { stat, offsets }
    }
}
