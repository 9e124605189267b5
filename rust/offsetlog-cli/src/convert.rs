//! `offsetlog convert`: a new partition directory with the records of an old one.

use crate::args::Convert;
use crate::console::Console;
use crate::failure::Failure;
use crate::json::Shown;
use crate::progress::Progress;
use crate::topics::{config_of, write_line};
use crate::{EXIT_DAMAGED, EXIT_FINE};
use offsetlog::format::counted;
use offsetlog::{ConvertOptions, ConvertReport, OpenOptions, convert};
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;

/// What was converted, as a JSON line.
#[derive(Serialize)]
struct ReportLine<'a> {
    path: Shown<'a>,
    records: u64,
    batches: u64,
    batches_kept: u64,
    bytes_read: u64,
    bytes_written: u64,
    dropped_bytes: u64,
    dropped_reason: Option<&'a str>,
    log_start_offset: i64,
    log_end_offset: i64,
    missing_offsets: Vec<OffsetsLine>,
    warnings: &'a [String],
}

/// Offsets that are missing, both bounds inclusive.
#[derive(Serialize)]
struct OffsetsLine {
    first_offset: i64,
    last_offset: i64,
}

pub(crate) fn run(args: &Convert, console: &mut Console<'_>) -> Result<i32, Failure> {
    console.quiet = args.quiet;
    let config = match args.settings.as_slice() {
        [] => None,
        settings => Some(config_of(settings)?),
    };
    // How much there is to do, the engine says with the first step.
    let (progress, bar) = Progress::before_output(console, 1);
    progress.set(0, "");
    let options = OpenOptions {
        interrupt: console.terminal.interrupt.clone(),
        ..OpenOptions::default()
    };
    let how = ConvertOptions {
        codec: args.compression.map(Into::into),
        config,
        progress: bar.map(|bar| {
            Arc::new(move |done, total| {
                bar.set_length(total);
                bar.set_position(done);
            }) as _
        }),
    };
    let report = convert(&args.old, &args.new, &options, &how).map_err(Failure::Writing)?;
    drop(progress);
    if let Some(torn) = &report.torn_tail {
        let file = torn.path.file_name().map(Path::new);
        console.warn(&format!(
            "left out: {} at the end of {}, from position {}: {}",
            counted(torn.bytes, "byte"),
            file.unwrap_or(&torn.path).display(),
            torn.position,
            torn.reason
        ));
    }
    let name = report.path.file_name().unwrap_or_default();
    for warning in &report.warnings {
        console.warn(&format!("{}: {warning}", name.to_string_lossy()));
    }
    if args.json {
        write_line(console, &line_of(&report))?;
    }
    console.note(&words_of(&report));
    Ok(if report.missing_offsets.is_empty() {
        EXIT_FINE
    } else {
        EXIT_DAMAGED
    })
}

fn line_of(report: &ConvertReport) -> ReportLine<'_> {
    let torn = report.torn_tail.as_ref();
    ReportLine {
        path: Shown::path(&report.path),
        records: report.records,
        batches: report.batches,
        batches_kept: report.batches_kept,
        bytes_read: report.bytes_read,
        bytes_written: report.bytes_written,
        dropped_bytes: torn.map_or(0, |torn| torn.bytes),
        dropped_reason: torn.map(|torn| torn.reason.as_str()),
        log_start_offset: report.log_start_offset,
        log_end_offset: report.log_end_offset,
        missing_offsets: report
            .missing_offsets
            .iter()
            .map(|&(start, stop)| OffsetsLine {
                first_offset: start,
                last_offset: stop - 1,
            })
            .collect(),
        warnings: &report.warnings,
    }
}

fn words_of(report: &ConvertReport) -> String {
    let name = report.path.file_name().unwrap_or_default();
    let offsets = if report.log_start_offset < report.log_end_offset {
        format!(
            "offsets {} to {}",
            report.log_start_offset,
            report.log_end_offset - 1
        )
    } else {
        format!("empty at offset {}", report.log_end_offset)
    };
    format!(
        "{}: {} in {}, {offsets}; {} read, {} written",
        name.to_string_lossy(),
        counted(report.records, "record"),
        counted(report.batches, "batch"),
        counted(report.bytes_read, "byte"),
        report.bytes_written
    )
}
