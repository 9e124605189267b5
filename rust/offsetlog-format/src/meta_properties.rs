//! The file that names a node and its cluster, and the Java properties text it is written in (FORMAT.md «Node identity»).

use crate::error::{Fault, FormatError, Part};
use crate::uuid::Uuid;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write as _;

const PART: Part = Part::MetaProperties;

/// A key of a properties text, unescaped, with its value and the line it starts on, from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Property {
    /// The key.
    pub key: String,
    /// The value.
    pub value: String,
    /// Number of its line.
    pub line: usize,
}

/// Reads Java properties text: bytes are ISO-8859-1, `#` and `!` begin comments, a `\` at the end of a line continues it, and
/// `=`, `:` or blanks end a key. Repeats are kept, in order; the last one counts.
///
/// # Errors
/// `Line` for a `\u` without four hexadecimal digits or, unlike in Java, with half of a surrogate pair.
pub fn read_properties(bytes: &[u8]) -> Result<Vec<Property>, FormatError> {
    let mut properties = Vec::new();
    let mut scanner = Scanner {
        bytes,
        at: 0,
        line: 1,
    };
    while scanner.at < bytes.len() {
        scanner.skip_blanks();
        match scanner.peek() {
            Some(b'#' | b'!') => scanner.skip_line(),
            Some(b'\n' | b'\r') => scanner.end_line(),
            Some(_) => properties.push(scanner.property()?),
            None => {}
        }
    }
    Ok(properties)
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    line: usize,
}

/// A character of a logical line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// As it stands.
    Plain(char),
    /// Escaped: never ends a key.
    Escaped(char),
}

impl Scanner<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | 0x0c)) {
            self.at += 1;
        }
    }

    fn skip_line(&mut self) {
        while !matches!(self.peek(), None | Some(b'\n' | b'\r')) {
            self.at += 1;
        }
        self.end_line();
    }

    /// Steps over LF, CR or CR LF.
    fn end_line(&mut self) {
        match self.peek() {
            Some(b'\r') if self.bytes.get(self.at + 1) == Some(&b'\n') => self.at += 2,
            Some(_) => self.at += 1,
            None => return,
        }
        self.line += 1;
    }

    /// The next character of the logical line; `None` at its end, which is stepped over.
    fn unit(&mut self) -> Result<Option<Unit>, FormatError> {
        loop {
            let Some(byte) = self.peek() else {
                return Ok(None);
            };
            match byte {
                b'\n' | b'\r' => {
                    self.end_line();
                    return Ok(None);
                }
                b'\\' => {
                    self.at += 1;
                    match self.peek() {
                        None => return Ok(None),
                        Some(b'\n' | b'\r') => {
                            self.end_line();
                            self.skip_blanks();
                        }
                        Some(escaped) => return self.escaped(escaped).map(Some),
                    }
                }
                plain => {
                    self.at += 1;
                    return Ok(Some(Unit::Plain(char::from(plain))));
                }
            }
        }
    }

    fn escaped(&mut self, byte: u8) -> Result<Unit, FormatError> {
        self.at += 1;
        Ok(Unit::Escaped(match byte {
            b't' => '\t',
            b'n' => '\n',
            b'r' => '\r',
            b'f' => '\u{c}',
            b'u' => self.unicode()?,
            other => char::from(other),
        }))
    }

    /// The character behind `\u`; two escapes may make one.
    fn unicode(&mut self) -> Result<char, FormatError> {
        let first = self.four_digits()?;
        let mut units = [first, 0];
        let mut count = 1;
        if (0xd800..0xdc00).contains(&first)
            && self.bytes.get(self.at..self.at + 2) == Some(b"\\u".as_slice())
        {
            self.at += 2;
            units = [first, self.four_digits()?];
            count = 2;
        }
        let mut decoded = char::decode_utf16(units.into_iter().take(count));
        match (decoded.next(), decoded.next()) {
            (Some(Ok(character)), None) => Ok(character),
            _ => Err(self.error("half of a surrogate pair")),
        }
    }

    fn four_digits(&mut self) -> Result<u16, FormatError> {
        let digits = self
            .bytes
            .get(self.at..self.at + 4)
            .filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))
            .and_then(|digits| core::str::from_utf8(digits).ok())
            .and_then(|digits| u16::from_str_radix(digits, 16).ok())
            .ok_or(self.error("\\u must be followed by four hexadecimal digits"))?;
        self.at += 4;
        Ok(digits)
    }

    fn error(&self, rule: &'static str) -> FormatError {
        let line = self.line;
        FormatError::new(PART, self.at, Fault::Line { line, rule })
    }

    fn property(&mut self) -> Result<Property, FormatError> {
        let line = self.line;
        let (mut key, mut value) = (String::new(), String::new());
        // 0: in the key; 1: between, no '=' or ':' yet; 2: between, after it; 3: in the value.
        let mut stage = 0;
        while let Some(unit) = self.unit()? {
            let (character, plain) = match unit {
                Unit::Plain(character) => (character, true),
                Unit::Escaped(character) => (character, false),
            };
            let is_blank = plain && matches!(character, ' ' | '\t' | '\u{c}');
            let is_mark = plain && matches!(character, '=' | ':');
            match stage {
                0 if is_blank => stage = 1,
                0 | 1 if is_mark => stage = 2,
                0 => key.push(character),
                1 | 2 if is_blank => {}
                _ => {
                    stage = 3;
                    value.push(character);
                }
            }
        }
        Ok(Property { key, value, line })
    }
}

/// Appends `key=value` and a newline, escaped as Java does.
pub fn write_property(out: &mut String, key: &str, value: &str) {
    escape(out, key, true);
    out.push('=');
    escape(out, value, false);
    out.push('\n');
}

fn escape(out: &mut String, text: &str, is_key: bool) {
    for (at, character) in text.char_indices() {
        match character {
            ' ' if is_key || at == 0 => out.push_str("\\ "),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\u{c}' => out.push_str("\\f"),
            '=' | ':' | '#' | '!' | '\\' => {
                out.push('\\');
                out.push(character);
            }
            ' '..='~' => out.push(character),
            _ => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    // Writing to a String cannot fail.
                    let _ = write!(out, "\\u{unit:04X}");
                }
            }
        }
    }
}

/// The contents of a `meta.properties` file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetaProperties {
    /// Version 0: written under `ZooKeeper`.
    V0 {
        /// The broker's id.
        broker_id: Option<i32>,
        /// The cluster's id; since 2.4.
        cluster_id: Option<String>,
        /// The log directory's id.
        directory_id: Option<Uuid>,
    },
    /// Version 1: written under `KRaft`.
    V1 {
        /// The node's id.
        node_id: i32,
        /// The cluster's id.
        cluster_id: String,
        /// The log directory's id; since 3.7.
        directory_id: Option<Uuid>,
    },
}

impl MetaProperties {
    /// Reads the file. Keys in any order; unknown ones are ignored. No bytes are version 0 without ids.
    ///
    /// # Errors
    /// `Line` for malformed text, an invalid number or id; `Version` beyond 1; `Rule` for a missing `node.id` or `cluster.id` in version 1.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let properties = read_properties(bytes)?;
        let find = |key: &str| properties.iter().rev().find(|found| found.key == key);
        let bad = |property: &Property, rule| {
            let line = property.line;
            FormatError::new(PART, 0, Fault::Line { line, rule })
        };
        let integer = |key| {
            find(key)
                .map(|property| {
                    let value = property.value.parse::<i32>();
                    value.map_err(|_| bad(property, "the value is not a number"))
                })
                .transpose()
        };
        let cluster_id = find("cluster.id").map(|property| property.value.clone());
        let directory_id = find("directory.id")
            .map(|property| {
                Uuid::parse(&property.value).map_err(|_| {
                    bad(
                        property,
                        "the directory id is not 22 characters of base64url",
                    )
                })
            })
            .transpose()?;
        match integer("version")?.unwrap_or(0) {
            0 => Ok(Self::V0 {
                broker_id: integer("broker.id")?,
                cluster_id,
                directory_id,
            }),
            1 => {
                let missing = |rule| FormatError::new(PART, bytes.len(), Fault::Rule(rule));
                Ok(Self::V1 {
                    node_id: integer("node.id")?.ok_or(missing("node.id is missing"))?,
                    cluster_id: cluster_id.ok_or(missing("cluster.id is missing"))?,
                    directory_id,
                })
            }
            found => Err(FormatError::new(
                PART,
                0,
                Fault::Version {
                    found: i64::from(found),
                    maximum: 1,
                },
            )),
        }
    }

    /// Makes the bytes of the file. `date` is the text of the comment that Java puts on the second line, such as
    /// `Sat Nov 21 04:06:58 UTC 2026`; this crate knows no clock.
    #[must_use]
    pub fn write(&self, date: &str) -> Vec<u8> {
        let (version, id_key, id, cluster_id, directory_id) = match self {
            Self::V0 {
                broker_id,
                cluster_id,
                directory_id,
            } => (
                "0",
                "broker.id",
                *broker_id,
                cluster_id.as_deref(),
                *directory_id,
            ),
            Self::V1 {
                node_id,
                cluster_id,
                directory_id,
            } => (
                "1",
                "node.id",
                Some(*node_id),
                Some(cluster_id.as_str()),
                *directory_id,
            ),
        };
        let mut out = String::from("#\n#");
        out.extend(
            date.chars()
                .filter(|character| matches!(character, ' '..='~')),
        );
        out.push('\n');
        if let Some(id) = id {
            write_property(&mut out, id_key, &id.to_string());
        }
        if let Some(directory_id) = directory_id {
            write_property(&mut out, "directory.id", &directory_id.to_string());
        }
        write_property(&mut out, "version", version);
        if let Some(cluster_id) = cluster_id {
            write_property(&mut out, "cluster.id", cluster_id);
        }
        out.into_bytes()
    }

    /// The node's or broker's id.
    #[must_use]
    pub const fn node_id(&self) -> Option<i32> {
        match self {
            Self::V0 { broker_id, .. } => *broker_id,
            Self::V1 { node_id, .. } => Some(*node_id),
        }
    }

    /// The cluster's id.
    #[must_use]
    pub fn cluster_id(&self) -> Option<&str> {
        match self {
            Self::V0 { cluster_id, .. } => cluster_id.as_deref(),
            Self::V1 { cluster_id, .. } => Some(cluster_id),
        }
    }

    /// The log directory's id.
    #[must_use]
    pub const fn directory_id(&self) -> Option<Uuid> {
        match self {
            Self::V0 { directory_id, .. } | Self::V1 { directory_id, .. } => *directory_id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pairs(text: &[u8]) -> Vec<(String, String)> {
        let properties = read_properties(text).unwrap();
        properties
            .into_iter()
            .map(|property| (property.key, property.value))
            .collect()
    }

    /// The rules of `java.util.Properties`, one line each.
    #[test]
    fn properties_are_read_as_java_does() {
        for (text, key, value) in [
            (&b"a=b"[..], "a", "b"),
            (b"  a \t: b \n", "a", "b "),
            (b"a b=c", "a", "b=c"),
            (b"a = = b", "a", "= b"),
            (b"a", "a", ""),
            (b"a\\=b=c", "a=b", "c"),
            (b"a=b\\\n   c", "a", "bc"),
            (b"a\\\r\n b=c", "ab", "c"),
            (b"a=b\\\\\n", "a", "b\\"),
            (b"a=\\u00e9\\ud83d\\ude00\\q\\t", "a", "\u{e9}\u{1f600}q\t"),
            (b"a=\xe9", "a", "\u{e9}"),
            (b"a=\\ b", "a", " b"),
            (b"# x=y\n! z\n\n \r\na=b\\", "a", "b"),
            (b"# x\\\na=b", "a", "b"),
            (b"=b", "", "b"),
        ] {
            assert_eq!(
                pairs(text),
                [(key.to_string(), value.to_string())],
                "{}",
                text.escape_ascii()
            );
        }
        for text in ["a=\\u12", "a=\\u12g4", "a=\\ud83d", "\na=\\ud83d\\u0041"] {
            assert!(read_properties(text.as_bytes()).is_err(), "{text}");
        }
    }

    const REAL: &str = "#\n#Sat Nov 21 04:06:58 UTC 2026\nnode.id=1\ndirectory.id=UMpW5T-JS27WnabzLdxusg\nversion=1\ncluster.id=UncleanUncleanUnclea0Q\n";

    #[test]
    fn a_file_of_kafka_4_reads_and_writes_the_same() {
        let meta = MetaProperties::parse(REAL.as_bytes()).unwrap();
        assert_eq!(meta.node_id(), Some(1));
        assert_eq!(meta.cluster_id(), Some("UncleanUncleanUnclea0Q"));
        assert_eq!(
            meta.directory_id().unwrap().to_string(),
            "UMpW5T-JS27WnabzLdxusg"
        );
        assert_eq!(meta.write("Sat Nov 21 04:06:58 UTC 2026"), REAL.as_bytes());
    }

    #[test]
    fn version_zero_needs_nothing() {
        for text in ["", "version=0\n", "# nothing"] {
            let meta = MetaProperties::parse(text.as_bytes()).unwrap();
            assert_eq!((meta.node_id(), meta.cluster_id()), (None, None), "{text}");
        }
        let meta = MetaProperties::parse(b"broker.id=2\nnode.id=3\ncluster.id=x").unwrap();
        assert_eq!((meta.node_id(), meta.cluster_id()), (Some(2), Some("x")));
    }

    #[test]
    fn what_stops_a_broker_is_an_error() {
        for text in [
            "version=2\nnode.id=1\ncluster.id=x",
            "version=-1",
            "version=x",
            "version=1\nnode.id=1",
            "version=1\ncluster.id=x",
            "version=1\nnode.id=one\ncluster.id=x",
            "broker.id=2147483648",
            "version=1\nnode.id=1\ncluster.id=x\ndirectory.id=short",
        ] {
            let error = MetaProperties::parse(text.as_bytes()).unwrap_err();
            assert_eq!(error.part, Part::MetaProperties, "{text}");
        }
    }

    proptest! {
        #[test]
        fn written_properties_read_back(key in ".{0,12}", value in ".{0,12}") {
            let mut out = String::new();
            write_property(&mut out, &key, &value);
            prop_assert!(out.is_ascii());
            prop_assert_eq!(pairs(out.as_bytes()), [(key, value)]);
        }

        #[test]
        fn written_identities_read_back(id: i32, cluster in ".{0,12}", directory in prop::option::of(any::<[u8; 16]>()), old: bool, some: bool) {
            let directory_id = directory.map(Uuid::from_bytes);
            let meta = if old {
                MetaProperties::V0 { broker_id: some.then_some(id), cluster_id: some.then_some(cluster), directory_id }
            } else {
                MetaProperties::V1 { node_id: id, cluster_id: cluster, directory_id }
            };
            prop_assert_eq!(MetaProperties::parse(&meta.write("a\nversion=9")), Ok(meta));
        }

        #[test]
        fn any_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..60), text in "([a=: \\\\\nu0-9d\r]|version|node.id){0,30}") {
            let _ = MetaProperties::parse(&bytes);
            let _ = MetaProperties::parse(text.as_bytes());
        }
    }
}
