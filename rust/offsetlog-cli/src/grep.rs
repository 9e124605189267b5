//! `offsetlog grep`: records that hold a pattern, in all partitions at once.
//!
//! Workers take partitions in their order and send what they print through a channel a partition, which holds a few blocks. The
//! channels are emptied in the same order, so partitions come one behind the other, each in offset order, and memory stays
//! bounded: a worker ahead of the output waits, and the one whose turn it is never does.

use crate::args::{Grep, Place};
use crate::cat::{Bounds, Range, oddities};
use crate::console::Console;
use crate::failure::{Failure, with_advice};
use crate::json::{unhex, write_json};
use crate::print::{Fields, Printer, Style};
use crate::progress::Progress;
use crate::select::Source;
use crate::unread::{of_one, tell_one, write_line};
use crate::{EXIT_ERROR, EXIT_FINE, EXIT_NOTHING};
use offsetlog::{ErrorKind, Isolation, Log, OneTopic, ScanOptions};
use regex::bytes::{Regex, RegexBuilder};
use serde_json::json;
use std::fmt::Write as _;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// Output of a partition is handed on in blocks of about this size.
const BLOCK_BYTES: usize = 64 << 10;
/// Blocks of one partition that may wait.
const BLOCKS_WAITING: usize = 16;
/// How often somebody who waits for output looks whether to stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const DEFAULT_FORMAT: &str = "%t-%p:%o:%k:%s\\n";

/// What a worker says about its partition.
enum Message {
    Block(Vec<u8>),
    /// The partition is done: records found, and what is odd about it.
    Done(u64, Vec<String>),
    Failed(u64, offsetlog::Error),
}

/// A partition to search.
struct Job {
    log: Log,
    range: Range,
}

/// What is looked for, and how it is printed.
struct Search<'a> {
    args: &'a Grep,
    pattern: Regex,
    places: Vec<Place>,
    printer: Printer,
    isolation: Isolation,
}

pub(crate) fn run(args: &Grep, console: &mut Console<'_>) -> Result<i32, Failure> {
    let search = Search::of(args)?;
    let bounds = Bounds::of(&args.offsets)?;
    let source = Source::open(&args.selection, console)?;
    let mut failed = false;
    let mut jobs = Vec::with_capacity(source.chosen.len());
    let mut topics = OneTopic::default();
    for chosen in &source.chosen {
        let opened = source.log(chosen, console).and_then(|log| {
            topics.check(&log)?;
            let range = bounds.resolve(&log, search.isolation, args.on_corrupt.into(), console)?;
            // Of all partitions together that may be more than a process may have.
            log.close_files();
            Ok(Job { log, range })
        });
        match opened {
            Ok(job) => jobs.push(job),
            Err(failure) => {
                // One damaged partition does not hide the others.
                let at = (chosen.topic.as_str(), chosen.partition);
                tell_one(at, &of_one(failure)?, args.json, console)?;
                failed = true;
            }
        }
    }
    let found = search.all(&jobs, console)?;
    Ok(match (failed || found.failed, found.records) {
        (true, _) => EXIT_ERROR,
        (false, 0) => EXIT_NOTHING,
        (false, _) => EXIT_FINE,
    })
}

#[derive(Default)]
struct Found {
    records: u64,
    failed: bool,
}

/// Tells the workers to stop when the output ends, however it does.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl<'a> Search<'a> {
    fn of(args: &'a Grep) -> Result<Self, Failure> {
        let all = [Place::Key, Place::Value, Place::Headers];
        let style = if args.json {
            Style::Json
        } else {
            let default = || DEFAULT_FORMAT.parse().map_err(Failure::Usage);
            Style::Text(args.format.clone().map_or_else(default, Ok)?)
        };
        if let Style::Text(template) = &style
            && template.frames_bytes()
        {
            return Err(Failure::Usage(
                "%R counts raw bytes, and what grep prints is escaped; use cat --raw".into(),
            ));
        }
        Ok(Self {
            args,
            pattern: pattern(args)?,
            places: if args.places.is_empty() {
                all.to_vec()
            } else {
                args.places.clone()
            },
            printer: Printer {
                style,
                key_format: args.key_format,
                value_format: args.value_format,
                show_null: args.null,
                raw: false,
            },
            isolation: args.isolation_level.into(),
        })
    }

    fn all(&self, jobs: &[Job], console: &mut Console<'_>) -> Result<Found, Failure> {
        let processors = || thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = self
            .args
            .threads
            .map_or_else(processors, std::num::NonZero::get);
        let (senders, receivers): (Vec<_>, Vec<_>) = jobs
            .iter()
            .map(|_| sync_channel::<Message>(BLOCKS_WAITING))
            .unzip();
        let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            let stop_at_end = StopAtEnd(&stop);
            for _ in 0..threads.min(jobs.len()) {
                let (senders, next, stop) = (&senders, &next, &stop);
                scope.spawn(move || {
                    loop {
                        let place = next.fetch_add(1, Ordering::Relaxed);
                        let (Some(job), Some(sender)) = (jobs.get(place), senders.get(place))
                        else {
                            break;
                        };
                        let message = self.partition(job, sender, stop);
                        if stop.load(Ordering::Relaxed) || sender.send(message).is_err() {
                            break;
                        }
                    }
                });
            }
            let outcome = self.print(jobs, receivers, console);
            drop(stop_at_end);
            outcome
        })
    }

    /// Prints what the workers send, partition after partition. The receivers end with this, and with them any worker that waits to send.
    fn print(
        &self,
        jobs: &[Job],
        receivers: Vec<Receiver<Message>>,
        console: &mut Console<'_>,
    ) -> Result<Found, Failure> {
        let mut found = Found::default();
        let progress = Progress::new(console, jobs.len() as u64);
        for (done, (job, receiver)) in jobs.iter().zip(receivers).enumerate() {
            progress.set(done as u64, job.log.topic());
            let name = format!("{}-{}", job.log.topic(), job.log.partition());
            let count = loop {
                match receive(&receiver, console)? {
                    Message::Block(block) => console.out.write_all(&block)?,
                    Message::Done(count, warnings) => {
                        for warning in warnings {
                            console.warn(&warning);
                        }
                        break count;
                    }
                    Message::Failed(_, error) if error.is_of_process() => {
                        return Err(error.into());
                    }
                    Message::Failed(count, error) => {
                        let at = (job.log.topic(), job.log.partition());
                        write_line(at, &error, self.args.json, console)?;
                        console.error(&format!("{name}: {}", in_words(&error)));
                        found.failed = true;
                        break count;
                    }
                }
            };
            found.records += count;
            if self.args.count {
                self.print_count(&job.log, count, console)?;
            }
        }
        Ok(found)
    }

    fn print_count(&self, log: &Log, count: u64, console: &mut Console<'_>) -> Result<(), Failure> {
        let (topic, partition) = (log.topic(), log.partition());
        if self.args.json {
            let line = json!({"topic": topic, "partition": partition, "count": count});
            write_json(&mut console.out, &line)?;
            writeln!(console.out)?;
        } else {
            writeln!(console.out, "{topic}-{partition}:{count}")?;
        }
        Ok(())
    }

    /// Searches one partition.
    fn partition(&self, job: &Job, sender: &SyncSender<Message>, stop: &AtomicBool) -> Message {
        let mut count = 0;
        let scanned = self.scan(job, sender, stop, &mut count);
        job.log.close_files();
        match scanned {
            Ok(warnings) => Message::Done(count, warnings),
            Err(error) => Message::Failed(count, error),
        }
    }

    fn scan(
        &self,
        job: &Job,
        sender: &SyncSender<Message>,
        stop: &AtomicBool,
        count: &mut u64,
    ) -> Result<Vec<String>, offsetlog::Error> {
        let Range { start, stop: end } = job.range;
        let most = self.args.max_count.unwrap_or(u64::MAX);
        if start >= end || most == 0 {
            return Ok(Vec::new());
        }
        let mut scan = job.log.scan(&ScanOptions {
            start: Some(start),
            stop: Some(end),
            isolation: self.isolation,
            on_corrupt: self.args.on_corrupt.into(),
            ..ScanOptions::default()
        })?;
        let mut block = Vec::new();
        // Matches found before damage are sent like all others.
        let outcome = (|| {
            while let Some(mut batch) = scan.next_batch()? {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let header = *batch.header();
                while let Some(record) = batch.next_record()? {
                    let fields = Fields::of(&job.log, &header, &record);
                    if self.matches(&fields) == self.args.invert_match {
                        continue;
                    }
                    *count += 1;
                    if !self.args.count {
                        let _ = self.printer.print(&mut block, &fields); // a Vec takes every write
                    }
                    if *count >= most {
                        return Ok(());
                    }
                    if block.len() >= BLOCK_BYTES
                        && sender
                            .send(Message::Block(std::mem::take(&mut block)))
                            .is_err()
                    {
                        return Ok(());
                    }
                }
            }
            Ok(())
        })();
        if !block.is_empty() {
            // Where nobody takes it any more, the next message tells.
            let _ = sender.send(Message::Block(block));
        }
        outcome.map(|()| oddities(&scan, &job.log))
    }

    fn matches(&self, record: &Fields<'_>) -> bool {
        let holds = |bytes: Option<&[u8]>| bytes.is_some_and(|bytes| self.pattern.is_match(bytes));
        self.places.iter().any(|place| match place {
            Place::Key => holds(record.key),
            Place::Value => holds(record.value),
            Place::Headers => {
                let mut headers = record.headers.iter();
                headers.any(|(name, value)| holds(Some(name)) || holds(*value))
            }
        })
    }
}

/// The engine's message. Damage gets no advice to print the records before it: they are printed already.
fn in_words(error: &offsetlog::Error) -> String {
    if error.is_corruption() {
        error.to_string()
    } else {
        with_advice(error)
    }
}

/// Waits for a message, and looks now and then whether to stop.
fn receive(receiver: &Receiver<Message>, console: &Console<'_>) -> Result<Message, Failure> {
    loop {
        match receiver.recv_timeout(LOOK_EVERY) {
            Ok(message) => return Ok(message),
            Err(RecvTimeoutError::Timeout) => {
                let interrupt = console.terminal.interrupt.as_ref();
                if interrupt.is_some_and(|interrupt| interrupt()) {
                    return Err(offsetlog::Error::new(ErrorKind::Interrupted).into());
                }
            }
            // A worker that ended without a word: only a defect does that, and it is not hidden.
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::Stopped(
                    "a worker of the search ended early".into(),
                ));
            }
        }
    }
}

/// One engine for text, bytes and expressions: it finds literals as fast as a search for literals alone.
fn pattern(args: &Grep) -> Result<Regex, Failure> {
    let text = if args.hex {
        let bytes = unhex(args.pattern.as_bytes()).map_err(Failure::Usage)?;
        let mut text = String::from("(?-u:");
        for byte in bytes {
            let _ = write!(text, "\\x{byte:02x}"); // a String takes every write
        }
        text + ")"
    } else if args.fixed_strings {
        regex::escape(&args.pattern)
    } else {
        args.pattern.clone()
    };
    RegexBuilder::new(&text)
        .case_insensitive(args.ignore_case)
        .build()
        .map_err(|error| {
            let words = error.to_string();
            // The crate draws the place over several lines; the last one says what is wrong.
            let reason = words.lines().last().unwrap_or_default();
            let reason = reason.trim_start_matches("error: ");
            Failure::Usage(format!(
                "the pattern is no regular expression: {reason}; -F takes it as text"
            ))
        })
}
