//! Appends record batches to a log: encodes rows straight into Kafka batches, without an allocation per row.

use super::digest::Digest;
use super::kept::{Kept, KeptPlaces, Last};
use super::rows::{Header, Places, Row, Rows};
use crate::append_info::AppendInfo;
use crate::batch_builder::{BatchBuilder, Producer};
use crate::codec::Compressor;
use crate::config::LogConfig;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::Limits;
use crate::log::{AppendOptions, LogWriter};
use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Schema};
use offsetlog_format::Codec;
use std::sync::Arc;

/// How many rows before it is encoded a row's value is read ahead.
const ROWS_AHEAD: usize = 2;

/// Options for appending rows.
#[derive(Debug, Clone, Copy)]
pub struct ArrowAppendOptions {
    /// Codec of the batches if the log's `compression.type` is `producer`.
    pub codec: Codec,
    /// Maximum uncompressed size of a batch in bytes; smaller values of `max.message.bytes` and `segment.bytes` take
    /// precedence. A single record may be larger than this limit, but not larger than those two.
    pub batch_bytes: usize,
    /// The leader epoch, and whether all rows are synced at the end.
    pub append: AppendOptions,
}

impl Default for ArrowAppendOptions {
    fn default() -> Self {
        Self {
            codec: Codec::None,
            batch_bytes: 1 << 20,
            append: AppendOptions::default(),
        }
    }
}

/// Rows of record batches to append to a log.
///
/// Columns are found by name, as in a [scan](super::schema): `value` (required) and `key`, both binary or string in any layout;
/// `timestamp`, of any unit or int64 milliseconds, rounded down to milliseconds, null for the time of the append; `headers`, a
/// list of structs or a map. Other columns of a scan (`topic`, `offset`, `leaderEpoch`, …) are ignored, and unknown names are
/// refused.
///
/// Everything is checked before the first record is appended: layouts, types, timestamps, headers, keys, sizes.
///
/// ```
/// use arrow_array::{RecordBatch, StringArray};
/// use offsetlog::arrow::{ArrowAppendOptions, ArrowRows};
/// use offsetlog::{LogWriter, OpenOptions, WriteOptions};
/// use std::sync::Arc;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let log = LogWriter::open(folder.path().join("orders-0"), &OpenOptions::default(), &WriteOptions::default())?;
/// let values = StringArray::from(vec!["paid", "sent"]);
/// let batch = RecordBatch::try_from_iter([("value", Arc::new(values) as _)])?;
/// let mut rows = ArrowRows::new(&batch.schema())?;
/// rows.push(&batch)?;
/// assert_eq!(rows.append(&log, &ArrowAppendOptions::default())?.last_offset, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ArrowRows {
    places: Places,
    /// Present if rows keep their offsets.
    kept: Option<KeptPlaces>,
    last: Option<Last>,
    batches: Vec<(Rows, Option<Kept>)>,
    rows: u64,
    earliest: Option<Seen>,
    latest: Option<Seen>,
    first_null_key: Option<u64>,
    oversized: Option<u64>,
    appended: Option<AppendInfo>,
    appended_rows: u64,
}

/// A timestamp and its row.
#[derive(Debug, Clone, Copy)]
struct Seen {
    timestamp: i64,
    row: u64,
}

/// Size limits of a batch.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    /// Maximum uncompressed size of a batch with several records, in bytes.
    target: usize,
    /// Maximum stored size of any batch, in bytes.
    most: usize,
}

impl ArrowRows {
    /// Starts without rows, for record batches with this schema.
    ///
    /// # Errors
    /// `Argument` for an unknown or repeated column, for a type that cannot be read, and for a missing `value`.
    pub fn new(schema: &Schema) -> Result<Self> {
        Ok(Self {
            places: Places::find(schema)?,
            kept: None,
            last: None,
            batches: Vec::new(),
            rows: 0,
            earliest: None,
            latest: None,
            first_null_key: None,
            oversized: None,
            appended: None,
            appended_rows: 0,
        })
    }

    /// Like [`new`](Self::new), for rows that keep their offsets from a column `offset` (int64) and, if there is one, their
    /// leader epochs from `leaderEpoch` (int32). This restores a log. Gaps between offsets remain.
    ///
    /// # Errors
    /// Also `Argument` if there is no such column.
    pub fn with_offsets(schema: &Schema) -> Result<Self> {
        Ok(Self {
            kept: Some(KeptPlaces::find(schema)?),
            ..Self::new(schema)?
        })
    }

    /// Like [`new`](Self::new) or, with `keep_offsets`, [`with_offsets`](Self::with_offsets), for arrays of a struct type whose
    /// fields are the columns.
    ///
    /// # Errors
    /// Also `Argument` for any other type.
    pub fn of_type(data_type: &DataType, keep_offsets: bool) -> Result<Self> {
        match data_type {
            DataType::Struct(fields) if keep_offsets => {
                Self::with_offsets(&Schema::new(fields.clone()))
            }
            DataType::Struct(fields) => Self::new(&Schema::new(fields.clone())),
            other => {
                let found: String = other.to_string().chars().take(200).collect();
                let reason = format!("arrays of {found} found, a table or record batch expected");
                Err(Error::argument("data", reason))
            }
        }
    }

    /// Like [`push`](Self::push), for an array of the type that was passed to [`of_type`](Self::of_type).
    ///
    /// # Errors
    /// Also `RecordRejected` for a row that is null as a whole; that differs from a row whose fields are null.
    pub fn push_array(&mut self, array: &dyn Array) -> Result<()> {
        let Some(rows) = array.as_struct_opt() else {
            return Self::of_type(array.data_type(), false).map(drop);
        };
        if let Some(nulls) = rows.nulls().filter(|nulls| nulls.null_count() > 0) {
            let null = (0..nulls.len()).find(|at| nulls.is_null(*at));
            let row = self.rows + null.unwrap_or(0) as u64;
            return Err(Error::new(ErrorKind::RecordRejected {
                reason: format!("row {row} is null as a whole, not a row of nulls"),
            }));
        }
        let schema = Arc::new(Schema::new(rows.fields().clone()));
        let count = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        let batch = RecordBatch::try_new_with_options(schema, rows.columns().to_vec(), &count)
            .map_err(|error| Error::argument("data", format!("not valid Arrow data: {error}")))?;
        self.push(&batch)
    }

    /// Adds the rows of `batch`, which must have the schema passed to [`new`](Self::new). Keeps its buffers without a copy.
    ///
    /// # Errors
    /// `Argument` for buffers that do not match their type; `RecordRejected` for a negative timestamp other than -1 ms (unless
    /// rows keep their offsets), for a header without a key, and for offsets or epochs that are out of order.
    pub fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        let first = self.rows;
        let rows = Rows::take(batch, self.places, first, self.kept.is_some())?;
        let mut last = self.last;
        let kept = self
            .kept
            .map(|places| Kept::take(batch, places, first, &mut last))
            .transpose()?;
        let (mut earliest, mut latest) = (self.earliest, self.latest);
        rows.timestamps(first, |row, timestamp| {
            // -1 means no timestamp, so bounds do not apply.
            if timestamp >= 0 {
                if earliest.is_none_or(|seen| timestamp < seen.timestamp) {
                    earliest = Some(Seen { timestamp, row });
                }
                if latest.is_none_or(|seen| timestamp > seen.timestamp) {
                    latest = Some(Seen { timestamp, row });
                }
            }
        })?;
        (self.earliest, self.latest) = (earliest, latest);
        if self.first_null_key.is_none() {
            self.first_null_key = rows.first_null_key().map(|at| first + at as u64);
        }
        self.rows += rows.len() as u64;
        self.last = last;
        self.batches.push((rows, kept));
        Ok(())
    }

    /// Number of rows.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.rows
    }

    /// A digest of the rows: the sum, modulo 2^128, of a hash (XXH3, 128 bits) of each row's fields. The same rows give the
    /// same digest in any order and in any record batches, and the digests of several parts add up. A row without a timestamp
    /// is hashed without one, whatever timestamp its record gets. The digest is not cryptographic: anyone can construct two
    /// sets of rows with the same digest.
    ///
    /// Reads every row once. Call it before [`append`](Self::append), which releases the rows.
    #[must_use]
    pub fn digest(&self) -> u128 {
        let mut digest = Digest::default();
        for (rows, kept) in &self.batches {
            digest.add(rows, kept.as_ref());
        }
        digest.sum()
    }

    /// Whether there are no rows.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// After an error of [`append`](Self::append): how many rows from the first on are in the log, and where.
    #[must_use]
    pub const fn appended(&self) -> Option<(u64, AppendInfo)> {
        match self.appended {
            Some(info) => Some((self.appended_rows, info)),
            None => None,
        }
    }

    /// The row, counted from 0, that was too large, after [`append`](Self::append) failed for that reason.
    #[must_use]
    pub const fn oversized(&self) -> Option<u64> {
        self.oversized
    }

    /// Appends all rows once, in as many batches as needed. Returns the first and the last offset, the greatest timestamp, and
    /// the last append time. Without rows it appends nothing, and the offsets are -1.
    ///
    /// All rows are checked before the first is appended, so bad data leaves the log unchanged. Each batch is then appended
    /// completely or not at all. Between two batches the work can still fail because of the disk, an interruption, or another
    /// thread that closes the log or changes its settings. Then the rows in [`appended`](Self::appended) stay. Other threads
    /// may append batches between those of these rows.
    ///
    /// # Errors
    /// `InvalidTimestamp`, `RecordRejected` (no key under compaction), `RecordTooLarge`, `RecordBatchTooLarge`,
    /// `UnexpectedAppendOffset` if rows keep offsets below the log end offset: nothing was appended. `Io`, `Closed`,
    /// `Poisoned`, `Interrupted`; `Argument` for a batch size of 0.
    pub fn append(&mut self, log: &LogWriter, options: &ArrowAppendOptions) -> Result<AppendInfo> {
        (self.oversized, self.appended, self.appended_rows) = (None, None, 0);
        if options.batch_bytes == 0 {
            return Err(Error::argument(
                "batch_bytes",
                "0 found, at least 1 expected",
            ));
        }
        let (config, now) = self.check(log, options)?;
        let codec = config.codec_for(options.codec);
        let limits = &log.options().limits;
        let sizes = Sizes::new(&config, limits, codec, options.batch_bytes);
        self.check_sizes(log, &config, codec, sizes, now)?;
        self.append_checked(log, options, sizes, now)
            .map_err(|error| {
                error.map_appended(|_| self.appended.filter(|_| self.appended_rows == self.rows))
            })?;
        Ok(self.appended.unwrap_or(AppendInfo::NOTHING))
    }

    fn first_offset(&self) -> Option<i64> {
        let mut batches = self.batches.iter().filter(|(rows, _)| rows.len() > 0);
        batches.next()?.1.as_ref().map(|kept| kept.get(0).0)
    }

    /// Applies the log's checks to the rows before they are encoded.
    fn check(&self, log: &LogWriter, options: &ArrowAppendOptions) -> Result<(LogConfig, i64)> {
        if self.kept.is_some() {
            // Like a leader's batches on a follower: timestamps and keys are not checked again.
            return log.check_append_at(self.first_offset());
        }
        let timestamps = self.earliest.zip(self.latest);
        let bounds = timestamps.map(|(first, last)| (first.timestamp, last.timestamp));
        let first_null_key = self.first_null_key.map(|row| row as i64);
        log.check_append(bounds, first_null_key, options.append.leader_epoch)
            .map_err(|error| match (error.kind(), timestamps) {
                (
                    &ErrorKind::InvalidTimestamp {
                        timestamp,
                        now,
                        before,
                        after,
                        ..
                    },
                    Some((earliest, latest)),
                ) => {
                    let is_latest = timestamp == latest.timestamp;
                    let row = if is_latest { latest.row } else { earliest.row };
                    Error::new(ErrorKind::InvalidTimestamp {
                        slot: row as i64,
                        timestamp,
                        now,
                        before,
                        after,
                    })
                }
                _ => error,
            })
    }

    /// Fails for a record that no batch can hold. Only records above the safe size are encoded to find out.
    fn check_sizes(
        &mut self,
        log: &LogWriter,
        config: &LogConfig,
        codec: Codec,
        sizes: Sizes,
        now: i64,
    ) -> Result<()> {
        let limits = &log.options().limits;
        let mut alone = Alone::new(config, codec)?;
        let mut first = 0;
        for (rows, _) in &self.batches {
            log.check()?;
            let mut headers = Vec::new();
            for at in 0..rows.len() {
                let row = rows.row(at, &mut headers);
                let allowed = limits.allow_headers(headers.len());
                if allowed.is_ok() && row.size_bound(&headers) <= sizes.target {
                    continue;
                }
                log.check()?;
                let allowed = allowed.and_then(|()| {
                    alone.check(&row, &headers, now, sizes.most)?;
                    limits.allow_batch(alone.size)?;
                    limits.allow_unpacked(codec, alone.payload_bytes())
                });
                if let Err(error) = allowed {
                    self.oversized = Some(first + at as u64);
                    return Err(error);
                }
            }
            first += rows.len() as u64;
        }
        Ok(())
    }

    fn append_checked(
        &mut self,
        log: &LogWriter,
        options: &ArrowAppendOptions,
        sizes: Sizes,
        now: i64,
    ) -> Result<()> {
        let unflushed = AppendOptions {
            flush: false,
            ..options.append
        };
        let mut batch = BatchBuilder::new(options.codec, Producer::default());
        let mut at_offset = None;
        for (rows, kept) in std::mem::take(&mut self.batches) {
            let mut headers = Vec::new();
            for at in 0..rows.len() {
                rows.read_ahead(at + ROWS_AHEAD);
                let row = rows.row(at, &mut headers);
                let size = batch.size_bytes() + row.size_bound(&headers);
                let kept = kept.as_ref().map(|kept| {
                    let (offset, epoch) = kept.get(at);
                    Place {
                        offset,
                        epoch: epoch.or(at_offset.and_then(|place: Place| place.epoch)),
                    }
                });
                let fits = size <= sizes.target && kept.is_none_or(|kept| kept.fits(at_offset));
                if !fits && !batch.is_empty() {
                    self.append_batch(log, &mut batch, at_offset, &unflushed)?;
                }
                let timestamp = row.timestamp.unwrap_or(now);
                if let Some(kept) = kept {
                    let base = if batch.is_empty() {
                        at_offset.insert(kept).offset
                    } else {
                        at_offset.map_or(kept.offset, |place| place.offset)
                    };
                    let delta = kept.offset - base;
                    batch.push_at(delta, timestamp, row.key, row.value, &headers)?;
                } else {
                    batch.push(timestamp, row.key, row.value, &headers)?;
                }
            }
        }
        if batch.is_empty() {
            return Ok(());
        }
        self.append_batch(log, &mut batch, at_offset, &options.append)
    }

    fn append_batch(
        &mut self,
        log: &LogWriter,
        batch: &mut BatchBuilder,
        place: Option<Place>,
        options: &AppendOptions,
    ) -> Result<()> {
        log.check()?;
        let rows = batch.len() as u64;
        let appended = match place {
            Some(Place { offset, epoch }) => {
                let options = AppendOptions {
                    leader_epoch: epoch.or(options.leader_epoch),
                    ..*options
                };
                log.append_at(batch, offset, &options)
            }
            None => log.append(batch, options),
        };
        // They are in the log too where only what follows the append failed.
        let info = match &appended {
            Ok(info) => Some(*info),
            Err(error) => error.appended(),
        };
        if let Some(info) = info {
            self.appended_rows += rows;
            self.appended = Some(self.appended.map_or(info, |before| before.and(info)));
        }
        appended.map(|_| ())
    }
}

/// The first offset and the leader epoch of a batch that keeps its offsets.
#[derive(Debug, Clone, Copy)]
struct Place {
    offset: i64,
    epoch: Option<i32>,
}

impl Place {
    /// Whether a record with this offset and epoch fits into the batch that starts at `batch`.
    fn fits(self, batch: Option<Self>) -> bool {
        batch.is_some_and(|batch| {
            batch.epoch == self.epoch && self.offset - batch.offset <= i64::from(i32::MAX)
        })
    }
}

impl Sizes {
    fn new(config: &LogConfig, limits: &Limits, codec: Codec, batch_bytes: usize) -> Self {
        let most = config
            .max_message_bytes()
            .min(config.segment_bytes())
            .max(0) as usize;
        // Incompressible bytes grow a little: by the frames of blocks of at least 16 KiB and by the end of the stream.
        let growth = if codec == Codec::None {
            0
        } else {
            64 + most / 128
        };
        let readable = limits.max_batch_bytes.min(limits.max_decompressed_bytes);
        let target = most.min(usize::try_from(readable).unwrap_or(usize::MAX));
        Self {
            target: batch_bytes.min(target.saturating_sub(growth)),
            most,
        }
    }
}

/// Finds the stored size of a batch with a single record.
struct Alone {
    batch: BatchBuilder,
    codec: Codec,
    compressor: Compressor,
    max_message_bytes: usize,
    /// Stored size of the batch that was checked last, in bytes.
    size: usize,
}

impl Alone {
    fn new(config: &LogConfig, codec: Codec) -> Result<Self> {
        let mut compressor = Compressor::new();
        if codec != Codec::None {
            compressor.set_level(codec, config.compression_level(codec))?;
        }
        Ok(Self {
            batch: BatchBuilder::default(),
            codec,
            compressor,
            max_message_bytes: config.max_message_bytes().max(0) as usize,
            size: 0,
        })
    }

    const fn payload_bytes(&self) -> usize {
        self.batch.payload_bytes()
    }

    fn check(
        &mut self,
        row: &Row<'_>,
        headers: &[Header<'_>],
        now: i64,
        most: usize,
    ) -> Result<()> {
        self.batch.clear();
        let timestamp = row.timestamp.unwrap_or(now);
        // The checks on the record itself were done before.
        self.batch
            .push_at(0, timestamp, row.key, row.value, headers)?;
        let stored = self
            .batch
            .finish(0, 0, None, self.codec, &mut self.compressor)?;
        let size = stored.0.len();
        self.size = size;
        if size <= most {
            return Ok(());
        }
        let (size, maximum) = (size as u64, most as i64);
        Err(Error::new(if size > self.max_message_bytes as u64 {
            let maximum = self.max_message_bytes as i64;
            ErrorKind::RecordTooLarge { size, maximum }
        } else {
            ErrorKind::RecordBatchTooLarge { size, maximum }
        }))
    }
}
