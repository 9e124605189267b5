//! How Java writes what Kafka's tool prints: text from bytes, JSON, numbers, and the order of a hash map.

use offsetlog::format::message::{Struct, Value};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Decodes UTF-8 with U+FFFD for invalid bytes, in Java's portions: a surrogate of three bytes becomes one, elsewhere it is three.
pub(super) fn text(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(bytes.len());
    let mut rest = bytes;
    while !rest.is_empty() {
        let at = rest.windows(2).position(is_surrogate).unwrap_or(rest.len());
        let (before, behind) = rest.split_at(at);
        out.push_str(&String::from_utf8_lossy(before));
        rest = behind;
        if !behind.is_empty() {
            out.push(char::REPLACEMENT_CHARACTER);
            let third = usize::from(behind.get(2).is_some_and(|byte| byte & 0xc0 == 0x80));
            rest = behind.get(2 + third..).unwrap_or(&[]);
        }
    }
    Cow::Owned(out)
}

fn is_surrogate(pair: &[u8]) -> bool {
    matches!(pair, [0xed, 0xa0..=0xbf])
}

/// Writes a structure as Jackson writes the tree that Kafka's converters make.
pub(super) fn write_struct(out: &mut String, fields: &Struct<'_>) {
    out.push('{');
    for (place, (name, value)) in fields.fields.iter().enumerate() {
        if place > 0 {
            out.push(',');
        }
        let _ = write!(out, "\"{name}\":"); // a String takes every write
        write_value(out, value);
    }
    out.push('}');
}

fn write_value(out: &mut String, value: &Value<'_>) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(bool) => out.push_str(if *bool { "true" } else { "false" }),
        Value::Int(number) => {
            let _ = write!(out, "{number}");
        }
        Value::Float(number) => out.push_str(&double(*number)),
        Value::Uuid(id) => {
            let _ = write!(out, "\"{id}\"");
        }
        Value::Text(bytes) => write_quoted(out, &text(bytes)),
        Value::Bytes(bytes) => {
            let _ = write!(out, "\"{}\"", crate::json::base64(bytes));
        }
        Value::Records(bytes) => {
            let _ = write!(out, "{bytes}");
        }
        Value::Array(elements) => {
            out.push('[');
            for (place, element) in elements.iter().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                write_value(out, element);
            }
            out.push(']');
        }
        Value::Struct(fields) => write_struct(out, fields),
    }
}

/// Writes a string of JSON with Jackson's escapes: only what JSON demands, in upper-case digits.
pub(super) fn write_quoted(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            control if control < ' ' => {
                let _ = write!(out, "\\u{:04X}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

/// `Double.toString`: a point always, an exponent from 10^7 on and below 10^-3. A value that is no JSON number becomes a string.
fn double(number: f64) -> String {
    if number.is_nan() {
        return "\"NaN\"".into();
    }
    if number.is_infinite() {
        return if number > 0.0 {
            "\"Infinity\""
        } else {
            "\"-Infinity\""
        }
        .into();
    }
    let size = number.abs();
    if size == 0.0 || (1e-3..1e7).contains(&size) {
        return format!("{number:?}");
    }
    let scientific = format!("{number:e}");
    match scientific.split_once('e') {
        Some((digits, exponent)) if digits.contains('.') => format!("{digits}E{exponent}"),
        Some((digits, exponent)) => format!("{digits}.0E{exponent}"),
        None => scientific,
    }
}

/// A path as `java.io.File` keeps it: without repeated slashes and without one at the end.
pub(super) fn file(path: &Path) -> String {
    let path = path.to_string_lossy();
    let mut out = String::with_capacity(path.len());
    for character in path.chars() {
        if character != '/' || !out.ends_with('/') {
            out.push(character);
        }
    }
    if out.len() > 1 && out.ends_with('/') {
        out.pop();
    }
    out
}

/// `File.getAbsolutePath`: the working directory in front, dots kept.
pub(super) fn absolute(file: &str) -> String {
    if file.starts_with('/') {
        return file.to_owned();
    }
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    self::file(&here.join(file))
}

/// What is kept by a file's name: comes out in the order of a `java.util.HashMap` of strings.
#[derive(Debug)]
pub(super) struct ByFile<T>(Vec<(String, T)>);

impl<T> Default for ByFile<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Default> ByFile<T> {
    pub(super) fn of(&mut self, file: &str) -> &mut T {
        let place = self.0.iter().position(|(name, _)| name == file);
        let place = place.unwrap_or_else(|| {
            self.0.push((file.to_owned(), T::default()));
            self.0.len() - 1
        });
        #[allow(clippy::indexing_slicing, reason = "found or pushed just above")]
        &mut self.0[place].1
    }

    pub(super) fn in_order(&self) -> Vec<&(String, T)> {
        const FIRST_TABLE: usize = 16;
        // `computeIfAbsent` grows a table that was more than three quarters full, and puts what is new at the front of its bucket.
        let mut table = FIRST_TABLE;
        while self.0.len() > table / 4 * 3 + 1 {
            table *= 2;
        }
        let mut entries: Vec<_> = self.0.iter().rev().collect();
        entries.sort_by_key(|(name, _)| {
            let hash = hash_code(name) as u32;
            (hash ^ hash >> 16) as usize & (table - 1)
        });
        entries
    }
}

fn hash_code(text: &str) -> i32 {
    text.encode_utf16().fold(0_i32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(i32::from(unit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values are `new String(bytes, UTF_8)` of Java 17.
    #[test]
    fn bytes_that_are_not_utf8_are_replaced_as_java_does() {
        let check = |bytes: &[u8], expected: &str| assert_eq!(text(bytes), expected, "{bytes:x?}");
        check(b"a\xffb\xc3(", "a\u{fffd}b\u{fffd}(");
        check(b"\xed\xa0\x80x", "\u{fffd}x");
        check(b"\xed\xa0\xed\xbf\xbf", "\u{fffd}\u{fffd}");
        check(b"\xed\xa0", "\u{fffd}");
        check(b"\xed\x9f\xbf", "\u{d7ff}");
        check(b"\xf0\x9f\x98", "\u{fffd}");
        check(b"\xf0\x9f(", "\u{fffd}(");
        check(b"\xe0\x80\x80", "\u{fffd}\u{fffd}\u{fffd}");
    }

    #[test]
    fn doubles_are_written_as_java_writes_them() {
        let cases = [
            (0.0, "0.0"),
            (-1.5, "-1.5"),
            (1e7, "1.0E7"),
            (9_999_999.0, "9999999.0"),
            (0.001, "0.001"),
            (1.25e-4, "1.25E-4"),
            (1e21, "1.0E21"),
        ];
        for (number, expected) in cases {
            assert_eq!(double(number), expected);
        }
    }

    #[test]
    fn strings_have_jacksons_escapes() {
        let mut out = String::new();
        write_quoted(&mut out, "a\"\\\n\t\u{1b}\u{7f}é/");
        assert_eq!(out, "\"a\\\"\\\\\\n\\t\\u001B\u{7f}é/\"");
    }

    /// The order in which a map gave these names that `computeIfAbsent` had put in.
    #[test]
    fn hash_maps_have_javas_order() {
        assert_eq!(hash_code("offsetlog"), -1_960_668_719);
        let mut map = ByFile::<u8>::default();
        for name in ["a", "b", "p", "q"] {
            map.of(name);
        }
        let names: Vec<&str> = map
            .in_order()
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(names, ["p", "q", "a", "b"]);
    }

    #[test]
    fn paths_lose_surplus_slashes() {
        assert_eq!(file(Path::new("a//b/")), "a/b");
        assert_eq!(file(Path::new("/")), "/");
        assert_eq!(absolute("/x"), "/x");
    }
}
