//! The coordinator beside a real one, and under a seeded scheduler.

#[path = "tests/panics.rs"]
mod panics;
#[path = "tests/random.rs"]
mod random;
#[path = "tests/recorded.rs"]
mod recorded;
#[path = "tests/rules.rs"]
mod rules;

use super::committed_offsets::CommittedOffsetsOptions;
use super::*;
use offsetlog::format::Uuid;
use offsetlog::format::cursor::Reader;
use offsetlog::format::error::Part;
use offsetlog::format::message::Value;
use offsetlog::format::protocol::api;
use std::sync::Arc;

/// A coordinator in memory whose topics have these numbers of partitions.
fn coordinator(options: CoordinatorOptions, topics: &'static [(&'static str, i32)]) -> Coordinator {
    let topic_id = move |topic: &str, partition: i32| {
        let found = topics.iter().find(|(name, _)| *name == topic);
        let (_, count) = found?;
        (0..*count).contains(&partition).then_some(Uuid::ZERO)
    };
    let options = CoordinatorOptions {
        topic_id: Arc::new(topic_id),
        ..options
    };
    let offsets = CommittedOffsets::in_memory(&CommittedOffsetsOptions::default());
    Coordinator::new(options, offsets, 0, || ())
}

/// Encodes a response as the server will, and decodes it as a client does.
fn over_the_wire(api_key: i16, version: i16, response: &Struct<'_>) -> Struct<'static> {
    let response_table = &api(api_key).unwrap().response;
    let mut bytes = Vec::new();
    response_table
        .write(version, response, &mut bytes)
        .unwrap_or_else(|error| panic!("{api_key} {version}: {error}"));
    let mut reader = Reader::new(&bytes, Part::Protocol);
    let read = response_table.read(version, &mut reader).unwrap();
    assert_eq!(reader.remaining(), 0);
    read.into_owned()
}

fn code(response: &Struct<'_>) -> i64 {
    int(response, "errorCode").unwrap()
}
