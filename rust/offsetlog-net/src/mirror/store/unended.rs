//! Transactions of a copy whose marker the source may have removed before it was copied.
//!
//! Kafka's cleaner removes a marker when `delete.retention.ms` has passed since it removed the last record of the transaction. A copy that
//! has such a record, and comes back later than that, never gets the marker: the producer's next one would commit what was aborted, or the
//! other way round. A follower that was away for that long has the same bytes and does the same, so the copy stays as it is, and the mirror
//! reports it.
//!
//! Source: Kafka's `CleanedTransactionMetadata`, `Cleaner.checkBatchRetention`.

use offsetlog::disk::Disk;
use offsetlog::format::batch::BatchHeader;
use offsetlog::format::name::PARTITION_METADATA;
use offsetlog::{LogWriter, Result, TopicPartition};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// The cleaner removes a marker in a pass behind the one that removed the last record, also where `delete.retention.ms` is 0: a marker that is
/// missing behind a record that was there less than this long ago was never there.
const TWO_PASSES_MS: i64 = 1000;

/// A transaction: producer id and first offset.
pub(crate) type Unended = (i64, i64);

/// The transactions of a copy without a marker, after an append.
#[derive(Debug, Default)]
pub(crate) struct Transactions {
    /// Open where a gap begins that the source's deletes left: their markers may be lost in it.
    pub(crate) at_gap: Vec<Unended>,
    /// Their markers may be lost in what compaction removed.
    pub(crate) compacted: Vec<Unended>,
    /// Open at the end, and not reported yet.
    pub(crate) open: Vec<Unended>,
}

/// An open transaction of a copy.
#[derive(Debug, Clone, Copy)]
struct Open {
    epoch: i16,
    first: i64,
    /// The source had records of it at this time, by the clock of this machine.
    since: i64,
    is_told: bool,
}

/// The open transactions of one copy, by producer id.
#[derive(Debug, Default)]
pub(super) struct OpenOfCopy(BTreeMap<i64, Open>);

/// The open transactions of the copies that were appended to.
#[derive(Debug, Default)]
pub(super) struct OpenOfCopies {
    known: BTreeMap<TopicPartition, OpenOfCopy>,
    /// Those of a gap that was appended behind, in an append that failed then.
    at_gap: BTreeMap<TopicPartition, Vec<Unended>>,
}

impl OpenOfCopies {
    /// Takes out those of a copy that is about to be changed, which may be one of an earlier run.
    ///
    /// # Errors
    /// Those of reading its producers.
    pub(super) fn take_out(
        &mut self,
        at: &TopicPartition,
        log: &LogWriter,
        disk: &dyn Disk,
    ) -> Result<OpenOfCopy> {
        if let Some(known) = self.known.remove(at) {
            return Ok(known);
        }
        let mut open = BTreeMap::new();
        for state in log.open_transactions()? {
            if let Some(first) = state.transaction_first_offset {
                let (earliest, latest) = copied(log, disk, state.last_offset)?;
                let known = Open {
                    epoch: state.producer_epoch,
                    first,
                    since: copied_at(state.last_timestamp, earliest, latest),
                    is_told: false,
                };
                open.insert(state.producer_id, known);
            }
        }
        Ok(OpenOfCopy(open))
    }

    /// Those at a gap of which an append that failed could not tell.
    pub(super) fn take_at_gap(&mut self, at: &TopicPartition) -> Vec<Unended> {
        self.at_gap.remove(at).unwrap_or_default()
    }

    /// An append failed that had these to tell, and perhaps stands behind the gap.
    pub(super) fn keep_at_gap(&mut self, at: &TopicPartition, unended: Vec<Unended>) {
        if !unended.is_empty() {
            self.at_gap.insert(at.clone(), unended);
        }
    }

    /// Puts them back.
    pub(super) fn keep(&mut self, at: &TopicPartition, open: OpenOfCopy) {
        self.known.insert(at.clone(), open);
    }

    /// The copy was changed other than by an append.
    pub(super) fn forget(&mut self, at: &TopicPartition) {
        self.known.remove(at);
        self.at_gap.remove(at);
    }

    /// A topic was deleted.
    pub(super) fn forget_topic(&mut self, topic: &str) {
        self.known.retain(|at, _| at.topic != topic);
        self.at_gap.retain(|at, _| at.topic != topic);
    }
}

impl OpenOfCopy {
    /// All that are open, because records before the next ones were deleted at the source. Each is returned once.
    pub(super) fn at_gap(&mut self) -> Vec<Unended> {
        let untold = self.0.iter_mut().filter(|(_, open)| !open.is_told);
        let told = untold.map(|(&producer, open)| {
            open.is_told = true;
            (producer, open.first)
        });
        told.collect()
    }

    /// Those of which nothing was reported.
    pub(super) fn untold(&self) -> Vec<Unended> {
        let untold = self.0.iter().filter(|(_, open)| !open.is_told);
        untold
            .map(|(&producer, open)| (producer, open.first))
            .collect()
    }

    /// Takes batches that are appended at `end`. Returns the transactions whose marker may be missing among them, each once.
    pub(super) fn take(
        &mut self,
        records: &[u8],
        end: i64,
        (now, delete_retention_ms): (i64, i64),
    ) -> Vec<Unended> {
        let mut found = Vec::new();
        let mut rest = records;
        let mut expected = end;
        while let Ok(header) = BatchHeader::parse(rest) {
            let base = header.base_offset.unwrap_or(header.last_offset);
            if base > expected {
                let stays_ms = delete_retention_ms.max(TWO_PASSES_MS);
                let is_late = |open: &Open| now.saturating_sub(open.since) >= stays_ms;
                let late = self.0.iter_mut().filter(|(_, open)| is_late(open));
                for (&producer, open) in late {
                    tell(producer, open, &mut found);
                }
            }
            self.take_batch(&header, base, now, &mut found);
            expected = header.last_offset.saturating_add(1);
            let Some(behind) = rest.get(header.size_bytes..) else {
                break;
            };
            rest = behind;
        }
        found
    }

    fn take_batch(&mut self, header: &BatchHeader, base: i64, now: i64, found: &mut Vec<Unended>) {
        let producer = header.producer_id;
        if header.magic != 2 || producer < 0 {
            return;
        }
        if header.attributes.is_control() {
            let ended = self.0.remove(&producer);
            // The cleaner keeps the header of a producer's last batch: the marker was in it.
            if header.record_count == 0
                && let Some(mut open) = ended
            {
                tell(producer, &mut open, found);
            }
        } else if header.attributes.is_transactional() {
            let new = Open {
                epoch: header.producer_epoch,
                first: base,
                since: now,
                is_told: false,
            };
            let open = self.0.entry(producer).or_insert(new);
            open.since = now;
            // A producer gets a new epoch when its transaction has ended.
            if header.producer_epoch > open.epoch {
                tell(producer, open, found);
                *open = new;
            }
        }
    }
}

/// When an earlier run copied a record, by the clock of this machine: not before, and not after. Segments are written one after the other,
/// and the file with the topic's id when the copy is made.
fn copied(log: &LogWriter, disk: &dyn Disk, offset: i64) -> Result<(i64, i64)> {
    let modified = |path: &Path| disk.stat(path).map(|found| found.modified_ms);
    let segments = log.segments()?;
    let next = segments.partition_point(|segment| segment.base_offset <= offset);
    let (before, from) = segments.split_at(next.saturating_sub(1));
    let made = modified(&log.path().join(PARTITION_METADATA));
    let before = before.last().map(|segment| modified(&segment.path));
    // What cannot be known bounds nothing.
    let earliest = made
        .unwrap_or(i64::MIN)
        .max(before.and_then(io::Result::ok).unwrap_or(i64::MIN));
    let latest = from.first().map(|segment| modified(&segment.path));
    let latest = latest.and_then(io::Result::ok).unwrap_or(i64::MAX);
    Ok((earliest, latest))
}

/// The timestamp of a record that is copied may be any. One that can be true is: it was written before it was copied.
fn copied_at(timestamp: i64, earliest: i64, latest: i64) -> i64 {
    timestamp.max(earliest).min(latest)
}

fn tell(producer: i64, open: &mut Open, found: &mut Vec<Unended>) {
    if !std::mem::replace(&mut open.is_told, true) {
        found.push((producer, open.first));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use offsetlog::format::builder::{BatchFields, NewRecord, Uncompressed, write_batch};
    use offsetlog::format::{Attributes, Codec};

    const NOW: i64 = 1_700_000_000_000;
    const DAY_MS: i64 = 86_400_000;

    /// A batch of producer 7 with one record, or an empty one.
    fn batch(offset: i64, epoch: i16, is_control: bool, is_empty: bool) -> Vec<u8> {
        let attributes = Attributes::new(Codec::None, false).transactional();
        let marker: ([u8; 4], [u8; 6]) = ([0, 0, 0, 1], [0, 0, 0, 0, 0, 7]);
        let record = NewRecord {
            offset,
            timestamp: NOW,
            key: Some(&marker.0),
            value: Some(&marker.1),
            headers: &[],
        };
        let fields = BatchFields {
            base_offset: offset,
            attributes: if is_control {
                attributes.control()
            } else {
                attributes
            },
            producer_id: 7,
            producer_epoch: epoch,
            ..BatchFields::default()
        };
        let (mut bytes, mut scratch) = (Vec::new(), Vec::new());
        let records = [record];
        write_batch(
            &mut bytes,
            &fields,
            &records,
            &mut Uncompressed,
            &mut scratch,
        )
        .unwrap();
        if is_empty {
            // As the cleaner leaves it: the header alone. Checksums are not looked at here.
            bytes.truncate(61);
            bytes[8..12].copy_from_slice(&49_i32.to_be_bytes());
            bytes[57..61].copy_from_slice(&0_i32.to_be_bytes());
        }
        bytes
    }

    fn copy() -> OpenOfCopy {
        let mut open = OpenOfCopy::default();
        let began = batch(4, 1, false, false);
        assert_eq!(open.take(&began, 4, (NOW, DAY_MS)), []);
        assert_eq!(open.untold(), [(7, 4)]);
        open
    }

    #[test]
    fn a_transaction_without_its_marker_is_found_once() {
        // Its own marker, also with the next epoch, as Kafka 4 writes it.
        for epoch in [1, 2] {
            let mut open = copy();
            let marker = batch(5, epoch, true, false);
            assert_eq!(open.take(&marker, 5, (NOW + DAY_MS, DAY_MS)), []);
            assert_eq!(open.untold(), []);
        }
        // The header of a marker that the cleaner removed.
        let mut open = copy();
        let empty = batch(5, 1, true, true);
        assert_eq!(open.take(&empty, 5, (NOW, DAY_MS)), [(7, 4)]);
        // Records of a newer epoch.
        let mut open = copy();
        let next = batch(6, 2, false, false);
        assert_eq!(open.take(&next, 5, (NOW, DAY_MS)), [(7, 4)]);
        assert_eq!(open.untold(), [(7, 6)]);
        // A gap, before and after the time for which markers stay.
        for (later, found) in [(DAY_MS - 1, &[][..]), (DAY_MS, &[(7, 4)])] {
            let mut open = copy();
            let mut both = batch(6, 1, false, false);
            both.extend(batch(8, 1, false, false));
            let times = (NOW + later, DAY_MS);
            assert_eq!(open.take(&both, 5, times), found);
        }
        // In one answer, of a topic whose markers stay for no time.
        let mut open = copy();
        let mut both = batch(5, 1, false, false);
        both.extend(batch(8, 1, false, false));
        assert_eq!(open.take(&both, 5, (NOW + DAY_MS, 0)), []);
        // A further record of it, which the source still has, a day later.
        let mut open = copy();
        let more = batch(5, 1, false, false);
        assert_eq!(open.take(&more, 5, (NOW + DAY_MS, DAY_MS)), []);
        let gap = batch(8, 1, false, false);
        assert_eq!(open.take(&gap, 6, (NOW + DAY_MS + 1, DAY_MS)), []);
        let mut open = copy();
        assert_eq!(open.at_gap(), [(7, 4)]);
        assert_eq!(open.at_gap(), []);
    }

    #[test]
    fn a_timestamp_that_cannot_be_true_is_not_believed() {
        for (timestamp, copied) in [(0, 100), (150, 150), (i64::MAX, 200)] {
            assert_eq!(copied_at(timestamp, 100, 200), copied);
        }
        // Somebody changed the times of the files: the earlier one makes nobody overlook a loss.
        assert_eq!(copied_at(150, 300, 200), 200);
    }
}
