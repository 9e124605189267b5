//! The arguments of `adopt`.

use super::given;
use super::writing::parse_topic_id;
use clap::Args;
use offsetlog::format::Uuid;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  offsetlog adopt /disk1/kafka/orders-*-stray --log-dir /disk2/kafka --metadata /mnt/metadata --dry-run
  offsetlog adopt /disk1/kafka/orders-*-stray --log-dir /disk2/kafka --metadata /mnt/metadata --set-aside
  offsetlog adopt data/orders-0 --topic-id pf7cXgbVTTeuM8IYSzk58w

Stop the broker first. DIRECTORY stays in its log dir: its partition.metadata gets the topic id that the cluster's metadata has, the
checkpoints lines that fit, and it gets the name topic-partition. Every batch is read and checked before. Refused, with nothing changed,
is what a broker would set aside again: a topic or partition that the metadata does not have, or has with other brokers. Where the
topic was made again, the broker has made a new directory, most often an empty one: --set-aside renames it to -stray first.

Exit codes: 0 done; 1 nothing to do; 2 usage or input error, or refused; 130 interrupted.")]
pub(crate) struct Adopt {
    /// Directories of partitions: orders-0.<id>-stray, -delete or -future, or orders-0 with another topic id
    #[arg(required = true, value_name = "DIRECTORY", value_parser = given())]
    pub(crate) directories: Vec<PathBuf>,

    /// Another log dir of the same broker; may be given several times
    #[arg(long = "log-dir", value_name = "DIR", value_parser = given())]
    pub(crate) log_dirs: Vec<PathBuf>,

    /// The folder that holds __cluster_metadata-0, if none of the log dirs does, or ZooKeeper's data
    #[arg(long, value_name = "DIR", value_parser = given())]
    pub(crate) metadata: Option<PathBuf>,

    /// The broker's server.properties: whether its retention deletes what is taken in
    #[arg(long, value_name = "FILE", value_parser = given())]
    pub(crate) broker: Option<PathBuf>,

    /// The topic, where its name is cut short in the directory's name
    #[arg(short = 't', long, value_name = "TOPIC")]
    pub(crate) topic: Option<String>,

    /// The topic's id, where no metadata tells it
    #[arg(long, value_name = "ID", value_parser = parse_topic_id, allow_hyphen_values = true)]
    pub(crate) topic_id: Option<Uuid>,

    /// Rename what stands in the partition's place to -stray first
    #[arg(long)]
    pub(crate) set_aside: bool,

    /// Do it although other brokers have replicas of the partition
    #[arg(long)]
    pub(crate) single_replica: bool,

    /// Change nothing; say what would be done
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,

    /// One JSON line for each directory
    #[arg(long)]
    pub(crate) json: bool,

    /// Say nothing on standard error but errors
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
}
