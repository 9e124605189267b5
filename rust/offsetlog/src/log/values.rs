//! Arguments and results of a log's methods: plain values that own their bytes.

use crate::error::{Error, Result};
use crate::memory;
use crate::segment::offset_index::{IndexSlot, IndexState};
use offsetlog_format::{BatchHeader, Codec, RecordView, TimestampType, counted};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Which records a reader sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Isolation {
    /// All records, also those of open and aborted transactions.
    #[default]
    ReadUncommitted,
    /// Up to the last stable offset, without the records of aborted transactions.
    ReadCommitted,
}

impl FromStr for Isolation {
    type Err = crate::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "read_uncommitted" => Ok(Self::ReadUncommitted),
            "read_committed" => Ok(Self::ReadCommitted),
            _ => Err(crate::Error::argument(
                "isolation_level",
                format!("{text:?} found, \"read_uncommitted\" or \"read_committed\" expected"),
            )),
        }
    }
}

/// A record that owns its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Offset in the partition.
    pub offset: i64,
    /// Milliseconds since 1970, -1 for none.
    pub timestamp: i64,
    /// What the timestamp means.
    pub timestamp_type: TimestampType,
    /// The key.
    pub key: Option<Vec<u8>>,
    /// The value; `None` is a tombstone.
    pub value: Option<Vec<u8>>,
    /// Key and value of each header.
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Epoch of the leader that appended the record, -1 for none.
    pub leader_epoch: i32,
    /// Producer id, -1 for none.
    pub producer_id: i64,
    /// Producer epoch, -1 for none.
    pub producer_epoch: i16,
    /// The record's sequence, -1 for none.
    pub sequence: i32,
    /// Whether it belongs to a transaction.
    pub is_transactional: bool,
    /// Whether it is a control record.
    pub is_control: bool,
}

impl Record {
    /// Copies a view, with what its batch says of all its records.
    ///
    /// # Errors
    /// [`Io`](crate::ErrorKind::Io) of the kind `OutOfMemory`.
    pub fn new(header: &BatchHeader, view: &RecordView<'_>) -> Result<Self> {
        let copy = |part: Option<&[u8]>| part.map(memory::copy).transpose();
        // As a value a header takes many times the two bytes that it may have been.
        let mut headers = Vec::new();
        headers
            .try_reserve_exact(view.headers.len())
            .map_err(|_| Error::no_memory())?;
        for (key, value) in view.headers.iter() {
            headers.push((memory::copy(key)?, copy(value)?));
        }
        Ok(Self {
            offset: view.offset,
            timestamp: view.timestamp,
            timestamp_type: view.timestamp_type,
            key: copy(view.key)?,
            value: copy(view.value)?,
            headers,
            leader_epoch: header.leader_epoch,
            producer_id: header.producer_id,
            producer_epoch: header.producer_epoch,
            sequence: sequence_of(header, view.offset),
            is_transactional: header.attributes.is_transactional(),
            is_control: header.attributes.is_control(),
        })
    }
}

/// The sequence of the record at `offset` of a batch, -1 without one.
#[must_use]
pub fn sequence_of(header: &BatchHeader, offset: i64) -> i32 {
    let delta = header
        .base_offset
        .map_or(0, |base| offset.wrapping_sub(base));
    offsetlog_format::batch::sequence_after(header.base_sequence, i32::try_from(delta).unwrap_or(0))
}

/// The result of a look-up by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffsetAndTimestamp {
    /// Offset of the record.
    pub offset: i64,
    /// Its timestamp in milliseconds.
    pub timestamp: i64,
    /// Leader epoch of its batch, if it has one.
    pub leader_epoch: Option<i32>,
}

/// A segment as `ls` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Lowest offset that it may hold, its files' name.
    pub base_offset: i64,
    /// The `.log` file.
    pub path: PathBuf,
    /// Bytes of the `.log` file.
    pub size_bytes: u64,
    /// Entries of the offset index that count.
    pub index_entries: usize,
    /// Whether it is the last one, to which appends go.
    pub is_active: bool,
}

/// The header of a batch with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchInfo {
    /// Offset of the first record of the original batch.
    pub base_offset: i64,
    /// Offset of the last record of the original batch.
    pub last_offset: i64,
    /// Position in the segment's `.log` file.
    pub position: u64,
    /// Whole size in bytes, header included.
    pub size_bytes: u64,
    /// Format version: 0, 1 or 2.
    pub magic: i8,
    /// Codec of the records.
    pub codec: Codec,
    /// What the timestamps mean.
    pub timestamp_type: TimestampType,
    /// Milliseconds to which timestamp deltas are added, or the delete horizon.
    pub base_timestamp: i64,
    /// Greatest timestamp in milliseconds, or the append time.
    pub max_timestamp: i64,
    /// Epoch of the leader that appended the batch, -1 for none.
    pub leader_epoch: i32,
    /// Producer id, -1 for none.
    pub producer_id: i64,
    /// Producer epoch, -1 for none.
    pub producer_epoch: i16,
    /// Sequence of the first record, -1 for none.
    pub base_sequence: i32,
    /// Records in the batch, as its header says; `None` for a compressed set of magic 0 or 1, whose header does not.
    pub record_count: Option<i32>,
    /// Whether it belongs to a transaction.
    pub is_transactional: bool,
    /// Whether it holds control records.
    pub is_control: bool,
    /// Stored checksum.
    pub crc: u32,
    /// Base offset of the segment that holds it.
    pub segment: i64,
}

impl BatchInfo {
    /// `base_offset` is used where the header has none.
    pub(crate) fn new(
        header: &BatchHeader,
        codec: Codec,
        base_offset: i64,
        position: u64,
        segment: i64,
    ) -> Self {
        Self {
            base_offset: header.base_offset.unwrap_or(base_offset),
            last_offset: header.last_offset,
            position,
            size_bytes: header.size_bytes as u64,
            magic: header.magic,
            codec,
            timestamp_type: header.timestamp_type(),
            base_timestamp: header.base_timestamp,
            max_timestamp: header.max_timestamp,
            leader_epoch: header.leader_epoch,
            producer_id: header.producer_id,
            producer_epoch: header.producer_epoch,
            base_sequence: header.base_sequence,
            record_count: (header.record_count >= 0).then_some(header.record_count),
            is_transactional: header.attributes.is_transactional(),
            is_control: header.attributes.is_control(),
            crc: header.crc,
            segment,
        }
    }
}

/// An entry of an offset index that a look-up used.
pub type IndexEntry = IndexSlot;

/// One look-up by offset, step by step. `Display` tells it in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The offset looked up.
    pub offset: i64,
    /// Base offset of the segment.
    pub segment: i64,
    /// Its `.log` file.
    pub segment_path: PathBuf,
    /// Number of the segment, from 0, and how many there are.
    pub segment_slot: usize,
    /// How many segments the log has.
    pub segment_count: usize,
    /// What became of the offset index.
    pub index_state: IndexState,
    /// Entries of the offset index that count.
    pub index_entries: usize,
    /// The entry from which the scan started; `None`: it started at the segment's first byte.
    pub entry: Option<IndexEntry>,
    /// An entry that did not agree with the log, and why.
    pub rejected: Option<(IndexEntry, String)>,
    /// Batches whose headers were read, the last one included.
    pub scanned_batches: u64,
    /// Bytes from the start of the scan to the end of the batch found.
    pub scanned_bytes: u64,
    /// The batch that holds the offset; `None` in a gap at the end of the segment.
    pub batch: Option<BatchInfo>,
    /// Whether a record with this very offset is in the batch (gaps come from compaction).
    pub has_record: bool,
}

impl Location {
    /// What became of the offset index, in one word.
    #[must_use]
    pub fn index_state_name(&self) -> &'static str {
        match (&self.rejected, self.index_state) {
            (Some(_), _) => "rejected",
            (None, IndexState::Used) => "used",
            (None, IndexState::Missing) => "missing",
            (None, IndexState::Empty) => "empty",
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = |suffix: &str| format!("{:020}{suffix}", self.segment);
        writeln!(
            f,
            "offset {} of {}-{}",
            self.offset, self.topic, self.partition
        )?;
        writeln!(
            f,
            "1. segment: {}, the last of {} with a base offset at or below {} (number {})",
            file(".log"),
            self.segment_count,
            self.offset,
            self.segment_slot
        )?;
        write!(f, "2. index: {}, ", file(".index"))?;
        match (&self.rejected, self.entry, self.index_state) {
            (Some((entry, reason)), _, _) => writeln!(
                f,
                "entry {} ({}, {}) does not agree with the log: {reason}; from position 0",
                entry.slot, entry.offset, entry.position
            )?,
            (None, Some(entry), _) => writeln!(
                f,
                "entry {} of {}: offset {} at position {}",
                entry.slot, self.index_entries, entry.offset, entry.position
            )?,
            (None, None, IndexState::Used) => writeln!(
                f,
                "none of {} is at or below {}: from position 0",
                counted(self.index_entries, "entry"),
                self.offset
            )?,
            (None, None, state) => writeln!(
                f,
                "{}: from position 0",
                if state == IndexState::Missing {
                    "no such file"
                } else {
                    "no entries"
                }
            )?,
        }
        write!(
            f,
            "3. scan: {}, {}",
            counted(self.scanned_batches, "batch header"),
            counted(self.scanned_bytes, "byte")
        )?;
        match &self.batch {
            Some(batch) => {
                write!(
                    f,
                    "\n4. batch: offsets {} to {} at position {}, {} bytes, codec {}",
                    batch.base_offset,
                    batch.last_offset,
                    batch.position,
                    batch.size_bytes,
                    batch.codec
                )?;
                if !self.has_record {
                    write!(f, "; it holds no record {}", self.offset)?;
                }
                Ok(())
            }
            None => write!(
                f,
                "\n4. batch: none at or beyond the offset in this segment"
            ),
        }
    }
}

/// An aborted transaction as a fetch lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// The producer.
    pub producer_id: i64,
    /// First offset of the transaction in this partition.
    pub first_offset: i64,
}
