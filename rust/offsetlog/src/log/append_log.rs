//! Appends the batches of one log to another unchanged: publishes staged records, restores copied ones.

use super::writer::Checksums;
use super::{AppendOptions, FetchOptions, Isolation, Log, LogWriter};
use crate::append_info::AppendInfo;
use crate::error::{Error, Result};
use offsetlog_format::BatchHeader;

/// Bytes that are read and written at a time.
const CHUNK_BYTES: u64 = 4 << 20;
/// Where a batch has its base offset, and where its leader epoch.
const BASE_OFFSET: std::ops::Range<usize> = 0..8;
const LEADER_EPOCH: std::ops::Range<usize> = 12..16;

/// How the batches of a log are appended to another one.
#[derive(Debug, Clone, Copy, Default)]
pub struct AppendLogOptions {
    /// First offset of the other log, the first one of a batch; by default its log start offset.
    pub start: Option<i64>,
    /// Whether offsets and leader epochs stay as they are; otherwise batches get the next offsets, and the epoch of `append`.
    pub keep_offsets: bool,
    /// Leader epoch, and whether all is on the disk at the end.
    pub append: AppendOptions,
}

impl LogWriter {
    /// Appends the batches of `source` behind the end of this log. Nothing is encoded or compressed again: base offset and leader epoch
    /// are 12 bytes outside of what a batch's checksum covers. Checksums are compared on the way.
    ///
    /// If the log start offset of `source` is inside a batch, the records of it that were deleted there come along. Its log end offset is
    /// not taken over if it is behind the last batch.
    ///
    /// Gaps between batches stay. Gives the first and last offset and the greatest timestamp; without batches the offsets are -1. Each batch is appended whole or
    /// not at all. After an error, or when the process dies, the first ones may be in the log.
    ///
    /// # Errors
    /// `Argument` for a `start` inside a batch, and for batches of magic 0 or 1, which [`convert`](fn@crate::convert) makes new;
    /// `UnexpectedAppendOffset` where offsets are kept and lie below the log end offset; `LogDir` if `source` is truncated meanwhile; those
    /// of reading `source`; `Io`, `Closed`,
    /// `Poisoned`, `Interrupted`.
    pub fn append_log(&self, source: &Log, options: &AppendLogOptions) -> Result<AppendInfo> {
        let mut total = AppendInfo::NOTHING;
        // One append has to fit into a segment.
        let segment_bytes = self.config().segment_bytes().max(1) as u64;
        let fetch = FetchOptions {
            max_bytes: CHUNK_BYTES.min(segment_bytes),
            isolation: Isolation::ReadUncommitted,
        };
        // A log dir's checkpoint that hides all records of the source is an error, as of a scan.
        source.batches(None, None)?;
        let mut next = match options.start {
            Some(start) => start,
            None => source.log_start_offset()?,
        };
        let watch = source.watch_end()?;
        let end = watch.log_end_offset();
        let mut behind: Option<i64> = None;
        while next < end {
            self.check()?;
            let mut bytes = source.fetch(next, &fetch)?.records;
            watch.check()?;
            // By default the first batch may begin below the log start offset.
            let from = options.start.filter(|_| behind.is_none());
            let Some((first, last)) = check_batches(&bytes, from, source)? else {
                break;
            };
            let gap = behind.map_or(0, |behind| first - behind);
            self.changing(|writer| {
                writer.guard().check_replicas("append", self.path())?;
                let leader_epoch = writer.epoch_for(options.append.leader_epoch);
                if !options.keep_offsets {
                    let base_offset = writer.log_end().saturating_add(gap);
                    renumber(&mut bytes, base_offset, leader_epoch)?;
                }
                // Kept epochs may be newer than this log's.
                let newest = if options.keep_offsets {
                    i32::MAX
                } else {
                    leader_epoch
                };
                let mut parts = parts(&bytes)?.into_iter().peekable();
                while let Some(part) = parts.next() {
                    let is_last = parts.peek().is_none() && last.saturating_add(1) >= end;
                    let info = writer
                        .append_as_follower(part, newest, Checksums::Verify)
                        .map_err(|error| {
                            // The bytes are the source's: what is wrong with them is damage there.
                            let error = error.of_copied(Some(source.path()));
                            error.map_appended(|info| is_last.then(|| total.and(info)))
                        })?;
                    total = total.and(info);
                }
                Ok(())
            })?;
            next = last.saturating_add(1);
            behind = Some(next);
        }
        if options.append.flush {
            self.flush().map_err(|error| error.after_append(total))?;
        }
        Ok(total)
    }
}

/// The batches' headers and the bytes before each.
fn for_each(bytes: &[u8], mut see: impl FnMut(usize, &BatchHeader) -> Result<()>) -> Result<()> {
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let header = BatchHeader::parse(rest).map_err(Error::new)?;
        see(at, &header)?;
        at += header.size_bytes;
    }
    Ok(())
}

/// First and last offset of the batches, which begin at `from` if that is given.
fn check_batches(bytes: &[u8], from: Option<i64>, source: &Log) -> Result<Option<(i64, i64)>> {
    let mut range: Option<(i64, i64)> = None;
    for_each(bytes, |_, header| {
        let refused = |reason: String| Error::argument("source", reason).at_path(source.path());
        if header.magic != 2 {
            let magic = header.magic;
            return Err(refused(format!(
                "a batch of magic {magic} found, 2 expected; `convert` makes such directories new"
            )));
        }
        let base = header.base_offset.unwrap_or(header.last_offset);
        let first = range.map_or(base, |(first, _)| first);
        if let Some(from) = from.filter(|&from| first < from) {
            return Err(refused(format!(
                "offset {from} is inside the batch that begins at {first}"
            )));
        }
        range = Some((first, header.last_offset));
        Ok(())
    })?;
    Ok(range)
}

/// The batches up to each marker and behind it: of an append that holds several transactions a broker says in `.txnindex` that more
/// is stable than was when they were appended one by one.
fn parts(bytes: &[u8]) -> Result<Vec<&[u8]>> {
    let mut parts = Vec::new();
    let mut start = 0;
    for_each(bytes, |at, header| {
        if header.attributes.is_control() {
            let end = at + header.size_bytes;
            parts.extend(bytes.get(start..end));
            start = end;
        }
        Ok(())
    })?;
    parts.extend(bytes.get(start..).filter(|rest| !rest.is_empty()));
    Ok(parts)
}

/// Gives the batches offsets from `base_offset` on, distances between them kept, and an epoch.
fn renumber(bytes: &mut [u8], base_offset: i64, leader_epoch: i32) -> Result<()> {
    let mut places = Vec::new();
    for_each(bytes, |at, header| {
        places.push((at, header.base_offset.unwrap_or(header.last_offset)));
        Ok(())
    })?;
    let first = places.first().map_or(0, |&(_, base)| base);
    for (at, base) in places {
        let base = base_offset.saturating_add(base - first);
        let batch = bytes.get_mut(at..).unwrap_or_default();
        if let Some(place) = batch.get_mut(BASE_OFFSET) {
            place.copy_from_slice(&base.to_be_bytes());
        }
        if let Some(place) = batch.get_mut(LEADER_EPOCH) {
            place.copy_from_slice(&leader_epoch.to_be_bytes());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch_builder::BatchBuilder;
    use crate::config::LogConfig;
    use crate::log::{OpenOptions, WriteOptions};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn append(log: &LogWriter, values: std::ops::Range<u32>) {
        for value in values {
            let mut batch = BatchBuilder::default();
            let value = value.to_be_bytes().repeat(50);
            batch.push(0, None, Some(&value), &[]).unwrap();
            log.append(&mut batch, &AppendOptions::default()).unwrap();
        }
    }

    /// Batches of before and after would follow each other.
    #[test]
    fn a_source_that_is_truncated_meanwhile_ends_the_append() {
        let folder = tempfile::tempdir().unwrap();
        let options = OpenOptions::default();
        let write = WriteOptions::default();
        let source = LogWriter::open(folder.path().join("old-0"), &options, &write).unwrap();
        append(&source, 0..100);
        let (looks, cut) = (AtomicU32::new(0), source.clone());
        let options = OpenOptions {
            interrupt: Some(Arc::new(move || {
                if looks.fetch_add(1, Ordering::Relaxed) == 3 {
                    cut.truncate_to(2).unwrap();
                    append(&cut, 1000..1200);
                }
                false
            })),
            ..OpenOptions::default()
        };
        let config = LogConfig::parse([("internal.segment.bytes", "2000")]).unwrap();
        let write = WriteOptions {
            config: Some(config),
            ..WriteOptions::default()
        };
        let log = LogWriter::open(folder.path().join("new-0"), &options, &write).unwrap();
        let refused = log
            .append_log(&source, &AppendLogOptions::default())
            .unwrap_err();
        assert!(
            refused
                .to_string()
                .contains("truncated meanwhile, to offset 2"),
            "{refused}"
        );
        assert!((1..100).contains(&log.log_end_offset().unwrap()));
    }
}
