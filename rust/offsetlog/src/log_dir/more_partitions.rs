//! Adds partitions to a topic.
//!
//! Source: Kafka's `ReplicationControlManager.createPartitions`, `LogManager`.

use super::writer::guard;
use super::{LogDir, TopicPartition};
use crate::disk::{IoCall, read_whole};
use crate::error::{Error, Result};
use crate::log::read_config;
use offsetlog_format::PartitionMetadata;
use offsetlog_format::name::PARTITION_METADATA;
use std::io;

impl LogDir {
    /// Creates the partitions below `partitions` that a topic does not have, with the id and the settings of those that it has. Returns
    /// the new ones; they are durable when this returns. After a crash on the way, some of them may exist; after an
    /// error those that another program has opened meanwhile, or that could not be taken back.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use offsetlog::{LogConfig, LogDir, LogDirOptions, NewTopic, OpenOptions};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// let log_dir = LogDir::open_for_append(&[folder.path()], &OpenOptions::default(), &LogDirOptions::default())?;
    /// let topic = NewTopic { name: "orders", partitions: 1, config: LogConfig::default(), topic_id: None };
    /// log_dir.create_topic(&topic)?;
    /// assert_eq!(log_dir.add_partitions("orders", 3)?, [1, 2]);
    /// # log_dir.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `LogDir` if there is no such topic, if two of the log dirs have the same partition of it, or if another program has made one of the
    /// partitions; `Cluster` in a log dir that a mirror fills; `MetadataFile`, `Io`.
    pub fn add_partitions(&self, topic: &str, partitions: i32) -> Result<Vec<i32>> {
        let writer = self.writer()?;
        let _alone = guard(&writer.topics);
        self.check_fills("add partitions")?;
        self.list_again(topic)?;
        let known: Vec<i32> = self.0.listing().numbers(topic).collect();
        let places = self.directories_of(topic)?;
        let Some((_, first)) = places.first() else {
            return Err(self.unknown(topic, 0));
        };
        let absent = |number: &i32| known.binary_search(number).is_err();
        let missing: Vec<i32> = (0..partitions).filter(absent).collect();
        if missing.is_empty() {
            return Ok(missing);
        }
        let file = first.join(PARTITION_METADATA);
        let topic_id = match read_whole(self.disk(), &file, 1 << 16) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            read => {
                let bytes = read.map_err(|error| Error::io(IoCall::Read, &file, error))?;
                let parsed = PartitionMetadata::parse(&bytes);
                Some(
                    parsed
                        .map_err(|error| Error::new(error).at_path(&file))?
                        .topic_id,
                )
            }
        };
        let config = read_config(self.disk(), first)?.unwrap_or_default();
        // Checked before the checkpoints change: partitions that another program just made keep their lines.
        for &partition in &missing {
            self.check_partition_absent(topic, partition)?;
        }
        let places = self.places(missing.len() as i32);
        for (&partition, parent) in missing.iter().zip(&places) {
            let shared = self.0.shared.iter();
            for shared in shared.filter(|shared| shared.log_dir() == parent) {
                shared.forget(topic, partition, None)?;
            }
        }
        self.write_lines_of(topic, &missing)?;
        let _locks = self.share_all()?;
        for &partition in &missing {
            self.check_partition_absent(topic, partition)?;
        }
        let new = missing.iter().map(|&partition| TopicPartition {
            topic: topic.to_owned(),
            partition,
        });
        let places: Vec<_> = new.zip(places).collect();
        let made = self.make_partitions(&places, &config, topic_id)?;
        self.0.listing_mut().add_new(made);
        guard(&writer.router).forget(topic);
        Ok(missing)
    }
}
