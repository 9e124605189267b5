//! Random logs with what a reader must see of them: the model is a plain list, the files are written by the format crate.
#![allow(
    dead_code,
    reason = "each test binary looks at another part of the model"
)]

use flate2::{Compression, write::GzEncoder};
use offsetlog::format::builder::{
    BatchFields, Compress, NewRecord, write_batch, write_message_set,
};
use offsetlog::format::{Attributes, Codec, ControlType};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

/// One record as a program hands it over; the time is relative to the log's.
#[derive(Debug, Clone)]
pub(crate) struct NewOne {
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    time: i64,
    header: Option<(Vec<u8>, Option<Vec<u8>>)>,
}

/// What happens to a log, step by step.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Append {
        magic: i8,
        gzip: bool,
        /// Transactional, when magic 2.
        producer: Option<i64>,
        records: Vec<NewOne>,
        /// Offsets left out before it, as compaction leaves them.
        gap: i64,
    },
    End {
        producer: i64,
        commit: bool,
    },
    Roll,
}

/// What is done to the index files of a segment.
#[derive(Debug, Clone)]
pub(crate) enum Indexes {
    Missing,
    /// True entries each so many batches.
    Right(usize),
    /// True entries in another order.
    Reversed(usize),
    /// True offsets with the positions of later batches, and earlier times with later offsets: followed, they would skip records.
    /// No entry has by chance the timestamp of the later batch: that one is believed.
    Skipping(usize),
    Random(Vec<u8>),
}

/// A record as a reader must see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) offset: i64,
    pub(crate) timestamp: i64,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    pub(crate) is_control: bool,
    pub(crate) is_committed: bool,
}

/// A batch of the active segment: where it ends and what comes after.
#[derive(Debug, Clone, Copy)]
pub(crate) struct End {
    pub(crate) position: usize,
    pub(crate) next_offset: i64,
}

/// A log on disk and what must be read from it.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) directory: PathBuf,
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) last_stable_offset: i64,
    pub(crate) records: Vec<Seen>,
    pub(crate) active: PathBuf,
    pub(crate) active_base: i64,
    pub(crate) active_ends: Vec<End>,
}

struct Gzip;

impl Compress for Gzip {
    type Error = std::io::Error;

    fn compress(
        &mut self,
        codec: Codec,
        _: i8,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Self::Error> {
        assert_eq!(codec, Codec::Gzip);
        let mut encoder = GzEncoder::new(out, Compression::fast());
        encoder.write_all(input)?;
        encoder.finish().map(|_| ())
    }
}

fn part() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop_oneof![
        1 => Just(None),
        4 => prop::collection::vec(any::<u8>(), 0..12).prop_map(Some),
        1 => (0_usize..9000).prop_map(|size| Some(vec![b'v'; size])),
    ]
}

fn new_one() -> impl Strategy<Value = NewOne> {
    let header = prop::option::of((prop::collection::vec(any::<u8>(), 0..4), part()));
    (part(), part(), -50_i64..50, header).prop_map(|(key, value, time, header)| NewOne {
        key,
        value,
        time,
        header,
    })
}

fn append() -> impl Strategy<Value = Step> {
    (
        prop_oneof![1 => Just(0_i8), 1 => Just(1_i8), 4 => Just(2_i8)],
        any::<bool>(),
        prop::option::of(1_i64..4),
        prop::collection::vec(new_one(), 1..5),
        prop_oneof![4 => Just(0_i64), 1 => 1_i64..20],
    )
        .prop_map(|(magic, gzip, producer, records, gap)| Step::Append {
            magic,
            gzip,
            producer: producer.filter(|_| magic == 2),
            records,
            gap,
        })
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => append(),
        2 => (1_i64..4, any::<bool>()).prop_map(|(producer, commit)| Step::End { producer, commit }),
        1 => Just(Step::Roll),
    ];
    prop::collection::vec(step, 1..24)
}

pub(crate) fn indexes() -> impl Strategy<Value = Vec<Indexes>> {
    let one = prop_oneof![
        Just(Indexes::Missing),
        (1_usize..4).prop_map(Indexes::Right),
        (1_usize..4).prop_map(Indexes::Reversed),
        (1_usize..4).prop_map(Indexes::Skipping),
        prop::collection::vec(any::<u8>(), 0..100).prop_map(Indexes::Random),
    ];
    prop::collection::vec(one, 1..6)
}

/// A batch that was written: what index entries are made of.
#[derive(Clone, Copy)]
struct Written {
    last_offset: i64,
    position: usize,
    /// Greatest timestamp of the batch.
    own: i64,
    /// Greatest timestamp up to here.
    greatest: i64,
}

struct Segment {
    base: i64,
    bytes: Vec<u8>,
    batches: Vec<Written>,
    ends: Vec<End>,
}

impl Segment {
    fn new(base: i64) -> Self {
        Self {
            base,
            bytes: Vec::new(),
            batches: Vec::new(),
            ends: Vec::new(),
        }
    }

    fn note(&mut self, position: usize, last_offset: i64, greatest: i64) {
        let before = self.batches.last().map_or(i64::MIN, |batch| batch.greatest);
        self.batches.push(Written {
            last_offset,
            position,
            own: greatest,
            greatest: greatest.max(before),
        });
        self.ends.push(End {
            position: self.bytes.len(),
            next_offset: last_offset + 1,
        });
    }

    fn batch(&mut self, fields: &BatchFields, views: &[NewRecord<'_>], greatest: i64) {
        let position = self.bytes.len();
        let mut scratch = Vec::new();
        write_batch(&mut self.bytes, fields, views, &mut Gzip, &mut scratch).unwrap();
        self.note(position, views.last().unwrap().offset, greatest);
    }

    fn messages(&mut self, magic: i8, codec: Codec, views: &[NewRecord<'_>]) {
        let entries = if codec == Codec::None { 1 } else { views.len() };
        for entry in views.chunks(entries) {
            let position = self.bytes.len();
            write_message_set(&mut self.bytes, magic, codec, None, entry, &mut Gzip).unwrap();
            let greatest = if magic == 0 { -1 } else { greatest(entry) };
            self.note(position, entry.last().unwrap().offset, greatest);
        }
    }

    fn write(&self, directory: &Path, indexes: &Indexes) -> PathBuf {
        let file = |suffix: &str| directory.join(format!("{:020}.{suffix}", self.base));
        std::fs::write(file("log"), &self.bytes).unwrap();
        let (each, shift, reversed) = match *indexes {
            Indexes::Missing => return file("log"),
            Indexes::Random(ref bytes) => {
                std::fs::write(file("index"), bytes).unwrap();
                std::fs::write(file("timeindex"), bytes).unwrap();
                std::fs::write(file("txnindex"), bytes).unwrap();
                return file("log");
            }
            Indexes::Right(each) => (each, 0, false),
            Indexes::Reversed(each) => (each, 0, true),
            Indexes::Skipping(each) => (each, each, false),
        };
        let mut entries = Vec::new();
        for at in (0..self.batches.len()).skip(1).step_by(each) {
            let mine = self.batches[at];
            let other = self.batches[(at + shift).min(self.batches.len() - 1)];
            if shift > 0 && mine.greatest >= 0 && other.own == mine.greatest {
                continue;
            }
            let mut offset_entry = ((mine.last_offset - self.base) as i32)
                .to_be_bytes()
                .to_vec();
            offset_entry.extend((other.position as i32).to_be_bytes());
            let mut time_entry = mine.greatest.to_be_bytes().to_vec();
            time_entry.extend(((other.last_offset - self.base) as i32).to_be_bytes());
            entries.push((offset_entry, time_entry));
        }
        if reversed {
            entries.reverse();
        }
        let (offsets, times): (Vec<_>, Vec<_>) = entries.into_iter().unzip();
        std::fs::write(file("index"), offsets.concat()).unwrap();
        std::fs::write(file("timeindex"), times.concat()).unwrap();
        file("log")
    }
}

type Header<'a> = (&'a [u8], Option<&'a [u8]>);

/// A log in the making.
struct Writer {
    time: i64,
    end: i64,
    segments: Vec<Segment>,
    records: Vec<Seen>,
    /// Each open transaction's producer with the places of its records in `records`.
    open: BTreeMap<i64, Vec<usize>>,
}

impl Writer {
    fn segment(&mut self) -> &mut Segment {
        self.segments.last_mut().unwrap()
    }

    fn end_transaction(&mut self, producer: i64, commit: bool) {
        let Some(of_transaction) = self.open.remove(&producer) else {
            return;
        };
        for at in of_transaction {
            self.records[at].is_committed = commit;
        }
        let kind = if commit {
            ControlType::Commit
        } else {
            ControlType::Abort
        };
        let (offset, time) = (self.end, self.time);
        let key = kind.write_key();
        let marker = NewRecord {
            offset,
            timestamp: time,
            key: Some(&key),
            value: Some(&[0; 6]),
            headers: &[],
        };
        let fields = BatchFields {
            base_offset: offset,
            attributes: Attributes::new(Codec::None, false)
                .transactional()
                .control(),
            producer_id: producer,
            producer_epoch: 0,
            ..BatchFields::default()
        };
        self.segment().batch(&fields, &[marker], time);
        self.records.push(Seen {
            offset,
            timestamp: time,
            key: Some(key.to_vec()),
            value: Some(vec![0; 6]),
            headers: Vec::new(),
            is_control: true,
            is_committed: false,
        });
        self.end += 1;
    }

    fn append(&mut self, magic: i8, codec: Codec, producer: Option<i64>, new: &[NewOne]) {
        let headers: Vec<Vec<Header<'_>>> = new
            .iter()
            .map(|one| {
                let pair = one.header.iter().filter(|_| magic == 2);
                pair.map(|(key, value)| (key.as_slice(), value.as_deref()))
                    .collect()
            })
            .collect();
        let base = self.end;
        let time = self.time;
        let views: Vec<NewRecord<'_>> = new
            .iter()
            .zip(&headers)
            .zip(base..)
            .map(|((one, headers), offset)| NewRecord {
                offset,
                timestamp: time + one.time,
                key: one.key.as_deref(),
                value: one.value.as_deref(),
                headers,
            })
            .collect();
        for view in &views {
            if let Some(producer) = producer {
                self.open
                    .entry(producer)
                    .or_default()
                    .push(self.records.len());
            }
            self.records.push(Seen {
                offset: view.offset,
                timestamp: if magic == 0 { -1 } else { view.timestamp },
                key: view.key.map(<[u8]>::to_vec),
                value: view.value.map(<[u8]>::to_vec),
                headers: view
                    .headers
                    .iter()
                    .map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec)))
                    .collect(),
                is_control: false,
                is_committed: producer.is_none(),
            });
        }
        self.end += views.len() as i64;
        if magic < 2 {
            self.segment().messages(magic, codec, &views);
            return;
        }
        let plain = Attributes::new(codec, false);
        let fields = BatchFields {
            base_offset: base,
            attributes: producer.map_or(plain, |_| plain.transactional()),
            producer_id: producer.unwrap_or(-1),
            producer_epoch: producer.map_or(-1, |_| 0),
            base_sequence: producer.map_or(-1, |_| 0),
            ..BatchFields::default()
        };
        self.segment().batch(&fields, &views, greatest(&views));
    }
}

fn greatest(views: &[NewRecord<'_>]) -> i64 {
    views.iter().map(|view| view.timestamp).max().unwrap()
}

/// Writes the log into `directory`, which must be named as a partition.
pub(crate) fn write(
    directory: &Path,
    start: i64,
    time: i64,
    steps: &[Step],
    indexes: &[Indexes],
) -> Model {
    std::fs::create_dir(directory).unwrap();
    let mut writer = Writer {
        time,
        end: start,
        segments: vec![Segment::new(start)],
        records: Vec::new(),
        open: BTreeMap::new(),
    };
    for step in steps {
        match step {
            // Two rolls in a row would name the same file.
            Step::Roll if writer.segment().base == writer.end => {}
            Step::Roll => {
                let base = writer.end;
                writer.segments.push(Segment::new(base));
            }
            Step::End { producer, commit } => writer.end_transaction(*producer, *commit),
            Step::Append {
                magic,
                gzip,
                producer,
                records,
                gap,
            } => {
                let codec = if *gzip { Codec::Gzip } else { Codec::None };
                writer.end += gap;
                writer.append(*magic, codec, *producer, records);
            }
        }
    }
    let mut active = PathBuf::new();
    for (segment, damage) in writer.segments.iter().zip(indexes.iter().cycle()) {
        active = segment.write(directory, damage);
    }
    let firsts = writer.open.values().filter_map(|places| places.first());
    let last_stable_offset = firsts.map(|&at| writer.records[at].offset).min();
    let last = writer.segments.pop().unwrap();
    Model {
        directory: directory.to_path_buf(),
        start,
        end: writer.end,
        last_stable_offset: last_stable_offset.unwrap_or(writer.end),
        records: writer.records,
        active,
        active_base: last.base,
        active_ends: last.ends,
    }
}
