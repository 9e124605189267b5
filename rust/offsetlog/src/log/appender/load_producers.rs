//! The producers' state from snapshots and the batches behind them.
//!
//! Source: Kafka's `UnifiedLog.rebuildProducerState`. Unlike there the log is also scanned where all snapshots are missing after a
//! clean end, so that duplicates are recognised.

use super::companions::write_snapshot;
use super::leftovers;
use super::rebuild::{self, note_producer};
use crate::disk::read_whole;
use crate::error::Result;
use crate::log::producers::ProducerStates;
use crate::segment::find::{self, Trace};
use crate::segment::walk::{SCAN_BYTES, Step};
use crate::segment::{Directory, segment_path};
use offsetlog_format::ProducerSnapshotEntry;
use offsetlog_format::snapshot::read_producer_snapshot;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Snapshot files and the log they belong to.
pub(super) struct ProducerFiles<'l> {
    pub(super) directory: &'l Arc<Directory>,
    pub(super) bases: &'l [i64],
    pub(super) log_start: i64,
    pub(super) now: i64,
    pub(super) dry_run: bool,
    /// Whether snapshots that stand for no segment go: when a log is loaded.
    pub(super) drop_stray: bool,
    /// Whether the last writer's end was clean.
    pub(super) clean: bool,
}

impl ProducerFiles<'_> {
    /// The state at the base offset of a segment, from the newest snapshot that can be read, and a snapshot there.
    pub(super) fn before(
        &self,
        snapshots: &mut BTreeSet<i64>,
        base: i64,
    ) -> Result<ProducerStates> {
        let mut states = ProducerStates::new();
        let usable = snapshots
            .range(..=base)
            .rev()
            .filter(|&&snapshot| snapshot > self.log_start)
            .find_map(|&snapshot| Some((snapshot, self.read(snapshot)?)));
        let mut last_snapshot = self.log_start;
        states.set_end_offset(self.log_start);
        if let Some((snapshot, entries)) = usable {
            self.resume(&mut states, &entries, snapshot);
            last_snapshot = snapshot;
        }
        self.scan(&mut states, base)?;
        states.set_end_offset(base);
        self.write(snapshots, &states, &mut last_snapshot)?;
        Ok(states)
    }

    fn resume(&self, states: &mut ProducerStates, entries: &[ProducerSnapshotEntry], offset: i64) {
        states.load_snapshot(
            entries,
            offset,
            self.now,
            super::load::PRODUCER_EXPIRATION_MS,
        );
    }

    /// The state at the log's end, and the offset of the newest snapshot. Snapshots that are no use go, those that are due are
    /// written.
    pub(super) fn rebuild(
        &self,
        snapshots: &mut BTreeSet<i64>,
        log_end: i64,
    ) -> Result<(ProducerStates, i64)> {
        // A broker that finds no snapshot at all after a clean end writes them anew where it expects them.
        let begins_anew = self.clean && snapshots.is_empty();
        self.drop_useless(snapshots, log_end)?;
        let mut states = ProducerStates::new();
        let mut last_snapshot = if begins_anew { 0 } else { self.log_start };
        states.set_end_offset(self.log_start);
        while let Some(&snapshot) = snapshots.last() {
            if let Some(entries) = self.read(snapshot) {
                self.resume(&mut states, &entries, snapshot);
                last_snapshot = snapshot;
                break;
            }
            self.remove(snapshots, snapshot)?;
        }
        // A broker takes a snapshot where the last two segments begin, when it passes there.
        for &base in self.bases.iter().skip(self.bases.len().saturating_sub(2)) {
            let is_ahead = base > states.end_offset() || (begins_anew && base > last_snapshot);
            if is_ahead && base <= log_end {
                self.scan(&mut states, base)?;
                states.set_end_offset(base);
                self.write(snapshots, &states, &mut last_snapshot)?;
            }
        }
        self.scan(&mut states, log_end)?;
        states.set_end_offset(log_end);
        self.write(snapshots, &states, &mut last_snapshot)?;
        Ok((states, last_snapshot))
    }

    fn write(
        &self,
        snapshots: &mut BTreeSet<i64>,
        states: &ProducerStates,
        last_snapshot: &mut i64,
    ) -> Result<()> {
        let offset = states.end_offset();
        if offset <= *last_snapshot {
            return Ok(());
        }
        if !self.dry_run {
            write_snapshot(self.directory, states)?;
        }
        snapshots.insert(offset);
        *last_snapshot = offset;
        Ok(())
    }

    /// Removes snapshots that stand for no segment (but the newest), and those outside the log.
    fn drop_useless(&self, snapshots: &mut BTreeSet<i64>, log_end: i64) -> Result<()> {
        let last_base = self.bases.last().copied();
        let newest_other = snapshots
            .iter()
            .rev()
            .find(|&offset| self.bases.binary_search(offset).is_err())
            .copied()
            .filter(|&offset| last_base.is_none_or(|base| offset > base));
        let useless: Vec<i64> = snapshots
            .iter()
            .copied()
            .filter(|&offset| {
                let is_base = self.bases.binary_search(&offset).is_ok();
                let stays = is_base || newest_other == Some(offset) || !self.drop_stray;
                !stays || offset <= self.log_start || offset > log_end
            })
            .collect();
        for offset in useless {
            self.remove(snapshots, offset)?;
        }
        Ok(())
    }

    fn remove(&self, snapshots: &mut BTreeSet<i64>, offset: i64) -> Result<()> {
        snapshots.remove(&offset);
        if self.dry_run {
            return Ok(());
        }
        let path = segment_path(&self.directory.path, offset, ".snapshot");
        leftovers::remove(self.directory.disk.as_ref(), &path)
    }

    /// The entries of a snapshot; `None` where it cannot be read: the next older one is taken.
    fn read(&self, offset: i64) -> Option<Vec<ProducerSnapshotEntry>> {
        let path = segment_path(&self.directory.path, offset, ".snapshot");
        let limit = self.directory.limits.max_text_file_bytes;
        let bytes = read_whole(self.directory.disk.as_ref(), &path, limit).ok()?;
        read_producer_snapshot(&bytes).ok()
    }

    /// Follows the batches from where the state stands to `offset`.
    fn scan(&self, states: &mut ProducerStates, offset: i64) -> Result<()> {
        let from = states.end_offset();
        if from >= offset {
            return Ok(());
        }
        let first = self
            .bases
            .partition_point(|&base| base <= from)
            .saturating_sub(1);
        for (slot, &base) in self.bases.iter().enumerate().skip(first) {
            if base >= offset {
                break;
            }
            let next = self.bases.get(slot + 1).copied();
            let segment = rebuild::open(self.directory, base, next)?;
            let mut walk = find::start(
                &segment,
                from,
                SCAN_BYTES,
                Vec::new(),
                &mut Trace::default(),
            )?;
            loop {
                let header = match walk.step(false) {
                    Ok(Step::Batch(header)) => header,
                    Ok(Step::End(_)) => break,
                    // Damage that nobody asked to look for: what lies behind it is read by nobody either.
                    Err(error) if error.is_corruption() => break,
                    Err(error) => return Err(error),
                };
                if header.base_offset.unwrap_or(header.last_offset) >= offset {
                    break;
                }
                if header.last_offset >= from && header.producer_id >= 0 {
                    note_producer(&header, &mut walk, states, &mut Vec::new())?;
                }
            }
        }
        Ok(())
    }
}
