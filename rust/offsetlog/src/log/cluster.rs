//! What the cluster says of a partition in a broker's log dir: its settings, and which other brokers have a replica.
//!
//! Settings that are only ours never apply to a broker's directory: the cluster's metadata log and the broker's own `server.properties`
//! decide. A setting that neither has is unknown, and nothing is deleted by it.

mod access;
mod again;
mod beside;
mod guard;
mod metadata;
mod metadata_snapshot;
mod missing;
mod named;
pub(crate) mod replay;
mod secrets;
mod zookeeper;

pub use access::{AccessControlEntry, ClientQuota, ScramCredential};
pub use again::MetadataMark;
pub use guard::check_new_partition;
pub use guard::is_internal_topic;
pub(crate) use guard::{Guard, Upkeep, check_internal, refuse_mirrored};
pub use metadata::{BrokerRegistration, MetadataImage, PartitionRegistration, TopicImage};
pub(crate) use metadata::{read_metadata, read_metadata_told};
pub use secrets::{HIDDEN, is_secret};

use super::state::{CONFIG_FILE, read_small};
use super::{Log, OpenOptions};
use crate::config::{BrokerSettings, EffectiveConfig, Layers, LogConfig};
use crate::disk::{Disk, EntryKind, IoCall};
use crate::error::{Error, Result};
use crate::folder::is_there;
use crate::step_progress::{DirectoryProgress, Steps};
use named::Source;
use offsetlog_format::internal_topic::METADATA_TOPIC;
use offsetlog_format::meta_properties::read_properties;
use offsetlog_format::name::{CLEAN_SHUTDOWN, META_PROPERTIES, PARTITION_METADATA};
use offsetlog_format::{FileName, PartitionMetadata, SegmentFile, Uuid};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use zookeeper::Places;
pub use zookeeper::{NodeAnswer, zookeeper_node};

/// Written by the format tool beside `meta.properties`.
const BOOTSTRAP: &str = "bootstrap.checkpoint";
/// What tells that a partition that stands alone is not ours to keep.
const NO_SETTINGS: &str = "segments, and no settings of offsetlog's";
/// The file in a log dir that a mirror fills.
pub const MIRROR_NOTE: &str = ".offsetlog.mirror";

/// What is known around partitions: where the cluster's metadata is, and the broker's static settings. One for all partitions of a program
/// that has log dirs open.
#[derive(Debug)]
pub(crate) struct Surroundings {
    options: OpenOptions,
    /// What somebody named.
    named: Option<Source>,
    /// Further folders in which a metadata log may be.
    around: Vec<PathBuf>,
    broker: Option<BrokerSettings>,
    /// What is known of the one partition that is asked for, where that was found out before.
    known: Option<Arc<Membership>>,
    /// What was read, by its directory and, of ZooKeeper's, the cluster that was asked for.
    read: Mutex<BTreeMap<Asked, Arc<Metadata>>>,
    /// The metadata log that was found beside each log dir: one that is gone since does not make a broker's partition anybody else's.
    beside: Mutex<BTreeMap<PathBuf, PathBuf>>,
    /// How often one of the two changed or was forgotten. Raised while the one that changes is locked.
    changes: AtomicU64,
}

type Asked = (PathBuf, Option<String>);

/// A cluster's metadata that was read.
#[derive(Debug)]
pub(crate) struct Metadata {
    pub(crate) path: PathBuf,
    cluster_id: Option<String>,
    /// What it says, or why it cannot be read.
    image: std::result::Result<MetadataImage, String>,
    /// Topics that the brokers are about to delete.
    deleting: BTreeSet<String>,
}

/// What a `meta.properties` says.
#[derive(Debug, Clone, Default, PartialEq)]
struct Node {
    id: Option<i32>,
    cluster_id: Option<String>,
    /// Whether a broker without ZooKeeper wrote it.
    is_of_kraft: bool,
}

/// Whose a partition is, and what its cluster says of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Membership {
    /// The evidence that the partition is a broker's; `None` if it is ours to maintain.
    mark: Option<String>,
    node_id: Option<i32>,
    metadata: Option<Arc<Metadata>>,
    topic: String,
    topic_id: Option<Uuid>,
    partition: i32,
    /// Why the metadata at hand does not tell what the cluster has.
    unusable: Option<String>,
    /// Why the cluster's settings of the topic are not known.
    missing: Option<String>,
    broker: Option<BrokerSettings>,
    /// Settings that are stored beside it make it ours: no metadata at hand has the topic, and it is not one that a broker of this log
    /// dir made.
    may_be_kept: bool,
    /// Nothing around the partition is a broker's.
    is_lone: bool,
    /// A mirror fills the log dir: the records are another cluster's, at its offsets.
    is_mirrored: bool,
}

impl Surroundings {
    /// `named` is the folder with the metadata log, that log's own directory, or ZooKeeper's data; without it, the metadata log beside a
    /// partition or in one of the folders `around` is used.
    ///
    /// # Errors
    /// `LogDir` for a named folder that has neither, or the data of several servers of ZooKeeper's.
    pub(crate) fn new(
        options: &OpenOptions,
        named: Option<&Path>,
        around: &[PathBuf],
        broker: Option<&BrokerSettings>,
    ) -> Result<Self> {
        Ok(Self {
            options: options.clone(),
            named: named
                .map(|named| Source::find(options.disk.as_ref(), named))
                .transpose()?,
            around: around.to_vec(),
            broker: broker.cloned(),
            known: None,
            read: Mutex::default(),
            beside: Mutex::default(),
            changes: AtomicU64::default(),
        })
    }

    /// The same, with other metadata or another broker's settings where they are given.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(crate) fn with(
        &self,
        named: Option<&Path>,
        broker: Option<&BrokerSettings>,
    ) -> Result<Self> {
        let mut other = Self::new(&self.options, named, &self.around, broker)?;
        other.named = other.named.or_else(|| self.named.clone());
        other.broker = other.broker.or_else(|| self.broker.clone());
        Ok(other)
    }

    /// Around a single partition, of which this is known.
    pub(crate) fn known(options: &OpenOptions, membership: Arc<Membership>) -> Self {
        Self {
            options: options.clone(),
            named: None,
            around: Vec::new(),
            broker: None,
            known: Some(membership),
            read: Mutex::default(),
            beside: Mutex::default(),
            changes: AtomicU64::default(),
        }
    }

    fn disk(&self) -> &dyn Disk {
        self.options.disk.as_ref()
    }

    /// Whose the partition directory `path` is. Where none of the marks of a broker is found this costs a look at a few names.
    ///
    /// # Errors
    /// `Io`, `Interrupted`, `MetadataFile` of a `partition.metadata`.
    pub(crate) fn membership(
        &self,
        path: &Path,
        topic: &str,
        partition: i32,
    ) -> Result<Membership> {
        if let Some(known) = &self.known {
            return Ok(Membership::clone(known));
        }
        let log_dir = path.parent().unwrap_or(Path::new(""));
        let mut found = Membership {
            topic: topic.to_owned(),
            partition,
            broker: self.broker.clone(),
            is_mirrored: is_there(self.disk(), &log_dir.join(MIRROR_NOTE))?,
            ..Membership::default()
        };
        let is_kept = is_there(self.disk(), &path.join(CONFIG_FILE))?;
        let (mark, node) = self.mark_of(log_dir)?;
        found.is_lone = mark.is_none();
        let mark = match mark {
            None if is_kept || !has_segments(self.disk(), path)? => return Ok(found),
            None => NO_SETTINGS.to_owned(),
            Some(mark) => mark,
        };
        found.mark = Some(mark);
        found.node_id = node.id;
        found.topic_id = self.topic_id(path)?;
        found.metadata = self.metadata_of(log_dir, &node)?;
        found.unusable = found.unusable_because(node.cluster_id.as_deref());
        found.missing = found.missing_because();
        let is_unknown = match &found.metadata {
            None => true,
            Some(metadata) => metadata
                .image
                .as_ref()
                .is_ok_and(|image| image.is_complete && found.topic_in(image).is_none()),
        };
        // Ours has its settings before it has segments.
        found.may_be_kept =
            is_unknown && (is_kept || found.is_lone || !has_segments(self.disk(), path)?);
        if is_kept {
            found.keep();
        }
        Ok(found)
    }

    /// The one rule for a broker's log dir: it has files that only brokers and their tools write, or a metadata log is among the folders.
    fn mark_of(&self, log_dir: &Path) -> Result<(Option<String>, Node)> {
        let path = log_dir.join(META_PROPERTIES);
        if let Some(bytes) = read_small(self.disk(), &path)? {
            let node = node_of(&bytes);
            let mark = node.id.map_or_else(
                || META_PROPERTIES.to_owned(),
                |id| format!("{META_PROPERTIES} of node {id}"),
            );
            return Ok((Some(mark), node));
        }
        for name in [CLEAN_SHUTDOWN, BOOTSTRAP] {
            if is_there(self.disk(), &log_dir.join(name))? {
                return Ok((Some(name.to_owned()), Node::default()));
            }
        }
        let mark = if self.named.is_some() {
            Some("the metadata that was named".to_owned())
        } else {
            self.metadata_log_beside(log_dir)?
                .map(|_| format!("{METADATA_TOPIC}-0"))
        };
        Ok((mark, Node::default()))
    }

    /// What tells of the cluster that the log dir of this node belongs to.
    fn metadata_of(&self, log_dir: &Path, node: &Node) -> Result<Option<Arc<Metadata>>> {
        let source = match &self.named {
            None => self.metadata_log_beside(log_dir)?.map(Source::Log),
            named => named.clone(),
        };
        let Some(source) = source else {
            return Ok(None);
        };
        let key = match &source {
            Source::Log(path) => (path.clone(), None),
            Source::ZooKeeper(places) => {
                if let Some(why) = self.left_zookeeper(log_dir, node)? {
                    return Ok(Some(Arc::new(Metadata {
                        path: places.path().to_path_buf(),
                        cluster_id: None,
                        image: Err(why),
                        deleting: BTreeSet::new(),
                    })));
                }
                (places.path().to_path_buf(), node.cluster_id.clone())
            }
        };
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = read.get(&key) {
            return Ok(Some(Arc::clone(known)));
        }
        let metadata = match source {
            Source::Log(path) => self.read_log(path)?,
            Source::ZooKeeper(places) => self.read_zookeeper(&places, node)?,
        };
        let metadata = Arc::new(metadata);
        read.insert(key, Arc::clone(&metadata));
        Ok(Some(metadata))
    }

    /// Why ZooKeeper's data does not tell what holds in this log dir: nobody writes to it once a cluster has moved on.
    fn left_zookeeper(&self, log_dir: &Path, node: &Node) -> Result<Option<String>> {
        let log = self.metadata_log_beside(log_dir)?;
        Ok(match log {
            Some(log) => Some(format!(
                "the cluster has left ZooKeeper: its metadata stands in {}",
                log.display()
            )),
            None if node.is_of_kraft => Some(format!(
                "the cluster has left ZooKeeper, as {META_PROPERTIES} of version 1 says: its metadata stands in {METADATA_TOPIC}-0"
            )),
            None => None,
        })
    }

    fn read_log(&self, path: PathBuf) -> Result<Metadata> {
        let image = Log::open(&path, &self.options).and_then(|log| read_metadata(&log));
        let beside = path.parent().unwrap_or(Path::new("")).join(META_PROPERTIES);
        let node = read_small(self.disk(), &beside)?.map(|bytes| node_of(&bytes));
        Ok(Metadata {
            path,
            cluster_id: node.and_then(|node| node.cluster_id),
            image: told(image)?,
            deleting: BTreeSet::new(),
        })
    }

    fn read_zookeeper(&self, places: &Places, node: &Node) -> Result<Metadata> {
        let progress = DirectoryProgress::default();
        let (cluster_id, mut steps) = (node.cluster_id.as_deref(), Steps::new(&progress));
        let found = places.read(&self.options, cluster_id, &mut steps);
        let (cluster_id, deleting, image) = match told(found)? {
            Ok(found) => (found.cluster_id, found.deleting, Ok(found.image)),
            Err(why) => (None, BTreeSet::new(), Err(why)),
        };
        Ok(Metadata {
            path: places.path().to_path_buf(),
            cluster_id,
            image,
            deleting,
        })
    }

    fn topic_id(&self, directory: &Path) -> Result<Option<Uuid>> {
        let path = directory.join(PARTITION_METADATA);
        let Some(bytes) = read_small(self.disk(), &path)? else {
            return Ok(None);
        };
        PartitionMetadata::parse(&bytes)
            .map(|found| Some(found.topic_id))
            .map_err(|error| Error::new(error).at_path(&path))
    }
}

impl Membership {
    /// Its settings are stored beside it now: offsetlog made it, or took over one that stood alone, unless a cluster has it.
    pub(crate) fn keep(&mut self) {
        if self.may_be_kept {
            self.mark = None;
        }
    }

    /// Refuses to store settings beside a partition in which they would not hold.
    ///
    /// # Errors
    /// `Cluster`.
    pub(crate) fn check_kept(&self, path: &Path) -> Result<()> {
        if self.may_be_kept || !self.is_brokers() {
            return Ok(());
        }
        let reason = format!(
            "the partition is a broker's ({}): it has the cluster's settings, and none that are stored with it here would hold; change them \
             in the cluster (kafka-configs), or give them to the call that is to use them (config=, --config)",
            self.mark()
        );
        Err(Error::cluster(path, reason))
    }

    /// Whether the partition is a broker's, and not ours to keep.
    pub(crate) const fn is_brokers(&self) -> bool {
        self.mark.is_some()
    }

    /// Where the metadata is.
    pub(crate) fn metadata_path(&self) -> Option<&Path> {
        self.metadata
            .as_ref()
            .map(|metadata| metadata.path.as_path())
    }

    /// The newest record of the metadata, in ms since 1970.
    pub(crate) fn metadata_timestamp(&self) -> Option<i64> {
        self.metadata
            .as_ref()?
            .image
            .as_ref()
            .ok()?
            .newest_timestamp
    }

    fn image(&self) -> Option<&MetadataImage> {
        self.metadata.as_ref()?.image.as_ref().ok()
    }

    /// The topic, by its id or, where the directory or ZooKeeper has none, by its name.
    fn topic_in<'i>(&self, image: &'i MetadataImage) -> Option<&'i TopicImage> {
        let is_it = |topic: &&TopicImage| {
            let is_other = |id| topic.topic_id != id && !topic.topic_id.is_zero();
            topic.name == self.topic && !self.topic_id.is_some_and(is_other)
        };
        image.topics.iter().find(is_it)
    }

    /// Which other brokers have a replica of the partition, as far as the metadata shows.
    pub(crate) fn others(&self) -> Vec<i32> {
        let registered = self
            .image()
            .and_then(|image| self.topic_in(image))
            .and_then(|topic| topic.partitions.get(&self.partition));
        let Some(registered) = registered.filter(|_| self.is_brokers()) else {
            return Vec::new();
        };
        let all: BTreeSet<i32> = registered.replicas.iter().copied().collect();
        match self.node_id {
            Some(own) => all.into_iter().filter(|id| *id != own).collect(),
            None if all.len() > 1 => all.into_iter().collect(),
            None => Vec::new(),
        }
    }

    /// Whether this node is the partition's leader, as far as that is known.
    fn leads(&self) -> Option<bool> {
        let image = self.image()?;
        let registered = self.topic_in(image)?.partitions.get(&self.partition)?;
        Some(registered.leader? == self.node_id?)
    }

    /// The effective settings. `option` comes from the caller, `stored` is stored beside the data, `defaults` apply to topics that set
    /// nothing.
    ///
    /// # Errors
    /// `Argument`: settings that contradict each other.
    pub(crate) fn effective(
        &self,
        option: Option<&LogConfig>,
        stored: Option<&LogConfig>,
        defaults: &LogConfig,
    ) -> Result<EffectiveConfig> {
        if !self.is_brokers() {
            let topic = option.or(stored).cloned().unwrap_or_default();
            let broker = self.broker.as_ref().map(|broker| &broker.topic_defaults);
            let defaults = match broker {
                Some(broker) => defaults.or_defaults(broker)?,
                None => defaults.clone(),
            };
            let values = topic.or_defaults(&defaults)?;
            return Ok(EffectiveConfig::own(&topic, &defaults, values));
        }
        let of = |kind: &str, name: &str| {
            let configs = &self.image()?.configs;
            configs.get(&(kind.to_owned(), name.to_owned()))
        };
        let node = self.node_id.map(|id| id.to_string());
        // A topic of that name may be another one.
        let is_known = self
            .image()
            .is_some_and(|image| self.topic_in(image).is_some());
        let nameless = "which broker this is, and so what it sets, no meta.properties says";
        let missing = self.missing.as_deref().or_else(|| {
            // Without its number, a broker's own settings cannot be told from those of the others.
            let image = self.image()?;
            let any = |(kind, name): &(String, String)| kind == "broker" && !name.is_empty();
            (node.is_none() && image.configs.keys().any(any)).then_some(nameless)
        });
        Ok(EffectiveConfig::of_cluster(&Layers {
            option,
            topic: of("topic", &self.topic).filter(|_| is_known),
            dynamic_broker: node.as_deref().and_then(|node| of("broker", node)),
            dynamic_default: of("broker", ""),
            defaults: Some(defaults),
            broker: self.broker.as_ref(),
            missing,
        }))
    }

    /// Whether the broker that has this partition compacts nothing at all.
    pub(crate) fn cleaner_is_off(&self) -> bool {
        let given = self.broker.as_ref().map(|broker| &broker.given);
        let value = given.and_then(|given| given.get("log.cleaner.enable"));
        self.is_brokers() && value.is_some_and(|value| value.trim().eq_ignore_ascii_case("false"))
    }

    /// Whether the partition belongs to somebody else only in that it has segments that we did not make, and no settings.
    pub(crate) const fn is_lone(&self) -> bool {
        self.is_lone
    }

    /// Whether a mirror fills the log dir.
    pub(crate) const fn is_mirrored(&self) -> bool {
        self.is_mirrored
    }

    pub(crate) fn mark(&self) -> &str {
        self.mark.as_deref().unwrap_or_default()
    }

    pub(crate) fn has_broker_settings(&self) -> bool {
        self.broker.is_some()
    }

    pub(crate) fn has_metadata(&self) -> bool {
        self.metadata.is_some()
    }
}

/// What was read, or why it could not be.
fn told<T>(read: Result<T>) -> Result<std::result::Result<T, String>> {
    match read {
        Err(error) if error.is_of_process() => Err(error),
        read => Ok(read.map_err(|error| error.to_string())),
    }
}

/// Whether a partition directory has or had records: one that offsetlog makes has settings before it has segments, so a directory with
/// segments and without settings comes from elsewhere.
fn has_segments(disk: &dyn Disk, path: &Path) -> Result<bool> {
    let entries = match disk.list(path) {
        Err(error) if crate::folder::is_absent(&error) => return Ok(false),
        listed => listed.map_err(|error| Error::io(IoCall::List, path, error))?,
    };
    let mut files = entries.iter().filter(|entry| entry.kind == EntryKind::File);
    Ok(files.any(|entry| {
        matches!(FileName::classify(&entry.name), FileName::Segment(name) if name.file == SegmentFile::Log)
    }))
}

/// Of a file that cannot be read nothing is known but that a broker has written it.
fn node_of(bytes: &[u8]) -> Node {
    let properties = read_properties(bytes).unwrap_or_default();
    let value = |keys: [&str; 2]| {
        let mut found = properties
            .iter()
            .rev()
            .filter(|property| keys.contains(&property.key.as_str()));
        found.next().map(|property| property.value.clone())
    };
    Node {
        id: value(["node.id", "broker.id"]).and_then(|id| id.trim().parse().ok()),
        cluster_id: value(["cluster.id", "cluster.id"]),
        is_of_kraft: value(["version", "version"]).is_some_and(|version| version.trim() == "1"),
    }
}
