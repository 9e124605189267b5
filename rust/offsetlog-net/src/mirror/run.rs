//! Runs a mirror: a thread and a connection for each broker, one for what any broker answers, and the caller's thread for the disk.

use super::core::{Core, Next, Node, Versions};
use super::error::MirrorError;
use super::options::MirrorOptions;
use super::perform::{lock, perform};
use super::report::{MirrorEvent, MirrorProgress, MirrorReport};
use super::store::Store;
use super::work::Work;
use crate::client::{ClientError, ClientOptions, Connection};
use offsetlog::format::cursor::Reader;
use offsetlog::format::error::Part;
use offsetlog::format::message::{Struct, Value};
use offsetlog::format::protocol::ResponseHeader;
use offsetlog::format::protocol::apis::API_VERSIONS;
use offsetlog::{Interrupt, OpenOptions};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Responses that wait for the disk, of all brokers together.
const WAITING_MAX: usize = 1;
/// How often the caller's thread looks at the time.
const TICK: Duration = Duration::from_millis(50);
/// How long connections may take to end.
const ENDING: Duration = Duration::from_secs(2);
/// Milliseconds between two reports of progress.
const PROGRESS_MS: i64 = 200;
/// Milliseconds between two looks whether the log of committed offsets is to be compacted.
const COMPACT_MS: i64 = 600_000;
/// Milliseconds over which the rate is measured.
const RATE_MS: i64 = 2000;

/// Where a mirror copies from.
#[derive(Debug, Clone, Default)]
pub struct Source {
    /// Brokers to begin with, host and port.
    pub bootstrap: Vec<(String, u16)>,
    /// How they are connected.
    pub client: ClientOptions,
}

/// A callback for progress or events.
pub type Told<'a, T> = Box<dyn FnMut(&T) + 'a>;

/// Callbacks: what a mirror does, and whether to end it.
#[derive(Default)]
pub struct Watch<'a> {
    /// Called several times a second.
    pub progress: Option<Told<'a, MirrorProgress>>,
    /// Called for each event.
    pub event: Option<Told<'a, MirrorEvent>>,
    /// Asked many times a second; `true` ends the mirror: what has been copied is made durable, and the directory closed.
    pub interrupt: Option<Interrupt>,
}

impl std::fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

/// A response with the work that it makes.
struct Arrived {
    works: Vec<Work>,
    bytes: Vec<u8>,
    /// Returns the buffer for reuse.
    back: Sender<Vec<u8>>,
}

/// What all threads share.
struct Shared {
    core: Mutex<Core>,
    moved: Condvar,
    source: Source,
    /// Waits are measured by a clock that nobody sets; it begins at the time of day.
    began: (Instant, i64),
}

impl Shared {
    fn now(&self) -> i64 {
        let (began, at) = self.began;
        at.saturating_add(i64::try_from(began.elapsed().as_millis()).unwrap_or(i64::MAX))
    }

    /// Waits until this time, or until something changes.
    fn wait(&self, until: i64) {
        let core = lock(&self.core);
        let span = until.saturating_sub(self.now()).clamp(1, 1000);
        let span = Duration::from_millis(span.unsigned_abs());
        let waited = self.moved.wait_timeout(core, span);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

/// Copies topics of a live cluster into a directory, batch for batch.
///
/// With `once` returns when every partition reached the high watermark that it had when it was first fetched; otherwise when it is
/// interrupted. Everything is durable then, and the directory closed.
///
/// # Errors
/// `WrongCluster` if the directory mirrors another cluster; `Disk` if the disk fails, if another process has the directory, or if it is not
/// a mirror's. Trouble with brokers is not an error: the mirror retries, and the report has it.
pub fn mirror(
    source: &Source,
    into: &Path,
    options: &MirrorOptions,
    mut watch: Watch<'_>,
) -> Result<MirrorReport, MirrorError> {
    let is_closing = Arc::new(AtomicBool::new(false));
    let mut open = OpenOptions::default();
    if let Some(interrupt) = watch.interrupt.clone() {
        let is_closing = Arc::clone(&is_closing);
        // Closing is not interrupted.
        open.interrupt = Some(Arc::new(move || {
            !is_closing.load(Ordering::SeqCst) && interrupt()
        }));
    }
    let mut options = options.clone();
    options.groups &= !Store::copies_offsets_topic(&options);
    let mut store = Store::open(into, &options, &open)?;
    let now = (open.clock)();
    let shared = Arc::new(Shared {
        core: Mutex::new(Core::new(options.clone(), now)),
        moved: Condvar::new(),
        source: source.clone(),
        began: (Instant::now(), now),
    });
    let ran = run(&shared, &mut store, &options, &mut watch, &is_closing);
    is_closing.store(true, Ordering::SeqCst);
    let closed = store.close();
    tell(&shared, &mut watch);
    let report = ran?;
    closed?;
    Ok(report)
}

fn run(
    shared: &Arc<Shared>,
    store: &mut Store,
    options: &MirrorOptions,
    watch: &mut Watch<'_>,
    is_closing: &AtomicBool,
) -> Result<MirrorReport, MirrorError> {
    let (sender, receiver) = sync_channel(WAITING_MAX);
    let mut threads = Threads {
        shared: Arc::clone(shared),
        sender,
        running: Vec::new(),
        started: BTreeSet::new(),
    };
    let mut pace = Pace::new(shared.now());
    // What an earlier run has deleted.
    store.remove_deleted()?;
    let worked = loop {
        if let Err(error) = threads.start_missing() {
            break Err(error);
        }
        match receiver.recv_timeout(TICK) {
            Ok(arrived) => {
                let began = shared.now();
                if let Err(error) = take(shared, store, arrived) {
                    break Err(error);
                }
                let now = shared.now();
                lock(&shared.core).worked(now.saturating_sub(began), now);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break Ok(()),
        }
        let began = shared.now();
        let unasked = lock(&shared.core).take_works(began);
        if let Err(error) = perform(&shared.core, store, unasked, &[], began) {
            break Err(error);
        }
        let now = shared.now();
        lock(&shared.core).worked(now.saturating_sub(began), now);
        if let Err(error) = pace.flush(store, options, now) {
            break Err(error);
        }
        tell(shared, watch);
        pace.tell(shared, watch, now);
        let is_interrupted = watch
            .interrupt
            .as_ref()
            .is_some_and(|interrupt| interrupt());
        let mut core = lock(&shared.core);
        if is_interrupted || core.is_finished(now) {
            break Ok(());
        }
        if core.wants_look(now) {
            // Ends the pauses of waiting threads.
            shared.moved.notify_all();
        }
        drop(core);
    };
    // What has arrived is still appended, however it was ended.
    is_closing.store(true, Ordering::SeqCst);
    lock(&shared.core).stop();
    shared.moved.notify_all();
    let ended = threads.end(&receiver, |arrived| match &worked {
        Ok(()) => take(shared, store, arrived),
        Err(_) => Ok(()),
    });
    worked.and(ended)?;
    lock(&shared.core).end(shared.now());
    store.flush()?;
    pace.told_at = i64::MIN;
    pace.tell(shared, watch, shared.now());
    let mut report = lock(&shared.core).report();
    report.progress.bytes_per_second = pace.rate;
    Ok(report)
}

/// Does the work of a response.
fn take(shared: &Shared, store: &mut Store, arrived: Arrived) -> Result<(), MirrorError> {
    let Arrived { works, bytes, back } = arrived;
    let done = perform(&shared.core, store, works, &bytes, shared.now());
    shared.moved.notify_all();
    // Nobody wants it if the connection has ended.
    let _ = back.send(bytes);
    done
}

fn tell(shared: &Shared, watch: &mut Watch<'_>) {
    let news = lock(&shared.core).news();
    if let Some(event) = &mut watch.event {
        news.iter().for_each(event);
    }
}

/// When to sync and when to tell.
struct Pace {
    compacted_at: i64,
    flushed_at: i64,
    told_at: i64,
    measured: (i64, u64),
    rate: u64,
}

impl Pace {
    const fn new(now: i64) -> Self {
        Self {
            compacted_at: now,
            flushed_at: now,
            told_at: now,
            measured: (now, 0),
            rate: 0,
        }
    }

    fn flush(
        &mut self,
        store: &mut Store,
        options: &MirrorOptions,
        now: i64,
    ) -> Result<(), MirrorError> {
        if store.has_much_unsynced() {
            store.begin_flush()?;
        }
        if now.saturating_sub(self.flushed_at) >= options.flush_interval_ms {
            self.flushed_at = now;
            store.begin_flush()?;
            store.remove_deleted()?;
        }
        if now.saturating_sub(self.compacted_at) >= COMPACT_MS {
            self.compacted_at = now;
            store.compact_commits()?;
        }
        Ok(())
    }

    fn tell(&mut self, shared: &Shared, watch: &mut Watch<'_>, now: i64) {
        if now.saturating_sub(self.told_at) < PROGRESS_MS {
            return;
        }
        self.told_at = now;
        let mut progress = lock(&shared.core).progress();
        let (at, bytes) = self.measured;
        let span = now.saturating_sub(at);
        if span >= RATE_MS || self.rate == 0 {
            let grown = progress.bytes.saturating_sub(bytes);
            let span_ms = span.max(1).unsigned_abs();
            self.rate = grown.saturating_mul(1000) / span_ms;
            if span >= RATE_MS {
                self.measured = (now, progress.bytes);
            }
        }
        progress.bytes_per_second = self.rate;
        if let Some(told) = &mut watch.progress {
            told(&progress);
        }
    }
}

/// The threads of the connections.
struct Threads {
    shared: Arc<Shared>,
    sender: SyncSender<Arrived>,
    running: Vec<JoinHandle<()>>,
    started: BTreeSet<Node>,
}

impl Threads {
    /// Starts a thread for each node that has none.
    fn start_missing(&mut self) -> Result<(), MirrorError> {
        let mut nodes = vec![Node::Any];
        nodes.extend(
            lock(&self.shared.core)
                .brokers()
                .keys()
                .map(|&id| Node::Broker(id)),
        );
        for node in nodes {
            if !self.started.insert(node) {
                continue;
            }
            let shared = Arc::clone(&self.shared);
            let sender = self.sender.clone();
            let name = match node {
                Node::Any => "offsetlog-mirror".to_owned(),
                Node::Broker(id) => format!("offsetlog-mirror-{id}"),
            };
            let thread = std::thread::Builder::new().name(name);
            let started = thread.spawn(move || Talk::new(shared, node, sender).run());
            self.running.push(started.map_err(MirrorError::Thread)?);
        }
        Ok(())
    }

    /// Waits for the threads, and takes what still arrives. A thread that waits for a broker is left behind: it touches no file.
    fn end(
        self,
        receiver: &Receiver<Arrived>,
        mut take: impl FnMut(Arrived) -> Result<(), MirrorError>,
    ) -> Result<(), MirrorError> {
        let Self {
            sender, running, ..
        } = self;
        drop(sender);
        let deadline = Instant::now() + ENDING;
        let mut taken = Ok(());
        loop {
            match receiver.recv_timeout(TICK) {
                Ok(arrived) if taken.is_ok() => taken = take(arrived),
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let is_over = running.iter().all(JoinHandle::is_finished);
            if is_over || Instant::now() > deadline {
                while let Ok(arrived) = receiver.try_recv() {
                    if taken.is_ok() {
                        taken = take(arrived);
                    }
                }
                break;
            }
        }
        taken
    }
}

/// One node's connection.
struct Talk {
    shared: Arc<Shared>,
    node: Node,
    sender: SyncSender<Arrived>,
    connection: Option<(Connection, Versions)>,
    tries: usize,
    rooms: (Sender<Vec<u8>>, Receiver<Vec<u8>>),
}

impl Talk {
    fn new(shared: Arc<Shared>, node: Node, sender: SyncSender<Arrived>) -> Self {
        Self {
            shared,
            node,
            sender,
            connection: None,
            tries: 0,
            rooms: channel(),
        }
    }

    fn run(mut self) {
        loop {
            let now = self.shared.now();
            let not_before = lock(&self.shared.core).not_before(self.node);
            match not_before {
                None if lock(&self.shared.core).brokers().is_empty() => return,
                // A broker that is no longer among the others may come back.
                None if lock(&self.shared.core).is_stopped() => return,
                None => {
                    self.connection = None;
                    self.shared.wait(now.saturating_add(1000));
                    continue;
                }
                Some(time) if time > now => {
                    self.shared.wait(time);
                    continue;
                }
                Some(_) => {}
            }
            if self.connection.is_none() && !self.connect() {
                continue;
            }
            let Some((_, versions)) = &self.connection else {
                continue;
            };
            let next = lock(&self.shared.core).next(self.node, versions, now);
            match next {
                Next::End => {
                    self.connection = None;
                }
                Next::Wait(until) => self.shared.wait(until),
                Next::Request(request) => {
                    if !self.ask(&request) {
                        return;
                    }
                }
            }
        }
    }

    /// The node's address; if any broker will do, one after the other.
    fn address(&mut self) -> Option<(String, u16)> {
        let core = lock(&self.shared.core);
        match self.node {
            Node::Broker(id) => core.brokers().get(&id).cloned(),
            Node::Any => {
                let known = self
                    .shared
                    .source
                    .bootstrap
                    .iter()
                    .chain(core.brokers().values());
                let known: Vec<&(String, u16)> = known.collect();
                let at = self.tries.checked_rem(known.len())?;
                known.get(at).map(|&address| address.clone())
            }
        }
    }

    fn connect(&mut self) -> bool {
        let Some((host, port)) = self.address() else {
            self.shared.wait(self.shared.now().saturating_add(1000));
            return false;
        };
        self.tries = self.tries.wrapping_add(1);
        match open(&host, port, &self.shared.source.client) {
            Ok(connection) => {
                self.connection = Some(connection);
                true
            }
            Err(error) => {
                let now = self.shared.now();
                lock(&self.shared.core).failed(self.node, None, &error.to_string(), now);
                false
            }
        }
    }

    /// Sends a request and takes its answer. Returns false when nobody wants answers any more.
    fn ask(&mut self, request: &super::core::Request) -> bool {
        let Some((connection, _)) = &mut self.connection else {
            return true;
        };
        let mut bytes = self.rooms.1.try_recv().unwrap_or_default();
        let answered = connection
            .send_request(request.api, request.version, &request.body)
            .and_then(|correlation_id| {
                connection.receive(&mut bytes)?;
                Ok(correlation_id)
            });
        let now = self.shared.now();
        let taken = answered.map_err(|error| error.to_string()).and_then(|id| {
            let mut reader = Reader::new(&bytes, Part::Protocol);
            let header = ResponseHeader::read(request.api, request.version, &mut reader)
                .map_err(|error| error.to_string())?;
            if header.correlation_id != id {
                return Err(format!(
                    "response {} found, {id} expected",
                    header.correlation_id
                ));
            }
            let place = reader.position();
            let known = (request.api, request.version);
            lock(&self.shared.core)
                .answered(self.node, known, &request.asked, &bytes, place, now)
                .map_err(|error| format!("response to {}: {error}", request.api.name))
        });
        match taken {
            Ok(works) => {
                if self.node == Node::Any && lock(&self.shared.core).wants_another(&request.asked) {
                    self.connection = None;
                }
                self.shared.moved.notify_all();
                if works.is_empty() {
                    let _ = self.rooms.0.send(bytes);
                    return true;
                }
                let arrived = Arrived {
                    works,
                    bytes,
                    back: self.rooms.0.clone(),
                };
                self.sender.send(arrived).is_ok()
            }
            Err(reason) => {
                self.connection = None;
                let mut core = lock(&self.shared.core);
                core.failed(self.node, Some(&request.asked), &reason, now);
                true
            }
        }
    }
}

/// Connects, and asks which versions the broker has.
fn open(
    host: &str,
    port: u16,
    options: &ClientOptions,
) -> Result<(Connection, Versions), ClientError> {
    let mut connection = Connection::connect(host, port, options)?;
    let mut bytes = Vec::new();
    // Version 0 is answered by every broker since 0.10.
    let answer = connection.request(&API_VERSIONS, 0, &Struct::new(), &mut bytes)?;
    let mut versions = Versions::new();
    let listed = answer.get("apiKeys").and_then(Value::as_array);
    for each in listed
        .unwrap_or_default()
        .iter()
        .filter_map(Value::as_struct)
    {
        let number = |name| {
            let value = each.get(name).and_then(Value::as_int);
            value.and_then(|value| i16::try_from(value).ok())
        };
        if let (Some(key), Some(low), Some(high)) =
            (number("apiKey"), number("minVersion"), number("maxVersion"))
        {
            versions.insert(key, (low, high));
        }
    }
    Ok((connection, versions))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_measured_by_a_clock_that_nobody_sets() {
        // A time of day that the system's clock does not have, as after it was set.
        let (began, at) = (Instant::now(), 1000);
        let shared = Shared {
            core: Mutex::new(Core::new(MirrorOptions::default(), at)),
            moved: Condvar::new(),
            source: Source::default(),
            began: (began, at),
        };
        let earliest = began.elapsed();
        let now = shared.now() - at;
        let latest = began.elapsed();
        let milliseconds = |span: Duration| i64::try_from(span.as_millis()).unwrap();
        assert!(
            (milliseconds(earliest)..=milliseconds(latest)).contains(&now),
            "{now}"
        );
    }
}
