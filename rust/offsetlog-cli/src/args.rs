//! What the command line looks like: verbs, options, help texts.

mod adopting;
mod commits;
mod converting;
mod groups;
mod holding;
mod looking;
mod mirroring;
mod restoring;
mod serving;
mod topics;
mod writing;

pub(crate) use adopting::Adopt;
pub(crate) use commits::Commits;
pub(crate) use converting::{Convert, Salvage};
pub(crate) use holding::{EndTransaction, Producers, Why};
pub(crate) use looking::{Decoder, Dump, Grep, Groups, Metadata, Place, Transactions};
pub(crate) use mirroring::Mirror;
pub(crate) use restoring::Restore;
pub(crate) use serving::{OpenTransactions, Serve, Until};
pub(crate) use topics::{Create, Delete, Maintain, Settings, Upkeep};
pub(crate) use writing::{Append, Header, InputFormat, Recover, Setting, Stamp};

use crate::json::Encoding;
use crate::template::{Template, unescape};
use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use groups::GROUPS;
use offsetlog::given_path;
use offsetlog_ops::When;
use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;

/// Read, write and repair Apache Kafka log directories without a broker.
///
/// ls, cat, grep, dump, groups, transactions, producers, why, metadata, time, explain, verify, serve and completions only read, as do settings and commits that
/// are not told to change anything. They change, lock and make no file, so a running
/// broker's directories, a copy and a read-only mount are all fine.
#[derive(Debug, Parser)]
#[command(
    name = "offsetlog",
    bin_name = "offsetlog",
    version,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Examples:
  offsetlog ls /var/lib/kafka/data
  offsetlog cat /var/lib/kafka/data -t orders -o -10
  offsetlog grep 'order-7\\b' /var/lib/kafka/data -t orders
  offsetlog time 2026-01-31T12:00:00Z /var/lib/kafka/data -t orders
  offsetlog explain 368800 /var/lib/kafka/data/orders-0
  printf 'order-7:paid\\n' | offsetlog append data/orders-0 -K :
  offsetlog recover --dry-run /var/lib/kafka/data
  offsetlog salvage /mnt/dead/orders-0 --into salvaged
  offsetlog restore /mnt/dead --into /var/lib/kafka/data --new-cluster
  offsetlog serve /mnt/dead

Exit codes: 0 done; 1 nothing found, or nothing to do; 2 failed: usage or input error; 3 damage or a loss was found by verify, dump, salvage, restore, recover --dry-run or mirror; \
4 append refused a line; 130 interrupted."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,

    /// When to use colour: auto means on a terminal, unless the variable `NO_COLOR` is
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "WHEN",
        default_value_t,
        display_order = 900
    )]
    pub(crate) color: Color,
}

/// When to use colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List partitions or topics: sizes, offsets, times
    Ls(Ls),
    /// Print records, with kcat's letters
    Cat(Box<Cat>),
    /// Find records by text, bytes or a regular expression, in all partitions at once
    Grep(Box<Grep>),
    /// Print what is in files: batches, records, indexes, snapshots, checkpoints
    Dump(Box<Dump>),
    /// List consumer groups: committed offsets, lag, members
    Groups(Groups),
    /// List transactional ids: producers, states, partitions, times
    Transactions(Transactions),
    /// List the producers of partitions, and which open transactions nobody ends
    Producers(Producers),
    /// Explain what keeps records from being deleted, compacted or read
    Why(Why),
    /// Show a cluster's metadata: topics, ids, partitions, settings, brokers, features
    Metadata(Metadata),
    /// Find the first offset at or after a time, in each partition
    Time(Time),
    /// Show one look-up step by step: segment, index entry, scan, batch, record
    Explain(Explain),
    /// Serve log dirs to Kafka clients, read-only: a dead broker's disk, a backup, a mirror
    Serve(Box<Serve>),
    /// Append records from standard input to a partition directory
    Append(Box<Append>),
    /// Repair partitions after a crash or corruption (--dry-run shows what would change)
    Recover(Recover),
    /// Make a sound log of everything that can be read of a damaged one, and say what is lost
    Salvage(Salvage),
    /// Restore topics from a dead broker's disks: into a new cluster, a stopped broker or a folder
    Restore(Box<Restore>),
    /// Copy topics of a live cluster into a directory, batch for batch
    Mirror(Box<Mirror>),
    /// End a transaction offline as its coordinator decided, or abort one that it did not decide
    EndTransaction(EndTransaction),
    /// Make directories that a broker set aside, or that have another topic id, partitions again
    Adopt(Adopt),
    /// Check batches, records, indexes, snapshots, checkpoints and names, without changing anything
    Verify(Verify),
    /// Create a topic in log dirs
    Create(Create),
    /// Delete a topic from log dirs
    Delete(Delete),
    /// Remove old segments, compact, and remove what waits for its deletion, as a broker does
    Maintain(Maintain),
    /// Show all topic settings, or those of topics, or change them
    Settings(Settings),
    /// Convert a partition directory of any Kafka since 0.7 to the current format, or to another codec
    Convert(Convert),
    /// List what Spark jobs and streams have noted as published, or forget it
    Commits(Commits),
    /// Print a completion script for a shell
    #[command(after_help = "Example:
  offsetlog completions bash > ~/.local/share/bash-completion/completions/offsetlog")]
    Completions {
        /// Which shell
        shell: Shell,
    },
}

/// Which partitions.
#[derive(Debug, Args)]
pub(crate) struct Selection {
    /// Log dirs (what `log.dirs` of a broker names), several of them as one; or partition directories such as orders-0
    #[arg(required = true, value_name = "PATH", value_parser = given())]
    pub(crate) paths: Vec<PathBuf>,

    /// Only this topic; may be given several times
    #[arg(short = 't', long = "topic", value_name = "TOPIC")]
    pub(crate) topics: Vec<String>,

    /// Only this partition; may be given several times or as 0,3,5
    #[arg(
        short = 'p',
        long = "partition",
        value_name = "N",
        value_delimiter = ','
    )]
    pub(crate) partitions: Vec<i32>,

    /// Say nothing on standard error but errors
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  offsetlog ls --human /var/lib/kafka/data
  offsetlog ls /disk1/kafka /disk2/kafka --by-topic
  offsetlog ls --json /var/lib/kafka/data | jq -r 'select(.size_bytes > 1e9) | .topic'
  offsetlog ls --json /disk1/kafka /mnt/metadata | jq 'select(.stray)'

Where the cluster's metadata is among the paths, partition directories that it does not have are told.")]
pub(crate) struct Ls {
    #[command(flatten)]
    pub(crate) selection: Selection,

    /// One line a topic instead of one a partition
    #[arg(long)]
    pub(crate) by_topic: bool,

    /// Sizes for people: 1.2M, 3.4G (1024-based)
    #[arg(long = "human", overrides_with = "bytes")]
    pub(crate) human: bool,

    /// Exact sizes in bytes (the default)
    #[arg(long, overrides_with = "human")]
    pub(crate) bytes: bool,

    /// JSON lines instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Format letters: %t topic, %p partition, %o offset, %T timestamp (ms, -1 for none), %k key, %K its bytes, \
%s value, %S its bytes, %R its bytes as a binary 32-bit integer (with --raw), %h headers, %% percent sign. Sizes of null are -1. \
Escapes: \\n \\r \\t \\xNN \\0.

Examples:
  offsetlog cat data -t orders -p 0 -o beginning -c 5
  offsetlog cat data -t orders -f '%p/%o %T %k: %s\\n'
  offsetlog cat data -t orders -o s@2026-01-31T12:00:00Z -o e@2026-01-31T13:00:00Z -J
  offsetlog cat data/orders-0 -o -10 -K :
  offsetlog cat data -t orders --follow -o end"
)]
pub(crate) struct Cat {
    #[command(flatten)]
    pub(crate) selection: Selection,

    /// Where to start: beginning, end, an offset, -N (N offsets before the end), s@TIME; e@TIME says where to stop
    ///
    /// TIME is milliseconds since 1970 or RFC 3339. s@ starts at the first record at or after it, e@ stops before the first one
    /// at or after it; both may be given.
    #[arg(
        short = 'o',
        long = "offset",
        value_name = "OFFSET",
        allow_hyphen_values = true
    )]
    pub(crate) offsets: Vec<OffsetWord>,

    /// Stop after this many records, all partitions together
    #[arg(
        short = 'c',
        long = "count",
        visible_alias = "max-messages",
        value_name = "N"
    )]
    pub(crate) count: Option<u64>,

    /// Go on as logs grow, until Ctrl-C, -c or the TIME of e@TIME; -o end begins with what comes next
    ///
    /// Ends with an error where a log is cut, or retention overtakes.
    #[arg(long, conflicts_with = "exit_at_end")]
    pub(crate) follow: bool,

    /// Stop at the end of the log; always so without --follow, accepted because kcat needs it
    #[arg(short = 'e', long = "exit")]
    exit_at_end: bool,

    /// Read; always so here, accepted because kcat needs it
    #[arg(short = 'C', hide = true)]
    consume: bool,

    /// How to print a record; letters below
    #[arg(short = 'f', long = "format", allow_hyphen_values = true, conflicts_with_all = ["json", "key_delimiter", "delimiter"])]
    pub(crate) format: Option<Template>,

    /// JSON lines in kcat's envelope: topic, partition, offset, tstype, ts, headers, key, payload
    #[arg(short = 'J', long, conflicts_with_all = ["key_delimiter", "delimiter"])]
    pub(crate) json: bool,

    /// Print null keys and values as NULL instead of nothing
    #[arg(short = 'Z', long)]
    pub(crate) null: bool,

    /// Print the key too, with this behind it
    #[arg(short = 'K', long, value_name = "TEXT", value_parser = parse_delimiter, allow_hyphen_values = true)]
    pub(crate) key_delimiter: Option<Delimiter>,

    /// What ends a record
    #[arg(short = 'D', long, value_name = "TEXT", value_parser = parse_delimiter, default_value = "\\n", allow_hyphen_values = true)]
    pub(crate) delimiter: Delimiter,

    /// How to show keys
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    pub(crate) key_format: Encoding,

    /// How to show values
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    pub(crate) value_format: Encoding,

    /// Keys, values and headers as they are, control characters too; on a terminal only with --raw=force
    #[arg(long, value_enum, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "pipe")]
    pub(crate) raw: Option<Raw>,

    /// What to do at damaged bytes: end with their error, go on behind them, or end the partition there; the last two say on
    /// standard error what is left out
    #[arg(long, value_enum, value_name = "WHAT", default_value_t)]
    pub(crate) on_corrupt: Damaged,

    /// Write each record at once
    #[arg(short = 'u', long)]
    pub(crate) unbuffered: bool,

    /// Whether records of open and aborted transactions are printed
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t)]
    pub(crate) isolation_level: IsolationLevel,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  offsetlog time 1700000000000 data -t orders
  offsetlog time 2026-01-31T12:00:00+01:00 data -t orders -p 0 --json")]
pub(crate) struct Time {
    /// Milliseconds since 1970 or RFC 3339
    #[arg(allow_negative_numbers = true)]
    pub(crate) when: When,

    #[command(flatten)]
    pub(crate) selection: Selection,

    /// Whether the answer may lie in an open transaction
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t)]
    pub(crate) isolation_level: IsolationLevel,

    /// JSON lines instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  offsetlog explain 368800 data -t orders -p 0
  offsetlog explain 15 data/orders-0 --json")]
pub(crate) struct Explain {
    /// The offset to look up
    #[arg(allow_negative_numbers = true)]
    pub(crate) offset: i64,

    #[command(flatten)]
    pub(crate) selection: Selection,

    /// One JSON line instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// Kafka's `isolation.level`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum IsolationLevel {
    /// All records
    #[default]
    #[value(name = "read_uncommitted")]
    ReadUncommitted,
    /// Up to the last stable offset, without aborted records
    #[value(name = "read_committed")]
    ReadCommitted,
}

impl From<IsolationLevel> for offsetlog::Isolation {
    fn from(level: IsolationLevel) -> Self {
        match level {
            IsolationLevel::ReadUncommitted => Self::ReadUncommitted,
            IsolationLevel::ReadCommitted => Self::ReadCommitted,
        }
    }
}

/// `--raw` and `--raw=force`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Raw {
    /// Unless standard output is a terminal
    Pipe,
    /// On a terminal too, which records can then steer
    Force,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  offsetlog verify /var/lib/kafka/data
  offsetlog verify --json data/orders-0 | jq -r 'select(.severity == \"error\") | .path'

Takes no lock and changes nothing; a broker may run. What a running or killed broker leaves, such as preallocated ends and files that wait for their deletion, are notes and not wrong.

Exit codes: 0 done, nothing is wrong; 2 usage or input error; 3 there are warnings or errors; 130 interrupted.")]
pub(crate) struct Verify {
    /// Log dirs, or partition directories such as orders-0
    #[arg(required = true, value_name = "PATH", value_parser = given())]
    pub(crate) paths: Vec<PathBuf>,

    /// One JSON line a finding, and one with the sums at the end
    #[arg(long)]
    pub(crate) json: bool,

    /// No notes and no progress
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
}

/// What to do at damaged bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Damaged {
    /// The records before them, then their error
    #[default]
    Raise,
    /// Go on at the next whole batch that fits
    Skip,
    /// End the partition there
    Stop,
}

impl From<Damaged> for offsetlog::OnCorrupt {
    fn from(damaged: Damaged) -> Self {
        match damaged {
            Damaged::Raise => Self::Raise,
            Damaged::Skip => Self::Skip,
            Damaged::Stop => Self::Stop,
        }
    }
}

/// Bytes between or behind records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Delimiter(pub(crate) Vec<u8>);

/// Takes a local path, also as a `file:` URL: before a verb begins it is known that none of its paths is that of an object store.
pub(crate) fn given() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| given_path(&path).map(Cow::into_owned))
}

fn parse_delimiter(text: &str) -> Result<Delimiter, String> {
    unescape(text).map(Delimiter)
}

/// kcat's words for where to start and where to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OffsetWord {
    Beginning,
    End,
    At(i64),
    BeforeEnd(i64),
    StartTime(When),
    StopTime(When),
}

impl std::str::FromStr for OffsetWord {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(time) = text.strip_prefix("s@") {
            return time.parse().map(Self::StartTime);
        }
        if let Some(time) = text.strip_prefix("e@") {
            return time.parse().map(Self::StopTime);
        }
        match text {
            "beginning" | "earliest" => return Ok(Self::Beginning),
            "end" | "latest" => return Ok(Self::End),
            "stored" => {
                return Err(
                    "a log dir stores no position of yours; give an offset, or s@TIME".into(),
                );
            }
            _ => {}
        }
        let word = match text.strip_prefix('-') {
            Some(count) => count.parse().map(Self::BeforeEnd),
            None => text.parse().map(Self::At),
        };
        match word {
            Ok(Self::At(number) | Self::BeforeEnd(number)) if number < 0 => Err(WORDS.into()),
            Ok(word) => Ok(word),
            Err(_) => Err(WORDS.into()),
        }
    }
}

const WORDS: &str = "there are beginning, end, 123, -10, s@TIME and e@TIME";

/// The command, with its verbs in groups: clap itself has one list of them.
fn command() -> clap::Command {
    let mut command = Cli::command();
    command.build();
    let header = *command.get_styles().get_header();
    let literal = *command.get_styles().get_literal();
    let mut groups = String::new();
    for (heading, names) in GROUPS {
        let _ = writeln!(groups, "{header}{heading}:{header:#}");
        for name in names {
            let about = command
                .find_subcommand(name)
                .and_then(clap::Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(groups, "  {literal}{name:<15}{literal:#}  {about}");
        }
        groups.push('\n');
    }
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}{header}Options:{header:#}\n{{options}}{{after-help}}"
    );
    Cli::command().help_template(template)
}

/// Reads the arguments, the program's name first.
pub(crate) fn parse<I: IntoIterator<Item = OsString>>(args: I) -> Result<Cli, clap::Error> {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(args)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn every_verb_is_in_one_group() {
        let mut command = Cli::command();
        command.build();
        let verbs: Vec<&str> = command
            .get_subcommands()
            .map(clap::Command::get_name)
            .collect();
        let mut grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        grouped.sort_unstable();
        let mut sorted = verbs.clone();
        sorted.sort_unstable();
        assert_eq!(grouped, sorted);
        let help = super::command().render_long_help().to_string();
        for (heading, names) in GROUPS {
            assert!(
                help.contains(&format!("\n{heading}:\n  {}", names[0])),
                "{help}"
            );
        }
    }

    /// The same letter is the same option in every verb, under the names that kcat and Kafka have for it.
    #[test]
    fn one_letter_has_one_meaning() {
        let mut command = Cli::command();
        command.build();
        let mut names: BTreeMap<char, BTreeSet<String>> = BTreeMap::new();
        for verb in command.get_subcommands() {
            for option in verb.get_arguments() {
                if let Some(letter) = option.get_short() {
                    let name = option.get_long().unwrap_or(option.get_id().as_str());
                    names.entry(letter).or_default().insert(name.to_owned());
                }
            }
        }
        names.retain(|_, names| names.len() > 1);
        // What stands between key and value is printed by one verb and read by the other.
        let same = BTreeSet::from(["key-delimiter".to_owned(), "key-separator".to_owned()]);
        assert_eq!(names, BTreeMap::from([('K', same)]));
    }

    #[test]
    fn the_definition_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_verb_has_an_example() {
        for verb in Cli::command().get_subcommands_mut() {
            let help = verb.render_long_help().to_string();
            assert!(help.contains("Example"), "{}", verb.get_name());
        }
    }

    #[test]
    fn offsets_are_written_as_for_kcat() {
        let check = |text: &str, expected| assert_eq!(text.parse(), Ok(expected), "{text}");
        check("beginning", OffsetWord::Beginning);
        check("end", OffsetWord::End);
        check("123", OffsetWord::At(123));
        check("-10", OffsetWord::BeforeEnd(10));
        check("s@-5", OffsetWord::StartTime(When(-5)));
        check(
            "e@2023-11-14T22:13:20Z",
            OffsetWord::StopTime(When(1_700_000_000_000)),
        );
        for text in ["", "-", "--1", "+-1", "x", "s@", "e@x", "stored"] {
            assert!(text.parse::<OffsetWord>().is_err(), "{text:?}");
        }
    }
}
