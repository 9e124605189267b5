//! The file that names a partition's topic id (FORMAT.md «Partition metadata»).

use crate::error::{Fault, FormatError, Part};
use crate::name::is_java_white_space;
use crate::text::{Line, Lines};
use crate::uuid::Uuid;
use alloc::format;
use alloc::vec::Vec;

/// The version that is written. Higher ones are read.
pub const PARTITION_METADATA_VERSION: i32 = 0;

/// The contents of a `partition.metadata` file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PartitionMetadata {
    /// Version of the file, 0 or above.
    pub version: i32,
    /// The topic's id, never zero.
    pub topic_id: Uuid,
}

impl PartitionMetadata {
    /// Reads the file. As in Kafka, keys are not looked at, only the order of the lines; further lines are ignored.
    ///
    /// # Errors
    /// `Line` for a line that is missing or malformed, an invalid number or id, the id zero; `Version` below 0.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        const PART: Part = Part::PartitionMetadata;
        let mut lines = Lines::utf8(PART, bytes)?;
        let missing = |line, rule| FormatError::new(PART, bytes.len(), Fault::Line { line, rule });
        let first = lines
            .next()
            .ok_or(missing(1, "the line with the version is missing"))?;
        let version: i32 = value_of(&first)?
            .parse()
            .map_err(|_| first.error(PART, "the version is not a number"))?;
        if version < PARTITION_METADATA_VERSION {
            return Err(FormatError::new(
                PART,
                first.at,
                Fault::Version {
                    found: i64::from(version),
                    maximum: i64::from(i32::MAX),
                },
            ));
        }
        let second = lines
            .next()
            .ok_or(missing(2, "the line with the topic id is missing"))?;
        let topic_id = Uuid::parse(value_of(&second)?)
            .map_err(|_| second.error(PART, "the topic id is not 22 characters of base64url"))?;
        if topic_id.is_zero() {
            return Err(second.error(PART, "the topic id is zero"));
        }
        Ok(Self { version, topic_id })
    }

    /// Makes the bytes of the file. Like Kafka's, they do not end with a newline.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        format!("version: {}\ntopic_id: {}", self.version, self.topic_id).into_bytes()
    }
}

/// The field behind the one colon that white space follows.
fn value_of<'a>(line: &Line<'a>) -> Result<&'a str, FormatError> {
    let separators = line.text.match_indices(':').filter_map(|(at, colon)| {
        let rest = line.text.get(at + colon.len()..)?;
        let value = rest.trim_start_matches(is_java_white_space);
        (value.len() < rest.len()).then_some(value)
    });
    let mut values = separators;
    match (values.next(), values.next()) {
        (Some(value), None) if !value.is_empty() => Ok(value),
        _ => Err(line.error(
            Part::PartitionMetadata,
            "the line is not a name, a colon, a blank and a value",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::{String, ToString};

    const ID: &str = "MWJ6FHTfRYy67jzwZdeqSQ";
    const ZERO: &str = "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA";

    fn parse(text: &str) -> Result<PartitionMetadata, FormatError> {
        PartitionMetadata::parse(text.as_bytes())
    }

    #[test]
    fn text_is_kafkas() {
        let metadata = PartitionMetadata {
            version: 0,
            topic_id: Uuid::parse(ID).unwrap(),
        };
        let text = format!("version: 0\ntopic_id: {ID}");
        assert_eq!(metadata.write(), text.as_bytes());
        assert_eq!(parse(&text), Ok(metadata));
    }

    #[test]
    fn only_the_order_of_lines_matters() {
        for (text, version) in [
            (format!("version: 7\r\ntopic_id: {ID}\r\n"), 7),
            (format!("X:\t +0\nY:   {ID}==\nmore\n"), 0),
            (format!(": 0\n: {ID}\n"), 0),
        ] {
            assert_eq!(parse(&text).unwrap().version, version, "{text:?}");
        }
    }

    #[test]
    fn malformed_lines_are_told_by_number() {
        for (text, expected) in [
            (String::new(), 1),
            (format!("version:0\ntopic_id: {ID}"), 1),
            (format!("version: x\ntopic_id: {ID}"), 1),
            (format!("version: \ntopic_id: {ID}"), 1),
            (format!("version: 0 \ntopic_id: {ID}"), 1),
            (format!("a: b: 0\ntopic_id: {ID}"), 1),
            ("version: 0".to_string(), 2),
            ("version: 0\n".to_string(), 2),
            (format!("version: 0\ntopic_id:{ID}"), 2),
            (format!("version: 0\ntopic_id: {ID}A"), 2),
            (ZERO.to_string(), 2),
        ] {
            match parse(&text).unwrap_err().fault {
                Fault::Line { line, .. } => assert_eq!(line, expected, "{text:?}"),
                other => panic!("{text:?} {other:?}"),
            }
        }
        let error = parse(&format!("version: -1\ntopic_id: {ID}")).unwrap_err();
        assert!(matches!(error.fault, Fault::Version { found: -1, .. }));
        assert!(PartitionMetadata::parse(b"\xff").is_err());
    }

    proptest! {
        #[test]
        fn written_files_read_back(version in 0_i32.., id in any::<[u8; 16]>().prop_filter("zero", |id| id != &[0; 16])) {
            let metadata = PartitionMetadata { version, topic_id: Uuid::from_bytes(id) };
            prop_assert_eq!(PartitionMetadata::parse(&metadata.write()), Ok(metadata));
        }

        #[test]
        fn any_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..60), text in "[a-z]{0,3}:?[ \t]?[0-9-]{0,2}\n[a-z]?:? ?[A-Za-z0-9=]{0,25}") {
            let _ = PartitionMetadata::parse(&bytes);
            let _ = parse(&text);
        }
    }
}
