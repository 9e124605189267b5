//! One or several log dirs together: their partitions, where each one is, and their topics if the log dirs are open for
//! appending.

mod builder;
mod choice;
mod clusters;
mod empty_folders;
mod groups;
mod listing;
mod maintain;
mod many_logs;
mod metadata;
mod more_partitions;
mod new_partitions;
mod open_logs;
mod partition_count;
mod routing;
mod strays;
mod topic_settings;
mod topics;
mod transactions;
mod whole_logs;
mod writer;

use crate::checkpoints::Checkpoints;
use crate::error::{Error, ErrorKind, Result};
use crate::local_path::local_path;
use crate::log::{LaterLog, Log, LogDirFiles, LogWriter, OpenOptions, Surroundings};
use choice::AllChosen;
use clusters::Clusters;
use listing::Listing;
use offsetlog_format::counted;
use partition_count::Registered;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use writer::Writer;

pub use empty_folders::{check_new_log_dirs, not_a_log_dir};
pub use groups::{
    FirstUnread, Group, GroupMember, GroupOffset, GroupState, GroupsOptions, PendingOffset,
    ShareGroupOffset,
};
pub use maintain::LogDirMaintainReport;
pub use routing::{Partitioner, murmur2, new_topic_id, partition_for};
pub use strays::Stray;
pub use topic_settings::{ClusterSettings, TopicSettings};
pub use topics::NewTopic;
pub(crate) use topics::{DEPTH_MAX, DUE_FILE, remove_all};
pub use transactions::{Transaction, TransactionList, TransactionState};
pub use writer::{LogDirOptions, Route};

/// A topic's partition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
}

/// A partition that could not be read completely, while others were read.
#[derive(Debug)]
pub struct Unread {
    /// The partition.
    pub partition: TopicPartition,
    /// The error, which names the file.
    pub error: Error,
}

/// Records the failure of one partition. Returns errors that end work on all partitions.
pub(crate) fn pass_over(
    error: Error,
    partition: &TopicPartition,
    unread: &mut Vec<Unread>,
) -> Result<()> {
    if error.is_of_process() || matches!(error.kind(), ErrorKind::Closed) {
        return Err(error);
    }
    unread.push(Unread {
        partition: partition.clone(),
        error,
    });
    Ok(())
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// One or several log dirs. Partitions are listed when the log dirs are opened, and each is opened when it is requested. Clones
/// share everything.
#[derive(Debug, Clone)]
pub struct LogDir(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    paths: Vec<PathBuf>,
    options: OpenOptions,
    /// The shared state of the partitions in each path.
    shared: Vec<Arc<LogDirFiles>>,
    /// The cluster that the log dirs belong to, if there is one.
    surroundings: Arc<Surroundings>,
    /// The partitions of topics by the cluster's metadata, as far as somebody asked for them.
    registered: Mutex<Registered>,
    listing: RwLock<Listing>,
    /// The replica that was chosen, for partitions with several.
    chosen: Mutex<AllChosen>,
    /// Present if the log dirs are open for appending.
    writer: Option<Writer>,
}

impl Inner {
    fn listing(&self) -> RwLockReadGuard<'_, Listing> {
        self.listing.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn listing_mut(&self) -> RwLockWriteGuard<'_, Listing> {
        self.listing.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The shared state of the log dir around a partition; `None` if the partition itself was given as a path.
    fn shared_with(&self, partition: &Path) -> Option<&Arc<LogDirFiles>> {
        let log_dir = partition.parent()?;
        self.shared
            .iter()
            .find(|shared| shared.log_dir() == log_dir)
    }
}

/// Makes paths absolute and removes duplicates. Fails if there are none.
fn absolute<P: AsRef<Path>>(paths: &[P]) -> Result<Vec<PathBuf>> {
    let mut all: Vec<PathBuf> = Vec::new();
    for path in paths {
        let path = local_path(path)?;
        if !all.contains(&path) {
            all.push(path);
        }
    }
    if all.is_empty() {
        return Err(Error::argument(
            "paths",
            "none found, at least one log dir expected",
        ));
    }
    Ok(all)
}

/// The error that several log dirs have a partition which is to be written.
fn in_two_places(partition: &TopicPartition, one: &Path, other: &Path) -> Error {
    let reason = format!(
        "{partition} stands in {} too; a broker would not start, move one of them away",
        other.display()
    );
    Error::log_dir(one, reason)
}

impl LogDir {
    /// Lists the partition directories of `paths`. A path that is itself a partition directory counts as one partition. The
    /// data of the cluster's ZooKeeper may be among them: it has no partitions, and is the metadata.
    /// Log dirs of several clusters are listed together, with a warning: see [`check_one_cluster`](Self::check_one_cluster).
    /// Directories that are being deleted, moved in or set aside (`-delete`, `-future`, `-stray`) are skipped. Directories that
    /// are not partitions are skipped with a warning.
    ///
    /// # Errors
    /// `Io` if a path cannot be listed; `Argument` without any path; `LogDir` if one of the paths has neither a partition nor a file of
    /// a log dir, as the mount point of a disk that is not mounted.
    pub fn open<P: AsRef<Path>>(paths: &[P], options: &OpenOptions) -> Result<Self> {
        Self::list(absolute(paths)?, options, None, None)
    }

    /// As [`open`](Self::open), where the cluster's metadata is elsewhere: the folder with `__cluster_metadata-0`, or ZooKeeper's data. It
    /// counts where the paths have no metadata log themselves.
    ///
    /// # Errors
    /// Those of [`open`](Self::open); `LogDir` if `metadata` has none.
    pub fn open_with_metadata<P: AsRef<Path>>(
        paths: &[P],
        options: &OpenOptions,
        metadata: Option<&Path>,
    ) -> Result<Self> {
        Self::list(absolute(paths)?, options, metadata, None)
    }

    fn list(
        paths: Vec<PathBuf>,
        options: &OpenOptions,
        metadata: Option<&Path>,
        writer: Option<Writer>,
    ) -> Result<Self> {
        let mut listing = Listing::default();
        for path in &paths {
            listing.add(options.disk.as_ref(), path)?;
        }
        listing.refuse_empty(paths.len() > 1)?;
        listing.refuse_mixed()?;
        listing.warn_of_replicas();
        let shared = |path: &PathBuf| {
            let max_bytes = options.limits.max_state_file_bytes;
            let checkpoints = Arc::new(Checkpoints::new(&options.disk, path, max_bytes));
            Arc::new(LogDirFiles::gathering(&checkpoints))
        };
        let how = writer.as_ref().map(|writer| &writer.options);
        let zookeeper = listing.zookeeper.as_deref();
        let surroundings = Surroundings::new(
            options,
            metadata.or(zookeeper),
            &paths,
            how.and_then(|how| how.broker.as_ref()),
        )?;
        listing.warn_of_clusters(&Clusters::of(&surroundings, &paths));
        Ok(Self(Arc::new(Inner {
            surroundings: Arc::new(surroundings),
            shared: paths.iter().map(shared).collect(),
            paths,
            options: options.clone(),
            registered: Mutex::default(),
            listing: RwLock::new(listing),
            chosen: Mutex::default(),
            writer,
        })))
    }

    /// Picks up changes by other processes: lists the log dirs to find added and removed partitions, chooses among the replicas of a
    /// partition again if one of them has changed, and makes the next question about settings read the cluster's metadata again. Topics
    /// created or deleted through this value are known without it. Logs that are already open are not affected ([`Log`]): only the next
    /// opening of a partition may return another replica.
    ///
    /// # Errors
    /// `Io` if a path cannot be listed, `LogDir` if nothing of a log dir is in it any more; what is known is then unchanged.
    pub fn refresh(&self) -> Result<()> {
        self.list_anew(Listing::refuse_empty)?;
        self.doubt_choices();
        self.forget_cluster();
        Ok(())
    }

    /// Lists the log dirs again, and no more: the choice among replicas stays as long as its directory is there, and the cluster's
    /// metadata is what it was ([`ClusterSettings::refresh`] reads it again). A path from which everything is gone has no partitions any
    /// more: this is for callers that tell what went.
    ///
    /// # Errors
    /// `Io` if a path cannot be listed; what is known is then unchanged.
    pub fn refresh_listing(&self) -> Result<()> {
        self.list_anew(|_, _| Ok(()))
    }

    /// Lists the log dirs, and keeps what was found if `check` lets it pass; it is told whether there are several.
    fn list_anew(&self, check: impl FnOnce(&Listing, bool) -> Result<()>) -> Result<()> {
        let mut known = self.0.listing_mut();
        let mut listing = Listing::default();
        for path in &self.0.paths {
            listing.add(self.0.options.disk.as_ref(), path)?;
        }
        check(&listing, self.0.paths.len() > 1)?;
        listing.refuse_mixed()?;
        listing.warn_of_replicas();
        listing.warn_of_clusters(&Clusters::of(&self.0.surroundings, &self.0.paths));
        let registered = self.0.registered.lock();
        registered
            .unwrap_or_else(PoisonError::into_inner)
            .forget_all();
        known.partitions = listing.partitions;
        known.pending_deletes = listing.pending_deletes;
        known.warnings = listing.warnings;
        Ok(())
    }

    /// The log dirs, as absolute paths.
    #[must_use]
    pub fn paths(&self) -> &[PathBuf] {
        &self.0.paths
    }

    /// Warnings about what was skipped.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.0.listing().warnings.clone()
    }

    /// The options with which logs are opened.
    #[must_use]
    pub fn options(&self) -> &OpenOptions {
        &self.0.options
    }

    /// The topics and their partitions, both ascending.
    #[must_use]
    pub fn topics(&self) -> BTreeMap<String, Vec<i32>> {
        let mut topics: BTreeMap<String, Vec<i32>> = BTreeMap::new();
        for partition in self.0.listing().partitions.keys() {
            let partitions = topics.entry(partition.topic.clone()).or_default();
            partitions.push(partition.partition);
        }
        topics
    }

    /// The partitions, by topic and number.
    #[must_use]
    pub fn partitions(&self) -> Vec<TopicPartition> {
        self.0.listing().partitions.keys().cloned().collect()
    }

    /// The partitions of a topic with their directories. A partition with replicas in several log dirs is listed once for each.
    #[must_use]
    pub fn directories(&self, topic: &str) -> Vec<(i32, PathBuf)> {
        let listing = self.0.listing();
        let of_topic = listing
            .partitions
            .iter()
            .filter(|(partition, _)| partition.topic == topic);
        of_topic
            .flat_map(|(partition, paths)| {
                paths.iter().map(|path| (partition.partition, path.clone()))
            })
            .collect()
    }

    /// The directory of a partition, if it is there.
    ///
    /// # Errors
    /// `LogDir` if it has several: which of them is meant is not known.
    fn path_of(&self, partition: &TopicPartition) -> Result<Option<PathBuf>> {
        let listing = self.0.listing();
        match listing.partitions.get(partition).map(Vec::as_slice) {
            None | Some([]) => Ok(None),
            Some([path]) => Ok(Some(path.clone())),
            Some([one, other, ..]) => Err(in_two_places(partition, one, other)),
        }
    }

    /// Opens a partition for reading. In log dirs that were opened for appending, that is the log of their writer, which stays open
    /// while the result is held. If several log dirs have a replica, takes the newest one: its last batch, also behind damage, has the
    /// newest leader epoch, of those its batches can be read furthest, and of equals it lacks the fewest offsets. A warning names another that ends
    /// behind. Finding it reads each replica once, and the choice is kept until a [`refresh`](Self::refresh) behind which one of them
    /// has changed.
    ///
    /// Replicas have the same topic id, or none. If several ids are found, those with the id that the cluster's metadata has are replicas.
    ///
    /// # Errors
    /// `LogDir` if there is no such partition, or if directories of several topic ids are found and no metadata has one of them; those of
    /// [`Log::open`].
    pub fn log(&self, topic: &str, partition: i32) -> Result<Log> {
        let wanted = TopicPartition {
            topic: topic.to_owned(),
            partition,
        };
        if self.is_writable() {
            let opened = self.writable(topic, partition)?;
            return Ok(opened.log().clone());
        }
        // Before the listing: whoever lists again doubts the choices behind it.
        let doubts = self.doubts();
        let Some(paths) = self.0.listing().partitions.get(&wanted).cloned() else {
            return Err(self.unknown(topic, partition));
        };
        match paths.as_slice() {
            [path] => self.open_one(path),
            paths => self.log_of_replicas(wanted, paths, doubts),
        }
    }

    /// A partition for a scan that opens it when it reaches it: see [`Scan::over_logs`](crate::Scan::over_logs). If it no
    /// longer exists by then, that is an error only if it is `required`.
    #[must_use]
    pub fn later(&self, partition: TopicPartition, required: bool) -> LaterLog {
        let log_dir = self.clone();
        let TopicPartition { topic, partition } = partition;
        let name = topic.clone();
        LaterLog::new(&name, partition, move || {
            log_dir.log_if(&topic, partition, required)
        })
    }

    /// Like [`log`](Self::log), but returns `None` for a missing partition that is not `required`.
    ///
    /// # Errors
    /// See [`log`](Self::log).
    pub fn log_if(&self, topic: &str, partition: i32, required: bool) -> Result<Option<Log>> {
        if required {
            return self.log(topic, partition).map(Some);
        }
        if self.is_writable() {
            let opened = self.writable_if(topic, partition, |_| Ok(true))?;
            return Ok(opened.map(|opened| opened.log().clone()));
        }
        if !self.has(topic, partition) {
            return Ok(None);
        }
        self.log(topic, partition).map(Some)
    }

    /// Opens a partition for appending, in log dirs that were opened for it.
    ///
    /// # Errors
    /// `LogDir` if there is no such partition; `Argument` if the log dirs were opened for reading; those of
    /// [`LogWriter::open`](crate::LogWriter::open).
    pub fn log_writer(&self, topic: &str, partition: i32) -> Result<LogWriter> {
        self.writable(topic, partition)
    }

    /// Like [`log_writer`](Self::log_writer), but returns `None` for a missing partition that is not `required`.
    ///
    /// # Errors
    /// See [`log_writer`](Self::log_writer).
    pub fn log_writer_if(
        &self,
        topic: &str,
        partition: i32,
        required: bool,
    ) -> Result<Option<LogWriter>> {
        if required {
            return self.log_writer(topic, partition).map(Some);
        }
        self.writable_if(topic, partition, |_| Ok(true))
    }

    fn has(&self, topic: &str, partition: i32) -> bool {
        self.0.listing().partitions.contains_key(&TopicPartition {
            topic: topic.to_owned(),
            partition,
        })
    }

    fn unknown(&self, topic: &str, partition: i32) -> Error {
        let path = self.0.paths.first().map_or(Path::new(""), PathBuf::as_path);
        let topics = self.topics();
        let reason = match topics.get(topic) {
            Some(partitions) => format!(
                "topic {topic:?} has no partition {partition}; it has {}",
                partitions
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
            None => format!(
                "there is no topic {topic:?} among {}",
                counted(topics.len(), "topic")
            ),
        };
        Error::log_dir(path, reason)
    }
}
