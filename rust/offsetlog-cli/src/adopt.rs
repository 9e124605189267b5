//! `offsetlog adopt`: makes directories that a broker set aside, or that have another topic id, partitions again.

use crate::args::Adopt;
use crate::console::Console;
use crate::escape::escaped;
use crate::failure::Failure;
use crate::json::{Shown, write_json};
use crate::progress::Progress;
use crate::{EXIT_FINE, EXIT_NOTHING};
use offsetlog::OpenOptions;
use offsetlog::format::counted;
use offsetlog_ops::{AdoptOptions, AdoptedPartition, adopt};
use serde::Serialize;
use std::fmt::Write as _;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

/// One directory, as a JSON line.
#[derive(Serialize)]
struct AdoptedLine<'a> {
    dry_run: bool,
    changed: bool,
    directory: Shown<'a>,
    path: Shown<'a>,
    topic: &'a str,
    partition: i32,
    topic_id_before: Option<String>,
    topic_id: Option<String>,
    set_aside: Vec<AsideLine<'a>>,
    records: u64,
    log_start_offset: i64,
    log_end_offset: i64,
    notes: &'a [String],
}

#[derive(Serialize)]
struct AsideLine<'a> {
    directory: Shown<'a>,
    path: Option<Shown<'a>>,
}

pub(crate) fn run(args: &Adopt, console: &mut Console<'_>) -> Result<i32, Failure> {
    console.quiet = args.quiet;
    let options = OpenOptions {
        interrupt: console.terminal.interrupt.clone(),
        ..OpenOptions::default()
    };
    let (bar, told) = Progress::told(console);
    let done: Arc<Mutex<Vec<AdoptedPartition>>> = Arc::default();
    let taken_in = Arc::clone(&done);
    let how = AdoptOptions {
        log_dirs: args.log_dirs.clone(),
        metadata: args.metadata.clone(),
        broker: args.broker.clone(),
        topic: args.topic.clone(),
        topic_id: args.topic_id,
        set_aside: args.set_aside,
        single_replica: args.single_replica,
        dry_run: args.dry_run,
        progress: told,
        adopted: Some(Arc::new(move |each| {
            let mut done = taken_in.lock().unwrap_or_else(PoisonError::into_inner);
            done.push(each.clone());
        })),
    };
    let adopted = adopt(&args.directories, &how, &options);
    drop(bar);
    let adopted = match adopted {
        Ok(adopted) => adopted,
        Err(error) => {
            // What is done is done, and nobody else tells.
            write_all(
                &done.lock().unwrap_or_else(PoisonError::into_inner),
                args,
                console,
            )?;
            return Err(Failure::Writing(error));
        }
    };
    write_all(&adopted, args, console)?;
    Ok(if adopted.iter().any(|each| each.is_changed) {
        EXIT_FINE
    } else {
        EXIT_NOTHING
    })
}

fn write_all(
    adopted: &[AdoptedPartition],
    args: &Adopt,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    for each in adopted {
        if args.json {
            write_json(&mut console.out, &line_of(each, args.dry_run))?;
            console.out.write_all(b"\n")?;
            continue;
        }
        writeln!(console.out, "{}", escaped(&text_of(each, args.dry_run)))?;
        for note in &each.notes {
            console.warn(&format!("{}: {note}", each.directory.display()));
        }
    }
    console.out.flush()?;
    Ok(())
}

fn text_of(each: &AdoptedPartition, dry_run: bool) -> String {
    let (from, to) = (each.directory.display(), each.path.display());
    if !each.is_changed {
        return format!("{from}: nothing to do, its topic id is the topic's");
    }
    let mut text = match (dry_run, each.directory == each.path) {
        (false, false) => format!("{from} is now {to}"),
        (true, false) => format!("{from} would become {to}"),
        (false, true) => format!("{from} is a partition of its topic now"),
        (true, true) => format!("{from} would become a partition of its topic"),
    };
    if let Some(id) = each
        .topic_id
        .filter(|_| each.topic_id != each.topic_id_before)
    {
        let before = each
            .topic_id_before
            .map_or_else(|| "none".to_owned(), |id| id.to_string());
        // A string takes every write.
        let _ = write!(text, "; topic id {id}, before {before}");
    }
    let records = counted(each.records, "record");
    let _ = if each.log_start_offset < each.log_end_offset {
        let (first, last) = (each.log_start_offset, each.log_end_offset - 1);
        write!(text, "; {records}, offsets {first} to {last}")
    } else {
        write!(text, "; {records}, empty at {}", each.log_end_offset)
    };
    for (before, since) in &each.set_aside {
        let _ = match since {
            Some(since) => write!(text, "; {} is now {}", before.display(), since.display()),
            None => write!(text, "; {} would be set aside", before.display()),
        };
    }
    text
}

fn line_of(each: &AdoptedPartition, dry_run: bool) -> AdoptedLine<'_> {
    let set_aside = each.set_aside.iter().map(|(before, since)| AsideLine {
        directory: Shown::path(before),
        path: since.as_deref().map(Shown::path),
    });
    AdoptedLine {
        dry_run,
        changed: each.is_changed,
        directory: Shown::path(&each.directory),
        path: Shown::path(&each.path),
        topic: &each.topic,
        partition: each.partition,
        topic_id_before: each.topic_id_before.map(|id| id.to_string()),
        topic_id: each.topic_id.map(|id| id.to_string()),
        set_aside: set_aside.collect(),
        records: each.records,
        log_start_offset: each.log_start_offset,
        log_end_offset: each.log_end_offset,
        notes: &each.notes,
    }
}
