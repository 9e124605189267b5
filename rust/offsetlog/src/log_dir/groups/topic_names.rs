//! Names of topics of which a group stored only the id. A name has one id: of two topics that had it one after the other, the one that is
//! there now.

use super::super::{LogDir, TopicPartition, Unread, pass_over};
use super::earlier_topics::decided;
use crate::error::Result;
use crate::log::MetadataImage;
use std::collections::{HashMap, HashSet};

/// Names of topics by id. No directory is looked at before a name is asked for.
pub(super) struct TopicIds<'m> {
    pub(super) metadata: &'m MetadataImage,
    here: Option<Here>,
    /// Names that share groups stored beside ids.
    pub(super) told: HashMap<String, String>,
}

/// What the log dirs and the metadata in them have.
#[derive(Default)]
struct Here {
    /// The topics that are there now.
    now: HashMap<String, String>,
    /// Those of which there is a directory, although the metadata has another topic of the name.
    before: HashMap<String, String>,
}

/// What is known of the name of a topic with an id.
pub(super) enum Named {
    As(String),
    /// The topic that has this name now has another id.
    Before(String),
    Unknown,
}

impl Here {
    /// Complete metadata decides which id a name has. Of the topics that it does not have, the directories do, and then what is left of
    /// metadata that is not complete.
    fn read(
        log_dir: &LogDir,
        partitions: &[TopicPartition],
        metadata: &MetadataImage,
        unread: &mut Vec<Unread>,
    ) -> Result<Self> {
        let mut here = Self::default();
        let ids = decided(metadata);
        let mut last = None;
        for found in partitions {
            if last.replace(&found.topic) == Some(&found.topic) {
                continue;
            }
            let log = log_dir.log(&found.topic, found.partition);
            match log.and_then(|log| log.topic_id()) {
                Ok(Some(id)) => {
                    let is_now = ids.get(&found.topic).is_none_or(|own| *own == id);
                    let names = if is_now {
                        &mut here.now
                    } else {
                        &mut here.before
                    };
                    names.insert(id.to_string(), found.topic.clone());
                }
                Ok(None) => {}
                Err(error) => pass_over(error, found, unread)?,
            }
        }
        let taken: HashSet<String> = here.now.values().cloned().collect();
        let topics = metadata.topics.iter();
        for topic in topics.filter(|topic| !topic.topic_id.is_zero()) {
            if !taken.contains(&topic.name) {
                let id = topic.topic_id.to_string();
                here.now.insert(id, topic.name.clone());
            }
        }
        Ok(here)
    }
}

impl<'m> TopicIds<'m> {
    pub(super) fn beside(metadata: &'m MetadataImage) -> Self {
        Self {
            metadata,
            here: None,
            told: HashMap::new(),
        }
    }

    /// The topic's name, from the log dirs, metadata in them or a share group's records; else the id.
    pub(super) fn name(
        &mut self,
        log_dir: &LogDir,
        partitions: &[TopicPartition],
        unread: &mut Vec<Unread>,
        id: String,
    ) -> Result<String> {
        match self.look_up(log_dir, partitions, unread, &id)? {
            Named::As(name) => Ok(name),
            Named::Before(_) | Named::Unknown => Ok(id),
        }
    }

    pub(super) fn look_up(
        &mut self,
        log_dir: &LogDir,
        partitions: &[TopicPartition],
        unread: &mut Vec<Unread>,
        id: &str,
    ) -> Result<Named> {
        let here = if let Some(here) = &self.here {
            here
        } else {
            let read = Here::read(log_dir, partitions, self.metadata, unread)?;
            self.here.insert(read)
        };
        if let Some(name) = here.now.get(id) {
            return Ok(Named::As(name.clone()));
        }
        let Some(told) = here.before.get(id).or_else(|| self.told.get(id)) else {
            return Ok(Named::Unknown);
        };
        if here.now.values().any(|name| name == told) {
            return Ok(Named::Before(told.clone()));
        }
        // Of two topics that had the name one after the other, nobody knows here which one has it.
        let alike = self.told.values().filter(|name| *name == told);
        Ok(match alike.count() {
            1 => Named::As(told.clone()),
            _ => Named::Unknown,
        })
    }
}
