//! Groups that a stopped broker keeps, and whose committed offsets lie behind the end of what is restored into its log dirs.

use super::committed::Ends;
use super::{PartitionState, RestorePlan, Target};
use crate::broker_groups::{BrokerGroups, is_of_groups};
use offsetlog::Result;
use offsetlog::disk::{EntryKind, IoCall};
use offsetlog::format::name::{DirectoryName, DirectoryState};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// By group: a topic, a partition, what is committed, and where that partition ends.
type Behind = BTreeMap<String, Vec<(String, i32, i64, i64)>>;

/// Adds them.
///
/// # Errors
/// `Io`: a log dir that cannot be listed. `Interrupted`. A warning says what else cannot be read.
pub(super) fn add(
    plan: &RestorePlan,
    ends: &Ends<'_>,
    behind: &mut Behind,
    warnings: &mut Vec<String>,
) -> Result<()> {
    if plan.target != Target::StoppedBroker || ends.is_empty() {
        return Ok(());
    }
    let groups = BrokerGroups::read(&directories(plan)?, &plan.options)?;
    warnings.extend(groups.warnings.iter().cloned());
    for ((topic, partition), end) in ends {
        for (group, committed) in groups.behind((topic, *partition), *end) {
            let of_group = behind.entry(group.to_owned()).or_default();
            let is_known =
                |each: &(String, i32, i64, i64)| (each.0.as_str(), each.1) == (*topic, *partition);
            if !of_group.iter().any(is_known) {
                of_group.push(((*topic).to_owned(), *partition, committed, end.0));
            }
        }
    }
    for of_group in behind.values_mut() {
        of_group.sort();
    }
    Ok(())
}

/// The directories of `__consumer_offsets` that stay as they are.
fn directories(plan: &RestorePlan) -> Result<Vec<PathBuf>> {
    let is_restored = |path: &PathBuf| {
        let mut all = plan.partitions.iter();
        all.any(|each| {
            !matches!(
                each.state,
                PartitionState::Refused(_) | PartitionState::Failed(_)
            ) && each.into.iter().any(|(_, into)| into == path)
        })
    };
    let mut found = Vec::new();
    for (_, log_dir) in &plan.log_dirs {
        let listed = plan.options.disk.list(log_dir);
        let mut entries =
            listed.map_err(|error| offsetlog::Error::io(IoCall::List, log_dir, error))?;
        entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        for entry in entries {
            let is_one = entry.kind != EntryKind::File
                && DirectoryName::parse(&entry.name).is_ok_and(|name| {
                    is_of_groups(name.topic) && name.state == DirectoryState::Live
                });
            let path = log_dir.join(&entry.name);
            if is_one && !is_restored(&path) {
                found.push(path);
            }
        }
    }
    Ok(found)
}
