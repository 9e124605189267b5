//! `offsetlog verify`: what is wrong with partitions and log dirs, without changing anything.

use crate::args::Verify;
use crate::console::Console;
use crate::escape::escaped;
use crate::failure::Failure;
use crate::json::{Shown, write_json};
use crate::progress::Progress;
use crate::recover::bytes_in;
use crate::{EXIT_DAMAGED, EXIT_FINE};
use offsetlog::format::counted;
use offsetlog::{DamageReport, Finding, OpenOptions, Severity, VerifyOptions};
use offsetlog_ops::verify;
use serde::Serialize;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// A finding, as a JSON line.
#[derive(Serialize)]
struct FindingLine<'a> {
    severity: &'static str,
    kind: &'static str,
    path: Shown<'a>,
    position: Option<u64>,
    offset: Option<i64>,
    reason: &'a str,
    found: Option<&'a str>,
    expected: Option<&'a str>,
    clean: &'static str,
    unclean: &'static str,
    recover: &'static str,
}

/// The last JSON line.
#[derive(Serialize)]
struct SummaryLine {
    notes: u64,
    warnings: u64,
    errors: u64,
    partitions: u64,
    segments: u64,
    batches: u64,
    records: u64,
    bytes_read: u64,
}

pub(crate) fn run(args: &Verify, console: &mut Console<'_>) -> Result<i32, Failure> {
    console.quiet = args.quiet;
    let (progress, bar) = Progress::before_output(
        console,
        args.paths.iter().map(|path| bytes_below(path)).sum(),
    );
    let options = OpenOptions {
        interrupt: console.terminal.interrupt.clone(),
        ..OpenOptions::default()
    };
    let verify_options = VerifyOptions {
        progress: bar.map(|bar| Arc::new(move |bytes| bar.inc(bytes)) as _),
    };
    let verified = verify(&args.paths, &options, &verify_options)?;
    drop(progress);
    if let Some(error) = verified.not_compared {
        console.warn(&format!("not compared with the metadata: {error}"));
    }
    let report = verified.report;
    let mut shown = report
        .findings
        .iter()
        .filter(|finding| args.json || !args.quiet || finding.severity > Severity::Note)
        .peekable();
    while let Some(finding) = shown.next() {
        if args.json {
            write_json(&mut console.out, &line_of(finding))?;
            console.out.write_all(b"\n")?;
            continue;
        }
        // The same finding in consecutive batches is reported once.
        let (mut more, mut last) = (0_u64, finding);
        while let Some(again) = shown.next_if(|next| is_same(finding, next)) {
            more += 1;
            last = again;
        }
        write_text(finding, (more, last), console)?;
    }
    if args.json {
        write_json(&mut console.out, &summary_of(&report))?;
        console.out.write_all(b"\n")?;
    } else {
        let [notes, warnings, errors] = report.counts;
        writeln!(
            console.out,
            "{}, {}, {}; read: {}, {}, {}, {}",
            counted(errors, "error"),
            counted(warnings, "warning"),
            counted(notes, "note"),
            counted(report.partitions, "partition"),
            counted(report.segments, "segment"),
            counted(report.records, "record"),
            counted(report.bytes, "byte"),
        )?;
    }
    Ok(if report.is_damaged() {
        EXIT_DAMAGED
    } else {
        EXIT_FINE
    })
}

fn is_same(one: &Finding, other: &Finding) -> bool {
    let key = |finding: &Finding| (finding.severity, finding.kind, finding.recover);
    key(one) == key(other) && one.path == other.path && one.reason == other.reason
}

/// A path as somebody here would write it.
fn shown_path(path: &Path) -> String {
    let here = std::env::current_dir().ok();
    let below = here.and_then(|here| path.strip_prefix(here).ok());
    below
        .filter(|below| !below.as_os_str().is_empty())
        .unwrap_or(path)
        .to_string_lossy()
        .into_owned()
}

/// Bytes of segments in a partition directory, or in those of a log dir.
fn bytes_below(path: &Path) -> u64 {
    let folders = std::fs::read_dir(path).map_or(0, |entries| {
        entries
            .filter_map(Result::ok)
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| bytes_in(&entry.path()))
            .sum()
    });
    bytes_in(path) + folders
}

fn line_of(finding: &Finding) -> FindingLine<'_> {
    FindingLine {
        severity: finding.severity.name(),
        kind: finding.kind,
        path: Shown::path(&finding.path),
        position: finding.position,
        offset: finding.offset,
        reason: &finding.reason,
        found: finding.found.as_deref(),
        expected: finding.expected.as_deref(),
        clean: finding.clean,
        unclean: finding.unclean,
        recover: finding.recover,
    }
}

fn summary_of(report: &DamageReport) -> SummaryLine {
    let [notes, warnings, errors] = report.counts;
    SummaryLine {
        notes,
        warnings,
        errors,
        partitions: report.partitions,
        segments: report.segments,
        batches: report.batches,
        records: report.records,
        bytes_read: report.bytes,
    }
}

/// One finding, how often it repeats, and up to where.
fn write_text(
    finding: &Finding,
    (more, last): (u64, &Finding),
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let position = finding
        .position
        .map(|position| format!(" position {position}"));
    let offset = finding.offset.map(|offset| format!(", offset {offset}"));
    let place = format!(
        "{}{}{}",
        shown_path(&finding.path),
        position.unwrap_or_default(),
        offset.unwrap_or_default()
    );
    let severity = finding.severity.name();
    let line = format!("{severity}: {place}: {}", finding.reason);
    writeln!(console.out, "{}", escaped(&line))?;
    if more > 0 {
        let position = last
            .position
            .map(|position| format!(" position {position}"));
        let offset = last.offset.map(|offset| format!(", offset {offset}"));
        writeln!(
            console.out,
            "  and {} more, the last one at{}{}",
            counted(more, "time"),
            position.unwrap_or_default(),
            offset.unwrap_or_default()
        )?;
    }
    if finding.severity > Severity::Note {
        writeln!(
            console.out,
            "  Kafka, after a clean stop: {}",
            finding.clean
        )?;
        writeln!(console.out, "  Kafka, after a crash: {}", finding.unclean)?;
        writeln!(console.out, "  offsetlog recover: {}", finding.recover)?;
    }
    Ok(())
}
