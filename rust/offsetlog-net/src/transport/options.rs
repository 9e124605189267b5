//! How a server is set up, and what is refused before anything listens.

use super::EventLog;
use crate::sasl::Users;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Limits on what clients may cost, with Kafka's name where it has the same.
#[derive(Debug, Clone)]
pub struct ServerLimits {
    /// Connections at once (`max.connections`). More wait in the system's queue until one ends.
    pub connections_max: usize,
    /// Bytes of one request (`socket.request.max.bytes`).
    pub request_bytes_max: u32,
    /// Bytes of all requests that are read or wait for their turn (`queued.max.request.bytes`). No request of more than 8 KiB is
    /// begun while answers of as many bytes were not taken by their clients. One request at a time may cost as much memory until it is answered; the others that are
    /// answered at once, 16 at most, cost [`SMALL_VALUES`](crate::SMALL_VALUES) times [`VALUE_BYTES`](crate::VALUE_BYTES) each. An answer
    /// comes on top while it is made.
    pub requests_bytes_max: u64,
    /// How long a new connection may take until its first request is there and answered, TLS and SASL included.
    pub handshake_timeout: Duration,
    /// How long a connection may ask nothing (`connections.max.idle.ms`).
    pub idle_timeout: Duration,
    /// How long a request may take to come whole, once its first byte is there.
    pub request_timeout: Duration,
    /// How long sending a response may take, and a second more for each [`response_bytes_per_second`](Self::response_bytes_per_second).
    pub response_timeout: Duration,
    /// The slowest client that is served.
    pub response_bytes_per_second: u32,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections_max: 1024,
            request_bytes_max: 16 << 20,
            requests_bytes_max: 128 << 20,
            handshake_timeout: Duration::from_secs(20),
            idle_timeout: Duration::from_secs(600),
            request_timeout: Duration::from_secs(30),
            response_timeout: Duration::from_secs(60),
            response_bytes_per_second: 16 << 10,
        }
    }
}

/// Adds lines to the text for Prometheus.
pub type MoreMetrics = Arc<dyn Fn(&mut String) + Send + Sync>;

/// How a server is set up.
#[derive(Clone, Default)]
pub struct ServerOptions {
    /// Where to listen; port 0 chooses one.
    pub listen: Vec<SocketAddr>,
    /// Encrypts each connection.
    #[cfg(feature = "tls")]
    pub tls: Option<crate::tls::TlsServer>,
    /// The users that may ask anything; anybody may if `None`.
    pub users: Option<Arc<Users>>,
    /// Allows an address that others can reach without TLS and users.
    pub insecure: bool,
    /// Where to answer HTTP requests for Prometheus's text.
    pub metrics: Option<SocketAddr>,
    /// Adds lines of the protocol logic's own to that text.
    pub more_metrics: Option<MoreMetrics>,
    /// What clients may cost.
    pub limits: ServerLimits,
    /// Receives the server's events.
    pub log: Option<EventLog>,
}

impl fmt::Debug for ServerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerOptions")
            .field("listen", &self.listen)
            .field("has_tls", &self.has_tls())
            .field("has_users", &self.users.is_some())
            .field("insecure", &self.insecure)
            .field("metrics", &self.metrics)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl ServerOptions {
    /// Listens at these addresses, with the usual limits, for anybody on this machine.
    #[must_use]
    pub fn at(listen: impl Into<Vec<SocketAddr>>) -> Self {
        Self {
            listen: listen.into(),
            ..Self::default()
        }
    }

    /// Refuses an address that others can reach without both TLS and users. Nothing is bound before this.
    ///
    /// # Errors
    /// `Exposed`.
    pub fn check(&self) -> Result<(), ServerError> {
        if self.insecure {
            return Ok(());
        }
        let is_open = |address: &&SocketAddr| !address.ip().to_canonical().is_loopback();
        let (has_tls, has_users) = (self.has_tls(), self.users.is_some());
        if let Some(&address) = self.listen.iter().find(is_open)
            && !(has_tls && has_users)
        {
            return Err(ServerError::Exposed {
                address,
                has_tls,
                has_users,
                is_metrics: false,
            });
        }
        if let Some(address) = self.metrics.filter(|address| is_open(&address)) {
            return Err(ServerError::Exposed {
                address,
                has_tls: false,
                has_users: false,
                is_metrics: true,
            });
        }
        Ok(())
    }

    #[cfg(feature = "tls")]
    fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    #[cfg(not(feature = "tls"))]
    #[expect(clippy::unused_self, reason = "as with TLS")]
    fn has_tls(&self) -> bool {
        false
    }
}

/// Why a server does not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServerError {
    /// Others could reach the address without encryption or authentication.
    Exposed {
        /// The address.
        address: SocketAddr,
        /// Whether a certificate was given.
        has_tls: bool,
        /// Whether users were given.
        has_users: bool,
        /// Whether it is the address of the metrics, which has neither.
        is_metrics: bool,
    },
    /// Nothing was given to listen at.
    NoAddress,
    /// The address cannot be listened at.
    Bind {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The system starts no thread.
    Thread(io::Error),
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exposed {
                address,
                is_metrics: true,
                ..
            } => write!(
                f,
                "metrics at {address} can be read by other machines, without encryption: give a loopback address, or --insecure (insecure=True)"
            ),
            Self::Exposed {
                address,
                has_tls,
                has_users,
                ..
            } => {
                let missing = match (has_tls, has_users) {
                    (true, _) => "users (--users)",
                    (false, true) => "TLS (--tls-cert and --tls-key; tls_certificate and tls_key)",
                    (false, false) => {
                        "TLS (--tls-cert and --tls-key; tls_certificate and tls_key) and users (--users)"
                    }
                };
                write!(
                    f,
                    "{address} can be reached by other machines: give {missing}, or --insecure (insecure=True) to let anybody read everything"
                )
            }
            Self::NoAddress => f.write_str("no address to listen at is given"),
            Self::Bind { address, source } => write!(f, "cannot listen at {address}: {source}"),
            Self::Thread(source) => write!(f, "cannot start a thread: {source}"),
        }
    }
}

impl std::error::Error for ServerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Bind { source, .. } | Self::Thread(source) => Some(source),
            _ => None,
        }
    }
}
