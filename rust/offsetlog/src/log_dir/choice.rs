//! Chooses among the replicas of a partition that several log dirs have: the longest valid one is read.

use super::{LogDir, TopicPartition};
use crate::disk::FileStat;
use crate::error::{Error, Result};
use crate::log::{Log, ScanOptions, open_in};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

/// The files of each replica: its directory, and name and stat of each file.
type Marks = Vec<(PathBuf, Vec<(String, FileStat)>)>;

/// The replica that was chosen.
#[derive(Debug)]
pub(super) struct Chosen {
    path: PathBuf,
    /// The files of all replicas before they were read; `None` if one could not be looked at.
    marks: Option<Marks>,
    /// The log dirs were listed again since: the choice holds only if no file has changed.
    is_old: bool,
}

pub(super) type AllChosen = BTreeMap<TopicPartition, Chosen>;

impl LogDir {
    /// Has the next opening of each partition with several replicas choose again, if one of them has changed.
    pub(super) fn doubt_choices(&self) {
        let mut chosen = self.0.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        for choice in chosen.values_mut() {
            choice.is_old = true;
        }
    }

    /// Opens the longest valid one of several replicas.
    pub(super) fn log_of_replicas(&self, wanted: TopicPartition, paths: &[PathBuf]) -> Result<Log> {
        if let Some(path) = self.chosen(&wanted, |known| {
            !known.is_old && paths.contains(&known.path)
        }) {
            return self.open_one(&path);
        }
        // What changes while they are read has them read again.
        let marks = self.marks(paths);
        if let Some(path) = self.chosen(&wanted, |known| {
            known.is_old = marks.is_none() || known.marks != marks;
            !known.is_old
        }) {
            return self.open_one(&path);
        }
        // Nobody waits for this but those who ask for this partition too, and read it themselves.
        let log = self.longest(paths)?;
        let choice = Chosen {
            path: log.path().to_path_buf(),
            marks,
            is_old: false,
        };
        let mut chosen = self.0.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        chosen.insert(wanted, choice);
        Ok(log)
    }

    /// The replica that was chosen, if the choice holds.
    fn chosen(
        &self,
        wanted: &TopicPartition,
        holds: impl FnOnce(&mut Chosen) -> bool,
    ) -> Option<PathBuf> {
        let mut chosen = self.0.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        let known = chosen.get_mut(wanted)?;
        holds(known).then(|| known.path.clone())
    }

    fn marks(&self, paths: &[PathBuf]) -> Option<Marks> {
        let disk = self.0.options.disk.as_ref();
        let mut marks = Marks::new();
        for path in paths {
            let mut files = Vec::new();
            for entry in disk.list(path).ok()? {
                if !is_of_records(&entry.name) {
                    continue;
                }
                let stat = disk.stat(&path.join(&entry.name)).ok()?;
                // Its next change may leave it as it looks now.
                if stat.is_racy() {
                    return None;
                }
                files.push((entry.name, stat));
            }
            files.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
            marks.push((path.clone(), files));
        }
        Some(marks)
    }

    pub(super) fn open_one(&self, path: &Path) -> Result<Log> {
        let shared = self.0.shared_with(path);
        open_in(
            path,
            &self.0.options,
            shared.map(|shared| shared.checkpoints()),
        )
    }

    fn longest(&self, paths: &[PathBuf]) -> Result<Log> {
        let mut best: Option<(i64, Log)> = None;
        let mut failure = None;
        for path in paths {
            let opened = self
                .open_one(path)
                .and_then(|log| Ok((valid_end(&log)?, log)));
            match opened {
                Ok((end, log)) => {
                    if best.as_ref().is_none_or(|(longest, _)| end > *longest) {
                        best = Some((end, log));
                    }
                }
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        match (best, failure) {
            (Some((_, log)), _) => Ok(log),
            (None, Some(error)) => Err(error),
            (None, None) => Err(Error::argument("paths", "none found")),
        }
    }
}

/// Whether the file decides how much of the log can be read.
fn is_of_records(name: &str) -> bool {
    Path::new(name)
        .extension()
        .is_some_and(|extension| extension == "log")
}

/// Exclusive end of the offsets whose batches can be read without an error.
fn valid_end(log: &Log) -> Result<i64> {
    let options = ScanOptions {
        control_records: true,
        ..ScanOptions::default()
    };
    let mut scan = log.scan(&options)?;
    let mut end = log.log_start_offset()?;
    loop {
        match scan.next_batch() {
            Ok(Some(batch)) => end = batch.header().last_offset.saturating_add(1),
            Ok(None) => return Ok(end),
            Err(error) if error.is_corruption() => return Ok(end),
            Err(error) => return Err(error),
        }
    }
}
