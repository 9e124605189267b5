//! Appends to a partition directory and says on its output what was promised, at the moment when it was: for tests that cut the
//! power, kill the process or break the disk meanwhile. `tests/reliability/promises.py` knows the same contents.
//!
//! ```text
//! drive path=DIR/topic-0 run=7 appends=1000 flush_every=5 internal.segment.bytes=16384 ...
//! ```
//!
//! Lines of output, one call of `write` each, with the time in ns since 1970 before them: `opened END`, `appending GENERATION BASE`, `acked GENERATION BASE LAST`, `flushed END`,
//! `rolled BASE`, `truncating OFFSET`, `truncated OFFSET`, `deleting OFFSET`, `deleted OFFSET` (whole segments below are gone by then), `failed CALL ERRNO KIND MESSAGE`, `closing`,
//! `closed`, `done`.

use offsetlog::{
    AppendOptions, BatchBuilder, Error, ErrorKind, LogConfig, LogWriter, MaintainOptions,
    OpenOptions, WriteOptions,
};
use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

type Failed = Box<dyn StdError>;

/// Bytes of a value before its filling: run, generation, offset.
const HEAD_BYTES: usize = 24;
const TIME: i64 = 1_700_000_000_000;

/// What is done, how often, and with what.
struct Plan {
    path: String,
    /// Number of this run of the program: records of different runs differ.
    run: u64,
    appends: u64,
    /// Records of a batch, at most.
    records: u64,
    /// Filling of a value, at most.
    value_bytes: u64,
    /// Every so many appends, 0 for never.
    flush_every: u64,
    roll_every: u64,
    truncate_every: u64,
    /// A truncation goes back by so many offsets at most.
    truncate_by: u64,
    /// Deletes the first records, up to three quarters of what there is, and the segments that hold no others.
    delete_every: u64,
    /// Each append asks for its own flush.
    append_flush: bool,
    /// So many threads append by turns, and flush at the same time after each append. They do nothing else.
    threads: u64,
    pause: Duration,
    close: bool,
    /// After a failed call: say how each call is answered then.
    probe: bool,
    config: LogConfig,
}

impl Plan {
    fn read(arguments: impl Iterator<Item = String>) -> Result<Self, Failed> {
        let mut given = BTreeMap::new();
        for argument in arguments {
            let (name, value) = argument
                .split_once('=')
                .ok_or_else(|| format!("{argument:?} is not name=value"))?;
            given.insert(name.to_owned(), value.to_owned());
        }
        let mut number = |name: &str, default: u64| -> Result<u64, Failed> {
            match given.remove(name) {
                Some(text) => Ok(text.parse().map_err(|_| format!("{name}={text}"))?),
                None => Ok(default),
            }
        };
        let (run, appends) = (number("run", 1)?, number("appends", 100)?);
        let (records, value_bytes) = (number("records", 4)?.max(1), number("value_bytes", 200)?);
        let (flush_every, roll_every) = (number("flush_every", 5)?, number("roll_every", 0)?);
        let truncate_every = number("truncate_every", 0)?;
        let truncate_by = number("truncate_by", 12)?.max(1);
        let delete_every = number("delete_every", 0)?;
        let append_flush = number("append_flush", 0)? != 0;
        let threads = number("threads", 1)?;
        let probe = number("probe", 0)? != 0;
        let pause = Duration::from_micros(number("pause_us", 0)?);
        let close = number("close", 1)? != 0;
        let path = given.remove("path").ok_or("path=DIRECTORY is missing")?;
        // What is left is Kafka's: `internal.segment.bytes=16384`.
        let config = LogConfig::parse(given.iter().map(|(name, value)| (&**name, &**value)))?;
        Ok(Self {
            path,
            run,
            appends,
            records,
            value_bytes,
            flush_every,
            roll_every,
            truncate_every,
            truncate_by,
            delete_every,
            append_flush,
            threads,
            pause,
            close,
            probe,
            config,
        })
    }
}

/// A number that looks random and is a function of three.
fn mix(run: u64, generation: u64, offset: u64) -> u64 {
    let mut x = run
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(generation.wrapping_mul(0xbf58_476d_1ce4_e5b9))
        .wrapping_add(offset.wrapping_mul(0x94d0_49bb_1331_11eb));
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn say(line: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanos = now.unwrap_or_default().as_nanos();
    output.write_all(format!("{nanos} {line}\n").as_bytes())?;
    output.flush()
}

fn every(step: u64, count: u64) -> bool {
    count > 0 && step.is_multiple_of(count)
}

/// A log that is driven. The generation counts truncations, so that what was cut differs from what came in its place.
struct Driver<'a> {
    plan: &'a Plan,
    log: LogWriter,
    generation: u64,
    batch: BatchBuilder,
    value: Vec<u8>,
}

impl Driver<'_> {
    fn build(&mut self, base: u64) -> Result<(), Failed> {
        let (run, generation) = (self.plan.run, self.generation);
        for offset in base..=base + mix(run, generation, base) % self.plan.records {
            let random = mix(run, generation, offset);
            let filling = random % (self.plan.value_bytes + 1);
            let random = random.to_le_bytes();
            self.value.clear();
            for word in [run, generation, offset] {
                self.value.extend_from_slice(&word.to_le_bytes());
            }
            self.value
                .extend(random.iter().cycle().take(filling as usize));
            debug_assert!(self.value.len() >= HEAD_BYTES);
            let jitter = i64::from(random.first().copied().unwrap_or(0));
            let time = TIME + offset as i64 + jitter;
            self.batch.push(time, None, Some(&self.value), &[])?;
        }
        Ok(())
    }

    fn append(&mut self) -> Result<(), Failed> {
        let base = self.log.log_end_offset()?;
        self.build(base as u64)?;
        say(&format!("appending {} {base}", self.generation))?;
        let options = AppendOptions {
            flush: self.plan.append_flush,
            ..AppendOptions::default()
        };
        let info = match self.log.append(&mut self.batch, &options) {
            Ok(info) => info,
            Err(error) => {
                // What was refused is not sent again: the next one may be another.
                self.batch = BatchBuilder::default();
                return Err(error.into());
            }
        };
        say(&format!(
            "acked {} {} {}",
            self.generation, info.base_offset, info.last_offset
        ))?;
        if self.plan.append_flush {
            say(&format!("flushed {}", info.last_offset + 1))?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failed> {
        let end = self.log.log_end_offset()?;
        self.log.flush()?;
        Ok(say(&format!("flushed {end}"))?)
    }

    fn roll(&mut self) -> Result<(), Failed> {
        let base = self.log.roll()?;
        Ok(say(&format!("rolled {base}"))?)
    }

    fn truncate(&mut self, step: u64) -> Result<(), Failed> {
        let (start, end) = (self.log.log_start_offset()?, self.log.log_end_offset()?);
        let back = 1 + mix(self.plan.run, step, u64::MAX) % self.plan.truncate_by;
        let offset = (end - back as i64).max(start);
        say(&format!("truncating {offset}"))?;
        self.generation += 1;
        self.log.truncate_to(offset)?;
        Ok(say(&format!("truncated {offset}"))?)
    }

    fn delete(&mut self, step: u64) -> Result<(), Failed> {
        let (start, end) = (self.log.log_start_offset()?, self.log.log_end_offset()?);
        let most = (end - start) as u64 * 3 / 4 + 1;
        let offset = start + (mix(self.plan.run, step, u64::MAX - 1) % most) as i64;
        say(&format!("deleting {offset}"))?;
        self.log.delete_records_before(offset)?;
        self.log.maintain(&MaintainOptions::default())?;
        Ok(say(&format!("deleted {offset}"))?)
    }

    fn step(&mut self, step: u64) -> Result<(), (&'static str, Failed)> {
        let plan = self.plan;
        self.append().map_err(|error| ("append", error))?;
        if every(step, plan.flush_every) {
            self.flush().map_err(|error| ("flush", error))?;
        }
        if every(step, plan.roll_every) {
            self.roll().map_err(|error| ("roll", error))?;
        }
        if every(step, plan.truncate_every) {
            self.truncate(step).map_err(|error| ("truncate", error))?;
        }
        if every(step, plan.delete_every) {
            self.delete(step).map_err(|error| ("delete", error))?;
        }
        Ok(())
    }

    /// Says how each call is answered now.
    fn probe(&mut self) -> Result<(), Failed> {
        for _ in 0..3 {
            let answers = [
                ("append", self.append()),
                ("flush", self.flush()),
                ("roll", self.roll()),
            ];
            for (call, answer) in answers {
                if let Err(error) = answer {
                    report(call, error.as_ref())?;
                }
            }
        }
        Ok(())
    }
}

/// Says that a call failed, how the engine names it, and with which number of the system.
fn report(call: &str, error: &(dyn StdError + 'static)) -> io::Result<()> {
    let kind = error.downcast_ref::<Error>().map(Error::kind);
    let (name, errno) = match kind {
        Some(ErrorKind::Io { source, .. }) => ("io", source.raw_os_error().unwrap_or(0)),
        Some(ErrorKind::Poisoned { .. }) => ("poisoned", 0),
        Some(_) => ("other", 0),
        None => ("output", 0),
    };
    say(&format!("failed {call} {errno} {name} {error}"))
}

/// Appends from several threads, each of which waits until its own record is durable: what one sync for all must not promise too early.
/// Gives the first failure.
fn drive_together(driver: Driver<'_>, threads: u64) -> Result<(), (&'static str, String)> {
    let log = driver.log.clone();
    let left = AtomicU64::new(driver.plan.appends);
    let driver = Mutex::new(driver);
    let work = || -> Result<(), (&'static str, Failed)> {
        let take = |left: u64| left.checked_sub(1);
        while left.fetch_update(SeqCst, SeqCst, take).is_ok() {
            let mut turn = driver.lock().unwrap_or_else(PoisonError::into_inner);
            turn.append().map_err(|error| ("append", error))?;
            let end = log
                .log_end_offset()
                .map_err(|error| ("append", error.into()))?;
            drop(turn);
            log.flush().map_err(|error| ("flush", error.into()))?;
            say(&format!("flushed {end}")).map_err(|error| ("flush", error.into()))?;
        }
        Ok(())
    };
    // A failure is told by the thread that met it: errors of the engine are not sent between threads.
    let told = || {
        work().map_err(|(call, error)| match report(call, error.as_ref()) {
            Ok(()) => (call, error.to_string()),
            Err(error) => ("output", error.to_string()),
        })
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(told)).collect();
        running.into_iter().try_for_each(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| Err(("thread", "panicked".to_owned())))
        })
    })
}

fn drive(plan: &Plan) -> Result<bool, Failed> {
    let write = WriteOptions {
        config: Some(plan.config.clone()),
        ..WriteOptions::default()
    };
    let log = match LogWriter::open(&plan.path, &OpenOptions::default(), &write) {
        Ok(log) => log,
        Err(error) => {
            report("open", &error)?;
            return Ok(false);
        }
    };
    say(&format!("opened {}", log.log_end_offset()?))?;
    let mut driver = Driver {
        plan,
        log,
        generation: 0,
        batch: BatchBuilder::default(),
        value: Vec::new(),
    };
    let log = driver.log.clone();
    if plan.threads > 1 {
        if drive_together(driver, plan.threads).is_err() {
            return Ok(false);
        }
        return finish(plan, &log);
    }
    for step in 1..=plan.appends {
        if let Err((call, error)) = driver.step(step) {
            report(call, error.as_ref())?;
            if plan.probe {
                driver.probe()?;
                break;
            }
            return Ok(false);
        }
        if !plan.pause.is_zero() {
            std::thread::sleep(plan.pause);
        }
    }
    finish(plan, &log)
}

/// Ends cleanly, if that is the plan.
fn finish(plan: &Plan, log: &LogWriter) -> Result<bool, Failed> {
    if plan.close {
        say("closing")?;
        if let Err(error) = log.close() {
            report("close", &error)?;
            return Ok(false);
        }
        say("closed")?;
    }
    say("done")?;
    Ok(true)
}

fn main() -> Result<ExitCode, Failed> {
    let plan = Plan::read(std::env::args().skip(1))?;
    Ok(if drive(&plan)? {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
