//! The sentences of Kafka's decoders for bytes that are not what they decode: records of another topic, or damaged ones.
//!
//! For a wrong length inside a value Kafka's sentence names the field, which the engine's error does not. There the engine's sentence is
//! printed, in Kafka's frame.

use offsetlog::format::internal_topic::{CoordinatorRecord, CoordinatorTopic, MetadataRecord};
use offsetlog::format::{Fault, FormatError};

/// What is wrong with the records of a batch, where Kafka's sentence is known.
pub(super) fn records(error: &FormatError) -> Option<String> {
    Some(match error.fault {
        Fault::Count { expected, .. } if expected < 0 => {
            format!("Found invalid record count {expected} in magic v2 batch")
        }
        Fault::Count { .. } => "Incorrect declared batch size, premature EOF reached".to_owned(),
        Fault::Rule(rule) if rule.contains("left behind") => {
            "Incorrect declared batch size, records still remaining in file".to_owned()
        }
        _ => return None,
    })
}

/// Why key and value of a coordinator's record cannot be read; `error` is what the engine says of them.
pub(super) fn coordinator(
    topic: CoordinatorTopic,
    key: &[u8],
    value: Option<&[u8]>,
    error: &FormatError,
) -> String {
    let Some(number) = short(key) else {
        return no_version("key");
    };
    // The type stands for the version of the key's message.
    let record_type = match topic.decode(key, None) {
        Ok(CoordinatorRecord::Known(known)) => known.record_type,
        _ => return unreadable(number, "key", &of_key(topic, key, error)),
    };
    let Some(version) = value.and_then(short) else {
        return no_version("value");
    };
    let message = &record_type.value;
    if !(message.lowest_version..=message.highest_version).contains(&version) {
        return format!("Found an unknown record version {version} for {number} type");
    }
    let reason = match error.fault {
        Fault::Truncated { .. } => "null".to_owned(),
        _ => error.to_string(),
    };
    unreadable(version, "value", &reason)
}

fn short(bytes: &[u8]) -> Option<i16> {
    bytes.first_chunk().copied().map(i16::from_be_bytes)
}

fn no_version(of: &str) -> String {
    format!("Could not read version from {of}'s buffer.")
}

fn unreadable(version: i16, of: &str, reason: &str) -> String {
    format!("Could not read record with version {version} from {of}'s buffer due to: {reason}.")
}

/// Keys hold texts and numbers: a length is one of a text.
fn of_key(topic: CoordinatorTopic, key: &[u8], error: &FormatError) -> String {
    match error.fault {
        Fault::Length { found, maximum, .. } if found >= 0 => {
            format!("Error reading byte array of {found} byte(s): only {maximum} byte(s) available")
        }
        Fault::Length { .. } => text_at(topic, key, error.at).map_or_else(
            || error.to_string(),
            |field| format!("non-nullable field {field} was serialized as null"),
        ),
        // Java's exception for a buffer that ends has no text.
        Fault::Truncated { .. } => "null".to_owned(),
        _ => error.to_string(),
    }
}

/// The name of the text whose length is at a byte of a key: zeros from there on are an empty text and fields that are 0.
fn text_at(topic: CoordinatorTopic, key: &[u8], at: usize) -> Option<&'static str> {
    const MORE_THAN_ANY_KEY: usize = 64;
    let mut mended = key.get(..at)?.to_vec();
    mended.resize(at + MORE_THAN_ANY_KEY, 0);
    let Ok(CoordinatorRecord::Known(known)) = topic.decode(&mended, None) else {
        return None;
    };
    let mut position = size_of::<i16>();
    for (name, value) in &known.key.fields {
        if position == at {
            return Some(name);
        }
        position += size_of::<i16>() + value.as_str()?.len();
    }
    None
}

/// Why the value of a metadata record cannot be read.
pub(super) fn metadata(value: &[u8], error: &FormatError) -> String {
    let mut rest = value;
    frame(&mut rest, value, error).unwrap_or_else(|sentence| sentence)
}

fn frame(rest: &mut &[u8], value: &[u8], error: &FormatError) -> Result<String, String> {
    match number(rest, "frame version")? {
        0 => Err(
            "Could not deserialize metadata record with frame version 0. Note that upgrades from the preview release of KRaft in 2.8 \
             to newer versions are not supported."
                .to_owned(),
        ),
        1 => Ok(()),
        other => Err(format!(
            "Could not deserialize metadata record due to unknown frame version {other}(only frame version 1 is supported)"
        )),
    }?;
    let record_type = number(rest, "type")?;
    number(rest, "version")?;
    if record_type < 0 || MetadataRecord::unknown_type(value).is_some() {
        return Ok(format!(
            "org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id {record_type}"
        ));
    }
    Ok(match error.fault {
        // All of the record was read before this rule is checked.
        Fault::Rule(rule) if rule.contains("left behind") => {
            let left = value.len().saturating_sub(error.at);
            format!("Found {left} byte(s) of garbage after {record_type}")
        }
        _ => format!("Failed to deserialize record with type {record_type}"),
    })
}

/// A number as Kafka reads it in front of a metadata record: an `int` of variable length, cut to a `short`.
fn number(rest: &mut &[u8], what: &str) -> Result<i16, String> {
    const MOST_BYTES: u32 = 5;
    let mut found = 0_i32;
    for place in 0..MOST_BYTES {
        let Some((byte, behind)) = rest.split_first() else {
            break;
        };
        *rest = behind;
        found |= i32::from(byte & 0x7f) << (7 * place);
        if *byte < 0x80 {
            if found > i32::from(i16::MAX) {
                return Err(format!("Value for {what} was too large."));
            }
            return Ok(found as i16);
        }
    }
    Err(format!("Error while reading {what}"))
}
