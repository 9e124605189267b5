//! JSON as Kafka's brokers keep it in ZooKeeper (FORMAT.md «ZooKeeper's data»): an object's members, each value as the text that it is.
//!
//! A value is parsed only by code that knows its expected type, so parsed JSON takes no more memory than the text itself.

use crate::error::{Fault, FormatError, Part};
use alloc::string::String;
use alloc::vec::Vec;

const PART: Part = Part::ZooKeeperNode;
/// Far more than Kafka's own, which have three.
const DEEPEST: usize = 32;

/// The members of an object, in the order of the text; of a name that is there twice Kafka takes the last.
///
/// # Errors
/// `Rule` at the byte where the text is not an object.
pub fn members(bytes: &[u8]) -> Result<Vec<(String, &[u8])>, FormatError> {
    let mut text = Text { bytes, at: 0 };
    let mut found = Vec::new();
    text.all(b'{', b'}', "not a JSON object", |text| {
        let name = text.string()?;
        text.expect(b':', "no colon behind the name of a JSON member")?;
        found.push((name, text.value(0)?));
        Ok(())
    })?;
    text.end()?;
    Ok(found)
}

/// The numbers of an array that has nothing else.
///
/// # Errors
/// `Rule`.
pub fn integers(bytes: &[u8]) -> Result<Vec<i32>, FormatError> {
    let mut text = Text { bytes, at: 0 };
    let mut found = Vec::new();
    text.all(b'[', b']', "not a JSON array", |text| {
        found.push(integer(text.value(0)?)?);
        Ok(())
    })?;
    text.end()?;
    Ok(found)
}

/// The values of an array, each as its text.
///
/// # Errors
/// `Rule`.
pub fn elements(bytes: &[u8]) -> Result<Vec<&[u8]>, FormatError> {
    let mut text = Text { bytes, at: 0 };
    let mut found = Vec::new();
    text.all(b'[', b']', "not a JSON array", |text| {
        found.push(text.value(0)?);
        Ok(())
    })?;
    text.end()?;
    Ok(found)
}

/// The texts of an array that has nothing else.
///
/// # Errors
/// `Rule`.
pub fn strings(bytes: &[u8]) -> Result<Vec<String>, FormatError> {
    let mut text = Text { bytes, at: 0 };
    let mut found = Vec::new();
    text.all(b'[', b']', "not a JSON array", |text| {
        found.push(text.string()?);
        Ok(())
    })?;
    text.end()?;
    Ok(found)
}

/// A whole number of four bytes.
///
/// # Errors
/// `Rule`.
pub fn integer(bytes: &[u8]) -> Result<i32, FormatError> {
    let rule = Fault::Rule("not a whole number of four bytes");
    let text = core::str::from_utf8(bytes).ok();
    // Rust takes a plus sign, JSON does not.
    text.filter(|text| !text.starts_with('+'))
        .and_then(|text| text.parse().ok())
        .ok_or(FormatError::new(PART, 0, rule))
}

/// A text.
///
/// # Errors
/// `Rule`.
pub fn string(bytes: &[u8]) -> Result<String, FormatError> {
    let mut text = Text { bytes, at: 0 };
    let found = text.string()?;
    text.end()?;
    Ok(found)
}

/// Whether a value is the word for none.
#[must_use]
pub fn is_null(bytes: &[u8]) -> bool {
    bytes == b"null"
}

struct Text<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Text<'a> {
    const fn error(&self, rule: &'static str) -> FormatError {
        FormatError::new(PART, self.at, Fault::Rule(rule))
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn takes(&mut self, byte: u8) -> bool {
        self.blanks();
        let is_it = self.peek() == Some(byte);
        self.at += usize::from(is_it);
        is_it
    }

    fn expect(&mut self, byte: u8, rule: &'static str) -> Result<(), FormatError> {
        if self.takes(byte) {
            Ok(())
        } else {
            Err(self.error(rule))
        }
    }

    fn end(&mut self) -> Result<(), FormatError> {
        self.blanks();
        if self.at == self.bytes.len() {
            Ok(())
        } else {
            Err(self.error("something follows the JSON value"))
        }
    }

    /// The text between two brackets, separated by commas.
    fn all(
        &mut self,
        open: u8,
        close: u8,
        rule: &'static str,
        mut each: impl FnMut(&mut Self) -> Result<(), FormatError>,
    ) -> Result<(), FormatError> {
        self.expect(open, rule)?;
        if self.takes(close) {
            return Ok(());
        }
        loop {
            each(self)?;
            if self.takes(close) {
                return Ok(());
            }
            self.expect(b',', "neither a comma nor an end behind a JSON value")?;
        }
    }

    /// The text of the next value, whatever it is.
    fn value(&mut self, depth: usize) -> Result<&'a [u8], FormatError> {
        self.blanks();
        let start = self.at;
        match self.peek() {
            _ if depth == DEEPEST => return Err(self.error("JSON that is too deep")),
            Some(b'{') => self.all(b'{', b'}', "", |text| {
                text.blanks();
                text.quoted()?;
                text.expect(b':', "no colon behind the name of a JSON member")?;
                text.value(depth + 1).map(drop)
            })?,
            Some(b'[') => self.all(b'[', b']', "", |text| text.value(depth + 1).map(drop))?,
            Some(b'"') => self.quoted().map(drop)?,
            _ => {
                let is_word =
                    |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'E' | b'.' | b'+' | b'-');
                while self.peek().is_some_and(is_word) {
                    self.at += 1;
                }
            }
        }
        let found = self.bytes.get(start..self.at).unwrap_or(&[]);
        if found.is_empty() {
            return Err(self.error("no JSON value"));
        }
        Ok(found)
    }

    /// The text between quotes, unchanged.
    fn quoted(&mut self) -> Result<&'a [u8], FormatError> {
        self.expect(b'"', "not a JSON text")?;
        let start = self.at;
        loop {
            match self.peek() {
                None => return Err(self.error("a JSON text without an end")),
                Some(b'"') => break,
                Some(b'\\') => self.at += 2,
                Some(_) => self.at += 1,
            }
        }
        let found = self.bytes.get(start..self.at).unwrap_or(&[]);
        self.at += 1;
        Ok(found)
    }

    fn string(&mut self) -> Result<String, FormatError> {
        self.blanks();
        let start = self.at;
        let quoted = self.quoted()?;
        let bad = |rule| FormatError::new(PART, start, Fault::Rule(rule));
        let mut rest = core::str::from_utf8(quoted).map_err(|_| bad("a JSON text is not UTF-8"))?;
        let mut found = String::new();
        while let Some((plain, escaped)) = rest.split_once('\\') {
            found.push_str(plain);
            let mut chars = escaped.chars();
            let unknown = || bad("an escape that JSON does not have");
            let meant = match chars.next().ok_or_else(unknown)? {
                same @ ('"' | '\\' | '/') => same,
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'u' => {
                    let (meant, behind) = escape(chars.as_str()).ok_or_else(unknown)?;
                    chars = behind.chars();
                    meant
                }
                _ => return Err(unknown()),
            };
            found.push(meant);
            rest = chars.as_str();
        }
        found.push_str(rest);
        Ok(found)
    }
}

/// The character of a `\u`, or of a pair of them, and what follows.
fn escape(text: &str) -> Option<(char, &str)> {
    let unit = |text: &str| {
        let digits = text.get(..4)?;
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        is_hex.then(|| u16::from_str_radix(digits, 16).ok())?
    };
    let first = unit(text)?;
    let behind = text.get(4..)?;
    if let Some(second) = behind.strip_prefix("\\u")
        && (0xd800..0xdc00).contains(&first)
    {
        let mut pair = char::decode_utf16([first, unit(second)?]);
        return Some((pair.next()?.ok()?, second.get(4..)?));
    }
    Some((char::from_u32(u32::from(first))?, behind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;
    use std::vec;

    #[test]
    fn members_are_kept_as_their_text() {
        let found = members(br#" {"a": {"b":[1, {"c":"}"}]} , "d":"x\"y","e":-1.5e3,"f":null} "#);
        let expected: Vec<(String, &[u8])> = vec![
            ("a".to_string(), br#"{"b":[1, {"c":"}"}]}"#),
            ("d".to_string(), br#""x\"y""#),
            ("e".to_string(), b"-1.5e3"),
            ("f".to_string(), b"null"),
        ];
        assert_eq!(found, Ok(expected));
        assert_eq!(members(b"{}"), Ok(vec![]));
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for text in [
            "",
            "[]",
            "{",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{\"a\":1}x",
            "{a:1}",
            "{\"a\":1 2}",
            "{\"a",
            "null",
            "{\"a\\",
        ] {
            assert!(members(text.as_bytes()).is_err(), "{text}");
        }
        let deep = std::format!("{{\"a\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(members(deep.as_bytes()).is_err());
    }

    #[test]
    fn values_are_what_they_are_asked_for() {
        assert_eq!(integers(b"[ 1,-2 , 3]"), Ok(vec![1, -2, 3]));
        assert_eq!(integers(b"[]"), Ok(vec![]));
        for text in [
            "[1",
            "[1.0]",
            "[\"1\"]",
            "[2147483648]",
            "[+1]",
            "1",
            "[1]]",
        ] {
            assert!(integers(text.as_bytes()).is_err(), "{text}");
        }
        let text = string(br#""a\/\\\"\b\f\n\r\t\u00e9\ud83d\ude00!""#);
        assert_eq!(text.unwrap(), "a/\\\"\u{8}\u{c}\n\r\t\u{e9}\u{1f600}!");
        for text in [
            r#""\x""#,
            r#""\u12""#,
            r#""\ud83d""#,
            r#""\ud83dx""#,
            "\"\u{7f}",
            "x",
            r#""\u+123""#,
        ] {
            assert!(string(text.as_bytes()).is_err(), "{text}");
        }
        assert!(string(b"\"\xff\"").is_err());
        assert_eq!(strings(br#"["a", "b"]"#).unwrap(), ["a", "b"]);
        let found: Vec<&[u8]> = vec![b"{\"a\":1}", b"2"];
        assert_eq!(elements(br#"[{"a":1} , 2]"#), Ok(found));
        assert!(elements(b"{}").is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..80), text in "[{}\\[\\]\":,0-9a-z \\\\u-]{0,60}") {
            for bytes in [&bytes[..], text.as_bytes()] {
                let _ = members(bytes);
                let _ = integers(bytes);
                let _ = strings(bytes);
                let _ = string(bytes);
            }
        }
    }
}
