//! Refuses changes in a broker's log dir that the caller did not ask for by name.

use super::{MIRROR_NOTE, Membership};
use crate::config::{EffectiveConfig, SettingSource};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::folder::is_there;
use offsetlog_format::internal_topic::METADATA_TOPIC;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// Topics that brokers make for themselves, and keep by rules of their own.
const INTERNAL_TOPICS: [&str; 5] = [
    METADATA_TOPIC,
    "__consumer_offsets",
    "__remote_log_metadata",
    "__share_group_state",
    "__transaction_state",
];

/// What upkeep decides by, whatever the policy.
const ALWAYS: [&str; 3] = [
    "cleanup.policy",
    "remote.storage.enable",
    "file.delete.delay.ms",
];
const OF_RETENTION: [&str; 2] = ["retention.bytes", "retention.ms"];
/// Of these settings, those that decide which records go. A mirror's copy has the topic's own settings, and not its broker's defaults.
const OF_RECORDS: [&str; 6] = [
    "cleanup.policy",
    "delete.retention.ms",
    "max.compaction.lag.ms",
    "min.compaction.lag.ms",
    "retention.bytes",
    "retention.ms",
];
const OF_DELETES: [&str; 1] = ["file.delete.delay.ms"];
const OF_DIRT: [&str; 3] = [
    "max.compaction.lag.ms",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
];
const OF_COMPACTION: [&str; 3] = [
    "delete.retention.ms",
    "segment.bytes",
    "segment.index.bytes",
];

/// What to pass where records are changed in spite of other replicas.
const ANYWAY: &str = "single_replica=True or --single-replica does it anyway";

/// What part of upkeep is about to be done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Upkeep {
    pub(crate) retention: bool,
    pub(crate) compaction: bool,
    pub(crate) deletes: bool,
}

/// What a partition's writer may do.
#[derive(Debug, Clone, Default)]
pub(crate) struct Guard {
    pub(crate) membership: Arc<Membership>,
    /// Internal topics that the caller named.
    pub(crate) internal: BTreeSet<String>,
    /// The caller knows of other replicas.
    pub(crate) single_replica: bool,
    /// The caller is the mirror that fills the log dir.
    pub(crate) fills_mirror: bool,
}

/// Refuses `verb` on a topic that brokers keep for themselves, unless it was named.
///
/// # Errors
/// `Cluster`.
pub(crate) fn check_internal(
    topic: &str,
    named: &BTreeSet<String>,
    verb: &str,
    path: &Path,
) -> Result<()> {
    if !is_internal_topic(topic) || named.contains(topic) {
        return Ok(());
    }
    let why = if topic == METADATA_TOPIC {
        "is the cluster's metadata log, and a broker does not start without what was taken from it"
    } else {
        "is an internal topic, which brokers keep by rules of their own"
    };
    let reason = format!(
        "{topic} {why}: it is not to {verb} unless it is named (internal_topics=[\"{topic}\"], --internal {topic})"
    );
    Err(Error::cluster(path, reason))
}

/// Refuses `verb` in a log dir that a mirror fills. Its next run goes on behind whatever end a copy has: a record of somebody else's would
/// take the offset of one of the source's, which is then never copied.
///
/// # Errors
/// `Cluster`.
pub(crate) fn refuse_mirrored(verb: &str, log_dir: &Path, path: &Path) -> Result<()> {
    let note = log_dir.join(MIRROR_NOTE);
    let reason = format!(
        "the log dir is a mirror's copy of another cluster ({MIRROR_NOTE}): not to {verb} here, because the next run of offsetlog mirror goes \
         on where the copy ends, and would miss what the source has at these offsets. Write to the source or to another directory; if \
         nothing is to be mirrored into this one any more, remove {}",
        note.display()
    );
    Err(Error::cluster(path, reason))
}

/// Refuses to make a partition in a log dir that a mirror fills: all topics there count as the mirror's, and it deletes those that its
/// source does not have if it follows deletes.
///
/// # Errors
/// `Cluster`; `Io`.
pub fn check_new_partition(disk: &dyn Disk, path: &Path) -> Result<()> {
    let log_dir = path.parent().unwrap_or(Path::new(""));
    if is_there(disk, &log_dir.join(MIRROR_NOTE))? {
        return refuse_mirrored("make a partition", log_dir, path);
    }
    Ok(())
}

/// Whether brokers keep a topic of this name for themselves.
#[must_use]
pub fn is_internal_topic(topic: &str) -> bool {
    INTERNAL_TOPICS.contains(&topic)
}

impl Guard {
    /// Refuses a verb that takes records away from an internal topic.
    ///
    /// # Errors
    /// `Cluster`.
    pub(crate) fn check_internal(&self, topic: &str, verb: &str, path: &Path) -> Result<()> {
        check_internal(topic, &self.internal, verb, path)
    }

    /// Refuses a verb that changes the records of a partition which others have too, or which a mirror fills.
    ///
    /// # Errors
    /// `Cluster`.
    pub(crate) fn check_replicas(&self, verb: &str, path: &Path) -> Result<()> {
        if self.is_anothers_mirror() {
            return refuse_mirrored(verb, path.parent().unwrap_or(Path::new("")), path);
        }
        if self.single_replica || !self.membership.is_brokers() {
            return Ok(());
        }
        if let Some(why) = self.membership.others_unknown() {
            let reason =
                format!("who else has a replica is not known ({why}): not to {verb}; {ANYWAY}");
            return Err(Error::cluster(path, reason));
        }
        let others = self.membership.others();
        if others.is_empty() {
            return Ok(());
        }
        let (broker, names) = (
            if others.len() == 1 {
                "broker"
            } else {
                "brokers"
            },
            others
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", "),
        );
        let outcome = match self.membership.leads() {
            Some(true) => {
                "this broker led it last: if it leads again, the others are not told of a change of what they have; if another one leads, it is cut off here"
            }
            Some(false) => {
                "another broker leads it: what differs from it is cut off or fetched again here, and nobody else sees the change"
            }
            None => {
                "if another broker leads it, the change is cut off or fetched over here; if this one leads, the others are not told of it"
            }
        };
        let reason = format!(
            "{broker} {names} of the cluster {} a replica too: not to {verb} here. {outcome}. {ANYWAY}",
            if others.len() == 1 { "has" } else { "have" }
        );
        Err(Error::cluster(path, reason))
    }

    /// Refuses upkeep by settings that are not known, and of tiered topics, whose removal needs what was copied away.
    ///
    /// # Errors
    /// `Cluster`, naming each setting and what to pass.
    pub(crate) fn check_upkeep(
        &self,
        effective: &EffectiveConfig,
        upkeep: Upkeep,
        path: &Path,
    ) -> Result<()> {
        let is_brokers = self.membership.is_brokers();
        if !is_brokers && !self.is_anothers_mirror() {
            return Ok(());
        }
        if is_brokers && effective.config().remote_storage_enable() {
            let reason = "remote.storage.enable is set: what may go depends on what was copied to tiered storage, which only the \
                          broker knows; leave it to the broker";
            return Err(Error::cluster(path, reason));
        }
        let mut names: Vec<&str> = Vec::new();
        let is_compacted = effective.config().is_compacted();
        if upkeep.retention || upkeep.compaction {
            names.extend(ALWAYS);
        }
        if upkeep.retention && effective.config().is_deleting() {
            names.extend(OF_RETENTION);
        }
        if upkeep.compaction && is_compacted {
            names.extend(OF_DIRT.iter().chain(&OF_COMPACTION));
        }
        if upkeep.deletes {
            names.extend(OF_DELETES);
        }
        names.sort_unstable();
        names.dedup();
        self.check_mirrored(effective, &names, path)?;
        if !is_brokers {
            return Ok(());
        }
        self.check_known(effective, &names, path)?;
        if is_compacted
            && self.membership.cleaner_is_off()
            && (upkeep.retention || upkeep.compaction)
        {
            let reason = "log.cleaner.enable=false: the broker neither compacts this topic nor removes its segments";
            return Err(Error::cluster(path, reason));
        }
        Ok(())
    }

    /// Refuses a compaction whose terms are not known.
    ///
    /// # Errors
    /// `Cluster`, as [`check_upkeep`](Self::check_upkeep).
    pub(crate) fn check_compaction(&self, effective: &EffectiveConfig, path: &Path) -> Result<()> {
        self.check_mirrored(effective, &OF_COMPACTION, path)?;
        if !self.membership.is_brokers() {
            return Ok(());
        }
        self.check_known(effective, &OF_COMPACTION, path)
    }

    fn is_anothers_mirror(&self) -> bool {
        self.membership.is_mirrored() && !self.fills_mirror
    }

    /// Refuses to remove records of a mirror's copy by Kafka's defaults: the source's broker may keep them for good, and what is removed
    /// here is never fetched again.
    fn check_mirrored(
        &self,
        effective: &EffectiveConfig,
        names: &[&str],
        path: &Path,
    ) -> Result<()> {
        if !self.is_anothers_mirror() || self.membership.has_broker_settings() {
            return Ok(());
        }
        let is_unknown = |name: &&str| {
            let source = effective.source(name);
            OF_RECORDS.contains(name)
                && matches!(source, SettingSource::Default | SettingSource::Unknown)
        };
        let unknown: Vec<&str> = names.iter().copied().filter(is_unknown).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let reason = format!(
            "the partition is a mirror's copy ({MIRROR_NOTE} in the log dir), which has the topic's own settings and not its broker's \
             defaults: {} {} not known, and what is removed here is not fetched again. offsetlog mirror --follow-deletes removes what the \
             source removes; to remove more, give each of these settings (config=, --config NAME=VALUE with --topic), or the \
             server.properties of the source's broker (broker=, --broker FILE)",
            unknown.join(", "),
            if unknown.len() == 1 { "is" } else { "are" },
        );
        Err(Error::cluster(path, reason))
    }

    fn check_known(&self, effective: &EffectiveConfig, names: &[&str], path: &Path) -> Result<()> {
        let unknown = effective.unknown_of(names);
        let Some(first) = unknown.first() else {
            return Ok(());
        };
        let why = effective.reason(first).unwrap_or_default();
        let pass = match (
            self.membership.has_metadata(),
            self.membership.has_broker_settings(),
        ) {
            (true, false) => {
                "pass the broker's server.properties (broker=, --broker FILE)".to_owned()
            }
            (true, true) => "give it (config=, --config NAME=VALUE with --topic)".to_owned(),
            (false, _) => format!(
                "pass the folder with the cluster's metadata or ZooKeeper's data (metadata=, --metadata DIR){}, or give each of these settings (config=, --config NAME=VALUE with --topic)",
                if self.membership.has_broker_settings() {
                    ""
                } else {
                    " and the broker's server.properties (broker=, --broker FILE)"
                }
            ),
        };
        let (is, all) = (
            if unknown.len() == 1 { "is" } else { "are" },
            unknown.join(", "),
        );
        let mark = self.membership.mark();
        let reason = if self.membership.is_lone() {
            format!(
                "{all} {is} not known of this partition ({mark}): who wrote it may have kept its records by others; {pass}, or store \
                 settings with it (config= of Log.open and LogDir.set_topic_config, --config NAME=VALUE of offsetlog settings)"
            )
        } else {
            format!(
                "{all} {is} not known in this broker's log dir ({mark}): {first}: {why}; {pass}"
            )
        };
        Err(Error::cluster(path, reason))
    }
}
