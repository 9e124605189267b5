//! What is served: topics with their ids, partitions with the replica that was chosen, and what is missing.

use super::options::{Event, ServeOptions, Until};
use super::partition::Partition;
use offsetlog::disk::{Disk, FileStat};
use offsetlog::format::Uuid;
use offsetlog::format::internal_topic::METADATA_TOPIC;
use offsetlog::format::name::PARTITION_METADATA;
use offsetlog::{
    ClusterSettings, Error, ErrorKind, Group, Log, LogDir, OpenOptions, Result, TopicImage,
    is_internal_topic,
};
use offsetlog_ops::{ChosenReplica, choose_replica};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Topics that no client reads: the metadata of a cluster, under its names of today and of before 2.8.
const NEVER: [&str; 2] = [METADATA_TOPIC, "@metadata"];

/// Missing partitions are listed up to this number. A name can claim any number, and each one costs memory.
const MISSING_MAX: i32 = 100_000;

/// All that is served at one moment.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    pub(crate) topics: BTreeMap<String, Arc<Topic>>,
    by_id: HashMap<[u8; 16], String>,
    /// What is not served, and why.
    pub(crate) left_out: Vec<String>,
}

/// A topic.
#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) name: String,
    /// Zeros for a topic that has none.
    pub(crate) id: Uuid,
    pub(crate) is_internal: bool,
    /// By number, without a gap.
    pub(crate) slots: BTreeMap<i32, Slot>,
}

/// A partition, or what is in its place.
#[derive(Debug, Clone)]
pub(crate) enum Slot {
    /// It is served.
    Here {
        partition: Arc<Partition>,
        marks: Vec<Mark>,
        /// The other replicas, and why they are not served.
        others: Vec<(PathBuf, String)>,
    },
    /// No log dir has it.
    Missing,
    /// No replica can be opened: one of them, and why.
    Unreadable {
        path: PathBuf,
        reason: String,
        marks: Vec<Mark>,
    },
}

/// Tells a directory from another one at the same path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    path: PathBuf,
    id: Option<(u64, u64)>,
    /// A recreated topic has another file, even if the file system gives the directory the same number.
    metadata: Option<FileStat>,
}

impl Mark {
    fn of(disk: &dyn Disk, path: &Path) -> Self {
        Self {
            path: path.to_path_buf(),
            id: disk.id(path).ok(),
            metadata: disk.stat(&path.join(PARTITION_METADATA)).ok(),
        }
    }
}

impl Slot {
    /// The partition, if it is served.
    pub(crate) const fn partition(&self) -> Option<&Arc<Partition>> {
        match self {
            Self::Here { partition, .. } => Some(partition),
            Self::Missing | Self::Unreadable { .. } => None,
        }
    }

    fn topic_id(&self) -> Option<[u8; 16]> {
        self.partition()?.topic_id.map(Uuid::to_bytes)
    }

    /// Whether clients are served the same.
    fn serves_as(&self, other: &Self) -> bool {
        match (self.partition(), other.partition()) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        }
    }

    /// The same partition, if the directory that is served is still there and is the same: another replica may lack what clients have read
    /// of it. Which other replicas there are does not matter.
    fn kept(&self, marks: &[Mark]) -> Option<Self> {
        let Self::Here {
            partition,
            marks: before,
            others,
        } = self
        else {
            return None;
        };
        let path = partition.log.path();
        let known = before.iter().find(|mark| mark.path == path)?;
        if !marks.contains(known) {
            return None;
        }
        let others = marks.iter().filter(|mark| mark.path != path).map(|mark| {
            let known = others
                .iter()
                .find(|(other, _)| other.starts_with(&mark.path));
            let why = known.filter(|_| before.contains(mark)).map_or_else(
                || "came while the partition was served from another directory".to_owned(),
                |(_, why)| why.clone(),
            );
            (mark.path.clone(), why)
        });
        Some(Self::Here {
            partition: Arc::clone(partition),
            marks: marks.to_vec(),
            others: others.collect(),
        })
    }

    /// Why it cannot be opened.
    fn reason(&self) -> Option<&str> {
        match self {
            Self::Unreadable { reason, .. } => Some(reason),
            Self::Here { .. } | Self::Missing => None,
        }
    }

    fn marks(&self) -> &[Mark] {
        match self {
            Self::Here { marks, .. } | Self::Unreadable { marks, .. } => marks,
            Self::Missing => &[],
        }
    }
}

/// What is known of partitions besides their directories.
#[derive(Debug, Clone, Default)]
pub(crate) struct Surroundings {
    /// As in the cluster's metadata.
    pub(super) topics: Arc<HashMap<String, TopicImage>>,
    /// The greatest leader epoch that a group has committed.
    committed: HashMap<(String, i32), i32>,
    /// The layers below the topics' own settings.
    settings: Option<ClusterSettings>,
}

impl Surroundings {
    pub(crate) fn new(
        topics: Arc<HashMap<String, TopicImage>>,
        groups: &[Group],
        settings: Option<ClusterSettings>,
    ) -> Self {
        let mut committed: HashMap<(String, i32), i32> = HashMap::new();
        for offset in groups.iter().flat_map(|group| &group.offsets) {
            if let Some(epoch) = offset.leader_epoch {
                let key = (offset.topic.clone(), offset.partition);
                let known = committed.entry(key).or_insert(epoch);
                *known = epoch.max(*known);
            }
        }
        Self {
            topics,
            committed,
            settings,
        }
    }

    /// A group has committed this leader epoch.
    pub(crate) fn committed(&mut self, topic: &str, partition: i32, epoch: i32) {
        let key = (topic.to_owned(), partition);
        let known = self.committed.entry(key).or_insert(epoch);
        *known = epoch.max(*known);
    }

    /// The smallest leader epoch that clients may see: below that of a committed offset, Java's consumers silently read nothing.
    fn epoch_floor(&self, topic: &str, partition: i32) -> i32 {
        let registered = self
            .topics
            .get(topic)
            .and_then(|topic| topic.partitions.get(&partition))
            .map_or(-1, |partition| partition.leader_epoch);
        let key = (topic.to_owned(), partition);
        registered.max(self.committed.get(&key).copied().unwrap_or(-1))
    }
}

impl Catalog {
    /// Lists the log dirs. Partitions of `before` whose directory is still there stay as they are.
    pub(crate) fn read(
        log_dir: &LogDir,
        surroundings: &Surroundings,
        options: &ServeOptions,
        before: Option<&Self>,
    ) -> Self {
        let mut catalog = Self::default();
        for (name, numbers) in log_dir.topics() {
            if NEVER.contains(&name.as_str())
                || !(options.topics.is_empty() || options.topics.contains(&name))
            {
                continue;
            }
            let mut directories: BTreeMap<i32, Vec<PathBuf>> = BTreeMap::new();
            for (number, path) in log_dir.directories(&name) {
                directories.entry(number).or_default().push(path);
            }
            let known = before.and_then(|before| before.topics.get(&name));
            let reader = Reader {
                log_dir,
                surroundings,
                options,
                known: known.map(Arc::as_ref),
                begins_elsewhere: OnceCell::new(),
            };
            match reader.topic(&name, directories, &numbers) {
                Ok(topic) => {
                    if !topic.id.is_zero() {
                        catalog.by_id.insert(topic.id.to_bytes(), name.clone());
                    }
                    catalog.topics.insert(name, Arc::new(topic));
                }
                Err(reason) => catalog.left_out.push(format!("{name}: {reason}")),
            }
        }
        catalog
    }

    pub(crate) fn topic(&self, name: &str) -> Option<&Arc<Topic>> {
        self.topics.get(name)
    }

    pub(crate) fn topic_of_id(&self, id: Uuid) -> Option<&Arc<Topic>> {
        self.topics.get(self.by_id.get(&id.to_bytes())?)
    }

    /// The partitions that are served.
    /// What clients cannot see: that the log dirs' checkpoints are beyond the ends of these logs.
    pub(super) fn beyond_ends(&self) -> Vec<String> {
        let mut told = Vec::new();
        for partition in self.partitions() {
            let name = format!("{}-{}", partition.topic, partition.number);
            if let Ok(Some(lost)) = partition.log.lost_end() {
                told.push(format!("{name}: {lost}"));
            }
            // To clients it is empty, as it would be on a broker, which deletes what is hidden.
            if let Err(error) = partition.log.batches(None, None)
                && matches!(error.kind(), ErrorKind::LogDir { .. })
            {
                told.push(format!("{name} is served without records: {error}"));
            }
        }
        told
    }

    pub(crate) fn partitions(&self) -> impl Iterator<Item = &Arc<Partition>> {
        self.topics
            .values()
            .flat_map(|topic| topic.slots.values())
            .filter_map(Slot::partition)
    }

    /// Whether both have the same partitions in the same directories, and the same reasons for what is not served.
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        let is_same = |one: &Slot, other: &Slot| {
            one.serves_as(other) && one.marks() == other.marks() && one.reason() == other.reason()
        };
        self.left_out == other.left_out && self.agrees(other, is_same)
    }

    /// Whether clients are served the same.
    pub(crate) fn serves_as(&self, other: &Self) -> bool {
        self.agrees(other, Slot::serves_as)
    }

    fn agrees(&self, other: &Self, is_same: impl Fn(&Slot, &Slot) -> bool) -> bool {
        self.topics.len() == other.topics.len()
            && self
                .topics
                .values()
                .zip(other.topics.values())
                .all(|(one, other)| one.agrees(other, &is_same))
    }
}

impl Topic {
    fn agrees(&self, other: &Self, is_same: impl Fn(&Slot, &Slot) -> bool) -> bool {
        self.name == other.name
            && self.id == other.id
            && self.slots.len() == other.slots.len()
            && self
                .slots
                .iter()
                .zip(&other.slots)
                .all(|((number, one), (other_number, other))| {
                    number == other_number && is_same(one, other)
                })
    }
}

struct Reader<'r> {
    log_dir: &'r LogDir,
    surroundings: &'r Surroundings,
    options: &'r ServeOptions,
    known: Option<&'r Topic>,
    begins_elsewhere: OnceCell<bool>,
}

impl Reader<'_> {
    fn topic(
        &self,
        name: &str,
        mut directories: BTreeMap<i32, Vec<PathBuf>>,
        numbers: &[i32],
    ) -> std::result::Result<Topic, String> {
        let registered = self.surroundings.topics.get(name);
        let mut slots = BTreeMap::new();
        let mut ids = BTreeSet::new();
        let mut is_kept = false;
        for number in numbers {
            let paths = directories.remove(number).unwrap_or_default();
            let disk = self.log_dir.options().disk.as_ref();
            let marks: Vec<Mark> = paths.iter().map(|path| Mark::of(disk, path)).collect();
            let known = self.known.and_then(|known| known.slots.get(number));
            let kept = known.and_then(|known| known.kept(&marks));
            is_kept |= kept.is_some();
            let slot = kept.unwrap_or_else(|| self.slot(name, *number, &paths, marks, registered));
            if let Some(partition) = slot.partition() {
                partition.raise_epoch(self.surroundings.epoch_floor(name, *number));
            }
            // Clients drop what they know only for a topic with another id.
            if let Some((known, now)) = known.and_then(Slot::partition).zip(slot.partition())
                && known.topic_id == now.topic_id
            {
                now.raise_epoch(known.told_epoch());
            }
            ids.extend(slot.topic_id());
            slots.insert(*number, slot);
        }
        let wanted = registered.map(|topic| topic.topic_id.to_bytes());
        // A partition that stays belongs to the topic that clients know, whatever the metadata says of its name by now.
        let known = self.known.filter(|known| is_kept && !known.id.is_zero());
        let id = match known
            .map(|known| known.id.to_bytes())
            .or(wanted.filter(|wanted| ids.contains(wanted)))
        {
            Some(wanted) => wanted,
            None if ids.len() > 1 => {
                return Err(
                    "its directories are of several topics of this name, by the ids in partition.metadata: give those of one"
                        .to_owned(),
                );
            }
            None => ids
                .pop_first()
                .or(wanted)
                .unwrap_or_else(|| Uuid::ZERO.to_bytes()),
        };
        for slot in slots.values_mut() {
            if slot.topic_id().is_some_and(|own| own != id) {
                *slot = Slot::Missing;
            }
        }
        let last = numbers.last().copied().unwrap_or(-1);
        let last = registered
            .and_then(|topic| topic.partitions.keys().next_back())
            .map_or(last, |registered| last.max(*registered));
        for number in 0..=last.min(MISSING_MAX) {
            slots.entry(number).or_insert(Slot::Missing);
        }
        Ok(Topic {
            name: name.to_owned(),
            id: Uuid::from_bytes(id),
            is_internal: is_internal_topic(name),
            slots,
        })
    }

    fn slot(
        &self,
        name: &str,
        number: i32,
        paths: &[PathBuf],
        marks: Vec<Mark>,
        registered: Option<&TopicImage>,
    ) -> Slot {
        match self.open(name, number, paths, registered) {
            Ok((log, others)) => Slot::Here {
                partition: Arc::new(Partition::new(
                    log,
                    self.options.until == Until::HighWatermark,
                    self.begins_elsewhere(name),
                    self.surroundings.epoch_floor(name, number),
                )),
                marks,
                others,
            },
            Err(error) => {
                let reason = error.to_string();
                // Each listing retries; only a new reason is reported.
                let known = self.known.and_then(|known| known.slots.get(&number));
                if known.and_then(Slot::reason) != Some(reason.as_str()) {
                    self.options.tell(&Event::Offline {
                        topic: name.to_owned(),
                        partition: number,
                        reason: reason.clone(),
                    });
                }
                Slot::Unreadable {
                    path: paths.first().cloned().unwrap_or_default(),
                    reason,
                    marks,
                }
            }
        }
    }

    /// Whether a log that begins below its first segment has more elsewhere. Without remote storage a broker that had just deleted segments
    /// leaves a log so, and begins at the first one that is left.
    fn begins_elsewhere(&self, name: &str) -> bool {
        let Some(cluster) = &self.surroundings.settings else {
            return true;
        };
        *self.begins_elsewhere.get_or_init(|| {
            let settings = self.log_dir.topic_settings_from(name, cluster);
            settings.map_or(true, |settings| {
                settings.metadata_timestamp.is_none()
                    || settings.config.config().remote_storage_enable()
            })
        })
    }

    /// Opens the best of these replicas.
    fn open(
        &self,
        name: &str,
        number: i32,
        paths: &[PathBuf],
        registered: Option<&TopicImage>,
    ) -> Result<(Log, Vec<(PathBuf, String)>)> {
        if let [_] = paths {
            return Ok((self.log_dir.log(name, number)?, Vec::new()));
        }
        let options = self.log_dir.options();
        // A directory of an earlier topic of this name is no replica.
        let wanted = registered.map(|topic| topic.topic_id);
        let mut own: Vec<&PathBuf> = paths.iter().collect();
        let mut foreign = Vec::new();
        if let Some(wanted) = wanted {
            let ids = paths.iter();
            let ids = ids.map(|path| told(Log::open(path, options).and_then(|log| log.topic_id())));
            let ids: Vec<Result<Option<Uuid>>> = ids.collect::<Result<_>>()?;
            if ids
                .iter()
                .any(|id| matches!(id, Ok(Some(id)) if *id == wanted))
            {
                own.clear();
                for (path, id) in paths.iter().zip(ids) {
                    match id {
                        Ok(Some(id)) if id == wanted => own.push(path),
                        Ok(_) => foreign.push((path, "is of an earlier topic of this name".to_owned())),
                        Err(error) => foreign.push((
                            path,
                            format!("may be of an earlier topic of this name: its id cannot be read: {error}"),
                        )),
                    }
                }
            }
        }
        let (chosen, mut failures) = choose_replica(&own, options)?;
        let Some(chosen) = chosen else {
            return Err(failures.pop().map_or_else(
                || Error::log_dir(Path::new(name), "no directory of it is among the log dirs"),
                |failed| failed.error,
            ));
        };
        let (log, mut others) = readable_furthest(chosen, options)?;
        let foreign = foreign.into_iter();
        others.extend(foreign.map(|(path, why)| (path.clone(), why)));
        let failures = failures.into_iter();
        others.extend(failures.map(|failed| (failed.path, failed.error.to_string())));
        Ok((log, others))
    }
}

/// What was read, or why it could not be; an error that says nothing of the file is one of the partition: another replica would be taken.
fn told<T>(read: Result<T>) -> Result<Result<T>> {
    match read {
        Err(error) if error.is_of_process() => Err(error),
        read => Ok(read),
    }
}

/// Of the best replica and the others of its leader epoch, chooses the one that can be read furthest: salvage reads past damage, a server
/// does not. A replica of an earlier epoch may have records that a later leader never had, unless the best one had that epoch where the other
/// one ends: an epoch has one batch at an offset.
fn readable_furthest(
    chosen: ChosenReplica,
    options: &OpenOptions,
) -> Result<(Log, Vec<(PathBuf, String)>)> {
    let ChosenReplica {
        best,
        mut others,
        other_logs,
    } = chosen;
    // An error of its files is reported where the partition is served.
    let damage = told(best.log.extent())?;
    let damage = damage.ok().filter(|extent| extent.is_damaged);
    let Some(damage) = damage else {
        return Ok((best.log, others));
    };
    let history = told(best.log.leader_epochs())?.unwrap_or_default();
    let mut furthest = None;
    let mut end = damage.log_end_offset;
    for (slot, log) in other_logs.iter().enumerate() {
        let Ok(extent) = told(log.extent())? else {
            continue;
        };
        if extent.log_end_offset <= end {
            continue;
        }
        let (alone, _) = choose_replica(&[log.path()], options)?;
        // The last epoch that is known says nothing of what lies behind its beginning, unless there is no later one.
        let is_whole = history.latest().is_some_and(|last| {
            last.start_offset >= extent.log_end_offset || last.epoch == best.leader_epoch
        });
        let known = history.epoch_of(extent.log_end_offset - 1);
        let known = known.filter(|_| is_whole);
        if alone.is_some_and(|alone| {
            let epoch = alone.best.leader_epoch;
            epoch == best.leader_epoch || known == Some(epoch)
        }) {
            (furthest, end) = (Some(slot), extent.log_end_offset);
        }
    }
    let Some((slot, log)) =
        furthest.zip(furthest.and_then(|slot| other_logs.into_iter().nth(slot)))
    else {
        return Ok((best.log, others));
    };
    let why = format!(
        "ends at offset {}, but damage at offset {} hides what follows",
        best.end, damage.log_end_offset
    );
    if let Some(other) = others.get_mut(slot) {
        *other = (best.path, why);
    }
    Ok((log, others))
}
