//! Where the APIs of consumer groups go: whoever coordinates them is given to the broker.

use super::broker::{Asked, Broker, Session, Waiting, reply_in};
use super::request::{elements, int};
use crate::error_code::ErrorCode;
use crate::step::Step;
use offsetlog::format::message::{Struct, Value};
use std::fmt;

/// Coordinates consumer groups. Many threads may use it at once.
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

    /// The connection whose request waits has ended.
    fn forget(&self, ticket: u64);

    /// Does what is due by time alone. Returns when it is to be called next, and whether requests that wait may be answered now.
    fn tick(&self, now_ms: i64) -> (i64, bool);
}

/// What comes of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum GroupAnswer {
    /// The fields of the response.
    Reply(Struct<'static>),
    /// It waits for others.
    Wait {
        /// By which it is asked for again.
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
    matches!(key, 8 | 9 | 11..=16 | 42 | 47)
}

impl Broker {
    pub(super) fn ask_groups(
        &self,
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
        let step = match answer {
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
        };
        // A join or a sync may be what others wait for.
        self.announce();
        step
    }

    /// This server coordinates all groups. Transactions too, so that their producers learn from it why they are refused.
    pub(super) fn find_coordinator(
        &self,
        asked: &Asked<'_>,
        request: &Struct<'_>,
    ) -> Struct<'static> {
        let is_known = matches!(int(request, "keyType", 0), 0 | 1) && self.groups_of().is_some();
        let with_node = |answer: Struct<'static>| {
            if is_known {
                return answer
                    .with("nodeId", self.node_id)
                    .with("host", self.options.host.clone())
                    .with("port", i32::from(self.options.port));
            }
            answer
                .with("errorCode", ErrorCode::CoordinatorNotAvailable)
                .with("nodeId", -1)
                .with("port", -1)
        };
        if asked.version < 4 {
            let answer = with_node(Struct::new());
            return if asked.version >= 1 {
                answer.with("errorMessage", Value::Null)
            } else {
                answer
            };
        }
        let coordinators: Vec<Struct<'static>> = elements(request, "coordinatorKeys")
            .iter()
            .map(|key| {
                let key = key.as_str().unwrap_or_default().to_owned();
                with_node(
                    Struct::new()
                        .with("key", key)
                        .with("errorMessage", Value::Null),
                )
            })
            .collect();
        Struct::new().with("coordinators", coordinators)
    }
}
