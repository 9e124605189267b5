//! Indexes, snapshots, epochs: what is made again when the files beside the records are lost, damaged or another's.

use crate::common::{
    NOW, Place, append, append_at, append_in, clean, closed, end, file, kept, logs, numbered,
    produce, records, recovered, unclean,
};
use offsetlog::{Isolation, WriteOptions};

/// A log with an index entry for each batch, producers, epochs and three segments; and what stands in each file.
fn with_companions() -> Place {
    let place = Place::new();
    let log = place.open(&[("index.interval.bytes", "0")]);
    for number in 0..12 {
        let producer = offsetlog::Producer {
            producer_id: 4,
            producer_epoch: 0,
            base_sequence: number,
            is_transactional: false,
        };
        let mut batch = offsetlog::BatchBuilder::new(offsetlog::format::Codec::None, producer);
        let value = format!("v{number}");
        batch
            .push(NOW + i64::from(number), None, Some(value.as_bytes()), &[])
            .unwrap();
        let options = offsetlog::AppendOptions {
            leader_epoch: Some(number / 5),
            flush: false,
        };
        log.append(&mut batch, &options).unwrap();
        if number % 4 == 3 && number < 11 {
            log.roll().unwrap();
        }
    }
    log.close().unwrap();
    place
}

/// What happened to companions, whose bytes a recovery makes again.
type Loss = (&'static str, fn(&Place));

fn losses() -> Vec<Loss> {
    vec![
        ("no offset index", |place| place.remove(&file(0, ".index"))),
        ("no time index", |place| {
            place.remove(&file(0, ".timeindex"));
        }),
        ("no offset index at the end", |place| {
            place.remove(&file(8, ".index"));
        }),
        ("no time index at the end", |place| {
            place.remove(&file(8, ".timeindex"));
        }),
        ("empty indexes", |place| {
            for base in [0, 4, 8] {
                place.put(&file(base, ".index"), b"");
                place.put(&file(base, ".timeindex"), b"");
            }
        }),
        ("zeros", |place| {
            for base in [0, 8] {
                place.put(&file(base, ".index"), &[0; 80]);
                place.put(&file(base, ".timeindex"), &[0; 120]);
            }
        }),
        ("half an entry", |place| {
            place.edit(&file(4, ".index"), |bytes| bytes.truncate(bytes.len() - 3));
            place.edit(&file(4, ".timeindex"), |bytes| {
                bytes.truncate(bytes.len() - 5);
            });
        }),
        ("another segment's", |place| {
            let other = (
                place.bytes(&file(0, ".index")),
                place.bytes(&file(0, ".timeindex")),
            );
            place.put(&file(8, ".index"), &[&other.0[..], &other.0].concat());
            place.put(&file(8, ".timeindex"), &other.1);
        }),
        ("bytes of anything", |place| {
            let bytes: Vec<u8> = (0..120_u32).map(|n| (n * 167 + 13) as u8).collect();
            place.put(&file(8, ".index"), &bytes[..80]);
            place.put(&file(8, ".timeindex"), &bytes);
        }),
        ("an entry behind the end", |place| {
            place.put(&file(8, ".index"), &[0, 0, 0, 1, 0, 1, 0, 0]);
        }),
        ("no index at all", |place| {
            for name in place
                .files()
                .into_keys()
                .filter(|name| name.ends_with("index"))
            {
                place.remove(&name);
            }
        }),
        ("no snapshot", |place| {
            for name in place
                .files()
                .into_keys()
                .filter(|name| name.ends_with(".snapshot"))
            {
                place.remove(&name);
            }
        }),
        ("no epochs", |place| place.remove("leader-epoch-checkpoint")),
        ("empty epochs", |place| {
            place.put("leader-epoch-checkpoint", b"");
        }),
    ]
}

/// Contract 9.6, and better where Kafka believes what it finds (12.2, 12.11, 12.13).
#[test]
fn files_beside_the_records_are_made_again() {
    let source = with_companions();
    let before = source.data_files();
    for (name, lose) in losses() {
        for write in [clean(), unclean(0)] {
            let case = format!("{name}, clean {:?}", write.clean);
            let write_clean = write.clean == Some(true);
            let place = source.copy();
            lose(&place);
            let reader = place.reader();
            assert_eq!(records(&reader), numbered(0, 12), "{case}");
            let log = place.try_again(write).unwrap();
            assert_eq!(records(&log), numbered(0, 12), "{case}");
            assert_eq!(log.end_offset_for_epoch(1), Some((1, 10)), "{case}");
            for number in 0..12 {
                let found = log
                    .offset_for_timestamp(NOW + number, Isolation::ReadUncommitted)
                    .unwrap();
                assert_eq!(found.unwrap().offset, number, "{case}");
            }
            assert!(
                produce(&log, (4, 0, 11), false, &["v11"])
                    .unwrap()
                    .duplicate,
                "{case}"
            );
            assert_eq!(log.recovery_report().cut, [], "{case}");
            log.close().unwrap();
            let after = place.data_files();
            if write_clean && !name.starts_with("no ") {
                // What a closed segment's index says is looked at when it is used, and answers as well without it.
                continue;
            }
            for (name, bytes) in before
                .iter()
                .filter(|(name, _)| !name.ends_with(".snapshot"))
            {
                assert_eq!(after.get(name), Some(bytes), "{case}: {name}");
            }
        }
    }
}

/// Each way to spoil an entry: offset, position, order, number, time.
#[test]
fn recover_makes_an_index_again_that_says_what_is_not_so() {
    let place = Place::new();
    let log = place.open(&[("index.interval.bytes", "150")]);
    for number in 0..9 {
        append_at(&log, NOW + number, "k", Some(&"v".repeat(50)));
    }
    log.close().unwrap();
    let before = place.data_files();
    let spoilt: [(&str, fn(&mut Vec<u8>)); 10] = [
        (".index", |bytes| bytes[3] -= 1),
        (".index", |bytes| bytes[7] ^= 1),
        (".index", |bytes| bytes[..16].rotate_left(8)),
        (".index", |bytes| bytes.truncate(bytes.len() - 3)),
        (".index", |bytes| {
            bytes.extend([0, 0, 0, 99, 0, 0, 0x27, 0x0f]);
        }),
        (".index", |bytes| bytes.fill(0)),
        (".timeindex", |bytes| bytes[7] ^= 1),
        (".timeindex", |bytes| bytes[11] -= 1),
        (".timeindex", |bytes| bytes.truncate(bytes.len() - 12)),
        (".timeindex", |bytes| bytes.truncate(bytes.len() - 5)),
    ];
    for (number, (suffix, spoil)) in spoilt.into_iter().enumerate() {
        let place = place.copy();
        place.edit(&file(0, suffix), spoil);
        let path = crate::common::path(&file(0, suffix));
        for dry_run in [true, false] {
            let report = recovered(&place, dry_run);
            let rebuilt: Vec<_> = report.rebuilt.iter().map(|(path, _)| path).collect();
            assert_eq!(rebuilt, [&path], "spoilt {number}");
        }
        assert_eq!(place.data_files(), before, "spoilt {number}");
    }
}

/// Contract 6: of what the batches say nothing is missing, and an append never goes back.
#[test]
fn lost_epochs_are_read_from_the_batches() {
    let losses: [fn(&Place); 2] = [
        |place| place.remove("leader-epoch-checkpoint"),
        |place| place.put("leader-epoch-checkpoint", b""),
    ];
    for (case, lose) in losses.into_iter().enumerate() {
        for (write, active_is_empty) in [
            (clean(), true),
            (clean(), false),
            (unclean(0), true),
            (unclean(0), false),
        ] {
            let place = Place::new();
            let log = place.open(&[]);
            for epoch in 0..6 {
                append_in(&log, epoch, &["v"]);
                if epoch % 2 == 1 && (epoch < 5 || active_is_empty) {
                    log.roll().unwrap();
                }
            }
            log.close().unwrap();
            let before = place.epochs();
            lose(&place);
            let log = place.try_again(write).unwrap();
            let ends: Vec<_> = (0..7)
                .map(|epoch| log.end_offset_for_epoch(epoch))
                .collect();
            let mut expected: Vec<_> = (0..6)
                .map(|epoch| Some((epoch, i64::from(epoch) + 1)))
                .collect();
            expected.push(None);
            assert_eq!(ends, expected, "case {case}");
            append(&log, &["next"]);
            let last = log.batches(Some(6), None).unwrap().next().unwrap();
            assert_eq!(last.unwrap().leader_epoch, 5, "case {case}");
            assert_eq!(place.epochs(), before, "case {case}");
        }
    }
}

/// Contract 9.6: lines beyond the end go.
#[test]
fn epochs_beyond_the_end_go() {
    for write in [clean(), unclean(0)] {
        let place = closed();
        place.put("leader-epoch-checkpoint", b"0\n2\n0 0\n7 900\n");
        let log = place.try_again(write).unwrap();
        assert_eq!(
            (log.leader_epoch().unwrap(), place.epochs()),
            (Some(0), "0\n1\n0 0\n".to_owned())
        );
    }
}

#[test]
fn epochs_that_do_not_parse_are_set_aside() {
    let place = closed();
    place.put("leader-epoch-checkpoint", b"nonsense");
    let error = place.try_again(WriteOptions::default()).unwrap_err();
    assert_eq!(error.kind().code(), "Checkpoint", "{error}");
    let report = recovered(&place, false);
    assert_eq!(kept(&place, &report), b"nonsense");
    assert_eq!(place.epochs(), "0\n1\n0 0\n");
    assert_eq!(records(&place.again()), numbered(0, 12));
}

/// Contract 12.12: without its index a broker would serve what was aborted. One that is empty is as good as none.
#[test]
fn a_lost_transaction_index() {
    let losses: [fn(&Place); 2] = [
        |place| place.remove(&file(0, ".txnindex")),
        |place| place.put(&file(0, ".txnindex"), b""),
    ];
    for lose in losses {
        for write in [clean(), unclean(0), unclean(4)] {
            let place = Place::new();
            let log = place.open(&[]);
            produce(&log, (1, 0, 0), true, &["aborted"]).unwrap();
            end(&log, 1, 0, false).unwrap();
            append(&log, &["plain"]);
            log.roll().unwrap();
            append(&log, &["plain"]);
            log.close().unwrap();
            let before = place.bytes(&file(0, ".txnindex"));
            lose(&place);
            let expected = [(2, "plain".to_owned()), (3, "plain".to_owned())];
            assert_eq!(crate::common::committed(&place.reader()), expected);
            let log = place.try_again(write).unwrap();
            assert_eq!(crate::common::committed(&log), expected);
            assert_eq!(place.bytes(&file(0, ".txnindex")), before);
        }
    }
}

/// Whatever byte of the files beside the records is wrong, opening works or refuses; it never loses or changes a record.
#[test]
fn any_wrong_byte_beside_the_records() {
    let source = with_companions();
    let expected = logs(&source);
    let mut refused = 0;
    for (name, bytes) in source.files() {
        if name.ends_with(".log") || name == ".offsetlog.lock" {
            continue;
        }
        for at in (0..bytes.len()).step_by(5) {
            let place = source.copy();
            place.edit(&name, |bytes| bytes[at] ^= 0x11);
            match place.try_again(WriteOptions::default()) {
                Ok(log) => {
                    let is_state = name == ".offsetlog.state";
                    assert!(is_state || records(&log) == numbered(0, 12), "{name} {at}");
                    log.abandon();
                }
                Err(error) => {
                    assert!(error.path().is_some(), "{error}");
                    refused += 1;
                }
            }
            assert_eq!(logs(&place), expected, "{name} {at}");
        }
    }
    assert!(refused > 0);
}

/// Kafka makes no time index entry for "no timestamp". Whoever follows one finds that the batch it points at has none either,
/// and would miss what stands between.
#[test]
fn a_time_index_entry_without_a_timestamp_is_no_entry() {
    let place = Place::new();
    let log = place.open(&[]);
    for timestamp in [-1, NOW, -1] {
        append_at(&log, timestamp, "k", Some("v"));
    }
    log.close().unwrap();
    let entry = [(-1_i64).to_be_bytes().as_slice(), &2_i32.to_be_bytes()].concat();
    place.put(&file(0, ".timeindex"), &entry);
    let found = place
        .reader()
        .offset_for_timestamp(0, Isolation::ReadUncommitted)
        .unwrap()
        .unwrap();
    assert_eq!((found.offset, found.timestamp), (1, NOW));
}
