//! Whether a new cluster has the restored topics when it starts: its controllers take them out of `bootstrap.checkpoint`, and its brokers
//! know them before they look at their log dirs.
//!
//! Source: Kafka's `QuorumController` and, for the brokers, `MetadataLoader` and `LogManager.isStrayKraftReplica`. A broker begins with what
//! the quorum has committed. Before Kafka 4.0 that may be the election of the first leader and nothing else: the cluster looks empty, and
//! the broker renames every partition to `-stray`. Several controllers elect one while brokers wait for it, so they are sure to meet that
//! moment; one that is alone has the topics before its own broker looks, and other brokers can wait for it.

use super::super::bootstrap::{
    BOOTSTRAP_CHECKPOINT, Bootstrap, KnownPartition, formatted_voters, has_started,
};
use super::super::sources::SourceTopic;
use super::super::{RestoreOptions, SourcePartition};
use super::{Placed, Targets};
use crate::places::{LogDirPlace, Places, is_there};
use crate::words::brokers;
use offsetlog::disk::IoCall;
use offsetlog::format::{Uuid, counted};
use offsetlog::{BrokerSettings, Error, OpenOptions, Result, local_path};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The `metadata.version` of 4.0-IV0. A cluster formatted for an older one may be started by a Kafka that sees it empty.
const OF_KAFKA_4: i32 = 22;

const VOTERS: &str = "controller.quorum.voters";
const SERVERS: &str = "controller.quorum.bootstrap.servers";

const AS_STOPPED: &str =
    "taken for log dirs of stopped brokers, whose cluster has the topics or gets them by command";

impl Targets {
    /// Whether the cluster has the topics when it starts, if they are written into `bootstrap.checkpoint`. If not, a warning says why, and
    /// the log dirs are those of stopped brokers.
    ///
    /// # Errors
    /// `LogDir`: a log dir that is not formatted; none with a `bootstrap.checkpoint`.
    pub(super) fn takes_topics(
        &mut self,
        paths: &[PathBuf],
        places: &Places,
        broker: Option<&BrokerSettings>,
        options: &OpenOptions,
    ) -> Result<bool> {
        if self.is_refused(paths, options)? {
            return Ok(false);
        }
        let with_file = self.read_bootstraps(paths, places, options)?;
        self.warn_of_metadata_elsewhere(paths, broker, options);
        let nodes: BTreeSet<i32> = places
            .log_dirs
            .iter()
            .filter_map(LogDirPlace::node_id)
            .collect();
        let is_old = self
            .bootstraps
            .iter()
            .any(|file| file.metadata_version < OF_KAFKA_4);
        let quorum = Quorum::read(paths, broker, options)?;
        if is_old {
            match (quorum.count, nodes.len()) {
                (None, 0..=1) => {
                    let note = "this is for a cluster of one controller: with several, brokers of Kafka 3 take restored partitions for strays when they start for the first time. Name a server.properties to have that checked (--broker FILE)";
                    self.at_first_start.push(note.to_owned());
                }
                (Some(1), _) if nodes.is_subset(&quorum.voters) => {}
                (Some(1), _) => {
                    let note = "start the controller before the other brokers, and those when its log says that it appended the bootstrap records: brokers of Kafka 3 that are there earlier take restored partitions for strays";
                    self.at_first_start.push(note.to_owned());
                }
                _ => {
                    self.are_stopped_brokers(quorum.count)?;
                    return Ok(false);
                }
            }
        }
        self.note_controllers(&quorum, &with_file);
        Ok(true)
    }

    /// What a `bootstrap.checkpoint` says of a partition already.
    pub(crate) fn in_bootstrap(&self, topic_id: Uuid, number: i32) -> Option<&KnownPartition> {
        let key = (topic_id.to_bytes(), number);
        self.bootstraps
            .iter()
            .find_map(|file| file.partitions.get(&key))
    }

    /// Whether a `bootstrap.checkpoint` has partitions of a topic that are not among the sources.
    pub(crate) fn has_others_in_bootstrap(&mut self, topic: &SourceTopic) -> bool {
        let id = self.topic_id(topic).to_bytes();
        let known = self
            .bootstraps
            .iter()
            .flat_map(|file| file.partitions.keys());
        known
            .filter(|(of, _)| *of == id)
            .any(|(_, number)| !topic.partitions.contains_key(number))
    }

    /// The settings that a topic has in a `bootstrap.checkpoint` already; `None` if no file has it.
    pub(crate) fn configs_in_bootstrap(&self, topic: &str) -> Option<BTreeMap<String, String>> {
        let mut files = self.bootstraps.iter();
        let file = files.find(|file| file.topics.contains_key(topic))?;
        Some(file.configs_of(topic))
    }

    /// Where a partition of a new cluster goes.
    ///
    /// # Errors
    /// In words: why it cannot be restored here, and what to do.
    pub(super) fn in_new_cluster(
        &mut self,
        topic: &SourceTopic,
        number: i32,
        source: &SourcePartition,
        how: &RestoreOptions,
    ) -> std::result::Result<Placed, String> {
        let name = &topic.to_make.name;
        let topic_id = self.topic_id(topic);
        let replicas = match self.in_bootstrap(topic_id, number) {
            Some(known) => {
                let replicas = self.assigned_beside(&known.nodes, topic, number, how)?;
                for (node, directory) in known.nodes.iter().zip(&known.directories) {
                    if !self.directory_ids(*node).contains(directory) {
                        return Err(format!(
                            "{BOOTSTRAP_CHECKPOINT} has it on broker {node} in a log dir that is not here, with directory.id {directory} in \
                             meta.properties: give that log dir; if it was formatted anew, format the metadata.log.dir anew too"
                        ));
                    }
                }
                replicas
            }
            None => self.assigned(topic, number, how),
        };
        let slots: Vec<(Option<i32>, usize)> = replicas
            .iter()
            .map(|node| (Some(*node), self.slot(Some(*node), name, number, None)))
            .collect();
        Ok(self.placed(&slots, topic, number, source, Some(topic_id)))
    }

    /// The brokers of a partition that has some in `bootstrap.checkpoint`: these, and further ones if more replicas are wanted.
    ///
    /// # Errors
    /// In words: one of them is not here, or fewer are wanted. What it has would be neither restored nor taken away.
    fn assigned_beside(
        &self,
        known: &[i32],
        topic: &SourceTopic,
        number: i32,
        how: &RestoreOptions,
    ) -> std::result::Result<Vec<i32>, String> {
        let nodes = self.nodes();
        let absent: Vec<i32> = known
            .iter()
            .copied()
            .filter(|node| !nodes.contains(node))
            .collect();
        if !absent.is_empty() {
            return Err(format!(
                "bootstrap.checkpoint has it on {} too, whose log dirs are not given: give them",
                brokers(&absent)
            ));
        }
        let wanted = how.replication_factor.unwrap_or(known.len());
        if wanted < known.len() {
            return Err(format!(
                "bootstrap.checkpoint has it on {} already, which is more than --replication-factor {wanted}: restore it with as many, or format \
                 the log dirs anew",
                brokers(known)
            ));
        }
        let mut all = known.to_vec();
        for node in self.assigned(topic, number, how).into_iter().chain(nodes) {
            if all.len() < wanted && !all.contains(&node) {
                all.push(node);
            }
        }
        Ok(all)
    }

    /// Tells if more replicas are asked for than there are brokers.
    pub(crate) fn lacks_brokers(&self, how: &RestoreOptions) -> Option<String> {
        let (brokers, asked) = (self.nodes().len(), how.replication_factor?);
        (asked > brokers).then(|| {
            format!(
                "{asked} replicas of each partition are asked for, and log dirs of {} are given: there are only as many",
                counted(brokers, "broker")
            )
        })
    }

    /// The brokers of a partition in a new cluster: those that it had, if all are here, else one after the other.
    pub(crate) fn assigned(
        &self,
        topic: &SourceTopic,
        number: i32,
        how: &RestoreOptions,
    ) -> Vec<i32> {
        let nodes = self.nodes();
        let had = topic.to_make.replication_factor.unwrap_or(1);
        let factor = how
            .replication_factor
            .unwrap_or(had)
            .clamp(1, nodes.len().max(1));
        let assignment = topic.to_make.assignment.as_ref();
        let had = assignment.and_then(|all| all.get(usize::try_from(number).ok()?));
        if let Some(had) = had
            && had.len() == factor
            && had.iter().all(|node| nodes.contains(node))
        {
            return had.clone();
        }
        // As in Kafka each broker leads as many partitions as the next; topics begin at different ones.
        let shift: usize = topic.to_make.name.bytes().map(usize::from).sum();
        let first = usize::try_from(number).unwrap_or(0).wrapping_add(shift);
        let all = nodes.iter().cycle().skip(first % nodes.len().max(1));
        all.take(factor).copied().collect()
    }

    /// Makes the log dirs those of stopped brokers.
    ///
    /// # Errors
    /// `LogDir` where something was restored before: the first start would set it aside.
    fn are_stopped_brokers(&mut self, controllers: Option<usize>) -> Result<()> {
        let mut filled = self.log_dirs.iter().filter(|each| !each.live.is_empty());
        let mut told = self
            .bootstraps
            .iter()
            .filter(|file| !file.topics.is_empty());
        let place = filled.next().map(|each| &each.path);
        if let Some(place) = place.or_else(|| told.next().map(|file| &file.path)) {
            let reason = "partitions or topics are here, in log dirs that are formatted for Kafka 3, and there may be several controllers: if \
                          they start now for the first time, their brokers take every partition for a stray. If the cluster has never started, \
                          do not start it: format the log dirs anew and restore again. If it has, name the metadata.log.dir (--metadata DIR)";
            return Err(Error::log_dir(place, reason));
        }
        let hint = if controllers.is_none() {
            " (if there is one alone, name a server.properties with controller.quorum.voters: --broker FILE)"
        } else {
            ""
        };
        self.warnings.push(format!(
            "the log dirs are formatted for Kafka 3, whose brokers take every partition for a stray when several controllers start for the \
             first time{hint}: {AS_STOPPED}. Start the cluster once, and stop it, before you restore"
        ));
        self.bootstraps.clear();
        Ok(())
    }

    /// The first of them that is elected makes the topics, or leaves the cluster without.
    fn note_controllers(&mut self, quorum: &Quorum, with_file: &BTreeSet<i32>) {
        let Some(file) = self.bootstraps.first() else {
            return;
        };
        let others: Vec<String> = quorum
            .voters
            .difference(with_file)
            .map(ToString::to_string)
            .collect();
        let who = match (others.is_empty(), quorum.is_whole) {
            (true, true) => return,
            (false, true) => format!(
                "controllers without a bootstrap.checkpoint here: {}",
                others.join(", ")
            ),
            (_, false) => "controllers may be elsewhere: nothing here names them all. A server.properties with controller.quorum.voters \
                           does (--broker FILE)"
                .to_owned(),
        };
        self.at_first_start.push(format!(
            "{who}. Before anything starts, put {} into the metadata.log.dir of each, in the place of its own: the one that is \
             elected first makes the topics, or the cluster has none",
            file.path.display()
        ));
    }

    /// Controllers read `bootstrap.checkpoint` in their `metadata.log.dir` alone, and the format tool writes one into each log dir.
    fn warn_of_metadata_elsewhere(
        &mut self,
        paths: &[PathBuf],
        broker: Option<&BrokerSettings>,
        options: &OpenOptions,
    ) {
        let Some(broker) = broker else {
            return;
        };
        let has_log_dirs = ["log.dirs", "log.dir"].map(|name| !setting(broker, name).is_empty());
        let named = match (setting(broker, "metadata.log.dir"), broker.log_dirs.first()) {
            ("", Some(first)) if has_log_dirs.contains(&true) => first,
            ("", _) => return,
            (named, _) => Path::new(named),
        };
        let same = |path: &PathBuf| {
            let id = |path: &Path| options.disk.id(path).ok();
            local_path(path).is_ok_and(|path| path == named)
                || id(named).is_some_and(|named| id(path) == Some(named))
        };
        if !paths.iter().any(same) {
            self.warnings.push(format!(
                "the controllers read their topics in metadata.log.dir={} alone, which is none of the folders that were given \
                 (--metadata DIR); where it is not the same folder under another path, the cluster will not have the topics",
                named.display()
            ));
        }
    }

    /// Whether the controllers would not take topics out of `bootstrap.checkpoint`: then the log dirs are those of stopped brokers.
    fn is_refused(&mut self, paths: &[PathBuf], options: &OpenOptions) -> Result<bool> {
        if let Some(bare) = self.log_dirs.iter().find(|each| each.node_id.is_none()) {
            let reason = "no meta.properties with a node id: format it first with kafka-storage.sh format (Kafka 3.3 or later)";
            return Err(Error::log_dir(&bare.path, reason));
        }
        if let Some(old) = self.log_dirs.iter().find(|each| each.is_of_zookeeper) {
            let path = old.path.display();
            let warning = format!(
                "{path} is of a cluster with ZooKeeper, which has no bootstrap.checkpoint: {AS_STOPPED}"
            );
            self.warnings.push(warning);
            return Ok(true);
        }
        for path in paths {
            if has_started(path, options)? {
                let path = path.display();
                let warning = format!(
                    "the metadata log in {path} has records, and its controllers do not read bootstrap.checkpoint any more: {AS_STOPPED}"
                );
                self.warnings.push(warning);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads each `bootstrap.checkpoint`; returns the nodes that have one.
    fn read_bootstraps(
        &mut self,
        paths: &[PathBuf],
        places: &Places,
        options: &OpenOptions,
    ) -> Result<BTreeSet<i32>> {
        let mut nodes = BTreeSet::new();
        let mut known = BTreeSet::new();
        for path in paths {
            let file = path.join(BOOTSTRAP_CHECKPOINT);
            if !is_there(options.disk.as_ref(), &file)? {
                continue;
            }
            // A log dir may be given as a folder of metadata too, under another name.
            let id = options.disk.id(path);
            if known.insert(id.map_err(|error| Error::io(IoCall::Stat, path, error))?) {
                self.bootstraps.push(Bootstrap::read(file, options)?);
            }
            let path = local_path(path)?;
            let mut all = places.log_dirs.iter();
            nodes.extend(
                all.find(|place| place.path == path)
                    .and_then(LogDirPlace::node_id),
            );
        }
        if self.bootstraps.is_empty() {
            let first = paths.first().map_or(Path::new(""), PathBuf::as_path);
            let reason = "no bootstrap.checkpoint here: name the metadata.log.dir of each controller with --metadata";
            return Err(Error::log_dir(first, reason));
        }
        Ok(nodes)
    }
}

/// The controllers, as far as anything says who they are.
struct Quorum {
    /// Their ids.
    voters: BTreeSet<i32>,
    /// Whether these are all.
    is_whole: bool,
    /// How many there are, at least; `None` if nobody says.
    count: Option<usize>,
}

impl Quorum {
    /// By a `server.properties`, and by what the folders were formatted with.
    fn read(
        paths: &[PathBuf],
        broker: Option<&BrokerSettings>,
        options: &OpenOptions,
    ) -> Result<Self> {
        let listed = |name| -> Vec<&str> {
            let all = broker.map_or("", |broker| setting(broker, name)).split(',');
            all.map(str::trim).filter(|each| !each.is_empty()).collect()
        };
        let named = listed(VOTERS);
        let id = |voter: &&str| voter.split('@').next()?.trim().parse().ok();
        let mut voters: BTreeSet<i32> = named.iter().filter_map(id).collect();
        // Kafka puts in what a config provider has: `${env:VOTER}`.
        let is_readable = named.iter().all(|voter| id(voter).is_some());
        for path in paths {
            voters.extend(formatted_voters(path, options)?);
        }
        // Not all of the servers have to be named.
        let servers = Some(listed(SERVERS).len()).filter(|&servers| servers > 1);
        let known = Some(voters.len().max(named.len())).filter(|&known| known > 0);
        Ok(Self {
            is_whole: is_readable && !voters.is_empty(),
            count: known.or(servers),
            voters,
        })
    }
}

fn setting<'b>(broker: &'b BrokerSettings, name: &str) -> &'b str {
    broker.given.get(name).map_or("", String::as_str)
}
