//! The engine's one error type: what is wrong, what was found and expected, and where.
//!
//! An error starts as a [`FormatError`] or an [`io::Error`]; callers up the stack add its path, position and offset. A text says what is
//! wrong, then what was found and expected, then where, and last, if known, what to do.

mod kind;
mod text;

use crate::append_info::AppendInfo;
use crate::disk::{AboveLimit, IoCall};
use crate::limits::LimitName;
use offsetlog_format::FormatError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

pub use kind::ErrorKind;

/// The result of the engine's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the engine, one pointer wide.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    path: Option<PathBuf>,
    position: Option<u64>,
    offset: Option<i64>,
    advice: Option<&'static str>,
    appended: Option<AppendInfo>,
}

impl Error {
    /// Returns an error without a place.
    pub fn new(kind: impl Into<ErrorKind>) -> Self {
        Self(Box::new(Inner {
            kind: kind.into(),
            path: None,
            position: None,
            offset: None,
            advice: None,
            appended: None,
        }))
    }

    /// An error of the operating system's: which call failed, on which path.
    #[must_use]
    pub fn io(call: IoCall, path: &Path, source: io::Error) -> Self {
        Self::new(ErrorKind::Io { source, call }).at_path(path)
    }

    /// Returns the error for a file that could not be read, or is above
    /// [`Limits::max_state_file_bytes`](crate::Limits::max_state_file_bytes).
    pub(crate) fn state_file(path: &Path, source: io::Error) -> Self {
        let above = source.get_ref().and_then(|above| above.downcast_ref());
        let Some(&AboveLimit { size, limit }) = above else {
            return Self::io(IoCall::Read, path, source);
        };
        Self::new(ErrorKind::Limit {
            name: LimitName::MaxStateFileBytes,
            limit,
            seen: size,
        })
        .at_path(path)
    }

    /// Returns the error for memory that cannot be allocated. Callers reserve memory before they use it, because an ordinary allocation
    /// that fails ends the process.
    pub(crate) fn no_memory() -> Self {
        Self::new(ErrorKind::Io {
            source: io::ErrorKind::OutOfMemory.into(),
            call: IoCall::HoldBatch,
        })
    }

    /// Returns the error of a call that failed while a file was replaced.
    #[must_use]
    pub fn failed_call(path: &Path, (call, source): (IoCall, io::Error)) -> Self {
        Self::io(call, path, source)
    }

    /// Whether a sync failed: then it is unknown what the disk holds.
    pub(crate) fn is_failed_sync(&self) -> bool {
        let ErrorKind::Io { call, source } = &self.0.kind else {
            return false;
        };
        // If the directory could not be opened, no sync was tried.
        *call == IoCall::Sync || (*call == IoCall::SyncDirectory && !is_out_of_descriptors(source))
    }

    /// Whether there was no room for a write. Calls that only ask or read need no room, and a failed sync is not counted: after it, it is
    /// unknown what the disk holds.
    #[must_use]
    pub fn is_out_of_room(&self) -> bool {
        let ErrorKind::Io { call, source } = &self.0.kind else {
            return false;
        };
        is_out_of_room(source) && call.needs_room()
    }

    /// Whether the error is about this process and not about what it read: it was interrupted, or it or the system has as many open files as
    /// allowed. It says nothing of the file that it names, and the next file fails likewise: nobody takes another replica for it.
    #[must_use]
    pub fn is_of_process(&self) -> bool {
        match &self.0.kind {
            ErrorKind::Interrupted => true,
            ErrorKind::Io { source, .. } => is_out_of_descriptors(source),
            _ => false,
        }
    }

    /// An error about what a folder is, or is not. `reason` says what was found and what would do.
    #[must_use]
    pub fn log_dir(path: &Path, reason: impl Into<String>) -> Self {
        Self::new(ErrorKind::LogDir {
            reason: reason.into(),
        })
        .at_path(path)
    }

    /// An error about what the cluster has. `reason` says what was found and what would do.
    #[must_use]
    pub fn cluster(path: &Path, reason: impl Into<String>) -> Self {
        Self::new(ErrorKind::Cluster {
            reason: reason.into(),
        })
        .at_path(path)
    }

    /// An error about an argument. `reason` says what was found and what is expected.
    #[must_use]
    pub fn argument(name: &'static str, reason: impl Into<String>) -> Self {
        Self::new(ErrorKind::Argument {
            name,
            reason: reason.into(),
        })
    }

    /// Adds the path, unless the error has one.
    #[must_use]
    pub fn at_path(mut self, path: &Path) -> Self {
        self.0.path.get_or_insert_with(|| path.to_path_buf());
        self
    }

    /// Adds the position of the batch or entry in the file, unless the error has one.
    #[must_use]
    pub fn at_position(mut self, position: u64) -> Self {
        self.0.position.get_or_insert(position);
        self
    }

    /// Adds the base offset of the batch, unless the error has one.
    pub(crate) fn at_offset(mut self, offset: i64) -> Self {
        self.0.offset.get_or_insert(offset);
        self
    }

    /// Adds what to do, unless the error says so already.
    pub(crate) fn advise(mut self, advice: &'static str) -> Self {
        self.0.advice.get_or_insert(advice);
        self
    }

    /// What to do, or what to know, beside what happened. The error's text has it.
    #[must_use]
    pub fn advice(&self) -> Option<&'static str> {
        self.0.advice
    }

    /// Returns the error of an append whose own bytes were read: what is wrong with them is not damage of the log.
    pub(crate) fn of_append(mut self) -> Self {
        self.0.kind = match self.0.kind {
            kind @ (ErrorKind::UnsupportedMagic(_)
            | ErrorKind::UnsupportedCodec(_)
            | ErrorKind::BatchRejected(_)) => kind,
            kind if kind.fault().is_some() || matches!(kind, ErrorKind::Decompression { .. }) => {
                ErrorKind::BatchRejected(Box::new(kind))
            }
            kind => kind,
        };
        self
    }

    /// Undoes [`of_append`](Self::of_append): the appended bytes come from a file, so what is wrong with them is damage of that file.
    pub(crate) fn of_copied(mut self, source: Option<&Path>) -> Self {
        if let ErrorKind::BatchRejected(kind) = self.0.kind {
            self.0.kind = *kind;
            if let Some(source) = source {
                self.0.path = Some(source.to_path_buf());
            }
        }
        self
    }

    /// Marks that the records were appended, as `info` says, and a later step failed, such as their flush.
    pub(crate) fn after_append(mut self, info: AppendInfo) -> Self {
        self.0.appended = Some(info);
        self
    }

    /// Changes what of the whole is appended, where this is the error behind the append of a part.
    pub(crate) fn map_appended(
        mut self,
        whole: impl FnOnce(AppendInfo) -> Option<AppendInfo>,
    ) -> Self {
        self.0.appended = self.0.appended.and_then(whole);
        self
    }

    /// Whether the records of the failed append are in the log all the same: they were written, and a later step, such as their flush,
    /// failed. They are read like other records and may survive a crash, which is not promised.
    #[must_use]
    pub fn is_appended(&self) -> bool {
        self.0.appended.is_some()
    }

    /// What the append did, where [`is_appended`](Self::is_appended).
    #[must_use]
    pub fn appended(&self) -> Option<AppendInfo> {
        self.0.appended
    }

    /// Whether an append was refused because of its records: the log may take fewer of them, or others.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(
            self.kind(),
            ErrorKind::RecordRejected { .. }
                | ErrorKind::BatchRejected(_)
                | ErrorKind::InvalidTimestamp { .. }
                | ErrorKind::RecordTooLarge { .. }
                | ErrorKind::RecordBatchTooLarge { .. }
                | ErrorKind::AppendTooWide { .. }
                | ErrorKind::Unreadable { .. }
        )
    }

    /// Returns what is wrong.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Returns the file or directory.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// Returns the position in the file of the batch or entry that is wrong.
    #[must_use]
    pub fn position(&self) -> Option<u64> {
        self.0.position
    }

    /// Returns the base offset of the batch that is wrong, if it is known.
    #[must_use]
    pub fn offset(&self) -> Option<i64> {
        self.0.offset
    }

    /// Returns what was found, in words.
    #[must_use]
    pub fn found(&self) -> Option<String> {
        self.found_and_expected().map(|(found, _)| found)
    }

    /// Returns what was expected, in words.
    #[must_use]
    pub fn expected(&self) -> Option<String> {
        self.found_and_expected().map(|(_, expected)| expected)
    }

    /// Whether bytes of a file are malformed, contradict each other, or have an unsupported magic, codec or version.
    #[must_use]
    pub fn is_corruption(&self) -> bool {
        match &self.0.kind {
            ErrorKind::Decompression { .. } | ErrorKind::SegmentTooLarge { .. } => true,
            ErrorKind::BatchRejected(_) => false,
            kind => kind.fault().is_some(),
        }
    }
}

impl Error {
    /// Whether a reader can get this error because its segments were removed or replaced: a file does not exist, or bytes are malformed
    /// or not where they belong.
    pub(crate) fn may_be_stale(&self) -> bool {
        self.is_missing_file() || self.is_corruption()
    }

    /// Whether the file does not exist.
    pub(crate) fn is_missing_file(&self) -> bool {
        matches!(&self.0.kind, ErrorKind::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// Whether the disk or the user's quota is full.
pub(crate) fn is_out_of_room(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    let errno = error
        .raw_os_error()
        .map(rustix::io::Errno::from_raw_os_error);
    matches!(
        errno,
        Some(rustix::io::Errno::NFILE | rustix::io::Errno::MFILE)
    )
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({self})", self.0.kind.code())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0.kind {
            ErrorKind::Io { source, .. } => Some(source),
            kind => kind.fault().map(|error| error as _),
        }
    }
}

impl From<FormatError> for Error {
    fn from(error: FormatError) -> Self {
        Self::new(error)
    }
}
