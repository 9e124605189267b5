//! Which directory a path means that was given to `adopt`: also one that an earlier call has renamed, and no log dir.

use offsetlog::disk::IoCall;
use offsetlog::format::name::{DirectoryName, DirectoryState, directory_name};
use offsetlog::{
    Error, FolderKind, OpenOptions, Result, folder_kind, interrupted_adoption, local_path,
};
use std::path::{Path, PathBuf};

/// The absolute path of a directory; of one whose adoption was interrupted behind its renaming, the path since.
pub(super) fn located(directory: &Path, open: &OpenOptions) -> Result<PathBuf> {
    let path = local_path(directory)?;
    let Err(missing) = open.disk.stat(&path) else {
        return Ok(path);
    };
    let (Some(log_dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Error::io(IoCall::Stat, &path, missing));
    };
    for entry in open.disk.list(log_dir).unwrap_or_default() {
        let is_live = DirectoryName::parse(&entry.name)
            .is_ok_and(|parsed| parsed.state == DirectoryState::Live);
        let place = log_dir.join(&entry.name);
        if is_live && interrupted_adoption(&place, open)?.is_some_and(|note| *note.name == *name) {
            return Ok(place);
        }
    }
    if let Some(live) = taken_in(&path, open) {
        let reason = format!(
            "it is not there, and {} is: leave it out if an earlier call took it in, and name its log dir instead (log_dirs=, --log-dir)",
            live.display()
        );
        return Err(Error::log_dir(&path, reason));
    }
    Err(Error::io(IoCall::Stat, &path, missing))
}

/// The live directory of the partition that a missing directory was one of, if there is one beside it.
fn taken_in(path: &Path, open: &OpenOptions) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let parsed = DirectoryName::parse(name).ok()?;
    let live = directory_name(parsed.topic, parsed.partition).ok()?;
    let live = path.with_file_name(live);
    open.disk.stat(&live).is_ok().then_some(live)
}

/// Refuses a log dir and the folder around log dirs: a user who names one may not mean every directory in it.
pub(super) fn refuse_log_dirs(path: &Path) -> Result<()> {
    let reason = match folder_kind(path) {
        Ok(FolderKind::LogDir) => {
            "a log dir found, a partition's directory expected: name one in it".to_owned()
        }
        Ok(FolderKind::AroundLogDirs(log_dirs)) => {
            let names: Vec<String> = log_dirs
                .iter()
                .map(|log_dir| log_dir.display().to_string())
                .collect();
            format!(
                "the folder around log dirs found, a partition's directory expected: name one in {}",
                names.join(" ")
            )
        }
        _ => return Ok(()),
    };
    Err(Error::log_dir(path, reason))
}
