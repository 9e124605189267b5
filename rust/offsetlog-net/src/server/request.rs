//! Decodes requests, and reads values out of them. A field that the version lacks has the default of Kafka's schema.

use crate::step::{Room, SMALL_VALUES};
use offsetlog::format::Uuid;
use offsetlog::format::cursor::Reader;
use offsetlog::format::error::Fault;
use offsetlog::format::message::{Struct, Value};
use offsetlog::format::protocol::Api;

/// Decodes a request. One of many values waits for room first, and is then decoded anew.
///
/// # Errors
/// Why the connection ends.
pub(super) fn decode<'f>(
    api: &Api,
    version: i16,
    reader: &Reader<'f>,
    room: &mut dyn Room,
) -> Result<Struct<'f>, String> {
    let name = api.name;
    let read = |values_max| {
        let mut reader = *reader;
        api.request.read_within(version, &mut reader, values_max)
    };
    let mut request = read(SMALL_VALUES);
    if matches!(&request, Err(error) if matches!(error.fault, Fault::Count { .. })) {
        let Some(values_max) = room.for_large() else {
            return Err(format!(
                "a large request {name} of version {version} waited too long for others to be answered"
            ));
        };
        request = read(values_max);
        if matches!(&request, Err(error) if matches!(error.fault, Fault::Count { .. })) {
            return Err(format!(
                "a request {name} of version {version} has more than {values_max} values: the limit on memory (--max-memory-bytes) allows no more"
            ));
        }
    }
    request.map_err(|error| format!("a request {name} of version {version} is malformed: {error}"))
}

/// The integer, or `default` if the version does not have the field.
pub(crate) fn long(fields: &Struct<'_>, name: &str, default: i64) -> i64 {
    fields.get(name).and_then(Value::as_int).unwrap_or(default)
}

/// The same for a field of four bytes.
pub(crate) fn int(fields: &Struct<'_>, name: &str, default: i32) -> i32 {
    let found = long(fields, name, i64::from(default));
    i32::try_from(found).unwrap_or(default)
}

/// The truth value; `false` if the version does not have the field.
pub(crate) fn is_set(fields: &Struct<'_>, name: &str) -> bool {
    fields.get(name).and_then(Value::as_bool).unwrap_or(false)
}

/// The text; `None` if it is null, not there or not UTF-8.
pub(crate) fn text<'f>(fields: &'f Struct<'_>, name: &str) -> Option<&'f str> {
    fields.get(name).and_then(Value::as_str)
}

/// The id; zeros if the version does not have the field.
pub(crate) fn id(fields: &Struct<'_>, name: &str) -> Uuid {
    let found = fields.get(name).and_then(Value::as_uuid);
    found.unwrap_or(Uuid::ZERO)
}

/// The structures of an array; none if it is null or not there.
pub(crate) fn structs<'f, 'a>(
    fields: &'f Struct<'a>,
    name: &str,
) -> impl Iterator<Item = &'f Struct<'a>> {
    elements(fields, name).iter().filter_map(Value::as_struct)
}

/// The elements of an array; none if it is null or not there.
pub(crate) fn elements<'f, 'a>(fields: &'f Struct<'a>, name: &str) -> &'f [Value<'a>] {
    let found = fields.get(name).and_then(Value::as_array);
    found.unwrap_or_default()
}
