//! The verbs that write: `append` and `recover`.

use super::{Delimiter, Selection, given, parse_delimiter};
use crate::json::Encoding;
use clap::{Args, ValueEnum};
use offsetlog::format::{Codec, Uuid};
use offsetlog_ops::When;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  printf 'order-7:paid\\n' | offsetlog append data/orders-0 -K :
  offsetlog cat old/orders-0 --json | offsetlog append new/orders-0 --json
  tail -F app.log | offsetlog append logs/app-0 -z zstd -H host=web1
  offsetlog append data/orders-0 --config cleanup.policy=compact -K '\\t' --null-value NULL < orders.tsv

Exit codes: 0 done; 2 usage or input error; 4 a line was refused (those before it are appended); \
130 interrupted (what was read is appended).")]
pub(crate) struct Append {
    /// The partition directory, such as data/orders-0; made if it is not there
    #[arg(value_name = "PATH", value_parser = given())]
    pub(crate) path: PathBuf,

    /// Append though other brokers of the cluster have replicas of the partition
    #[arg(long)]
    pub(crate) single_replica: bool,

    /// In a broker's log dir: the folder that holds __cluster_metadata-0, if the log dir does not, or ZooKeeper's data
    #[arg(long, value_name = "DIR", value_parser = given())]
    pub(crate) metadata: Option<PathBuf>,

    /// What the input is
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        default_value_if("json", "true", "json"),
        default_value = "lines"
    )]
    pub(crate) format: InputFormat,

    /// JSON in and out: --format json unless that option says otherwise, and a JSON line of what was appended
    #[arg(short = 'J', long)]
    pub(crate) json: bool,

    /// A line is a key, this, and a value; the first one counts
    #[arg(short = 'K', long, visible_alias = "key-delimiter", value_name = "TEXT", value_parser = parse_separator, allow_hyphen_values = true)]
    pub(crate) key_separator: Option<Delimiter>,

    /// The key of every record
    #[arg(
        short = 'k',
        long,
        value_name = "TEXT",
        conflicts_with = "key_separator",
        allow_hyphen_values = true
    )]
    pub(crate) key: Option<String>,

    /// A line begins with headers as 'cat -f %h' prints them (name=value,name=value), then this
    #[arg(long, value_name = "TEXT", value_parser = parse_separator, allow_hyphen_values = true)]
    pub(crate) headers_separator: Option<Delimiter>,

    /// A header of every record, behind its own ones; without =VALUE its value is null; may be given several times
    #[arg(short = 'H', long = "header", value_name = "NAME=VALUE", value_parser = parse_header)]
    pub(crate) headers: Vec<Header>,

    /// What ends a line: a line break unless given
    #[arg(short = 'D', long, value_name = "TEXT", value_parser = parse_separator, allow_hyphen_values = true)]
    pub(crate) delimiter: Option<Delimiter>,

    /// Keys, values and values of headers that are this text are null
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) null_value: Option<String>,

    /// Empty ones are null, as with kcat: the same as --null-value ''
    #[arg(short = 'Z', long, conflicts_with = "null_value")]
    pub(crate) null: bool,

    /// How keys are written in the input: utf8 (as they are), base64, hex or json
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        default_value_t,
        hide_possible_values = true
    )]
    pub(crate) key_format: Encoding,

    /// How values are written in the input: utf8 (as they are), base64, hex or json
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        default_value_t,
        hide_possible_values = true
    )]
    pub(crate) value_format: Encoding,

    /// Timestamp of every record: now, or a time; unless given, that of a JSON object and now for lines
    ///
    /// A time is milliseconds since 1970 or RFC 3339; -1 stands for none.
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true)]
    pub(crate) timestamp: Option<Stamp>,

    /// Codec of the batches, where the setting compression.type is producer, which is the default
    #[arg(short = 'z', long, value_enum, value_name = "CODEC", default_value_t)]
    pub(crate) compression: Compression,

    /// A batch is appended when it has so many bytes before compression: 16384, 64KiB, 1MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "16KiB")]
    pub(crate) batch_bytes: usize,

    /// Or when its oldest record has waited so many milliseconds for more input
    #[arg(long, value_name = "MS", default_value = "5")]
    pub(crate) linger: u64,

    /// Make every batch durable when it is appended, not only all of them at the end
    #[arg(long)]
    pub(crate) flush: bool,

    /// A topic setting by Kafka's name, such as segment.bytes=1048576; stored with the partition; may be given several times
    #[arg(long = "config", value_name = "NAME=VALUE", value_parser = parse_setting)]
    pub(crate) settings: Vec<Setting>,

    /// The topic's id, for a partition that has none yet: 22 characters, as Kafka writes it
    #[arg(long, value_name = "ID", value_parser = parse_topic_id, allow_hyphen_values = true)]
    pub(crate) topic_id: Option<Uuid>,

    /// Say nothing on standard error but errors
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,

    /// Write; always so here, accepted because kcat needs it
    #[arg(short = 'P', hide = true)]
    produce: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  offsetlog recover --dry-run /var/lib/kafka/data
  offsetlog recover data/orders-0 data/orders-1
  offsetlog recover --json data/orders-0 | jq -r '.cut[].kept'

Nothing may write the partitions meanwhile: stop the broker first. What is cut is kept in the folder offsetlog-cut of the partition directory.

Exit codes: 0 done, every partition is sound; 2 usage or input error; 3 --dry-run found something to mend; 130 interrupted.")]
pub(crate) struct Recover {
    #[command(flatten)]
    pub(crate) selection: Selection,

    /// Change nothing and take no lock; say what would be changed
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,

    /// Read only the segments from the one that holds this offset on; unless given, all of them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) from_offset: Option<i64>,

    /// One JSON line a partition instead of text, and of several partitions one with the totals
    #[arg(long)]
    pub(crate) json: bool,
}

/// What the input of `append` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum InputFormat {
    /// One record a line: its value, and what the separators cut off
    Lines,
    /// One object a line, as 'cat --json' prints them
    Json,
}

/// Kafka's `compression.type` of a producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Compression {
    #[default]
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl From<Compression> for Codec {
    fn from(compression: Compression) -> Self {
        match compression {
            Compression::None => Self::None,
            Compression::Gzip => Self::Gzip,
            Compression::Snappy => Self::Snappy,
            Compression::Lz4 => Self::Lz4,
            Compression::Zstd => Self::Zstd,
        }
    }
}

/// `--timestamp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stamp {
    Now,
    At(i64),
}

impl std::str::FromStr for Stamp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "now" {
            return Ok(Self::Now);
        }
        let When(milliseconds) = text
            .parse()
            .map_err(|error| format!("not the word now, and {error}"))?;
        if milliseconds < -1 {
            return Err("a timestamp is 0 or more, or -1 for none".into());
        }
        Ok(Self::At(milliseconds))
    }
}

/// `--header`: a name and a value, null without `=`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header(pub(crate) String, pub(crate) Option<String>);

/// `--config`: a topic setting's name and value, as given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting(pub(crate) String, pub(crate) String);

fn parse_separator(text: &str) -> Result<Delimiter, String> {
    let separator = parse_delimiter(text)?;
    if separator.0.is_empty() {
        return Err("an empty text separates nothing".into());
    }
    Ok(separator)
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "clap wants a parser that may fail"
)]
fn parse_header(text: &str) -> Result<Header, String> {
    Ok(match text.split_once('=') {
        Some((name, value)) => Header(name.to_owned(), Some(value.to_owned())),
        None => Header(text.to_owned(), None),
    })
}

pub(super) fn parse_setting(text: &str) -> Result<Setting, String> {
    match text.split_once('=') {
        Some((name, value)) => Ok(Setting(name.trim().to_owned(), value.to_owned())),
        None => Err("a setting is written NAME=VALUE, as in segment.bytes=1048576".into()),
    }
}

pub(super) fn parse_topic_id(text: &str) -> Result<Uuid, String> {
    Uuid::parse(text)
        .map_err(|_| "a topic id has 22 characters: letters, digits, - and _".to_owned())
}

/// Bytes: `16384`, and with K, M or G (also KiB, kb and the like) a multiple of 1024.
fn parse_size(text: &str) -> Result<usize, String> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = lower.get(digits.len()..).unwrap_or_default();
    let shift = match unit {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return Err(SIZES.into()),
    };
    let number: usize = digits.trim_end().parse().map_err(|_| SIZES.to_owned())?;
    number
        .checked_mul(1 << shift)
        .filter(|bytes| (1..=i32::MAX as usize).contains(bytes))
        .ok_or_else(|| "a batch has 1 byte to 2 GiB".to_owned())
}

const SIZES: &str = "a size is written 16384, 64KiB or 1MiB";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bytes_or_multiples_of_1024() {
        for (text, bytes) in [
            ("1", 1),
            ("16384", 16384),
            ("16K", 16384),
            ("64KiB", 65536),
            ("1 MiB", 1 << 20),
            ("1mb", 1 << 20),
            ("1g", 1 << 30),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "0",
            "K",
            "-1",
            "1.5K",
            "1T",
            "2G",
            "99999999999999999999",
            "1 2",
        ] {
            assert!(parse_size(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn headers_and_settings_are_cut_at_the_first_equals_sign() {
        let header = |name: &str, value: Option<&str>| {
            Ok(Header(name.to_owned(), value.map(ToOwned::to_owned)))
        };
        assert_eq!(parse_header("a=b=c"), header("a", Some("b=c")));
        assert_eq!(parse_header("a="), header("a", Some("")));
        assert_eq!(parse_header("a"), header("a", None));
        assert_eq!(
            parse_setting("a.b= c=d"),
            Ok(Setting("a.b".into(), " c=d".into()))
        );
        assert!(parse_setting("segment.bytes").is_err());
    }

    #[test]
    fn timestamps_are_now_or_a_time() {
        assert_eq!("now".parse(), Ok(Stamp::Now));
        assert_eq!("-1".parse(), Ok(Stamp::At(-1)));
        assert_eq!(
            "2023-11-14T22:13:20Z".parse(),
            Ok(Stamp::At(1_700_000_000_000))
        );
        for text in ["", "-2", "soon", "1969-12-31"] {
            assert!(text.parse::<Stamp>().is_err(), "{text:?}");
        }
    }
}
