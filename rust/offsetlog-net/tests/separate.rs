//! Nobody sees another one's data, over sockets: plain ones and TLS, with users, honest clients beside hostile and cut ones.
#![cfg(feature = "tls")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    unreachable_pub
)]

#[path = "broker/client.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod client;
#[path = "common/mod.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod echo;
#[path = "common/marks.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod marks;

use client::{Fetched, NOW, consume, int, structs};
use echo::{PATIENCE, frame, quick};
use marks::{Owner, asks_for_all};
use offsetlog::format::Uuid;
use offsetlog::format::message::{Struct, Value};
use offsetlog::format::protocol::{Api, RequestHeader, apis};
use offsetlog_net::client::{ClientOptions, Connection};
use offsetlog_net::coordinator::committed_offsets::{CommittedOffsets, CommittedOffsetsOptions};
use offsetlog_net::coordinator::{Coordinator, CoordinatorOptions};
use offsetlog_net::sasl::{Credentials, Mechanism, Users};
use offsetlog_net::server::{Broker, ServeOptions};
use offsetlog_net::tls::{TlsClient, TlsServer};
use offsetlog_net::transport::{Server, ServerOptions};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const HONEST: usize = 4;
const HOSTILE: usize = 4;
const ROUNDS: usize = 3;
const HOSTILE_ROUNDS: usize = 40;

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/tls")
        .join(name)
}

fn start(log_dir: &Path, is_encrypted: bool) -> Server {
    let broker = Broker::open(&[log_dir], ServeOptions::default()).unwrap();
    let options = CoordinatorOptions {
        initial_rebalance_delay_ms: 0,
        topic_id: Arc::new(|_, _| Some(Uuid::ZERO)),
        ..CoordinatorOptions::default()
    };
    let changes = broker.shared_changes();
    let offsets = CommittedOffsets::in_memory(&CommittedOffsetsOptions::default());
    let coordinator = Coordinator::new(options, offsets, NOW, move || changes.announce());
    let broker = broker.with_groups(Box::new(coordinator));
    let mut options = ServerOptions::at([SocketAddr::from((Ipv4Addr::LOCALHOST, 0))]);
    options.limits = quick();
    if is_encrypted {
        let tls = TlsServer::load(&file("server.pem"), &file("server.key"), None);
        options.tls = Some(tls.unwrap());
    }
    let all: Vec<(String, String)> = (0..HONEST + HOSTILE)
        .map(|number| (Owner(number).user(), Owner(number).password()))
        .collect();
    let all = all
        .iter()
        .map(|(name, word)| (name.as_str(), word.as_str()));
    options.users = Some(Arc::new(Users::of_passwords(all).unwrap()));
    Server::start(Arc::new(broker), options).unwrap()
}

/// What an owner's client is, and where it connects to.
#[derive(Clone, Copy)]
struct Place {
    owner: Owner,
    port: u16,
    is_encrypted: bool,
}

impl Place {
    fn connect(self, patience: Duration) -> Connection {
        let owner = self.owner;
        let mechanism = Mechanism::ALL[owner.0 % Mechanism::ALL.len()];
        let options = ClientOptions {
            client_id: owner.client_id(),
            connect_timeout: PATIENCE,
            request_timeout: patience,
            tls: (self.is_encrypted).then(|| TlsClient::load(&file("ca.pem"), None).unwrap()),
            credentials: Some(Credentials::new(mechanism, owner.user(), owner.password())),
            ..ClientOptions::default()
        };
        Connection::connect("127.0.0.1", self.port, &options).unwrap()
    }

    fn check(self, bytes: &[u8], shows_names: bool) {
        if let Some((at, mark)) = self.owner.foreign(bytes, shows_names) {
            panic!("{:?} got {mark} at byte {at}", self.owner);
        }
    }
}

/// One honest client.
struct Honest {
    place: Place,
    connection: Connection,
    buffer: Vec<u8>,
}

impl Honest {
    fn ask(&mut self, api: &'static Api, version: i16, body: &Struct<'_>) -> Struct<'static> {
        let (connection, buffer) = (&mut self.connection, &mut self.buffer);
        let answer = connection.request(api, version, body, buffer).unwrap();
        let answer = answer.into_owned();
        self.place.check(&self.buffer, false);
        answer
    }

    /// Reads all that its partition has, and is a member of its group meanwhile.
    fn read(&mut self, whole: &[u8]) {
        let owner = self.place.owner;
        let joined = self.ask(&apis::JOIN_GROUP, 3, &owner.join(""));
        assert_eq!(int(&joined, "errorCode"), 0);
        let member = joined.get("memberId").and_then(Value::as_str).unwrap();
        let generation = i32::try_from(int(&joined, "generationId")).unwrap();
        let synced = self.ask(&apis::SYNC_GROUP, 3, &owner.sync(member, generation));
        let assignment = synced.get("assignment").and_then(Value::as_bytes);
        assert_eq!(assignment, Some(owner.secret(500).as_bytes()));
        let (mut position, mut got) = (0, Vec::new());
        while got.len() < whole.len() {
            let request = owner.fetch(position, 15_000, (0, -1));
            let answer = self.ask(&apis::FETCH, 12, &request);
            let topic = &structs(&answer, "responses")[0];
            let fetched = Fetched::of(&structs(topic, "partitions")[0]);
            (_, position) = consume(&fetched, position);
            got.extend_from_slice(fetched.bytes());
        }
        assert!(got == whole);
        let commit = owner.commit(member, generation, position);
        self.ask(&apis::OFFSET_COMMIT, 8, &commit);
        let answer = self.ask(&apis::OFFSET_FETCH, 7, &owner.committed());
        let partitions = structs(&structs(&answer, "topics")[0], "partitions");
        let metadata = partitions[0].get("metadata").and_then(Value::as_str);
        assert_eq!(metadata, Some(&*owner.secret(300)));
        let leave = Struct::new()
            .with("groupId", owner.group())
            .with("memberId", member.to_owned());
        self.ask(&apis::LEAVE_GROUP, 1, &leave);
    }
}

/// Some requests of an owner, framed, perhaps with bytes changed.
fn some(owner: Owner, random: &mut fastrand::Rng) -> Vec<Vec<u8>> {
    let shows_names = random.u8(0..8) == 0;
    let changes = random.bool();
    let requests = owner.requests(shows_names);
    let one = |random: &mut fastrand::Rng| {
        let (api, version, body) = random.choice(&requests).unwrap();
        let header = RequestHeader {
            api_key: api.key,
            api_version: *version,
            correlation_id: random.i32(..),
            client_id: Some(b"hostile"),
        };
        let mut bytes = Vec::new();
        header.write(&mut bytes).unwrap();
        api.request.write(*version, body, &mut bytes).unwrap();
        for _ in 0..if changes { random.usize(1..4) } else { 0 } {
            let at = random.usize(..bytes.len());
            bytes[at] = random.u8(..);
        }
        bytes
    };
    (0..random.usize(1..8)).map(|_| one(random)).collect()
}

fn hostile(place: Place, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..HOSTILE_ROUNDS {
        let frames = some(place.owner, &mut random);
        let sent: Vec<u8> = frames.iter().flat_map(|bytes| frame(bytes)).collect();
        let shows_names = asks_for_all(&sent);
        if random.u8(0..3) == 0 {
            // In the clear, before it says who it is, and cut anywhere.
            let mut stream = TcpStream::connect(("127.0.0.1", place.port)).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let _ = stream.write_all(&sent[..random.usize(..=sent.len())]);
            let mut came = Vec::new();
            if random.bool() {
                let _ = stream.shutdown(Shutdown::Write);
                let _ = stream.read_to_end(&mut came);
            }
            place.check(&came, shows_names);
            continue;
        }
        // One of its requests may have no answer.
        let mut connection = place.connect(Duration::from_secs(2));
        for bytes in &frames {
            let _ = connection.send(bytes);
        }
        let mut buffer = Vec::new();
        for _ in 0..random.usize(..=frames.len()) {
            if connection.receive(&mut buffer).is_err() {
                break;
            }
            place.check(&buffer, shows_names);
        }
    }
}

fn everybody(is_encrypted: bool) {
    let folder = tempfile::tempdir().unwrap();
    let wholes: Vec<Vec<u8>> = (0..HONEST + HOSTILE)
        .map(|number| Owner(number).make(folder.path()))
        .collect();
    let server = start(folder.path(), is_encrypted);
    let port = server.addresses()[0].port();
    thread::scope(|scope| {
        for (number, whole) in wholes.iter().enumerate() {
            let place = Place {
                owner: Owner(number),
                port,
                is_encrypted,
            };
            scope.spawn(move || {
                if number >= HONEST {
                    return hostile(place, number as u64);
                }
                for _ in 0..ROUNDS {
                    let mut honest = Honest {
                        place,
                        connection: place.connect(PATIENCE),
                        buffer: Vec::new(),
                    };
                    honest.read(whole);
                }
            });
        }
    });
    assert!(server.metrics().contains("reason=\"panic\"} 0"));
}

#[test]
fn nobody_sees_the_data_of_another_one_in_the_clear() {
    everybody(false);
}

#[test]
fn nobody_sees_the_data_of_another_one_encrypted() {
    everybody(true);
}
