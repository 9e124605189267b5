//! Listeners, the threads of connections, and their end.

use super::clock::SystemClock;
use super::connection::{Common, caught, talk, words_of};
use super::ended::{Ended, KINDS};
use super::http;
use super::log::{Event, EventLevel, EventLog};
use super::metrics::add;
use super::options::{MoreMetrics, ServerError, ServerOptions};
use crate::socket::Socket;
use crate::step::{Peer, Service};
use offsetlog::disk::wall_clock;
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Stack of a connection's thread. Only what is used of it becomes memory.
const STACK_BYTES: usize = 512 << 10;
/// How long to leave the system alone after it could not hand over a connection, such as when all descriptors are in use.
const AFTER_ACCEPT_ERROR: Duration = Duration::from_millis(50);
/// How much waits in the socket for a client on this machine; Linux doubles it. Its own choice grows to megabytes, and on loopback the sender
/// then often does the receiver's work, too: a third of the speed for three times the CPU. To other machines the system's choice is the best.
const LOCAL_SEND_BUFFER: usize = 200 << 10;
/// How often time alone is looked at, at most and at least.
const TICK_EVERY: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));

/// A server that runs. Dropping it stops it, within a second.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    metrics_address: Option<SocketAddr>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Closing them wakes the listeners.
    wakers: Mutex<Vec<UnixStream>>,
}

struct Shared {
    common: Common,
    #[cfg(feature = "tls")]
    tls: Option<crate::tls::TlsServer>,
    log: Option<EventLog>,
    more_metrics: Option<MoreMetrics>,
    /// Ends the waits of the protocol logic.
    wake_waiting: Box<dyn Fn() + Send + Sync>,
    open: Mutex<Open>,
    closed: Condvar,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// The connections that are open, by the number of their coming.
#[derive(Debug, Default)]
struct Open {
    count: usize,
    next: u64,
    streams: HashMap<u64, Arc<TcpStream>>,
}

impl Server {
    /// Checks, binds all addresses, and serves them until [`stop`](Self::stop). Connections are taken once this returns.
    ///
    /// # Errors
    /// `Exposed` before anything is bound; `NoAddress`, `Bind`, `Thread`.
    pub fn start<S: Service + 'static>(
        service: Arc<S>,
        options: ServerOptions,
    ) -> Result<Self, ServerError> {
        Self::bind(options)?.serve(service)
    }

    /// Checks and binds all addresses, without taking a connection: the ports that the system chose are known then, for what the protocol
    /// logic tells its clients.
    ///
    /// # Errors
    /// `Exposed` before anything is bound; `NoAddress`, `Bind`.
    pub fn bind(options: ServerOptions) -> Result<Bound, ServerError> {
        options.check()?;
        if options.listen.is_empty() {
            return Err(ServerError::NoAddress);
        }
        let bound = options.listen.iter().map(|&address| listen(address));
        Ok(Bound {
            listeners: bound.collect::<Result<_, _>>()?,
            metrics: options.metrics.map(listen).transpose()?,
            options,
        })
    }

    /// The addresses it listens at, with the ports that the system chose.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where it answers Prometheus.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// What it has counted, as Prometheus's text.
    pub fn metrics(&self) -> String {
        self.shared.metrics()
    }

    /// Number of connections that are open.
    pub fn connections(&self) -> usize {
        self.shared.lock().count
    }

    /// Takes no more connections, ends those that are idle or wait, lets responses that are being sent go out, and cuts what is left
    /// after `within`. Returns whether nothing had to be cut. Does nothing the second time.
    pub fn stop(&self, within: Duration) -> bool {
        let shared = &self.shared;
        let deadline = Instant::now() + within;
        shared.common.is_stopping.store(true, Ordering::Relaxed);
        // Not by closing them: a forked child has copies, which would keep the other end from noticing.
        for waker in lock(&self.wakers).drain(..) {
            let _ = waker.shutdown(Shutdown::Both);
        }
        shared.closed.notify_all();
        (shared.wake_waiting)();
        // Reading ends at once, so that an idle connection wakes; writing continues.
        shared.shut(Shutdown::Read);
        let is_clean = shared.wait_until_closed(deadline);
        if !is_clean {
            shared.shut(Shutdown::Both);
            // Threads leave as soon as they touch their socket; one may be inside a long read of the disk.
            shared.wait_until_closed(Instant::now() + Duration::from_secs(1));
        }
        for thread in lock(&self.threads).drain(..) {
            let _ = thread.join();
        }
        is_clean
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop(Duration::from_secs(1));
    }
}

/// A server whose addresses are bound, and that takes no connections yet.
#[derive(Debug)]
pub struct Bound {
    options: ServerOptions,
    listeners: Vec<(TcpListener, SocketAddr)>,
    metrics: Option<(TcpListener, SocketAddr)>,
}

impl Bound {
    /// The addresses, with the ports that the system chose.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().map(|(_, address)| *address).collect()
    }

    /// Serves until [`Server::stop`].
    ///
    /// # Errors
    /// `Thread`.
    pub fn serve<S: Service + 'static>(self, service: Arc<S>) -> Result<Server, ServerError> {
        let options = self.options;
        let waiting = Arc::clone(&service);
        let shared = Arc::new(Shared {
            common: Common::new(options.limits, options.users, Arc::new(SystemClock)),
            #[cfg(feature = "tls")]
            tls: options.tls,
            log: options.log,
            more_metrics: options.more_metrics,
            wake_waiting: Box::new(move || waiting.changes().announce()),
            open: Mutex::default(),
            closed: Condvar::new(),
        });
        let server = Server {
            shared: Arc::clone(&shared),
            addresses: self.listeners.iter().map(|(_, address)| *address).collect(),
            metrics_address: self.metrics.as_ref().map(|(_, address)| *address),
            threads: Mutex::default(),
            wakers: Mutex::default(),
        };
        for (listener, _) in self.listeners {
            let (shared, service) = (Arc::clone(&shared), Arc::clone(&service));
            server.listening("kafka-accept", listener, true, move |stream, peer| {
                shared.admit(&service, stream, peer);
            })?;
        }
        if let Some((listener, _)) = self.metrics {
            let shared = Arc::clone(&shared);
            server.listening("kafka-metrics", listener, false, move |stream, _| {
                // A panic ends this answer and not the thread.
                let _ = catch_unwind(AssertUnwindSafe(|| {
                    http::answer(stream, || shared.metrics())
                }));
            })?;
        }
        server.thread("kafka-tick", move || tick(&*service, &shared))?;
        Ok(server)
    }
}

impl Server {
    fn thread(&self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), ServerError> {
        let builder = thread::Builder::new()
            .name(name.to_owned())
            .stack_size(STACK_BYTES);
        let thread = builder.spawn(run).map_err(ServerError::Thread)?;
        lock(&self.threads).push(thread);
        Ok(())
    }

    /// Hands over each connection of a listener, one after the other, until the server stops; if they are limited, while there are few
    /// enough.
    fn listening(
        &self,
        name: &str,
        listener: TcpListener,
        is_limited: bool,
        mut each: impl FnMut(TcpStream, SocketAddr) + Send + 'static,
    ) -> Result<(), ServerError> {
        let (waker, woken) = UnixStream::pair().map_err(ServerError::Thread)?;
        lock(&self.wakers).push(waker);
        let shared = Arc::clone(&self.shared);
        self.thread(name, move || {
            while !is_limited || shared.wait_for_place() {
                let mut waited = [
                    PollFd::new(&listener, PollFlags::IN),
                    PollFd::new(&woken, PollFlags::IN),
                ];
                let _ = poll(&mut waited, None);
                if shared.common.is_stopping() {
                    break;
                }
                match listener.accept() {
                    Ok((stream, peer)) => each(stream, peer),
                    Err(error) if is_passing(&error) => {}
                    Err(error) => {
                        add(&shared.common.metrics.accept_errors, 1);
                        shared.tell(
                            EventLevel::Error,
                            "accept",
                            None,
                            format!("cannot take a connection: {error}"),
                        );
                        thread::sleep(AFTER_ACCEPT_ERROR);
                    }
                }
            }
            // Also shuts down a forked child's copy: nobody would answer the connections that it accepts.
            let _ = rustix::net::shutdown(&listener, rustix::net::Shutdown::Both);
        })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Open> {
        lock(&self.open)
    }

    fn metrics(&self) -> String {
        let mut text = self.common.metrics.text();
        if let Some(more) = &self.more_metrics {
            more(&mut text);
        }
        text
    }

    /// Waits while there are as many connections as may be. Returns whether the server still runs.
    fn wait_for_place(&self) -> bool {
        drop(self.with_place());
        !self.common.is_stopping()
    }

    /// The connections, with a place for one more; without one only when the server stops.
    fn with_place(&self) -> MutexGuard<'_, Open> {
        let mut open = self.lock();
        while open.count >= self.common.limits.connections_max.max(1) && !self.common.is_stopping()
        {
            let waited = self.closed.wait_timeout(open, Duration::from_secs(1));
            (open, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        open
    }

    /// Waits until no connection is open. Returns whether none is.
    fn wait_until_closed(&self, deadline: Instant) -> bool {
        let mut open = self.lock();
        while open.count > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.closed.wait_timeout(open, left);
            (open, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        true
    }

    fn shut(&self, how: Shutdown) {
        for stream in self.lock().streams.values() {
            let _ = stream.shutdown(how);
        }
    }

    fn tell(&self, level: EventLevel, kind: &str, peer: Option<SocketAddr>, text: String) {
        if let Some(log) = &self.log {
            let event = Event {
                level,
                kind,
                peer,
                text,
            };
            let _ = catch_unwind(AssertUnwindSafe(|| log(&event)));
        }
    }

    /// Gives a connection its thread.
    fn admit<S: Service + 'static>(
        self: &Arc<Self>,
        service: &Arc<S>,
        stream: TcpStream,
        peer: SocketAddr,
    ) {
        let metrics = &self.common.metrics;
        add(&metrics.accepted, 1);
        let place = Place::new(Arc::clone(self), Arc::new(stream));
        if self.common.is_stopping() {
            // It came between the stop and its look at all connections.
            let _ = place.stream.shutdown(Shutdown::Read);
        }
        let (shared, service) = (Arc::clone(self), Arc::clone(service));
        let spawned = thread::Builder::new()
            .name(format!("kafka-{}", place.number))
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let ended = caught(|| shared.converse(&*service, &place.stream, peer))
                    .unwrap_or_else(|panic| panic);
                shared.common.metrics.ended(&ended);
                if !ended.is_ordinary() {
                    let level = if ended.is_error() {
                        EventLevel::Error
                    } else {
                        EventLevel::Warning
                    };
                    let kind = KINDS.get(ended.kind()).copied().unwrap_or_default();
                    shared.tell(level, kind, Some(peer), ended.to_string());
                }
            });
        if let Err(error) = spawned {
            add(&metrics.accept_errors, 1);
            let text = format!("no thread for a connection: {error}");
            self.tell(EventLevel::Error, "accept", Some(peer), text);
        }
    }

    fn converse<S: Service>(
        &self,
        service: &S,
        stream: &Arc<TcpStream>,
        peer: SocketAddr,
    ) -> Ended {
        let opened = Instant::now();
        let handshake_until = opened + self.common.limits.handshake_timeout;
        let mut socket = match Socket::new(Arc::clone(stream), handshake_until) {
            Ok(socket) => socket,
            Err(error) => return Ended::Broken(error),
        };
        if is_of_this_machine(stream, peer) {
            // If the system refuses, all is sent, too.
            let _ = rustix::net::sockopt::set_socket_send_buffer_size(stream, LOCAL_SEND_BUFFER);
        }
        let of = |is_encrypted| Peer {
            address: peer.ip().to_canonical(),
            port: peer.port(),
            is_encrypted,
        };
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return match tls.accept(socket) {
                Ok(mut channel) => talk(service, &self.common, &mut channel, of(true), opened),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => Ended::HandshakeTime,
                Err(error) => Ended::Tls(error.to_string()),
            };
        }
        talk(service, &self.common, &mut socket, of(false), opened)
    }
}

/// A connection's place among those that are open, and its only hold on the socket but for the talk itself.
struct Place {
    shared: Arc<Shared>,
    stream: Arc<TcpStream>,
    number: u64,
}

impl Place {
    /// Waits for it: another listener may have given away what this one saw.
    fn new(shared: Arc<Shared>, stream: Arc<TcpStream>) -> Self {
        let mut open = shared.with_place();
        let number = open.next;
        open.next += 1;
        open.count += 1;
        open.streams.insert(number, Arc::clone(&stream));
        drop(open);
        add(&shared.common.metrics.open, 1);
        Self {
            shared,
            stream,
            number,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.shared.lock();
        open.streams.remove(&self.number);
        // The other holds are gone: this closes it, before its place is free.
        let _ = self.stream.shutdown(Shutdown::Both);
        open.count -= 1;
        drop(open);
        self.shared
            .common
            .metrics
            .open
            .fetch_sub(1, Ordering::Relaxed);
        self.shared.closed.notify_all();
    }
}

/// Lets the protocol logic do what is due by time alone.
fn tick<S: Service>(service: &S, shared: &Shared) {
    let (shortest, longest) = TICK_EVERY;
    while !shared.common.is_stopping() {
        let changes = service.changes();
        let seen = changes.count();
        let ticked = catch_unwind(AssertUnwindSafe(|| service.tick(wall_clock())));
        let wait = match ticked {
            Ok(next_ms) => {
                let left = u64::try_from(next_ms.saturating_sub(wall_clock())).unwrap_or(0);
                Duration::from_millis(left).clamp(shortest, longest)
            }
            Err(panic) => {
                let text = format!("a bug of offsetlog: {}", words_of(&*panic));
                shared.tell(EventLevel::Error, "panic", None, text);
                longest
            }
        };
        thread::sleep(shortest);
        changes.wait(seen, wait.saturating_sub(shortest));
    }
}

fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), ServerError> {
    let bound = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    });
    bound.map_err(|source| ServerError::Bind { address, source })
}

fn is_of_this_machine(stream: &TcpStream, peer: SocketAddr) -> bool {
    peer.ip().to_canonical().is_loopback()
        || stream
            .local_addr()
            .is_ok_and(|local| local.ip() == peer.ip())
}

/// Whether a connection went away before it was taken.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock
            | io::ErrorKind::Interrupted
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
