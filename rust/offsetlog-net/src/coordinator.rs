//! The group coordinator: who is in a consumer group, what each member reads, and what the group has committed.
//!
//! It is Kafka's classic protocol (`GroupMetadataManager` and `OffsetMetadataManager` of 4.3.0) without sockets and without a clock: the
//! caller passes decoded requests and the time, and polls a request that waits for other members.
//!
//! It answers as Kafka does, on purpose with these exceptions:
//! * Groups start without members: what a dead cluster's groups, or those of an earlier run, committed is there, and the generation
//!   continues, but the members must rejoin.
//! * Committed offsets do not expire, neither after `offsets.retention.minutes` nor by a commit's own retention time.
//! * If a client repeats a join or sync on another connection, or a member leaves during its sync, the waiting request is answered; Kafka
//!   never answers it.
//! * Member ids that have not joined yet are bounded as members are, and so is the memory for groups and members: above a bound, a join
//!   returns `GROUP_MAX_SIZE_REACHED`. A member with more than 100 protocols gets `INCONSISTENT_GROUP_PROTOCOL`.
//! * A group that `DescribeGroups` names twice, or an offset that `OffsetFetch` names twice, is returned once.
//! * A group that only a refused join created is removed when other groups need the room.
//! * A commit with a leader epoch that no client was given is stored without the epoch. Java's consumers read nothing from a partition
//!   whose leader epoch is below a committed one, and the operator of a served directory cannot raise it.
//! * A commit that cannot be stored returns `COORDINATOR_NOT_AVAILABLE` if a retry may help, such as after a full disk, else
//!   `UNKNOWN_SERVER_ERROR`.
//! * A group of which the dead cluster's commits are not known gets `UNKNOWN_SERVER_ERROR` instead of them, which ends consumers; Kafka's
//!   answer, `NOT_COORDINATOR`, makes them wait for ever.
//! * An offset that waits for the end of a transaction stops to do so when a client commits or deletes it.
//! * Transactional producers get `TRANSACTIONAL_ID_AUTHORIZATION_FAILED`, which ends them at once.

mod admin;
mod changing;
pub mod committed_offsets;
mod error;
mod fields;
mod find;
mod group;
mod offsets;
mod options;
mod shared;
mod ticket;
mod timers;
mod unknown;

pub use options::{CoordinatorOptions, IsTold, Node, TopicId};
pub use unknown::{OnUnknown, UnknownOffsets};

use changing::Changing;
use committed_offsets::{Commit, CommittedOffsets};
use error::Code;
use fields::{bytes, int, int32, optional, structs, text};
use group::{Group, JoinRequest, SyncRequest};
use offsetlog::Result;
use offsetlog::format::message::Struct;
use offsetlog::format::protocol::apis;
use shared::Shared;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use ticket::{Joined, Synced};
use timers::Timers;

/// Most protocols of a member: each is compared with each of every other member. Java's consumers have two.
const PROTOCOLS_MAX: usize = 100;

/// Time until the coordinator retries to remove a group whose removal could not be stored.
const TRY_AGAIN_MS: i64 = 1000;

/// Longest name of a group: what a record's key can hold.
const GROUP_ID_BYTES: usize = i16::MAX as usize;

/// Whose request it is.
#[derive(Debug, Clone, Copy)]
pub struct Context<'c> {
    /// `client.id` of the request's header, empty if it has none.
    pub client_id: &'c str,
    /// The client's address as Kafka writes it: `/127.0.0.1`.
    pub client_host: &'c str,
    /// Its connection.
    pub connection_id: u64,
}

/// The outcome of a request.
#[derive(Debug)]
pub enum Answer {
    /// The response, for the version of the request.
    Reply(Struct<'static>),
    /// It waits for other members: [`poll`](Coordinator::poll) the ticket after the coordinator's callback, and at this time at the latest.
    Wait {
        /// The number to poll with.
        ticket: u64,
        /// Milliseconds since 1970.
        until_ms: i64,
    },
}

/// The coordinator of all groups. All methods may be called from many threads; one lock puts them in order. It is held over a commit's
/// append, and over its flush where commits are durable.
pub struct Coordinator {
    state: Mutex<State>,
    on_answer: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coordinator").finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct State {
    groups: BTreeMap<String, Group>,
    /// When each group is next due. A time may be too early, if a member was heard since, but never too late.
    timers: Timers,
    /// Groups that exist only because a join was refused. A broker keeps them too, until it looks for empty groups.
    refused: BTreeSet<String>,
    shared: Shared,
}

impl Coordinator {
    /// A coordinator of the groups in `offsets`. Calls `on_answer` when a request that waits has its answer.
    #[must_use]
    pub fn new(
        options: CoordinatorOptions,
        offsets: CommittedOffsets,
        now_ms: i64,
        on_answer: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let groups = offsets.groups().map(|id| {
            let group = offsets.metadata(id).map_or_else(
                || Group::initial(id, now_ms),
                |metadata| Group::stored(id, metadata, now_ms),
            );
            (id.to_owned(), group)
        });
        let groups: BTreeMap<_, _> = groups.collect();
        let mut timers = Timers::default();
        for (id, group) in &groups {
            timers.set(id, group.next_due(offsets.has_offsets(id)));
        }
        Self {
            state: Mutex::new(State {
                timers,
                groups,
                refused: BTreeSet::new(),
                shared: Shared::new(options, offsets),
            }),
            on_answer: Box::new(on_answer),
        }
    }

    /// The APIs that it answers.
    #[must_use]
    pub fn answers(api_key: i16) -> bool {
        let known = [
            &apis::FIND_COORDINATOR,
            &apis::JOIN_GROUP,
            &apis::SYNC_GROUP,
            &apis::HEARTBEAT,
            &apis::LEAVE_GROUP,
            &apis::OFFSET_COMMIT,
            &apis::OFFSET_FETCH,
            &apis::OFFSET_DELETE,
            &apis::DESCRIBE_GROUPS,
            &apis::LIST_GROUPS,
            &apis::DELETE_GROUPS,
        ];
        known.iter().any(|api| api.key == api_key)
    }

    /// Takes a request of one of the APIs that it [`answers`](Self::answers); any other is answered by an empty structure.
    pub fn handle(
        &self,
        api_key: i16,
        version: i16,
        request: &Struct<'_>,
        context: &Context<'_>,
        now_ms: i64,
    ) -> Answer {
        self.change(|state| {
            let ticket = match state.request(api_key, version, request, context, now_ms) {
                Outcome::Reply(response) => return Answer::Reply(response),
                Outcome::Ticket(ticket) => ticket,
            };
            state.poll(ticket, now_ms)
        })
    }

    /// Looks again for the answer to a request that waits. A ticket that is not known, or was answered, is answered by an empty
    /// structure.
    pub fn poll(&self, ticket: u64, now_ms: i64) -> Answer {
        self.change(|state| {
            if let Some(group) = state.shared.tickets.group_of(ticket).map(str::to_owned) {
                state.tick_group(&group, now_ms);
            }
            state.poll(ticket, now_ms)
        })
    }

    /// Drops a ticket that nobody waits for any more. The member stays until its session ends, as in Kafka.
    pub fn forget(&self, ticket: u64) {
        self.lock().shared.tickets.forget(ticket);
    }

    /// Drops the waiting requests of a closed connection. Its members stay until their sessions end, as in Kafka.
    pub fn disconnect(&self, connection_id: u64, now_ms: i64) {
        let _ = now_ms;
        self.lock().shared.tickets.forget_connection(connection_id);
    }

    /// Does what is due by time alone: expires sessions, and completes rebalances without the members that did not join. Returns when to
    /// call it next, in milliseconds since 1970; `i64::MAX` if nothing is due.
    pub fn tick(&self, now_ms: i64) -> i64 {
        self.change(|state| state.tick(now_ms))
    }

    /// The node that clients are sent to.
    pub fn set_node(&self, node: Node) {
        self.lock().shared.options.node = node;
    }

    /// The largest leader epoch that a group has committed for each partition. Metadata must not name a smaller one: Java's consumers
    /// would wait for ever.
    #[must_use]
    pub fn leader_epochs(&self) -> BTreeMap<(String, i32), i32> {
        let mut largest = BTreeMap::new();
        for (_, commit) in self.lock().shared.offsets.all() {
            if let Some(epoch) = commit.leader_epoch {
                let known = largest
                    .entry((commit.topic.clone(), commit.partition))
                    .or_insert(epoch);
                *known = epoch.max(*known);
            }
        }
        largest
    }

    /// Number of requests that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.lock().shared.tickets.waiting()
    }

    /// Compacts the log of commits if that is due. Requests are answered meanwhile.
    ///
    /// # Errors
    /// Those of [`committed_offsets::maintain`].
    pub fn maintain(&self) -> Result<()> {
        let log_dir = self.lock().shared.offsets.log_dir();
        log_dir.map_or(Ok(()), |log_dir| committed_offsets::maintain(&log_dir))
    }

    /// Makes all commits durable.
    ///
    /// # Errors
    /// Those of [`CommittedOffsets::flush`].
    pub fn flush(&self) -> Result<()> {
        self.lock().shared.offsets.flush()
    }

    /// Ends the coordinator and closes the log of commits.
    ///
    /// # Errors
    /// Those of [`CommittedOffsets::close`].
    pub fn close(self) -> Result<()> {
        let state = self.state.into_inner();
        let state = state.unwrap_or_else(PoisonError::into_inner);
        state.shared.offsets.close()
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut Changing::new(self.lock(), &*self.on_answer).state)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Seeds `offsets` with a dead cluster's groups: their committed offsets, and the generation of classic groups. Entries that `offsets`
/// already has win, unless `topic_id` says that they are of an earlier topic of the name.
///
/// # Errors
/// Those of [`CommittedOffsets::seed`].
pub fn seed(
    offsets: &mut CommittedOffsets,
    groups: &[offsetlog::Group],
    topic_id: &TopicId,
) -> Result<()> {
    for group in groups {
        let commits = group.offsets.iter().map(|it| Commit {
            topic: it.topic.clone(),
            partition: it.partition,
            offset: it.offset,
            leader_epoch: it.leader_epoch,
            metadata: it.metadata.clone(),
            commit_timestamp: it.commit_timestamp,
            topic_id: it.topic_id,
        });
        offsets.seed(&group.group_id, commits, topic_id)?;
        if group.kind == "classic" {
            let protocol_type = group.protocol_type.as_deref().unwrap_or_default();
            offsets.seed_group(&group.group_id, protocol_type, group.epoch.unwrap_or(0));
        }
    }
    Ok(())
}

enum Outcome {
    Reply(Struct<'static>),
    Ticket(u64),
}

impl State {
    fn request(
        &mut self,
        api_key: i16,
        version: i16,
        request: &Struct<'_>,
        context: &Context<'_>,
        now: i64,
    ) -> Outcome {
        let response = match api_key {
            key if key == apis::JOIN_GROUP.key => return self.join(version, request, context, now),
            key if key == apis::SYNC_GROUP.key => return self.sync(version, request, context, now),
            key if key == apis::FIND_COORDINATOR.key => {
                find::find(version, request, &self.shared.options.node)
            }
            key if key == apis::HEARTBEAT.key => self.heartbeat(request, now),
            key if key == apis::LEAVE_GROUP.key => self.leave(version, request, now),
            key if key == apis::OFFSET_COMMIT.key => self.commit(version, request, now),
            key if key == apis::OFFSET_FETCH.key => self.fetch(version, request),
            key if key == apis::OFFSET_DELETE.key => self.delete_offsets(request, now),
            key if key == apis::DESCRIBE_GROUPS.key => self.describe(version, request, now),
            key if key == apis::LIST_GROUPS.key => self.list(request, now),
            key if key == apis::DELETE_GROUPS.key => self.delete_groups(request, now),
            _ => Struct::new(),
        };
        Outcome::Reply(response)
    }

    fn poll(&mut self, ticket: u64, now: i64) -> Answer {
        let Some(group) = self.shared.tickets.group_of(ticket) else {
            return Answer::Reply(Struct::new());
        };
        let group = self.groups.get(group);
        let due = group.and_then(|group| group.next_due(true));
        match self.shared.tickets.take(ticket) {
            Some(response) => Answer::Reply(response),
            None => Answer::Wait {
                ticket,
                until_ms: due.unwrap_or_else(|| now.saturating_add(1000)),
            },
        }
    }

    fn tick(&mut self, now: i64) -> i64 {
        for id in self.timers.due(now) {
            self.tick_group(&id, now);
            // If a group's removal cannot be stored, it is retried, but not at once.
            if self.due(&id).is_some_and(|due| due <= now) {
                let later = now.saturating_add(TRY_AGAIN_MS);
                self.timers.set(&id, Some(later));
            }
        }
        self.timers.next().unwrap_or(i64::MAX)
    }

    fn due(&self, id: &str) -> Option<i64> {
        let group = self.groups.get(id)?;
        group.next_due(self.shared.offsets.has_offsets(id))
    }

    /// Does what is due in a group. Removes a group that has long had neither members nor offsets.
    fn tick_group(&mut self, id: &str, now: i64) {
        if let Some(group) = self.groups.get_mut(id) {
            group.tick(now, &mut self.shared);
            let has_offsets = self.shared.offsets.has_offsets(id);
            // If its removal cannot be stored, the group stays.
            if group.is_forgotten(has_offsets, now) && self.shared.offsets.remove_group(id).is_ok()
            {
                self.forget_group(id);
            }
        }
        self.settle(id);
    }

    /// Whether a group may take this many bytes more, or exist at all. Removes groups that only a refused join created.
    fn make_room(&mut self, id: &str, bytes: u64) -> bool {
        let is_known = self.groups.contains_key(id);
        let bytes = bytes.saturating_add(if is_known { 0 } else { Group::bytes(id) });
        loop {
            let has_place = is_known || self.groups.len() < self.shared.options.max_groups;
            if has_place && self.shared.has_room(bytes) {
                return true;
            }
            let Some(refused) = self.refused.pop_first() else {
                return false;
            };
            let group = self.groups.get(&refused);
            let is_blank = group.is_some_and(Group::is_blank);
            if refused != id && is_blank && !self.shared.offsets.has_offsets(&refused) {
                self.forget_group(&refused);
                self.settle(&refused);
            }
        }
    }

    fn forget_group(&mut self, id: &str) {
        self.refused.remove(id);
        if let Some(mut group) = self.groups.remove(id) {
            group.uncount(&mut self.shared);
        }
    }

    /// Records when the group is next due.
    fn settle(&mut self, id: &str) {
        let due = self.due(id);
        self.timers.set(id, due);
    }

    fn join(
        &mut self,
        version: i16,
        request: &Struct<'_>,
        context: &Context<'_>,
        now: i64,
    ) -> Outcome {
        let id = text(request, "groupId");
        let session_timeout_ms = int32(request, "sessionTimeoutMs");
        let join = JoinRequest {
            version,
            context,
            member_id: text(request, "memberId"),
            instance_id: optional(request, "groupInstanceId"),
            session_timeout_ms,
            rebalance_timeout_ms: match int(request, "rebalanceTimeoutMs") {
                Some(timeout) if version > 0 => timeout as i32,
                _ => session_timeout_ms,
            },
            protocol_type: text(request, "protocolType"),
            protocols: structs(request, "protocols")
                .take(PROTOCOLS_MAX)
                .map(|protocol| (text(protocol, "name"), bytes(protocol, "metadata")))
                .collect(),
        };
        let failed =
            |code, member: &str| Outcome::Reply(Joined::failed(code, member).response(version));
        let options = &self.shared.options;
        if id.is_empty() || id.len() > GROUP_ID_BYTES {
            return failed(Code::InvalidGroupId, &join.member_id);
        }
        let bounds = options.min_session_timeout_ms..=options.max_session_timeout_ms;
        if !bounds.contains(&session_timeout_ms) {
            return failed(Code::InvalidSessionTimeout, &join.member_id);
        }
        if structs(request, "protocols").nth(PROTOCOLS_MAX).is_some() {
            return failed(Code::InconsistentGroupProtocol, &join.member_id);
        }
        self.tick_group(&id, now);
        let is_known = self.groups.contains_key(&id);
        if !is_known && !join.member_id.is_empty() {
            return failed(Code::UnknownMemberId, &join.member_id);
        }
        if !self.make_room(&id, join.bytes()) {
            return failed(Code::GroupMaxSizeReached, "");
        }
        let shared = &mut self.shared;
        let ticket = shared.tickets.open(&id, context.connection_id, version);
        let group = self.groups.entry(id.clone());
        let group = group.or_insert_with(|| Group::new(&id, now));
        group.join(&join, ticket, now, shared);
        if !group.is_blank() {
            self.refused.remove(&id);
        } else if !is_known {
            self.refused.insert(id.clone());
        }
        // What has no delay is due at once.
        self.tick_group(&id, now);
        Outcome::Ticket(ticket)
    }

    fn sync(
        &mut self,
        version: i16,
        request: &Struct<'_>,
        context: &Context<'_>,
        now: i64,
    ) -> Outcome {
        const NAMES_PROTOCOL: i16 = 5;
        let id = text(request, "groupId");
        let sync = SyncRequest {
            member_id: text(request, "memberId"),
            instance_id: optional(request, "groupInstanceId"),
            generation: int32(request, "generationId"),
            protocol_type: optional(request, "protocolType"),
            protocol: optional(request, "protocolName"),
            assignments: structs(request, "assignments")
                .map(|given| (text(given, "memberId"), bytes(given, "assignment")))
                .collect(),
        };
        let failed = |code| Outcome::Reply(Synced::failed(code).response());
        let names_protocol = sync.protocol_type.is_some() && sync.protocol.is_some();
        if version >= NAMES_PROTOCOL && !names_protocol {
            return failed(Code::InconsistentGroupProtocol);
        }
        if id.is_empty() {
            return failed(Code::InvalidGroupId);
        }
        self.tick_group(&id, now);
        let Some(group) = self.groups.get_mut(&id) else {
            return failed(Code::UnknownMemberId);
        };
        let shared = &mut self.shared;
        let ticket = shared.tickets.open(&id, context.connection_id, version);
        group.sync(&sync, ticket, now, shared);
        self.tick_group(&id, now);
        Outcome::Ticket(ticket)
    }

    fn heartbeat(&mut self, request: &Struct<'_>, now: i64) -> Struct<'static> {
        let id = text(request, "groupId");
        self.tick_group(&id, now);
        let code = match self.groups.get_mut(&id) {
            _ if id.is_empty() => Code::InvalidGroupId,
            None => Code::UnknownMemberId,
            Some(group) => group.heartbeat(
                &text(request, "memberId"),
                optional(request, "groupInstanceId").as_deref(),
                int32(request, "generationId"),
                now,
            ),
        };
        self.settle(&id);
        Struct::new()
            .with("throttleTimeMs", 0)
            .with("errorCode", code)
    }

    fn leave(&mut self, version: i16, request: &Struct<'_>, now: i64) -> Struct<'static> {
        /// The first version in which several members leave.
        const SEVERAL: i16 = 3;
        let response = |code: Code| {
            Struct::new()
                .with("throttleTimeMs", 0)
                .with("errorCode", code)
        };
        let id = text(request, "groupId");
        if id.is_empty() {
            return response(Code::InvalidGroupId);
        }
        let leaving: Vec<(String, Option<String>)> = if version < SEVERAL {
            vec![(text(request, "memberId"), None)]
        } else {
            let members = structs(request, "members");
            members
                .map(|it| (text(it, "memberId"), optional(it, "groupInstanceId")))
                .collect()
        };
        self.tick_group(&id, now);
        let mut codes = vec![Code::UnknownMemberId; leaving.len()];
        if let Some(group) = self.groups.get_mut(&id) {
            for ((member, instance), code) in leaving.iter().zip(&mut codes) {
                *code = group.leave(member, instance.as_deref(), &mut self.shared);
            }
            if codes.contains(&Code::None) {
                group.left(now, &mut self.shared);
            }
        }
        self.tick_group(&id, now);
        if version < SEVERAL {
            return response(codes.first().copied().unwrap_or(Code::None));
        }
        let members = leaving
            .into_iter()
            .zip(codes)
            .map(|((member, instance), code)| {
                Struct::new()
                    .with("memberId", member)
                    .with("groupInstanceId", instance)
                    .with("errorCode", code)
            });
        response(Code::None).with("members", members.collect::<Vec<_>>())
    }
}

#[cfg(test)]
#[path = "coordinator/tests.rs"]
mod tests;
