//! What a restore leaves to be done by hand, with the commands for it; and retention, which would delete what was just restored.

use super::sources::{SourceTopic, Sources};
use super::targets::{Target, Targets};
use super::{PartitionState, RestorePlan};
use crate::recreation::{Recreation, TopicToMake};
use crate::shell::quoted;
use crate::topic_config::{remove_not_given, topic_config};
use crate::words::brokers;
use offsetlog::format::counted;
use offsetlog::{BrokerSettings, EffectiveConfig, MetadataImage, SettingSource};
use std::collections::{BTreeMap, BTreeSet};

const POLICY: &str = "cleanup.policy";
const RETENTION_MS: &str = "retention.ms";
const RETENTION_BYTES: &str = "retention.bytes";

/// Settings of topics whose old segments are in an object store.
const TIERED: [&str; 5] = [
    "remote.storage.enable",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "local.retention.ms",
    "local.retention.bytes",
];

/// Something to be done by hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remaining {
    /// What it is about: topics, a partition, `groups`, `access`, `first start`.
    pub about: String,
    /// Why, in a sentence.
    pub reason: String,
    /// The commands for it, where there are any.
    pub commands: Vec<String>,
}

/// When retention would delete something of what is restored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Deletion {
    AtOnce,
    /// Records without a timestamp: once the files, which are new, are old enough.
    ByFileTime,
}

/// Where the value of such a setting comes from.
#[derive(Clone, PartialEq, Eq)]
enum Origin {
    /// The topic's own, with the value.
    Topic(String),
    /// A dynamic one of the brokers, in words.
    Dynamic(String),
    /// A `server.properties`, or Kafka's default.
    Brokers,
    /// Nobody knows the value.
    Unknown,
}

/// A setting that would delete something of what is restored.
struct Deleting {
    setting: &'static str,
    when: Deletion,
    origin: Origin,
}

/// Decides about the retention of what is restored.
pub(super) struct Retention {
    target: Target,
    now: i64,
    keeps: bool,
    /// The topics' own settings in the target's cluster.
    in_cluster: BTreeMap<String, BTreeMap<String, String>>,
    /// The dynamic settings of the target's brokers, and nothing else.
    dynamic: MetadataImage,
    /// These brokers.
    nodes: BTreeSet<Option<i32>>,
    /// Their `server.properties`.
    broker: Option<BrokerSettings>,
    remaining: Vec<Remaining>,
}

impl Retention {
    pub(super) fn new(
        targets: &Targets,
        broker: Option<&BrokerSettings>,
        now: i64,
        keeps: bool,
    ) -> Self {
        let metadata = targets.metadata.as_ref();
        let all = metadata.map(|metadata| metadata.configs.iter());
        let own = all.into_iter().flatten();
        let in_cluster = own
            .filter(|((kind, _), _)| kind == "topic")
            .map(|((_, name), configs)| (name.clone(), configs.clone()))
            .collect();
        let mut dynamic = MetadataImage::default();
        let all = metadata.map(|metadata| metadata.configs.iter());
        let of_brokers = all.into_iter().flatten();
        let of_brokers = of_brokers.filter(|((kind, _), _)| kind == "broker");
        dynamic.configs = of_brokers
            .map(|(key, configs)| (key.clone(), configs.clone()))
            .collect();
        Self {
            target: targets.kind,
            now,
            keeps,
            in_cluster,
            dynamic,
            nodes: targets.paths().into_iter().map(|(node, _)| node).collect(),
            broker: broker.cloned(),
            remaining: Vec::new(),
        }
    }

    /// Changes the settings that a topic gets in a new cluster, where they would delete what is restored, and notes what to do about
    /// it later.
    pub(super) fn judge(&mut self, topic: &SourceTopic, configs: &mut BTreeMap<String, String>) {
        let name = &topic.to_make.name;
        match self.target {
            Target::Folder => {}
            Target::NewCluster => {
                self.untier(name, configs);
                for each in remove_not_given(configs) {
                    let reason = format!("left out of its settings: {}", each.told("topic", false));
                    self.note(name, reason, None);
                }
                // Its policy may be compact: whatever deletes by age or size deletes what it never did.
                if topic.was_compacted && !topic.is_told && !configs.contains_key(POLICY) {
                    if !self.keeps {
                        for setting in [RETENTION_MS, RETENTION_BYTES] {
                            configs.insert(setting.to_owned(), "-1".to_owned());
                        }
                    }
                    return;
                }
                for deleting in self.deleting(topic, configs) {
                    if self.keeps {
                        self.announce(name, &deleting);
                    } else {
                        configs.insert(deleting.setting.to_owned(), "-1".to_owned());
                        self.prevented(name, &deleting);
                    }
                }
            }
            Target::StoppedBroker => {
                let own = self.in_cluster.get(name).cloned().unwrap_or_default();
                for deleting in self.deleting(topic, &own) {
                    self.announce(name, &deleting);
                }
            }
        }
    }

    /// Keeps what an earlier restore set for partitions that this one does not look at: nobody knows here how old their records are.
    pub(super) fn keep(
        &mut self,
        topic: &str,
        known: &BTreeMap<String, String>,
        configs: &mut BTreeMap<String, String>,
    ) {
        for setting in [RETENTION_MS, RETENTION_BYTES] {
            let is_kept = |configs: &BTreeMap<String, String>| {
                configs.contains_key(setting) && topic_config(configs).text(setting) == Some("-1")
            };
            if !is_kept(known) || is_kept(configs) {
                continue;
            }
            let change = match configs.insert(setting.to_owned(), "-1".to_owned()) {
                Some(had) => format!("--add-config {}", quoted(&format!("{setting}={had}"))),
                None => format!("--delete-config {setting}"),
            };
            let reason = format!(
                "an earlier restore set {setting}=-1 for partitions that are not restored now, and it stays; when the records may go by it, \
                 set it back"
            );
            self.note(topic, reason, Some(alter(topic, &change)));
        }
    }

    /// Tells of what only the target's `bootstrap.checkpoint` says, which an earlier restore may have set there.
    pub(super) fn recall(&mut self, topic: &SourceTopic, known: &BTreeMap<String, String>) {
        if topic.was_compacted {
            // Told of anyway, as of a topic of which nobody knows the settings.
            return;
        }
        let is_kept = |configs: &BTreeMap<String, String>, setting| {
            configs.get(setting).is_some_and(|value| value == "-1")
        };
        for setting in [RETENTION_MS, RETENTION_BYTES] {
            if !is_kept(known, setting) || is_kept(&topic.to_make.configs, setting) {
                continue;
            }
            let reason = format!(
                "bootstrap.checkpoint says {setting}=-1, which an earlier restore sets where records would be deleted at once. When they may \
                 go: if the topic had another value, set that; if it had none, take this one back"
            );
            let command = alter(&topic.to_make.name, &format!("--delete-config {setting}"));
            self.note(&topic.to_make.name, reason, Some(command));
        }
    }

    /// Records in remote storage are not restored, and the topic cannot continue to copy there.
    fn untier(&mut self, name: &str, configs: &mut BTreeMap<String, String>) {
        if !topic_config(configs).remote_storage_enable() {
            return;
        }
        for setting in TIERED {
            configs.remove(setting);
        }
        self.remaining.push(Remaining {
            about: name.to_owned(),
            reason: "it had remote.storage.enable=true, which the restored topic has not: segments that were only in the remote storage are not restored".to_owned(),
            commands: Vec::new(),
        });
    }

    /// The settings that would delete something of the topic on one of the brokers, and when.
    fn deleting(&self, topic: &SourceTopic, configs: &BTreeMap<String, String>) -> Vec<Deleting> {
        let mut all: BTreeMap<&str, Deleting> = BTreeMap::new();
        for node in &self.nodes {
            for found in self.deleting_on(*node, topic, configs) {
                let known = all.get(found.setting);
                // What is known to delete, and at once, is what has to be told.
                let rank = |each: &Deleting| {
                    (
                        each.origin != Origin::Unknown,
                        each.when == Deletion::AtOnce,
                    )
                };
                if known.is_none_or(|known| rank(known) < rank(&found)) {
                    all.insert(found.setting, found);
                }
            }
        }
        // By age first.
        all.into_values().rev().collect()
    }

    fn deleting_on(
        &self,
        node: Option<i32>,
        topic: &SourceTopic,
        configs: &BTreeMap<String, String>,
    ) -> Vec<Deleting> {
        let broker = self.broker.as_ref();
        let holds = EffectiveConfig::on_broker(configs, &self.dynamic, node, broker);
        // If the policy is not known, it may be Kafka's default.
        if !holds.config().is_deleting() {
            return Vec::new();
        }
        let is_known = |setting| holds.source(setting) != SettingSource::Unknown;
        let limit_ms = holds.config().retention_ms();
        let limit_bytes = holds.config().retention_bytes();
        let all = || topic.partitions.values().filter(|each| each.bytes > 0);
        let has_any = all().next().is_some();
        let is_old = all().any(|each| {
            each.oldest_timestamp
                .is_some_and(|oldest| limit_ms >= 0 && self.now.saturating_sub(oldest) > limit_ms)
        });
        let is_large =
            all().any(|each| u64::try_from(limit_bytes).is_ok_and(|limit| each.bytes > limit));
        let is_untimed = limit_ms >= 0 && all().any(|each| each.has_untimed);
        let found = |setting, when| Deleting {
            setting,
            when,
            origin: origin(&holds, setting, node),
        };
        let mut deleting = Vec::new();
        if is_old || (has_any && !is_known(RETENTION_MS)) {
            deleting.push(found(RETENTION_MS, Deletion::AtOnce));
        } else if is_untimed {
            deleting.push(found(RETENTION_MS, Deletion::ByFileTime));
        }
        if is_large || (has_any && !is_known(RETENTION_BYTES)) {
            deleting.push(found(RETENTION_BYTES, Deletion::AtOnce));
        }
        deleting
    }

    fn prevented(&mut self, topic: &str, deleting: &Deleting) {
        let setting = deleting.setting;
        let when = match deleting.when {
            Deletion::AtOnce => "restored records at once",
            Deletion::ByFileTime => {
                "restored records, which have no timestamp, by the time of their new files"
            }
        };
        let back = format!("--delete-config {setting}");
        let (why, change) = match &deleting.origin {
            Origin::Topic(had) => (
                format!("{setting}={had} would delete {when}"),
                format!("--add-config {}", quoted(&format!("{setting}={had}"))),
            ),
            Origin::Dynamic(words) => (format!("{words} would delete {when}"), back),
            Origin::Brokers => (format!("the brokers' {setting} would delete {when}"), back),
            Origin::Unknown => (
                format!("what the brokers' {setting} would delete is not known (--broker tells)"),
                back,
            ),
        };
        let reason = format!(
            "{why}, so they have {setting}=-1 now; when the records may go by it, set it back"
        );
        self.note(topic, reason, Some(alter(topic, &change)));
    }

    fn announce(&mut self, topic: &str, deleting: &Deleting) {
        let setting = deleting.setting;
        let held = match &deleting.origin {
            Origin::Topic(had) => format!("{setting}={had}"),
            Origin::Dynamic(words) => words.clone(),
            Origin::Brokers | Origin::Unknown => format!("the brokers' {setting}"),
        };
        let reason = match &deleting.origin {
            _ if deleting.when == Deletion::ByFileTime => format!(
                "restored records have no timestamp, and {held} deletes them by the time of their new files: run this to keep them longer"
            ),
            Origin::Topic(_) | Origin::Dynamic(_) => format!(
                "{held} deletes restored records 30 s after the broker's start: run this as soon as it is up (log.initial.task.delay.ms in server.properties gives more time, from 3.5 on)"
            ),
            Origin::Brokers | Origin::Unknown => format!(
                "{held} may delete restored records 30 s after the start: put log.{setting}=-1 into server.properties before it, or run this as soon as it is up"
            ),
        };
        let command = alter(topic, &format!("--add-config {setting}=-1"));
        self.note(topic, reason, Some(command));
    }

    /// Topics with the same note are reported together.
    fn note(&mut self, topic: &str, reason: String, command: Option<String>) {
        if let Some(known) = self
            .remaining
            .iter_mut()
            .find(|known| known.reason == reason)
        {
            known.about.push_str(", ");
            known.about.push_str(topic);
            known.commands.extend(command);
            return;
        }
        self.remaining.push(Remaining {
            about: topic.to_owned(),
            reason,
            commands: command.into_iter().collect(),
        });
    }
}

/// Where a broker has the value of a setting from.
fn origin(holds: &EffectiveConfig, setting: &str, node: Option<i32>) -> Origin {
    let value = holds.text(setting).unwrap_or_default();
    match holds.source(setting) {
        SettingSource::Unknown => Origin::Unknown,
        SettingSource::Topic | SettingSource::Option => Origin::Topic(value.to_owned()),
        SettingSource::DynamicBroker => {
            let node = node.map(|node| format!(" {node}")).unwrap_or_default();
            Origin::Dynamic(format!("the dynamic {setting}={value} of broker{node}"))
        }
        SettingSource::DynamicDefaultBroker => Origin::Dynamic(format!(
            "the dynamic {setting}={value} of the cluster's brokers"
        )),
        SettingSource::Broker | SettingSource::Default => Origin::Brokers,
    }
}

pub(super) fn alter(topic: &str, change: &str) -> String {
    format!(
        "kafka-configs.sh --bootstrap-server localhost:9092 --alter --entity-type topics --entity-name {} {change}",
        quoted(topic)
    )
}

/// All that remains.
pub(super) fn list(
    plan: &RestorePlan,
    found: &Sources,
    targets: &Targets,
    retention: &Retention,
) -> Vec<Remaining> {
    let mut all = retention.remaining.clone();
    let restored: BTreeSet<&str> = plan
        .partitions
        .iter()
        .map(|each| each.topic.as_str())
        .collect();
    if found.has_groups
        && !restored.contains("__consumer_offsets")
        && targets.kind != Target::Folder
    {
        let is_cut = plan.partitions.iter().any(|each| each.is_cut);
        let beyond = if is_cut {
            ". Those behind the end of a partition that was cut are to be set to that end"
        } else {
            ""
        };
        all.push(Remaining {
            about: "groups".to_owned(),
            reason: format!("the groups' committed offsets are not restored: make a file of them for kafka-consumer-groups.sh, which sets them in the new cluster{beyond}"),
            commands: vec!["offsetlog groups SOURCE --reset-csv > offsets.csv".to_owned()],
        });
    }
    all.extend(targets.at_first_start.iter().map(|reason| Remaining {
        about: "first start".to_owned(),
        reason: reason.clone(),
        commands: Vec::new(),
    }));
    if targets.kind == Target::StoppedBroker {
        all.extend(topics_to_make(found, targets, plan.how.replication_factor));
    }
    if let Some(metadata) = &found.recreation.metadata
        && targets.kind == Target::NewCluster
    {
        let counts = [
            (metadata.acls.len(), "ACL", ""),
            (metadata.client_quotas.len(), "quota", ""),
            (
                metadata.scram_credentials.len(),
                "SCRAM user",
                " with a password that nobody can read",
            ),
            (
                metadata
                    .configs
                    .keys()
                    .filter(|(kind, _)| kind != "topic")
                    .count(),
                "setting",
                " of brokers, clients or groups",
            ),
        ];
        let seen: Vec<String> = counts
            .iter()
            .filter(|(count, ..)| *count > 0)
            .map(|(count, what, of)| format!("{}{of}", counted(*count, what)))
            .collect();
        if !seen.is_empty() {
            all.push(Remaining {
                about: "access".to_owned(),
                reason: format!("the old cluster had {}", seen.join(", ")),
                commands: vec!["offsetlog metadata SOURCE --as-commands".to_owned()],
            });
        }
    }
    for each in &plan.partitions {
        if !each.absent_brokers.is_empty() && matches!(each.state, PartitionState::Planned) {
            all.push(Remaining {
                about: format!("{}-{}", each.topic, each.partition),
                reason: format!(
                    "{} have replicas by the cluster's metadata: if one of them leads, this one is cut to what it has. Take them off the partition before they start",
                    brokers(&each.absent_brokers)
                ),
                commands: vec!["kafka-reassign-partitions.sh --execute --reassignment-json-file FILE".to_owned()],
            });
        }
    }
    all
}

/// Topics that a stopped broker's cluster does not have, with the commands that make them.
fn topics_to_make(
    found: &Sources,
    targets: &Targets,
    replication_factor: Option<usize>,
) -> Option<Remaining> {
    let all = found.topics.iter().map(|topic| &topic.to_make);
    let lacking = all.filter(|topic| !targets.has_topic(&topic.name));
    let topics = lacking.cloned().map(|topic| TopicToMake {
        // With as many as are asked for, they have not the brokers that they had.
        assignment: topic.assignment.filter(|_| replication_factor.is_none()),
        replication_factor: replication_factor.or(topic.replication_factor),
        ..topic
    });
    let topics: Vec<TopicToMake> = topics.collect();
    if topics.is_empty() {
        return None;
    }
    let names: Vec<&str> = topics.iter().map(|topic| topic.name.as_str()).collect();
    let about = names.join(", ");
    let recreation = Recreation {
        topics,
        left_out: Vec::new(),
        metadata: None,
        metadata_error: None,
        is_of_some: true,
        warnings: Vec::new(),
    };
    let script = recreation.commands("localhost:9092", false, false);
    let commands = script
        .lines()
        .filter(|line| line.starts_with("kafka-topics.sh "));
    Some(Remaining {
        about,
        reason: "the cluster does not have them: make them while it runs, stop the broker, and run this again (offsetlog metadata SOURCE --as-commands prints all settings)".to_owned(),
        commands: commands.map(ToOwned::to_owned).collect(),
    })
}
