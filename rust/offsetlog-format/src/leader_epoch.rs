//! Leader epochs of a partition and their checkpoint (FORMAT.md «Leader epoch checkpoint»).

use crate::checkpoint::{fields, for_each_entry, number, write_checkpoint};
use crate::error::{FormatError, Part};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;

/// A leader epoch and the first offset written in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EpochEntry {
    /// The epoch.
    pub epoch: i32,
    /// First offset of the epoch, inclusive.
    pub start_offset: i64,
}

/// The leader epochs of a partition: epochs and start offsets both ascend.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeaderEpochs {
    entries: Vec<EpochEntry>,
}

impl LeaderEpochs {
    /// Reads a `leader-epoch-checkpoint` as a broker does: each line is [assigned](Self::assign), so lines that do not ascend
    /// drop earlier ones.
    ///
    /// # Errors
    /// `Length`, `Version`, `Count` as for offset checkpoints; `Line` for a malformed line or a negative number.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut epochs = Self::default();
        for_each_line(bytes, |_, entry| {
            epochs.assign(entry);
            Ok(())
        })?;
        Ok(epochs)
    }

    /// Reads a `leader-epoch-checkpoint` and refuses lines that do not ascend.
    ///
    /// # Errors
    /// Those of [`parse`](Self::parse); `Line` for an epoch or a start offset that is not above the one before.
    pub fn parse_strict(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut epochs = Self::default();
        for_each_line(bytes, |error, entry| {
            if let Some(latest) = epochs.latest()
                && (entry.epoch <= latest.epoch || entry.start_offset <= latest.start_offset)
            {
                return Err(error("epoch or start offset is not above the line before"));
            }
            epochs.assign(entry);
            Ok(())
        })?;
        Ok(epochs)
    }

    /// Makes the bytes of the file.
    ///
    /// # Errors
    /// `Length` for more lines or bytes than are read back.
    pub fn write(&self) -> Result<Vec<u8>, FormatError> {
        let mut body = String::new();
        for entry in &self.entries {
            // Writing to a String cannot fail.
            let _ = writeln!(body, "{} {}", entry.epoch, entry.start_offset);
        }
        write_checkpoint(Part::LeaderEpochCheckpoint, self.entries.len(), &body)
    }

    /// The epochs, ascending.
    #[must_use]
    pub fn entries(&self) -> &[EpochEntry] {
        &self.entries
    }

    /// The newest epoch.
    #[must_use]
    pub fn latest(&self) -> Option<EpochEntry> {
        self.entries.last().copied()
    }

    /// The epoch in which `offset` was or would be written; `None` before the first one.
    #[must_use]
    pub fn epoch_of(&self, offset: i64) -> Option<i32> {
        let later = self
            .entries
            .partition_point(|entry| entry.start_offset <= offset);
        self.entries
            .get(later.checked_sub(1)?)
            .map(|entry| entry.epoch)
    }

    /// Records that `entry.epoch` began at `entry.start_offset`; returns whether that changed anything.
    ///
    /// The newest epoch again, at or above its start, changes nothing. Otherwise every entry from the end whose epoch or start
    /// is not below the new one's is removed first. Negative values are refused and change nothing.
    pub fn assign(&mut self, entry: EpochEntry) -> bool {
        let known = self.latest().is_some_and(|latest| {
            latest.epoch == entry.epoch && latest.start_offset <= entry.start_offset
        });
        if known || entry.epoch < 0 || entry.start_offset < 0 {
            return false;
        }
        let kept = self
            .entries
            .iter()
            .rposition(|old| old.epoch < entry.epoch && old.start_offset < entry.start_offset);
        self.entries.truncate(kept.map_or(0, |slot| slot + 1));
        self.entries.push(entry);
        true
    }

    /// Forgets what lies below `offset`, the new log start offset: the epoch that holds it now starts there.
    pub fn truncate_from_start(&mut self, offset: i64) {
        let later = self
            .entries
            .partition_point(|entry| entry.start_offset <= offset);
        if let Some(holder) = later.checked_sub(1) {
            self.entries.drain(..holder);
            if let Some(first) = self.entries.first_mut() {
                first.start_offset = offset;
            }
        }
    }

    /// Forgets the epochs that start at or above `offset`, the new log end offset.
    pub fn truncate_from_end(&mut self, offset: i64) {
        let kept = self
            .entries
            .partition_point(|entry| entry.start_offset < offset);
        self.entries.truncate(kept);
    }
}

fn for_each_line(
    bytes: &[u8],
    mut take: impl FnMut(&dyn Fn(&'static str) -> FormatError, EpochEntry) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    const PART: Part = Part::LeaderEpochCheckpoint;
    for_each_entry(PART, bytes, |line| {
        let [epoch, start_offset] = fields(PART, line)?;
        let entry = EpochEntry {
            epoch: number(PART, line, epoch)?,
            start_offset: number(PART, line, start_offset)?,
        };
        let error = |rule| line.error(PART, rule);
        if entry.epoch < 0 || entry.start_offset < 0 {
            return Err(error("epoch and start offset cannot be negative"));
        }
        take(&error, entry)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Fault;
    use proptest::prelude::*;
    use std::format;

    fn epochs(pairs: &[(i32, i64)]) -> LeaderEpochs {
        let mut epochs = LeaderEpochs::default();
        for &(epoch, start_offset) in pairs {
            epochs.assign(EpochEntry {
                epoch,
                start_offset,
            });
        }
        epochs
    }

    fn pairs(epochs: &LeaderEpochs) -> Vec<(i32, i64)> {
        let entries = epochs.entries().iter();
        entries
            .map(|entry| (entry.epoch, entry.start_offset))
            .collect()
    }

    const THREE: [(i32, i64); 3] = [(1, 0), (3, 3), (7, 6)];

    /// The sequence was run through Kafka 4.3.0's cache.
    #[test]
    fn assign_drops_what_kafka_drops() {
        let assigned = |more: &[(i32, i64)]| pairs(&epochs(&[&THREE, more].concat()));
        assert_eq!(assigned(&[(7, 9)]), THREE);
        assert_eq!(
            assigned(&[(8, 8), (9, 8)]),
            [(1, 0), (3, 3), (7, 6), (9, 8)]
        );
        assert_eq!(
            assigned(&[(8, 8), (9, 8), (9, 7)]),
            [(1, 0), (3, 3), (7, 6), (9, 7)]
        );
        assert_eq!(assigned(&[(5, 20)]), [(1, 0), (3, 3), (5, 20)]);
        assert_eq!(assigned(&[(4, 2)]), [(1, 0), (4, 2)]);
        assert_eq!(assigned(&[(-1, 2), (8, -1)]), THREE);
    }

    #[test]
    fn truncation_keeps_the_epoch_of_the_log_start_offset() {
        let from_start = |offset| {
            let mut epochs = epochs(&THREE);
            epochs.truncate_from_start(offset);
            pairs(&epochs)
        };
        assert_eq!(from_start(4), [(3, 4), (7, 6)]);
        assert_eq!(from_start(6), [(7, 6)]);
        assert_eq!(from_start(100), [(7, 100)]);
        assert_eq!(from_start(-1), THREE);
        let from_end = |offset| {
            let mut epochs = epochs(&THREE);
            epochs.truncate_from_end(offset);
            pairs(&epochs)
        };
        assert_eq!(from_end(6), [(1, 0), (3, 3)]);
        assert_eq!(from_end(7), THREE);
        assert_eq!(from_end(0), []);
    }

    #[test]
    fn an_epoch_covers_up_to_the_next_start() {
        let epochs = epochs(&[(1, 2), (3, 5)]);
        let found = [1, 2, 4, 5, 900].map(|offset| epochs.epoch_of(offset));
        assert_eq!(found, [None, Some(1), Some(1), Some(3), Some(3)]);
    }

    #[test]
    fn lines_that_go_back_drop_earlier_ones_or_are_refused() {
        let text = b"0\n3\n1 50\n3 100\n2 200\n";
        assert_eq!(
            pairs(&LeaderEpochs::parse(text).unwrap()),
            [(1, 50), (2, 200)]
        );
        let error = LeaderEpochs::parse_strict(text).unwrap_err();
        assert!(matches!(error.fault, Fault::Line { line: 5, .. }));
        assert_eq!(error.at, 15);
        for text in [
            "0\n1\n-1 5\n",
            "0\n1\n1 -5\n",
            "0\n1\n1 2 3\n",
            "0\n1\n1 x\n",
        ] {
            let error = LeaderEpochs::parse(text.as_bytes()).unwrap_err();
            assert_eq!(error.part, Part::LeaderEpochCheckpoint);
            assert!(
                matches!(error.fault, Fault::Line { line: 3, .. }),
                "{text:?}"
            );
        }
    }

    #[test]
    fn the_text_is_kafkas() {
        let bytes = epochs(&[(0, 0), (2, 74)]).write().unwrap();
        assert_eq!(bytes, b"0\n2\n0 0\n2 74\n");
        assert_eq!(LeaderEpochs::default().write().unwrap(), b"0\n0\n");
    }

    proptest! {
        #[test]
        fn any_assignments_leave_both_ascending_and_read_back(pairs in prop::collection::vec((-1..9_i32, -1..20_i64), 0..20)) {
            let epochs = epochs(&pairs);
            prop_assert!(epochs.entries().is_sorted_by(|a, b| a.epoch < b.epoch && a.start_offset < b.start_offset));
            let bytes = epochs.write().unwrap();
            prop_assert_eq!(LeaderEpochs::parse_strict(&bytes), Ok(epochs.clone()));
            prop_assert_eq!(LeaderEpochs::parse(&bytes), Ok(epochs));
        }

        #[test]
        fn any_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..60), lines in "([0-9 -]{0,8}\n){0,5}") {
            let _ = LeaderEpochs::parse(&bytes);
            let _ = LeaderEpochs::parse_strict(format!("0\n{}\n{lines}", lines.lines().count()).as_bytes());
        }
    }
}
