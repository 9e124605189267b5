//! Loading alone, without a writer: directories of a real broker, whole and robbed, beside the files that the broker itself kept of them.

use super::*;
use crate::OpenOptions;
use crate::log::open::directory;
use offsetlog_format::snapshot::{ProducerSnapshotEntry, read_producer_snapshot};
use std::fs;
use std::path::{Path, PathBuf};

/// Before any producer of the golden data expires.
const NOW: i64 = 1_700_000_000_000;
const LAST_SEGMENT: &str = "00000000000000000050.log";

/// A copy of a partition with transactions: segments 0, 2 and 50, closed by Kafka 4.3.0 at offset 81.
struct Copied(tempfile::TempDir);

impl Copied {
    fn new() -> Self {
        let from = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/data/kafka-4.3.0/clean/log-dir-2/g-txn-1");
        let copy = Self(tempfile::tempdir().unwrap());
        fs::create_dir(copy.path()).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
        copy
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("g-txn-1")
    }

    fn load(&self, start: Start, dry_run: bool) -> Loaded {
        let directory = directory(&self.path(), &OpenOptions::default(), true, None).unwrap();
        // As the topic had it.
        let config = LogConfig::parse([("index.interval.bytes", "512")]).unwrap();
        let terms = LoadOptions {
            start,
            cut_batches: false,
            dry_run,
            now: NOW,
            warnings: Vec::new(),
            progress: None,
        };
        let (topic, partition) = (&directory.topic, directory.partition);
        let place = PartitionState::new(&directory, topic, partition, None).unwrap();
        load(&directory, &config, terms, &place, None).unwrap()
    }

    /// All files with their bytes.
    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(self.path()).unwrap();
        let files = entries.map(|entry| entry.unwrap().path());
        let files = files.filter(|path| path.is_file());
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        files
            .map(|path| (name(&path), fs::read(&path).unwrap()))
            .collect()
    }

    fn append(&self, bytes: &[u8]) {
        let path = self.path().join(LAST_SEGMENT);
        let mut all = fs::read(&path).unwrap();
        all.extend_from_slice(bytes);
        fs::write(path, all).unwrap();
    }
}

fn clean() -> Start {
    Start {
        clean: true,
        recovery_point: 81,
        durable: 81,
        ..Start::default()
    }
}

fn by_id(mut entries: Vec<ProducerSnapshotEntry>) -> Vec<ProducerSnapshotEntry> {
    entries.sort_by_key(|entry| entry.producer_id);
    entries
}

/// What Kafka's own files say of this partition.
fn check_state(loaded: &Loaded, kafka: &BTreeMap<String, Vec<u8>>) {
    assert_eq!(loaded.bases, [0, 2, 50]);
    assert_eq!(loaded.report.log_end_offset, 81);
    assert_eq!(loaded.log_start, 0);
    let producers = read_producer_snapshot(&kafka["00000000000000000081.snapshot"]).unwrap();
    assert!(!producers.is_empty());
    assert_eq!(by_id(loaded.producers.to_snapshot()), by_id(producers));
    let epochs = LeaderEpochs::parse(&kafka["leader-epoch-checkpoint"]).unwrap();
    assert_eq!(loaded.epochs, epochs);
    let contents = loaded.active.as_ref().unwrap();
    assert_eq!(contents.size, kafka[LAST_SEGMENT].len() as u64);
}

#[test]
fn a_clean_directory_is_taken_as_it_is() {
    let copy = Copied::new();
    let before = copy.files();
    let loaded = copy.load(clean(), false);
    check_state(&loaded, &before);
    assert_eq!(loaded.recovery_point, 81);
    assert!(loaded.report.clean && !loaded.report.is_changed());
    assert_eq!(loaded.report.segments_read, 0);
    // As `ProducerStateManager.removeStraySnapshots`: of those at no segment's base offset the newest stays.
    let mut left = before;
    left.remove("00000000000000000064.snapshot");
    assert!(copy.files() == left);
}

#[test]
fn a_directory_of_segments_alone_gets_the_files_that_kafka_had() {
    let copy = Copied::new();
    let before = copy.files();
    for name in before
        .keys()
        .filter(|name| !matches!(name.split_once('.'), Some((_, "log"))))
    {
        fs::remove_file(copy.path().join(name)).unwrap();
    }
    let loaded = copy.load(Start::default(), false);
    check_state(&loaded, &before);
    assert!(!loaded.report.clean);
    assert_eq!(loaded.report.segments_read, 3);
    assert!(loaded.report.cut.is_empty());
    let after = copy.files();
    // The broker was stopped while it filled the last segment, so an entry of its index lies elsewhere; and Kafka's own recovery writes
    // other time indexes than its appends. `tests/oracle` holds ours beside Kafka's recovery.
    let is_told = |name: &&String| {
        matches!(
            name.split_once('.'),
            Some((_, "txnindex") | ("00000000000000000000" | "00000000000000000002", "index"))
        )
    };
    for name in before.keys().filter(is_told) {
        assert!(after[name].starts_with(&before[name]), "{name}");
    }
    for base in [2, 50] {
        let name = format!("{base:020}.snapshot");
        assert!(loaded.snapshots.contains(&base));
        let read = |bytes: &[u8]| by_id(read_producer_snapshot(bytes).unwrap());
        assert_eq!(read(&after[&name]), read(&before[&name]), "{name}");
    }
}

#[test]
fn half_a_batch_at_the_end_is_cut_and_kept() {
    let copy = Copied::new();
    let kafka = copy.files();
    let half = kafka[LAST_SEGMENT][..40].to_vec();
    copy.append(&half);
    let told = copy.load(Start::default(), true);
    assert_eq!(
        copy.files()[LAST_SEGMENT].len(),
        kafka[LAST_SEGMENT].len() + 40
    );
    let loaded = copy.load(Start::default(), false);
    check_state(&loaded, &kafka);
    assert!(copy.files()[LAST_SEGMENT] == kafka[LAST_SEGMENT]);
    for report in [&told.report, &loaded.report] {
        let [cut] = report.cut.as_slice() else {
            panic!("{report:?}");
        };
        assert_eq!(cut.position, kafka[LAST_SEGMENT].len() as u64);
        assert_eq!((cut.bytes, cut.had_batches, cut.records), (40, false, 0));
    }
    let kept = loaded.report.cut[0].kept.as_ref().unwrap();
    assert_eq!(fs::read(kept).unwrap(), half);
}

#[test]
fn a_dry_run_tells_the_same_and_changes_nothing() {
    let copy = Copied::new();
    let kafka = copy.files();
    copy.append(&[0; 17]);
    fs::remove_file(copy.path().join("00000000000000000002.index")).unwrap();
    let before = copy.files();
    let told = copy.load(Start::default(), true);
    assert!(copy.files() == before);
    assert!(told.report.dry_run && told.report.is_changed());
    let loaded = copy.load(Start::default(), false);
    check_state(&loaded, &kafka);
    let names = |report: &RecoveryReport| {
        let rebuilt = report.rebuilt.iter().map(|(path, _)| path.clone());
        let cut = report.cut.iter().map(|cut| cut.path.clone());
        rebuilt.chain(cut).collect::<BTreeSet<_>>()
    };
    assert_eq!(names(&told.report), names(&loaded.report));
    assert_eq!(told.report.log_end_offset, 81);
}

#[test]
fn a_mark_of_another_segment_is_not_believed() {
    let copy = Copied::new();
    let marked = |own| Start {
        own: Some(own),
        ..Start::default()
    };
    assert!(!copy.load(marked(2), false).report.clean);
    assert!(copy.load(marked(50), false).report.clean);
}
