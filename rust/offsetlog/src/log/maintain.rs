//! Maintains one partition: retention, compaction, and the deletion of `.deleted` files whose delay is over.
//!
//! Source: the order of Kafka's `kafka-log-retention` task and its cleaner threads.

mod rehearsal;

use super::LogWriter;
use super::cleaner::{LastRecord, Pass, Plan};
use super::cluster::{Membership, Upkeep};
use super::writer::{Freed, PartitionWriter, RemovedSegment, RetentionReason};
use crate::config::LogConfig;
use crate::error::{Error, ErrorKind, Result};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// `log.cleaner.dedupe.buffer.size` of a broker.
const MAP_BYTES: usize = 134_217_728;

/// Options of [`LogWriter::maintain`].
#[derive(Debug, Clone)]
pub struct MaintainOptions {
    /// Time in milliseconds since 1970 from which the ages of records are computed, and by which the delay of what was deleted before
    /// is over; by default the log's clock. What this run deletes and makes has the clock's time all the same.
    pub now: Option<i64>,
    /// Only report what would be done. A compaction that is due is then done in memory and in a temporary file.
    pub dry_run: bool,
    /// Whether to delete segments by the retention settings and the log start offset.
    pub retention: bool,
    /// Whether to compact a log with the policy `compact` if it is dirty enough.
    pub compaction: bool,
    /// Whether to delete files that were renamed to `.deleted` and whose `file.delete.delay.ms` is over.
    pub deletes: bool,
    /// Largest size in bytes of the cleaner's map of keys; by default a broker's, 128 MiB. With less, a log takes more passes.
    pub map_bytes: Option<usize>,
    /// Settings that take precedence over all others for this run.
    pub config: Option<LogConfig>,
    /// In a log dir, only these topics, and only directories of these that were deleted; all topics if empty. A directory whose name
    /// was cut when it was renamed for deletion is of none of these.
    pub topics: Vec<String>,
}

impl Default for MaintainOptions {
    fn default() -> Self {
        Self {
            now: None,
            dry_run: false,
            retention: true,
            compaction: true,
            deletes: true,
            map_bytes: None,
            config: None,
            topics: Vec::new(),
        }
    }
}

impl MaintainOptions {
    pub(crate) const fn parts(&self) -> Upkeep {
        Upkeep {
            retention: self.retention,
            compaction: self.compaction,
            deletes: self.deletes,
        }
    }
}

/// Options of [`LogWriter::compact`].
#[derive(Debug, Clone, Copy, Default)]
pub struct CompactOptions {
    /// First offset that counts as dirty; by default the end of the last pass.
    pub first_dirty: Option<i64>,
    /// Largest size in bytes of the cleaner's map of keys; by default a broker's, 128 MiB.
    pub map_bytes: Option<usize>,
}

/// Result of one pass of the cleaner.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Compaction {
    /// First offset that was dirty before the pass.
    pub first_dirty_offset: i64,
    /// End of the pass: the first offset that is dirty now.
    pub end_offset: i64,
    /// First offset that must not be compacted yet.
    pub first_uncleanable_offset: i64,
    /// Share of the bytes that were dirty.
    pub dirty_ratio: f64,
    /// Number of different keys from `first_dirty_offset` to `end_offset`.
    pub keys: usize,
    /// Segments read.
    pub segments_before: usize,
    /// Segments that replaced them.
    pub segments_after: usize,
    /// Bytes read.
    pub bytes_before: u64,
    /// Bytes that replaced them.
    pub bytes_after: u64,
    /// Records read.
    pub records_before: u64,
    /// Records kept.
    pub records_after: u64,
}

/// Report of what [`LogWriter::maintain`] did, or would do.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MaintainReport {
    /// Nothing was changed. The report is that of the same call without `dry_run`.
    pub dry_run: bool,
    /// Segments deleted by retention, oldest first.
    pub removed: Vec<RemovedSegment>,
    /// Passes of the cleaner.
    pub compactions: Vec<Compaction>,
    /// Files named `.deleted` that were deleted.
    pub deleted: Vec<PathBuf>,
    /// Lowest offset that can be read.
    pub log_start_offset: i64,
    /// Offset that the next record gets.
    pub log_end_offset: i64,
}

impl MaintainReport {
    /// Whether nothing was done.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.compactions.is_empty() && self.deleted.is_empty()
    }
}

/// The settings of a run, and which steps come before retention.
#[derive(Clone, Copy)]
struct Steps<'c> {
    /// As the run began: they decide which steps it has.
    config: &'c LogConfig,
    /// Those that hold when a step deletes or compacts: the topic's may have been altered since, while the run waited or compacted.
    settings: &'c dyn Fn(&PartitionWriter) -> Result<LogConfig>,
    /// Compact the log if it is dirty enough.
    compacts: bool,
    /// Delete segments by retention before the compaction too.
    removes_first: bool,
    /// Number of the first file that this run renames to `.deleted`.
    first_delete: u64,
}

/// Lets one maintenance run at a time. Callers that truncate or close the log interrupt it.
#[derive(Debug, Default)]
pub(super) struct MaintenanceLock {
    busy: Mutex<()>,
    wanted: AtomicUsize,
}

/// While this exists, no maintenance runs.
#[derive(Debug)]
pub(super) struct Paused<'t> {
    lock: &'t MaintenanceLock,
    _busy: MutexGuard<'t, ()>,
}

impl MaintenanceLock {
    fn take(&self) -> MutexGuard<'_, ()> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn pause(&self) -> Paused<'_> {
        self.wanted.fetch_add(1, Ordering::AcqRel);
        Paused {
            lock: self,
            _busy: self.take(),
        }
    }

    fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire) > 0
    }
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        self.lock.wanted.fetch_sub(1, Ordering::AcqRel);
    }
}

impl LogWriter {
    /// Does what is due now: compacts a log with the policy `compact` if it is dirty enough, deletes segments by retention, and
    /// deletes files whose delay is over. Appends and readers continue meanwhile.
    ///
    /// # Errors
    /// Corruption of a batch that was to be compacted, which then stays as it is, or that hides the times of a segment, before which
    /// retention ends;
    /// `Cluster` in a broker's log dir if a setting that decides is not known, or for an internal topic;
    /// `Io`, `Closed`, `Poisoned`, `Interrupted`.
    pub fn maintain(&self, options: &MaintainOptions) -> Result<MaintainReport> {
        let mut report = MaintainReport::default();
        self.maintain_into(options, &mut report)?;
        Ok(report)
    }

    /// As [`maintain`](Self::maintain), and puts what it does into `report`, which so also has what was done before an error.
    ///
    /// # Errors
    /// Those of [`maintain`](Self::maintain).
    pub fn maintain_into(
        &self,
        options: &MaintainOptions,
        report: &mut MaintainReport,
    ) -> Result<()> {
        self.maintain_one(report, options, false)
    }

    /// As [`maintain_into`](Self::maintain_into). `is_one_of_many`: a broker's cleaner
    /// compacts one log, retention deletes old segments of all logs, and only then the cleaner compacts the next log. So in a
    /// log dir old segments are deleted before they could be merged with younger ones; this does not except the first log.
    pub(crate) fn maintain_one(
        &self,
        report: &mut MaintainReport,
        options: &MaintainOptions,
        is_one_of_many: bool,
    ) -> Result<()> {
        report.dry_run = options.dry_run;
        let done = self.maintain_by(report, options, is_one_of_many);
        if options.dry_run {
            return done;
        }
        // A run that failed may have moved them, too.
        let ends = self.look(|view| Ok((view.log_start_offset, view.end()?.log_end_offset)));
        done.and(ends.map(|ends| (report.log_start_offset, report.log_end_offset) = ends))
    }

    fn maintain_by(
        &self,
        report: &mut MaintainReport,
        options: &MaintainOptions,
        is_one_of_many: bool,
    ) -> Result<()> {
        let config = self.changing(|writer| self.upkeep_config(writer, options))?;
        let now = options.now.unwrap_or_else(|| (self.options().clock)());
        let compacts = options.compaction && config.is_compacted();
        let settings = |writer: &PartitionWriter| self.upkeep_config(writer, options);
        let mut steps = Steps {
            config: &config,
            settings: &settings,
            compacts,
            removes_first: compacts && options.retention && is_one_of_many,
            first_delete: 0,
        };
        if options.dry_run {
            return self.rehearse(now, report, options, steps);
        }
        // Files of earlier runs go by `now`, which may be any time. It comes first, because those of this run have the clock's time.
        steps.first_delete = self.changing(|writer| {
            if options.deletes {
                report.deleted.extend(writer.delete_due(now));
            }
            Ok(writer.next_pending_delete())
        })?;
        let mut done = self.work(now, report, options, steps, None);
        if options.retention && done.as_ref().is_err_and(Error::is_out_of_room) {
            let mut freed = Freed::default();
            let made = self.in_turn(|| {
                self.changing(|writer| {
                    let config = settings(writer)?;
                    writer.make_room(&config, now, &mut freed)
                })
            });
            let is_empty = freed.is_empty();
            report.removed.extend(freed.removed);
            report.deleted.extend(freed.deleted);
            made?;
            if !is_empty {
                done = self.work(now, report, options, steps, None);
            }
        }
        done
    }

    /// Returns the settings that hold now for a run, if maintenance with them is allowed.
    fn upkeep_config(
        &self,
        writer: &PartitionWriter,
        options: &MaintainOptions,
    ) -> Result<LogConfig> {
        let guard = writer.guard();
        guard.check_internal(self.topic(), "maintain", self.path())?;
        let effective = writer.effective(options.config.as_ref())?;
        guard.check_upkeep(&effective, options.parts(), self.path())?;
        Ok(effective.config().clone())
    }

    /// Compacts, then deletes segments, and at once their files if these have no delay. The cleaner keeps the last batches of
    /// `producers`; by default those of the writer.
    fn work(
        &self,
        now: i64,
        report: &mut MaintainReport,
        options: &MaintainOptions,
        steps: Steps<'_>,
        producers: Option<&HashMap<i64, LastRecord>>,
    ) -> Result<()> {
        let done = self.compact_and_retain(now, report, options, steps, producers);
        let deleted = if options.deletes && done.as_ref().err().is_none_or(leaves_files_known) {
            self.changing(|writer| {
                let clock = writer.now();
                Ok(writer.delete_due_since(steps.first_delete, clock))
            })
        } else {
            Ok(Vec::new())
        };
        done.and(deleted.map(|deleted| report.deleted.extend(deleted)))
    }

    fn compact_and_retain(
        &self,
        now: i64,
        report: &mut MaintainReport,
        options: &MaintainOptions,
        steps: Steps<'_>,
        producers: Option<&HashMap<i64, LastRecord>>,
    ) -> Result<()> {
        if steps.removes_first {
            self.retain_due(steps, now, &mut report.removed)?;
        }
        let mut compacted = Ok(());
        if steps.compacts {
            let map_bytes = options.map_bytes.unwrap_or(MAP_BYTES);
            let passes = &mut report.compactions;
            compacted =
                self.in_turn(|| self.compact_due(steps, now, (map_bytes, producers), passes));
        }
        // On a full disk the next step may free the room that the compaction needs. Damage concerns the compaction alone.
        let compacted = match compacted {
            Err(error) if !leaves_files_known(&error) => return Err(error),
            compacted => compacted,
        };
        if options.retention {
            self.retain_due(steps, now, &mut report.removed)?;
        }
        compacted
    }

    /// Runs one pass of the cleaner, whatever the policy and the dirty ratio. Of the records that may be compacted, it deletes
    /// those with the key of a later one at or above `first_dirty`.
    ///
    /// # Errors
    /// As [`maintain`](Self::maintain); `Argument` for a `first_dirty` that is negative or above where the last pass ended, or for a map that holds no key.
    pub fn compact(&self, options: &CompactOptions) -> Result<Compaction> {
        let now = (self.options().clock)();
        if let Some(offset) = options.first_dirty.filter(|&offset| offset < 0) {
            let reason = format!("{offset} found, 0 or more expected");
            return Err(Error::argument("first_dirty", reason));
        }
        let config = self.changing(|writer| {
            let guard = writer.guard();
            guard.check_internal(self.topic(), "compact", self.path())?;
            let effective = writer.effective(None)?;
            guard.check_compaction(&effective, self.path())?;
            Ok(effective.config().clone())
        })?;
        let compaction = self.in_turn(|| {
            let plan =
                self.changing(|writer| writer.cleaning_plan(&config, options.first_dirty, now))?;
            self.run_pass(&plan, options.map_bytes.unwrap_or(MAP_BYTES))
        })?;
        self.fresh_view()?;
        Ok(compaction)
    }

    /// Uses what the cluster says now. A log that was a broker's when it was opened stays one, even if it now has files of
    /// ours.
    pub(crate) fn join(&self, membership: Arc<Membership>) -> Result<()> {
        self.changing(|writer| writer.join(membership))
    }

    /// Interrupts maintenance and keeps it out until the result is dropped: the segments that it reads are about to be
    /// truncated or closed.
    pub(super) fn pause_maintenance(&self) -> Paused<'_> {
        self.maintenance_lock().pause()
    }

    /// Runs `work` alone, and again from its beginning if a caller that truncates or closes the log interrupted it.
    fn in_turn<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            let busy = self.maintenance_lock().take();
            let done = work();
            let gave_way = |error: &Error| {
                matches!(error.kind(), ErrorKind::Interrupted) && self.check().is_ok()
            };
            if !done.as_ref().is_err_and(gave_way) {
                return done;
            }
            drop(busy);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// Returns the next pass, if the log is dirty enough or a record has waited too long.
    fn due_plan(&self, steps: Steps<'_>, now: i64) -> Result<Option<Plan>> {
        self.changing(|writer| {
            let config = (steps.settings)(writer)?;
            if !config.is_compacted() {
                return Ok(None);
            }
            let plan = writer.cleaning_plan(&config, None, now)?;
            if plan.is_reset {
                writer.set_cleaner_point(plan.first_dirty)?;
            }
            Ok(is_due(writer, &plan, now)?.then_some(plan))
        })
    }

    fn retain_due(
        &self,
        steps: Steps<'_>,
        now: i64,
        removed: &mut Vec<RemovedSegment>,
    ) -> Result<()> {
        self.in_turn(|| {
            self.changing(|writer| {
                let config = (steps.settings)(writer)?;
                writer.retain(&config, now, removed)
            })
        })
    }

    fn compact_due(
        &self,
        steps: Steps<'_>,
        now: i64,
        (map_bytes, producers): (usize, Option<&HashMap<i64, LastRecord>>),
        done: &mut Vec<Compaction>,
    ) -> Result<()> {
        while let Some(mut plan) = self.due_plan(steps, now)? {
            if let Some(producers) = producers {
                plan.producers.clone_from(producers);
            }
            done.push(self.run_pass(&plan, map_bytes)?);
        }
        Ok(())
    }

    fn run_pass(&self, plan: &Plan, map_bytes: usize) -> Result<Compaction> {
        let check = || {
            self.check()?;
            if self.maintenance_lock().is_wanted() {
                return Err(Error::new(ErrorKind::Interrupted));
            }
            Ok(())
        };
        let mut pass = Pass::new(self, plan, map_bytes, &check)?;
        if plan.dirty().is_empty() {
            return Ok(begun(plan));
        }
        let end = pass.read_dirty()?;
        self.changing(PartitionWriter::settle_for_cleaning)?;
        pass.clean(end, |group, suffixes| {
            self.changing(|writer| writer.swap_in(group, suffixes, plan))
        })?;
        self.changing(|writer| writer.set_cleaner_point(end))?;
        Ok(Compaction {
            end_offset: end,
            keys: pass.keys(),
            segments_before: pass.segments.0,
            segments_after: pass.segments.1,
            bytes_before: pass.bytes.0,
            bytes_after: pass.bytes.1,
            records_before: pass.records.0,
            records_after: pass.records.1,
            ..begun(plan)
        })
    }
}

/// Whether the log's other files can be worked on after this error.
fn leaves_files_known(error: &Error) -> bool {
    error.is_corruption() || error.is_out_of_room()
}

/// Whether the log is dirty enough, or a record has waited too long.
fn is_due(writer: &PartitionWriter, plan: &Plan, now: i64) -> Result<bool> {
    Ok(plan.dirty_bytes() > 0
        && (plan.dirty_ratio() > plan.config.min_cleanable_dirty_ratio()
            || writer.must_be_cleaned(plan, now)?))
}

fn begun(plan: &Plan) -> Compaction {
    Compaction {
        first_dirty_offset: plan.first_dirty,
        end_offset: plan.first_dirty,
        first_uncleanable_offset: plan.first_uncleanable,
        dirty_ratio: plan.dirty_ratio(),
        ..Compaction::default()
    }
}

impl std::fmt::Display for RetentionReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
