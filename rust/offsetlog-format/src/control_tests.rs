use super::*;
use proptest::prelude::*;
use std::vec;

fn hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2)
        .map(|place| u8::from_str_radix(&text[2 * place..2 * place + 2], 16).unwrap())
        .collect()
}

fn voter(voter_id: i32) -> LeaderChangeVoter {
    LeaderChangeVoter {
        voter_id,
        directory_id: Uuid::ZERO,
    }
}

/// Keys and values cut out of batches that Kafka 4.3.0's builder made.
#[test]
fn control_records_have_kafkas_bytes() {
    let leader_change = ControlRecord::LeaderChange(LeaderChange {
        version: 0,
        leader_id: 1,
        voters: vec![voter(1)],
        granting_voters: vec![voter(1)],
    });
    for (key, value, expected) in [
        (
            "00000001",
            "000000000009",
            ControlRecord::Commit {
                coordinator_epoch: 9,
            },
        ),
        (
            "00000000",
            "00000000000a",
            ControlRecord::Abort {
                coordinator_epoch: 10,
            },
        ),
        (
            "00000002",
            "00000000000102000000010002000000010000",
            leader_change,
        ),
        (
            "00000003",
            "0000000000000000007b00",
            ControlRecord::SnapshotHeader {
                last_contained_log_timestamp: 123,
            },
        ),
        ("00000004", "000000", ControlRecord::SnapshotFooter),
        (
            "00000005",
            "0000000100",
            ControlRecord::KraftVersion { kraft_version: 1 },
        ),
    ] {
        let (key, value) = (hex(key), hex(value));
        let found = ControlRecord::parse(Some(&key), Some(&value)).unwrap();
        assert_eq!(found, expected);
        assert_eq!(found.control_type().write_key(), key[..]);
        assert_eq!(found.write_value(), Ok(Some(value)));
    }
}

/// Laid out by hand from Kafka's schema: nested version range with tagged fields of its own.
#[test]
fn voters_are_read_with_tags_skipped() {
    let directory = "31627a1474df458cbaee3cf065d7aa49";
    let plain = hex(&std::format!(
        "0000 02 00000001 {directory} 02 0b434f4e54524f4c4c4552 0a6c6f63616c686f7374 2385 00 0000 0001 00 00 00"
    )
    .replace(' ', ""));
    let tagged = hex(&std::format!(
        "0000 02 00000001 {directory} 02 0b434f4e54524f4c4c4552 0a6c6f63616c686f7374 2385 01 07 02 abcd 0000 0001 01 00 00 01 00 01 ff 00 00"
    )
    .replace(' ', ""));
    let expected = ControlRecord::KraftVoters(vec![Voter {
        voter_id: 1,
        directory_id: Uuid::parse("MWJ6FHTfRYy67jzwZdeqSQ").unwrap(),
        endpoints: vec![VoterEndpoint {
            name: "CONTROLLER".into(),
            host: "localhost".into(),
            port: 9093,
        }],
        minimum_version: 0,
        maximum_version: 1,
    }]);
    let key = ControlType::KraftVoters.write_key();
    for bytes in [&plain, &tagged] {
        assert_eq!(
            ControlRecord::parse(Some(&key), Some(bytes)).as_ref(),
            Ok(&expected)
        );
    }
    assert_eq!(expected.write_value(), Ok(Some(plain)));
}

#[test]
fn newer_versions_of_keys_and_markers_are_read_as_the_oldest() {
    let commit = ControlRecord::Commit {
        coordinator_epoch: 9,
    };
    for (key, value) in [
        ("00010001", "000000000009"),
        ("00000001ff", "000000000009"),
        ("00000001", "000300000009ffff"),
    ] {
        assert_eq!(
            ControlRecord::parse(Some(&hex(key)), Some(&hex(value))).as_ref(),
            Ok(&commit)
        );
    }
}

/// Kafka ignores types it does not know, so they must not be errors.
#[test]
fn unknown_types_are_kept_as_they_are() {
    let key = hex("0000004d");
    for value in [None, Some(&b"any"[..])] {
        let record = ControlRecord::parse(Some(&key), value).unwrap();
        assert_eq!(record.control_type(), ControlType::Unknown(77));
        assert_eq!(record.write_value().unwrap().as_deref(), value);
    }
}

#[test]
fn bad_keys_and_values_are_told_with_their_byte() {
    let check = |key: Option<&str>, value: Option<&str>, at: usize| {
        let (key, value) = (key.map(hex), value.map(hex));
        let error = ControlRecord::parse(key.as_deref(), value.as_deref()).unwrap_err();
        assert_eq!((error.part, error.at), (PART, at), "{key:?} {value:?}");
    };
    check(None, Some("000000000009"), 0);
    check(Some("00"), Some("000000000009"), 0);
    check(Some("0000ff"), Some("000000000009"), 2);
    check(Some("ffff0001"), Some("000000000009"), 0);
    check(Some("00000001"), None, 0);
    check(Some("00000001"), Some("000000"), 2);
    check(Some("00000001"), Some("ffff00000009"), 0);
    check(Some("00000002"), Some("0002000000010101"), 0);
    // A null array, a claim beyond the value, a length that is no 32-bit number.
    check(Some("00000002"), Some("0000000000010001"), 6);
    check(Some("00000006"), Some("0000ffffffff0f"), 2);
    check(Some("00000006"), Some("0000ffffffff7f"), 2);
    check(Some("00000006"), Some("0000ffffffffff01"), 2);
    // A tagged field longer than the value.
    check(Some("00000004"), Some("0000010005ff"), 5);
}

fn any_uuid() -> impl Strategy<Value = Uuid> {
    any::<[u8; 16]>().prop_map(Uuid::from_bytes)
}

fn any_record() -> impl Strategy<Value = ControlRecord> {
    let listed = || prop::collection::vec((any::<i32>(), any_uuid()), 0..200);
    let leader_change = (0..2_i16, any::<i32>(), listed(), listed()).prop_map(
        |(version, leader_id, voters, granting_voters)| {
            let listed = |voters: Vec<(i32, Uuid)>| {
                let voters = voters.into_iter();
                let voters = voters.map(|(voter_id, directory_id)| LeaderChangeVoter {
                    voter_id,
                    directory_id: if version == 0 {
                        Uuid::ZERO
                    } else {
                        directory_id
                    },
                });
                voters.collect()
            };
            ControlRecord::LeaderChange(LeaderChange {
                version,
                leader_id,
                voters: listed(voters),
                granting_voters: listed(granting_voters),
            })
        },
    );
    let endpoint = (".{0,9}", ".{0,150}", any::<u16>())
        .prop_map(|(name, host, port)| VoterEndpoint { name, host, port });
    let endpoints = prop::collection::vec(endpoint, 0..3);
    let voter = (
        any::<i32>(),
        any_uuid(),
        endpoints,
        any::<i16>(),
        any::<i16>(),
    )
        .prop_map(
            |(voter_id, directory_id, endpoints, minimum_version, maximum_version)| Voter {
                voter_id,
                directory_id,
                endpoints,
                minimum_version,
                maximum_version,
            },
        );
    prop_oneof![
        any::<i32>().prop_map(|coordinator_epoch| ControlRecord::Abort { coordinator_epoch }),
        any::<i32>().prop_map(|coordinator_epoch| ControlRecord::Commit { coordinator_epoch }),
        leader_change,
        any::<i64>().prop_map(
            |last_contained_log_timestamp| ControlRecord::SnapshotHeader {
                last_contained_log_timestamp
            }
        ),
        Just(ControlRecord::SnapshotFooter),
        any::<i16>().prop_map(|kraft_version| ControlRecord::KraftVersion { kraft_version }),
        prop::collection::vec(voter, 0..3).prop_map(ControlRecord::KraftVoters),
        (7..i16::MAX, any::<Option<Vec<u8>>>())
            .prop_map(|(number, value)| ControlRecord::Unknown { number, value }),
    ]
}

proptest! {
    #[test]
    fn written_records_read_back_and_no_prefix_does(record in any_record(), cut: prop::sample::Index) {
        let key = record.control_type().write_key();
        let value = record.write_value().unwrap();
        prop_assert_eq!(ControlRecord::parse(Some(&key), value.as_deref()), Ok(record.clone()));
        if let (Some(value), false) = (value, matches!(record, ControlRecord::Unknown { .. })) {
            let cut = cut.index(value.len());
            prop_assert!(ControlRecord::parse(Some(&key), Some(&value[..cut])).is_err());
        }
    }

    #[test]
    fn any_bytes_never_panic(kind in -1..9_i16, value in prop::collection::vec(prop_oneof![0..4_u8, any::<u8>()], 0..80), key in prop::collection::vec(any::<u8>(), 0..6)) {
        let _ = ControlRecord::parse(Some(&key), Some(&value));
        let key = ControlType::from_number(kind).write_key();
        let _ = ControlRecord::parse(Some(&key), Some(&value));
    }
}
