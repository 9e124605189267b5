//! Kinds of values: from Kafka's text forms to one canonical text, and from that to what the engine holds.

use offsetlog_format::{Codec, TimestampType};
use std::fmt;

/// Longest text from outside that an error shows, in characters.
pub(super) const SHOWN_CHARS_MAX: usize = 60;

/// What a setting's value is, with its bounds, all inclusive.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Kind {
    /// A whole number of 32 bits.
    Int {
        /// Smallest value.
        minimum: i32,
        /// Largest value.
        maximum: i32,
        /// A value that is accepted beside those.
        also: Option<i32>,
    },
    /// A whole number of 64 bits.
    Long {
        /// Smallest value.
        minimum: i64,
    },
    /// A number from 0 to 1.
    Ratio,
    /// `true` or `false`, in any case.
    Boolean,
    /// One of some words.
    Choice(&'static [&'static str]),
    /// Some of some words, each at most once, with commas between; none of them is a value too.
    List(&'static [&'static str]),
    /// `partition:broker` pairs with commas between, or `*` for all.
    Replicas,
}

impl Kind {
    /// The type, in Kafka's words.
    #[must_use]
    pub const fn type_name(self) -> &'static str {
        match self {
            Self::Int { .. } => "int",
            Self::Long { .. } => "long",
            Self::Ratio => "double",
            Self::Boolean => "boolean",
            Self::Choice(_) => "string",
            Self::List(_) | Self::Replicas => "list",
        }
    }

    /// The bounds, as a table shows them; empty where the type says all.
    #[must_use]
    pub fn bounds(self) -> String {
        match self {
            Self::Int {
                minimum,
                maximum,
                also,
            } => {
                let range = match (minimum, maximum) {
                    (i32::MIN, i32::MAX) => String::new(),
                    (minimum, i32::MAX) => format!("at least {minimum}"),
                    (minimum, maximum) => format!("{minimum} to {maximum}"),
                };
                also.map_or(range.clone(), |also| format!("{range}, or {also}"))
            }
            Self::Long { minimum: i64::MIN } => String::new(),
            Self::Long { minimum } => format!("at least {minimum}"),
            Self::Ratio => "0 to 1".to_owned(),
            Self::Boolean => "true or false".to_owned(),
            Self::Choice(words) => words.join(", "),
            Self::List(words) => format!("any of {}, or nothing", words.join(", ")),
            Self::Replicas => "partition:broker pairs, or *".to_owned(),
        }
    }

    /// The one text of the value that `text` writes; else what was expected.
    ///
    /// Canonical texts are printable ASCII without blanks, so that a line of a file can hold any of them.
    pub(super) fn canonical(self, text: &str) -> Result<String, String> {
        let text = text.trim_matches(|c| c <= ' ');
        self.read(text).ok_or_else(|| {
            let bounds = self.bounds();
            match self {
                Self::Int { .. } | Self::Long { .. } if bounds.is_empty() => {
                    format!("a whole number ({})", self.type_name())
                }
                Self::Int { .. } | Self::Long { .. } => {
                    format!("a whole number ({}), {bounds}", self.type_name())
                }
                Self::Ratio => format!("a number, {bounds}"),
                Self::Choice(_) => format!("one of {bounds}"),
                Self::Boolean | Self::List(_) | Self::Replicas => bounds,
            }
        })
    }

    fn read(self, text: &str) -> Option<String> {
        match self {
            Self::Int {
                minimum,
                maximum,
                also,
            } => {
                let number: i32 = text.parse().ok()?;
                let good = (minimum..=maximum).contains(&number) || also == Some(number);
                good.then(|| number.to_string())
            }
            Self::Long { minimum } => {
                let number: i64 = text.parse().ok()?;
                (number >= minimum).then(|| number.to_string())
            }
            Self::Ratio => ratio(text),
            Self::Boolean => {
                let word = text.to_ascii_lowercase();
                matches!(word.as_str(), "true" | "false").then_some(word)
            }
            Self::Choice(words) => words
                .iter()
                .find(|word| **word == text)
                .map(ToString::to_string),
            Self::List(words) => {
                let mut kept = Vec::new();
                for item in items(text) {
                    let word = words.iter().find(|word| **word == item)?;
                    if !kept.contains(word) {
                        kept.push(*word);
                    }
                }
                Some(kept.join(","))
            }
            Self::Replicas => {
                // Kafka keeps empty items; they name no replica.
                let items: Vec<_> = items(text).filter(|item| !item.is_empty()).collect();
                let good = items == ["*"] || items.iter().all(|item| is_replica(item));
                good.then(|| items.join(","))
            }
        }
    }
}

/// The items between commas, as Kafka splits lists; an empty text has no items.
fn items(text: &str) -> impl Iterator<Item = &str> {
    let blank = |c| matches!(c, ' ' | '\t' | '\n' | '\x0b' | '\x0c' | '\r');
    text.split(',')
        .filter(move |_| !text.is_empty())
        .map(move |item| item.trim_matches(blank))
}

fn is_replica(item: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    item.split_once(':')
        .is_some_and(|(partition, broker)| digits(partition) && digits(broker))
}

/// Java's decimal forms: digits with a point, an exponent, a suffix of its float and double literals.
fn ratio(text: &str) -> Option<String> {
    let text = text.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(text);
    let plain = text
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'+' | b'-' | b'e' | b'E'));
    let number: f64 = text.parse().ok().filter(|_| plain)?;
    // Adding zero makes a negative zero positive.
    (0.0..=1.0)
        .contains(&number)
        .then(|| (number + 0.0).to_string())
}

/// A typed value, read from its canonical text.
pub(super) trait FromCanonical: Sized {
    /// `None` for a text that is not canonical, which a [`LogConfig`](super::LogConfig) does not hold.
    fn from_canonical(text: &str) -> Option<Self>;
}

macro_rules! parsed {
    ($($type:ty),+) => {$(
        impl FromCanonical for $type {
            fn from_canonical(text: &str) -> Option<Self> {
                text.parse().ok()
            }
        }
    )+};
}
parsed!(i32, i64, f64, bool);

impl FromCanonical for Option<i32> {
    fn from_canonical(text: &str) -> Option<Self> {
        text.parse().ok().map(Some)
    }
}

impl FromCanonical for TimestampType {
    fn from_canonical(text: &str) -> Option<Self> {
        match text {
            "CreateTime" => Some(Self::Create),
            "LogAppendTime" => Some(Self::LogAppend),
            _ => None,
        }
    }
}

/// `cleanup.policy`: what removes records. With neither, nothing does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CleanupPolicy {
    /// Older records of a key go when there is a newer one.
    pub compact: bool,
    /// Segments go by age and size.
    pub delete: bool,
}

impl FromCanonical for CleanupPolicy {
    fn from_canonical(text: &str) -> Option<Self> {
        let has = |word| items(text).any(|item| item == word);
        Some(Self {
            compact: has("compact"),
            delete: has("delete"),
        })
    }
}

/// `compression.type`: how a leader stores the batches it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompressionType {
    /// As they come.
    Producer,
    /// Not compressed.
    Uncompressed,
    /// By this codec, which is not [`Codec::None`].
    Codec(Codec),
}

impl FromCanonical for CompressionType {
    fn from_canonical(text: &str) -> Option<Self> {
        match text {
            "producer" => Some(Self::Producer),
            "uncompressed" => Some(Self::Uncompressed),
            _ => [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd]
                .into_iter()
                .find(|codec| codec.name() == text)
                .map(Self::Codec),
        }
    }
}

impl fmt::Display for CompressionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Producer => "producer",
            Self::Uncompressed => "uncompressed",
            Self::Codec(codec) => codec.name(),
        })
    }
}

/// `leader.` and `follower.replication.throttled.replicas`: whose copying between brokers is slowed. Of no effect here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ThrottledReplicas {
    /// No replica.
    None,
    /// Those that the setting lists.
    Listed,
    /// Every replica.
    All,
}

impl FromCanonical for ThrottledReplicas {
    fn from_canonical(text: &str) -> Option<Self> {
        Some(match text {
            "" => Self::None,
            "*" => Self::All,
            _ => Self::Listed,
        })
    }
}
