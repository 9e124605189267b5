//! Does the work that answers make on the disk, in order, and tells the logic how it went.

use super::core::Core;
use super::error::MirrorError;
use super::store::{Store, TopicOutcome, is_brokers_fault};
use super::work::Work;
use offsetlog::ErrorKind;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Does `works`, whose records lie in `bytes`, and what comes of them.
///
/// # Errors
/// What no broker is to blame for: the disk fails, the directory is of another cluster.
pub(crate) fn perform(
    core: &Mutex<Core>,
    store: &mut Store,
    works: Vec<Work>,
    bytes: &[u8],
    now: i64,
) -> Result<(), MirrorError> {
    let mut works: VecDeque<Work> = works.into();
    while let Some(work) = works.pop_front() {
        let is_current = lock(core).is_current(&work);
        if !is_current {
            lock(core).left_out(&work);
            continue;
        }
        let mut more = Vec::new();
        do_one(core, store, work, bytes, now, &mut more)?;
        works.extend(more);
    }
    Ok(())
}

pub(crate) fn lock(core: &Mutex<Core>) -> MutexGuard<'_, Core> {
    core.lock().unwrap_or_else(PoisonError::into_inner)
}

fn do_one(
    core: &Mutex<Core>,
    store: &mut Store,
    work: Work,
    bytes: &[u8],
    now: i64,
    more: &mut Vec<Work>,
) -> Result<(), MirrorError> {
    match work {
        Work::Identify(cluster_id) => {
            store.identify(cluster_id.as_deref())?;
            lock(core).identified();
        }
        Work::Topic {
            name,
            id,
            partitions,
            config,
        } => match store.topic(&name, id, partitions, config.as_deref()) {
            Ok(TopicOutcome::Ready(positions, new, warnings)) => {
                lock(core).topic_ready(&name, &positions, new, warnings, now);
            }
            Ok(TopicOutcome::Another(ours)) => {
                lock(core).topic_is_another(&name, ours, id, more);
            }
            Err(error) if is_of_topic(error.kind()) => {
                lock(core).topic_refused(&name, &error.to_string());
            }
            Err(error) => return Err(error.into()),
        },
        Work::Settings { name, config } => {
            let warnings = store.set_settings(&name, &config)?;
            lock(core).settings_stored(&name, warnings);
        }
        Work::Append(append) => {
            let records = bytes.get(append.records.clone()).unwrap_or_default();
            match store.append(&append, records) {
                Ok(position) => lock(core).appended(&append, position, now, more),
                Err(error) if is_brokers_fault(&error) => {
                    let position = store.position(&append.at)?;
                    lock(core).append_refused(&append, position, &error.to_string(), now);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Work::Cut { at, leader, .. } => {
            let cut = store.cut(&at, leader)?;
            lock(core).cut(&at, cut.position, cut.before, cut.kept, cut.is_done);
        }
        Work::StartAt { at, offset, .. } => {
            let position = store.start_at(&at, offset)?;
            lock(core).started(&at, position);
        }
        Work::DeleteBefore { at, offset } => {
            let start = store.delete_before(&at, offset)?;
            lock(core).deleted_before(&at, start);
        }
        Work::DeleteTopic { name } => {
            store.delete_topic(&name)?;
            lock(core).topic_deleted(&name, now);
        }
        Work::Commits(commits) => {
            store.commit(&commits)?;
            lock(core).committed(commits);
        }
    }
    Ok(())
}

/// Whether an error concerns one topic and not the disk.
const fn is_of_topic(kind: &ErrorKind) -> bool {
    !matches!(
        kind,
        ErrorKind::Io { .. }
            | ErrorKind::Interrupted
            | ErrorKind::Closed
            | ErrorKind::Poisoned { .. }
    )
}
