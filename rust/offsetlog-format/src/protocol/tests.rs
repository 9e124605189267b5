use super::*;
use crate::cursor::Reader;
use crate::error::{Fault, Part};
use crate::message::{Struct, Value};
use std::vec;
use std::vec::Vec;

/// What the table of announced versions says can be read, but for Produce, whose lowest versions no Kafka 4 reads.
#[test]
fn what_is_announced_is_known() {
    assert_eq!(ANNOUNCED.len(), apis::ALL.len());
    for (announced, api) in ANNOUNCED.iter().zip(apis::ALL) {
        assert_eq!(announced.api.key, api.key);
        assert!(api.has_version(announced.highest_version), "{}", api.name);
        let is_read = api.has_version(announced.lowest_version);
        assert_eq!(is_read, api.key != 0, "{}", api.name);
        assert_eq!(api.request.lowest_version, api.response.lowest_version);
        assert_eq!(api.request.highest_version, api.response.highest_version);
    }
}

#[test]
fn records_leave_a_hole() {
    let partition = |index: i32, records: Value<'static>| {
        Struct::new()
            .with("partitionIndex", index)
            .with("records", records)
    };
    let topic = Struct::new().with("topic", "t").with(
        "partitions",
        vec![
            partition(0, Value::Records(5)),
            partition(1, Value::Records(0)),
            partition(2, Value::Bytes(vec![1, 2, 3].into())),
        ],
    );
    let response = Struct::new().with("responses", vec![topic]);
    for version in [4, 11, 12] {
        let mut out = vec![9; 3];
        let holes = apis::FETCH
            .response
            .write(version, &response, &mut out)
            .unwrap();
        assert_eq!(
            holes.iter().map(|hole| hole.bytes).collect::<Vec<_>>(),
            [5, 0]
        );
        let mut whole = out[3..holes[0].at].to_vec();
        whole.extend_from_slice(b"batch");
        whole.extend_from_slice(&out[holes[0].at..]);
        let mut reader = Reader::new(&whole, Part::Protocol);
        let read = apis::FETCH.response.read(version, &mut reader).unwrap();
        assert_eq!(reader.remaining(), 0);
        let topic = read.get("responses").unwrap().as_array().unwrap()[0].as_struct();
        let partitions = topic.unwrap().get("partitions").unwrap();
        let records = partitions.as_array().unwrap().iter();
        let records: Vec<_> = records
            .map(|partition| partition.as_struct().unwrap().get("records").cloned())
            .collect();
        let bytes = |bytes: &'static [u8]| Some(Value::from(bytes));
        assert_eq!(records, [bytes(b"batch"), bytes(b""), bytes(&[1, 2, 3])]);
    }
}

#[test]
fn what_cannot_be_written_is_refused_and_leaves_nothing() {
    let refused = |version, fields: Struct<'_>, expected: &str| {
        let mut out = vec![7];
        let error = apis::METADATA.request.write(version, &fields, &mut out);
        assert_eq!(std::format!("{}", error.unwrap_err()), expected);
        assert_eq!(out, [7]);
    };
    let none = Struct::new;
    refused(
        -1,
        none(),
        "request or response a version that Kafka 4.3 no longer has",
    );
    refused(
        14,
        none(),
        "request or response version 14 found, up to 13 can be read",
    );
    refused(
        1,
        none().with("topic", 1),
        "request or response field topic is not a field of this structure",
    );
    refused(
        1,
        none().with("topics", 1),
        "request or response field topics has a value of another kind",
    );
    refused(
        0,
        none().with("topics", Value::Null),
        "request or response field topics is null, which it cannot be in this version",
    );
    refused(
        3,
        none().with("allowAutoTopicCreation", false),
        "request or response field allowAutoTopicCreation has a value that this version cannot carry",
    );
    let heartbeat = Struct::new().with("errorCode", 40_000);
    let error = apis::HEARTBEAT
        .response
        .write(0, &heartbeat, &mut Vec::new());
    assert!(matches!(
        error.unwrap_err().fault,
        Fault::Field {
            name: "errorCode",
            ..
        }
    ));
}
