//! Which of the files that recovery cut off a log hold what a later truncation removed.
//!
//! Nothing beside a file says so; the segments do. A recovery cuts one segment at a position and every segment behind it whole. As long as
//! the log was not truncated below that position, the first one still has the bytes before it.

use offsetlog::{SegmentInfo, SetAsideFile};
use std::collections::BTreeMap;

/// Of each file whether a truncation removed what it holds; of what nobody can tell, not.
pub(super) fn truncated_files(segments: &[SegmentInfo], files: &[SetAsideFile]) -> Vec<bool> {
    let mut places: Vec<(usize, i64, u64)> = files
        .iter()
        .enumerate()
        .filter_map(|(number, file)| Some((number, file.base_offset, cut_by_recovery(file)?)))
        .collect();
    places.sort_by_key(|&(_, base, position)| (base, position));
    let live: BTreeMap<i64, u64> = segments
        .iter()
        .map(|segment| (segment.base_offset, segment.size_bytes))
        .collect();
    let first = segments.first().map_or(i64::MAX, |first| first.base_offset);
    let mut found = vec![false; files.len()];
    // Of the files of the base before: whether the log was truncated below one of them.
    let mut was_truncated = false;
    for of_base in places.chunk_by(|one, other| one.1 == other.1) {
        let Some(&(_, base, _)) = of_base.first() else {
            continue;
        };
        // The bytes of the segment. Bytes that a later recovery has cut off it do not count: nothing tells which one was later.
        let there = match live.get(&base) {
            Some(&bytes) => Some(bytes),
            // Retention removes from the front, and a truncation from the end, of which a segment stays.
            None if base < first => Some(u64::MAX),
            // It was cut whole, behind another one.
            None if !was_truncated => Some(0),
            None => None,
        };
        let mut is_any = false;
        for &(number, _, position) in of_base {
            let is_truncated = there.is_none_or(|bytes| bytes < position);
            if let Some(flag) = found.get_mut(number) {
                *flag = is_truncated;
            }
            is_any |= is_truncated;
        }
        was_truncated = is_any;
    }
    found
}

fn cut_by_recovery(file: &SetAsideFile) -> Option<u64> {
    file.cut_at.filter(|_| !file.is_truncation)
}
