//! Dry run of maintenance: does the real work on a disk that keeps all changes to itself, and reports the result. Retention and
//! compaction change each other's input, so nothing less predicts what they would do.

use super::{MaintainOptions, MaintainReport, Steps, is_due, leaves_files_known};
use crate::disk::OverlayDisk;
use crate::error::{Error, ErrorKind, Result};
use crate::log::cleaner::Plan;
use crate::log::writer::{Due, PartitionWriter};
use crate::log::{LogWriter, OpenOptions, Surroundings, WriteOptions, open_for_append_in};
use std::path::PathBuf;
use std::sync::Arc;

/// State of a log before the work.
struct Before {
    /// What retention would delete now.
    retained: Due,
    /// Files named `.deleted` whose delay is over.
    waiting: Vec<PathBuf>,
    /// For a log with the policy `compact`: the first pass of the cleaner, and whether it is due; or why that cannot be told.
    plan: Option<Result<(Plan, bool)>>,
    log_start_offset: i64,
    log_end_offset: i64,
}

impl LogWriter {
    /// Fills `report` with what [`maintain`](Self::maintain) would do with the settings of `steps`. If the steps cannot change
    /// each other's input, that is what retention selects now. Otherwise this takes as long as the real run, and room for what
    /// the passes write.
    pub(super) fn rehearse(
        &self,
        now: i64,
        report: &mut MaintainReport,
        options: &MaintainOptions,
        steps: Steps<'_>,
    ) -> Result<()> {
        self.in_turn(|| {
            if self.is_closed() {
                return Err(Error::new(ErrorKind::Closed).at_path(self.path()));
            }
            let (mut before, aside) = self.changing(|writer| {
                let before = self.before(writer, now, options, steps)?;
                let needs_work = before.needs_work(options, steps);
                // Opened while the writer is locked, so that everything is from the same moment.
                let aside = needs_work.then(|| self.aside(writer, &before));
                Ok((before, aside.transpose()?))
            })?;
            *report = MaintainReport {
                dry_run: true,
                log_start_offset: before.log_start_offset,
                log_end_offset: before.log_end_offset,
                ..MaintainReport::default()
            };
            let done = if let Some(aside) = aside {
                before.prepare(&aside)?;
                // Opening `aside` expired producers that the real cleaner would still see.
                let producers = before.plan().map(|(plan, _)| &plan.producers);
                // `aside` has none of the cluster's settings.
                let settings = |_: &PartitionWriter| Ok(steps.config.clone());
                let steps = Steps {
                    settings: &settings,
                    ..steps
                };
                let done = aside.work(now, report, options, steps, producers);
                report.log_start_offset = aside.log_start_offset()?;
                done
            } else {
                before.outcome(report, steps)
            };
            if options.deletes {
                let made = std::mem::replace(&mut report.deleted, before.waiting);
                for path in made {
                    // Opening `aside` may have created files that the real log does not have.
                    let is_there = self.options().disk.stat(&path.with_extension("")).is_ok();
                    if is_there {
                        report.deleted.push(path);
                    }
                }
            }
            done
        })
    }

    fn before(
        &self,
        writer: &PartitionWriter,
        now: i64,
        options: &MaintainOptions,
        steps: Steps<'_>,
    ) -> Result<Before> {
        let ends = self.log().0.directory.ends.clone().unwrap_or_default();
        let mut before = Before {
            retained: Due::default(),
            waiting: writer.due(now),
            plan: None,
            log_start_offset: ends.log_start(),
            log_end_offset: ends.log_end(),
        };
        if options.retention {
            before.retained = writer.deletable_segments(steps.config, now)?;
        }
        if steps.compacts {
            let plan = writer.cleaning_plan(steps.config, None, now);
            before.plan = Some(plan.and_then(|plan| {
                let is_due = is_due(writer, &plan, now)?;
                Ok((plan, is_due))
            }));
        }
        Ok(before)
    }

    /// Opens the same log on an overlay disk. The caller holds the writer.
    fn aside(&self, writer: &PartitionWriter, before: &Before) -> Result<Self> {
        let own = self.options();
        let (interrupt, log) = (own.interrupt.clone(), self.clone());
        let options = OpenOptions {
            disk: Arc::new(OverlayDisk::of_holder(Arc::clone(&own.disk))),
            mapped: false,
            // A caller that truncates or closes the log does not wait for this.
            interrupt: Some(Arc::new(move || {
                log.maintenance_lock().is_wanted()
                    || interrupt.as_ref().is_some_and(|asked| asked())
            })),
            ..own.clone()
        };
        let write = WriteOptions {
            // The log's writer is alive, so there is nothing to recover.
            clean: Some(true),
            // Opening deletes snapshots below the log start offset; the writer still has them.
            log_start_offset: Some(0),
            ..WriteOptions::default()
        };
        let membership = Arc::clone(&writer.guard().membership);
        let surroundings = Arc::new(Surroundings::known(&options, membership));
        let aside = open_for_append_in(self.path(), &options, &write, None, Some(&surroundings))?;
        if let Some(ends) = &aside.log().0.directory.ends {
            ends.set_log_start(before.log_start_offset);
        }
        Ok(aside)
    }
}

impl Before {
    fn plan(&self) -> Option<&(Plan, bool)> {
        self.plan.as_ref()?.as_ref().ok()
    }

    /// Fills `report` where nothing need be done to know the result.
    fn outcome(&mut self, report: &mut MaintainReport, steps: Steps<'_>) -> Result<()> {
        let Due { segments, stopped } = std::mem::take(&mut self.retained);
        let stopped = stopped.map_or(Ok(()), Err);
        if steps.removes_first && stopped.is_err() {
            return stopped;
        }
        let planned = self.plan.take().transpose().map(drop);
        // The real run compacts before it removes anything, or there was nothing to remove before.
        if let Err(error) = &planned
            && !leaves_files_known(error)
        {
            return planned;
        }
        let start = segments.last().map(|last| last.end_offset);
        report.log_start_offset = self.log_start_offset.max(start.unwrap_or(0));
        report.removed = segments;
        stopped.and(planned)
    }

    /// Whether the work must be done because what retention selects now is not the result.
    fn needs_work(&self, options: &MaintainOptions, steps: Steps<'_>) -> bool {
        let is_due = self.plan().is_some_and(|&(_, is_due)| is_due);
        let goes_at_once = options.deletes && steps.config.file_delete_delay_ms() <= 0;
        is_due || (goes_at_once || steps.removes_first) && !self.retained.segments.is_empty()
    }

    /// Puts `aside` into the state of the log.
    fn prepare(&self, aside: &LogWriter) -> Result<()> {
        aside.changing(|writer| {
            // The end of the last pass may not be on the disk yet.
            match self.plan() {
                Some((plan, _)) => writer.set_cleaner_point(plan.first_dirty),
                None => Ok(()),
            }
        })
    }
}
