//! An append whose records are in the log, and what follows them fails: what the error says, so that nobody appends them again.

use crate::common::{Place, append, builder, end, follow, offsets, sent};
use offsetlog::{AppendLogOptions, AppendOptions, Producer};
use offsetlog_faults::fault::{Call, FaultDisk, Plan};

/// The first sync from now on fails.
fn fail_sync(disk: &FaultDisk) {
    disk.set(Plan {
        kinds: |call, _| call == Call::Sync,
        nth: 1,
        ..Plan::none()
    });
}

const FLUSHED: AppendOptions = AppendOptions {
    leader_epoch: None,
    flush: true,
};

/// A caller that tries again with what is left in the builder would append the records twice.
#[test]
fn an_error_behind_an_append_leaves_no_record_in_the_builder() {
    let mut behind = 0;
    for nth in 1.. {
        let place = Place::new();
        let disk = FaultDisk::over(&place.disk, Plan::none());
        let log = place.open_over(&disk, &[("internal.segment.bytes", "100")]);
        append(&log, &["a"]);
        let mut batch = builder(Producer::default(), &["b"]);
        disk.set(Plan {
            kinds: |call, _| call.is_change(),
            nth,
            ..Plan::none()
        });
        // The gap is written down behind the append.
        let appended = log.append_at(&mut batch, 50, &AppendOptions::default());
        let is_failed = !disk.failed().is_empty();
        match &appended {
            Ok(_) => assert!(batch.is_empty(), "call {nth}"),
            Err(error) => {
                assert_eq!(batch.is_empty(), error.is_appended(), "call {nth}: {error}");
                let offsets = error
                    .appended()
                    .map(|info| (info.base_offset, info.last_offset));
                assert!(
                    offsets.is_none_or(|found| found == (50, 50)),
                    "call {nth}: {offsets:?}"
                );
                behind += usize::from(error.is_appended());
            }
        }
        log.abandon();
        if !is_failed {
            break;
        }
    }
    assert!(behind > 0);
}

/// A sync that fails behind an append: what a caller has to know in order not to append the records again.
#[test]
fn an_error_behind_an_append_says_what_is_in_the_log() {
    let place = Place::new();
    let disk = FaultDisk::over(&place.disk, Plan::none());
    let log = place.open_over(&disk, &[]);
    append(&log, &["a"]);
    let from = Place::new();
    let source = from.open(&[]);
    append(&source, &["x", "y"]);
    append(&source, &["z"]);
    fail_sync(&disk);
    let options = AppendLogOptions {
        append: FLUSHED,
        ..AppendLogOptions::default()
    };
    let error = log.append_log(&source, &options).unwrap_err();
    let told = error.appended().unwrap();
    assert_eq!((told.base_offset, told.last_offset), (1, 3));
    assert_eq!(offsets(&log), [0, 1, 2, 3]);
}

/// Of a log that is appended in parts only the last part's error says that all is there.
#[test]
fn an_error_behind_a_part_of_a_log_does_not_say_that_all_is_there() {
    let from = Place::new();
    let source = from.open(&[]);
    let gap = |base: i64, value| sent(&[value]).base(base).epoch(0).0;
    follow(&source, &gap(10, "x"), 0).unwrap();
    end(&source, 7, 0, true).unwrap();
    follow(&source, &gap(40, "y"), 0).unwrap();
    let mut told = Vec::new();
    for nth in 1.. {
        let place = Place::new();
        let disk = FaultDisk::over(&place.disk, Plan::none());
        let log = place.open_over(&disk, &[("internal.segment.bytes", "160")]);
        append(&log, &["a"]);
        disk.set(Plan {
            kinds: |call, _| call.is_change(),
            nth,
            ..Plan::none()
        });
        let options = AppendLogOptions {
            keep_offsets: true,
            ..AppendLogOptions::default()
        };
        let appended = log.append_log(&source, &options);
        if disk.failed().is_empty() {
            break;
        }
        if let Err(error) = appended {
            let is_whole = log.log_end_offset().unwrap() == 41;
            assert_eq!(error.is_appended(), is_whole, "call {nth}: {error}");
            told.push(is_whole);
        }
        log.abandon();
    }
    assert!(told.contains(&true) && told.contains(&false), "{told:?}");
}

/// Rows become several batches, and the sync is behind the last one.
#[cfg(feature = "arrow")]
#[test]
fn rows_whose_sync_failed_count_as_appended() {
    use arrow_array::{ArrayRef, BinaryArray, RecordBatch};
    use offsetlog::arrow::{ArrowAppendOptions, ArrowRows};

    let place = Place::new();
    let disk = FaultDisk::over(&place.disk, Plan::none());
    let log = place.open_over(&disk, &[]);
    append(&log, &["a"]);
    let values = BinaryArray::from_iter_values((0..9).map(|number| vec![number; 100]));
    let values: ArrayRef = std::sync::Arc::new(values);
    let batch = RecordBatch::try_from_iter([("value", values)]).unwrap();
    let mut rows = ArrowRows::new(&batch.schema()).unwrap();
    rows.push(&batch).unwrap();
    fail_sync(&disk);
    let options = ArrowAppendOptions {
        batch_bytes: 500,
        append: FLUSHED,
        ..ArrowAppendOptions::default()
    };
    let error = rows.append(&log, &options).unwrap_err();
    let (count, info) = rows.appended().unwrap();
    assert_eq!((count, info.base_offset, info.last_offset), (9, 1, 9));
    let told = error.appended().unwrap();
    assert_eq!((told.base_offset, told.last_offset), (1, 9));
    assert_eq!(offsets(&log), (0..10).collect::<Vec<_>>());
    assert_eq!(place.batches(0).len(), 4);
}
