//! The partitions that are open for appending: opened on use, with a limit on how many are open at once.
//!
//! Each partition has a cell. A thread that opens, closes or deletes the partition holds the cell's lock, and all others that
//! want the partition wait for it. So no two calls open the same partition or run into each other's partition lock. Only two
//! operations hold more than one cell: deletions, which run one at a time, and making room, which takes only cells that nobody
//! else has in hand. Invariant: the lock of the list of cells is held briefly and never while waiting for a cell.

use super::TopicPartition;
use crate::error::{Error, ErrorKind, Result};
use crate::log::LogWriter;
use crate::together::with_each;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

type Cell = Arc<Mutex<Held>>;

/// Each use pays for looking at this many open logs, while more are open than allowed.
const LOOKS: usize = 32;

/// The state of one partition's cell.
#[derive(Debug, Default)]
enum Held {
    /// The log is not open.
    #[default]
    Idle,
    Open(LogWriter),
    /// The cell was removed from the list. A thread that waited for it must look up the partition again.
    Gone,
}

impl Held {
    /// Whether no caller holds a log of it that is open.
    fn is_unshared(&self) -> bool {
        match self {
            Self::Open(log) => !log.is_shared() || log.is_closed(),
            Self::Idle | Self::Gone => true,
        }
    }
}

#[derive(Debug)]
pub(super) struct OpenLogs {
    slots: Mutex<Slots>,
    /// Limit on open logs. Logs that callers hold may exceed it. When they let go of them, later calls close the excess.
    max: usize,
}

#[derive(Debug, Default)]
struct Slots {
    by_partition: HashMap<TopicPartition, Slot>,
    /// Number of uses so far. Each slot stores the number of its last use.
    uses: u64,
    /// From this use on, a call looks again for logs to close, if too many are open and callers held all when one last looked.
    look_at: u64,
    /// No more logs may be opened.
    closed: bool,
    /// The logs that were closed here and could not be synced: their directories, and why.
    lost: BTreeMap<TopicPartition, (PathBuf, String)>,
}

#[derive(Debug, Default)]
struct Slot {
    cell: Cell,
    used: u64,
}

impl OpenLogs {
    pub(super) fn new(max: usize) -> Self {
        Self {
            slots: Mutex::default(),
            max: max.max(1),
        }
    }

    /// Returns the partition's log. Opens it with `open` unless it is already open; returns `None` if `open` does. If too many
    /// logs are open, closes the least recently used ones first, also for a log that is open already: callers may have let go of
    /// others. If one of them cannot be closed to make room for this one, this call fails.
    ///
    /// # Errors
    /// `Closed` after [`close_all`](Self::close_all); those of closing another log or opening this one.
    pub(super) fn get(
        &self,
        partition: &TopicPartition,
        open: impl Fn() -> Result<Option<LogWriter>>,
    ) -> Result<Option<LogWriter>> {
        loop {
            let cell = self.cell(partition)?;
            let mut held = lock(&cell);
            match &*held {
                Held::Gone => continue,
                Held::Open(log) if !log.is_closed() => {
                    let log = log.clone();
                    drop(held);
                    self.close_excess();
                    return Ok(Some(log));
                }
                // A caller is closing it: waits until it is closed and its lock is free. That caller gets the error.
                Held::Open(log) => drop(log.close()),
                Held::Idle => {}
            }
            *held = Held::Idle;
            // Done first, so that there is room for the new log.
            match self.make_room().and_then(|()| open()) {
                Ok(Some(log)) => {
                    *held = Held::Open(log.clone());
                    return Ok(Some(log));
                }
                other => {
                    drop(held);
                    drop(cell);
                    self.drop_idle(partition);
                    return other;
                }
            }
        }
    }

    /// Returns the partition's cell and marks it as used now.
    fn cell(&self, partition: &TopicPartition) -> Result<Cell> {
        let mut slots = self.lock();
        if slots.closed {
            return Err(Error::new(ErrorKind::Closed));
        }
        slots.uses += 1;
        let used = slots.uses;
        if let Some(slot) = slots.by_partition.get_mut(partition) {
            slot.used = used;
            return Ok(Arc::clone(&slot.cell));
        }
        let cell = Cell::default();
        let slot = Slot {
            cell: Arc::clone(&cell),
            used,
        };
        slots.by_partition.insert(partition.clone(), slot);
        Ok(cell)
    }

    /// Closes logs if more are open than allowed. While callers hold them all, looks at them only once in as many uses as pay for it
    /// (see [`LOOKS`]). What could not be synced is for [`check_synced`](Self::check_synced) to tell: this caller wants no room.
    fn close_excess(&self) {
        let slots = self.lock();
        let is_due = slots.by_partition.len() > self.max && slots.uses >= slots.look_at;
        drop(slots);
        if is_due {
            drop(self.make_room());
        }
    }

    /// Closes logs until there is room for one more. Logs that a caller holds stay open.
    ///
    /// # Errors
    /// An error of closing a log; all that were to be closed are closed even so.
    fn make_room(&self) -> Result<()> {
        loop {
            let excess = self.excess();
            if excess.is_empty() {
                return Ok(());
            }
            let closed = with_each(&excess, |(partition, cell)| {
                self.close_unshared(partition, cell)
            });
            for (partition, cell) in excess {
                drop(cell);
                self.drop_idle(&partition);
            }
            closed?;
        }
    }

    /// The least recently used cells beyond the limit. Leaves out those whose log a caller holds.
    fn excess(&self) -> Vec<(TopicPartition, Cell)> {
        let mut slots = self.lock();
        let open = slots.by_partition.len();
        let Some(count) = open.checked_sub(self.max).filter(|&count| count > 0) else {
            return Vec::new();
        };
        let idle = slots.by_partition.iter();
        let idle = idle.filter(|(_, slot)| Arc::strong_count(&slot.cell) == 1);
        let mut idle: Vec<(&TopicPartition, &Slot)> = idle
            .filter(|(_, slot)| lock(&slot.cell).is_unshared())
            .collect();
        if idle.len() > count {
            idle.select_nth_unstable_by_key(count, |(_, slot)| slot.used);
            idle.truncate(count);
        }
        let excess: Vec<_> = idle
            .into_iter()
            .map(|(partition, slot)| (partition.clone(), Arc::clone(&slot.cell)))
            .collect();
        if excess.is_empty() {
            slots.look_at = slots.uses + (open / LOOKS) as u64;
        }
        excess
    }

    /// Closes the log in a cell, unless another thread has the cell in hand or a caller holds the log by now. Threads that want
    /// the partition meanwhile wait, and then open it again.
    fn close_unshared(&self, partition: &TopicPartition, cell: &Cell) -> Result<()> {
        let mut held = match cell.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(held)) => held.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        let Held::Open(log) = &*held else {
            return Ok(());
        };
        if !held.is_unshared() {
            return Ok(());
        }
        let log = log.clone();
        let closed = close(&mut held, Held::Idle);
        if let Err(error) = &closed
            && !log.is_durable()
        {
            let lost = (log.path().to_path_buf(), error.to_string());
            let mut slots = self.lock();
            slots.lost.entry(partition.clone()).or_insert(lost);
        }
        closed
    }

    /// Fails if a log was closed to make room and could not be synced. Only the caller that wanted the room got the error, and records
    /// appended to that log may be lost.
    ///
    /// # Errors
    /// `Poisoned`.
    pub(super) fn check_synced(&self) -> Result<()> {
        match self.lock().lost.values().next() {
            Some((path, error)) => {
                let first = format!("closing it to make room failed: {error}");
                Err(Error::new(ErrorKind::Poisoned { first }).at_path(path))
            }
            None => Ok(()),
        }
    }

    /// Closes the logs of `partitions` and runs `work`, which deletes them. Other threads that ask for one of them wait, and
    /// then find what `work` left. Only one caller may do this at a time.
    ///
    /// # Errors
    /// The error of closing a log, unless it is poisoned: appended records no longer need to be durable; or that of `work`.
    pub(super) fn take_away<T>(
        &self,
        partitions: &[TopicPartition],
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let cells = partitions.iter().map(|partition| self.cell(partition));
        let cells: Vec<Cell> = cells.collect::<Result<_>>()?;
        let mut all: Vec<MutexGuard<'_, Held>> = cells.iter().map(|cell| lock(cell)).collect();
        let mut done = Ok(());
        for held in &mut all {
            if let Err(error) = close(held, Held::Idle)
                && !matches!(error.kind(), ErrorKind::Poisoned { .. })
            {
                done = done.and(Err(error));
            }
        }
        let done = done.and_then(|()| work());
        let mut slots = self.lock();
        if done.is_ok() {
            // Records that could not be synced need not be durable any more.
            slots.lost.retain(|lost, _| !partitions.contains(lost));
        }
        for (partition, held) in partitions.iter().zip(&mut all) {
            slots.by_partition.remove(partition);
            **held = Held::Gone;
        }
        done
    }

    /// The partition's log, if it is open now.
    pub(super) fn opened(&self, partition: &TopicPartition) -> Option<LogWriter> {
        let cell = Arc::clone(&self.lock().by_partition.get(partition)?.cell);
        match &*lock(&cell) {
            Held::Open(log) if !log.is_closed() => Some(log.clone()),
            _ => None,
        }
    }

    /// All logs that are open now.
    pub(super) fn all(&self) -> Vec<LogWriter> {
        let cells: Vec<Cell> = {
            let slots = self.lock();
            let slots = slots.by_partition.values();
            slots.map(|slot| Arc::clone(&slot.cell)).collect()
        };
        let open = cells.iter().filter_map(|cell| match &*lock(cell) {
            Held::Open(log) => Some(log.clone()),
            Held::Idle | Held::Gone => None,
        });
        open.collect()
    }

    /// Closes all logs, including those that are being opened, and allows no more to be opened.
    ///
    /// # Errors
    /// The first error of [`LogWriter::close`]; all logs are closed even so.
    pub(super) fn close_all(&self) -> Result<()> {
        let cells: Vec<Cell> = {
            let mut slots = self.lock();
            slots.closed = true;
            let slots = slots.by_partition.drain();
            slots.map(|(_, slot)| slot.cell).collect()
        };
        with_each(&cells, |cell| close(&mut lock(cell), Held::Gone))
    }

    /// Removes a cell from the list if it is idle and nobody has it in hand.
    fn drop_idle(&self, partition: &TopicPartition) {
        let mut slots = self.lock();
        let is_idle = slots.by_partition.get(partition).is_some_and(|slot| {
            Arc::strong_count(&slot.cell) == 1 && matches!(*lock(&slot.cell), Held::Idle)
        });
        if is_idle {
            slots.by_partition.remove(partition);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes the log in a cell and leaves `left` there.
fn close(held: &mut Held, left: Held) -> Result<()> {
    match std::mem::replace(held, left) {
        Held::Open(log) => log.close(),
        Held::Idle | Held::Gone => Ok(()),
    }
}

fn lock(cell: &Mutex<Held>) -> MutexGuard<'_, Held> {
    cell.lock().unwrap_or_else(PoisonError::into_inner)
}
