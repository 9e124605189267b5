//! The operating system call that failed, as errors name it.

use std::fmt;

/// A call of the operating system, as errors name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IoCall {
    /// Makes a path absolute.
    Resolve,
    /// Asks for size, times and kind of a file.
    Stat,
    /// Lists a directory.
    List,
    /// Locks a file.
    Lock,
    /// Opens a file.
    Open,
    /// Reads from a file.
    Read,
    /// Writes to a file.
    Write,
    /// Makes a file or a directory.
    Create,
    /// Renames a file.
    Rename,
    /// Removes a file or a directory.
    Remove,
    /// Cuts bytes off a file.
    Truncate,
    /// Gives back what a file reserved and did not use.
    Trim,
    /// Reserves the bytes of a file.
    Preallocate,
    /// Makes the bytes of a file durable. After one that failed it is not known what the disk holds.
    Sync,
    /// Makes the names in a directory durable, which has to be opened for it.
    SyncDirectory,
    /// Takes memory for what a file holds.
    HoldBatch,
}

impl IoCall {
    /// Whether the call may need disk space. Calls that only query or read do not; nor does a sync: after a failed one the contents of the
    /// disk are unknown.
    pub(crate) const fn needs_room(self) -> bool {
        matches!(
            self,
            Self::Write
                | Self::Create
                | Self::Open
                | Self::Rename
                | Self::Truncate
                | Self::Trim
                | Self::Preallocate
        )
    }
}

/// As in «cannot read».
impl fmt::Display for IoCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resolve => "resolve",
            Self::Stat => "look at",
            Self::List => "list",
            Self::Lock => "lock",
            Self::Open => "open",
            Self::Read => "read",
            Self::Write => "write",
            Self::Create => "make",
            Self::Rename => "rename",
            Self::Remove => "remove",
            Self::Truncate => "cut",
            Self::Trim => "trim",
            Self::Preallocate => "preallocate",
            Self::Sync => "sync",
            Self::SyncDirectory => "sync the names in",
            Self::HoldBatch => "hold a batch",
        })
    }
}
