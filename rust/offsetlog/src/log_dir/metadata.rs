//! The cluster's metadata of log dirs, where it is in them.

use super::LogDir;
use crate::error::Result;
use crate::log::{MetadataImage, read_metadata};
use offsetlog_format::internal_topic::METADATA_TOPIC;

impl LogDir {
    /// What the metadata log says, if `__cluster_metadata-0` is in these log dirs: a controller's or broker's `metadata.log.dir` has it.
    /// Begins with the newest snapshot there is, and reads the log behind it. Records of a metadata transaction count once it is ended.
    /// What a quorum has not committed yet is not told apart. Memory holds what the metadata holds.
    ///
    /// # Errors
    /// As a scan; `Corrupt` kinds for a snapshot that is damaged or has no end and for a record that is none of the metadata's,
    /// `UnsupportedVersion` for one newer than Kafka 4.3's. Records of types that are not known, and changes of what is not there, are
    /// left out with a warning.
    pub fn metadata(&self) -> Result<Option<MetadataImage>> {
        let partitions = self.partitions();
        let is_here =
            |found: &&super::TopicPartition| found.topic == METADATA_TOPIC && found.partition == 0;
        let Some(place) = partitions.iter().find(is_here) else {
            return Ok(None);
        };
        let log = self.log(&place.topic, place.partition)?;
        read_metadata(&log).map(Some)
    }
}
