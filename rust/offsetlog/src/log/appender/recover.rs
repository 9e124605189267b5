//! What opening for writing changed, and the call that does it without opening.

use super::{WriteOptions, load};
use crate::error::{Error, Result};
use crate::log::{OpenOptions, Surroundings, open, view};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that recovery took out of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The file that they were cut from.
    pub path: PathBuf,
    /// Where the cut begins; the file ends there now.
    pub position: u64,
    /// How many bytes.
    pub bytes: u64,
    /// What is wrong with them.
    pub reason: String,
    /// Whether whole batches were among them.
    pub had_batches: bool,
    /// Records in those whole batches, control records among them: they can be read from what is kept.
    pub records: u64,
    /// The first and the last offset of those batches.
    pub offsets: Option<(i64, i64)>,
    /// Where they are kept; `None` for zeros, which are not worth keeping.
    pub kept: Option<PathBuf>,
}

/// What was found and done when a log was opened for writing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecoveryReport {
    /// Whether the last writer's end was clean.
    pub clean: bool,
    /// Nothing was changed: the report says what would be.
    pub dry_run: bool,
    /// Bytes cut off segments, and segments taken out whole.
    pub cut: Vec<Cut>,
    /// Files made from the batches again, with the reason.
    pub rebuilt: Vec<(PathBuf, String)>,
    /// Leftovers removed or put in place, in words.
    pub tidied: Vec<String>,
    /// What is odd and was left as it is.
    pub warnings: Vec<String>,
    /// Segments that were read whole.
    pub segments_read: usize,
    /// Their bytes.
    pub bytes_read: u64,
    /// Lowest offset that can be read.
    pub log_start_offset: i64,
    /// Offset that the next record gets.
    pub log_end_offset: i64,
}

impl RecoveryReport {
    /// Files and folders in which cut bytes are kept.
    pub fn kept(&self) -> impl Iterator<Item = &Path> {
        self.cut.iter().filter_map(|cut| cut.kept.as_deref())
    }

    /// Whether anything was changed, or would be.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        !(self.cut.is_empty() && self.rebuilt.is_empty() && self.tidied.is_empty())
    }
}

/// Told every few MiB how many bytes of segments were read since it was told last.
pub type Progress = Arc<dyn Fn(u64) + Send + Sync>;

/// How a log is recovered.
#[derive(Clone, Default)]
pub struct RecoverOptions {
    /// Segments from the one that holds this offset on are read whole; `None`: all.
    pub from_offset: Option<i64>,
    /// Only say what would be done. Takes no lock and changes nothing.
    pub dry_run: bool,
    /// Follows the work.
    pub progress: Option<Progress>,
}

impl std::fmt::Debug for RecoverOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecoverOptions")
            .field("from_offset", &self.from_offset)
            .field("dry_run", &self.dry_run)
            .finish_non_exhaustive()
    }
}

/// Makes a log that was not closed cleanly, or is damaged, one that can be appended to: reads its segments whole, cuts them at the
/// first bytes that are no batch, with everything behind, and makes those files beside them again that are missing or say anything
/// wrong. What is cut is kept in the folder `offsetlog-cut` of the partition directory.
///
/// Unlike opening, which refuses that, this also cuts where whole batches stand behind the damage: a broker does so without
/// asking.
///
/// # Errors
/// `Io`; `Locked` while somebody writes; `LogDir` for names that are not Kafka's.
pub fn recover(
    path: impl AsRef<Path>,
    options: &OpenOptions,
    recover: &RecoverOptions,
) -> Result<RecoveryReport> {
    let (directory, topic, partition) =
        open::directory(path.as_ref(), options, !recover.dry_run, None)?;
    view::refuse_other(directory.disk.as_ref(), &directory.path)?;
    let mut warnings = Vec::new();
    let mut place = super::place::Place::new(&directory, &topic, partition, None)?;
    let surroundings = Surroundings::new(options, None, &[], None)?;
    place.join(&surroundings.membership(&directory.path, &topic, partition)?);
    let config =
        super::place::read_config(directory.disk.as_ref(), &directory.path)?.unwrap_or_default();
    let locks = if recover.dry_run {
        Vec::new()
    } else {
        load::lock(&directory, &place)?
    };
    let mut start = place.read(&mut warnings)?;
    start.clean = false;
    start.own = None;
    start.recovery_point = recover.from_offset.unwrap_or(0);
    if start.recovery_point < 0 {
        return Err(Error::argument(
            "from_offset",
            format!("{} found, 0 or more expected", start.recovery_point),
        ));
    }
    let terms = load::Terms {
        start,
        cut_batches: true,
        dry_run: recover.dry_run,
        now: (options.clock)(),
        warnings,
        progress: recover.progress.clone(),
    };
    if recover.dry_run {
        return Ok(load::load(&directory, &config, terms, options.interrupt.as_ref())?.report);
    }
    let write = WriteOptions::default();
    let mut appender = load::assemble(&directory, place, config, terms, options, &write, locks)?;
    let report = appender.report().clone();
    appender.close()?;
    Ok(report)
}
