//! `offsetlog time`: the first offset at or after a time, in each partition.

use crate::args::Time;
use crate::console::Console;
use crate::failure::Failure;
use crate::json::write_json;
use crate::progress::Progress;
use crate::select::Source;
use crate::table::{Align, Table, or_dash};
use crate::unread::{of_one, tell_one};
use crate::{EXIT_ERROR, EXIT_FINE, EXIT_NOTHING};
use offsetlog_ops::When;
use serde::Serialize;
use std::io::Write;

/// The answer of one partition, as a JSON line; nulls where nothing is at or after the time.
#[derive(Debug, Serialize)]
struct Answer<'a> {
    topic: &'a str,
    partition: i32,
    query: i64,
    offset: Option<i64>,
    timestamp: Option<i64>,
    leader_epoch: Option<i32>,
}

pub(crate) fn run(args: &Time, console: &mut Console<'_>) -> Result<i32, Failure> {
    let source = Source::open(&args.selection, console)?;
    source.need_topic(&args.selection)?;
    let mut table = Table::new(&[
        ("TOPIC", Align::Left),
        ("PARTITION", Align::Right),
        ("OFFSET", Align::Right),
        ("TIMESTAMP", Align::Right),
        ("TIME", Align::Left),
        ("LEADER-EPOCH", Align::Right),
    ]);
    let (mut found_any, mut failed) = (false, false);
    let progress = Progress::new(console, source.chosen.len() as u64);
    for (done, chosen) in source.chosen.iter().enumerate() {
        progress.set(done as u64, &chosen.topic);
        let isolation = args.isolation_level.into();
        let found = source
            .log(chosen, console)
            .and_then(|log| Ok(log.offset_for_timestamp(args.when.0, isolation)?));
        let found = match found {
            Ok(found) => found,
            Err(failure) => {
                // One damaged partition does not hide the others.
                let error = of_one(failure)?;
                tell_one(
                    (&chosen.topic, chosen.partition),
                    &error,
                    args.json,
                    console,
                )?;
                failed = true;
                continue;
            }
        };
        found_any |= found.is_some();
        let answer = Answer {
            topic: &chosen.topic,
            partition: chosen.partition,
            query: args.when.0,
            offset: found.as_ref().map(|found| found.offset),
            timestamp: found.as_ref().map(|found| found.timestamp),
            leader_epoch: found.as_ref().and_then(|found| found.leader_epoch),
        };
        if args.json {
            write_json(&mut console.out, &answer)?;
            console.out.write_all(b"\n")?;
        } else {
            table.push([
                answer.topic.to_owned(),
                answer.partition.to_string(),
                or_dash(answer.offset),
                or_dash(answer.timestamp),
                or_dash(answer.timestamp.map(When)),
                or_dash(answer.leader_epoch),
            ]);
        }
    }
    drop(progress);
    table.write(console)?;
    if failed {
        return Ok(EXIT_ERROR);
    }
    if found_any {
        return Ok(EXIT_FINE);
    }
    console.warn(&format!("nothing is at or after {}", args.when));
    Ok(EXIT_NOTHING)
}
