//! The note in a mirror's directory that says which cluster it mirrors.
//!
//! A file `.offsetlog.mirror` of properties, replaced whole. Brokers ignore files that they do not know in a log dir.

use offsetlog::disk::{Disk, EntryKind, IoCall, read_whole, write_whole};
use offsetlog::format::Uuid;
use offsetlog::format::meta_properties::{read_properties, write_property};
use offsetlog::{Error, MIRROR_NOTE as FILE, Result};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

const VERSION: &str = "1";
const OWN_ID: &str = "own.id.";
const SOURCE_ID: &str = "source.id.";
const OWN_OFFSETS: &str = "own.offsets";
/// Most bytes of a note.
const BYTES_MAX: u64 = 64 << 20;

/// What the note says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Note {
    /// The cluster that is mirrored; `None` for one that has no id.
    pub(crate) cluster_id: Option<String>,
    /// Ids that the mirror gave to topics of a cluster that has none.
    pub(crate) own_ids: BTreeMap<String, Uuid>,
    /// The ids that the source gave to these since.
    pub(crate) source_ids: BTreeMap<String, Uuid>,
    /// Whether `__consumer_offsets` is the mirror's own, and not a copy of the source's.
    pub(crate) owns_offsets: bool,
}

impl Note {
    /// Reads the note of a directory; `None` without one.
    pub(crate) fn read(disk: &dyn Disk, folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(FILE);
        let bytes = match read_whole(disk, &path, BYTES_MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|error| Error::io(IoCall::Read, &path, error))?,
        };
        let wrong = |reason: String| Error::log_dir(&path, reason);
        let properties =
            read_properties(&bytes).map_err(|error| Error::new(error).at_path(&path))?;
        let mut note = Self::default();
        let mut version = None;
        for property in properties {
            match property.key.as_str() {
                "version" => version = Some(property.value),
                "cluster.id" => {
                    note.cluster_id = Some(property.value).filter(|id| !id.is_empty());
                }
                OWN_OFFSETS => note.owns_offsets = property.value == "true",
                key => {
                    let (topic, ids) = if let Some(topic) = key.strip_prefix(OWN_ID) {
                        (topic, &mut note.own_ids)
                    } else if let Some(topic) = key.strip_prefix(SOURCE_ID) {
                        (topic, &mut note.source_ids)
                    } else {
                        return Err(wrong(format!("key {key:?} found, which no mirror writes")));
                    };
                    let id = property.value.parse::<Uuid>();
                    let id =
                        id.map_err(|_| wrong(format!("{key}: {:?} is no id", property.value)))?;
                    ids.insert(topic.to_owned(), id);
                }
            }
        }
        match version.as_deref() {
            Some(VERSION) => Ok(Some(note)),
            found => Err(wrong(format!(
                "version {} found, {VERSION} expected: of a later offsetlog?",
                found.unwrap_or("none")
            ))),
        }
    }

    /// Fails if a directory without a note holds anything that a mirror would mix with its own.
    pub(crate) fn check_free(disk: &dyn Disk, folder: &Path) -> Result<()> {
        let entries = match disk.list(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            listed => listed.map_err(|error| Error::io(IoCall::List, folder, error))?,
        };
        let other = entries
            .iter()
            .find(|entry| entry.kind == EntryKind::Directory || entry.name == "meta.properties");
        match other.filter(|entry| entry.name != "lost+found") {
            Some(entry) => Err(Error::log_dir(
                folder,
                format!(
                    "{:?} is here and no note of a mirror ({FILE}): a mirror needs a directory of its own",
                    entry.name
                ),
            )),
            None => Ok(()),
        }
    }

    /// Writes the note durably.
    pub(crate) fn write(&self, disk: &dyn Disk, folder: &Path) -> Result<()> {
        let mut text =
            String::from("# A mirror of the cluster with this id. Written by offsetlog mirror.\n");
        let mut put = |key: &str, value: &str| write_property(&mut text, key, value);
        put("version", VERSION);
        put("cluster.id", self.cluster_id.as_deref().unwrap_or(""));
        if self.owns_offsets {
            put(OWN_OFFSETS, "true");
        }
        for (prefix, ids) in [(OWN_ID, &self.own_ids), (SOURCE_ID, &self.source_ids)] {
            for (topic, id) in ids {
                put(&format!("{prefix}{topic}"), &id.to_string());
            }
        }
        let path = folder.join(FILE);
        write_whole(disk, &path, text.as_bytes())
            .map_err(|failed| Error::failed_call(&path, failed))
    }
}
