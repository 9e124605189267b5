//! Reads the offsets and leader epochs of rows that keep them, to restore a log.

use super::rows::{bad_row, refused};
use crate::error::Result;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use arrow_schema::{DataType, Schema};

/// Positions of the columns.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeptPlaces {
    offset: usize,
    leader_epoch: Option<usize>,
}

/// The columns of one record batch: an offset per row, and perhaps a leader epoch.
#[derive(Debug)]
pub(super) struct Kept {
    offsets: ScalarBuffer<i64>,
    epochs: Option<(ScalarBuffer<i32>, Option<NullBuffer>)>,
}

/// The last offset and leader epoch so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Last {
    offset: i64,
    epoch: Option<i32>,
}

impl KeptPlaces {
    pub(super) fn find(schema: &Schema) -> Result<Self> {
        let place = |name: &str, expected: &DataType| match schema.column_with_name(name) {
            Some((_, field)) if field.data_type() != expected => Err(refused(format!(
                "column {name:?} is {}, {expected} expected",
                field.data_type()
            ))),
            found => Ok(found.map(|(place, _)| place)),
        };
        let offset = place("offset", &DataType::Int64)?;
        Ok(Self {
            offset: offset.ok_or_else(|| {
                refused("no column \"offset\" found, which rows need that keep their offsets")
            })?,
            leader_epoch: place("leaderEpoch", &DataType::Int32)?,
        })
    }
}

impl Kept {
    /// Takes the columns of `batch`, whose first row is row `first` of the data. Fails if a row's offset or epoch cannot follow
    /// `last`.
    pub(super) fn take(
        batch: &RecordBatch,
        places: KeptPlaces,
        first: u64,
        last: &mut Option<Last>,
    ) -> Result<Self> {
        let column = |place: usize| {
            batch
                .columns()
                .get(place)
                .ok_or_else(|| refused("a column is missing"))
        };
        let offsets = column(places.offset)?.as_primitive::<Int64Type>();
        if let Some(nulls) = offsets.nulls()
            && let Some(at) = (0..nulls.len()).find(|at| nulls.is_null(*at))
        {
            return Err(bad_row(first + at as u64, "no offset found"));
        }
        let epochs = match places.leader_epoch {
            Some(place) => {
                let epochs = column(place)?.as_primitive::<Int32Type>();
                Some((epochs.values().clone(), epochs.nulls().cloned()))
            }
            None => None,
        };
        let kept = Self {
            offsets: offsets.values().clone(),
            epochs,
        };
        for at in 0..batch.num_rows() {
            let (offset, epoch) = kept.get(at);
            let row = first + at as u64;
            let minimum = last.map_or(0, |last| last.offset.saturating_add(1));
            if offset < minimum || offset == i64::MAX {
                return Err(bad_row(
                    row,
                    format!(
                        "offset {offset} found, {minimum} or more expected: rows that keep their offsets come in their order"
                    ),
                ));
            }
            let before = last.and_then(|last| last.epoch);
            if let Some(epoch) = epoch
                && epoch < before.unwrap_or(0)
            {
                return Err(bad_row(
                    row,
                    format!("leader epoch {epoch} found behind {}", before.unwrap_or(0)),
                ));
            }
            *last = Some(Last {
                offset,
                epoch: epoch.or(before),
            });
        }
        Ok(kept)
    }

    /// Offset and leader epoch of a row. An epoch that is null or -1 is unknown.
    #[inline]
    pub(super) fn get(&self, at: usize) -> (i64, Option<i32>) {
        let offset = self.offsets.get(at).copied().unwrap_or(-1);
        let epoch = self.epochs.as_ref().and_then(|(epochs, nulls)| {
            let is_null = nulls.as_ref().is_some_and(|nulls| nulls.is_null(at));
            epochs
                .get(at)
                .copied()
                .filter(|&epoch| !is_null && epoch != -1)
        });
        (offset, epoch)
    }
}
