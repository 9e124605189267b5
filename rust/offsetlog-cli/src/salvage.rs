//! `offsetlog salvage`: builds a sound log from everything that can be read of a damaged one, and reports what is lost.

use crate::args::Salvage;
use crate::console::Console;
use crate::escape::escaped;
use crate::failure::Failure;
use crate::json::{Shown, write_json};
use crate::progress::Progress;
use crate::select::{Chosen, Source};
use crate::unread::tell_one;
use crate::{EXIT_DAMAGED, EXIT_ERROR, EXIT_FINE, EXIT_NOTHING};
use offsetlog::format::counted;
use offsetlog::{FolderKind, LogDir, OpenOptions, TopicPartition, folder_kind};
use offsetlog_ops::When;
use offsetlog_ops::{LeftOut, Loss, SalvageOptions, SalvageReport, TakenBack, salvage};
use serde::Serialize;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// One partition, as a JSON line.
#[derive(Serialize)]
struct ReportLine<'a> {
    topic: &'a str,
    partition: i32,
    source: Shown<'a>,
    path: Shown<'a>,
    dry_run: bool,
    records: u64,
    batches: u64,
    bytes_written: u64,
    log_start_offset: i64,
    log_end_offset: i64,
    loss_count: u64,
    losses: Vec<LossLine<'a>>,
    torn_tail_bytes: u64,
    taken_back: Vec<TakenBackLine<'a>>,
    left_out: Vec<LeftOutLine<'a>>,
    first_unstable_offset: Option<i64>,
    warnings: &'a [String],
}

#[derive(Serialize)]
pub(crate) struct LossLine<'a> {
    path: Shown<'a>,
    position: u64,
    bytes: u64,
    first_offset: i64,
    last_offset: Option<i64>,
    records_max: Option<u64>,
    taken_back: u64,
    time_before: Option<i64>,
    time_after: Option<i64>,
    reason: &'a str,
}

#[derive(Serialize)]
pub(crate) struct TakenBackLine<'a> {
    path: Shown<'a>,
    batches: u64,
    records: u64,
    first_offset: i64,
    last_offset: i64,
}

#[derive(Serialize)]
pub(crate) struct LeftOutLine<'a> {
    path: Shown<'a>,
    batches: u64,
    first_offset: i64,
    last_offset: Option<i64>,
    reason: &'a str,
}

pub(crate) fn run(args: &Salvage, console: &mut Console<'_>) -> Result<i32, Failure> {
    let source = Source::open(&args.selection, console)?;
    if let Ok(FolderKind::AroundLogDirs(_)) = folder_kind(&args.into) {
        // It says which paths work.
        LogDir::open(&[&args.into], &OpenOptions::default())?;
    }
    if source.chosen.is_empty() {
        return Ok(EXIT_NOTHING);
    }
    let (mut has_losses, mut failed) = (false, false);
    for chosen in &source.chosen {
        match salvage_one(&source, chosen, args, console) {
            Ok(report) => {
                // A longer replica that is damaged has records that are not taken; a warning names it.
                let place = TopicPartition {
                    topic: chosen.topic.clone(),
                    partition: chosen.partition,
                };
                has_losses |= report.has_losses() || source.log_dir.outreached(&place).is_some();
                if args.json {
                    write_json(&mut console.out, &line_of(&report))?;
                    console.out.write_all(b"\n")?;
                } else {
                    write_text(&report, &args.into, console)?;
                }
                // Each may take long, and what is done is done.
                console.out.flush()?;
            }
            Err(Failure::Engine(error)) if !error.is_of_process() => {
                let name = (chosen.topic.as_str(), chosen.partition);
                tell_one(name, &error, args.json, console)?;
                failed = true;
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(if failed {
        EXIT_ERROR
    } else if has_losses {
        EXIT_DAMAGED
    } else {
        EXIT_FINE
    })
}

fn salvage_one(
    source: &Source,
    chosen: &Chosen,
    args: &Salvage,
    console: &mut Console<'_>,
) -> Result<SalvageReport, Failure> {
    // Of several replicas the newest valid one.
    let log = source.log(chosen, console)?;
    let (progress, bar) = Progress::before_output(console, 1);
    progress.set(0, &escaped(&chosen.name()));
    let options = OpenOptions {
        interrupt: console.terminal.interrupt.clone(),
        ..OpenOptions::default()
    };
    let how = SalvageOptions {
        include_truncated: args.include_truncated,
        is_compacted: is_compacted(source, &chosen.topic),
        dry_run: args.dry_run,
        progress: bar.map(|bar| {
            Arc::new(move |done, total| {
                bar.set_length(total);
                bar.set_position(done);
            }) as _
        }),
    };
    let into = args.into.join(chosen.name());
    Ok(salvage(log.path(), into, &options, &how)?)
}

/// Whether the metadata among the paths says so. Settings that cannot be read say nothing.
fn is_compacted(source: &Source, topic: &str) -> bool {
    let settings = source.log_dir.topic_settings(topic, None, None);
    settings.is_ok_and(|settings| settings.config.config().is_compacted())
}

fn line_of(report: &SalvageReport) -> ReportLine<'_> {
    ReportLine {
        topic: &report.topic,
        partition: report.partition,
        source: Shown::path(&report.source),
        path: Shown::path(&report.built.path),
        dry_run: report.dry_run,
        records: report.built.records,
        batches: report.built.batches,
        bytes_written: report.built.bytes_written,
        log_start_offset: report.built.log_start_offset,
        log_end_offset: report.built.log_end_offset,
        loss_count: report.loss_count,
        losses: report.losses.iter().map(loss_line).collect(),
        torn_tail_bytes: report.torn_tail.as_ref().map_or(0, |torn| torn.bytes),
        taken_back: report.taken_back.iter().map(taken_back_line).collect(),
        left_out: report.left_out.iter().map(left_out_line).collect(),
        first_unstable_offset: report.first_unstable_offset,
        warnings: &report.warnings,
    }
}

pub(crate) fn loss_line(loss: &Loss) -> LossLine<'_> {
    LossLine {
        path: Shown::path(&loss.hole.path),
        position: loss.hole.position,
        bytes: loss.hole.bytes,
        first_offset: loss.hole.start,
        last_offset: loss.hole.stop.map(|stop| stop - 1),
        records_max: loss.records_max(),
        taken_back: loss.taken_back,
        time_before: loss.time_before,
        time_after: loss.time_after,
        reason: &loss.hole.reason,
    }
}

pub(crate) fn taken_back_line(taken: &TakenBack) -> TakenBackLine<'_> {
    TakenBackLine {
        path: Shown::path(&taken.path),
        batches: taken.batches,
        records: taken.records,
        first_offset: taken.first_offset,
        last_offset: taken.last_offset,
    }
}

pub(crate) fn left_out_line(left: &LeftOut) -> LeftOutLine<'_> {
    LeftOutLine {
        path: Shown::path(&left.path),
        batches: left.batches,
        first_offset: left.first_offset,
        last_offset: left.last_offset,
        reason: &left.reason,
    }
}

fn write_text(
    report: &SalvageReport,
    into: &Path,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let built = &report.built;
    let done = if report.dry_run {
        "would be salvaged into"
    } else {
        "salvaged into"
    };
    let offsets = if built.log_start_offset < built.log_end_offset {
        let last = built.log_end_offset - 1;
        format!("offsets {} to {last}", built.log_start_offset)
    } else {
        format!("empty at offset {}", built.log_end_offset)
    };
    let records = counted(built.records, "record");
    let name = format!("{}-{}", report.topic, report.partition);
    let into = into.join(&name);
    let into = into.display();
    let mut lines = vec![format!("{name}: {records} {done} {into}, {offsets}")];
    lines.extend(words_of(report));
    for line in lines {
        writeln!(console.out, "{}", escaped(&line))?;
    }
    Ok(())
}

/// What is lost, came back, was left, or is odd: a line each.
pub(crate) fn words_of(report: &SalvageReport) -> Vec<String> {
    let mut lines: Vec<String> = report.losses.iter().map(words_of_loss).collect();
    let unlisted = report.loss_count.saturating_sub(report.losses.len() as u64);
    if unlisted > 0 {
        lines.push(format!("  lost: {unlisted} more places, not listed"));
    }
    if let Some(most) = most_lost(&report.losses).filter(|_| unlisted == 0)
        && report.loss_count > 0
    {
        let records = counted(most, "record");
        let places = counted(report.loss_count, "place");
        lines.push(format!("  in all: at most {records} lost, in {places}"));
    }
    if let Some(torn) = &report.torn_tail {
        let bytes = counted(torn.bytes, "byte");
        lines.push(format!(
            "  left out: {bytes} behind the last whole batch, which is no batch: {}",
            torn.reason
        ));
    }
    for taken in &report.taken_back {
        lines.push(format!(
            "  taken back: {} at offsets {} to {}, from {}",
            counted(taken.records, "record"),
            taken.first_offset,
            taken.last_offset,
            below(&taken.path, &report.source)
        ));
    }
    lines.extend(
        report
            .left_out
            .iter()
            .map(|left| words_of_left(left, report)),
    );
    if let Some(offset) = report.first_unstable_offset {
        lines.push(format!(
            "  open: a transaction that begins at offset {offset} has no marker; read_committed ends there"
        ));
    }
    let warnings = report.warnings.iter();
    lines.extend(warnings.map(|warning| format!("  warning: {warning}")));
    lines
}

/// The most records that are missing; `None` where nobody knows.
fn most_lost(losses: &[Loss]) -> Option<u64> {
    losses.iter().map(Loss::records_max).sum()
}

fn words_of_loss(loss: &Loss) -> String {
    let hole = &loss.hole;
    let offsets = match hole.stop {
        Some(stop) if stop <= hole.start => "no offset".to_owned(),
        Some(stop) if stop == hole.start + 1 => format!("offset {}", hole.start),
        Some(stop) => format!("offsets {} to {}", hole.start, stop - 1),
        None => format!("offsets from {} on", hole.start),
    };
    let back = if loss.taken_back > 0 {
        format!(", {} of them taken back", loss.taken_back)
    } else {
        String::new()
    };
    let times = match (loss.time_before, loss.time_after) {
        (Some(before), Some(after)) => {
            format!(", between {} and {}", When(before), When(after))
        }
        (Some(before), None) => format!(", after {}", When(before)),
        (None, Some(after)) => format!(", before {}", When(after)),
        (None, None) => String::new(),
    };
    let file = hole.path.file_name().map_or(hole.path.as_path(), Path::new);
    format!(
        "  lost: {offsets}{back}{times}; {} of {} at position {}: {}",
        counted(hole.bytes, "byte"),
        file.display(),
        hole.position,
        hole.reason
    )
}

fn words_of_left(left: &LeftOut, report: &SalvageReport) -> String {
    let what = if left.batches == 0 {
        "what cannot be read".to_owned()
    } else {
        counted(left.batches, "batch").to_string()
    };
    let offsets = left.last_offset.map_or_else(
        || format!("from offset {} on", left.first_offset),
        |last| format!("at offsets {} to {last}", left.first_offset),
    );
    let file = below(&left.path, &report.source);
    format!("  left in {file}: {what} {offsets}: {}", left.reason)
}

/// A file's name inside the partition directory.
fn below(file: &Path, directory: &Path) -> String {
    let name = file.strip_prefix(directory).unwrap_or(file);
    name.to_string_lossy().into_owned()
}
