use super::*;
use crate::ControlType;
use crate::error::Part;
use crate::internal_topic::{
    CoordinatorRecord, CoordinatorTopic, KnownRecord, MetadataRecord, decode_assignment,
    decode_control, decode_subscription,
};
use proptest::prelude::*;
use std::string::String;
use std::vec;

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

/// A structure on one line: names, numbers, texts in quotes, ids as they are.
fn line(fields: &Struct<'_>) -> String {
    let parts = fields.fields.iter();
    let parts: Vec<String> = parts
        .map(|(name, value)| std::format!("{name}={}", shown(value)))
        .collect();
    parts.join(" ")
}

fn shown(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(bool) => std::format!("{bool}"),
        Value::Int(number) => std::format!("{number}"),
        Value::Float(number) => std::format!("{number}"),
        Value::Uuid(id) => std::format!("{id}"),
        Value::Text(bytes) => std::format!("'{}'", String::from_utf8_lossy(bytes)),
        Value::Bytes(bytes) => std::format!("{bytes:?}"),
        Value::Records(bytes) => std::format!("{bytes} bytes"),
        Value::Array(elements) => {
            let elements: Vec<String> = elements.iter().map(shown).collect();
            std::format!("[{}]", elements.join(", "))
        }
        Value::Struct(fields) => std::format!("({})", line(fields)),
    }
}

fn known<'a>(topic: CoordinatorTopic, key: &'a [u8], value: Option<&'a [u8]>) -> KnownRecord<'a> {
    match topic.decode(key, value).unwrap() {
        CoordinatorRecord::Known(record) => record,
        CoordinatorRecord::Unknown { number } => panic!("type {number}"),
    }
}

/// The bytes are those that Kafka 4.3.0's own messages wrote; what they hold was put in.
#[test]
fn records_of_coordinators_are_read_in_every_version() {
    use CoordinatorTopic::{ConsumerOffsets, TransactionState};
    let check =
        |topic, key: &str, value: &str, name, shown_key: &str, version, shown_value: &str| {
            let (key, value) = (unhex(key), unhex(value));
            let record = known(topic, &key, Some(&value));
            assert_eq!(record.record_type.name(), name);
            assert_eq!(line(&record.key), shown_key);
            let (found, fields) = record.value.unwrap();
            assert_eq!((found, line(&fields).as_str()), (version, shown_value));
        };
    let commit = "000100036772700003746f7000000003";
    let committed = "group='grp' topic='top' partition=3";
    check(
        ConsumerOffsets,
        commit,
        "0004000000000000002a00000007056d65746100000000000003e801001031627a1474df458cbaee3cf065d7aa49",
        "OffsetCommit",
        committed,
        4,
        "offset=42 leaderEpoch=7 metadata='meta' commitTimestamp=1000 topicId=MWJ6FHTfRYy67jzwZdeqSQ",
    );
    check(
        ConsumerOffsets,
        commit,
        "0001000000000000002a00046d65746100000000000003e80000000000000009",
        "OffsetCommit",
        committed,
        1,
        "offset=42 metadata='meta' commitTimestamp=1000 expireTimestamp=9",
    );
    check(
        ConsumerOffsets,
        "00020003677270",
        "00030008636f6e73756d657200000005000572616e676500026d3100000000000003e80000000100026d31ffff00016300022f680000012c0000002d0000000201020000000103",
        "GroupMetadata",
        "group='grp'",
        3,
        "protocolType='consumer' generation=5 protocol='range' leader='m1' currentStateTimestamp=1000 members=[(memberId='m1' \
         groupInstanceId=null clientId='c' clientHost='/h' rebalanceTimeout=300 sessionTimeout=45 subscription=[1, 2] assignment=[3])]",
    );
    let transaction = "00000003746964";
    let ongoing = "transactionPartitions=[(topic='top' partitionIds=[0, 3])] transactionLastUpdateTimestampMs=1000 \
                   transactionStartTimestampMs=900";
    let numbers = "producerEpoch=1 transactionTimeoutMs=60000 transactionStatus=1";
    check(
        TransactionState,
        transaction,
        "00000000000000000fa000010000ea6001000000010003746f70000000020000000000000003 00000000000003e80000000000000384",
        "TransactionLog",
        "transactionalId='tid'",
        0,
        &std::format!("producerId=4000 {numbers} {ongoing}"),
    );
    check(
        TransactionState,
        transaction,
        "00010000000000000fa000010000ea6001 02 04746f70 03 00000000 00000003 00 00000000000003e8 0000000000000384 \
         02 00 08 0000000000000005 02 02 0002",
        "TransactionLog",
        "transactionalId='tid'",
        1,
        &std::format!(
            "producerId=4000 previousProducerId=5 {numbers} {ongoing} clientTransactionVersion=2"
        ),
    );
}

#[test]
fn metadata_records_are_read() {
    let check = |bytes: &str, name: &str, version, expected: &str| {
        let bytes = unhex(bytes);
        let record = MetadataRecord::decode(&bytes).unwrap();
        assert_eq!((record.message.name, record.version), (name, version));
        assert_eq!(line(&record.fields), expected);
    };
    check(
        "01020004746f7031627a1474df458cbaee3cf065d7aa4900",
        "TopicRecord",
        0,
        "name='top' topicId=MWJ6FHTfRYy67jzwZdeqSQ",
    );
    check(
        "0103020000000331627a1474df458cbaee3cf065d7aa490200000001020000000101010000000100000000000000000231627a1474df458cbaee3cf065d7aa4900",
        "PartitionRecord",
        2,
        "partitionId=3 topicId=MWJ6FHTfRYy67jzwZdeqSQ replicas=[1] isr=[1] removingReplicas=[] addingReplicas=[] leader=1 leaderEpoch=0 \
         partitionEpoch=0 directories=[MWJ6FHTfRYy67jzwZdeqSQ]",
    );
    check(
        "0104000204746f700d726574656e74696f6e2e6d730000",
        "ConfigRecord",
        0,
        "resourceType=2 resourceName='top' name='retention.ms' value=null",
    );
}

/// Unknown tagged fields are stepped over, those that say what holds anyway are left out.
#[test]
fn tagged_fields_are_read_where_they_say_something() {
    let bytes = unhex(
        "010500 00000003 31627a1474df458cbaee3cf065d7aa49 04 00 05 02 00000007 01 04 fffffffe 05 01 ff 63 02 abcd",
    );
    let record = MetadataRecord::decode(&bytes).unwrap();
    assert_eq!(
        line(&record.fields),
        "partitionId=3 topicId=MWJ6FHTfRYy67jzwZdeqSQ isr=[7]"
    );
    let lying = unhex("010500 00000003 31627a1474df458cbaee3cf065d7aa49 01 01 05 0000000100");
    let error = MetadataRecord::decode(&lying).unwrap_err();
    assert!(
        matches!(error.fault, Fault::Length { found: 5, .. }),
        "{error}"
    );
}

#[test]
fn what_members_tell_each_other_is_read() {
    let subscription = unhex(
        "0003 00000001 0003746f70 ffffffff 00000001 0003746f70 00000001 00000002 00000009 ffff",
    );
    let (version, fields) = decode_subscription(&subscription).unwrap();
    assert_eq!(version, 3);
    assert_eq!(
        line(&fields),
        "topics=['top'] userData=null ownedPartitions=[(topic='top' partitions=[2])] generationId=9 rackId=null"
    );
    let assignment = unhex("0000 00000001 0003746f70 00000002 00000000 00000003 00000001 ab");
    let (_, fields) = decode_assignment(&assignment).unwrap();
    assert_eq!(
        line(&fields),
        "assignedPartitions=[(topic='top' partitions=[0, 3])] userData=[171]"
    );
}

#[test]
fn control_records_of_the_quorum_are_read() {
    let bytes = unhex("0000 00000001 02 00000001 00 02 00000001 00 00");
    let fields = decode_control(ControlType::LeaderChange, &bytes)
        .unwrap()
        .unwrap();
    assert_eq!(
        line(&fields),
        "version=0 leaderId=1 voters=[(voterId=1)] grantingVoters=[(voterId=1)]"
    );
    assert!(decode_control(ControlType::Commit, &bytes).is_none());
}

#[test]
fn what_is_not_known_is_said() {
    let unknown = CoordinatorTopic::ConsumerOffsets
        .decode(&[0, 99], None)
        .unwrap();
    assert!(matches!(unknown, CoordinatorRecord::Unknown { number: 99 }));
    let key = unhex("00020003677270");
    let newer = CoordinatorTopic::ConsumerOffsets
        .decode(&key, Some(&[0, 9]))
        .unwrap_err();
    assert_eq!(
        newer.fault,
        Fault::Version {
            found: 9,
            maximum: 4
        }
    );
    for (bytes, at) in [("00", 0), ("02020000", 0), ("010600", 1), ("01140000ff", 4)] {
        let error = MetadataRecord::decode(&unhex(bytes)).unwrap_err();
        assert_eq!(
            (error.part, error.at),
            (Part::MetadataRecord, at),
            "{bytes}: {error}"
        );
    }
    for (bytes, number) in [("010600", Some(6)), ("01ac0200", Some(300)), ("0114", None)] {
        assert_eq!(
            MetadataRecord::unknown_type(&unhex(bytes)),
            number,
            "{bytes}"
        );
    }
    for bytes in ["", "01", "0206"] {
        assert_eq!(MetadataRecord::unknown_type(&unhex(bytes)), None, "{bytes}");
    }
}

/// A claim of many elements fails before anything is made of it, and one that the bytes allow stops at a bound.
#[test]
fn counts_make_no_more_than_is_there() {
    let key = unhex("00000003746964");
    let claim = unhex("00000000000000000fa000010000ea60017fffffff");
    let error = CoordinatorTopic::TransactionState
        .decode(&key, Some(&claim))
        .unwrap_err();
    assert!(
        matches!(
            error.fault,
            Fault::Length {
                found: 0x7fff_ffff,
                ..
            }
        ),
        "{error}"
    );

    let mut empty_texts = unhex("0000 00000000");
    let count = MAX_VALUES + 1;
    empty_texts.truncate(2);
    empty_texts.extend_from_slice(&i32::try_from(count).unwrap().to_be_bytes());
    empty_texts.extend(vec![0; 2 * count]);
    let error = decode_subscription(&empty_texts).unwrap_err();
    assert!(matches!(error.fault, Fault::Count { .. }), "{error}");
}

/// A count that Kafka would take for a negative number: no tagged fields, or null. Nobody wrote it; it is refused where it stands.
#[test]
fn counts_beyond_an_int_are_refused() {
    let read = |text: &str| read_unsigned(&mut Reader::new(&unhex(text), Part::Protocol));
    assert_eq!(read("ffffffff07").unwrap(), 0x7fff_ffff);
    for text in [
        "8080808008",
        "ffffffff08",
        "ffffffff0f",
        "ffffffff1f",
        "ffffffffff",
    ] {
        let error = read(text).unwrap_err();
        assert_eq!(error.fault, Fault::Varint { bytes_read: 5 }, "{text}");
        assert_eq!(error.at, 0, "{text}");
    }
}

/// Every table agrees with itself: versions within the message's, tagged fields in flexible versions only, no name twice.
#[test]
fn tables_hold_together() {
    fn check(name: &str, fields: &'static [Field], highest: i16, flexible: i16) {
        for (place, field) in fields.iter().enumerate() {
            assert!(
                field.since <= highest && field.since <= field.until,
                "{name}.{}",
                field.name
            );
            assert!(
                field.tag.is_none() || field.since >= flexible,
                "{name}.{}",
                field.name
            );
            let others = fields.iter().skip(place + 1);
            assert!(
                others.clone().all(|other| other.name != field.name),
                "{name}.{}",
                field.name
            );
            if let Kind::Struct(inner) | Kind::Structs(inner) = field.kind {
                check(field.name, inner, highest, flexible);
            }
        }
    }
    for message in crate::internal_topic::all_messages() {
        check(
            message.name,
            message.fields,
            message.highest_version,
            message.flexible,
        );
    }
    assert_eq!(crate::internal_topic::all_messages().count(), 83);
}

proptest! {
    /// Whatever the bytes are: a value or an error, never a panic, and no byte is read twice into arrays.
    #[test]
    fn hostile_bytes_give_a_value_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200), number in 0_u8..30, version in 0_u8..5) {
        for topic in [CoordinatorTopic::ConsumerOffsets, CoordinatorTopic::TransactionState, CoordinatorTopic::ShareGroupState] {
            let _ = topic.decode(&bytes, Some(&bytes));
            let key = [&[0, number], bytes.as_slice()].concat();
            let value = [&[0, version], bytes.as_slice()].concat();
            let _ = topic.decode(&key, Some(&value));
        }
        let _ = MetadataRecord::decode(&bytes);
        let framed = [&[1, number, version], bytes.as_slice()].concat();
        let _ = MetadataRecord::decode(&framed);
        let _ = decode_subscription(&[&[0, version], bytes.as_slice()].concat());
        for control in 0..8 {
            let _ = decode_control(ControlType::from_number(control), &bytes);
        }
    }
}

/// What the tables say, on one made here: fields come and go with versions, null is for those that may be, tags for flexible versions.
#[test]
fn fields_are_those_of_their_version() {
    static ELEMENT: Kind = Kind::Int8;
    let fields: &'static [Field] = vec![
        field("always", Kind::Int16),
        field("late", Kind::Bool).since(1),
        field("early", Kind::Uint16).until(1),
        field("maybe", Kind::Text).nullable(),
        field("many", Kind::Array(&ELEMENT)),
        field("rare", Kind::Int32).since(2).tag(7, Unset::Int(0)),
    ]
    .leak();
    let table = message("Table", 2, 2, fields);
    let read = |version, bytes: &str| {
        let bytes = unhex(bytes);
        let mut reader = Reader::new(&bytes, Part::CoordinatorRecord);
        table.read(version, &mut reader).map(|fields| {
            assert_eq!(reader.remaining(), 0);
            line(&fields)
        })
    };
    let none = "always=1 early=2 maybe=null many=[]";
    assert_eq!(read(0, "0001 0002 ffff 00000000").unwrap(), none);
    let two = "always=1 late=true early=2 maybe='x' many=[3, -1]";
    assert_eq!(read(1, "0001 01 0002 0001 78 00000002 03ff").unwrap(), two);
    let tagged = "always=1 late=false maybe=null many=[] rare=5";
    let known = "0001 00 00 01 02 0703 616263 0704 00000005";
    assert_eq!(
        read(2, &known.replace("0703", "0903")).unwrap(),
        tagged,
        "unknown tags are skipped"
    );
    assert_eq!(
        read(2, "0001 00 00 01 01 0704 00000000").unwrap(),
        "always=1 late=false maybe=null many=[]",
        "what is as if unset is not there"
    );
    let refused = |version, bytes: &str| read(version, bytes).unwrap_err().fault;
    assert!(matches!(
        refused(3, ""),
        Fault::Version {
            found: 3,
            maximum: 2
        }
    ));
    assert!(matches!(
        refused(2, known),
        Fault::Length { .. } | Fault::Truncated { .. }
    ));
    assert!(matches!(
        refused(0, "0001 0002 ffff 00000009 01"),
        Fault::Length {
            found: 9,
            minimum: 0,
            maximum: 1
        }
    ));
    assert!(matches!(
        refused(0, "0001 0002 ffff ffffffff"),
        Fault::Length { found: -1, .. }
    ));
}
