//! Tests changes between the decision and the partition's lock: ending is refused, and nothing is appended.

use super::*;
use offsetlog::format::Codec;
use offsetlog::{BatchBuilder, LogConfig, LogWriter, NewTopic, Producer, WriteOptions};
use std::path::PathBuf;

const PRODUCER: i64 = 4000;
const ONGOING: u8 = 1;
const PREPARE_COMMIT: u8 = 2;
const PREPARE_ABORT: u8 = 3;
const NOW: i64 = 1_700_000_000_000;

fn abort() -> EndTransactionOptions {
    EndTransactionOptions {
        commit: Some(false),
        ..EndTransactionOptions::default()
    }
}

/// A log dir with a transaction that its coordinator has open.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        let log_dir = place.log_dir();
        for name in [STATE_TOPIC, "top"] {
            let topic = NewTopic {
                name,
                partitions: 1,
                config: LogConfig::default(),
                topic_id: None,
            };
            log_dir.create_topic(&topic).unwrap();
        }
        log_dir.close().unwrap();
        place.send(0);
        place.decide(ONGOING);
        place
    }

    fn paths(&self) -> [PathBuf; 1] {
        [self.0.path().to_path_buf()]
    }

    fn log_dir(&self) -> LogDir {
        let how = LogDirOptions::default();
        LogDir::open_for_append(&self.paths(), &OpenOptions::default(), &how).unwrap()
    }

    fn append(&self, name: &str, mut batch: BatchBuilder) {
        let path = self.0.path().join(name);
        let options = OpenOptions::default();
        let log = LogWriter::open(&path, &options, &WriteOptions::default()).unwrap();
        log.append(&mut batch, &AppendOptions::default()).unwrap();
        log.close().unwrap();
    }

    /// A record of the transaction.
    fn send(&self, base_sequence: i32) {
        let producer = Producer {
            producer_id: PRODUCER,
            producer_epoch: 0,
            base_sequence,
            is_transactional: true,
        };
        let mut batch = BatchBuilder::new(Codec::None, producer);
        batch.push(NOW, None, Some(b"value"), &[]).unwrap();
        self.append("top-0", batch);
    }

    /// The coordinator's record of version 0, as FORMAT.md has it.
    fn decide(&self, state: u8) {
        let mut value = vec![0, 0];
        value.extend(PRODUCER.to_be_bytes());
        value.extend(0_i16.to_be_bytes());
        value.extend(60_000_i32.to_be_bytes());
        value.push(state);
        value.extend([0, 0, 0, 1, 0, 3]);
        value.extend(b"top");
        value.extend([0, 0, 0, 1, 0, 0, 0, 0]);
        value.extend(NOW.to_be_bytes());
        value.extend(NOW.to_be_bytes());
        let mut batch = BatchBuilder::default();
        let key = b"\0\0\0\x03tid";
        batch.push(NOW, Some(key), Some(&value), &[]).unwrap();
        self.append(&format!("{STATE_TOPIC}-0"), batch);
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.0.path().join("top-0/00000000000000000000.log")).unwrap()
    }

    fn plan_abort(&self) -> Result<(EndedTransaction, MarkerOptions)> {
        let partition = TopicPartition {
            topic: "top".to_owned(),
            partition: 0,
        };
        let (open, how) = (OpenOptions::default(), LogDirOptions::default());
        let how = (&open, &how);
        plan(&self.paths(), &partition, PRODUCER, &abort(), how, None)
    }

    /// Decides to abort, lets `meanwhile` happen, and appends.
    fn end(&self, meanwhile: impl FnOnce()) -> Result<(Option<i64>, i64)> {
        let (planned, _) = self.plan_abort().unwrap();
        meanwhile();
        let (open, how) = (OpenOptions::default(), LogDirOptions::default());
        let log_dir = self.log_dir();
        let appended = append(&log_dir, &self.paths(), &planned, &abort(), (&open, &how));
        log_dir.close().unwrap();
        appended
    }
}

#[test]
fn what_is_as_it_was_planned_is_ended() {
    let place = Place::new();
    assert_eq!(place.end(|| ()).unwrap(), (Some(1), 2));
}

#[test]
fn a_partition_that_changed_meanwhile_is_not_ended() {
    let place = Place::new();
    let refused = place.end(|| place.send(1)).unwrap_err().to_string();
    assert!(refused.contains("meanwhile; call again"), "{refused}");
    let mut bytes = Place::new().bytes().len();
    bytes *= 2;
    assert_eq!(place.bytes().len(), bytes, "a marker was appended");
    // The next call uses the current state.
    assert_eq!(place.end(|| ()).unwrap(), (Some(2), 3));
}

#[test]
fn a_decision_that_came_meanwhile_is_not_overruled() {
    let place = Place::new();
    let before = place.bytes();
    let refused = place.end(|| place.decide(PREPARE_COMMIT)).unwrap_err();
    let refused = refused.to_string();
    assert!(refused.contains("has decided to commit"), "{refused}");
    assert_eq!(place.bytes(), before);
}

#[test]
fn a_decision_for_the_same_end_is_told_all_the_same() {
    let place = Place::new();
    let before = place.bytes();
    let refused = place.end(|| place.decide(PREPARE_ABORT)).unwrap_err();
    let refused = refused.to_string();
    assert!(refused.contains("meanwhile; call again"), "{refused}");
    assert_eq!(place.bytes(), before);
}

/// A coordinator's partition that cannot be read is not one that is elsewhere.
#[test]
fn state_that_cannot_be_read_is_told_as_such() {
    let place = Place::new();
    place.decide(PREPARE_COMMIT);
    let path = place
        .0
        .path()
        .join(format!("{STATE_TOPIC}-0/00000000000000000000.log"));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[70] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let told = place.plan_abort().unwrap_err().to_string();
    assert!(
        told.contains("__transaction_state-0 cannot be read"),
        "{told}"
    );
    assert!(!told.contains("is not here"), "{told}");
}
