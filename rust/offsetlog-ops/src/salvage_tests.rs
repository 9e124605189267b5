//! Damaged directories of real brokers, and logs of ours that were cut, appended to, truncated and compacted.

#[path = "salvage_left_out_tests.rs"]
mod left_out;
#[path = "salvage_truncated_tests.rs"]
mod truncated;

use super::*;
use offsetlog::{
    AppendOptions, BatchBuilder, LogConfig, LogWriter, RecoverOptions, VerifyOptions, WriteOptions,
    recover, verify,
};
use offsetlog_faults::batch::crc32c;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileExt;

const GOLDEN: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/data/kafka-4.3.0/torn/log-dir-1"
);
const SEGMENT: &str = "00000000000000000000.log";

type Row = (i64, i64, Option<Vec<u8>>, Option<Vec<u8>>);

fn rows(path: &Path) -> Vec<Row> {
    let log = Log::open(path, &OpenOptions::default()).unwrap();
    let options = ScanOptions {
        on_corrupt: OnCorrupt::Skip,
        ..ScanOptions::default()
    };
    let mut scan = log.scan(&options).unwrap();
    let mut rows = Vec::new();
    while let Some(mut batch) = scan.next_batch().unwrap() {
        while let Some(record) = batch.next_record().unwrap() {
            rows.push((
                record.offset,
                record.timestamp,
                record.key.map(<[u8]>::to_vec),
                record.value.map(<[u8]>::to_vec),
            ));
        }
    }
    rows
}

fn offsets(path: &Path) -> Vec<i64> {
    rows(path).into_iter().map(|row| row.0).collect()
}

fn is_sound(path: &Path) {
    let found = verify(&[path], &OpenOptions::default(), &VerifyOptions::default()).unwrap();
    assert!(!found.is_damaged(), "{found:?}");
}

/// All files below, with their bytes and the times that they were changed.
fn tree(path: &Path) -> BTreeMap<PathBuf, (Vec<u8>, std::time::SystemTime)> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        let changed = entry.metadata().unwrap().modified().unwrap();
        if entry.file_type().unwrap().is_dir() {
            files.extend(tree(&entry.path()));
            files.insert(entry.path(), (Vec::new(), changed));
        } else {
            files.insert(entry.path(), (fs::read(entry.path()).unwrap(), changed));
        }
    }
    files
}

/// A folder with the log `orders-0`.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn old(&self) -> PathBuf {
        self.0.path().join("old/orders-0")
    }

    fn made(&self) -> PathBuf {
        self.0.path().join("new/orders-0")
    }

    fn open(&self, config: &[(&str, &str)]) -> LogWriter {
        let config = LogConfig::parse(config.iter().copied()).unwrap();
        let write = WriteOptions {
            config: Some(config),
            ..WriteOptions::default()
        };
        LogWriter::open(self.old(), &OpenOptions::default(), &write).unwrap()
    }

    /// Appends batches of three records, with `word` in their values.
    fn append(&self, batches: usize, word: &str, epoch: i32) {
        let log = self.open(&[]);
        append(&log, batches, word, epoch);
        log.close().unwrap();
    }

    /// Changes bytes of the batch that begins at `offset`, and says where it stands.
    fn damage(&self, offset: i64) -> u64 {
        let log = Log::open(self.old(), &OpenOptions::default()).unwrap();
        let batch = log.batches(Some(offset), None).unwrap().next().unwrap();
        let batch = batch.unwrap();
        assert_eq!(batch.base_offset, offset);
        let path = self.old().join(format!("{:020}.log", batch.segment));
        let file = fs::File::options().write(true).open(path).unwrap();
        file.write_at(&[0xff; 4], batch.position + 70).unwrap();
        batch.position
    }

    /// Gives the batch that begins at `offset` a codec that does not exist, and the checksum that is right for it.
    fn make_undecodable(&self, offset: i64) {
        let log = Log::open(self.old(), &OpenOptions::default()).unwrap();
        let batch = log.batches(Some(offset), None).unwrap().next().unwrap();
        let batch = batch.unwrap();
        assert_eq!(batch.base_offset, offset);
        let path = self.old().join(format!("{:020}.log", batch.segment));
        let file = fs::File::options().read(true).write(true).open(path);
        let file = file.unwrap();
        let mut bytes = vec![0; batch.size_bytes as usize];
        file.read_exact_at(&mut bytes, batch.position).unwrap();
        bytes[22] = 7;
        let sum = crc32c(&bytes[21..]);
        bytes[17..21].copy_from_slice(&sum.to_be_bytes());
        file.write_all_at(&bytes, batch.position).unwrap();
    }

    /// As if recovery had kept these bytes, which stood at `position`.
    fn keep(&self, position: u64, bytes: &[u8]) {
        let kept = self.old().join("offsetlog-cut");
        fs::create_dir_all(&kept).unwrap();
        fs::write(kept.join(format!("{SEGMENT}.{position}")), bytes).unwrap();
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(self.old().join(SEGMENT)).unwrap()
    }

    fn recover(&self) {
        recover(
            self.old(),
            &OpenOptions::default(),
            &RecoverOptions::default(),
        )
        .unwrap();
    }

    fn salvage(&self, how: &SalvageOptions) -> SalvageReport {
        let before = tree(&self.old());
        let report = salvage(self.old(), self.made(), &OpenOptions::default(), how).unwrap();
        assert_eq!(tree(&self.old()), before);
        if !how.dry_run {
            is_sound(&self.made());
        }
        report
    }
}

fn append(log: &LogWriter, batches: usize, word: &str, epoch: i32) {
    let mut batch = BatchBuilder::default();
    for _ in 0..batches {
        for number in 0..3 {
            let value = format!("{word}-{}-{number}", log.log_end_offset().unwrap());
            let time = 1_700_000_000_000 + log.log_end_offset().unwrap();
            batch
                .push(time, Some(b"key"), Some(value.as_bytes()), &[])
                .unwrap();
        }
        let options = AppendOptions {
            leader_epoch: Some(epoch),
            ..AppendOptions::default()
        };
        log.append(&mut batch, &options).unwrap();
    }
}

#[test]
fn torn_directories_of_a_broker_give_what_a_skipping_scan_reads() {
    let place = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(GOLDEN).unwrap() {
        let source = entry.unwrap().path();
        if !source.is_dir() {
            continue;
        }
        let before = tree(&source);
        let into = place.path().join(source.file_name().unwrap());
        let options = OpenOptions::default();
        let dry = SalvageOptions {
            dry_run: true,
            ..SalvageOptions::default()
        };
        let planned = salvage(&source, &into, &options, &dry).unwrap();
        assert!(!into.exists());
        let report = salvage(&source, &into, &options, &SalvageOptions::default()).unwrap();
        assert_eq!(
            SalvageReport {
                dry_run: false,
                ..planned
            },
            report
        );
        assert_eq!(rows(&into), rows(&source), "{}", source.display());
        assert_eq!(report.built.records as usize, rows(&into).len());
        assert_eq!(tree(&source), before);
        is_sound(&into);
    }
}

#[test]
fn losses_have_offsets_records_and_times() {
    let place = Place::new();
    place.append(6, "first", 0);
    place.damage(6);
    let report = place.salvage(&SalvageOptions::default());
    assert_eq!(
        offsets(&place.made()),
        (0..6).chain(9..18).collect::<Vec<_>>()
    );
    let [loss] = report.losses.as_slice() else {
        panic!("{:?}", report.losses);
    };
    assert_eq!(
        (loss.hole.start, loss.hole.stop, loss.records_max()),
        (6, Some(9), Some(3))
    );
    assert_eq!(loss.time_before, Some(1_700_000_000_003));
    assert_eq!(loss.time_after, Some(1_700_000_000_009));
    assert!(report.has_losses());
    assert_eq!(report.built.log_end_offset, 18);
}

#[test]
fn what_recovery_cut_comes_back_behind_the_end() {
    let place = Place::new();
    place.append(6, "first", 0);
    place.damage(6);
    place.recover();
    assert_eq!(offsets(&place.old()), (0..6).collect::<Vec<_>>());
    let report = place.salvage(&SalvageOptions::default());
    assert_eq!(
        offsets(&place.made()),
        (0..6).chain(9..18).collect::<Vec<_>>()
    );
    let [taken] = report.taken_back.as_slice() else {
        panic!("{:?}", report.taken_back);
    };
    assert_eq!(
        (taken.first_offset, taken.last_offset, taken.records),
        (9, 17, 9)
    );
    // The damaged batch itself.
    let [left] = report.left_out.as_slice() else {
        panic!("{:?}", report.left_out);
    };
    assert_eq!((left.batches, left.first_offset), (0, 0));
}

#[test]
fn the_live_log_wins() {
    let place = Place::new();
    place.append(6, "first", 0);
    place.damage(6);
    place.recover();
    // 6 to 11 are given again.
    place.append(2, "second", 1);
    let report = place.salvage(&SalvageOptions::default());
    let salvaged = rows(&place.made());
    let values: Vec<_> = salvaged
        .iter()
        .filter(|row| row.0 >= 6)
        .map(|row| String::from_utf8_lossy(row.3.as_deref().unwrap()).into_owned())
        .collect();
    assert!(
        values.iter().all(|value| value.starts_with("second")),
        "{values:?}"
    );
    assert_eq!(salvaged.len(), 12);
    // 9 to 11 are the live log's, and 12 to 17 are of an older epoch than the batches before them now.
    let reasons: Vec<_> = report
        .left_out
        .iter()
        .filter(|left| left.batches > 0)
        .collect();
    assert_eq!(reasons.len(), 2, "{reasons:?}");
    assert_eq!(
        (reasons[0].first_offset, reasons[0].last_offset),
        (9, Some(11))
    );
    assert_eq!(
        (reasons[1].first_offset, reasons[1].last_offset),
        (12, Some(17))
    );
    assert!(report.taken_back.is_empty());
}

#[test]
fn a_hole_of_the_live_log_is_filled_and_nothing_else() {
    let place = Place::new();
    place.append(6, "first", 0);
    let whole = fs::read(place.old().join(SEGMENT)).unwrap();
    let position = place.damage(6);
    // As if recovery had kept the bytes before they were damaged.
    let kept = place.old().join("offsetlog-cut");
    fs::create_dir(&kept).unwrap();
    fs::write(
        kept.join(format!("{SEGMENT}.{position}")),
        &whole[position as usize..],
    )
    .unwrap();
    let report = place.salvage(&SalvageOptions::default());
    assert_eq!(offsets(&place.made()), (0..18).collect::<Vec<_>>());
    assert_eq!(report.losses[0].taken_back, 3);
    assert_eq!(report.losses[0].records_max(), Some(0));
    assert!(!report.has_losses());
    assert_eq!(report.taken_back[0].records, 3);
}

#[test]
fn what_retention_and_compaction_removed_stays_removed() {
    let place = Place::new();
    let log = place.open(&[
        ("cleanup.policy", "compact"),
        ("min.cleanable.dirty.ratio", "0"),
    ]);
    append(&log, 6, "first", 0);
    log.delete_records_before(3).unwrap();
    log.close().unwrap();
    let whole = fs::read(place.old().join(SEGMENT)).unwrap();
    let log = place.open(&[
        ("cleanup.policy", "compact"),
        ("min.cleanable.dirty.ratio", "0"),
    ]);
    log.roll().unwrap();
    log.compact(&offsetlog::CompactOptions::default()).unwrap();
    log.close().unwrap();
    let kept = place.old().join("offsetlog-cut");
    fs::create_dir(&kept).unwrap();
    fs::write(kept.join(format!("{SEGMENT}.0")), &whole).unwrap();
    let live = rows(&place.old());
    assert!(live.len() < 15, "{live:?}");
    let report = place.salvage(&SalvageOptions::default());
    assert_eq!(rows(&place.made()), live);
    assert!(report.taken_back.is_empty(), "{:?}", report.taken_back);
}

#[test]
fn of_kept_files_that_overlap_one_is_taken_and_the_other_listed() {
    let place = Place::new();
    for word in ["first", "second"] {
        // Three batches stay, and what follows the damaged one is kept.
        let end = if word == "first" { 0 } else { 9 };
        place.append(6 - end / 3, word, 0);
        place.damage(9);
        place.recover();
    }
    let report = place.salvage(&SalvageOptions::default());
    assert_eq!(
        offsets(&place.made()),
        (0..9).chain(12..18).collect::<Vec<_>>()
    );
    let words: BTreeSet<String> = rows(&place.made())
        .into_iter()
        .filter(|row| row.0 >= 12)
        .filter_map(|row| {
            Some(
                String::from_utf8(row.3?)
                    .ok()?
                    .split('-')
                    .next()?
                    .to_owned(),
            )
        })
        .collect();
    assert_eq!(words.len(), 1, "{words:?}");
    assert_eq!(report.taken_back.len(), 1);
    let left: Vec<_> = report
        .left_out
        .iter()
        .filter(|left| left.batches > 0)
        .map(|left| (left.batches, left.first_offset, left.last_offset))
        .collect();
    assert_eq!(left, [(2, 12, Some(17))]);
    let taken_from = report.taken_back[0].path.display().to_string();
    assert!(report.left_out.iter().any(|left| {
        left.reason == format!("they overlap batches that were taken from {taken_from}")
    }));
}

#[test]
fn segments_are_no_longer_in_time_than_those_of_the_log() {
    const DAY: i64 = 86_400_000;
    let place = Place::new();
    let log = place.open(&[("segment.ms", "604800000")]);
    let mut batch = BatchBuilder::default();
    for day in 0..30 {
        let time = 1_700_000_000_000 + day * DAY;
        batch.push(time, None, Some(b"value"), &[]).unwrap();
        log.append(&mut batch, &AppendOptions::default()).unwrap();
    }
    log.close().unwrap();
    let report = place.salvage(&SalvageOptions::default());
    assert_eq!(report.built.records, 30);
    let bases = |path: PathBuf| {
        let log = Log::open(path, &OpenOptions::default()).unwrap();
        let segments = log.segments().unwrap();
        segments
            .iter()
            .map(|segment| segment.base_offset)
            .collect::<Vec<_>>()
    };
    // Seven days and the batch that begins them, as `LogSegment.shouldRoll` has it.
    assert_eq!(bases(place.old()), [0, 8, 16, 24]);
    assert_eq!(bases(place.made()), [0, 8, 16, 24]);
}

#[test]
fn what_a_writer_appends_meanwhile_is_left_out_and_leaves_no_gap() {
    let place = Place::new();
    let log = Arc::new(place.open(&[]));
    let mut batch = BatchBuilder::default();
    for _ in 0..4 {
        batch
            .push(1_700_000_000_000, None, Some(&vec![7; 700_000]), &[])
            .unwrap();
        log.append(&mut batch, &AppendOptions::default()).unwrap();
    }
    let writer = Arc::clone(&log);
    let how = SalvageOptions {
        progress: Some(Arc::new(move |_, _| append(&writer, 1, "late", 0))),
        ..SalvageOptions::default()
    };
    let report = salvage(place.old(), place.made(), &OpenOptions::default(), &how).unwrap();
    let found = offsets(&place.made());
    assert!(log.log_end_offset().unwrap() > 4);
    assert_eq!(found, (0..report.built.log_end_offset).collect::<Vec<_>>());
    log.close().unwrap();
}

#[test]
fn an_interrupted_salvage_leaves_nothing_and_refuses_what_is_there() {
    let place = Place::new();
    place.append(6, "first", 0);
    let options = OpenOptions {
        interrupt: Some(Arc::new(|| true)),
        ..OpenOptions::default()
    };
    let how = SalvageOptions::default();
    assert!(salvage(place.old(), place.made(), &options, &how).is_err());
    let left = fs::read_dir(place.0.path().join("new")).map_or(0, Iterator::count);
    assert_eq!(left, 0);
    place.salvage(&how);
    let again = salvage(place.old(), place.made(), &OpenOptions::default(), &how);
    assert!(again.unwrap_err().to_string().contains("not empty"));
    let inside = place.old().join("new/orders-0");
    let refused = salvage(place.old(), inside, &OpenOptions::default(), &how);
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("choose another place")
    );
}

#[test]
fn every_reading_verb_takes_a_kept_file() {
    let place = Place::new();
    place.append(6, "first", 0);
    place.damage(6);
    place.recover();
    let log = Log::open(place.old(), &OpenOptions::default()).unwrap();
    let [kept] = log.set_aside_files().unwrap().try_into().unwrap();
    assert_eq!((kept.base_offset, kept.cut_at.is_some()), (0, true));
    assert_eq!(offsets(&kept.path), (9..18).collect::<Vec<_>>());
    let opened = offsetlog::LogDir::open(&[&kept.path], &OpenOptions::default()).unwrap();
    let log = opened.log("orders", 0).unwrap();
    let last = ScanOptions {
        start: Some(17),
        on_corrupt: OnCorrupt::Skip,
        ..ScanOptions::default()
    };
    assert_eq!(log.scan(&last).unwrap().count_records().unwrap(), 1);
    let both = offsetlog::LogDir::open(&[&kept.path, &place.old()], &OpenOptions::default());
    assert!(both.unwrap_err().to_string().contains("no replica"));
    let write = LogWriter::open(
        &kept.path,
        &OpenOptions::default(),
        &WriteOptions::default(),
    );
    assert!(write.is_err());
}

/// Each loss: its offsets, and how many of them came back.
fn losses(report: &SalvageReport) -> Vec<(i64, Option<i64>, u64)> {
    let all = report.losses.iter();
    all.map(|loss| (loss.hole.start, loss.hole.stop, loss.taken_back))
        .collect()
}

#[test]
fn a_batch_that_cannot_be_decoded_is_a_loss() {
    let place = Place::new();
    place.append(3, "first", 0);
    place.make_undecodable(3);
    let report = place.salvage(&SalvageOptions::default());
    assert_eq!(losses(&report), [(3, Some(6), 0)]);
    assert!(report.has_losses());
    assert_eq!(offsets(&place.made()), [0, 1, 2, 6, 7, 8]);
}

#[test]
fn a_batch_that_cannot_be_decoded_is_a_loss_beside_a_hole_that_is_filled() {
    let place = Place::new();
    place.append(5, "first", 0);
    let whole = place.bytes();
    place.make_undecodable(3);
    let position = place.damage(6);
    place.keep(position, &whole[position as usize..]);
    let report = place.salvage(&SalvageOptions::default());
    assert_eq!(losses(&report), [(3, Some(6), 0), (6, Some(9), 3)]);
    assert!(report.has_losses());
    assert_eq!(
        offsets(&place.made()),
        (0..3).chain(6..15).collect::<Vec<_>>()
    );
}

#[test]
fn a_kept_batch_that_cannot_be_decoded_fills_no_hole() {
    let place = Place::new();
    place.append(5, "first", 0);
    let whole = place.bytes();
    place.make_undecodable(6);
    let kept = place.bytes();
    fs::write(place.old().join(SEGMENT), whole).unwrap();
    let position = place.damage(6);
    place.keep(position, &kept[position as usize..]);
    let report = place.salvage(&SalvageOptions::default());
    assert_eq!(losses(&report), [(6, Some(9), 0)]);
    assert!(report.has_losses());
    let left = report.left_out.iter().map(|left| left.first_offset);
    assert!(left.eq([6, 9]), "{:?}", report.left_out);
}

#[test]
fn a_hole_before_compressed_old_messages_is_looked_at_alone() {
    for fills_both in [false, true] {
        let place = Place::new();
        let mut parts = crate::restore::around_old_messages();
        let whole = parts.concat();
        let at = |part: usize| parts[..part].concat().len();
        let kept = at(if fills_both { 1 } else { 3 });
        for part in [1, 3] {
            parts[part][70] ^= 0xff;
        }
        fs::create_dir_all(place.old()).unwrap();
        fs::write(place.old().join(SEGMENT), parts.concat()).unwrap();
        place.keep(kept as u64, &whole[kept..]);
        let report = place.salvage(&SalvageOptions::default());
        let first = if fills_both { 3 } else { 0 };
        assert_eq!(losses(&report), [(3, Some(6), first), (9, Some(12), 3)]);
        assert_eq!(report.has_losses(), !fills_both);
    }
}
