use super::*;
use crate::Uuid;
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

/// Kafka's `RequestHeader.json`: key, version, correlation id, client id; from the flexible versions on tagged fields too.
#[test]
fn headers_are_kafkas_bytes() {
    let header = |api_version, client_id| RequestHeader {
        api_key: 3,
        api_version,
        correlation_id: 7,
        client_id,
    };
    let written = |header: RequestHeader<'_>| {
        let mut out = vec![9];
        header.write(&mut out).unwrap();
        out
    };
    let old = written(header(1, Some(b"c".as_slice())));
    assert_eq!(old, [9, 0, 3, 0, 1, 0, 0, 0, 7, 0, 1, b'c']);
    let flexible = written(header(9, None));
    assert_eq!(flexible, [9, 0, 3, 0, 9, 0, 0, 0, 7, 255, 255, 0]);

    let long = vec![b'c'; 40_000];
    let mut out = vec![9];
    assert!(header(1, Some(&long)).write(&mut out).is_err());
    assert_eq!(out, [9]);

    // A response to ApiVersions never has tagged fields in its header: the client does not know yet what the server knows.
    for (api, version, tail) in [
        (&apis::METADATA, 1, &[][..]),
        (&apis::METADATA, 9, &[0]),
        (&apis::API_VERSIONS, 3, &[]),
    ] {
        let mut out = Vec::new();
        ResponseHeader { correlation_id: 7 }.write(api, version, &mut out);
        assert_eq!(out, [&[0, 0, 0, 7], tail].concat());
        let mut reader = Reader::new(&out, Part::Protocol);
        let read = ResponseHeader::read(api, version, &mut reader).unwrap();
        assert_eq!((read.correlation_id, reader.remaining()), (7, 0));
    }
}

#[test]
fn what_is_announced_is_found_by_its_key() {
    let produce = announced(0).unwrap();
    assert_eq!(produce.api.name, "Produce");
    assert!(produce.has_version(0) && produce.has_version(12));
    assert!(!produce.has_version(-1) && !produce.has_version(13));
    assert!(announced(999).is_none());
}

/// A value is only what it is.
#[test]
fn values_are_of_one_kind() {
    let id = Uuid::from_bytes([7; 16]);
    let all = || {
        [
            Value::Null,
            Value::from(true),
            Value::from(-5_i64),
            Value::Float(0.5),
            Value::from(id),
            Value::from("text"),
            Value::text(vec![0xff]),
            Value::from(&[1_u8, 2][..]),
            Value::Records(3),
            Value::Array(vec![Value::from(1_i8)]),
            Value::from(Struct::new().with("field", 1_i16)),
        ]
    };
    let kinds = |of: fn(&Value<'_>) -> bool| all().iter().map(of).collect::<Vec<_>>();
    let only = |wanted: &[usize]| (0..11).map(|at| wanted.contains(&at)).collect::<Vec<_>>();
    assert_eq!(
        kinds(|each| each.is_null() == (*each == Value::Null)),
        [true; 11]
    );
    assert_eq!(kinds(|each| each.as_bool() == Some(true)), only(&[1]));
    assert_eq!(kinds(|each| each.as_bool().is_some()), only(&[1]));
    assert_eq!(kinds(|each| each.as_int() == Some(-5)), only(&[2]));
    assert_eq!(kinds(|each| each.as_int().is_some()), only(&[2]));
    assert_eq!(kinds(|each| each.as_uuid().is_some()), only(&[4]));
    assert_eq!(kinds(|each| each.as_str() == Some("text")), only(&[5]));
    assert_eq!(kinds(|each| each.as_str().is_some()), only(&[5]));
    assert_eq!(kinds(|each| each.as_bytes().is_some()), only(&[5, 6, 7]));
    assert_eq!(kinds(|each| each.as_array().is_some()), only(&[9]));
    assert_eq!(kinds(|each| each.as_struct().is_some()), only(&[10]));
    for value in all() {
        assert_eq!(value.clone().into_owned(), value);
    }
    let fields = Struct::new().with("field", 1_i16).with("field", 2_i16);
    assert_eq!(fields.fields.len(), 1);
    assert_eq!(fields.get("field").and_then(Value::as_int), Some(2));
    assert!(fields.get("other").is_none());
}
