//! What is in the place of a partition that is to be restored: nothing, an empty partition, or what a restore has left there.

use super::PartitionToRestore;
use super::choice::SourcePartition;
use crate::replicas::told;
use crate::salvage::{Cut, Epochs, Salvaged, compare_log};
use offsetlog::disk::IoCall;
use offsetlog::format::Uuid;
use offsetlog::{Error, ErrorKind, Log, LogConfig, OpenOptions, Result, VerifyOptions};
use std::io;
use std::path::Path;

/// What a directory must be beside its records, to be left as it is.
pub(super) struct Wanted<'c> {
    topic_id: Option<Uuid>,
    /// The greatest leader epoch of what is to be restored.
    leader_epoch: Option<i32>,
    /// The greatest one that the target's cluster takes, where it has its own.
    leader_epoch_accepted: Option<i32>,
    config: &'c LogConfig,
    /// Whether a broker is told of a clean end, and looks for no damage.
    is_marked: bool,
}

impl<'c> Wanted<'c> {
    /// Of a partition whose topic has these settings.
    pub(super) const fn of(
        each: &PartitionToRestore,
        config: &'c LogConfig,
        is_marked: bool,
    ) -> Self {
        Self {
            topic_id: each.topic_id,
            leader_epoch: each.leader_epoch,
            leader_epoch_accepted: each.leader_epoch_accepted,
            config,
            is_marked,
        }
    }

    fn check(&self, there: &Log) -> Result<()> {
        check_topic_id(there, self.topic_id)?;
        let found = there.leader_epoch()?.unwrap_or(-1);
        // Old messages have no epoch, and become batches of epoch 0.
        let limit = self.leader_epoch_accepted.or(self.leader_epoch);
        let limit = limit.unwrap_or(0).max(0);
        if found <= limit {
            return Ok(());
        }
        let reason = format!(
            "it has what is to be restored, and leader epoch {found}, which is above {limit}, the greatest that {}: delete the directory, or \
             move it away, and run this again",
            if self.leader_epoch_accepted.is_some() {
                "the cluster takes"
            } else {
                "what is to be restored has"
            }
        );
        Err(Error::log_dir(there.path(), reason))
    }
}

/// A broker would set a directory of another topic's id aside, and since Kafka 3.7 one without an id too.
fn check_topic_id(there: &Log, wanted: Option<Uuid>) -> Result<()> {
    let Some(wanted) = wanted else {
        return Ok(());
    };
    let found = match there.topic_id()? {
        Some(found) if found == wanted => return Ok(()),
        Some(found) => format!("its partition.metadata has the topic id {found}"),
        None => "it has no partition.metadata".to_owned(),
    };
    let reason = format!(
        "{found}, and the topic has the id {wanted} here: delete the directory, or move it away, and run this again; or give it this id with \
         offsetlog adopt"
    );
    Err(Error::log_dir(there.path(), reason))
}

/// Refuses a directory that nobody built here, and in which a broker that is told of a clean end would overlook something.
///
/// # Errors
/// `LogDir`: what it would overlook. Those of reading.
fn check_sound(path: &Path, options: &OpenOptions) -> Result<()> {
    // What offsetlog has built was read back, and has this file.
    if options.disk.stat(&path.join(STATE_FILE)).is_ok() {
        return Ok(());
    }
    let report = Log::open(path, options)?.verify(&VerifyOptions::default())?;
    if !report.is_damaged() {
        return Ok(());
    }
    let is_damage = |severity| severity != offsetlog::Severity::Note;
    let mut findings = report.findings.iter();
    let found = findings.find(|found| is_damage(found.severity));
    let (file, why) = found.map_or((path, "offsetlog verify says what"), |found| {
        (found.path.as_path(), found.reason.as_str())
    });
    let reason = format!(
        "it has what is to be restored, and a file in it is damaged, which a broker does not look for after a clean end: {}: {why}. Delete \
         the directory, or move it away, and run this again",
        file.display()
    );
    Err(Error::log_dir(path, reason))
}

/// The file that offsetlog keeps in each partition directory that it has built or changed.
const STATE_FILE: &str = ".offsetlog.state";

/// Whether the partition's directory may be created or replaced, or may be what is to be restored; in words why not.
///
/// # Errors
/// What says nothing of the directory.
pub(super) fn may_be_replaced(
    path: &Path,
    source: &SourcePartition,
    topic_id: Option<Uuid>,
    options: &OpenOptions,
) -> Result<std::result::Result<(), String>> {
    let looked_at = told(refusal(path, source, topic_id, options))?;
    Ok(match looked_at {
        Ok(None) => Ok(()),
        Ok(Some(reason)) => Err(reason),
        Err(error) => Err(error.to_string()),
    })
}

/// Why not, in words; `None` if it may be.
///
/// # Errors
/// Why not, too.
fn refusal(
    path: &Path,
    source: &SourcePartition,
    topic_id: Option<Uuid>,
    options: &OpenOptions,
) -> Result<Option<String>> {
    let Some(log) = with_records(path, options)? else {
        return Ok(None);
    };
    check_topic_id(&log, topic_id)?;
    let found = (log.log_start_offset()?, log.log_end_offset()?);
    // Records that were cut off the log, or that damage hides, may come back behind its end: then a comparison decides.
    let may_go_on = !source.is_cut && (found.1 > source.stop || source.stop == i64::MAX);
    // And what filled a hole may have a record at the time where the log is cut.
    let has_kept = || (source.log.set_aside_files()).is_ok_and(|files| !files.is_empty());
    let can_fill = !source.other_logs.is_empty() || has_kept();
    let may_go_on = may_go_on || (source.until.is_some() && found.1 <= source.stop && can_fill);
    if found.0 == source.log_start_offset && (found.1 == source.stop || may_go_on) {
        return Ok(None);
    }
    if found == (0, 0) {
        return Ok(Some(format!(
            "{} is empty now, and had records that were set aside in it: look into them, then delete the directory, or move it away",
            path.display()
        )));
    }
    // Another replica may have given it when this one failed: a comparison decides that too.
    for other in &source.other_logs {
        let start = told(other.log_start_offset())?;
        let end = told(other.log_end_offset())?;
        if start.is_ok_and(|start| start == found.0)
            && end.map_or(true, |end| end == found.1 || source.is_cut)
        {
            return Ok(None);
        }
    }
    Ok(Some(format!(
        "{} has the offsets {} to {} already, and offsets {} to {} are to be restored: delete the directory, or move it away",
        path.display(),
        found.0,
        found.1,
        source.log_start_offset,
        source.stop,
    )))
}

/// Whether the directory is what is to be restored: record for record, with the topic's id, with leader epochs that the cluster takes, and with
/// nothing behind. Then what restoring it would have reported. `None` if no record was ever there, and one is to be.
///
/// # Errors
/// `LogDir` if it holds anything else; those of reading either.
pub(super) fn is_there(
    source: &Log,
    path: &Path,
    cut: Cut,
    wanted: &Wanted<'_>,
    options: &OpenOptions,
    replicas: &[Log],
) -> Result<Option<Salvaged>> {
    let with_records = with_records(path, options)?;
    let has_records = with_records.is_some();
    let there = if let Some(there) = with_records {
        wanted.check(&there)?;
        there
    } else {
        if !has_no_record(source, cut.stop)? || has_nothing(path, options)? {
            return Ok(None);
        }
        let there = Log::open(path, options)?;
        if there.topic_id()? != wanted.topic_id {
            return Ok(None);
        }
        there
    };
    let epochs = wanted
        .leader_epoch_accepted
        .map_or(Epochs::Same, Epochs::UpTo);
    let part = (cut, epochs);
    let same = match compare_log(source, &there, options, part, wanted.config, replicas) {
        // What a recovery has cut off comes back: it is built in the place of the empty one.
        Err(error) if !has_records && matches!(error.kind(), ErrorKind::LogDir { .. }) => {
            return Ok(None);
        }
        same => same?,
    };
    if has_records && wanted.is_marked {
        check_sound(path, options)?;
    }
    Ok(Some(same))
}

/// Whether nothing of the log is restored but that it begins at 0.
fn has_no_record(source: &Log, stop: Option<i64>) -> Result<bool> {
    match source.log_end_offset() {
        Err(error) if error.is_corruption() => Ok(false),
        end => Ok(end?.min(stop.unwrap_or(i64::MAX)) == 0),
    }
}

/// Whether a log is in a directory that ever had a record, or something that is none.
pub(super) fn has_records(path: &Path, options: &OpenOptions) -> bool {
    with_records(path, options).map_or(true, |log| log.is_some())
}

/// Whether no directory is there, or an empty one. One that cannot be listed is neither.
fn has_nothing(path: &Path, options: &OpenOptions) -> Result<bool> {
    match options.disk.list(path) {
        Ok(entries) => Ok(entries.is_empty()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(Error::io(IoCall::List, path, error)),
    }
}

/// The log in a directory, if it ever had a record.
fn with_records(path: &Path, options: &OpenOptions) -> Result<Option<Log>> {
    if has_nothing(path, options)? {
        return Ok(None);
    }
    let log = Log::open(path, options)?;
    Ok(if log.has_begun()? { Some(log) } else { None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_not_there_or_empty_has_no_records() {
        let folder = tempfile::tempdir().unwrap();
        let (place, options) = (folder.path().join("t-0"), OpenOptions::default());
        assert!(!has_records(&place, &options));
        std::fs::create_dir(&place).unwrap();
        assert!(!has_records(&place, &options));
        std::fs::remove_dir(&place).unwrap();
        // It cannot be listed.
        std::fs::write(&place, "").unwrap();
        assert!(has_records(&place, &options));
    }
}
