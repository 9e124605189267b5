//! One connection from its first byte to its last: frames in, steps of the protocol logic, responses out.

use super::budget::{Budget, Part};
use super::channel::{Channel, Memory};
use super::clock::{Clock, NoPauses};
use super::ended::Ended;
use super::metrics::{Metrics, add};
use super::options::ServerLimits;
use super::turns::{Turn, Turns};
use crate::sasl::{Gate, Users, Verdict};
use crate::socket::write_parts;
use crate::step::{Peer, Piece, Reply, Service, Step};
use offsetlog::disk::DiskFile;
use std::any::Any;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Buffer for a request before any of it has arrived; it then doubles.
const FIRST_STEP: usize = 4 << 10;
/// How much room a connection keeps between its requests.
const KEPT_BYTES: usize = 8 << 10;
/// How much of a file is sent in one call: what one buffer of the network holds, some pages less. Linux sends the odd rest of a longer call by
/// itself and wakes the receiver for it: on loopback 8 MiB a call took three times as long.
const SEND_BYTES: usize = 48 << 10;
/// How much of a file is read at a time where it cannot be sent.
const COPY_BYTES: usize = 64 << 10;
/// Bytes of a request that may come before the client has said who it is.
const UNKNOWN_BYTES_MAX: u32 = 64 << 10;
/// How often a request that waits looks whether its client is still there.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long a client that failed to authenticate waits for the answer.
const AFTER_REFUSAL: Duration = Duration::from_millis(100);

/// What all connections of a server share.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) limits: ServerLimits,
    pub(crate) users: Option<Arc<Users>>,
    pub(crate) budget: Budget,
    pub(crate) turns: Turns,
    pub(crate) metrics: Metrics,
    pub(crate) is_stopping: AtomicBool,
}

impl Common {
    pub(crate) fn new(
        limits: ServerLimits,
        users: Option<Arc<Users>>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            budget: Budget::new(limits.requests_bytes_max, Arc::clone(&clock)),
            turns: Turns::new(limits.requests_bytes_max, Arc::clone(&clock)),
            clock,
            limits,
            users,
            metrics: Metrics::new(),
            is_stopping: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Panics under each of its locks.
    #[cfg(test)]
    pub(crate) fn poison(&self) {
        self.budget.poison();
        self.turns.poison();
    }
}

/// Talks with one client until the connection ends, and says why it did. `opened` is when it was accepted.
pub(crate) fn talk<S: Service>(
    service: &S,
    common: &Common,
    channel: &mut impl Channel,
    peer: Peer,
    opened: Instant,
) -> Ended {
    let gate = Gate::new(common.users.as_deref());
    let mut session = match caught(|| service.begin(peer)) {
        Ok(session) => session,
        Err(ended) => return ended,
    };
    let mut talk = Talk {
        service,
        common,
        channel,
        gate,
        frame: Vec::new(),
        handshake_until: Some(opened + common.limits.handshake_timeout),
    };
    // Also outside of the protocol logic: in SASL, or in a file that is sent.
    let mut ended = caught(|| talk.run(&mut session)).unwrap_or_else(|panic| panic);
    if common.is_stopping() && ended.is_ordinary() {
        ended = Ended::Stopped;
    }
    if let Err(panic) = caught(|| service.end(session, common.clock.wall_ms()))
        && !matches!(ended, Ended::Panic(_))
    {
        ended = panic;
    }
    ended
}

/// Answers all requests in `input` as one connection that has hung up behind them, and returns what went out: the whole connection without
/// a socket, for fuzzing and tests. With users it must say who it is first. A request that would have to wait is the last one.
///
/// # Panics
/// If the protocol logic does.
#[must_use]
pub fn answer_all<S: Service>(
    service: &S,
    limits: &ServerLimits,
    users: Option<Arc<Users>>,
    input: &[u8],
) -> Vec<u8> {
    let common = Common::new(limits.clone(), users, Arc::new(NoPauses));
    let mut memory = Memory {
        input,
        output: Vec::new(),
    };
    let peer = Peer {
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        port: 0,
        is_encrypted: false,
    };
    let ended = talk(service, &common, &mut memory, peer, common.clock.now());
    assert!(!matches!(ended, Ended::Panic(_)), "{ended}");
    memory.output
}

struct Talk<'a, S, C> {
    service: &'a S,
    common: &'a Common,
    channel: &'a mut C,
    gate: Gate<'a>,
    frame: Vec<u8>,
    /// Until when the connection must have become one that is of use.
    handshake_until: Option<Instant>,
}

impl<'a, S: Service, C: Channel> Talk<'a, S, C> {
    fn run(&mut self, session: &mut S::Session) -> Ended {
        loop {
            match self.one_request(session) {
                Ok(()) if self.common.is_stopping() => return Ended::Stopped,
                Ok(()) => {}
                Err(ended) => return ended,
            }
        }
    }

    /// Reads a request and answers it.
    fn one_request(&mut self, session: &mut S::Session) -> Result<(), Ended> {
        let common = self.common;
        let mut part = common.budget.part();
        self.receive(&mut part)?;
        common.metrics.request(&self.frame);
        let done = match self.gate.receive(&self.frame) {
            Verdict::Pass => self.serve(session, part),
            Verdict::Reply(reply) => {
                self.forget();
                drop(part);
                self.send(reply)
            }
            Verdict::Close { reply, reason } => {
                if let Some(reply) = reply {
                    // Guessing takes its time (Kafka's connection.failed.authentication.delay.ms).
                    common.clock.sleep(AFTER_REFUSAL);
                    self.send(reply)?;
                    self.channel.finish();
                }
                return Err(Ended::Authentication(reason));
            }
        };
        self.forget();
        done?;
        if self.gate.is_open() {
            self.handshake_until = None;
        }
        // A client that always has bytes on the way never waits, so no read ends for it.
        match self.handshake_until {
            Some(until) if common.clock.now() >= until => Err(Ended::HandshakeTime),
            _ => Ok(()),
        }
    }

    /// Reads one frame: its length, then as much as that says, into room that grows with what has come.
    fn receive(&mut self, part: &mut Part<'_>) -> Result<(), Ended> {
        let limits = &self.common.limits;
        let mut length = [0; 4];
        let (first, rest) = length.split_at_mut(1);
        let begins = self
            .handshake_until
            .unwrap_or_else(|| self.common.clock.now() + limits.idle_timeout);
        self.channel.set_deadline(begins);
        match self.channel.read(first) {
            Ok(0) => return Err(Ended::ByClient),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                return Err(match self.handshake_until {
                    Some(_) => Ended::HandshakeTime,
                    None => Ended::Idle,
                });
            }
            Err(error) => return Err(gone(error)),
        }
        let deadline = self.soon(self.common.clock.now() + limits.request_timeout);
        self.channel.set_deadline(deadline);
        let late = match self.handshake_until {
            Some(until) if until <= deadline => || Ended::HandshakeTime,
            _ => || Ended::SlowRequest,
        };
        let timed = |error: io::Error| match error.kind() {
            io::ErrorKind::TimedOut => late(),
            _ => Ended::Broken(error),
        };
        self.channel.read_exact(rest).map_err(timed)?;
        let length = i32::from_be_bytes(length);
        let bytes_max = if self.gate.is_open() {
            limits.request_bytes_max
        } else {
            limits.request_bytes_max.min(UNKNOWN_BYTES_MAX)
        };
        let size = u32::try_from(length)
            .ok()
            .filter(|&size| size <= bytes_max)
            .ok_or(Ended::Length { length, bytes_max })? as usize;
        self.frame.clear();
        while self.frame.len() < size {
            let has = self.frame.len();
            let target = size.min(has.max(FIRST_STEP).saturating_mul(2));
            // A small request needs no part of what others may have used up: each connection has room for one.
            let shared = target.saturating_sub(KEPT_BYTES);
            if !part.grow(shared as u64, deadline) {
                return Err(Ended::Memory);
            }
            self.frame.reserve_exact(target - has);
            self.frame.resize(target, 0);
            let new = self.frame.get_mut(has..).unwrap_or_default();
            self.channel.read_exact(new).map_err(timed)?;
        }
        Ok(())
    }

    /// The earlier of a deadline and the end of the handshake.
    fn soon(&self, deadline: Instant) -> Instant {
        self.handshake_until
            .map_or(deadline, |until| until.min(deadline))
    }

    /// A long request does not keep its room.
    fn forget(&mut self) {
        self.frame.clear();
        if self.frame.capacity() > KEPT_BYTES {
            self.frame = Vec::new();
        }
    }

    fn serve(&mut self, session: &mut S::Session, part: Part<'_>) -> Result<(), Ended> {
        let changes = self.service.changes();
        let clock = &*self.common.clock;
        let mut seen = changes.count();
        let mut turn = self.turn(self.frame.len() <= KEPT_BYTES)?;
        let mut step =
            caught(|| (self.service).receive(session, &self.frame, clock.wall_ms(), &mut turn))?;
        // The request has been read: others may have its memory.
        drop(part);
        self.forget();
        loop {
            let until_ms = match step {
                Step::Reply(reply) => {
                    let _unsent = turn.answered(reply.made());
                    return self.send(reply);
                }
                Step::Silent => return Ok(()),
                Step::Close { reply, reason } => {
                    drop(turn);
                    if let Some(reply) = reply {
                        self.send(reply)?;
                        self.channel.finish();
                    }
                    return Err(Ended::Service(reason));
                }
                Step::Wait { until_ms } => until_ms,
            };
            drop(turn);
            self.wait(seen, until_ms)?;
            seen = changes.count();
            turn = self.turn(true)?;
            step = caught(|| self.service.resume(session, clock.wall_ms()))?;
        }
    }

    /// Waits for the request's turn.
    fn turn(&self, is_small: bool) -> Result<Turn<'a>, Ended> {
        let common = self.common;
        let deadline = self.soon(common.clock.now() + common.limits.request_timeout);
        let turn = common
            .turns
            .begin(is_small, deadline, || common.is_stopping());
        let is_stopping = common.is_stopping();
        turn.ok_or(if is_stopping {
            Ended::Stopped
        } else {
            Ended::Memory
        })
    }

    /// Waits until something changed or the time has come. Ends the connection of a client that hung up meanwhile: it no longer waits, and
    /// a new client may need its place.
    fn wait(&mut self, seen: u64, until_ms: i64) -> Result<(), Ended> {
        let _counted = Counted::new(&self.common.metrics);
        loop {
            if self.common.is_stopping() {
                return Err(Ended::Stopped);
            }
            let left = until_ms.saturating_sub(self.common.clock.wall_ms());
            let Some(left) = u64::try_from(left).ok().filter(|&left| left > 0) else {
                return Ok(());
            };
            if self.channel.is_hung_up() {
                return Err(Ended::ByClient);
            }
            let slice = Duration::from_millis(left).min(LOOK_EVERY);
            // The stop announces a change too.
            if self.changes_within(seen, slice) && !self.common.is_stopping() {
                return Ok(());
            }
        }
    }

    fn changes_within(&self, seen: u64, slice: Duration) -> bool {
        let changes = self.service.changes();
        if let Some(clock) = self.common.clock.turned()
            && changes.count() == seen
        {
            clock.pass(slice);
            return changes.count() != seen;
        }
        changes.wait(seen, slice)
    }

    fn send(&mut self, reply: Reply) -> Result<(), Ended> {
        let limits = &self.common.limits;
        let length = reply.length();
        let framed = i32::try_from(length).map_err(|_| Ended::ResponseLength(length))?;
        let seconds = length / u64::from(limits.response_bytes_per_second.max(1));
        let time = limits.response_timeout + Duration::from_secs(seconds);
        let deadline = self.common.clock.now() + time;
        // Who has not said who it is gets no more time to take answers than to ask.
        self.channel.set_deadline(if self.gate.is_open() {
            deadline
        } else {
            self.soon(deadline)
        });
        let mut lead = &framed.to_be_bytes()[..];
        for piece in reply.pieces {
            match piece {
                Piece::Bytes(bytes) => {
                    write_parts(self.channel, [lead, &bytes]).map_err(not_taken)?;
                    lead = &[];
                }
                Piece::File {
                    file,
                    position,
                    length,
                } => {
                    write_parts(self.channel, [lead]).map_err(not_taken)?;
                    lead = &[];
                    self.send_file(&*file, position, length)?;
                }
            }
        }
        write_parts(self.channel, [lead])
            .and_then(|()| self.channel.flush())
            .map_err(not_taken)?;
        add(&self.common.metrics.bytes_sent, length.saturating_add(4));
        Ok(())
    }

    /// Sends a range of a file, without a copy if the system and the connection can do that.
    fn send_file(&mut self, file: &dyn DiskFile, position: u64, length: u64) -> Result<(), Ended> {
        let (mut position, mut left) = (position, length);
        while left > 0 {
            let step = left.min(SEND_BYTES as u64) as usize;
            let Some(socket) = self.channel.plain() else {
                return self.copy_file(file, position, left);
            };
            let sent = match file.send_to(std::os::fd::AsFd::as_fd(socket), position, step) {
                Ok(Some(0)) => return Err(Ended::File(shorter())),
                Ok(Some(sent)) => sent as u64,
                Ok(None) => return self.copy_file(file, position, left),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    socket.wait_for_room().map_err(not_taken)?;
                    continue;
                }
                Err(error) if is_of_socket(&error) => return Err(not_taken(error)),
                Err(error) => return Err(Ended::File(error)),
            };
            left = left.saturating_sub(sent);
            position = position.saturating_add(sent);
        }
        Ok(())
    }

    fn copy_file(&mut self, file: &dyn DiskFile, position: u64, length: u64) -> Result<(), Ended> {
        let (mut position, mut left) = (position, length);
        let mut buffer = vec![0; COPY_BYTES.min(usize::try_from(length).unwrap_or(COPY_BYTES))];
        while left > 0 {
            let step = left.min(buffer.len() as u64) as usize;
            let room = buffer.get_mut(..step).unwrap_or_default();
            let read = file.read_at(room, position).map_err(Ended::File)?;
            if read < step {
                return Err(Ended::File(shorter()));
            }
            self.channel.write_all(room).map_err(not_taken)?;
            left -= step as u64;
            position = position.saturating_add(step as u64);
        }
        Ok(())
    }
}

/// A request that waits, in the gauge.
struct Counted<'a>(&'a Metrics);

impl<'a> Counted<'a> {
    fn new(metrics: &'a Metrics) -> Self {
        add(&metrics.waiting, 1);
        Self(metrics)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Calls what may panic. That ends this connection and no other.
pub(super) fn caught<T>(call: impl FnOnce() -> T) -> Result<T, Ended> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| Ended::Panic(words_of(&*panic)))
}

pub(crate) fn words_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without words".to_owned())
}

fn gone(error: io::Error) -> Ended {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof => Ended::ByClient,
        _ => Ended::Broken(error),
    }
}

fn not_taken(error: io::Error) -> Ended {
    match error.kind() {
        io::ErrorKind::TimedOut => Ended::SlowClient,
        _ => Ended::Broken(error),
    }
}

/// Whether sending a file failed for the socket's sake.
fn is_of_socket(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::NotConnected
            | io::ErrorKind::TimedOut
            | io::ErrorKind::NetworkDown
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::HostUnreachable
    )
}

fn shorter() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "it has become shorter than what was to be sent",
    )
}
