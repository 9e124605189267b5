//! `mirror`: from a live cluster into a directory, batch for batch.

use super::given;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  offsetlog mirror --bootstrap kafka-1:9092 --into /backup/orders -t orders --once
  offsetlog mirror --bootstrap kafka-1:9092,kafka-2:9092 --into /backup/all --config client.properties
  offsetlog serve /backup/all

Copies batches as they are, with offsets, leader epochs, producers and transactions, and appends them as a follower does; also topic ids, the \
topics' own settings, and the groups' committed offsets. DIR is a log dir of its own: serve it, read it, or restore from it at any moment. Run \
it again after whatever ended it: it goes on where DIR ends.

With --once it ends when every partition has reached the high watermark that it had when it was first asked; otherwise it runs until it is \
interrupted. What the source deletes stays, and is reported; with --follow-deletes it is deleted here too. A copy that diverged from its leader is cut, and what is cut is kept in \
offsetlog-cut.

Exit codes: 0 done; 2 usage or input error, or something could not be copied, such as a topic that was made again; 3 done, and the source \
had deleted records before they were copied, or a topic that stays, or a copy was cut; 130 interrupted.")]
pub(crate) struct Mirror {
    /// Brokers to begin with, HOST:PORT, separated by commas; may be given several times
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) bootstrap: Vec<String>,

    /// The directory of the mirror, made if it is missing
    #[arg(long, required = true, value_name = "DIR", value_parser = given())]
    pub(crate) into: PathBuf,

    /// Only this topic; may be given several times. Internal topics are copied only if they are named
    #[arg(short = 't', long = "topic", value_name = "TOPIC")]
    pub(crate) topics: Vec<String>,

    /// Topics that a pattern with * and ? means, new ones too; may be given several times
    #[arg(long = "pattern", value_name = "PATTERN")]
    pub(crate) patterns: Vec<String>,

    /// End when everything is copied that was there at the beginning
    #[arg(long)]
    pub(crate) once: bool,

    /// Delete here what the source deletes: records below its log start offset, and topics that were away, or were others, for a minute
    #[arg(long)]
    pub(crate) follow_deletes: bool,

    /// Leave the groups' committed offsets out
    #[arg(long)]
    pub(crate) no_groups: bool,

    /// A client.properties of Kafka's clients: security.protocol, sasl.*, ssl.*
    #[arg(long, value_name = "FILE", value_parser = given())]
    pub(crate) config: Option<PathBuf>,

    /// Bytes of one response at most; a broker's connection holds three of them
    #[arg(long, value_name = "BYTES", default_value_t = 8 << 20, value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) fetch_max_bytes: i32,

    /// Seconds between two looks at topics, leaders, settings and groups
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) refresh: u32,

    /// With --once: seconds after which a partition that does not answer is given up
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) give_up: u32,

    /// JSON lines: events as they come, progress every second, then one for each partition and one for the whole
    #[arg(long)]
    pub(crate) json: bool,

    /// No warnings and no bar
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
}
