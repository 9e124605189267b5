//! What becomes of one batch: copied as it is, written anew, emptied, or left out.
//!
//! Source: Kafka's `Cleaner.cleanInto` and `MemoryRecords.filterTo`.

use super::Plan;
use super::fingerprint::Fingerprint;
use super::offset_map::{OffsetMap, TOGETHER};
use super::output::Output;
use super::rewrite::{Rewriter, write_empty};
use super::transactions::Data;
use crate::codec::Decompressor;
use crate::error::Result;
use crate::records::Records;
use offsetlog_format::{BatchHeader, RecordView};

/// What decides about records in one pass.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms<'p> {
    pub(super) plan: &'p Plan,
    pub(super) map: &'p OffsetMap,
    /// From here on records are not in the map.
    pub(super) end: i64,
    /// Whether tombstones of magic 0 and 1 are too young to go.
    pub(super) keeps_old_tombstones: bool,
}

/// What the transaction of a batch says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    /// Of a data batch.
    pub(super) data: Data,
    /// A control batch of whose transaction nothing was seen.
    pub(super) ended_before: bool,
}

/// Records that were looked at and kept.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) read: u64,
    pub(super) kept: u64,
}

/// What is to become of a record.
enum Verdict {
    Stays,
    Goes,
    /// Unless the map knows a later one with this key.
    StaysUnless(Fingerprint),
}

/// A record of a batch that the map is to be asked about.
#[derive(Debug, Clone, Copy)]
struct Open {
    slot: usize,
    offset: i64,
    fingerprint: Fingerprint,
    is_tombstone: bool,
}

/// What becomes of the records of a batch.
#[derive(Debug, Default)]
struct Verdicts {
    /// Whether each one is kept.
    keeps: Vec<bool>,
    kept: usize,
    /// Whether one that is kept is a tombstone.
    has_tombstone: bool,
    /// Those that the map is about to be asked about.
    open: Vec<Open>,
}

impl Verdicts {
    fn find(
        &mut self,
        map: &OffsetMap,
        mut records: Records<'_>,
        verdict: impl Fn(&RecordView<'_>) -> Verdict,
    ) -> Result<()> {
        self.keeps.clear();
        self.kept = 0;
        self.has_tombstone = false;
        self.open.clear();
        while let Some(record) = records.next_record()? {
            let verdict = verdict(&record);
            let is_tombstone = record.value.is_none();
            if let Verdict::StaysUnless(fingerprint) = verdict {
                self.open.push(Open {
                    slot: self.keeps.len(),
                    offset: record.offset,
                    fingerprint,
                    is_tombstone,
                });
            }
            let keeps = matches!(verdict, Verdict::Stays);
            self.note(keeps, is_tombstone);
            self.keeps.push(keeps);
            if self.open.len() == TOGETHER {
                self.ask(map);
            }
        }
        self.ask(map);
        Ok(())
    }

    fn ask(&mut self, map: &OffsetMap) {
        let open = std::mem::take(&mut self.open);
        map.fetch(open.iter().map(|open| open.fingerprint));
        for record in &open {
            let last = map.get(record.fingerprint);
            if last.is_none_or(|last| last <= record.offset) {
                self.note(true, record.is_tombstone);
                if let Some(keeps) = self.keeps.get_mut(record.slot) {
                    *keeps = true;
                }
            }
        }
        self.open = open;
        self.open.clear();
    }

    fn note(&mut self, keeps: bool, is_tombstone: bool) {
        self.kept += usize::from(keeps);
        self.has_tombstone |= keeps && is_tombstone;
    }
}

/// Contexts and buffers, kept from batch to batch.
pub(super) struct Filter {
    decompressor: Decompressor,
    rewriter: Rewriter,
    verdicts: Verdicts,
    pub(super) counts: Counts,
    limit: u64,
}

impl Filter {
    pub(super) fn new(limit: u64) -> Self {
        Self {
            decompressor: Decompressor::new(),
            rewriter: Rewriter::new(),
            verdicts: Verdicts::default(),
            counts: Counts::default(),
            limit,
        }
    }

    /// Appends to `out` what is left of a batch.
    pub(super) fn clean(
        &mut self,
        terms: &Terms<'_>,
        header: &BatchHeader,
        bytes: &[u8],
        standing: Standing,
        out: &mut Output,
    ) -> Result<()> {
        let now = terms.plan.now;
        let is_control = header.attributes.is_control();
        let horizon = (header.magic == 2 && header.attributes.has_delete_horizon())
            .then_some(header.base_timestamp);
        let is_over = horizon.is_some_and(|horizon| horizon <= now);
        let is_discarded = if is_control {
            standing.ended_before && is_over
        } else {
            standing.data == Data::Aborted
        };
        let stays_empty = terms.stays_empty(header);
        if is_discarded {
            self.counts.read += u64::try_from(header.record_count).unwrap_or(0);
            return if stays_empty {
                let empty = write_empty(header, out.room());
                out.appended(&empty)
            } else {
                Ok(())
            };
        }
        let records = Records::open(header, bytes, &mut self.decompressor, self.limit)?;
        let keeps_all = is_control || standing.data == Data::Doubtful;
        let verdict = |record: &RecordView<'_>| {
            if keeps_all {
                Verdict::Stays
            } else {
                terms.verdict(header, record, is_over)
            }
        };
        self.verdicts.find(terms.map, records.clone(), verdict)?;
        let Verdicts {
            ref keeps,
            kept,
            has_tombstone,
            ..
        } = self.verdicts;
        self.counts.read += keeps.len() as u64;
        self.counts.kept += kept as u64;
        if kept == 0 {
            return if stays_empty {
                let empty = write_empty(header, out.room());
                out.appended(&empty)
            } else {
                Ok(())
            };
        }
        let begins_horizon = horizon.is_none() && (has_tombstone || standing.ended_before);
        if kept == keeps.len() && header.magic == 2 && !begins_horizon {
            out.room().extend_from_slice(bytes);
            return out.appended(header);
        }
        // A new checksum would vouch for what is wrong by now.
        header.check_crc(bytes)?;
        let horizon = if begins_horizon {
            Some(now.saturating_add(terms.plan.config.delete_retention_ms()))
        } else {
            horizon
        };
        let mut rest = records;
        let mut verdicts = keeps.iter();
        let next = || loop {
            match (rest.next_record()?, verdicts.next()) {
                (Some(_), Some(false)) => {}
                (record, _) => return Ok(record),
            }
        };
        let written = self.rewriter.write(header, horizon, next, out.room())?;
        out.appended(&written)
    }
}

impl Terms<'_> {
    /// Whether a record stays for its key's sake.
    #[inline]
    fn verdict(&self, header: &BatchHeader, record: &RecordView<'_>, is_over: bool) -> Verdict {
        if record.offset >= self.end {
            return Verdict::Stays;
        }
        // A broker takes no record without key into a compacted topic; one from before the topic was compacted goes.
        let Some(key) = record.key else {
            return Verdict::Goes;
        };
        let tombstones_stay = if header.magic == 2 {
            !is_over
        } else {
            self.keeps_old_tombstones
        };
        if record.value.is_some() || tombstones_stay {
            Verdict::StaysUnless(self.map.fingerprint(key))
        } else {
            Verdict::Goes
        }
    }

    /// Whether a batch stays even without records: the last one of a producer, for its sequence or epoch, and the last one below the
    /// part that is not cleaned, for its offset.
    fn stays_empty(&self, header: &BatchHeader) -> bool {
        let last = (header.producer_id >= 0)
            .then(|| self.plan.producers.get(&header.producer_id))
            .flatten();
        let is_last_of_producer = last.is_some_and(|last| match last.data_offset {
            Some(offset) => header.last_offset == offset,
            None => header.attributes.is_control() && header.producer_epoch == last.producer_epoch,
        });
        is_last_of_producer || header.last_offset.saturating_add(1) == self.plan.first_uncleanable
    }
}
