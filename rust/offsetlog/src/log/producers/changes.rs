//! Checks the batches of one append against the producer state, and collects the changes.

use super::entry::{self, AppendedBatch, NO_EPOCH, NO_SEQUENCE, ProducerEntry};
use crate::error::{Error, ErrorKind, Result};
use offsetlog_format::{BatchHeader, ControlRecord, Fault, FormatError, Part, RecordView};
use std::collections::HashMap;

/// The transaction version of a marker whose sender did not state one.
pub(crate) const TRANSACTION_VERSION_UNKNOWN: i16 = -1;
/// From this version on, each transaction of a producer has its own epoch.
const EPOCH_PER_TRANSACTION: i16 = 2;

/// Who appends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A producer: sequences and epochs are checked.
    Client,
    /// A group or transaction coordinator: epochs are checked.
    Coordinator,
    /// A follower: the leader has checked, and epochs may decrease.
    Replication,
    /// A scan of stored batches: as for a follower, but nothing is refused.
    ///
    /// A broker scans with a follower's checks, so it cannot start on a log that it wrote itself: records are deleted up to an offset
    /// inside an open transaction, a truncation makes the broker forget the transaction, the producer appends a batch without one, and
    /// the broker is killed.
    Recovery,
}

impl Origin {
    pub(super) const fn is_leader(self) -> bool {
        matches!(self, Self::Client | Self::Coordinator)
    }
}

/// The end of a transaction: the first record of a control batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Marker {
    pub(crate) commit: bool,
    pub(crate) coordinator_epoch: i32,
    pub(crate) timestamp: i64,
}

impl Marker {
    /// Parses the first record of a producer's control batch.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRecord`] for anything but a commit or an abort.
    pub(crate) fn parse(record: &RecordView<'_>) -> Result<Self> {
        let (commit, coordinator_epoch) = match ControlRecord::parse(record.key, record.value)? {
            ControlRecord::Commit { coordinator_epoch } => (true, coordinator_epoch),
            ControlRecord::Abort { coordinator_epoch } => (false, coordinator_epoch),
            _ => {
                let rule = Fault::Rule("a producer's control record is neither commit nor abort");
                return Err(FormatError::new(Part::ControlRecord, 0, rule).into());
            }
        };
        Ok(Self {
            commit,
            coordinator_epoch,
            timestamp: record.timestamp,
        })
    }
}

/// What a batch holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Records,
    Marker(Marker),
    /// A control batch whose marker the cleaner removed.
    Nothing,
}

/// A batch with a producer id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(crate) producer_id: i64,
    pub(crate) producer_epoch: i16,
    pub(crate) base_sequence: i32,
    pub(crate) last_sequence: i32,
    pub(crate) base_offset: i64,
    pub(crate) last_offset: i64,
    pub(crate) max_timestamp: i64,
    pub(crate) is_transactional: bool,
    pub(crate) content: Content,
}

impl Batch {
    /// Returns what the checks need from a header; `None` without a producer id. `marker` is the first record of a control batch, `None`
    /// if it has no records.
    pub(crate) fn new(header: &BatchHeader, marker: Option<Marker>) -> Option<Self> {
        let base_offset = header.base_offset.filter(|_| header.producer_id >= 0)?;
        let delta = i32::try_from(header.last_offset.wrapping_sub(base_offset)).unwrap_or(0);
        Some(Self {
            producer_id: header.producer_id,
            producer_epoch: header.producer_epoch,
            base_sequence: header.base_sequence,
            last_sequence: entry::last_sequence(header, delta),
            base_offset,
            last_offset: header.last_offset,
            max_timestamp: header.max_timestamp,
            is_transactional: header.attributes.is_transactional(),
            content: match marker {
                _ if !header.attributes.is_control() => Content::Records,
                Some(marker) => Content::Marker(marker),
                None => Content::Nothing,
            },
        })
    }

    const fn appended(&self) -> AppendedBatch {
        AppendedBatch {
            last_sequence: self.last_sequence,
            last_offset: self.last_offset,
            offset_delta: self.last_offset.wrapping_sub(self.base_offset) as i32,
            timestamp: self.max_timestamp,
        }
    }
}

/// A transaction that a marker has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CompletedTransaction {
    pub(crate) producer_id: i64,
    pub(crate) first_offset: i64,
    /// Offset of the marker.
    pub(crate) last_offset: i64,
    pub(crate) aborted: bool,
}

/// A producer before the append, and as the append would leave it.
#[derive(Debug, Clone)]
pub(super) struct Changed {
    pub(super) producer_id: i64,
    pub(super) entry: ProducerEntry,
    stored_epoch: i16,
    stored_last_sequence: i32,
}

/// The changes of one append's batches, applied together or dropped.
#[derive(Debug, Clone, Default)]
pub(crate) struct Changes {
    /// In the order in which the producers first appear.
    pub(super) changed: Vec<Changed>,
    slots: HashMap<i64, usize>,
    /// First offset and producer of each transaction.
    pub(super) started: Vec<(i64, i64)>,
    pub(super) completed: Vec<CompletedTransaction>,
}

impl Changes {
    /// Checks a batch against the state that the earlier ones leave, and adds it. After an error the changes must be dropped.
    pub(super) fn add(
        &mut self,
        stored: Option<&ProducerEntry>,
        batch: &Batch,
        origin: Origin,
        transaction_version: i16,
    ) -> Result<()> {
        let slot = *self.slots.entry(batch.producer_id).or_insert_with(|| {
            let stored = stored.copied().unwrap_or_else(ProducerEntry::unknown);
            self.changed.push(Changed {
                producer_id: batch.producer_id,
                entry: stored.without_batches(),
                stored_epoch: stored.producer_epoch,
                stored_last_sequence: stored.last_sequence(),
            });
            self.changed.len() - 1
        });
        let Some(changed) = self.changed.get_mut(slot) else {
            return Ok(());
        };
        match &batch.content {
            Content::Records => {
                let started = changed.add_records(batch, origin)?;
                self.started
                    .extend(started.map(|first_offset| (first_offset, batch.producer_id)));
            }
            Content::Marker(marker) => {
                let completed = changed.add_marker(batch, marker, origin, transaction_version)?;
                self.completed.extend(completed);
            }
            Content::Nothing => {}
        }
        Ok(())
    }
}

impl Changed {
    /// Returns the first offset of a transaction that the batch opens.
    fn add_records(&mut self, batch: &Batch, origin: Origin) -> Result<Option<i64>> {
        if origin.is_leader() {
            check_epoch(batch, self.entry.producer_epoch)?;
        }
        if origin == Origin::Client {
            self.check_sequence(batch)?;
        }
        self.entry.add_batch(batch.producer_epoch, batch.appended());
        match self.entry.transaction_first_offset {
            Some(first_offset) if !batch.is_transactional && origin != Origin::Recovery => {
                Err(Error::new(ErrorKind::InvalidTxnState {
                    producer_id: batch.producer_id,
                    first_offset,
                })
                .at_offset(batch.base_offset))
            }
            None if batch.is_transactional => {
                self.entry.transaction_first_offset = Some(batch.base_offset);
                Ok(Some(batch.base_offset))
            }
            _ => Ok(None),
        }
    }

    fn check_sequence(&self, batch: &Batch) -> Result<()> {
        let expected = if batch.producer_epoch != self.entry.producer_epoch {
            // The first batch of an epoch. A producer that is not known may begin with any sequence.
            if self.entry.producer_epoch == NO_EPOCH {
                return Ok(());
            }
            0
        } else if self.stored_epoch == NO_EPOCH {
            return Ok(());
        } else {
            let last = match self.entry.batches.last() {
                Some(last) => last.last_sequence,
                None if batch.producer_epoch == self.stored_epoch => self.stored_last_sequence,
                None => NO_SEQUENCE,
            };
            last.checked_add(1).unwrap_or(0)
        };
        if batch.base_sequence == expected {
            return Ok(());
        }
        Err(Error::new(ErrorKind::OutOfOrderSequence {
            producer_id: batch.producer_id,
            producer_epoch: batch.producer_epoch,
            found: batch.base_sequence,
            expected,
        })
        .at_offset(batch.base_offset))
    }

    fn add_marker(
        &mut self,
        batch: &Batch,
        marker: &Marker,
        origin: Origin,
        transaction_version: i16,
    ) -> Result<Option<CompletedTransaction>> {
        let open = self.entry.transaction_first_offset;
        if origin.is_leader() {
            if transaction_version == TRANSACTION_VERSION_UNKNOWN {
                return Err(Error::argument(
                    "transaction_version",
                    "a marker needs one: 0, 1 or 2",
                ));
            }
            let epoch = self.entry.producer_epoch;
            // From this version on the marker raises the epoch. It does not if no transaction is open (the marker was sent again), or if
            // the epoch is the highest one.
            let raised = transaction_version >= EPOCH_PER_TRANSACTION && open.is_some();
            check_epoch(
                batch,
                if raised {
                    epoch.saturating_add(1)
                } else {
                    epoch
                },
            )?;
            let minimum = self.entry.coordinator_epoch;
            if marker.coordinator_epoch < minimum {
                return Err(Error::new(ErrorKind::TransactionCoordinatorFenced {
                    producer_id: batch.producer_id,
                    found: marker.coordinator_epoch,
                    minimum,
                })
                .at_offset(batch.base_offset));
            }
        }
        self.entry.end_transaction(
            batch.producer_epoch,
            marker.coordinator_epoch,
            marker.timestamp,
        );
        Ok(open.map(|first_offset| CompletedTransaction {
            producer_id: batch.producer_id,
            first_offset,
            last_offset: batch.base_offset,
            aborted: !marker.commit,
        }))
    }
}

/// Refuses a batch whose epoch is below `minimum`.
pub(super) fn check_epoch(batch: &Batch, minimum: i16) -> Result<()> {
    if batch.producer_epoch >= minimum {
        return Ok(());
    }
    Err(Error::new(ErrorKind::ProducerFenced {
        producer_id: batch.producer_id,
        found: batch.producer_epoch,
        minimum,
    })
    .at_offset(batch.base_offset))
}
