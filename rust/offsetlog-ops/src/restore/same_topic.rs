//! Whether all directories of a name are of one topic, and of the one that the metadata has: a topic that is deleted and created again,
//! or that another cluster has too, is another one, and its records do not belong together.

use crate::places::{LogDirPlace, PartitionPlace, Places};
use offsetlog::format::Uuid;
use std::collections::{BTreeMap, BTreeSet};

/// What is known of a topic besides its directories.
#[derive(Clone, Copy)]
pub(super) struct Told {
    pub(super) topic_id: Option<Uuid>,
    /// Whether the metadata has the topic. If not, the id comes from the directories.
    pub(super) by_metadata: bool,
}

/// Returns the topic id that the directories must have; `None` if no id tells them apart.
///
/// # Errors
/// In words: why nobody can tell which directories are the topic's, and what to do.
pub(super) fn one_topic(
    told: Told,
    replicas: &BTreeMap<i32, Vec<&PartitionPlace>>,
    places: &Places,
) -> Result<Option<[u8; 16]>, String> {
    let all = || replicas.values().flatten().copied();
    let ids: BTreeSet<[u8; 16]> = all().filter_map(id_of).collect();
    let wanted = told
        .topic_id
        .map(Uuid::to_bytes)
        .filter(|id| ids.contains(id));
    if let (None, true, Some(known), Some(found)) =
        (wanted, told.by_metadata, told.topic_id, ids.first())
    {
        return Err(format!(
            "its directories are of an earlier topic of this name: they have the topic id {}, and the metadata has {known}. Give the log \
             dirs that have the current one; to restore the earlier one, give its directories alone, without the metadata",
            Uuid::from_bytes(*found)
        ));
    }
    if ids.len() > 1 && wanted.is_none() {
        return Err("its directories are of several topics of this name, by the ids in partition.metadata: give those of one".to_owned());
    }
    // Directories of another id are left out already.
    let own = || {
        all().filter(|place| wanted.is_none() || id_of(place).is_none_or(|id| Some(id) == wanted))
    };
    let of_metadata = places
        .log_dirs
        .iter()
        .filter(|log_dir| told.by_metadata && log_dir.has_metadata_log());
    let clusters: BTreeSet<&str> = own()
        .filter_map(|place| cluster_of(place, places))
        .chain(of_metadata.filter_map(LogDirPlace::cluster_id))
        .collect();
    if clusters.len() > 1 && own().any(|place| id_of(place).is_none()) {
        let clusters: Vec<&str> = clusters.into_iter().collect();
        return Err(format!(
            "it is of the clusters {}, by the cluster.id in meta.properties, and no topic id says that all directories are of one topic: \
             give the log dirs of one cluster",
            clusters.join(" and ")
        ));
    }
    Ok(wanted)
}

fn id_of(place: &PartitionPlace) -> Option<[u8; 16]> {
    let id = place.topic_id.as_ref().ok()?;
    id.map(Uuid::to_bytes)
}

fn cluster_of<'p>(place: &PartitionPlace, places: &'p Places) -> Option<&'p str> {
    let log_dir = place.path.parent()?;
    let mut log_dirs = places.log_dirs.iter();
    log_dirs.find(|each| each.path == log_dir)?.cluster_id()
}
