//! Chooses among the replicas of a partition that several log dirs have: the one of the newest leader epoch is read, of those the one that can
//! be read furthest, and of equals the one that lacks the fewest offsets between its segments.
//!
//! As Kafka does when a replica comes back: what it has of an older epoch, behind what the newer leader had, is truncated.

use super::{LogDir, TopicPartition};
use crate::disk::FileStat;
use crate::error::{Error, Result};
use crate::log::{Log, OnCorrupt, ScanOptions, id_in, open_in, other_topic};
use offsetlog_format::Uuid;
use offsetlog_format::internal_topic::METADATA_TOPIC;
use offsetlog_format::name::LEADER_EPOCH_CHECKPOINT;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard, PoisonError};

/// The files of each replica: its directory, and name and stat of each file.
type Marks = Vec<(PathBuf, Vec<(String, FileStat)>)>;

/// The replica that was chosen.
#[derive(Debug)]
struct Chosen {
    path: PathBuf,
    /// The files of all replicas before they were read; `None` if one could not be looked at.
    marks: Option<Marks>,
    /// How often choices had been doubted before the files were looked at.
    doubts: u64,
    /// That another replica of the same leader epoch ends further, behind damage.
    outreached: Option<String>,
}

/// The replicas that were chosen.
#[derive(Debug, Default)]
pub(super) struct AllChosen {
    choices: BTreeMap<TopicPartition, Chosen>,
    /// How often the log dirs were listed again: a choice from before holds only if no file has changed.
    doubts: u64,
}

impl AllChosen {
    /// The replica that holds without a look.
    fn of_now(&self, wanted: &TopicPartition, paths: &[PathBuf]) -> Option<PathBuf> {
        let known = self.choices.get(wanted)?;
        (known.doubts == self.doubts && paths.contains(&known.path)).then(|| known.path.clone())
    }

    /// The replica that holds because no file has changed; `doubts` is from before the files were looked at.
    fn unchanged(
        &mut self,
        wanted: &TopicPartition,
        marks: Option<&Marks>,
        doubts: u64,
    ) -> Option<PathBuf> {
        let known = self.choices.get_mut(wanted)?;
        if marks.is_none() || known.marks.as_ref() != marks {
            return None;
        }
        known.doubts = known.doubts.max(doubts);
        Some(known.path.clone())
    }
}

impl LogDir {
    /// Has the next opening of each partition with several replicas choose again, if one of them has changed.
    pub(super) fn doubt_choices(&self) {
        self.all_chosen().doubts += 1;
    }

    /// How often choices have been doubted.
    pub(super) fn doubts(&self) -> u64 {
        self.all_chosen().doubts
    }

    /// Opens the newest valid one of several replicas. `doubts` is from before they were listed.
    pub(super) fn log_of_replicas(
        &self,
        wanted: TopicPartition,
        paths: &[PathBuf],
        doubts: u64,
    ) -> Result<Log> {
        let known = self.all_chosen().of_now(&wanted, paths);
        if let Some(path) = known {
            return self.open_one(&path);
        }
        // What changes while they are read has them read again, and so does a doubt that comes meanwhile.
        let marks = self.marks(paths);
        let known = self.all_chosen().unchanged(&wanted, marks.as_ref(), doubts);
        if let Some(path) = known {
            return self.open_one(&path);
        }
        // Nobody waits for this but those who ask for this partition too, and read it themselves.
        let own = self.of_one_topic(&wanted, paths)?;
        let Newest {
            log,
            failures,
            longer,
            fuller,
        } = self.newest(&own)?;
        let told = warnings_of(&wanted, log.path(), &failures, &longer);
        let told = told.chain(fuller.iter().map(|each| each.told(&wanted, log.path())));
        self.warn_of(told.collect());
        let choice = Chosen {
            path: log.path().to_path_buf(),
            // One that cannot be read is perhaps the newest, and may be readable the next time without a change of its files. One that was
            // left out may be the topic's by newer metadata.
            marks: marks.filter(|_| failures.is_empty() && own.len() == paths.len()),
            doubts,
            outreached: longer
                .iter()
                .find(|each| each.reach.leader_epoch == each.newest.leader_epoch)
                .map(|each| each.told(&wanted, log.path())),
        };
        self.all_chosen().choices.insert(wanted, choice);
        Ok(log)
    }

    /// That another replica of a partition ends further than the one that is read, behind damage and in the same leader epoch: its last
    /// records count, and cannot be told. Known once the partition was opened.
    #[must_use]
    pub fn outreached(&self, wanted: &TopicPartition) -> Option<String> {
        self.all_chosen().choices.get(wanted)?.outreached.clone()
    }

    fn all_chosen(&self) -> MutexGuard<'_, AllChosen> {
        self.0.chosen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn marks(&self, paths: &[PathBuf]) -> Option<Marks> {
        let disk = self.0.options.disk.as_ref();
        let mut marks = Marks::new();
        for path in paths {
            let mut files = Vec::new();
            for entry in disk.list(path).ok()? {
                if !decides(&entry.name) {
                    continue;
                }
                let stat = disk.stat(&path.join(&entry.name)).ok()?;
                // Its next change may leave it as it looks now.
                if stat.is_racy() {
                    return None;
                }
                files.push((entry.name, stat));
            }
            files.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
            marks.push((path.clone(), files));
        }
        Some(marks)
    }

    pub(super) fn open_one(&self, path: &Path) -> Result<Log> {
        let shared = self.0.shared_with(path);
        open_in(
            path.to_path_buf(),
            &Arc::new(self.0.options.clone()),
            shared.map(|shared| shared.checkpoints()),
            None,
        )
    }

    fn warn_of(&self, told: Vec<String>) {
        if told.is_empty() {
            return;
        }
        let mut listing = self.0.listing_mut();
        for warning in told {
            if !listing.warnings.contains(&warning) {
                listing.warnings.push(warning);
            }
        }
    }

    /// The newest one that can be opened, and why others cannot.
    fn newest(&self, paths: &[PathBuf]) -> Result<Newest> {
        let mut all = Vec::new();
        let mut failures = Vec::new();
        for path in paths {
            match self.open_one(path).and_then(Replica::of) {
                Ok(replica) => all.push(replica),
                Err(error) if error.is_of_process() => return Err(error),
                Err(error) => failures.push((path.clone(), error)),
            }
        }
        // Of equals the first.
        all.sort_by_key(|replica| Reverse(replica.reach));
        Log::put_most_whole_first(&mut all, |each| each.reach, |each| &each.log)?;
        let mut all = all.into_iter();
        let Some(best) = all.next() else {
            let first = failures.into_iter().next().map(|(_, error)| error);
            return Err(first.unwrap_or_else(|| Error::argument("paths", "none found")));
        };
        let gaps = match best.log.gaps_before_segments() {
            Err(error) if error.is_of_process() => return Err(error),
            gaps => gaps.unwrap_or_default(),
        };
        // Compaction leaves such gaps up to where it came.
        let cleaned = best.log.cleaner_offset().ok().flatten();
        let gaps: Vec<i64> = gaps
            .into_iter()
            .filter(|base_offset| cleaned.is_none_or(|cleaned| cleaned < *base_offset))
            .collect();
        let (mut longer, mut fuller) = (Vec::new(), Vec::new());
        for other in all {
            fuller.extend(Fuller::of(&best, &gaps, &other)?);
            if other.reach.offset > best.reach.offset {
                longer.push(Longer {
                    path: other.log.path().to_path_buf(),
                    reach: other.reach,
                    newest: best.reach,
                });
            }
        }
        Ok(Newest {
            log: best.log,
            failures,
            longer,
            fuller,
        })
    }

    /// Returns the directories of one topic: a topic that was deleted and created again has another id. If several ids are found, that is
    /// the topic of the cluster's metadata, if it is at hand. Warns of what is left out.
    fn of_one_topic(&self, wanted: &TopicPartition, paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
        let disk = self.0.options.disk.as_ref();
        let mut places = Vec::new();
        for path in paths {
            places.push((path, id_in(disk, path)?));
        }
        let mut known = places
            .iter()
            .filter_map(|(path, id)| Some((path.as_path(), (*id)?)));
        let Some(first) = known.next() else {
            return Ok(paths.to_vec());
        };
        let Some(other) = known.find(|(_, id)| *id != first.1) else {
            return Ok(paths.to_vec());
        };
        let registered = self.registered_id(&wanted.topic)?;
        let is_found = |id: &Uuid| places.iter().any(|(_, found)| *found == Some(*id));
        let Some(registered) = registered.filter(is_found) else {
            return Err(other_topic(other, first));
        };
        let mut kept = Vec::new();
        let mut listing = self.0.listing_mut();
        for (path, id) in &places {
            if *id == Some(registered) {
                kept.push((*path).clone());
                continue;
            }
            let warning = format!(
                "{wanted}: {} is left out: the cluster's metadata has the topic with the id {registered}, and this directory {}",
                path.display(),
                id.map_or_else(|| "has none".to_owned(), |id| format!("has {id}")),
            );
            if !listing.warnings.contains(&warning) {
                listing.warnings.push(warning);
            }
        }
        Ok(kept)
    }

    /// The id of a topic in the cluster's metadata, if that is at hand and can be read.
    fn registered_id(&self, topic: &str) -> Result<Option<Uuid>> {
        // It is not registered itself.
        if topic == METADATA_TOPIC {
            return Ok(None);
        }
        let image = match self.metadata() {
            Err(error) if error.is_of_process() => return Err(error),
            image => image.ok().flatten(),
        };
        let topics = image.map(|image| image.topics).unwrap_or_default();
        let known = topics.into_iter().find(|each| each.name == topic);
        Ok(known.map(|topic| topic.topic_id))
    }
}

/// Whether the file decides how much of the log can be read, or how new it is.
fn decides(name: &str) -> bool {
    name == LEADER_EPOCH_CHECKPOINT
        || Path::new(name)
            .extension()
            .is_some_and(|extension| extension == "log")
}

/// The newest replica.
struct Newest {
    log: Log,
    /// Why others cannot be opened.
    failures: Vec<(PathBuf, Error)>,
    longer: Vec<Longer>,
    fuller: Vec<Fuller>,
}

/// A replica that can be opened.
struct Replica {
    log: Log,
    reach: Reach,
    start: i64,
    lacks_before: i64,
}

impl Replica {
    fn of(log: Log) -> Result<Self> {
        Ok(Self {
            reach: reach(&log)?,
            start: log.log_start_offset()?,
            lacks_before: log.lacks_before()?,
            log,
        })
    }
}

/// A replica that ends behind the one that is read.
struct Longer {
    path: PathBuf,
    reach: Reach,
    newest: Reach,
}

impl Longer {
    fn told(&self, wanted: &TopicPartition, taken: &Path) -> String {
        let Self {
            path,
            reach,
            newest,
        } = self;
        let why = if reach.leader_epoch == newest.leader_epoch {
            "the first is damaged, and what it has behind that is not read"
        } else {
            "a broker would cut off what the first has more"
        };
        format!(
            "{wanted}: the replica in {} ends at offset {} in leader epoch {}; {} is read, which ends at {} in epoch {}: {why}",
            path.display(),
            reach.offset,
            reach.leader_epoch,
            taken.display(),
            newest.offset,
            newest.leader_epoch
        )
    }
}

/// A replica that has records where segments of the one that is read are missing.
struct Fuller {
    path: PathBuf,
    more: More,
}

enum More {
    /// Its log start offset, and that of the one that is read.
    Begins(i64, i64),
    /// It has the offset before this segment of the one that is read.
    HasBefore(i64),
}

impl Fuller {
    /// `gaps` are the segments of the best one before which offsets are missing.
    fn of(best: &Replica, gaps: &[i64], other: &Replica) -> Result<Vec<Self>> {
        let mut more = Vec::new();
        // A log start offset that was moved on purpose is no loss.
        if other.lacks_before < best.lacks_before && other.start < best.start {
            more.push(More::Begins(other.start, best.start));
        }
        for base_offset in gaps {
            if other.log.has_batch_at(base_offset - 1)? == Some(true) {
                more.push(More::HasBefore(*base_offset));
                break;
            }
        }
        let path = other.log.path();
        let more = more.into_iter().map(|more| Self {
            path: path.to_path_buf(),
            more,
        });
        Ok(more.collect())
    }

    fn told(&self, wanted: &TopicPartition, taken: &Path) -> String {
        let (path, taken) = (self.path.display(), taken.display());
        match self.more {
            More::Begins(start, own) => format!(
                "{wanted}: the replica in {path} begins at offset {start}; {taken} is read, which begins at {own}: retention has come further \
                 there, or a segment is lost"
            ),
            More::HasBefore(base_offset) => format!(
                "{wanted}: the replica in {path} has offset {}; {taken} is read, where it is missing before segment {base_offset:020}: it is \
                 lost there, unless compaction removed it",
                base_offset - 1
            ),
        }
    }
}

fn warnings_of(
    wanted: &TopicPartition,
    taken: &Path,
    failures: &[(PathBuf, Error)],
    longer: &[Longer],
) -> impl Iterator<Item = String> {
    let failures = failures.iter().map(move |(path, error)| {
        format!(
            "{wanted}: the replica in {} is left out, which cannot be read and perhaps is the newest: {error}; {} is read",
            path.display(),
            taken.display()
        )
    });
    let longer = longer.iter().map(move |each| each.told(wanted, taken));
    failures.chain(longer)
}

/// How new a replica is by the batches that it has, also behind damage, and by the leader epochs that it knows; of those of one leader epoch
/// the longest sound one. Ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Reach {
    /// The newest one; -1 if it has none.
    leader_epoch: i32,
    /// Exclusive end of the offsets before the first damage.
    sound: i64,
    /// Exclusive end.
    offset: i64,
}

fn reach(log: &Log) -> Result<Reach> {
    let options = ScanOptions {
        control_records: true,
        on_corrupt: OnCorrupt::Skip,
        ..ScanOptions::default()
    };
    let mut scan = log.scan(&options)?;
    let report = scan.report();
    let start = log.log_start_offset()?;
    let mut reach = Reach {
        leader_epoch: -1,
        sound: start,
        offset: start,
    };
    loop {
        let (leader_epoch, offset) = match scan.next_batch() {
            Ok(Some(batch)) => {
                let header = batch.header();
                (header.leader_epoch, header.last_offset.saturating_add(1))
            }
            Ok(None) => break,
            Err(error) if error.is_corruption() => break,
            Err(error) => return Err(error),
        };
        let sound = if report.hole_count() == 0 {
            offset
        } else {
            reach.sound
        };
        reach = Reach {
            leader_epoch,
            sound,
            offset,
        };
    }
    reach.leader_epoch = reach.leader_epoch.max(stored_epoch(log, reach.offset)?);
    if reach.leader_epoch < 0 && report.hole_count() == 0 {
        // A snapshot of the metadata may have replaced all batches.
        reach.leader_epoch = log.snapshot_epoch()?.unwrap_or(-1);
    }
    Ok(reach)
}

/// The newest leader epoch that a log knows apart from its batches: of a leader that has no record yet, or whose records retention removed;
/// -1 if it knows none.
fn stored_epoch(log: &Log, readable: i64) -> Result<i32> {
    let end = match log.log_end_offset() {
        // The batches of any of its epochs may be hidden too.
        Err(error) if error.is_corruption() => i64::MAX,
        end => end?.max(readable),
    };
    match log.checkpointed_epoch(end) {
        Err(error) if error.is_corruption() => Ok(-1),
        stored => Ok(stored?.unwrap_or(-1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A choice that was begun before the log dirs were listed again is not current, whichever ends first.
    #[test]
    fn a_doubt_that_comes_while_replicas_are_read_stays() {
        let wanted = || TopicPartition {
            topic: "t".to_owned(),
            partition: 0,
        };
        let paths = [PathBuf::from("a/t-0"), PathBuf::from("b/t-0")];
        let marks = || Some(vec![(PathBuf::from("a/t-0"), Vec::new())]);
        let mut chosen = AllChosen::default();
        let choice = |doubts| Chosen {
            path: PathBuf::from("a/t-0"),
            marks: marks(),
            doubts,
            outreached: None,
        };
        let before = chosen.doubts;
        chosen.doubts += 1;
        chosen.choices.insert(wanted(), choice(before));
        assert_eq!(chosen.of_now(&wanted(), &paths), None);
        // So with one that was found unchanged by a look from before.
        let looked = marks();
        assert!(
            chosen
                .unchanged(&wanted(), looked.as_ref(), before)
                .is_some()
        );
        assert_eq!(chosen.of_now(&wanted(), &paths), None);
        let now = chosen.doubts;
        assert!(chosen.unchanged(&wanted(), looked.as_ref(), now).is_some());
        assert!(chosen.of_now(&wanted(), &paths).is_some());
        assert_eq!(chosen.unchanged(&wanted(), None, now), None);
    }
}
