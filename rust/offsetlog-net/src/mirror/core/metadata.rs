//! Topics, partitions, leaders and settings of the source: which are new, moved, deleted or recreated.

use super::answers::{epoch, error_name, int, int_or, int32, structs, text, uuid};
use super::deletes::Away;
use super::group_offsets::OFFSETS_TOPIC;
use super::{
    Asked, Core, Leaders, Next, Node, Request, Settings, Topic, TopicState, Versions, version_of,
};
use crate::mirror::partition::Need;
use crate::mirror::report::{EventKind, MirrorEvent};
use crate::mirror::work::Work;
use offsetlog::TopicPartition;
use offsetlog::format::Uuid;
use offsetlog::format::message::{Struct, Value};
use offsetlog::format::protocol::apis::METADATA;
use std::collections::{BTreeMap, BTreeSet};

/// The last version that a name is enough for, and that shows what a mirror needs.
const METADATA_NEWEST: i16 = 12;
/// From this version on a request by name creates no topics.
const WITHOUT_CREATION: i16 = 4;
/// Brokers without this version (before Kafka 2.8) create `__consumer_offsets` when asked for it by name, whatever the request says.
const WITHOUT_INTERNAL_CREATION: i16 = 10;
/// Impossible leaders in a row before this is reported.
const UNEXPLAINED_MAX: u32 = 3;
/// Hurried looks in a row after which another broker is asked.
const HURRIED_MAX: u32 = 4;
/// Milliseconds without a leader before this is reported.
const LEADERLESS_MS: i64 = 10_000;
/// Milliseconds before the metadata is asked for again when a partition has no leader; later a part of the time that it has none.
const LEADERLESS_WAIT_MS: i64 = 500;
/// What part of it: a leader that is back is found this much later.
const LEADERLESS_SHARE: i64 = 4;
/// More partitions than any topic has: a claim beyond is not believed.
const PARTITIONS_MAX: i32 = 200_000;

impl Core {
    pub(super) fn next_of_any(&mut self, versions: &Versions, now: i64) -> Next {
        if now >= self.metadata_due {
            if let Some(request) = self.metadata_request(versions, now) {
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

    fn metadata_request(&mut self, versions: &Versions, now: i64) -> Option<Request> {
        let version = version_of(&METADATA, versions, METADATA_NEWEST)?;
        self.look += 1;
        self.hurried = if now
            >= self
                .look_at
                .saturating_add(self.options.metadata_interval_ms)
        {
            0
        } else {
            self.hurried.saturating_add(1)
        };
        self.look_at = now;
        for each in self.partitions.values_mut() {
            each.proving = each.position;
        }
        let takes_all = !self.options.patterns.is_empty()
            || self.options.topics.is_empty()
            || version < WITHOUT_CREATION
            || (version < WITHOUT_INTERNAL_CREATION && self.looks_for_coordinators());
        // By turns: what is missing does not hold up all others.
        let by_name = version >= WITHOUT_CREATION && !self.missing.is_empty() && !self.was_by_name;
        self.was_by_name = by_name;
        let missing = std::mem::take(&mut self.missing);
        let names = if by_name {
            Some(missing)
        } else if takes_all {
            None
        } else {
            Some(self.options.topics.clone())
        };
        let topics = match &names {
            Some(names) => {
                let also = (self.looks_for_coordinators() && !by_name).then_some(OFFSETS_TOPIC);
                let also = also.filter(|name| !names.iter().any(|each| each == name));
                let all = names.iter().map(String::as_str).chain(also);
                let topics: Vec<Struct<'static>> = all
                    .map(|name| Struct::new().with("name", name.to_owned()))
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
        if structs(answer, "brokers").next().is_none() {
            // A broker that has just started, and knows of nothing yet.
            self.failed(Node::Any, None, "the broker knows of no brokers", now);
            return;
        }
        self.take_brokers(answer, now);
        let cluster_id = text(answer, "clusterId").filter(|id| !id.is_empty());
        if self.cluster_id.as_ref() != Some(&cluster_id) {
            // The first answer, or one of another cluster behind the same address: the directory says which is right.
            self.is_identified = false;
            self.cluster_id = Some(cluster_id.clone());
            works.push(Work::Identify(cluster_id));
        }
        let is_partial = names.is_some();
        let mut seen = BTreeSet::new();
        let mut shows_coordinators = false;
        for topic in structs(answer, "topics") {
            let Some(name) = text(topic, "name").filter(|name| !name.is_empty()) else {
                continue;
            };
            let is_internal = topic
                .get("isInternal")
                .and_then(Value::as_bool)
                .unwrap_or(false);
            if name == OFFSETS_TOPIC {
                shows_coordinators = true;
                self.take_coordinators(topic, look, now);
            }
            if !self.options.takes(&name, is_internal) {
                continue;
            }
            if !self.topics.contains_key(&name) {
                self.renewed.remove(&name);
            }
            match int(topic, "errorCode") {
                0 | 5 => {
                    seen.insert(name.clone());
                    self.unknown.remove(&name);
                    self.deleted.remove(&name);
                    self.take_topic(&name, topic, look, now, works);
                }
                3 => {
                    seen.insert(name.clone());
                    self.take_missing(&name, now, works);
                }
                error => {
                    seen.insert(name.clone());
                    self.held.remove(&name);
                    self.is_there(&name);
                    let reason = format!("the source answers {}", error_name(error));
                    self.refuse_topic(&name, &reason);
                }
            }
        }
        self.has_metadata = true;
        if names.is_none_or(|names| names == self.options.topics) {
            self.note_shown(look);
            if !shows_coordinators {
                self.miss_coordinators(look);
            }
        }
        if !is_partial {
            let missed = self.topics.iter().filter(|(name, topic)| {
                !seen.contains(*name)
                    && !matches!(topic.state, TopicState::Gone | TopicState::Deleting)
            });
            self.missing = missed.map(|(name, _)| name.clone()).collect();
            for name in self.held.keys() {
                if !seen.contains(name) {
                    self.missing.push(name.clone());
                }
            }
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
        self.confirm(works);
        self.store_offsets(None, works, now);
    }

    fn take_brokers(&mut self, answer: &Struct<'_>, now: i64) {
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
        self.groups.keep_brokers(&brokers, now);
        self.brokers = brokers;
    }

    /// Another answer about a topic that is of no use: reported once.
    pub(super) fn refuse_topic(&mut self, name: &str, reason: &str) {
        let known = self.unknown.insert(name.to_owned(), reason.to_owned());
        if known.as_deref() != Some(reason) {
            let message = format!("topic {name} is not copied: {reason}");
            self.tell(MirrorEvent::topic(EventKind::Problem, name, message));
        }
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

    fn take_topic(
        &mut self,
        name: &str,
        answer: &Struct<'_>,
        look: u64,
        now: i64,
        works: &mut Vec<Work>,
    ) {
        let id = uuid(answer, "topicId");
        let (count, leaders) = leaders_of(answer);
        if count == 0 {
            // Being made.
            self.is_there(name);
            return;
        }
        self.held.remove(name);
        let (mut is_back, mut is_replaced) = (false, false);
        let state = match self.topics.get_mut(name) {
            // The disk is preparing it. Later looks decide.
            Some(known) if known.state == TopicState::Making && !id.is_zero() && known.id != id => {
                return;
            }
            // It has not been compared yet; the disk will report which topic is here.
            Some(known) if known.state != TopicState::Settings && is_another(known.id, id) => {
                let ours = known.id;
                self.take_recreated(name, ours, id, now, works);
                return;
            }
            Some(known) => {
                if known.state == TopicState::Another && id.is_zero() {
                    // It may be either.
                    return;
                }
                known.away = Away::default();
                if known.id.is_zero() && !id.is_zero() && known.state == TopicState::Ready {
                    // A cluster that was upgraded. The directory says whether it is the topic that was copied.
                    known.state = TopicState::Making;
                    known.partitions = known.partitions.max(count);
                    works.push(Work::Topic {
                        name: name.to_owned(),
                        id,
                        partitions: known.partitions,
                        config: None,
                    });
                }
                // Nothing was copied of the one before, but groups may have told offsets of it.
                is_replaced = is_another(known.id, id);
                if !id.is_zero() {
                    known.id = id;
                }
                if known.id == id {
                    known.seen = known.seen.max(look);
                }
                if matches!(
                    known.state,
                    TopicState::Gone | TopicState::Another | TopicState::Deleting
                ) {
                    is_back = true;
                    known.state = TopicState::Settings;
                    known.config = Settings::Unasked;
                }
                if known.state == TopicState::Ready && count > known.partitions {
                    known.state = TopicState::Making;
                    known.partitions = count;
                    works.push(Work::Topic {
                        name: name.to_owned(),
                        id: known.id,
                        partitions: count,
                        config: None,
                    });
                }
                if known.state == TopicState::Settings {
                    // While it is being made, partitions that are new wait for the next look.
                    known.partitions = known.partitions.max(count);
                }
                known.leaders = leaders;
                known.state
            }
            None => {
                let topic = Topic {
                    id,
                    partitions: count,
                    state: TopicState::Settings,
                    config: Settings::Unasked,
                    away: Away::default(),
                    copied_since: None,
                    seen: look,
                    shown: self.groups.first_shown(name, now),
                    leaders,
                };
                self.topics.insert(name.to_owned(), topic);
                TopicState::Settings
            }
        };
        if look == self.look && !id.is_zero() {
            for (_, each) in self.of_topic(name) {
                each.proven = each.proven.max(each.proving);
            }
        }
        if is_replaced {
            self.groups.forget(name, now);
        }
        if is_back {
            for (_, each) in self.of_topic(name) {
                each.restart(Need::Fetch);
                each.is_done = false;
                each.target = None;
            }
            let message = format!("topic {name} is at the source again");
            self.tell(MirrorEvent::topic(EventKind::New, name, message));
        }
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
        let mut leaderless = None::<i64>;
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
                if each.unexplained > UNEXPLAINED_MAX {
                    let message = format!(
                        "the source's leader epoch is {new}, and the copy has batches of epoch {own}: this is not the history that was \
                         copied. Move the copy away to begin anew"
                    );
                    news.push((at.clone(), message));
                }
                continue;
            }
            if leader.is_some() {
                each.leaderless_since = None;
            } else {
                let since = *each.leaderless_since.get_or_insert(now);
                if !each.is_done {
                    leaderless = leaderless.max(Some(since));
                }
                if now.saturating_sub(since) >= LEADERLESS_MS {
                    news.push((at.clone(), "the source has no leader for it".to_owned()));
                }
            }
            if (each.leader, each.leader_epoch) != (leader, epoch) {
                each.leader = leader;
                each.leader_epoch = epoch;
                each.retry_at = each.retry_at.min(now);
                match each.need {
                    Need::Store => {}
                    // Requests to the leader before are void. So are its batches that wait for the disk, if there is a new one: its own may
                    // come there first.
                    _ if each.is_asked || (each.pending > 0 && leader.is_some()) => {
                        each.restart(Need::Fetch);
                    }
                    Need::Confirm { .. } => each.restart(Need::Fetch),
                    _ => {}
                }
            }
        }
        if let Some(since) = leaderless {
            // Nobody else hurries: without a leader no broker is asked, and none fails.
            let wait = now.saturating_sub(since) / LEADERLESS_SHARE;
            let due = now.saturating_add(wait.max(LEADERLESS_WAIT_MS));
            self.metadata_due = self.metadata_due.min(due);
        }
        for (at, message) in news {
            self.trouble(&at, -1, message);
        }
    }

    /// Divergences whose topic and leader this look confirmed.
    fn confirm(&mut self, works: &mut Vec<Work>) {
        for (at, each) in &mut self.partitions {
            let Need::Confirm {
                leader,
                look: needed,
            } = each.need
            else {
                continue;
            };
            // A look that showed the topic, with its id and a leader.
            let is_ready = self
                .topics
                .get(&at.topic)
                .is_some_and(|topic| topic.state == TopicState::Ready && topic.seen >= needed);
            if !is_ready || each.leader.is_none() {
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

    /// Whether another broker is to be asked about topics: this one brought nothing new, or says that one is not there.
    pub(crate) fn wants_another(&self, asked: &Asked) -> bool {
        match asked {
            Asked::Metadata { names, .. } => {
                names.is_some() || self.has_away() || self.hurried % HURRIED_MAX == HURRIED_MAX - 1
            }
            _ => false,
        }
    }
}

/// How many partitions a topic has; of each its leader, and the leader's epoch.
pub(super) fn leaders_of(topic: &Struct<'_>) -> (i32, Leaders) {
    let mut leaders = BTreeMap::new();
    let mut count = 0;
    for partition in structs(topic, "partitions") {
        let number = int32(partition, "partitionIndex");
        if !(0..PARTITIONS_MAX).contains(&number) {
            continue;
        }
        count = count.max(number + 1);
        let leader = i32::try_from(int_or(partition, "leaderId", -1)).ok();
        let leader = leader.filter(|&leader| leader >= 0);
        leaders.insert(number, (leader, epoch(partition, "leaderEpoch")));
    }
    (count, leaders)
}

/// Whether two ids are of two topics.
fn is_another(known: Uuid, shown: Uuid) -> bool {
    !known.is_zero() && !shown.is_zero() && known != shown
}
