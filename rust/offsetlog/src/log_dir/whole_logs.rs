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

/// A warning if the log does not begin at offset 0, where a compacted topic begins.
pub(super) fn late_start(log: &Log) -> Result<Option<String>> {
    let start = log.log_start_offset()?;
    Ok((start > 0).then(|| {
        format!(
            "{}-{}: it begins at offset {start}: what is before was deleted, or a segment is missing, and is not shown",
            log.topic(),
            log.partition()
        )
    }))
}
