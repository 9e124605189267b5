//! Copies of decompressed records, for an append that is encoded again: the next batch overwrites the decompressor's buffer.

use offsetlog_format::RecordView;
use offsetlog_format::builder::NewRecord;
use std::ops::Range;

/// Records copied out of a decompressor's buffer.
#[derive(Debug, Default)]
pub(super) struct OwnedRecords {
    bytes: Vec<u8>,
    fields: Vec<Fields>,
    headers: Vec<(Range<usize>, Option<Range<usize>>)>,
}

#[derive(Debug)]
struct Fields {
    timestamp: i64,
    key: Option<Range<usize>>,
    value: Option<Range<usize>>,
    headers: Range<usize>,
}

pub(super) type HeaderView<'a> = (&'a [u8], Option<&'a [u8]>);

impl OwnedRecords {
    pub(super) const fn len(&self) -> usize {
        self.fields.len()
    }

    fn keep(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    pub(super) fn push(&mut self, record: &RecordView<'_>) {
        let key = record.key.map(|key| self.keep(key));
        let value = record.value.map(|value| self.keep(value));
        let first = self.headers.len();
        for (name, value) in record.headers.iter() {
            let name = self.keep(name);
            let value = value.map(|value| self.keep(value));
            self.headers.push((name, value));
        }
        self.fields.push(Fields {
            timestamp: record.timestamp,
            key,
            value,
            headers: first..self.headers.len(),
        });
    }

    fn view(&self, range: &Range<usize>) -> &[u8] {
        self.bytes.get(range.clone()).unwrap_or(&[])
    }

    pub(super) fn headers(&self) -> Vec<HeaderView<'_>> {
        self.headers
            .iter()
            .map(|(name, value)| {
                (
                    self.view(name),
                    value.as_ref().map(|value| self.view(value)),
                )
            })
            .collect()
    }

    pub(super) fn records<'a>(
        &'a self,
        base_offset: i64,
        headers: &'a [HeaderView<'a>],
    ) -> Vec<NewRecord<'a>> {
        self.fields
            .iter()
            .enumerate()
            .map(|(slot, fields)| NewRecord {
                offset: base_offset.saturating_add(slot as i64),
                timestamp: fields.timestamp,
                key: fields.key.as_ref().map(|key| self.view(key)),
                value: fields.value.as_ref().map(|value| self.view(value)),
                headers: headers.get(fields.headers.clone()).unwrap_or(&[]),
            })
            .collect()
    }
}
