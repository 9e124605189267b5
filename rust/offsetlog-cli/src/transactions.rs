//! `offsetlog transactions`: transactional ids and where their transactions have come to, out of log dirs.

use crate::args::Transactions;
use crate::console::Console;
use crate::escape::{escaped, shown};
use crate::failure::Failure;
use crate::json::write_json;
use crate::progress::Progress;
use crate::table::{Align, Table, or_dash};
use crate::unread::tell;
use crate::{EXIT_ERROR, EXIT_FINE, EXIT_NOTHING};
use offsetlog::{LogDir, OpenOptions, Transaction};
use offsetlog_ops::When;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;

/// One transactional id, as a JSON line. Times are milliseconds since 1970.
#[derive(Serialize)]
struct TransactionLine<'a> {
    transactional_id: &'a str,
    producer_id: i64,
    previous_producer_id: Option<i64>,
    next_producer_id: Option<i64>,
    producer_epoch: i32,
    next_producer_epoch: Option<i32>,
    state: String,
    timeout_ms: i32,
    partitions: BTreeMap<&'a str, &'a [i32]>,
    start_timestamp: Option<i64>,
    last_update_timestamp: i64,
    client_transaction_version: Option<i32>,
    partition: i32,
    offset: i64,
}

pub(crate) fn run(args: &Transactions, console: &mut Console<'_>) -> Result<i32, Failure> {
    console.quiet = args.quiet;
    let options = OpenOptions {
        interrupt: console.terminal.interrupt.clone(),
        ..OpenOptions::default()
    };
    let log_dir = LogDir::open(&args.paths, &options)?;
    let (bar, progress) = Progress::of_partitions(console);
    let list = log_dir.transaction_list(&progress)?;
    drop(bar);
    let mut transactions = list.transactions;
    for warning in log_dir.warnings().iter().chain(&list.warnings) {
        console.warn(warning);
    }
    if !args.ids.is_empty() {
        for id in &args.ids {
            if !transactions.iter().any(|each| each.transactional_id == *id) {
                console.warn(&format!("no transactional id {} here", escaped(id)));
            }
        }
        transactions.retain(|each| args.ids.contains(&each.transactional_id));
    }
    if args.json {
        for each in &transactions {
            write_json(&mut console.out, &line_of(each))?;
            console.out.write_all(b"\n")?;
        }
    } else {
        table(&transactions).write(console)?;
    }
    if tell(&list.unread, args.json, console)? {
        return Ok(EXIT_ERROR);
    }
    if transactions.is_empty() {
        console.warn(
            "no transactional ids here; they are in the log dirs that hold __transaction_state",
        );
        return Ok(EXIT_NOTHING);
    }
    Ok(EXIT_FINE)
}

fn table(transactions: &[Transaction]) -> Table {
    let mut table = Table::new(&[
        ("TRANSACTIONAL-ID", Align::Left),
        ("PRODUCER-ID", Align::Right),
        ("EPOCH", Align::Right),
        ("STATE", Align::Left),
        ("TIMEOUT-MS", Align::Right),
        ("STARTED-AT", Align::Left),
        ("UPDATED-AT", Align::Left),
        ("PARTITIONS", Align::Left),
    ]);
    for each in transactions {
        table.push([
            escaped(&each.transactional_id),
            each.producer_id.to_string(),
            each.producer_epoch.to_string(),
            each.state.to_string(),
            each.timeout_ms.to_string(),
            or_dash(each.start_timestamp.map(When)),
            When(each.last_update_timestamp).to_string(),
            or_dash(shown(&partitions(each))),
        ]);
    }
    table
}

fn partitions(transaction: &Transaction) -> String {
    let topics = transaction.partitions.iter().map(|(topic, numbers)| {
        let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        format!("{topic}({})", numbers.join(","))
    });
    topics.collect::<Vec<_>>().join(" ")
}

fn line_of(each: &Transaction) -> TransactionLine<'_> {
    let partitions = each.partitions.iter();
    TransactionLine {
        transactional_id: &each.transactional_id,
        producer_id: each.producer_id,
        previous_producer_id: each.previous_producer_id,
        next_producer_id: each.next_producer_id,
        producer_epoch: each.producer_epoch,
        next_producer_epoch: each.next_producer_epoch,
        state: each.state.to_string(),
        timeout_ms: each.timeout_ms,
        partitions: partitions
            .map(|(topic, numbers)| (topic.as_str(), numbers.as_slice()))
            .collect(),
        start_timestamp: each.start_timestamp,
        last_update_timestamp: each.last_update_timestamp,
        client_transaction_version: each.client_transaction_version,
        partition: each.partition,
        offset: each.offset,
    }
}
