//! Groups that are restored along, and whose committed offsets lie behind the end of what is restored, or do not last.
//!
//! A consumer that goes on behind the end is out of range, or, once producers have appended enough, passes over what they appended first.

use super::expiring::{Expiring, GroupState};
use super::remains::Remaining;
use super::{PartitionState, PartitionToRestore, RestorePlan, Target, own_groups};
use crate::places::is_there;
use crate::salvage::everything;
use crate::shell::quoted;
use offsetlog::format::internal_topic::{CoordinatorRecord, CoordinatorTopic};
use offsetlog::format::message::Value;
use offsetlog::format::{ControlType, FormatError, RecordView, Uuid};
use offsetlog::{Log, Result, ScanOptions, TopicPartition};
use std::collections::{BTreeMap, HashMap};

pub(super) const TOPIC: &str = "__consumer_offsets";

/// A group, a topic and a partition.
pub(super) type Key = (String, String, i32);

/// What a record commits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Committed {
    pub(crate) offset: i64,
    /// The topic's id; zero where the record has none.
    pub(crate) topic_id: Uuid,
    pub(super) timestamp: i64,
    /// When it is deleted, in records of old formats.
    pub(super) expires: Option<i64>,
}

/// What a partition of `__consumer_offsets` says.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    pub(crate) offsets: BTreeMap<Key, Committed>,
    /// Of groups of the classic protocol.
    pub(super) groups: BTreeMap<String, GroupState>,
}

/// Where a partition ends, and its topic's id.
pub(super) type End = (i64, Option<Uuid>);

/// By topic and partition.
pub(super) type Ends<'p> = HashMap<(&'p str, i32), End>;

/// The offset of a record of `__consumer_offsets`, and what it commits.
type Commit = (i64, Committed);

/// What is told of them: by the plan, and anew of what was built.
#[derive(Debug, Default)]
pub(super) struct BehindTheEnd {
    remaining: Vec<Remaining>,
    warnings: Vec<String>,
}

/// Tells of each such group, with the command that sets its offsets back, instead of what was told before. Damage, and a time that what fills
/// it has, are known when all is built.
///
/// # Errors
/// `Interrupted`. A warning says what cannot be read.
pub(super) fn tell(plan: &mut RestorePlan) -> Result<()> {
    let told = behind_the_end(plan)?;
    let before = std::mem::take(&mut plan.behind_the_end);
    plan.remaining
        .retain(|each| !before.remaining.contains(each));
    plan.warnings.retain(|each| !before.warnings.contains(each));
    plan.remaining.extend(told.remaining.iter().cloned());
    plan.warnings.extend(told.warnings.iter().cloned());
    plan.behind_the_end = told;
    Ok(())
}

/// Where a partition ends in the target, or is to end: where damage hides the end, behind what can be read.
fn end_of(each: &PartitionToRestore) -> Option<i64> {
    match &each.state {
        PartitionState::Planned => each.log_end_offset.or(Some(each.extent?.end)),
        state => Some(state.report()?.built.log_end_offset),
    }
}

/// Where a partition that no source has ends in the target: an earlier call may have had it, and otherwise it begins empty in a new cluster.
/// `None` where nobody knows.
fn end_of_missing(missing: &TopicPartition, plan: &RestorePlan) -> Result<Option<End>> {
    let mut topics = plan.new_topics.iter();
    let new = topics.find(|topic| topic.name == missing.topic);
    let mut found = new.map(|topic| (0, Some(topic.topic_id)));
    for (_, log_dir) in &plan.log_dirs {
        let path = log_dir.join(missing.to_string());
        if !is_there(plan.options.disk.as_ref(), &path)? {
            continue;
        }
        let known = Log::open(&path, &plan.options)
            .and_then(|log| Ok((log.log_end_offset()?, log.topic_id()?)));
        match known {
            Ok((end, topic_id)) => {
                let (other, new_id) = found.unwrap_or_default();
                found = Some((end.max(other), new_id.or(topic_id)));
            }
            Err(error) if error.is_of_process() => return Err(error),
            Err(_) => return Ok(None),
        }
    }
    Ok(found)
}

/// Reads what is restored of `__consumer_offsets`, or is to be.
fn behind_the_end(plan: &RestorePlan) -> Result<BehindTheEnd> {
    let mut ends: HashMap<(&str, i32), End> = HashMap::new();
    for each in &plan.missing {
        if let Some(end) = end_of_missing(each, plan)? {
            ends.insert((each.topic.as_str(), each.partition), end);
        }
    }
    ends.extend(plan.partitions.iter().filter_map(|each| {
        let end = (end_of(each)?, each.topic_id);
        Some(((each.topic.as_str(), each.partition), end))
    }));
    let mut behind: BTreeMap<String, Vec<(String, i32, i64, i64)>> = BTreeMap::new();
    let mut warnings = Vec::new();
    let mut expiring = Expiring::default();
    let mut void: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for each in plan.partitions.iter().filter(|each| each.topic == TOPIC) {
        if end_of(each).is_none() {
            continue;
        }
        let found = match commits_of(each, plan) {
            Ok(found) => found,
            Err(error) if error.is_of_process() => return Err(error),
            // It may be restored from another replica.
            Err(error) => {
                warnings.push(format!(
                    "whether committed offsets lie behind the end of what is restored, {TOPIC}-{} does not say: {error}",
                    each.partition
                ));
                continue;
            }
        };
        expiring.add(&found, plan.offsets_retention);
        for ((group, topic, partition), commit) in found.offsets {
            let (committed, of) = (commit.offset, commit.topic_id);
            let Some((end, topic_id)) = ends.get(&(topic.as_str(), partition)).copied() else {
                continue;
            };
            // A broker passes over what was committed in an earlier topic of the name.
            let is_of_another = topic_id.is_some_and(|id| !of.is_zero() && of != id);
            // In the sources too, unless the topic had this id there.
            if is_of_another && plan.source_ids.get(&topic).is_none_or(|id| *id == of) {
                let of_group = void.entry(group.clone()).or_default();
                of_group.push(format!("{topic}-{partition} at {committed}"));
            }
            if committed > end && !is_of_another {
                let of_group = behind.entry(group).or_default();
                of_group.push((topic, partition, committed, end));
            }
        }
    }
    own_groups::add(plan, &ends, &mut behind, &mut warnings)?;
    let mut remaining: Vec<Remaining> = behind.into_iter().map(told).collect();
    if plan.target != Target::Folder {
        remaining.extend(void.into_iter().map(told_void));
        remaining.extend(expiring.told(plan.offsets_retention));
    }
    Ok(BehindTheEnd {
        remaining,
        warnings,
    })
}

/// The committed offsets of what was built, or is to be.
fn commits_of(each: &PartitionToRestore, plan: &RestorePlan) -> Result<Commits> {
    if let Some(report) = each.state.report() {
        return commits(&Log::open(&report.built.path, &plan.options)?, None);
    }
    let log = each.log.as_ref();
    let found = log.map_or(Ok(Commits::default()), |log| commits(log, each.cut.stop));
    each.close_files();
    found
}

/// Offsets that were committed in a topic that has another id in the target.
fn told_void((group, places): (String, Vec<String>)) -> Remaining {
    Remaining {
        reason: format!(
            "the group has committed offsets by the id that the topic had, and the cluster's topic has another one ({}): a coordinator passes over \
             them, and the consumers begin by auto.offset.reset. This makes a file of them for kafka-consumer-groups.sh, which sets them while \
             the cluster runs",
            places.join("; ")
        ),
        commands: vec![format!(
            "offsetlog groups SOURCE -g {} --reset-csv > offsets.csv",
            quoted(&group)
        )],
        about: group,
    }
}

fn told((group, behind): (String, Vec<(String, i32, i64, i64)>)) -> Remaining {
    let places: Vec<String> = behind
        .iter()
        .map(|(topic, partition, committed, end)| {
            format!("{topic}-{partition} at {committed}, which ends at {end}")
        })
        .collect();
    let commands = behind.iter().map(|(topic, partition, _, end)| {
        format!(
            "kafka-consumer-groups.sh --bootstrap-server localhost:9092 --group {} --reset-offsets --to-offset {end} --topic {} --execute",
            quoted(&group),
            quoted(&format!("{topic}:{partition}"))
        )
    });
    Remaining {
        reason: format!(
            "the group has committed offsets behind the end of what is restored ({}): its consumers would begin elsewhere, or pass over what \
             is appended up to there. Set them back before producers start",
            places.join("; ")
        ),
        commands: commands.collect(),
        about: group,
    }
}

/// The committed offsets of one partition of `__consumer_offsets` up to `stop`: of a transaction those that its marker commits.
pub(crate) fn commits(log: &Log, stop: Option<i64>) -> Result<Commits> {
    // Each with the offset of its record: a marker does not bring back what was committed anew before it.
    let mut known: BTreeMap<Key, Commit> = BTreeMap::new();
    let mut groups = BTreeMap::new();
    let mut pending: HashMap<i64, Vec<(Key, Commit)>> = HashMap::new();
    let mut scan = log.scan(&ScanOptions {
        stop,
        ..everything()
    })?;
    while let Some(mut batch) = scan.next_batch()? {
        let header = *batch.header();
        while let Some(record) = batch.next_record()? {
            if header.attributes.is_control() {
                let ended = ControlType::parse_key(record.key);
                let ended_well = matches!(ended, Ok(ControlType::Commit));
                let of_it = pending.remove(&header.producer_id).unwrap_or_default();
                for (key, commit) in of_it.into_iter().filter(|_| ended_well) {
                    if known.get(&key).is_none_or(|known| known.0 < commit.0) {
                        known.insert(key, commit);
                    }
                }
                continue;
            }
            // What no coordinator wrote is for others to tell.
            let (key, offset) = match said(&record) {
                Ok(Some(Said::Commit(key, offset))) => (key, offset),
                Ok(Some(Said::Group(group, Some(state)))) => {
                    groups.insert(group, state);
                    continue;
                }
                Ok(Some(Said::Group(group, None))) => {
                    groups.remove(&group);
                    continue;
                }
                Ok(None) | Err(_) => continue,
            };
            match offset {
                // The end of an open transaction does not bring it back, as Kafka's `OffsetMetadataManager` has it.
                None => {
                    known.remove(&key);
                    for of_it in pending.values_mut() {
                        of_it.retain(|(other, _)| *other != key);
                    }
                }
                Some(offset) if header.attributes.is_transactional() => {
                    let of_it = pending.entry(header.producer_id).or_default();
                    of_it.push((key, (record.offset, offset)));
                }
                Some(offset) => drop(known.insert(key, (record.offset, offset))),
            }
        }
    }
    let known = known.into_iter();
    Ok(Commits {
        offsets: known.map(|(key, (_, offset))| (key, offset)).collect(),
        groups,
    })
}

/// What a record says; `None` where it takes that back.
enum Said {
    Commit(Key, Option<Committed>),
    Group(String, Option<GroupState>),
}

/// What a record says; `None` for a record about something else.
fn said(record: &RecordView<'_>) -> std::result::Result<Option<Said>, FormatError> {
    let Some(key) = record.key else {
        return Ok(None);
    };
    let decoded = CoordinatorTopic::ConsumerOffsets.decode(key, record.value)?;
    let CoordinatorRecord::Known(known) = decoded else {
        return Ok(None);
    };
    let text = |name| Some(known.key.get(name)?.as_str()?.to_owned());
    match known.record_type.number {
        0 | 1 => {}
        2 => {
            let state = known.value.as_ref();
            let state = state.map(|(_, value)| GroupState::of(value));
            return Ok(text("group").map(|group| Said::Group(group, state)));
        }
        _ => return Ok(None),
    }
    let partition = known.key.get("partition").and_then(Value::as_int);
    let partition = partition.and_then(|number| i32::try_from(number).ok());
    let (Some(group), Some(topic), Some(partition)) = (text("group"), text("topic"), partition)
    else {
        return Ok(None);
    };
    let offset = known.value.as_ref().and_then(|(_, value)| {
        let topic_id = value.get("topicId").and_then(Value::as_uuid);
        let none = Uuid::from_bytes([0; 16]);
        let time = |name| value.get(name).and_then(Value::as_int);
        Some(Committed {
            offset: value.get("offset")?.as_int()?,
            topic_id: topic_id.unwrap_or(none),
            timestamp: time("commitTimestamp").unwrap_or(-1),
            expires: time("expireTimestamp").filter(|time| *time >= 0),
        })
    });
    Ok(Some(Said::Commit((group, topic, partition), offset)))
}
