//! Requests that wait for other members, and the answers to joins and syncs.

use super::error::Code;
use offsetlog::format::message::{Struct, Value};
use std::collections::BTreeMap;

/// The first version of `JoinGroup` whose answer may have no protocol.
const NULL_PROTOCOL: i16 = 7;

/// A request that waits.
#[derive(Debug)]
struct Ticket {
    group: String,
    connection: u64,
    version: i16,
    answer: Option<Struct<'static>>,
}

/// All requests that wait.
#[derive(Debug, Default)]
pub(super) struct Tickets {
    open: BTreeMap<u64, Ticket>,
    last: u64,
    /// Number of answers so far: a waiter looks again when it has changed.
    pub(super) answered: u64,
}

impl Tickets {
    pub(super) fn open(&mut self, group: &str, connection: u64, version: i16) -> u64 {
        self.last = self.last.wrapping_add(1);
        let ticket = Ticket {
            group: group.to_owned(),
            connection,
            version,
            answer: None,
        };
        self.open.insert(self.last, ticket);
        self.last
    }

    /// The group that a request waits for.
    pub(super) fn group_of(&self, ticket: u64) -> Option<&str> {
        self.open.get(&ticket).map(|ticket| ticket.group.as_str())
    }

    /// Returns the answer, once: the ticket is then removed.
    pub(super) fn take(&mut self, ticket: u64) -> Option<Struct<'static>> {
        self.open.get(&ticket)?.answer.as_ref()?;
        self.open.remove(&ticket)?.answer
    }

    pub(super) fn forget(&mut self, ticket: u64) {
        self.open.remove(&ticket);
    }

    pub(super) fn forget_connection(&mut self, connection: u64) {
        self.open
            .retain(|_, ticket| ticket.connection != connection);
    }

    pub(super) fn waiting(&self) -> usize {
        self.open
            .values()
            .filter(|ticket| ticket.answer.is_none())
            .count()
    }

    pub(super) fn joined(&mut self, ticket: Option<u64>, answer: Joined) {
        self.answer(ticket, |version| answer.response(version));
    }

    pub(super) fn synced(&mut self, ticket: Option<u64>, answer: Synced) {
        self.answer(ticket, |_| answer.response());
    }

    /// Stores the answer of a ticket; a ticket that was dropped needs none.
    fn answer(&mut self, ticket: Option<u64>, response: impl FnOnce(i16) -> Struct<'static>) {
        let ticket = ticket.and_then(|ticket| self.open.get_mut(&ticket));
        if let Some(ticket) = ticket.filter(|ticket| ticket.answer.is_none()) {
            ticket.answer = Some(response(ticket.version));
            self.answered = self.answered.wrapping_add(1);
        }
    }
}

/// A member, as the leader's answer lists it.
#[derive(Debug, Clone)]
pub(super) struct JoinedMember {
    pub(super) member_id: String,
    pub(super) instance_id: Option<String>,
    pub(super) metadata: Vec<u8>,
}

/// The answer to a join.
#[derive(Debug, Clone)]
pub(super) struct Joined {
    pub(super) error: Code,
    pub(super) generation: i32,
    pub(super) protocol_type: Option<String>,
    pub(super) protocol: Option<String>,
    pub(super) leader: String,
    pub(super) skip_assignment: bool,
    pub(super) member_id: String,
    pub(super) members: Vec<JoinedMember>,
}

impl Joined {
    pub(super) fn failed(error: Code, member_id: &str) -> Self {
        Self {
            error,
            generation: -1,
            protocol_type: None,
            protocol: None,
            leader: String::new(),
            skip_assignment: false,
            member_id: member_id.to_owned(),
            members: Vec::new(),
        }
    }

    pub(super) fn response(self, version: i16) -> Struct<'static> {
        let members = self.members.into_iter().map(|member| {
            Struct::new()
                .with("memberId", member.member_id)
                .with("groupInstanceId", member.instance_id)
                .with("metadata", member.metadata)
        });
        let protocol = self.protocol.filter(|protocol| !protocol.is_empty());
        let protocol = match protocol {
            None if version < NULL_PROTOCOL => Value::from(""),
            protocol => Value::from(protocol),
        };
        let mut response = Struct::new()
            .with("throttleTimeMs", 0)
            .with("errorCode", self.error)
            .with("generationId", self.generation)
            .with("protocolType", self.protocol_type)
            .with("protocolName", protocol)
            .with("leader", self.leader);
        if self.skip_assignment {
            response.set("skipAssignment", true);
        }
        response
            .with("memberId", self.member_id)
            .with("members", members.collect::<Vec<_>>())
    }
}

/// The answer to a sync.
#[derive(Debug, Clone)]
pub(super) struct Synced {
    pub(super) error: Code,
    pub(super) protocol_type: Option<String>,
    pub(super) protocol: Option<String>,
    pub(super) assignment: Vec<u8>,
}

impl Synced {
    pub(super) const fn failed(error: Code) -> Self {
        Self {
            error,
            protocol_type: None,
            protocol: None,
            assignment: Vec::new(),
        }
    }

    pub(super) fn response(self) -> Struct<'static> {
        Struct::new()
            .with("throttleTimeMs", 0)
            .with("errorCode", self.error)
            .with("protocolType", self.protocol_type)
            .with("protocolName", self.protocol)
            .with("assignment", self.assignment)
    }
}
