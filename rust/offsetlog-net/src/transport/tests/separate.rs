//! Nobody sees another one's data: clients with a mark each, at once on one server, honest, slow, cut off and hostile ones, in random orders.

use super::super::clock::Clock as _;
use super::super::options::ServerLimits;
use super::echo::frame;
use super::logic::{Fetched, consume, int, structs};
use super::marks::{Owner, asks_for_all};
use super::wire::{Kafka, Simulated};
use super::world::BEGIN_MS;
use crate::sasl::Users;
use crate::server::{Broker, ServeOptions};
use offsetlog::format::message::{Struct, Value};
use offsetlog::format::protocol::apis;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const HONEST: usize = 5;
const HOSTILE: usize = 4;
const SEEDS: u64 = 12;

/// What came on a connection, whose it was, and what it had sent.
type Came = Arc<Mutex<Vec<(Owner, Vec<u8>, bool)>>>;

/// One client's connections to the server.
struct Life {
    server: Simulated<Broker>,
    owner: Owner,
    came: Came,
    wire: Option<Kafka>,
    /// All that the connection has sent.
    sent: Vec<u8>,
}

/// A connection that the client, or a cut, has ended.
#[derive(Debug)]
struct Cut;

impl Life {
    fn new(server: &Simulated<Broker>, owner: Owner, came: &Came) -> Self {
        Self {
            server: server.clone(),
            owner,
            came: Arc::clone(came),
            wire: None,
            sent: Vec::new(),
        }
    }

    fn random(&self, below: usize) -> usize {
        self.server.world.random(below)
    }

    fn sleep(&self, ms: u64) {
        self.server.world.sleep(Duration::from_millis(ms));
    }

    /// Ends the connection as it stands, and keeps what came.
    fn cut(&mut self) -> Cut {
        if let Some(wire) = self.wire.take() {
            let shows_names = asks_for_all(&self.sent);
            let came = wire.client.came();
            self.came
                .lock()
                .unwrap()
                .push((self.owner, came, shows_names));
        }
        self.sent.clear();
        Cut
    }

    fn wire(&mut self) -> &mut Kafka {
        let (server, owner) = (&self.server, self.owner);
        self.wire.get_or_insert_with(|| {
            let client = server.connect();
            client.set_room(500 + server.world.random(30_000));
            Kafka::new(client, &owner.client_id())
        })
    }

    fn send(&mut self, bytes: &[u8]) {
        self.sent.extend_from_slice(bytes);
        self.wire().client.send(bytes);
    }

    /// A request and its answer, if nothing happens in between.
    fn ask(
        &mut self,
        api: &'static offsetlog::format::protocol::Api,
        version: i16,
        body: &Struct<'_>,
    ) -> Result<Struct<'static>, Cut> {
        let bytes = frame(&self.wire().frame(api, version, body));
        match self.random(60) {
            0 => {
                let end = self.random(bytes.len());
                self.send(&bytes[..end]);
                return Err(self.cut());
            }
            1 => {
                self.send(&bytes);
                let count = self.random(300);
                self.wire().client.take(count);
                return Err(self.cut());
            }
            2 => {
                for part in bytes.chunks(7) {
                    self.send(part);
                    self.sleep(5);
                }
            }
            _ => self.send(&bytes),
        }
        // Answers of several clients are on their way at once.
        if self.random(2) == 0 {
            let pause = self.random(20) as u64;
            self.sleep(pause);
        }
        let answer = self.wire().receive(api, version);
        answer.ok_or_else(|| self.cut())
    }

    fn log_in(&mut self) -> Result<(), Cut> {
        let body = Struct::new().with("mechanism", "PLAIN");
        self.ask(&apis::SASL_HANDSHAKE, 1, &body)?;
        let words = format!("\0{}\0{}", self.owner.user(), self.owner.password());
        let body = Struct::new().with("authBytes", words.into_bytes());
        let answer = self.ask(&apis::SASL_AUTHENTICATE, 1, &body)?;
        assert_eq!(int(&answer, "errorCode"), 0);
        Ok(())
    }
}

/// A consumer of its own partition in a group of its own, that begins again after each cut.
struct Consumer {
    life: Life,
    got: Vec<u8>,
    position: i64,
    member: String,
}

impl Consumer {
    /// Reads on until the end.
    fn read(&mut self) -> Result<(), Cut> {
        let owner = self.life.owner;
        self.life.log_in()?;
        let answer = self.life.ask(&apis::METADATA, 12, &owner.metadata())?;
        assert_eq!(structs(&answer, "topics").len(), 1);
        let generation = self.join()?;
        let mut session = (0, 0);
        loop {
            let max_bytes = 1 + i32::try_from(self.life.random(20_000)).unwrap();
            let request = owner.fetch(self.position, max_bytes, session);
            let answer = self.life.ask(&apis::FETCH, 12, &request)?;
            assert_eq!(int(&answer, "errorCode"), 0);
            let id = i32::try_from(int(&answer, "sessionId")).unwrap();
            session = if id == 0 { (0, 0) } else { (id, session.1 + 1) };
            let topics = structs(&answer, "responses");
            let Some(topic) = topics.first() else {
                break;
            };
            assert_eq!(
                topic.get("topic").and_then(Value::as_str),
                Some(&*owner.topic())
            );
            let fetched = Fetched::of(&structs(topic, "partitions")[0]);
            if fetched.bytes().is_empty() {
                break;
            }
            self.got.extend_from_slice(fetched.bytes());
            (_, self.position) = consume(&fetched, self.position);
        }
        let request = owner.commit(&self.member, generation, self.position);
        self.life.ask(&apis::OFFSET_COMMIT, 8, &request)?;
        let answer = self.life.ask(&apis::OFFSET_FETCH, 7, &owner.committed())?;
        let partitions = structs(&structs(&answer, "topics")[0], "partitions");
        let metadata = partitions[0].get("metadata").and_then(Value::as_str);
        assert!(metadata == Some(&owner.secret(300)) || metadata == Some(""));
        let request = Struct::new().with("groups", vec![owner.group()]);
        let answer = self.life.ask(&apis::DESCRIBE_GROUPS, 5, &request)?;
        assert_eq!(structs(&answer, "groups").len(), 1);
        Ok(())
    }

    /// Becomes a member; its generation.
    fn join(&mut self) -> Result<i32, Cut> {
        let owner = self.life.owner;
        let answer = self
            .life
            .ask(&apis::JOIN_GROUP, 3, &owner.join(&self.member))?;
        if int(&answer, "errorCode") != 0 {
            // It was away for longer than its session.
            self.member.clear();
            return Err(self.life.cut());
        }
        let generation = i32::try_from(int(&answer, "generationId")).unwrap();
        let id = answer.get("memberId").and_then(Value::as_str);
        id.unwrap().clone_into(&mut self.member);
        for member in structs(&answer, "members") {
            let metadata = member.get("metadata").and_then(Value::as_bytes);
            assert_eq!(metadata, Some(owner.secret(500).as_bytes()));
        }
        let request = owner.sync(&self.member, generation);
        let answer = self.life.ask(&apis::SYNC_GROUP, 3, &request)?;
        let assignment = answer.get("assignment").and_then(Value::as_bytes).unwrap();
        assert!(assignment.is_empty() || assignment == owner.secret(500).as_bytes());
        let request = owner.heartbeat(&self.member, generation);
        self.life.ask(&apis::HEARTBEAT, 4, &request)?;
        Ok(generation)
    }
}

fn honest(server: &Simulated<Broker>, owner: Owner, came: &Came, whole: &[u8]) {
    let mut consumer = Consumer {
        life: Life::new(server, owner, came),
        got: Vec::new(),
        position: 0,
        member: String::new(),
    };
    consumer.life.sleep(server.world.random(50) as u64);
    while consumer.read().is_err() {
        let pause = consumer.life.random(3000) as u64;
        consumer.life.sleep(pause);
    }
    consumer.life.cut();
    assert!(consumer.got == whole, "{owner:?} did not get its records");
}

/// A client that does anything but behave, on one connection.
fn misbehave(life: &mut Life) -> Result<(), Cut> {
    let kind = life.random(8);
    if kind != 0 {
        life.log_in()?;
    }
    let requests = life.owner.requests(kind == 1);
    let mut some = Vec::new();
    for _ in 0..=life.random(6) {
        let (api, version, body) = &requests[life.random(requests.len())];
        some.push(frame(&life.wire().frame(api, *version, body)));
    }
    match kind {
        // Before it said who it is, all at once, or all names too.
        0 | 1 => life.send(&some.concat()),
        // Bytes changed.
        2 | 3 => {
            for bytes in &mut some {
                for _ in 0..=life.random(3) {
                    // Not the frame's length, mostly: then all behind it is lost.
                    let at = (4 + life.random(bytes.len())) % bytes.len();
                    bytes[at] = [0, 1, 0x7f, 0x80, 0xff, life.random(256) as u8][life.random(6)];
                }
            }
            life.send(&some.concat());
        }
        // Garbage in a frame.
        4 => {
            let garbage: Vec<u8> = (0..life.random(3000))
                .map(|_| life.random(256) as u8)
                .collect();
            life.send(&frame(&garbage));
        }
        // Half of it, and then nothing.
        5 => {
            let bytes = some.concat();
            let end = life.random(bytes.len());
            life.send(&bytes[..end]);
            life.sleep(100_000);
        }
        // A byte at a time.
        6 => {
            for byte in some.concat() {
                life.send(&[byte]);
                life.sleep(1);
            }
        }
        // Nothing is taken of much.
        _ => {
            life.wire().client.set_room(100);
            let large = life.owner.fetch(0, 1 << 20, (0, -1));
            let large = frame(&life.wire().frame(&apis::FETCH, 12, &large));
            life.send(&large);
            life.send(&some.concat());
            life.sleep(200_000);
        }
    }
    if life.random(2) == 0 {
        life.wire().client.close();
    }
    let count = life.random(20_000);
    life.wire()
        .client
        .take_within(count, Duration::from_secs(10));
    Err(life.cut())
}

fn hostile(server: &Simulated<Broker>, owner: Owner, came: &Came) {
    let mut life = Life::new(server, owner, came);
    for _ in 0..20 {
        let _ = misbehave(&mut life);
    }
}

fn users() -> Users {
    let all: Vec<(String, String)> = (0..HONEST + HOSTILE)
        .map(|number| (Owner(number).user(), Owner(number).password()))
        .collect();
    let all = all
        .iter()
        .map(|(name, word)| (name.as_str(), word.as_str()));
    Users::of_passwords(all).unwrap()
}

/// Runs all clients once. Returns how many connections and bytes there were.
fn history(seed: u64, log_dir: &Path, wholes: &[Vec<u8>]) -> (usize, usize) {
    let broker = Broker::open(&[log_dir], ServeOptions::default()).unwrap();
    let broker = broker.with_coordinator(None, BEGIN_MS).unwrap();
    // So little that they wait for each other.
    let limits = ServerLimits {
        requests_bytes_max: 128 << 10,
        ..ServerLimits::default()
    };
    let server = Simulated::new(seed, Arc::new(broker), limits, Some(users()));
    let came = Came::default();
    let done = Arc::new(AtomicUsize::new(0));
    for (number, whole) in wholes.iter().enumerate() {
        let (came, whole, done) = (Arc::clone(&came), whole.clone(), Arc::clone(&done));
        server.client(move |server| {
            if number < HONEST {
                honest(server, Owner(number), &came, &whole);
            } else {
                hostile(server, Owner(number), &came);
            }
            done.fetch_add(1, Ordering::Relaxed);
        });
    }
    server.run();
    assert_eq!(done.load(Ordering::Relaxed), wholes.len());
    assert!(server.service.awaits_nothing());
    let came = came.lock().unwrap();
    for (owner, bytes, shows_names) in came.iter() {
        if let Some((at, mark)) = owner.foreign(bytes, *shows_names) {
            panic!("seed {seed}: {owner:?} got {mark} at byte {at} of a connection");
        }
    }
    let bytes = came.iter().map(|(_, bytes, _)| bytes.len()).sum();
    (came.len(), bytes)
}

#[test]
fn nobody_sees_the_data_of_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let wholes: Vec<Vec<u8>> = (0..HONEST + HOSTILE)
        .map(|number| Owner(number).make(folder.path()))
        .collect();
    let seed = std::env::var("OFFSETLOG_SEED").ok();
    let seeds = match seed.and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..SEEDS,
    };
    for seed in seeds {
        let (connections, bytes) = history(seed, folder.path(), &wholes);
        assert!(connections > 60, "{connections}");
        assert!(bytes > 1_000_000, "{bytes}");
    }
}
