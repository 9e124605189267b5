//! The partitions that are open for appending: opened on use, and no more than so many at a time.

use super::TopicPartition;
use crate::error::Result;
use crate::log::Log;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One partition's log, while somebody opens, uses or closes it.
type Cell = Arc<Mutex<Option<Log>>>;

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

    /// The partition's log, opened with `open` unless it is there and not closed. Where too many are open, those that were not used
    /// for the longest time are closed before; one that cannot be closed is this call's error.
    pub(super) fn get(
        &self,
        partition: &TopicPartition,
        open: impl FnOnce() -> Result<Log>,
    ) -> Result<Log> {
        let cell = {
            let mut slots = self.lock();
            slots.uses += 1;
            let used = slots.uses;
            if !slots.by_partition.contains_key(partition) {
                slots
                    .by_partition
                    .insert(partition.clone(), Slot::default());
            }
            let slot = slots.by_partition.get_mut(partition);
            slot.map_or_else(Cell::default, |slot| {
                slot.used = used;
                Arc::clone(&slot.cell)
            })
        };
        let mut held = lock(&cell);
        if let Some(log) = held.as_ref().filter(|log| !log.is_closed()) {
            return Ok(log.clone());
        }
        *held = None;
        // Before, so that the new one finds room.
        self.make_room()?;
        let log = open()?;
        *held = Some(log.clone());
        Ok(log)
    }

    /// Closes logs until there is room for one more. Those that somebody holds stay.
    fn make_room(&self) -> Result<()> {
        loop {
            let slots = self.lock();
            if slots.by_partition.len() <= self.max {
                return Ok(());
            }
            let idle = slots
                .by_partition
                .iter()
                .filter(|(_, slot)| Arc::strong_count(&slot.cell) == 1)
                .filter(|(_, slot)| {
                    lock(&slot.cell)
                        .as_ref()
                        .is_none_or(|log| !log.is_shared() || log.is_closed())
                })
                .min_by_key(|(_, slot)| slot.used);
            let Some((partition, slot)) = idle else {
                return Ok(());
            };
            let (partition, cell) = (partition.clone(), Arc::clone(&slot.cell));
            // Who wants this partition meanwhile waits here, and opens it again.
            let mut held = lock(&cell);
            drop(slots);
            let log = held.take();
            let closed = log.map_or(Ok(()), |log| log.close());
            drop(held);
            self.drop_empty(&partition);
            closed?;
        }
    }

    /// Takes a partition out and closes its log; whoever holds it finds it closed.
    pub(super) fn close(&self, partition: &TopicPartition) -> Result<()> {
        let slot = self.lock().by_partition.remove(partition);
        let log = slot.and_then(|slot| lock(&slot.cell).take());
        log.map_or(Ok(()), |log| log.close())
    }

    /// The logs that are open now.
    pub(super) fn all(&self) -> Vec<Log> {
        let cells: Vec<Cell> = {
            let slots = self.lock();
            let slots = slots.by_partition.values();
            slots.map(|slot| Arc::clone(&slot.cell)).collect()
        };
        cells
            .iter()
            .filter_map(|cell| lock(cell).clone())
            .filter(|log| !log.is_closed())
            .collect()
    }

    fn drop_empty(&self, partition: &TopicPartition) {
        let mut slots = self.lock();
        let is_empty = slots.by_partition.get(partition).is_some_and(|slot| {
            Arc::strong_count(&slot.cell) <= 2
                && slot.cell.try_lock().is_ok_and(|held| held.is_none())
        });
        if is_empty {
            slots.by_partition.remove(partition);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lock(cell: &Mutex<Option<Log>>) -> MutexGuard<'_, Option<Log>> {
    cell.lock().unwrap_or_else(PoisonError::into_inner)
}
