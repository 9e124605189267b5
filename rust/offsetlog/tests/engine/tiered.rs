//! The local part of topics with tiered storage: what is older is only in the remote store, and the log begins below its first segment.

use crate::common::{
    Place, append, append_in, bases, bounds, file, fill, offsets, recovered, unclean,
};
use offsetlog::disk::{Access, Disk};
use offsetlog::{LogWriter, MaintainOptions, RecoverOptions, WriteOptions, recover};
use offsetlog_faults::run::PARTITION;
use std::path::Path;

const STARTS: &str = "/sim/logs/log-start-offset-checkpoint";
const POINTS: &str = "/sim/logs/recovery-point-offset-checkpoint";
const RETAINED: [(&str, &str); 1] = [("retention.ms", "-1")];

fn put(place: &Place, path: &str, text: &str) {
    let file = place.disk.open(Path::new(path), Access::Replace).unwrap();
    file.write_at(text.as_bytes(), 0).unwrap();
}

/// The partition's line in the checkpoint of the log start offsets.
fn line(place: &Place) -> Option<i64> {
    let bytes = place
        .disk
        .look(|world| world.bytes(Path::new(STARTS)).map(<[u8]>::to_vec));
    let text = String::from_utf8(bytes.unwrap_or_default()).unwrap();
    text.lines()
        .find_map(|line| line.strip_prefix("orders 0 ")?.parse().ok())
}

/// Records 4 to 11 in segments from 4 and 8, as a broker leaves them that has copied the first segment away. Another partition has a line.
fn tiered() -> Place {
    let place = Place::new();
    let log = place.open(&RETAINED);
    fill(&log, 6, &[2, 4]);
    log.close().unwrap();
    copied_away(&place, "0\n2\norders 0 0\nother 3 5\n");
    place
}

/// Leaves what a broker leaves that has copied the first segment away and ended cleanly, with these log start offsets.
fn copied_away(place: &Place, starts: &str) {
    for suffix in [".log", ".index", ".timeindex", ".txnindex", ".snapshot"] {
        if place.has(&file(0, suffix)) {
            place.remove(&file(0, suffix));
        }
    }
    place.remove(".offsetlog.state");
    put(place, STARTS, starts);
    put(place, POINTS, "0\n1\norders 0 12\n");
    put(
        place,
        "/sim/logs/.kafka_cleanshutdown",
        "{\"version\":0,\"brokerEpoch\":17}",
    );
}

/// What opening for appending fails with.
fn refusal(place: &Place) -> String {
    place
        .try_again(WriteOptions::default())
        .unwrap_err()
        .to_string()
}

fn maintained(log: &LogWriter) -> Vec<i64> {
    let report = log.maintain(&MaintainOptions::default()).unwrap();
    report.removed.iter().map(|one| one.base_offset).collect()
}

#[test]
fn a_start_below_the_first_segment_stays_as_it_was_found() {
    type Act = fn(&Place);
    let acts: [(&str, Act); 9] = [
        ("append", |place| {
            let log = place.again();
            append(&log, &["new"]);
            log.close().unwrap();
        }),
        ("roll and flush", |place| {
            let log = place.again();
            append(&log, &["new"]);
            log.roll().unwrap();
            log.flush().unwrap();
            log.close().unwrap();
        }),
        ("truncate", |place| {
            let log = place.again();
            assert!(log.truncate_to(6).unwrap());
            assert_eq!(bounds(&log), (4, 6, 6));
            log.close().unwrap();
        }),
        ("truncate all that is here", |place| {
            let log = place.again();
            assert!(log.truncate_to(4).unwrap());
            log.close().unwrap();
        }),
        ("maintain", |place| {
            let log = place.again();
            append(&log, &["new"]);
            assert_eq!(maintained(&log), []);
            log.close().unwrap();
        }),
        ("recover", |place| {
            assert_eq!(recovered(place, false).log_start_offset, 4);
        }),
        ("recover the end", |place| {
            let options = RecoverOptions {
                from_offset: Some(9),
                ..RecoverOptions::default()
            };
            recover(PARTITION, &place.options(), &options).unwrap();
        }),
        ("a kill", |place| {
            let log = place.again();
            append(&log, &["new"]);
            log.abandon();
            let log = place.again();
            assert!(!log.recovery_report().clean);
            log.close().unwrap();
        }),
        ("damage", |place| {
            place.edit(&file(8, ".log"), |bytes| {
                bytes.pop();
            });
            place.try_again(unclean(0)).unwrap().close().unwrap();
        }),
    ];
    for (name, act) in acts {
        let place = tiered();
        act(&place);
        assert_eq!(line(&place), Some(0), "{name}");
        // Again, as the next program finds it.
        let log = place.again();
        assert_eq!(log.log_start_offset().unwrap(), 4, "{name}");
        append(&log, &["more"]);
        log.close().unwrap();
        assert_eq!(line(&place), Some(0), "{name}");
    }
}

#[test]
fn the_line_follows_a_start_that_moves() {
    let place = tiered();
    let log = place.again();
    // Records that are only in the remote store: nothing here changes, and the broker deletes them there.
    assert!(log.delete_records_before(3).unwrap());
    assert_eq!((line(&place), bounds(&log)), (Some(3), (4, 12, 12)));
    assert!(!log.delete_records_before(2).unwrap());
    assert!(log.delete_records_before(9).unwrap());
    assert_eq!(line(&place), Some(9));
    // The segments below go, and the line would go with them if the broker had no remote store.
    assert_eq!(maintained(&log), [4]);
    assert_eq!((bases(&log), line(&place)), (vec![8], Some(9)));
    assert!(log.truncate_to(8).unwrap());
    assert_eq!((bounds(&log), line(&place)), ((8, 8, 8), Some(8)));
    log.close().unwrap();
    assert_eq!(line(&place), Some(8));
    let log = place.again();
    // Below the first segment: as a follower's of a leader that was truncated there.
    assert!(log.truncate_to(2).unwrap());
    assert_eq!((bases(&log), line(&place)), (vec![2], Some(2)));
    log.truncate_fully_and_start_at(20, Some(7)).unwrap();
    assert_eq!((bases(&log), line(&place)), (vec![20], Some(7)));
    log.close().unwrap();
    let log = place.again();
    assert_eq!((offsets(&log), bounds(&log)), (vec![], (20, 20, 20)));
    log.close().unwrap();
    assert_eq!(line(&place), Some(7));
}

#[test]
fn the_line_stays_where_retention_reaches_the_start() {
    let place = tiered();
    put(&place, STARTS, "0\n1\norders 0 8\n");
    let log = place.again();
    assert_eq!(maintained(&log), [4]);
    log.close().unwrap();
    // It equals the first segment now: a broker with a remote store that finds no line takes 0.
    assert_eq!(line(&place), Some(8));
}

#[test]
fn a_log_without_a_line_gets_none() {
    let place = tiered();
    put(&place, STARTS, "0\n1\nother 3 5\n");
    let log = place.again();
    append(&log, &["new"]);
    assert!(!log.delete_records_before(3).unwrap());
    log.close().unwrap();
    recovered(&place, false);
    assert_eq!(line(&place), None);
    let log = place.again();
    assert!(log.delete_records_before(8).unwrap());
    assert_eq!(line(&place), Some(8));
    assert_eq!(maintained(&log), [4]);
    append(&log, &["more"]);
    log.close().unwrap();
    assert_eq!(line(&place), None);
}

#[test]
fn a_topic_that_is_known_to_be_tiered_keeps_its_line() {
    let place = tiered();
    put(&place, STARTS, "0\n0\n");
    let log = place.open(&[("retention.ms", "-1"), ("remote.storage.enable", "true")]);
    append(&log, &["new"]);
    log.flush().unwrap();
    log.close().unwrap();
    assert_eq!(line(&place), None);
    let log = place.again();
    assert!(log.truncate_to(1).unwrap());
    assert_eq!((bases(&log), line(&place)), (vec![1], Some(1)));
    log.close().unwrap();
    assert_eq!(line(&place), Some(1));
}

/// [`tiered`], with records 4 to 7 of epoch 5 and records 8 to 11 of epoch 7.
fn tiered_in_epochs() -> Place {
    let place = Place::new();
    let log = place.open(&RETAINED);
    for (epoch, values) in [(0, 2), (3, 2), (5, 4), (7, 4)] {
        if epoch >= 5 {
            log.roll().unwrap();
        }
        for number in 0..values {
            append_in(&log, epoch, &[&format!("v{number}")]);
        }
    }
    log.close().unwrap();
    assert_eq!(place.epochs(), "0\n4\n0 0\n3 2\n5 4\n7 8\n");
    copied_away(&place, "0\n1\norders 0 0\n");
    place
}

#[test]
fn epochs_of_what_is_only_in_the_remote_store_stay() {
    let whole = "0\n4\n0 0\n3 2\n5 4\n7 8\n";
    let without_five = "0\n3\n0 0\n3 2\n7 8\n";
    let all: &[&str] = &["open", "recover", "recover the end", "crash"];
    let cases = [
        (whole, whole, all),
        // The newest entries are lost: the batches have them.
        ("0\n3\n0 0\n3 2\n5 4\n", whole, all),
        ("0\n2\n0 0\n3 2\n", whole, &all[..2]),
        // As in a broker, only what is read is added.
        ("0\n2\n0 0\n3 2\n", without_five, &all[2..]),
        // An epoch that began before the first segment keeps its start.
        ("0\n3\n0 0\n3 2\n5 3\n", "0\n4\n0 0\n3 2\n5 3\n7 8\n", all),
        // The batches decide from the first segment on, and no epoch before it is above theirs.
        ("0\n3\n0 0\n3 2\n6 5\n", whole, &all[..1]),
        ("0\n3\n0 0\n3 2\n6 3\n", whole, &all[..1]),
    ];
    for (stored, expected, verbs) in cases {
        for &verb in verbs {
            let place = tiered_in_epochs();
            place.put("leader-epoch-checkpoint", stored.as_bytes());
            match verb {
                "open" => place.again().close().unwrap(),
                "crash" => place.try_again(unclean(9)).unwrap().close().unwrap(),
                verb => {
                    let options = RecoverOptions {
                        from_offset: (verb == "recover the end").then_some(9),
                        ..RecoverOptions::default()
                    };
                    recover(PARTITION, &place.options(), &options).unwrap();
                }
            }
            assert_eq!(place.epochs(), expected, "{verb} of {stored:?}");
        }
    }
}

#[test]
fn epochs_below_a_start_that_moves_go() {
    let place = tiered_in_epochs();
    let log = place.again();
    assert!(log.delete_records_before(3).unwrap());
    assert_eq!(place.epochs(), "0\n3\n3 3\n5 4\n7 8\n");
    log.close().unwrap();
    let log = place.again();
    append_in(&log, 9, &["new"]);
    log.close().unwrap();
    assert_eq!(place.epochs(), "0\n4\n3 3\n5 4\n7 8\n9 12\n");
    recovered(&place, false);
    assert_eq!(place.epochs(), "0\n4\n3 3\n5 4\n7 8\n9 12\n");
}

#[test]
fn lost_epochs_of_the_remote_store_are_told() {
    let lost = "the leader epochs of offsets 0 to 3 are lost";
    for (name, spoil) in [
        ("missing", None),
        ("empty", Some("")),
        ("malformed", Some("0\n2\n0 0\n")),
    ] {
        let place = tiered_in_epochs();
        match spoil {
            None => place.remove("leader-epoch-checkpoint"),
            Some(text) => place.put("leader-epoch-checkpoint", text.as_bytes()),
        }
        let before = place.data_files();
        let error = place.try_again(unclean(9)).unwrap_err().to_string();
        let refused = refusal(&place);
        if name != "malformed" {
            assert!(
                error.contains(lost) && refused.contains(lost),
                "{name}: {error}"
            );
        }
        assert_eq!(place.data_files(), before, "{name}");
        let report = recovered(&place, true);
        let is_told = |warnings: &[String]| warnings.iter().any(|line| line.contains(lost));
        assert!(is_told(&report.warnings), "{name}: {report:?}");
        assert_eq!(place.data_files(), before, "{name}");
        let report = recovered(&place, false);
        assert!(is_told(&report.warnings), "{name}: {report:?}");
        assert_eq!(place.epochs(), "0\n2\n5 4\n7 8\n", "{name}");
        // Told once: nothing shows later what was lost.
        let log = place.again();
        append(&log, &["new"]);
        log.close().unwrap();
    }
    // Nothing is lost of a log that begins with its first segment.
    let place = tiered_in_epochs();
    put(&place, STARTS, "0\n0\n");
    place.remove("leader-epoch-checkpoint");
    place.again().close().unwrap();
    assert_eq!(place.epochs(), "0\n2\n5 4\n7 8\n");
}

#[test]
fn an_empty_end_of_a_tiered_log_tells_of_lost_epochs() {
    let place = tiered_in_epochs();
    let log = place.again();
    log.roll().unwrap();
    log.close().unwrap();
    for base in [4, 8] {
        for suffix in [".log", ".index", ".timeindex", ".snapshot"] {
            if place.has(&file(base, suffix)) {
                place.remove(&file(base, suffix));
            }
        }
    }
    place.remove("leader-epoch-checkpoint");
    let log = place.again();
    let told = "the leader epochs of offsets 0 to 11 are lost";
    assert!(log.warnings().iter().any(|line| line.contains(told)));
    log.close().unwrap();
}
