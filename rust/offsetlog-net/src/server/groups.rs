//! The interface between the broker and the coordinator of consumer groups.

use super::broker::{Asked, Broker, Session, Waiting};
use super::reply::reply_in;
use super::request::elements;
use crate::error_code::ErrorCode;
use crate::step::Step;
use offsetlog::Result;
use offsetlog::format::message::{Struct, Value};
use std::collections::BTreeMap;
use std::fmt;

/// Coordinates consumer groups. Many threads may use it at once. When a request that waits has its answer, it announces that through
/// [`Broker::shared_changes`].
pub trait Groups: fmt::Debug + Send + Sync {
    /// Takes a request of a group's API, in a version that is announced.
    fn handle(
        &self,
        api_key: i16,
        version: i16,
        request: &Struct<'_>,
        caller: &Caller<'_>,
        now_ms: i64,
    ) -> GroupAnswer;

    /// Looks again whether a request that waits can be answered.
    fn poll(&self, ticket: u64, now_ms: i64) -> GroupAnswer;

    /// Drops a request whose answer nobody waits for any more.
    fn forget(&self, ticket: u64);

    /// A connection has ended.
    fn disconnect(&self, connection_id: u64, now_ms: i64);

    /// Does what is due by time alone. Returns when it is to be called next.
    fn tick(&self, now_ms: i64) -> i64;

    /// Does upkeep that may take a while, such as compacting a log of commits. Called every few minutes.
    ///
    /// # Errors
    /// Those of the log.
    fn maintain(&self) -> Result<()>;

    /// Makes all commits durable.
    ///
    /// # Errors
    /// Those of the log.
    fn flush(&self) -> Result<()>;

    /// The largest leader epoch that a group has committed for each partition: clients must not see a smaller one.
    fn leader_epochs(&self) -> BTreeMap<(String, i32), i32>;
}

/// The outcome of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum GroupAnswer {
    /// The fields of the response.
    Reply(Struct<'static>),
    /// It waits for others.
    Wait {
        /// The ticket to poll with.
        ticket: u64,
        /// It is asked for at this time at the latest, in milliseconds since 1970.
        until_ms: i64,
    },
}

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'c> {
    /// What the client calls itself; empty if it says nothing.
    pub client_id: &'c str,
    /// Its address, as Kafka writes it: `/127.0.0.1`.
    pub client_host: &'c str,
    /// Tells connections apart.
    pub connection_id: u64,
}

/// The APIs that a coordinator answers.
pub(super) const fn is_of_groups(key: i16) -> bool {
    matches!(key, 8..=16 | 42 | 47)
}

impl Broker {
    pub(super) fn ask_groups(
        session: &mut Session,
        asked: &Asked<'_>,
        request: &Struct<'_>,
        groups: &dyn Groups,
    ) -> Step {
        let client_id = asked.client_id.unwrap_or_default();
        let client_id = String::from_utf8_lossy(client_id);
        let client_host = format!("/{}", session.peer.address);
        let caller = Caller {
            client_id: &client_id,
            client_host: &client_host,
            connection_id: session.connection_id,
        };
        let answer = groups.handle(asked.api.key, asked.version, request, &caller, asked.now_ms);
        let (api, version) = (asked.api, asked.version);
        match answer {
            GroupAnswer::Reply(answer) => {
                reply_in(api, version, asked.correlation_id, &answer, Vec::new())
            }
            GroupAnswer::Wait { ticket, until_ms } => {
                session.waiting = Some(Waiting::Group {
                    api,
                    version,
                    correlation_id: asked.correlation_id,
                    ticket,
                });
                Step::Wait { until_ms }
            }
        }
    }

    /// The answer of a server without a coordinator.
    pub(super) fn find_coordinator(asked: &Asked<'_>, request: &Struct<'_>) -> Struct<'static> {
        let nobody = |answer: Struct<'static>| {
            answer
                .with("errorCode", ErrorCode::CoordinatorNotAvailable)
                .with("nodeId", -1)
                .with("port", -1)
                .with("errorMessage", Value::Null)
        };
        if asked.version < 4 {
            return nobody(Struct::new());
        }
        let coordinators: Vec<Struct<'static>> = elements(request, "coordinatorKeys")
            .iter()
            .map(|key| {
                let key = key.as_str().unwrap_or_default().to_owned();
                nobody(Struct::new().with("key", key))
            })
            .collect();
        Struct::new().with("coordinators", coordinators)
    }
}
