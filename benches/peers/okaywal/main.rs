//! Durable commits of okaywal, in the line protocol of the benches: `durable DIRECTORY BYTES RECORDS CALLERS` appends RECORDS entries
//! of so many bytes from so many threads, each of which waits for each of its commits, with okaywal's default settings.

use okaywal::{LogVoid, WriteAheadLog};
use std::error::Error;
use std::fs;
use std::io::{BufRead, Write};
use std::path::Path;
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        match round(&line.split(' ').collect::<Vec<_>>()) {
            Ok(answer) => println!("{answer}"),
            Err(error) => println!("error {}", error.to_string().replace('\n', " ")),
        }
        std::io::stdout().flush()?;
    }
    Ok(())
}

fn round(words: &[&str]) -> Outcome<String> {
    let ["durable", directory, bytes, records, callers] = words else {
        return Err("durable DIRECTORY BYTES RECORDS CALLERS expected".into());
    };
    let (bytes, callers): (usize, usize) = (bytes.parse()?, callers.parse()?);
    let each = records.parse::<usize>()? / callers;
    if Path::new(directory).exists() {
        fs::remove_dir_all(directory)?;
    }
    let log = WriteAheadLog::recover(directory, LogVoid)?;
    let value = vec![b'x'; bytes];
    let wall = Instant::now();
    let done = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..callers)
            .map(|_| scope.spawn(|| commits(&log, &value, each)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| "a thread panicked")?)
            .collect::<Outcome<Vec<_>>>()
    })?;
    let wall = wall.elapsed().as_secs_f64();
    log.shutdown()?;
    let mut times: Vec<Duration> = done.iter().flat_map(|part| part.times.clone()).collect();
    times.sort_unstable();
    let at = |place: usize| times[place].as_secs_f64() * 1e6;
    let (p50, p99) = (at(times.len() / 2), at(times.len() * 99 / 100));
    // What the log itself numbered.
    let first = done.iter().map(|part| part.first).min().unwrap_or(0);
    let last = done.iter().map(|part| part.last).max().unwrap_or(0);
    let (count, sum) = (last - first + 1, times.len() * bytes);
    Ok(format!(
        "cpu=0 wall={wall:.9} count={count} sum={sum} p50={p50:.3} p99={p99:.3}"
    ))
}

/// One caller's commits.
struct Commits {
    times: Vec<Duration>,
    first: u64,
    last: u64,
}

fn commits(log: &WriteAheadLog, value: &[u8], count: usize) -> Outcome<Commits> {
    let mut done = Commits {
        times: Vec::with_capacity(count),
        first: u64::MAX,
        last: 0,
    };
    for _ in 0..count {
        let start = Instant::now();
        let mut entry = log.begin_entry()?;
        entry.write_chunk(value)?;
        let id = entry.commit()?.0;
        done.times.push(start.elapsed());
        done.first = done.first.min(id);
        done.last = done.last.max(id);
    }
    Ok(done)
}
