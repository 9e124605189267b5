//! Checks one segment: its batches, their records, and its indexes against the batches.

use super::Partition;
use super::report::{Effect, Finding, Severity};
use crate::codec::Decompressor;
use crate::error::{Error, ErrorKind, Result};
use crate::records::Records;
use crate::segment::walk::{SCAN_BYTES, Step, TornTail, Walk};
use crate::segment::{Segment, segment_path};
use offsetlog_format::control::ControlRecord;
use offsetlog_format::index_entry::{
    ABORTED_TRANSACTION_BYTES, OFFSET_INDEX_ENTRY_BYTES, OffsetIndexEntry, TIME_INDEX_ENTRY_BYTES,
    TimeIndexEntry, check_offset_index, check_time_index, read_transaction_index,
};
use offsetlog_format::legacy::Message;
use offsetlog_format::{BatchHeader, BatchView, FormatError, counted};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const CORRUPT_INDEX: &str = "CorruptIndex";

/// Path of a companion file, and its bytes if it exists.
type Beside = (PathBuf, Option<Vec<u8>>);

/// Severity of an index entry beyond the segment's end: an error in a closed segment. The active one may just have lost its
/// tail.
const fn ahead(next: Option<i64>) -> Severity {
    match next {
        Some(_) => Severity::Error,
        None => Severity::Warning,
    }
}

/// What the walk over the batches found.
#[derive(Debug, Default)]
pub(super) struct Walked {
    /// Offset after the last batch.
    pub(super) end: Option<i64>,
    /// Greatest timestamp of all batches. A batch that compaction emptied keeps its timestamp, and the time index may have it.
    max_timestamp: Option<i64>,
    /// Greatest timestamp of the batches that have records.
    max_of_records: Option<i64>,
    bytes: u64,
    has_holes: bool,
    is_torn: bool,
}

impl Walked {
    /// Whether some of the segment's bytes are not in a batch.
    pub(super) const fn is_damaged(&self) -> bool {
        self.has_holes || self.is_torn
    }
}

impl Partition<'_> {
    /// Checks a segment and its indexes.
    pub(super) fn segment(&mut self, base: i64, next: Option<i64>) -> Result<Walked> {
        let segment = Segment::new(Arc::clone(&self.directory), base, next);
        let path = segment.file_path(".log");
        // Read first, so that they have no entries for batches that a broker appends during the check.
        let index = self.read_beside(base, ".index");
        let times = self.read_beside(base, ".timeindex");
        let open = match segment.open() {
            Ok((open, _)) => open,
            Err(error) if error.is_corruption() => {
                self.add(Effect::TOO_LARGE.error(&path, &error));
                return Ok(Walked::default());
            }
            // A broker deleted or renamed it in the meantime.
            Err(error) if error.is_missing_file() => return Ok(Walked::default()),
            Err(error) => {
                self.unreadable(&path, error)?;
                return Ok(Walked {
                    has_holes: true,
                    ..Walked::default()
                });
            }
        };
        self.report.segments += 1;
        let mut walked = Walked {
            bytes: open.stat.size,
            ..Walked::default()
        };
        let mut offsets = Offsets::of(self, base, next, index, walked.bytes);
        let mut walk = Walk::new(open, 0, SCAN_BYTES, std::mem::take(&mut self.buffer));
        loop {
            let from = walk.position();
            match walk.step(true) {
                Ok(Step::Batch(header)) => {
                    offsets.meet(self, walk.batch_position(), &header);
                    self.batch(&walk, &header, base, &mut walked)?;
                }
                Ok(Step::End(torn)) => {
                    self.report_progress(walk.position() - from)?;
                    if let Some(torn) = torn {
                        walked.is_torn = true;
                        self.torn(&torn, &walked);
                    }
                    break;
                }
                Err(error) if error.is_corruption() => {
                    let effect = match error.kind() {
                        ErrorKind::OffsetOrder(_) | ErrorKind::OffsetOverflow(_) => Effect::ORDER,
                        ErrorKind::UnsupportedMagic(_) => Effect::MAGIC,
                        _ => Effect::BATCH,
                    };
                    self.add(effect.error(&path, &error));
                    let passed = walk.pass_damage()?;
                    walked.has_holes = true;
                    offsets.pass(passed.position, passed.bytes);
                }
                Err(error) if matches!(error.kind(), ErrorKind::Io { .. }) => {
                    self.unreadable(&path, error)?;
                    walked.has_holes = true;
                    offsets.told = true;
                    break;
                }
                Err(error) => return Err(error),
            }
            self.report_progress(walk.position() - from)?;
        }
        offsets.finish(self, walk.position());
        self.buffer = walk.into_buffer();
        self.times(base, next, times, &walked);
        self.aborted(base, &walked);
        Ok(walked)
    }

    fn torn(&mut self, torn: &TornTail, walked: &Walked) {
        let is_zeros = torn.is_zeros();
        let now = self.directory.disk.stat(&torn.path);
        let is_written = now.is_ok_and(|now| now.size != walked.bytes);
        // Neither preallocated space nor a write in progress is damage.
        let (severity, effect, kind) = match (is_zeros, is_written) {
            (true, _) => (Severity::Note, Effect::ZEROS, "ZeroTail"),
            (false, true) => (Severity::Note, Effect::TORN, "TornTail"),
            (false, false) => (Severity::Warning, Effect::TORN, "TornTail"),
        };
        let bytes = counted(torn.bytes, "byte");
        let reason = format!("unfinished end of {bytes}: {}", torn.reason);
        let mut finding = effect.finding(severity, kind, &torn.path, reason);
        finding.position = Some(torn.position);
        finding.offset = walked.end;
        self.add(finding);
    }

    fn batch(
        &mut self,
        walk: &Walk,
        header: &BatchHeader,
        base: i64,
        walked: &mut Walked,
    ) -> Result<()> {
        self.report.batches += 1;
        let path = &walk.segment().path;
        let first = header.base_offset.unwrap_or(header.last_offset);
        let place = |mut finding: Finding| {
            finding.position = Some(walk.batch_position());
            finding.offset = Some(first);
            finding
        };
        walked.end = Some(header.last_offset.saturating_add(1));
        walked.max_timestamp = walked.max_timestamp.max(Some(header.max_timestamp));
        if header.record_count != 0 {
            walked.max_of_records = walked.max_of_records.max(Some(header.max_timestamp));
        }
        if header.last_offset - base > i64::from(i32::MAX) {
            let reason = format!(
                "last offset {} is too far from the segment's first",
                header.last_offset
            );
            let finding = Effect::WIDE.finding(Severity::Error, "OffsetOverflow", path, reason);
            self.add(place(finding));
        }
        if header.leader_epoch < self.leader_epoch {
            let reason = format!(
                "leader epoch {} behind leader epoch {}",
                header.leader_epoch, self.leader_epoch
            );
            let finding = Effect::NOTHING.finding(Severity::Warning, "LeaderEpoch", path, reason);
            self.add(place(finding));
        }
        self.leader_epoch = self.leader_epoch.max(header.leader_epoch);
        let told = self
            .epochs
            .as_ref()
            .and_then(|epochs| epochs.epoch_of(first));
        if let Some(told) = told
            && header.leader_epoch >= 0
            && told != header.leader_epoch
        {
            let reason = format!(
                "leader epoch {} of the batch is {told} by leader-epoch-checkpoint",
                header.leader_epoch
            );
            let finding = Effect::NOTHING.finding(Severity::Warning, "LeaderEpoch", path, reason);
            self.add(place(finding));
        }
        if let Err(error) = self.records(walk, header) {
            let is_limit = matches!(error.kind(), ErrorKind::Limit { .. });
            if !error.is_corruption() && !is_limit {
                return Err(error);
            }
            let effect = if header.attributes.is_control() {
                Effect::MARKER
            } else {
                Effect::RECORDS
            };
            let mut finding = effect.error(path, &error);
            if is_limit {
                finding.severity = Severity::Warning;
            }
            self.add(place(finding));
        }
        Ok(())
    }

    /// Decodes all records of a batch; control records completely.
    fn records(&mut self, walk: &Walk, header: &BatchHeader) -> Result<()> {
        let limit = self.directory.limits.max_decompressed_bytes;
        let records = Records::open(header, walk.loaded_batch(), &mut self.decompressor, limit)?;
        let mut records = records.not_below(walk.batch_minimum());
        while let Some(record) = records.next_record()? {
            self.report.records += 1;
            if header.attributes.is_control() {
                ControlRecord::parse(record.key, record.value)?;
            }
        }
        if header.magic < 2 && header.attributes.codec_number() != 0 {
            return self.messages(walk, header);
        }
        Ok(())
    }

    /// Checks the messages inside a compressed set. No reader verifies their checksums.
    fn messages(&mut self, walk: &Walk, header: &BatchHeader) -> Result<()> {
        let limit = self.directory.limits.max_decompressed_bytes;
        let view = BatchView::parse(walk.loaded_batch())?;
        let value = Message::parse(&view)?.value.unwrap_or_default();
        let codec = header.codec()?;
        let mut rest = self
            .decompressor
            .decompress(codec, header.magic, value, limit)?;
        while !rest.is_empty() {
            let whole = BatchHeader::parse(rest)
                .ok()
                .and_then(|inner| Some((inner, rest.split_at_checked(inner.size_bytes)?)));
            let Some((inner, (bytes, behind))) = whole else {
                let reason = format!(
                    "the last message of the set is cut: {} left",
                    counted(rest.len(), "byte")
                );
                let path = &walk.segment().path;
                let mut finding =
                    Effect::NOTHING.finding(Severity::Note, "CutMessage", path, reason);
                finding.position = Some(walk.batch_position());
                finding.offset = Some(header.last_offset);
                self.report.add(finding);
                break;
            };
            inner.check_crc(bytes)?;
            rest = behind;
        }
        Ok(())
    }

    fn read_beside(&mut self, base: i64, suffix: &str) -> Beside {
        let path = segment_path(&self.directory.path, base, suffix);
        let bytes = self.read_file(&path);
        (path, bytes)
    }

    /// Reports a missing index if there are batches to index.
    fn needed(&mut self, (path, bytes): Beside, size: u64) -> Option<(PathBuf, Vec<u8>)> {
        if bytes.is_none() && size > 0 && !self.unread.contains(&path) {
            let bytes = counted(size, "byte");
            let reason = format!("there is none beside {bytes} of batches");
            self.add(Effect::NO_INDEX.finding(Severity::Warning, "MissingFile", &path, reason));
        }
        bytes.map(|bytes| (path, bytes))
    }

    /// Reports bytes after the last complete entry.
    fn fragment(&mut self, path: &Path, size: usize, entry_bytes: usize, severity: Severity) {
        let odd = size % entry_bytes;
        if odd > 0 {
            let odd_bytes = counted(odd, "byte");
            let reason = format!("{odd_bytes} behind the last entry of {entry_bytes} bytes");
            let mut finding = Effect::TAIL.finding(severity, CORRUPT_INDEX, path, reason);
            finding.position = Some((size - odd) as u64);
            self.add(finding);
        }
    }

    fn bad_index(&mut self, path: &Path, error: FormatError) {
        let at = error.at as u64;
        let mut finding = Effect::INDEX.error(path, &Error::from(error).at_position(at));
        finding.kind = CORRUPT_INDEX;
        self.add(finding);
    }

    fn times(&mut self, base: i64, next: Option<i64>, times: Beside, walked: &Walked) {
        let Some((path, bytes)) = self.needed(times, walked.bytes) else {
            return;
        };
        self.fragment(&path, bytes.len(), TIME_INDEX_ENTRY_BYTES, Severity::Error);
        let count = match check_time_index(&bytes, base) {
            Ok(count) => count,
            Err(error) => {
                self.bad_index(&path, error);
                return;
            }
        };
        let behind = walked.end.or(next).unwrap_or(i64::MAX);
        for slot in 0..count {
            let Ok(entry) = TimeIndexEntry::read(&bytes, slot, base) else {
                break;
            };
            let is_late = walked
                .max_timestamp
                .is_some_and(|most| most >= 0 && entry.timestamp > most);
            if !walked.has_holes && (entry.offset >= behind || is_late) {
                let reason = format!(
                    "entry {slot} (timestamp {}, offset {}) is beyond what the segment holds",
                    entry.timestamp, entry.offset
                );
                let mut finding = Effect::INDEX.finding(ahead(next), CORRUPT_INDEX, &path, reason);
                finding.position = Some((slot * TIME_INDEX_ENTRY_BYTES) as u64);
                finding.offset = Some(entry.offset);
                self.add(finding);
                return;
            }
        }
        if next.is_some() && !walked.is_damaged() {
            self.short_times(&path, (&bytes, base, count), walked);
        }
    }

    /// Reports a closed segment's time index that is correct but incomplete: its last entry must have the segment's greatest
    /// timestamp.
    fn short_times(
        &mut self,
        path: &Path,
        (bytes, base, count): (&[u8], i64, usize),
        walked: &Walked,
    ) {
        let zeros = bytes.len() / TIME_INDEX_ENTRY_BYTES - count;
        let last = count
            .checked_sub(1)
            .and_then(|slot| TimeIndexEntry::read(bytes, slot, base).ok())
            .map(|entry| entry.timestamp);
        let most = walked.max_of_records.filter(|&most| most >= 0);
        let reason = match (zeros, last, most) {
            (1.., ..) => format!(
                "zeros are {zeros} of its {}",
                counted(zeros + count, "entry")
            ),
            (_, Some(last), Some(most)) if last < most => {
                format!("its last timestamp {last} is below the greatest of the segment, {most}")
            }
            (_, None, Some(most)) => {
                format!("it has no entry, and the segment's greatest timestamp is {most}")
            }
            _ => return,
        };
        let finding = Effect::SHORT_TIMES.finding(Severity::Warning, CORRUPT_INDEX, path, reason);
        self.add(finding);
    }

    fn aborted(&mut self, base: i64, walked: &Walked) {
        let (path, Some(bytes)) = self.read_beside(base, ".txnindex") else {
            return;
        };
        self.fragment(
            &path,
            bytes.len(),
            ABORTED_TRANSACTION_BYTES,
            Severity::Note,
        );
        match read_transaction_index(&bytes, base) {
            Err(error) => {
                let at = error.at as u64;
                let error = Error::from(error).at_position(at);
                let mut finding = Effect::ABORTED.error(&path, &error);
                finding.kind = "CorruptTxnIndex";
                self.add(finding);
            }
            Ok(entries) => {
                let last = entries.last().map(|entry| entry.last_offset);
                if let (Some(last), Some(end), false) = (last, walked.end, walked.has_holes)
                    && last >= end
                {
                    let reason =
                        format!("a marker at offset {last} is beyond the segment's end {end}");
                    let mut finding =
                        Effect::ABORTED.finding(Severity::Error, "CorruptTxnIndex", &path, reason);
                    finding.offset = Some(last);
                    self.add(finding);
                }
            }
        }
    }
}

/// An offset index that is checked against one batch after another.
struct Offsets {
    path: PathBuf,
    bytes: Vec<u8>,
    base: i64,
    /// Severity of an entry beyond the end of the segment.
    ahead: Severity,
    count: usize,
    /// Slot of the first entry that no batch has matched yet.
    at: usize,
    told: bool,
    /// Whether the segment is closed: then its index gets no more entries.
    is_closed: bool,
    /// Number of zero entries after the others.
    zeros: usize,
    /// Position of the last entry's batch, and the longest stretch without an entry: its position and size in bytes.
    since: u64,
    longest: (u64, u64),
    /// Estimate of the largest normal distance between entries in bytes: the largest of 16 KiB, the first entry's position and
    /// the largest batch.
    interval: u64,
}

/// A longer stretch without an entry, in intervals, is more than a broker ever leaves.
const INTERVALS_MAX: u64 = 16;
/// Smallest assumed interval in bytes, because `index.interval.bytes` may not have its default.
const INTERVAL_MIN: u64 = 16 * 1024;

impl Offsets {
    fn of(
        partition: &mut Partition<'_>,
        base: i64,
        next: Option<i64>,
        index: Beside,
        size: u64,
    ) -> Self {
        let (path, bytes) = partition.needed(index, size).unwrap_or_default();
        partition.fragment(
            &path,
            bytes.len(),
            OFFSET_INDEX_ENTRY_BYTES,
            Severity::Error,
        );
        let (count, told) = match check_offset_index(&bytes, base) {
            Ok(count) => (count, false),
            Err(error) => {
                partition.bad_index(&path, error);
                (0, true)
            }
        };
        let first = OffsetIndexEntry::read(&bytes, 0, base).ok();
        let first = first.filter(|_| count > 0);
        Self {
            zeros: bytes.len() / OFFSET_INDEX_ENTRY_BYTES - count,
            path,
            bytes,
            base,
            ahead: ahead(next),
            count,
            at: 0,
            told,
            is_closed: next.is_some(),
            since: 0,
            longest: (0, 0),
            interval: first
                .map_or(0, |entry| u64::from(entry.position))
                .max(INTERVAL_MIN),
        }
    }

    fn entry(&self) -> Option<OffsetIndexEntry> {
        (self.at < self.count && !self.told)
            .then(|| OffsetIndexEntry::read(&self.bytes, self.at, self.base).ok())
            .flatten()
    }

    fn wrong(
        &mut self,
        partition: &mut Partition<'_>,
        entry: OffsetIndexEntry,
        (severity, why): (Severity, &str),
    ) {
        let reason = format!(
            "entry {} (offset {}, position {}) {why}",
            self.at, entry.offset, entry.position
        );
        let mut finding = Effect::INDEX.finding(severity, CORRUPT_INDEX, &self.path, reason);
        finding.position = Some((self.at * OFFSET_INDEX_ENTRY_BYTES) as u64);
        finding.offset = Some(entry.offset);
        partition.add(finding);
        self.told = true;
    }

    fn meet(&mut self, partition: &mut Partition<'_>, position: u64, header: &BatchHeader) {
        let size = header.size_bytes as u64;
        self.interval = self.interval.max(size);
        let stretch = (position + size).saturating_sub(self.since);
        if stretch > self.longest.1 {
            self.longest = (self.since, stretch);
        }
        while let Some(entry) = self.entry() {
            let at = u64::from(entry.position);
            if at > position {
                return;
            }
            if at < position {
                self.wrong(partition, entry, (Severity::Error, "points at no batch"));
                return;
            }
            if header.base_offset.is_some_and(|base| entry.offset < base) {
                self.wrong(
                    partition,
                    entry,
                    (Severity::Error, "is below the batch it points at"),
                );
                return;
            }
            self.at += 1;
            self.since = position;
        }
    }

    /// Skips entries that point into damage: they cannot be checked.
    fn pass(&mut self, position: u64, bytes: u64) {
        self.since = position + bytes;
        while self
            .entry()
            .is_some_and(|entry| u64::from(entry.position) < position + bytes)
        {
            self.at += 1;
        }
    }

    fn finish(&mut self, partition: &mut Partition<'_>, end: u64) {
        if let Some(entry) = self.entry() {
            let why = if u64::from(entry.position) >= end {
                (self.ahead, "points behind the last batch")
            } else {
                (Severity::Error, "points at no batch")
            };
            self.wrong(partition, entry, why);
        }
        if self.is_closed && !self.told && !self.path.as_os_str().is_empty() {
            self.thin(partition);
        }
    }

    /// Reports a closed segment's offset index that is correct but has far too few entries.
    fn thin(&self, partition: &mut Partition<'_>) {
        let (from, bytes) = self.longest;
        let (effect, reason) = if self.zeros > 0 {
            let all = self.zeros + self.count;
            let reason = format!("zeros are {} of its {}", self.zeros, counted(all, "entry"));
            (Effect::ZERO_INDEX, reason)
        } else if bytes > self.interval.saturating_mul(INTERVALS_MAX) {
            let reason = format!(
                "no entry for {bytes} bytes of batches from position {from} on, of {}",
                counted(self.count, "entry")
            );
            (Effect::THIN_INDEX, reason)
        } else {
            return;
        };
        partition.add(effect.finding(Severity::Warning, CORRUPT_INDEX, &self.path, reason));
    }
}

/// A decompressor and a buffer, reused for all segments.
pub(super) fn tools() -> (Decompressor, Vec<u8>) {
    (Decompressor::new(), Vec::new())
}
