//! What a broker's retention deletes of a partition that it finds when it starts, and which setting makes it.
//!
//! Its first round is 30 s after the start (`LogManager.InitialTaskDelayMs`), so who puts old records into its log dirs has to know before.

use crate::When;
use crate::replicas::readable;
use crate::salvage::everything;
use crate::shell::quoted;
use offsetlog::{
    BrokerSettings, EffectiveConfig, Log, MetadataImage, Result, ScanOptions, SettingSource,
};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const RETENTION_MS: &str = "retention.ms";
pub(crate) const RETENTION_BYTES: &str = "retention.bytes";
pub(crate) const POLICY: &str = "cleanup.policy";

/// What retention looks at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LogAge {
    /// Of the segments.
    pub(crate) bytes: u64,
    /// The greatest timestamp of the first segment with one, or of the first batch, where the log is cut into segments anew.
    pub(crate) oldest_timestamp: Option<i64>,
    /// The greatest timestamp of the newest segment.
    pub(crate) newest_timestamp: Option<i64>,
    /// Whether a segment has batches and no timestamp: a broker counts its age from the time of its file.
    pub(crate) has_untimed: bool,
    /// The time of the first file without a timestamp, where files stay and none with one is before it; restored ones are new.
    pub(crate) oldest_file: Option<i64>,
}

impl LogAge {
    /// The age of some of a log's segments, with their base offsets and sizes. `cut_anew` is the log start offset of one that is cut into
    /// segments anew, by other settings.
    pub(crate) fn of(log: &Log, segments: &[(i64, u64)], cut_anew: Option<i64>) -> Result<Self> {
        let mut all = Self {
            bytes: segments.iter().map(|(_, bytes)| bytes).sum(),
            ..Self::default()
        };
        for (base, bytes) in segments {
            let known = readable(log.segment_age(*base))?;
            let of_file = known.and_then(|age| age.filter(|age| !age.is_of_a_record));
            let known = known.map(|age| age.filter(|age| age.is_of_a_record));
            all.newest_timestamp = known.flatten().map(|age| age.newest_timestamp);
            if all.oldest_timestamp.is_none() && all.newest_timestamp.is_some() {
                all.oldest_timestamp = all.newest_timestamp;
                // The first new segment may end behind the first batch.
                if let Some(start) = cut_anew {
                    let (first, is_behind_untimed) = first_timestamp(log, (*base).max(start))?;
                    all.oldest_timestamp = first.or(all.newest_timestamp);
                    all.has_untimed |= is_behind_untimed;
                }
            }
            // Compaction leaves segments without a record.
            let is_untimed = known.is_some_and(|known| known.is_none()) && *bytes > 0;
            all.has_untimed |= is_untimed;
            if is_untimed && cut_anew.is_none() && all.oldest_timestamp.is_none() {
                let time = of_file.map(|age| age.newest_timestamp);
                all.oldest_file = all.oldest_file.or(time);
            }
        }
        Ok(all)
    }
}

/// The greatest timestamp of the first batch from this offset on that has one, and whether others are before it.
fn first_timestamp(log: &Log, start: i64) -> Result<(Option<i64>, bool)> {
    let mut scan = log.scan(&ScanOptions {
        start: Some(start),
        ..everything()
    })?;
    let mut has_untimed = false;
    while let Some(batch) = scan.next_batch()? {
        let newest = batch.header().max_timestamp;
        if newest >= 0 {
            return Ok((Some(newest), has_untimed));
        }
        has_untimed = true;
    }
    Ok((None, has_untimed))
}

/// Who restores does not start the brokers, and look at the records, at once.
const SOON_MS: i64 = 12 * 60 * 60 * 1000;
/// But of a short retention that would be all there is: then this part of it.
const SOON_PART: i64 = 20;

/// When retention would delete something.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deletion {
    AtOnce,
    /// Soon, from this time on.
    Soon(i64),
    /// Records without a timestamp: once the files are old enough.
    ByFileTime,
}

/// Where the value of such a setting comes from.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The topic's own, with the value.
    Topic(String),
    /// A dynamic one of the brokers, in words.
    Dynamic(String),
    /// A `server.properties`, or Kafka's default.
    Brokers,
    /// Nobody knows the value.
    Unknown,
}

/// A setting that would delete something of a topic.
pub(crate) struct Deleting {
    pub(crate) setting: &'static str,
    pub(crate) when: Deletion,
    pub(crate) origin: Origin,
}

/// What is known of the retention that holds on a cluster's brokers.
pub(crate) struct BrokerRetention {
    now: i64,
    /// The topics' own settings; `None` if nobody knows them.
    topics: Option<BTreeMap<String, BTreeMap<String, String>>>,
    /// The dynamic settings of the brokers, and nothing else.
    dynamic: MetadataImage,
    /// The brokers that have the topics.
    nodes: BTreeSet<Option<i32>>,
    /// Their `server.properties`.
    broker: Option<BrokerSettings>,
}

impl BrokerRetention {
    /// By the cluster's metadata and a `server.properties`, as far as they are here.
    pub(crate) fn new(
        metadata: Option<&MetadataImage>,
        nodes: BTreeSet<Option<i32>>,
        broker: Option<&BrokerSettings>,
        now: i64,
    ) -> Self {
        let of_kind = |wanted: &'static str| {
            let all = metadata.into_iter().flat_map(|known| known.configs.iter());
            all.filter(move |((kind, _), _)| kind == wanted)
        };
        let dynamic = MetadataImage {
            configs: of_kind("broker")
                .map(|(key, configs)| (key.clone(), configs.clone()))
                .collect(),
            ..MetadataImage::default()
        };
        let own = of_kind("topic").map(|((_, name), configs)| (name.clone(), configs.clone()));
        Self {
            now,
            topics: metadata.map(|_| own.collect()),
            dynamic,
            nodes,
            broker: broker.cloned(),
        }
    }

    /// The settings that would delete something of logs of a topic with these settings, on one of the brokers, and when.
    pub(crate) fn deleting(
        &self,
        configs: &BTreeMap<String, String>,
        logs: &[LogAge],
    ) -> Vec<Deleting> {
        let mut all: BTreeMap<&str, Deleting> = BTreeMap::new();
        for node in &self.nodes {
            for found in self.deleting_on(*node, configs, logs) {
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

    /// Where the brokers have it from that they compact a topic with these settings; `None` if they do not, as far as is known.
    pub(crate) fn compacting(&self, configs: &BTreeMap<String, String>) -> Option<Origin> {
        let broker = self.broker.as_ref();
        self.nodes.iter().find_map(|node| {
            let holds = EffectiveConfig::on_broker(configs, &self.dynamic, *node, broker);
            let is_compacted = holds.config().is_compacted();
            is_compacted.then(|| origin(&holds, POLICY, *node))
        })
    }

    /// Whether it is known of all brokers what policy a topic with these settings has there.
    pub(crate) fn knows_policy(&self, configs: &BTreeMap<String, String>) -> bool {
        let broker = self.broker.as_ref();
        self.nodes.iter().all(|node| {
            let holds = EffectiveConfig::on_broker(configs, &self.dynamic, *node, broker);
            holds.source(POLICY) != SettingSource::Unknown
        })
    }

    /// What compaction would remove of a topic of the cluster that was not compacted before: why, in a sentence, and the command against it.
    pub(crate) fn announced_compaction(
        &self,
        topic: &str,
        logs: &[LogAge],
    ) -> Option<(String, Vec<String>)> {
        let own = self.topics.as_ref()?.get(topic);
        let origin = self.compacting(own.unwrap_or(&BTreeMap::new()))?;
        logs.iter()
            .any(|each| each.bytes > 0)
            .then(|| announced_compaction(topic, &origin))
    }

    /// The topic's own settings in the cluster; `None` if nobody knows them.
    pub(crate) fn own(&self, topic: &str) -> Option<BTreeMap<String, String>> {
        let topics = self.topics.as_ref()?;
        Some(topics.get(topic).cloned().unwrap_or_default())
    }

    fn deleting_on(
        &self,
        node: Option<i32>,
        configs: &BTreeMap<String, String>,
        logs: &[LogAge],
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
        let all = || logs.iter().filter(|each| each.bytes > 0);
        let has_any = all().next().is_some();
        let is_over = |time: Option<i64>| {
            time.is_some_and(|time| limit_ms >= 0 && self.now.saturating_sub(time) > limit_ms)
        };
        let is_old = all().any(|each| is_over(each.oldest_timestamp) || is_over(each.oldest_file));
        let oldest = all().filter_map(|each| each.oldest_timestamp).min();
        let due = oldest
            .filter(|_| limit_ms >= 0)
            .map(|oldest| oldest.saturating_add(limit_ms));
        let is_large =
            all().any(|each| u64::try_from(limit_bytes).is_ok_and(|limit| each.bytes > limit));
        let is_untimed = limit_ms >= 0 && all().any(|each| each.has_untimed);
        let found = |setting, when| Deleting {
            setting,
            when,
            origin: origin(&holds, setting, node),
        };
        let soon = SOON_MS.min(limit_ms / SOON_PART);
        let mut deleting = Vec::new();
        if is_old || (has_any && !is_known(RETENTION_MS)) {
            deleting.push(found(RETENTION_MS, Deletion::AtOnce));
        } else if is_untimed {
            deleting.push(found(RETENTION_MS, Deletion::ByFileTime));
        } else if let Some(due) = due.filter(|due| *due <= self.now.saturating_add(soon)) {
            deleting.push(found(RETENTION_MS, Deletion::Soon(due)));
        }
        if is_large || (has_any && !is_known(RETENTION_BYTES)) {
            deleting.push(found(RETENTION_BYTES, Deletion::AtOnce));
        }
        deleting
    }

    /// What a topic of the cluster would lose of these logs: why, in a sentence, and the commands against it.
    pub(crate) fn announced(&self, topic: &str, logs: &[LogAge]) -> Vec<(String, Vec<String>)> {
        let Some(topics) = &self.topics else {
            return unknown(topic, logs).into_iter().collect();
        };
        let own = topics.get(topic).cloned().unwrap_or_default();
        let all = self.deleting(&own, logs);
        let (unknown, known): (Vec<Deleting>, Vec<Deleting>) = all
            .into_iter()
            .partition(|each| each.origin == Origin::Unknown);
        let mut told: Vec<_> = known.iter().map(|each| announced(topic, each)).collect();
        told.extend(of_unknown_brokers(topic, &unknown));
        told
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

/// How a setting of a topic is changed while the cluster runs.
pub(crate) fn alter(topic: &str, change: &str) -> String {
    format!(
        "kafka-configs.sh --bootstrap-server localhost:9092 --alter --entity-type topics --entity-name {} {change}",
        quoted(topic)
    )
}

const MORE_TIME: &str =
    "log.initial.task.delay.ms in server.properties gives more time, from 3.5 on";

/// What a setting deletes, in a sentence, and the command against it.
pub(crate) fn announced(topic: &str, deleting: &Deleting) -> (String, Vec<String>) {
    let setting = deleting.setting;
    let held = match &deleting.origin {
        Origin::Topic(had) => format!("{setting}={had}"),
        Origin::Dynamic(words) => words.clone(),
        Origin::Brokers | Origin::Unknown => format!("the brokers' {setting}"),
    };
    let due = match deleting.when {
        Deletion::Soon(due) => Some(due),
        _ => None,
    };
    let reason = match &deleting.origin {
        _ if due.is_some() => format!(
            "{held} deletes records from {} on: run this to keep them longer",
            When(due.unwrap_or_default())
        ),
        _ if deleting.when == Deletion::ByFileTime => format!(
            "some records have no timestamp, and {held} deletes them by the time of their files: run this to keep them longer"
        ),
        Origin::Topic(_) | Origin::Dynamic(_) => format!(
            "{held} deletes records 30 s after the broker's start: run this as soon as it is up ({MORE_TIME})"
        ),
        Origin::Brokers | Origin::Unknown => format!(
            "{held} may delete records 30 s after the broker's start: put log.{setting}=-1 into server.properties before it, or run this as soon as it is up"
        ),
    };
    (
        reason,
        vec![alter(topic, &format!("--add-config {setting}=-1"))],
    )
}

/// That a setting compacts what nobody knows to have been compacted, in a sentence, and the command against it.
pub(crate) fn announced_compaction(topic: &str, origin: &Origin) -> (String, Vec<String>) {
    let reason = format!(
        "{}, and nothing here says that these records were compacted: the broker deletes those without a key, and of each key all but the \
         newest. If they are to stay, {}",
        compacts(origin),
        match origin {
            Origin::Topic(_) | Origin::Dynamic(_) => format!("run this as soon as it is up ({MORE_TIME})"),
            Origin::Brokers | Origin::Unknown =>
                "put log.cleanup.policy=delete into server.properties before its start, or run this as soon as it is up".to_owned(),
        }
    );
    let change = format!("--add-config {POLICY}=delete");
    (reason, vec![alter(topic, &change)])
}

/// Which setting compacts.
pub(crate) fn compacts(origin: &Origin) -> String {
    match origin {
        Origin::Topic(had) => format!("{POLICY}={had} compacts the topic"),
        Origin::Dynamic(words) => format!("{words} compacts the topic"),
        Origin::Brokers | Origin::Unknown => format!("the brokers' {POLICY} compacts the topic"),
    }
}

/// Settings of brokers whose `server.properties` nobody has given, all in one.
fn of_unknown_brokers(topic: &str, settings: &[Deleting]) -> Option<(String, Vec<String>)> {
    let all = |before: &str, after: &str, between: &str| {
        let each = settings
            .iter()
            .map(|each| format!("{before}{}{after}", each.setting));
        each.collect::<Vec<String>>().join(between)
    };
    let are = if settings.len() > 1 { "are" } else { "is" };
    (!settings.is_empty()).then(|| {
        let reason = format!(
            "the brokers' {} {are} not known (--broker), and may delete records 30 s after the broker's start: put {} into server.properties \
             before it, or run this as soon as it is up",
            all("", "", " and "),
            all("log.", "=-1", " and "),
        );
        let change = format!("--add-config {}", all("", "=-1", ","));
        (reason, vec![alter(topic, &change)])
    })
}

/// Nobody knows whether the topic has a retention of its own, which a `server.properties` does not change.
fn unknown(topic: &str, logs: &[LogAge]) -> Option<(String, Vec<String>)> {
    logs.iter().any(|each| each.bytes > 0).then(|| {
        let reason = format!(
            "no metadata of the cluster is here (--metadata), so nobody knows whether the topic's own retention deletes records 30 s \
             after the broker's start: look what it has, and run the second command as soon as the broker is up ({MORE_TIME}). If \
             {POLICY} has compact there, records without a key are deleted, and of each key all but the newest: \
             if it was not compacted, add {POLICY}=delete"
        );
        let described = format!(
            "kafka-configs.sh --bootstrap-server localhost:9092 --describe --entity-type topics --entity-name {}",
            quoted(topic)
        );
        let kept = alter(
            topic,
            &format!("--add-config {RETENTION_MS}=-1,{RETENTION_BYTES}=-1"),
        );
        (reason, vec![described, kept])
    })
}
