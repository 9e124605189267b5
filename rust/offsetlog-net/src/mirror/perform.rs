//! Does the disk work that responses require, in order, and reports the results to the logic.

use super::core::Core;
use super::error::MirrorError;
use super::store::{AppendOutcome, Store, TopicOutcome, is_of_topic};
use super::work::Work;
use offsetlog::{Error, TopicPartition};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Does `works`, whose records are in `bytes`, and the work that follows from it.
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
            let held = store.topics();
            lock(core).identified(held, now);
        }
        Work::Topic {
            name,
            id,
            partitions,
            config,
        } => match store.topic(&name, id, partitions, config.as_deref()) {
            Ok(TopicOutcome::Ready(ready)) => lock(core).topic_ready(&name, id, ready, now),
            Ok(TopicOutcome::Another(ours)) => {
                lock(core).topic_is_another(&name, ours, id, now);
            }
            Err(error) if is_of_topic(error.kind()) => {
                lock(core).topic_refused(&name, id, &error.to_string());
            }
            Err(error) => return Err(error.into()),
        },
        Work::Settings { name, config } => {
            let (is_changed, warnings) = store.set_settings(&name, &config)?;
            lock(core).settings_stored(&name, is_changed, warnings);
        }
        Work::DeleteTopic { name } => {
            // A failed sync may concern other topics: it must not be skipped.
            store.flush()?;
            match store.delete_topic(&name) {
                Ok(()) => lock(core).topic_deleted(&name, now),
                Err(error) if is_of_topic(error.kind()) => {
                    lock(core).topic_stays(&name, &error.to_string());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Work::Commits(commits) => {
            let commits = lock(core).still_ready(commits, now);
            let outcome = store.commit(&commits)?;
            lock(core).committed(outcome);
        }
        work => return do_of_partition(core, store, work, bytes, now, more),
    }
    Ok(())
}

/// Does the work of one partition. If it does not open, that is a problem of this partition only.
fn do_of_partition(
    core: &Mutex<Core>,
    store: &mut Store,
    work: Work,
    bytes: &[u8],
    now: i64,
    more: &mut Vec<Work>,
) -> Result<(), MirrorError> {
    match work {
        Work::Append(append) => {
            let records = bytes.get(append.records.clone()).unwrap_or_default();
            match store.append(&append, records) {
                Ok(AppendOutcome::Appended(position, transactions)) => {
                    let mut core = lock(core);
                    core.appended(&append, position, now, more);
                    core.tell_open(&append, transactions);
                }
                Ok(AppendOutcome::Elsewhere(position)) => lock(core).overtaken(&append, position),
                Err(error) if is_of_topic(error.kind()) => match store.position(&append.at) {
                    Ok(position) => {
                        let reason = error.to_string();
                        lock(core).append_refused(&append, position, &reason, now);
                    }
                    Err(error) => broken(core, &append.at, error)?,
                },
                Err(error) => return Err(error.into()),
            }
        }
        Work::Cut { at, leader, .. } => {
            let cut = match store.cut(&at, leader) {
                Ok(cut) => cut,
                Err(error) => return broken(core, &at, error),
            };
            let mut core = lock(core);
            core.cut(&at, cut.position, cut.before, cut.kept, cut.is_done, now);
        }
        Work::CutUnproven { at } => {
            let proven = lock(core).proven(&at);
            let Some(proven) = proven else {
                return Ok(());
            };
            match store.cut(&at, (None, proven)) {
                Ok(cut) => lock(core).cut_unproven(&at, cut.position, cut.before, cut.kept),
                Err(error) => return broken(core, &at, error),
            }
        }
        Work::StartAt { at, offset, .. } => match store.start_at(&at, offset) {
            Ok(position) => lock(core).started(&at, position, now),
            Err(error) => return broken(core, &at, error),
        },
        Work::DeleteBefore { at, offset } => match store.delete_before(&at, offset) {
            Ok(start) => lock(core).deleted_before(&at, start),
            Err(error) => return broken(core, &at, error),
        },
        _ => {}
    }
    Ok(())
}

/// A partition that cannot be opened or changed. The others continue.
///
/// # Errors
/// What concerns the disk.
fn broken(core: &Mutex<Core>, at: &TopicPartition, error: Error) -> Result<(), MirrorError> {
    if !is_of_topic(error.kind()) {
        return Err(error.into());
    }
    lock(core).broken(at, &error.to_string());
    Ok(())
}
