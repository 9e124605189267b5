//! How transactions without a marker are served: readers wait, or their coordinator's record decides.

use super::broker::{Broker, lock};
use super::options::{OpenTransactions, ServeOptions};
use super::partition::{Bounds, Partition};
use offsetlog::disk::{Disk, IoCall};
use offsetlog::format::Uuid;
use offsetlog::{
    Error, Isolation, LogDir, MIRROR_NOTE, Outcome, ProducerState, RangeOptions, Result,
};
use offsetlog_ops::{TransactionEnd, transaction_ends};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;

/// A transaction: topic, its id, partition, producer id and epoch, first offset. A recreated topic begins at the same offsets.
type Key = (String, Option<Uuid>, i32, (i64, i16), i64);

/// How open transactions end. A decision stays: clients have read by it. Undecided transactions are looked up again after a while.
pub(crate) type Decisions = HashMap<Key, Option<bool>>;

/// Looking up undecided transactions reads `__transaction_state`, so at most once in this time.
const DOUBT_EVERY_MS: i64 = 60_000;

/// What makes decisions on open transactions doubtful: records that cannot be read, and copies that a mirror fills.
pub(super) fn doubts_of_deciding(log_dir: &LogDir, options: &ServeOptions) -> Result<Vec<String>> {
    if options.open_transactions == OpenTransactions::Wait {
        return Ok(Vec::new());
    }
    let (_, mut doubts, unread) = log_dir.transactions()?;
    doubts.extend(unread.iter().map(|unread| {
        format!(
            "open transactions wait of which no coordinator's record tells: {} may tell of them, and cannot be read: {}",
            unread.partition, unread.error
        )
    }));
    for path in log_dir.paths() {
        if is_mirrored(options.open.disk.as_ref(), path)? {
            doubts.push(format!(
                "{} is a mirror's copy ({MIRROR_NOTE}), each partition of which ends where it was copied to: a transaction that the source has \
                 committed may be open here, and be shown as aborted. Run offsetlog mirror --once after the producers have stopped",
                path.display()
            ));
        }
    }
    Ok(doubts)
}

/// Whether a mirror fills a log dir, or that of a partition directory.
fn is_mirrored(disk: &dyn Disk, path: &Path) -> Result<bool> {
    for folder in path.ancestors().take(2) {
        let note = folder.join(MIRROR_NOTE);
        match disk.stat(&note) {
            Ok(_) => return Ok(true),
            // A file that was set aside is served too.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) => {}
            Err(error) => return Err(Error::io(IoCall::Stat, &note, error)),
        }
    }
    Ok(false)
}

impl Broker {
    /// Runs `work` with the decisions on open transactions; again if it found undecided ones.
    pub(super) fn with_outcome<T>(
        &self,
        partition: &Partition,
        mut work: impl FnMut(Option<&Outcome<'_>>) -> Result<T>,
    ) -> Result<T> {
        let OpenTransactions::Decide { without_state } = self.options.open_transactions else {
            return work(None);
        };
        loop {
            let undecided = RefCell::new(Vec::new());
            let outcome = |producer: &ProducerState| {
                let known = lock(&self.decisions)
                    .get(&key(partition, producer))
                    .copied();
                known.unwrap_or_else(|| {
                    undecided.borrow_mut().push(*producer);
                    None
                })
            };
            let done = work(Some(&outcome))?;
            let undecided = undecided.into_inner();
            if undecided.is_empty() {
                return Ok(done);
            }
            let ends = transaction_ends(&self.log_dir, &partition.log, &undecided, without_state)?;
            let mut decisions = lock(&self.decisions);
            for producer in &undecided {
                let end = ends
                    .iter()
                    .find(|end| end.producer.producer == *producer)
                    .and_then(|end| end.commit);
                // Another request may have decided it since.
                let known = decisions.entry(key(partition, producer)).or_insert(end);
                *known = known.or(end);
            }
        }
    }

    /// Has undecided transactions looked up again: parts of `__transaction_state` that could not be read may be readable by now.
    pub(super) fn doubt_undecided(&self, now_ms: i64) {
        let due = self.next_doubt_ms.load(Ordering::Relaxed);
        // A clock that was set back must not stop it.
        if now_ms >= due || due.saturating_sub(now_ms) > DOUBT_EVERY_MS {
            let next = now_ms.saturating_add(DOUBT_EVERY_MS);
            self.next_doubt_ms.store(next, Ordering::Relaxed);
            lock(&self.decisions).retain(|_, end| end.is_some());
        }
    }

    /// The last stable offset that clients see.
    pub(super) fn last_stable_offset(&self, partition: &Partition, bounds: &Bounds) -> Result<i64> {
        if self.options.open_transactions == OpenTransactions::Wait {
            match partition.log.last_stable_offset() {
                Ok(found) => return Ok(found.min(bounds.end)),
                Err(error) if error.is_corruption() => {}
                Err(error) => return Err(error),
            }
        }
        self.with_outcome(partition, |outcome| {
            let options = RangeOptions {
                max_bytes: 0,
                min_one: false,
                isolation: Isolation::ReadCommitted,
                stop: bounds.stop,
                outcome,
            };
            let found = partition.log.fetch_range(bounds.first_here, &options)?;
            Ok(found.last_stable_offset)
        })
    }

    /// The open transactions of a partition, and how each one ends here.
    pub(super) fn open_transactions_of(
        &self,
        partition: &Partition,
    ) -> Result<Vec<TransactionEnd>> {
        let open = partition.log.open_transactions()?;
        if open.is_empty() {
            return Ok(Vec::new());
        }
        let (decides, without_state) = match self.options.open_transactions {
            OpenTransactions::Wait => (false, false),
            OpenTransactions::Decide { without_state } => (true, without_state),
        };
        let mut ends = transaction_ends(&self.log_dir, &partition.log, &open, without_state)?;
        if !decides {
            for end in &mut ends {
                end.commit = None;
            }
        }
        Ok(ends)
    }
}

fn key(partition: &Partition, producer: &ProducerState) -> Key {
    (
        partition.topic.clone(),
        partition.topic_id,
        partition.number,
        (producer.producer_id, producer.producer_epoch),
        producer.transaction_first_offset.unwrap_or(-1),
    )
}
