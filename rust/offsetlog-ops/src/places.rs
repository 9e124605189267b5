//! What is in a broker's or cluster's folders, live, partial or damaged: listed and read before anything is decided.

use offsetlog::disk::{Disk, Entry, EntryKind, IoCall, read_whole};
use offsetlog::format::internal_topic::METADATA_TOPIC;
use offsetlog::format::name::{
    CLEAN_SHUTDOWN, DirectoryName, DirectoryState, META_PROPERTIES, PARTITION_METADATA,
};
use offsetlog::format::{MetaProperties, PartitionMetadata, Uuid};
use offsetlog::{
    DirectoryProgress, Error, ErrorKind, FolderKind, Log, LogDir, MetadataImage, OpenOptions,
    Result, Steps, folder_kind, local_path, not_a_log_dir,
};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// A folder of a broker with tiered storage, which is no partition's.
const REMOTE_INDEX_CACHE: &str = "remote-log-index-cache";

/// A log dir, and what is in it.
pub(crate) struct LogDirPlace {
    pub(crate) path: PathBuf,
    /// What its `meta.properties` says; `None` without the file, an error in words if it cannot be read.
    pub(crate) properties: std::result::Result<Option<MetaProperties>, String>,
    /// Whether it has the mark of a clean stop.
    pub(crate) is_clean: bool,
    /// Whether it was given itself, and not only a partition in it.
    pub(crate) is_whole: bool,
    /// By name.
    pub(crate) partitions: Vec<PartitionPlace>,
    /// Folders that no broker starts with, and why.
    pub(crate) others: Vec<(PathBuf, String)>,
}

/// A partition's directory.
pub(crate) struct PartitionPlace {
    pub(crate) path: PathBuf,
    pub(crate) topic: String,
    pub(crate) partition: i32,
    pub(crate) state: DirectoryState,
    /// The id in its `partition.metadata`; `None` without the file, an error in words if it cannot be read.
    pub(crate) topic_id: std::result::Result<Option<Uuid>, String>,
}

/// Everything in the folders given.
pub(crate) struct Places {
    /// In the order given.
    pub(crate) log_dirs: Vec<LogDirPlace>,
    /// What the cluster's metadata says, if it is here.
    pub(crate) metadata: Option<MetadataImage>,
    /// The cluster that it is of, if `meta.properties` beside the metadata log says so.
    pub(crate) metadata_cluster: Option<String>,
    /// Why it cannot be read.
    pub(crate) metadata_error: Option<Error>,
    pub(crate) warnings: Vec<String>,
}

impl Places {
    /// Lists the folders, and reads the metadata if it is among them.
    ///
    /// # Errors
    /// `Io` if one cannot be listed; `LogDir` for a file that was set aside, for the folder around log dirs, with the paths that work,
    /// and if one has nothing that a log dir consists of; `Interrupted`. Damage inside is no error.
    pub(crate) fn read<P: AsRef<Path>>(paths: &[P], options: &OpenOptions) -> Result<Self> {
        Self::read_told(paths, options, &DirectoryProgress::default())
    }

    /// The same; reports each partition's directory before reading it.
    ///
    /// # Errors
    /// Those of the progress too.
    pub(crate) fn read_told<P: AsRef<Path>>(
        paths: &[P],
        options: &OpenOptions,
        progress: &DirectoryProgress,
    ) -> Result<Self> {
        let mut steps = Steps::new(progress);
        let mut places = Self {
            log_dirs: Vec::new(),
            metadata: None,
            metadata_cluster: None,
            metadata_error: None,
            warnings: Vec::new(),
        };
        if paths.is_empty() {
            return Err(not_a_log_dir(Path::new(""), false));
        }
        let mut opened = Vec::new();
        for path in paths {
            let path = local_path(path)?;
            let kind = folder_kind(&path).map_err(|error| of_a_file(error, &path, options))?;
            match kind {
                FolderKind::Partition => {
                    steps.add(1);
                    steps.at(&path)?;
                    places.add_partition(&path, options);
                    opened.push(path);
                }
                FolderKind::LogDir => {
                    places.add_log_dir(&path, options, &mut steps)?;
                    opened.push(path);
                }
                FolderKind::ZooKeeper => opened.push(path),
                FolderKind::AroundLogDirs(_) => {
                    // It says which paths work.
                    LogDir::open(&[&path], options)?;
                }
                _ => {
                    places.add_log_dir(&path, options, &mut steps)?;
                    let added = places.log_dirs.last();
                    if added.is_none_or(|added| added.partitions.is_empty()) {
                        return Err(not_a_log_dir(&path, paths.len() > 1));
                    }
                }
            }
        }
        let foreign = places.choose_cluster();
        opened.retain(|path| !foreign.iter().any(|folder| path.starts_with(folder)));
        if !opened.is_empty() && places.metadata_error.is_none() {
            let read = LogDir::open(&opened, options).and_then(|opened| opened.metadata());
            match read {
                Ok(metadata) => places.metadata = metadata,
                Err(error) if error.is_of_process() => return Err(error),
                Err(error) => places.metadata_error = Some(error),
            }
        }
        if let Some(metadata) = &mut places.metadata {
            places.warnings.append(&mut metadata.warnings);
        }
        steps.end()?;
        Ok(places)
    }

    /// Decides whose metadata is read where metadata logs of several clusters are here: that of the cluster of most log dirs with
    /// partitions. Returns the folders of the others, with a warning; without one of that cluster none can be read, which is an error.
    fn choose_cluster(&mut self) -> Vec<PathBuf> {
        let logs = || {
            let all = self.log_dirs.iter();
            all.filter(|place| place.has_metadata_log())
        };
        let clusters: BTreeSet<Option<&str>> = logs().map(LogDirPlace::cluster_id).collect();
        self.metadata_cluster = clusters.iter().copied().flatten().next().map(str::to_owned);
        if clusters.len() < 2 {
            return Vec::new();
        }
        let mut counts: Vec<(&str, usize)> = Vec::new();
        let with_partitions = self.log_dirs.iter().filter(|place| place.has_partitions());
        for id in with_partitions.filter_map(LogDirPlace::cluster_id) {
            match counts.iter_mut().find(|(known, _)| *known == id) {
                Some((_, count)) => *count += 1,
                None => counts.push((id, 1)),
            }
        }
        // Of several the first one given.
        let most = counts.iter().map(|(_, count)| *count).max();
        let own = counts.iter().find(|(_, count)| Some(*count) == most);
        let own = own.map(|(id, _)| (*id).to_owned());
        let others = logs().filter(|place| place.cluster_id() != own.as_deref());
        let foreign: Vec<PathBuf> = others.map(|place| place.path.clone()).collect();
        let names: Vec<String> = logs()
            .map(|place| {
                let id = place.cluster_id().unwrap_or("one without meta.properties");
                format!("{} ({id})", place.path.display())
            })
            .collect();
        let names = names.join(", ");
        match own {
            Some(own) if clusters.contains(&Some(&own)) => {
                self.warnings.push(format!(
                    "metadata logs of several clusters are here: {names}: that of {own} is read, of which most log dirs are"
                ));
                self.metadata_cluster = Some(own);
            }
            // What cannot be compared is taken as it is.
            None if clusters.iter().flatten().count() < 2 => return Vec::new(),
            _ => {
                let reason = format!(
                    "metadata logs of several clusters are here, and none is that of these log dirs: {names}"
                );
                let first = foreign.first().cloned().unwrap_or_default();
                self.metadata_error = Some(Error::log_dir(&first, reason));
                self.metadata_cluster = None;
            }
        }
        foreign
    }

    /// Refuses log dirs of several clusters.
    ///
    /// # Errors
    /// Those of [`LogDir::check_one_cluster`].
    pub(crate) fn check_one_cluster(&self, options: &OpenOptions) -> Result<()> {
        let log_dirs: Vec<&Path> = self
            .log_dirs
            .iter()
            .filter(|place| place.cluster_id().is_some())
            .map(|place| place.path.as_path())
            .collect();
        if log_dirs.len() < 2 {
            return Ok(());
        }
        LogDir::open(&log_dirs, options)?.check_one_cluster()
    }

    /// Lists the log dirs again, by names alone, and looks at the partitions that are `wanted`: these are all that is known then. All else
    /// stays as it was read, such as the metadata, so that this costs a listing of each log dir and no look at other partitions.
    ///
    /// # Errors
    /// `Io` if one cannot be listed.
    pub(crate) fn look_again(
        &mut self,
        wanted: impl Fn(&DirectoryName<'_>) -> bool,
        options: &OpenOptions,
    ) -> Result<()> {
        // Of others only partitions were given.
        for log_dir in self.log_dirs.iter_mut().filter(|place| place.is_whole) {
            log_dir.partitions.clear();
            for entry in folders_in(&log_dir.path, options)? {
                let Ok(parsed) = DirectoryName::parse(&entry.name) else {
                    continue;
                };
                if !wanted(&parsed) {
                    continue;
                }
                let place = log_dir.path.join(&entry.name);
                // What leads nowhere was told when they were read.
                if follow(&entry, &place, options).is_ok() {
                    let found = PartitionPlace::new(&place, &parsed, options);
                    log_dir.partitions.push(found);
                }
            }
        }
        Ok(())
    }

    fn add_partition(&mut self, path: &Path, options: &OpenOptions) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let Ok(parsed) = DirectoryName::parse(&name) else {
            self.warnings.push(format!(
                "left out: {} has segments, and is not called topic-partition",
                path.display()
            ));
            return;
        };
        let found = PartitionPlace::new(path, &parsed, options);
        let around = path.parent().unwrap_or(path);
        let mut known = self.log_dirs.iter_mut();
        match known.find(|place| place.path == around) {
            Some(log_dir) if log_dir.partitions.iter().any(|place| place.path == path) => {}
            Some(log_dir) => log_dir.partitions.push(found),
            None => {
                let mut log_dir = LogDirPlace::new(around, options);
                log_dir.partitions.push(found);
                self.log_dirs.push(log_dir);
            }
        }
    }

    fn add_log_dir(
        &mut self,
        path: &Path,
        options: &OpenOptions,
        steps: &mut Steps<'_, Path>,
    ) -> Result<()> {
        let mut log_dir = LogDirPlace::new(path, options);
        log_dir.is_whole = true;
        let entries = folders_in(path, options)?;
        steps.add(entries.len());
        for entry in entries {
            let place = path.join(&entry.name);
            if options
                .interrupt
                .as_ref()
                .is_some_and(|interrupt| interrupt())
            {
                return Err(Error::new(ErrorKind::Interrupted));
            }
            steps.at(&place)?;
            let parsed = DirectoryName::parse(&entry.name);
            if let Err(error) = follow(&entry, &place, options) {
                if parsed.is_ok() && error.kind() != io::ErrorKind::NotADirectory {
                    self.warnings.push(format!(
                        "left out: {} is a link, and what it leads to cannot be read: {error}",
                        place.display()
                    ));
                }
                continue;
            }
            match parsed {
                Ok(parsed) => {
                    let found = PartitionPlace::new(&place, &parsed, options);
                    log_dir.partitions.push(found);
                }
                Err(error) => log_dir.others.push((place, error.fault.to_string())),
            }
        }
        // Partitions of it may have been given before it.
        self.log_dirs.retain(|known| known.path != path);
        self.log_dirs.push(log_dir);
        Ok(())
    }
}

impl LogDirPlace {
    fn new(path: &Path, options: &OpenOptions) -> Self {
        let mark = options.disk.stat(&path.join(CLEAN_SHUTDOWN));
        let properties = small(&path.join(META_PROPERTIES), options, |bytes| {
            MetaProperties::parse(bytes).map_err(|error| error.to_string())
        });
        Self {
            path: path.to_path_buf(),
            properties,
            is_clean: mark.is_ok(),
            is_whole: false,
            partitions: Vec::new(),
            others: Vec::new(),
        }
    }

    fn known(&self) -> Option<&MetaProperties> {
        self.properties.as_ref().ok().and_then(Option::as_ref)
    }

    pub(crate) fn node_id(&self) -> Option<i32> {
        self.known().and_then(MetaProperties::node_id)
    }

    pub(crate) fn cluster_id(&self) -> Option<&str> {
        self.known().and_then(MetaProperties::cluster_id)
    }

    /// The `directory.id`, unless it is one of those that stand for none.
    pub(crate) fn directory_id(&self) -> Option<Uuid> {
        self.known().and_then(MetaProperties::directory_id)
    }

    /// Whether it has live partitions besides the cluster's metadata log.
    pub(crate) fn has_partitions(&self) -> bool {
        let mut live = self.partitions.iter();
        live.any(|each| each.state == DirectoryState::Live && !each.is_metadata_log())
    }

    /// Whether the cluster's metadata log is in it.
    pub(crate) fn has_metadata_log(&self) -> bool {
        self.partitions.iter().any(PartitionPlace::is_metadata_log)
    }

    /// The version of `meta.properties`: 1 without ZooKeeper.
    pub(crate) fn version(&self) -> Option<i32> {
        self.known().map(|known| match known {
            MetaProperties::V0 { .. } => 0,
            MetaProperties::V1 { .. } => 1,
        })
    }
}

impl PartitionPlace {
    /// Whether it is the cluster's metadata log.
    pub(crate) fn is_metadata_log(&self) -> bool {
        self.topic == METADATA_TOPIC && self.state == DirectoryState::Live
    }

    fn new(path: &Path, name: &DirectoryName<'_>, options: &OpenOptions) -> Self {
        let topic_id = small(&path.join(PARTITION_METADATA), options, |bytes| {
            let parsed = PartitionMetadata::parse(bytes);
            parsed
                .map(|found| found.topic_id)
                .map_err(|error| error.to_string())
        });
        Self {
            path: path.to_path_buf(),
            topic: name.topic.to_owned(),
            partition: name.partition,
            state: name.state,
            topic_id,
        }
    }
}

/// The folders in a log dir, and what may be links to some, by name.
fn folders_in(log_dir: &Path, options: &OpenOptions) -> Result<Vec<Entry>> {
    let mut entries = options
        .disk
        .list(log_dir)
        .map_err(|source| Error::io(IoCall::List, log_dir, source))?;
    entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    entries.retain(|entry| entry.kind != EntryKind::File && entry.name != REMOTE_INDEX_CACHE);
    Ok(entries)
}

/// Fails for what is neither a folder nor a link to one: a broker follows links.
fn follow(entry: &Entry, place: &Path, options: &OpenOptions) -> io::Result<()> {
    match entry.kind {
        EntryKind::Other => options.disk.list(place).map(drop),
        _ => Ok(()),
    }
}

/// A file that was set aside from a log is none of the folders that are asked for; it can be made one.
fn of_a_file(error: Error, path: &Path, options: &OpenOptions) -> Error {
    let is_file = matches!(
        error.kind(),
        ErrorKind::Io { source, .. } if source.kind() == io::ErrorKind::NotADirectory
    );
    match Log::open(path, options) {
        Ok(log) if is_file => {
            let reason = format!(
                "a file that was set aside from {}-{}; give a folder: `offsetlog salvage FILE --into DIR` makes a log of its whole batches, and \
                 DIR can be given",
                log.topic(),
                log.partition()
            );
            Error::log_dir(path, reason)
        }
        _ => error,
    }
}

/// Whether there is a file or folder. One that cannot be looked at does not count as missing.
///
/// # Errors
/// `Io`.
pub(crate) fn is_there(disk: &dyn Disk, path: &Path) -> Result<bool> {
    match disk.stat(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::io(IoCall::Stat, path, error)),
    }
}

/// A target that is one of the sources, or lies in one, would be read while it is written.
pub(crate) fn refuse_overlap<P: AsRef<Path>, Q: AsRef<Path>>(
    sources: &[P],
    into: &[Q],
    options: &OpenOptions,
) -> Result<()> {
    // Folders are the same by what they are, not by their names.
    let id_of = |path: &Path| match options.disk.stat(path) {
        Ok(found) => Ok(Some(found.id)),
        // Such as a file in the place of a folder, of which others tell.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(Error::io(IoCall::Stat, path, error)),
    };
    let is_in = |inner: &Path, outer: &Path| -> Result<bool> {
        let Some(outer) = id_of(outer)? else {
            return Ok(false);
        };
        for around in inner.ancestors() {
            if id_of(around)? == Some(outer) {
                return Ok(true);
            }
        }
        Ok(false)
    };
    for target in into {
        let target = local_path(target)?;
        for source in sources {
            let source = local_path(source)?;
            if is_in(&target, &source)? || is_in(&source, &target)? {
                let reason = format!(
                    "it is, lies in or holds the source {}; choose another place",
                    source.display()
                );
                return Err(Error::log_dir(&target, reason));
            }
        }
    }
    Ok(())
}

/// The content of a small file; `None` if it does not exist.
fn small<T>(
    path: &Path,
    options: &OpenOptions,
    parse: impl FnOnce(&[u8]) -> std::result::Result<T, String>,
) -> std::result::Result<Option<T>, String> {
    match read_whole(
        options.disk.as_ref(),
        path,
        options.limits.max_state_file_bytes,
    ) {
        Ok(bytes) => parse(&bytes).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use offsetlog::disk::RealDisk;
    use offsetlog_faults::fault::{Call, FaultDisk, Lasting, Plan};
    use std::fs;
    use std::sync::Arc;

    /// A log dir with the directory of one partition.
    fn with_a_partition() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(
            folder.path().join(META_PROPERTIES),
            "version=1\nnode.id=1\n",
        )
        .unwrap();
        fs::create_dir(folder.path().join("t-0")).unwrap();
        folder
    }

    #[test]
    fn a_link_that_leads_nowhere_is_told() {
        let folder = with_a_partition();
        let link = |to: &str, name: &str| {
            std::os::unix::fs::symlink(folder.path().join(to), folder.path().join(name)).unwrap();
        };
        link("not-mounted/t-1", "t-1");
        link("meta.properties", "t-2");
        link("t-0", "t-3");
        let places = Places::read(&[folder.path()], &OpenOptions::default()).unwrap();
        let found: Vec<i32> = places.log_dirs[0]
            .partitions
            .iter()
            .map(|each| each.partition)
            .collect();
        assert_eq!(found, [0, 3]);
        let told: Vec<_> = places
            .warnings
            .iter()
            .filter(|warning| warning.contains("is a link"))
            .collect();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("t-1"), "{told:?}");
    }

    #[test]
    fn an_interrupt_ends_the_reading_of_a_log_dir() {
        let folder = with_a_partition();
        let mut options = OpenOptions::default();
        assert!(Places::read(&[folder.path()], &options).is_ok());
        options.interrupt = Some(Arc::new(|| true));
        let error = Places::read(&[folder.path()], &options).err().unwrap();
        assert!(matches!(error.kind(), ErrorKind::Interrupted));
    }

    /// A restore that compares a source with itself would find all of it restored.
    #[test]
    fn a_look_that_fails_does_not_make_a_source_another_folder() {
        let folder = tempfile::tempdir().unwrap();
        let (source, link) = (folder.path().join("source"), folder.path().join("link"));
        std::fs::create_dir(&source).unwrap();
        std::os::unix::fs::symlink(&source, &link).unwrap();
        let mut failed = 0;
        for nth in 1..20 {
            let plan = Plan {
                kinds: |call, _| call == Call::Stat,
                nth,
                lasting: Lasting::FromThenOn,
                ..Plan::none()
            };
            let disk = FaultDisk::new(Arc::new(RealDisk), plan);
            let options = OpenOptions {
                disk: Arc::new(disk.clone()),
                ..OpenOptions::default()
            };
            refuse_overlap(&[&source], &[&link], &options).unwrap_err();
            failed += disk.failed().len();
        }
        assert!(failed > 0);
    }
}
