//! Reads the cluster's metadata, if it is in these log dirs or was named.

use super::LogDir;
use crate::error::Result;
use crate::log::{MetadataImage, read_metadata};
use offsetlog_format::internal_topic::METADATA_TOPIC;

impl LogDir {
    /// The cluster's metadata, if `__cluster_metadata-0` is in these log dirs; it is in the `metadata.log.dir` of a controller
    /// or broker. Starts with the newest snapshot and reads the log after it. Records of a metadata transaction count once it
    /// has ended. Records that the quorum has not committed yet are included, because the files do not show the difference.
    /// Keeps the whole metadata in memory.
    ///
    /// Without such a log, the metadata is that of the ZooKeeper whose data is among the paths, or what
    /// [`LogDirOptions::metadata`](super::LogDirOptions::metadata) names.
    ///
    /// # Errors
    /// Those of a scan; `Corrupt` kinds for a snapshot that is damaged or has no end, and for a record that is not a metadata
    /// record; `UnsupportedVersion` for a record newer than Kafka 4.3. Records of unknown types, and changes of things that do
    /// not exist, are skipped with a warning. For ZooKeeper's data `MetadataFile` if it is damaged, and `LogDir` if transactions
    /// are missing, if it is another cluster's, or if the cluster has moved to KRaft.
    pub fn metadata(&self) -> Result<Option<MetadataImage>> {
        let partitions = self.partitions();
        let is_here =
            |found: &&super::TopicPartition| found.topic == METADATA_TOPIC && found.partition == 0;
        let Some(place) = partitions.iter().find(is_here) else {
            return self.0.surroundings.named_metadata();
        };
        let log = self.log(&place.topic, place.partition)?;
        read_metadata(&log).map(Some)
    }
}
