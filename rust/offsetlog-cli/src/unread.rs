//! Reports partitions that failed while others did not: in words, and in JSON with a line of their own.

use crate::console::Console;
use crate::failure::{Failure, with_advice};
use crate::json::write_json;
use offsetlog::Unread;
use serde::Serialize;
use std::io::Write;

/// A partition that failed, as a JSON line.
#[derive(Debug, Serialize)]
struct UnreadLine<'a> {
    topic: &'a str,
    partition: i32,
    error: String,
}

/// Names what could not be read; says whether there was anything.
pub(crate) fn tell(
    unread: &[Unread],
    json: bool,
    console: &mut Console<'_>,
) -> Result<bool, Failure> {
    for one in unread {
        tell_one(
            (&one.partition.topic, one.partition.partition),
            &one.error,
            json,
            console,
        )?;
    }
    Ok(!unread.is_empty())
}

/// Names one partition that could not be read, behind what was printed before.
pub(crate) fn tell_one(
    (topic, partition): (&str, i32),
    error: &offsetlog::Error,
    json: bool,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    write_line((topic, partition), error, json, console)?;
    console.error(&format!("{topic}-{partition}: {}", with_advice(error)));
    Ok(())
}

/// Writes the JSON line of one partition that failed, after what was printed before. The caller reports it in words, too.
pub(crate) fn write_line(
    (topic, partition): (&str, i32),
    error: &offsetlog::Error,
    json: bool,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    if json {
        let line = UnreadLine {
            topic,
            partition,
            error: error.to_string(),
        };
        write_json(&mut console.out, &line)?;
        console.out.write_all(b"\n")?;
    }
    // On a terminal both streams are one.
    console.out.flush()?;
    Ok(())
}

/// The error of one partition among several, after which the others continue; else what ends the command.
pub(crate) fn of_one(failure: Failure) -> Result<offsetlog::Error, Failure> {
    match failure {
        Failure::Engine(error) if !error.is_of_process() => Ok(error),
        failure => Err(failure),
    }
}
