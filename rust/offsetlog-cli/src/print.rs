//! How one record is printed: kcat's formats and kcat's JSON envelope.

use crate::escape::write_escaped;
use crate::json::{Encoding, Shown, base64, document, hex, write_json};
use crate::template::{Piece, Template};
use offsetlog::Log;
use offsetlog::format::{BatchHeader, RecordView, TimestampType};
use serde::Serialize;
use std::io::{self, Write};

/// What is printed of a record.
pub(crate) struct Fields<'a> {
    pub(crate) topic: &'a str,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) timestamp: i64,
    pub(crate) timestamp_type: TimestampType,
    pub(crate) leader_epoch: Option<i32>,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) headers: Vec<(&'a [u8], Option<&'a [u8]>)>,
}

impl<'a> Fields<'a> {
    /// Those of a record in a batch of this log.
    pub(crate) fn of(log: &'a Log, batch: &BatchHeader, record: &RecordView<'a>) -> Self {
        Self {
            topic: log.topic(),
            partition: log.partition(),
            offset: record.offset,
            timestamp: record.timestamp,
            timestamp_type: record.timestamp_type,
            leader_epoch: (batch.leader_epoch >= 0).then_some(batch.leader_epoch),
            key: record.key,
            value: record.value,
            headers: record.headers.iter().collect(),
        }
    }
}

/// How records are printed.
pub(crate) enum Style {
    Text(Template),
    Json,
}

/// The options of `cat` that say how.
pub(crate) struct Printer {
    pub(crate) style: Style,
    pub(crate) key_format: Encoding,
    pub(crate) value_format: Encoding,
    /// Whether null is written as `NULL`.
    pub(crate) show_null: bool,
    /// Whether bytes are written as they are.
    pub(crate) raw: bool,
}

/// kcat's envelope, with the leader epoch where kcat has its broker.
#[derive(Serialize)]
struct Envelope<'a> {
    topic: &'a str,
    partition: i32,
    offset: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    tstype: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<i64>,
    leader_epoch: Option<i32>,
    /// Names and values by turns, as kcat has them, so that order and repeats survive.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    headers: Vec<Shown<'a>>,
    key: Shown<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_error: Option<String>,
    payload: Shown<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_error: Option<String>,
}

impl Printer {
    pub(crate) fn print<W: Write>(&self, out: &mut W, record: &Fields<'_>) -> io::Result<()> {
        match &self.style {
            Style::Text(template) => template
                .0
                .iter()
                .try_for_each(|piece| self.piece(out, piece, record)),
            Style::Json => {
                write_json(out, &self.envelope(record))?;
                out.write_all(b"\n")
            }
        }
    }

    fn piece<W: Write>(&self, out: &mut W, piece: &Piece, record: &Fields<'_>) -> io::Result<()> {
        match piece {
            Piece::Literal(bytes) => out.write_all(bytes),
            Piece::Topic => out.write_all(record.topic.as_bytes()),
            Piece::Partition => write!(out, "{}", record.partition),
            Piece::Offset => write!(out, "{}", record.offset),
            Piece::Timestamp => write!(out, "{}", record.timestamp),
            Piece::Key => self.bytes(out, record.key, self.key_format),
            Piece::KeySize => write!(out, "{}", size(record.key)),
            Piece::Value => self.bytes(out, record.value, self.value_format),
            Piece::ValueSize => write!(out, "{}", size(record.value)),
            Piece::ValueSizeBinary => {
                let size = i32::try_from(size(record.value)).unwrap_or(i32::MAX);
                out.write_all(&size.to_be_bytes())
            }
            Piece::Headers => self.headers(out, &record.headers),
        }
    }

    fn bytes<W: Write>(
        &self,
        out: &mut W,
        bytes: Option<&[u8]>,
        encoding: Encoding,
    ) -> io::Result<()> {
        let Some(bytes) = bytes else {
            return out.write_all(if self.show_null { b"NULL" } else { b"" });
        };
        match encoding {
            Encoding::Base64 => out.write_all(base64(bytes).as_bytes()),
            Encoding::Hex => out.write_all(hex(bytes).as_bytes()),
            Encoding::Json => match document(bytes) {
                Ok(document) => write_json(out, &document),
                Err(_) => self.text(out, bytes),
            },
            Encoding::Utf8 => self.text(out, bytes),
        }
    }

    fn text<W: Write>(&self, out: &mut W, bytes: &[u8]) -> io::Result<()> {
        if self.raw {
            out.write_all(bytes)
        } else {
            write_escaped(out, bytes)
        }
    }

    fn headers<W: Write>(&self, out: &mut W, headers: &[(&[u8], Option<&[u8]>)]) -> io::Result<()> {
        for (place, (name, value)) in headers.iter().enumerate() {
            if place > 0 {
                out.write_all(b",")?;
            }
            self.text(out, name)?;
            out.write_all(b"=")?;
            match value {
                Some(value) => self.text(out, value)?,
                None => out.write_all(b"NULL")?,
            }
        }
        Ok(())
    }

    fn envelope<'a>(&self, record: &Fields<'a>) -> Envelope<'a> {
        let (key, key_error) = Shown::encoded(record.key, self.key_format);
        let (payload, payload_error) = Shown::encoded(record.value, self.value_format);
        let tstype = match record.timestamp_type {
            TimestampType::None => None,
            TimestampType::Create => Some("create"),
            TimestampType::LogAppend => Some("logappend"),
        };
        let headers = record.headers.iter();
        Envelope {
            topic: record.topic,
            partition: record.partition,
            offset: record.offset,
            tstype,
            ts: tstype.map(|_| record.timestamp),
            leader_epoch: record.leader_epoch,
            headers: headers
                .flat_map(|(name, value)| [Shown::plain(Some(name)), Shown::plain(*value)])
                .collect(),
            key,
            key_error,
            payload,
            payload_error,
        }
    }
}

fn size(bytes: Option<&[u8]>) -> i64 {
    bytes.map_or(-1, |bytes| i64::try_from(bytes.len()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Fields<'static> {
        Fields {
            topic: "orders",
            partition: 3,
            offset: 41,
            timestamp: 1_700_000_000_000,
            timestamp_type: TimestampType::Create,
            leader_epoch: Some(2),
            key: None,
            value: Some(b"pa\x1bid\n"),
            headers: vec![
                (b"trace", Some(b"1")),
                (b"trace", None),
                (b"", Some(b"\xff")),
            ],
        }
    }

    fn printer(style: Style) -> Printer {
        Printer {
            style,
            key_format: Encoding::Utf8,
            value_format: Encoding::Utf8,
            show_null: false,
            raw: false,
        }
    }

    fn print(printer: &Printer, record: &Fields<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        printer.print(&mut out, record).unwrap();
        out
    }

    fn text(format: &str) -> Printer {
        printer(Style::Text(format.parse().unwrap()))
    }

    #[test]
    fn every_letter_prints_its_part() {
        let out = print(&text(r"%t/%p/%o %T [%k|%K] [%s|%S] %h%%\n"), &record());
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "orders/3/41 1700000000000 [|-1] [pa\\x1bid\\n|6] trace=1,trace=NULL,=\\xff%\n"
        );
    }

    #[test]
    fn null_is_told_from_empty_when_asked() {
        let mut printer = text("%k,%s");
        printer.show_null = true;
        let mut record = record();
        assert_eq!(print(&printer, &record), b"NULL,pa\\x1bid\\n");
        record.key = Some(b"");
        record.value = None;
        assert_eq!(print(&printer, &record), b",NULL");
    }

    #[test]
    fn raw_framed_values_are_bytes() {
        let mut printer = text("%R%s");
        printer.raw = true;
        let mut record = record();
        assert_eq!(print(&printer, &record), b"\0\0\0\x06pa\x1bid\n");
        record.value = None;
        assert_eq!(print(&printer, &record), b"\xff\xff\xff\xff");
    }

    #[test]
    fn formats_of_values_hold_in_text() {
        let mut printer = text("%s");
        let mut record = record();
        printer.value_format = Encoding::Base64;
        assert_eq!(print(&printer, &record), b"cGEbaWQK");
        printer.value_format = Encoding::Hex;
        assert_eq!(print(&printer, &record), b"70611b69640a");
        printer.value_format = Encoding::Json;
        assert_eq!(print(&printer, &record), b"pa\\x1bid\\n");
        record.value = Some(b"{\n \"a\": 1.0 }");
        assert_eq!(print(&printer, &record), b"{\"a\":1.0}");
    }

    #[test]
    fn the_envelope_is_kcats() {
        let out = print(&printer(Style::Json), &record());
        assert_eq!(
            String::from_utf8(out).unwrap(),
            concat!(
                r#"{"topic":"orders","partition":3,"offset":41,"tstype":"create","ts":1700000000000,"leader_epoch":2,"#,
                r#""headers":["trace","1","trace",null,"",{"base64":"/w=="}],"key":null,"payload":"pa\u001bid\n"}"#,
                "\n"
            )
        );
    }

    #[test]
    fn the_envelope_says_what_is_missing_or_not_as_asked() {
        let mut printer = printer(Style::Json);
        printer.value_format = Encoding::Json;
        let mut record = record();
        record.timestamp_type = TimestampType::None;
        record.leader_epoch = None;
        record.headers.clear();
        record.value = Some(b"{oops");
        let line: serde_json::Value = serde_json::from_slice(&print(&printer, &record)).unwrap();
        let names: Vec<&str> = line
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(
            names,
            [
                "topic",
                "partition",
                "offset",
                "leader_epoch",
                "key",
                "payload",
                "payload_error"
            ]
        );
        assert_eq!(line["payload"], "{oops");
        assert!(
            line["payload_error"]
                .as_str()
                .unwrap()
                .starts_with("not JSON: ")
        );
    }
}
