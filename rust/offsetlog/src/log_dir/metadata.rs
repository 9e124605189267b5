//! Reads the cluster's metadata, if it is in these log dirs or was named.

use super::LogDir;
use super::clusters::Clusters;
use crate::error::{Error, Result};
use crate::log::{MetadataImage, SetAside, read_metadata, read_metadata_told};
use crate::step_progress::{DirectoryProgress, Steps};
use offsetlog_format::internal_topic::METADATA_TOPIC;
use std::path::{Path, PathBuf};

impl LogDir {
    /// The cluster's metadata, if `__cluster_metadata-0` is in these log dirs; it is in the `metadata.log.dir` of a controller
    /// or broker. Starts with the newest snapshot and reads the log after it. Records of a metadata transaction count once it
    /// has ended. Records that the quorum has not committed yet are included, because the files do not show the difference.
    /// Keeps the whole metadata in memory. A file that was set aside from the log is read if it is given alone, and is not complete.
    ///
    /// Without such a log, the metadata is that of the ZooKeeper whose data is among the paths, or what
    /// [`LogDirOptions::metadata`](super::LogDirOptions::metadata) names.
    ///
    /// # Errors
    /// `LogDir` for metadata logs of several clusters, and for a file that was set aside beside other partitions; those of a scan; `Corrupt` kinds for a snapshot that is damaged or has no end, and for a record that is not a metadata
    /// record; `UnsupportedVersion` for a record newer than Kafka 4.3. Records of unknown types, and changes of things that do
    /// not exist, are skipped with a warning. For ZooKeeper's data `MetadataFile` if it is damaged, and `LogDir` if transactions
    /// are missing, if it is another cluster's, or if the cluster has moved to KRaft.
    pub fn metadata(&self) -> Result<Option<MetadataImage>> {
        self.metadata_told(&mut Steps::new(&DirectoryProgress::default()))
    }

    /// The same. The snapshot is a step, and the log behind it; of ZooKeeper's data the snapshot, and each file of transactions behind it.
    ///
    /// # Errors
    /// The same; that of the progress.
    pub fn metadata_told(&self, steps: &mut Steps<'_, Path>) -> Result<Option<MetadataImage>> {
        let partitions = self.partitions();
        let is_here =
            |found: &&super::TopicPartition| found.topic == METADATA_TOPIC && found.partition == 0;
        let Some(place) = partitions.iter().find(is_here) else {
            return self.0.surroundings.named_metadata(steps);
        };
        let logs = self.directories(METADATA_TOPIC);
        self.refuse_part(&logs)?;
        let log_dirs: Vec<PathBuf> = logs
            .iter()
            .filter(|(partition, _)| *partition == 0)
            .filter_map(|(_, path)| path.parent().map(Path::to_path_buf))
            .collect();
        Clusters::of(&self.0.surroundings, &log_dirs).check()?;
        let log = self.log(&place.topic, place.partition)?;
        read_metadata_told(&log, steps).map(Some)
    }

    /// As [`metadata`](Self::metadata), for a server that reads it again and again: of several metadata logs takes the one of the newest
    /// leader epoch, and of those the one with the greatest log end offset, without reading the others first, and the next one where that
    /// cannot be read.
    ///
    /// # Errors
    /// Those of [`metadata`](Self::metadata), of the newest log.
    pub fn metadata_again(&self) -> Result<Option<MetadataImage>> {
        let mut failure = None;
        let mut logs = Vec::new();
        let all = self.directories(METADATA_TOPIC);
        self.refuse_part(&all)?;
        for (_, path) in all.into_iter().filter(|(partition, _)| *partition == 0) {
            let opened = self
                .open_one(&path)
                .and_then(|log| Ok((log.metadata_reach()?, log)));
            match opened {
                Ok(found) => logs.push(found),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        if logs.is_empty() && failure.is_none() {
            let told = DirectoryProgress::default();
            return self.0.surroundings.named_metadata(&mut Steps::new(&told));
        }
        logs.sort_by_key(|(end, _)| std::cmp::Reverse(*end));
        let mut first = None;
        for (_, log) in &logs {
            match read_metadata(log) {
                Ok(image) => return Ok(Some(image)),
                Err(error) => first = first.or(Some(error)),
            }
        }
        first.or(failure).map_or(Ok(None), Err)
    }

    /// Refuses a file that was set aside from the metadata log beside other partitions: it may know only what was true of them once.
    fn refuse_part(&self, logs: &[(i32, PathBuf)]) -> Result<()> {
        let mut paths = logs.iter().map(|(_, path)| path);
        let Some(part) = paths.find(|path| SetAside::of(path).is_some()) else {
            return Ok(());
        };
        let partitions = self.partitions();
        if partitions.iter().all(|each| each.topic == METADATA_TOPIC) {
            return Ok(());
        }
        let reason = format!(
            "a part of {METADATA_TOPIC} that was set aside says nothing of log dirs, whose metadata has changed since: give the \
             metadata.log.dir, or this file alone"
        );
        Err(Error::log_dir(part, reason))
    }
}
