//! The partitions that are open for appending: opened on use, and no more than so many at a time.
//!
//! Each partition has a cell. Whoever opens, closes or deletes it holds the cell meanwhile, and everybody else who wants it waits there:
//! so no two calls ever open one partition, or meet each other's lock. Cells of several partitions are held by deletions only, which come
//! one after the other, and by whoever makes room, who takes those that nobody else has in hand. The list of cells is locked for moments, and
//! never while a cell is waited for.

use super::TopicPartition;
use crate::error::{Error, ErrorKind, Result};
use crate::log::Log;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Cell = Arc<Mutex<Held>>;

/// One partition's log, while somebody opens, uses or closes it.
#[derive(Debug, Default)]
enum Held {
    /// Nobody has opened it yet, or it was closed.
    #[default]
    Idle,
    Open(Log),
    /// The cell is out of the list: whoever waited for it looks again.
    Gone,
}

#[derive(Debug)]
pub(super) struct OpenLogs {
    slots: Mutex<Slots>,
    /// How many may be open that nobody outside holds.
    max: usize,
}

#[derive(Debug, Default)]
struct Slots {
    by_partition: HashMap<TopicPartition, Slot>,
    /// Counts uses; a slot knows its last one.
    uses: u64,
    /// Nothing is opened any more.
    closed: bool,
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

    /// The partition's log, opened with `open` unless it is there and not closed; none where `open` gives none. Where too many are open, those that were not used
    /// for the longest time are closed before; one that cannot be closed is this call's error.
    ///
    /// # Errors
    /// `Closed` behind [`close_all`](Self::close_all); what closing another one or opening this one fails with.
    pub(super) fn get(
        &self,
        partition: &TopicPartition,
        open: impl Fn() -> Result<Option<Log>>,
    ) -> Result<Option<Log>> {
        loop {
            let cell = self.cell(partition)?;
            let mut held = lock(&cell);
            match &*held {
                Held::Gone => continue,
                Held::Open(log) if !log.is_closed() => return Ok(Some(log.clone())),
                // Somebody outside closes it: waits until that is over and its lock is free. The failure is that caller's.
                Held::Open(log) => drop(log.close()),
                Held::Idle => {}
            }
            *held = Held::Idle;
            // Before, so that the new one finds room.
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

    /// The partition's cell, used now.
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

    /// Closes logs until there is room for one more. Those that somebody holds stay.
    fn make_room(&self) -> Result<()> {
        loop {
            let mut slots = self.lock();
            if slots.by_partition.len() <= self.max {
                return Ok(());
            }
            let idle = slots
                .by_partition
                .iter()
                .filter(|(_, slot)| Arc::strong_count(&slot.cell) == 1)
                .filter(|(_, slot)| match &*lock(&slot.cell) {
                    Held::Open(log) => !log.is_shared() || log.is_closed(),
                    Held::Idle | Held::Gone => true,
                })
                .min_by_key(|(_, slot)| slot.used);
            let Some((partition, slot)) = idle else {
                return Ok(());
            };
            let (partition, cell) = (partition.clone(), Arc::clone(&slot.cell));
            // Who wants this partition meanwhile waits here, and opens it again.
            let mut held = lock(&cell);
            if !matches!(*held, Held::Open(_)) {
                slots.by_partition.remove(&partition);
                *held = Held::Gone;
                continue;
            }
            drop(slots);
            let closed = close(&mut held, Held::Idle);
            drop(held);
            drop(cell);
            self.drop_idle(&partition);
            closed?;
        }
    }

    /// Takes partitions away from everybody and does `work`, which removes them: closes their logs, and whoever asks for one
    /// meanwhile waits and then finds what `work` has left. Only one caller at a time may do this.
    ///
    /// # Errors
    /// That of closing one, unless it is poisoned: what was appended need not be durable any more; or that of `work`.
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
        for (partition, held) in partitions.iter().zip(&mut all) {
            slots.by_partition.remove(partition);
            **held = Held::Gone;
        }
        done
    }

    /// The partition's log, if it is open now.
    pub(super) fn opened(&self, partition: &TopicPartition) -> Option<Log> {
        let cell = Arc::clone(&self.lock().by_partition.get(partition)?.cell);
        match &*lock(&cell) {
            Held::Open(log) if !log.is_closed() => Some(log.clone()),
            _ => None,
        }
    }

    /// The logs that are open now.
    pub(super) fn all(&self) -> Vec<Log> {
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

    /// Closes all, those too that are being opened, and opens none any more.
    ///
    /// # Errors
    /// The first of those of [`Log::close`]; all are closed all the same.
    pub(super) fn close_all(&self) -> Result<()> {
        let cells: Vec<Cell> = {
            let mut slots = self.lock();
            slots.closed = true;
            let slots = slots.by_partition.drain();
            slots.map(|(_, slot)| slot.cell).collect()
        };
        let closed = cells
            .iter()
            .map(|cell| close(&mut lock(cell), Held::Gone))
            .collect::<Vec<_>>();
        closed.into_iter().fold(Ok(()), Result::and)
    }

    /// Takes a cell out of the list that nobody has in hand and that holds nothing.
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

/// Closes what the cell holds, and leaves `left` there.
fn close(held: &mut Held, left: Held) -> Result<()> {
    match std::mem::replace(held, left) {
        Held::Open(log) => log.close(),
        Held::Idle | Held::Gone => Ok(()),
    }
}

fn lock(cell: &Mutex<Held>) -> MutexGuard<'_, Held> {
    cell.lock().unwrap_or_else(PoisonError::into_inner)
}
