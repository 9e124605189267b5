//! What stands in the place of a partition that is to be restored: nothing, an empty partition, or what a restore has left there.

use super::sources::SourcePartition;
use offsetlog::format::Uuid;
use offsetlog::{Error, Log, OnCorrupt, OpenOptions, Record, Result, Scan, ScanOptions};
use std::path::Path;

/// Whether the partition's directory may be made, replaced, or is perhaps what is to be restored.
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
    if found.0 == source.log_start_offset && (found.1 == source.stop || source.stop == i64::MAX) {
        return Ok(());
    }
    if found == (0, 0) {
        return Err(format!(
            "{} is empty now, and had records that were set aside in it: look into them, then delete the directory, or move it away",
            path.display()
        ));
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

/// Whether the directory holds what is to be restored, record for record: then the greatest producer id of it. `None` if no record
/// was ever there, and one is to be.
///
/// # Errors
/// `LogDir` if it holds anything else; those of reading either.
pub(super) fn is_there(
    source: &Log,
    path: &Path,
    stop: Option<i64>,
    topic_id: Option<Uuid>,
    options: &OpenOptions,
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
    let (mut wanted, mut found) = (
        Records::of(source, stop, OnCorrupt::Skip)?,
        Records::of(&there, None, OnCorrupt::Raise)?,
    );
    let differs = |offset: i64| {
        let reason = format!(
            "it is not what is to be restored, as offset {offset} shows: delete the directory, or move it away"
        );
        Err(Error::log_dir(path, reason))
    };
    loop {
        match (wanted.next()?, found.next()?) {
            (None, None) => return Ok(Some(wanted.producer_id_max)),
            (Some(one), Some(other)) if is_same(&one, &other) => {}
            (Some(one), Some(other)) => return differs(one.offset.min(other.offset)),
            (Some(one), None) => return differs(one.offset),
            (None, Some(other)) => return differs(other.offset),
        }
    }
}

fn is_same(one: &Record, other: &Record) -> bool {
    (
        one.offset,
        one.timestamp,
        &one.key,
        &one.value,
        &one.headers,
    ) == (
        other.offset,
        other.timestamp,
        &other.key,
        &other.value,
        &other.headers,
    )
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

/// The records of a log, markers too.
struct Records {
    scan: Scan,
    batch: std::vec::IntoIter<Record>,
    producer_id_max: i64,
}

impl Records {
    fn of(log: &Log, stop: Option<i64>, on_corrupt: OnCorrupt) -> Result<Self> {
        let options = ScanOptions {
            stop,
            control_records: true,
            on_corrupt,
            ..ScanOptions::default()
        };
        Ok(Self {
            scan: log.scan(&options)?,
            batch: Vec::new().into_iter(),
            producer_id_max: -1,
        })
    }

    fn next(&mut self) -> Result<Option<Record>> {
        loop {
            if let Some(record) = self.batch.next() {
                return Ok(Some(record));
            }
            let Some(mut batch) = self.scan.next_batch()? else {
                return Ok(None);
            };
            self.producer_id_max = self.producer_id_max.max(batch.header().producer_id);
            self.batch = batch.to_records()?.into_iter();
        }
    }
}
