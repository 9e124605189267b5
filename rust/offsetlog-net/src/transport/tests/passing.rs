//! One connection at a time, whose client takes as much as it likes: time passes for whoever waits, at once.

use super::super::channel::Channel;
use super::super::clock::{Clock, Turned};
use super::super::connection::{Common, talk};
use super::super::ended::Ended;
use super::super::options::ServerLimits;
use super::echo::frame;
use super::world::BEGIN_MS;
use crate::sasl::Users;
use crate::server::Broker;
use crate::socket::Socket;
use crate::step::Peer;
use offsetlog::format::cursor::Reader;
use offsetlog::format::error::Part;
use offsetlog::format::message::Struct;
use offsetlog::format::protocol::{Api, RequestHeader, ResponseHeader};
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Time that passes for whoever waits, at once.
#[derive(Debug)]
pub(super) struct Passing {
    begin: Instant,
    since: Mutex<Duration>,
}

impl Passing {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            begin: Instant::now(),
            since: Mutex::default(),
        })
    }

    /// Time since it began.
    pub(super) fn since(&self) -> Duration {
        *self.since.lock().unwrap()
    }
}

impl Clock for Passing {
    fn now(&self) -> Instant {
        self.begin + self.since()
    }

    fn wall_ms(&self) -> i64 {
        BEGIN_MS + i64::try_from(self.since().as_millis()).unwrap()
    }

    fn sleep(&self, time: Duration) {
        *self.since.lock().unwrap() += time;
    }

    fn turned(&self) -> Option<&dyn Turned> {
        Some(self)
    }
}

impl Turned for Passing {
    fn pass(&self, at_most: Duration) {
        self.sleep(at_most);
    }
}

/// What becomes of a client that has taken its last byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// Its end of the connection is closed.
    Gone,
    /// It reads no more, and stays.
    Silent,
}

/// A client that has sent all that it sends, and takes a part of what comes.
struct Taking<'a> {
    input: &'a [u8],
    output: Vec<u8>,
    bytes_max: usize,
    then: Then,
    clock: &'a Passing,
    deadline: Instant,
}

impl Read for Taking<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.input.read(buffer)
    }
}

impl Write for Taking<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.bytes_max - self.output.len());
        self.output.extend_from_slice(&bytes[..count]);
        match self.then {
            _ if count > 0 || bytes.is_empty() => Ok(count),
            Then::Gone => Err(io::ErrorKind::BrokenPipe.into()),
            Then::Silent => {
                let left = self.deadline.saturating_duration_since(self.clock.now());
                self.clock.sleep(left);
                Err(io::ErrorKind::TimedOut.into())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Channel for Taking<'_> {
    fn set_deadline(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }

    fn plain(&self) -> Option<&Socket> {
        None
    }

    fn is_hung_up(&self) -> bool {
        false
    }

    fn finish(&mut self) {}
}

/// A server of one connection at a time.
pub(super) struct Server {
    pub(super) broker: Broker,
    pub(super) common: Common,
    pub(super) clock: Arc<Passing>,
}

impl Server {
    pub(super) fn new(broker: Broker) -> Self {
        Self::with_users(broker, None)
    }

    pub(super) fn with_users(broker: Broker, users: Option<Users>) -> Self {
        let clock = Passing::new();
        let its = Arc::<Passing>::clone(&clock);
        Self {
            broker,
            common: Common::new(ServerLimits::default(), users.map(Arc::new), its),
            clock,
        }
    }

    /// What a client gets that takes so many bytes, and why its connection ended.
    pub(super) fn answer(&self, input: &[u8], bytes_max: usize, then: Then) -> (Vec<u8>, Ended) {
        let mut client = Taking {
            input,
            output: Vec::new(),
            bytes_max,
            then,
            clock: &self.clock,
            deadline: self.clock.now(),
        };
        let peer = Peer {
            address: "127.0.0.1".parse().unwrap(),
            port: 1,
            is_encrypted: false,
        };
        let now = self.clock.now();
        let ended = talk(&self.broker, &self.common, &mut client, peer, now);
        // All of it is given back.
        let free = self.common.limits.requests_bytes_max;
        assert_eq!(self.common.budget.free(), free);
        assert_eq!(self.common.turns.busy(), (0, false, 0));
        (client.output, ended)
    }

    /// The answer to one request; else why there is none.
    pub(super) fn ask(
        &self,
        api: &Api,
        version: i16,
        body: &Struct<'_>,
    ) -> Result<Struct<'static>, Ended> {
        let (bytes, ended) = self.answer(&request(api, version, body), usize::MAX, Then::Gone);
        if bytes.is_empty() {
            return Err(ended);
        }
        let mut reader = Reader::new(&bytes[4..], Part::Protocol);
        ResponseHeader::read(api, version, &mut reader).unwrap();
        let response = api.response.read(version, &mut reader).unwrap();
        assert_eq!(reader.remaining(), 0, "{}", api.name);
        Ok(response.into_owned())
    }
}

/// A request as it goes over the wire.
pub(super) fn request(api: &Api, version: i16, body: &Struct<'_>) -> Vec<u8> {
    let header = RequestHeader {
        api_key: api.key,
        api_version: version,
        correlation_id: 7,
        client_id: Some(b"test"),
    };
    let mut bytes = Vec::new();
    header.write(&mut bytes).unwrap();
    let written = api.request.write(version, body, &mut bytes);
    written.unwrap_or_else(|error| panic!("{} {version}: {error}", api.name));
    frame(&bytes)
}
