//! What the readers of internal topics share: a walk over all records, fields of their messages, and a list of what was left out.

use crate::error::{Error, Result};
use crate::log::{Log, ScanOptions};
use offsetlog_format::internal_topic::{CoordinatorRecord, CoordinatorTopic, KnownRecord};
use offsetlog_format::message::{Struct, Value};
use offsetlog_format::{BatchHeader, FormatError, RecordView, counted};
use std::collections::BTreeMap;

/// Hands over each record from `start` on, control records too, in the order of the log; an error of `take` gains the record's place.
pub(crate) fn each_record(
    log: &Log,
    start: Option<i64>,
    mut take: impl FnMut(&BatchHeader, &RecordView<'_>) -> Result<(), FormatError>,
) -> Result<()> {
    let mut scan = log.scan(&ScanOptions {
        start,
        control_records: true,
        ..ScanOptions::default()
    })?;
    while let Some(mut batch) = scan.next_batch()? {
        let header = *batch.header();
        let (path, position) = (batch.path().to_path_buf(), batch.position());
        while let Some(record) = batch.next_record()? {
            take(&header, &record).map_err(|error| {
                Error::new(error)
                    .at_path(&path)
                    .at_position(position)
                    .at_offset(record.offset)
            })?;
        }
    }
    Ok(())
}

/// Records that were passed over, counted by why.
#[derive(Debug, Default)]
pub(crate) struct LeftOut(BTreeMap<&'static str, (u64, i64, String)>);

impl LeftOut {
    /// Counts a record; of the first one, what is said about it.
    pub(crate) fn add(&mut self, why: &'static str, offset: i64, what: impl FnOnce() -> String) {
        let (count, ..) = self.0.entry(why).or_insert_with(|| (0, offset, what()));
        *count += 1;
    }

    /// What a coordinator wrote, unless it is one of a newer type or nobody can say what it is about: that is counted.
    pub(crate) fn known<'r>(
        &mut self,
        topic: CoordinatorTopic,
        record: &RecordView<'r>,
    ) -> Result<Option<KnownRecord<'r>>, FormatError> {
        let Some(key) = record.key else {
            self.add("they have no key", record.offset, || {
                let bytes = record.value.map_or(0, <[u8]>::len);
                format!("{} of value", counted(bytes, "byte"))
            });
            return Ok(None);
        };
        match topic.decode(key, record.value)? {
            CoordinatorRecord::Known(known) => Ok(Some(known)),
            CoordinatorRecord::Unknown { number } => {
                self.add("their type is not known", record.offset, || {
                    format!("type {number}")
                });
                Ok(None)
            }
        }
    }

    /// One sentence a reason.
    pub(crate) fn warnings(&self, partition: &str) -> impl Iterator<Item = String> {
        self.0.iter().map(move |(why, (count, offset, what))| {
            let records = counted(*count, "record");
            format!("{partition}: {records} left out, {why}; the first at offset {offset}: {what}")
        })
    }
}

pub(crate) fn structs<'a, 'b>(
    fields: &'a Struct<'b>,
    name: &str,
) -> impl Iterator<Item = &'a Struct<'b>> {
    let all = fields
        .get(name)
        .and_then(Value::as_array)
        .unwrap_or_default();
    all.iter().filter_map(Value::as_struct)
}

pub(crate) fn optional(fields: &Struct<'_>, name: &str) -> Option<String> {
    let bytes = fields.get(name)?.as_bytes()?;
    Some(String::from_utf8_lossy(bytes).into_owned())
}

pub(crate) fn text(fields: &Struct<'_>, name: &str) -> String {
    optional(fields, name).unwrap_or_default()
}

/// An integer, if it is there.
pub(crate) fn long(fields: &Struct<'_>, name: &str) -> Option<i64> {
    fields.get(name).and_then(Value::as_int)
}

/// The elements of an array of integers of at most four bytes; `None` for null and where it is not there.
pub(crate) fn numbers(fields: &Struct<'_>, name: &str) -> Option<Vec<i32>> {
    let numbers = fields.get(name)?.as_array()?.iter();
    let numbers = numbers.filter_map(Value::as_int);
    Some(
        numbers
            .filter_map(|number| number.try_into().ok())
            .collect(),
    )
}

/// An integer of at most four bytes, as its message has it; -1 where it is not there.
pub(crate) fn int(fields: &Struct<'_>, name: &str) -> i32 {
    let number = fields.get(name).and_then(Value::as_int);
    number
        .and_then(|number| number.try_into().ok())
        .unwrap_or(-1)
}
