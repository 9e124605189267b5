//! The mirror's logic without sockets and disk: what to request next, what a response means, and what to do on the disk.
//!
//! Each node has one request under way at a time: [`Core::next`] returns it, [`Core::answered`] takes the response and returns the work for
//! the disk, [`Core::failed`] takes the news that no response will come. The owner of the disk does the work in order and reports the
//! results ([`Core::appended`] and its sisters). A fetch is sent as soon as the one before has arrived, before its batches are on the disk;
//! a failure there begins a new generation of the partition, and work of an older one is skipped.

mod answers;
mod deletes;
mod ending;
mod epochs;
mod events;
mod fetching;
mod group_offsets;
mod metadata;
mod outcomes;
mod settings;
mod source_starts;

use super::options::MirrorOptions;
use super::partition::{Need, Partition};
use super::report::{EventKind, MirrorEvent, MirrorProgress, MirrorReport, MirroredPartition};
use super::work::Work;
use deletes::Away;
use events::Events;
use group_offsets::GroupOffsets;
use offsetlog::format::Uuid;
use offsetlog::format::message::Struct;
use offsetlog::format::protocol::Api;
use offsetlog::{LogConfig, TopicPartition};
use std::collections::{BTreeMap, BTreeSet};

/// Milliseconds before groups are asked for again.
const GROUPS_AGAIN_MS: i64 = 2000;

/// The node to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Node {
    /// Anyone: about topics and settings.
    Any,
    /// The broker with this node id.
    Broker(i32),
}

/// The versions that a broker supports, by API key.
pub(crate) type Versions = BTreeMap<i16, (i16, i16)>;

/// A request.
#[derive(Debug)]
pub(crate) struct Request {
    /// What.
    pub(crate) api: &'static Api,
    /// In which version.
    pub(crate) version: i16,
    /// Its body.
    pub(crate) body: Struct<'static>,
    /// What was asked, for the answer.
    pub(crate) asked: Asked,
}

/// What was asked.
#[derive(Debug)]
pub(crate) enum Asked {
    /// The topics: all, or by name.
    Metadata {
        /// The number of the look.
        look: u64,
        /// Topics that a look at all did not show.
        names: Option<Vec<String>>,
    },
    /// The settings of topics.
    Configs(Vec<String>),
    /// Records.
    Fetch(Vec<FetchedPartition>),
    /// Log start offsets.
    Earliest(Vec<(TopicPartition, u64)>),
    /// Ends.
    Latest(Vec<(TopicPartition, u64)>),
    /// Where a leader epoch ends, with the epoch.
    Epochs(Vec<(TopicPartition, u64, i32)>),
    /// Whether a broker coordinates what it leads.
    Coordinators,
    /// The groups that a broker coordinates.
    Groups,
    /// The committed offsets of groups.
    Offsets(Vec<String>),
}

/// A partition of a fetch.
#[derive(Debug, Clone)]
pub(crate) struct FetchedPartition {
    /// Which.
    pub(crate) at: TopicPartition,
    /// The topic's id; zero for none.
    pub(crate) topic_id: Uuid,
    /// Whether the id is what was asked for, and not the name.
    pub(crate) is_by_id: bool,
    pub(crate) generation: u64,
    /// From where on.
    pub(crate) position: i64,
}

/// What a node is to do.
#[derive(Debug)]
pub(crate) enum Next {
    /// Send this.
    Request(Box<Request>),
    /// Nothing before this time, unless something changes.
    Wait(i64),
    /// Nothing more at all.
    End,
}

/// By partition: its leader, and the leader's epoch.
type Leaders = BTreeMap<i32, (Option<i32>, Option<i32>)>;

/// A topic of the source.
#[derive(Debug)]
pub(super) struct Topic {
    /// Zero if the source has no ids.
    pub(super) id: Uuid,
    pub(super) partitions: i32,
    pub(super) state: TopicState,
    pub(super) config: Settings,
    /// Looks in a row that did not show the topic that is copied.
    pub(super) away: Away,
    /// Since when it is copied: from the beginning, if the directory had it.
    pub(super) copied_since: Option<i64>,
    /// The newest look that showed it, with its id.
    pub(super) seen: u64,
    /// How many topics had been shown when the first look showed it, itself included.
    pub(super) shown: u64,
    pub(super) leaders: Leaders,
}

impl Topic {
    /// Whether the disk is preparing the topic with this id: its result for another topic of the name is outdated.
    pub(super) fn awaits(&self, id: Uuid) -> bool {
        self.state == TopicState::Making && self.id == id
    }

    /// Whether it has remote storage, as far as the source told.
    pub(super) fn has_remote_storage(&self) -> bool {
        let Settings::Stored(config) = &self.config else {
            return false;
        };
        let own = config
            .iter()
            .filter(|(name, _)| name == "remote.storage.enable");
        LogConfig::parse(own.map(|(name, value)| (name.as_str(), value.as_str())))
            .is_ok_and(|own| own.remote_storage_enable())
    }
}

/// What is known of a topic's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Settings {
    /// The source was not asked yet.
    Unasked,
    /// The source did not tell them. The directory may have some of an earlier run, which may be outdated.
    Untold,
    /// Those that were last stored.
    Stored(Vec<(String, String)>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TopicState {
    /// Its settings are to be asked first.
    Settings,
    /// The disk prepares it.
    Making,
    Ready,
    /// It cannot be made, or opened.
    Refused,
    /// It is not copied: another topic of its name was.
    Another,
    /// The source deleted it.
    Gone,
    /// It is being deleted here, too.
    Deleting,
}

/// A node: when it may be asked again.
#[derive(Debug, Default)]
pub(super) struct NodeState {
    pub(super) not_before: i64,
    pub(super) failures: u32,
    /// Whether an event reported that it does not answer.
    pub(super) is_told: bool,
    /// Whether an event reported that it has no fetch of ours.
    pub(super) is_too_old: bool,
    /// Where the next fetch begins among the partitions, so that each comes first at times.
    pub(super) turn: usize,
}

/// The mirror's logic.
#[derive(Debug)]
pub(crate) struct Core {
    pub(super) options: MirrorOptions,
    /// The source's cluster id, once it was asked; a source may have no id.
    #[allow(clippy::option_option)]
    pub(super) cluster_id: Option<Option<String>>,
    pub(super) is_identified: bool,
    pub(super) brokers: BTreeMap<i32, (String, u16)>,
    pub(super) nodes: BTreeMap<Node, NodeState>,
    pub(super) topics: BTreeMap<String, Topic>,
    pub(super) partitions: BTreeMap<TopicPartition, Partition>,
    pub(super) look: u64,
    pub(super) look_at: i64,
    pub(super) metadata_due: i64,
    pub(super) has_metadata: bool,
    pub(super) configs_due: i64,
    pub(super) missing: Vec<String>,
    pub(super) unknown: BTreeMap<String, String>,
    /// Topics of the directory that the source has not shown yet.
    pub(super) held: BTreeMap<String, Away>,
    /// Topics that were reported as deleted at the source.
    pub(super) deleted: BTreeSet<String>,
    /// Topics that were deleted here because the source recreated them: the new ones are still to be found.
    pub(super) renewed: BTreeSet<String>,
    /// Since when the topics that the last look at all topics showed are copied: the time of the oldest copy.
    pub(super) shown_since: Option<i64>,
    /// Whether the last look was for what is missing.
    pub(super) was_by_name: bool,
    /// The generation of partitions that are made from now on: above those of deleted ones, whose answers may still come.
    pub(super) first_generation: u64,
    /// Looks in a row that came before their time.
    pub(super) hurried: u32,
    /// Whether something besides partitions, such as a group, was not copied.
    pub(super) is_partial: bool,
    pub(super) is_ended: bool,
    pub(super) groups: GroupOffsets,
    events: Events,
    is_stopped: bool,
    pub(super) unasked: Vec<Work>,
    /// When a copy last grew, was truncated or restarted.
    pub(super) progressed_at: i64,
}

impl Core {
    /// A mirror that knows nothing yet.
    pub(crate) fn new(options: MirrorOptions, now: i64) -> Self {
        Self {
            groups: GroupOffsets::new(options.groups, now),
            options,
            cluster_id: None,
            is_identified: false,
            brokers: BTreeMap::new(),
            nodes: BTreeMap::new(),
            topics: BTreeMap::new(),
            partitions: BTreeMap::new(),
            look: 0,
            look_at: i64::MIN,
            metadata_due: now,
            has_metadata: false,
            configs_due: now,
            missing: Vec::new(),
            unknown: BTreeMap::new(),
            held: BTreeMap::new(),
            deleted: BTreeSet::new(),
            renewed: BTreeSet::new(),
            shown_since: None,
            was_by_name: false,
            first_generation: 0,
            hurried: 0,
            is_partial: false,
            is_ended: false,
            events: Events::default(),
            is_stopped: false,
            unasked: Vec::new(),
            progressed_at: now,
        }
    }

    /// The brokers that the source named, with their addresses.
    pub(crate) const fn brokers(&self) -> &BTreeMap<i32, (String, u16)> {
        &self.brokers
    }

    /// Whether no more requests are to be sent.
    pub(crate) const fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// No more requests.
    pub(crate) fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// Work that did not come from a response.
    pub(crate) fn take_works(&mut self, now: i64) -> Vec<Work> {
        let mut works = std::mem::take(&mut self.unasked);
        // Offsets may have been asked for before the partitions were known.
        self.walk_offsets(&mut works, now);
        works
    }

    /// The time before which a node must not be connected; `None` if it must not be connected at all.
    pub(crate) fn not_before(&self, node: Node) -> Option<i64> {
        let is_known = match node {
            Node::Any => true,
            Node::Broker(id) => self.brokers.contains_key(&id),
        };
        let state = self.nodes.get(&node);
        (is_known && !self.is_stopped).then(|| state.map_or(i64::MIN, |state| state.not_before))
    }

    /// What a node is to do, given the versions that it has.
    pub(crate) fn next(&mut self, node: Node, versions: &Versions, now: i64) -> Next {
        if self.is_stopped {
            return Next::End;
        }
        let not_before = self.nodes.entry(node).or_default().not_before;
        if not_before > now {
            return Next::Wait(not_before);
        }
        match node {
            Node::Any => self.next_of_any(versions, now),
            Node::Broker(id) if !self.brokers.contains_key(&id) => Next::End,
            Node::Broker(id) => self.next_of_broker(id, versions, now),
        }
    }

    fn next_of_broker(&mut self, id: i32, versions: &Versions, now: i64) -> Next {
        if !self.is_identified {
            return Next::Wait(now.saturating_add(1000));
        }
        self.tell_age(id, versions);
        // Groups may be many, and records do not wait: in turns.
        let groups_first = self.groups_come_first(id, now);
        let mut asked = if groups_first {
            self.next_of_groups(id, versions, now)
        } else {
            None
        };
        asked = asked
            .or_else(|| self.next_of_offsets(id, versions, now))
            .or_else(|| self.next_of_epochs(id, versions, now))
            .or_else(|| self.next_fetch(id, versions, now));
        if let Some(request) = &asked
            && !matches!(
                request.asked,
                Asked::Coordinators | Asked::Groups | Asked::Offsets(_)
            )
        {
            self.groups.end_turn(id);
        }
        if asked.is_none() && !groups_first {
            asked = self.next_of_groups(id, versions, now);
        }
        match asked {
            Some(request) => Next::Request(Box::new(request)),
            None => Next::Wait(self.wake_of(id, now)),
        }
    }

    /// When a broker is to be asked next if nothing changes.
    fn wake_of(&self, id: i32, now: i64) -> i64 {
        let latest = now.saturating_add(1000);
        let waiting = self.partitions.values().filter(|each| {
            each.leader == Some(id) && !each.is_asked && !each.is_done && each.retry_at > now
        });
        let wake = waiting.map(|each| each.retry_at).min();
        wake.unwrap_or(latest).min(latest)
    }

    /// No response to a request will come. `asked` is `None` if the request was not sent.
    pub(crate) fn failed(&mut self, node: Node, asked: Option<&Asked>, reason: &str, now: i64) {
        let state = self.nodes.entry(node).or_default();
        state.failures = state.failures.saturating_add(1);
        let failures = state.failures;
        state.not_before = now.saturating_add(self.options.backoff(failures));
        self.tell_silence(node, failures, reason);
        // A broker that does not answer may no longer be the leader.
        self.hurry_metadata(now);
        if let Node::Broker(id) = node {
            if let Some(Asked::Coordinators | Asked::Groups | Asked::Offsets(_)) = asked {
                // A broker that ends the connection at this request can still be asked for records.
                self.groups.failed(id, now.saturating_add(GROUPS_AGAIN_MS));
            }
            for each in self.partitions.values_mut() {
                if each.leader == Some(id) && !each.is_done {
                    each.is_asked = false;
                    // A broker that was restarted may have another log.
                    each.compared = None;
                    if failures >= 3 {
                        each.problem = Some(format!("broker {id}: {reason}"));
                    }
                }
            }
        }
        if let Some(Asked::Configs(names)) = asked {
            self.configs_due = now;
            for name in names {
                if let Some(topic) = self.topics.get_mut(name)
                    && topic.state == TopicState::Making
                    && topic.config == Settings::Unasked
                {
                    topic.state = TopicState::Settings;
                }
            }
        }
    }

    /// Whether the metadata is to be asked for by now.
    pub(crate) const fn wants_look(&self, now: i64) -> bool {
        self.metadata_due <= now
    }

    /// Asks for the metadata soon.
    pub(super) fn hurry_metadata(&mut self, now: i64) {
        let soon = now.saturating_add(self.options.backoff_ms);
        self.metadata_due = self.metadata_due.min(soon);
    }

    /// Records an event.
    pub(super) fn tell(&mut self, event: MirrorEvent) {
        self.events.tell(event);
    }

    /// Records an event that is a loss, unless the user asked to follow deletes.
    pub(super) fn tell_deleted(&mut self, event: MirrorEvent, is_followed: bool) {
        if is_followed {
            self.events.tell_wanted(event);
        } else {
            self.events.tell(event);
        }
    }

    /// Reports a problem of a partition, once until it is over.
    pub(super) fn trouble(&mut self, at: &TopicPartition, broker: i32, message: String) {
        if let Some(partition) = self.partitions.get_mut(at)
            && partition.problem.as_ref() != Some(&message)
        {
            partition.problem = Some(message.clone());
            self.tell(MirrorEvent::of(EventKind::Problem, at, message).by(broker));
        }
    }

    /// The events since the last call.
    pub(crate) fn news(&mut self) -> Vec<MirrorEvent> {
        self.events.news()
    }

    /// How far it is. The rate is left at 0.
    pub(crate) fn progress(&self) -> MirrorProgress {
        let mut progress = MirrorProgress {
            partitions: self.partitions.len(),
            ..MirrorProgress::default()
        };
        for each in self.partitions.values() {
            progress.bytes = progress.bytes.saturating_add(each.bytes);
            progress.batches = progress.batches.saturating_add(each.batches);
            let lag = if self.options.once {
                let target = each.target.unwrap_or(each.end);
                if each.is_done {
                    0
                } else {
                    target.saturating_sub(each.reached()).max(0)
                }
            } else {
                each.lag()
            };
            progress.lag = progress.lag.saturating_add(lag);
            let is_there = each.high_watermark.is_some() && lag == 0;
            progress.partitions_done += usize::from(if self.options.once {
                each.is_done
            } else {
                is_there
            });
            let grown = each.end.saturating_sub(each.first_end).max(0);
            progress.offsets = progress.offsets.saturating_add(grown);
        }
        progress
    }

    /// What was done so far.
    pub(crate) fn report(&self) -> MirrorReport {
        let partitions: Vec<MirroredPartition> = self
            .partitions
            .iter()
            .map(|(at, each)| MirroredPartition {
                topic: at.topic.clone(),
                partition: at.partition,
                log_start_offset: each.start,
                log_end_offset: each.end,
                high_watermark: each.high_watermark.map(|(offset, _)| offset),
                source_log_start_offset: each.source_start,
                bytes: each.bytes,
                batches: each.batches,
                problem: each.problem.clone(),
            })
            .collect();
        let has_problem = partitions.iter().any(|each| each.problem.is_some())
            || self
                .topics
                .values()
                .any(|topic| matches!(topic.state, TopicState::Refused | TopicState::Another))
            || !self.unknown.is_empty()
            || self.groups.has_missing()
            || self.is_partial;
        let is_making =
            |topic: &Topic| matches!(topic.state, TopicState::Settings | TopicState::Making);
        let has_missed = self.options.once
            && (self.partitions.values().any(|each| !each.is_done)
                || self.topics.values().any(is_making));
        MirrorReport {
            cluster_id: self.cluster_id.clone().flatten(),
            partitions,
            events: self.events.kept(),
            events_left_out: self.events.left_out(),
            groups: self.groups.group_count(),
            committed_offsets: self.groups.stored(),
            share_groups: self.groups.share_group_count(),
            progress: self.progress(),
            is_complete: self.has_metadata && !has_problem && !has_missed,
            has_losses: self.events.has_losses(),
        }
    }

    /// Whether work for a partition is still to be done.
    pub(crate) fn is_current(&self, work: &Work) -> bool {
        if let Work::DeleteTopic { name } = work {
            // The topic may be back.
            let topic = self.topics.get(name);
            return topic.is_none_or(|topic| topic.state == TopicState::Deleting);
        }
        if let Work::Topic { name, id, .. } = work {
            // The topic may have been deleted and recreated meanwhile.
            let topic = self.topics.get(name);
            return topic.is_some_and(|topic| topic.awaits(*id));
        }
        match work.generation() {
            Some((at, generation)) => self
                .partitions
                .get(at)
                .is_some_and(|each| each.generation == generation),
            None => true,
        }
    }

    /// The partitions that a broker leads, and that need this from it now.
    pub(super) fn needing(
        &self,
        id: i32,
        now: i64,
        wanted: impl Fn(&Need) -> bool,
    ) -> Vec<TopicPartition> {
        let needing = self.partitions.iter().filter(|(at, each)| {
            each.leader == Some(id)
                && !each.is_asked
                && !each.is_done
                && each.retry_at <= now
                && wanted(&each.need)
                && self
                    .topics
                    .get(&at.topic)
                    .is_some_and(|topic| topic.state == TopicState::Ready)
        });
        needing.map(|(at, _)| at.clone()).collect()
    }
}

/// The highest version that both sides have, up to `at_most`.
pub(super) fn version_of(api: &Api, versions: &Versions, at_most: i16) -> Option<i16> {
    let &(low, high) = versions.get(&api.key)?;
    let best = high.min(api.highest_version()).min(at_most);
    (best >= low.max(api.lowest_version())).then_some(best)
}
