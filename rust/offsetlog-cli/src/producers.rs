//! `offsetlog producers`: what partitions know of their producers, and which open transactions nobody ends.

use crate::args::Producers;
use crate::console::Console;
use crate::escape::escaped;
use crate::failure::Failure;
use crate::json::{Shown, write_json};
use crate::progress::Progress;
use crate::select::Source;
use crate::table::{Align, Table, or_dash};
use crate::unread::tell;
use crate::{EXIT_ERROR, EXIT_FINE, EXIT_NOTHING};
use offsetlog_ops::{PartitionProducer, ProducersOptions, When, producers, span};
use serde::Serialize;
use std::io::Write;

/// A producer of a partition, as a JSON line. Times are milliseconds since 1970.
#[derive(Serialize)]
pub(crate) struct ProducerLine<'a> {
    topic: &'a str,
    partition: i32,
    path: Shown<'a>,
    producer_id: i64,
    producer_epoch: i16,
    last_sequence: Option<i32>,
    last_offset: Option<i64>,
    last_timestamp: Option<i64>,
    coordinator_epoch: Option<i32>,
    transaction_first_offset: Option<i64>,
    transaction_start_timestamp: Option<i64>,
    transactional_id: Option<&'a str>,
    state: Option<String>,
    timeout_ms: Option<i32>,
    standing: &'static str,
}

pub(crate) fn run(args: &Producers, console: &mut Console<'_>) -> Result<i32, Failure> {
    let source = Source::open(&args.selection, console)?;
    let (bar, progress) = Progress::of_partitions(console);
    let wanted = ProducersOptions {
        topics: args.selection.topics.clone(),
        partitions: args.selection.partitions.clone(),
        only_open: args.open,
        progress,
    };
    let list = producers(&source.log_dir, &wanted)?;
    drop(bar);
    for warning in &list.warnings {
        console.warn(warning);
    }
    if args.json {
        for each in &list.producers {
            write_json(&mut console.out, &line_of(each))?;
            console.out.write_all(b"\n")?;
        }
    } else {
        let now = args
            .now
            .map_or_else(|| (source.log_dir.options().clock)(), |When(now)| now);
        table(&list.producers, now).write(console)?;
    }
    if tell(&list.unread, args.json, console)? {
        return Ok(EXIT_ERROR);
    }
    if list.producers.is_empty() {
        console.warn(if args.open {
            "no open transaction here"
        } else {
            "no producer with a producer id here"
        });
        return Ok(EXIT_NOTHING);
    }
    Ok(EXIT_FINE)
}

fn table(producers: &[PartitionProducer], now: i64) -> Table {
    let mut table = Table::new(&[
        ("TOPIC-PARTITION", Align::Left),
        ("PRODUCER-ID", Align::Right),
        ("EPOCH", Align::Right),
        ("LAST-SEQUENCE", Align::Right),
        ("LAST-TIMESTAMP", Align::Left),
        ("TXN-FIRST-OFFSET", Align::Right),
        ("TXN-AGE", Align::Right),
        ("WAITS-FOR", Align::Left),
        ("TRANSACTIONAL-ID", Align::Left),
        ("STATE", Align::Left),
    ]);
    for each in producers {
        let known = &each.producer;
        let since = each
            .transaction_start_timestamp
            .map(|start| span(now.saturating_sub(start).max(0)));
        table.push([
            escaped(&each.partition.to_string()),
            known.producer_id.to_string(),
            known.producer_epoch.to_string(),
            or_dash(unless_negative(known.last_sequence)),
            or_dash(unless_negative(known.last_timestamp).map(When)),
            or_dash(known.transaction_first_offset),
            or_dash(since),
            or_dash(known.transaction_first_offset.map(|_| each.standing.name())),
            or_dash(each.transactional_id.as_deref().map(escaped)),
            or_dash(each.state),
        ]);
    }
    table
}

pub(crate) fn line_of(each: &PartitionProducer) -> ProducerLine<'_> {
    let known = &each.producer;
    ProducerLine {
        topic: &each.partition.topic,
        partition: each.partition.partition,
        path: Shown::path(&each.path),
        producer_id: known.producer_id,
        producer_epoch: known.producer_epoch,
        last_sequence: unless_negative(known.last_sequence),
        last_offset: unless_negative(known.last_offset),
        last_timestamp: unless_negative(known.last_timestamp),
        coordinator_epoch: unless_negative(known.coordinator_epoch),
        transaction_first_offset: known.transaction_first_offset,
        transaction_start_timestamp: each.transaction_start_timestamp,
        transactional_id: each.transactional_id.as_deref(),
        state: each.state.map(|state| state.to_string()),
        timeout_ms: each.timeout_ms,
        standing: each.standing.name(),
    }
}

/// Kafka writes -1 for what is not there.
fn unless_negative<N: PartialOrd + From<i8>>(number: N) -> Option<N> {
    (number >= N::from(0)).then_some(number)
}
