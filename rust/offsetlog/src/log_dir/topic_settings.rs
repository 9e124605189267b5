//! Reads the settings of topics, and changes those that are stored with their partitions.

use super::writer::guard;
use super::{LogDir, TopicPartition};
use crate::config::{BrokerSettings, EffectiveConfig, LogConfig};
use crate::error::Result;
use crate::log::{MetadataMark, Surroundings, read_config};
use offsetlog_format::internal_topic::METADATA_TOPIC;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The settings that apply to a topic.
#[derive(Debug, Clone)]
pub struct TopicSettings {
    /// Its settings, each with the layer that it comes from.
    pub config: EffectiveConfig,
    /// What shows that the log dir belongs to a broker; `None` if offsetlog keeps the topic.
    pub broker: Option<String>,
    /// Whether `log.cleaner.enable=false` in that broker's `server.properties` keeps it from compacting anything, and from deleting
    /// segments of compacted topics.
    pub cleaner_is_off: bool,
    /// Timestamp of the newest record of the cluster's metadata, in ms since 1970.
    pub metadata_timestamp: Option<i64>,
    /// Where that metadata is. Of several metadata logs in the log dirs, those of another cluster do not count, and of the others the newest
    /// one is read: the one with the greatest leader epoch, and of equals the longest.
    pub metadata_path: Option<PathBuf>,
}

/// The settings of a cluster around a log dir: of the cluster's metadata, and of a broker's `server.properties`.
#[derive(Debug, Clone)]
pub struct ClusterSettings(pub(super) Arc<Surroundings>);

impl ClusterSettings {
    /// Reads the known metadata of the cluster again, and returns why some of it was not accepted, one reason for each place: it cannot be
    /// read, or [does not continue](crate::MetadataImage::less_than) where the known metadata ended. The known metadata of that place is
    /// kept. Metadata that was never asked for is read when it is needed.
    ///
    /// # Errors
    /// `Interrupted`.
    pub fn refresh(&self) -> Result<Vec<String>> {
        self.0.read_again()
    }
}

impl LogDir {
    /// The first partition of a topic that is here, and its first directory if several log dirs have a replica.
    fn first_of(&self, topic: &str) -> Option<(i32, PathBuf)> {
        let listing = self.0.listing();
        let partition = listing.numbers(topic).next()?;
        let paths = listing.partitions.get(&TopicPartition {
            topic: topic.to_owned(),
            partition,
        })?;
        Some((partition, paths.first()?.clone()))
    }

    /// The settings stored with the topic's first partition, without defaults. If several log dirs have a replica of it, those of the first
    /// one given.
    ///
    /// # Errors
    /// `LogDir` if there is no such topic; `Io`, `MetadataFile`.
    pub fn topic_config(&self, topic: &str) -> Result<LogConfig> {
        match self.first_of(topic) {
            Some((_, path)) => Ok(read_config(self.disk(), &path)?.unwrap_or_default()),
            None => Err(self.unknown(topic, 0)),
        }
    }

    /// The settings that apply to a topic, read from its first partition, each with the layer that it comes from. In a broker's
    /// log dir these are the cluster's settings, from the metadata log in these log dirs or in `metadata`, and those of
    /// `broker`'s `server.properties`.
    ///
    /// # Errors
    /// Those of [`topic_config`](Self::topic_config); `LogDir` if `metadata` has no metadata log.
    pub fn topic_settings(
        &self,
        topic: &str,
        broker: Option<&BrokerSettings>,
        metadata: Option<&Path>,
    ) -> Result<TopicSettings> {
        self.topic_settings_from(topic, &self.cluster_settings(broker, metadata)?)
    }

    /// The layers below the topics' own settings, for [`topic_settings_from`](Self::topic_settings_from) of many topics: they are read only
    /// once.
    ///
    /// # Errors
    /// `LogDir` if `metadata` has no metadata log.
    pub fn cluster_settings(
        &self,
        broker: Option<&BrokerSettings>,
        metadata: Option<&Path>,
    ) -> Result<ClusterSettings> {
        let surroundings = if broker.is_some() || metadata.is_some() {
            Arc::new(self.0.surroundings.with(metadata, broker)?)
        } else {
            Arc::clone(&self.0.surroundings)
        };
        Ok(ClusterSettings(surroundings))
    }

    /// Tells whether the cluster's metadata may have changed, in these log dirs or where `cluster` has it from: two marks are equal only
    /// if it has not. A file that cannot be accessed counts as absent.
    ///
    /// Cost: a listing of each folder with metadata, and a look at each of its files.
    #[must_use]
    pub fn metadata_mark(&self, cluster: Option<&ClusterSettings>) -> MetadataMark {
        let metadata = TopicPartition {
            topic: METADATA_TOPIC.to_owned(),
            partition: 0,
        };
        let listed = self.0.listing().partitions.get(&metadata).cloned();
        let mut places: BTreeSet<PathBuf> = listed.into_iter().flatten().collect();
        places.extend(self.0.surroundings.places());
        if let Some(ClusterSettings(surroundings)) = cluster {
            places.extend(surroundings.places());
        }
        MetadataMark::of(self.disk(), places)
    }

    /// As [`topic_settings`](Self::topic_settings).
    ///
    /// # Errors
    /// Those of [`topic_config`](Self::topic_config).
    pub fn topic_settings_from(
        &self,
        topic: &str,
        cluster: &ClusterSettings,
    ) -> Result<TopicSettings> {
        let stored = self.topic_config(topic)?;
        let Some((partition, path)) = self.first_of(topic) else {
            return Err(self.unknown(topic, 0));
        };
        let ClusterSettings(surroundings) = cluster;
        let found = surroundings.membership(&path, topic, partition)?;
        let defaults = self
            .0
            .writer
            .as_ref()
            .map(|writer| &writer.options.defaults);
        let none = LogConfig::default();
        let config = found.effective(None, Some(&stored), defaults.unwrap_or(&none))?;
        Ok(TopicSettings {
            config,
            metadata_timestamp: found.metadata_timestamp(),
            metadata_path: found.metadata_path().map(Path::to_path_buf),
            cleaner_is_off: found.cleaner_is_off(),
            broker: found.is_brokers().then(|| found.mark().to_owned()),
        })
    }

    /// Replaces the settings that are stored with a topic, in all its partitions.
    ///
    /// # Errors
    /// Those of [`change_topic_config`](Self::change_topic_config).
    pub fn set_topic_config(&self, topic: &str, config: &LogConfig) -> Result<()> {
        self.change_configs(topic, true, |_| Ok(config.clone()))
    }

    /// Changes the settings that are stored with each partition of a topic: `change` gets those of one, and returns what they are to be. It
    /// is asked twice: first to see whether all can be changed, then of what is stored while the partition is locked.
    /// Partitions whose settings are that already are not opened: to remove a setting that none has changes nothing.
    ///
    /// # Errors
    /// Those of `change`; `LogDir` if there is no such topic, or if two of the log dirs have the same partition of it; `Argument` for contradictory settings, and `Cluster` for a broker's topic:
    /// then nothing is changed. Those of opening a partition: the settings of those before it may be changed by then.
    pub fn change_topic_config(
        &self,
        topic: &str,
        change: impl Fn(&LogConfig) -> Result<LogConfig>,
    ) -> Result<()> {
        self.change_configs(topic, false, change)
    }

    /// `takes_over`: also stores settings without content with a partition that has none stored.
    fn change_configs(
        &self,
        topic: &str,
        takes_over: bool,
        change: impl Fn(&LogConfig) -> Result<LogConfig>,
    ) -> Result<()> {
        let writer = self.writer()?;
        let _alone = guard(&writer.topics);
        // Another process may have made the topic anew, with more partitions.
        self.list_again(topic)?;
        let listed = self.directories_of(topic)?;
        if listed.is_empty() {
            return Err(self.unknown(topic, 0));
        }
        // Nothing is changed before all of it is known to be possible.
        let mut changes = Vec::new();
        for (partition, path) in listed {
            let membership = self.0.surroundings.membership(&path, topic, partition)?;
            membership.check_kept(&path)?;
            let stored = read_config(self.disk(), &path)?;
            let is_new = stored.is_none() && takes_over;
            let stored = stored.unwrap_or_default();
            let config = change(&stored)?;
            config.or_defaults(&writer.options.defaults)?;
            if is_new || stored != config {
                changes.push(partition);
            }
        }
        for partition in changes {
            // Of what is stored by now: another process may have changed other settings until the partition was locked.
            self.with_log(topic, partition, |log| log.change_config(&change))?;
        }
        Ok(())
    }

    /// The partitions of a topic whose stored settings differ from those of [`topic_config`](Self::topic_config), with theirs.
    ///
    /// # Errors
    /// Those of [`topic_config`](Self::topic_config).
    pub fn differing_configs(&self, topic: &str) -> Result<BTreeMap<i32, LogConfig>> {
        let first = self.topic_config(topic)?;
        let mut others = BTreeMap::new();
        let mut places = self.directories(topic);
        // Of several replicas the first one's, as above.
        places.dedup_by_key(|(partition, _)| *partition);
        for (partition, path) in places {
            let config = read_config(self.disk(), &path)?.unwrap_or_default();
            if config != first {
                others.insert(partition, config);
            }
        }
        Ok(others)
    }

    /// The partitions of a topic, ascending, each with its directory.
    ///
    /// # Errors
    /// `LogDir` if one of them has several.
    pub(super) fn directories_of(&self, topic: &str) -> Result<Vec<(i32, PathBuf)>> {
        let numbers: Vec<i32> = self.0.listing().numbers(topic).collect();
        let mut found = Vec::with_capacity(numbers.len());
        for partition in numbers {
            let of = TopicPartition {
                topic: topic.to_owned(),
                partition,
            };
            found.extend(self.path_of(&of)?.map(|path| (partition, path)));
        }
        Ok(found)
    }
}
