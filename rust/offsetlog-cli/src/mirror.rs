//! `offsetlog mirror`: what happens while it copies, and what it did.

use crate::args::Mirror;
use crate::console::Console;
use crate::escape::escaped;
use crate::failure::Failure;
use crate::json::{Shown, write_json};
use crate::progress::Progress;
use crate::signals::{self, Stop};
use crate::table::human;
use crate::{EXIT_DAMAGED, EXIT_ERROR, EXIT_FINE, EXIT_INTERRUPTED};
use offsetlog::Interrupt;
use offsetlog::disk::IoCall;
use offsetlog::format::counted;
use offsetlog_net::mirror::{
    EventKind, MirrorError, MirrorEvent, MirrorOptions, MirrorProgress, MirrorReport, Source,
    Watch, mirror,
};
use serde::Serialize;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

#[derive(Serialize)]
struct EventLine<'a> {
    event: &'static str,
    topic: Option<&'a str>,
    partition: Option<i32>,
    broker: Option<i32>,
    from: Option<i64>,
    until: Option<i64>,
    message: &'a str,
    kept: Vec<Shown<'a>>,
}

#[derive(Serialize)]
struct ProgressLine {
    progress: &'static str,
    bytes: u64,
    batches: u64,
    bytes_per_second: u64,
    partitions: usize,
    partitions_done: usize,
    lag: i64,
}

#[derive(Serialize)]
struct PartitionLine<'a> {
    topic: &'a str,
    partition: i32,
    log_start_offset: i64,
    log_end_offset: i64,
    high_watermark: Option<i64>,
    source_log_start_offset: Option<i64>,
    lag: Option<i64>,
    bytes: u64,
    batches: u64,
    problem: Option<&'a str>,
}

#[derive(Serialize)]
struct WholeLine<'a> {
    cluster_id: Option<&'a str>,
    bytes: u64,
    batches: u64,
    groups: usize,
    committed_offsets: u64,
    share_groups: usize,
    is_complete: bool,
    has_losses: bool,
    events_left_out: u64,
}

pub(crate) fn run(args: &Mirror, console: &mut Console<'_>) -> Result<i32, Failure> {
    console.quiet = args.quiet;
    let source = source_of(args)?;
    let options = MirrorOptions {
        topics: args.topics.clone(),
        patterns: args.patterns.clone(),
        once: args.once,
        follow_deletes: args.follow_deletes,
        groups: !args.no_groups,
        fetch_max_bytes: args.fetch_max_bytes,
        metadata_interval_ms: i64::from(args.refresh) * 1000,
        groups_interval_ms: i64::from(args.refresh) * 1000,
        give_up_ms: i64::from(args.give_up) * 1000,
        ..MirrorOptions::default()
    };
    if console.terminal.owns_signals {
        signals::outlive_file_limits();
    }
    let stopped = Arc::new(Mutex::new((signals::catch_stop(&console.terminal), None)));
    let asked = Arc::clone(&stopped);
    let interrupt: Interrupt = Arc::new(move || {
        let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.1.is_none() {
            asked.1 = (asked.0)();
        }
        asked.1.is_some()
    });
    let bar = Progress::counter(console);
    let told = RefCell::new((console, None::<std::io::Error>));
    let mut last = Instant::now();
    let watch = Watch {
        progress: Some(Box::new(|progress: &MirrorProgress| {
            if bar.is_shown() {
                bar.set(progress.batches, &words_of(progress));
            }
            if args.json && last.elapsed() >= Duration::from_secs(1) {
                last = Instant::now();
                write_line(&told, &progress_line(progress));
            }
        })),
        event: Some(Box::new(|event: &MirrorEvent| {
            if args.json {
                write_line(&told, &event_line(event));
            } else if let Ok(mut told) = told.try_borrow_mut() {
                match event.kind {
                    EventKind::New | EventKind::Settings => told.0.note(&event.message),
                    _ => told.0.warn(&words_of_event(event)),
                }
            }
        })),
        interrupt: Some(interrupt),
    };
    let done = mirror(&source, &args.into, &options, watch);
    drop(bar);
    let (console, failed) = told.into_inner();
    if let Some(error) = failed {
        return Err(Failure::Output(error));
    }
    let report = done.map_err(|error| match error {
        MirrorError::Disk(error) => Failure::Writing(error),
        other => Failure::Usage(other.to_string()),
    })?;
    if args.json {
        write_report(&report, console)?;
    } else {
        if args.quiet && (!report.is_complete || report.has_losses) {
            say_what_decides(&report, console);
        }
        say_report(&report, args, console)?;
    }
    let stopped = stopped.lock().unwrap_or_else(PoisonError::into_inner).1;
    if stopped == Some(Stop::Interrupted) {
        return Ok(EXIT_INTERRUPTED);
    }
    Ok(if !report.is_complete {
        EXIT_ERROR
    } else if report.has_losses {
        EXIT_DAMAGED
    } else {
        EXIT_FINE
    })
}

fn source_of(args: &Mirror) -> Result<Source, Failure> {
    let mut source = Source::default();
    for list in &args.bootstrap {
        let added = source.add_bootstrap(list);
        added.map_err(|reason| Failure::Usage(format!("--bootstrap: {reason}")))?;
    }
    if let Some(path) = &args.config {
        let bytes =
            std::fs::read(path).map_err(|error| offsetlog::Error::io(IoCall::Read, path, error))?;
        let read = source.read_properties(&bytes);
        read.map_err(|reason| Failure::Usage(format!("{}: {reason}", path.display())))?;
    }
    if source.bootstrap.is_empty() {
        let reason = "no broker given: --bootstrap HOST:PORT, or bootstrap.servers in --config";
        return Err(Failure::Usage(reason.to_owned()));
    }
    Ok(source)
}

/// Writes a line at once: somebody may be waiting for it.
fn write_line(told: &RefCell<(&mut Console<'_>, Option<std::io::Error>)>, line: &impl Serialize) {
    let Ok(mut told) = told.try_borrow_mut() else {
        return;
    };
    let out = &mut told.0.out;
    let written = write_json(out, line)
        .and_then(|()| out.write_all(b"\n"))
        .and_then(|()| out.flush());
    if let Err(error) = written {
        told.1.get_or_insert(error);
    }
}

fn words_of(progress: &MirrorProgress) -> String {
    format!(
        "{} copied, {}/s, {} of {} there, {} offsets behind",
        human(progress.bytes),
        human(progress.bytes_per_second),
        progress.partitions_done,
        counted(progress.partitions, "partition"),
        progress.lag
    )
}

/// Says what `-q` has left out, and the exit code is about.
fn say_what_decides(report: &MirrorReport, console: &mut Console<'_>) {
    let decides = |event: &&MirrorEvent| match event.kind {
        EventKind::Lost | EventKind::Cut | EventKind::DeletedTopic => report.has_losses,
        EventKind::Recreated => true,
        EventKind::Problem => !report.is_complete,
        _ => false,
    };
    let mut said = BTreeSet::new();
    for event in report.events.iter().filter(decides) {
        let words = words_of_event(event);
        if said.insert(words.clone()) {
            console.error(&words);
        }
    }
    if report.events_left_out > 0 {
        let left_out = usize::try_from(report.events_left_out).unwrap_or(usize::MAX);
        console.error(&format!("left out: {} more", counted(left_out, "event")));
    }
}

fn words_of_event(event: &MirrorEvent) -> String {
    match (&event.topic, event.partition) {
        (Some(topic), Some(partition)) => format!("{topic}-{partition}: {}", event.message),
        _ => event.message.clone(),
    }
}

fn event_line(event: &MirrorEvent) -> EventLine<'_> {
    EventLine {
        event: event.kind.name(),
        topic: event.topic.as_deref(),
        partition: event.partition,
        broker: event.broker.filter(|&broker| broker >= 0),
        from: event.from,
        until: event.until,
        message: &event.message,
        kept: event.kept.iter().map(|path| Shown::path(path)).collect(),
    }
}

const fn progress_line(progress: &MirrorProgress) -> ProgressLine {
    ProgressLine {
        progress: "copying",
        bytes: progress.bytes,
        batches: progress.batches,
        bytes_per_second: progress.bytes_per_second,
        partitions: progress.partitions,
        partitions_done: progress.partitions_done,
        lag: progress.lag,
    }
}

fn write_report(report: &MirrorReport, console: &mut Console<'_>) -> Result<(), Failure> {
    for each in &report.partitions {
        let line = PartitionLine {
            topic: &each.topic,
            partition: each.partition,
            log_start_offset: each.log_start_offset,
            log_end_offset: each.log_end_offset,
            high_watermark: each.high_watermark,
            source_log_start_offset: each.source_log_start_offset,
            lag: each.lag(),
            bytes: each.bytes,
            batches: each.batches,
            problem: each.problem.as_deref(),
        };
        write_json(&mut console.out, &line)?;
        console.out.write_all(b"\n")?;
    }
    let whole = WholeLine {
        cluster_id: report.cluster_id.as_deref(),
        bytes: report.progress.bytes,
        batches: report.progress.batches,
        groups: report.groups,
        committed_offsets: report.committed_offsets,
        share_groups: report.share_groups,
        is_complete: report.is_complete,
        has_losses: report.has_losses,
        events_left_out: report.events_left_out,
    };
    write_json(&mut console.out, &whole)?;
    console.out.write_all(b"\n")?;
    Ok(())
}

fn say_report(
    report: &MirrorReport,
    args: &Mirror,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    writeln!(
        console.out,
        "{} in {} of {} copied into {}, committed offsets of {}{}",
        counted(
            usize::try_from(report.progress.batches).unwrap_or(usize::MAX),
            "batch"
        ),
        human(report.progress.bytes),
        counted(report.partitions.len(), "partition"),
        escaped(&args.into.display().to_string()),
        counted(report.groups, "group"),
        match report.share_groups {
            0 => String::new(),
            count => format!(", not of {}", counted(count, "share group")),
        },
    )?;
    for each in report
        .partitions
        .iter()
        .filter(|each| each.problem.is_some())
    {
        let problem = each.problem.as_deref().unwrap_or_default();
        console.error(&format!("{}-{}: {problem}", each.topic, each.partition));
    }
    Ok(())
}
