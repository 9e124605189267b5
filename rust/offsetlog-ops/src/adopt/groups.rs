//! Groups that the broker keeps, and whose committed offsets lie behind the end of what is taken in.

use super::Plan;
use crate::broker_groups::{BrokerGroups, is_of_groups, told};
use crate::places::{LogDirPlace, Places};
use offsetlog::format::name::DirectoryState;
use offsetlog::{Log, OpenOptions, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The log dirs of the broker that this one is of.
fn log_dirs<'p>(log_dir: &Path, places: &'p Places) -> Vec<&'p LogDirPlace> {
    let Some(place) = places.log_dirs.iter().find(|each| each.path == log_dir) else {
        return Vec::new();
    };
    let (cluster, node) = (place.cluster_id(), place.node_id());
    let is_ours = |other: &&LogDirPlace| {
        std::ptr::eq(*other, place)
            || (node.is_some() && other.node_id() == node && other.cluster_id() == cluster)
    };
    places.log_dirs.iter().filter(is_ours).collect()
}

/// The directories of `__consumer_offsets` that the broker of this log dir has when all is done: its own without those that are set aside,
/// and those that are taken in.
fn directories(log_dir: &Path, places: &Places, plans: &[Plan]) -> BTreeSet<PathBuf> {
    let ours = log_dirs(log_dir, places);
    let partitions = ours.iter().flat_map(|other| &other.partitions);
    let live =
        partitions.filter(|each| each.state == DirectoryState::Live && is_of_groups(&each.topic));
    let mut all: BTreeSet<PathBuf> = live.map(|each| each.path.clone()).collect();
    for path in plans.iter().flat_map(|plan| &plan.adoption.in_the_way) {
        all.remove(path);
    }
    let taken_in = plans.iter().filter(|plan| {
        is_of_groups(&plan.adoption.topic) && ours.iter().any(|other| other.path == plan.log_dir)
    });
    all.extend(taken_in.map(|plan| plan.adoption.directory.clone()));
    all
}

/// Adds a note for each group.
///
/// # Errors
/// `Interrupted`. A note says what cannot be read.
pub(super) fn add(plans: &mut [Plan], places: &Places, open: &OpenOptions) -> Result<()> {
    let changed = |plan: &Plan| plan.adopted.is_changed;
    let mut of_log_dirs: BTreeMap<PathBuf, BTreeSet<PathBuf>> = BTreeMap::new();
    for plan in plans.iter().filter(|plan| changed(plan)) {
        if !of_log_dirs.contains_key(&plan.log_dir) {
            let all = directories(&plan.log_dir, places, plans);
            of_log_dirs.insert(plan.log_dir.clone(), all);
        }
    }
    // Most often all are of one broker.
    let mut known: BTreeMap<&BTreeSet<PathBuf>, BrokerGroups> = BTreeMap::new();
    for plan in plans.iter_mut().filter(|plan| changed(plan)) {
        let Some(directories) = of_log_dirs.get(&plan.log_dir) else {
            continue;
        };
        if !known.contains_key(directories) {
            let groups = BrokerGroups::read(directories, open)?;
            plan.adopted.notes.extend(groups.warnings.iter().cloned());
            known.insert(directories, groups);
        }
        let Some(groups) = known.get(directories) else {
            continue;
        };
        let partition = (plan.adoption.topic.as_str(), plan.adoption.partition);
        let end = plan.adopted.log_end_offset;
        let behind = groups.behind(partition, (end, plan.adopted.topic_id));
        let notes = behind.map(|(group, committed)| told(group, "it", partition, committed, end));
        let notes: Vec<String> = notes.collect();
        plan.adopted.notes.extend(notes);
    }
    let is_of_it = |plan: &Plan| changed(plan) && is_of_groups(&plan.adoption.topic);
    for at in 0..plans.len() {
        let plan = plans.get(at).filter(|plan| is_of_it(plan));
        let notes = plan.map(|plan| of_live(plan, plans, places, open));
        if let (Some(notes), Some(plan)) = (notes.transpose()?, plans.get_mut(at)) {
            plan.adopted.notes.extend(notes);
        }
    }
    Ok(())
}

/// Notes about groups in a directory that is taken in, and partitions that are there: the groups were not yet when those were taken in.
fn of_live(
    plan: &Plan,
    plans: &[Plan],
    places: &Places,
    open: &OpenOptions,
) -> Result<Vec<String>> {
    let changed = plans.iter().filter(|other| other.adopted.is_changed);
    let of_plans: BTreeSet<&PathBuf> = changed
        .flat_map(|other| {
            [&other.adoption.directory]
                .into_iter()
                .chain(&other.adoption.in_the_way)
        })
        .collect();
    let groups = BrokerGroups::read([&plan.adoption.directory], open)?;
    let mut notes = Vec::new();
    let log_dirs = log_dirs(&plan.log_dir, places);
    for found in log_dirs.iter().flat_map(|place| &place.partitions) {
        let partition = (found.topic.as_str(), found.partition);
        let is_there = found.state == DirectoryState::Live && !of_plans.contains(&found.path);
        if !is_there || !groups.knows(partition) {
            continue;
        }
        let known = Log::open(&found.path, open)
            .and_then(|log| Ok((log.log_end_offset()?, log.topic_id()?)));
        match known {
            Ok(end) => {
                let name = format!("{}-{}", found.topic, found.partition);
                let behind = groups.behind(partition, end);
                notes.extend(
                    behind
                        .map(|(group, committed)| told(group, &name, partition, committed, end.0)),
                );
            }
            Err(error) if error.is_of_process() => return Err(error),
            Err(error) => notes.push(format!(
                "whether committed offsets lie behind the end of {}, nobody can say: {error}",
                found.path.display()
            )),
        }
    }
    Ok(notes)
}
