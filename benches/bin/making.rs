//! The data of comparisons between two commits, so that they need no JVM: the same keys and values, batches and segments as the Kafka
//! peer makes, written by this engine.
//!
//! `make-log DIRECTORY CODEC VALUE_BYTES MIB BATCH_BYTES SEGMENT_BYTES [RECORDS]` makes one partition directory, of so many MiB of values
//! or so many records;
//! `make-compactable DIRECTORY CODEC halves | mixed MIB` one in which each key comes twice, for the cleaner;
//! `make-topic LOG_DIR TOPIC CODEC VALUE_BYTES RECORDS BATCH_BYTES PARTITIONS` a topic in a log dir, batches to partitions in turn.

use crate::upkeep::SEGMENT_BYTES;
use crate::writing::new_log;
use crate::{Met, Outcome, answer, clocked};
use offsetlog::{
    AppendOptions, BatchBuilder, LogConfig, LogDir, LogDirOptions, NewTopic, OpenOptions, Producer,
    Route,
};
use offsetlog_benches::{Draws, FIRST_TIMESTAMP, codec_of};
use std::fmt::Write as _;

const SYLLABLES: [&str; 32] = [
    "ba", "ce", "di", "fo", "gu", "ha", "je", "ki", "lo", "mu", "na", "pe", "qui", "ro", "su",
    "ta", "ve", "wi", "xo", "yu", "za", "bre", "cla", "dro", "fli", "gra", "pli", "sto", "tru",
    "ske", "mon", "tor",
];
const WORDS: usize = 2048;
const KEYS: u64 = 1_000_000;
/// Seeds of the Kafka peer.
const LOG_SEED: u64 = 7;
const COMPACTION_SEED: u64 = 9;
const COMPACTED_VALUE_BYTES: usize = 1000;
const COMPACTED_BATCH_RECORDS: usize = 16;
const LEADER: AppendOptions = AppendOptions {
    leader_epoch: Some(0),
    flush: false,
};

/// Runs a round if it is one of these.
pub(crate) fn round(words: &[&str]) -> Outcome<Option<String>> {
    let answer = match words {
        [
            "make-log",
            directory,
            codec,
            value_bytes,
            mib,
            batch_bytes,
            segment_bytes,
            records @ ..,
        ] => {
            let value_bytes = value_bytes.parse()?;
            let records = match records {
                [records] => records.parse()?,
                _ => (mib.parse::<usize>()? << 20) / value_bytes,
            };
            let batches = Batches::new(codec, value_bytes, batch_bytes.parse()?)?;
            make_log(directory, batches, records, segment_bytes)?
        }
        ["make-compactable", directory, codec, keys, mib] => {
            let half = (mib.parse::<usize>()? << 20) / COMPACTED_VALUE_BYTES / 2;
            let half = half / COMPACTED_BATCH_RECORDS * COMPACTED_BATCH_RECORDS;
            make_compactable(directory, codec, twice(half, *keys == "mixed"))?
        }
        [
            "make-topic",
            log_dir,
            topic,
            codec,
            value_bytes,
            records,
            batch_bytes,
            partitions,
        ] => {
            let batches = Batches::new(codec, value_bytes.parse()?, batch_bytes.parse()?)?;
            make_topic(
                log_dir,
                topic,
                batches,
                records.parse()?,
                partitions.parse()?,
            )?
        }
        _ => return Ok(None),
    };
    Ok(Some(answer))
}

/// Seeded keys and values: JSON-like text that the usual codecs shrink to about a third (zstd, gzip) or a half (lz4, snappy).
struct Maker {
    draws: Draws,
    words: Vec<String>,
}

impl Maker {
    fn new(seed: u64) -> Self {
        let mut state = 42_u64;
        let words = (0..WORDS as u64).map(|number| {
            state = Draws::mixed(state.wrapping_add(number));
            let mut word = String::new();
            for _ in 0..2 + (state >> 62) {
                state = Draws::mixed(state);
                word.push_str(SYLLABLES.get((state >> 59) as usize).unwrap_or(&""));
            }
            word
        });
        Self {
            words: words.collect(),
            draws: Draws::new(seed),
        }
    }

    const fn below(&mut self, end: u64) -> u64 {
        (self.draws.draw() >> 33) % end
    }

    fn key(&mut self) -> Vec<u8> {
        key(self.below(KEYS))
    }

    /// The smaller of two draws: few words are common, many are rare.
    fn word(&mut self, space: u64) -> &str {
        let place = self.below(space).min(self.below(space));
        self.words.get(place as usize).map_or("", String::as_str)
    }

    fn value(&mut self, size: usize) -> Vec<u8> {
        let (id, user) = (self.below(100_000_000), self.below(20_000));
        let mut text = format!("{{\"id\":{id},\"user\":\"u{user}\",\"kind\":\"");
        text.push_str(self.word(16));
        let ok = self.below(8) != 0;
        // Into a string: it cannot fail.
        let _ = write!(text, "\",\"ok\":{ok},\"text\":\"");
        let end = size.saturating_sub(2);
        while text.len() < end {
            text.push_str(self.word(WORDS as u64));
            text.push(if self.below(12) == 0 { ',' } else { ' ' });
        }
        text.truncate(end);
        text.push_str("\"}");
        text.into_bytes()
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("user-{number:08}").into_bytes()
}

/// Batches of new records, one after another, with the timestamps of the benches.
struct Batches {
    maker: Maker,
    builder: BatchBuilder,
    value_bytes: usize,
    per_batch: usize,
    next: i64,
}

impl Batches {
    fn new(codec: &str, value_bytes: usize, batch_bytes: usize) -> Outcome<Self> {
        Ok(Self {
            maker: Maker::new(LOG_SEED),
            builder: BatchBuilder::new(codec_of(codec)?, Producer::default()),
            value_bytes,
            per_batch: (batch_bytes / (value_bytes + 20)).max(1),
            next: 0,
        })
    }

    fn batch(&mut self) -> Outcome<&mut BatchBuilder> {
        for _ in 0..self.per_batch {
            let (key, value) = (self.maker.key(), self.maker.value(self.value_bytes));
            let timestamp = FIRST_TIMESTAMP + self.next;
            self.builder
                .push(timestamp, Some(&key), Some(&value), &[])?;
            self.next += 1;
        }
        Ok(&mut self.builder)
    }

    /// How many batches hold at least so many records.
    const fn holding(&self, records: usize) -> usize {
        records.div_ceil(self.per_batch)
    }
}

fn make_log(
    directory: &str,
    mut batches: Batches,
    records: usize,
    segment_bytes: &str,
) -> Outcome<String> {
    // Kafka takes no segments below 1 MiB but for its own tests.
    let setting = if segment_bytes.parse::<u64>()? < 1 << 20 {
        "internal.segment.bytes"
    } else {
        "segment.bytes"
    };
    let log = new_log(directory, &[(setting, segment_bytes)])?;
    let (cpu, wall) = clocked(|| {
        for _ in 0..batches.holding(records) {
            log.append(batches.batch()?, &LEADER)?;
        }
        Ok(())
    })?;
    let met = Met {
        count: log.log_end_offset()? as u64,
        sum: log.size_bytes()?,
    };
    log.close()?;
    Ok(answer(cpu, wall, met))
}

/// Keys of which the second half repeats the first in another order; all of them shuffled if they shall be mixed.
fn twice(half: usize, mixed: bool) -> (Maker, Vec<u64>) {
    let mut maker = Maker::new(COMPACTION_SEED);
    let half = half as u64;
    let second = (0..half).map(|number| number * 7919 % half);
    let mut keys: Vec<u64> = (0..half).chain(second).collect();
    if mixed {
        for place in (1..keys.len()).rev() {
            keys.swap(place, maker.below(place as u64 + 1) as usize);
        }
    }
    (maker, keys)
}

fn make_compactable(
    directory: &str,
    codec: &str,
    (mut maker, keys): (Maker, Vec<u64>),
) -> Outcome<String> {
    let settings = [
        ("cleanup.policy", "compact"),
        ("segment.bytes", SEGMENT_BYTES),
    ];
    let log = new_log(directory, &settings)?;
    let mut batch = BatchBuilder::new(codec_of(codec)?, Producer::default());
    let (cpu, wall) = clocked(|| {
        let mut timestamp = FIRST_TIMESTAMP;
        for keys in keys.chunks(COMPACTED_BATCH_RECORDS) {
            for number in keys {
                let value = maker.value(COMPACTED_VALUE_BYTES);
                batch.push(timestamp, Some(&key(*number)), Some(&value), &[])?;
                timestamp += 1;
            }
            log.append(&mut batch, &LEADER)?;
        }
        // The active segment is never compacted.
        log.roll()?;
        Ok(())
    })?;
    let met = Met {
        count: log.log_end_offset()? as u64,
        sum: log.size_bytes()?,
    };
    log.close()?;
    Ok(answer(cpu, wall, met))
}

fn make_topic(
    path: &str,
    topic: &str,
    mut batches: Batches,
    records: usize,
    partitions: i32,
) -> Outcome<String> {
    let (cpu, wall) = clocked(|| {
        let options = LogDirOptions::default();
        let log_dir = LogDir::open_for_append(&[path], &OpenOptions::default(), &options)?;
        log_dir.create_topic(&NewTopic {
            name: topic,
            partitions,
            config: LogConfig::default(),
            topic_id: None,
        })?;
        let turns = (0..partitions).cycle().take(batches.holding(records));
        for partition in turns {
            let route = Route::Partition(partition);
            log_dir.append(topic, route, batches.batch()?, &LEADER)?;
        }
        Ok(log_dir.close()?)
    })?;
    let met = Met {
        count: batches.next as u64,
        sum: 0,
    };
    Ok(answer(cpu, wall, met))
}
