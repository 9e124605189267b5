//! The verbs about topics: `create`, `delete`, `settings` and `maintain`.

use super::given;
use super::writing::{Setting, parse_setting, parse_topic_id};
use clap::{Args, ValueEnum};
use offsetlog::format::Uuid;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  offsetlog create orders data --partitions 6
  offsetlog create sessions /disk1/kafka /disk2/kafka --partitions 12 --config cleanup.policy=compact

Each partition goes to the folder that has the fewest. Files of segments are made at the first append.

Exit codes: 0 done; 2 usage or input error, or there is such a topic already.")]
pub(crate) struct Create {
    /// The topic's name: letters, digits, '.', '_' and '-'
    pub(crate) topic: String,

    /// The log dirs, made if they are not there
    #[arg(required = true, value_name = "PATH", value_parser = given())]
    pub(crate) paths: Vec<PathBuf>,

    /// How many partitions
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) partitions: i32,

    /// A topic setting by Kafka's name, such as retention.ms=-1; stored with each partition; may be given several times
    #[arg(long = "config", value_name = "NAME=VALUE", value_parser = parse_setting)]
    pub(crate) settings: Vec<Setting>,

    /// The topic's id: 22 characters, as Kafka writes it; drawn unless given
    #[arg(long, value_name = "ID", value_parser = parse_topic_id, allow_hyphen_values = true)]
    pub(crate) topic_id: Option<Uuid>,

    /// One JSON line a partition
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  offsetlog delete orders data
  offsetlog delete --dry-run orders /disk1/kafka /disk2/kafka

The directories are renamed, as a broker does, so that nobody reads them any more; 'offsetlog maintain' removes them when a minute
has passed. Until then 'mv' takes a deletion back.

Exit codes: 0 done; 2 usage or input error, or somebody writes to it.")]
pub(crate) struct Delete {
    /// The topic's name
    pub(crate) topic: String,

    /// The log dirs
    #[arg(required = true, value_name = "PATH", value_parser = given())]
    pub(crate) paths: Vec<PathBuf>,

    /// Change nothing; list what would be deleted
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,

    /// A topic of brokers' own, such as `__consumer_offsets`, that may be deleted; may be given several times
    #[arg(long, value_name = "TOPIC")]
    pub(crate) internal: Vec<String>,

    /// One JSON line a partition
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  offsetlog settings
  offsetlog settings data -t orders
  offsetlog settings data -t orders --config retention.ms=86400000 --unset segment.ms
  offsetlog settings --broker /etc/kafka/server.properties --all

Without PATH: every topic setting, its type, default and bounds; or what a broker's settings make of them. With PATH: what the topics
there were given, and what holds. In a broker's log dir that is what the cluster says, and FROM names the layer: topic, dynamic broker,
dynamic default broker, broker (its server.properties), default; unknown is what a layer may set that was not given.

Exit codes: 0 done; 1 no topic found; 2 usage or input error.")]
pub(crate) struct Settings {
    /// Log dirs, or partition directories such as orders-0
    #[arg(value_name = "PATH", value_parser = given())]
    pub(crate) paths: Vec<PathBuf>,

    /// Only this topic; may be given several times
    #[arg(short = 't', long = "topic", value_name = "TOPIC", requires = "paths")]
    pub(crate) topics: Vec<String>,

    /// A broker's server.properties: what holds where a topic was given nothing
    #[arg(long, value_name = "FILE", value_parser = given())]
    pub(crate) broker: Option<PathBuf>,

    /// In a broker's log dir: the folder that holds __cluster_metadata-0, if none of PATH does, or ZooKeeper's data
    #[arg(long, value_name = "DIR", requires = "paths", value_parser = given())]
    pub(crate) metadata: Option<PathBuf>,

    /// Give the topics this setting; may be given several times
    #[arg(long = "config", value_name = "NAME=VALUE", value_parser = parse_setting, requires = "topics")]
    pub(crate) given: Vec<Setting>,

    /// Take this setting from the topics; may be given several times
    #[arg(long, value_name = "NAME", requires = "topics")]
    pub(crate) unset: Vec<String>,

    /// Defaults too, and in a broker's log dir all that is not known
    #[arg(short = 'a', long)]
    pub(crate) all: bool,

    /// One JSON line a setting
    #[arg(long)]
    pub(crate) json: bool,
}

impl Settings {
    pub(crate) const fn is_change(&self) -> bool {
        !self.given.is_empty() || !self.unset.is_empty()
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  offsetlog maintain --dry-run data
  offsetlog maintain /disk1/kafka /disk2/kafka --broker server.properties
  offsetlog maintain data --every 5m

Segments go by the retention settings, compacted topics are compacted where they are dirty enough, and directories of deleted topics are \
removed. Stop the broker first: it does the same.

In a broker's log dir the cluster's settings hold. They are in __cluster_metadata-0, in one of PATH or in --metadata, or in
ZooKeeper's data (--metadata), and in the broker's server.properties (--broker). A partition for which a setting is not known is refused, and topics of brokers' own are left alone.

Exit codes: 0 done; 1 --dry-run found nothing to do; 2 usage or input error, or a partition failed; 130 interrupted.")]
pub(crate) struct Maintain {
    /// Log dirs
    #[arg(required = true, value_name = "PATH", value_parser = given())]
    pub(crate) paths: Vec<PathBuf>,

    /// Remove and compact nothing; say what would go, and why
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,

    /// Do it again and again, so much time apart: 30s, 5m, 1h
    #[arg(long, value_name = "TIME", value_parser = parse_interval, conflicts_with = "dry_run")]
    pub(crate) every: Option<Duration>,

    /// Only this of it; may be given several times
    #[arg(long, value_enum, value_name = "WHAT", value_delimiter = ',')]
    pub(crate) only: Vec<Upkeep>,

    /// A broker's server.properties: what holds where a topic was given nothing
    #[arg(long, value_name = "FILE", value_parser = given())]
    pub(crate) broker: Option<PathBuf>,

    /// In a broker's log dir: the folder that holds __cluster_metadata-0, if none of PATH does, or ZooKeeper's data
    #[arg(long, value_name = "DIR", value_parser = given())]
    pub(crate) metadata: Option<PathBuf>,

    /// Only this topic; may be given several times
    #[arg(short = 't', long = "topic", value_name = "TOPIC")]
    pub(crate) topics: Vec<String>,

    /// A setting that counts above all others, this once, for the topics named; may be given several times
    #[arg(long = "config", value_name = "NAME=VALUE", value_parser = parse_setting, requires = "topics")]
    pub(crate) settings: Vec<Setting>,

    /// A topic of brokers' own, such as `__consumer_offsets`, to be kept too; may be given several times
    #[arg(long, value_name = "TOPIC")]
    pub(crate) internal: Vec<String>,

    /// One JSON line a partition of which anything went, and one a directory that was removed
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `maintain` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Upkeep {
    /// Old segments go
    Retention,
    /// Compacted topics are compacted
    Compaction,
    /// What waits for its deletion is removed
    Deletes,
}

/// A time: `30s`, `5m`, `1h`, `1d`; seconds without a unit.
fn parse_interval(text: &str) -> Result<Duration, String> {
    const FORM: &str = "a time is written 30s, 5m, 1h or 1d";
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text.get(digits.len()..).unwrap_or_default() {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(FORM.into()),
    };
    let number: u64 = digits.parse().map_err(|_| FORM.to_owned())?;
    let seconds = number
        .checked_mul(unit)
        .filter(|seconds| (1..=86_400 * 365).contains(seconds));
    let seconds = seconds.ok_or_else(|| "at least a second and at most a year".to_owned())?;
    Ok(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, seconds) in [
            ("30", 30),
            ("30s", 30),
            ("5m", 300),
            ("1h", 3600),
            ("2d", 172_800),
        ] {
            assert_eq!(
                parse_interval(text),
                Ok(Duration::from_secs(seconds)),
                "{text}"
            );
        }
        for text in [
            "",
            "m",
            "0",
            "0s",
            "-1s",
            "1.5m",
            "5 m",
            "5w",
            "99999999999999999999h",
        ] {
            assert!(parse_interval(text).is_err(), "{text}");
        }
    }
}
