//! What a restore leaves to be done by hand, with the commands for it; and retention, which would delete what was just restored.

use super::sources::{SourceTopic, Sources};
use super::targets::{Target, Targets};
use super::unknown::is_kafkas_own;
use super::{PartitionState, RestorePlan};
use crate::When;
use crate::recreation::{Recreation, TopicToMake};
use crate::retention::{
    BrokerRetention, Deleting, Deletion, LogAge, Origin, POLICY, RETENTION_BYTES, RETENTION_MS,
    alter, announced, announced_compaction, compacts,
};
use crate::shell::quoted;
use crate::topic_config::{remove_not_given, topic_config};
use crate::words::brokers;
use offsetlog::BrokerSettings;
use offsetlog::format::counted;
use std::collections::{BTreeMap, BTreeSet};

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

/// Decides about the retention of what is restored.
pub(super) struct Retention {
    target: Target,
    keeps: bool,
    on_brokers: BrokerRetention,
    /// What holds on them with the dynamic settings that the sources' cluster had.
    with_old: BrokerRetention,
    /// The topics that the target's cluster has.
    there: BTreeSet<String>,
    remaining: Vec<Remaining>,
}

impl Retention {
    pub(super) fn new(
        (found, targets): (&Sources, &Targets),
        broker: Option<&BrokerSettings>,
        now: i64,
        keeps: bool,
    ) -> Self {
        let nodes: BTreeSet<_> = targets.paths().into_iter().map(|(node, _)| node).collect();
        let old = found.recreation.metadata.as_ref();
        Self {
            target: targets.kind,
            keeps,
            there: targets
                .metadata
                .iter()
                .flat_map(|known| known.topics.iter().map(|topic| topic.name.clone()))
                .collect(),
            with_old: BrokerRetention::new(old, nodes.clone(), broker, now),
            on_brokers: BrokerRetention::new(targets.whole_metadata(), nodes, broker, now),
            remaining: Vec::new(),
        }
    }

    /// Changes the settings that a topic gets in a new cluster, where they would delete what is restored, and notes what to do about
    /// it later. `earlier` is what a restore wrote that may have known more.
    pub(super) fn judge(
        &mut self,
        topic: &SourceTopic,
        earlier: Option<&BTreeMap<String, String>>,
        configs: &mut BTreeMap<String, String>,
    ) {
        let name = &topic.to_make.name;
        let ages: Vec<LogAge> = topic.partitions.values().map(|each| each.age).collect();
        match self.target {
            Target::Folder => {}
            Target::NewCluster => {
                self.untier(name, configs);
                for each in remove_not_given(configs) {
                    let reason = format!("left out of its settings: {}", each.told("topic", false));
                    self.note(name, reason, Vec::new());
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
                // A restore leaves a topic compacted only if it knew that it had been.
                let by_earlier = earlier.is_some_and(|known| {
                    topic_config(known).is_compacted()
                        && !topic.to_make.configs.contains_key(POLICY)
                });
                if let Some(origin) = self.compacting(configs)
                    && !self.was_compacted(topic)
                    && !by_earlier
                    && ages.iter().any(|age| age.bytes > 0)
                {
                    if self.keeps {
                        self.note_all(name, vec![announced_compaction(name, &origin)]);
                    } else {
                        configs.insert(POLICY.to_owned(), "delete".to_owned());
                        let reason = format!(
                            "{}, and nothing here says that these records were compacted: those without a key would go, and of each key all \
                             but the newest, so it has {POLICY}=delete now; when they may go, set it back",
                            compacts(&origin)
                        );
                        let back = match origin {
                            Origin::Topic(had) => {
                                format!("--add-config {}", quoted(&format!("{POLICY}={had}")))
                            }
                            _ => format!("--delete-config {POLICY}"),
                        };
                        self.note(name, reason, vec![alter(name, &back)]);
                    }
                }
                for deleting in self.on_brokers.deleting(configs, &ages) {
                    if self.keeps {
                        self.note_all(name, vec![announced(name, &deleting)]);
                    } else {
                        configs.insert(deleting.setting.to_owned(), "-1".to_owned());
                        self.prevented(name, &deleting);
                    }
                }
                self.judge_with_old(name, configs, &ages);
            }
            Target::StoppedBroker => {
                let mut announced = self.on_brokers.announced(name, &ages);
                if !self.was_compacted(topic) {
                    announced.extend(self.on_brokers.announced_compaction(name, &ages));
                }
                self.note_all(name, announced);
                self.compare(topic);
            }
        }
    }

    /// Tells of settings that the topic had, and that decide what is deleted, where the cluster's topic has others.
    fn compare(&mut self, topic: &SourceTopic) {
        let name = &topic.to_make.name;
        let Some(own) = self
            .on_brokers
            .own(name)
            .filter(|_| self.there.contains(name))
        else {
            return;
        };
        let differing: Vec<String> = [POLICY, RETENTION_BYTES, RETENTION_MS]
            .into_iter()
            .filter_map(|setting| {
                let had = topic.to_make.configs.get(setting)?;
                let has = own.get(setting);
                // One that keeps all may have been set for what is restored.
                let keeps_all = setting != POLICY && has.is_some_and(|has| has.trim() == "-1");
                (has != Some(had) && !keeps_all).then(|| format!("{setting}={had}"))
            })
            .collect();
        if differing.is_empty() {
            return;
        }
        let reason = format!(
            "the sources have {} of it, and the cluster has not: if it is to be so again, and the records may go by it, set it",
            differing.join(" and ")
        );
        // In brackets a value may have commas.
        let pairs: Vec<String> = differing
            .iter()
            .map(|pair| match pair.split_once('=') {
                Some((setting, value)) if value.contains(',') => format!("{setting}=[{value}]"),
                _ => pair.clone(),
            })
            .collect();
        let change = format!("--add-config {}", quoted(&pairs.join(",")));
        self.note(name, reason, vec![alter(name, &change)]);
    }

    /// Does the same for the dynamic settings of the sources' brokers, which `metadata --as-commands` sets on the new ones: that is told as
    /// remaining work. They may set a policy before or after the others.
    fn judge_with_old(
        &mut self,
        topic: &str,
        configs: &mut BTreeMap<String, String>,
        ages: &[LogAge],
    ) {
        let mut deletes = configs.clone();
        let policy = deletes.entry(POLICY.to_owned());
        policy.or_insert_with(|| "delete".to_owned());
        for mut deleting in self.with_old.deleting(&deletes, ages) {
            let Origin::Dynamic(words) = &deleting.origin else {
                continue;
            };
            deleting.origin = Origin::Dynamic(format!(
                "{words}, which `offsetlog metadata SOURCE --as-commands` sets again,"
            ));
            if self.keeps {
                self.note_all(topic, vec![announced(topic, &deleting)]);
            } else {
                configs.insert(deleting.setting.to_owned(), "-1".to_owned());
                self.prevented(topic, &deleting);
            }
        }
    }

    /// Where the new brokers have it from that they compact the topic, now or with the dynamic settings of the old ones.
    fn compacting(&self, configs: &BTreeMap<String, String>) -> Option<Origin> {
        let now = self.on_brokers.compacting(configs);
        now.or_else(|| match self.with_old.compacting(configs) {
            Some(Origin::Dynamic(words)) => Some(Origin::Dynamic(words)),
            _ => None,
        })
    }

    /// Whether the sources know that the topic was compacted: by its settings, or by the cleaner's checkpoint where nobody knows those.
    fn was_compacted(&self, topic: &SourceTopic) -> bool {
        let configs = &topic.to_make.configs;
        let is_own = topic_config(configs).is_compacted() || is_kafkas_own(&topic.to_make.name);
        let by_old = || match self.with_old.compacting(configs) {
            Some(Origin::Dynamic(_)) => topic.is_told,
            _ => false,
        };
        is_own || (topic.was_compacted && !topic.is_told) || by_old()
    }

    /// Keeps what an earlier restore set, by what `bootstrap.checkpoint` has, and nobody knows here to be void: for partitions that this one
    /// does not look at, if it `has_others`, as their records may be old, and the policy where that of the brokers is not known now.
    pub(super) fn keep(
        &mut self,
        topic: &str,
        (known, has_others): (&BTreeMap<String, String>, bool),
        configs: &mut BTreeMap<String, String>,
    ) {
        self.keep_policy(topic, (known, has_others), configs);
        if self.keeps || !has_others {
            return;
        }
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
            self.note(topic, reason, vec![alter(topic, &change)]);
        }
    }

    fn keep_policy(
        &mut self,
        topic: &str,
        (known, has_others): (&BTreeMap<String, String>, bool),
        configs: &mut BTreeMap<String, String>,
    ) {
        let deletes = known.get(POLICY).is_some_and(|policy| policy == "delete");
        if !deletes || configs.contains_key(POLICY) {
            return;
        }
        if (self.keeps || !has_others) && self.on_brokers.knows_policy(configs) {
            return;
        }
        let (reason, change) = if self.keeps {
            (
                format!(
                    "an earlier restore set {POLICY}=delete, which is taken back: whether the brokers compact the topic is not known \
                     (--broker tells). If the records are to stay, run this as soon as they are up"
                ),
                format!("--add-config {POLICY}=delete"),
            )
        } else {
            configs.insert(POLICY.to_owned(), "delete".to_owned());
            let why = if has_others {
                "for partitions that are not restored now, and it stays"
            } else {
                "and it stays, as the brokers' policy is not known now (--broker tells)"
            };
            (
                format!(
                    "an earlier restore set {POLICY}=delete {why}; when the records may be compacted, set it back"
                ),
                format!("--delete-config {POLICY}"),
            )
        };
        self.note(topic, reason, vec![alter(topic, &change)]);
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
            self.note(&topic.to_make.name, reason, vec![command]);
        }
        let deletes = known.get(POLICY).is_some_and(|policy| policy == "delete");
        if deletes && !topic.to_make.configs.contains_key(POLICY) {
            let reason = format!(
                "bootstrap.checkpoint says {POLICY}=delete, which an earlier restore sets where the brokers compact, and nothing says that the \
                 records were compacted. When they may be: if the topic had another value, set that; if it had none, take this one back"
            );
            let command = alter(&topic.to_make.name, &format!("--delete-config {POLICY}"));
            self.note(&topic.to_make.name, reason, vec![command]);
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

    fn prevented(&mut self, topic: &str, deleting: &Deleting) {
        let setting = deleting.setting;
        let when = match deleting.when {
            Deletion::AtOnce => "restored records at once".to_owned(),
            Deletion::Soon(due) => format!("restored records from {} on", When(due)),
            Deletion::ByFileTime => {
                "restored records, which have no timestamp, by the time of their new files"
                    .to_owned()
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
        self.note(topic, reason, vec![alter(topic, &change)]);
    }

    fn note_all(&mut self, topic: &str, announced: Vec<(String, Vec<String>)>) {
        for (reason, commands) in announced {
            self.note(topic, reason, commands);
        }
    }

    /// Topics with the same note are reported together.
    fn note(&mut self, topic: &str, reason: String, commands: Vec<String>) {
        if let Some(known) = self
            .remaining
            .iter_mut()
            .find(|known| known.reason == reason)
        {
            known.about.push_str(", ");
            known.about.push_str(topic);
            known.commands.extend(commands);
            return;
        }
        self.remaining.push(Remaining {
            about: topic.to_owned(),
            reason,
            commands,
        });
    }
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
                    "there are replicas on {} by the cluster's metadata: if one of them leads, this one is cut to what it has. Take them off the partition before they start",
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
