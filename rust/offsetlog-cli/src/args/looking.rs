//! Options of the verbs that look into files and records: `dump`, `grep` and those of internal topics.

use super::{Damaged, IsolationLevel, OffsetWord, Selection, given};
use crate::json::Encoding;
use crate::template::Template;
use clap::{Args, ValueEnum};
use offsetlog::format::internal_topic::CoordinatorTopic;
use offsetlog_ops::When;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  offsetlog dump /var/lib/kafka/data/orders-0
  offsetlog dump data/orders-0/00000000000000368769.log --batches | jq 'select(.crc_valid == false)'
  offsetlog dump /var/lib/kafka/data/__consumer_offsets-7 | jq -c 'select(.decoded.type == \"OffsetCommit\").decoded'
  offsetlog dump --kafka --print-data-log 00000000000000000000.log 00000000000000000000.index

Exit codes: 0 done; 2 usage or input error; 3 damage was found, or with --kafka Kafka's tool would have ended with an exception; 130 interrupted.")]
pub(crate) struct Dump {
    /// Files of a partition or log dir, or directories: of a partition all files in order, of a log dir its own files
    #[arg(required_unless_present = "files", value_name = "PATH", value_parser = given())]
    pub(crate) paths: Vec<PathBuf>,

    /// Files with commas between them, as Kafka's tool wants them
    #[arg(long, value_name = "FILE,FILE", value_delimiter = ',', value_parser = given())]
    files: Vec<PathBuf>,

    /// Only batches, no records
    #[arg(long, conflicts_with = "kafka")]
    pub(crate) batches: bool,

    /// How to show keys
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        default_value_t,
        conflicts_with = "kafka"
    )]
    pub(crate) key_format: Encoding,

    /// How to show values
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        default_value_t,
        conflicts_with = "kafka"
    )]
    pub(crate) value_format: Encoding,

    /// Stop a .log file before the batch that ends behind this many bytes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    pub(crate) max_bytes: Option<i32>,

    /// Read records as those of `__consumer_offsets`; without --kafka the directory's name decides where no decoder is given
    #[arg(long, group = "decoder")]
    offsets_decoder: bool,

    /// Read records as those of `__transaction_state`
    #[arg(long, group = "decoder")]
    transaction_log_decoder: bool,

    /// Read records as those of `__cluster_metadata`
    #[arg(long, group = "decoder")]
    cluster_metadata_decoder: bool,

    /// Read records as those of `__share_group_state`
    #[arg(long, group = "decoder")]
    share_group_state_decoder: bool,

    /// Not here: use Kafka's own tool for the records of `__remote_log_metadata`
    #[arg(long, hide = true)]
    remote_log_metadata_decoder: bool,

    /// Not here: there is no Java to load another class than the text decoder into
    #[arg(long, value_name = "CLASS", hide = true)]
    key_decoder_class: Option<String>,

    /// As --key-decoder-class
    #[arg(long, value_name = "CLASS", hide = true)]
    value_decoder_class: Option<String>,

    /// Print what kafka-dump-log of Kafka 4.3.0 prints; files only
    #[arg(long, help_heading = "As Kafka's tool")]
    pub(crate) kafka: bool,

    /// Records with keys and values; so with any decoder, too
    #[arg(long, requires = "kafka", help_heading = "As Kafka's tool")]
    pub(crate) print_data_log: bool,

    /// Records too, not only batches; so with --print-data-log, too
    #[arg(long, requires = "kafka", help_heading = "As Kafka's tool")]
    pub(crate) deep_iteration: bool,

    /// Keys and values of records only
    #[arg(long, requires = "kafka", help_heading = "As Kafka's tool")]
    pub(crate) skip_record_metadata: bool,

    /// Check an index against its segment, and print what does not agree only
    #[arg(long, requires = "kafka", help_heading = "As Kafka's tool")]
    pub(crate) verify_index_only: bool,

    /// Check of an index what a broker checks
    #[arg(long, requires = "kafka", help_heading = "As Kafka's tool")]
    pub(crate) index_sanity_check: bool,

    /// The largest batch that an index entry may point to
    #[arg(
        long,
        requires = "kafka",
        help_heading = "As Kafka's tool",
        value_name = "N",
        default_value_t = 5 << 20
    )]
    pub(crate) max_message_size: i32,
}

/// The decoder that Kafka's tool takes by default, by its names: what is done here.
const TEXT_DECODERS: [&str; 2] = [
    "org.apache.kafka.tools.api.StringDecoder",
    "kafka.serializer.StringDecoder",
];

/// What records of an internal topic are read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decoder {
    Coordinator(CoordinatorTopic),
    Metadata,
}

impl Dump {
    /// What is to be dumped, in the order given.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        self.files.iter().chain(&self.paths).cloned().collect()
    }

    /// The option of Kafka's tool that was given and is not here, and what to do.
    pub(crate) fn not_here(&self) -> Option<String> {
        if self.remote_log_metadata_decoder {
            return Some(
                "--remote-log-metadata-decoder is not here: print the records of __remote_log_metadata as they are, without a decoder, or use \
                 Kafka's own tool"
                    .to_owned(),
            );
        }
        let classes = [
            ("--key-decoder-class", &self.key_decoder_class),
            ("--value-decoder-class", &self.value_decoder_class),
        ];
        classes.into_iter().find_map(|(option, class)| {
            let class = class.as_ref()?;
            if TEXT_DECODERS.contains(&class.as_str()) {
                return None;
            }
            Some(format!(
                "{option} {class}: no Java class can be loaded here; leave the option out for text, or use Kafka's own tool"
            ))
        })
    }

    pub(crate) const fn decoder(&self) -> Option<Decoder> {
        if self.offsets_decoder {
            Some(Decoder::Coordinator(CoordinatorTopic::ConsumerOffsets))
        } else if self.transaction_log_decoder {
            Some(Decoder::Coordinator(CoordinatorTopic::TransactionState))
        } else if self.share_group_state_decoder {
            Some(Decoder::Coordinator(CoordinatorTopic::ShareGroupState))
        } else if self.cluster_metadata_decoder {
            Some(Decoder::Metadata)
        } else {
            None
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  offsetlog grep order-7 /var/lib/kafka/data
  offsetlog grep -i 'timeout|refused' data -t payments --in value -o s@2026-01-31T12:00:00Z
  offsetlog grep -F '{\"id\":7}' data -t orders --json | jq .payload
  offsetlog grep --hex ac1d0005 data/raw-0 --in value --count

Regular expressions are those of Rust's crate regex: no look-around, no back-references, time linear in the bytes; they see bytes, so \
(?-u:\\xff) finds one that is no text.

Exit codes: 0 done; 1 nothing found; 2 usage or input error, damage included; 130 interrupted.")]
pub(crate) struct Grep {
    /// A regular expression; with -F text, with --hex bytes
    #[arg(allow_hyphen_values = true)]
    pub(crate) pattern: String,

    #[command(flatten)]
    pub(crate) selection: Selection,

    /// The pattern is text as it stands
    #[arg(short = 'F', long, conflicts_with = "hex")]
    pub(crate) fixed_strings: bool,

    /// The pattern is bytes, two hexadecimal digits each
    #[arg(long, conflicts_with = "ignore_case")]
    pub(crate) hex: bool,

    /// Upper and lower case are the same
    #[arg(short = 'i', long)]
    pub(crate) ignore_case: bool,

    /// Records that do not match
    #[arg(short = 'v', long)]
    pub(crate) invert_match: bool,

    /// Where to look; may be given several times or with commas [default: all three]
    #[arg(long = "in", value_enum, value_name = "PART", value_delimiter = ',')]
    pub(crate) places: Vec<Place>,

    /// Where to start: beginning, end, an offset, -N (N offsets before the end), s@TIME; e@TIME says where to stop
    #[arg(
        short = 'o',
        long = "offset",
        value_name = "OFFSET",
        allow_hyphen_values = true
    )]
    pub(crate) offsets: Vec<OffsetWord>,

    /// Stop in each partition after this many records
    #[arg(short = 'm', long, value_name = "N")]
    pub(crate) max_count: Option<u64>,

    /// Print how many records there are in each partition, not the records
    #[arg(long, conflicts_with = "format")]
    pub(crate) count: bool,

    /// How to print a record; letters as for cat [default: %t-%p:%o:%k:%s\n]
    #[arg(
        short = 'f',
        long = "format",
        allow_hyphen_values = true,
        conflicts_with = "json"
    )]
    pub(crate) format: Option<Template>,

    /// JSON lines in kcat's envelope, as cat prints them
    #[arg(short = 'J', long)]
    pub(crate) json: bool,

    /// Print null keys and values as NULL instead of nothing
    #[arg(short = 'Z', long)]
    pub(crate) null: bool,

    /// How to show keys
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    pub(crate) key_format: Encoding,

    /// How to show values
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    pub(crate) value_format: Encoding,

    /// Whether records of open and aborted transactions are looked at
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t)]
    pub(crate) isolation_level: IsolationLevel,

    /// What to do at damaged bytes: end the partition with their error, go on behind them, or end the partition there; the last two
    /// say on standard error what is left out
    #[arg(long, value_enum, value_name = "WHAT", default_value_t)]
    pub(crate) on_corrupt: Damaged,

    /// Partitions that are searched at the same time [default: one a processor]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<std::num::NonZeroUsize>,
}

/// A part of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Place {
    /// The key
    Key,
    /// The value
    Value,
    /// Names and values of headers
    Headers,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  offsetlog groups /mnt/kafka-1 /mnt/kafka-2
  offsetlog groups data -g billing --json | jq '.offsets[] | select(.time_lag_ms > 60000)'
  offsetlog groups data --prometheus > /var/lib/node_exporter/kafka_groups.prom
  offsetlog groups data -g billing --reset-csv > billing.csv
  offsetlog groups /mnt/dead-broker --now 2026-01-31T12:00:00Z

Out of __consumer_offsets and __share_group_state, whether a broker runs or not; the lag is against where the logs in these log dirs end. TIME-LAG is the age of \
the first record that the group has not read, by the record's own timestamp.

Exit codes: 0 done; 1 no group is here; 2 usage or input error, or --reset-csv refused a name; 130 interrupted.")]
pub(crate) struct Groups {
    /// Log dirs of a broker, all of them: each holds a part of the groups and of the topics
    #[arg(required = true, value_name = "LOG_DIR", value_parser = given())]
    pub(crate) paths: Vec<PathBuf>,

    /// Only this group; several with -g each
    #[arg(short = 'g', long = "group", value_name = "GROUP")]
    pub(crate) names: Vec<String>,

    /// Members and what they were given, instead of offsets
    #[arg(long, group = "groups_as")]
    pub(crate) members: bool,

    /// Kind, state and number of members of each group, instead of offsets
    #[arg(long, group = "groups_as")]
    pub(crate) state: bool,

    /// JSON lines, one a group, members and offsets in it
    #[arg(long, group = "groups_as")]
    pub(crate) json: bool,

    /// Prometheus text: offsets, lags and members under the names of `kafka_exporter`, and the lag in seconds
    #[arg(long, group = "groups_as")]
    pub(crate) prometheus: bool,

    /// Offsets as the file of kafka-consumer-groups --reset-offsets --from-file; standard error says how to use it and what it
    /// lacks
    #[arg(long, group = "groups_as")]
    pub(crate) reset_csv: bool,

    /// The time up to which ages are counted: milliseconds since 1970 or RFC 3339 [default: the system's clock]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) now: Option<When>,

    /// No warnings
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  offsetlog transactions /mnt/kafka-1 /mnt/kafka-2
  offsetlog transactions data --json | jq 'select(.state == \"Ongoing\")'

Out of __transaction_state, whether a broker runs or not: the last record of each transactional id.

Exit codes: 0 done; 1 no transactional id is here; 2 usage or input error; 130 interrupted.")]
pub(crate) struct Transactions {
    /// Log dirs of a broker, all of them: each holds a part of the transactional ids
    #[arg(required = true, value_name = "LOG_DIR", value_parser = given())]
    pub(crate) paths: Vec<PathBuf>,

    /// Only this transactional id; several with the option before each
    #[arg(long = "transactional-id", value_name = "ID")]
    pub(crate) ids: Vec<String>,

    /// JSON lines, one a transactional id, with all fields of its record
    #[arg(long)]
    pub(crate) json: bool,

    /// No warnings
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  offsetlog metadata /mnt/metadata -t orders
  offsetlog metadata /mnt/metadata --configs
  offsetlog metadata /mnt/metadata --json | jq -r '[.topic_id, .topic] | @tsv'
  offsetlog metadata /var/lib/zookeeper /mnt/kafka-1 --configs
  offsetlog metadata /mnt/metadata /mnt/kafka-1 --directories
  offsetlog metadata /var/lib/zookeeper --get /brokers/topics/orders/partitions/0/state
  offsetlog metadata /mnt/metadata --as-commands --bootstrap-server new:9092 > again.sh
  offsetlog metadata /mnt/metadata --as-yaml --strimzi-cluster new > topics.yaml

Out of __cluster_metadata-0, whether a controller or broker runs or not: its newest snapshot, then the log behind it. What a quorum \
has not committed yet is not told apart. Of a cluster with ZooKeeper out of the data of one of its servers. --directories, --as-commands \
and --as-yaml work without metadata too, and then say what nobody knows.

Exit codes: 0 done; 1 no metadata is here, or nothing of what was asked for; 2 usage or input error; 130 interrupted.")]
pub(crate) struct Metadata {
    /// A controller's or broker's metadata.log.dir, the directory __cluster_metadata-0 in it, or ZooKeeper's dataDir; log dirs may stand beside it
    #[arg(required = true, value_name = "PATH", value_parser = given())]
    pub(crate) paths: Vec<PathBuf>,

    /// Only this topic; may be given several times
    #[arg(short = 't', long = "topic", value_name = "TOPIC", conflicts_with_all = ["brokers", "features"])]
    pub(crate) topics: Vec<String>,

    /// Dynamic settings of topics, brokers (without a name: of all) and groups, instead of partitions
    #[arg(long, group = "view")]
    pub(crate) configs: bool,

    /// The brokers that are registered
    #[arg(long, group = "view")]
    pub(crate) brokers: bool,

    /// Features that are on, metadata.version among them
    #[arg(long, group = "view")]
    pub(crate) features: bool,

    /// Log dirs and the directories in them, and what a broker would do with each: serves, moves, strays, ignores, deletes, fails, stops, unknown
    #[arg(long, group = "view")]
    pub(crate) directories: bool,

    /// The data of one node of ZooKeeper's, byte for byte, such as /brokers/topics/orders/partitions/0/state
    #[arg(long, value_name = "NODE", group = "view", conflicts_with_all = ["json", "topics"])]
    pub(crate) get: Option<String>,

    /// The commands of Kafka's own programs that make the topics and settings again, as a script for sh
    #[arg(long, group = "view", conflicts_with = "json")]
    pub(crate) as_commands: bool,

    /// The topics as YAML for the operator of Strimzi 0.49 or later: resources of kind `KafkaTopic`
    #[arg(long, group = "view", conflicts_with = "json")]
    pub(crate) as_yaml: bool,

    /// The server in the commands
    #[arg(
        long,
        value_name = "HOST:PORT",
        default_value = "localhost:9092",
        requires = "as_commands",
        help_heading = "With --as-commands and --as-yaml"
    )]
    pub(crate) bootstrap_server: String,

    /// Name the brokers of each partition in the commands, not how many: they have to be there under the same numbers
    #[arg(
        long,
        requires = "as_commands",
        help_heading = "With --as-commands and --as-yaml"
    )]
    pub(crate) replica_assignment: bool,

    /// The Kafka resource that the topics are for
    #[arg(
        long,
        value_name = "NAME",
        default_value = "my-cluster",
        requires = "as_yaml",
        help_heading = "With --as-commands and --as-yaml"
    )]
    pub(crate) strimzi_cluster: String,

    /// Print passwords, and settings that are not known, instead of [hidden]
    #[arg(long)]
    pub(crate) show_secrets: bool,

    /// JSON lines, one a topic, with partitions and settings in it; one a topic, broker or group with --configs, one a broker, feature or directory
    #[arg(long)]
    pub(crate) json: bool,

    /// No warnings
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
}
