//! Rolls the log: closes the active segment and creates the next one.
//!
//! Source: Kafka's `LogSegment.shouldRoll` and `LocalLog.roll`.

use super::PartitionWriter;
use super::flush::Job;
use crate::disk::IoCall;
use crate::error::{Error, ErrorKind, Result};
use crate::segment::active::ActiveSegment;
use crate::segment::indexing::Indexed;
use crate::segment::segment_path;
use offsetlog_format::BatchHeader;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::Arc;

impl PartitionWriter {
    /// Rolls if the next append requires it.
    pub(super) fn roll_if_due(
        &mut self,
        first: &BatchHeader,
        last_offset: i64,
        max_timestamp: i64,
        batches: &[Indexed],
        now: i64,
    ) -> Result<()> {
        if !self.is_due(last_offset, max_timestamp, batches, now)? {
            return Ok(());
        }
        let at_least = if first.magic < 2 {
            // A header of magic 0 or 1 may have only the last offset. As in Kafka, the first is at most `i32::MAX` below it.
            last_offset.saturating_sub(i64::from(i32::MAX))
        } else {
            first.base_offset.unwrap_or(last_offset)
        };
        let base_offset = self.log_end().max(at_least);
        if last_offset - base_offset > i64::from(i32::MAX) {
            return Err(Error::new(ErrorKind::AppendTooWide {
                base_offset,
                last_offset,
            }));
        }
        self.roll_to(base_offset, now)
    }

    fn is_due(
        &mut self,
        last_offset: i64,
        max_timestamp: i64,
        batches: &[Indexed],
        now: i64,
    ) -> Result<bool> {
        // As in a broker, the first append to a new segment creates its index files.
        self.segments.active.touch()?;
        let bytes: u64 = batches.iter().map(|batch| batch.size_bytes).sum();
        let size = self.segments.active.size();
        let segment_bytes = self.config.effective.segment_bytes().max(0) as u64;
        if size > segment_bytes.saturating_sub(bytes) {
            return Ok(true);
        }
        if size > 0 {
            let limit = self.config.effective.segment_ms() - self.segments.active.jitter();
            if self.segments.active.waited(max_timestamp, now) > limit {
                return Ok(true);
            }
        }
        let relative = last_offset - self.segments.active.base_offset;
        if relative < 0 || relative > i64::from(i32::MAX) {
            return Ok(true);
        }
        Ok(self.segments.active.indexes_are_full()
            || (size > 0 && self.segments.active.overfills(batches)?))
    }

    /// Closes the active segment and creates a new one at the log end offset, unless the active one is empty and begins there.
    /// Returns the base offset of the active segment.
    pub(crate) fn roll(&mut self) -> Result<i64> {
        self.check_usable()?;
        let now = self.now();
        if self.segments.active.size() > 0 || self.segments.active.base_offset < self.log_end() {
            self.mark_unclean()?;
            self.expire_producers(now);
        }
        self.roll_to(self.log_end(), now)?;
        Ok(self.segments.active.base_offset)
    }

    pub(super) fn roll_to(&mut self, base_offset: i64, now: i64) -> Result<()> {
        if base_offset == self.segments.active.base_offset && self.segments.active.size() == 0 {
            // A broker makes its files anew.
            self.segments.active.count_from(now);
            return Ok(());
        }
        self.check_in_place()?;
        self.remove_leftovers_of(base_offset)?;
        self.note_gap()?;
        self.segments.active.close()?;
        if base_offset > self.segments.data_end {
            self.settle_gap(base_offset)?;
        }
        self.producers.states.set_end_offset(base_offset);
        // Everything that can fail comes before the switch, because the sync of the old segment must be started after it.
        let mut files = Vec::new();
        let snapshot = self.take_snapshot(false)?;
        let has_snapshot = snapshot.is_some();
        files.extend(snapshot);
        let settings = self.settings(now);
        let next = ActiveSegment::create(&self.directory, base_offset, &settings)?;
        let last = std::mem::replace(&mut self.segments.active, next);
        self.segments.closed.push(last.base_offset);
        self.segments.data_end = base_offset;
        self.segments.cut_inside = None;
        self.segments
            .made_with
            .insert(last.base_offset, last.settings());
        self.ends.note_roll(base_offset, has_snapshot);
        files.extend(last.files());
        self.durability.flusher.start(Job {
            files,
            // The first roll after opening raises the recovery point over these segments, so it syncs them.
            closed: std::mem::take(&mut self.durability.unsettled),
            names: true,
            times: false,
            directory: Arc::clone(&self.directory),
            ends: Arc::clone(&self.ends),
            up_to: base_offset,
        });
        self.durability.names_changed = false;
        Ok(())
    }

    /// Called before a segment is created that does not begin where the one before it ends. Makes that one durable and
    /// remembers the gap. [`note_gap`](Self::note_gap) writes a recovery point at the gap before anything above it is
    /// acknowledged. Otherwise recovery would take the gap for bytes that a power failure lost.
    fn settle_gap(&mut self, base_offset: i64) -> Result<()> {
        self.durability.flusher.wait();
        self.durability.flusher.check(&self.directory.path)?;
        let mut job = self.commit_job()?;
        job.files = self.segments.active.files();
        let settled = job.run();
        if let Err(error) = &settled {
            self.poison(error);
        }
        self.durability.gap = Some(base_offset);
        settled
    }

    /// As [`settle_gap`](Self::settle_gap), for a gap that another writer left and that loading found after an unclean end.
    /// Writes that everything below the gap is durable; the recovery point in memory stays where a broker would have it. That
    /// must be written before our unclean mark: after a crash with the mark alone, recovery would take the gap for lost bytes.
    pub(super) fn settle_found_gap(&mut self, base_offset: i64) -> Result<()> {
        let mut job = self.job();
        job.up_to = self.ends.recovery_point();
        job.run()?;
        self.place.raise_durable(base_offset);
        self.mark_unclean()?;
        self.save_point()
    }

    /// Writes a recovery point at the newest gap, once the log reaches it.
    pub(super) fn note_gap(&mut self) -> Result<()> {
        if let Some(base_offset) = self.durability.gap.filter(|&base| base <= self.log_end()) {
            self.ends.raise_recovery_point(base_offset);
            self.save_point()?;
            self.durability.gap = None;
        }
        Ok(())
    }

    /// Deletes files under the new segment's names, left by an interrupted roll or by a deletion that did not reach the disk.
    pub(super) fn remove_leftovers_of(&self, base_offset: i64) -> Result<()> {
        for suffix in [".log", ".index", ".timeindex", ".txnindex"] {
            let path = segment_path(&self.directory.path, base_offset, suffix);
            match self.directory.disk.unlink(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::io(IoCall::Remove, &path, error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Returns a random number of 31 bits for `segment.jitter.ms`.
pub(super) fn random_u31() -> u32 {
    // Each `RandomState` has another seed. That suffices: segments only have to differ.
    (RandomState::new().build_hasher().finish() as u32) & 0x7fff_ffff
}
