//! Chooses among the directories of one partition, of several log dirs or brokers, the one that has most of it.

use offsetlog::{Error, ErrorKind, Log, OpenOptions, Result};
use std::path::{Path, PathBuf};

/// A directory of a partition, and how much of the partition it has.
#[derive(Debug)]
pub struct Replica {
    /// The directory.
    pub path: PathBuf,
    /// Its log.
    pub log: Log,
    /// The greatest leader epoch of the log; -1 if it has none, or damage hides it.
    pub leader_epoch: i32,
    /// The log end offset; -1 if damage hides it.
    pub end: i64,
}

/// Of several directories of a partition the one that has most.
#[derive(Debug)]
pub struct ChosenReplica {
    /// That one.
    pub best: Replica,
    /// The others, with what they have less.
    pub others: Vec<(PathBuf, String)>,
}

/// Chooses among the directories of one partition: the greatest leader epoch decides, then the log end offset, then the order given.
/// Returns also the errors of those that cannot be opened; `None` if none can. Does not check the records.
///
/// # Errors
/// `Interrupted`.
pub fn choose_replica<P: AsRef<Path>>(
    paths: &[P],
    options: &OpenOptions,
) -> Result<(Option<ChosenReplica>, Vec<Error>)> {
    let (mut all, mut failures) = (Vec::new(), Vec::new());
    for path in paths {
        match Replica::open(path.as_ref(), options) {
            Ok(replica) => all.push(replica),
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted) => return Err(error),
            Err(error) => failures.push(error),
        }
    }
    // Of equals the first.
    all.sort_by_key(|replica| std::cmp::Reverse((replica.leader_epoch, replica.end)));
    let mut all = all.into_iter();
    let chosen = all.next().map(|best| ChosenReplica {
        others: all
            .map(|other| (other.path.clone(), less(&other, &best)))
            .collect(),
        best,
    });
    Ok((chosen, failures))
}

impl Replica {
    fn open(path: &Path, options: &OpenOptions) -> Result<Self> {
        let log = Log::open(path, options)?;
        let leader_epoch = readable(log.leader_epoch())?.flatten();
        let end = readable(log.log_end_offset())?;
        Ok(Self {
            path: path.to_path_buf(),
            leader_epoch: leader_epoch.unwrap_or(-1),
            end: end.unwrap_or(-1),
            log,
        })
    }
}

fn less(other: &Replica, best: &Replica) -> String {
    if other.leader_epoch < best.leader_epoch {
        format!(
            "ends at offset {} in leader epoch {}, before {}",
            other.end, other.leader_epoch, best.leader_epoch
        )
    } else if other.end < best.end {
        format!("ends at offset {}", other.end)
    } else {
        "has as much".to_owned()
    }
}

/// What damage hides is `None`.
pub(crate) fn readable<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Err(error) if error.is_corruption() => Ok(None),
        read => read.map(Some),
    }
}
