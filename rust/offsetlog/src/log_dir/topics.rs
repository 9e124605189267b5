//! Creates and deletes topics.
//!
//! Source: Kafka's `LogManager` (placement, deletion) and `ReplicationControlManager` (names).

use super::writer::{PendingDelete, guard};
use super::{LogDir, TopicPartition};
use crate::config::LogConfig;
use crate::disk::{Access, Disk, EntryKind, IoCall, Lock, read_whole};
use crate::error::{Error, Result};
use crate::folder::is_there;
use crate::log::{MIRROR_NOTE, check_internal, lock_idle, lock_partition, refuse_mirrored};
use offsetlog_format::Uuid;
use offsetlog_format::name::{
    DIRECTORY_MAXIMUM_CHARACTERS, DirectoryName, check_topic, directory_name, topics_collide,
};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// In a directory that waits for deletion: the due time in ms since 1970, so that the next program need not start the delay
/// again.
pub(crate) const DUE_FILE: &str = ".offsetlog.delete";

/// Maximum depth of directories inside a partition directory that is deleted. Those that offsetlog makes are one level deep.
pub(crate) const DEPTH_MAX: usize = 8;

/// A partition whose directory was renamed, its earlier path, and the lock that keeps others out.
type Renamed = (TopicPartition, PathBuf, Lock);

/// A topic to create.
#[derive(Debug, Clone)]
pub struct NewTopic<'t> {
    /// Its name: letters, digits, `.`, `_` and `-`, at most 249.
    pub name: &'t str,
    /// Number of partitions.
    pub partitions: i32,
    /// Its settings. The log dir's defaults apply to the rest.
    pub config: LogConfig,
    /// Its id; `None` for a random one.
    pub topic_id: Option<Uuid>,
}

impl LogDir {
    /// Creates a topic and returns its id. Puts each partition into the log dir with the fewest partitions. The topic is
    /// durable when this returns. Each partition appears whole. After a crash on the way, some may exist; after an error those that
    /// another program has opened meanwhile, or that could not be taken back.
    ///
    /// # Errors
    /// `Argument` for an invalid name or number, or contradictory settings; `LogDir` if the topic exists, or, as in Kafka, one
    /// that differs only in `.` and `_`; `Cluster` in a log dir that a mirror fills; `Io`.
    pub fn create_topic(&self, topic: &NewTopic<'_>) -> Result<Uuid> {
        let writer = self.writer()?;
        let _alone = guard(&writer.topics);
        self.check_fills("create a topic")?;
        self.check_not_away()?;
        check_topic(topic.name).map_err(|error| {
            Error::argument("name", format!("{:?}: {}", topic.name, error.fault))
        })?;
        if topic.partitions < 1 {
            let found = topic.partitions;
            return Err(Error::argument(
                "partitions",
                format!("{found} found, 1 or more expected"),
            ));
        }
        topic.config.or_defaults(&writer.options.defaults)?;
        if topic.topic_id.is_some_and(Uuid::is_zero) {
            return Err(Error::argument("topic_id", "the id of no topic is zero"));
        }
        self.check_free(topic.name)?;
        let topic_id = topic
            .topic_id
            .unwrap_or_else(|| guard(&writer.router).topic_id());
        // Checked before the checkpoints change: a topic that another program just created keeps its lines.
        self.check_absent(topic)?;
        let places = self.places(topic.partitions);
        for (partition, parent) in (0..).zip(&places) {
            // Lines left from an earlier topic of this name would be taken for this one's.
            if let Some(shared) = self
                .0
                .shared
                .iter()
                .find(|shared| shared.log_dir() == parent)
            {
                shared.forget(topic.name, partition, None)?;
            }
        }
        let numbers: Vec<i32> = (0..topic.partitions).collect();
        self.write_lines_of(topic.name, &numbers)?;
        // Two processes may create the same topic.
        let _locks = self.share_all()?;
        self.check_absent(topic)?;
        // Partition 0 is the last to get its name: without it, others see that the topic is not complete.
        let partitions = (0..topic.partitions).map(|partition| TopicPartition {
            topic: topic.name.to_owned(),
            partition,
        });
        let places: Vec<_> = partitions.zip(places).rev().collect();
        let made = self.make_partitions(&places, &topic.config, Some(topic_id))?;
        {
            let mut listing = self.0.listing_mut();
            // Another one of the name may have been the cluster's.
            guard(&self.0.registered).forget(topic.name);
            listing.add_new(made);
        }
        guard(&writer.router).forget(topic.name);
        Ok(topic_id)
    }

    fn check_free(&self, name: &str) -> Result<()> {
        let listing = self.0.listing();
        let other = listing
            .partitions
            .keys()
            .find(|partition| topics_collide(&partition.topic, name));
        let Some(other) = other else { return Ok(()) };
        let reason = if other.topic == name {
            format!("topic {name:?} is there already")
        } else {
            format!(
                "topic {name:?} differs from {:?} in '.' and '_' only, which Kafka does not allow",
                other.topic
            )
        };
        let path = self.0.paths.first().map_or(Path::new(""), PathBuf::as_path);
        Err(Error::log_dir(path, reason))
    }

    /// Locks all log dirs, always in the same order.
    pub(super) fn share_all(&self) -> Result<Vec<Lock>> {
        let mut shared: Vec<_> = self.0.shared.iter().collect();
        shared.sort_by_key(|shared| shared.log_dir());
        shared.into_iter().map(|shared| shared.share()).collect()
    }

    /// Fails if another process has created a partition of this topic since the log dirs were opened.
    fn check_absent(&self, topic: &NewTopic<'_>) -> Result<()> {
        (0..topic.partitions)
            .try_for_each(|partition| self.check_partition_absent(topic.name, partition))
    }

    pub(super) fn check_partition_absent(&self, topic: &str, partition: i32) -> Result<()> {
        let name = directory_name(topic, partition)
            .map_err(|error| Error::argument("name", error.fault.to_string()))?;
        for parent in &self.0.paths {
            let path = parent.join(&name);
            match self.disk().stat(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(Error::io(IoCall::Stat, &path, error)),
                Ok(_) => {
                    // `list` fails for what is no directory.
                    let reason = if self.disk().list(&path).is_err() {
                        format!(
                            "partition {partition} of topic {topic:?} cannot be made: what stands there is no directory that can be read"
                        )
                    } else {
                        format!(
                            "topic {topic:?} is there already, made by another program since this one opened the log dir"
                        )
                    };
                    return Err(Error::log_dir(&path, reason));
                }
            }
        }
        Ok(())
    }

    /// A log dir for each of the new partitions: always one with the fewest partitions, the first of equals.
    pub(super) fn places(&self, partitions: i32) -> Vec<PathBuf> {
        let mut counts: Vec<(usize, &PathBuf)> =
            self.0.paths.iter().map(|path| (0, path)).collect();
        let listing = self.0.listing();
        let mut by_parent: HashMap<&Path, usize> = HashMap::new();
        for path in listing.partitions.values().flatten() {
            if let Some(parent) = path.parent() {
                *by_parent.entry(parent).or_default() += 1;
            }
        }
        for (count, path) in &mut counts {
            *count = by_parent.get(path.as_path()).copied().unwrap_or(0);
        }
        let mut places = Vec::new();
        for _ in 0..partitions {
            if let Some((count, path)) = counts.iter_mut().min_by_key(|(count, _)| *count) {
                *count += 1;
                places.push(path.clone());
            }
        }
        places
    }

    pub(super) fn sync_parents(&self, parents: &[PathBuf]) -> Result<()> {
        let mut parents: Vec<&PathBuf> = parents.iter().collect();
        parents.sort_unstable();
        parents.dedup();
        for parent in parents {
            self.disk()
                .sync_directory(parent)
                .map_err(|error| Error::io(IoCall::SyncDirectory, parent, error))?;
        }
        Ok(())
    }

    /// Deletes a topic as a broker does: renames its directories at once; [`maintain`](Self::maintain) removes them after the
    /// log dir's `file.delete.delay.ms`.
    ///
    /// # Errors
    /// `LogDir` if there is no such topic, or if two of the log dirs have the same partition of it; `Cluster` for an internal topic that the
    /// options do not name; `Locked` if another process writes one of its partitions (nothing is changed by these); `Io` (some of the partitions may be gone by then).
    pub fn delete_topic(&self, topic: &str) -> Result<()> {
        let writer = self.writer()?;
        let _alone = guard(&writer.topics);
        // Another process may have made the topic anew, with more partitions.
        self.list_again(topic)?;
        let numbers: Vec<i32> = self.0.listing().numbers(topic).collect();
        if numbers.is_empty() {
            return Err(self.unknown(topic, 0));
        }
        self.check_named(topic, "delete")?;
        let partitions = numbers.into_iter().map(|partition| TopicPartition {
            topic: topic.to_owned(),
            partition,
        });
        let partitions: Vec<TopicPartition> = partitions.collect();
        // One that stands in two places is refused before any log is closed.
        self.directories_of(topic)?;
        // Appended records no longer need to be durable, but writing must have ended.
        let (held, parents) = writer
            .logs
            .take_away(&partitions, || self.rename_all(&partitions))?;
        guard(&writer.router).forget(topic);
        self.sync_parents(&parents)?;
        for (partition, path, lock) in held {
            if let Some(shared) = self.0.shared_with(&path) {
                shared.forget(&partition.topic, partition.partition, None)?;
            }
            lock.release();
        }
        // The topic's name can be used again. Lines that find no room stay until a topic is made under the name: on a full disk the
        // deletion is what makes room.
        let numbers: Vec<i32> = partitions.iter().map(|of| of.partition).collect();
        match self.write_lines_of(topic, &numbers) {
            Err(error) if error.is_out_of_room() => Ok(()),
            written => written,
        }
    }

    /// Renames the directories of a topic for deletion. Returns their locks and their parent directories.
    fn rename_all(&self, partitions: &[TopicPartition]) -> Result<(Vec<Renamed>, Vec<PathBuf>)> {
        let writer = self.writer()?;
        let mut held = Vec::new();
        for partition in partitions {
            let Some(path) = self.path_of(partition)? else {
                continue;
            };
            let lock = lock_partition(self.disk(), &path)?;
            held.push((partition.clone(), path, lock));
        }
        let due = self
            .0
            .now()
            .saturating_add(writer.options.defaults.file_delete_delay_ms());
        let mut parents = Vec::new();
        for (partition, path, _) in &held {
            let parent = path.parent().unwrap_or(Path::new(""));
            let target = self.delete_target(path, partition)?;
            self.disk()
                .rename(path, &target)
                .map_err(|error| Error::io(IoCall::Rename, path, error))?;
            self.0.listing_mut().partitions.remove(partition);
            // If this fails, the directory waits longer.
            let _ = note_due(self.disk(), &target, due);
            guard(&writer.pending_deletes).push(PendingDelete { path: target, due });
            parents.push(parent.to_path_buf());
        }
        Ok((held, parents))
    }

    /// Checks whether [`delete_topic`](Self::delete_topic) would fail. Changes nothing.
    ///
    /// # Errors
    /// Those of [`delete_topic`](Self::delete_topic).
    pub fn check_delete(&self, topic: &str) -> Result<()> {
        let aside = self.aside()?;
        self.list_again(topic)?;
        let numbers: Vec<i32> = self.0.listing().numbers(topic).collect();
        if numbers.is_empty() {
            return Err(self.unknown(topic, 0));
        }
        self.check_named(topic, "delete")?;
        for partition in numbers {
            let partition = TopicPartition {
                topic: topic.to_owned(),
                partition,
            };
            if let Some(path) = self.path_of(&partition)?
                && self.opened(&partition).is_none()
            {
                lock_partition(aside.disk(), &path)?.release();
            }
        }
        Ok(())
    }

    /// Fails for an internal topic that the options do not name.
    fn check_named(&self, topic: &str, verb: &str) -> Result<()> {
        let named = &self.writer()?.options.internal_topics;
        let place = self.0.paths.first().map_or(Path::new(""), PathBuf::as_path);
        check_internal(topic, named, verb, place)
    }

    /// Fails for a log dir that a mirror fills, unless the options say that it is the one that has it open.
    pub(super) fn check_fills(&self, verb: &str) -> Result<()> {
        if self.writer()?.options.fills_mirror {
            return Ok(());
        }
        for path in &self.0.paths {
            if is_there(self.disk(), &path.join(MIRROR_NOTE))? {
                return refuse_mirrored(verb, path, path);
            }
        }
        Ok(())
    }

    /// Removes the directories of deleted topics whose delay has passed, and returns them; with `dry_run` only returns them. A
    /// directory that is in use, for example by a conversion, stays for now.
    ///
    /// # Errors
    /// As [`remove_deleted_into`](Self::remove_deleted_into).
    pub fn remove_deleted(&self, dry_run: bool) -> Result<Vec<PathBuf>> {
        let mut removed = Vec::new();
        self.remove_deleted_into(dry_run, &mut removed)?;
        Ok(removed)
    }

    /// As [`remove_deleted`](Self::remove_deleted), and adds them to `removed`, which so has them after an error too.
    ///
    /// # Errors
    /// `Io` of the first one that cannot be removed; it is tried again next time, and the others are removed.
    pub fn remove_deleted_into(&self, dry_run: bool, removed: &mut Vec<PathBuf>) -> Result<()> {
        self.remove_deleted_of((&[], self.0.now()), &[], dry_run, removed)
    }

    /// The directories that the last listing found renamed for deletion and that are not known yet, with their due times, which `disk` notes
    /// in those that have none.
    pub(super) fn newly_deleted(&self, disk: &dyn Disk) -> Result<Vec<PendingDelete>> {
        let writer = self.writer()?;
        let mut found = std::mem::take(&mut self.0.listing_mut().pending_deletes);
        let known: HashSet<PathBuf> = guard(&writer.pending_deletes)
            .iter()
            .map(|known| known.path.clone())
            .collect();
        found.retain(|path| !known.contains(path));
        let delay = writer.options.defaults.file_delete_delay_ms();
        let latest = self.0.now().saturating_add(delay);
        let pending = |path: PathBuf| PendingDelete {
            due: due_of(disk, &path, latest),
            path,
        };
        Ok(found.into_iter().map(pending).collect())
    }

    /// As [`remove_deleted`](Self::remove_deleted), of these topics only, or of all if there are none here, and of those whose delay has
    /// passed at `now`. `others`: found by a rehearsal, which notes nothing. `removed` gets each of them at once, before an error too. One
    /// that cannot be removed does not keep the others; its error comes last.
    pub(super) fn remove_deleted_of(
        &self,
        (topics, now): (&[String], i64),
        others: &[PendingDelete],
        dry_run: bool,
        removed: &mut Vec<PathBuf>,
    ) -> Result<()> {
        let writer = self.writer()?;
        // Another thread may be removing them.
        let _alone = guard(&writer.removing);
        let due: Vec<PathBuf> = guard(&writer.pending_deletes)
            .iter()
            .chain(others)
            .filter(|pending_deletes| pending_deletes.due <= now)
            .filter(|pending_deletes| topics.is_empty() || is_of(&pending_deletes.path, topics))
            .map(|pending_deletes| pending_deletes.path.clone())
            .collect();
        let mut failed = Ok(());
        for path in due {
            match self.remove_one(&path, dry_run) {
                Ok(true) => removed.push(path),
                Ok(false) => {}
                Err(error) if error.is_of_process() => return Err(error),
                error => failed = failed.and(error.map(|_| ())),
            }
        }
        failed
    }

    /// Removes a directory that waits for deletion, and with `dry_run` only looks; `false` if it is in use or gone.
    fn remove_one(&self, path: &Path, dry_run: bool) -> Result<bool> {
        // Nothing may fail behind the removal.
        let writer = self.writer()?;
        let Some(lock) = lock_idle(self.disk(), path)? else {
            return Ok(false);
        };
        // Who wants the topic back has renamed the folder, and it is kept; or another process has removed it.
        let is_there = is_there(self.disk(), path)?;
        if is_there && !dry_run {
            remove_all(self.disk(), path, DEPTH_MAX)
                .map_err(|error| Error::io(IoCall::Remove, path, error))?;
        }
        lock.release();
        if !is_there || !dry_run {
            guard(&writer.pending_deletes).retain(|pending_deletes| pending_deletes.path != path);
        }
        Ok(is_there)
    }

    pub(super) fn disk(&self) -> &dyn Disk {
        self.0.options.disk.as_ref()
    }
}

/// Whether the name of a directory that was renamed for deletion is that of one of these topics. A name that may have been cut is not:
/// another topic's may begin alike.
fn is_of(path: &Path, topics: &[String]) -> bool {
    let Some(name) = path.file_name().and_then(OsStr::to_str) else {
        return false;
    };
    name.len() < DIRECTORY_MAXIMUM_CHARACTERS
        && DirectoryName::parse(name)
            .is_ok_and(|name| topics.iter().any(|topic| topic == name.topic))
}

/// Whether a directory that was renamed for deletion is this topic's, as far as its name tells: it may have been cut.
pub(super) fn may_be_of(path: &Path, topic: &str) -> bool {
    let Some(name) = path.file_name().and_then(OsStr::to_str) else {
        return false;
    };
    if name.len() < DIRECTORY_MAXIMUM_CHARACTERS {
        return DirectoryName::parse(name).is_ok_and(|name| name.topic == topic);
    }
    DirectoryName::parse(name).is_ok_and(|name| topic.starts_with(name.topic))
}

/// When a directory that was renamed for deletion may be removed: the time in its file, otherwise `latest`, which is then
/// written to the file.
pub(super) fn due_of(disk: &dyn Disk, path: &Path, latest: i64) -> i64 {
    let noted = read_whole(disk, &path.join(DUE_FILE), 64).ok();
    let noted = noted.and_then(|bytes| String::from_utf8(bytes).ok()?.trim().parse::<i64>().ok());
    if let Some(due) = noted {
        // If the clock was set back, the directory must not stay forever.
        return due.min(latest);
    }
    // If it cannot be written, the next program starts the delay again.
    let _ = note_due(disk, path, latest);
    latest
}

fn note_due(disk: &dyn Disk, path: &Path, due: i64) -> io::Result<()> {
    let file = disk.open(&path.join(DUE_FILE), Access::Replace)?;
    file.write_at(format!("{due}\n").as_bytes(), 0)
}

/// Removes a directory with its contents. A directory that does not exist is not an error.
pub(crate) fn remove_all(disk: &dyn Disk, path: &Path, depth: usize) -> io::Result<()> {
    let entries = match disk.list(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        listed => listed?,
    };
    for entry in entries {
        let inner = path.join(&entry.name);
        if entry.kind == EntryKind::Directory && depth > 0 {
            remove_all(disk, &inner, depth - 1)?;
        } else {
            match disk.unlink(&inner) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            }
        }
    }
    match disk.remove_directory(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
