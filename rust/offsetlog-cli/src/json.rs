//! JSON lines: how bytes of a log become JSON, and JSON that is safe on a terminal.
//!
//! `serde_json` writes everything; this module only chooses. Characters that a terminal must not get (see
//! [`is_unsafe`]) are `\u` escapes, which say the same to every JSON reader.

use crate::escape::{is_plain, is_unsafe};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use offsetlog::format::message::{Struct, Value};
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::Serializer as JsonSerializer;
use serde_json::ser::Formatter;
use serde_json::value::RawValue;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How the bytes of a key or value are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum Encoding {
    /// Text; bytes that are not UTF-8 are escaped, in JSON they become {"base64": "..."}
    #[default]
    Utf8,
    /// Base64 (RFC 4648, padded)
    Base64,
    /// Two lower-case hexadecimal digits a byte
    Hex,
    /// JSON: kept as JSON, on one line; what is not JSON, and in JSON also null, is shown as with utf8
    Json,
}

/// Base64 as everywhere in this program: standard alphabet, padded.
pub(crate) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(out, "{byte:02x}"); // a String takes every write
    }
    out
}

/// Undoes [`base64`].
pub(crate) fn unbase64(text: &[u8]) -> Result<Vec<u8>, String> {
    STANDARD
        .decode(text)
        .map_err(|error| format!("not base64: {error}"))
}

/// Undoes [`hex`], in either case.
pub(crate) fn unhex(text: &[u8]) -> Result<Vec<u8>, String> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pairs = text.chunks_exact(2);
    let is_whole = pairs.remainder().is_empty();
    pairs
        .map(|pair| match *pair {
            [high, low] => Some(digit(high)? << 4 | digit(low)?),
            _ => None,
        })
        .collect::<Option<Vec<u8>>>()
        .filter(|_| is_whole)
        .ok_or_else(|| "not hexadecimal: two of 0 to 9 and a to f for each byte expected".into())
}

/// Reads `bytes` as one JSON document and keeps its text: numbers keep their digits, objects their order and repeats.
pub(crate) fn document(bytes: &[u8]) -> Result<Box<RawValue>, String> {
    serde_json::from_slice(bytes).map_err(|error| format!("not JSON: {error}"))
}

/// A key, value or header in JSON.
pub(crate) enum Shown<'a> {
    Null,
    Text(&'a str),
    Encoded(String),
    /// Bytes that are not UTF-8: `{"base64": "..."}`.
    Bytes(&'a [u8]),
    Document(Box<RawValue>),
}

impl<'a> Shown<'a> {
    /// Text where the bytes are UTF-8, an object with base64 where they are not.
    pub(crate) fn plain(bytes: Option<&'a [u8]>) -> Self {
        match bytes {
            None => Self::Null,
            Some(bytes) => std::str::from_utf8(bytes).map_or(Self::Bytes(bytes), Self::Text),
        }
    }

    /// A path, which need not be UTF-8 either.
    pub(crate) fn path(path: &'a Path) -> Self {
        Self::plain(Some(path.as_os_str().as_bytes()))
    }

    /// The bytes in an encoding. Bytes that are not JSON are shown as [`plain`](Self::plain), with the reason; so is JSON's null, which
    /// would look like no bytes.
    pub(crate) fn encoded(bytes: Option<&'a [u8]>, encoding: Encoding) -> (Self, Option<String>) {
        let shown = match (bytes, encoding) {
            (Some(bytes), Encoding::Base64) => Self::Encoded(base64(bytes)),
            (Some(bytes), Encoding::Hex) => Self::Encoded(hex(bytes)),
            (Some(bytes), Encoding::Json) => match document(bytes) {
                Ok(document) if document.get().trim() == "null" => {
                    return (Self::plain(Some(bytes)), Some("JSON null".into()));
                }
                Ok(document) => Self::Document(document),
                Err(error) => return (Self::plain(Some(bytes)), Some(error)),
            },
            (bytes, _) => Self::plain(bytes),
        };
        (shown, None)
    }
}

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Encoded(text) => serializer.serialize_str(text),
            Self::Document(document) => document.serialize(serializer),
            Self::Bytes(bytes) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("base64", &base64(bytes))?;
                map.end()
            }
        }
    }
}

/// A structure of an internal topic: text as elsewhere, bytes always in base64.
pub(crate) struct Tree<'a>(pub(crate) &'a Struct<'a>);

struct Leaf<'a>(&'a Value<'a>);

impl Serialize for Tree<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(
            self.0
                .fields
                .iter()
                .map(|(name, value)| (name, Leaf(value))),
        )
    }
}

impl Serialize for Leaf<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Null => serializer.serialize_unit(),
            Value::Bool(bool) => serializer.serialize_bool(*bool),
            Value::Int(number) => serializer.serialize_i64(*number),
            Value::Float(number) => serializer.serialize_f64(*number),
            Value::Uuid(id) => serializer.collect_str(id),
            Value::Text(bytes) => Shown::plain(Some(bytes)).serialize(serializer),
            Value::Bytes(bytes) => Shown::Bytes(bytes).serialize(serializer),
            Value::Records(bytes) => serializer.serialize_u64(*bytes as u64),
            Value::Array(elements) => serializer.collect_seq(elements.iter().map(Leaf)),
            Value::Struct(fields) => Tree(fields).serialize(serializer),
        }
    }
}

/// Compact JSON in which unsafe characters are `\u` escapes and embedded documents lose their line breaks.
struct OneSafeLine;

impl OneSafeLine {
    fn write_escape<W: Write + ?Sized>(out: &mut W, character: char) -> io::Result<()> {
        let mut units = [0_u16; 2];
        for unit in character.encode_utf16(&mut units) {
            write!(out, "\\u{unit:04x}")?;
        }
        Ok(())
    }
}

impl Formatter for OneSafeLine {
    fn write_string_fragment<W: Write + ?Sized>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        if is_plain(fragment.as_bytes()) {
            return out.write_all(fragment.as_bytes());
        }
        let mut rest = fragment;
        while let Some(at) = rest.find(is_unsafe) {
            let (plain, tail) = rest.split_at(at);
            out.write_all(plain.as_bytes())?;
            let mut characters = tail.chars();
            if let Some(character) = characters.next() {
                Self::write_escape(out, character)?;
            }
            rest = characters.as_str();
        }
        out.write_all(rest.as_bytes())
    }

    /// An embedded document: white space between tokens is dropped, strings are escaped as above.
    fn write_raw_fragment<W: Write + ?Sized>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let (mut in_string, mut after_backslash) = (false, false);
        let mut written = 0;
        for (at, character) in fragment.char_indices() {
            let is_space = !in_string && matches!(character, ' ' | '\t' | '\n' | '\r');
            if is_space || is_unsafe(character) {
                out.write_all(fragment.get(written..at).unwrap_or_default().as_bytes())?;
                written = at + character.len_utf8();
                if !is_space {
                    Self::write_escape(out, character)?;
                }
            } else if character == '"' && !after_backslash {
                in_string = !in_string;
            }
            after_backslash = in_string && character == '\\' && !after_backslash;
        }
        out.write_all(fragment.get(written..).unwrap_or_default().as_bytes())?;
        Ok(())
    }
}

/// Writes `value` as JSON on one line, without the line break.
pub(crate) fn write_json<W: Write + ?Sized, T: Serialize + ?Sized>(
    out: &mut W,
    value: &T,
) -> io::Result<()> {
    value
        .serialize(&mut JsonSerializer::with_formatter(out, OneSafeLine))
        .map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line<T: Serialize + ?Sized>(value: &T) -> String {
        let mut out = Vec::new();
        write_json(&mut out, value).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn bytes_are_text_or_an_object_with_base64() {
        assert_eq!(line(&Shown::plain(None)), "null");
        assert_eq!(line(&Shown::plain(Some(b""))), r#""""#);
        assert_eq!(line(&Shown::plain(Some("ключ".as_bytes()))), r#""ключ""#);
        assert_eq!(line(&Shown::plain(Some(b"\xff\0"))), r#"{"base64":"/wA="}"#);
    }

    #[test]
    fn encodings_are_undone() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(unbase64(base64(&bytes).as_bytes()).unwrap(), bytes);
        assert_eq!(unhex(hex(&bytes).as_bytes()).unwrap(), bytes);
        assert_eq!(unhex(b"fFAb").unwrap(), b"\xff\xab");
        assert_eq!(unhex(b"").unwrap(), b"");
        for text in ["a", "0g", "+1", "0x", "a b"] {
            assert!(unhex(text.as_bytes()).is_err(), "{text}");
        }
        assert!(unbase64(b"AA").unwrap_err().starts_with("not base64: "));
    }

    #[test]
    fn encodings_are_told_apart() {
        let show = |bytes: &'static [u8], encoding| {
            let (shown, error) = Shown::encoded(Some(bytes), encoding);
            (line(&shown), error.is_some())
        };
        assert_eq!(
            show(b"hi\xff", Encoding::Base64),
            (r#""aGn/""#.into(), false)
        );
        assert_eq!(
            show(b"hi\xff", Encoding::Hex),
            (r#""6869ff""#.into(), false)
        );
        assert_eq!(show(b"{", Encoding::Json), (r#""{""#.into(), true));
        assert_eq!(show(b"", Encoding::Json), (r#""""#.into(), true));
        assert_eq!(line(&Shown::encoded(None, Encoding::Json).0), "null");
        assert_eq!(
            show(b"\tnull ", Encoding::Json),
            (r#""\tnull ""#.into(), true)
        );
        assert_eq!(
            show(br#""null""#, Encoding::Json),
            (r#""null""#.into(), false)
        );
    }

    /// Digits, order and repeated names survive; a document of several lines becomes one.
    #[test]
    fn documents_keep_their_text() {
        let text =
            b"{\"b\": 12345678901234567890.10,\n \"a\" :[ 1e400 ,\"x \\\" y\"], \"a\": {}\t}";
        let (shown, error) = Shown::encoded(Some(text), Encoding::Json);
        assert_eq!(error, None);
        assert_eq!(
            line(&shown),
            r#"{"b":12345678901234567890.10,"a":[1e400,"x \" y"],"a":{}}"#
        );
    }

    #[test]
    fn a_deep_document_does_not_end_the_process() {
        let deep = [b"[".repeat(200_000), b"]".repeat(200_000)].concat();
        let (shown, _) = Shown::encoded(Some(&deep), Encoding::Json);
        assert!(line(&shown).len() >= deep.len());
    }

    #[test]
    fn unsafe_characters_are_escaped_and_mean_the_same() {
        let text = "\u{202e}\u{9b}31m\u{7f}\u{e0041}\n\x1b";
        let written = line(text);
        assert_eq!(written, r#""\u202e\u009b31m\u007f\udb40\udc41\n\u001b""#);
        assert_eq!(serde_json::from_str::<String>(&written).unwrap(), text);
        let document = serde_json::to_vec("\u{202e}").unwrap();
        let (shown, _) = Shown::encoded(Some(&document), Encoding::Json);
        assert_eq!(line(&shown), r#""\u202e""#);
    }
}
