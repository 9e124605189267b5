//! What is in the log dirs beside a directory that is to be adopted: other brokers' log dirs, and what stands in its place.

use super::find;
use super::target::Target;
use crate::identity::key;
use crate::places::{LogDirPlace, PartitionPlace, Places};
use offsetlog::format::name::DirectoryState;
use offsetlog::{Error, Log, OpenOptions, Result};
use std::path::{Path, PathBuf};

/// Refuses a further log dir that is another broker's or cluster's: what stands in it says nothing of this one.
pub(super) fn refuse_other_brokers(
    places: &Places,
    paths: &[PathBuf],
    others: &[PathBuf],
) -> Result<()> {
    for path in paths {
        let (own, _) = find(places, path)?;
        for folder in others {
            let Some(other) = places.log_dirs.iter().find(|place| place.path == *folder) else {
                continue;
            };
            let differs = |one: Option<String>, other: Option<String>| {
                one.zip(other).filter(|(one, other)| one != other)
            };
            let cluster = |place: &LogDirPlace| place.cluster_id().map(str::to_owned);
            let node = |place: &LogDirPlace| place.node_id().map(|id| id.to_string());
            let found = differs(cluster(own), cluster(other)).map(|ids| ("cluster", ids));
            let found = found.or_else(|| differs(node(own), node(other)).map(|ids| ("node", ids)));
            if let Some((kind, (here, there))) = found {
                let reason = format!(
                    "a log dir of {kind} {there}, and {} is in one of {kind} {here}: name log dirs of the same broker (log_dirs=, --log-dir)",
                    path.display()
                );
                return Err(Error::log_dir(folder, reason));
            }
        }
    }
    Ok(())
}

/// The name under which a folder came first: it is the same by what it is, not by its name.
pub(super) fn first_name(
    known: &[(PathBuf, (u64, u64))],
    folder: &Path,
    open: &OpenOptions,
) -> PathBuf {
    let id = open.disk.stat(folder).map(|found| found.id).ok();
    let mut same = known.iter().filter(|(_, other)| Some(*other) == id);
    same.next()
        .map_or_else(|| folder.to_path_buf(), |(name, _)| name.clone())
}

/// Directories of the same partition of the same broker that a broker would load, beside this one.
pub(super) fn in_the_way(
    places: &Places,
    place: &LogDirPlace,
    found: &PartitionPlace,
    target: &Target,
) -> Vec<PathBuf> {
    let (cluster, node, ..) = key(place, found);
    let mut paths = Vec::new();
    for other in &places.log_dirs {
        // A log dir that does not tell whose it is, is this broker's if it is named beside.
        let may_be = |one: Option<&str>, other: Option<&str>| {
            one.zip(other).is_none_or(|(one, other)| one == other)
        };
        let is_node = other
            .node_id()
            .zip(node)
            .is_none_or(|(one, other)| one == other);
        let is_ours =
            std::ptr::eq(other, place) || (is_node && may_be(other.cluster_id(), cluster));
        let same = other.partitions.iter().filter(|each| {
            matches!(each.state, DirectoryState::Live | DirectoryState::Future)
                && (&each.topic, each.partition) == (&target.topic, found.partition)
                && each.path != found.path
        });
        paths.extend(same.filter(|_| is_ours).map(|each| each.path.clone()));
    }
    paths
}

/// A directory, and which offsets it has.
pub(crate) fn contents(path: &Path, open: &OpenOptions) -> String {
    let ends = Log::open(path, open).and_then(|log| {
        let first = log.segments()?.first().map(|first| first.base_offset);
        let (start, end) = (log.log_start_offset()?, log.log_end_offset()?);
        Ok((first.unwrap_or(start), start, end))
    });
    match ends {
        // The log dir's line may be older than the directory.
        Ok((first, start, end)) if start > end && first < end => format!(
            "{} (offsets {first} to {}, below its log start offset {start})",
            path.display(),
            end - 1
        ),
        Ok((_, start, end)) if start >= end => format!("{} (without records)", path.display()),
        Ok((_, start, end)) => format!("{} (offsets {start} to {})", path.display(), end - 1),
        Err(error) => format!("{} (which cannot be read: {error})", path.display()),
    }
}

pub(super) fn blocked(in_the_way: &[PathBuf], target: &Target, open: &OpenOptions) -> String {
    let told = in_the_way.iter().map(|path| contents(path, open));
    let told: Vec<String> = told.collect();
    format!(
        "{} in the place of this partition of {:?}, and a broker does not start with both: {}; set_aside=True or --set-aside renames \
         {} to -stray first",
        if told.len() == 1 {
            "a directory stands"
        } else {
            "directories stand"
        },
        target.topic,
        told.join(", "),
        if told.len() == 1 { "it" } else { "them" },
    )
}
