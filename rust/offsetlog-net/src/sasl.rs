//! Authenticates clients: SASL's mechanisms PLAIN and SCRAM, both sides, without I/O (RFC 4616, RFC 5802, RFC 7677).

mod client;
mod gate;
mod plain;
mod scram;
mod scram_message;
mod users;

pub use client::{ClientExchange, Credentials};
pub(crate) use gate::{Gate, Verdict};
pub use users::{Users, UsersError};

use std::fmt;
use std::str::FromStr;

/// SASL mechanisms, by Kafka's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mechanism {
    /// The password itself.
    Plain,
    /// A proof of knowing it, with SHA-256.
    ScramSha256,
    /// A proof of knowing it, with SHA-512.
    ScramSha512,
}

impl Mechanism {
    /// All, as a server offers them.
    pub const ALL: [Self; 3] = [Self::Plain, Self::ScramSha256, Self::ScramSha512];

    /// The name in requests and settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::ScramSha512 => "SCRAM-SHA-512",
        }
    }

    fn of_name(name: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|mechanism| mechanism.name().as_bytes() == name)
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mechanism {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::of_name(name.as_bytes()).ok_or_else(|| {
            format!("SASL mechanism {name} is not supported; there are PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512")
        })
    }
}

/// The outcome of one step of an exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Send this; the other side continues.
    Continue(Vec<u8>),
    /// Send this, which may be empty: the other side is who it says.
    Done(Vec<u8>),
}

/// Why authentication failed, or how a message breaks the mechanism. For logs; a server's answer does not show which it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaslError(pub(crate) String);

impl fmt::Display for SaslError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SaslError {}

fn wrong<T>(text: impl Into<String>) -> Result<T, SaslError> {
    Err(SaslError(text.into()))
}

/// Random bytes of the system's.
fn random<const N: usize>() -> Result<[u8; N], SaslError> {
    use ring::rand::{SecureRandom, SystemRandom};
    let mut bytes = [0; N];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| SaslError("the system gives no random bytes".to_owned()))?;
    Ok(bytes)
}
