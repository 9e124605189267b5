//! What a broker would do with each directory that it finds: serve, set aside or delete it; and what keeps the broker from starting.
//!
//! Source: Kafka's `MetaPropertiesEnsemble` and `LogManager` (`loadLog`, `isStrayKraftReplica`), those of 4.3.0.

mod partition;

use crate::places::{LogDirPlace, Places};
use offsetlog::format::name::DirectoryState;
use offsetlog::format::{MetaProperties, Uuid};
use offsetlog::{DirectoryProgress, Error, MetadataImage, OpenOptions, Result};
use partition::{Judge, Known, Live};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub(crate) use partition::{absent_log_dirs, assigned_directory, key, not_a_replica};

/// What a broker does with a directory when it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// It takes a log dir for its own; it loads a partition and serves it.
    Serves,
    /// It continues to move the partition from another log dir to this directory.
    Moves,
    /// It renames a partition's directory to `-stray`, and serves it no more.
    Strays,
    /// It leaves the directory as it is, and does not serve it.
    Ignores,
    /// It deletes the directory after a while.
    Deletes,
    /// The partition, or the log dir with it, goes offline.
    Fails,
    /// It does not start.
    Stops,
    /// Data that is not here decides.
    Unknown,
}

impl Outcome {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Serves => "serves",
            Self::Moves => "moves",
            Self::Strays => "strays",
            Self::Ignores => "ignores",
            Self::Deletes => "deletes",
            Self::Fails => "fails",
            Self::Stops => "stops",
            Self::Unknown => "unknown",
        }
    }
}

/// What a directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DirectoryKind {
    /// A log dir.
    LogDir,
    /// A partition's directory, by its name: live, or `-future`, `-delete`, `-stray`.
    Partition(DirectoryState),
    /// A folder in a log dir that is not called topic-partition.
    Other,
}

impl DirectoryKind {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LogDir => "log-dir",
            Self::Partition(DirectoryState::Live) => "live",
            Self::Partition(DirectoryState::Future) => "future",
            Self::Partition(DirectoryState::Delete) => "delete",
            Self::Partition(DirectoryState::Stray) => "stray",
            Self::Other => "other",
        }
    }
}

/// One directory, and what a broker does with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryIdentity {
    /// The directory.
    pub path: PathBuf,
    /// What it is.
    pub kind: DirectoryKind,
    /// The topic in its name; that of `-delete` and `-stray` may be cut short.
    pub topic: Option<String>,
    /// The partition in its name.
    pub partition: Option<i32>,
    /// The id in its `partition.metadata`.
    pub topic_id: Option<Uuid>,
    /// The version of the log dir's `meta.properties`: 0 with ZooKeeper, 1 without.
    pub version: Option<i32>,
    /// The `cluster.id` of the log dir.
    pub cluster_id: Option<String>,
    /// Its `node.id` or `broker.id`.
    pub node_id: Option<i32>,
    /// Its `directory.id`.
    pub directory_id: Option<Uuid>,
    /// What a broker does with the directory.
    pub outcome: Outcome,
    /// Why.
    pub reason: String,
}

/// The directories in a broker's folders.
#[derive(Debug)]
pub struct Identity {
    /// Each log dir in the order given, behind it the directories in it by name.
    pub directories: Vec<DirectoryIdentity>,
    /// Whether the cluster's metadata is here and can be read.
    pub has_metadata: bool,
    /// Why it cannot be read.
    pub metadata_error: Option<Error>,
    /// What was left out of it, and what is odd about all log dirs together.
    pub warnings: Vec<String>,
}

/// Says what a broker does with each log dir and each directory in it, when it starts with these. Without ZooKeeper it is one of
/// Kafka 4.3; from 3.7 on they do the same. Compares with the cluster's metadata if that is among the paths. Reads `meta.properties` and
/// `partition.metadata`, and no log but the metadata's; changes nothing. A broker that runs may have changed its mind since.
///
/// # Errors
/// `Io` if a folder cannot be listed; `LogDir` if none of them has anything of a log dir, for the folder around log dirs, and for a file
/// that was set aside; `Interrupted`; those of the progress. Damage is no error, but a reason; so is metadata that cannot be read.
///
/// ```no_run
/// use offsetlog::{DirectoryProgress, OpenOptions};
/// use offsetlog_ops::identity;
///
/// # fn main() -> Result<(), offsetlog::Error> {
/// let folders = ["/disk1/kafka", "/mnt/metadata"];
/// let found = identity(&folders, &OpenOptions::default(), &DirectoryProgress::default())?;
/// for each in found.directories {
///     println!("{} {}: {}", each.path.display(), each.outcome.name(), each.reason);
/// }
/// # Ok(())
/// # }
/// ```
pub fn identity<P: AsRef<Path>>(
    paths: &[P],
    options: &OpenOptions,
    progress: &DirectoryProgress,
) -> Result<Identity> {
    let mut places = Places::read_told(paths, options, progress)?;
    let log_dirs = std::mem::take(&mut places.log_dirs);
    let metadata = places.metadata.as_ref();
    let metadata_cluster = places.metadata_cluster.clone();
    let cluster = Cluster::of(&log_dirs, metadata, metadata_cluster.as_deref());
    let mut directories = Vec::new();
    for place in &log_dirs {
        let row = |path: &Path, kind, (outcome, reason)| DirectoryIdentity {
            path: path.to_path_buf(),
            kind,
            topic: None,
            partition: None,
            topic_id: None,
            version: place.version(),
            cluster_id: place.cluster_id().map(ToOwned::to_owned),
            node_id: place.node_id(),
            directory_id: place.directory_id(),
            outcome,
            reason,
        };
        let found = unless_unreadable(
            cluster.log_dir(place, metadata),
            place,
            places.metadata_error.as_ref(),
        );
        directories.push(row(&place.path, DirectoryKind::LogDir, found));
        let judge = cluster.judge(place, places.metadata_error.as_ref());
        for each in &place.partitions {
            let judged = judge.partition(each);
            directories.push(DirectoryIdentity {
                topic: Some(each.topic.clone()),
                partition: Some(each.partition),
                topic_id: each.topic_id.as_ref().ok().copied().flatten(),
                ..row(&each.path, DirectoryKind::Partition(each.state), judged)
            });
        }
        for (path, why) in &place.others {
            let reason = format!("a folder in a log dir that is not called topic-partition: {why}");
            directories.push(row(path, DirectoryKind::Other, (Outcome::Stops, reason)));
        }
    }
    let mut warnings = std::mem::take(&mut places.warnings);
    warnings.extend(cluster.warning());
    Ok(Identity {
        directories,
        has_metadata: places.metadata.is_some(),
        metadata_error: places.metadata_error,
        warnings,
    })
}

/// A broker compares its log dirs with metadata that cannot be read here, as damaged or as another cluster's: then nobody can say that it starts.
fn unless_unreadable(
    found: (Outcome, String),
    place: &LogDirPlace,
    error: Option<&Error>,
) -> (Outcome, String) {
    match (found, error) {
        ((Outcome::Serves, reason), Some(error)) if place.has_partitions() => (
            Outcome::Unknown,
            format!("{reason}; the metadata cannot be read: {error}"),
        ),
        (found, _) => found,
    }
}

/// What the log dirs say together.
struct Cluster<'a> {
    /// The `cluster.id` that most have.
    id: Option<&'a str>,
    /// That of the log dir with the metadata log.
    metadata_id: Option<&'a str>,
    /// Whether brokers do without ZooKeeper.
    is_kraft: Option<bool>,
    nodes: BTreeSet<i32>,
    /// Log dirs by `directory.id`.
    by_directory: BTreeMap<[u8; 16], Vec<&'a Path>>,
    known: Option<Known<'a>>,
    live: Live<'a>,
}

impl<'a> Cluster<'a> {
    fn of(
        log_dirs: &'a [LogDirPlace],
        metadata: Option<&'a MetadataImage>,
        metadata_id: Option<&'a str>,
    ) -> Self {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let mut by_directory: BTreeMap<[u8; 16], Vec<&Path>> = BTreeMap::new();
        let mut live = Live::new();
        for place in log_dirs {
            for each in &place.partitions {
                if each.state == DirectoryState::Live {
                    live.entry(key(place, each)).or_default().push(&each.path);
                }
            }
            if let Some(id) = place.cluster_id() {
                *counts.entry(id).or_default() += 1;
            }
            if let Some(id) = place.directory_id() {
                let all = by_directory.entry(id.to_bytes()).or_default();
                all.push(&place.path);
            }
        }
        let most = counts.values().max().copied();
        let ids = || log_dirs.iter().filter_map(LogDirPlace::cluster_id);
        let id = ids().find(|id| counts.get(id).copied() == most);
        let is_kraft = match metadata {
            Some(metadata) => Some(!metadata.is_of_zookeeper),
            None => log_dirs
                .iter()
                .filter_map(LogDirPlace::version)
                .max()
                .map(|version| version > 0),
        };
        Self {
            id,
            metadata_id,
            is_kraft,
            nodes: log_dirs.iter().filter_map(LogDirPlace::node_id).collect(),
            by_directory,
            known: metadata.map(Known::of),
            live,
        }
    }

    fn judge(&self, place: &'a LogDirPlace, error: Option<&Error>) -> Judge<'_> {
        let is_kraft = place.version().map(|version| version > 0);
        let is_other = self.other_cluster(place);
        Judge {
            // Without any meta.properties only a broker with ZooKeeper starts there.
            is_kraft: is_kraft.or(self.is_kraft).unwrap_or(false),
            known: self.known.as_ref().filter(|_| is_other.is_none()),
            missing: match (is_other, error) {
                (Some(there), _) => format!("the metadata is that of cluster {there}"),
                (None, Some(error)) => format!("the metadata cannot be read: {error}"),
                (None, None) => "no metadata of the cluster is here".to_owned(),
            },
            place,
            live: &self.live,
        }
    }

    /// The cluster of the metadata, where a log dir is another one's: then it tells nothing of it.
    fn other_cluster(&self, place: &LogDirPlace) -> Option<&'a str> {
        match (self.metadata_id, place.cluster_id()) {
            (Some(there), Some(here)) => (there != here).then_some(there),
            _ => None,
        }
    }

    fn log_dir(&self, place: &LogDirPlace, metadata: Option<&MetadataImage>) -> (Outcome, String) {
        let properties = match &place.properties {
            Err(error) if place.has_metadata_log() => {
                let reason =
                    format!("meta.properties of the log dir with the metadata log: {error}");
                return (Outcome::Stops, reason);
            }
            Err(error) => {
                let reason = format!(
                    "meta.properties: {error}: the log dir goes offline; a broker that has no other does not start"
                );
                return (Outcome::Fails, reason);
            }
            Ok(None) => {
                return match self.is_kraft {
                    Some(false) => (
                        Outcome::Serves,
                        "no meta.properties: a broker with ZooKeeper writes a new one".to_owned(),
                    ),
                    Some(true) => (
                        Outcome::Stops,
                        "no meta.properties: a broker without ZooKeeper starts with no log dir that has none".to_owned(),
                    ),
                    None => (
                        Outcome::Stops,
                        "no meta.properties: only a broker with ZooKeeper starts, and writes a new one".to_owned(),
                    ),
                };
            }
            Ok(Some(properties)) => properties,
        };
        let (node, cluster) = (properties.node_id(), properties.cluster_id());
        if let (Some(here), Some(most)) = (cluster, self.id)
            && here != most
        {
            let reason =
                format!("it is of cluster {here}, and other log dirs are of cluster {most}");
            return (Outcome::Stops, reason);
        }
        if let Some(id) = properties.directory_id() {
            let all = self.by_directory.get(&id.to_bytes());
            let mut others = all.into_iter().flatten();
            if let Some(other) = others.find(|other| **other != place.path) {
                let reason = format!(
                    "{} has the same directory.id {id}: one is a copy of the other",
                    other.display()
                );
                return (Outcome::Stops, reason);
            }
        }
        let mut said = vec![format!(
            "node {} of cluster {}",
            node.map_or_else(|| "unknown".to_owned(), |node| node.to_string()),
            cluster.unwrap_or("unknown")
        )];
        said.extend(self.against_metadata(place, properties, metadata));
        if place.is_whole && !place.is_clean && place.has_partitions() {
            said.push("no mark of a clean stop, so it recovers the logs".to_owned());
        }
        (Outcome::Serves, said.join("; "))
    }

    /// What is odd about a log dir, seen from the metadata.
    fn against_metadata(
        &self,
        place: &LogDirPlace,
        properties: &MetaProperties,
        metadata: Option<&MetadataImage>,
    ) -> Option<String> {
        let is_v1 = matches!(properties, MetaProperties::V1 { .. });
        if is_v1 && properties.directory_id().is_none() {
            return Some(
                "no directory.id: it makes a new one, and replicas that the metadata has in the old one have no leader until it is told"
                    .to_owned(),
            );
        }
        if self.is_kraft == Some(true) && !is_v1 {
            return Some("version 0 of meta.properties, of a broker with ZooKeeper".to_owned());
        }
        let metadata = metadata
            .filter(|all| all.is_complete && !all.is_of_zookeeper)
            .filter(|_| self.other_cluster(place).is_none())?;
        let node = properties.node_id()?;
        if !place.has_partitions() {
            return None;
        }
        let Some(broker) = metadata.brokers.iter().find(|broker| broker.id == node) else {
            return Some(format!("the metadata has no broker {node}"));
        };
        let id = properties.directory_id()?;
        let is_known = broker.log_dirs.is_empty() || broker.log_dirs.contains(&id);
        (!is_known).then(|| {
            format!("the metadata does not have its directory.id {id} among those of broker {node}")
        })
    }

    fn warning(&self) -> Option<String> {
        if self.nodes.len() < 2 {
            return None;
        }
        let nodes: Vec<String> = self.nodes.iter().map(ToString::to_string).collect();
        Some(format!(
            "the log dirs are those of nodes {}: each is looked at as the broker of its own, and no broker starts with all of them",
            nodes.join(", ")
        ))
    }
}
