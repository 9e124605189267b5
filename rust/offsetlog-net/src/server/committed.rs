//! What the dead cluster's groups had committed, and what of it is not known.

use super::broker::Broker;
use super::options::{Event, OpenTransactions, ServeOptions};
use crate::coordinator::UnknownOffsets;
use offsetlog::{
    Error, ErrorKind, Group, GroupsOptions, LogDir, PendingOffset, ProducerState, Result,
    TopicImage, Unread,
};
use offsetlog_ops::transaction_ends;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The topic in which Kafka stores its groups.
const OFFSETS_TOPIC: &str = "__consumer_offsets";
/// Reasons name a partition, and the way on.
const WAY_ON: &str = "give the log dir that has it, or --without-offsets (without_offsets=True), with which such groups begin with none";

/// The groups of the log dirs.
#[derive(Debug)]
pub(super) struct Committed {
    pub(super) groups: Vec<Group>,
    unstable: Vec<PendingOffset>,
    unread: Vec<Unread>,
    /// Why nothing was read of log dirs of several clusters.
    several_clusters: Option<String>,
}

impl Committed {
    /// Reads the groups. Offsets of transactions that were decided to be committed are among their offsets.
    ///
    /// # Errors
    /// Those of [`LogDir::groups`] and [`transaction_ends`].
    pub(super) fn read(
        log_dir: &LogDir,
        options: &ServeOptions,
        warnings: &mut Vec<String>,
    ) -> Result<Self> {
        // What two clusters committed or decided under one name says nothing of each other's records.
        if let Err(error) = log_dir.check_one_cluster() {
            if options.open_transactions != OpenTransactions::Wait {
                return Err(error);
            }
            let reason = format!("committed offsets are not served: {error}");
            warnings.push(reason.clone());
            return Ok(Self {
                groups: Vec::new(),
                unstable: Vec::new(),
                unread: Vec::new(),
                several_clusters: Some(reason),
            });
        }
        let (groups, of_groups, unread) = log_dir.groups(&GroupsOptions::without_lag())?;
        let mut committed = Self {
            groups,
            unstable: Vec::new(),
            unread,
            several_clusters: None,
        };
        let mut warned = of_groups;
        let pending = log_dir.pending_offsets()?;
        committed.decide(log_dir, options, pending, &mut warned)?;
        warnings.extend(warned);
        if !options.topics.is_empty() {
            for group in &mut committed.groups {
                let offsets = &mut group.offsets;
                offsets.retain(|each| options.topics.contains(&each.topic));
            }
        }
        Ok(committed)
    }

    /// Takes what transactions committed that were decided, as their records in other topics are shown.
    fn decide(
        &mut self,
        log_dir: &LogDir,
        options: &ServeOptions,
        pending: Vec<PendingOffset>,
        warnings: &mut Vec<String>,
    ) -> Result<()> {
        let mut by_partition: BTreeMap<i32, Vec<PendingOffset>> = BTreeMap::new();
        for each in pending {
            by_partition.entry(each.stored_in).or_default().push(each);
        }
        for (number, pending) in by_partition {
            let log = log_dir.log(OFFSETS_TOPIC, number)?;
            let mut producers: Vec<ProducerState> =
                pending.iter().map(|each| each.producer).collect();
            producers.sort_by_key(|producer| producer.producer_id);
            producers.dedup();
            let mut ends: HashMap<i64, bool> = HashMap::new();
            if let OpenTransactions::Decide { without_state } = options.open_transactions {
                for end in transaction_ends(log_dir, &log, &producers, without_state)? {
                    let producer = end.producer.producer.producer_id;
                    ends.extend(end.commit.map(|commit| (producer, commit)));
                }
            }
            for (&producer, &commit) in &ends {
                tell_decided(number, producer, commit, warnings);
            }
            for each in pending {
                match ends.get(&each.producer.producer_id) {
                    Some(true) => self.count(each),
                    Some(false) => {}
                    // A running broker ends it in a moment.
                    None if log.has_running_owner() => {}
                    None => self.unstable.push(each),
                }
            }
        }
        Ok(())
    }

    /// The offset counts: no later commit of the group replaces it.
    fn count(&mut self, pending: PendingOffset) {
        let id = pending.group_id;
        let known = self.groups.iter_mut().find(|group| group.group_id == id);
        let offset = pending.offset;
        let Some(group) = known else {
            self.groups.push(Group {
                group_id: id,
                offsets: vec![offset],
                ..Group::default()
            });
            return;
        };
        let is_same = |each: &&mut offsetlog::GroupOffset| {
            each.topic == offset.topic && each.partition == offset.partition
        };
        match group.offsets.iter_mut().find(is_same) {
            Some(known) => *known = offset,
            None => group.offsets.push(offset),
        }
    }

    /// What of the groups' offsets is not known, given the topics in the cluster's metadata.
    ///
    /// # Errors
    /// `Interrupted`.
    pub(super) fn unknown(
        &self,
        log_dir: &LogDir,
        topics: &HashMap<String, TopicImage>,
        options: &ServeOptions,
    ) -> Result<UnknownOffsets> {
        let unstable = self.unstable.iter().map(|each| {
            let offset = &each.offset;
            (
                each.group_id.clone(),
                offset.topic.clone(),
                offset.partition,
            )
        });
        let registered = topics.get(OFFSETS_TOPIC);
        let mut unknown = UnknownOffsets {
            partitions: registered.map(|topic| topic.partitions.len()),
            known: self
                .groups
                .iter()
                .map(|group| group.group_id.clone())
                .collect(),
            unstable: unstable.collect(),
            ..UnknownOffsets::default()
        };
        if options.without_offsets {
            return Ok(unknown);
        }
        if let Some(reason) = &self.several_clusters {
            unknown.partitions = Some(1);
            unknown.unread.insert(0, format!("{reason}; {WAY_ON}"));
            return Ok(unknown);
        }
        let here = log_dir.topics().remove(OFFSETS_TOPIC).unwrap_or_default();
        let here: BTreeSet<i32> = here.into_iter().collect();
        let all: BTreeSet<i32> = match registered {
            Some(topic) => topic.partitions.keys().copied().collect(),
            None => (0..here.last().copied().unwrap_or(0)).collect(),
        };
        for number in all.difference(&here) {
            let reason = format!("{OFFSETS_TOPIC}-{number} is not here: {WAY_ON}");
            unknown.unread.insert(*number, reason);
        }
        for number in here {
            match missing_of(log_dir, number) {
                Ok(Some(missing)) => {
                    unknown.is_partly_known = true;
                    let reason = format!("{OFFSETS_TOPIC}-{number} {missing}: {WAY_ON}");
                    unknown.unread.insert(number, reason);
                }
                Err(error) if error.is_of_process() => return Err(error),
                // One that cannot be opened at all is told again below.
                Err(error) => {
                    let reason =
                        format!("{OFFSETS_TOPIC}-{number} cannot be looked at: {error}; {WAY_ON}");
                    unknown.unread.insert(number, reason);
                }
                Ok(None) => {}
            }
        }
        for unread in &self.unread {
            if unread.partition.topic == OFFSETS_TOPIC {
                unknown.is_partly_known |= is_partly_read(&unread.error);
                let reason = format!(
                    "{} cannot be read completely: {}; {WAY_ON}",
                    unread.partition, unread.error
                );
                unknown.unread.insert(unread.partition.partition, reason);
            }
        }
        Ok(unknown)
    }

    /// What could not be read.
    pub(super) fn unread(&self) -> &[Unread] {
        &self.unread
    }
}

/// What a partition of committed offsets lost at its beginning or its end, if it shows.
fn missing_of(log_dir: &LogDir, number: i32) -> Result<Option<String>> {
    let log = log_dir.log(OFFSETS_TOPIC, number)?;
    let start = log.log_start_offset()?;
    if start > 0 {
        // It is compacted, and begins at 0.
        return Ok(Some(format!("begins at offset {start}")));
    }
    // Beside a running broker it is a write in progress.
    let torn = log.torn_tail()?.filter(|_| !log.has_running_owner());
    Ok(torn.map(|torn| format!("has a {torn}")))
}

/// Whether a partition that lost its end gives what is left: then its groups are known, with offsets that may be old.
fn is_partly_read(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::LogDir { .. })
}

/// Replaces the warning that what a transaction committed does not count.
fn tell_decided(number: i32, producer: i64, commit: bool, warnings: &mut Vec<String>) {
    let partition = format!("{OFFSETS_TOPIC}-{number}: ");
    let of_producer = format!(" in a transaction of producer {producer} ");
    warnings.retain(|warning| !(warning.starts_with(&partition) && warning.contains(&of_producer)));
    let how = if commit {
        "counts: its coordinator decided to commit"
    } else {
        "does not count: it is shown as aborted"
    };
    warnings.push(format!(
        "{partition}what groups committed in the transaction of producer {producer} {how}"
    ));
}

impl Broker {
    /// What is not known of the groups' offsets; tells of each group that asks for it.
    pub(super) fn unknown_offsets(&self) -> UnknownOffsets {
        let options = self.options.clone();
        UnknownOffsets {
            on_unknown: Some(Arc::new(move |group, reason| {
                options.tell(&Event::GroupUnknown {
                    group: group.to_owned(),
                    reason: reason.to_owned(),
                });
            })),
            ..self.unknown.clone()
        }
    }
}
