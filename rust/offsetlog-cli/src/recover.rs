//! `offsetlog recover`: repairs partitions that were not closed cleanly, or are damaged, and reports what that changed.

use crate::args::{Recover, Selection};
use crate::console::Console;
use crate::escape::escaped;
use crate::failure::{Failure, with_advice_to_writers};
use crate::json::{Shown, write_json};
use crate::progress::Progress;
use crate::select::{Chosen, choose};
use crate::unread::write_line;
use crate::{EXIT_DAMAGED, EXIT_ERROR, EXIT_FINE, EXIT_NOTHING};
use offsetlog::format::counted;
use offsetlog::{Cut, LogDir, OpenOptions, RecoverOptions, RecoveryReport, recover};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A partition directory that was chosen.
struct Target {
    chosen: Chosen,
    path: PathBuf,
}

/// What became of several partitions.
#[derive(Default)]
struct Sums {
    recovered: usize,
    failed: usize,
    changed: usize,
    records: u64,
    bytes: u64,
}

/// The totals of several partitions, as the last JSON line.
#[derive(Serialize)]
struct SumsLine {
    dry_run: bool,
    partitions: usize,
    partitions_changed: usize,
    partitions_failed: usize,
    bytes_cut: u64,
    records_cut: u64,
}

impl Sums {
    fn add(&mut self, report: &RecoveryReport) {
        self.recovered += 1;
        self.changed += usize::from(report.is_changed());
        self.records += report.records_cut();
        self.bytes += report.cut.iter().map(|cut| cut.bytes).sum::<u64>();
    }

    const fn line(&self, dry_run: bool) -> SumsLine {
        SumsLine {
            dry_run,
            partitions: self.recovered,
            partitions_changed: self.changed,
            partitions_failed: self.failed,
            bytes_cut: self.bytes,
            records_cut: self.records,
        }
    }

    fn in_words(&self, dry_run: bool) -> String {
        let partitions = counted(self.recovered, "partition");
        let (changed, cut, done) = if dry_run {
            ("would be changed", "would be cut off", "looked through")
        } else {
            ("changed", "cut off", "recovered")
        };
        let cut = match (self.bytes, self.records) {
            (0, _) => format!("nothing {cut}"),
            (bytes, 0) => format!(
                "{} {cut}, with no record that could be read",
                counted(bytes, "byte")
            ),
            (bytes, records) => {
                let (bytes, records) = (counted(bytes, "byte"), counted(records, "record"));
                format!("{bytes} {cut}, with {records} that could be read")
            }
        };
        let failed = match self.failed {
            0 => String::new(),
            failed => format!("; {failed} could not be {done}"),
        };
        format!(
            "in all: {} of {partitions} {changed}; {cut}{failed}",
            self.changed
        )
    }
}

/// One partition, as a JSON line.
#[derive(Serialize)]
struct ReportLine<'a> {
    topic: &'a str,
    partition: i32,
    path: Shown<'a>,
    dry_run: bool,
    changed: bool,
    cut: Vec<CutLine<'a>>,
    records_cut: u64,
    first_offset_cut: Option<i64>,
    last_offset_cut: Option<i64>,
    rebuilt: Vec<RebuiltLine<'a>>,
    tidied: &'a [String],
    warnings: &'a [String],
    segments_read: usize,
    bytes_read: u64,
    log_start_offset: i64,
    log_end_offset: i64,
}

#[derive(Serialize)]
struct CutLine<'a> {
    path: Shown<'a>,
    position: u64,
    bytes: u64,
    reason: &'a str,
    had_batches: bool,
    records: u64,
    first_offset: Option<i64>,
    last_offset: Option<i64>,
    kept: Option<Shown<'a>>,
}

#[derive(Serialize)]
struct RebuiltLine<'a> {
    path: Shown<'a>,
    reason: &'a str,
}

pub(crate) fn run(args: &Recover, console: &mut Console<'_>) -> Result<i32, Failure> {
    let targets = targets(&args.selection, console)?;
    if targets.is_empty() {
        console.warn("no partitions here; a log dir holds directories such as orders-0");
        return Ok(EXIT_NOTHING);
    }
    let mut sums = Sums::default();
    for target in &targets {
        match recover_one(target, args, console) {
            Ok(report) => {
                sums.add(&report);
                if args.json {
                    write_json(&mut console.out, &line_of(target, &report))?;
                    console.out.write_all(b"\n")?;
                } else {
                    write_text(target, &report, console)?;
                }
                // Each may take long, and what is done is done.
                console.out.flush()?;
            }
            Err(error) if error.is_of_process() => {
                return Err(Failure::Writing(error));
            }
            Err(error) => {
                // One partition that cannot be recovered does not keep the others waiting.
                let chosen = &target.chosen;
                write_line(
                    (&chosen.topic, chosen.partition),
                    &error,
                    args.json,
                    console,
                )?;
                let words = with_advice_to_writers(&error);
                console.error(&format!("{}: {words}", chosen.name()));
                sums.failed += 1;
            }
        }
    }
    if targets.len() > 1 && args.json {
        write_json(&mut console.out, &sums.line(args.dry_run))?;
        console.out.write_all(b"\n")?;
    } else if targets.len() > 1 {
        writeln!(console.out, "{}", sums.in_words(args.dry_run))?;
    }
    Ok(if sums.failed > 0 {
        EXIT_ERROR
    } else if sums.changed > 0 && args.dry_run {
        EXIT_DAMAGED
    } else {
        EXIT_FINE
    })
}

/// The partition directories of all paths that `-t` and `-p` name, each once.
fn targets(selection: &Selection, console: &mut Console<'_>) -> Result<Vec<Target>, Failure> {
    console.quiet = selection.quiet;
    let options = OpenOptions::default();
    let mut found: Vec<Target> = Vec::new();
    for path in &selection.paths {
        // Each path by itself: if a partition is there twice, both are recovered.
        let log_dir =
            LogDir::open(std::slice::from_ref(path), &options).map_err(Failure::Writing)?;
        for warning in log_dir.warnings() {
            console.warn(&warning);
        }
        for topic in log_dir.topics().into_keys() {
            for (partition, path) in log_dir.directories(&topic) {
                let chosen = Chosen {
                    topic: topic.clone(),
                    partition,
                };
                if !found.iter().any(|target| target.path == path) {
                    found.push(Target { chosen, path });
                }
            }
        }
    }
    let all = found.iter().map(|target| target.chosen.clone()).collect();
    let chosen = choose(all, selection)?;
    found.retain(|target| chosen.contains(&target.chosen));
    Ok(found)
}

fn recover_one(
    target: &Target,
    args: &Recover,
    console: &Console<'_>,
) -> Result<RecoveryReport, offsetlog::Error> {
    let (progress, bar) = Progress::before_output(console, bytes_in(&target.path));
    progress.set(0, &escaped(&target.chosen.name()));
    let options = OpenOptions {
        interrupt: console.terminal.interrupt.clone(),
        ..OpenOptions::default()
    };
    let recover_options = RecoverOptions {
        from_offset: args.from_offset,
        dry_run: args.dry_run,
        progress: bar.map(|bar| Arc::new(move |bytes| bar.inc(bytes)) as _),
    };
    recover(&target.path, &options, &recover_options)
}

/// Bytes of the segments in a partition directory.
pub(crate) fn bytes_in(path: &Path) -> u64 {
    let is_log =
        |name: &std::ffi::OsStr| Path::new(name).extension().is_some_and(|end| end == "log");
    std::fs::read_dir(path).map_or(0, |entries| {
        entries
            .filter_map(Result::ok)
            .filter(|entry| is_log(&entry.file_name()))
            .filter_map(|entry| entry.metadata().ok())
            .map(|metadata| metadata.len())
            .sum()
    })
}

fn line_of<'a>(target: &'a Target, report: &'a RecoveryReport) -> ReportLine<'a> {
    ReportLine {
        topic: &target.chosen.topic,
        partition: target.chosen.partition,
        path: Shown::path(&target.path),
        dry_run: report.dry_run,
        changed: report.is_changed(),
        cut: report
            .cut
            .iter()
            .map(|cut| CutLine {
                path: Shown::path(&cut.path),
                position: cut.position,
                bytes: cut.bytes,
                reason: &cut.reason,
                had_batches: cut.had_batches,
                records: cut.records,
                first_offset: cut.offsets.map(|(first, _)| first),
                last_offset: cut.offsets.map(|(_, last)| last),
                kept: cut.kept.as_deref().map(Shown::path),
            })
            .collect(),
        records_cut: report.records_cut(),
        first_offset_cut: report.offsets_cut().map(|(first, _)| first),
        last_offset_cut: report.offsets_cut().map(|(_, last)| last),
        rebuilt: report
            .rebuilt
            .iter()
            .map(|(path, reason)| RebuiltLine {
                path: Shown::path(path),
                reason,
            })
            .collect(),
        tidied: &report.tidied,
        warnings: &report.warnings,
        segments_read: report.segments_read,
        bytes_read: report.bytes_read,
        log_start_offset: report.log_start_offset,
        log_end_offset: report.log_end_offset,
    }
}

fn write_text(
    target: &Target,
    report: &RecoveryReport,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    // Cut off a segment, that is: a file beside it that is set aside holds no records.
    let is_cut = report
        .cut
        .iter()
        .any(|cut| cut.path.extension().is_some_and(|end| end == "log"));
    let has_lost = report.cut.iter().any(|cut| cut.had_batches);
    let verdict = match (report.is_changed(), is_cut, report.dry_run) {
        (false, ..) => "sound, nothing to recover",
        (_, true, true) if has_lost => {
            "recovering would cut the log at the first bytes that are no batch, with whole batches behind them:"
        }
        (_, true, false) if has_lost => {
            "recovered, the log is cut at the first bytes that are no batch, with whole batches behind them:"
        }
        (_, true, true) => "recovering would cut off what is no batch:",
        (_, true, false) => "recovered, what is no batch is cut off:",
        (_, false, true) => "all records are sound; recovering would change files beside them:",
        (_, false, false) => "recovered, all records are sound:",
    };
    let mut lines = vec![format!("{}: {verdict}", target.chosen.name())];
    let changes = changes(report, &target.path);
    lines.extend(changes.iter().map(|change| format!("  {change}")));
    let warnings = report.warnings.iter();
    lines.extend(warnings.map(|warning| format!("  warning: {warning}")));
    let offsets = if report.log_start_offset < report.log_end_offset {
        format!(
            "offsets {} to {} can be read",
            report.log_start_offset,
            report.log_end_offset - 1
        )
    } else {
        format!("the log is empty at {}", report.log_end_offset)
    };
    let segments = counted(report.segments_read, "segment");
    let bytes = counted(report.bytes_read, "byte");
    lines.push(format!("  read: {segments}, {bytes}; {offsets}"));
    let lost = report.records_cut();
    if let Some((first, last)) = report.offsets_cut().filter(|_| lost > 0) {
        let tense = match (report.dry_run, lost) {
            (true, _) => "would be lost",
            (false, 1) => "is lost",
            (false, _) => "are lost",
        };
        let (records, them) = (
            counted(lost, "record"),
            if lost == 1 { "it" } else { "them" },
        );
        lines.push(format!(
            "  {records} that could be read, at offsets {first} to {last}, {tense} to the log; the kept files have {them}"
        ));
    }
    for line in lines {
        writeln!(console.out, "{}", escaped(&line))?;
    }
    Ok(())
}

/// What a recovery of the partition directory `path` changed, in words, a line each.
fn changes(report: &RecoveryReport, path: &Path) -> Vec<String> {
    let cut = report.cut.iter().map(|cut| words_of_cut(cut, path));
    let rebuilt = report
        .rebuilt
        .iter()
        .map(|(file, reason)| format!("rebuilt: {}: {reason}", below(file, path)));
    let tidied = report.tidied.iter().map(|step| format!("tidied: {step}"));
    cut.chain(rebuilt).chain(tidied).collect()
}

/// What was cut off a file of the partition directory `path`, and where it is now.
pub(crate) fn words_of_cut(cut: &Cut, path: &Path) -> String {
    let file = below(&cut.path, path);
    let bytes = counted(cut.bytes, "byte");
    let batches = match cut.offsets {
        Some((first, last)) if cut.had_batches => format!(
            ", with {} at offsets {first} to {last}",
            counted(cut.records, "record")
        ),
        _ if cut.had_batches => ", whole batches among them".to_owned(),
        _ => String::new(),
    };
    let kept = match &cut.kept {
        Some(kept) => format!("kept in {}", below(kept, path)),
        None => "not kept, they are zeros".to_owned(),
    };
    format!(
        "cut: {file} from position {}, {bytes}{batches}: {}; {kept}",
        cut.position, cut.reason
    )
}

/// A file's name inside the partition directory.
fn below(file: &Path, directory: &Path) -> String {
    let name = file.strip_prefix(directory).unwrap_or(file);
    name.to_string_lossy().into_owned()
}
