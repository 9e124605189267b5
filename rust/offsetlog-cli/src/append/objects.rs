//! A JSON object becomes a record: the objects that `cat --json` prints, and kcat's.

use super::{NewRecord, decoded};
use crate::json::Encoding;
use offsetlog_ops::When;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Timestamp of a record that has none.
const NO_TIMESTAMP: i64 = -1;

/// How an object's key and value are written.
#[derive(Debug, Clone, Copy)]
pub(super) struct ObjectLayout {
    pub(super) key_format: Encoding,
    pub(super) value_format: Encoding,
}

/// The envelope. A field that only a log can set (the record's position) is ignored; an unknown name is a mistake.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<'l> {
    #[serde(rename = "topic")]
    _topic: Option<IgnoredAny>,
    #[serde(rename = "partition")]
    _partition: Option<IgnoredAny>,
    offset: Option<IgnoredAny>,
    #[serde(rename = "tstype")]
    _tstype: Option<IgnoredAny>,
    #[serde(default, borrow)]
    ts: Given<'l>,
    #[serde(rename = "leader_epoch")]
    _leader_epoch: Option<IgnoredAny>,
    #[serde(rename = "broker")]
    _broker: Option<IgnoredAny>,
    #[serde(default, borrow)]
    headers: Option<&'l RawValue>,
    #[serde(default, borrow)]
    key: Given<'l>,
    key_error: Option<IgnoredAny>,
    #[serde(borrow, alias = "value")]
    payload: &'l RawValue,
    #[serde(alias = "value_error")]
    payload_error: Option<IgnoredAny>,
}

/// A member that may be missing: `null` is there.
#[derive(Default)]
struct Given<'l>(Option<&'l RawValue>);

impl<'de: 'l, 'l> Deserialize<'de> for Given<'l> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&'l RawValue>::deserialize(deserializer).map(|raw| Self(Some(raw)))
    }
}

/// Bytes that are not UTF-8.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Encoded<'l> {
    #[serde(borrow)]
    base64: Cow<'l, str>,
}

impl ObjectLayout {
    /// The record of a line; `None` for a blank one.
    pub(super) fn record(self, line: &[u8]) -> Result<Option<NewRecord<'_>>, String> {
        if line.trim_ascii().is_empty() {
            return Ok(None);
        }
        if !line.trim_ascii_start().starts_with(b"{") {
            return Err("no JSON object".into());
        }
        let envelope: Envelope<'_> = serde_json::from_slice(line).map_err(|error| told(&error))?;
        let format = |format, failed: bool| if failed { Encoding::Utf8 } else { format };
        let key_format = format(self.key_format, envelope.key_error.is_some());
        let value_format = format(self.value_format, envelope.payload_error.is_some());
        let key = match envelope.key.0 {
            Some(key) => bytes(key, key_format).map_err(|reason| advised("key", "key", &reason))?,
            None => None,
        };
        Ok(Some(NewRecord {
            timestamp: timestamp(envelope.ts.0, envelope.offset.is_some())?,
            key,
            value: bytes(envelope.payload, value_format)
                .map_err(|reason| advised("payload", "value", &reason))?,
            headers: match envelope.headers {
                Some(given) => headers(given)?,
                None => Vec::new(),
            },
        }))
    }
}

/// serde's words; the line that it counts is one of our own lines.
fn told(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&place) {
        Some(words) => format!("{words}, column {}", error.column()),
        None => text,
    }
}

/// An object of `cat` without a time is a record without one: magic 0 has none.
fn timestamp(given: Option<&RawValue>, is_from_a_log: bool) -> Result<Option<i64>, String> {
    let Some(given) = given else {
        return Ok(is_from_a_log.then_some(NO_TIMESTAMP));
    };
    let text = given.get();
    if text == "null" {
        return Ok(Some(NO_TIMESTAMP));
    }
    let When(milliseconds) = match text.strip_prefix('"') {
        Some(_) => string(text)?.parse(),
        None => text.parse().map(When).map_err(|_| {
            "a whole number of milliseconds, a text in RFC 3339 or null expected".to_owned()
        }),
    }
    .map_err(|reason| format!("ts: {reason}"))?;
    Ok(Some(milliseconds))
}

/// Names and values by turns.
fn headers(given: &RawValue) -> Result<Vec<super::NewHeader<'_>>, String> {
    const BY_TURNS: &str = r#"headers: names and values by turns expected, as in ["host", "web1"]"#;
    let flat: Vec<&RawValue> =
        serde_json::from_str(given.get()).map_err(|_| BY_TURNS.to_owned())?;
    let pairs = flat.chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return Err(format!("{BY_TURNS}; the last name has no value"));
    }
    let mut headers = Vec::with_capacity(pairs.len());
    for pair in pairs {
        let &[name, value] = pair else { continue };
        let place = |reason| format!("headers: {reason}");
        let name = plain(name).map_err(place)?;
        let value = plain(value).map_err(place)?;
        headers.push((name.ok_or("headers: a name is null")?, value));
    }
    Ok(headers)
}

fn bytes(raw: &RawValue, format: Encoding) -> Result<Option<Cow<'_, [u8]>>, String> {
    let text = raw.get();
    match format {
        Encoding::Utf8 => plain(raw),
        _ if text == "null" => Ok(None),
        Encoding::Json => Ok(Some(Cow::Borrowed(text.as_bytes()))),
        Encoding::Base64 | Encoding::Hex => {
            let text = string(text)?;
            let decoded = decoded(text.as_bytes(), format)?;
            Ok(Some(Cow::Owned(decoded.into_owned())))
        }
    }
}

/// A text, `{"base64": ...}` or null.
fn plain(raw: &RawValue) -> Result<Option<Cow<'_, [u8]>>, String> {
    let text = raw.get();
    if text == "null" {
        return Ok(None);
    }
    if text.starts_with('{') {
        let encoded: Encoded<'_> = serde_json::from_str(text).map_err(|_| EXPECTED.to_owned())?;
        let decoded = decoded(encoded.base64.as_bytes(), Encoding::Base64)?;
        return Ok(Some(Cow::Owned(decoded.into_owned())));
    }
    Ok(Some(match string(text)? {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }))
}

fn string(json: &str) -> Result<Cow<'_, str>, String> {
    #[derive(Deserialize)]
    #[serde(transparent)]
    struct Text<'l>(#[serde(borrow)] Cow<'l, str>);

    if !json.starts_with('"') {
        return Err(EXPECTED.into());
    }
    serde_json::from_str(json)
        .map(|Text(text)| text)
        .map_err(|error| told(&error))
}

const EXPECTED: &str = r#"a text, {"base64": "..."} or null expected"#;

/// Why a member is refused; where it is other JSON, also the option that takes that.
fn advised(member: &str, option: &str, reason: &str) -> String {
    let advice = if reason == EXPECTED {
        format!("; --{option}-format json takes any JSON")
    } else {
        String::new()
    };
    format!("{member}: {reason}{advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(layout: ObjectLayout, line: &str) -> Result<NewRecord<'_>, String> {
        layout.record(line.as_bytes()).map(Option::unwrap)
    }

    const PLAIN: ObjectLayout = ObjectLayout {
        key_format: Encoding::Utf8,
        value_format: Encoding::Utf8,
    };

    #[test]
    fn an_object_of_cat_is_its_record() {
        let line = concat!(
            r#"{"topic":"orders","partition":3,"offset":41,"tstype":"create","ts":1700000000000,"leader_epoch":2,"#,
            r#""headers":["trace","1","trace",null,"",{"base64":"/w=="}],"key":null,"payload":"pa\u001bid\n"}"#,
        );
        let record = record(PLAIN, line).unwrap();
        assert_eq!(record.timestamp, Some(1_700_000_000_000));
        assert_eq!(record.key, None);
        assert_eq!(record.value.as_deref(), Some(b"pa\x1bid\n".as_slice()));
        let headers: Vec<(&[u8], Option<&[u8]>)> = record
            .headers
            .iter()
            .map(|(name, value)| (name.as_ref(), value.as_deref()))
            .collect();
        assert_eq!(
            headers,
            [
                (b"trace".as_slice(), Some(b"1".as_slice())),
                (b"trace", None),
                (b"", Some(b"\xff")),
            ]
        );
    }

    #[test]
    fn times_are_given_or_missing_or_none() {
        let check = |members: &str, expected| {
            let line = format!("{{{members}\"value\":\"\"}}");
            assert_eq!(record(PLAIN, &line).unwrap().timestamp, expected, "{line}");
        };
        check("", None);
        check(r#""ts":5,"#, Some(5));
        check(r#""ts":null,"#, Some(-1));
        check(r#""offset":5,"#, Some(-1));
        check(r#""ts":"2023-11-14T22:13:20Z","#, Some(1_700_000_000_000));
        for bad in ["1.5", "\"soon\"", "[]", "1e3", "99999999999999999999"] {
            let line = format!(r#"{{"ts":{bad},"payload":""}}"#);
            assert!(
                record(PLAIN, &line).unwrap_err().starts_with("ts: "),
                "{line}"
            );
        }
    }

    #[test]
    fn formats_are_undone() {
        let layout = |value_format| ObjectLayout {
            value_format,
            ..PLAIN
        };
        let value = |format, payload: &str| {
            let line = format!(r#"{{"payload":{payload}}}"#);
            record(layout(format), &line).map(|record| record.value.map(Cow::into_owned))
        };
        let bytes = |bytes: &[u8]| Ok(Some(bytes.to_vec()));
        assert_eq!(value(Encoding::Base64, r#""aGn\/""#), bytes(b"hi\xff"));
        assert_eq!(value(Encoding::Hex, r#""6869fF""#), bytes(b"hi\xff"));
        assert_eq!(
            value(Encoding::Json, r#"{"a" :1.0}"#),
            bytes(br#"{"a" :1.0}"#)
        );
        assert_eq!(value(Encoding::Json, r#""x""#), bytes(br#""x""#));
        for format in [
            Encoding::Utf8,
            Encoding::Base64,
            Encoding::Hex,
            Encoding::Json,
        ] {
            assert_eq!(value(format, "null"), Ok(None));
        }
        for (format, payload) in [
            (Encoding::Base64, "1"),
            (Encoding::Base64, r#""a""#),
            (Encoding::Hex, r#""abc""#),
            (Encoding::Utf8, "1"),
            (Encoding::Utf8, "[]"),
            (Encoding::Utf8, "{}"),
            (Encoding::Utf8, r#"{"base64":"AA==","b":1}"#),
            (Encoding::Utf8, r#"{"base64":"A"}"#),
            (Encoding::Utf8, r#""\ud800""#),
        ] {
            let error = value(format, payload).unwrap_err();
            assert!(error.starts_with("payload: "), "{payload}: {error}");
        }
        // What was no JSON was printed as text.
        let line = r#"{"payload":"{oops","payload_error":"not JSON"}"#;
        let record = record(layout(Encoding::Json), line).unwrap();
        assert_eq!(record.value.as_deref(), Some(b"{oops".as_slice()));
    }

    #[test]
    fn mistakes_are_named() {
        for (line, expected) in [
            ("hello", "no JSON object"),
            ("[1]", "no JSON object"),
            ("{hello", "key must be a string, column 2"),
            (r#"{"payload":"a"} x"#, "trailing characters, column 17"),
            (r#"{"key":"a"}"#, "missing field `payload`"),
            (r#"{"paylod":"a"}"#, "unknown field `paylod`"),
            (
                r#"{"payload":"a","value":"b"}"#,
                "duplicate field `payload`",
            ),
            (
                r#"{"payload":"","headers":["a"]}"#,
                "headers: names and values by turns",
            ),
            (
                r#"{"payload":"","headers":[null,"a"]}"#,
                "headers: a name is null",
            ),
            (
                r#"{"payload":"","headers":{"a":"b"}}"#,
                "headers: names and values by turns",
            ),
            (r#"{"payload":"","headers":["a",1]}"#, "headers: a text"),
            (
                r#"{"payload":{"a":1}}"#,
                "expected; --value-format json takes any JSON",
            ),
            (
                r#"{"payload":"","key":7}"#,
                "expected; --key-format json takes any JSON",
            ),
        ] {
            let error = record(PLAIN, line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
        assert!(PLAIN.record(b" \t\r").unwrap().is_none());
        assert!(PLAIN.record(b"{\"payload\":\"\xff\"}").is_err());
    }
}
