//! What is asked about records that nobody deletes, compacts or reads: `why`, `producers` and `end-transaction`.

use super::{Selection, given};
use clap::Args;
use offsetlog_ops::When;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  offsetlog why /var/lib/kafka/data -t orders --broker server.properties
  offsetlog why /mnt/kafka-1 /mnt/metadata --json | jq 'select(.reason != \"due\")'

A line for each partition and question: what keeps its oldest segments from being deleted, a compacted one from being compacted, and
read_committed from reading to its end; and a line with what would free it. The settings are those of `offsetlog settings`: in a broker's
log dir they come from the cluster's metadata (one of PATH, or --metadata) and from the broker's server.properties (--broker).

Exit codes: 0 done; 1 no partition is here; 2 usage or input error, or a partition could not be read; 130 interrupted.")]
pub(crate) struct Why {
    #[command(flatten)]
    pub(crate) selection: Selection,

    /// A broker's server.properties: what holds where neither the topic nor the cluster was given anything
    #[arg(long, value_name = "FILE", value_parser = given())]
    pub(crate) broker: Option<PathBuf>,

    /// The folder that holds __cluster_metadata-0, if none of PATH does, or ZooKeeper's data
    #[arg(long, value_name = "DIR", value_parser = given())]
    pub(crate) metadata: Option<PathBuf>,

    /// The time up to which ages are counted: milliseconds since 1970, or RFC 3339
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    pub(crate) now: Option<When>,

    /// One JSON line an answer
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  offsetlog producers /mnt/kafka-1 /mnt/kafka-2 --open
  offsetlog producers data -t orders --json | jq 'select(.standing == \"hanging\")'

What each partition knows of its producers, whether a broker runs or not: the newest producer snapshot that agrees with the log, and the
batches behind it. WAITS-FOR says what __transaction_state knows of an open transaction: ongoing, committing or aborting (decided, the
marker is missing here), hanging (no coordinator has it), or unknown (its coordinator's partition is not among PATH). For hanging the
cluster's metadata must be among PATH too: only it says that no partition of __transaction_state is missing.

Exit codes: 0 done; 1 no producer, or with --open no open transaction; 2 usage or input error, or a partition could not be read; 130 interrupted.")]
pub(crate) struct Producers {
    #[command(flatten)]
    pub(crate) selection: Selection,

    /// Only producers with an open transaction, the oldest transaction of each partition first
    #[arg(long)]
    pub(crate) open: bool,

    /// The time up to which ages are counted: milliseconds since 1970, or RFC 3339
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    pub(crate) now: Option<When>,

    /// One JSON line a producer of a partition
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  offsetlog end-transaction orders-0 4001 /mnt/kafka-1 --dry-run
  offsetlog end-transaction orders-0 4001 /mnt/kafka-1 --abort
  offsetlog end-transaction orders-0 4001 /mnt/orders-0 --without-state --abort

Stop the broker first. The coordinator's record in __transaction_state decides, as it is among PATH: what it has decided to commit is
committed, what it has decided to abort is aborted, and only what is ongoing there may be aborted (--abort). Without such a record nobody
can know from here whether the transaction was committed elsewhere: --without-state ends it all the same. A replica that
lagged behind its leader may lack a decision, or a marker: take the newest ones, of __transaction_state and of the partition.

Exit codes: 0 done; 2 usage or input error, or refused; 130 interrupted.")]
pub(crate) struct EndTransaction {
    /// The partition, such as orders-0
    #[arg(value_name = "TOPIC-PARTITION")]
    pub(crate) partition: String,

    /// The producer id, as `offsetlog producers --open` shows it
    #[arg(value_name = "PRODUCER-ID")]
    pub(crate) producer_id: i64,

    /// Log dirs of the stopped broker, all of them
    #[arg(required = true, value_name = "PATH", value_parser = given())]
    pub(crate) paths: Vec<PathBuf>,

    /// Abort it, where its coordinator has not decided
    #[arg(long, conflicts_with = "commit")]
    pub(crate) abort: bool,

    /// Commit it; only with --without-state
    #[arg(long)]
    pub(crate) commit: bool,

    /// End it although no coordinator's record tells how
    #[arg(long)]
    pub(crate) without_state: bool,

    /// Append nothing; say what would be done
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,

    /// In a broker's log dir: append the marker although other brokers have replicas
    #[arg(long)]
    pub(crate) single_replica: bool,

    /// In a broker's log dir: the folder that holds __cluster_metadata-0, if none of PATH does, or ZooKeeper's data
    #[arg(long, value_name = "DIR", value_parser = given())]
    pub(crate) metadata: Option<PathBuf>,

    /// One JSON line
    #[arg(long)]
    pub(crate) json: bool,

    /// Say nothing on standard error but errors
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
}
