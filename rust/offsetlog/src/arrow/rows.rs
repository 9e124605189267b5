//! Reads the columns of a record batch as records. Checks their names, types and contents before a row is encoded.
//!
//! over 600 lines: the checks of a column and the reading of it belong together, and all layouts share helpers.

use super::Column;
use crate::error::{Error, ErrorKind, Result};
use crate::memory;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Int64Type, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, FixedSizeBinaryArray, LargeBinaryArray,
    RecordBatch, make_array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType, FieldRef, Fields, Schema, TimeUnit};
use offsetlog_format::v2::record_size_upper_bound;
use std::sync::Arc;

const BYTES_EXPECTED: &str = "binary or string expected";
const TEXT_CHARS_MAX: usize = 200;

pub(super) type Header<'a> = (&'a [u8], Option<&'a [u8]>);

/// Positions of the columns that are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    value: usize,
    key: Option<usize>,
    timestamp: Option<usize>,
    headers: Option<usize>,
}

impl Places {
    /// Finds the columns. Fails for unknown names and for types that cannot be read.
    pub(super) fn find(schema: &Schema) -> Result<Self> {
        let mut found = [None; 4];
        for (place, field) in schema.fields().iter().enumerate() {
            let column = Column::ALL
                .into_iter()
                .find(|column| column.name() == field.name())
                .ok_or_else(|| unknown(field.name()))?;
            let slot = match column {
                Column::Value => 0,
                Column::Key => 1,
                Column::Timestamp => 2,
                Column::Headers => 3,
                _ => continue,
            };
            check_type(column, &plain(field.data_type()))?;
            if let Some(slot @ None) = found.get_mut(slot) {
                *slot = Some(place);
            } else {
                return Err(refused(format!("column {:?} is there twice", field.name())));
            }
        }
        let [value, key, timestamp, headers] = found;
        let value = value.ok_or_else(|| {
            refused(
                "no column \"value\" found; a record without a value (a tombstone) has null there",
            )
        })?;
        Ok(Self {
            value,
            key,
            timestamp,
            headers,
        })
    }
}

/// An error in the data as a whole.
pub(super) fn refused(reason: impl Into<String>) -> Error {
    Error::argument("data", reason)
}

#[allow(clippy::needless_pass_by_value, reason = "a converter for `map_err`")]
fn invalid(error: ArrowError) -> Error {
    refused(format!("not valid Arrow data: {error}"))
}

/// An error in one row, counted from 0.
pub(super) fn bad_row(row: u64, reason: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::RecordRejected {
        reason: format!("row {row}: {reason}"),
    })
}

fn unknown(name: &str) -> Error {
    let read = [
        Column::Value,
        Column::Key,
        Column::Timestamp,
        Column::Headers,
    ]
    .map(Column::name);
    let lowercase = name.to_lowercase();
    let nearest = read
        .into_iter()
        .map(|known| (strsim::damerau_levenshtein(&lowercase, known), known))
        .min()
        .filter(|(edits, known)| edits * 2 <= known.len());
    let shown: String = name.chars().take(TEXT_CHARS_MAX).collect();
    refused(match nearest {
        Some((_, nearest)) => format!("no column {shown:?} is known; did you mean {nearest:?}?"),
        None => format!(
            "no column {shown:?} is known; {} are read, the other columns of a scan left out",
            read.join(", ")
        ),
    })
}

fn check_type(column: Column, data_type: &DataType) -> Result<()> {
    let wrong = |name: &str, found: &DataType, expected: &str| {
        let found: String = found.to_string().chars().take(TEXT_CHARS_MAX).collect();
        Err(refused(format!("column {name:?} is {found}, {expected}")))
    };
    let name = column.name();
    match column {
        Column::Timestamp => match data_type {
            DataType::Timestamp(..) | DataType::Int64 | DataType::Null => Ok(()),
            found => wrong(
                name,
                found,
                "timestamp of any unit or int64 (ms since 1970) expected",
            ),
        },
        Column::Headers => {
            let expected = "list of struct<key: string, value: binary> expected";
            let entry = match data_type {
                DataType::Null => return Ok(()),
                DataType::List(entry) | DataType::LargeList(entry) | DataType::Map(entry, _) => {
                    entry
                }
                found => return wrong(name, found, expected),
            };
            let DataType::Struct(fields) = entry.data_type() else {
                return wrong(name, data_type, expected);
            };
            let is_map = matches!(data_type, DataType::Map(..));
            let Some((key, value)) = header_places(fields, is_map) else {
                return wrong(name, data_type, expected);
            };
            let type_at = |place: usize| fields.get(place).map(|field| field.data_type());
            match (type_at(key), type_at(value)) {
                (Some(key), _) if !is_text(key) => wrong("headers.key", key, "string expected"),
                (_, Some(value)) if !is_bytes(value) => {
                    wrong("headers.value", value, BYTES_EXPECTED)
                }
                _ => Ok(()),
            }
        }
        _ if is_bytes(data_type) => Ok(()),
        _ => wrong(name, data_type, BYTES_EXPECTED),
    }
}

/// The type without dictionaries and run-end encoding, which only affect storage. Polars stores categorical text as a
/// dictionary.
fn plain(data_type: &DataType) -> DataType {
    let field = |field: &FieldRef| {
        let data_type = plain(field.data_type());
        Arc::new(field.as_ref().clone().with_data_type(data_type))
    };
    match data_type {
        DataType::Dictionary(_, values) => plain(values),
        DataType::RunEndEncoded(_, values) => plain(values.data_type()),
        DataType::List(entry) => DataType::List(field(entry)),
        DataType::LargeList(entry) => DataType::LargeList(field(entry)),
        DataType::Map(entry, sorted) => DataType::Map(field(entry), *sorted),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(field).collect()),
        other => other.clone(),
    }
}

/// Positions of a header's two fields: by name, or by order in the entries of a map.
fn header_places(fields: &Fields, is_map: bool) -> Option<(usize, usize)> {
    if fields.len() != 2 {
        return None;
    }
    if is_map {
        return Some((0, 1));
    }
    let place = |name: &str| fields.iter().position(|field| field.name() == name);
    Some((place("key")?, place("value")?))
}

const fn is_text(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null
    )
}

const fn is_bytes(data_type: &DataType) -> bool {
    is_text(data_type)
        || matches!(
            data_type,
            DataType::Binary
                | DataType::LargeBinary
                | DataType::BinaryView
                | DataType::FixedSizeBinary(_)
        )
}

/// Replaces empty child arrays by new ones; `None` if there is no empty array. The buffers of an empty array may hold anything:
/// Arrow's Java library, and so Spark, does not set the first offset of one.
fn without_empty(data: &ArrayData) -> Result<Option<ArrayData>, ArrowError> {
    if data.is_empty() {
        return Ok(Some(ArrayData::new_empty(data.data_type())));
    }
    let mended = data.child_data().iter().map(without_empty);
    let mended: Vec<Option<ArrayData>> = mended.collect::<Result<_, _>>()?;
    if mended.iter().all(Option::is_none) {
        return Ok(None);
    }
    let children = mended.into_iter().zip(data.child_data());
    let children = children.map(|(mended, child)| mended.unwrap_or_else(|| child.clone()));
    let whole = data.clone().into_builder();
    whole.child_data(children.collect()).build().map(Some)
}

/// The rows of one record batch. Everything about them has been checked, apart from timestamps and sizes.
#[derive(Debug)]
pub(super) struct Rows {
    len: usize,
    value: Bytes,
    key: Bytes,
    timestamp: Timestamps,
    headers: Headers,
}

/// A row as a record; `timestamp` is `None` if the row has none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) timestamp: Option<i64>,
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: Option<&'a [u8]>,
}

impl Rows {
    /// Takes the columns of `batch`, whose first row is row `first` of the data. Rows of a replica, which keep their offsets,
    /// may have any timestamp, as in a broker's log.
    pub(super) fn take(
        batch: &RecordBatch,
        places: Places,
        first: u64,
        is_replica: bool,
    ) -> Result<Self> {
        let column = |place: Option<usize>| -> Result<Option<ArrayRef>> {
            let Some(array) = place.and_then(|place| batch.columns().get(place)) else {
                return Ok(None);
            };
            let data = array.to_data();
            let mended = without_empty(&data).map_err(invalid)?;
            // The array may come from another library's pointers, whose offsets were never checked.
            mended
                .as_ref()
                .unwrap_or(&data)
                .validate_full()
                .map_err(invalid)?;
            let mut array = mended.map_or_else(|| Arc::clone(array), make_array);
            let plain = plain(array.data_type());
            if plain != *array.data_type() {
                array = arrow_cast::cast(&array, &plain).map_err(invalid)?;
            }
            Ok(Some(array).filter(|array| *array.data_type() != DataType::Null))
        };
        let rows = Self {
            len: batch.num_rows(),
            value: Bytes::of(column(Some(places.value))?.as_ref())?,
            key: Bytes::of(column(places.key)?.as_ref())?,
            timestamp: Timestamps::of(column(places.timestamp)?.as_ref(), is_replica)?,
            headers: Headers::of(column(places.headers)?.as_ref())?,
        };
        rows.headers.check(first)?;
        Ok(rows)
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The row at `at`, which must be below [`len`](Self::len). Replaces the contents of `headers` with its headers.
    #[inline]
    pub(super) fn row<'a>(&'a self, at: usize, headers: &mut Vec<Header<'a>>) -> Row<'a> {
        self.headers.read(at, headers);
        Row {
            timestamp: self.timestamp.get(at),
            key: self.key.get(at),
            value: self.value.get(at),
        }
    }

    /// Reads the value of a row that is encoded soon [ahead](memory::read_ahead). Does nothing behind the last row.
    #[inline]
    pub(super) fn read_ahead(&self, at: usize) {
        if at < self.len {
            memory::read_ahead(self.value.get(at).unwrap_or(&[]));
        }
    }

    /// The first row without a key.
    pub(super) fn first_null_key(&self) -> Option<usize> {
        match self.key.nulls() {
            None => (self.len > 0 && matches!(self.key, Bytes::Absent)).then_some(0),
            Some(nulls) => (0..self.len).find(|at| nulls.is_null(*at)),
        }
    }

    /// Passes each row's timestamp in ms to `see`, except missing ones. Fails for a timestamp that no record can have.
    pub(super) fn timestamps(&self, first: u64, mut see: impl FnMut(u64, i64)) -> Result<()> {
        if matches!(self.timestamp, Timestamps::Absent) {
            return Ok(());
        }
        for at in 0..self.len {
            let row = first + at as u64;
            let timestamp = self.timestamp.checked(at).map_err(|found| {
                bad_row(
                    row,
                    format!("timestamp {found} found, 0 or more expected, or -1 ms for none"),
                )
            })?;
            if let Some(timestamp) = timestamp {
                see(row, timestamp);
            }
        }
        Ok(())
    }
}

impl Row<'_> {
    /// An upper bound on the size of the encoded record, in bytes.
    #[inline]
    pub(super) fn size_bound(&self, headers: &[Header<'_>]) -> usize {
        record_size_upper_bound(self.key, self.value, headers.iter().copied())
    }
}

/// A column of bytes or text in any of Arrow's layouts.
#[derive(Debug)]
enum Bytes {
    /// No column, or a column with the null type.
    Absent,
    Small(BinaryArray),
    Large(LargeBinaryArray),
    View(BinaryViewArray),
    Fixed(FixedSizeBinaryArray),
}

impl Bytes {
    fn of(array: Option<&ArrayRef>) -> Result<Self> {
        let Some(array) = array else {
            return Ok(Self::Absent);
        };
        Ok(match array.data_type() {
            DataType::Null => Self::Absent,
            DataType::Binary => Self::Small(array.as_binary().clone()),
            DataType::LargeBinary => Self::Large(array.as_binary().clone()),
            DataType::BinaryView => Self::View(array.as_binary_view().clone()),
            DataType::FixedSizeBinary(_) => Self::Fixed(array.as_fixed_size_binary().clone()),
            // Text is bytes: the same buffers with another type.
            DataType::Utf8 => Self::Small(array.as_string::<i32>().clone().into()),
            DataType::LargeUtf8 => Self::Large(array.as_string::<i64>().clone().into()),
            DataType::Utf8View => Self::View(array.as_string_view().clone().to_binary_view()),
            found => return Err(refused(format!("{found} found, {BYTES_EXPECTED}"))),
        })
    }

    fn nulls(&self) -> Option<&NullBuffer> {
        match self {
            Self::Absent => None,
            Self::Small(array) => array.nulls(),
            Self::Large(array) => array.nulls(),
            Self::View(array) => array.nulls(),
            Self::Fixed(array) => array.nulls(),
        }
    }

    #[inline]
    fn get(&self, at: usize) -> Option<&[u8]> {
        match self {
            Self::Absent => None,
            Self::Small(array) => array.is_valid(at).then(|| array.value(at)),
            Self::Large(array) => array.is_valid(at).then(|| array.value(at)),
            Self::View(array) => array.is_valid(at).then(|| array.value(at)),
            Self::Fixed(array) => array.is_valid(at).then(|| array.value(at)),
        }
    }
}

/// A column of timestamps.
#[derive(Debug)]
enum Timestamps {
    Absent,
    Of {
        values: ScalarBuffer<i64>,
        nulls: Option<NullBuffer>,
        unit: TimeUnit,
        /// Accepts timestamps before 1970 too.
        takes_any: bool,
    },
}

impl Timestamps {
    fn of(array: Option<&ArrayRef>, takes_any: bool) -> Result<Self> {
        let Some(array) = array else {
            return Ok(Self::Absent);
        };
        let (values, unit) = match array.data_type() {
            DataType::Null => return Ok(Self::Absent),
            DataType::Int64 => (
                array.as_primitive::<Int64Type>().values(),
                TimeUnit::Millisecond,
            ),
            DataType::Timestamp(unit, _) => {
                let values = match unit {
                    TimeUnit::Second => array.as_primitive::<TimestampSecondType>().values(),
                    TimeUnit::Millisecond => {
                        array.as_primitive::<TimestampMillisecondType>().values()
                    }
                    TimeUnit::Microsecond => {
                        array.as_primitive::<TimestampMicrosecondType>().values()
                    }
                    TimeUnit::Nanosecond => {
                        array.as_primitive::<TimestampNanosecondType>().values()
                    }
                };
                (values, *unit)
            }
            found => return Err(refused(format!("column \"timestamp\" is {found}"))),
        };
        Ok(Self::Of {
            values: values.clone(),
            nulls: array.nulls().cloned(),
            unit,
            takes_any,
        })
    }

    /// The timestamp in milliseconds, after [`checked`](Self::checked) accepted it.
    #[inline]
    fn get(&self, at: usize) -> Option<i64> {
        self.checked(at).unwrap_or(None)
    }

    /// The timestamp in milliseconds, rounded down. The error is the text of a value that cannot be a record's timestamp.
    #[inline]
    fn checked(&self, at: usize) -> Result<Option<i64>, String> {
        let Self::Of {
            values,
            nulls,
            unit,
            takes_any,
        } = self
        else {
            return Ok(None);
        };
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(at)) {
            return Ok(None);
        }
        let Some(&value) = values.get(at) else {
            return Ok(None);
        };
        let (milliseconds, is_none) = match unit {
            TimeUnit::Second => (value.checked_mul(1000), false),
            TimeUnit::Millisecond => (Some(value), value == -1),
            TimeUnit::Microsecond => (Some(value.div_euclid(1000)), value == -1000),
            TimeUnit::Nanosecond => (Some(value.div_euclid(1_000_000)), value == -1_000_000),
        };
        match milliseconds {
            Some(milliseconds) if value >= 0 || is_none || *takes_any => Ok(Some(milliseconds)),
            _ => Err(not_a_timestamp(value, *unit)),
        }
    }
}

#[cold]
fn not_a_timestamp(value: i64, unit: TimeUnit) -> String {
    let unit = match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    };
    format!("{value} {unit}")
}

/// A column of header lists. The headers of row `n` are the entries from offset `n` to offset `n + 1`.
#[derive(Debug)]
enum Headers {
    Absent,
    Small(OffsetBuffer<i32>, Entries),
    Large(OffsetBuffer<i64>, Entries),
}

#[derive(Debug)]
struct Entries {
    lists: Option<NullBuffer>,
    structs: Option<NullBuffer>,
    keys: Bytes,
    values: Bytes,
}

impl Headers {
    fn of(array: Option<&ArrayRef>) -> Result<Self> {
        let Some(array) = array else {
            return Ok(Self::Absent);
        };
        let entries = |structs: &dyn Array, is_map: bool| -> Result<Entries> {
            let structs = structs
                .as_any()
                .downcast_ref::<arrow_array::StructArray>()
                .ok_or_else(|| refused("column \"headers\" holds no structs"))?;
            let (key, value) = header_places(structs.fields(), is_map)
                .ok_or_else(|| refused("column \"headers\" holds no key and value"))?;
            Ok(Entries {
                lists: array.nulls().cloned(),
                structs: structs.nulls().cloned(),
                keys: Bytes::of(structs.columns().get(key))?,
                values: Bytes::of(structs.columns().get(value))?,
            })
        };
        Ok(match array.data_type() {
            DataType::Null => Self::Absent,
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                Self::Small(list.offsets().clone(), entries(list.values(), false)?)
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                Self::Large(list.offsets().clone(), entries(list.values(), false)?)
            }
            DataType::Map(..) => {
                let map = array.as_map();
                Self::Small(map.offsets().clone(), entries(map.entries(), true)?)
            }
            found => return Err(refused(format!("column \"headers\" is {found}"))),
        })
    }

    /// The range of the headers of row `at`, and the entries that it refers to.
    #[inline]
    fn entries(&self, at: usize) -> Option<(std::ops::Range<usize>, &Entries)> {
        let (start, end, entries) = match self {
            Self::Absent => return None,
            Self::Small(offsets, entries) => (
                *offsets.get(at)? as usize,
                *offsets.get(at + 1)? as usize,
                entries,
            ),
            Self::Large(offsets, entries) => (
                *offsets.get(at)? as usize,
                *offsets.get(at + 1)? as usize,
                entries,
            ),
        };
        // A null list has no headers, whatever range it spans.
        let is_null = entries
            .lists
            .as_ref()
            .is_some_and(|lists| lists.is_null(at));
        (!is_null).then_some((start..end, entries))
    }

    #[inline]
    fn read<'a>(&'a self, at: usize, headers: &mut Vec<Header<'a>>) {
        headers.clear();
        if let Some((range, entries)) = self.entries(at) {
            headers.extend(range.filter_map(|entry| {
                let key = entries.keys.get(entry)?;
                Some((key, entries.values.get(entry)))
            }));
        }
    }

    /// Fails for a header without a key.
    fn check(&self, first: u64) -> Result<()> {
        let rows = match self {
            Self::Absent => return Ok(()),
            Self::Small(offsets, entries) => (offsets.len(), entries),
            Self::Large(offsets, entries) => (offsets.len(), entries),
        };
        let (offsets, entries) = rows;
        let has_nulls = entries
            .structs
            .as_ref()
            .is_some_and(|nulls| nulls.null_count() > 0)
            || entries
                .keys
                .nulls()
                .is_some_and(|nulls| nulls.null_count() > 0)
            || matches!(entries.keys, Bytes::Absent);
        if !has_nulls {
            return Ok(());
        }
        for at in 0..offsets.saturating_sub(1) {
            let Some((range, entries)) = self.entries(at) else {
                continue;
            };
            let start = range.start;
            for entry in range {
                let row = first + at as u64;
                let number = entry - start;
                if entries
                    .structs
                    .as_ref()
                    .is_some_and(|nulls| nulls.is_null(entry))
                {
                    return Err(bad_row(row, format!("header {number} is null")));
                }
                if entries.keys.get(entry).is_none() {
                    return Err(bad_row(row, format!("header {number} has no key")));
                }
            }
        }
        Ok(())
    }
}
