//! Input cut into lines, and a line into a record.

use super::{NewRecord, decoded};
use crate::json::Encoding;
use memchr::memmem::{self, Finder};
use std::borrow::Cow;

/// Longest line; what has none is no text.
const LINE_BYTES_MAX: usize = 1 << 30;

/// Cuts bytes that come in pieces into lines.
pub(super) struct Lines {
    delimiter: Finder<'static>,
    held: Vec<u8>,
    /// Where the next line begins.
    start: usize,
    /// Before this place no delimiter begins, from `start` on.
    searched: usize,
}

impl Lines {
    pub(super) fn new(delimiter: &[u8]) -> Self {
        Self {
            delimiter: Finder::new(delimiter).into_owned(),
            held: Vec::new(),
            start: 0,
            searched: 0,
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.held.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        self.held.extend_from_slice(bytes);
    }

    /// The next whole line, without its delimiter.
    pub(super) fn next(&mut self) -> Option<&[u8]> {
        let width = self.delimiter.needle().len();
        let Some(found) = self.delimiter.find(self.held.get(self.searched..)?) else {
            // The last bytes may be the beginning of a delimiter.
            self.searched = self.start.max((self.held.len() + 1).saturating_sub(width));
            return None;
        };
        let (start, end) = (self.start, self.searched + found);
        self.start = end + width;
        self.searched = self.start;
        self.held.get(start..end)
    }

    /// The bytes behind the last delimiter; nothing if the input ended with one.
    pub(super) fn last(&mut self) -> Option<&[u8]> {
        let rest = self.held.get(self.start..)?;
        (!rest.is_empty()).then_some(rest)
    }

    pub(super) fn is_too_long(&self) -> bool {
        self.held.len() - self.start > LINE_BYTES_MAX
    }
}

/// How a line becomes a record.
pub(super) struct LineLayout {
    pub(super) key_separator: Option<Vec<u8>>,
    pub(super) headers_separator: Option<Vec<u8>>,
    /// The key of every record.
    pub(super) key: Option<Vec<u8>>,
    pub(super) null_value: Option<Vec<u8>>,
    pub(super) key_format: Encoding,
    pub(super) value_format: Encoding,
}

impl LineLayout {
    pub(super) fn record<'l>(&self, line: &'l [u8]) -> Result<NewRecord<'l>, String> {
        let mut rest = line;
        let mut record = NewRecord::default();
        if let Some(separator) = &self.headers_separator {
            let (headers, behind) = split(rest, separator)
                .ok_or_else(|| format!("no {} behind the headers", Shown(separator)))?;
            record.headers = self.headers(headers)?;
            rest = behind;
        }
        if let Some(separator) = &self.key_separator {
            let (key, behind) = split(rest, separator)
                .ok_or_else(|| format!("no {} behind the key", Shown(separator)))?;
            record.key = self.bytes(key, self.key_format, "key")?;
            rest = behind;
        } else if let Some(key) = &self.key {
            record.key = Some(Cow::Owned(key.clone()));
        }
        record.value = self.bytes(rest, self.value_format, "value")?;
        Ok(record)
    }

    fn is_null(&self, bytes: &[u8]) -> bool {
        self.null_value
            .as_ref()
            .is_some_and(|null| null.as_slice() == bytes)
    }

    fn bytes<'l>(
        &self,
        bytes: &'l [u8],
        format: Encoding,
        what: &str,
    ) -> Result<Option<Cow<'l, [u8]>>, String> {
        if self.is_null(bytes) {
            return Ok(None);
        }
        match decoded(bytes, format) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(reason) => Err(format!("the {what} is {reason}")),
        }
    }

    /// `name=value,name=value`; nothing is no header.
    fn headers<'l>(&self, text: &'l [u8]) -> Result<Headers<'l>, String> {
        if text.is_empty() {
            return Ok(Vec::new());
        }
        let mut headers = Vec::new();
        for header in text.split(|&byte| byte == b',') {
            let (name, value) = split(header, b"=").ok_or_else(|| {
                format!(
                    "no \"=\" in the header {}; headers are written name=value,name=value",
                    Shown(header)
                )
            })?;
            let value = (!self.is_null(value)).then_some(Cow::Borrowed(value));
            headers.push((Cow::Borrowed(name), value));
        }
        Ok(headers)
    }
}

type Headers<'l> = Vec<(Cow<'l, [u8]>, Option<Cow<'l, [u8]>>)>;

/// The parts before and behind the first separator.
fn split<'l>(line: &'l [u8], separator: &[u8]) -> Option<(&'l [u8], &'l [u8])> {
    let at = memmem::find(line, separator)?;
    Some((line.get(..at)?, line.get(at + separator.len()..)?))
}

/// A part of a line in a message: quoted, and cut where it is long.
struct Shown<'a>(&'a [u8]);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const CHARS_MAX: usize = 40;
        let text = String::from_utf8_lossy(self.0);
        let cut: String = text.chars().take(CHARS_MAX).collect();
        let more = if cut.len() < text.len() { "..." } else { "" };
        write!(f, "{cut:?}{more}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(delimiter: &[u8], pieces: &[&[u8]]) -> Vec<String> {
        let mut lines = Lines::new(delimiter);
        let mut all = Vec::new();
        let text = |line: &[u8]| String::from_utf8(line.to_vec()).unwrap();
        for piece in pieces {
            lines.push(piece);
            while let Some(line) = lines.next() {
                all.push(text(line));
            }
        }
        all.extend(lines.last().map(text));
        all
    }

    #[test]
    fn lines_are_the_same_however_the_bytes_come() {
        for (delimiter, input, expected) in [
            ("\n", "a\nbc\n\nd", vec!["a", "bc", "", "d"]),
            ("\n", "a\n", vec!["a"]),
            ("\n", "", vec![]),
            ("\n", "\n", vec![""]),
            ("\r\n", "a\rb\r\nc\r\r\n", vec!["a\rb", "c\r"]),
            ("aab", "aaab|aaaab", vec!["a", "|aa"]),
            ("--", "a---b", vec!["a", "-b"]),
        ] {
            let bytes = input.as_bytes();
            assert_eq!(cut(delimiter.as_bytes(), &[bytes]), expected, "{input:?}");
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            assert_eq!(cut(delimiter.as_bytes(), &single), expected, "{input:?}");
            for at in 0..bytes.len() {
                let pieces = [&bytes[..at], &bytes[at..]];
                assert_eq!(
                    cut(delimiter.as_bytes(), &pieces),
                    expected,
                    "{input:?} {at}"
                );
            }
        }
    }

    fn layout() -> LineLayout {
        LineLayout {
            key_separator: None,
            headers_separator: None,
            key: None,
            null_value: None,
            key_format: Encoding::Utf8,
            value_format: Encoding::Utf8,
        }
    }

    fn parts(layout: &LineLayout, line: &str) -> Result<String, String> {
        let record = layout.record(line.as_bytes())?;
        let text = |bytes: &Option<Cow<'_, [u8]>>| {
            bytes.as_ref().map_or("null".to_owned(), |bytes| {
                format!("{:?}", String::from_utf8_lossy(bytes))
            })
        };
        let headers: Vec<String> = record
            .headers
            .iter()
            .map(|(name, value)| format!("{}:{}", String::from_utf8_lossy(name), text(value)))
            .collect();
        Ok(format!(
            "{} {} {}",
            text(&record.key),
            text(&record.value),
            headers.join(" ")
        ))
    }

    #[test]
    fn a_line_is_a_value_unless_something_cuts_it() {
        let mut layout = layout();
        assert_eq!(parts(&layout, "a:b").unwrap(), r#"null "a:b" "#);
        layout.key = Some(b"k".to_vec());
        assert_eq!(parts(&layout, "a:b").unwrap(), r#""k" "a:b" "#);
        layout.key_separator = Some(b":".to_vec());
        assert_eq!(parts(&layout, "a:b:c").unwrap(), r#""a" "b:c" "#);
        assert_eq!(parts(&layout, ":").unwrap(), r#""" "" "#);
        assert_eq!(parts(&layout, "ab").unwrap_err(), "no \":\" behind the key");
        layout.headers_separator = Some(b"\t".to_vec());
        assert_eq!(
            parts(&layout, "x=1,y==,=\tk:v\tw").unwrap(),
            r#""k" "v\tw" x:"1" y:"=" :"""#
        );
        assert_eq!(parts(&layout, "\tk:v").unwrap(), r#""k" "v" "#);
        assert_eq!(
            parts(&layout, "k:v").unwrap_err(),
            "no \"\\t\" behind the headers"
        );
        assert!(parts(&layout, "x=1,y\tk:v").unwrap_err().contains("\"y\""));
    }

    #[test]
    fn one_text_stands_for_null_everywhere() {
        let mut layout = layout();
        layout.key_separator = Some(b":".to_vec());
        layout.headers_separator = Some(b";".to_vec());
        layout.null_value = Some(b"NULL".to_vec());
        assert_eq!(
            parts(&layout, "a=NULL,b=;NULL:NULL").unwrap(),
            r#"null null a:null b:"""#
        );
        layout.null_value = Some(Vec::new());
        assert_eq!(parts(&layout, "a=;:").unwrap(), "null null a:null");
    }

    #[test]
    fn formats_are_undone() {
        let mut layout = layout();
        layout.key_separator = Some(b":".to_vec());
        layout.key_format = Encoding::Hex;
        layout.value_format = Encoding::Base64;
        assert_eq!(parts(&layout, "6B:dg==").unwrap(), r#""k" "v" "#);
        assert!(
            parts(&layout, "6:dg==")
                .unwrap_err()
                .starts_with("the key is not hexadecimal")
        );
        assert!(
            parts(&layout, "6B:d")
                .unwrap_err()
                .starts_with("the value is not base64")
        );
        layout.value_format = Encoding::Json;
        assert_eq!(parts(&layout, "6b:[1, 2]").unwrap(), r#""k" "[1, 2]" "#);
        assert!(
            parts(&layout, "6b:[1,")
                .unwrap_err()
                .starts_with("the value is not JSON")
        );
    }
}
