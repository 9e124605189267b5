//! Topics, partitions, leaders and settings of the source: what is new, moved, deleted, another topic by now.

use super::answers::{epoch, error_name, int, int_or, int32, structs, text, uuid};
use super::{Asked, Core, Next, Node, Request, Topic, TopicState, Versions, version_of};
use crate::mirror::partition::Need;
use crate::mirror::report::{EventKind, MirrorEvent};
use crate::mirror::work::Work;
use offsetlog::TopicPartition;
use offsetlog::format::Uuid;
use offsetlog::format::message::{Struct, Value};
use offsetlog::format::protocol::apis::{DESCRIBE_CONFIGS, METADATA};
use std::collections::{BTreeMap, BTreeSet};

/// The last version that a name is enough for, and that shows what a mirror needs.
const METADATA_NEWEST: i16 = 12;
/// From this version on a request by name makes no topics.
const WITHOUT_CREATION: i16 = 4;
/// The type of a topic among the resources that have settings.
const TOPIC: i8 = 2;
/// A setting of the topic itself.
const SOURCE_TOPIC: i64 = 1;
/// So many looks in a row must miss a topic before it counts as deleted.
const MISSED_MAX: u32 = 3;
/// Milliseconds between these.
const MISSED_INTERVAL_MS: i64 = 2000;
/// Topics whose settings are asked for at once.
const CONFIGS_AT_ONCE: usize = 100;
/// More partitions than any topic has: a claim beyond is not believed.
const PARTITIONS_MAX: i32 = 200_000;

impl Core {
    pub(super) fn next_of_any(&mut self, versions: &Versions, now: i64) -> Next {
        if now >= self.metadata_due {
            if let Some(request) = self.metadata_request(versions) {
                self.metadata_due = now.saturating_add(self.options.metadata_interval_ms);
                return Next::Request(Box::new(request));
            }
            let reason = "the broker does not say that it answers Metadata";
            self.failed(Node::Any, None, reason, now);
            return Next::Wait(now.saturating_add(1000));
        }
        if let Some(request) = self.configs_request(versions, now) {
            return Next::Request(Box::new(request));
        }
        Next::Wait(self.metadata_due.min(now.saturating_add(1000)))
    }

    fn metadata_request(&mut self, versions: &Versions) -> Option<Request> {
        let version = version_of(&METADATA, versions, METADATA_NEWEST)?;
        self.look += 1;
        let takes_all = !self.options.patterns.is_empty()
            || self.options.topics.is_empty()
            || version < WITHOUT_CREATION;
        let missing = std::mem::take(&mut self.missing);
        let by_name = version >= WITHOUT_CREATION && !missing.is_empty();
        let names = if by_name {
            Some(missing)
        } else if takes_all {
            None
        } else {
            Some(self.options.topics.clone())
        };
        let topics = match &names {
            Some(names) => {
                let topics: Vec<Struct<'static>> = names
                    .iter()
                    .map(|name| Struct::new().with("name", name.clone()))
                    .collect();
                Value::from(topics)
            }
            None if version == 0 => Value::from(Vec::<Struct<'static>>::new()),
            None => Value::Null,
        };
        let mut body = Struct::new().with("topics", topics);
        if version >= WITHOUT_CREATION {
            body = body.with("allowAutoTopicCreation", false);
        }
        Some(Request {
            api: &METADATA,
            version,
            body,
            asked: Asked::Metadata {
                look: self.look,
                names,
            },
        })
    }

    fn configs_request(&mut self, versions: &Versions, now: i64) -> Option<Request> {
        let is_due = now >= self.configs_due;
        let wanted = self.topics.iter().filter(|(_, topic)| {
            topic.state == TopicState::Settings || (is_due && topic.state == TopicState::Ready)
        });
        let mut names: Vec<String> = wanted.map(|(name, _)| name.clone()).collect();
        if names.is_empty() || !self.is_identified {
            return None;
        }
        let interval = self.options.metadata_interval_ms;
        let version = version_of(&DESCRIBE_CONFIGS, versions, i16::MAX);
        if is_due {
            self.configs_due = now.saturating_add(interval);
        }
        let Some(version) = version else {
            // Before Kafka 1.1 nobody says which settings are the topic's own.
            for name in names {
                if let Some(topic) = self.topics.get_mut(&name)
                    && topic.state == TopicState::Settings
                {
                    topic.state = TopicState::Making;
                    topic.config = Some(Vec::new());
                    self.unasked.push(Work::Topic {
                        id: topic.id,
                        partitions: topic.partitions,
                        config: None,
                        name,
                    });
                }
            }
            return None;
        };
        // Of many topics the new ones come first, the others in turns.
        names.sort_by_key(|name| {
            let is_new = self
                .topics
                .get(name)
                .is_some_and(|topic| topic.state == TopicState::Settings);
            !is_new
        });
        let turn = self.nodes.entry(Node::Any).or_default();
        if is_due && names.len() > CONFIGS_AT_ONCE {
            turn.turn = turn.turn.wrapping_add(CONFIGS_AT_ONCE) % names.len();
            names.rotate_left(turn.turn);
        }
        names.truncate(CONFIGS_AT_ONCE);
        let resources: Vec<Struct<'static>> = names
            .iter()
            .map(|name| {
                Struct::new()
                    .with("resourceType", TOPIC)
                    .with("resourceName", name.clone())
                    .with("configurationKeys", Value::Null)
            })
            .collect();
        for name in &names {
            if let Some(topic) = self.topics.get_mut(name)
                && topic.state == TopicState::Settings
            {
                topic.state = TopicState::Making;
            }
        }
        Some(Request {
            api: &DESCRIBE_CONFIGS,
            version,
            body: Struct::new().with("resources", resources),
            asked: Asked::Configs(names),
        })
    }

    pub(super) fn take_metadata(
        &mut self,
        look: u64,
        names: Option<&[String]>,
        answer: &Struct<'_>,
        now: i64,
        works: &mut Vec<Work>,
    ) {
        let error = int(answer, "errorCode");
        if error != 0 {
            let name = error_name(error);
            self.failed(Node::Any, None, &format!("metadata: {name}"), now);
            return;
        }
        self.take_brokers(answer);
        let cluster_id = text(answer, "clusterId").filter(|id| !id.is_empty());
        if self.cluster_id.as_ref() != Some(&cluster_id) {
            // The first answer, or one of another cluster behind the same address: the directory says which is right.
            self.is_identified = false;
            self.cluster_id = Some(cluster_id.clone());
            works.push(Work::Identify(cluster_id));
        }
        let is_partial = names.is_some();
        let mut seen = BTreeSet::new();
        for topic in structs(answer, "topics") {
            let Some(name) = text(topic, "name").filter(|name| !name.is_empty()) else {
                continue;
            };
            let is_internal = topic
                .get("isInternal")
                .and_then(Value::as_bool)
                .unwrap_or(false);
            if !self.options.takes(&name, is_internal) {
                continue;
            }
            match int(topic, "errorCode") {
                0 | 5 => {
                    seen.insert(name.clone());
                    self.unknown.remove(&name);
                    self.take_topic(&name, topic, now, works);
                }
                3 => {
                    seen.insert(name.clone());
                    self.take_missing(&name, now, works);
                }
                error => {
                    seen.insert(name.clone());
                    let reason = format!("the source answers {}", error_name(error));
                    self.refuse_topic(&name, &reason);
                }
            }
        }
        self.has_metadata = true;
        if !is_partial {
            let missed = self.topics.iter().filter(|(name, topic)| {
                !seen.contains(*name) && !matches!(topic.state, TopicState::Gone)
            });
            self.missing = missed.map(|(name, _)| name.clone()).collect();
            for name in self.options.topics.clone() {
                if !seen.contains(&name) && !self.topics.contains_key(&name) {
                    self.missing.push(name);
                }
            }
            self.missing.sort();
            self.missing.dedup();
            if !self.missing.is_empty() {
                self.metadata_due = self.metadata_due.min(now);
            }
        }
        self.confirm(look, works);
    }

    fn take_brokers(&mut self, answer: &Struct<'_>) {
        let brokers: BTreeMap<i32, (String, u16)> = structs(answer, "brokers")
            .filter_map(|broker| {
                let port = u16::try_from(int(broker, "port")).ok()?;
                Some((int32(broker, "nodeId"), (text(broker, "host")?, port)))
            })
            .collect();
        if brokers.is_empty() {
            return;
        }
        for id in brokers.keys() {
            self.groups.know_broker(*id);
        }
        self.groups.keep_brokers(&brokers);
        self.brokers = brokers;
    }

    /// Another answer that nothing can be done with: told once.
    fn refuse_topic(&mut self, name: &str, reason: &str) {
        let known = self.unknown.insert(name.to_owned(), reason.to_owned());
        if known.as_deref() != Some(reason) {
            let message = format!("topic {name} is not copied: {reason}");
            self.tell(MirrorEvent::topic(EventKind::Problem, name, message));
        }
    }

    fn take_missing(&mut self, name: &str, now: i64, works: &mut Vec<Work>) {
        let follows = self.options.follow_deletes;
        let Some(topic) = self.topics.get_mut(name) else {
            self.refuse_topic(name, "the source has no such topic");
            return;
        };
        topic.missed += 1;
        if topic.missed < MISSED_MAX {
            self.missing.push(name.to_owned());
            self.metadata_due = self
                .metadata_due
                .min(now.saturating_add(MISSED_INTERVAL_MS));
            return;
        }
        if topic.state == TopicState::Gone {
            return;
        }
        topic.state = TopicState::Gone;
        for (_, each) in self.of_topic(name) {
            each.restart(Need::Fetch);
            each.is_done = true;
        }
        let message = if follows {
            works.push(Work::DeleteTopic {
                name: name.to_owned(),
            });
            format!("the source deleted topic {name}; it is deleted here too")
        } else {
            format!("the source deleted topic {name}; it stays here (--follow-deletes deletes it)")
        };
        self.tell(MirrorEvent::topic(EventKind::DeletedTopic, name, message));
    }

    pub(super) fn of_topic(
        &mut self,
        name: &str,
    ) -> impl Iterator<Item = (&TopicPartition, &mut crate::mirror::partition::Partition)> {
        let at = |partition| TopicPartition {
            topic: name.to_owned(),
            partition,
        };
        self.partitions.range_mut(at(i32::MIN)..=at(i32::MAX))
    }

    fn take_topic(&mut self, name: &str, answer: &Struct<'_>, now: i64, works: &mut Vec<Work>) {
        let id = uuid(answer, "topicId");
        let mut leaders = BTreeMap::new();
        let mut count = 0;
        for partition in structs(answer, "partitions") {
            let number = int32(partition, "partitionIndex");
            if !(0..PARTITIONS_MAX).contains(&number) {
                continue;
            }
            count = count.max(number + 1);
            let leader = i32::try_from(int_or(partition, "leaderId", -1)).ok();
            let leader = leader.filter(|&leader| leader >= 0);
            leaders.insert(number, (leader, epoch(partition, "leaderEpoch")));
        }
        if count == 0 {
            // Being made.
            return;
        }
        let state = match self.topics.get_mut(name) {
            Some(known) if !known.id.is_zero() && !id.is_zero() && known.id != id => {
                let ours = known.id;
                self.take_recreated(name, ours, id, works);
                return;
            }
            Some(known) => {
                known.missed = 0;
                if known.id.is_zero() && !id.is_zero() && known.state == TopicState::Ready {
                    // A cluster that was upgraded. The directory says whether it is the topic that was copied.
                    known.state = TopicState::Making;
                    works.push(Work::Topic {
                        name: name.to_owned(),
                        id,
                        partitions: count,
                        config: None,
                    });
                }
                known.id = id;
                if known.state == TopicState::Gone {
                    known.state = TopicState::Settings;
                }
                if known.state == TopicState::Ready && count > known.partitions {
                    known.state = TopicState::Making;
                    works.push(Work::Topic {
                        name: name.to_owned(),
                        id,
                        partitions: count,
                        config: None,
                    });
                }
                known.partitions = known.partitions.max(count);
                known.leaders = leaders;
                known.state
            }
            None => {
                let topic = Topic {
                    id,
                    partitions: count,
                    state: TopicState::Settings,
                    config: None,
                    missed: 0,
                    leaders,
                };
                self.topics.insert(name.to_owned(), topic);
                TopicState::Settings
            }
        };
        if state == TopicState::Ready {
            self.lead(name, now);
        }
    }

    /// Gives the partitions of a topic their leaders.
    pub(super) fn lead(&mut self, name: &str, now: i64) {
        let Some(topic) = self.topics.get(name) else {
            return;
        };
        let leaders = topic.leaders.clone();
        let mut news = Vec::new();
        for (at, each) in self.of_topic(name) {
            let Some(&(leader, epoch)) = leaders.get(&at.partition) else {
                continue;
            };
            if let (Some(new), Some(known)) = (epoch, each.leader_epoch)
                && new < known
            {
                // An older state of a broker that lags behind.
                continue;
            }
            if let (Some(new), Some(own)) = (epoch, each.epoch.max(each.position_epoch))
                && new < own
            {
                // Its leader cannot be older than what it led.
                each.leader = None;
                each.unexplained += 1;
                if each.unexplained > MISSED_MAX {
                    let message = format!(
                        "the source's leader epoch is {new}, and the copy has batches of epoch {own}: this is not the history that was \
                         copied. Move the copy away to begin anew"
                    );
                    news.push((at.clone(), message));
                }
                continue;
            }
            if (each.leader, each.leader_epoch) != (leader, epoch) {
                each.leader = leader;
                each.leader_epoch = epoch;
                each.retry_at = each.retry_at.min(now);
                match each.need {
                    // Requests to the leader before are void.
                    Need::Store => {}
                    _ if each.is_asked => each.restart(Need::Fetch),
                    Need::Confirm { .. } => each.restart(Need::Fetch),
                    _ => {}
                }
            }
        }
        for (at, message) in news {
            self.trouble(&at, -1, message);
        }
    }

    fn take_recreated(&mut self, name: &str, ours: Uuid, theirs: Uuid, works: &mut Vec<Work>) {
        let follows = self.options.follow_deletes;
        for (_, each) in self.of_topic(name) {
            each.restart(Need::Fetch);
            each.is_done = true;
        }
        let Some(topic) = self.topics.get_mut(name) else {
            return;
        };
        if follows {
            // Deleted here, and found anew by the next look.
            if topic.state == TopicState::Gone {
                return;
            }
            topic.state = TopicState::Gone;
            works.push(Work::DeleteTopic {
                name: name.to_owned(),
            });
        } else if topic.state == TopicState::Refused {
            return;
        } else {
            topic.state = TopicState::Refused;
        }
        self.tell_recreated(name, ours, theirs);
    }

    pub(super) fn tell_recreated(&mut self, name: &str, ours: Uuid, theirs: Uuid) {
        let then = if self.options.follow_deletes {
            "the copy is deleted, and begins anew"
        } else {
            "the copy stays as it is, and the new topic is not copied: move the copy's directories away, mirror into another directory, or use \
             --follow-deletes"
        };
        let message = format!(
            "topic {name} was deleted at the source and another one made: the copy is of {ours}, the source has {theirs}; {then}"
        );
        self.tell(MirrorEvent::topic(EventKind::Recreated, name, message));
    }

    /// Divergences whose topic and leader this look confirmed.
    fn confirm(&mut self, look: u64, works: &mut Vec<Work>) {
        for (at, each) in &mut self.partitions {
            let Need::Confirm {
                leader,
                look: needed,
            } = each.need
            else {
                continue;
            };
            let is_ready = self
                .topics
                .get(&at.topic)
                .is_some_and(|topic| topic.state == TopicState::Ready);
            if look < needed || !is_ready {
                continue;
            }
            each.need = Need::Store;
            works.push(Work::Cut {
                at: at.clone(),
                generation: each.generation,
                leader,
            });
        }
    }

    pub(super) fn take_configs(
        &mut self,
        names: &[String],
        answer: &Struct<'_>,
        now: i64,
        works: &mut Vec<Work>,
    ) {
        let mut configs: BTreeMap<String, Result<Vec<(String, String)>, String>> = BTreeMap::new();
        for result in structs(answer, "results") {
            let Some(name) = text(result, "resourceName") else {
                continue;
            };
            let error = int(result, "errorCode");
            let config = if error == 0 {
                let own = structs(result, "configs")
                    .filter(|each| int(each, "configSource") == SOURCE_TOPIC);
                let pairs =
                    own.filter_map(|each| Some((text(each, "name")?, text(each, "value")?)));
                Ok(pairs.collect())
            } else {
                Err(error_name(error))
            };
            configs.insert(name, config);
        }
        for name in names {
            let config = match configs.remove(name) {
                Some(Ok(config)) => Some(config),
                other => {
                    let reason = match other {
                        Some(Err(reason)) => reason,
                        _ => "no answer about it".to_owned(),
                    };
                    self.tell_no_settings(name, &reason);
                    None
                }
            };
            let Some(topic) = self.topics.get_mut(name) else {
                continue;
            };
            match topic.state {
                TopicState::Making if topic.config.is_none() => {
                    topic.config = Some(config.clone().unwrap_or_default());
                    works.push(Work::Topic {
                        name: name.clone(),
                        id: topic.id,
                        partitions: topic.partitions,
                        config,
                    });
                }
                TopicState::Ready => {
                    if let Some(config) = config
                        && topic.config.as_ref() != Some(&config)
                    {
                        topic.config = Some(config.clone());
                        works.push(Work::Settings {
                            name: name.clone(),
                            config,
                        });
                    }
                }
                _ => {}
            }
        }
        let _ = now;
    }

    fn tell_no_settings(&mut self, name: &str, reason: &str) {
        let is_first = self
            .topics
            .get(name)
            .is_some_and(|topic| topic.config.is_none());
        if is_first {
            let message =
                format!("the settings of topic {name} are not copied: the source answers {reason}");
            self.tell(MirrorEvent::topic(EventKind::Warning, name, message));
        }
    }
}
