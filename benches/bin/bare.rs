//! The least that headers, look-ups and columns can cost: the reads of the bytes alone, for «limit here».
//!
//! `headers-limit DIRECTORY REPEATS` reads the 61 bytes of each batch header by a call of its own, and takes nothing from them but
//! where the next one is. `lookup-limit DIRECTORY QUERIES SEED` knows beforehand in which file and where the batch of a draw is, and how
//! long: measured are one read, from the index entry on that leads to the batch up to the batch's end, its CRC-32C, and what lz4 has
//! compressed of it. `columns-limit DIRECTORY REPEATS` reads a log in blocks, computes the CRC-32C of its batches, and copies keys, values,
//! offsets and timestamps into memory that is used again and again: what Arrow batches need, without Arrow and without Python.

use crate::rescue::{LZ4_BLOCK_BYTES, decompressed};
use crate::{Met, Outcome, percentiles, timed};
use offsetlog::format::BatchHeader;
use offsetlog::format::checksum::crc32c;
use offsetlog::format::copy::extend;
use offsetlog::format::index_entry::{OffsetIndexEntry, offset_entry_count};
use offsetlog::format::v2::RecordsV2;
use offsetlog::{Log, OpenOptions};
use offsetlog_benches::Draws;
use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Size of a batch header, and where its checksum ends, from which on the bytes are covered by it.
const HEADER_BYTES: usize = 61;
const COVERED_AT: usize = 21;
/// Of the field that says how many bytes follow it.
const FRAME_BYTES: u64 = 12;

/// A log whose batches are known.
#[derive(Debug, Default)]
struct Known {
    files: Vec<File>,
    /// In the order of their last offsets.
    batches: Vec<Place>,
}

/// What is read for a record of a batch.
#[derive(Debug, Clone, Copy)]
struct Place {
    last_offset: i64,
    file: usize,
    /// Where the index entry before the batch leads to.
    from: u64,
    /// Between that and the batch.
    before: usize,
    size: usize,
}

/// The logs of the look-ups, by directory.
#[derive(Debug, Default)]
pub(crate) struct KnownLogs(HashMap<String, Known>);

/// Runs a round if it is one of these.
pub(crate) fn round(words: &[&str], logs: &mut KnownLogs) -> Outcome<Option<String>> {
    let answer = match words {
        ["headers-limit", directory, repeats] => timed(repeats.parse()?, || headers(directory))?,
        ["columns-limit", directory, repeats] => {
            let mut columns = [Columns::default(), Columns::default()];
            timed(repeats.parse()?, || whole_columns(directory, &mut columns))?
        }
        ["lookup-limit", directory, queries, seed] => {
            if !logs.0.contains_key(*directory) {
                logs.0
                    .insert((*directory).to_owned(), Known::of(directory)?);
            }
            let known = logs.0.get(*directory).ok_or("no such log")?;
            look_ups(known, queries.parse()?, seed.parse()?)?
        }
        _ => return Ok(None),
    };
    Ok(Some(answer))
}

fn log_files(directory: &str) -> Outcome<Vec<PathBuf>> {
    let paths = fs::read_dir(directory)?.map(|entry| entry.map(|entry| entry.path()));
    let mut paths: Vec<_> = paths.collect::<Result<_, _>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    paths.sort();
    Ok(paths)
}

fn headers(directory: &str) -> Outcome<Met> {
    let mut met = Met::default();
    for path in log_files(directory)? {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        let (mut header, mut position) = ([0; HEADER_BYTES], 0);
        while position < size {
            file.read_exact_at(&mut header, position)?;
            let following = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
            position += FRAME_BYTES + u64::from(following);
            met.add(u64::from(following));
        }
    }
    Ok(met)
}

/// Bytes of a block, and of keys and values after which the other of two sets of columns is next.
const BLOCK_BYTES: usize = 512 << 10;
const COLUMNS_BYTES: usize = 384 << 10;

/// Four columns, of which bytes are beside their ends.
#[derive(Debug, Default)]
struct Columns {
    keys: (Vec<u8>, Vec<i32>),
    values: (Vec<u8>, Vec<i32>),
    offsets: Vec<i64>,
    timestamps: Vec<i64>,
}

fn whole_columns(directory: &str, columns: &mut [Columns; 2]) -> Outcome<Met> {
    let mut met = Met::default();
    let mut block = vec![0; BLOCK_BYTES];
    for path in log_files(directory)? {
        let file = File::open(path)?;
        let (mut kept, mut position) = (0, 0);
        loop {
            let read = file.read_at(block.get_mut(kept..).unwrap_or_default(), position)?;
            if read == 0 {
                break;
            }
            position += read as u64;
            let mut rest = block.get(..kept + read).unwrap_or_default();
            while let Some((batch, behind)) = first_batch(rest) {
                rest = behind;
                let crc = crc32c(batch.get(COVERED_AT..).unwrap_or_default());
                if batch.get(COVERED_AT - 4..COVERED_AT) != Some(crc.to_be_bytes().as_slice()) {
                    return Err("a batch has another checksum".into());
                }
                columns[0].add(batch).ok_or("a record of another kind")?;
                if columns[0].keys.0.len() + columns[0].values.0.len() >= COLUMNS_BYTES {
                    columns.swap(0, 1);
                    columns[1].give(&mut met);
                }
            }
            let from = kept + read - rest.len();
            kept = rest.len();
            block.copy_within(from..from + kept, 0);
        }
    }
    columns[0].give(&mut met);
    Ok(met)
}

/// The batch at the front of a block, if it is there as a whole, and what is behind it.
fn first_batch(block: &[u8]) -> Option<(&[u8], &[u8])> {
    let following = u32::from_be_bytes(*block.get(8..)?.first_chunk()?);
    block.split_at_checked(FRAME_BYTES as usize + following as usize)
}

impl Columns {
    /// Copies the records of a batch, of which each has key and value.
    fn add(&mut self, batch: &[u8]) -> Option<()> {
        let header = BatchHeader::parse(batch).ok()?;
        let mut records = RecordsV2::new(&header, batch.get(HEADER_BYTES..)?).ok()?;
        while let Some(record) = records.next_plain() {
            extend(&mut self.keys.0, record.key?);
            self.keys.1.push(self.keys.0.len() as i32);
            extend(&mut self.values.0, record.value?);
            self.values.1.push(self.values.0.len() as i32);
            self.offsets.push(record.offset);
            self.timestamps.push(record.timestamp * 1000);
        }
        (records.records_left() == 0).then_some(())
    }

    /// Counts what is there, as who uses it would, and makes room for the next.
    fn give(&mut self, met: &mut Met) {
        for (key, value) in self.keys.1.iter().zip(&self.values.1) {
            met.add(*key as u64 ^ *value as u64);
        }
        for (bytes, ends) in [&mut self.keys, &mut self.values] {
            bytes.clear();
            ends.clear();
        }
        self.offsets.clear();
        self.timestamps.clear();
    }
}

impl Known {
    fn of(directory: &str) -> Outcome<Self> {
        let mut known = Self::default();
        let mut entries: Vec<Vec<u64>> = Vec::new();
        let mut segments = HashMap::new();
        for path in log_files(directory)? {
            segments.insert(base_offset(&path)?, known.files.len());
            known.files.push(File::open(&path)?);
            entries.push(index_positions(&path.with_extension("index"))?);
        }
        for batch in Log::open(directory, &OpenOptions::default())?.batches(None, None)? {
            let batch = batch?;
            let file = *segments.get(&batch.segment).ok_or("no such segment")?;
            let positions = entries.get(file).ok_or("no such index")?;
            let slot = positions.partition_point(|&position| position <= batch.position);
            let from = slot.checked_sub(1).and_then(|slot| positions.get(slot));
            let from = from.copied().unwrap_or(0);
            known.batches.push(Place {
                last_offset: batch.last_offset,
                file,
                from,
                before: (batch.position - from) as usize,
                size: batch.size_bytes as usize,
            });
        }
        Ok(known)
    }

    fn place(&self, offset: i64) -> Option<(&File, Place)> {
        let at = self
            .batches
            .partition_point(|batch| batch.last_offset < offset);
        let place = *self.batches.get(at)?;
        Some((self.files.get(place.file)?, place))
    }
}

fn base_offset(log: &Path) -> Outcome<i64> {
    let name = log.file_stem().and_then(|name| name.to_str());
    Ok(name.ok_or("no name")?.parse()?)
}

fn index_positions(path: &Path) -> Outcome<Vec<u64>> {
    let bytes = fs::read(path)?;
    let entries =
        (0..offset_entry_count(&bytes)).map(|slot| OffsetIndexEntry::read(&bytes, slot, 0));
    let positions = entries.map(|entry| entry.map(|entry| u64::from(entry.position)));
    Ok(positions.collect::<Result<_, _>>()?)
}

fn look_ups(known: &Known, queries: u64, seed: u64) -> Outcome<String> {
    let end = known
        .batches
        .last()
        .map_or(0, |batch| batch.last_offset + 1);
    let mut draws = Draws::new(seed);
    let mut places = Vec::with_capacity(queries as usize);
    for _ in 0..queries {
        let offset = draws.offset_below(end);
        places.push(known.place(offset).ok_or("no batch holds the offset")?);
    }
    let longest = places
        .iter()
        .map(|(_, place)| place.before + place.size)
        .max();
    let mut buffer = vec![0; longest.unwrap_or(0)];
    let mut plain = vec![0; LZ4_BLOCK_BYTES];
    let mut times: Vec<Duration> = Vec::with_capacity(places.len());
    let line = timed(1, || {
        let mut met = Met::default();
        for &(
            file,
            Place {
                from, before, size, ..
            },
        ) in &places
        {
            let start = Instant::now();
            let room = buffer.get_mut(..before + size).unwrap_or_default();
            file.read_exact_at(room, from)?;
            let batch = room.get(before..).unwrap_or_default();
            let crc = crc32c(batch.get(COVERED_AT..).unwrap_or_default());
            let stored = batch.get(COVERED_AT - 4..COVERED_AT);
            if stored != Some(crc.to_be_bytes().as_slice()) {
                return Err("a batch has another checksum".into());
            }
            decompressed(batch, &mut plain)?;
            times.push(start.elapsed());
            met.add(u64::from(crc));
        }
        Ok(met)
    })?;
    Ok(format!("{line} {}", percentiles(&mut times)))
}
