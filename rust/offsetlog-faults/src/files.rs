//! A partition directory read slowly and without help: what must hold of its files after a log was closed.

use crate::batch::{Batch, walk};
use crate::sim::{Node, World};
use std::path::{Path, PathBuf};

/// What a segment holds.
#[derive(Debug, Clone)]
pub struct SegmentFiles {
    /// From its name.
    pub base: i64,
    /// Of the `.log`.
    pub batches: Vec<Batch>,
    /// Bytes behind the last whole batch.
    pub rest: Vec<u8>,
    index: Option<Vec<u8>>,
    time_index: Option<Vec<u8>>,
}

/// The segments of a directory in order.
#[must_use]
pub fn segments(world: &World, directory: &Path) -> Vec<SegmentFiles> {
    let mut found = Vec::new();
    for (name, node) in world.children(directory) {
        let Some(base) = name.strip_suffix(".log").filter(|base| base.len() == 20) else {
            continue;
        };
        if node == Node::Directory {
            continue;
        }
        let file = |suffix: &str| {
            let path: PathBuf = directory.join(format!("{base}{suffix}"));
            world.bytes(&path).map(<[u8]>::to_vec)
        };
        let bytes = file(".log").unwrap_or_default();
        let (batches, end) = walk(&bytes);
        found.push(SegmentFiles {
            base: base.parse().unwrap_or(-1),
            batches,
            rest: bytes[end..].to_vec(),
            index: file(".index"),
            time_index: file(".timeindex"),
        });
    }
    found.sort_by_key(|segment| segment.base);
    found
}

/// All batches in order.
#[must_use]
pub fn batches(segments: &[SegmentFiles]) -> Vec<Batch> {
    segments
        .iter()
        .flat_map(|segment| segment.batches.iter().cloned())
        .collect()
}

/// F5, F6 and F7 of a closed log that was truncated at `gaps`: a roll there leaves a segment that the truncation emptied, as in Kafka.
///
/// # Errors
/// What does not hold, in words.
pub fn check_layout(
    world: &World,
    directory: &Path,
    log_start: i64,
    gaps: &[i64],
) -> Result<(), String> {
    let segments = segments(world, directory);
    let Some(first) = segments.first() else {
        return Err("F6: no segment".to_owned());
    };
    if first.base > log_start {
        return Err(format!(
            "F6: first base {} is above the log start {log_start}",
            first.base
        ));
    }
    let mut next = first.base;
    for (slot, segment) in segments.iter().enumerate() {
        let base = segment.base;
        let follower = segments.get(slot + 1).map(|segment| segment.base);
        if !segment.rest.is_empty() {
            return Err(format!(
                "F3: segment {base} has {} bytes that are no batch",
                segment.rest.len()
            ));
        }
        if segment.batches.is_empty() && follower.is_some_and(|next| !gaps.contains(&next)) {
            return Err(format!("F6: segment {base} is empty and not the last"));
        }
        if base < next {
            return Err(format!("F6: segment {base} begins below {next}"));
        }
        next = base;
        for batch in &segment.batches {
            if batch.base < next {
                return Err(format!("F5: {batch:?} of segment {base} is below {next}"));
            }
            next = batch.last + 1;
        }
        check_indexes(segment).map_err(|error| format!("F7: segment {base}: {error}"))?;
    }
    for (name, _) in world.children(directory) {
        if [".tmp", ".cleaned", ".swap"]
            .iter()
            .any(|suffix| name.ends_with(suffix))
        {
            return Err(format!("F6: {name} is left"));
        }
    }
    Ok(())
}

fn check_indexes(segment: &SegmentFiles) -> Result<(), String> {
    let index = segment.index.as_ref().ok_or("no .index")?;
    let times = segment.time_index.as_ref().ok_or("no .timeindex")?;
    let size: usize = segment.batches.iter().map(|batch| batch.bytes.len()).sum();
    if index.len() % 8 != 0 || times.len() % 12 != 0 {
        return Err(format!("sizes {} and {}", index.len(), times.len()));
    }
    let mut before: Option<(i64, usize)> = None;
    for entry in index.chunks(8) {
        let offset = segment.base
            + i64::from(u32::from_be_bytes(
                entry[..4].try_into().unwrap_or_default(),
            ));
        let position = u32::from_be_bytes(entry[4..].try_into().unwrap_or_default()) as usize;
        if position >= size
            || before.is_some_and(|before| before.0 >= offset || before.1 >= position)
        {
            return Err(format!(
                "entry {offset} at {position} behind {before:?}, size {size}"
            ));
        }
        let mut at = 0;
        let found = segment.batches.iter().find(|batch| {
            let begins = at == position;
            at += batch.bytes.len();
            begins
        });
        if found.is_none_or(|batch| batch.last != offset) {
            return Err(format!("entry {offset} at {position} is {found:?}"));
        }
        before = Some((offset, position));
    }
    let mut before: Option<(i64, i64)> = None;
    for entry in times.chunks(12) {
        let timestamp = i64::from_be_bytes(entry[..8].try_into().unwrap_or_default());
        let offset = segment.base
            + i64::from(u32::from_be_bytes(
                entry[8..].try_into().unwrap_or_default(),
            ));
        if before.is_some_and(|before| before.0 > timestamp || before.1 > offset) {
            return Err(format!("time entry {timestamp} {offset} behind {before:?}"));
        }
        let larger = segment
            .batches
            .iter()
            .find(|batch| batch.last <= offset && batch.timestamp > timestamp);
        if let Some(batch) = larger {
            return Err(format!(
                "time entry {timestamp} {offset} is below {batch:?}"
            ));
        }
        if !segment.batches.iter().any(|batch| {
            batch.base <= offset && offset <= batch.last && batch.timestamp == timestamp
        }) {
            return Err(format!("time entry {timestamp} {offset} is no batch's"));
        }
        before = Some((timestamp, offset));
    }
    Ok(())
}

/// The recovery point and the log start offset as stored beside the data or in the log dir around it.
#[must_use]
pub fn stored_points(world: &World, directory: &Path) -> (Option<i64>, Option<i64>) {
    let parent = directory.parent().unwrap_or(Path::new("/"));
    if world.node(&parent.join("meta.properties")).is_some() {
        let name = directory
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        let (topic, partition) = name.rsplit_once('-').unwrap_or_default();
        let line = |file: &str| {
            let bytes = world.bytes(&parent.join(file))?;
            let text = std::str::from_utf8(bytes).ok()?;
            let start = format!("{topic} {partition} ");
            text.lines()
                .find_map(|line| line.strip_prefix(&start)?.parse().ok())
        };
        return (
            line("recovery-point-offset-checkpoint"),
            line("log-start-offset-checkpoint"),
        );
    }
    let text = world
        .bytes(&directory.join(".offsetlog.state"))
        .and_then(|bytes| std::str::from_utf8(bytes).ok())
        .unwrap_or_default();
    let value = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.parse().ok())
    };
    (value("recovery_point: "), value("log_start_offset: "))
}

/// Epoch and start offset of each line of the leader epochs' checkpoint.
#[must_use]
pub fn stored_epochs(world: &World, directory: &Path) -> Vec<(i32, i64)> {
    let text = world
        .bytes(&directory.join("leader-epoch-checkpoint"))
        .and_then(|bytes| std::str::from_utf8(bytes).ok())
        .unwrap_or_default();
    text.lines()
        .skip(2)
        .filter_map(|line| {
            let (epoch, offset) = line.split_once(' ')?;
            Some((epoch.parse().ok()?, offset.parse().ok()?))
        })
        .collect()
}
