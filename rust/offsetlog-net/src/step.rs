//! What the protocol logic answers to a request, before any socket is touched.

use offsetlog::disk::DiskFile;
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The outcome of a request.
#[derive(Debug)]
pub enum Step {
    /// Send this, then read the next request.
    Reply(Reply),
    /// Send nothing, and read the next request: the client asked for no answer.
    Silent,
    /// Nothing can be answered yet. Call [`Service::resume`] when [`Changes`] moved, and at this time at the latest.
    Wait {
        /// Milliseconds since 1970.
        until_ms: i64,
    },
    /// Send the reply, if there is one, and end the connection. The reason is for the log.
    Close {
        /// Last words.
        reply: Option<Reply>,
        /// Why, in words for the server's log.
        reason: String,
    },
}

/// One response, without the four bytes of its length in front.
#[derive(Debug, Default)]
pub struct Reply {
    /// What to send, in order.
    pub pieces: Vec<Piece>,
}

impl Reply {
    /// Bytes to send, which the frame's length says. Saturates.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.pieces
            .iter()
            .map(Piece::length)
            .fold(0, u64::saturating_add)
    }

    /// Those of them that the protocol logic made: they are in memory until they are sent.
    #[must_use]
    pub fn made(&self) -> u64 {
        let made = self.pieces.iter();
        made.map(|piece| match piece {
            Piece::Bytes(bytes) => bytes.len() as u64,
            Piece::File { .. } => 0,
        })
        .fold(0, u64::saturating_add)
    }
}

/// A part of a response.
#[derive(Debug)]
pub enum Piece {
    /// Bytes that the protocol logic made.
    Bytes(Vec<u8>),
    /// Bytes in a file, which are sent to the socket without a copy if the system can do that.
    File {
        /// The file.
        file: Arc<dyn DiskFile>,
        /// Where they begin.
        position: u64,
        /// How many there are. A file that has become shorter ends the connection: nothing else is sent in their place.
        length: u64,
    },
}

impl Piece {
    /// Number of bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File { length, .. } => *length,
        }
    }
}

/// The other end of a connection.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Its address.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// Whether the connection is encrypted.
    pub is_encrypted: bool,
}

/// Values of a request that is not large: whoever calls [`Service::receive`] has room for what is made of them.
pub const SMALL_VALUES: usize = 4 << 10;

/// Bytes that a value of a request costs at most until the request is answered: decoded, and in an answer for each name in a list.
pub const VALUE_BYTES: u64 = 600;

/// The memory of what is made of one request.
pub trait Room {
    /// Waits until no other request is large, and returns how many values this one may have; `None` if that took too long, and the logic
    /// then ends the connection. It is called for a request of more than [`SMALL_VALUES`] values.
    fn for_large(&mut self) -> Option<usize>;
}

/// Room without a bound, for logic that no transport runs.
#[derive(Debug, Clone, Copy, Default)]
pub struct AnyRoom;

impl Room for AnyRoom {
    fn for_large(&mut self) -> Option<usize> {
        Some(usize::MAX)
    }
}

/// Protocol logic that a transport runs.
///
/// A connection has one request in work at a time, as in Kafka: after `receive` returns [`Step::Wait`] the transport calls `resume`, and
/// `receive` only when that returned something else.
pub trait Service: Send + Sync {
    /// What the logic knows of one connection.
    type Session: Send;

    /// A connection has been accepted.
    fn begin(&self, peer: Peer) -> Self::Session;

    /// A whole request has come: the bytes of its frame without their length.
    fn receive(
        &self,
        session: &mut Self::Session,
        frame: &[u8],
        now_ms: i64,
        room: &mut dyn Room,
    ) -> Step;

    /// Looks again whether the request that waits can be answered.
    fn resume(&self, session: &mut Self::Session, now_ms: i64) -> Step;

    /// The connection has ended, for whatever reason.
    fn end(&self, session: Self::Session, now_ms: i64);

    /// Does what is due by time alone, such as ending the sessions of members that are silent. Returns when it is to be called next, in
    /// milliseconds since 1970.
    fn tick(&self, now_ms: i64) -> i64;

    /// Changes when a waiting request may be answered.
    fn changes(&self) -> &Changes;
}

/// A count that changes when something happened that waiting requests want to see.
#[derive(Debug, Default)]
pub struct Changes {
    count: Mutex<u64>,
    moved: Condvar,
}

impl Changes {
    /// Advances the count: all that wait look again.
    pub fn announce(&self) {
        let mut count = self.lock();
        *count = count.wrapping_add(1);
        drop(count);
        self.moved.notify_all();
    }

    /// The count. Ask before looking, and pass it to [`wait`](Self::wait): nothing is missed in between.
    pub fn count(&self) -> u64 {
        *self.lock()
    }

    /// Waits until the count differs from `seen`, for `at_most` at the longest. Returns whether it does.
    pub fn wait(&self, seen: u64, at_most: Duration) -> bool {
        let waited = self
            .moved
            .wait_timeout_while(self.lock(), at_most, |count| *count == seen);
        let (count, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *count != seen
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
