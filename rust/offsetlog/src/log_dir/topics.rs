//! Making and deleting topics, and their settings.
//!
//! Source: Kafka's `LogManager` (placement, deletion) and `ReplicationControlManager` (names).

use super::writer::{Doomed, guard};
use super::{LogDir, TopicPartition};
use crate::config::{BrokerSettings, EffectiveConfig, LogConfig};
use crate::disk::{Access, Disk, EntryKind, IoCall, Lock, read_whole, write_whole};
use crate::error::{Error, Result};
use crate::log::{
    Surroundings, check_internal, lock_idle, lock_partition, read_config, write_config,
};
use offsetlog_format::name::{
    DirectoryState, PARTITION_METADATA, check_topic, directory_name, directory_name_in_state,
    topics_collide,
};
use offsetlog_format::partition_metadata::PARTITION_METADATA_VERSION;
use offsetlog_format::{PartitionMetadata, Uuid};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

/// In a directory that waits for its deletion: when that is due, in ms since 1970. Whoever keeps the log dir next needs not wait anew.
const DUE_FILE: &str = ".offsetlog.delete";

/// Folders inside a partition directory that wait for their deletion: ours lie one deep.
pub(crate) const DEPTH_MAX: usize = 8;

/// A partition whose directory got another name, where that was before, and the lock that keeps others away from it.
type Renamed = (TopicPartition, PathBuf, Lock);

/// A topic to be made.
#[derive(Debug, Clone)]
pub struct NewTopic<'t> {
    /// Its name: letters, digits, `.`, `_` and `-`, at most 249.
    pub name: &'t str,
    /// How many partitions.
    pub partitions: i32,
    /// Its settings; what is not given holds as by the log dir's defaults.
    pub config: LogConfig,
    /// Its id; `None` draws one.
    pub topic_id: Option<Uuid>,
}

/// What holds for a topic.
#[derive(Debug, Clone)]
pub struct TopicSettings {
    /// Its settings, each with its layer.
    pub config: EffectiveConfig,
    /// What says that the log dir is a broker's; `None` where the topic is ours to keep.
    pub broker: Option<String>,
    /// Timestamp of the newest record of the cluster's metadata, in ms since 1970.
    pub metadata_timestamp: Option<i64>,
}

impl LogDir {
    /// Makes a topic, each partition in the folder that has the fewest, and gives its id. What was made is durable when this
    /// returns; after an error, or a crash on the way, fewer partitions may be there.
    ///
    /// # Errors
    /// `Argument` for a name or number that cannot be, or settings that contradict each other; `LogDir` when there is such a topic,
    /// or one that differs in `.` and `_` only, as in Kafka; `Io`.
    pub fn create_topic(&self, topic: &NewTopic<'_>) -> Result<Uuid> {
        let writer = self.writer()?;
        let _alone = guard(&writer.topics);
        check_topic(topic.name).map_err(|error| {
            Error::argument("name", format!("{:?}: {}", topic.name, error.fault))
        })?;
        if topic.partitions < 1 {
            let found = topic.partitions;
            return Err(Error::argument(
                "partitions",
                format!("{found} found, 1 or more expected"),
            ));
        }
        topic.config.or_defaults(&writer.options.defaults)?;
        if topic.topic_id.is_some_and(Uuid::is_zero) {
            return Err(Error::argument("topic_id", "the id of no topic is zero"));
        }
        self.check_free(topic.name)?;
        let topic_id = topic
            .topic_id
            .unwrap_or_else(|| guard(&writer.router).topic_id());
        // Before anything is said of it in the checkpoints: what another program has made meanwhile keeps its lines.
        self.check_absent(topic)?;
        let places = self.places(topic.partitions);
        for (partition, parent) in (0..).zip(&places) {
            // Lines that were left of another topic of this name would be believed.
            if let Some(shared) = self
                .0
                .shared
                .iter()
                .find(|shared| shared.log_dir() == parent)
            {
                shared.forget(topic.name, partition, None)?;
            }
        }
        self.write_lines()?;
        // Two processes may make the same topic.
        let _locks = self.share_all()?;
        self.check_absent(topic)?;
        let mut made = Vec::new();
        // The first one last: whoever lists them meanwhile sees by its absence that the topic is not whole.
        for (partition, parent) in (0..topic.partitions).zip(&places).rev() {
            let done = self.make_partition(topic, partition, parent, topic_id);
            match done {
                Ok(path) => made.push((partition, path)),
                Err(error) => {
                    for (_, path) in made {
                        // What cannot be removed is an empty partition.
                        let _ = remove_all(self.disk(), &path, DEPTH_MAX);
                    }
                    return Err(error);
                }
            }
        }
        self.sync_parents(&places)?;
        let mut listing = self.0.listing_mut();
        for (partition, path) in made {
            let partition = TopicPartition {
                topic: topic.name.to_owned(),
                partition,
            };
            listing.partitions.insert(partition, vec![path]);
        }
        drop(listing);
        guard(&writer.router).forget(topic.name);
        Ok(topic_id)
    }

    fn check_free(&self, name: &str) -> Result<()> {
        let listing = self.0.listing();
        let other = listing
            .partitions
            .keys()
            .find(|partition| topics_collide(&partition.topic, name));
        let Some(other) = other else { return Ok(()) };
        let reason = if other.topic == name {
            format!("topic {name:?} is there already")
        } else {
            format!(
                "topic {name:?} differs from {:?} in '.' and '_' only, which Kafka does not allow",
                other.topic
            )
        };
        let path = self.0.paths.first().map_or(Path::new(""), PathBuf::as_path);
        Err(Error::log_dir(path, reason))
    }

    /// The locks of all log dirs, always in the same order.
    fn share_all(&self) -> Result<Vec<Lock>> {
        let mut shared: Vec<_> = self.0.shared.iter().collect();
        shared.sort_by_key(|shared| shared.log_dir());
        shared.into_iter().map(|shared| shared.share()).collect()
    }

    /// Refuses a topic of which another process has made a partition since the log dir was opened.
    fn check_absent(&self, topic: &NewTopic<'_>) -> Result<()> {
        for partition in 0..topic.partitions {
            let name = directory_name(topic.name, partition)
                .map_err(|error| Error::argument("name", error.fault.to_string()))?;
            for parent in &self.0.paths {
                let path = parent.join(&name);
                match self.disk().stat(&path) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(Error::io(IoCall::Stat, &path, error)),
                    Ok(_) => {
                        let reason = format!(
                            "topic {:?} is there already, made by another program since this one opened the log dir",
                            topic.name
                        );
                        return Err(Error::log_dir(&path, reason));
                    }
                }
            }
        }
        Ok(())
    }

    /// A folder for each of so many new partitions: always one of those that have the fewest, the first of equals.
    fn places(&self, partitions: i32) -> Vec<PathBuf> {
        let mut counts: Vec<(usize, &PathBuf)> =
            self.0.paths.iter().map(|path| (0, path)).collect();
        let listing = self.0.listing();
        let mut by_parent: HashMap<&Path, usize> = HashMap::new();
        for path in listing.partitions.values().flatten() {
            if let Some(parent) = path.parent() {
                *by_parent.entry(parent).or_default() += 1;
            }
        }
        for (count, path) in &mut counts {
            *count = by_parent.get(path.as_path()).copied().unwrap_or(0);
        }
        let mut places = Vec::new();
        for _ in 0..partitions {
            if let Some((count, path)) = counts.iter_mut().min_by_key(|(count, _)| *count) {
                *count += 1;
                places.push(path.clone());
            }
        }
        places
    }

    fn make_partition(
        &self,
        topic: &NewTopic<'_>,
        partition: i32,
        parent: &Path,
        topic_id: Uuid,
    ) -> Result<PathBuf> {
        let name = directory_name(topic.name, partition)
            .map_err(|error| Error::argument("name", error.fault.to_string()))?;
        let path = parent.join(name);
        let disk = self.disk();
        disk.create_directory(&path)
            .map_err(|error| Error::io(IoCall::Create, &path, error))?;
        let metadata = PartitionMetadata {
            version: PARTITION_METADATA_VERSION,
            topic_id,
        };
        let file = path.join(PARTITION_METADATA);
        write_whole(disk, &file, &metadata.write())
            .map_err(|failed| Error::failed_call(&file, failed))?;
        if topic.config.given().next().is_some() {
            write_config(disk, &path, &topic.config)?;
        }
        Ok(path)
    }

    fn sync_parents(&self, parents: &[PathBuf]) -> Result<()> {
        let mut parents: Vec<&PathBuf> = parents.iter().collect();
        parents.sort_unstable();
        parents.dedup();
        for parent in parents {
            self.disk()
                .sync_directory(parent)
                .map_err(|error| Error::io(IoCall::SyncDirectory, parent, error))?;
        }
        Ok(())
    }

    /// Deletes a topic as a broker does: its directories get names that say so at once, and are removed by
    /// [`maintain`](Self::maintain) when the log dir's `file.delete.delay.ms` has passed.
    ///
    /// # Errors
    /// `LogDir` when there is no such topic; `Cluster` for one of brokers' own that was not named; `Locked` when another process writes to one of its partitions, and nothing is changed;
    /// `Io`, and some of the partitions may be gone already.
    pub fn delete_topic(&self, topic: &str) -> Result<()> {
        let writer = self.writer()?;
        let _alone = guard(&writer.topics);
        let numbers = self.0.listing().numbers(topic);
        if numbers.is_empty() {
            return Err(self.unknown(topic, 0));
        }
        self.check_named(topic, "delete")?;
        let partitions = numbers.into_iter().map(|partition| TopicPartition {
            topic: topic.to_owned(),
            partition,
        });
        let partitions: Vec<TopicPartition> = partitions.collect();
        // What was appended need not be durable any more, but must be known to be over.
        let (held, parents) = writer
            .logs
            .take_away(&partitions, || self.rename_all(topic, &partitions))?;
        guard(&writer.router).forget(topic);
        self.sync_parents(&parents)?;
        for (partition, path, lock) in held {
            if let Some(shared) = self.0.shared_with(&path) {
                shared.forget(&partition.topic, partition.partition, None)?;
            }
            lock.release();
        }
        // A topic of this name may be made again.
        self.write_lines()
    }

    /// Gives the directories of a topic that nobody has open the names of deleted ones. Gives their locks, and the folders they are in.
    fn rename_all(
        &self,
        topic: &str,
        partitions: &[TopicPartition],
    ) -> Result<(Vec<Renamed>, Vec<PathBuf>)> {
        let writer = self.writer()?;
        let mut held = Vec::new();
        for partition in partitions {
            let Some(path) = self.path_of(partition) else {
                continue;
            };
            let lock = lock_partition(self.disk(), &path)?;
            held.push((partition.clone(), path, lock));
        }
        let due = self
            .0
            .now()
            .saturating_add(writer.options.defaults.file_delete_delay_ms());
        let mut parents = Vec::new();
        for (partition, path, _) in &held {
            let unique = guard(&writer.router).unique_id();
            let name =
                directory_name_in_state(topic, partition.partition, DirectoryState::Delete, unique)
                    .map_err(|error| Error::log_dir(path, error.fault.to_string()))?;
            let parent = path.parent().unwrap_or(Path::new(""));
            let target = parent.join(name);
            self.disk()
                .rename(path, &target)
                .map_err(|error| Error::io(IoCall::Rename, path, error))?;
            self.0.listing_mut().partitions.remove(partition);
            // Without it the directory waits longer.
            let _ = note_due(self.disk(), &target, due);
            guard(&writer.doomed).push(Doomed { path: target, due });
            parents.push(parent.to_path_buf());
        }
        Ok((held, parents))
    }

    /// The settings of a topic that are stored with its first partition; defaults are not among them.
    ///
    /// # Errors
    /// `LogDir` when there is no such topic; `Io`, `MetadataFile`.
    pub fn topic_config(&self, topic: &str) -> Result<LogConfig> {
        let first = self.0.listing().numbers(topic).first().copied();
        let path = first.and_then(|partition| {
            self.path_of(&TopicPartition {
                topic: topic.to_owned(),
                partition,
            })
        });
        match path {
            Some(path) => Ok(read_config(self.disk(), &path)?.unwrap_or_default()),
            None => Err(self.unknown(topic, 0)),
        }
    }

    /// The settings that hold for a topic, by its first partition, each with the layer that it comes from. In a broker's log dir they
    /// are the cluster's: of the metadata log in these folders or in `metadata`, and of `broker`'s `server.properties`.
    ///
    /// # Errors
    /// As [`topic_config`](Self::topic_config); `LogDir` for a folder `metadata` without a metadata log.
    pub fn topic_settings(
        &self,
        topic: &str,
        broker: Option<&BrokerSettings>,
        metadata: Option<&Path>,
    ) -> Result<TopicSettings> {
        let stored = self.topic_config(topic)?;
        let first = self.0.listing().numbers(topic).first().copied();
        let partition = first.unwrap_or_default();
        let path = self.path_of(&TopicPartition {
            topic: topic.to_owned(),
            partition,
        });
        let named;
        let surroundings = if broker.is_some() || metadata.is_some() {
            named = Surroundings::new(&self.0.options, metadata, &self.0.paths, broker)?;
            &named
        } else {
            self.0.surroundings.as_ref()
        };
        let found = surroundings.membership(&path.unwrap_or_default(), topic, partition)?;
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
            broker: found.is_brokers().then(|| found.mark().to_owned()),
        })
    }

    /// Whether [`delete_topic`](Self::delete_topic) would be refused; changes nothing.
    ///
    /// # Errors
    /// As there.
    pub fn check_delete(&self, topic: &str) -> Result<()> {
        let aside = self.aside()?;
        let numbers = self.0.listing().numbers(topic);
        if numbers.is_empty() {
            return Err(self.unknown(topic, 0));
        }
        self.check_named(topic, "delete")?;
        for partition in numbers {
            let partition = TopicPartition {
                topic: topic.to_owned(),
                partition,
            };
            if let Some(path) = self.path_of(&partition)
                && self.opened(&partition).is_none()
            {
                lock_partition(aside.disk(), &path)?.release();
            }
        }
        Ok(())
    }

    /// Refuses to do that to a topic of brokers' own, unless it was named.
    fn check_named(&self, topic: &str, verb: &str) -> Result<()> {
        let named = &self.writer()?.options.internal_topics;
        let place = self.0.paths.first().map_or(Path::new(""), PathBuf::as_path);
        check_internal(topic, named, verb, place)
    }

    /// Changes the settings of a topic, of all its partitions.
    ///
    /// # Errors
    /// As [`topic_config`](Self::topic_config) and for opening a partition; `Argument` for settings that contradict each other.
    pub fn set_topic_config(&self, topic: &str, config: &LogConfig) -> Result<()> {
        let writer = self.writer()?;
        let _alone = guard(&writer.topics);
        config.or_defaults(&writer.options.defaults)?;
        let numbers = self.0.listing().numbers(topic);
        if numbers.is_empty() {
            return Err(self.unknown(topic, 0));
        }
        for partition in numbers {
            self.with_log(topic, partition, |log| log.set_config(config))?;
        }
        Ok(())
    }

    /// Removes the directories of deleted topics whose time has come, and gives them; with `dry_run` only that. One in which somebody
    /// works, as a conversion does, stays until that is over.
    ///
    /// # Errors
    /// `Io`; the rest waits for the next time.
    pub fn remove_deleted(&self, dry_run: bool) -> Result<Vec<PathBuf>> {
        let writer = self.writer()?;
        let now = self.0.now();
        // Another thread may be at it.
        let _alone = guard(&writer.removing);
        let due: Vec<PathBuf> = guard(&writer.doomed)
            .iter()
            .filter(|doomed| doomed.due <= now)
            .map(|doomed| doomed.path.clone())
            .collect();
        let mut removed = Vec::new();
        for path in due {
            let Some(lock) = lock_idle(self.disk(), &path)? else {
                continue;
            };
            if !dry_run {
                remove_all(self.disk(), &path, DEPTH_MAX)
                    .map_err(|error| Error::io(IoCall::Remove, &path, error))?;
                guard(&writer.doomed).retain(|doomed| doomed.path != path);
            }
            lock.release();
            removed.push(path);
        }
        Ok(removed)
    }

    pub(super) fn disk(&self) -> &dyn Disk {
        self.0.options.disk.as_ref()
    }
}

/// When a directory is to go that was found under the name of a deleted one: as is written there, else after the delay, counted from now,
/// which is written down.
pub(super) fn due_of(disk: &dyn Disk, path: &Path, latest: i64) -> i64 {
    let noted = read_whole(disk, &path.join(DUE_FILE), 64).ok();
    let noted = noted.and_then(|bytes| String::from_utf8(bytes).ok()?.trim().parse::<i64>().ok());
    if let Some(due) = noted {
        // A clock that was set back is no reason to keep it for ever.
        return due.min(latest);
    }
    // Where it cannot be written, the next program waits anew.
    let _ = note_due(disk, path, latest);
    latest
}

fn note_due(disk: &dyn Disk, path: &Path, due: i64) -> io::Result<()> {
    let file = disk.open(&path.join(DUE_FILE), Access::Replace)?;
    file.write_at(format!("{due}\n").as_bytes(), 0)
}

/// Removes a directory with all that is in it; what is not there any more is no failure.
pub(crate) fn remove_all(disk: &dyn Disk, path: &Path, depth: usize) -> io::Result<()> {
    let entries = match disk.list(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        listed => listed?,
    };
    for entry in entries {
        let inner = path.join(&entry.name);
        if entry.kind == EntryKind::Directory && depth > 0 {
            remove_all(disk, &inner, depth - 1)?;
        } else {
            match disk.unlink(&inner) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            }
        }
    }
    disk.remove_directory(path)
}
