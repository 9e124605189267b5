//! Where partitions are restored to: a cluster that has not started yet, a stopped broker's log dirs, or a folder of no broker.

mod beside;
mod new_cluster;
mod stopped_broker;

use super::bootstrap::Bootstrap;
use super::sources::SourceTopic;
use super::tiered::RemoteStorage;
use super::{PartitionToRestore, RestoreOptions, SourcePartition};
use crate::places::{LogDirPlace, Places};
use beside::AllBeside;
use offsetlog::format::name::DirectoryState;
use offsetlog::format::{MetaProperties, Uuid};
use offsetlog::{
    BrokerSettings, Error, Log, MetadataImage, OpenOptions, Result, SHARED_LOCK_FILE,
    check_new_log_dirs, check_new_partition, local_path, new_topic_id,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What the log dirs are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Formatted, and never started: the restored topics are written into `bootstrap.checkpoint`.
    NewCluster,
    /// Of a stopped broker, or several, whose cluster has the topics.
    StoppedBroker,
    /// Of no broker.
    Folder,
}

impl Target {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NewCluster => "new-cluster",
            Self::StoppedBroker => "stopped-broker",
            Self::Folder => "folder",
        }
    }
}

/// The log dirs to restore into.
pub(crate) struct Targets {
    pub(crate) kind: Target,
    log_dirs: Vec<TargetDir>,
    /// What the cluster's metadata says. Where a part of it is missing, it only tells where partitions go.
    pub(crate) metadata: Option<MetadataImage>,
    /// One for each log dir that has the file.
    pub(crate) bootstraps: Vec<Bootstrap>,
    /// The ids of the topics of which partitions are here already.
    ids: BTreeMap<String, Uuid>,
    /// Directories of partitions that are not live.
    beside: AllBeside,
    /// What has to be done when a new cluster starts for the first time.
    pub(crate) at_first_start: Vec<String>,
    pub(crate) warnings: Vec<String>,
}

struct TargetDir {
    path: PathBuf,
    node_id: Option<i32>,
    directory_id: Option<Uuid>,
    /// Whether it has ZooKeeper's kind of `meta.properties`.
    is_of_zookeeper: bool,
    live: BTreeMap<(String, i32), PathBuf>,
    /// Bytes of the partitions in it, and of those that are to be restored into it.
    bytes: u64,
}

/// Where a partition is restored to, and as what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) topic_id: Option<Uuid>,
    /// For each replica its broker and its new directory.
    pub(crate) replicas: Vec<(Option<i32>, PathBuf)>,
    /// For each replica the id of its log dir.
    pub(crate) directories: Vec<Option<Uuid>>,
    /// The greatest leader epoch that the cluster takes, if the log's is above.
    pub(crate) leader_epoch_max: Option<i32>,
    /// The greatest leader epoch that the cluster takes, if it has its own.
    pub(crate) leader_epoch_accepted: Option<i32>,
    /// Brokers that have the partition too, and are not among the log dirs.
    pub(crate) absent: Vec<i32>,
    /// The topic's remote storage in a stopped broker's cluster.
    pub(super) remote: Option<RemoteStorage>,
}

impl Targets {
    /// Reads what the log dirs are.
    ///
    /// # Errors
    /// `LogDir` where they are not what was asked for; the text says what to do.
    pub(crate) fn read<P: AsRef<Path>>(
        paths: &[P],
        how: &RestoreOptions,
        broker: Option<&BrokerSettings>,
        options: &OpenOptions,
    ) -> Result<Self> {
        let mut all = Vec::new();
        for path in paths {
            let path = local_path(path)?;
            if all.contains(&path) {
                return Err(Error::argument(
                    "into",
                    format!("{} is given twice", path.display()),
                ));
            }
            all.push(path);
        }
        let Some(first) = all.first().cloned() else {
            return Err(Error::argument("into", "no log dir to restore into"));
        };
        for path in &all {
            // Of any name: all in it are the mirror's.
            check_new_partition(options.disk.as_ref(), &path.join("restored-0"))?;
        }
        if !how.new_cluster {
            check_new_log_dirs(options.disk.as_ref(), &all)?;
        }
        // Folders that are made, where others are there already.
        let (mut with_metadata, new): (Vec<PathBuf>, Vec<PathBuf>) = all
            .iter()
            .cloned()
            .partition(|path| how.new_cluster || is_there(path, options));
        if with_metadata.is_empty() {
            with_metadata.clone_from(&all);
        }
        for path in &how.metadata {
            with_metadata.push(local_path(path)?);
        }
        let mut places = match Places::read(&with_metadata, options) {
            Ok(places) => places,
            // A folder that is not there yet, or that is empty.
            Err(_) if !how.new_cluster && is_empty(&all, options) => {
                if how.metadata.is_empty() {
                    return Ok(Self::folder(all));
                }
                let reason =
                    "goes with a broker's log dirs, and what is restored into is an empty folder";
                return Err(Error::argument("metadata", reason));
            }
            Err(error) => return Err(error),
        };
        if let Some(error) = places.metadata_error.take() {
            return Err(error);
        }
        one_cluster(&places)?;
        let mut found = Self::folder(Vec::new());
        found.metadata = places.metadata.take();
        for path in &all {
            if new.contains(path) {
                found
                    .log_dirs
                    .extend(Self::folder(vec![path.clone()]).log_dirs);
                continue;
            }
            let place = places.log_dirs.iter().find(|place| place.path == *path);
            let Some(place) = place.filter(|place| place.is_whole) else {
                let reason = "a log dir expected, the folder around partition directories";
                return Err(Error::log_dir(path, reason));
            };
            found.add(place)?;
        }
        found.check_cluster(&first)?;
        let is_brokers = found.log_dirs.iter().any(|each| each.node_id.is_some());
        let is_new =
            how.new_cluster && found.takes_topics(&with_metadata, &places, broker, options)?;
        found.kind = match (is_new, is_brokers) {
            (true, _) => Target::NewCluster,
            (false, true) => Target::StoppedBroker,
            (false, false) => Target::Folder,
        };
        if found.kind == Target::StoppedBroker {
            found.weigh(options);
            found.tell_unclean(&places);
            found.tell_of_metadata(&places);
        }
        found.warnings.append(&mut places.warnings);
        Ok(found)
    }

    fn folder(paths: Vec<PathBuf>) -> Self {
        let log_dirs = paths.into_iter().map(|path| TargetDir {
            path,
            node_id: None,
            directory_id: None,
            is_of_zookeeper: false,
            live: BTreeMap::new(),
            bytes: 0,
        });
        Self {
            kind: Target::Folder,
            log_dirs: log_dirs.collect(),
            metadata: None,
            bootstraps: Vec::new(),
            ids: BTreeMap::new(),
            beside: AllBeside::default(),
            at_first_start: Vec::new(),
            warnings: Vec::new(),
        }
    }

    fn add(&mut self, place: &LogDirPlace) -> Result<()> {
        if let Err(reason) = &place.properties {
            return Err(Error::log_dir(
                &place.path,
                format!("meta.properties: {reason}"),
            ));
        }
        let mut live = BTreeMap::new();
        self.beside.extend(&place.partitions);
        for each in &place.partitions {
            if each.state != DirectoryState::Live || each.is_metadata_log() {
                continue;
            }
            live.insert((each.topic.clone(), each.partition), each.path.clone());
            match &each.topic_id {
                Ok(Some(id)) => {
                    let known = self.ids.entry(each.topic.clone()).or_insert(*id);
                    if *known != *id {
                        let reason = format!(
                            "partition.metadata has the topic id {id}, and another directory of the topic has {known}"
                        );
                        return Err(Error::log_dir(&each.path, reason));
                    }
                }
                Ok(None) => {}
                Err(reason) => {
                    return Err(Error::log_dir(
                        &each.path,
                        format!("partition.metadata: {reason}"),
                    ));
                }
            }
        }
        let properties = place.properties.as_ref().ok().and_then(Option::as_ref);
        self.log_dirs.push(TargetDir {
            path: place.path.clone(),
            node_id: place.node_id(),
            directory_id: place.directory_id(),
            is_of_zookeeper: matches!(properties, Some(MetaProperties::V0 { .. })),
            live,
            bytes: 0,
        });
        Ok(())
    }

    /// Counts what the log dirs of a broker hold, where there are several to choose from.
    fn weigh(&mut self, options: &OpenOptions) {
        if self.log_dirs.len() <= self.nodes().len() {
            return;
        }
        for log_dir in &mut self.log_dirs {
            for path in log_dir.live.values() {
                // Where one cannot be read the choice is a worse one, and nothing else.
                let size = Log::open(path, options).and_then(|log| log.size_bytes());
                log_dir.bytes += size.unwrap_or(0);
            }
        }
    }

    /// Warns of log dirs that a broker recovers when it starts: it was killed, or an earlier restore was. Whoever killed a restore has
    /// perhaps used a broker since, so the mark that the restore took away does not come back.
    fn tell_unclean(&mut self, places: &Places) {
        let is_unclean = |each: &&LogDirPlace| {
            let is_target = self.log_dirs.iter().any(|target| target.path == each.path);
            is_target && !each.is_clean && each.has_partitions()
        };
        let warnings = places.log_dirs.iter().filter(is_unclean).map(|each| {
            format!(
                "{}: no mark of a clean stop, because its broker was killed, or an earlier restore into it was: the broker recovers its logs when it starts",
                each.path.display()
            )
        });
        let warnings: Vec<String> = warnings.collect();
        self.warnings.extend(warnings);
    }

    /// All log dirs are brokers' or none is.
    fn check_cluster(&self, first: &Path) -> Result<()> {
        let mixed = self.log_dirs.iter().find(|each| {
            let of_first = self.log_dirs.first().and_then(|first| first.node_id);
            each.node_id.is_some() != of_first.is_some()
        });
        match mixed {
            Some(mixed) => {
                let reason = format!(
                    "of {} and this log dir only one has a meta.properties with a node id: format the other, or give those of brokers alone",
                    first.display()
                );
                Err(Error::log_dir(&mixed.path, reason))
            }
            None => Ok(()),
        }
    }

    /// The brokers, ascending.
    fn nodes(&self) -> Vec<i32> {
        let nodes: BTreeSet<i32> = self
            .log_dirs
            .iter()
            .filter_map(|each| each.node_id)
            .collect();
        nodes.into_iter().collect()
    }

    /// Says where a partition goes.
    ///
    /// # Errors
    /// In words: why it cannot be restored here, and what to do.
    pub(crate) fn place(
        &mut self,
        topic: &SourceTopic,
        number: i32,
        source: &SourcePartition,
        how: &RestoreOptions,
        options: &OpenOptions,
    ) -> std::result::Result<Placed, String> {
        let placed = match self.kind {
            Target::NewCluster => self.in_new_cluster(topic, number, source, how)?,
            Target::StoppedBroker => self.in_stopped_broker(topic, number, source, how, options)?,
            Target::Folder => {
                let slot = self.slot(None, &topic.to_make.name, number, None);
                let topic_id = self
                    .known_id(&topic.to_make.name)
                    .or(topic.to_make.topic_id);
                self.placed(&[(None, slot)], topic, number, source, topic_id)
            }
        };
        self.look_beside(&topic.to_make.name, number, &placed, options)?;
        Ok(placed)
    }

    /// The ids of a broker's log dirs.
    fn directory_ids(&self, node: i32) -> Vec<Uuid> {
        let all = self.log_dirs.iter();
        let own = all.filter(|each| each.node_id == Some(node));
        own.filter_map(|each| each.directory_id).collect()
    }

    /// The id that the topic has here already.
    fn known_id(&self, topic: &str) -> Option<Uuid> {
        let in_bootstrap = self
            .bootstraps
            .iter()
            .find_map(|file| file.topics.get(topic));
        in_bootstrap.or_else(|| self.ids.get(topic)).copied()
    }

    /// The id of a topic in a new cluster: the one that it has there already, or had, or a new one.
    pub(crate) fn topic_id(&mut self, topic: &SourceTopic) -> Uuid {
        let name = &topic.to_make.name;
        let known = self.known_id(name).or(topic.to_make.topic_id);
        known.unwrap_or_else(|| {
            let drawn = new_topic_id();
            self.ids.insert(name.clone(), drawn);
            drawn
        })
    }

    fn placed(
        &mut self,
        slots: &[(Option<i32>, usize)],
        topic: &SourceTopic,
        number: i32,
        source: &SourcePartition,
        topic_id: Option<Uuid>,
    ) -> Placed {
        let name = format!("{}-{number}", topic.to_make.name);
        let mut placed = Placed {
            topic_id,
            replicas: Vec::new(),
            directories: Vec::new(),
            leader_epoch_max: None,
            leader_epoch_accepted: None,
            absent: Vec::new(),
            remote: None,
        };
        for (node, slot) in slots {
            if let Some(log_dir) = self.log_dirs.get_mut(*slot) {
                log_dir.bytes += source.age.bytes;
                placed.replicas.push((*node, log_dir.path.join(&name)));
                placed.directories.push(log_dir.directory_id);
            }
        }
        placed
    }

    /// The log dir of a broker for a partition: where it is already, or where the metadata has it, else the one with the fewest bytes.
    fn slot(&self, node: Option<i32>, topic: &str, number: i32, directory: Option<Uuid>) -> usize {
        let key = (topic.to_owned(), number);
        let of_node = || {
            let all = self.log_dirs.iter().enumerate();
            all.filter(move |(_, each)| each.node_id == node)
        };
        let there = of_node().find(|(_, each)| each.live.contains_key(&key));
        let known =
            || of_node().find(|(_, each)| directory.is_some() && each.directory_id == directory);
        let least = || of_node().min_by_key(|(_, each)| each.bytes);
        there
            .or_else(known)
            .or_else(least)
            .map_or(0, |(slot, _)| slot)
    }

    /// The log dirs, each with its broker.
    pub(crate) fn paths(&self) -> Vec<(Option<i32>, PathBuf)> {
        let all = self.log_dirs.iter();
        all.map(|each| (each.node_id, each.path.clone())).collect()
    }

    /// The log dirs that have no partitions but those that are restored.
    pub(crate) fn without_others(&self, restored: &[PartitionToRestore]) -> Vec<PathBuf> {
        let ours: BTreeSet<&Path> = restored
            .iter()
            .flat_map(|each| each.into.iter().map(|(_, path)| path.as_path()))
            .collect();
        let is_alone =
            |each: &&TargetDir| each.live.values().all(|path| ours.contains(path.as_path()));
        let alone = self.log_dirs.iter().filter(is_alone);
        alone.map(|each| each.path.clone()).collect()
    }

    /// The ids of a broker's log dirs, of the one with the fewest bytes first: for a partition that is not restored.
    pub(crate) fn directory_for_empty(&self, node: i32) -> Option<Uuid> {
        let all = self
            .log_dirs
            .iter()
            .filter(|each| each.node_id == Some(node));
        all.min_by_key(|each| each.bytes)
            .and_then(|each| each.directory_id)
    }
}

/// Refuses log dirs of several clusters.
fn one_cluster(places: &Places) -> Result<()> {
    let mut known: Option<(&str, &Path)> = None;
    for place in &places.log_dirs {
        let Some(id) = place.cluster_id() else {
            continue;
        };
        match known {
            Some((first, path)) if first != id => {
                let reason = format!(
                    "its cluster.id is {id}, and that of {} is {first}",
                    path.display()
                );
                return Err(Error::log_dir(&place.path, reason));
            }
            _ => known = Some((id, &place.path)),
        }
    }
    Ok(())
}

fn is_there(path: &Path, options: &OpenOptions) -> bool {
    let found = options.disk.stat(path);
    !found.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

/// Whether nothing is in these folders, or what is left of a restore that ended before the first partition.
fn is_empty(paths: &[PathBuf], options: &OpenOptions) -> bool {
    let mut listed = paths.iter().map(|path| options.disk.list(path));
    listed.all(|listed| match listed {
        Ok(entries) => entries.iter().all(|entry| entry.name == SHARED_LOCK_FILE),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    })
}
