//! Text checkpoints: offsets of a log directory's partitions, and the lines that leader epochs share with them
//! (FORMAT.md «Text checkpoints»).

use crate::error::{Fault, FormatError, Part};
use crate::name::is_java_white_space;
use crate::text::{Line, Lines};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write as _;

/// Longest checkpoint that is read.
pub const CHECKPOINT_MAXIMUM_BYTES: usize = 16 << 20;
/// Most lines of entries that are read.
pub const CHECKPOINT_MAXIMUM_LINES: usize = 1_000_000;
/// The only version of all checkpoints.
pub const CHECKPOINT_VERSION: i32 = 0;

/// One of the four checkpoint files of a log directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OffsetCheckpointFile {
    /// Everything before these offsets was flushed.
    RecoveryPoint,
    /// High watermarks.
    HighWatermark,
    /// Log start offsets that are above the first segment's base offset.
    LogStartOffset,
    /// First offsets that were not compacted yet.
    CleanerOffset,
}

impl OffsetCheckpointFile {
    /// All four.
    pub const ALL: [Self; 4] = [
        Self::RecoveryPoint,
        Self::HighWatermark,
        Self::LogStartOffset,
        Self::CleanerOffset,
    ];

    /// The file's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RecoveryPoint => "recovery-point-offset-checkpoint",
            Self::HighWatermark => "replication-offset-checkpoint",
            Self::LogStartOffset => "log-start-offset-checkpoint",
            Self::CleanerOffset => "cleaner-offset-checkpoint",
        }
    }
}

/// A line of an offset checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PartitionOffset {
    /// The topic.
    pub topic: String,
    /// Number of the partition.
    pub partition: i32,
    /// The offset.
    pub offset: i64,
}

/// The offsets of a log directory's partitions, in the order of the file, repeats kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OffsetCheckpoint {
    /// The lines.
    pub entries: Vec<PartitionOffset>,
}

impl OffsetCheckpoint {
    /// Reads a checkpoint. No bytes and a version alone are no entries. Negative numbers are accepted.
    ///
    /// # Errors
    /// `Length` for more than [`CHECKPOINT_MAXIMUM_BYTES`]; `Version`; `Count` when there are more or fewer lines than promised
    /// or the promise is negative; `Line` for what is wrong with a line. `at` is the line's first byte.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        const PART: Part = Part::OffsetCheckpoint;
        let mut entries = Vec::new();
        for_each_entry(PART, bytes, |line| {
            let [topic, partition, offset] = fields(PART, line)?;
            entries.push(PartitionOffset {
                topic: topic.to_string(),
                partition: number(PART, line, partition)?,
                offset: number(PART, line, offset)?,
            });
            Ok(())
        })?;
        Ok(Self { entries })
    }

    /// Makes the bytes of the file.
    ///
    /// # Errors
    /// `Line` for a topic that is empty or has white space in it, which would not read back; `Length` for more lines or bytes
    /// than are read back.
    pub fn write(&self) -> Result<Vec<u8>, FormatError> {
        let mut body = String::new();
        for (slot, entry) in self.entries.iter().enumerate() {
            if entry.topic.is_empty() || entry.topic.contains(is_java_white_space) {
                return Err(FormatError::new(
                    Part::OffsetCheckpoint,
                    body.len(),
                    Fault::Line {
                        line: slot + 3,
                        rule: "a topic cannot be empty or have white space in it",
                    },
                ));
            }
            // Writing to a String cannot fail.
            let _ = writeln!(body, "{} {} {}", entry.topic, entry.partition, entry.offset);
        }
        write_checkpoint(Part::OffsetCheckpoint, self.entries.len(), &body)
    }

    /// The offset of a partition: its last line. Linear; for many look-ups see [`by_partition`](Self::by_partition).
    #[must_use]
    pub fn offset_of(&self, topic: &str, partition: i32) -> Option<i64> {
        self.entries
            .iter()
            .rev()
            .find(|entry| entry.partition == partition && entry.topic == topic)
            .map(|entry| entry.offset)
    }

    /// The offsets by topic and partition; of repeated lines the last.
    #[must_use]
    pub fn by_partition(&self) -> BTreeMap<(&str, i32), i64> {
        self.entries
            .iter()
            .map(|entry| ((entry.topic.as_str(), entry.partition), entry.offset))
            .collect()
    }
}

/// Calls `take` for each line of entries, after the head and its promise have been read. Nothing is allocated by the promise.
pub(crate) fn for_each_entry(
    part: Part,
    bytes: &[u8],
    mut take: impl FnMut(&Line<'_>) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    check_length(part, bytes.len(), CHECKPOINT_MAXIMUM_BYTES)?;
    let mut lines = Lines::utf8(part, bytes)?;
    let Some(version) = lines.next() else {
        return Ok(());
    };
    let found: i32 = number(part, &version, version.text)?;
    if found != CHECKPOINT_VERSION {
        return Err(FormatError::new(
            part,
            version.at,
            Fault::Version {
                found: i64::from(found),
                maximum: i64::from(CHECKPOINT_VERSION),
            },
        ));
    }
    let Some(count) = lines.next() else {
        return Ok(());
    };
    let expected: i32 = number(part, &count, count.text)?;
    let mut found = 0_usize;
    for line in lines {
        found += 1;
        if found > CHECKPOINT_MAXIMUM_LINES {
            return Err(line.error(part, "more than 1000000 lines"));
        }
        take(&line)?;
    }
    if usize::try_from(expected) == Ok(found) {
        Ok(())
    } else {
        Err(FormatError::new(
            part,
            count.at,
            Fault::Count {
                found: found as i64,
                expected: i64::from(expected),
            },
        ))
    }
}

/// Puts the head before the lines.
pub(crate) fn write_checkpoint(
    part: Part,
    count: usize,
    body: &str,
) -> Result<Vec<u8>, FormatError> {
    let mut out = String::with_capacity(16 + body.len());
    // Writing to a String cannot fail.
    let _ = write!(out, "{CHECKPOINT_VERSION}\n{count}\n");
    out += body;
    check_length(part, count, CHECKPOINT_MAXIMUM_LINES)?;
    check_length(part, out.len(), CHECKPOINT_MAXIMUM_BYTES)?;
    Ok(out.into_bytes())
}

fn check_length(part: Part, found: usize, maximum: usize) -> Result<(), FormatError> {
    if found <= maximum {
        return Ok(());
    }
    let fault = Fault::Length {
        found: found as i64,
        minimum: 0,
        maximum: maximum as i64,
    };
    Err(FormatError::new(part, 0, fault))
}

/// Splits a line at runs of white space into exactly `N` fields. Blanks at the end are dropped, at the front they are refused.
pub(crate) fn fields<'a, const N: usize>(
    part: Part,
    line: &Line<'a>,
) -> Result<[&'a str; N], FormatError> {
    let mut found = [""; N];
    let mut words = line
        .text
        .split(is_java_white_space)
        .filter(|word| !word.is_empty());
    let all = found
        .iter_mut()
        .all(|field| words.next().map(|word| *field = word).is_some());
    if line.text.starts_with(is_java_white_space) || !all || words.next().is_some() {
        return Err(line.error(part, "the line has not the right number of fields"));
    }
    Ok(found)
}

/// Reads a decimal number with an optional sign, as Java's `parseInt` and `parseLong` do with ASCII digits.
pub(crate) fn number<T: core::str::FromStr>(
    part: Part,
    line: &Line<'_>,
    field: &str,
) -> Result<T, FormatError> {
    field
        .parse()
        .map_err(|_| line.error(part, "not a number, or one too big for its field"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::format;
    use std::vec;

    fn parse(text: &str) -> Result<OffsetCheckpoint, FormatError> {
        OffsetCheckpoint::parse(text.as_bytes())
    }

    fn line_of(text: &str) -> usize {
        let error = parse(text).unwrap_err();
        match error.fault {
            Fault::Line { line, .. } => line,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn no_bytes_and_a_version_alone_are_no_entries() {
        for text in ["", "0", "0\n", "0\n0", "0\n0\n"] {
            assert_eq!(parse(text), Ok(OffsetCheckpoint::default()), "{text:?}");
        }
    }

    #[test]
    fn blanks_and_line_ends_are_read_as_java_does() {
        let expected = [("t", 0, 5), ("u.v", 1, -7)];
        for text in [
            "0\n2\nt 0 5\nu.v 1 -7\n",
            "0\n2\nt 0 5\nu.v 1 -7",
            "0\r\n2\r\nt 0 5\r\nu.v 1 -7\r\n",
            "0\n2\nt \t 0\x0b5  \t\nu.v 1 -7",
            "+0\n02\nt 00 +5\nu.v 1 -7",
        ] {
            let checkpoint = parse(text).unwrap();
            let found: Vec<_> = checkpoint
                .entries
                .iter()
                .map(|entry| (entry.topic.as_str(), entry.partition, entry.offset))
                .collect();
            assert_eq!(found, expected, "{text:?}");
        }
    }

    #[test]
    fn the_last_of_repeated_lines_counts() {
        let checkpoint = parse("0\n3\nt 0 5\nt 1 6\nt 0 7\n").unwrap();
        assert_eq!(checkpoint.entries.len(), 3);
        assert_eq!(checkpoint.offset_of("t", 0), Some(7));
        assert_eq!(checkpoint.by_partition().get(&("t", 0)), Some(&7));
        assert_eq!(checkpoint.offset_of("u", 0), None);
    }

    #[test]
    fn malformed_lines_are_told_by_number() {
        assert_eq!(line_of("x\n"), 1);
        assert_eq!(line_of("0 \n0\n"), 1);
        assert_eq!(line_of("\n"), 1);
        assert_eq!(line_of("0\n1.5\n"), 2);
        assert_eq!(line_of("0\n1\nt 0\n"), 3);
        assert_eq!(line_of("0\n1\nt 0 5 6\n"), 3);
        assert_eq!(line_of("0\n1\n t 0 5\n"), 3);
        assert_eq!(line_of("0\n1\n 0 5\n"), 3);
        assert_eq!(line_of("0\n2\nt 0 5\n\n"), 4);
        assert_eq!(line_of("0\n1\nt x 5\n"), 3);
        assert_eq!(line_of("0\n1\nt 2147483648 5\n"), 3);
        assert_eq!(line_of("0\n1\nt 0 9223372036854775808\n"), 3);
        assert_eq!(parse("0\n2\nt 0 5\nt 1\n").unwrap_err().at, 10);
        let error = OffsetCheckpoint::parse(b"0\n1\nt\xff 0 5\n").unwrap_err();
        assert_eq!(error.at, 5);
        assert!(matches!(error.fault, Fault::Line { line: 3, .. }));
    }

    /// Kafka allocates by the promise and dies of 2147483647.
    #[test]
    fn versions_and_counts_are_checked_without_trusting_them() {
        assert!(matches!(
            parse("1\n0\n").unwrap_err().fault,
            Fault::Version { found: 1, .. }
        ));
        for count in ["-1", "0", "2", "2147483647"] {
            let error = parse(&format!("0\n{count}\nt 0 5\n")).unwrap_err();
            assert_eq!(error.at, 2);
            assert!(
                matches!(error.fault, Fault::Count { found: 1, .. }),
                "{count}"
            );
        }
    }

    #[test]
    fn limits_hold() {
        let long = vec![b'0'; CHECKPOINT_MAXIMUM_BYTES + 1];
        let error = OffsetCheckpoint::parse(&long).unwrap_err();
        assert!(matches!(error.fault, Fault::Length { .. }));
        let mut many = b"0\n1000001\n".to_vec();
        many.extend(b"t 0 5\n".repeat(CHECKPOINT_MAXIMUM_LINES + 1));
        let error = OffsetCheckpoint::parse(&many).unwrap_err();
        assert!(matches!(
            error.fault,
            Fault::Line {
                line: 1_000_003,
                ..
            }
        ));
    }

    #[test]
    fn topics_that_would_not_read_back_are_not_written() {
        for topic in ["", "a b", "a\n"] {
            let entries = vec![PartitionOffset {
                topic: topic.to_string(),
                partition: 0,
                offset: 0,
            }];
            assert!(OffsetCheckpoint { entries }.write().is_err(), "{topic:?}");
        }
    }

    proptest! {
        #[test]
        fn written_checkpoints_read_back(entries in prop::collection::vec(("[^ \t\n\x0b\x0c\r]{1,9}", any::<i32>(), any::<i64>()), 0..20)) {
            let entries = entries.into_iter().map(|(topic, partition, offset)| PartitionOffset { topic, partition, offset }).collect();
            let checkpoint = OffsetCheckpoint { entries };
            prop_assert_eq!(OffsetCheckpoint::parse(&checkpoint.write().unwrap()), Ok(checkpoint));
        }

        #[test]
        fn any_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..60), text in "0\n[0-9]{1,2}\n([a-z0-9 \r\n-]{0,30})") {
            let _ = OffsetCheckpoint::parse(&bytes);
            let _ = parse(&text);
        }
    }
}
