//! A server and its clients in a world, and the wires between them.

use super::super::channel::Channel;
use super::super::clock::Clock as _;
use super::super::connection::{Common, talk};
use super::super::ended::Ended;
use super::super::options::ServerLimits;
use super::world::{FOR_EVER, World};
use crate::sasl::Users;
use crate::socket::Socket;
use crate::step::{Peer, Service};
use offsetlog::format::cursor::Reader;
use offsetlog::format::error::Part;
use offsetlog::format::message::Struct;
use offsetlog::format::protocol::{Api, RequestHeader, ResponseHeader};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Both directions of a connection.
#[derive(Debug)]
struct Wire {
    /// Sent by the client, and not read by the server.
    requests: VecDeque<u8>,
    /// All that the server has sent.
    answers: Vec<u8>,
    /// How many bytes of that the client has read.
    taken: usize,
    /// Bytes that are under way at most: then the server waits for the client to read.
    room: usize,
    /// The client sends no more.
    is_closed: bool,
    /// The client is gone.
    is_broken: bool,
    /// Why and when the server ended it.
    ended: Option<(Ended, Duration)>,
}

type Shared = Arc<Mutex<Wire>>;

fn lock(wire: &Shared) -> MutexGuard<'_, Wire> {
    wire.lock().unwrap()
}

/// A server without sockets.
pub(super) struct Simulated<S> {
    pub(super) world: Arc<World>,
    pub(super) service: Arc<S>,
    pub(super) common: Arc<Common>,
}

impl<S> Clone for Simulated<S> {
    fn clone(&self) -> Self {
        Self {
            world: Arc::clone(&self.world),
            service: Arc::clone(&self.service),
            common: Arc::clone(&self.common),
        }
    }
}

impl<S: Service + 'static> Simulated<S> {
    pub(super) fn new(
        seed: u64,
        service: Arc<S>,
        limits: ServerLimits,
        users: Option<Users>,
    ) -> Self {
        let world = World::new(seed);
        let clock = Arc::clone(&world);
        Self {
            common: Arc::new(Common::new(limits, users.map(Arc::new), clock)),
            world,
            service,
        }
    }

    /// A new connection.
    pub(super) fn connect(&self) -> Client {
        let number = self.world.random(usize::MAX);
        let wire = Arc::new(Mutex::new(Wire {
            requests: VecDeque::new(),
            answers: Vec::new(),
            taken: 0,
            room: 64 << 10,
            is_closed: false,
            is_broken: false,
            ended: None,
        }));
        let (server, end) = (self.clone(), Arc::clone(&wire));
        let opened = self.world.now();
        self.world.begin(move || {
            let mut channel = End {
                wire: Arc::clone(&end),
                number,
                world: Arc::clone(&server.world),
                deadline: opened,
            };
            let peer = Peer {
                address: "127.0.0.1".parse().unwrap(),
                port: 4711,
                is_encrypted: false,
            };
            let ended = talk(&*server.service, &server.common, &mut channel, peer, opened);
            lock(&end).ended = Some((ended, server.world.time()));
            server.world.touch(number);
        });
        Client {
            wire,
            number,
            world: Arc::clone(&self.world),
        }
    }

    /// A client that does this.
    pub(super) fn client(&self, run: impl FnOnce(&Self) + Send + 'static) {
        let server = self.clone();
        self.world.begin(move || run(&server));
    }

    /// Runs all clients to their end, and ticks.
    pub(super) fn run(&self) {
        let service = Arc::clone(&self.service);
        self.world.run(Box::new(move |now_ms| {
            let before = service.changes().count();
            let next_ms = service.tick(now_ms);
            (next_ms, service.changes().count() != before)
        }));
        // Nothing is left of any request.
        let free = self.common.limits.requests_bytes_max;
        assert_eq!(self.common.budget.free(), free);
        assert_eq!(self.common.turns.busy(), (0, false, 0));
    }
}

/// The server's end.
struct End {
    wire: Shared,
    number: usize,
    world: Arc<World>,
    deadline: Instant,
}

impl End {
    /// Tries until it is done or the deadline has passed.
    fn until_done<T>(
        &self,
        mut attempt: impl FnMut(&mut Wire) -> Option<io::Result<T>>,
    ) -> io::Result<T> {
        self.world.step();
        loop {
            let attempted = attempt(&mut lock(&self.wire));
            if let Some(done) = attempted {
                self.world.touch(self.number);
                return done;
            }
            let left = self.deadline.saturating_duration_since(self.world.now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.world.wait_on(self.number, left);
        }
    }
}

impl Read for End {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let world = &self.world;
        self.until_done(|wire| {
            if wire.is_broken {
                return Some(Err(io::ErrorKind::ConnectionReset.into()));
            }
            let count = wire.requests.len().min(buffer.len());
            if count > 0 {
                // As much as has come, or a part.
                let count = match world.random(4) {
                    0 => 1 + world.random(count),
                    _ => count,
                };
                return Some(wire.requests.read(&mut buffer[..count]));
            }
            wire.is_closed.then_some(Ok(0))
        })
    }
}

impl Write for End {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.until_done(|wire| {
            if wire.is_broken {
                return Some(Err(io::ErrorKind::BrokenPipe.into()));
            }
            let under_way = wire.answers.len() - wire.taken;
            let count = wire.room.saturating_sub(under_way).min(bytes.len());
            wire.answers.extend_from_slice(&bytes[..count]);
            (count > 0).then_some(Ok(count))
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Channel for End {
    fn set_deadline(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }

    fn plain(&self) -> Option<&Socket> {
        None
    }

    fn is_hung_up(&self) -> bool {
        let wire = lock(&self.wire);
        wire.is_closed || wire.is_broken
    }

    fn finish(&mut self) {
        lock(&self.wire).requests.clear();
    }
}

/// The client's end. Dropping it breaks the connection.
pub(super) struct Client {
    wire: Shared,
    number: usize,
    world: Arc<World>,
}

impl Client {
    pub(super) fn send(&self, bytes: &[u8]) {
        self.world.step();
        lock(&self.wire).requests.extend(bytes);
        self.world.touch(self.number);
    }

    /// The next whole frame without its length; `None` if the server ended the connection instead.
    pub(super) fn receive(&self) -> Option<Vec<u8>> {
        let length = self.take(4)?;
        let length = u32::from_be_bytes(length.try_into().unwrap());
        self.take(length as usize)
    }

    /// So many bytes; `None` if the server ended the connection before.
    pub(super) fn take(&self, count: usize) -> Option<Vec<u8>> {
        self.take_within(count, FOR_EVER)
    }

    /// The same; `None` also if they have not come within this time. What has is taken.
    pub(super) fn take_within(&self, count: usize, at_most: Duration) -> Option<Vec<u8>> {
        let until = self.world.time() + at_most;
        let mut taken = Vec::new();
        self.world.step();
        loop {
            let mut wire = lock(&self.wire);
            let from = wire.taken;
            let to = wire.answers.len().min(from + count - taken.len());
            taken.extend_from_slice(&wire.answers[from..to]);
            wire.taken = to;
            let is_ended = wire.ended.is_some();
            drop(wire);
            if from < to {
                self.world.touch(self.number);
            }
            if taken.len() == count {
                return Some(taken);
            }
            let left = until.saturating_sub(self.world.time());
            if is_ended || left.is_zero() {
                return None;
            }
            self.world.wait_on(self.number, left);
        }
    }

    pub(super) fn ask(&self, frame: &[u8]) -> Option<Vec<u8>> {
        self.send(&super::echo::frame(frame));
        self.receive()
    }

    /// Sends no more.
    pub(super) fn close(&self) {
        lock(&self.wire).is_closed = true;
        self.world.touch(self.number);
    }

    /// From now on so many bytes may be under way.
    pub(super) fn set_room(&self, bytes: usize) {
        lock(&self.wire).room = bytes;
        self.world.touch(self.number);
    }

    /// Waits for the end of the connection: why the server ended it, and when since the world began.
    pub(super) fn ended(&self) -> (&'static str, Duration) {
        loop {
            if let Some((ended, when)) = &lock(&self.wire).ended {
                return (super::super::ended::KINDS[ended.kind()], *when);
            }
            self.world.wait_on(self.number, FOR_EVER);
        }
    }

    /// All that came for it, read or not.
    pub(super) fn came(&self) -> Vec<u8> {
        lock(&self.wire).answers.clone()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let mut wire = lock(&self.wire);
        wire.is_broken = true;
        wire.requests.clear();
        drop(wire);
        self.world.touch(self.number);
    }
}

/// A client that speaks Kafka's protocol.
pub(super) struct Kafka {
    pub(super) client: Client,
    client_id: String,
    correlation_id: i32,
}

impl Kafka {
    pub(super) fn new(client: Client, client_id: &str) -> Self {
        Self {
            client,
            client_id: client_id.to_owned(),
            correlation_id: 0,
        }
    }

    /// The next request, without its length.
    pub(super) fn frame(&mut self, api: &Api, version: i16, request: &Struct<'_>) -> Vec<u8> {
        self.correlation_id += 1;
        let header = RequestHeader {
            api_key: api.key,
            api_version: version,
            correlation_id: self.correlation_id,
            client_id: Some(self.client_id.as_bytes()),
        };
        let mut frame = Vec::new();
        header.write(&mut frame).unwrap();
        api.request.write(version, request, &mut frame).unwrap();
        frame
    }

    pub(super) fn send(&mut self, api: &Api, version: i16, request: &Struct<'_>) {
        let frame = self.frame(api, version, request);
        self.client.send(&super::echo::frame(&frame));
    }

    /// The answer to the last request, which must be one to it; `None` if the server ended the connection.
    pub(super) fn receive(&mut self, api: &Api, version: i16) -> Option<Struct<'static>> {
        let bytes = self.client.receive()?;
        let mut reader = Reader::new(&bytes, Part::Protocol);
        let header = ResponseHeader::read(api, version, &mut reader).unwrap();
        assert_eq!(header.correlation_id, self.correlation_id);
        let response = api.response.read(version, &mut reader).unwrap();
        assert_eq!(reader.remaining(), 0, "{}", api.name);
        Some(response.into_owned())
    }

    pub(super) fn call(
        &mut self,
        api: &Api,
        version: i16,
        request: &Struct<'_>,
    ) -> Option<Struct<'static>> {
        self.send(api, version, request);
        self.receive(api, version)
    }
}
