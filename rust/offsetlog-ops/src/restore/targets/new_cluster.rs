//! Whether a new cluster has the restored topics when it starts: its controllers take them out of `bootstrap.checkpoint`, and its brokers
//! know them before they look at their log dirs.
//!
//! Source: Kafka's `QuorumController` and, for the brokers, `MetadataLoader` and `LogManager.isStrayKraftReplica`. A broker begins with what
//! the quorum has committed. Before Kafka 4.0 that may be the election of the first leader and nothing else: the cluster looks empty, and
//! the broker renames every partition to `-stray`. Several controllers elect one while brokers wait for it, so they are sure to meet that
//! moment; one that is alone has the topics before its own broker looks, and other brokers can wait for it.

use super::super::bootstrap::{BOOTSTRAP_CHECKPOINT, Bootstrap, formatted_voters, has_started};
use super::Targets;
use crate::places::{LogDirPlace, Places};
use offsetlog::{BrokerSettings, Error, OpenOptions, Result};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The `metadata.version` of 4.0-IV0. What is formatted for an older one may be started by a Kafka that sees the cluster empty.
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
        self.read_bootstraps(paths, options)?;
        self.warn_of_metadata_elsewhere(paths, broker);
        let nodes: BTreeSet<i32> = places
            .log_dirs
            .iter()
            .filter_map(LogDirPlace::node_id)
            .collect();
        let is_old = self
            .bootstraps
            .iter()
            .any(|file| file.metadata_version < OF_KAFKA_4);
        let mut voters: BTreeSet<i32> = broker.map_or_else(BTreeSet::new, static_voters);
        for path in paths {
            voters.extend(formatted_voters(path, options)?);
        }
        if !is_old {
            self.note_other_controllers(&voters, &nodes);
            return Ok(true);
        }
        let controllers = count(&voters, broker);
        match (controllers, nodes.len()) {
            (None, 0..=1) => {
                let note = "this is for a cluster of one controller: with several, brokers of Kafka 3 take restored partitions for strays when they start for the first time. Name a server.properties to have that checked (--broker FILE)";
                self.at_first_start.push(note.to_owned());
            }
            (Some(1), 0..=1) => self.note_other_controllers(&voters, &nodes),
            (Some(1), _) => {
                let note = "start the controller before the other brokers, and those when its log says that it appended the bootstrap records: brokers of Kafka 3 that are there earlier take restored partitions for strays";
                self.at_first_start.push(note.to_owned());
                self.note_other_controllers(&voters, &nodes);
            }
            _ => return Ok(self.not_taken(controllers)),
        }
        Ok(true)
    }

    /// Makes the log dirs those of stopped brokers.
    fn not_taken(&mut self, controllers: Option<usize>) -> bool {
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
        false
    }

    /// The first of them that is elected makes the topics, or leaves the cluster without.
    fn note_other_controllers(&mut self, voters: &BTreeSet<i32>, nodes: &BTreeSet<i32>) {
        let others: Vec<String> = voters.difference(nodes).map(ToString::to_string).collect();
        let Some(file) = self.bootstraps.first().filter(|_| !others.is_empty()) else {
            return;
        };
        self.at_first_start.push(format!(
            "controllers without a folder here: {}. Before anything starts, put {} into the metadata.log.dir of each, in the \
             place of its own: the one that is elected first makes the topics, or the cluster has none",
            others.join(", "),
            file.path.display()
        ));
    }

    /// Controllers read `bootstrap.checkpoint` in their `metadata.log.dir` alone, and the format tool writes one into each log dir.
    fn warn_of_metadata_elsewhere(&mut self, paths: &[PathBuf], broker: Option<&BrokerSettings>) {
        let named = broker.map_or("", |broker| setting(broker, "metadata.log.dir"));
        let is_named =
            |path: &PathBuf| std::path::absolute(path).is_ok_and(|path| path == Path::new(named));
        if !named.is_empty() && !paths.iter().any(is_named) {
            self.warnings.push(format!(
                "the controllers read their topics in metadata.log.dir={named} alone, which is none of the folders that were given \
                 (--metadata DIR); where it is not the same folder under another path, the cluster will not have the topics"
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

    fn read_bootstraps(&mut self, paths: &[PathBuf], options: &OpenOptions) -> Result<()> {
        for path in paths {
            let file = path.join(BOOTSTRAP_CHECKPOINT);
            if options.disk.stat(&file).is_ok() {
                self.bootstraps.push(Bootstrap::read(file, options)?);
            }
        }
        if self.bootstraps.is_empty() {
            let first = paths.first().map_or(Path::new(""), PathBuf::as_path);
            let reason = "no bootstrap.checkpoint here: name the metadata.log.dir of each controller with --metadata";
            return Err(Error::log_dir(first, reason));
        }
        Ok(())
    }
}

/// The controllers by a `server.properties`.
fn static_voters(broker: &BrokerSettings) -> BTreeSet<i32> {
    setting(broker, VOTERS)
        .split(',')
        .filter_map(|voter| voter.split('@').next()?.trim().parse().ok())
        .collect()
}

/// How many controllers there are; `None` if nobody says.
fn count(voters: &BTreeSet<i32>, broker: Option<&BrokerSettings>) -> Option<usize> {
    if !voters.is_empty() {
        return Some(voters.len());
    }
    let servers = broker
        .map_or("", |broker| setting(broker, SERVERS))
        .split(',');
    let named = servers.filter(|each| !each.trim().is_empty()).count();
    // Not all of them have to be named.
    Some(named).filter(|&named| named > 1)
}

fn setting<'b>(broker: &'b BrokerSettings, name: &str) -> &'b str {
    broker.given.get(name).map_or("", String::as_str)
}
