//! Reads values out of requests. A field that the version lacks has the default of Kafka's schema.

use offsetlog::format::Uuid;
use offsetlog::format::message::{Struct, Value};

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
