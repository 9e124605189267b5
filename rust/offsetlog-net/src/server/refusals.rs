//! Refuses requests that write, in ways that clients understand at once.

use super::broker::{Asked, Broker};
use super::reply::{closed, reply};
use super::request::{int, structs, text};
use crate::error_code::ErrorCode;
use crate::step::Step;
use offsetlog::format::message::{Struct, Value};
use std::sync::atomic::Ordering;

/// The error message for producers.
const WHY: &str = "this server serves a directory to read: nothing can be produced to it";

impl Broker {
    /// Refuses each partition. Produce is announced all the same: without it librdkafka never sends a fetch.
    pub(super) fn refuse_produce(asked: &Asked<'_>, request: &Struct<'_>) -> Step {
        if int(request, "acks", 1) == 0 {
            let mut topics = structs(request, "topicData");
            if topics.all(|topic| structs(topic, "partitionData").next().is_none()) {
                return Step::Silent;
            }
            // The producer reads no answer. As in Kafka, the end of the connection tells it.
            return closed(format!("a producer with acks=0 was refused: {WHY}"));
        }
        let responses: Vec<Struct<'_>> = structs(request, "topicData")
            .map(|topic| {
                let partitions: Vec<Struct<'_>> = structs(topic, "partitionData")
                    .map(|each| {
                        let answer = Struct::new()
                            .with("index", int(each, "index", -1))
                            .with("errorCode", ErrorCode::PolicyViolation)
                            .with("baseOffset", -1_i64);
                        if asked.version >= 8 {
                            answer.with("errorMessage", WHY)
                        } else {
                            answer
                        }
                    })
                    .collect();
                let name = text(topic, "name").unwrap_or_default();
                Struct::new()
                    .with("name", name)
                    .with("partitionResponses", partitions)
            })
            .collect();
        let answer = Struct::new().with("responses", responses);
        reply(asked, &answer, Vec::new())
    }

    /// Gives an idempotent producer an id: its first batch is then refused with the reason. A transactional producer is refused here.
    pub(super) fn init_producer_id(&self, request: &Struct<'_>) -> Struct<'static> {
        let is_transactional = request
            .get("transactionalId")
            .is_some_and(|id| !Value::is_null(id));
        if is_transactional {
            return Struct::new()
                .with("errorCode", ErrorCode::PolicyViolation)
                .with("producerEpoch", -1_i16);
        }
        let id = self.producer_ids.fetch_add(1, Ordering::Relaxed);
        Struct::new()
            .with("producerId", id)
            .with("producerEpoch", 0_i16)
    }
}
