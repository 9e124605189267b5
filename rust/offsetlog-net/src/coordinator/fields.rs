//! Fields of requests. Text that is not UTF-8 has replacement characters, as in Kafka.

use offsetlog::format::message::{Struct, Value};
use std::collections::HashSet;

pub(super) fn int(fields: &Struct<'_>, name: &str) -> Option<i64> {
    fields.get(name).and_then(Value::as_int)
}

/// A 32-bit integer, or -1, Kafka's default, if the version does not have the field.
pub(super) fn int32(fields: &Struct<'_>, name: &str) -> i32 {
    let number = int(fields, name).and_then(|number| i32::try_from(number).ok());
    number.unwrap_or(-1)
}

pub(super) fn optional(fields: &Struct<'_>, name: &str) -> Option<String> {
    fields.get(name).and_then(as_text)
}

pub(super) fn text(fields: &Struct<'_>, name: &str) -> String {
    optional(fields, name).unwrap_or_default()
}

pub(super) fn bytes(fields: &Struct<'_>, name: &str) -> Vec<u8> {
    let bytes = fields.get(name).and_then(Value::as_bytes);
    bytes.unwrap_or_default().to_vec()
}

fn array<'s, 'a>(fields: &'s Struct<'a>, name: &str) -> &'s [Value<'a>] {
    let elements = fields.get(name).and_then(Value::as_array);
    elements.unwrap_or_default()
}

pub(super) fn structs<'s, 'a: 's>(
    fields: &'s Struct<'a>,
    name: &str,
) -> impl Iterator<Item = &'s Struct<'a>> {
    array(fields, name).iter().filter_map(Value::as_struct)
}

pub(super) fn texts(fields: &Struct<'_>, name: &str) -> Vec<String> {
    array(fields, name).iter().filter_map(as_text).collect()
}

/// Each name once, at its first place: a request that repeats one gets one answer.
pub(super) fn distinct(names: Vec<String>) -> Vec<String> {
    let mut seen = HashSet::new();
    let is_first: Vec<bool> = names
        .iter()
        .map(|name| seen.insert(name.as_str()))
        .collect();
    let names = names.into_iter().zip(is_first);
    names
        .filter_map(|(name, is_first)| is_first.then_some(name))
        .collect()
}

pub(super) fn numbers(fields: &Struct<'_>, name: &str) -> Vec<i32> {
    let numbers = array(fields, name).iter().filter_map(Value::as_int);
    numbers
        .filter_map(|number| i32::try_from(number).ok())
        .collect()
}

fn as_text(value: &Value<'_>) -> Option<String> {
    let bytes = value.as_bytes()?;
    Some(String::from_utf8_lossy(bytes).into_owned())
}
