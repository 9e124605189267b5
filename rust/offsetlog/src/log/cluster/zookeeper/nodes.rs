//! Reads a cluster's metadata from Kafka's nodes in ZooKeeper.
//!
//! Source: Kafka's `ZkData`. Only the nodes that are read here are kept, unless the caller asks for any node. Some hold credentials: these
//! leave this module only through `access`, which drops them, and `one_node`, which hides them.

use super::Found;
use crate::error::{Error, Result};
use crate::log::{BrokerRegistration, MetadataImage, PartitionRegistration, TopicImage};
use offsetlog_format::zookeeper::{Change, Node};
use offsetlog_format::{Fault, FormatError, Part, Uuid, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

const TOPICS: &[u8] = b"/brokers/topics";
const BROKERS: &[u8] = b"/brokers/ids";
const TOPIC_CONFIGS: &[u8] = b"/config/topics";
const BROKER_CONFIGS: &[u8] = b"/config/brokers";
const DELETIONS: &[u8] = b"/admin/delete_topics";
const CLUSTER_ID: &[u8] = b"/cluster/id";
const MIGRATION: &[u8] = b"/migration";
const USED: [&[u8]; 12] = [
    TOPICS,
    BROKERS,
    TOPIC_CONFIGS,
    BROKER_CONFIGS,
    DELETIONS,
    CLUSTER_ID,
    MIGRATION,
    super::access::ACLS,
    super::access::USERS,
    super::access::CLIENTS,
    super::access::IPS,
    super::consumers::GROUPS,
];
/// The name of the default for all brokers among the brokers' settings.
pub(super) const DEFAULT: &str = "<default>";
/// What Kafka writes into a value that is encrypted.
pub(super) const ENCRYPTED: &str = "initializationVector:";

/// The nodes that tell of Kafka clusters, by path.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    by_path: BTreeMap<Vec<u8>, Held>,
    /// The paths of sessions that have any.
    owned: BTreeMap<i64, BTreeSet<Vec<u8>>>,
    pub(super) last_zxid: i64,
    /// Of the newest transaction, in ms since 1970.
    pub(super) newest_time: Option<i64>,
    pub(super) warnings: Vec<String>,
    /// Whether all nodes are kept.
    keeps_all: bool,
}

#[derive(Debug)]
pub(super) struct Held {
    pub(super) data: Option<Vec<u8>>,
    version: i32,
    created_zxid: i64,
    /// When its data was written, in ms since 1970.
    pub(super) modified: i64,
    owner: i64,
}

pub(super) type Members<'a> = BTreeMap<String, &'a [u8]>;

impl Nodes {
    /// As a snapshot of this transaction begins.
    pub(super) fn at(zxid: i64, keeps_all: bool) -> Self {
        Self {
            last_zxid: zxid,
            keeps_all,
            ..Self::default()
        }
    }

    /// Adds a node of a snapshot.
    pub(super) fn add(&mut self, node: &Node<'_>) {
        self.newest_time = self.newest_time.max(Some(node.modified));
        let held = Held {
            data: node.data.map(<[u8]>::to_vec),
            version: node.version,
            created_zxid: node.created_zxid,
            modified: node.modified,
            owner: node.owner,
        };
        self.put(node.path, held);
    }

    fn put(&mut self, path: &[u8], held: Held) {
        let has = |used: &&[u8]| memchr::memmem::find(path, used).is_some();
        if !self.keeps_all && !USED.iter().any(has) {
            return;
        }
        if held.owner != 0 {
            let owned = self.owned.entry(held.owner).or_default();
            owned.insert(path.to_vec());
        }
        self.by_path.insert(path.to_vec(), held);
    }

    fn remove(&mut self, path: &[u8]) {
        if let Some(Held { owner, .. }) = self.by_path.remove(path)
            && let Some(owned) = self.owned.get_mut(&owner)
        {
            owned.remove(path);
        }
    }

    /// Applies a change. A snapshot has changes that are newer than it is, so what is made may be there, and what is changed may be gone.
    pub(super) fn apply(&mut self, change: &Change<'_>, zxid: i64, time: i64) {
        match *change {
            Change::Create { path, .. } if self.by_path.contains_key(path) => {}
            Change::Create { path, data, owner } => {
                let held = Held {
                    data: data.map(<[u8]>::to_vec),
                    version: 0,
                    created_zxid: zxid,
                    modified: time,
                    owner,
                };
                self.put(path, held);
            }
            Change::Delete { path } => self.remove(path),
            Change::SetData {
                path,
                data,
                version,
            } => {
                if let Some(held) = self.by_path.get_mut(path) {
                    held.data = data.map(<[u8]>::to_vec);
                    held.version = version;
                    held.modified = time;
                }
            }
            Change::CloseSession { session } => {
                for path in self.owned.remove(&session).unwrap_or_default() {
                    self.by_path.remove(&path);
                }
            }
        }
    }

    /// The paths below which Kafka clusters are; the root is an empty path.
    pub(super) fn clusters(&self) -> Vec<Vec<u8>> {
        let roots = self
            .by_path
            .keys()
            .filter_map(|path| path.strip_suffix(TOPICS));
        roots.map(<[u8]>::to_vec).collect()
    }

    /// The data of a node.
    fn data(&self, path: &[u8]) -> Option<&[u8]> {
        self.by_path.get(path)?.data.as_deref()
    }

    /// The node at a path.
    pub(super) fn node(&self, path: &[u8]) -> Option<&Held> {
        self.by_path.get(path)
    }

    /// Names and nodes right below a path.
    pub(super) fn below(&self, root: &[u8], path: &[u8]) -> impl Iterator<Item = (String, &Held)> {
        let prefix = [root, path, b"/"].concat();
        let range = (Bound::Excluded(prefix.clone()), Bound::Unbounded);
        let all = self.by_path.range::<Vec<u8>, _>(range);
        let all = all.map_while(move |(path, held)| Some((path.strip_prefix(&*prefix)?, held)));
        all.filter(|(name, _)| !name.contains(&b'/'))
            .map(|(name, held)| (String::from_utf8_lossy(name).into_owned(), held))
    }

    /// The id of the cluster at `root`; brokers before 0.10.1 gave none.
    pub(super) fn cluster_id(&self, root: &[u8]) -> Result<Option<String>> {
        let path = [root, CLUSTER_ID].concat();
        let Some(data) = self.data(&path) else {
            return Ok(None);
        };
        let id = members(data).and_then(|members| text(&members, "id"));
        id.map_err(|error| of_node(&path, &error))
    }

    /// The cluster at `root`.
    pub(super) fn cluster(&self, root: &[u8]) -> Result<Found> {
        let migration = [root, MIGRATION].concat();
        if self.by_path.contains_key(&migration) {
            let reason = format!(
                "the cluster has begun to move to KRaft ({}): what holds stands in __cluster_metadata-0",
                shown(&migration)
            );
            return Err(Error::new(crate::ErrorKind::LogDir { reason }));
        }
        let mut warnings = self.warnings.clone();
        let mut brokers = Vec::new();
        for (id, held) in self.below(root, BROKERS) {
            match broker(&id, held) {
                Ok(broker) => brokers.push(broker),
                Err(error) => warnings.push(format!("left out: broker {id}: {error}")),
            }
        }
        let topics = self.below(root, TOPICS);
        let topics = topics.map(|(name, held)| self.topic(root, name, held));
        let access = self.access(root, &mut warnings);
        let mut group_warnings = Vec::new();
        Ok(Found {
            cluster_id: self.cluster_id(root)?,
            groups: self.groups(root, &mut group_warnings),
            group_warnings,
            image: MetadataImage {
                acls: access.acls,
                client_quotas: access.quotas,
                scram_credentials: access.credentials,
                end_offset: self.last_zxid.saturating_add(1),
                is_complete: true,
                is_of_zookeeper: true,
                newest_timestamp: self.newest_time.filter(|&time| time >= 0),
                brokers,
                topics: topics.collect::<Result<_>>()?,
                configs: self.configs(root)?,
                warnings,
                ..MetadataImage::default()
            },
            deleting: self.below(root, DELETIONS).map(|(name, _)| name).collect(),
        })
    }

    fn topic(&self, root: &[u8], name: String, held: &Held) -> Result<TopicImage> {
        let path = [root, TOPICS, b"/", name.as_bytes()].concat();
        let of_topic = |error: FormatError| of_node(&path, &error);
        let members = members(held.data.as_deref().unwrap_or_default()).map_err(of_topic)?;
        let topic_id = text(&members, "topic_id").map_err(of_topic)?;
        let topic_id = topic_id.map(|id| Uuid::parse(&id)).transpose();
        let mut partitions = BTreeMap::new();
        let lists = [
            numbered(&members, "partitions").map_err(of_topic)?,
            numbered(&members, "adding_replicas").map_err(of_topic)?,
            numbered(&members, "removing_replicas").map_err(of_topic)?,
        ];
        let [replicas, mut adding, mut removing] = lists;
        for (number, replicas) in replicas {
            let state = format!("/partitions/{number}/state");
            let path = [path.as_slice(), state.as_bytes()].concat();
            let registered = PartitionRegistration {
                directories: vec![Uuid::default(); replicas.len()],
                replicas,
                adding_replicas: adding.remove(&number).unwrap_or_default(),
                removing_replicas: removing.remove(&number).unwrap_or_default(),
                ..PartitionRegistration::default()
            };
            let registered = match self.by_path.get(&path) {
                // Nobody has led it yet.
                None => registered,
                Some(held) => {
                    led(registered, held).map_err(|error: FormatError| of_node(&path, &error))?
                }
            };
            partitions.insert(number, registered);
        }
        Ok(TopicImage {
            name,
            // Brokers before 2.8 gave none.
            topic_id: topic_id.map_err(of_topic)?.unwrap_or_default(),
            partitions,
        })
    }

    /// Settings by type and name, as `MetadataImage` has them.
    fn configs(&self, root: &[u8]) -> Result<BTreeMap<(String, String), BTreeMap<String, String>>> {
        let mut configs = BTreeMap::new();
        for (kind, place) in [("topic", TOPIC_CONFIGS), ("broker", BROKER_CONFIGS)] {
            for (name, held) in self.below(root, place) {
                let found = config(held.data.as_deref()).map_err(|error| {
                    of_node(&[root, place, b"/", name.as_bytes()].concat(), &error)
                })?;
                let is_default = kind == "broker" && name == DEFAULT;
                let name = if is_default { String::new() } else { name };
                if !found.is_empty() {
                    configs.insert((kind.to_owned(), name), found);
                }
            }
        }
        Ok(configs)
    }
}

/// Names the node: a path in a file says nothing of it.
fn of_node(path: &[u8], error: &FormatError) -> Error {
    let reason = format!(
        "{} in ZooKeeper is not what brokers write: {error}, at byte {} of its data",
        shown(path),
        error.at
    );
    Error::new(crate::ErrorKind::LogDir { reason })
}

pub(super) fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).escape_debug().collect()
}

pub(super) const fn rule(rule: &'static str) -> FormatError {
    FormatError::new(Part::ZooKeeperNode, 0, Fault::Rule(rule))
}

/// The members of an object; none of no data, as Kafka has it.
pub(super) fn members(data: &[u8]) -> Result<Members<'_>, FormatError> {
    if data.is_empty() {
        return Ok(Members::new());
    }
    Ok(json::members(data)?.into_iter().collect())
}

pub(super) fn value<'a>(members: &Members<'a>, name: &str) -> Option<&'a [u8]> {
    let value = members.get(name).copied();
    value.filter(|value| !json::is_null(value))
}

pub(super) fn text(members: &Members<'_>, name: &str) -> Result<Option<String>, FormatError> {
    value(members, name).map(json::string).transpose()
}

fn integer(members: &Members<'_>, name: &'static str) -> Result<Option<i32>, FormatError> {
    value(members, name).map(json::integer).transpose()
}

/// Lists of numbers by partition.
fn numbered(members: &Members<'_>, name: &str) -> Result<BTreeMap<i32, Vec<i32>>, FormatError> {
    let Some(lists) = value(members, name) else {
        return Ok(BTreeMap::new());
    };
    let lists = json::members(lists)?.into_iter();
    lists
        .map(|(number, list)| {
            let number = json::integer(number.as_bytes())?;
            Ok((number, json::integers(list)?))
        })
        .collect()
}

/// The leader of a partition, from its state.
fn led(
    registered: PartitionRegistration,
    held: &Held,
) -> Result<PartitionRegistration, FormatError> {
    let members = members(held.data.as_deref().unwrap_or_default())?;
    let isr = value(&members, "isr").map(json::integers).transpose()?;
    Ok(PartitionRegistration {
        isr: isr.unwrap_or_default(),
        leader: integer(&members, "leader")?.filter(|&id| id >= 0),
        leader_epoch: integer(&members, "leader_epoch")?.unwrap_or_default(),
        partition_epoch: held.version,
        ..registered
    })
}

/// The settings of a topic or broker. Kafka takes none from what has no object of settings, and fails on a value that is no text.
fn config(data: Option<&[u8]>) -> Result<BTreeMap<String, String>, FormatError> {
    let members = members(data.unwrap_or_default())?;
    let Some(config) = value(&members, "config") else {
        return Ok(BTreeMap::new());
    };
    let mut found = BTreeMap::new();
    for (name, value) in json::members(config)? {
        let value = json::string(value)?;
        // A password, which no one reads without its key.
        if !value.contains(ENCRYPTED) {
            found.insert(name, value);
        }
    }
    Ok(found)
}

fn broker(id: &str, held: &Held) -> Result<BrokerRegistration, FormatError> {
    let members = members(held.data.as_deref().unwrap_or_default())?;
    let mut endpoints = Vec::new();
    if let Some(all) = value(&members, "endpoints") {
        for endpoint in json::strings(all)? {
            let (listener, address) = endpoint.split_once("://").ok_or(rule("no listener"))?;
            let (host, port) = address.rsplit_once(':').ok_or(rule("no port"))?;
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let port = json::integer(port.as_bytes())?;
            endpoints.push((listener.to_owned(), host.to_owned(), port));
        }
    }
    Ok(BrokerRegistration {
        id: json::integer(id.as_bytes())?,
        epoch: held.created_zxid,
        rack: text(&members, "rack")?,
        endpoints,
        ..BrokerRegistration::default()
    })
}
