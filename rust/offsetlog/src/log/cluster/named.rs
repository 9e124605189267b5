//! Reads metadata that the caller named, instead of the metadata log beside the partitions: another metadata log, or ZooKeeper's data.

use super::metadata::{MetadataImage, read_metadata_told};
use super::missing::is_another;
use super::zookeeper::{Found, OldGroup, Places};
use super::{Surroundings, node_of};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::folder::is_there;
use crate::local_path::local_path;
use crate::log::Log;
use crate::log::state::read_small;
use crate::step_progress::{DirectoryProgress, Steps};
use offsetlog_format::internal_topic::METADATA_TOPIC;
use offsetlog_format::name::META_PROPERTIES;
use std::path::{Path, PathBuf};

/// Where a cluster's metadata is.
#[derive(Debug, Clone)]
pub(super) enum Source {
    /// The directory of its metadata log.
    Log(PathBuf),
    /// The data of the ZooKeeper that it had before KRaft.
    ZooKeeper(Places),
}

impl Source {
    /// What somebody named.
    pub(super) fn find(disk: &dyn Disk, named: &Path) -> Result<Self> {
        let named = local_path(named)?;
        if let Some(path) = metadata_log(disk, &named)? {
            return Ok(Self::Log(path));
        }
        if let Some(places) = Places::find(disk, &named)? {
            return Ok(Self::ZooKeeper(places));
        }
        let reason = format!(
            "no {METADATA_TOPIC}-0 found in the folder that was named for the metadata, and no data of ZooKeeper's (version-2)"
        );
        Err(Error::log_dir(&named, reason))
    }
}

impl Surroundings {
    /// Reads the metadata that the caller named, for the cluster of the log dirs around.
    ///
    /// # Errors
    /// As [`read_metadata_told`]. Of ZooKeeper's data as [`Places::read`], and `LogDir` where it is another cluster's, or the cluster has moved
    /// to KRaft.
    pub(crate) fn named_metadata(
        &self,
        steps: &mut Steps<'_, Path>,
    ) -> Result<Option<MetadataImage>> {
        match &self.named {
            None => Ok(None),
            Some(Source::Log(path)) => {
                let log = Log::open(path, &self.options)?;
                read_metadata_told(&log, steps).map(Some)
            }
            Some(Source::ZooKeeper(places)) => {
                let found = self.zookeepers(places, steps)?;
                let mut image = found.image;
                image.warnings.extend(found.deleting.iter().map(|topic| {
                    format!("topic {topic:?} is about to be deleted (/admin/delete_topics)")
                }));
                image.deleting_topics = found.deleting;
                Ok(Some(image))
            }
        }
    }

    /// The consumer groups whose offsets are in ZooKeeper; none if its data is not among the paths. What was left out is returned beside
    /// them.
    ///
    /// # Errors
    /// As [`named_metadata`](Self::named_metadata).
    pub(crate) fn named_groups(&self) -> Result<(Vec<OldGroup>, Vec<String>)> {
        match &self.named {
            Some(Source::ZooKeeper(places)) => {
                let told = DirectoryProgress::default();
                let found = self.zookeepers(places, &mut Steps::new(&told))?;
                Ok((found.groups, found.group_warnings))
            }
            _ => Ok((Vec::new(), Vec::new())),
        }
    }

    fn zookeepers(&self, places: &Places, steps: &mut Steps<'_, Path>) -> Result<Found> {
        let mut ids: Vec<String> = Vec::new();
        for folder in &self.around {
            // A partition's directory may stand for its log dir.
            for log_dir in [Some(folder.as_path()), folder.parent()]
                .into_iter()
                .flatten()
            {
                let properties = read_small(self.disk(), &log_dir.join(META_PROPERTIES))?;
                let Some(node) = properties.map(|bytes| node_of(&bytes)) else {
                    continue;
                };
                if let Some(why) = self.left_zookeeper(log_dir, &node)? {
                    return Err(Error::log_dir(places.path(), why));
                }
                ids.extend(node.cluster_id);
                break;
            }
        }
        let found = places.read(&self.options, ids.first().map(String::as_str), steps)?;
        for here in &ids {
            if let Some(why) = is_another(places.path(), here, found.cluster_id.as_deref()) {
                return Err(Error::log_dir(places.path(), why));
            }
        }
        Ok(found)
    }
}

/// The metadata log's directory: `folder` itself, or in it. A path that cannot be accessed is not taken for absent: the metadata log guards
/// the log dir.
pub(super) fn metadata_log(disk: &dyn Disk, folder: &Path) -> Result<Option<PathBuf>> {
    let name = format!("{METADATA_TOPIC}-0");
    if folder.file_name().is_some_and(|own| own == name.as_str()) {
        return Ok(Some(folder.to_path_buf()));
    }
    let path = folder.join(name);
    Ok(is_there(disk, &path)?.then_some(path))
}
