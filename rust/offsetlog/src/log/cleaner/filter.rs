//! Decides for each batch: copy it, rewrite it, keep only its header, or drop it.
//!
//! Source: Kafka's `Cleaner.cleanInto` and `MemoryRecords.filterTo`.

use super::Plan;
use super::fingerprint::Fingerprint;
use super::offset_map::{OffsetMap, TOGETHER};
use super::replaced::Replaced;
use super::rewrite::{Rest, Rewriter, write_empty};
use super::tally::Remains;
use super::transactions::Data;
use crate::codec::Decompressor;
use crate::error::Result;
use crate::records::Records;
use offsetlog_format::{BatchHeader, RecordView};

/// The inputs of all decisions in one pass.
#[derive(Debug, Clone, Copy)]
pub(super) struct CleanContext<'p> {
    pub(super) plan: &'p Plan,
    pub(super) map: &'p OffsetMap,
    pub(super) replaced: &'p Replaced,
    /// Records from this offset on are not in the map.
    pub(super) end: i64,
    /// Whether tombstones of magic 0 and 1 in this segment are too young to delete.
    pub(super) keeps_old_tombstones: bool,
}

/// What the transactions say about a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    /// Outcome of a data batch's transaction.
    pub(super) data: Data,
    /// For a control batch: the pass saw no data of its transaction.
    pub(super) ended_before: bool,
}

/// Number of records read and kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) read: u64,
    pub(super) kept: u64,
}

/// The decision about a record.
enum Verdict {
    Stays,
    Goes,
    /// Stays unless the map has a later record with this key.
    StaysUnless(Fingerprint),
}

/// A record whose key must be looked up in the map.
#[derive(Debug, Clone, Copy)]
struct Open {
    slot: usize,
    offset: i64,
    fingerprint: Fingerprint,
    is_tombstone: bool,
}

/// The decisions about the records of a batch.
#[derive(Debug, Default)]
struct Verdicts {
    /// Whether each record is kept.
    keeps: Vec<bool>,
    kept: usize,
    /// Whether a kept record is a tombstone.
    has_tombstone: bool,
    /// Records that wait for the next look-up in the map.
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

/// What became of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cleaned {
    /// The header of the batch that was written; `None` if nothing remains.
    pub(super) header: Option<BatchHeader>,
    pub(super) counts: Counts,
}

/// Filters batches. Reuses its contexts and buffers from batch to batch.
pub(super) struct Filter {
    decompressor: Decompressor,
    rewriter: Rewriter,
    verdicts: Verdicts,
    limit: u64,
}

impl Filter {
    pub(super) fn new(limit: u64) -> Self {
        Self {
            decompressor: Decompressor::new(),
            rewriter: Rewriter::new(),
            verdicts: Verdicts::default(),
            limit,
        }
    }

    /// Appends what remains of a batch to `out` of which it was noted which records stay, and counted how many: some, and not all. So no
    /// record is looked up in the map. `None` if the batch is not as it was then: [`clean`](Self::clean) says what is wrong with it.
    pub(super) fn clean_counted(
        &mut self,
        context: &CleanContext<'_>,
        header: &BatchHeader,
        bytes: &[u8],
        counts: Counts,
        out: &mut Vec<u8>,
    ) -> Option<Cleaned> {
        let start = out.len();
        let kept = i32::try_from(counts.kept).ok()?;
        // All its records are between these.
        context.replaced.has(header.base_offset?)?;
        context.replaced.has(header.last_offset)?;
        if u64::try_from(header.record_count) != Ok(counts.read) || header.check_crc(bytes).is_err()
        {
            return None;
        }
        let records = Records::open(header, bytes, &mut self.decompressor, self.limit).ok()?;
        let add_all = |rest: &mut Rest<'_>| {
            records.for_each(|record| {
                if context.replaced.has(record.offset) == Some(false) {
                    rest.add(record);
                }
            })?;
            Ok(())
        };
        match self.rewriter.write(header, None, add_all, out) {
            Ok(written) if written.record_count == kept => Some(Cleaned {
                header: Some(written),
                counts,
            }),
            _ => {
                out.truncate(start);
                None
            }
        }
    }

    /// Appends what remains of a batch to `out`.
    pub(super) fn clean(
        &mut self,
        context: &CleanContext<'_>,
        header: &BatchHeader,
        bytes: &[u8],
        standing: Standing,
        out: &mut Vec<u8>,
    ) -> Result<Cleaned> {
        let now = context.plan.now;
        let is_control = header.attributes.is_control();
        let horizon = (header.magic == 2 && header.attributes.has_delete_horizon())
            .then_some(header.base_timestamp);
        let is_over = horizon.is_some_and(|horizon| horizon <= now);
        let is_discarded = if is_control {
            standing.ended_before && is_over
        } else {
            standing.data == Data::Aborted
        };
        if is_discarded {
            let read = u64::try_from(header.record_count).unwrap_or(0);
            return Ok(context.drop_all(header, read, out));
        }
        let records = Records::open(header, bytes, &mut self.decompressor, self.limit)?;
        let keeps_all = is_control || standing.data == Data::Doubtful;
        let verdict = |record: &RecordView<'_>| {
            if keeps_all {
                Verdict::Stays
            } else {
                context.verdict(header, record, is_over)
            }
        };
        self.verdicts.find(context.map, records.clone(), verdict)?;
        let Verdicts {
            ref keeps,
            kept,
            has_tombstone,
            ..
        } = self.verdicts;
        let counts = Counts {
            read: keeps.len() as u64,
            kept: kept as u64,
        };
        if kept == 0 {
            return Ok(context.drop_all(header, counts.read, out));
        }
        let begins_horizon = horizon.is_none() && (has_tombstone || standing.ended_before);
        if kept == keeps.len() && header.magic == 2 && !begins_horizon {
            out.extend_from_slice(bytes);
            return Ok(Cleaned {
                header: Some(*header),
                counts,
            });
        }
        // The rewritten batch gets a new checksum, which must not hide damage in the old one.
        header.check_crc(bytes)?;
        let horizon = if begins_horizon {
            let from = context.plan.horizon_from;
            Some(from.saturating_add(context.plan.config.delete_retention_ms()))
        } else {
            horizon
        };
        let mut verdicts = keeps.iter();
        let add_all = |rest: &mut Rest<'_>| {
            records.for_each(|record| {
                if verdicts.next() != Some(&false) {
                    rest.add(record);
                }
            })?;
            Ok(())
        };
        let written = self.rewriter.write(header, horizon, add_all, out)?;
        Ok(Cleaned {
            header: Some(written),
            counts,
        })
    }
}

impl CleanContext<'_> {
    /// Appends a batch to `out` of which nothing or everything stays. Only `All` needs its bytes.
    pub(super) fn clean_known(
        &self,
        header: &BatchHeader,
        bytes: &[u8],
        (remains, records): (Remains, u32),
        out: &mut Vec<u8>,
    ) -> Cleaned {
        let records = u64::from(records);
        if remains == Remains::Nothing {
            return self.drop_all(header, records, out);
        }
        out.extend_from_slice(bytes);
        Cleaned {
            header: Some(*header),
            counts: Counts {
                read: records,
                kept: records,
            },
        }
    }

    /// Leaves out all records of a batch.
    fn drop_all(&self, header: &BatchHeader, read: u64, out: &mut Vec<u8>) -> Cleaned {
        let stays = self.stays_empty(header);
        Cleaned {
            header: stays.then(|| write_empty(header, out)),
            counts: Counts { read, kept: 0 },
        }
    }

    /// Whether a record is kept, by its key.
    #[inline]
    fn verdict(&self, header: &BatchHeader, record: &RecordView<'_>, is_over: bool) -> Verdict {
        if record.offset >= self.end {
            return Verdict::Stays;
        }
        // A broker accepts no record without a key in a compacted topic. One from before compaction was enabled is deleted.
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

    /// Whether the batch's header is kept even without records: for a producer's last batch, which has its sequence or epoch,
    /// and for the last batch before `first_uncleanable`, which has the offset.
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

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
