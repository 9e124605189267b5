//! Writes the topics of a new cluster into each `bootstrap.checkpoint`, beside other restores that do the same.
//!
//! The files are read again under a lock: what another restore has written since the plan was made stays.

use super::RestorePlan;
use super::bootstrap::{Bootstrap, has_started};
use super::new_topic::NewTopic;
use offsetlog::disk::Lock;
use offsetlog::format::metadata_record::producer_ids_record;
use offsetlog::{Error, OpenOptions, Result, keep_kafka_out, lock_shared_files};
use std::path::Path;

impl RestorePlan {
    /// Writes the topics that are not there yet into each `bootstrap.checkpoint`. All files are checked before the first is written.
    ///
    /// # Errors
    /// `LogDir`: the cluster has started since the plan was made, or a file says something else of a topic. `Io`.
    pub(super) fn write_topics(&self, producer_id_max: i64) -> Result<()> {
        let _held = lock(&self.bootstraps, &self.options)?;
        let mut all = Vec::new();
        for planned in &self.bootstraps {
            if has_started(folder_of(&planned.path), &self.options)? {
                let reason = "the cluster has started since the plan was made, and its controllers do not read it any more: the topics are not in it";
                return Err(Error::log_dir(&planned.path, reason));
            }
            let file = Bootstrap::read(planned.path.clone(), &self.options)?;
            let mut records = Vec::new();
            for topic in &self.new_topics {
                check(topic, &file)?;
                if topic.has_changed(planned, &file) {
                    let reason = format!(
                        "another restore has written topic {:?} into it since the plan was made: run this again",
                        topic.name
                    );
                    return Err(Error::log_dir(&file.path, reason));
                }
                topic.records(&file, &mut records);
            }
            let next = producer_id_max.saturating_add(1);
            if file.next_producer_id.unwrap_or(0) < next {
                records.push(producer_ids_record(-1, -1, next));
            }
            all.push((file, records));
        }
        let now = (self.options.clock)();
        for (file, records) in all {
            if !records.is_empty() {
                file.add(&records, now, &self.options)?;
            }
        }
        Ok(())
    }
}

/// Keeps controllers from starting while the locks are held: one locks the folder of its metadata, as a broker locks its log dirs.
///
/// # Errors
/// `Locked`: one runs. `Io`.
pub(super) fn keep_controllers_out(
    files: &[Bootstrap],
    options: &OpenOptions,
) -> Result<Vec<Lock>> {
    let disk = options.disk.as_ref();
    let folders = files.iter().map(|file| folder_of(&file.path));
    folders.map(|folder| keep_kafka_out(disk, folder)).collect()
}

/// Locks these files against other restores, in the order of their paths: so no two wait for each other.
fn lock(files: &[Bootstrap], options: &OpenOptions) -> Result<Vec<Lock>> {
    let mut folders: Vec<&Path> = files.iter().map(|file| folder_of(&file.path)).collect();
    folders.sort_unstable();
    let disk = options.disk.as_ref();
    let locked = folders.iter().map(|folder| lock_shared_files(disk, folder));
    locked.collect()
}

/// Refuses a topic whose name or id another restore has given away.
fn check(topic: &NewTopic, file: &Bootstrap) -> Result<()> {
    let (name, id) = (&topic.name, topic.topic_id);
    let other = file.topics.get(name).filter(|other| **other != id);
    let same = file
        .topics
        .iter()
        .find(|(other, of)| **of == id && *other != name);
    let reason = match (other, same) {
        (None, None) => return Ok(()),
        (Some(other), _) => format!("topic {name:?} has the topic id {other} in it"),
        (None, Some((other, _))) => format!("topic {other:?} has the topic id {id} in it"),
    };
    Err(Error::log_dir(
        &file.path,
        format!(
            "{reason}, and {name:?} was restored with the topic id {id}: another restore has written it since the plan was made. Nothing \
             was written; delete the directories of {name:?} with this id, and run it again"
        ),
    ))
}

fn folder_of(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new("/"))
}
