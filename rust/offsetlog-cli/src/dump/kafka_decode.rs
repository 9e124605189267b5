//! Keys and values of records in Kafka's words: as text, or through one of its decoders.

use super::java;
use super::kafka_run::{Ended, exception};
use super::kafka_words;
use crate::args::Decoder;
use offsetlog::format::internal_topic::{
    CoordinatorRecord, CoordinatorTopic, KnownRecord, MetadataRecord, decode_assignment,
    decode_subscription,
};
use offsetlog::format::message::{Struct, Value};
use offsetlog::format::{FormatError, RecordView};
use std::borrow::Cow;
use std::fmt::Write as _;

/// Key and value, each `None` where nothing is printed.
type Contents = (Option<String>, Option<String>);

pub(super) fn contents(
    decoder: Option<Decoder>,
    record: &RecordView<'_>,
) -> Result<Contents, Ended> {
    let topic = match decoder {
        None => {
            let text = |bytes: Option<&[u8]>| bytes.map(|bytes| java::text(bytes).into_owned());
            return Ok((text(record.key), text(record.value)));
        }
        Some(Decoder::Metadata) => {
            let value = record.value.unwrap_or(&[]);
            let text = match MetadataRecord::decode(value) {
                Ok(metadata) => metadata_text(&metadata),
                Err(error) => {
                    let reason = kafka_words::metadata(value, &error);
                    format!("Error at {}, skipping. {reason}", record.offset)
                }
            };
            return Ok((None, Some(text)));
        }
        Some(Decoder::Coordinator(topic)) => topic,
    };
    let Some(key) = record.key else {
        return Err(exception(
            "java.lang.RuntimeException",
            &format!(
                "Failed to decode message at offset {} using the specified decoder (message had a missing key)",
                record.offset
            ),
        ));
    };
    Ok(match topic.decode(key, record.value) {
        Ok(CoordinatorRecord::Known(known)) => coordinator(topic, known),
        Ok(CoordinatorRecord::Unknown { number }) => {
            let text = format!(
                "Unknown record type {number} at offset {}, skipping.",
                record.offset
            );
            (Some(text), None)
        }
        Err(error) => {
            let reason = kafka_words::coordinator(topic, key, record.value, &error);
            let text = format!("Error at offset {}, skipping. {reason}", record.offset);
            (Some(text), None)
        }
    })
}

fn metadata_text(record: &MetadataRecord<'_>) -> String {
    let mut out = String::from("{\"type\":");
    java::write_quoted(&mut out, &constant(record.message.name));
    let _ = write!(out, ",\"version\":{},\"data\":", record.version); // a String takes every write
    java::write_struct(&mut out, &record.fields);
    out.push('}');
    out
}

/// `NoOpRecord` as `NO_OP_RECORD`.
fn constant(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 8);
    for character in name.chars() {
        if character.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(character.to_ascii_uppercase());
    }
    out
}

fn coordinator(topic: CoordinatorTopic, record: KnownRecord<'_>) -> Contents {
    let mut key = format!("{{\"type\":\"{}\",\"data\":", record.record_type.number);
    java::write_struct(&mut key, &record.key);
    key.push('}');
    let is_group =
        topic == CoordinatorTopic::ConsumerOffsets && record.record_type.name() == "GroupMetadata";
    let value = record.value.map_or_else(
        || "<DELETE>".to_owned(),
        |(version, mut fields)| {
            if is_group {
                unfold_members(&mut fields);
            }
            let mut value = format!("{{\"version\":\"{version}\",\"data\":");
            java::write_struct(&mut value, &fields);
            value.push('}');
            value
        },
    );
    (Some(key), Some(value))
}

/// Reads what members tell each other.
type Decode = fn(&[u8]) -> Result<(i16, Struct<'_>), FormatError>;

/// Puts what members of a classic group of consumers say to each other in the place of its bytes, where those can be read.
pub(super) fn unfold_members(group: &mut Struct<'_>) {
    let protocol_type = group.get("protocolType").and_then(Value::as_str);
    if protocol_type != Some("consumer") {
        return;
    }
    let members = group.fields.iter_mut().find(|(name, _)| *name == "members");
    let Some((_, Value::Array(members))) = members else {
        return;
    };
    for member in members {
        let Value::Struct(member) = member else {
            continue;
        };
        for (name, value) in &mut member.fields {
            let decode: Decode = match *name {
                "subscription" => decode_subscription,
                "assignment" => decode_assignment,
                _ => continue,
            };
            if let Value::Bytes(Cow::Borrowed(bytes)) = *value
                && let Ok((_, fields)) = decode(bytes)
            {
                *value = Value::Struct(fields);
            }
        }
    }
}
