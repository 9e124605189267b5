//! Builds Arrow columns. Writes values that a whole batch shares once per batch, all others once per record.

use super::pool::{Pool, lend};
use super::{ArrowOptions, Column, header_field, header_fields, schema};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::LimitName;
use crate::log::{Log, sequence_of};
use crate::memory;
use arrow_array::{
    ArrayRef, BinaryArray, Int32Array, Int64Array, ListArray, RecordBatch, RecordBatchOptions,
    StringArray, StructArray, TimestampMicrosecondArray,
};
use arrow_buffer::{BooleanBufferBuilder, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, SchemaRef};
use offsetlog_format::copy::extend;
use offsetlog_format::{BatchHeader, Headers, RecordView};
use std::collections::VecDeque;
use std::sync::Arc;

/// A record larger than this may be larger than the free memory.
const LARGE_BYTES: usize = 1 << 20;

/// The columns of the current record batch.
#[derive(Debug)]
pub(super) struct Columns {
    order: Vec<Column>,
    schema: SchemaRef,
    pub(super) options: ArrowOptions,
    pool: Arc<Pool>,
    pub(super) rows: usize,
    pub(super) bytes: usize,
    /// First row of the current Kafka batch. The values that its rows share are written in [`end`](Self::end).
    run_start: usize,
    batch: Option<(Log, BatchHeader)>,
    pub(super) key: Option<Bytes>,
    pub(super) value: Option<Bytes>,
    pub(super) offset: Option<Vec<i64>>,
    pub(super) timestamp: Option<Timestamps>,
    pub(super) headers: Option<HeaderLists>,
    pub(super) sequence: Option<Vec<i32>>,
    topic: Option<Bytes>,
    partition: Option<Vec<i32>>,
    timestamp_type: Option<Vec<i32>>,
    leader_epoch: Option<Vec<i32>>,
    producer_id: Option<Vec<i64>>,
    producer_epoch: Option<Vec<i32>>,
}

impl Columns {
    pub(super) fn new(order: &[Column], options: &ArrowOptions, pool: Arc<Pool>) -> Self {
        let has = |column| order.contains(&column);
        let bytes = |column| has(column).then(Bytes::new);
        let ints = |column| has(column).then(Vec::new);
        Self {
            schema: schema(order),
            order: order.to_vec(),
            options: *options,
            rows: 0,
            bytes: 0,
            run_start: 0,
            batch: None,
            key: bytes(Column::Key),
            value: bytes(Column::Value),
            topic: bytes(Column::Topic),
            offset: has(Column::Offset).then(Vec::new),
            timestamp: has(Column::Timestamp).then(Timestamps::default),
            headers: has(Column::Headers).then(HeaderLists::default),
            sequence: ints(Column::Sequence),
            partition: ints(Column::Partition),
            timestamp_type: ints(Column::TimestampType),
            leader_epoch: ints(Column::LeaderEpoch),
            producer_id: has(Column::ProducerId).then(Vec::new),
            producer_epoch: ints(Column::ProducerEpoch),
            pool,
        }
    }

    /// Whether a column needs decoded records, not only their offsets.
    pub(super) const fn needs_records(&self) -> bool {
        self.key.is_some()
            || self.value.is_some()
            || self.timestamp.is_some()
            || self.headers.is_some()
            || self.sequence.is_some()
    }

    pub(super) const fn needs_offsets(&self) -> bool {
        self.offset.is_some()
    }

    /// Whether the current record batch has a null key, value or timestamp.
    pub(super) fn has_nulls(&self) -> bool {
        let bytes = [&self.key, &self.value].into_iter().flatten();
        let timestamps = self.timestamp.iter().map(|column| &column.validity);
        let mut all = bytes.map(|column| &column.validity).chain(timestamps);
        all.any(|validity| validity.0.is_some())
    }

    pub(super) const fn is_full(&self) -> bool {
        self.rows >= self.options.batch_rows || self.bytes >= self.options.batch_bytes
    }

    /// Starts a Kafka batch: the next records belong to it.
    pub(super) fn begin(&mut self, log: &Log, header: &BatchHeader) {
        self.run_start = self.rows;
        self.batch = Some((log.clone(), *header));
    }

    /// Takes buffers from the pool for the columns of bytes that have none.
    pub(super) fn prepare(&mut self) {
        for column in [&mut self.key, &mut self.value].into_iter().flatten() {
            column.prepare(&self.pool);
        }
    }

    /// Adds a record.
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "once a record; as a call it would write and read again each field of the view"
    )]
    pub(super) fn push(&mut self, record: &RecordView<'_>) -> Result<()> {
        let size = record.key.map_or(0, <[u8]>::len)
            + record.value.map_or(0, <[u8]>::len)
            + record.headers.encoded().len();
        if self.rows == 0 {
            self.prepare();
        }
        if size > LARGE_BYTES || self.bytes > LARGE_BYTES {
            self.make_room(record, size)?;
        }
        if let Some(key) = &mut self.key {
            key.push(record.key);
        }
        if let Some(value) = &mut self.value {
            value.push(record.value);
        }
        if let Some(offset) = &mut self.offset {
            offset.push(record.offset);
        }
        if let Some(timestamp) = &mut self.timestamp {
            timestamp.push(record.timestamp);
        }
        if let Some(headers) = &mut self.headers {
            headers.push(record.headers);
        }
        if let (Some(sequence), Some((_, header))) = (&mut self.sequence, &self.batch) {
            sequence.push(sequence_of(header, record.offset));
        }
        self.bytes += size;
        self.rows += 1;
        Ok(())
    }

    /// Reserves memory for a large record, or for more in a large record batch; fails if there is not enough, or if offsets of 32 bits
    /// do not reach as far.
    #[inline(never)]
    fn make_room(&mut self, record: &RecordView<'_>, size: usize) -> Result<()> {
        if self.bytes + size > i32::MAX as usize {
            return Err(Error::new(ErrorKind::Limit {
                name: LimitName::ArrowBatchBytes,
                limit: i32::MAX as u64,
                seen: (self.bytes + size) as u64,
            }));
        }
        if size <= LARGE_BYTES {
            return Ok(());
        }
        for (column, bytes) in [(&mut self.key, record.key), (&mut self.value, record.value)] {
            if let (Some(column), Some(bytes)) = (column, bytes) {
                memory::reserve(&mut column.values, bytes.len())?;
            }
        }
        if let Some(headers) = &mut self.headers {
            // Replacement characters can triple the length of a name that is not UTF-8.
            memory::reserve(&mut headers.keys, 3 * record.headers.encoded().len())?;
            memory::reserve(&mut headers.values, record.headers.encoded().len())?;
        }
        Ok(())
    }

    /// Adds all records of a batch with consecutive offsets. Only for columns that need nothing else of a record.
    pub(super) fn push_offsets(
        &mut self,
        first: i64,
        last: i64,
        ready: &mut VecDeque<RecordBatch>,
    ) -> Result<()> {
        let mut next = first;
        while next <= last {
            let room = self.options.batch_rows.saturating_sub(self.rows).max(1);
            let stop = last.min(next.saturating_add(room as i64 - 1));
            if let Some(offset) = &mut self.offset {
                offset.extend(next..=stop);
            }
            self.rows += (stop - next + 1) as usize;
            if self.is_full() {
                ready.extend(self.finish()?);
            }
            next = stop + 1;
        }
        self.end();
        Ok(())
    }

    /// Adds `count` records. Only for columns whose values the whole batch shares.
    pub(super) fn push_rows(
        &mut self,
        mut count: u64,
        ready: &mut VecDeque<RecordBatch>,
    ) -> Result<()> {
        while count > 0 {
            let room = self.options.batch_rows.saturating_sub(self.rows).max(1);
            let added = count.min(room as u64);
            self.rows += added as usize;
            count -= added;
            if self.is_full() {
                ready.extend(self.finish()?);
            }
        }
        self.end();
        Ok(())
    }

    /// Writes the shared values for all records pushed since [`begin`](Self::begin).
    pub(super) fn end(&mut self) {
        let count = self.rows - self.run_start;
        self.run_start = self.rows;
        let Some((log, header)) = self.batch.as_ref().filter(|_| count > 0) else {
            return;
        };
        let repeat = |column: &mut Option<Vec<i32>>, value: i32| {
            if let Some(column) = column {
                column.resize(column.len() + count, value);
            }
        };
        repeat(&mut self.partition, log.partition());
        repeat(&mut self.timestamp_type, header.timestamp_type() as i32);
        repeat(&mut self.leader_epoch, header.leader_epoch);
        repeat(&mut self.producer_epoch, i32::from(header.producer_epoch));
        if let Some(column) = &mut self.producer_id {
            column.resize(column.len() + count, header.producer_id);
        }
        if let Some(column) = &mut self.topic {
            column.prepare(&self.pool);
            column.repeat(log.topic().as_bytes(), count);
        }
    }

    /// Returns the record batch unless it is empty, and starts the next one within the same Kafka batch.
    pub(super) fn finish(&mut self) -> Result<Option<RecordBatch>> {
        self.end();
        if self.rows == 0 {
            return Ok(None);
        }
        let arrays = self
            .order
            .clone()
            .into_iter()
            .map(|column| self.take(column));
        let arrays: Vec<ArrayRef> = arrays.collect::<Result<_, _>>().map_err(arrow_error)?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)
            .map_err(arrow_error)?;
        self.rows = 0;
        self.bytes = 0;
        self.run_start = 0;
        Ok(Some(batch))
    }

    fn take(&mut self, column: Column) -> Result<ArrayRef, ArrowError> {
        fn ints(column: &mut Option<Vec<i32>>) -> ArrayRef {
            let column = column.as_mut().map(take_vec).unwrap_or_default();
            Arc::new(Int32Array::new(column.into(), None))
        }
        fn longs(column: &mut Option<Vec<i64>>) -> ArrayRef {
            let column = column.as_mut().map(take_vec).unwrap_or_default();
            Arc::new(Int64Array::new(column.into(), None))
        }
        let binary = |column: &mut Option<Bytes>| -> Result<ArrayRef, ArrowError> {
            let (offsets, values, nulls) = column
                .as_mut()
                .map(|column| column.take(&self.pool))
                .unwrap_or_default();
            Ok(Arc::new(BinaryArray::try_new(offsets, values, nulls)?))
        };
        Ok(match column {
            Column::Key => binary(&mut self.key)?,
            Column::Value => binary(&mut self.value)?,
            Column::Topic => {
                let topic = self.topic.as_mut().map(|column| column.take(&self.pool));
                let (offsets, values, nulls) = topic.unwrap_or_default();
                Arc::new(StringArray::try_new(offsets, values, nulls)?)
            }
            Column::Offset => longs(&mut self.offset),
            Column::ProducerId => longs(&mut self.producer_id),
            Column::Partition => ints(&mut self.partition),
            Column::TimestampType => ints(&mut self.timestamp_type),
            Column::LeaderEpoch => ints(&mut self.leader_epoch),
            Column::ProducerEpoch => ints(&mut self.producer_epoch),
            Column::Sequence => ints(&mut self.sequence),
            Column::Timestamp => {
                let (values, nulls) = self
                    .timestamp
                    .as_mut()
                    .map(Timestamps::take)
                    .unwrap_or_default();
                let array = TimestampMicrosecondArray::try_new(values.into(), nulls)?;
                Arc::new(array.with_timezone("UTC"))
            }
            Column::Headers => match &mut self.headers {
                Some(headers) => Arc::new(headers.take()?),
                None => Arc::new(HeaderLists::default().take()?),
            },
        })
    }
}

#[allow(clippy::needless_pass_by_value, reason = "a converter for `map_err`")]
fn arrow_error(error: ArrowError) -> Error {
    // Arrow validates the arrays, including the text of topic names. Its error says what it found.
    Error::argument("arrow", error.to_string())
}

/// Empties a vector. Its replacement has the same capacity.
fn take_vec<T>(vec: &mut Vec<T>) -> Vec<T> {
    let capacity = vec.len();
    std::mem::replace(vec, Vec::with_capacity(capacity))
}

/// A validity bitmap, created at the first null.
#[derive(Debug, Default)]
struct Validity(Option<BooleanBufferBuilder>);

impl Validity {
    #[inline]
    fn push(&mut self, rows_before: usize, valid: bool) {
        match &mut self.0 {
            Some(bits) => bits.append(valid),
            None if valid => {}
            None => self.begin(rows_before),
        }
    }

    #[cold]
    fn begin(&mut self, rows_before: usize) {
        let mut bits = BooleanBufferBuilder::new(rows_before + 1024);
        bits.append_n(rows_before, true);
        bits.append(false);
        self.0 = Some(bits);
    }

    /// Adds so many nulls.
    fn push_nulls(&mut self, rows_before: usize, count: usize) {
        if count == 0 {
            return;
        }
        if self.0.is_none() {
            self.begin(rows_before);
            return self.push_nulls(rows_before + 1, count - 1);
        }
        if let Some(bits) = &mut self.0 {
            bits.append_n(count, false);
        }
    }

    fn take(&mut self) -> Option<NullBuffer> {
        self.0.take().map(|mut bits| NullBuffer::new(bits.finish()))
    }
}

/// Variable-length bytes.
#[derive(Debug)]
pub(super) struct Bytes {
    pub(super) offsets: Vec<i32>,
    pub(super) values: Vec<u8>,
    validity: Validity,
    /// Bytes of the record batch before: about as many come until this one is full.
    likely: usize,
}

type BytesParts = (OffsetBuffer<i32>, Buffer, Option<NullBuffer>);

impl Bytes {
    fn new() -> Self {
        Self {
            offsets: vec![0],
            values: Vec::new(),
            validity: Validity::default(),
            likely: 0,
        }
    }

    /// Takes a buffer from the pool if there is none yet.
    fn prepare(&mut self, pool: &Pool) {
        if self.values.capacity() == 0 {
            self.values = pool.take(self.likely);
        }
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "as `Columns::push`")]
    fn push(&mut self, bytes: Option<&[u8]>) {
        self.validity.push(self.offsets.len() - 1, bytes.is_some());
        extend(&mut self.values, bytes.unwrap_or(&[]));
        self.offsets.push(self.values.len() as i32);
    }

    fn repeat(&mut self, bytes: &[u8], count: usize) {
        let mut end = self.values.len();
        for _ in 0..count {
            end += bytes.len();
            self.offsets.push(end as i32);
        }
        // Doubling the run makes few large copies instead of one small copy per row.
        let start = self.values.len();
        let goal = count * bytes.len();
        self.values.reserve(goal);
        self.values.extend_from_slice(bytes);
        while self.values.len() - start < goal {
            let done = self.values.len() - start;
            let more = done.min(goal - done);
            self.values.extend_from_within(start..start + more);
        }
    }

    fn take(&mut self, pool: &Arc<Pool>) -> BytesParts {
        let capacity = self.offsets.len();
        let offsets = std::mem::replace(&mut self.offsets, Vec::with_capacity(capacity));
        self.offsets.push(0);
        let values = std::mem::take(&mut self.values);
        self.likely = values.len();
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        (offsets, lend(values, pool), self.validity.take())
    }
}

/// Timestamps in microseconds.
#[derive(Debug, Default)]
pub(super) struct Timestamps {
    pub(super) values: Vec<i64>,
    validity: Validity,
}

impl Timestamps {
    #[inline]
    fn push(&mut self, milliseconds: i64) {
        let microseconds = milliseconds.checked_mul(1000);
        self.validity
            .push(self.values.len(), microseconds.is_some());
        self.values.push(microseconds.unwrap_or(0));
    }

    fn take(&mut self) -> (Vec<i64>, Option<NullBuffer>) {
        (take_vec(&mut self.values), self.validity.take())
    }
}

/// Lists of headers.
#[derive(Debug)]
pub(super) struct HeaderLists {
    offsets: Vec<i32>,
    lists: Validity,
    key_offsets: Vec<i32>,
    keys: Vec<u8>,
    value_offsets: Vec<i32>,
    values: Vec<u8>,
    nulls: Validity,
}

impl Default for HeaderLists {
    fn default() -> Self {
        Self {
            offsets: vec![0],
            lists: Validity::default(),
            key_offsets: vec![0],
            keys: Vec::new(),
            value_offsets: vec![0],
            values: Vec::new(),
            nulls: Validity::default(),
        }
    }
}

impl HeaderLists {
    #[inline]
    fn push(&mut self, headers: Headers<'_>) {
        self.lists.push(self.offsets.len() - 1, !headers.is_empty());
        if !headers.is_empty() {
            for (key, value) in headers.iter() {
                // Keys are text in Spark's schema. Bytes that are not UTF-8 become replacement characters, as in Java.
                self.keys
                    .extend_from_slice(String::from_utf8_lossy(key).as_bytes());
                self.key_offsets.push(self.keys.len() as i32);
                self.nulls
                    .push(self.value_offsets.len() - 1, value.is_some());
                self.values.extend_from_slice(value.unwrap_or(&[]));
                self.value_offsets.push(self.values.len() as i32);
            }
        }
        self.offsets.push((self.key_offsets.len() - 1) as i32);
    }

    /// Adds so many rows without headers.
    pub(super) fn push_none(&mut self, count: usize) {
        let rows = self.offsets.len() - 1;
        self.lists.push_nulls(rows, count);
        let end = (self.key_offsets.len() - 1) as i32;
        self.offsets.resize(self.offsets.len() + count, end);
    }

    fn take(&mut self) -> Result<ListArray, ArrowError> {
        let taken = std::mem::take(self);
        let offsets = |offsets: Vec<i32>| OffsetBuffer::new(ScalarBuffer::from(offsets));
        let mut nulls = taken.nulls;
        let mut lists = taken.lists;
        let keys = StringArray::try_new(
            offsets(taken.key_offsets),
            Buffer::from_vec(taken.keys),
            None,
        )?;
        let values = BinaryArray::try_new(
            offsets(taken.value_offsets),
            Buffer::from_vec(taken.values),
            nulls.take(),
        )?;
        let arrays: Vec<ArrayRef> = vec![Arc::new(keys), Arc::new(values)];
        let structs = StructArray::try_new(header_fields(), arrays, None)?;
        ListArray::try_new(
            Arc::new(header_field()),
            offsets(taken.offsets),
            Arc::new(structs),
            lists.take(),
        )
    }
}
