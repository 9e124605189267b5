//! Opens many partitions for reading in one call, on several threads.
//!
//! An opening asks of the log dir whether somebody holds its lock, and what two of its checkpoints are. Here that is asked once for some
//! partitions, before them and again after them. If both answers are the same, each opening would have got this answer itself: a
//! checkpoint that is replaced has another inode or time. A lock that was taken and released between the two is as one that is taken
//! just after a single opening has asked: the view that was taken meanwhile sees by the files' own times what was written. If the
//! answers differ, these partitions are opened again, one by one.

use super::{LogDir, TopicPartition};
use crate::disk::Moment;
use crate::error::Result;
use crate::log::{Around, Log, OpenOptions, open_in};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many partitions share an answer.
const SHARING: usize = 64;

/// The answers of the log dirs of some partitions, by number; `None` for one that has no answer to be shared.
type Answers = Vec<(usize, Option<(Around, Moment)>)>;

impl LogDir {
    /// Opens several partitions for reading, each as [`log`](Self::log) does. Returns the results in the order of `partitions`.
    /// `threads` is how many threads open them, including the caller's; more than processors helps only on a slow disk. Costs about half
    /// of opening them one by one: what all have in common is asked once for 64 of them.
    ///
    /// Each log that is returned holds an open file.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), offsetlog::Error> {
    /// use offsetlog::{LogDir, OpenOptions};
    ///
    /// let log_dir = LogDir::open(&["kafka-logs"], &OpenOptions::default())?;
    /// for log in log_dir.logs(&log_dir.partitions(), 2) {
    ///     let log = log?;
    ///     println!("{}-{} ends at {}", log.topic(), log.partition(), log.log_end_offset()?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn logs(&self, partitions: &[TopicPartition], threads: usize) -> Vec<Result<Log>> {
        let logs = self.logs_with(partitions, threads, |_| Ok(()));
        logs.into_iter()
            .map(|log| log.map(|(log, ())| log))
            .collect()
    }

    /// As [`logs`](Self::logs), and asks each log something as soon as it is open, on the thread that opened it: the answer is of the
    /// moment of the opening, and costs no second look at what others did meanwhile. `ask` may be called twice for one partition, of
    /// which the first answer is then dropped. An error of `ask` is the partition's.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), offsetlog::Error> {
    /// use offsetlog::{Log, LogDir, OpenOptions};
    ///
    /// let log_dir = LogDir::open(&["kafka-logs"], &OpenOptions::default())?;
    /// for log in log_dir.logs_with(&log_dir.partitions(), 2, Log::log_end_offset) {
    ///     let (log, end) = log?;
    ///     println!("{}-{} ends at {end}", log.topic(), log.partition());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn logs_with<T: Send>(
        &self,
        partitions: &[TopicPartition],
        threads: usize,
        ask: impl Fn(&Log) -> Result<T> + Sync,
    ) -> Vec<Result<(Log, T)>> {
        let ask = |log: Log| {
            let answer = log.as_found(&ask)?;
            Ok((log, answer))
        };
        if self.is_writable() {
            return self.one_by_one(partitions, &ask);
        }
        if partitions.len() > SHARING {
            self.0.options.disk.expect_files(partitions.len());
        }
        let parts: Vec<&[TopicPartition]> = partitions.chunks(SHARING).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            let mut done = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(part) = parts.get(number) else {
                    return done;
                };
                done.push((number, self.some_logs(part, &ask)));
            }
        };
        let mut done = std::thread::scope(|scope| {
            let others = 1..threads.min(parts.len());
            let others = others.map_while(|_| {
                let thread = std::thread::Builder::new().name("offsetlog-open".to_owned());
                // Without a thread the others do its part.
                thread.spawn_scoped(scope, work).ok()
            });
            let others: Vec<_> = others.collect();
            let mut done = work();
            for other in others {
                match other.join() {
                    Ok(more) => done.extend(more),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            done
        });
        done.sort_unstable_by_key(|(number, _)| *number);
        done.into_iter().flat_map(|(_, logs)| logs).collect()
    }

    fn one_by_one<T>(
        &self,
        partitions: &[TopicPartition],
        asked: &impl Fn(Log) -> Result<T>,
    ) -> Vec<Result<T>> {
        let partitions = partitions.iter();
        let opened = partitions.map(|partition| {
            self.log(&partition.topic, partition.partition)
                .and_then(asked)
        });
        opened.collect()
    }

    /// Opens some partitions that share what is asked of their log dirs.
    fn some_logs<T>(
        &self,
        partitions: &[TopicPartition],
        asked: &impl Fn(Log) -> Result<T>,
    ) -> Vec<Result<T>> {
        let mut before = Answers::new();
        // Of their own: what all threads count together, they wait for.
        let options = Arc::new(self.0.options.clone());
        let opened = partitions.iter().zip(self.paths_of(partitions));
        let opened = opened.map(|(partition, path)| {
            self.log_sharing(partition, path, &options, &mut before)
                .and_then(asked)
        });
        let opened: Vec<_> = opened.collect();
        let is_confirmed = |(number, around): &(usize, Option<(Around, Moment)>)| {
            around.is_none_or(|(around, _)| {
                self.0.shared.get(*number).is_some_and(|shared| {
                    let disk = self.0.options.disk.as_ref();
                    Around::look(disk, shared.log_dir()).is_ok_and(|(now, _)| now == around)
                })
            })
        };
        if before.iter().all(is_confirmed) {
            return opened;
        }
        self.one_by_one(partitions, asked)
    }

    /// The directories of some partitions; `None` for one that has not exactly one.
    ///
    /// They are mostly neighbours in the listing, so each is first looked for behind the one before.
    fn paths_of(&self, partitions: &[TopicPartition]) -> Vec<Option<PathBuf>> {
        let listing = self.0.listing();
        let mut next = None;
        let path_of = |partition: &TopicPartition| {
            let behind = next.as_mut().and_then(Iterator::next);
            let mut found = behind.filter(|(listed, _)| *listed == partition);
            if found.is_none() {
                let mut from = listing.partitions.range(partition..);
                found = from.next().filter(|(listed, _)| *listed == partition);
                next = Some(from);
            }
            match found.map(|(_, paths)| paths.as_slice()) {
                Some([path]) => Some(path.clone()),
                _ => None,
            }
        };
        partitions.iter().map(path_of).collect()
    }

    /// Opens a partition with what others have asked of its log dir, or asks for the others. One of several replicas, and one whose
    /// directory was given itself, asks alone.
    fn log_sharing(
        &self,
        partition: &TopicPartition,
        path: Option<PathBuf>,
        options: &Arc<OpenOptions>,
        known: &mut Answers,
    ) -> Result<Log> {
        let number = path.as_deref().and_then(|path| {
            let mut shared = self.0.shared.iter();
            shared.position(|shared| is_in(path, shared.log_dir()))
        });
        let (Some(path), Some(number)) = (path, number) else {
            return self.log(&partition.topic, partition.partition);
        };
        let Some(shared) = self.0.shared.get(number) else {
            return self.log(&partition.topic, partition.partition);
        };
        let answer = known.iter().find(|(other, _)| *other == number);
        let around = if let Some((_, around)) = answer {
            *around
        } else {
            // What cannot be looked at, each opening asks for and tells of; and the next change of a checkpoint might not show.
            let around = Around::look(self.0.options.disk.as_ref(), shared.log_dir()).ok();
            let around = around.filter(|(around, _)| !around.is_racy());
            known.push((number, around));
            around
        };
        open_in(path, options, Some(shared.checkpoints()), around)
    }
}

/// Whether a directory is in this log dir. Paths that begin with the same bytes, as nearly all do, are not taken apart.
fn is_in(path: &Path, log_dir: &Path) -> bool {
    let rest = path.as_os_str().as_bytes();
    let rest = rest.strip_prefix(log_dir.as_os_str().as_bytes());
    let name = rest.and_then(|rest| rest.strip_prefix(b"/"));
    name.is_some_and(|name| !name.contains(&b'/')) || path.parent() == Some(log_dir)
}
