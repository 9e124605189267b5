//! `serve`: log dirs, read by real Kafka clients.

use super::given;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  offsetlog serve /mnt/dead/kafka-logs
  offsetlog serve /disk1/kafka /disk2/kafka --listen 127.0.0.1:0 -t orders --until high-watermark
  offsetlog serve backup --listen 0.0.0.0:9093 --advertise kafka.example:9093 --tls-cert server.pem --tls-key key.pem --users users

Then read as from any broker:
  kcat -b 127.0.0.1:9092 -C -t orders -o beginning -e
  kafka-console-consumer.sh --bootstrap-server 127.0.0.1:9092 --topic orders --from-beginning

Reads only: no byte of the log dirs changes, and a broker may run on them. Producing is refused. Groups begin where the dead cluster's groups \
were. What a client commits is in memory, or with --groups in a directory of our own. A file of users has lines name=password, or name=SCRAM-SHA-256=... in Kafka's form.

Exit codes: 0 stopped by SIGTERM; 2 usage or input error; 130 stopped by Ctrl-C.")]
pub(crate) struct Serve {
    /// Log dirs of dead brokers, backups, partition directories such as orders-0, and the cluster's metadata or ZooKeeper's data
    #[arg(required = true, value_name = "PATH", value_parser = given())]
    pub(crate) paths: Vec<PathBuf>,

    /// Only this topic; may be given several times
    #[arg(short = 't', long = "topic", value_name = "TOPIC")]
    pub(crate) topics: Vec<String>,

    /// Where to listen; may be given several times, port 0 chooses one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9092")]
    pub(crate) listen: Vec<String>,

    /// What clients are told to connect to, if that is not the first of --listen; port 0 means its port
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) advertise: Option<String>,

    /// Up to where partitions are served: all whole batches, or the dead leader's high watermark, which may be 5 seconds old
    #[arg(long, value_enum, value_name = "WHERE", default_value_t)]
    pub(crate) until: Until,

    /// Transactions without an end: `read_committed` waits before them, or they end as their coordinator decided
    #[arg(long, value_enum, value_name = "WHAT", default_value_t)]
    pub(crate) open_transactions: OpenTransactions,

    /// With --open-transactions decide: show as aborted what no coordinator's record tells of
    #[arg(long)]
    pub(crate) without_state: bool,

    /// Keep committed offsets in a log of our own in this directory, instead of in memory; it is none of PATH
    #[arg(long, value_name = "DIR", value_parser = given())]
    pub(crate) groups: Option<PathBuf>,

    /// Groups whose committed offsets are not here, or cannot be read, begin with none; without this their consumers get an error
    #[arg(long)]
    pub(crate) without_offsets: bool,

    /// The broker's server.properties, for the settings that clients are told
    #[arg(long, value_name = "FILE", value_parser = given())]
    pub(crate) broker: Option<PathBuf>,

    /// The directory of the cluster's metadata log, or ZooKeeper's data, if it is none of PATH
    #[arg(long, value_name = "DIR", value_parser = given())]
    pub(crate) metadata: Option<PathBuf>,

    /// The server's certificate, and those between it and its authority: PEM
    #[arg(long, value_name = "FILE", requires = "tls_key", value_parser = given())]
    pub(crate) tls_cert: Option<PathBuf>,

    /// Its key: PEM, not encrypted
    #[arg(long, value_name = "FILE", requires = "tls_cert", value_parser = given())]
    pub(crate) tls_key: Option<PathBuf>,

    /// Only clients with a certificate of these authorities get in: PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert", value_parser = given())]
    pub(crate) tls_client_ca: Option<PathBuf>,

    /// Only these users get in, by PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512: a file with lines name=password
    #[arg(long, value_name = "FILE", value_parser = given())]
    pub(crate) users: Option<PathBuf>,

    /// Let other machines read everything without TLS or without users
    #[arg(long)]
    pub(crate) insecure: bool,

    /// Answer Prometheus at http://HOST:PORT/metrics
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) metrics: Option<String>,

    /// Connections at once; more wait
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) max_connections: u32,

    /// Bytes of one request
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 20, value_parser = clap::value_parser!(u32).range(1024..=100 << 20))]
    pub(crate) max_request_bytes: u32,

    /// Bytes of memory for all requests together; as many for answers that are not taken, and for one large request that is answered
    #[arg(long, value_name = "BYTES", default_value_t = 128 << 20, value_parser = clap::value_parser!(u64).range(1 << 20..))]
    pub(crate) max_memory_bytes: u64,

    /// Seconds that a connection may ask nothing
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) idle_timeout: u32,

    /// JSON lines: first what is served, then what happens
    #[arg(long)]
    pub(crate) json: bool,

    /// Say nothing on standard error but errors
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
}

/// Up to where partitions are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Until {
    /// The last whole batch
    #[default]
    LogEnd,
    /// What replication-offset-checkpoint says
    HighWatermark,
}

/// What becomes of open transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum OpenTransactions {
    /// As a broker does: `read_committed` ends before the first one
    #[default]
    Wait,
    /// As `__transaction_state` says; what was not decided is shown as aborted
    Decide,
}
