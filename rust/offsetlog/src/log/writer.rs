//! The one writer of a log: what it knows of the partition, and the order in which files change.
//!
//! Reading goes on beside it through views of the same directory; [`Ends`] tells readers where the log begins and ends meanwhile.
//! Whatever fails before the bytes of an append were handed over leaves everything as it was; what fails in the middle is taken
//! back; and what cannot be taken back ends the appending ([`ErrorKind::Poisoned`]) until the log is opened again.

mod append;
mod companions;
mod flush;
mod group_commit;
mod open;
mod owned_records;
mod pending_deletes;
mod replace_segments;
mod retention;
mod roll;
mod room;
mod truncate;
mod validate;

use super::Clock;
use super::Ends;
use super::producers::ProducerStates;
use super::recovery::RecoveryReport;
use super::state::{PartitionState, write_config};
use super::{Guard, Membership};
use crate::config::{BrokerSettings, EffectiveConfig, LogConfig};
use crate::disk::Lock;
use crate::error::{Error, ErrorKind, Result};
use crate::segment::Directory;
use crate::segment::active::{ActiveSegment, Settings};
use flush::Flusher;
use offsetlog_format::LeaderEpochs;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use validate::CodecBuffers;

pub use append::{AppendInfo, AppendOptions, AppendOrigin};
pub use open::recover;
pub use retention::{RemovedSegment, RetentionReason};

pub(super) use flush::Commit;
pub(super) use open::open;

/// How a log is opened for appending.
#[derive(Clone, Default)]
pub struct WriteOptions {
    /// Settings that replace the stored ones and are stored; `None` keeps what is stored.
    pub config: Option<LogConfig>,
    /// What holds for settings that are not stored: a broker's, for its topics.
    pub defaults: LogConfig,
    /// The topic's id, for a partition that has none yet. Another id than the stored one is refused.
    pub topic_id: Option<offsetlog_format::Uuid>,
    /// Whether the last writer's end is believed to have been clean; `None`: what its marks say.
    pub clean: Option<bool>,
    /// From where on an unclean end is recovered; `None`: what the checkpoint says.
    pub recovery_point: Option<i64>,
    /// Lowest offset that can be read; `None`: what the checkpoint says.
    pub log_start_offset: Option<i64>,
    /// In a broker's log dir: the folder with the cluster's metadata log, where that is not in the log dir itself, or ZooKeeper's data.
    pub metadata: Option<PathBuf>,
    /// In a broker's log dir: the broker's `server.properties`.
    pub broker: Option<BrokerSettings>,
    /// Topics of brokers' own, such as `__consumer_offsets`, whose records may be taken away all the same.
    pub internal_topics: BTreeSet<String>,
    /// Whether records may be changed though other brokers have replicas of the partition.
    pub single_replica: bool,
    /// Whether what is made is a copy of a log whose settings are not known: none are stored with it but those that are given.
    pub is_copy: bool,
}

/// The writer's state; one lock around it makes appends follow each other.
#[derive(Debug)]
pub(crate) struct PartitionWriter {
    directory: Arc<Directory>,
    place: PartitionState,
    config: WriterConfig,
    /// What may be done to the partition.
    guard: Guard,
    clock: ClockHolder,
    ends: Arc<Ends>,
    segments: Segments,
    epochs: LeaderEpochs,
    producers: Producers,
    durability: Durability,
    codec_buffers: CodecBuffers,
    report: RecoveryReport,
    poisoned: Option<String>,
    /// The log was found as its last writer left it at a clean end.
    started_clean: bool,
    /// Held until the log is closed; after all else.
    locks: Vec<Lock>,
    #[expect(dead_code, reason = "for its end")]
    closing: CloseAtEnd,
}

/// The settings, and what they are made of.
#[derive(Debug)]
struct WriterConfig {
    /// Those that hold.
    effective: LogConfig,
    /// Those that the caller gave.
    given: Option<LogConfig>,
    /// Those that are stored beside the data.
    stored: Option<LogConfig>,
    /// What holds where neither says anything.
    defaults: LogConfig,
    /// Those that the maintenance under way goes by; the effective ones without.
    maintenance: Option<LogConfig>,
}

/// The segments, and where the last one's records end.
#[derive(Debug)]
struct Segments {
    /// Base offsets of the closed segments, ascending.
    closed: Vec<i64>,
    active: ActiveSegment,
    /// What the segments were opened with that were there at the beginning.
    opened_with: Settings,
    /// What the closed ones were made with since.
    made_with: BTreeMap<i64, Settings>,
    /// Behind the last batch: below the log end offset after a truncation inside a batch.
    data_end: i64,
    /// After a truncation inside a batch, until the log is rolled: where its records ended and where it did.
    cut_inside: Option<(i64, i64)>,
    /// Files renamed `.deleted`, with the time at which they are removed.
    pending_deletes: Vec<(i64, PathBuf)>,
}

/// The producers' states and their snapshots: Kafka's `ProducerStateManager`.
#[derive(Debug)]
struct Producers {
    states: ProducerStates,
    /// Offsets of the snapshot files.
    snapshots: BTreeSet<i64>,
    /// The newest snapshot that was loaded or written.
    last_snapshot: i64,
    /// When producers were last expired.
    last_expiry: i64,
}

/// What is not on the disk for certain yet, and who syncs it.
#[derive(Debug)]
struct Durability {
    flusher: Flusher,
    last_flush: i64,
    /// When the recovery point was last written down.
    last_checkpoint: i64,
    /// A setting wants what was appended to be flushed.
    flush_due: bool,
    /// A truncation is not durable yet.
    unsynced: bool,
    /// Closed segments that an earlier writer, or opening, may have left in memory only.
    unsettled: Vec<i64>,
    /// Files were made, renamed or removed since the directory was synced.
    names_changed: bool,
    /// Base offset of the newest segment that does not begin where the one before ends, until that is written down.
    gap: Option<i64>,
}

impl Segments {
    /// Base offset of the first segment.
    fn first_base(&self) -> i64 {
        let first = self.closed.first().copied();
        first.unwrap_or(self.active.base_offset)
    }

    /// Base offset of the segment that holds `offset`: that of the active one also for what lies behind.
    fn floor_base(&self, offset: i64) -> i64 {
        if offset >= self.active.base_offset {
            return self.active.base_offset;
        }
        let slot = self.closed.partition_point(|&base| base <= offset);
        let closed = self.closed.get(slot.saturating_sub(1));
        closed.copied().unwrap_or(self.active.base_offset)
    }

    /// Base offsets of all segments, ascending.
    fn bases(&self) -> Vec<i64> {
        let mut bases = self.closed.clone();
        bases.push(self.active.base_offset);
        bases
    }
}

/// Tells readers that there is no writer any more, also where one was dropped without being closed.
#[derive(Debug)]
struct CloseAtEnd(Arc<Ends>);

impl Drop for CloseAtEnd {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A clock that can be printed.
#[derive(Clone)]
pub(super) struct ClockHolder(pub(super) Clock);

impl std::fmt::Debug for ClockHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

impl std::fmt::Debug for WriteOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteOptions")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl PartitionWriter {
    fn now(&self) -> i64 {
        (self.clock.0)()
    }

    pub(super) const fn config(&self) -> &LogConfig {
        &self.config.effective
    }

    /// The settings by which upkeep decides.
    fn upkeep_config(&self) -> &LogConfig {
        self.config
            .maintenance
            .as_ref()
            .unwrap_or(&self.config.effective)
    }

    pub(super) const fn guard(&self) -> &Guard {
        &self.guard
    }

    /// The settings that hold, with where they come from; `option` is above all.
    pub(super) fn effective(&self, option: Option<&LogConfig>) -> Result<EffectiveConfig> {
        let membership = &self.guard.membership;
        let effective = membership.effective(
            self.config.given.as_ref(),
            self.config.stored.as_ref(),
            &self.config.defaults,
        )?;
        Ok(match option {
            Some(option) => effective.with_option(option),
            None => effective,
        })
    }

    /// What the cluster says now takes the place of what it said when the log was opened.
    pub(super) fn join(&mut self, membership: Arc<Membership>) -> Result<()> {
        if membership.is_brokers() {
            self.place.join(&membership);
            self.guard.membership = membership;
            self.config.effective = self.effective(None)?.config().clone();
        }
        Ok(())
    }

    /// Has upkeep go by these from now on.
    pub(super) fn set_upkeep_config(&mut self, config: LogConfig) {
        self.config.maintenance = Some(config);
    }

    pub(super) const fn report(&self) -> &RecoveryReport {
        &self.report
    }

    /// The epoch of an append that does not name one: the newest of the log, or 0.
    pub(super) fn epoch_for(&self, given: Option<i32>) -> i32 {
        given.unwrap_or_else(|| self.epochs.latest().map_or(0, |entry| entry.epoch))
    }

    /// As a leader answers a follower: contract of `LeaderEpochFileCache.endOffsetFor`.
    pub(super) fn end_offset_for_epoch(&self, epoch: i32) -> Option<(i32, i64)> {
        let entries = self.epochs.entries();
        let latest = entries.last()?;
        if epoch < 0 || epoch > latest.epoch {
            return None;
        }
        if epoch == latest.epoch {
            return Some((epoch, self.log_end()));
        }
        let next = entries.partition_point(|entry| entry.epoch <= epoch);
        let end = entries.get(next)?.start_offset;
        let floor = next.checked_sub(1).and_then(|slot| entries.get(slot));
        Some((floor.map_or(epoch, |entry| entry.epoch), end))
    }

    pub(super) fn log_end(&self) -> i64 {
        self.ends.log_end()
    }

    /// Everything below is replicated: the log end offset, where this is the only replica.
    fn high_watermark(&self) -> Result<i64> {
        self.place.high_watermark(self.ends.log_end())
    }

    /// Refuses when the log is closed or broken.
    fn check_usable(&self) -> Result<()> {
        if self.ends.is_closed() {
            return Err(Error::new(ErrorKind::Closed).at_path(&self.directory.path));
        }
        match &self.poisoned {
            Some(first) => Err(Error::new(ErrorKind::Poisoned {
                first: first.clone(),
            })
            .at_path(&self.directory.path)),
            None => self.durability.flusher.check(&self.directory.path),
        }
    }

    /// Ends the appending: what is on the disk is no longer what this object believes.
    fn poison(&mut self, error: &Error) {
        self.poisoned.get_or_insert_with(|| error.to_string());
    }

    /// Ends the appending if what failed was a sync.
    pub(super) fn note_failure(&mut self, error: &Error) {
        if error.is_failed_sync() {
            self.poison(error);
        }
    }

    /// Tells readers what became of the offsets.
    fn publish(&mut self, log_end: i64) {
        // Who is told an end finds its bytes: they are shown before it grows, and hidden after it shrank.
        let (base_offset, size) = (
            self.segments.active.base_offset,
            self.segments.active.size(),
        );
        if log_end < self.ends.log_end() {
            self.ends.set_log_end(log_end);
        }
        self.ends.set_active(base_offset, size);
        self.ends.set_log_end(log_end);
        self.producers.states.complete_until(log_end);
        let last_stable = self
            .producers
            .states
            .first_unstable_offset()
            .unwrap_or(log_end);
        let last_stable = last_stable.clamp(self.ends.log_start().min(log_end), log_end);
        self.ends.set_last_stable(last_stable);
    }

    fn settings(&self, now: i64) -> Settings {
        settings(&self.config.effective, now)
    }

    pub(super) fn set_config(&mut self, config: &LogConfig) -> Result<()> {
        self.check_usable()?;
        let mut membership = Membership::clone(&self.guard.membership);
        membership.keep();
        let effective = membership.effective(Some(config), None, &self.config.defaults)?;
        write_config(self.directory.disk.as_ref(), &self.directory.path, config)?;
        self.config.effective = effective.config().clone();
        self.config.given = Some(config.clone());
        self.config.stored = Some(config.clone());
        self.config.maintenance = None;
        self.guard.membership = Arc::new(membership);
        Ok(())
    }
}

fn settings(config: &LogConfig, now: i64) -> Settings {
    let limit = config.segment_jitter_ms().min(config.segment_ms());
    Settings {
        index_bytes: config.segment_index_bytes(),
        index_interval: config.index_interval_bytes(),
        preallocate: if config.preallocate() {
            config.segment_bytes().max(0) as u64
        } else {
            0
        },
        created: now,
        jitter: if limit > 0 {
            i64::from(roll::random_u31()) % limit
        } else {
            0
        },
    }
}
