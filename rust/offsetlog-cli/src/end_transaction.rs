//! `offsetlog end-transaction`: the marker that ends a transaction, appended offline.

use crate::EXIT_FINE;
use crate::args::EndTransaction;
use crate::console::Console;
use crate::escape::escaped;
use crate::failure::Failure;
use crate::json::write_json;
use crate::producers::{ProducerLine, line_of as producer_line};
use crate::progress::Progress;
use offsetlog::format::name::DirectoryName;
use offsetlog::{LogDirOptions, OpenOptions, TopicPartition};
use offsetlog_ops::{EndTransactionOptions, EndedTransaction, end_transaction};
use serde::Serialize;
use std::fmt::Write as _;
use std::io::Write;

/// What was done, as a JSON line: the producer as it was before.
#[derive(Serialize)]
struct EndedLine<'a> {
    dry_run: bool,
    committed: bool,
    marker_offset: Option<i64>,
    last_stable_offset_before: i64,
    last_stable_offset: i64,
    producer: ProducerLine<'a>,
}

pub(crate) fn run(args: &EndTransaction, console: &mut Console<'_>) -> Result<i32, Failure> {
    console.quiet = args.quiet;
    let partition = partition_of(&args.partition)?;
    let (bar, progress) = Progress::of_partitions(console);
    let how = EndTransactionOptions {
        commit: match (args.commit, args.abort) {
            (true, _) => Some(true),
            (false, true) => Some(false),
            (false, false) => None,
        },
        without_state: args.without_state,
        dry_run: args.dry_run,
        progress,
    };
    let options = OpenOptions {
        interrupt: console.terminal.interrupt.clone(),
        ..OpenOptions::default()
    };
    let terms = LogDirOptions {
        single_replica: args.single_replica,
        metadata: args.metadata.clone(),
        ..LogDirOptions::default()
    };
    let id = args.producer_id;
    let ended = end_transaction(&args.paths, &partition, id, &how, (&options, &terms));
    drop(bar);
    let ended = ended.map_err(Failure::Writing)?;
    for warning in &ended.warnings {
        console.warn(warning);
    }
    if args.json {
        write_json(&mut console.out, &line_of(&ended, args.dry_run))?;
        console.out.write_all(b"\n")?;
    } else {
        writeln!(console.out, "{}", escaped(&text_of(&ended, args.dry_run)))?;
    }
    Ok(EXIT_FINE)
}

fn partition_of(text: &str) -> Result<TopicPartition, Failure> {
    let parsed = DirectoryName::parse(text).map_err(|_| {
        Failure::Usage(format!(
            "{text:?} is not topic-partition; orders-0 would be"
        ))
    })?;
    Ok(TopicPartition {
        topic: parsed.topic.to_owned(),
        partition: parsed.partition,
    })
}

fn text_of(ended: &EndedTransaction, dry_run: bool) -> String {
    let found = &ended.producer;
    let done = match (ended.committed, dry_run) {
        (true, false) => "committed",
        (false, false) => "aborted",
        (true, true) => "would be committed",
        (false, true) => "would be aborted",
    };
    let id = found.transactional_id.as_deref();
    let mut text = format!(
        "{}: the transaction of producer {}{} from offset {} on {done}",
        found.partition,
        found.producer.producer_id,
        id.map_or_else(String::new, |id| format!(" ({id})")),
        found.producer.transaction_first_offset.unwrap_or(0),
    );
    if let Some(offset) = ended.marker_offset {
        let _ = write!(
            text,
            "; its marker is at offset {offset}, and read_committed ends at {}, not at {}",
            ended.last_stable_offset, ended.last_stable_offset_before
        );
    }
    text
}

fn line_of(ended: &EndedTransaction, dry_run: bool) -> EndedLine<'_> {
    EndedLine {
        dry_run,
        committed: ended.committed,
        marker_offset: ended.marker_offset,
        last_stable_offset_before: ended.last_stable_offset_before,
        last_stable_offset: ended.last_stable_offset,
        producer: producer_line(&ended.producer),
    }
}
