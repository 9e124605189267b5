//! What is in the place of a partition that is to be restored: nothing, an empty partition, or what a restore has left there.

use super::choice::SourcePartition;
use crate::salvage::compare_log;
use offsetlog::format::Uuid;
use offsetlog::{Error, Log, LogConfig, OpenOptions, Result};
use std::path::Path;

/// Whether the partition's directory may be created or replaced, or may be what is to be restored.
///
/// # Errors
/// In words: why not.
pub(super) fn may_be_replaced(
    path: &Path,
    source: &SourcePartition,
    options: &OpenOptions,
) -> std::result::Result<(), String> {
    let said = |error: Error| error.to_string();
    let Some(log) = with_records(path, options).map_err(said)? else {
        return Ok(());
    };
    let found = (
        log.log_start_offset().map_err(said)?,
        log.log_end_offset().map_err(said)?,
    );
    // Records that were cut off the log, or that damage hides, may come back behind its end: then a comparison decides.
    let may_go_on = !source.is_cut && (found.1 > source.stop || source.stop == i64::MAX);
    if found.0 == source.log_start_offset && (found.1 == source.stop || may_go_on) {
        return Ok(());
    }
    if found == (0, 0) {
        return Err(format!(
            "{} is empty now, and had records that were set aside in it: look into them, then delete the directory, or move it away",
            path.display()
        ));
    }
    // Another replica may have given it when this one failed: a comparison decides that too.
    let may_be_of = |other: &Log| {
        other.log_start_offset().is_ok_and(|start| start == found.0)
            && other
                .log_end_offset()
                .map_or(true, |end| end == found.1 || source.is_cut)
    };
    if source.other_logs.iter().any(may_be_of) {
        return Ok(());
    }
    Err(format!(
        "{} has the offsets {} to {} already, and offsets {} to {} are to be restored: delete the directory, or move it away",
        path.display(),
        found.0,
        found.1,
        source.log_start_offset,
        source.stop,
    ))
}

/// Whether the directory holds what is to be restored of a topic with this id and settings, record for record: then the greatest producer id of it. `None` if no record
/// was ever there, and one is to be.
///
/// # Errors
/// `LogDir` if it holds anything else; those of reading either.
pub(super) fn is_there(
    source: &Log,
    path: &Path,
    stop: Option<i64>,
    (topic_id, config): (Option<Uuid>, &LogConfig),
    options: &OpenOptions,
    replicas: &[Log],
) -> Result<Option<i64>> {
    let Some(there) = with_records(path, options)? else {
        let is_same = has_no_record(source, stop)?
            && options
                .disk
                .list(path)
                .is_ok_and(|entries| !entries.is_empty())
            && Log::open(path, options)?.topic_id()? == topic_id;
        return Ok(is_same.then_some(-1));
    };
    compare_log(source, &there, options, stop, config, replicas).map(Some)
}

/// Whether nothing of the log is restored but that it begins at 0.
fn has_no_record(source: &Log, stop: Option<i64>) -> Result<bool> {
    match source.log_end_offset() {
        Err(error) if error.is_corruption() => Ok(false),
        end => Ok(stop.unwrap_or(end?) == 0),
    }
}

/// The log in a directory, if it ever had a record.
fn with_records(path: &Path, options: &OpenOptions) -> Result<Option<Log>> {
    match options.disk.list(path) {
        Ok(entries) if !entries.is_empty() => {}
        _ => return Ok(None),
    }
    let log = Log::open(path, options)?;
    Ok(if log.has_begun()? { Some(log) } else { None })
}
