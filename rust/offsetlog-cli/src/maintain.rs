//! `offsetlog maintain`: retention, compaction and delayed deletions of all partitions of log dirs.

use crate::args::{Maintain, Upkeep};
use crate::console::Console;
use crate::escape::escaped;
use crate::failure::Failure;
use crate::json::{Shown, write_json};
use crate::signals;
use crate::table::human;
use crate::topics::{config_of, open_with, shown};
use crate::unread::write_line;
use crate::{EXIT_ERROR, EXIT_FINE, EXIT_NOTHING};
use offsetlog::disk::{RealDisk, wall_clock};
use offsetlog::format::counted;
use offsetlog::{
    BrokerSettings, Compaction, Error, ErrorKind, LogDir, LogDirMaintainReport, LogDirOptions,
    MaintainOptions, MaintainReport, OpenOptions, RemovedSegment, TopicPartition,
};
use offsetlog_ops::When;
use serde::Serialize;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a wait is between two looks for Ctrl-C.
const NAP: Duration = Duration::from_millis(100);

/// One partition, as a JSON line.
#[derive(Serialize)]
struct PartitionLine<'a> {
    topic: &'a str,
    partition: i32,
    dry_run: bool,
    removed: Vec<SegmentLine>,
    compactions: Vec<CompactionLine>,
    deleted: Vec<Shown<'a>>,
    log_start_offset: i64,
    log_end_offset: i64,
}

#[derive(Serialize)]
struct SegmentLine {
    base_offset: i64,
    end_offset: i64,
    size_bytes: u64,
    reason: &'static str,
}

#[derive(Serialize)]
struct CompactionLine {
    first_dirty_offset: i64,
    end_offset: i64,
    dirty_ratio: f64,
    bytes_before: u64,
    bytes_after: u64,
    records_before: u64,
    records_after: u64,
}

/// A directory of a deleted topic, as a JSON line.
#[derive(Serialize)]
struct RemovedLine<'a> {
    removed: Shown<'a>,
    dry_run: bool,
}

pub(crate) fn run(args: &Maintain, console: &mut Console<'_>) -> Result<i32, Failure> {
    // Ctrl-C ends the command behind what is being done, so that it can tell what it has removed.
    if console.terminal.owns_signals && console.terminal.interrupt.is_none() {
        console.terminal.interrupt = signals::catch_interrupt();
    }
    let mut had_any = false;
    loop {
        let code = once(args, &mut had_any, console)?;
        let Some(every) = args.every else {
            return Ok(code);
        };
        console.out.flush()?;
        wait(every, console)?;
    }
}

/// A broker's settings. A file that has lost all of them between two rounds is one that somebody is about to write, or that a full disk
/// has emptied.
fn broker_of(path: &Path, had_any: &mut bool) -> Result<BrokerSettings, Failure> {
    let broker = BrokerSettings::read(&RealDisk, path).map_err(Failure::Writing)?;
    if broker.given.is_empty() && *had_any {
        let reason = "no setting found, where there were some before";
        return Err(Failure::Usage(format!("{}: {reason}", path.display())));
    }
    *had_any = !broker.given.is_empty();
    Ok(broker)
}

/// One round. The log dirs are closed behind it, so that others may have them until the next.
fn once(args: &Maintain, had_any: &mut bool, console: &mut Console<'_>) -> Result<i32, Failure> {
    // Read in each round: who changes the file so that more is kept means from then on.
    let broker = args.broker.as_deref();
    let broker = broker.map(|path| broker_of(path, had_any)).transpose()?;
    let terms = LogDirOptions {
        broker,
        metadata: args.metadata.clone(),
        internal_topics: args.internal.iter().cloned().collect(),
        ..LogDirOptions::default()
    };
    // A wrong path is an error, and not a new log dir.
    LogDir::open(&args.paths, &OpenOptions::default()).map_err(Failure::Writing)?;
    let log_dir = open_with(&args.paths, &terms, args.dry_run, console)?;
    let wanted = |upkeep| args.only.is_empty() || args.only.contains(&upkeep);
    let options = MaintainOptions {
        dry_run: args.dry_run,
        retention: wanted(Upkeep::Retention),
        compaction: wanted(Upkeep::Compaction),
        deletes: wanted(Upkeep::Deletes),
        topics: args.topics.clone(),
        config: match args.settings.as_slice() {
            [] => None,
            settings => Some(config_of(settings)?),
        },
        ..MaintainOptions::default()
    };
    let mut report = LogDirMaintainReport::default();
    let done = log_dir.maintain_into(&options, &mut report);
    let closed = log_dir.close();
    if let Err(error) = done.and(closed) {
        // What was removed by then is told all the same, as after Ctrl-C.
        if !is_idle(&report) || !report.failed.is_empty() {
            tell(args, &report, console)?;
        }
        return Err(Failure::Writing(error));
    }
    tell(args, &report, console)?;
    if !report.failed.is_empty() {
        return Ok(EXIT_ERROR);
    }
    Ok(if args.dry_run && is_idle(&report) {
        EXIT_NOTHING
    } else {
        EXIT_FINE
    })
}

/// Whether nothing was removed or compacted.
const fn is_idle(report: &LogDirMaintainReport) -> bool {
    report.partitions.is_empty() && report.removed.is_empty()
}

fn tell(
    args: &Maintain,
    report: &LogDirMaintainReport,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    for (partition, kept) in &report.partitions {
        if args.json {
            write_json(&mut console.out, &line_of(partition, kept))?;
            console.out.write_all(b"\n")?;
        } else {
            write_text(partition, kept, console)?;
        }
    }
    for path in &report.removed {
        if args.json {
            let line = RemovedLine {
                removed: Shown::path(path),
                dry_run: report.dry_run,
            };
            write_json(&mut console.out, &line)?;
            console.out.write_all(b"\n")?;
        } else {
            let verb = if report.dry_run {
                "would be removed"
            } else {
                "removed"
            };
            writeln!(
                console.out,
                "{}: {verb}, its topic was deleted",
                shown(path)
            )?;
        }
    }
    if let Some(timestamp) = report.metadata_timestamp {
        console.note(&settings_as_of(timestamp, wall_clock()));
    }
    let internal: BTreeSet<&str> = report
        .internal
        .iter()
        .map(|partition| partition.topic.as_str())
        .collect();
    for topic in internal {
        let name = escaped(topic);
        console.note(&format!(
            "{name}: left alone, as brokers keep it by rules of their own; --internal {name} keeps it too"
        ));
    }
    for partition in &report.busy {
        let name = escaped(&partition.to_string());
        console.warn(&format!(
            "{name}: another process writes it and keeps it itself"
        ));
    }
    for (partition, error) in &report.failed {
        write_line(
            (&partition.topic, partition.partition),
            error,
            args.json,
            console,
        )?;
        let name = escaped(&partition.to_string());
        console.error(&format!("{name}: {error}"));
    }
    if !args.json && is_idle(report) && report.failed.is_empty() {
        writeln!(
            console.out,
            "nothing to do in {}",
            counted(report.looked_at, "partition")
        )?;
    }
    Ok(())
}

fn write_text(
    partition: &TopicPartition,
    kept: &MaintainReport,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let name = escaped(&partition.to_string());
    let would = |done: &'static str, would: &'static str| if kept.dry_run { would } else { done };
    for RemovedSegment {
        base_offset,
        end_offset,
        size_bytes,
        reason,
    } in &kept.removed
    {
        writeln!(
            console.out,
            "{name}: offsets {base_offset} to {} {}, {}: {}",
            end_offset - 1,
            would("removed", "would be removed"),
            human(*size_bytes),
            reason.name(),
        )?;
    }
    for Compaction {
        first_dirty_offset,
        end_offset,
        dirty_ratio,
        bytes_before,
        bytes_after,
        ..
    } in &kept.compactions
    {
        let (before, after) = (human(*bytes_before), human(*bytes_after));
        if kept.dry_run {
            let share = dirty_ratio * 100.0;
            writeln!(
                console.out,
                "{name}: offsets {first_dirty_offset} to {} would be compacted, {before} would become {after}; {share:.0} % of the bytes are dirty",
                end_offset - 1
            )?;
        } else {
            writeln!(
                console.out,
                "{name}: compacted up to offset {end_offset}, {before} became {after}"
            )?;
        }
    }
    if !kept.deleted.is_empty() {
        let (files, were) = match kept.deleted.len() {
            1 => (1, "was"),
            files => (files, "were"),
        };
        writeln!(
            console.out,
            "{name}: {} {} that {were} taken out of the log before",
            counted(files, "file"),
            would("removed", "would be removed"),
        )?;
    }
    Ok(())
}

fn line_of<'a>(partition: &'a TopicPartition, kept: &'a MaintainReport) -> PartitionLine<'a> {
    PartitionLine {
        topic: &partition.topic,
        partition: partition.partition,
        dry_run: kept.dry_run,
        removed: kept
            .removed
            .iter()
            .map(|segment| SegmentLine {
                base_offset: segment.base_offset,
                end_offset: segment.end_offset,
                size_bytes: segment.size_bytes,
                reason: segment.reason.name(),
            })
            .collect(),
        compactions: kept
            .compactions
            .iter()
            .map(|pass| CompactionLine {
                first_dirty_offset: pass.first_dirty_offset,
                end_offset: pass.end_offset,
                dirty_ratio: pass.dirty_ratio,
                bytes_before: pass.bytes_before,
                bytes_after: pass.bytes_after,
                records_before: pass.records_before,
                records_after: pass.records_after,
            })
            .collect(),
        deleted: kept.deleted.iter().map(|path| Shown::path(path)).collect(),
        log_start_offset: kept.log_start_offset,
        log_end_offset: kept.log_end_offset,
    }
}

/// How old the settings are at `now`. Both times are in milliseconds since 1970.
pub(crate) fn settings_as_of(timestamp: i64, now: i64) -> String {
    let age = now.saturating_sub(timestamp) / 1000;
    let (number, unit) = match age {
        i64::MIN..120 => (age.max(0), "second"),
        120..7200 => (age / 60, "minute"),
        7200..172_800 => (age / 3600, "hour"),
        _ => (age / 86_400, "day"),
    };
    format!(
        "the cluster's settings are those of its newest metadata record here, {} old ({})",
        counted(number, unit),
        When(timestamp)
    )
}

/// Sleeps until the next round, or Ctrl-C.
fn wait(every: Duration, console: &Console<'_>) -> Result<(), Failure> {
    let until = Instant::now() + every;
    while Instant::now() < until {
        if console
            .terminal
            .interrupt
            .as_ref()
            .is_some_and(|asked| asked())
        {
            return Err(Failure::Writing(Error::new(ErrorKind::Interrupted)));
        }
        std::thread::sleep(NAP.min(every));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_of_settings_is_one_that_people_read() {
        const THEN: i64 = 1_795_233_931_492;
        const DAY: i64 = 24 * 3600;
        let cases = [
            (0, "0 seconds"),
            (1, "1 second"),
            (119, "119 seconds"),
            (120, "2 minutes"),
            (179, "2 minutes"),
            (180, "3 minutes"),
            (7199, "119 minutes"),
            (7200, "2 hours"),
            (2 * DAY - 1, "47 hours"),
            (2 * DAY, "2 days"),
            (3 * DAY - 1, "2 days"),
            (3 * DAY, "3 days"),
            (400 * DAY, "400 days"),
            // The clock of whoever wrote the record was ahead.
            (-1, "0 seconds"),
            (-5 * DAY, "0 seconds"),
        ];
        for (seconds, age) in cases {
            let expected = format!("record here, {age} old (2026-11-21T04:05:31.492Z)");
            for now in [THEN + seconds * 1000, THEN + seconds * 1000 + 999] {
                let told = settings_as_of(THEN, now);
                assert!(told.ends_with(&expected), "{seconds} s: {told}");
            }
        }
        assert!(settings_as_of(i64::MIN, THEN).contains(" days old ("));
        assert!(settings_as_of(i64::MAX, THEN).contains(" 0 seconds old ("));
    }
}
