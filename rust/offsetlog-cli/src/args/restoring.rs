//! `restore`: from a dead broker's disks to a topic that a broker serves.

use super::given;
use clap::Args;
use offsetlog_ops::When;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  offsetlog restore /mnt/dead --into /var/lib/kafka/data --new-cluster --dry-run
  offsetlog restore /mnt/kafka-1 /mnt/kafka-2 --into /disk1/kafka --into /disk2/kafka -t 'orders*' --until 2026-03-04T11:55:00Z
  offsetlog restore /mnt/dead --into data -t orders --json | jq -r 'select(.state == \"restored\") | .records'

Prints the plan, then restores partition after partition; each appears whole or not at all, is read back and compared, and what is there already \
is left: run it again after it was killed. The sources are not changed. Of several replicas it takes the one with the greatest leader epoch, of \
those the longest.

With --new-cluster LOGDIR is that of brokers which were formatted (kafka-storage.sh format) and never started: the topics, with their ids, \
settings and partitions, are written into bootstrap.checkpoint and exist when the cluster starts. Without it LOGDIR is that of stopped brokers \
whose cluster has the topics, empty; or a folder of no broker. What is left to be done by hand comes last, with the commands.

Exit codes: 0 done; 1 nothing to restore; 2 usage or input error, or a partition could not be restored; 3 done, and something is missing or \
was lost; 130 interrupted.")]
pub(crate) struct Restore {
    /// Log dirs of dead brokers, their metadata.log.dir or ZooKeeper's data; or partition directories such as orders-0
    #[arg(required = true, value_name = "SOURCE", value_parser = given())]
    pub(crate) sources: Vec<PathBuf>,

    /// A log dir to restore into; may be given several times, of several brokers too
    #[arg(long, required = true, value_name = "LOGDIR", value_parser = given())]
    pub(crate) into: Vec<PathBuf>,

    /// Only this topic, or those that a pattern with * and ? means; may be given several times
    #[arg(short = 't', long = "topic", value_name = "TOPIC")]
    pub(crate) topics: Vec<String>,

    /// Each partition up to its first record at this time or later: milliseconds since 1970, or RFC 3339; one without timestamps is
    /// refused, unless --offsets has it
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    pub(crate) until: Option<When>,

    /// Partitions up to these offsets, exclusive: a file with a line topic,partition,offset for each
    #[arg(long, value_name = "FILE", value_parser = given())]
    pub(crate) offsets: Option<PathBuf>,

    /// Write the topics into the bootstrap.checkpoint of a cluster that never started
    #[arg(long)]
    pub(crate) new_cluster: bool,

    /// The metadata.log.dir of a controller of the target, if that is none of LOGDIR, or its ZooKeeper's data; may be given several times
    #[arg(long, value_name = "DIR", value_parser = given())]
    pub(crate) metadata: Vec<PathBuf>,

    /// A server.properties of the target's brokers: what holds where a topic has nothing of its own; without it nobody knows whether
    /// their retention deletes what is restored
    #[arg(long, value_name = "FILE", value_parser = given())]
    pub(crate) broker: Option<PathBuf>,

    /// Replicas of each partition in a new cluster, instead of as many as it had and there are brokers
    #[arg(long, value_name = "N", requires = "new_cluster")]
    pub(crate) replication_factor: Option<usize>,

    /// Restore partitions although other brokers have replicas
    #[arg(long, conflicts_with = "new_cluster")]
    pub(crate) single_replica: bool,

    /// In a new cluster: keep retention.ms, retention.bytes and cleanup.policy even if they delete restored records
    #[arg(long, requires = "new_cluster")]
    pub(crate) keep_retention: bool,

    /// Write nothing; print the plan
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,

    /// JSON lines instead of text: first the plan (without --dry-run), then one a partition, and one for the whole
    #[arg(long)]
    pub(crate) json: bool,

    /// No warnings and no bar
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
}
