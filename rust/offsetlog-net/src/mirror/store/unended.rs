//! Transactions of a copy whose marker the source may have removed before it was copied.
//!
//! Kafka's cleaner removes a marker when `delete.retention.ms` has passed since it removed the last record of the transaction. A copy that
//! has such a record, and comes back later than that, never gets the marker: the producer's next one would commit what was aborted, or the
//! other way round. A follower that was away for that long has the same bytes and does the same, so the copy stays as it is, and the mirror
//! reports it.
//!
//! Source: Kafka's `CleanedTransactionMetadata`, `Cleaner.checkBatchRetention`.

use offsetlog::format::batch::BatchHeader;
use offsetlog::{LogWriter, Result, TopicPartition};
use std::collections::BTreeMap;

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
    /// The source had records of it at this time.
    since: i64,
    is_told: bool,
}

/// The open transactions of one copy, by producer id.
#[derive(Debug, Default)]
pub(super) struct OpenOfCopy(BTreeMap<i64, Open>);

/// The open transactions of the copies that were appended to.
#[derive(Debug, Default)]
pub(super) struct OpenOfCopies(BTreeMap<TopicPartition, OpenOfCopy>);

impl OpenOfCopies {
    /// Takes out those of a copy that is about to be changed, which may be one of an earlier run.
    ///
    /// # Errors
    /// Those of reading its producers.
    pub(super) fn take_out(&mut self, at: &TopicPartition, log: &LogWriter) -> Result<OpenOfCopy> {
        if let Some(known) = self.0.remove(at) {
            return Ok(known);
        }
        let states = log.open_transactions()?.into_iter();
        // An earlier run had fetched its records after they were written.
        let open = states.filter_map(|state| {
            let open = Open {
                epoch: state.producer_epoch,
                first: state.transaction_first_offset?,
                since: state.last_timestamp,
                is_told: false,
            };
            Some((state.producer_id, open))
        });
        Ok(OpenOfCopy(open.collect()))
    }

    /// Puts them back.
    pub(super) fn keep(&mut self, at: &TopicPartition, open: OpenOfCopy) {
        self.0.insert(at.clone(), open);
    }

    /// The copy was changed other than by an append.
    pub(super) fn forget(&mut self, at: &TopicPartition) {
        self.0.remove(at);
    }

    /// A topic was deleted.
    pub(super) fn forget_topic(&mut self, topic: &str) {
        self.0.retain(|at, _| at.topic != topic);
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
                let is_late = |open: &Open| now.saturating_sub(open.since) >= delete_retention_ms;
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
            // A producer gets a new epoch when its transaction has ended.
            if header.producer_epoch > open.epoch {
                tell(producer, open, found);
                *open = new;
            }
        }
    }
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
        let mut open = copy();
        assert_eq!(open.at_gap(), [(7, 4)]);
        assert_eq!(open.at_gap(), []);
    }
}
