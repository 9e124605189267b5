//! The text file that keeps a topic's settings beside its data.
//!
//! ```text
//! version: 0
//! cleanup.policy=compact
//! segment.ms=3600000
//! ```
//!
//! Every line ends with a newline, the last one too. Canonical values are printable ASCII without blanks, so nothing is escaped.

use super::LogConfig;
use crate::error::{Error, ErrorKind, Result};
use offsetlog_format::{Fault, FormatError, Part};
use std::fmt::Write as _;

/// Largest file that is read: many times what all settings together need, but for lists of replicas.
const FILE_BYTES_MAX: usize = 1 << 20;

const VERSION_LINE: &str = "version: 0";

pub(super) fn write(config: &LogConfig) -> Vec<u8> {
    let mut text = format!("{VERSION_LINE}\n");
    for (name, value) in config.given() {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name}={value}");
    }
    text.into_bytes()
}

pub(super) fn read(bytes: &[u8]) -> Result<LogConfig> {
    if bytes.len() > FILE_BYTES_MAX {
        let fault = Fault::Length {
            found: i64::try_from(bytes.len()).unwrap_or(i64::MAX),
            minimum: 0,
            maximum: FILE_BYTES_MAX as i64,
        };
        return Err(wrong(0, fault));
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|error| wrong(error.valid_up_to(), Fault::Rule("text is not UTF-8")))?;
    let mut pairs = Vec::new();
    let mut at = 0;
    let mut number = 0;
    for line in text.split_inclusive('\n') {
        number += 1;
        let fault = |rule| wrong(at, Fault::Line { line: number, rule });
        let Some(content) = line.strip_suffix('\n') else {
            return Err(fault("the newline at the end is missing"));
        };
        if number == 1 {
            version(content)?;
        } else {
            let pair = content
                .split_once('=')
                .ok_or_else(|| fault("the line is not a name, an equals sign and a value"))?;
            let (_, canonical) = super::canonical(pair.0, pair.1)
                .map_err(|_| fault("the line is not a topic setting with a value that it takes"))?;
            if canonical != pair.1 {
                return Err(fault("the value is not in the form in which it is written"));
            }
            if pairs.iter().any(|(name, _)| *name == pair.0) {
                return Err(fault("the setting was given before"));
            }
            pairs.push(pair);
        }
        at += line.len();
    }
    if number == 0 {
        return Err(wrong(
            0,
            Fault::Truncated {
                needed: VERSION_LINE.len() + 1,
                available: 0,
            },
        ));
    }
    LogConfig::parse(pairs)
        .map_err(|_| wrong(0, Fault::Rule("hold values that contradict each other")))
}

fn version(line: &str) -> Result<()> {
    if line == VERSION_LINE {
        return Ok(());
    }
    let found = line
        .strip_prefix("version: ")
        .and_then(|number| number.parse::<u32>().ok());
    Err(match found {
        Some(found) if found > 0 => {
            let fault = Fault::Version {
                found: i64::from(found),
                maximum: 0,
            };
            Error::new(ErrorKind::UnsupportedVersion(FormatError::new(
                Part::Settings,
                0,
                fault,
            )))
            .at_position(0)
        }
        _ => wrong(
            0,
            Fault::Line {
                line: 1,
                rule: "the line with the version is missing",
            },
        ),
    })
}

fn wrong(at: usize, fault: Fault) -> Error {
    let error = FormatError::new(Part::Settings, at, fault);
    Error::new(ErrorKind::MetadataFile(error)).at_position(at as u64)
}
