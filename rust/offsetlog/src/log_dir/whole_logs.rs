//! Whether the log of an internal topic is all there. A coordinator's newest record counts, so a log that lost its end gives old answers.

use crate::error::{Error, Result};
use crate::log::Log;

/// Fails if the log ends below the high watermark of its log dir.
///
/// # Errors
/// `LogDir`; as [`Log::log_end_offset`].
pub(super) fn check_end(log: &Log) -> Result<()> {
    match log.missing_end()? {
        None => Ok(()),
        Some((end, high_watermark)) => Err(Error::log_dir(
            log.path(),
            format!(
                "it ends at offset {end}, and the high watermark of its log dir is {high_watermark}: records that were acknowledged are \
                 missing, and what is left may be old. Give another replica, if there is one"
            ),
        )),
    }
}

/// What may be missing of a log without being an error.
pub(super) struct Doubts {
    /// That it does not begin at offset 0, where a compacted topic begins.
    pub(super) late_start: Option<String>,
    /// That bytes behind its last batch are none: a write that a crash cut short, or damage to the newest records.
    pub(super) torn_end: Option<String>,
}

impl Doubts {
    /// Beside a running broker the end may be a write in progress.
    pub(super) fn of(log: &Log) -> Result<Self> {
        let name = format!("{}-{}", log.topic(), log.partition());
        let start = log.log_start_offset()?;
        let late_start = (start > 0).then(|| {
            format!(
                "{name}: it begins at offset {start}: what is before was deleted, or a segment is missing, and is not shown"
            )
        });
        let torn = log.torn_tail()?.filter(|_| !log.has_running_owner());
        let torn_end = torn.map(|torn| {
            format!("{name}: {torn}: what these bytes were is not shown, and may be newer")
        });
        Ok(Self {
            late_start,
            torn_end,
        })
    }

    pub(super) fn warnings(self) -> impl Iterator<Item = String> {
        self.late_start.into_iter().chain(self.torn_end)
    }
}
