//! Commits, fetches and deletes offsets (Kafka's `OffsetMetadataManager`).

use super::GROUP_ID_BYTES;
use super::State;
use super::committed_offsets::Commit;
use super::error::Code;
use super::fields::{int, int32, numbers, optional, structs, text};
use super::group::{Group, GroupState};
use offsetlog::format::message::{Struct, Value};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The first version of `OffsetCommit` that reports a group that does not exist.
const GROUP_NOT_FOUND: i16 = 9;
/// The first version of `OffsetFetch` that has an error for a group.
const GROUP_ERROR: i16 = 2;
/// The first version of `OffsetFetch` that asks for several groups.
const SEVERAL_GROUPS: i16 = 8;
/// The first versions that name topics by id.
const TOPIC_IDS: i16 = 10;

/// What an answer already has of a group.
#[derive(Default)]
struct Told {
    all: bool,
    /// By topic.
    partitions: HashMap<String, HashSet<i32>>,
}

/// The codes of a commit, by topic and partition in the order of the request.
type Codes = Vec<(String, Vec<(i32, Code)>)>;

impl State {
    pub(super) fn commit(
        &mut self,
        version: i16,
        request: &Struct<'_>,
        now: i64,
    ) -> Struct<'static> {
        let id = text(request, "groupId");
        let (mut codes, commits) = self.commits(version, request, now);
        let is_asked = codes.iter().flat_map(|(_, partitions)| partitions);
        if is_asked.into_iter().any(|(_, code)| can_change(*code)) {
            let stored = self
                .check_commit(&id, version, request, now)
                .and_then(|()| self.store(&id, &commits, now));
            if let Err(code) = stored {
                let all = codes.iter_mut().flat_map(|(_, partitions)| partitions);
                // A partition that was refused before keeps its own error.
                for (_, each) in all.filter(|(_, each)| can_change(*each)) {
                    *each = code;
                }
            }
            self.tick_group(&id, now);
        }
        let topics = codes.into_iter().map(|(topic, partitions)| {
            let partitions = partitions.into_iter().map(|(partition, code)| {
                Struct::new()
                    .with("partitionIndex", partition)
                    .with("errorCode", code)
            });
            Struct::new()
                .with("name", topic)
                .with("partitions", partitions.collect::<Vec<_>>())
        });
        Struct::new()
            .with("throttleTimeMs", 0)
            .with("topics", topics.collect::<Vec<_>>())
    }

    /// The commits of a request, and the code of each partition if storing them succeeds.
    fn commits(&self, version: i16, request: &Struct<'_>, now: i64) -> (Codes, Vec<Commit>) {
        let options = &self.shared.options;
        let mut commits = Vec::new();
        // The smallest leader epochs that no client was given: looking one up may read the disk.
        let mut untold: HashMap<(String, i32), i32> = HashMap::new();
        let topics = structs(request, "topics").map(|topic| {
            let name = text(topic, "name");
            let partitions = structs(topic, "partitions").map(|fields| {
                let partition = int32(fields, "partitionIndex");
                let metadata = text(fields, "committedMetadata");
                let code = match (options.topic_id)(&name, partition) {
                    _ if version >= TOPIC_IDS => Code::UnknownTopicId,
                    None => Code::UnknownTopicOrPartition,
                    Some(_) if metadata.encode_utf16().count() > options.max_metadata => {
                        Code::OffsetMetadataTooLarge
                    }
                    Some(topic_id) => {
                        let epoch = int32(fields, "committedLeaderEpoch");
                        let key = (name.clone(), partition);
                        let is_told = epoch >= 0
                            && untold.get(&key).is_none_or(|least| epoch < *least)
                            && (options.is_told)(&name, partition, epoch);
                        if epoch >= 0 && !is_told {
                            let least = untold.entry(key).or_insert(epoch);
                            *least = epoch.min(*least);
                        }
                        commits.push(Commit {
                            topic: name.clone(),
                            partition,
                            offset: int(fields, "committedOffset").unwrap_or(-1),
                            leader_epoch: is_told.then_some(epoch),
                            metadata,
                            commit_timestamp: now,
                            topic_id,
                        });
                        Code::None
                    }
                };
                (partition, code)
            });
            let partitions = partitions.collect();
            (name, partitions)
        });
        let codes = topics.collect();
        (codes, commits)
    }

    fn check_commit(
        &mut self,
        id: &str,
        version: i16,
        request: &Struct<'_>,
        now: i64,
    ) -> Result<(), Code> {
        self.tick_group(id, now);
        let generation = int32(request, "generationIdOrMemberEpoch");
        match self.groups.get_mut(id) {
            Some(group) => group.check_commit(
                &text(request, "memberId"),
                optional(request, "groupInstanceId").as_deref(),
                generation,
                now,
            ),
            None if generation < 0 && id.len() > GROUP_ID_BYTES => Err(Code::InvalidGroupId),
            // A consumer that is in no group.
            None if generation < 0 => Ok(()),
            None if version >= GROUP_NOT_FOUND => Err(Code::GroupIdNotFound),
            None => Err(Code::IllegalGeneration),
        }
    }

    fn store(&mut self, id: &str, commits: &[Commit], now: i64) -> Result<(), Code> {
        if commits.is_empty() {
            return Ok(());
        }
        let is_known = self.groups.contains_key(id);
        if !is_known && !self.make_room(id, 0) {
            return Err(Code::UnknownServerError);
        }
        let stored = self.shared.offsets.store(id, commits);
        stored.map_err(|error| Code::of_append(&error))?;
        for commit in commits {
            let unknown = &mut self.shared.options.unknown;
            unknown.replaced(id, &commit.topic, commit.partition);
        }
        if !is_known {
            let mut group = Group::new(id, now);
            group.count(&mut self.shared);
            self.groups.insert(id.to_owned(), group);
        }
        Ok(())
    }

    pub(super) fn fetch(&mut self, version: i16, request: &Struct<'_>) -> Struct<'static> {
        let response = Struct::new().with("throttleTimeMs", 0);
        let stable = request.get("requireStable").and_then(Value::as_bool);
        let stable = stable == Some(true);
        if version < SEVERAL_GROUPS {
            let (topics, code) = self.answer_group(version, request, stable, &mut Told::default());
            return response.with("topics", topics).with("errorCode", code);
        }
        // A partition that the request repeats is answered once.
        let mut told: HashMap<String, Told> = HashMap::new();
        let mut groups = Vec::new();
        for group in structs(request, "groups") {
            let id = text(group, "groupId");
            let is_first = !told.contains_key(&id);
            let told = told.entry(id.clone()).or_default();
            let (topics, code) = self.answer_group(version, group, stable, told);
            if is_first || !topics.is_empty() {
                groups.push(
                    Struct::new()
                        .with("groupId", id)
                        .with("topics", topics)
                        .with("errorCode", code),
                );
            }
        }
        response.with("groups", groups)
    }

    /// What a group has committed, or an error if nobody knows that.
    fn answer_group(
        &mut self,
        version: i16,
        request: &Struct<'_>,
        stable: bool,
        told: &mut Told,
    ) -> (Vec<Struct<'static>>, Code) {
        if let Some(topics) = self.fetch_group(request, stable, told) {
            return (topics, Code::None);
        }
        let code = Code::UnknownServerError;
        self.shared.options.unknown.asked(&text(request, "groupId"));
        let topics = structs(request, "topics").filter(|_| version < GROUP_ERROR);
        let topics = topics.map(|topic| {
            let partitions = numbers(topic, "partitionIndexes").into_iter();
            let partitions = partitions.map(|partition| refused(partition, code));
            Struct::new()
                .with("name", text(topic, "name"))
                .with("partitions", partitions.collect::<Vec<_>>())
        });
        (topics.collect(), code)
    }

    /// What a group has committed of the topics asked for, or of all; `None` if some of it is not known. Offsets that wait for the end of a
    /// dead cluster's transaction are unstable; transactions commit none here.
    fn fetch_group(
        &self,
        request: &Struct<'_>,
        stable: bool,
        told: &mut Told,
    ) -> Option<Vec<Struct<'static>>> {
        let id = text(request, "groupId");
        let unknown = &self.shared.options.unknown;
        let is_known = unknown.why(&id).is_none();
        let offsets = &self.shared.offsets;
        let mut topics: Vec<(String, Vec<Struct<'static>>)> = Vec::new();
        if request.get("topics").is_none_or(Value::is_null) && !told.all {
            told.all = true;
            if !is_known {
                return None;
            }
            let mut by_topic: BTreeMap<&str, Vec<Struct<'static>>> = BTreeMap::new();
            for commit in offsets.of(&id) {
                if self.is_of_other(commit) {
                    continue;
                }
                let partitions = by_topic.entry(&commit.topic).or_default();
                let number = commit.partition;
                partitions.push(
                    if stable && unknown.is_unstable(&id, &commit.topic, number) {
                        refused(number, Code::UnstableOffsetCommit)
                    } else {
                        fetched(number, Some(commit))
                    },
                );
            }
            let named = by_topic.into_iter();
            topics.extend(named.map(|(topic, found)| (topic.to_owned(), found)));
        }
        for topic in structs(request, "topics") {
            let name = text(topic, "name");
            let is_first = !told.partitions.contains_key(&name);
            let known = told.partitions.entry(name.clone()).or_default();
            let mut partitions = numbers(topic, "partitionIndexes");
            partitions.retain(|partition| known.insert(*partition));
            if partitions.is_empty() && !is_first {
                continue;
            }
            let mut found = Vec::with_capacity(partitions.len());
            for partition in partitions {
                let commit = offsets.get(&id, &name, partition);
                if !is_known && commit.is_none() && !offsets.is_deleted(&id, &name, partition) {
                    return None;
                }
                found.push(if stable && unknown.is_unstable(&id, &name, partition) {
                    refused(partition, Code::UnstableOffsetCommit)
                } else {
                    fetched(partition, commit.filter(|commit| !self.is_of_other(commit)))
                });
            }
            topics.push((name, found));
        }
        let topics = topics.into_iter().map(|(topic, partitions)| {
            Struct::new()
                .with("name", topic)
                .with("partitions", partitions)
        });
        Some(topics.collect())
    }

    /// Whether it was committed for an earlier topic of this name.
    fn is_of_other(&self, commit: &Commit) -> bool {
        commit.is_of_other(&self.shared.options.topic_id)
    }

    pub(super) fn delete_offsets(&mut self, request: &Struct<'_>, now: i64) -> Struct<'static> {
        let id = text(request, "groupId");
        self.tick_group(&id, now);
        let refused = match self.groups.get(&id) {
            _ if id.is_empty() => Some(Code::InvalidGroupId),
            None => Some(Code::GroupIdNotFound),
            Some(group) if group.state != GroupState::Empty && !group.is_consumers() => {
                Some(Code::NonEmptyGroup)
            }
            Some(_) => None,
        };
        let group = self.groups.get(&id).filter(|_| refused.is_none());
        let Some(group) = group else {
            return deleted(refused.unwrap_or(Code::GroupIdNotFound), Vec::new());
        };
        let mut deletable = Vec::new();
        let topics = structs(request, "topics").map(|topic| {
            let name = text(topic, "name");
            let partitions = structs(topic, "partitions").map(|fields| {
                let partition = int32(fields, "partitionIndex");
                let code = if (self.shared.options.topic_id)(&name, partition).is_none() {
                    Code::UnknownTopicOrPartition
                } else if group.is_subscribed(&name) {
                    Code::GroupSubscribedToTopic
                } else {
                    deletable.push((name.clone(), partition));
                    Code::None
                };
                Struct::new()
                    .with("partitionIndex", partition)
                    .with("errorCode", code)
            });
            let partitions = partitions.collect::<Vec<_>>();
            Struct::new()
                .with("name", name)
                .with("partitions", partitions)
        });
        let topics = topics.collect();
        if let Err(error) = self.shared.offsets.remove(&id, &deletable) {
            return deleted(Code::of_append(&error), Vec::new());
        }
        for (topic, partition) in &deletable {
            let unknown = &mut self.shared.options.unknown;
            unknown.replaced(&id, topic, *partition);
        }
        self.settle(&id);
        deleted(Code::None, topics)
    }
}

/// Whether the group's error replaces this code: that of a partition that would be stored or, as in Kafka, has too much metadata.
fn can_change(code: Code) -> bool {
    matches!(code, Code::None | Code::OffsetMetadataTooLarge)
}

fn fetched(partition: i32, commit: Option<&Commit>) -> Struct<'static> {
    Struct::new()
        .with("partitionIndex", partition)
        .with("committedOffset", commit.map_or(-1, |commit| commit.offset))
        .with(
            "committedLeaderEpoch",
            commit.and_then(|commit| commit.leader_epoch).unwrap_or(-1),
        )
        .with(
            "metadata",
            commit
                .map(|commit| commit.metadata.clone())
                .unwrap_or_default(),
        )
        .with("errorCode", Code::None)
}

fn refused(partition: i32, code: Code) -> Struct<'static> {
    fetched(partition, None).with("errorCode", code)
}

fn deleted(code: Code, topics: Vec<Struct<'static>>) -> Struct<'static> {
    Struct::new()
        .with("errorCode", code)
        .with("throttleTimeMs", 0)
        .with("topics", topics)
}
