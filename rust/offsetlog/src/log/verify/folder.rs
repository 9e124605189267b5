//! Log dirs: their own files, the names in them, and each partition.

use super::report::{Effect, Severity};
use super::{DamageReport, VerifyOptions};
use crate::disk::{EntryKind, read_whole};
use crate::error::{Error, Result};
use crate::log::OpenOptions;
use offsetlog_format::checkpoint::OffsetCheckpoint;
use offsetlog_format::meta_properties::MetaProperties;
use offsetlog_format::name::{DirectoryName, DirectoryState, FileName, META_PROPERTIES};
use offsetlog_format::{FormatError, OffsetCheckpointFile};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

/// Folder of a broker with tiered storage; no partition's.
const REMOTE_INDEX_CACHE: &str = "remote-log-index-cache";

/// Checks a partition directory, or a log dir with those in it.
pub(super) fn check(
    path: &Path,
    options: &OpenOptions,
    verify: &VerifyOptions,
    report: &mut DamageReport,
    seen: &mut BTreeSet<(String, i32)>,
) -> Result<()> {
    let disk = options.disk.as_ref();
    let mut entries = disk
        .list(path)
        .map_err(|error| Error::io("list", path, error))?;
    entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or("");
    let is_partition = DirectoryName::parse(name).is_ok();
    let holds_files = entries.iter().any(|entry| {
        entry.kind == EntryKind::File && !matches!(FileName::classify(&entry.name), FileName::Other)
    });
    let has_folders = entries.iter().any(|entry| {
        entry.kind == EntryKind::Directory && DirectoryName::parse(&entry.name).is_ok()
    });
    if is_partition && (holds_files || !has_folders) {
        return super::partition(path, options, verify, report);
    }
    let is_log_dir = own_files(path, options, report)?;
    if !is_log_dir && !has_folders {
        let reason = "no partition directory (topic-partition) and no meta.properties or checkpoint found: not a log dir";
        return Err(Error::log_dir(path, reason));
    }
    for entry in entries {
        if entry.kind != EntryKind::Directory || entry.name == REMOTE_INDEX_CACHE {
            continue;
        }
        let folder = path.join(&entry.name);
        match DirectoryName::parse(&entry.name) {
            Ok(name) if name.state == DirectoryState::Live => {
                if !seen.insert((name.topic.to_owned(), name.partition)) {
                    let reason = "the partition stands in another log dir too";
                    report.add(Effect::FOLDER.finding(
                        Severity::Warning,
                        "LogDirError",
                        &folder,
                        reason,
                    ));
                }
                super::partition(&folder, options, verify, report)?;
            }
            Ok(_) => {
                let reason = "waits for its deletion or its place";
                report.add(Effect::DOOMED.finding(Severity::Note, "Leftover", &folder, reason));
            }
            Err(error) if is_log_dir => {
                let reason = format!("the folder is not topic-partition: {}", error.fault);
                report.add(Effect::FOLDER.finding(Severity::Error, "LogDirError", &folder, reason));
            }
            Err(_) => {}
        }
    }
    Ok(())
}

/// Checkpoints and identity; says whether there are any.
fn own_files(path: &Path, options: &OpenOptions, report: &mut DamageReport) -> Result<bool> {
    let mut any = false;
    let mut look =
        |name: &str, effect: Effect, parse: &dyn Fn(&[u8]) -> Result<(), FormatError>| {
            let file = path.join(name);
            let limit = options.limits.max_state_file_bytes;
            match read_whole(options.disk.as_ref(), &file, limit) {
                Ok(bytes) => {
                    any = true;
                    if let Err(error) = parse(&bytes) {
                        report.add(effect.error(&file, &Error::from(error)));
                    }
                    Ok(())
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                Err(error) => Err(Error::state_file(&file, error)),
            }
        };
    for file in OffsetCheckpointFile::ALL {
        look(file.name(), Effect::CHECKPOINT, &|bytes| {
            OffsetCheckpoint::parse(bytes).map(drop)
        })?;
    }
    look(META_PROPERTIES, Effect::IDENTITY, &|bytes| {
        MetaProperties::parse(bytes).map(drop)
    })?;
    Ok(any)
}
