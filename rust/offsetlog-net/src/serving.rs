//! Puts a server together: what is served, where, for whom. The command `serve` and Python's `Server` both use it.

mod follower;
mod told;

use crate::sasl::{Users, UsersError};
use crate::server::{self, Broker, OpenTransactions, ServeOptions, ServeReport, Until};
use crate::transport::{EventLog, Server, ServerError, ServerLimits, ServerOptions};
use follower::Follower;
use offsetlog::{BrokerSettings, OpenOptions};
use std::fmt::{self, Write as _};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use told::tell;

/// How long [`Serving::stop`] lets responses go out.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// What is to be served, and how.
#[derive(Clone, Default)]
pub struct ServingOptions {
    /// Log dirs, partition directories, the cluster's metadata.
    pub paths: Vec<PathBuf>,
    /// Only these topics; all if empty.
    pub topics: Vec<String>,
    /// Where to listen, as `host:port`; `127.0.0.1:9092` if empty. Port 0 chooses one.
    pub listen: Vec<String>,
    /// The advertised address, as `host:port`; the first of the listening addresses if `None`.
    pub advertise: Option<String>,
    /// Up to where partitions are served.
    pub until: Until,
    /// What becomes of open transactions.
    pub open_transactions: OpenTransactions,
    /// Where committed offsets are kept; in memory if `None`.
    pub groups: Option<PathBuf>,
    /// Groups whose committed offsets are not known begin with none.
    pub without_offsets: bool,
    /// The broker's `server.properties`.
    pub broker_settings: Option<BrokerSettings>,
    /// Where the cluster's metadata is, if it is not among the paths.
    pub metadata: Option<PathBuf>,
    /// A PEM file with the server's certificate and those between it and its authority.
    pub tls_certificate: Option<PathBuf>,
    /// A PEM file with its key.
    pub tls_key: Option<PathBuf>,
    /// A PEM file with the authorities whose clients get in.
    pub tls_client_ca: Option<PathBuf>,
    /// A file of users, as [`Users::load`] reads it.
    pub users: Option<PathBuf>,
    /// Allows others to connect without TLS and users.
    pub insecure: bool,
    /// Where Prometheus asks, as `host:port`.
    pub metrics: Option<String>,
    /// What clients may cost.
    pub limits: ServerLimits,
    /// How logs are opened.
    pub open: OpenOptions,
    /// Receives the server's events.
    pub log: Option<EventLog>,
}

impl fmt::Debug for ServingOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServingOptions")
            .field("paths", &self.paths)
            .field("listen", &self.listen)
            .finish_non_exhaustive()
    }
}

/// A server that runs. Dropping it stops it.
pub struct Serving {
    server: Server,
    broker: Arc<Broker>,
    follower: Follower,
    advertised: (String, u16),
    is_encrypted: bool,
    has_users: bool,
    log: Option<EventLog>,
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving")
            .field("server", &self.server)
            .field("advertised", &self.advertised)
            .finish_non_exhaustive()
    }
}

/// Why nothing is served.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServingError {
    /// The log dirs cannot be served.
    Engine(offsetlog::Error),
    /// The addresses cannot.
    Server(ServerError),
    /// An option is wrong.
    Argument {
        /// Its name, as that of a field of [`ServingOptions`].
        name: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// The users cannot be read.
    Users(UsersError),
}

impl fmt::Display for ServingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine(error) => error.fmt(f),
            Self::Server(error) => error.fmt(f),
            Self::Argument { name, reason } => write!(f, "{name}: {reason}"),
            Self::Users(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ServingError {}

impl From<offsetlog::Error> for ServingError {
    fn from(error: offsetlog::Error) -> Self {
        Self::Engine(error)
    }
}

impl From<ServerError> for ServingError {
    fn from(error: ServerError) -> Self {
        Self::Server(error)
    }
}

impl Serving {
    /// Checks all options, binds the addresses, opens the log dirs and serves them. When this returns, the server answers clients.
    ///
    /// # Errors
    /// An address that others can reach without TLS and users is refused before anything is bound or read; those of [`Broker::open`].
    pub fn start(options: &ServingOptions) -> Result<Self, ServingError> {
        let counted = Arc::new(Counted::default());
        let mut transport = ServerOptions {
            listen: Vec::new(),
            insecure: options.insecure,
            limits: options.limits.clone(),
            log: options.log.clone(),
            ..ServerOptions::default()
        };
        let listen = if options.listen.is_empty() {
            &["127.0.0.1:9092".to_owned()][..]
        } else {
            &options.listen
        };
        let mut first = Vec::new();
        for address in listen {
            let found = resolved("listen", address)?;
            transport.listen.extend(&found);
            if first.is_empty() {
                first = found;
            }
        }
        if let Some(metrics) = &options.metrics {
            transport.metrics = resolved("metrics", metrics)?.into_iter().next();
        }
        with_tls(options, &mut transport)?;
        if let Some(path) = &options.users {
            let users = Users::load(path).map_err(ServingError::Users)?;
            transport.users = Some(Arc::new(users));
        }
        let (is_encrypted, has_users) =
            (options.tls_certificate.is_some(), options.users.is_some());
        transport.check()?;
        let told = match (&options.advertise, listen) {
            (Some(given), _) => advertised("advertise", given, &numeric(given))?,
            (None, [own, ..]) => (advertised("listen", own, &first)?.0, 0),
            (None, []) => return Err(ServerError::NoAddress.into()),
        };
        let bound = {
            let broker: Arc<std::sync::OnceLock<Arc<Broker>>> = Arc::default();
            let (asked, counted) = (Arc::clone(&broker), Arc::clone(&counted));
            transport.more_metrics = Some(Arc::new(move |text| {
                if let Some(broker) = asked.get() {
                    write_metrics(text, broker, &counted);
                }
            }));
            (Server::bind(transport)?, broker)
        };
        let (bound, for_metrics) = bound;
        let (host, port) = told;
        let port = match port {
            0 => bound.addresses().first().map_or(0, SocketAddr::port),
            port => port,
        };
        let log = options.log.clone();
        let broker = Broker::open(
            &options.paths,
            ServeOptions {
                host: host.clone(),
                port,
                topics: options.topics.clone(),
                until: options.until,
                open_transactions: options.open_transactions,
                without_offsets: options.without_offsets,
                broker_settings: options.broker_settings.clone(),
                metadata: options.metadata.clone(),
                open: options.open.clone(),
                on_event: Some(Arc::new(move |event| {
                    counted.count(event);
                    if let Some(log) = &log {
                        tell(&**log, event);
                    }
                })),
                ..ServeOptions::default()
            },
        )?;
        if let Some(missing) = missing_topic(&broker, &options.topics) {
            return Err(ServingError::Argument {
                name: "topics",
                reason: format!("no topic {missing} is here"),
            });
        }
        let now_ms = (options.open.clock)();
        let broker = broker.with_coordinator(options.groups.as_deref(), now_ms)?;
        let broker = Arc::new(broker);
        let _ = for_metrics.set(Arc::clone(&broker));
        let server = bound.serve(Arc::clone(&broker))?;
        let follower = Follower::start(Arc::clone(&broker), options.open.clock.clone())
            .map_err(ServerError::Thread)?;
        Ok(Self {
            server,
            broker,
            follower,
            advertised: (host, port),
            is_encrypted,
            has_users,
            log: options.log.clone(),
        })
    }

    /// The `bootstrap.servers` for clients.
    pub fn bootstrap_servers(&self) -> String {
        let (host, port) = &self.advertised;
        crate::client::shown(host, *port)
    }

    /// The addresses that it listens at, with the ports that the system chose.
    pub fn addresses(&self) -> &[SocketAddr] {
        self.server.addresses()
    }

    /// Where it answers Prometheus.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.server.metrics_address()
    }

    /// What is served now.
    pub fn report(&self) -> ServeReport {
        self.broker.report()
    }

    /// What was counted, as Prometheus's text.
    pub fn metrics(&self) -> String {
        self.server.metrics()
    }

    /// Number of connections that are open.
    pub fn connections(&self) -> usize {
        self.server.connections()
    }

    /// Whether connections are encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    /// Whether clients have to say who they are.
    pub fn has_users(&self) -> bool {
        self.has_users
    }

    /// Stops within a few seconds: ends waits, lets responses go out. Does nothing the second time.
    pub fn stop(&self) {
        self.follower.end();
        self.server.stop(STOP_WITHIN);
        self.follower.wait(STOP_WITHIN);
        if let Err(error) = self.broker.flush_groups()
            && let Some(log) = &self.log
        {
            let reason = error.to_string();
            tell(&**log, &server::Event::GroupsFailed { reason });
        }
    }
}

/// The addresses of `host:port`. Of several, those that this machine has: `localhost` may resolve to `::1` even without IPv6.
fn resolved(name: &'static str, address: &str) -> Result<Vec<SocketAddr>, ServingError> {
    let wrong = |reason: String| ServingError::Argument { name, reason };
    split(address).map_err(wrong)?;
    let found: Vec<SocketAddr> = address
        .to_socket_addrs()
        .map_err(|error| wrong(format!("{address}: {error}")))?
        .collect();
    if found.is_empty() {
        return Err(wrong(format!("{address} has no address")));
    }
    let is_here = |address: &SocketAddr| {
        let error = TcpListener::bind((address.ip(), 0)).err();
        !error.is_some_and(|error| {
            error.kind() == std::io::ErrorKind::AddrNotAvailable
                || error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error())
        })
    };
    let here: Vec<SocketAddr> = found.iter().copied().filter(is_here).collect();
    Ok(if here.is_empty() { found } else { here })
}

fn split(address: &str) -> Result<(String, u16), String> {
    let wrong = || format!("'{address}' is not HOST:PORT, such as 127.0.0.1:9092 or [::1]:9092");
    let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse().map_err(|_| wrong())?;
    let bare = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    if host.is_empty() || (bare.is_none() && host.contains(':')) {
        return Err(wrong());
    }
    Ok((bare.unwrap_or(host).to_owned(), port))
}

/// The addresses of a host that is written in numbers, which takes no look at names: `0` is `0.0.0.0`.
fn numeric(address: &str) -> Vec<SocketAddr> {
    let is_numeric = split(address).is_ok_and(|(host, _)| {
        let mut bytes = host.bytes();
        host.contains(':')
            || bytes.all(|byte| byte.is_ascii_hexdigit() || byte == b'.' || byte == b'x')
                && host.starts_with(|first: char| first.is_ascii_digit())
    });
    let found = is_numeric.then(|| address.to_socket_addrs().ok()).flatten();
    found.into_iter().flatten().collect()
}

/// The advertised host and port, which has these addresses as far as they are known; port 0 means the listening port.
fn advertised(
    name: &'static str,
    address: &str,
    found: &[SocketAddr],
) -> Result<(String, u16), ServingError> {
    let wrong = |name, reason| ServingError::Argument { name, reason };
    let told = split(address).map_err(|reason| wrong(name, reason))?;
    if found.iter().any(|found| found.ip().is_unspecified()) {
        let reason = format!(
            "{} means all addresses of this machine, to which no client can connect: say which one to tell them (--advertise HOST:0)",
            told.0
        );
        return Err(wrong("advertise", reason));
    }
    Ok(told)
}

#[cfg(feature = "tls")]
fn with_tls(options: &ServingOptions, transport: &mut ServerOptions) -> Result<(), ServingError> {
    let wrong = |name, reason| Err(ServingError::Argument { name, reason });
    let (certificate, key) = match (&options.tls_certificate, &options.tls_key) {
        (Some(certificate), Some(key)) => (certificate, key),
        (None, None) if options.tls_client_ca.is_some() => {
            return wrong(
                "tls_client_ca",
                "clients show certificates over TLS only: give the server's certificate and key too".to_owned(),
            );
        }
        (None, None) => return Ok(()),
        _ => {
            return wrong(
                "tls_key",
                "a certificate needs its key, and a key its certificate".to_owned(),
            );
        }
    };
    let tls = crate::tls::TlsServer::load(certificate, key, options.tls_client_ca.as_deref());
    match tls {
        Ok(tls) => transport.tls = Some(tls),
        Err(error) => return wrong("tls", error.to_string()),
    }
    Ok(())
}

#[cfg(not(feature = "tls"))]
fn with_tls(options: &ServingOptions, _: &mut ServerOptions) -> Result<(), ServingError> {
    let given = [
        &options.tls_certificate,
        &options.tls_key,
        &options.tls_client_ca,
    ];
    if given.into_iter().any(Option::is_some) {
        return Err(ServingError::Argument {
            name: "tls",
            reason: "this build has no TLS".to_owned(),
        });
    }
    Ok(())
}

fn missing_topic<'a>(broker: &Broker, asked: &'a [String]) -> Option<&'a String> {
    if asked.is_empty() {
        return None;
    }
    let report = broker.report();
    let is_here = |name: &&String| report.topics.iter().any(|topic| topic.name == **name);
    asked.iter().find(|name| !is_here(name))
}

#[derive(Default)]
struct Counted {
    damage: AtomicU64,
    failed: AtomicU64,
    metadata_failed: AtomicU64,
}

impl Counted {
    fn count(&self, event: &server::Event) {
        let counter = match event {
            server::Event::Damage { .. } => &self.damage,
            server::Event::Failed { .. } | server::Event::Offline { .. } => &self.failed,
            server::Event::MetadataNotRead { .. } => &self.metadata_failed,
            _ => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// What only the protocol logic knows: a scrape looks at each partition's ends.
fn write_metrics(text: &mut String, broker: &Broker, counted: &Counted) {
    let mut plain = |name: &str, help: &str, count: u64| {
        let _ = write!(
            text,
            "# HELP offsetlog_serve_{name} {help}.\n# TYPE offsetlog_serve_{name} counter\noffsetlog_serve_{name} {count}\n"
        );
    };
    plain(
        "damage_total",
        "Places of damage that fetches found",
        counted.damage.load(Ordering::Relaxed),
    );
    plain(
        "partition_errors_total",
        "Partitions that could not be opened or read",
        counted.failed.load(Ordering::Relaxed),
    );
    plain(
        "metadata_errors_total",
        "Events that the cluster's metadata could not be read again",
        counted.metadata_failed.load(Ordering::Relaxed),
    );
    let report = broker.report();
    for (name, help, value) in [
        (
            "log_start_offset",
            "Lowest offset that clients can read",
            (|partition| partition.log_start_offset) as fn(&server::PartitionReport) -> Option<i64>,
        ),
        (
            "log_end_offset",
            "End of what clients can read, exclusive",
            |partition| partition.log_end_offset,
        ),
        (
            "last_stable_offset",
            "End of what read_committed can read, exclusive",
            |partition| partition.last_stable_offset,
        ),
        (
            "partition_ok",
            "Whether the partition is there and nothing of it is known to be damaged",
            |partition| Some(i64::from(partition.problem.is_none())),
        ),
    ] {
        let _ = writeln!(text, "# HELP offsetlog_serve_{name} {help}.");
        let _ = writeln!(text, "# TYPE offsetlog_serve_{name} gauge");
        for topic in &report.topics {
            for partition in &topic.partitions {
                if let Some(value) = value(partition) {
                    let _ = writeln!(
                        text,
                        "offsetlog_serve_{name}{{topic=\"{}\",partition=\"{}\"}} {value}",
                        label(&topic.name),
                        partition.partition
                    );
                }
            }
        }
    }
}

/// A label's value as Prometheus wants it. A directory may have any name.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_host_and_port() {
        let check = |text: &str, host: &str, port| {
            assert_eq!(split(text), Ok((host.to_owned(), port)));
        };
        check("127.0.0.1:9092", "127.0.0.1", 9092);
        check("kafka.example:0", "kafka.example", 0);
        check("[::1]:9092", "::1", 9092);
        for text in [
            "",
            "9092",
            ":9092",
            "host:",
            "host:99999",
            "::1:9092",
            "host:x",
        ] {
            assert!(split(text).is_err(), "{text}");
        }
    }

    #[test]
    fn clients_are_told_an_address_that_they_can_connect_to() {
        let told = |address: &str| advertised("advertise", address, &numeric(address));
        assert_eq!(told("localhost:1").unwrap(), ("localhost".to_owned(), 1));
        assert_eq!(told("a:7").unwrap(), ("a".to_owned(), 7));
        assert_eq!(told("[::1]:7").unwrap(), ("::1".to_owned(), 7));
        for all in ["0.0.0.0:9092", "[::]:9092", "0:9092", "0x0:0"] {
            let error = told(all).unwrap_err().to_string();
            assert!(error.contains("--advertise"), "{error}");
        }
    }

    /// A name may stand for an address that this machine does not have.
    #[test]
    fn a_name_stands_for_the_addresses_that_are_here() {
        let found = resolved("listen", "localhost:0").unwrap();
        assert!(found.iter().all(|found| TcpListener::bind(found).is_ok()));
        // An address in numbers is kept, so that binding it reports what is wrong.
        assert_eq!(resolved("listen", "192.0.2.1:7").unwrap().len(), 1);
    }
}
