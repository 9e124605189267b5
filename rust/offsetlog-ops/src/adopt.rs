//! Adopts directories that a broker has set aside, or would set aside for their topic id: each becomes its topic's partition again.
//!
//! Reads and decides everything before it changes anything, and decides about each directory again under the locks. Refuses a partition that
//! the cluster's metadata does not have, or has elsewhere: a broker would set it aside again.

mod again;
mod beside;
mod given;
mod groups;
mod notes;
mod settings;
mod target;

use crate::places::{LogDirPlace, PartitionPlace, Places};
use crate::restore::is_kafkas_own;
use crate::retention::{BrokerRetention, LogAge};
pub(crate) use beside::contents;
use beside::{blocked, first_name, in_the_way, refuse_other_brokers};
use given::{located, refuse_log_dirs};
use offsetlog::disk::IoCall;
use offsetlog::format::name::{DirectoryName, DirectoryState, PARTITION_METADATA, directory_name};
use offsetlog::format::{Uuid, counted};
use offsetlog::{
    Adoption, Error, ErrorKind, Finding, Log, OpenOptions, Result, Severity, VerifyOptions,
    interrupted_adoption, local_path, verify,
};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use target::Target;

/// Called as directories are checked with the bytes that are done, all of them, and the directory at work.
pub type AdoptProgress = Arc<dyn Fn(u64, u64, &str) + Send + Sync>;

/// Called with each directory that was taken in.
pub type Adopted = Arc<dyn Fn(&AdoptedPartition) + Send + Sync>;

/// How directories are taken in.
#[derive(Clone, Default)]
pub struct AdoptOptions {
    /// The broker's other log dirs; those around the directories are known.
    pub log_dirs: Vec<PathBuf>,
    /// The folder with the cluster's metadata log, or ZooKeeper's data, if it is not one of the log dirs.
    pub metadata: Option<PathBuf>,
    /// The broker's `server.properties`: without it nobody knows whether its retention deletes what is taken in.
    pub broker: Option<PathBuf>,
    /// The topic, where its name is cut short in the directory's name.
    pub topic: Option<String>,
    /// The topic's id, where no metadata tells it.
    pub topic_id: Option<Uuid>,
    /// First sets aside what is in the partition's place.
    pub set_aside: bool,
    /// Does it although other brokers have replicas of the partition.
    pub single_replica: bool,
    /// Changes nothing.
    pub dry_run: bool,
    /// Called as the work proceeds.
    pub progress: Option<AdoptProgress>,
    /// Called with each directory as soon as it was taken in: the error of a later one does not tell of it.
    pub adopted: Option<Adopted>,
}

impl fmt::Debug for AdoptOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdoptOptions")
            .field("log_dirs", &self.log_dirs)
            .field("metadata", &self.metadata)
            .field("broker", &self.broker)
            .field("topic", &self.topic)
            .field("topic_id", &self.topic_id)
            .field("set_aside", &self.set_aside)
            .field("single_replica", &self.single_replica)
            .field("dry_run", &self.dry_run)
            .finish_non_exhaustive()
    }
}

/// A directory that was taken in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdoptedPartition {
    /// The directory under its name before.
    pub directory: PathBuf,
    /// The partition's directory.
    pub path: PathBuf,
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The id that its `partition.metadata` named before, if any.
    pub topic_id_before: Option<Uuid>,
    /// The id that it names now; `None` of a topic that has none.
    pub topic_id: Option<Uuid>,
    /// Whether anything was to be done.
    pub is_changed: bool,
    /// What was, or would be, set aside, with its new name, which a dry run does not know.
    pub set_aside: Vec<(PathBuf, Option<PathBuf>)>,
    /// Number of records in the log, without control records.
    pub records: u64,
    /// Lowest offset that can be read.
    pub log_start_offset: i64,
    /// Offset that the next record gets.
    pub log_end_offset: i64,
    /// What is missing, stuck or goes, what a broker does that may surprise, and what is not known; a sentence each.
    pub notes: Vec<String>,
}

/// Makes each of the directories its topic's partition in its log dir, while the broker is stopped. The directory is one that a broker set
/// aside (`-stray`), would set aside or refuse for its topic id, was about to delete (`-delete`) or was moving from another log dir
/// (`-future`). Its `partition.metadata` gets the topic id of the cluster's metadata, its lines in the log dir's checkpoints are rebuilt,
/// and it gets the name `topic-partition`. Checks every batch first. Changes nothing before it has looked at all of the directories. To
/// finish an interrupted call, repeat it without the directories that were taken in by then, and with their log dirs.
///
/// # Errors
/// `Cluster`: the metadata does not have the topic, the partition, or this broker as a replica, or other brokers have replicas.
/// `LogDir`: another directory is in the partition's place, the log is damaged, a log dir that matters is not among the paths, or a path is
/// not a partition's directory. `Argument`: no metadata is here and no topic id was given, or it is not the metadata's. These errors change
/// nothing. `Locked`: the broker runs. `Io`.
///
/// ```no_run
/// use offsetlog::OpenOptions;
/// use offsetlog_ops::{AdoptOptions, adopt};
///
/// # fn main() -> Result<(), offsetlog::Error> {
/// let how = AdoptOptions { metadata: Some("/mnt/metadata".into()), ..AdoptOptions::default() };
/// let stray = "/disk1/kafka/orders-0.0123456789abcdef0123456789abcdef-stray";
/// for adopted in adopt(&[stray], &how, &OpenOptions::default())? {
///     println!("{}: offsets {} to {}", adopted.path.display(), adopted.log_start_offset, adopted.log_end_offset);
/// }
/// # Ok(())
/// # }
/// ```
pub fn adopt<P: AsRef<Path>>(
    directories: &[P],
    how: &AdoptOptions,
    open: &OpenOptions,
) -> Result<Vec<AdoptedPartition>> {
    let (mut paths, mut given) = (Vec::new(), Vec::new());
    for directory in directories {
        let path = located(directory.as_ref(), open)?;
        refuse_log_dirs(&path)?;
        if !paths.contains(&path) {
            paths.push(path);
            given.push(directory.as_ref());
        }
    }
    if paths.is_empty() {
        return Ok(Vec::new());
    }
    let (mut plans, mut places) = plan(&paths, how, open)?;
    let retentions = settings::retentions(&plans, &places, how, open)?;
    let total = plans.iter().map(Plan::bytes_to_check).sum();
    let mut done = 0;
    for ((plan, retention), given) in plans.iter_mut().zip(retentions).zip(given) {
        let name = given.file_name().unwrap_or_default().to_string_lossy();
        plan.check_log(&retention, open, &checking(how, (done, total), &name))?;
        done += plan.bytes_to_check();
        if let Some(progress) = &how.progress {
            progress(done, total, &name);
        }
        plan.show_as(given);
    }
    groups::add(&mut plans, &places, open)?;
    if how.dry_run {
        return Ok(plans.into_iter().map(|plan| plan.adopted).collect());
    }
    if open.interrupt.as_ref().is_some_and(|interrupt| interrupt()) {
        return Err(Error::new(ErrorKind::Interrupted));
    }
    let mut all = Vec::new();
    for plan in plans {
        let adopted = plan.carry_out(&mut places, how, open)?;
        if let Some(told) = how.adopted.as_ref().filter(|_| adopted.is_changed) {
            told(&adopted);
        }
        all.push(adopted);
    }
    Ok(all)
}

/// How a directory is checked of which `name` is the last one, behind others of `done` bytes.
fn checking(how: &AdoptOptions, (done, total): (u64, u64), name: &str) -> VerifyOptions {
    let progress = how.progress.clone().map(|progress| {
        let (name, read) = (name.to_owned(), AtomicU64::new(done));
        Arc::new(move |bytes| {
            let before = read.fetch_add(bytes, Ordering::Relaxed);
            progress((before + bytes).min(total), total, &name);
        }) as _
    });
    VerifyOptions { progress }
}

/// What is to be done with one directory.
struct Plan {
    adopted: AdoptedPartition,
    adoption: Adoption,
    /// The log dir that it is in: what holds for all directories of that is not kept with each.
    log_dir: PathBuf,
    /// The leader epoch that the cluster counts, if it is known.
    cluster_epoch: Option<i32>,
    /// Whether the topic is compacted by its settings.
    is_compacted: bool,
    /// The next producer id that the cluster gives out, if it is known.
    next_producer_id: Option<i64>,
    /// Base offsets and sizes.
    segments: Vec<(i64, u64)>,
    /// Whether it gets another name, or got it from an earlier call that ended then.
    is_renamed: bool,
    /// What an earlier call that did not come to its end had to tell of what goes.
    told_before: Vec<String>,
}

/// Decides about all of them, by names and small files only.
fn plan(paths: &[PathBuf], how: &AdoptOptions, open: &OpenOptions) -> Result<(Vec<Plan>, Places)> {
    let mut folders: Vec<PathBuf> = Vec::new();
    let around = paths.iter().filter_map(|path| path.parent());
    let all = around.map(Path::to_path_buf);
    let mut known: Vec<(PathBuf, (u64, u64))> = Vec::new();
    for folder in all.chain(how.log_dirs.clone()).chain(how.metadata.clone()) {
        let folder = local_path(&folder)?;
        let id = open.disk.stat(&folder).map(|found| found.id).ok();
        if first_name(&known, &folder, open) == folder && !folders.contains(&folder) {
            known.extend(id.map(|id| (folder.clone(), id)));
            folders.push(folder);
        }
    }
    let places = Places::read(&folders, open)?;
    let paths: Vec<PathBuf> = paths
        .iter()
        .map(|path| match (path.parent(), path.file_name()) {
            (Some(folder), Some(name)) => first_name(&known, folder, open).join(name),
            _ => path.clone(),
        })
        .collect();
    let others = how.log_dirs.iter().map(local_path);
    let others = others.map(|folder| Ok(first_name(&known, &folder?, open)));
    let others: Vec<PathBuf> = others.collect::<Result<_>>()?;
    refuse_other_brokers(&places, &paths, &others)?;
    let mut plans: Vec<Plan> = Vec::new();
    for path in &paths {
        let (place, found) = find(&places, path)?;
        let planned = plan_one(&places, place, found, how, open)?;
        let same = plans.iter().find(|other| {
            other.adoption.topic == planned.adoption.topic
                && other.adoption.partition == planned.adoption.partition
        });
        if let Some(other) = same {
            let reason = format!(
                "{} is of the same partition: name the one that is to be taken in",
                other.adoption.directory.display()
            );
            return Err(Error::log_dir(path, reason));
        }
        plans.push(planned);
    }
    if let Some(first) = plans.first_mut() {
        first.adopted.notes.extend(places.warnings.iter().cloned());
    }
    Ok((plans, places))
}

fn find<'p>(places: &'p Places, path: &Path) -> Result<(&'p LogDirPlace, &'p PartitionPlace)> {
    for place in &places.log_dirs {
        if let Some(found) = place.partitions.iter().find(|found| found.path == path) {
            return Ok((place, found));
        }
    }
    let reason = "no directory of a partition, by its name: topic-partition, or topic-partition.<id>-stray, -delete or -future; name \
                  the directories that are to be taken in";
    Err(Error::log_dir(path, reason))
}

fn plan_one(
    places: &Places,
    place: &LogDirPlace,
    found: &PartitionPlace,
    how: &AdoptOptions,
    open: &OpenOptions,
) -> Result<Plan> {
    let path = &found.path;
    let is_link = open.disk.is_link(path);
    if is_link.map_err(|source| Error::io(IoCall::Resolve, path, source))? {
        let reason = "a symbolic link found: name the directory that it leads to";
        return Err(Error::log_dir(path, reason));
    }
    let mut notes = Vec::new();
    let target = Target::of(places, place, found, how, &mut notes)?;
    let in_the_way = in_the_way(places, place, found, &target);
    if !in_the_way.is_empty() && !how.set_aside {
        return Err(Error::log_dir(path, blocked(&in_the_way, &target, open)));
    }
    let told = of_set_aside(&in_the_way, open);
    notes.extend(told.clone());
    let before = found.topic_id.as_ref().ok().copied().flatten();
    if let Err(error) = &found.topic_id {
        notes.push(format!("its partition.metadata could not be read: {error}"));
    }
    let interrupted = interrupted_adoption(path, open)?;
    // Behind the renaming of an earlier call, its note has the name that the directory had.
    let name_before = interrupted.as_ref().map(|note| note.name.as_str());
    let state_before = name_before.and_then(|name| Some(DirectoryName::parse(name).ok()?.state));
    match state_before
        .filter(|_| found.state == DirectoryState::Live)
        .unwrap_or(found.state)
    {
        DirectoryState::Delete => notes.push(
            "it waited for its deletion: segments of it may have been removed already".to_owned(),
        ),
        DirectoryState::Future => notes.push(
            "it was a copy on its way from another log dir: what had not come yet is missing"
                .to_owned(),
        ),
        DirectoryState::Live | DirectoryState::Stray => {}
    }
    let name = directory_name(&target.topic, found.partition)
        .map_err(|error| Error::log_dir(path, error.fault.to_string()))?;
    let is_renamed = name_before.map_or_else(
        || path.file_name().is_none_or(|old| old != name.as_str()),
        |before| before != name,
    );
    let log = Log::open(path, open)?;
    let segments = log.segments()?;
    let first = segments.first().map_or(0, |first| first.base_offset);
    let (start, end) = (log.log_start_offset()?, log.log_end_offset()?);
    // Behind the renaming the line in the checkpoint tells.
    let start_noted = interrupted
        .as_ref()
        .filter(|_| found.state != DirectoryState::Live)
        .and_then(|note| note.log_start_offset);
    // A broker would empty a log that begins behind its own end.
    let inside = start_noted
        .or(Some(start))
        .filter(|at| (first..=end).contains(at));
    // With tiered storage the line is below the first segment, and a broker without it lets the log begin at 0.
    let is_in_place = found.state == DirectoryState::Live
        && path.file_name().is_some_and(|old| old == name.as_str());
    let line = match log.checkpointed_log_start_offset() {
        // A broker takes it for an empty one.
        Err(error) if error.is_corruption() => None,
        line => line?.filter(|_| is_in_place),
    };
    let below = line.filter(|line| *line < first && start == first);
    let is_changed = interrupted.is_some()
        || found.state != DirectoryState::Live
        || target.topic_id.is_some_and(|id| before != Some(id))
        || !in_the_way.is_empty();
    let topic_id = target.topic_id.or(before);
    Ok(Plan {
        is_renamed,
        cluster_epoch: target.leader_epoch,
        is_compacted: target.is_compacted,
        next_producer_id: target.next_producer_id,
        log_dir: place.path.clone(),
        segments: segments
            .iter()
            .map(|each| (each.base_offset, each.size_bytes))
            .collect(),
        adopted: AdoptedPartition {
            directory: path.clone(),
            path: place.path.join(name),
            topic: target.topic.clone(),
            partition: found.partition,
            topic_id_before: before,
            topic_id,
            is_changed,
            set_aside: in_the_way.iter().map(|path| (path.clone(), None)).collect(),
            records: 0,
            log_start_offset: inside.unwrap_or(first),
            log_end_offset: end,
            notes,
        },
        adoption: Adoption {
            directory: path.clone(),
            topic: target.topic,
            partition: found.partition,
            topic_id: target.topic_id,
            in_the_way,
            log_start_offset: inside.filter(|start| *start > first).or(below),
            checked_end_offset: end,
            told,
        },
        told_before: interrupted.map_or_else(Vec::new, |note| note.told),
    })
}

/// What is set aside, a sentence each.
fn of_set_aside(in_the_way: &[PathBuf], open: &OpenOptions) -> Vec<String> {
    let asides = in_the_way.iter().map(|path| contents(path, open));
    asides
        .map(|aside| on_one_line(&format!("set aside: {aside}")))
        .collect()
}

/// As a note can keep it.
fn on_one_line(sentence: &str) -> String {
    sentence.replace(['\n', '\r'], " ")
}

/// Whether a finding is about a file that is rewritten.
fn is_replaced(finding: &Finding, directory: &Path) -> bool {
    finding.path == directory.join(PARTITION_METADATA)
}

/// Whether it is about a log start offset behind the end, which is not kept.
fn is_start(finding: &Finding, directory: &Path, end: i64) -> bool {
    finding.path == directory && finding.offset.is_some_and(|offset| offset > end)
}

/// Whether it is about a file that opening makes out of the segments.
fn is_rebuilt(finding: &Finding) -> bool {
    let extension = finding
        .path
        .extension()
        .and_then(|extension| extension.to_str());
    matches!(
        extension,
        Some("index" | "timeindex" | "txnindex" | "snapshot")
    )
}

impl Plan {
    /// Names the directory as the caller did.
    fn show_as(&mut self, given: &Path) {
        let name = self.adopted.path.file_name().unwrap_or_default();
        self.adopted.path = given.with_file_name(name);
        self.adopted.directory = given.to_path_buf();
    }

    /// Bytes of the segments, if they are to be checked.
    fn bytes_to_check(&self) -> u64 {
        let sizes = self.segments.iter().map(|(_, size)| *size);
        if self.adopted.is_changed {
            sizes.sum()
        } else {
            0
        }
    }

    /// Reads the whole log: what a broker would cut is not taken in.
    fn check_log(
        &mut self,
        retention: &BrokerRetention,
        open: &OpenOptions,
        how: &VerifyOptions,
    ) -> Result<()> {
        let path = &self.adoption.directory;
        if !self.adopted.is_changed {
            return Ok(());
        }
        let report = verify(&[path], open, how)?;
        let end = self.adopted.log_end_offset;
        let damage: Vec<&Finding> = report
            .findings
            .iter()
            .filter(|finding| finding.severity == Severity::Error)
            .filter(|finding| !is_replaced(finding, path) && !is_start(finding, path, end))
            .filter(|finding| !is_rebuilt(finding))
            .collect();
        let is_told = report.counts.iter().sum::<u64>() == report.findings.len() as u64;
        if let Some(first) = damage
            .first()
            .copied()
            .or(report.findings.first().filter(|_| !is_told))
        {
            let at = first.position;
            let at = at.map_or_else(String::new, |at| format!(", at byte {at}"));
            let reason = format!(
                "damage found in {}, the first in {}{at}: {}; a broker would cut the log there, or not see it: salvage makes a sound one of \
                 it, and verify tells all",
                counted(damage.len().max(1), "place"),
                first.path.display(),
                first.reason
            );
            return Err(Error::log_dir(path, reason));
        }
        self.adopted.records = report.records;
        let log = Log::open(path, open)?;
        // Else it would be found when the directory has its new name.
        log.stored_config()?;
        let is_odd = |finding: &Finding| finding.severity != Severity::Note && is_rebuilt(finding);
        self.adoption.checked_end_offset = if report.findings.iter().any(is_odd) {
            // Opening rebuilds them from all segments.
            0
        } else {
            log.log_end_offset()?
        };
        let notes = notes::of_check(&log, &report, self.is_compacted, open)?;
        self.adopted.notes.extend(notes.all);
        let of_what_goes = notes.of_what_goes.iter();
        self.adoption
            .told
            .extend(of_what_goes.map(|sentence| on_one_line(sentence)));
        for sentence in std::mem::take(&mut self.told_before) {
            if !self.adoption.told.contains(&sentence) {
                self.adopted.notes.push(sentence.clone());
                self.adoption.told.push(sentence);
            }
        }
        let of_producers = notes::of_producers(&log, self.next_producer_id)?;
        self.adopted.notes.extend(of_producers);
        let epoch = log.leader_epoch()?;
        if let (Some(epoch), Some(known)) = (epoch, self.cluster_epoch)
            && epoch > known
        {
            self.adopted.notes.push(format!(
                "leader epoch {epoch} of its batches is above {known}, the cluster's: a broker serves them, and forgets where epochs above its \
                 own ended, so that consumers and followers that ask for it get no answer"
            ));
        }
        let age = LogAge::of(&log, &self.segments, None)?;
        let topic = &self.adoption.topic;
        let mut announced = retention.announced(topic, &[age]);
        // A directory that was set aside has no line in the cleaner's checkpoint any more: nothing tells but that it is Kafka's own.
        // One that cannot be read says nothing either.
        let was_compacted = match log.cleaner_offset() {
            Err(error) if error.is_of_process() => return Err(error),
            point => matches!(point, Ok(Some(_))),
        };
        if !is_kafkas_own(topic) && !was_compacted {
            announced.extend(retention.announced_compaction(topic, &[age]));
        }
        let announced = announced.into_iter();
        let notes =
            announced.map(|(reason, commands)| format!("{reason}: {}", commands.join("; ")));
        self.adopted.notes.extend(notes);
        let first = self.segments.first().map_or(0, |(first, _)| *first);
        let start = self.adoption.log_start_offset;
        if let Some(start) = start.filter(|start| *start > first) {
            self.adopted.notes.push(format!(
                "records before offset {start} of its first segment stay deleted"
            ));
        } else if self.is_renamed && self.adopted.log_end_offset > 0 {
            self.adopted.notes.push(
                "nothing tells its log start offset but its first segment: records of that which were deleted are back".to_owned(),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod killed_tests;
#[cfg(test)]
mod several_tests;
