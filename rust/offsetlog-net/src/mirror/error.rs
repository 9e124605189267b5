//! The errors that end a mirror.

use offsetlog::Error;
use std::fmt;
use std::path::PathBuf;

/// Why a mirror ended. Trouble with the source's brokers does not end it: the report has it.
#[derive(Debug)]
#[non_exhaustive]
pub enum MirrorError {
    /// The directory mirrors another cluster.
    WrongCluster {
        /// The directory.
        path: PathBuf,
        /// The cluster that it mirrors.
        expected: Option<String>,
        /// The cluster that answered.
        found: Option<String>,
    },
    /// The disk, or the directory.
    Disk(Error),
    /// The system starts no more threads.
    Thread(std::io::Error),
}

impl fmt::Display for MirrorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |id: &Option<String>| id.clone().unwrap_or_else(|| "without an id".to_owned());
        match self {
            Self::WrongCluster {
                path,
                expected,
                found,
            } => write!(
                f,
                "{}: a mirror of cluster {}, and the brokers are of cluster {}: mirror each cluster into a directory of its own",
                path.display(),
                name(expected),
                name(found)
            ),
            Self::Disk(error) => error.fmt(f),
            Self::Thread(error) => write!(f, "the system starts no more threads: {error}"),
        }
    }
}

impl std::error::Error for MirrorError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Disk(error) => Some(error),
            Self::Thread(error) => Some(error),
            Self::WrongCluster { .. } => None,
        }
    }
}

impl From<Error> for MirrorError {
    fn from(error: Error) -> Self {
        Self::Disk(error)
    }
}
