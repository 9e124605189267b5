//! Decides which batches of transactions, and which transaction markers, the cleaner may remove.
//!
//! Records of an aborted transaction are removed in the first pass. A marker stays as long as the same pass saw a batch of its
//! transaction. After that it gets a delete horizon like a tombstone, and is removed when the horizon has passed.
//!
//! Source: Kafka's `CleanedTransactionMetadata`. Kafka trusts the `.txnindex`. Where index and markers disagree, nothing is
//! removed here.

use crate::disk::{IoCall, read_whole};
use crate::error::{Error, Result};
use crate::folder::is_absent;
use crate::log::Log;
use crate::log::transactions::{TxnOutcome, TxnOutcomes, marker_of};
use crate::segment::segment_path;
use crate::segment::walk::Walk;
use offsetlog_format::index_entry::aborted_transaction_count;
use offsetlog_format::{AbortedTransaction, BatchHeader};
use std::cell::OnceCell;
use std::collections::HashSet;
use std::sync::Arc;

/// The outcome of a data batch's transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Data {
    /// Committed, or not transactional.
    Committed,
    Aborted,
    /// Marker and index disagree.
    Doubtful,
}

/// The result for a control batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ending {
    /// The pass saw no data of its transaction, so the marker may be removed.
    pub(super) may_go: bool,
    /// The entry to keep in the new segment's transaction index.
    pub(super) aborted: Option<AbortedTransaction>,
}

/// Outcomes of the log's transactions. Computed at the first transactional batch, because most logs have none.
#[derive(Debug)]
pub(super) struct Outcomes<'l> {
    log: &'l Log,
    /// First offset of interest.
    from: i64,
    log_start: i64,
    known: OnceCell<(Arc<TxnOutcomes>, Vec<AbortedTransaction>)>,
}

impl<'l> Outcomes<'l> {
    pub(super) const fn new(log: &'l Log, from: i64, log_start: i64) -> Self {
        Self {
            log,
            from,
            log_start,
            known: OnceCell::new(),
        }
    }

    fn known(&self) -> Result<&(Arc<TxnOutcomes>, Vec<AbortedTransaction>)> {
        if let Some(known) = self.known.get() {
            return Ok(known);
        }
        let (view, txn_outcomes) = self.log.in_view(self.log.fresh_view()?, |view| {
            let txn_outcomes = self.log.txn_outcomes(view, self.from)?;
            if txn_outcomes.is_incomplete() {
                return Err(self.log.outcomes_error(view, self.from));
            }
            Ok(txn_outcomes)
        })?;
        let directory = &self.log.0.directory;
        let mut entries = Vec::new();
        for segment in &view.segments {
            let path = segment_path(&directory.path, segment.base_offset, ".txnindex");
            let bytes = match read_whole(directory.disk.as_ref(), &path, 1 << 31) {
                Err(error) if is_absent(&error) => Vec::new(),
                // Without its entries aborted records would be committed ones.
                read => read.map_err(|error| Error::io(IoCall::Read, &path, error))?,
            };
            let slots = 0..aborted_transaction_count(&bytes);
            entries.extend(slots.filter_map(|slot| AbortedTransaction::read(&bytes, slot).ok()));
        }
        Ok(self.known.get_or_init(|| (txn_outcomes, entries)))
    }

    fn of(&self, header: &BatchHeader) -> Result<Data> {
        let (txn_outcomes, entries) = self.known()?;
        let first = header.base_offset.unwrap_or(header.last_offset);
        let by_marker = txn_outcomes.of(header.producer_id, first) == TxnOutcome::Aborted;
        let by_index = entries.iter().find(|entry| {
            entry.producer_id == header.producer_id
                && entry.overlaps(first, header.last_offset.saturating_add(1))
        });
        Ok(match (by_marker, by_index) {
            // As in a broker: nobody reads a transaction that ended below the log start offset, so its outcome does not matter.
            (true, Some(entry)) if entry.last_offset < self.log_start => Data::Committed,
            (true, Some(_)) => Data::Aborted,
            (false, None) => Data::Committed,
            _ => Data::Doubtful,
        })
    }

    fn entry(&self, producer_id: i64, marker: i64) -> Result<Option<AbortedTransaction>> {
        let (_, entries) = self.known()?;
        let mut entries = entries.iter();
        Ok(entries
            .find(|entry| entry.producer_id == producer_id && entry.last_offset == marker)
            .copied())
    }
}

/// Transactions whose data the walk has seen but not yet their end. The walk starts at the log's first segment.
#[derive(Debug, Default)]
pub(super) struct Met {
    committed: HashSet<i64>,
    aborted: HashSet<i64>,
}

impl Met {
    /// Records a data batch and returns the outcome of its transaction.
    pub(super) fn data(&mut self, header: &BatchHeader, outcomes: &Outcomes<'_>) -> Result<Data> {
        if !header.attributes.is_transactional() {
            return Ok(Data::Committed);
        }
        let data = outcomes.of(header)?;
        if data != Data::Aborted {
            self.committed.insert(header.producer_id);
        }
        if data != Data::Committed {
            self.aborted.insert(header.producer_id);
        }
        Ok(data)
    }

    /// Records the control batch at the walk's current position.
    pub(super) fn control(
        &mut self,
        header: &BatchHeader,
        walk: &mut Walk,
        outcomes: &Outcomes<'_>,
        limit: u64,
    ) -> Result<Ending> {
        let stays = Ending {
            may_go: false,
            aborted: None,
        };
        let goes = Ending {
            may_go: true,
            ..stays
        };
        if header.record_count == 0 {
            // An earlier pass removed its record.
            return Ok(goes);
        }
        let Some(marker) = marker_of(header, walk, limit)? else {
            return Ok(stays);
        };
        let producer_id = header.producer_id;
        if !marker.aborted {
            let had_data = self.committed.remove(&producer_id);
            return Ok(if had_data { stays } else { goes });
        }
        if !self.aborted.remove(&producer_id) {
            return Ok(goes);
        }
        Ok(Ending {
            aborted: outcomes.entry(producer_id, marker.offset)?,
            ..stays
        })
    }
}
