//! The writer of a partition: its state in memory, and the steps by which it changes the files.
//!
//! Readers use views of the same directory meanwhile; [`LiveOffsets`] publishes the log start offset and the end offsets to them.
//!
//! An append that fails before its bytes are written leaves the records as they were. A write that fails halfway is undone. If
//! that fails too, the writer refuses all changes ([`ErrorKind::Poisoned`]) until the log is opened again.

mod append;
mod companions;
mod flush;
mod group_commit;
mod keep_cut;
mod move_in;
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
use super::LiveOffsets;
use super::producers::ProducerStates;
use super::recovery::RecoveryReport;
use super::state::{PartitionState, read_config, write_config};
use super::{Guard, Membership};
use crate::config::{BrokerSettings, EffectiveConfig, LogConfig};
use crate::disk::Lock;
use crate::error::{Error, ErrorKind, Result};
use crate::segment::Directory;
use crate::segment::active::{ActiveSegment, Settings};
use crate::segment::index_maps::IndexMaps;
use flush::Flusher;
use offsetlog_format::LeaderEpochs;
use pending_deletes::PendingDeletes;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use validate::CodecBuffers;

pub use append::{AppendOptions, AppendOrigin};
pub use open::recover;
pub(crate) use retention::Due;
pub use retention::{RemovedSegment, RetentionReason};
pub(crate) use room::Freed;

pub(super) use flush::Commit;
pub(super) use open::open;
pub(crate) use validate::Checksums;

/// Options for opening a log for appending.
#[derive(Clone, Default)]
pub struct WriteOptions {
    /// Settings of the log. They replace the stored ones; `None` keeps those.
    pub config: Option<LogConfig>,
    /// Values of settings that are neither given nor stored, like a broker's defaults for its topics.
    pub defaults: LogConfig,
    /// Id of the topic, for a partition that has none yet. An id other than the stored one is refused.
    pub topic_id: Option<offsetlog_format::Uuid>,
    /// Whether the last writer closed the log cleanly; `None`: its marks decide.
    pub clean: Option<bool>,
    /// Offset from which recovery reads after an unclean end; `None`: the checkpoint decides.
    pub recovery_point: Option<i64>,
    /// Lowest offset that can be read; `None`: the checkpoint decides.
    pub log_start_offset: Option<i64>,
    /// In a broker's log dir: the folder of the cluster's metadata log if that is not in the log dir itself, or of ZooKeeper's
    /// data.
    pub metadata: Option<PathBuf>,
    /// In a broker's log dir: the broker's `server.properties`.
    pub broker: Option<BrokerSettings>,
    /// Internal topics of brokers, such as `__consumer_offsets`, whose records may be deleted nevertheless.
    pub internal_topics: BTreeSet<String>,
    /// Whether records may be changed even if other brokers have replicas of the partition.
    pub single_replica: bool,
    /// Whether the caller is the mirror that fills the log dir. Nobody else may change the records there.
    pub fills_mirror: bool,
    /// Whether this log is a copy of one whose settings are not known: only settings that are given are stored.
    pub is_copy: bool,
}

/// State of the writer. A lock around it puts appends in order.
#[derive(Debug)]
pub(crate) struct PartitionWriter {
    directory: Arc<Directory>,
    place: PartitionState,
    config: WriterConfig,
    /// Decides which changes the partition's cluster allows.
    guard: Guard,
    clock: ClockHolder,
    ends: Arc<LiveOffsets>,
    maps: Arc<IndexMaps>,
    segments: Segments,
    epochs: LeaderEpochs,
    producers: Producers,
    durability: Durability,
    codec_buffers: CodecBuffers,
    report: RecoveryReport,
    poisoned: Option<String>,
    /// The log was closed cleanly and opening it changed nothing, so closing it unchanged need not write anything.
    started_clean: bool,
    #[expect(dead_code, reason = "for its end")]
    closing: CloseAtEnd,
    /// Held until the log is closed. Declared last, so that a drop first closes the files and drops the maps.
    locks: Vec<Lock>,
}

/// The effective settings and their sources.
#[derive(Debug)]
struct WriterConfig {
    /// Settings in effect.
    effective: LogConfig,
    /// Settings passed by the caller.
    given: Option<LogConfig>,
    /// Settings stored beside the data.
    stored: Option<LogConfig>,
    /// Values of settings that are neither given nor stored.
    defaults: LogConfig,
}

/// The segments, and the end of the last one's records.
#[derive(Debug)]
struct Segments {
    /// Base offsets of the closed segments, ascending.
    closed: Vec<i64>,
    active: ActiveSegment,
    /// Settings of the segments that existed when the log was opened.
    opened_with: Settings,
    /// Settings of the segments that were closed or cleaned since, by base offset.
    made_with: BTreeMap<i64, Settings>,
    /// Offset after the last batch. Below the log end offset after a truncation inside a batch.
    data_end: i64,
    /// After a truncation inside a batch, until the next roll: the end of the records, and the log end offset then.
    cut_inside: Option<(i64, i64)>,
    pending_deletes: PendingDeletes,
}

/// The producers' states and their snapshots: Kafka's `ProducerStateManager`.
#[derive(Debug)]
struct Producers {
    states: ProducerStates,
    /// Offsets of the snapshot files.
    snapshots: BTreeSet<i64>,
    /// Offset of the newest snapshot that was loaded or written.
    last_snapshot: i64,
    /// Time of the latest check for expired producers.
    last_expiry: i64,
}

/// What may not be durable yet, and who syncs it.
#[derive(Debug)]
struct Durability {
    flusher: Flusher,
    last_flush: i64,
    /// When the recovery point was last written.
    last_checkpoint: i64,
    /// `flush.messages` or `flush.ms` requires a sync.
    flush_due: bool,
    /// A truncation, or the last changes of an earlier writer, may not be durable yet.
    unsynced: bool,
    /// Closed segments that an earlier writer, or recovery, may have left in the page cache only.
    unsettled: Vec<i64>,
    /// Files were created, renamed or deleted since the directory was synced.
    names_changed: bool,
    /// Base offset of the newest segment that does not begin where the one before it ends, until a recovery point at or above
    /// it is written.
    gap: Option<i64>,
}

impl Segments {
    /// Base offset of the first segment.
    fn first_base(&self) -> i64 {
        let first = self.closed.first().copied();
        first.unwrap_or(self.active.base_offset)
    }

    /// Base offset of the segment that holds `offset`; of the active segment for an offset above the log's end.
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

/// Marks the log as closed for readers when the writer is dropped, even if it was never closed.
#[derive(Debug)]
struct CloseAtEnd(Arc<IndexMaps>);

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
    pub(super) fn now(&self) -> i64 {
        (self.clock.0)()
    }

    pub(super) const fn config(&self) -> &LogConfig {
        &self.config.effective
    }

    pub(super) const fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Returns the effective settings with the source of each one; those of `option` take precedence.
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

    /// Replaces what the cluster said when the log was opened. A log that was a broker's then stays one.
    pub(super) fn join(&mut self, membership: Arc<Membership>) -> Result<()> {
        if membership.is_brokers() {
            self.place.join(&membership);
            self.guard.membership = membership;
            self.config.effective = self.effective(None)?.config().clone();
        }
        Ok(())
    }

    pub(super) const fn report(&self) -> &RecoveryReport {
        &self.report
    }

    /// Leader epoch of an append: the given one, or else the newest of the log, or 0.
    pub(super) fn epoch_for(&self, given: Option<i32>) -> i32 {
        given.unwrap_or_else(|| self.epochs.latest().map_or(0, |entry| entry.epoch))
    }

    /// Answers a follower as a leader does; contract of `LeaderEpochFileCache.endOffsetFor`.
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

    /// Returns the high watermark. It is the log end offset if this is the only replica.
    fn high_watermark(&self) -> Result<i64> {
        self.place.high_watermark(self.ends.log_end())
    }

    /// Fails if the log is closed, if the writer is poisoned, or if a sync has failed.
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

    /// Refuses all later changes: the files no longer match the state in memory.
    fn poison(&mut self, error: &Error) {
        self.poisoned.get_or_insert_with(|| error.to_string());
    }

    /// Poisons the writer if a sync failed.
    pub(super) fn note_failure(&mut self, error: &Error) {
        if error.is_failed_sync() {
            self.poison(error);
        }
    }

    /// Publishes the new offsets to readers.
    fn publish(&mut self, log_end: i64) {
        // Invariant: a reader that sees an end offset can read up to it. So the visible size is raised before the offset, and
        // lowered after it.
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

    pub(super) fn change_config(
        &mut self,
        change: impl Fn(&LogConfig) -> Result<LogConfig>,
    ) -> Result<()> {
        self.check_usable()?;
        self.guard.membership.check_kept(&self.directory.path)?;
        let stored = read_config(self.directory.disk.as_ref(), &self.directory.path)?;
        let config = change(&stored.unwrap_or_default())?;
        self.set_config(&config)
    }

    pub(super) fn set_config(&mut self, config: &LogConfig) -> Result<()> {
        self.check_usable()?;
        let mut membership = Membership::clone(&self.guard.membership);
        membership.keep();
        let effective = membership.effective(Some(config), None, &self.config.defaults)?;
        // A broker's partition has those of its cluster: what is given holds while the log is open.
        if !membership.is_brokers() {
            write_config(self.directory.disk.as_ref(), &self.directory.path, config)?;
            self.config.stored = Some(config.clone());
        }
        self.config.effective = effective.config().clone();
        self.config.given = Some(config.clone());
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
