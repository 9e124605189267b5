//! The Rust counterpart of the Kafka peer: answers one line of standard input with one line, so that `make bench` can let the two
//! take turns.
//!
//! `WORK DIRECTORY [REPEATS | QUERIES SEED]` runs one round and prints `cpu= wall= count= sum= [p50= p99=] peak_rss=`: seconds,
//! things met, a checksum over them (wrapping, as the peer's), microseconds of a look-up, bytes. `mapped-` before a work opens the
//! log with `mapped`. Works that write are in `writing`, those on whole log dirs and compaction in `upkeep`,
//! those of operators in `rescue`, data to compare commits on in `making`, bare reads in `bare`.
#![allow(
    clippy::print_stdout,
    reason = "the answers of the protocol are this program's purpose"
)]

mod bare;
mod making;
mod rescue;
mod upkeep;
mod writing;

use offsetlog::format::checksum::crc32c;
use offsetlog::{Isolation, Log, OpenOptions, Scan, ScanOptions, ScanRange};
use offsetlog_benches::{Draws, FIRST_TIMESTAMP};
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::io::{BufRead, Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// What a round met.
#[derive(Debug, Default, Clone, Copy)]
struct Met {
    count: u64,
    sum: u64,
}

impl Met {
    const fn add(&mut self, part: u64) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(part);
    }
}

/// Logs that are kept open: those of look-ups and mapped ones.
type OpenLogs = HashMap<String, Log>;

fn main() -> Outcome<()> {
    println!("ready");
    let (mut logs, mut sources) = (OpenLogs::new(), writing::Sources::default());
    let mut known = bare::KnownLogs::default();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        let answered = writing::round(&words, &mut sources)
            .transpose()
            .or_else(|| upkeep::round(&words, &mut sources).transpose())
            .or_else(|| rescue::round(&words).transpose())
            .or_else(|| making::round(&words).transpose())
            .or_else(|| bare::round(&words, &mut known).transpose())
            .unwrap_or_else(|| round(&words, &mut logs));
        match answered {
            Ok(answer) => println!("{answer} peak_rss={}", peak_rss_bytes()),
            Err(error) => println!("error {}", error.to_string().replace('\n', " ")),
        }
        std::io::stdout().flush()?;
    }
    Ok(())
}

fn round(words: &[&str], logs: &mut OpenLogs) -> Outcome<String> {
    let [work, directory, rest @ ..] = words else {
        return Err("WORK DIRECTORY expected".into());
    };
    let numbers: Vec<u64> = rest
        .iter()
        .map(|word| word.parse())
        .collect::<Result<_, _>>()?;
    let repeats = numbers.first().copied().unwrap_or(1);
    let (mapped, work) = match work.strip_prefix("mapped-") {
        Some(work) => (true, work),
        None => (false, *work),
    };
    let options = OpenOptions {
        mapped,
        ..OpenOptions::default()
    };
    // A map is worth having where it is kept, and a file that is read is opened anew by the peer too.
    let mut open = || -> Outcome<Log> {
        if !(mapped || matches!(work, "lookup" | "time")) {
            return Ok(Log::open(directory, &options)?);
        }
        match logs.get(*directory) {
            Some(log) => Ok(log.clone()),
            None => Ok(logs
                .entry((*directory).to_owned())
                .or_insert(Log::open(directory, &options)?)
                .clone()),
        }
    };
    match work {
        "nothing" => timed(1, || Ok(Met::default())),
        "limit" => timed(repeats, || read_and_checksum(directory)),
        "headers" => timed(repeats, || headers(&open()?)),
        "crc" => timed(repeats, || checksums(&open()?)),
        "records" => timed(repeats, || records(open()?.scan(&ScanOptions::default())?)),
        "unchecked-records" => {
            let options = ScanOptions {
                verify_checksums: false,
                ..ScanOptions::default()
            };
            timed(repeats, || records(open()?.scan(&options)?))
        }
        "threads-2" => timed(repeats, || records_on_two_threads(&open()?)),
        "open" => timed(1, || {
            Ok(Met {
                count: 1,
                sum: open()?.log_end_offset()? as u64,
            })
        }),
        "lookup" | "time" => {
            let log = open()?;
            let [queries, seed] = numbers[..] else {
                return Err("QUERIES SEED expected".into());
            };
            if work == "lookup" {
                look_ups(&log, queries, seed, value_at)
            } else {
                look_ups(&log, queries, seed, offset_at)
            }
        }
        _ => Err(format!("no work is called {work}").into()),
    }
}

/// CPU seconds of the whole process: no thread of ours is left out.
fn cpu_seconds() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(now).unwrap_or_default().as_secs_f64()
}

fn timed(repeats: u64, mut work: impl FnMut() -> Outcome<Met>) -> Outcome<String> {
    let mut met = Met::default();
    let (cpu, wall) = clocked(|| {
        for _ in 0..repeats {
            let one = work()?;
            met.count += one.count;
            met.sum = met.sum.wrapping_add(one.sum);
        }
        Ok(())
    })?;
    Ok(answer(cpu, wall, met))
}

/// CPU and wall seconds of some work.
fn clocked(work: impl FnOnce() -> Outcome<()>) -> Outcome<(f64, f64)> {
    let (wall, cpu) = (Instant::now(), cpu_seconds());
    work()?;
    Ok((cpu_seconds() - cpu, wall.elapsed().as_secs_f64()))
}

fn answer(cpu: f64, wall: f64, Met { count, sum }: Met) -> String {
    format!("cpu={cpu:.9} wall={wall:.9} count={count} sum={sum}")
}

/// What the machine itself needs for the bytes of a log: they are read in blocks that stay in the cache, and their CRC-32C computed.
fn read_and_checksum(directory: &str) -> Outcome<Met> {
    let mut met = Met::default();
    let mut block = vec![0; 128 << 10];
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "log") {
            continue;
        }
        let mut file = std::fs::File::open(path)?;
        loop {
            let read = file.read(&mut block)?;
            if read == 0 {
                break;
            }
            met.add(u64::from(crc32c(block.get(..read).unwrap_or(&[]))));
        }
    }
    Ok(met)
}

fn headers(log: &Log) -> Outcome<Met> {
    let mut met = Met::default();
    for batch in log.batches(None, None)? {
        let batch = batch?;
        met.add(batch.last_offset as u64 + batch.size_bytes);
    }
    Ok(met)
}

fn checksums(log: &Log) -> Outcome<Met> {
    let mut met = Met::default();
    let mut scan = log.scan(&ScanOptions::default())?;
    while let Some(batch) = scan.next_batch()? {
        met.add(batch.header().last_offset as u64 + batch.header().size_bytes as u64);
    }
    Ok(met)
}

fn records(mut scan: Scan) -> Outcome<Met> {
    let mut met = Met::default();
    let mut is_whole = true;
    while let Some(mut batch) = scan.next_batch()? {
        batch.for_each_record(|record| {
            let (Some(key), Some(value)) = (record.key, record.value) else {
                is_whole = false;
                return;
            };
            met.add(
                record.offset as u64
                    + key.len() as u64
                    + value.len() as u64
                    + u64::from(key.first().copied().unwrap_or(0))
                    + u64::from(value.first().copied().unwrap_or(0))
                    + u64::from(value.last().copied().unwrap_or(0)),
            );
        })?;
    }
    if !is_whole {
        return Err("a record of the benches has key and value".into());
    }
    Ok(met)
}

/// Cuts the log at batch starts and lets two threads take one piece after another.
fn records_on_two_threads(log: &Log) -> Outcome<Met> {
    let splits = log.splits(None, None, log.size_bytes()?.div_ceil(16))?;
    let next = AtomicUsize::new(0);
    let work = || -> Outcome<Met> {
        let mut met = Met::default();
        while let Some(split) = splits.get(next.fetch_add(1, Ordering::Relaxed)) {
            let range = ScanRange {
                log: log.clone(),
                start: Some(split.start),
                stop: Some(split.stop),
            };
            let part = records(Scan::over(vec![range], &ScanOptions::default())?)?;
            met.count += part.count;
            met.sum = met.sum.wrapping_add(part.sum);
        }
        Ok(met)
    };
    let (mine, theirs) = std::thread::scope(|scope| {
        let other = scope.spawn(work);
        let mine = work();
        (
            mine,
            other
                .join()
                .unwrap_or_else(|_| Err("a thread panicked".into())),
        )
    });
    let (mine, theirs) = (mine?, theirs?);
    Ok(Met {
        count: mine.count + theirs.count,
        sum: mine.sum.wrapping_add(theirs.sum),
    })
}

fn value_at(log: &Log, offset: i64) -> Outcome<u64> {
    let record = log.get(offset)?.ok_or("no record")?;
    let value = record.value.ok_or("no value")?;
    let third_from_end = value
        .len()
        .checked_sub(3)
        .and_then(|at| value.get(at).copied());
    Ok(offset as u64 + value.len() as u64 + u64::from(third_from_end.unwrap_or(0)))
}

fn offset_at(log: &Log, offset: i64) -> Outcome<u64> {
    let found = log.offset_for_timestamp(FIRST_TIMESTAMP + offset, Isolation::ReadUncommitted)?;
    Ok(found.ok_or("no record at or after the time")?.offset as u64)
}

fn look_ups(
    log: &Log,
    queries: u64,
    seed: u64,
    look_up: fn(&Log, i64) -> Outcome<u64>,
) -> Outcome<String> {
    let end = log.log_end_offset()?;
    let mut times: Vec<Duration> = Vec::with_capacity(queries as usize);
    let line = timed(1, || {
        let mut met = Met::default();
        let mut draws = Draws::new(seed);
        for _ in 0..queries {
            let offset = draws.offset_below(end);
            let start = Instant::now();
            let found = look_up(log, offset)?;
            times.push(start.elapsed());
            met.add(found);
        }
        Ok(met)
    })?;
    Ok(format!("{line} {}", percentiles(&mut times)))
}

/// The middle and the hundredth part of the times, in microseconds.
fn percentiles(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let at = |place: usize| times.get(place).copied().unwrap_or_default().as_secs_f64() * 1e6;
    let (p50, p99) = (at(times.len() / 2), at(times.len() * 99 / 100));
    format!("p50={p50:.3} p99={p99:.3}")
}

/// Peak resident memory so far; 0 where the system does not tell in `/proc`.
fn peak_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line
        .and_then(|line| line.split_whitespace().next())
        .and_then(|kib| kib.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
