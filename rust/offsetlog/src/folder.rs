//! Classifies a folder: a partition's directory, a log dir, the folder around log dirs, or something else. Decided here and nowhere else,
//! by its contents. Its name says nothing: `log-dir-1` may be any of them.

use crate::disk::{Disk, Entry, EntryKind, IoCall, RealDisk};
use crate::error::{Error, Result};
use offsetlog_format::OffsetCheckpointFile;
use offsetlog_format::name::{
    CLEAN_SHUTDOWN, DirectoryName, DirectoryState, FileName, LOCK, META_PROPERTIES,
};
use offsetlog_format::zookeeper::DataFile;
use std::io;
use std::path::{Path, PathBuf};

/// The partitions that writers of ours have not closed, and the marker to be restored when the last one is.
pub(crate) const UNCLEAN_FILE: &str = "offsetlog-unclean";
/// Where ZooKeeper's files are below `dataDir` and `dataLogDir`, since their second version.
pub(crate) const VERSION_2: &str = "version-2";
/// Folder of a broker with tiered storage; no partition's.
pub(crate) const REMOTE_INDEX_CACHE: &str = "remote-log-index-cache";

/// What a folder is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FolderKind {
    /// A partition's directory: it holds segments, or other files that partitions have.
    Partition,
    /// A log dir: it holds `meta.properties`, a checkpoint of all partitions, another file that only log dirs have, or partitions.
    LogDir,
    /// None itself, and these folders in it are log dirs.
    AroundLogDirs(Vec<PathBuf>),
    /// The data of a ZooKeeper server: its snapshots and logs, the folder `version-2` with them, or the folder around such folders.
    ZooKeeper,
    /// None of these, or an empty folder: the call that opens it decides what it becomes.
    Other,
}

/// Classifies a folder by its own files and those one and two levels below. Reads names only.
///
/// # Errors
/// `Io` if it cannot be listed. Folders in it that cannot be listed are classified by their names.
///
/// ```no_run
/// # fn main() -> Result<(), offsetlog::Error> {
/// assert_eq!(offsetlog::folder_kind("kafka-logs")?, offsetlog::FolderKind::LogDir);
/// # Ok(())
/// # }
/// ```
pub fn folder_kind(path: impl AsRef<Path>) -> Result<FolderKind> {
    let path = path.as_ref();
    let path =
        std::path::absolute(path).map_err(|error| Error::io(IoCall::Resolve, path, error))?;
    kind_of(&RealDisk, &path)
}

/// As [`folder_kind`], on any disk; `path` is absolute.
pub(crate) fn kind_of(disk: &dyn Disk, path: &Path) -> Result<FolderKind> {
    let contents =
        FolderContents::of(disk, path).map_err(|error| Error::io(IoCall::List, path, error))?;
    Ok(contents.kind(disk, path))
}

/// A log dir by the files that only log dirs have: what a broker keeps logs in, or is prepared for it. Cheaper than [`kind_of`], which
/// also knows a log dir by the partitions in it.
pub(crate) fn has_log_dir_files(disk: &dyn Disk, path: &Path) -> Result<bool> {
    for name in strong_marks().chain(WEAK_MARKS) {
        let mark = path.join(name);
        match disk.stat(&mark) {
            Ok(_) => return Ok(true),
            Err(error) if is_absent(&error) => {}
            Err(error) => return Err(Error::io(IoCall::Stat, &mark, error)),
        }
    }
    Ok(false)
}

/// Whether an entry does not belong in a partition's directory: then [`refuse_unless_partition`] decides what the folder is.
pub(crate) fn is_doubtful(name: &str, kind: EntryKind) -> bool {
    // A segment's files, of which there are thousands: no mark begins with a digit.
    let is_numbered = name.starts_with(|first: char| first.is_ascii_digit());
    match kind {
        EntryKind::File if is_numbered => false,
        EntryKind::Directory => !name.starts_with("offsetlog-"),
        _ => {
            strong_marks().any(|mark| mark == name)
                || WEAK_MARKS.contains(&name)
                || DataFile::classify(name).is_some()
        }
    }
}

/// Refuses a log dir, the folder around log dirs, and ZooKeeper's data. Accepts a missing folder, which other code reports.
pub(crate) fn refuse_unless_partition(disk: &dyn Disk, path: &Path) -> Result<()> {
    let contents = match FolderContents::of(disk, path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found.map_err(|error| Error::io(IoCall::List, path, error))?,
    };
    match contents.kind(disk, path) {
        FolderKind::LogDir => Err(Error::log_dir(
            path,
            format!(
                "a log dir, which is no partition's directory: it holds {}; give the directory of a partition in it, or open it as a log dir",
                contents.shown()
            ),
        )),
        FolderKind::AroundLogDirs(log_dirs) => Err(around(path, &log_dirs)),
        FolderKind::ZooKeeper => Err(zookeepers(path)),
        _ => Ok(()),
    }
}

/// Refuses to keep partitions in a partition's directory, in the folder around log dirs, and in ZooKeeper's data. Accepts a missing or an
/// empty folder, unless the log dir would begin inside a log dir or a partition's directory, or among ZooKeeper's files.
pub(crate) fn refuse_unless_log_dir(disk: &dyn Disk, path: &Path) -> Result<()> {
    match FolderContents::of(disk, path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            refuse_place(disk, path, Place::NewLogDir)
        }
        Err(error) => Err(Error::io(IoCall::List, path, error)),
        Ok(contents) => match contents.kind(disk, path) {
            FolderKind::Partition => Err(Error::log_dir(
                path,
                "a partition's directory found, the folder around it expected",
            )),
            FolderKind::AroundLogDirs(log_dirs) => Err(around(path, &log_dirs)),
            FolderKind::ZooKeeper => Err(zookeepers(path)),
            FolderKind::LogDir => refuse_place(disk, path, Place::LogDir),
            FolderKind::Other => refuse_place(disk, path, Place::NewLogDir),
        },
    }
}

/// Refuses a place for a new partition: inside of another one's directory, in a new folder inside of a log dir, or among ZooKeeper's files,
/// which would then look like a log dir's.
pub(crate) fn refuse_new_partition(disk: &dyn Disk, path: &Path) -> Result<()> {
    refuse_place(disk, path, Place::NewPartition)
}

/// For what a place is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A log dir that is there already.
    LogDir,
    NewLogDir,
    NewPartition,
}

/// Refuses a place inside a partition's directory: no broker would ever see what is there, and it is deleted with the partition.
///
/// Of what is new, two more. Among ZooKeeper's files the folder around it would be taken for a log dir, or for one around log dirs. Inside of
/// a log dir it would be, or be in, a folder that is no partition's, and no broker starts with such a folder (`LogManager.loadLogs`).
fn refuse_place(disk: &dyn Disk, path: &Path, place: Place) -> Result<()> {
    // Looks at the two nearest existing folders above, since a partition has folders of its own. Anything in a folder of ours, such as
    // staged records, is not part of a log dir and is deleted with it.
    let is_ours = |part: &Path| {
        let name = part.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("offsetlog-"))
    };
    let ancestors = path.ancestors().take_while(|part| !is_ours(part));
    let mut seen = 0;
    for ancestor in ancestors.filter_map(Path::parent) {
        if seen == 2 {
            break;
        }
        let contents = match FolderContents::of(disk, ancestor) {
            Ok(contents) => contents,
            // Folders far above may be nobody's to list.
            Err(error) if is_absent(&error) || error.kind() == io::ErrorKind::PermissionDenied => {
                continue;
            }
            Err(error) => return Err(Error::io(IoCall::List, ancestor, error)),
        };
        seen += 1;
        let (is_new, is_around) = (place != Place::LogDir, Some(ancestor) == path.parent());
        // The first one that is there: what is between is made. A lock file alone may be anybody's.
        if is_new
            && seen == 1
            && contents.mark.is_some()
            && !(place == Place::NewPartition && is_around)
        {
            let reason = format!(
                "inside of the log dir {}: a broker does not start if there is a folder that is no partition's; choose another place",
                ancestor.display()
            );
            return Err(Error::log_dir(path, reason));
        }
        if is_new
            && is_around
            && (contents.is_version_2(ancestor) || contents.is_around_version_2(disk, ancestor))
            && contents.kind(disk, ancestor) == FolderKind::ZooKeeper
        {
            return Err(zookeepers(ancestor));
        }
        // A folder in which a conversion builds holds a lock, and no segments.
        if contents.holds_segments() && contents.kind(disk, ancestor) == FolderKind::Partition {
            let reason = format!(
                "inside of {}, which is a partition's directory; choose another place",
                ancestor.display()
            );
            return Err(Error::log_dir(path, reason));
        }
    }
    Ok(())
}

/// The error for the folder around log dirs: it lists the paths that work.
pub(crate) fn around(path: &Path, log_dirs: &[PathBuf]) -> Error {
    let names: Vec<String> = log_dirs
        .iter()
        .map(|log_dir| log_dir.display().to_string())
        .collect();
    let these = if names.len() == 1 { "it" } else { "them" };
    let reason = format!(
        "not a log dir itself, but the folder around {}: give {these} instead: {}",
        match names.len() {
            1 => "one".to_owned(),
            count => format!("{count}"),
        },
        names.join(" ")
    );
    Error::log_dir(path, reason)
}

/// The error for ZooKeeper's data where partitions are expected.
pub(crate) fn zookeepers(path: &Path) -> Error {
    Error::log_dir(
        path,
        "ZooKeeper's data found, a broker's log dir or partition expected: open that, and name this folder as its metadata (metadata=, --metadata)",
    )
}

/// The names in a folder that tell what it is.
#[derive(Debug, Default)]
pub(crate) struct FolderContents {
    /// A file that only log dirs have.
    mark: Option<String>,
    /// A file that a log dir has, and that may have been left in a partition's directory by mistake.
    weak_mark: Option<String>,
    /// A segment's file, an index, a snapshot.
    segment: bool,
    /// Another file that partitions have.
    companion: bool,
    /// A snapshot of ZooKeeper's.
    zookeepers_snapshot: bool,
    /// A file named like a log of ZooKeeper's: `log.1` may be anybody's.
    zookeepers_log: bool,
    /// Folders, by name; none where a mark shows that this is a log dir.
    folders: Vec<String>,
}

impl FolderContents {
    fn of(disk: &dyn Disk, path: &Path) -> io::Result<Self> {
        Ok(Self::from_entries(&disk.list(path)?))
    }

    pub(crate) fn from_entries(entries: &[Entry]) -> Self {
        let mut contents = Self::default();
        for entry in entries {
            let name = || Some(entry.name.clone());
            if entry.kind == EntryKind::Directory {
                continue;
            }
            if strong_marks().any(|mark| mark == entry.name) {
                // The last one by name, so that the same is said each time.
                contents.mark = contents.mark.take().max(name());
            } else if WEAK_MARKS.contains(&entry.name.as_str()) {
                contents.weak_mark = contents.weak_mark.take().max(name());
            } else {
                match DataFile::classify(&entry.name) {
                    Some(DataFile::Snapshot { .. }) => contents.zookeepers_snapshot = true,
                    Some(DataFile::Log { .. }) => contents.zookeepers_log = true,
                    None => {}
                }
                match FileName::classify(&entry.name) {
                    FileName::Segment(_) | FileName::ByteOffsetSegment { .. } => {
                        contents.segment = true;
                    }
                    FileName::Other => contents.companion |= entry.name.starts_with(".offsetlog"),
                    // The first controller of a cluster has such a snapshot in its log dir.
                    FileName::MetadataSnapshot { .. } => {}
                    _ => contents.companion = true,
                }
            }
        }
        // In a log dir, which may have many, nobody asks for them.
        if !contents.is_marked() {
            let folders = entries.iter().filter(|entry| {
                entry.kind == EntryKind::Directory && entry.name != REMOTE_INDEX_CACHE
            });
            contents.folders = folders.map(|entry| entry.name.clone()).collect();
            contents.folders.sort_unstable();
        }
        contents
    }

    pub(crate) const fn holds_segments(&self) -> bool {
        self.segment
    }

    pub(crate) fn is_marked(&self) -> bool {
        self.mark.is_some() || self.weak_mark.is_some() && !self.segment
    }

    /// Whether a file is there that only log dirs have, and not a lock alone.
    pub(crate) const fn has_broker_files(&self) -> bool {
        self.mark.is_some()
    }

    const fn holds_partition_files(&self) -> bool {
        self.segment || self.companion
    }

    pub(crate) fn kind(&self, disk: &dyn Disk, path: &Path) -> FolderKind {
        if self.is_marked() {
            return FolderKind::LogDir;
        }
        let (mut log_dirs, mut has_empty) = (Vec::new(), false);
        let mut zookeepers = self.zookeepers_snapshot || self.is_version_2(path);
        for name in &self.folders {
            let is_named = is_partition_name(name);
            // A partition's own folders, of which it has few, are not looked into.
            if self.segment && !is_named {
                continue;
            }
            let folder = path.join(name);
            let inner = Self::of(disk, &folder);
            match inner {
                Ok(inner) if inner.is_log_dir_inside(disk, &folder) => log_dirs.push(folder),
                Ok(inner) if is_named && inner.holds_partition_files() => {
                    return FolderKind::LogDir;
                }
                // Its name is one of a partition.
                Ok(inner) if inner.is_version_2(&folder) => zookeepers = true,
                Ok(inner) if inner.is_around_version_2(disk, &folder) => zookeepers = true,
                _ => has_empty |= is_named,
            }
        }
        if self.segment {
            FolderKind::Partition
        } else if !log_dirs.is_empty() {
            FolderKind::AroundLogDirs(log_dirs)
        } else if zookeepers && !has_empty {
            FolderKind::ZooKeeper
        } else if has_empty {
            FolderKind::LogDir
        } else if self.companion {
            FolderKind::Partition
        } else {
            FolderKind::Other
        }
    }

    /// Whether this is the folder with ZooKeeper's files.
    fn is_version_2(&self, path: &Path) -> bool {
        path.file_name().is_some_and(|name| name == VERSION_2)
            && (self.zookeepers_snapshot || self.zookeepers_log)
    }

    /// Whether a folder in another one is ZooKeeper's `dataDir` or `dataLogDir`.
    fn is_around_version_2(&self, disk: &dyn Disk, path: &Path) -> bool {
        let inner = path.join(VERSION_2);
        !self.is_marked()
            && self.folders.iter().any(|name| name == VERSION_2)
            && Self::of(disk, &inner).is_ok_and(|found| found.is_version_2(&inner))
    }

    /// Whether a folder in another one is a log dir: by its own files, or because it contains a partition with files.
    fn is_log_dir_inside(&self, disk: &dyn Disk, path: &Path) -> bool {
        self.is_marked()
            || !self.holds_partition_files()
                && self
                    .folders
                    .iter()
                    .filter(|name| is_partition_name(name))
                    .any(|name| {
                        Self::of(disk, &path.join(name))
                            .is_ok_and(|inner| !inner.is_marked() && inner.holds_partition_files())
                    })
    }

    /// By what it is known as a log dir.
    fn shown(&self) -> &str {
        let mark = self.mark.as_deref().or(self.weak_mark.as_deref());
        mark.unwrap_or("partitions")
    }
}

/// Whether a folder inside a log dir, named like a partition, is a log dir itself.
pub(crate) fn is_log_dir(disk: &dyn Disk, path: &Path) -> bool {
    FolderContents::of(disk, path).is_ok_and(|contents| contents.is_log_dir_inside(disk, path))
}

/// Files of a log dir that a mistake may have left in a partition's directory: beside segments they prove nothing.
const WEAK_MARKS: [&str; 3] = [CLEAN_SHUTDOWN, LOCK, UNCLEAN_FILE];

/// Files that make any folder a log dir.
fn strong_marks() -> impl Iterator<Item = &'static str> {
    [META_PROPERTIES]
        .into_iter()
        .chain(OffsetCheckpointFile::ALL.iter().map(|file| file.name()))
}

fn is_partition_name(name: &str) -> bool {
    DirectoryName::parse(name).is_ok_and(|name| name.state == DirectoryState::Live)
}

/// Whether nothing is there, where a file may stand for a folder on the way. A symbolic link that leads to itself is like one that leads
/// nowhere.
pub(crate) fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    ) || error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

/// Whether `path` exists. A path that cannot be accessed is an error, not absent.
pub(crate) fn is_there(disk: &dyn Disk, path: &Path) -> Result<bool> {
    match disk.stat(path) {
        Ok(_) => Ok(true),
        Err(error) if is_absent(&error) => Ok(false),
        Err(error) => Err(Error::io(IoCall::Stat, path, error)),
    }
}
