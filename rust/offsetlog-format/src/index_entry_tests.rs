use super::*;
use proptest::prelude::*;
use std::vec;

fn offset_index(entries: &[(i32, i32)]) -> Vec<u8> {
    entries
        .iter()
        .flat_map(|(relative, position)| [relative.to_be_bytes(), position.to_be_bytes()].concat())
        .collect()
}

fn time_index(entries: &[(i64, i32)]) -> Vec<u8> {
    entries
        .iter()
        .flat_map(|(timestamp, relative)| {
            [
                timestamp.to_be_bytes().to_vec(),
                relative.to_be_bytes().to_vec(),
            ]
            .concat()
        })
        .collect()
}

fn fault_at<T: core::fmt::Debug>(result: Result<T, FormatError>) -> (usize, Fault) {
    let error = result.unwrap_err();
    (error.at, error.fault)
}

#[test]
fn relative_offsets_end_at_two_to_the_31_above_the_base() {
    assert_eq!(relative_offset(100, 100), Some(0));
    assert_eq!(relative_offset(100, 100 + 2147483647), Some(i32::MAX));
    assert_eq!(relative_offset(100, 100 + 2147483648), None);
    assert_eq!(relative_offset(100, 99), None);
    assert_eq!(relative_offset(i64::MIN, i64::MAX), None);
    assert_eq!(relative_offset(i64::MAX, i64::MIN), None);
}

/// After a crash the file keeps its preallocated size, and only the zeros tell where the entries end.
#[test]
fn zeros_end_an_offset_index() {
    for (entries, expected) in [
        (vec![], 0),
        (vec![(0, 0)], 0),
        (vec![(0, 0), (0, 0)], 0),
        (vec![(0, 0), (0, 9)], 0),
        (vec![(0, 0), (5, 100)], 2),
        (vec![(0, 7)], 1),
        (vec![(0, 7), (0, 0)], 1),
        (vec![(3, 0)], 1),
        (vec![(3, 100), (9, 200), (0, 0), (0, 0)], 2),
        (vec![(3, 100), (0, 0), (9, 200)], 1),
    ] {
        let mut bytes = offset_index(&entries);
        assert_eq!(offset_entry_count(&bytes), expected, "{entries:?}");
        bytes.extend_from_slice(&[1; 7]);
        assert_eq!(offset_entry_count(&bytes), expected, "fragment {entries:?}");
    }
}

#[test]
fn zeros_end_a_time_index() {
    for (entries, expected) in [
        (vec![], 0),
        (vec![(0, 0)], 0),
        (vec![(0, 0), (0, 0)], 0),
        (vec![(0, 0), (0, 3)], 2),
        (vec![(0, 3)], 1),
        (vec![(-5, 0), (7, 0), (0, 0)], 2),
        (vec![(1000, 4), (2000, 9), (0, 0), (3000, 10)], 2),
    ] {
        let mut bytes = time_index(&entries);
        assert_eq!(time_entry_count(&bytes), expected, "{entries:?}");
        bytes.extend_from_slice(&[1; 11]);
        assert_eq!(time_entry_count(&bytes), expected, "fragment {entries:?}");
    }
}

#[test]
fn entries_are_absolute_when_read() {
    let bytes = offset_index(&[(3, 497), (6, 1407)]);
    assert_eq!(
        OffsetIndexEntry::read(&bytes, 1, 368769),
        Ok(OffsetIndexEntry {
            offset: 368775,
            position: 1407
        })
    );
    assert_eq!(
        fault_at(OffsetIndexEntry::read(&bytes, 2, 0)),
        (
            16,
            Fault::Truncated {
                needed: 8,
                available: 0
            }
        )
    );
    assert!(OffsetIndexEntry::read(&bytes, usize::MAX, 0).is_err());
    let bytes = time_index(&[(-86400000, 2)]);
    assert_eq!(
        TimeIndexEntry::read(&bytes, 0, 100),
        Ok(TimeIndexEntry {
            timestamp: -86400000,
            offset: 102
        })
    );
}

#[test]
fn negative_and_overflowing_values_are_told_with_their_byte() {
    let read = |entry, base| {
        fault_at(OffsetIndexEntry::read(
            &offset_index(&[(1, 1), entry]),
            1,
            base,
        ))
    };
    let (at, fault) = read((-1, 5), 100);
    assert_eq!(at, 8);
    assert!(matches!(
        fault,
        Fault::OffsetOrder {
            found: 99,
            minimum: 100,
            ..
        }
    ));
    assert_eq!(read((1, -5), 100).0, 12);
    let (at, fault) = read((2, 5), i64::MAX - 1);
    assert_eq!(at, 8);
    assert!(matches!(fault, Fault::OffsetOverflow { delta: 2, .. }));
    let (at, _) = fault_at(TimeIndexEntry::read(&time_index(&[(9, -1)]), 0, 0));
    assert_eq!(at, 8);
}

#[test]
fn order_is_checked_between_neighbours() {
    let check = |entries: &[(i32, i32)]| check_offset_index(&offset_index(entries), 100);
    assert_eq!(check(&[(3, 0), (6, 100), (7, 100), (9, 50), (0, 0)]), Ok(4));
    assert_eq!(fault_at(check(&[(3, 0), (6, 100), (6, 200)])).0, 16);
    let check = |entries: &[(i64, i32)]| check_time_index(&time_index(entries), 100);
    assert_eq!(check(&[(-5, 3), (-5, 3), (8, 9), (0, 0)]), Ok(3));
    assert_eq!(fault_at(check(&[(5, 3), (4, 9)])).0, 12);
    assert_eq!(fault_at(check(&[(5, 3), (6, 2)])).0, 20);
}

#[test]
fn entries_that_do_not_fit_are_not_written() {
    let mut out = vec![];
    let offset = |offset, position| OffsetIndexEntry { offset, position };
    assert!(offset(99, 0).write(100, &mut out).is_err());
    assert!(offset(100 + (1 << 31), 0).write(100, &mut out).is_err());
    assert!(offset(100, 1 << 31).write(100, &mut out).is_err());
    let time = TimeIndexEntry {
        timestamp: 0,
        offset: 99,
    };
    assert!(time.write(100, &mut out).is_err());
    assert!(out.is_empty());
}

/// Written by Kafka 4.3.0's own class.
const ABORTED: &str = "00000000000000000fa00000000000000005000000000000000a000000000000000b";

fn hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2)
        .map(|place| u8::from_str_radix(&text[2 * place..2 * place + 2], 16).unwrap())
        .collect()
}

#[test]
fn aborted_transaction_has_kafkas_bytes() {
    let bytes = hex(ABORTED);
    let entry = AbortedTransaction::read(&bytes, 0).unwrap();
    assert_eq!(
        entry,
        AbortedTransaction {
            producer_id: 4000,
            first_offset: 5,
            last_offset: 10,
            last_stable_offset: 11
        }
    );
    let mut out = vec![];
    entry.write(&mut out);
    assert_eq!(out, bytes);
    assert!(entry.overlaps(10, 11) && entry.overlaps(0, 6));
    assert!(!entry.overlaps(11, 20) && !entry.overlaps(0, 5));
}

#[test]
fn transaction_index_is_checked_as_a_whole() {
    let bytes = hex(ABORTED);
    assert_eq!(read_transaction_index(&bytes[..20], 0), Ok(vec![]));
    assert_eq!(
        read_transaction_index(&[&bytes[..], &[1; 33]].concat(), 0)
            .unwrap()
            .len(),
        1
    );
    let at = |bytes: &[u8], base| fault_at(read_transaction_index(bytes, base)).0;
    assert_eq!(at(&bytes, 11), 18);
    assert_eq!(at(&[&bytes[..], &bytes].concat(), 0), 34 + 18);
    for version in ["0100", "0001"] {
        let bytes = [&hex(version), &bytes[2..]].concat();
        let (at, fault) = fault_at(read_transaction_index(&bytes, 0));
        assert_eq!(at, 0);
        assert!(matches!(fault, Fault::Version { maximum: 0, .. }));
    }
    let backwards = AbortedTransaction {
        producer_id: 1,
        first_offset: 12,
        last_offset: 11,
        last_stable_offset: 12,
    };
    let mut both = bytes;
    backwards.write(&mut both);
    assert_eq!(at(&both, 0), 34 + 10);
}

proptest! {
    #[test]
    fn written_entries_read_back(base in 0..i64::MAX / 2, relative in 0..i32::MAX, position in 0..i32::MAX as u32, timestamp: i64) {
        let offset = base + i64::from(relative);
        let mut out = vec![];
        let entry = OffsetIndexEntry { offset, position };
        entry.write(base, &mut out).unwrap();
        prop_assert_eq!(OffsetIndexEntry::read(&out, 0, base), Ok(entry));
        out.clear();
        let entry = TimeIndexEntry { timestamp, offset };
        entry.write(base, &mut out).unwrap();
        prop_assert_eq!(TimeIndexEntry::read(&out, 0, base), Ok(entry));
    }

    #[test]
    fn aborted_transactions_read_back(producer_id: i64, first_offset: i64, last_offset: i64, last_stable_offset: i64) {
        let entry = AbortedTransaction { producer_id, first_offset, last_offset, last_stable_offset };
        let mut out = vec![];
        entry.write(&mut out);
        prop_assert_eq!(AbortedTransaction::read(&out, 0), Ok(entry));
    }

    #[test]
    fn any_bytes_never_panic(bytes in prop::collection::vec(prop_oneof![Just(0_u8), any::<u8>()], 0..200), base: i64, slot: usize) {
        let _ = check_offset_index(&bytes, base);
        let _ = check_time_index(&bytes, base);
        let _ = read_transaction_index(&bytes, base);
        let _ = OffsetIndexEntry::read(&bytes, slot, base);
    }
}
