//! A digest of rows: the same for the same records, in any order and in any record batches.

use super::kept::Kept;
use super::rows::{Header, Rows};
use twox_hash::XxHash3_128;

/// Hashes each record with every field behind its length, so that different records never give the same bytes.
#[derive(Debug, Default)]
pub(super) struct Digest {
    bytes: Vec<u8>,
    sum: u128,
}

impl Digest {
    /// Adds the rows of one record batch.
    pub(super) fn add(&mut self, rows: &Rows, kept: Option<&Kept>) {
        let mut headers: Vec<Header<'_>> = Vec::new();
        for at in 0..rows.len() {
            let row = rows.row(at, &mut headers);
            self.bytes.clear();
            self.number(row.timestamp);
            let (offset, epoch) = kept.map_or((None, None), |kept| {
                let (offset, epoch) = kept.get(at);
                (Some(offset), epoch)
            });
            self.number(offset);
            self.number(epoch.map(i64::from));
            self.field(row.key);
            self.field(row.value);
            for (name, value) in &headers {
                self.field(Some(name));
                self.field(*value);
            }
            // A sum does not depend on order and, unlike an exclusive or, counts duplicates.
            self.sum = self.sum.wrapping_add(XxHash3_128::oneshot(&self.bytes));
        }
    }

    pub(super) const fn sum(&self) -> u128 {
        self.sum
    }

    fn number(&mut self, number: Option<i64>) {
        self.bytes.push(u8::from(number.is_some()));
        self.bytes
            .extend_from_slice(&number.unwrap_or(0).to_le_bytes());
    }

    fn field(&mut self, bytes: Option<&[u8]>) {
        let length = bytes.map_or(u64::MAX, |bytes| bytes.len() as u64);
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(bytes.unwrap_or_default());
    }
}
