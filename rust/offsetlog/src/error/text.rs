//! The texts of errors: what is wrong, what was found and expected, where, and what to do.

use super::{Error, ErrorKind};
use offsetlog_format::{Fault, counted};
use std::fmt;
use std::path::{Path, PathBuf};

impl Error {
    pub(super) fn found_and_expected(&self) -> Option<(String, String)> {
        match &self.0.kind {
            ErrorKind::SegmentTooLarge { size } => {
                return Some((
                    counted(*size, "byte").to_string(),
                    format!("at most {} bytes", i32::MAX),
                ));
            }
            ErrorKind::OutOfOrderSequence {
                found, expected, ..
            } => {
                return Some((format!("sequence {found}"), format!("sequence {expected}")));
            }
            ErrorKind::ProducerFenced { found, minimum, .. } => {
                return Some((
                    format!("producer epoch {found}"),
                    format!("at least {minimum}"),
                ));
            }
            ErrorKind::TransactionCoordinatorFenced { found, minimum, .. } => {
                return Some((
                    format!("coordinator epoch {found}"),
                    format!("at least {minimum}"),
                ));
            }
            ErrorKind::InvalidTxnState { .. } => {
                return Some((
                    "a batch that is not transactional".into(),
                    "a transactional batch or a marker".into(),
                ));
            }
            _ => {}
        }
        Some(match self.0.kind.fault()?.fault {
            Fault::Truncated { needed, available } => {
                let bytes = |count| counted(count, "byte").to_string();
                (bytes(available), bytes(needed))
            }
            Fault::UnknownMagic { found } => (found.to_string(), "0, 1 or 2".into()),
            Fault::Length {
                found,
                minimum,
                maximum,
            }
            | Fault::OffsetOrder {
                found,
                minimum,
                maximum,
            } => (found.to_string(), format!("{minimum} to {maximum}")),
            Fault::Checksum {
                stored, computed, ..
            } => (format!("{stored:#010x}"), format!("{computed:#010x}")),
            Fault::Count { found, expected } => (found.to_string(), expected.to_string()),
            Fault::Codec { found } => (found.to_string(), "0 to 4".into()),
            Fault::Version { found, maximum } => (found.to_string(), format!("up to {maximum}")),
            _ => return None,
        })
    }

    fn write_place(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lead = "; ";
        if let Some(path) = &self.0.path {
            write!(f, "{lead}{}", short_path(path))?;
            lead = " ";
        }
        if let Some(position) = self.0.position {
            write!(f, "{lead}position {position}")?;
            lead = ", ";
        }
        if let Some(offset) = self.0.offset {
            write!(
                f,
                "{}base offset {offset}",
                if lead == " " { ", " } else { lead }
            )?;
        }
        Ok(())
    }
}

/// Returns the last two names of a path, escaped: which partition and which file. The attribute has the whole path.
fn short_path(path: &Path) -> String {
    let names: Vec<_> = path.components().rev().take(2).collect();
    let short: PathBuf = names.into_iter().rev().collect();
    short
        .to_string_lossy()
        .chars()
        .flat_map(|c| {
            let safe =
                !c.is_control() && !matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
            if safe {
                vec![c]
            } else {
                c.escape_default().collect()
            }
        })
        .collect()
}

impl Error {
    /// Returns what is wrong without the place, for callers that report the place themselves.
    pub(crate) fn words(&self) -> String {
        Words(self).to_string()
    }

    fn write_words(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.0.kind {
            ErrorKind::BatchRejected(kind) => kind,
            kind => kind,
        };
        match kind {
            ErrorKind::Io { source, call } => write!(f, "cannot {call}: {source}")?,
            ErrorKind::Decompression { codec, reason } => {
                write!(f, "{codec} decompression failed: {reason}")?;
            }
            ErrorKind::LogDir { reason }
            | ErrorKind::Cluster { reason }
            | ErrorKind::RecordRejected { reason } => {
                f.write_str(reason)?;
            }
            ErrorKind::SegmentTooLarge { size } => write!(
                f,
                "segment of {size} bytes found, at most {} bytes expected",
                i32::MAX
            )?,
            ErrorKind::OffsetOutOfRange {
                requested,
                log_start_offset,
                log_end_offset,
            } => {
                write!(f, "offset {requested} is out of range: ")?;
                if log_start_offset >= log_end_offset {
                    write!(f, "the log is empty at {log_end_offset}")?;
                } else {
                    write!(
                        f,
                        "readable offsets are {log_start_offset} to {}",
                        log_end_offset - 1
                    )?;
                }
            }
            ErrorKind::Limit { name, limit, seen } => write!(
                f,
                "limit {name} reached: {seen} met, {limit} allowed; open with a higher {name} to read on"
            )?,
            ErrorKind::Unreadable { name, limit, seen } => write!(
                f,
                "not appended: {seen} is above the limit {name}, {limit}, so a reader with that limit could not read it; open this log, \
                 and then its readers, with a higher {name}"
            )?,
            ErrorKind::Argument { name, reason } => write!(f, "{name}: {reason}")?,
            ErrorKind::Interrupted => f.write_str("interrupted")?,
            kind => match kind.fault() {
                Some(error) => write!(f, "{error}")?,
                None => write_append_fault(kind, f)?,
            },
        }
        Ok(())
    }
}

struct Words<'e>(&'e Error);

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write_words(f)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_words(f)?;
        self.write_place(f)?;
        match self.0.advice {
            Some(advice) => write!(f, "; {advice}"),
            None => Ok(()),
        }
    }
}

/// The texts of errors that only writing can cause.
fn write_append_fault(kind: &ErrorKind, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match kind {
        ErrorKind::OutOfOrderSequence {
            producer_id,
            producer_epoch,
            found,
            expected,
        } => write!(
            f,
            "out of order sequence of producer {producer_id}, epoch {producer_epoch}: {found} found, {expected} expected"
        )?,
        ErrorKind::ProducerFenced {
            producer_id,
            found,
            minimum,
        } => write!(
            f,
            "producer {producer_id} is fenced: epoch {found} found, at least {minimum} expected"
        )?,
        ErrorKind::TransactionCoordinatorFenced {
            producer_id,
            found,
            minimum,
        } => write!(
            f,
            "marker for producer {producer_id} comes from a replaced coordinator: coordinator epoch {found} found, at least {minimum} expected"
        )?,
        ErrorKind::InvalidTxnState {
            producer_id,
            first_offset,
        } => write!(
            f,
            "batch is not transactional, but a transaction of producer {producer_id} is open since offset {first_offset}"
        )?,
        ErrorKind::InvalidTimestamp {
            slot,
            timestamp,
            now,
            before,
            after,
        } => {
            if *slot >= 0 {
                write!(f, "record {slot}: ")?;
            }
            write!(
                f,
                "timestamp {timestamp} found, at most {before} ms before and {after} ms after {now} expected"
            )?;
        }
        ErrorKind::RecordTooLarge { size, maximum } => write!(
            f,
            "record batch of {} found, at most {} expected (max.message.bytes)",
            counted(*size, "byte"),
            counted(*maximum, "byte")
        )?,
        ErrorKind::RecordBatchTooLarge { size, maximum } => write!(
            f,
            "append of {} found, at most {} expected (segment.bytes)",
            counted(*size, "byte"),
            counted(*maximum, "byte")
        )?,
        ErrorKind::OffsetsOutOfOrder => {
            f.write_str("the offsets of the batches do not ascend")?;
        }
        ErrorKind::UnexpectedAppendOffset {
            found,
            log_end_offset,
        } => write!(
            f,
            "first offset {found} found, {log_end_offset} or more expected: the log ends there"
        )?,
        ErrorKind::AppendTooWide {
            base_offset,
            last_offset,
        } => write!(
            f,
            "last offset {last_offset} found, at most {} expected in the segment of base offset {base_offset}",
            base_offset.saturating_add(i64::from(i32::MAX))
        )?,
        ErrorKind::Locked { pid: Some(pid) } => {
            write!(f, "process {pid} writes this log")?;
        }
        ErrorKind::Locked { pid: None } => {
            f.write_str("another process, or another opening in this one, writes this log")?;
        }
        ErrorKind::Closed => f.write_str("the log is closed")?,
        ErrorKind::Poisoned { first } => write!(
            f,
            "an earlier failure ended the appending ({first}); open the log again, which recovers it"
        )?,
        ErrorKind::Compression { codec, reason } => {
            write!(f, "{codec} compression failed: {reason}")?;
        }
        _ => {}
    }
    Ok(())
}
