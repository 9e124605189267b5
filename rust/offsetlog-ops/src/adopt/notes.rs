//! What the check of a directory finds that is no damage, and that whoever takes it in has to know: what is missing, stuck, or goes with it.

use super::is_start;
use crate::producer_ids::given_again;
use crate::salvage::everything;
use offsetlog::format::counted;
use offsetlog::{DamageReport, Finding, Log, OpenOptions, Result, SetAsideFile};

/// Sentences.
#[derive(Default)]
pub(super) struct Notes {
    /// All of them.
    pub(super) all: Vec<String>,
    /// Those about what goes: nobody finds it again.
    pub(super) of_what_goes: Vec<String>,
}

/// A sentence for each such thing. `is_compacted` says that the topic is known to be compacted, which leaves offsets out.
pub(super) fn of_check(
    log: &Log,
    report: &DamageReport,
    is_compacted: bool,
    open: &OpenOptions,
) -> Result<Notes> {
    let end = log.log_end_offset()?;
    let (mut notes, mut of_what_goes) = (Vec::new(), Vec::new());
    let is_gap = |finding: &&Finding| finding.kind == "Gap";
    let (of_ends, between): (Vec<&Finding>, Vec<&Finding>) = report
        .findings
        .iter()
        .filter(is_gap)
        .partition(|finding| finding.path == log.path());
    // The lines of the checkpoints that tell of them go.
    of_what_goes.extend(of_ends.iter().map(|finding| finding.reason.clone()));
    let starts = report.findings.iter();
    let starts = starts.filter(|finding| is_start(finding, log.path(), end));
    of_what_goes.extend(starts.map(|finding| format!("{}, and is not kept", finding.reason)));
    notes.extend(of_what_goes.iter().cloned());
    if let Some(first) = between.first().filter(|_| !is_compacted) {
        let more = if between.len() > 1 {
            format!(" (the first of {} such places)", between.len())
        } else {
            String::new()
        };
        notes.push(format!(
            "{}{more}: records are missing, unless compaction removed them; another replica may have them",
            first.reason
        ));
    }
    // Not by the last stable offset: beside a broker that is the high watermark, without any transaction.
    let open_from = log.open_transactions()?;
    let open_from = open_from
        .iter()
        .filter_map(|producer| producer.transaction_first_offset);
    if let Some(first) = open_from.min() {
        let first = first.max(log.log_start_offset()?);
        notes.push(format!(
            "a transaction is open from offset {first} on, and read_committed consumers wait there: see what its coordinator decided \
             (offsetlog producers LOGDIR --open), and end it before the broker starts (offsetlog end-transaction)"
        ));
    }
    let deleted = of_deleted(log, open)?;
    notes.extend(deleted.clone());
    of_what_goes.extend(deleted);
    Ok(Notes {
        all: notes,
        of_what_goes,
    })
}

/// What is odd about its producers, where the cluster gives out ids from `next` on.
pub(super) fn of_producers(log: &Log, next: Option<i64>) -> Result<Option<String>> {
    let known = log.producers()?;
    let greatest = known.last().map(|producer| producer.producer_id);
    Ok(greatest.and_then(|greatest| given_again("it", greatest, next)))
}

/// Segments that wait for their deletion, which go when the log is opened, as with a broker.
fn of_deleted(log: &Log, open: &OpenOptions) -> Result<Option<String>> {
    let files = log.set_aside_files()?.into_iter();
    let files: Vec<SetAsideFile> = files.filter(|file| file.cut_at.is_none()).collect();
    if files.is_empty() {
        return Ok(None);
    }
    let mut told = Vec::new();
    for file in &files {
        let name = file.path.file_name().unwrap_or_default().to_string_lossy();
        told.push(match offsets_of(file, open) {
            Ok(Some((first, last))) => format!("{name} (offsets {first} to {last})"),
            Ok(None) => format!("{name} (without a batch that can be read)"),
            Err(error) if error.is_of_process() => return Err(error),
            Err(error) => format!("{name} (which cannot be read: {error})"),
        });
    }
    Ok(Some(format!(
        "{} in it {}: {}. To keep what is in there, copy these files first: without .deleted at the end of its name each is one of a segment \
         again",
        counted(files.len(), "segment"),
        if files.len() == 1 {
            "waits for its deletion, and goes when it is taken in"
        } else {
            "wait for their deletion, and go when it is taken in"
        },
        told.join(", ")
    )))
}

/// The first and the last offset of the batches in it.
fn offsets_of(file: &SetAsideFile, open: &OpenOptions) -> Result<Option<(i64, i64)>> {
    let mut scan = Log::open(&file.path, open)?.scan(&everything())?;
    let mut offsets: Option<(i64, i64)> = None;
    while let Some(batch) = scan.next_batch()? {
        let header = batch.header();
        let (known_first, known_last) = offsets.unwrap_or((i64::MAX, i64::MIN));
        let first = header.base_offset.unwrap_or(header.last_offset);
        offsets = Some((known_first.min(first), known_last.max(header.last_offset)));
    }
    Ok(offsets)
}
