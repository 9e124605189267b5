//! Decodes the records that most batches have straight into the columns: with key and value, without headers.
//!
//! Decoder and columns are locals of one loop. No store of a byte can alias those, so the loop keeps them in registers, where
//! [`Columns::push`] reads each column again for every record. What is different goes there: it is the next record afterwards.

use super::columns::Columns;
use offsetlog_format::copy::extend;
use offsetlog_format::v2::RecordsV2;

/// Bytes of a record batch up to which the loop adds to it: offsets of 32 bits reach further than its largest record, whose key and value
/// have lengths of three bytes.
const BYTES_MAX: usize = i32::MAX as usize - (4 << 20);

impl Columns {
    /// Adds the next records of a batch up to one that is different, or until the record batch is full. Returns how many.
    pub(super) fn push_plain(&mut self, records: &mut RecordsV2<'_>) -> usize {
        let Some(most_bytes) = self
            .options
            .batch_bytes
            .min(BYTES_MAX)
            .checked_sub(self.bytes)
        else {
            return 0;
        };
        if self.sequence.is_some() || self.has_nulls() {
            return 0;
        }
        if self.rows == 0 {
            self.prepare();
        }
        let room = self.options.batch_rows.saturating_sub(self.rows);
        let most = records.records_left().min(room);
        let mut decoder = records.clone();
        let mut key = self.key.take();
        let mut value = self.value.take();
        let mut offset = self.offset.take();
        let mut timestamp = self.timestamp.take();
        for column in [&mut key, &mut value].into_iter().flatten() {
            column.offsets.reserve(most);
        }
        if let Some(offset) = &mut offset {
            offset.reserve(most);
        }
        if let Some(timestamp) = &mut timestamp {
            timestamp.values.reserve(most);
        }
        let (mut count, mut bytes) = (0, 0);
        while count < most && bytes < most_bytes {
            let before = decoder.clone();
            let Some(record) = decoder.next_plain() else {
                break;
            };
            let microseconds = record.timestamp.checked_mul(1000);
            let (Some(its_key), Some(its_value), Some(microseconds), true) = (
                record.key,
                record.value,
                microseconds,
                record.headers.is_empty(),
            ) else {
                decoder = before;
                break;
            };
            if let Some(key) = &mut key {
                extend(&mut key.values, its_key);
                key.offsets.push(key.values.len() as i32);
            }
            if let Some(value) = &mut value {
                extend(&mut value.values, its_value);
                value.offsets.push(value.values.len() as i32);
            }
            if let Some(offset) = &mut offset {
                offset.push(record.offset);
            }
            if let Some(timestamp) = &mut timestamp {
                timestamp.values.push(microseconds);
            }
            bytes += its_key.len() + its_value.len();
            count += 1;
        }
        self.key = key;
        self.value = value;
        self.offset = offset;
        self.timestamp = timestamp;
        if let Some(headers) = &mut self.headers {
            headers.push_none(count);
        }
        self.bytes += bytes;
        self.rows += count;
        *records = decoder;
        count
    }
}
