//! Answers the group APIs with this crate's coordinator.

use super::broker::Broker;
use super::groups::{Caller, GroupAnswer, Groups};
use crate::coordinator::committed_offsets::{CommittedOffsets, CommittedOffsetsOptions};
use crate::coordinator::{self, Answer, Context, Coordinator, CoordinatorOptions, Node};
use offsetlog::format::message::Struct;
use offsetlog::{BrokerSettings, Result};
use std::collections::BTreeMap;
use std::path::Path;

/// Most characters of what is committed with an offset, whatever the settings say: it is kept in memory.
const MAX_METADATA: usize = 1 << 20;

impl Broker {
    /// Serves consumer groups: what the log dirs' groups had committed is their starting point, and new commits stay in memory, or go to
    /// the log in `directory`.
    ///
    /// # Errors
    /// Those of [`CommittedOffsets::open`] and [`coordinator::seed`].
    pub fn with_coordinator(self, directory: Option<&Path>, now_ms: i64) -> Result<Self> {
        let how = CommittedOffsetsOptions {
            served: self.log_dir().paths().to_vec(),
            open: self.log_dir().options().clone(),
            ..CommittedOffsetsOptions::default()
        };
        let mut offsets = match directory {
            Some(directory) => CommittedOffsets::open(directory, &how)?,
            None => CommittedOffsets::in_memory(&how),
        };
        let topic_id = self.topic_ids();
        let unknown = self.unknown_offsets().without(&offsets);
        coordinator::seed(&mut offsets, self.groups(), &topic_id)?;
        let (id, host, port) = self.node();
        let options = CoordinatorOptions {
            node: Node {
                id,
                host: host.to_owned(),
                port: i32::from(port),
            },
            topic_id,
            is_told: self.told_epochs(),
            unknown,
            ..bounds_of(self.options.broker_settings.as_ref())
        };
        let changes = self.shared_changes();
        let coordinator = Coordinator::new(options, offsets, now_ms, move || changes.announce());
        Ok(self.with_groups(Box::new(coordinator)))
    }
}

/// The bounds of groups that a `server.properties` sets, else Kafka's.
fn bounds_of(settings: Option<&BrokerSettings>) -> CoordinatorOptions {
    let mut options = CoordinatorOptions::default();
    let Some(settings) = settings else {
        return options;
    };
    let given = |name: &str| {
        settings
            .given
            .get(name)
            .and_then(|text| text.trim().parse::<i32>().ok())
            .filter(|&number| number >= 0)
    };
    if let Some(delay_ms) = given("group.initial.rebalance.delay.ms") {
        options.initial_rebalance_delay_ms = i64::from(delay_ms);
    }
    if let Some(timeout_ms) = given("group.min.session.timeout.ms") {
        options.min_session_timeout_ms = timeout_ms;
    }
    if let Some(timeout_ms) = given("group.max.session.timeout.ms") {
        options.max_session_timeout_ms = timeout_ms;
    }
    if let Some(size) = given("group.max.size").and_then(|size| usize::try_from(size).ok()) {
        // Kafka's default has no bound; ours stays.
        options.max_group_size = options.max_group_size.min(size);
    }
    if let Some(size) =
        given("offset.metadata.max.bytes").and_then(|size| usize::try_from(size).ok())
    {
        options.max_metadata = size.min(MAX_METADATA);
    }
    options
}

impl Groups for Coordinator {
    fn handle(
        &self,
        api_key: i16,
        version: i16,
        request: &Struct<'_>,
        caller: &Caller<'_>,
        now_ms: i64,
    ) -> GroupAnswer {
        let context = Context {
            client_id: caller.client_id,
            client_host: caller.client_host,
            connection_id: caller.connection_id,
        };
        Self::handle(self, api_key, version, request, &context, now_ms).into()
    }

    fn poll(&self, ticket: u64, now_ms: i64) -> GroupAnswer {
        Self::poll(self, ticket, now_ms).into()
    }

    fn forget(&self, ticket: u64) {
        Self::forget(self, ticket);
    }

    fn disconnect(&self, connection_id: u64, now_ms: i64) {
        Self::disconnect(self, connection_id, now_ms);
    }

    fn tick(&self, now_ms: i64) -> i64 {
        Self::tick(self, now_ms)
    }

    fn maintain(&self) -> Result<()> {
        Self::maintain(self)
    }

    fn flush(&self) -> Result<()> {
        Self::flush(self)
    }

    fn leader_epochs(&self) -> BTreeMap<(String, i32), i32> {
        Self::leader_epochs(self)
    }
}

impl From<Answer> for GroupAnswer {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Reply(response) => Self::Reply(response),
            Answer::Wait { ticket, until_ms } => Self::Wait { ticket, until_ms },
        }
    }
}
