//! Bounds on what bytes from a file can make the engine do.

use crate::error::{Error, ErrorKind, Result};
use offsetlog_format::{Codec, RecordView};
use std::fmt;

/// Limits of one open log. Exceeding one is an error that names it.
///
/// They apply to appending too: an append that a reader with the same limits could not read back is refused (`Unreadable`). So records
/// appended with the default limits can be read with them. Of batches that are appended unchanged
/// ([`append_as_follower`](crate::LogWriter::append_as_follower), [`append_log`](crate::LogWriter::append_log)) only the size on disk is
/// known without unpacking them, and only that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest batch on disk in bytes, header included.
    pub max_batch_bytes: u64,
    /// Largest batch after decompression in bytes.
    pub max_decompressed_bytes: u64,
    /// Most headers of one record that is read. A header takes two bytes in a batch and a hundred as an object.
    pub max_headers: usize,
    /// Most segments of one partition.
    pub max_segments: usize,
    /// Largest checkpoint, snapshot or metadata file in bytes.
    pub max_state_file_bytes: u64,
    /// Files held open at the same time by one log.
    pub max_open_files: usize,
}

/// Which limit was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitName {
    /// [`Limits::max_batch_bytes`].
    MaxBatchBytes,
    /// [`Limits::max_decompressed_bytes`].
    MaxDecompressedBytes,
    /// [`Limits::max_headers`].
    MaxHeaders,
    /// [`Limits::max_segments`].
    MaxSegments,
    /// [`Limits::max_state_file_bytes`].
    MaxStateFileBytes,
    /// Memory for the committed offsets of all groups.
    MaxBytes,
    /// Bytes of one Arrow record batch.
    ArrowBatchBytes,
}

impl LimitName {
    /// Returns the name of the option that sets the limit.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MaxBatchBytes => "max_batch_bytes",
            Self::MaxDecompressedBytes => "max_decompressed_bytes",
            Self::MaxHeaders => "max_headers",
            Self::MaxSegments => "max_segments",
            Self::MaxStateFileBytes => "max_state_file_bytes",
            Self::MaxBytes => "max_bytes",
            Self::ArrowBatchBytes => "arrow_batch_bytes",
        }
    }
}

impl fmt::Display for LimitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_batch_bytes: 64 << 20,
            max_decompressed_bytes: 256 << 20,
            max_headers: 10_000,
            max_segments: 1_000_000,
            max_state_file_bytes: 16 << 20,
            max_open_files: 256,
        }
    }
}

impl Limits {
    /// A record that is handed out has not more headers than allowed.
    #[inline]
    pub(crate) fn check_headers(&self, record: &RecordView<'_>) -> Result<()> {
        let seen = record.headers.len();
        if seen <= self.max_headers {
            Ok(())
        } else {
            Err(reached(LimitName::MaxHeaders, self.max_headers, seen))
        }
    }

    /// Checks that a reader with these limits accepts a record with this many headers.
    pub(crate) fn allow_headers(&self, count: usize) -> Result<()> {
        allow(LimitName::MaxHeaders, self.max_headers as u64, count as u64)
    }

    /// Checks that a reader with these limits accepts a batch of this many bytes on disk.
    pub(crate) fn allow_batch(&self, bytes: usize) -> Result<()> {
        allow(LimitName::MaxBatchBytes, self.max_batch_bytes, bytes as u64)
    }

    /// Checks that a reader with these limits unpacks this many bytes of records; uncompressed records need no unpacking.
    pub(crate) fn allow_unpacked(&self, codec: Codec, bytes: usize) -> Result<()> {
        if codec == Codec::None {
            return Ok(());
        }
        let limit = self.max_decompressed_bytes;
        allow(LimitName::MaxDecompressedBytes, limit, bytes as u64)
    }

    /// A partition has not more segments than allowed.
    pub(crate) fn check_segments(&self, seen: usize) -> Result<()> {
        if seen <= self.max_segments {
            Ok(())
        } else {
            Err(reached(LimitName::MaxSegments, self.max_segments, seen))
        }
    }
}

/// Refuses an append that could not be read back.
fn allow(name: LimitName, limit: u64, seen: u64) -> Result<()> {
    if seen <= limit {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Unreadable { name, limit, seen }))
}

#[cold]
fn reached(name: LimitName, limit: usize, seen: usize) -> Error {
    Error::new(ErrorKind::Limit {
        name,
        limit: limit as u64,
        seen: seen as u64,
    })
}
