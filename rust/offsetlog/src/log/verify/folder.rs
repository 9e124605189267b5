//! Checks a log dir: its own files, its directory names, and each partition.

use super::report::{Effect, Severity};
use super::{DamageReport, VerifyOptions};
use crate::disk::{Disk, EntryKind, IoCall, read_whole};
use crate::error::{Error, Result};
use crate::folder::{self, FolderContents, FolderKind, REMOTE_INDEX_CACHE, is_absent};
use crate::log::{OpenOptions, SetAside, partition_name};
use offsetlog_format::checkpoint::OffsetCheckpoint;
use offsetlog_format::meta_properties::MetaProperties;
use offsetlog_format::name::{DirectoryName, DirectoryState, META_PROPERTIES};
use offsetlog_format::{FormatError, OffsetCheckpointFile};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

/// Checks a partition directory, or a log dir and its partitions.
pub(super) fn check(
    path: &Path,
    options: &OpenOptions,
    verify: &VerifyOptions,
    report: &mut DamageReport,
    seen: &mut BTreeSet<(String, i32)>,
) -> Result<()> {
    let disk = options.disk.as_ref();
    let listed = disk.list(path);
    if let Err(error) = &listed
        && error.kind() == io::ErrorKind::NotADirectory
        && SetAside::of(path).is_some()
    {
        return super::partition(path, options, verify, report);
    }
    let mut entries = listed.map_err(|error| Error::io(IoCall::List, path, error))?;
    entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    let contents = FolderContents::from_entries(&entries);
    match contents.kind(disk, path) {
        FolderKind::Partition => return super::partition(path, options, verify, report),
        FolderKind::AroundLogDirs(log_dirs) => return Err(folder::around(path, &log_dirs)),
        FolderKind::ZooKeeper => return Err(folder::zookeepers(path)),
        FolderKind::LogDir => {}
        FolderKind::Other => {
            // A newly created partition may be empty.
            if partition_name(path).is_ok() && entries.is_empty() {
                return super::partition(path, options, verify, report);
            }
            let reason = "no partition directory (topic-partition) and no meta.properties or checkpoint found: not a log dir";
            return Err(Error::log_dir(path, reason));
        }
    }
    own_files(path, options, report);
    let is_log_dir = contents.is_marked();
    for entry in entries {
        let folder = path.join(&entry.name);
        // A broker follows such a link to a folder, and overlooks everything else of such a name.
        if entry.kind == EntryKind::Other
            && DirectoryName::parse(&entry.name).is_ok()
            && options
                .disk
                .is_link(&folder)
                .map_err(|error| Error::io(IoCall::Stat, &folder, error))?
        {
            let finding =
                |severity, reason| Effect::NOTHING.finding(severity, "LogDir", &folder, reason);
            report.add(match options.disk.list(&folder) {
                Ok(_) => finding(
                    Severity::Warning,
                    "it is a link to a folder, which was not checked; give the path that it leads to",
                ),
                Err(error) if is_absent(&error) => finding(
                    Severity::Note,
                    "it is a link that leads to no folder: if a disk is not mounted, the partition is missing here",
                ),
                Err(error) => {
                    let error = Error::io(IoCall::List, &folder, error);
                    if error.is_of_process() {
                        return Err(error);
                    }
                    Effect::unread(&folder, &error)
                }
            });
        }
        if entry.kind != EntryKind::Directory || entry.name == REMOTE_INDEX_CACHE {
            continue;
        }
        match DirectoryName::parse(&entry.name) {
            Ok(name) if name.state == DirectoryState::Live => {
                if !seen.insert((name.topic.to_owned(), name.partition)) {
                    let reason = "the partition stands in another log dir too";
                    report.add(Effect::FOLDER.finding(
                        Severity::Warning,
                        "LogDir",
                        &folder,
                        reason,
                    ));
                }
                // A partition that cannot be read does not stop the check of the others.
                match super::partition(&folder, options, verify, report) {
                    Err(error) if error.is_of_process() => {
                        return Err(error);
                    }
                    // Its topic was deleted since the folders were listed.
                    Err(error) if error.is_missing_file() && is_gone(disk, &folder) => {}
                    Err(error) => {
                        let at = error.path().unwrap_or(&folder).to_path_buf();
                        report.add(Effect::unread(&at, &error));
                    }
                    Ok(()) => {}
                }
            }
            Ok(_) => {
                let reason = "waits for its deletion or its place";
                report.add(Effect::DOOMED.finding(Severity::Note, "Leftover", &folder, reason));
            }
            Err(error) if is_log_dir => {
                let reason = format!("the folder is not topic-partition: {}", error.fault);
                report.add(Effect::FOLDER.finding(Severity::Error, "LogDir", &folder, reason));
            }
            Err(_) => {}
        }
    }
    Ok(())
}

fn is_gone(disk: &dyn Disk, folder: &Path) -> bool {
    matches!(disk.stat(folder), Err(error) if error.kind() == io::ErrorKind::NotFound)
}

/// Checks the checkpoints and `meta.properties`.
fn own_files(path: &Path, options: &OpenOptions, report: &mut DamageReport) {
    let mut look =
        |name: &str, effect: Effect, parse: &dyn Fn(&[u8]) -> Result<(), FormatError>| {
            let file = path.join(name);
            let limit = options.limits.max_state_file_bytes;
            match read_whole(options.disk.as_ref(), &file, limit) {
                Ok(bytes) => {
                    if let Err(error) = parse(&bytes) {
                        report.add(effect.error(&file, &Error::from(error)));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    let error = Error::state_file(&file, error);
                    report.add(Effect::unread(&file, &error));
                }
            }
        };
    for file in OffsetCheckpointFile::ALL {
        look(file.name(), Effect::CHECKPOINT, &|bytes| {
            OffsetCheckpoint::parse(bytes).map(drop)
        });
    }
    look(META_PROPERTIES, Effect::IDENTITY, &|bytes| {
        MetaProperties::parse(bytes).map(drop)
    });
}
