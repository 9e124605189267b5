//! Histories that Kafka 4.3.0's own partition log went through, and what it answered and remembered after each step
//! (tests/data/producers/README.md).

use super::super::*;
use offsetlog_format::checksum::crc32c;
use offsetlog_format::snapshot::write_producer_snapshot;
use serde_json::Value;

const HISTORIES: &[u8] =
    include_bytes!("../../../../../../tests/data/producers/histories.jsonl.gz");

/// The file's timestamps count from here.
const CLOCK_START: i64 = 1_700_000_000_000;

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_else(|| panic!("{value}"))
}

fn narrow<T: TryFrom<i64>>(value: &Value) -> T {
    T::try_from(number(value)).unwrap_or_else(|_| panic!("{value}"))
}

fn timestamp(value: &Value) -> i64 {
    value.as_i64().map_or(-1, |ms| CLOCK_START + ms)
}

fn batch(value: &Value, base_offset: i64) -> Batch {
    let (base_sequence, count): (i32, i32) = (narrow(&value[2]), narrow(&value[4]));
    let max_timestamp = timestamp(&value[5]);
    let marker = value.get(7).map(|marker| {
        (!marker[0].is_null()).then(|| Marker {
            commit: number(&marker[0]) == 1,
            coordinator_epoch: narrow(&marker[1]),
            timestamp: max_timestamp,
        })
    });
    let header = offsetlog_format::BatchHeader {
        base_offset: Some(base_offset),
        last_offset: base_offset + i64::from(count) - 1,
        size_bytes: 61,
        magic: 2,
        leader_epoch: 0,
        crc: 0,
        attributes: offsetlog_format::Attributes(
            if number(&value[6]) == 1 { 0x10 } else { 0 } | if marker.is_some() { 0x20 } else { 0 },
        ),
        base_timestamp: max_timestamp,
        max_timestamp,
        producer_id: number(&value[0]),
        producer_epoch: narrow(&value[1]),
        base_sequence,
        record_count: count,
    };
    Batch::new(&header, marker.flatten()).unwrap()
}

/// A partition, as far as producers need one: what it stored, and its snapshots.
struct Partition {
    states: ProducerStates,
    expiration_ms: i64,
    now: i64,
    log_start_offset: i64,
    high_watermark: i64,
    stored: Vec<Batch>,
    aborted: Vec<AbortedTransaction>,
    snapshots: BTreeMap<i64, Vec<ProducerSnapshotEntry>>,
    /// The snapshot that the step is to write.
    file: Option<(i64, String)>,
}

impl Partition {
    fn append(&mut self, step: &Value) {
        let origin = [Origin::Client, Origin::Coordinator, Origin::Replication]
            [usize::try_from(number(&step[1])).unwrap()];
        let batches: Vec<_> = step[3]
            .as_array()
            .unwrap()
            .iter()
            .map(|value| batch(value, number(&value[3])))
            .collect();
        let answer = &step[4];
        match self.states.check(&batches, origin, narrow(&step[2])) {
            // The answers name the Python classes of these errors.
            Err(error) => assert_eq!(
                answer.as_str().and_then(|name| match name {
                    "ConfigError" => Some("Argument"),
                    name => name.strip_suffix("Error"),
                }),
                Some(error.kind().code()),
                "{error}"
            ),
            Ok(Checked::Duplicate {
                first_offset,
                last_offset,
                timestamp: appended,
            }) => {
                assert_eq!(number(&answer[0]), first_offset);
                assert_eq!(number(&answer[1]), last_offset);
                assert_eq!(timestamp(&answer[2]), appended);
            }
            Ok(Checked::Update(changes)) => {
                assert_eq!(answer, "ok");
                let foreseen = self.states.aborted_by(&changes);
                let aborted = self.states.apply(&changes);
                assert_eq!(foreseen, aborted);
                self.aborted.extend(aborted);
                self.states
                    .set_end_offset(batches.last().unwrap().last_offset + 1);
                self.stored.extend(batches);
            }
        }
    }

    /// What a broker does after a kill: the segment's batches again, one by one, then the snapshot that this leaves.
    fn recover(&mut self) {
        self.states = ProducerStates::new();
        self.aborted.clear();
        for batch in &self.stored {
            let mut changes = Changes::default();
            let unknown = TRANSACTION_VERSION_UNKNOWN;
            self.states
                .prepare(&mut changes, batch, Origin::Recovery, unknown)
                .unwrap();
            self.aborted.extend(self.states.apply(&changes));
            self.states.set_end_offset(batch.last_offset + 1);
        }
        self.snapshots.clear();
        self.write_snapshot();
        self.reload();
    }

    /// A new process, and the snapshot at the end of the log.
    fn reload(&mut self) {
        let end = self.states.end_offset();
        self.states = ProducerStates::new();
        self.states
            .load_snapshot(&self.snapshots[&end], end, self.now, self.expiration_ms);
        self.high_watermark = self.log_start_offset;
    }

    fn truncate(&mut self, to: i64, snapshot: i64) {
        self.stored.retain(|batch| batch.last_offset < to);
        self.aborted.retain(|aborted| aborted.last_offset < to);
        self.snapshots.retain(|&offset, _| offset <= to);
        if snapshot == -1 {
            self.states.clear(self.log_start_offset);
        } else {
            let entries = &self.snapshots[&snapshot];
            self.states
                .load_snapshot(entries, snapshot, self.now, self.expiration_ms);
        }
        // A segment is scanned as if it had been appended at once.
        let mut changes = Changes::default();
        let from = self.states.end_offset();
        // Of a batch that the start offset cuts, all is scanned.
        for batch in self.stored.iter().filter(|batch| batch.last_offset >= from) {
            let unknown = TRANSACTION_VERSION_UNKNOWN;
            self.states
                .prepare(&mut changes, batch, Origin::Recovery, unknown)
                .unwrap();
        }
        self.states.apply(&changes);
        self.states.set_end_offset(to);
        self.write_snapshot();
        if self.high_watermark >= to {
            self.set_high_watermark(to);
        }
    }

    fn set_high_watermark(&mut self, offset: i64) {
        self.high_watermark = offset;
        self.states.complete_until(offset);
    }

    fn write_snapshot(&mut self) {
        if let Some((offset, checksum)) = self.file.take() {
            assert_eq!(offset, self.states.end_offset());
            let entries = self.states.to_snapshot();
            let bytes = write_producer_snapshot(&entries).unwrap();
            assert_eq!(checksum, format!("{:08x}", crc32c(&bytes)), "{entries:?}");
            self.snapshots.insert(offset, entries);
        }
    }

    fn step(&mut self, step: &Value) {
        match step[0].as_str().unwrap() {
            "a" => self.append(step),
            "h" => self.set_high_watermark(number(&step[1])),
            "e" => {
                self.now = timestamp(&step[1]);
                self.states.remove_expired(self.now, self.expiration_ms);
            }
            "s" => self.write_snapshot(),
            "r" => {
                self.write_snapshot();
                self.reload();
            }
            "k" => self.recover(),
            "t" => self.truncate(number(&step[1]), number(&step[2])),
            "d" => {
                self.log_start_offset = number(&step[1]);
                self.states.complete_until(self.log_start_offset);
            }
            other => panic!("{other}"),
        }
        assert_eq!(self.file, None, "not written");
        let open: BTreeSet<_> = self
            .states
            .entries()
            .filter_map(|(id, entry)| Some((entry.transaction_first_offset?, id)))
            .collect();
        assert_eq!(open, self.states.ongoing);
    }
}

/// Prints where a test is if it fails there.
struct Place(String);

impl Drop for Place {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.0);
        }
    }
}

/// Everything of a producer but its older batches.
type Summary = (i16, i32, i64, Option<i64>, usize, Option<[i64; 5]>);

fn batch_numbers(batch: &AppendedBatch) -> [i64; 5] {
    [
        batch.first_sequence().into(),
        batch.last_sequence.into(),
        batch.first_offset(),
        batch.last_offset,
        batch.timestamp,
    ]
}

fn kafka_batch(numbers: &[Value]) -> Option<[i64; 5]> {
    let [first_sequence, last_sequence, first, last, time] = numbers else {
        return None;
    };
    let offsets = [first_sequence, last_sequence, first, last].map(number);
    Some([
        offsets[0],
        offsets[1],
        offsets[2],
        offsets[3],
        timestamp(time),
    ])
}

fn summary(entry: &ProducerEntry) -> Summary {
    (
        entry.producer_epoch,
        entry.coordinator_epoch,
        entry.last_timestamp,
        entry.transaction_first_offset,
        entry.batches.as_slice().len(),
        entry.batches.last().map(batch_numbers),
    )
}

#[derive(Default)]
struct Expected {
    producers: BTreeMap<i64, Summary>,
    aborted: Vec<AbortedTransaction>,
    first_unstable_offset: Option<i64>,
    last_stable_offset: i64,
}

impl Expected {
    /// Takes over what Kafka said has changed.
    fn update(&mut self, after: &Value) {
        for value in after["p"].as_array().into_iter().flatten() {
            let fields = value.as_array().unwrap();
            let [id, epoch, coordinator_epoch, time, first, count, last @ ..] = fields.as_slice()
            else {
                self.producers.remove(&number(&fields[0]));
                continue;
            };
            let summary = (
                narrow(epoch),
                narrow(coordinator_epoch),
                timestamp(time),
                Some(number(first)).filter(|&offset| offset >= 0),
                narrow(count),
                kafka_batch(last),
            );
            self.producers.insert(number(id), summary);
        }
        if after.get("X").is_some() {
            self.aborted.clear();
        }
        for name in ["X", "x"] {
            for entry in after[name].as_array().into_iter().flatten() {
                self.aborted.push(AbortedTransaction {
                    producer_id: number(&entry[0]),
                    first_offset: number(&entry[1]),
                    last_offset: number(&entry[2]),
                    last_stable_offset: number(&entry[3]),
                });
            }
        }
        if let Some(offset) = after.get("u") {
            self.first_unstable_offset = offset.as_i64();
        }
        if let Some(offset) = after.get("l") {
            self.last_stable_offset = number(offset);
        }
    }
}

#[test]
fn every_history_goes_as_in_kafka() {
    let mut histories = String::new();
    let mut unpacked = flate2::read::GzDecoder::new(HISTORIES);
    std::io::Read::read_to_string(&mut unpacked, &mut histories).unwrap();
    let mut steps = 0;
    for (place, line) in histories.lines().enumerate() {
        let history: Value = serde_json::from_str(line).unwrap();
        let mut partition = Partition {
            states: ProducerStates::new(),
            expiration_ms: number(&history["expiration_ms"]),
            now: CLOCK_START,
            log_start_offset: 0,
            high_watermark: 0,
            stored: Vec::new(),
            aborted: Vec::new(),
            snapshots: BTreeMap::new(),
            file: None,
        };
        let mut expected = Expected::default();
        // After a truncation Kafka recomputes its last stable offset only when something else happens.
        let mut is_stale = false;
        for (number_of_step, step) in history["steps"].as_array().unwrap().iter().enumerate() {
            let at = Place(format!("history {place}, step {number_of_step}: {step}"));
            let after = step.as_array().unwrap().last().unwrap();
            expected.update(after);
            partition.file = after
                .get("f")
                .map(|file| (number(&file[0]), file[1].as_str().unwrap().to_owned()));
            partition.step(step);
            let producers: BTreeMap<_, _> = partition
                .states
                .entries()
                .map(|(id, entry)| (id, summary(entry)))
                .collect();
            assert_eq!(producers, expected.producers, "{}", at.0);
            assert_eq!(partition.aborted, expected.aborted, "{}", at.0);
            is_stale = match step[0].as_str().unwrap() {
                "t" => true,
                "a" if step[4] == "ok" => false,
                "h" | "r" | "k" => false,
                _ => is_stale,
            };
            let (start, end) = (partition.log_start_offset, partition.high_watermark);
            if !is_stale {
                let unstable = partition.states.first_unstable_offset();
                if unstable.is_none_or(|offset| offset >= start) {
                    assert_eq!(unstable, expected.first_unstable_offset, "{}", at.0);
                    let stable = partition.states.last_stable_offset(start, end);
                    assert_eq!(stable, expected.last_stable_offset, "{}", at.0);
                } else {
                    // The start cut the transaction. Kafka then names the batch at the start, we the start itself.
                    let batch = partition
                        .stored
                        .iter()
                        .find(|batch| batch.last_offset >= start);
                    let base = batch.map(|batch| batch.base_offset);
                    assert_eq!(base, expected.first_unstable_offset, "{}", at.0);
                    let stable = partition.states.last_stable_offset(start, end);
                    assert_eq!(stable, start.min(end), "{}", at.0);
                }
            }
            steps += 1;
        }
        for value in history["producers"].as_array().unwrap() {
            let entry = partition.states.get(number(&value[0])).unwrap();
            let batches: Vec<_> = entry.batches.as_slice().iter().map(batch_numbers).collect();
            let kafkas: Vec<_> = value[5]
                .as_array()
                .unwrap()
                .iter()
                .map(|batch| kafka_batch(batch.as_array().unwrap()).unwrap())
                .collect();
            assert_eq!(batches, kafkas, "history {place}, producer {}", value[0]);
        }
    }
    assert!(steps > 500, "only {steps} steps");
}
