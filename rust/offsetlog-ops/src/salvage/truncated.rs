//! Which of the files that recovery cut off a log hold what a later truncation removed.
//!
//! Nothing beside a file says so; the segments do. A recovery cuts one segment at a position and every segment behind it whole. As long as
//! the log was not truncated below that position, the first one still has the bytes before it: a batch ends there, and its offsets are below
//! those that were cut.

use super::everything;
use offsetlog::format::name::{SegmentFile, SegmentFileName};
use offsetlog::{Batch, Error, ErrorKind, Log, Result, ScanOptions, SegmentInfo, SetAsideFile};
use std::collections::BTreeMap;

/// A file that recovery cut off.
#[derive(Clone, Copy)]
struct Cut {
    number: usize,
    base_offset: i64,
    position: u64,
    /// Of its first batch that can be read.
    first: Option<i64>,
}

/// Of each file whether a truncation removed what it holds; of what nobody can tell, not. `firsts` are the first offsets in them that can be
/// read.
pub(super) fn truncated_files(
    log: &Log,
    files: &[SetAsideFile],
    firsts: &[Option<i64>],
) -> Result<Vec<bool>> {
    let segments = log.segments()?;
    let mut cuts: Vec<Cut> = files
        .iter()
        .zip(firsts)
        .enumerate()
        .filter_map(|(number, (file, first))| {
            Some(Cut {
                number,
                base_offset: file.base_offset,
                position: cut_by_recovery(file)?,
                first: *first,
            })
        })
        .collect();
    cuts.sort_by_key(|cut| (cut.base_offset, cut.position));
    let live: BTreeMap<i64, &SegmentInfo> = segments
        .iter()
        .map(|segment| (segment.base_offset, segment))
        .collect();
    let first = segments.first().map_or(i64::MAX, |first| first.base_offset);
    let mut found = vec![false; files.len()];
    // Of the files of the base before: whether the log was truncated below one of them.
    let mut was_truncated = false;
    for of_base in cuts.chunk_by(|one, other| one.base_offset == other.base_offset) {
        let Some(&Cut { base_offset, .. }) = of_base.first() else {
            continue;
        };
        let is_truncated = match live.get(&base_offset) {
            Some(segment) => {
                let mut known = truncated_of(log, segment, of_base)?;
                // One that was cut whole went with the end of the one before, and this segment is a new one.
                for (known, cut) in known.iter_mut().zip(of_base) {
                    *known |= was_truncated && cut.position == 0;
                }
                known
            }
            // Retention removes from the front, and a truncation from the end, of which a segment stays.
            None if base_offset < first => vec![false; of_base.len()],
            // It was cut whole, behind another one.
            None => of_base
                .iter()
                .map(|cut| was_truncated || cut.position > 0)
                .collect(),
        };
        was_truncated = is_truncated.contains(&true);
        for (cut, is_truncated) in of_base.iter().zip(is_truncated) {
            if let Some(flag) = found.get_mut(cut.number) {
                *flag = is_truncated;
            }
        }
    }
    Ok(found)
}

/// Of each cut of a segment, by position, whether the log was truncated below it. Bytes that a later recovery has cut off the segment do not
/// count: nothing tells which one was later.
fn truncated_of(log: &Log, segment: &SegmentInfo, cuts: &[Cut]) -> Result<Vec<bool>> {
    let bytes = segment.size_bytes;
    let mut found: Vec<bool> = cuts.iter().map(|cut| bytes < cut.position).collect();
    let there = cuts.iter().take_while(|cut| cut.position <= bytes).count();
    let mut open = found.iter_mut().zip(cuts).take(there).peekable();
    // Position and offset behind the last batch before the next cut.
    let (mut position, mut end) = (0, None);
    let replaced =
        |cut: &Cut, end: Option<i64>| cut.first.zip(end).is_some_and(|(first, end)| first < end);
    let begins_inside = log.log_start_offset()? > segment.base_offset;
    let name = SegmentFileName::live(segment.base_offset, SegmentFile::Log).to_string();
    let mut scan = match log.scan(&ScanOptions {
        start: Some(segment.base_offset.max(log.log_start_offset()?)),
        ..everything()
    }) {
        // It ends below its log start offset, and has no batch that counts.
        Err(error) if is_outside(&error) => return Ok(found),
        scan => scan?,
    };
    let report = scan.report();
    while open.peek().is_some() {
        let batch = scan.next_batch()?;
        let batch = batch.filter(|batch| batch.path().ends_with(&name));
        let begin = batch.as_ref().map(Batch::position);
        // Those between this batch and the one before.
        while let Some((is_truncated, cut)) =
            open.next_if(|(_, cut)| begin.is_none_or(|begin| cut.position <= begin))
        {
            // Damage there, or a log start offset behind it, hides where batches ended.
            let is_hidden =
                begin.is_some() || report.hole_count() > 0 || (begins_inside && end.is_none());
            *is_truncated = replaced(cut, end) || !(is_hidden || position == cut.position);
        }
        let Some(batch) = batch else { break };
        position = batch.position() + batch.header().size_bytes as u64;
        while let Some((is_truncated, _)) = open.next_if(|(_, cut)| cut.position < position) {
            *is_truncated = true;
        }
        end = batch.header().last_offset.checked_add(1);
    }
    Ok(found)
}

fn is_outside(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::OffsetOutOfRange { .. })
}

fn cut_by_recovery(file: &SetAsideFile) -> Option<u64> {
    file.cut_at.filter(|_| !file.is_truncation)
}
