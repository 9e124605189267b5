//! The dry run of upkeep. What removes segments and what merges them decide for each other, so the work itself is done, on a disk that
//! keeps all changes to itself, and the report is that of the work.

use super::{MaintainOptions, MaintainReport, Steps, is_due};
use crate::config::LogConfig;
use crate::disk::OverlayDisk;
use crate::error::{Error, ErrorKind, Result};
use crate::log::cleaner::Plan;
use crate::log::writer::{PartitionWriter, RemovedSegment};
use crate::log::{LogWriter, OpenOptions, Surroundings, WriteOptions, open_for_append_in};
use std::path::PathBuf;
use std::sync::Arc;

/// What is known of a log before the work.
struct Before {
    /// What retention would remove now.
    removed: Vec<RemovedSegment>,
    /// Files renamed `.deleted` whose delay is over.
    due: Vec<PathBuf>,
    /// What the cleaner would begin with, of a log that is compacted, and whether it would begin.
    plan: Option<(Plan, bool)>,
    log_start_offset: i64,
    log_end_offset: i64,
}

impl LogWriter {
    /// Puts what [`maintain`](Self::maintain) would do into `report`, by the settings `config`. If nothing is compacted, that is what
    /// retention finds now. Otherwise it takes the time of the real run, and room for what the passes write.
    pub(super) fn rehearse(
        &self,
        now: i64,
        report: &mut MaintainReport,
        options: &MaintainOptions,
        (config, steps): (&LogConfig, Steps),
    ) -> Result<()> {
        self.in_turn(|| {
            if self.is_closed() {
                return Err(Error::new(ErrorKind::Closed).at_path(self.path()));
            }
            let (before, aside) = self.changing(|writer| {
                let before = self.before(writer, now, options, steps)?;
                let needs_work = before.needs_work(config, options, steps);
                // While the writer is held, so that all of it is of one moment.
                let aside = needs_work.then(|| self.aside(writer, &before));
                Ok((before, aside.transpose()?))
            })?;
            *report = MaintainReport {
                dry_run: true,
                log_start_offset: before.log_start_offset,
                log_end_offset: before.log_end_offset,
                ..MaintainReport::default()
            };
            if let Some(aside) = aside {
                before.prepare(&aside, config)?;
                // Opening forgets producers that were silent for long.
                let producers = before.plan.as_ref().map(|(plan, _)| &plan.producers);
                aside.work(now, report, options, steps, producers)?;
                report.log_start_offset = aside.log_start_offset()?;
            } else {
                let start = before.removed.last().map(|last| last.end_offset);
                report.log_start_offset = before.log_start_offset.max(start.unwrap_or(0));
                report.removed = before.removed;
            }
            if options.deletes {
                let made = std::mem::replace(&mut report.deleted, before.due);
                for path in made {
                    // Opening may have made one that is not there.
                    let is_there = self.options().disk.stat(&path.with_extension("")).is_ok();
                    if is_there && !report.deleted.contains(&path) {
                        report.deleted.push(path);
                    }
                }
            }
            Ok(())
        })
    }

    fn before(
        &self,
        writer: &PartitionWriter,
        now: i64,
        options: &MaintainOptions,
        steps: Steps,
    ) -> Result<Before> {
        let ends = self.log().0.directory.ends.clone().unwrap_or_default();
        let mut before = Before {
            removed: Vec::new(),
            due: writer.due(now),
            plan: None,
            log_start_offset: ends.log_start(),
            log_end_offset: ends.log_end(),
        };
        if options.retention {
            before.removed = writer.breached(now)?;
        }
        if steps.compacts {
            let plan = writer.cleaning_plan(None, now)?;
            let is_due = is_due(writer, &plan, now)?;
            before.plan = Some((plan, is_due));
        }
        Ok(before)
    }

    /// The same log on a disk of its own, for whoever holds its writer.
    fn aside(&self, writer: &PartitionWriter, before: &Before) -> Result<Self> {
        let own = self.options();
        let (interrupt, log) = (own.interrupt.clone(), self.clone());
        let options = OpenOptions {
            disk: Arc::new(OverlayDisk::of_holder(Arc::clone(&own.disk))),
            mapped: false,
            // Whoever has to cut or close the log does not wait for this.
            interrupt: Some(Arc::new(move || {
                log.maintenance_lock().is_wanted()
                    || interrupt.as_ref().is_some_and(|asked| asked())
            })),
            ..own.clone()
        };
        let write = WriteOptions {
            // Its writer lives, so nothing is to be recovered.
            clean: Some(true),
            // Opening removes snapshots below the log start offset, which the writer still has.
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
    /// Whether more is to be done than retention finds now.
    fn needs_work(&self, config: &LogConfig, options: &MaintainOptions, steps: Steps) -> bool {
        let is_due = self.plan.as_ref().is_some_and(|&(_, is_due)| is_due);
        let goes_at_once = options.deletes && config.file_delete_delay_ms() <= 0;
        is_due || (goes_at_once || steps.removes_first) && !self.removed.is_empty()
    }

    /// Has `aside` begin where the log stands.
    fn prepare(&self, aside: &LogWriter, config: &LogConfig) -> Result<()> {
        aside.changing(|writer| {
            writer.set_upkeep_config(config.clone());
            // Where the last pass ended may not be on the disk yet.
            match &self.plan {
                Some((plan, _)) => writer.set_cleaner_point(plan.first_dirty),
                None => Ok(()),
            }
        })
    }
}
