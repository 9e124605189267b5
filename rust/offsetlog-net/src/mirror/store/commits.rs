//! The groups' committed offsets in the directory: a `__consumer_offsets` of the mirror's own.

use super::{OFFSETS_TOPIC, Store, is_of_topic};
use crate::coordinator::committed_offsets::{
    Commit, CommittedOffsets, CommittedOffsetsOptions, maintain,
};
use crate::mirror::work::GroupCommit;
use offsetlog::format::Uuid;
use offsetlog::{Error, Result};
use std::collections::{BTreeMap, VecDeque};

/// Commits that are stored at once.
const COMMITS_AT_ONCE: usize = 1000;
/// Bytes of them.
const COMMIT_BYTES_AT_ONCE: usize = 256 << 10;

/// What became of committed offsets.
#[derive(Debug, Default)]
pub(crate) struct CommitOutcome {
    /// How many were written.
    pub(crate) written: u64,
    /// Those that are in the log, which may have had them already.
    pub(crate) stored: Vec<GroupCommit>,
    /// Those that were refused, and why.
    pub(crate) refused: Vec<(GroupCommit, String)>,
}

impl CommitOutcome {
    fn refuse(&mut self, commit: &GroupCommit, error: &Error) {
        self.refused.push((commit.clone(), error.to_string()));
    }
}

impl Store {
    /// Stores committed offsets, after everything that was appended before is durable. Of several of a group in one partition the last one
    /// counts.
    ///
    /// # Errors
    /// Those of [`CommittedOffsets::store`] that concern the disk.
    pub(crate) fn commit(&mut self, commits: &[GroupCommit]) -> Result<CommitOutcome> {
        let mut outcome = CommitOutcome::default();
        if commits.is_empty() {
            return Ok(outcome);
        }
        self.flush()?;
        let last = commits.iter().map(|it| ((it.group.as_str(), &it.at), it));
        let last: BTreeMap<_, &GroupCommit> = last.collect();
        let mut by_group: BTreeMap<&str, Vec<(&GroupCommit, Commit)>> = BTreeMap::new();
        for commit in last.into_values() {
            let topic_id = match self.topic_id_of(commit) {
                Err(error) if is_of_topic(error.kind()) => {
                    outcome.refuse(commit, &error);
                    continue;
                }
                found => found?,
            };
            let stored = Commit {
                topic: commit.at.topic.clone(),
                partition: commit.at.partition,
                offset: commit.offset,
                leader_epoch: commit.leader_epoch,
                metadata: commit.metadata.clone(),
                commit_timestamp: (self.open.clock)(),
                topic_id: topic_id.unwrap_or(Uuid::from_bytes([0; 16])),
            };
            by_group
                .entry(&commit.group)
                .or_default()
                .push((commit, stored));
        }
        let mut log = match self.commits.take() {
            Some(log) => log,
            None => match self.open_commits() {
                Ok(log) => log,
                Err(error) if is_of_topic(error.kind()) => {
                    for (commit, _) in by_group.values().flatten() {
                        outcome.refuse(commit, &error);
                    }
                    return Ok(outcome);
                }
                Err(error) => return Err(error),
            },
        };
        self.syncs.dirty();
        for (group, commits) in by_group {
            // Offsets that the log already has are not written again.
            let is_known = |commit: &Commit| {
                let known = log.get(group, &commit.topic, commit.partition);
                known.is_some_and(|known| {
                    // An equal offset of an earlier topic of the name is another one.
                    let of = |it: &Commit| (it.offset, it.leader_epoch, it.topic_id);
                    of(known) == of(commit) && known.metadata == commit.metadata
                })
            };
            let (known, news): (Vec<_>, Vec<_>) = commits
                .into_iter()
                .partition(|(_, commit)| is_known(commit));
            outcome
                .stored
                .extend(known.into_iter().map(|(commit, _)| commit.clone()));
            let (mut asked, news): (VecDeque<&GroupCommit>, Vec<Commit>) = news.into_iter().unzip();
            for part in parts(group, &news) {
                let asked = asked.drain(..part.len());
                match log.store(group, part) {
                    Err(error) if is_of_topic(error.kind()) => {
                        asked.for_each(|commit| outcome.refuse(commit, &error));
                    }
                    stored => {
                        stored?;
                        outcome.written = outcome.written.saturating_add(part.len() as u64);
                        outcome.stored.extend(asked.cloned());
                    }
                }
            }
        }
        self.commits = Some(log);
        Ok(outcome)
    }

    fn topic_id_of(&self, commit: &GroupCommit) -> Result<Option<Uuid>> {
        let at = &commit.at;
        let log = self.log_dir.log_if(&at.topic, at.partition, false)?;
        log.map_or(Ok(None), |log| log.topic_id())
    }

    /// Opens the log of committed offsets, which is the mirror's own.
    fn open_commits(&mut self) -> Result<CommittedOffsets> {
        let is_there = self.log_dir.topics().contains_key(OFFSETS_TOPIC);
        if let Some(note) = self.note.as_mut().filter(|note| !note.owns_offsets) {
            if is_there {
                let reason = "it has the source's own __consumer_offsets: name that topic again, or mirror into another directory";
                return Err(Error::log_dir(&self.path, reason));
            }
            note.owns_offsets = true;
            note.write(self.open.disk.as_ref(), &self.path)?;
        }
        let options = CommittedOffsetsOptions {
            open: self.open.clone(),
            ..CommittedOffsetsOptions::default()
        };
        CommittedOffsets::open_in(&self.log_dir, &options)
    }

    /// Deletes the groups' offsets in partitions that are about to be made: those of an earlier copy, or of an earlier topic of the name. If
    /// the log of committed offsets cannot be opened, that does not keep the topic from being copied.
    ///
    /// # Errors
    /// Those of [`CommittedOffsets::remove`] that concern the disk.
    pub(super) fn forget_earlier(
        &mut self,
        topic: &str,
        of: impl Fn(i32) -> bool,
        warnings: &mut Vec<String>,
    ) -> Result<()> {
        match self.forget_offsets(topic, of) {
            Err(error) if is_of_topic(error.kind()) => {
                warnings.push(format!(
                    "what groups have committed in an earlier copy of topic {topic} stays here: {error}"
                ));
                Ok(())
            }
            forgotten => forgotten,
        }
    }

    /// Deletes the groups' offsets in these partitions of a topic, durably, if the directory has a log of committed offsets of its own.
    ///
    /// # Errors
    /// Those of [`CommittedOffsets::remove`].
    pub(super) fn forget_offsets(&mut self, topic: &str, of: impl Fn(i32) -> bool) -> Result<()> {
        if !self.note.as_ref().is_some_and(|note| note.owns_offsets) {
            return Ok(());
        }
        let mut log = match self.commits.take() {
            Some(log) => log,
            None => self.open_commits()?,
        };
        let mut partitions: BTreeMap<String, Vec<(String, i32)>> = BTreeMap::new();
        let found = log
            .all()
            .filter(|(_, commit)| commit.topic == topic && of(commit.partition));
        for (group, commit) in found {
            let of_group = partitions.entry(group.to_owned()).or_default();
            of_group.push((commit.topic.clone(), commit.partition));
        }
        if partitions.is_empty() {
            self.commits = Some(log);
            return Ok(());
        }
        self.syncs.dirty();
        for (group, partitions) in partitions {
            for part in partitions.chunks(COMMITS_AT_ONCE) {
                log.remove(&group, part)?;
            }
        }
        self.commits = Some(log);
        self.flush()
    }

    /// Compacts the mirror's own log of committed offsets if that is due.
    ///
    /// # Errors
    /// Those of [`LogDir::maintain`].
    pub(crate) fn compact_commits(&self) -> Result<()> {
        if self.commits.is_some() {
            maintain(&self.log_dir)?;
        }
        Ok(())
    }
}

/// Splits commits of a group into parts that fit a batch each.
fn parts<'c>(group: &str, commits: &'c [Commit]) -> impl Iterator<Item = &'c [Commit]> {
    let of_group = group.len();
    let mut rest = commits;
    std::iter::from_fn(move || {
        let mut bytes = 0_usize;
        let fitting = rest.iter().take(COMMITS_AT_ONCE).take_while(|commit| {
            let is_first = bytes == 0;
            bytes += 2 * (of_group + commit.topic.len()) + commit.metadata.len() + 100;
            is_first || bytes <= COMMIT_BYTES_AT_ONCE
        });
        let (part, behind) = rest.split_at_checked(fitting.count())?;
        rest = behind;
        (!part.is_empty()).then_some(part)
    })
}
