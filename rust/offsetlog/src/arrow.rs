//! Decodes batches straight into Arrow columns, and encodes record batches straight into Kafka batches.
//!
//! The schema is that of Spark's Kafka source: `key` and `value` binary, `topic` string, `partition` and `timestampType` int,
//! `offset` long, `timestamp` in microseconds UTC, `headers` a list of (key, value), all nullable, in that order. Record
//! batches are limited by rows and by bytes. Their large buffers return to a pool when the consumer releases them.

mod append;
mod columns;
mod digest;
mod kept;
mod parallel;
mod plain;
mod pool;
mod rows;

pub use append::{ArrowAppendOptions, ArrowRows};

use crate::error::{Error, Result};
use crate::log::{Batch, Scan};
use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use columns::Columns;
use parallel::Parallel;
use pool::Pool;
use std::collections::VecDeque;
use std::str::FromStr;
use std::sync::Arc;

/// A column of a record batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Column {
    /// The key; null if the record has none.
    Key,
    /// The value; null for a tombstone.
    Value,
    /// The topic.
    Topic,
    /// The partition.
    Partition,
    /// The offset.
    Offset,
    /// The timestamp; -1 ms if the record has none, as in Spark; null if it is out of range for microseconds.
    Timestamp,
    /// 0 create time, 1 log append time, -1 none.
    TimestampType,
    /// Headers; null if the record has none.
    Headers,
    /// Leader epoch, -1 for none.
    LeaderEpoch,
    /// Producer id, -1 for none.
    ProducerId,
    /// Producer epoch, -1 for none.
    ProducerEpoch,
    /// Sequence, -1 for none.
    Sequence,
}

impl Column {
    /// All columns in schema order.
    pub const ALL: [Self; 12] = [
        Self::Key,
        Self::Value,
        Self::Topic,
        Self::Partition,
        Self::Offset,
        Self::Timestamp,
        Self::TimestampType,
        Self::Headers,
        Self::LeaderEpoch,
        Self::ProducerId,
        Self::ProducerEpoch,
        Self::Sequence,
    ];

    /// The columns of Spark's Kafka source with headers.
    pub const DEFAULT: [Self; 8] = [
        Self::Key,
        Self::Value,
        Self::Topic,
        Self::Partition,
        Self::Offset,
        Self::Timestamp,
        Self::TimestampType,
        Self::Headers,
    ];

    /// The column's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Value => "value",
            Self::Topic => "topic",
            Self::Partition => "partition",
            Self::Offset => "offset",
            Self::Timestamp => "timestamp",
            Self::TimestampType => "timestampType",
            Self::Headers => "headers",
            Self::LeaderEpoch => "leaderEpoch",
            Self::ProducerId => "producerId",
            Self::ProducerEpoch => "producerEpoch",
            Self::Sequence => "sequence",
        }
    }

    /// The column's Arrow type.
    #[must_use]
    pub fn data_type(self) -> DataType {
        match self {
            Self::Key | Self::Value => DataType::Binary,
            Self::Topic => DataType::Utf8,
            Self::Offset | Self::ProducerId => DataType::Int64,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Partition
            | Self::TimestampType
            | Self::LeaderEpoch
            | Self::ProducerEpoch
            | Self::Sequence => DataType::Int32,
            Self::Headers => DataType::List(Arc::new(header_field())),
        }
    }
}

impl FromStr for Column {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|column| column.name() == name)
            .ok_or_else(|| {
                let names = Self::ALL.map(Self::name).join(", ");
                Error::argument(
                    "columns",
                    format!("{name:?} found, one of {names} expected"),
                )
            })
    }
}

fn header_fields() -> Fields {
    Fields::from(vec![
        Field::new("key", DataType::Utf8, true),
        Field::new("value", DataType::Binary, true),
    ])
}

fn header_field() -> Field {
    Field::new("element", DataType::Struct(header_fields()), true)
}

/// The schema of record batches with these columns.
#[must_use]
pub fn schema(columns: &[Column]) -> SchemaRef {
    let fields: Vec<_> = columns
        .iter()
        .map(|column| Field::new(column.name(), column.data_type(), true))
        .collect();
    Arc::new(Schema::new(fields))
}

/// Options for the record batches of a scan.
#[derive(Debug, Clone, Copy)]
pub struct ArrowOptions {
    /// Maximum number of rows of a record batch.
    pub batch_rows: usize,
    /// A record batch is full when its keys, values and headers have at least this many bytes. Default: 384 KiB, because
    /// staying in the CPU cache between writing and reading saves more than fewer batches do.
    pub batch_bytes: usize,
    /// Number of threads that decompress and decode. With one, the thread that requests batches does the work; with more, that
    /// thread only reads.
    pub threads: usize,
}

impl Default for ArrowOptions {
    fn default() -> Self {
        Self {
            batch_rows: 32_768,
            batch_bytes: 384 << 10,
            threads: 1,
        }
    }
}

/// The record batches of a scan, made on demand, in offset order. An error ends the iteration; the rows before the error are
/// returned first.
#[derive(Debug)]
pub struct ArrowScan {
    scan: Scan,
    ready: VecDeque<RecordBatch>,
    failure: Option<Error>,
    ended: bool,
    work: Work,
}

#[derive(Debug)]
enum Work {
    Here(Box<Columns>),
    Threads(Parallel),
}

impl ArrowScan {
    /// Makes record batches with `columns` from a scan that has not returned a batch yet.
    ///
    /// # Errors
    /// `Argument` for a repeated column, or for zero rows, bytes or threads.
    pub fn new(scan: Scan, columns: &[Column], options: &ArrowOptions) -> Result<Self> {
        for (slot, column) in columns.iter().enumerate() {
            if columns.iter().take(slot).any(|before| before == column) {
                let reason = format!("{:?} is named twice", column.name());
                return Err(Error::argument("columns", reason));
            }
        }
        for (name, value) in [
            ("batch_rows", options.batch_rows),
            ("batch_bytes", options.batch_bytes),
            ("threads", options.threads),
        ] {
            if value == 0 {
                return Err(Error::argument(name, "0 found, at least 1 expected"));
            }
        }
        let pool = Arc::new(Pool::default());
        // A limited scan depends on the order of its records, and `OnCorrupt::Stop` on damage found while decoding. Both need a
        // single thread.
        let work = if options.threads > 1 && !scan.is_limited() && !scan.stops_at_damage() {
            Work::Threads(Parallel::new(columns, options, &pool))
        } else {
            Work::Here(Box::new(Columns::new(columns, options, pool)))
        };
        Ok(Self {
            scan,
            ready: VecDeque::new(),
            failure: None,
            ended: false,
            work,
        })
    }

    /// The underlying scan, for its statistics and report.
    #[must_use]
    pub fn scan(&self) -> &Scan {
        &self.scan
    }

    /// Works until a record batch is ready or the scan has ended.
    fn advance(&mut self) -> Result<()> {
        match &mut self.work {
            Work::Here(columns) => {
                while self.ready.is_empty() {
                    let Some(mut batch) = self.scan.next_batch()? else {
                        self.ended = true;
                        self.ready.extend(columns.finish()?);
                        return Ok(());
                    };
                    decode(&mut batch, columns, &mut self.ready)?;
                }
                Ok(())
            }
            Work::Threads(parallel) => {
                self.ended = parallel.advance(&mut self.scan, &mut self.ready)?;
                Ok(())
            }
        }
    }

    /// Keeps the rows that were decoded before an error.
    fn rest(&mut self) {
        if let Work::Here(columns) = &mut self.work
            && let Ok(rest) = columns.finish()
        {
            self.ready.extend(rest);
        }
    }
}

impl Iterator for ArrowScan {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Some(Ok(batch));
            }
            if let Some(error) = self.failure.take() {
                return Some(Err(error));
            }
            if self.ended {
                return None;
            }
            if let Err(error) = self.advance() {
                self.ended = true;
                self.rest();
                self.failure = Some(error);
            }
        }
    }
}

/// Decodes the wanted records of a batch into the columns. Full record batches go to `ready`.
fn decode(
    batch: &mut Batch<'_>,
    columns: &mut Columns,
    ready: &mut VecDeque<RecordBatch>,
) -> Result<()> {
    let header = *batch.header();
    columns.begin(batch.log(), &header);
    if !columns.needs_records() {
        if let Some((first, last)) = batch.take_offsets() {
            return columns.push_offsets(first, last, ready);
        }
        if !columns.needs_offsets()
            && let Some(count) = batch.take_whole()
        {
            return columns.push_rows(count, ready);
        }
    }
    let mut is_plain = true;
    while let Some(record) = batch.next_record()? {
        columns.push(&record)?;
        if columns.is_full() {
            ready.extend(columns.finish()?);
        }
        while is_plain && let Some(mut records) = batch.plain_records() {
            is_plain = columns.push_plain(&mut records) > 0;
            batch.step_to(records);
            if !columns.is_full() {
                break;
            }
            ready.extend(columns.finish()?);
        }
    }
    columns.end();
    Ok(())
}
