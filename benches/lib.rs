//! What the benches share: where their data lies, seeded draws, and a partition directory that they write themselves.
//!
//! Directories that Kafka's own code wrote are made by `make bench` in `build/bench/ours`; criterion's benches use them where they
//! are, and otherwise only what [`uncompressed_log`] writes.

use offsetlog::{Log, OpenOptions, ScanOptions};
use offsetlog_format::Codec;
use offsetlog_format::builder::{BatchFields, NewRecord, Uncompressed, write_batch};
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// First timestamp of every log of the benches; the record at offset `n` has the timestamp `FIRST_TIMESTAMP + n`.
pub const FIRST_TIMESTAMP: i64 = 1_700_000_000_000;
/// Kafka's default of `index.interval.bytes`.
const INDEX_INTERVAL_BYTES: usize = 4096;

/// splitmix64, as the Kafka peer draws its look-ups.
#[derive(Debug, Clone)]
pub struct Draws(u64);

impl Draws {
    /// Draws of one seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

    /// The next 64 bits.
    pub const fn draw(&mut self) -> u64 {
        // Twice the step: the peer's generator adds it before its finaliser and the finaliser adds it again.
        self.0 = self.0.wrapping_add(Self::STEP);
        Self::mixed(self.0)
    }

    /// The finaliser alone, as the peer calls it.
    #[must_use]
    pub const fn mixed(z: u64) -> u64 {
        let mut z = z.wrapping_add(Self::STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// An offset from 0 up to `end`, which it does not reach.
    pub const fn offset_below(&mut self, end: i64) -> i64 {
        (self.draw() >> 1) as i64 % end
    }
}

fn build_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../build/bench")
}

/// A directory that `make bench` made, if it is there.
#[must_use]
pub fn kafka_log(name: &str) -> Option<PathBuf> {
    let path = build_directory().join("ours").join(format!("{name}-0"));
    path.is_dir().then_some(path)
}

/// Path of a partition directory that is not there yet, for a log to be written.
///
/// # Errors
/// The system's, when removing an earlier one.
pub fn new_log_path(name: &str) -> io::Result<PathBuf> {
    let directory = build_directory()
        .join("criterion")
        .join(format!("{name}-0"));
    if directory.is_dir() {
        fs::remove_dir_all(&directory)?;
    }
    Ok(directory)
}

/// A partition directory of `segments` segments of `batches` uncompressed batches with `records` records of `value_bytes` bytes,
/// each segment with its offset index. Written anew: it takes less time than asking whether the old one is right.
///
/// # Errors
/// The system's.
pub fn uncompressed_log(
    name: &str,
    segments: usize,
    batches: usize,
    records: usize,
    value_bytes: usize,
) -> io::Result<PathBuf> {
    let shape = (segments, batches, records, value_bytes);
    write_log(name, shape, INDEX_INTERVAL_BYTES, false)
}

/// As [`uncompressed_log`], of batches of one record of 8 bytes that have an entry each in both indexes: as many entries as in
/// segments 50 times as large.
///
/// # Errors
/// The system's.
pub fn densely_indexed_log(name: &str, segments: usize, batches: usize) -> io::Result<PathBuf> {
    write_log(name, (segments, batches, 1, 8), 0, true)
}

fn write_log(
    name: &str,
    (segments, batches, records, value_bytes): (usize, usize, usize, usize),
    interval: usize,
    has_time_index: bool,
) -> io::Result<PathBuf> {
    let directory = new_log_path(name)?;
    fs::create_dir_all(&directory)?;
    let mut draws = Draws::new(7);
    let (mut offset, mut scratch) = (0, Vec::new());
    for _ in 0..segments {
        let base_offset = offset;
        let (mut log, mut index, mut indexed) = (Vec::new(), Vec::new(), 0);
        let mut time_index = Vec::new();
        for _ in 0..batches {
            if log.len() - indexed > interval {
                let relative = ((offset - base_offset) as i32).to_be_bytes();
                index.extend_from_slice(&relative);
                index.extend_from_slice(&(log.len() as i32).to_be_bytes());
                time_index.extend_from_slice(&(FIRST_TIMESTAMP + offset).to_be_bytes());
                time_index.extend_from_slice(&relative);
                indexed = log.len();
            }
            offset = append_batch(
                &mut log,
                offset,
                records,
                value_bytes,
                &mut draws,
                &mut scratch,
            );
        }
        fs::write(directory.join(format!("{base_offset:020}.log")), log)?;
        fs::write(directory.join(format!("{base_offset:020}.index")), index)?;
        if has_time_index {
            let name = format!("{base_offset:020}.timeindex");
            fs::write(directory.join(name), time_index)?;
        }
    }
    Ok(directory)
}

/// Appends a batch and gives the offset behind it.
fn append_batch(
    log: &mut Vec<u8>,
    base_offset: i64,
    records: usize,
    value_bytes: usize,
    draws: &mut Draws,
    scratch: &mut Vec<u8>,
) -> i64 {
    let bodies: Vec<(Vec<u8>, Vec<u8>)> = (0..records)
        .map(|_| {
            let key = format!("user-{:08}", draws.draw() % 1_000_000).into_bytes();
            let value = (0..value_bytes.div_ceil(8)).flat_map(|_| draws.draw().to_be_bytes());
            (key, value.take(value_bytes).collect())
        })
        .collect();
    let new: Vec<NewRecord<'_>> = (base_offset..)
        .zip(&bodies)
        .map(|(offset, (key, value))| NewRecord {
            offset,
            timestamp: FIRST_TIMESTAMP + offset,
            key: Some(key),
            value: Some(value),
            headers: &[],
        })
        .collect();
    let fields = BatchFields {
        base_offset,
        leader_epoch: 0,
        ..BatchFields::default()
    };
    let Ok(()) = write_batch(log, &fields, &new, &mut Uncompressed, scratch);
    base_offset + records as i64
}

/// Key and value of the first records of a log, at most `count`.
///
/// # Errors
/// The engine's.
pub fn first_records(log: &Path, count: usize) -> offsetlog::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let log = Log::open(log, &OpenOptions::default())?;
    let mut scan = log.scan(&ScanOptions::default())?;
    let mut records = Vec::with_capacity(count);
    while let Some(mut batch) = scan.next_batch()? {
        while let Some(record) = batch.next_record()? {
            if records.len() == count {
                return Ok(records);
            }
            let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec).unwrap_or_default();
            records.push((owned(record.key), owned(record.value)));
        }
    }
    Ok(records)
}

/// The bytes of the first batches of a log, at most `count`.
///
/// # Errors
/// The engine's, and the system's.
pub fn first_batches(
    log: &Path,
    count: usize,
) -> Result<Vec<Vec<u8>>, Box<dyn std::error::Error + Send + Sync>> {
    let mut batches = Vec::with_capacity(count);
    let log = Log::open(log, &OpenOptions::default())?;
    for batch in log.batches(None, None)?.take(count) {
        let batch = batch?;
        let name = format!("{:020}.log", batch.segment);
        let mut bytes = vec![0; batch.size_bytes as usize];
        fs::File::open(log.path().join(name))?.read_exact_at(&mut bytes, batch.position)?;
        batches.push(bytes);
    }
    Ok(batches)
}

/// The codec of a name in Kafka's settings.
///
/// # Errors
/// Another name than those of the benches.
pub fn codec_of(name: &str) -> Result<Codec, String> {
    match name {
        "none" => Ok(Codec::None),
        "gzip" => Ok(Codec::Gzip),
        "snappy" => Ok(Codec::Snappy),
        "lz4" => Ok(Codec::Lz4),
        "zstd" => Ok(Codec::Zstd),
        _ => Err(format!(
            "none, gzip, snappy, lz4 or zstd expected, {name} found"
        )),
    }
}
