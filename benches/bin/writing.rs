//! The works that write: appending and recovery.
//!
//! `append DIRECTORY SOURCE RECORDS PER_BATCH CODEC [close]` builds batches of the first records of the log in SOURCE, over and over,
//! and appends them to a new log; `follow DIRECTORY SOURCE RECORDS [close]` appends its first batches as they are, offsets aside;
//! `write-limit DIRECTORY SOURCE BLOCKS BYTES` writes blocks of so many bytes and computes their CRC-32C, which nothing that
//! appends can do without; `disk-writes DIRECTORY SOURCE BLOCKS BYTES trait | file` writes them through the engine's trait of disk
//! calls, or to the file itself. Measured are the appends; the sum is over what the `.log` holds afterwards. Without `close` the log is
//! dropped: a flush of each round would be the disk's figure.
//!
//! `durable DIRECTORY SOURCE RECORDS CALLERS [preallocate]` appends single records from so many threads, each append on the disk when it
//! returns, and closes the log; `sync-limit DIRECTORY SOURCE RECORDS` does nothing but write them and call fdatasync.
//!
//! `recover DIRECTORY` opens a log as after a kill, every segment read; closing it is not measured.

use crate::{Met, Outcome, answer, clocked, percentiles};
use offsetlog::disk::{Access, Disk, RealDisk};
use offsetlog::format::checksum::crc32c;
use offsetlog::{
    AppendOptions, BatchBuilder, LogConfig, LogWriter, OpenOptions, Producer, WriteOptions,
};
use offsetlog_benches::{FIRST_TIMESTAMP, codec_of, first_batches, first_records};
use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Records that are appended over and over, and batches: both as the peer has it.
const RECORDS: usize = 4096;
const BATCHES: usize = 16;
/// Preallocating a large file takes longer than writing to it.
const SMALL_SEGMENT: &str = "67108864";

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// What was read of the sources.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    records: HashMap<String, Pairs>,
    batches: HashMap<String, Vec<Vec<u8>>>,
}

impl Sources {
    pub(crate) fn records(&mut self, source: &str) -> Outcome<&[(Vec<u8>, Vec<u8>)]> {
        if !self.records.contains_key(source) {
            let records = first_records(Path::new(source), RECORDS)?;
            self.records.insert(source.to_owned(), records);
        }
        Ok(self.records.get(source).map_or(&[], Vec::as_slice))
    }

    fn batches(&mut self, source: &str) -> Outcome<&mut [Vec<u8>]> {
        if !self.batches.contains_key(source) {
            let batches = first_batches(Path::new(source), BATCHES)?;
            self.batches.insert(source.to_owned(), batches);
        }
        Ok(self
            .batches
            .get_mut(source)
            .map_or(&mut [], Vec::as_mut_slice))
    }
}

/// Runs a round if it is one of these.
pub(crate) fn round(words: &[&str], sources: &mut Sources) -> Outcome<Option<String>> {
    let answer = match words {
        [
            "append",
            directory,
            source,
            records,
            per_batch,
            codec,
            rest @ ..,
        ] => {
            let records = records.parse()?;
            let source = sources.records(source)?;
            append(directory, source, records, per_batch.parse()?, codec, rest)?
        }
        ["follow", directory, source, records, rest @ ..] => {
            let records = records.parse()?;
            follow(directory, sources.batches(source)?, records, rest)?
        }
        ["write-limit", directory, source, blocks, bytes] => {
            let source = sources.batches(source)?;
            write_limit(directory, source, blocks.parse()?, bytes.parse()?)?
        }
        ["disk-writes", directory, source, blocks, bytes, how] => {
            let source = sources.batches(source)?;
            disk_writes(directory, source, blocks.parse()?, bytes.parse()?, how)?
        }
        ["durable", directory, source, records, callers, rest @ ..] => {
            let source = sources.records(source)?;
            durable(directory, source, records.parse()?, callers.parse()?, rest)?
        }
        ["sync-limit", directory, source, records] => {
            sync_limit(directory, sources.records(source)?, records.parse()?)?
        }
        ["recover", directory] => recover(directory)?,
        _ => return Ok(None),
    };
    Ok(Some(answer))
}

/// A new log in a directory of its own; what an earlier round left there is removed.
pub(crate) fn new_log(directory: &str, settings: &[(&str, &str)]) -> Outcome<LogWriter> {
    remove(directory)?;
    let write = WriteOptions {
        config: Some(LogConfig::parse(settings.iter().copied())?),
        ..WriteOptions::default()
    };
    let log = LogWriter::open(directory, &OpenOptions::default(), &write)?;
    Ok(log)
}

pub(crate) fn remove(directory: &str) -> Outcome<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Ends the log as asked and says what was written: the offset behind it, and its bytes.
fn end(log: &LogWriter, directory: &str, how: &[&str]) -> Outcome<Met> {
    let count = log.log_end_offset()? as u64;
    match how {
        ["close"] => log.close()?,
        [] => {}
        _ => return Err("close or nothing expected".into()),
    }
    Ok(Met {
        count,
        sum: log_checksum(Path::new(directory))?,
    })
}

/// A checksum over the bytes of all `.log` files of a directory, as the peer's.
pub(crate) fn log_checksum(directory: &Path) -> Outcome<u64> {
    let mut paths: Vec<_> = fs::read_dir(directory)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    paths.sort();
    let mut sum = 0_u64;
    for path in paths {
        let bytes = fs::read(path)?;
        let part = u64::from(crc32c(&bytes)).wrapping_add((bytes.len() as u64) << 32);
        sum = sum.wrapping_mul(31).wrapping_add(part);
    }
    Ok(sum)
}

fn append(
    directory: &str,
    source: &[(Vec<u8>, Vec<u8>)],
    records: u64,
    per_batch: u64,
    codec: &str,
    how: &[&str],
) -> Outcome<String> {
    let log = new_log(directory, &[])?;
    let mut batch = BatchBuilder::new(codec_of(codec)?, Producer::default());
    let options = AppendOptions {
        leader_epoch: Some(0),
        ..AppendOptions::default()
    };
    let mut next = source.iter().cycle();
    let (cpu, wall) = clocked(|| {
        let mut timestamp = FIRST_TIMESTAMP;
        for _ in 0..records / per_batch {
            for (key, value) in next.by_ref().take(per_batch as usize) {
                batch.push(timestamp, Some(key), Some(value), &[])?;
                timestamp += 1;
            }
            log.append(&mut batch, &options)?;
        }
        Ok(())
    })?;
    Ok(answer(cpu, wall, end(&log, directory, how)?))
}

fn follow(directory: &str, batches: &mut [Vec<u8>], records: u64, how: &[&str]) -> Outcome<String> {
    let log = new_log(directory, &[])?;
    let (cpu, wall) = clocked(|| {
        let mut next = 0;
        while next < records as i64 {
            for batch in &mut *batches {
                if let Some(offset) = batch.first_chunk_mut::<8>() {
                    *offset = next.to_be_bytes();
                }
                next = log.append_as_follower(batch, 0, false)?.last_offset + 1;
            }
        }
        Ok(())
    })?;
    Ok(answer(cpu, wall, end(&log, directory, how)?))
}

fn write_limit(directory: &str, batches: &[Vec<u8>], blocks: u64, bytes: usize) -> Outcome<String> {
    remove(directory)?;
    fs::create_dir_all(directory)?;
    let file = fs::File::create(Path::new(directory).join("00000000000000000000.log"))?;
    let source: Vec<&[u8]> = batches
        .iter()
        .flat_map(|batch| batch.chunks_exact(bytes))
        .take(RECORDS)
        .collect();
    let mut met = Met::default();
    let mut next = source.iter().cycle();
    let (cpu, wall) = clocked(|| {
        let mut position = 0;
        for _ in 0..blocks {
            let Some(block) = next.next() else {
                return Err("the source's batches are smaller than a block".into());
            };
            met.add(u64::from(crc32c(block)));
            file.write_all_at(block, position)?;
            position += block.len() as u64;
        }
        Ok(())
    })?;
    Ok(answer(cpu, wall, met))
}

/// The same writes with and without what stands between the engine and the system.
fn disk_writes(
    directory: &str,
    source: &[Vec<u8>],
    blocks: usize,
    bytes: usize,
    how: &str,
) -> Outcome<String> {
    remove(directory)?;
    fs::create_dir_all(directory)?;
    let path = Path::new(directory).join("00000000000000000000.log");
    let plain = fs::File::create(&path)?;
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let through = disk.open(&path, Access::Write)?;
    let Some(block) = source.first().and_then(|batch| batch.get(..bytes)) else {
        return Err("the source's batches are smaller than a block".into());
    };
    let mut met = Met::default();
    let (cpu, wall) = clocked(|| {
        for number in 0..blocks {
            let position = (number * bytes) as u64;
            match how {
                "trait" => through.write_at(block, position)?,
                _ => plain.write_all_at(block, position)?,
            }
            met.add(position);
        }
        Ok(())
    })?;
    Ok(answer(cpu, wall, met))
}

fn durable(
    directory: &str,
    source: &[(Vec<u8>, Vec<u8>)],
    records: usize,
    callers: usize,
    how: &[&str],
) -> Outcome<String> {
    let settings: &[_] = match how {
        ["preallocate"] => &[("preallocate", "true"), ("segment.bytes", SMALL_SEGMENT)],
        [] => &[],
        _ => return Err("preallocate or nothing expected".into()),
    };
    let log = new_log(directory, settings)?;
    let mut times = Vec::with_capacity(records);
    let (cpu, wall) = clocked(|| {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..callers)
                .map(|caller| {
                    let log = &log;
                    scope.spawn(move || durable_caller(log, source, records, caller..callers))
                })
                .collect();
            for thread in threads {
                times.extend(thread.join().map_err(|_| "a thread panicked")??);
            }
            Ok(())
        })
    })?;
    let line = answer(cpu, wall, end(&log, directory, &["close"])?);
    Ok(format!("{line} {}", percentiles(&mut times)))
}

/// Appends every so manyth record, beginning with the caller's own.
fn durable_caller(
    log: &LogWriter,
    source: &[(Vec<u8>, Vec<u8>)],
    records: usize,
    callers: Range<usize>,
) -> Outcome<Vec<Duration>> {
    let mut batch = BatchBuilder::default();
    let options = AppendOptions {
        leader_epoch: Some(0),
        flush: true,
    };
    let mut times = Vec::with_capacity(records);
    for number in (callers.start..records).step_by(callers.end) {
        let Some((key, value)) = source.get(number % source.len()) else {
            return Err("the source holds no record".into());
        };
        let timestamp = FIRST_TIMESTAMP + number as i64;
        let start = Instant::now();
        batch.push(timestamp, Some(key), Some(value), &[])?;
        log.append(&mut batch, &options)?;
        times.push(start.elapsed());
    }
    Ok(times)
}

fn sync_limit(directory: &str, source: &[(Vec<u8>, Vec<u8>)], records: usize) -> Outcome<String> {
    remove(directory)?;
    fs::create_dir_all(directory)?;
    let file = fs::File::create(Path::new(directory).join("00000000000000000000.log"))?;
    let mut times = Vec::with_capacity(records);
    let mut met = Met::default();
    let (cpu, wall) = clocked(|| {
        let mut position = 0;
        for (_, value) in source.iter().cycle().take(records) {
            let start = Instant::now();
            file.write_all_at(value, position)?;
            file.sync_data()?;
            times.push(start.elapsed());
            position += value.len() as u64;
            met.add(0);
        }
        Ok(())
    })?;
    Ok(format!(
        "{} {}",
        answer(cpu, wall, met),
        percentiles(&mut times)
    ))
}

fn recover(directory: &str) -> Outcome<String> {
    let write = WriteOptions {
        clean: Some(false),
        recovery_point: Some(0),
        ..WriteOptions::default()
    };
    let mut logs = Vec::new();
    let (cpu, wall) = clocked(|| {
        let log = LogWriter::open(directory, &OpenOptions::default(), &write)?;
        logs.push(log);
        Ok(())
    })?;
    let mut met = Met::default();
    for log in &logs {
        met.count = log.recovery_report().segments_read as u64;
        met.sum = log.log_end_offset()? as u64;
        log.close()?;
    }
    Ok(answer(cpu, wall, met))
}
