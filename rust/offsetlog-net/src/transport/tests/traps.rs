//! Traps and cuts in random orders: clients that meet the known traps, while others are cut off in the middle of a request or an answer.

use super::super::clock::Clock as _;
use super::super::options::ServerLimits;
use super::echo::frame;
use super::known_traps::{ALL, old_log_dir, open_served};
use super::logic::Asks;
use super::marks::Owner;
use super::wire::{Kafka, Simulated};
use crate::server::Broker;
use offsetlog::format::message::Struct;
use offsetlog::format::protocol::Api;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const SEEDS: u64 = 6;
/// Clients that are cut off.
const CUT: usize = 3;

/// A client of the world. It connects again where the server has ended its connection.
struct Caller {
    server: Simulated<Broker>,
    kafka: Kafka,
    room: usize,
}

impl Caller {
    fn new(server: &Simulated<Broker>, name: &str) -> Self {
        Self {
            kafka: Kafka::new(server.connect(), name),
            server: server.clone(),
            room: 500 + server.world.random(30_000),
        }
    }
}

impl Asks for Caller {
    fn frame(&mut self, api: &Api, version: i16, request: &Struct<'_>) -> Vec<u8> {
        self.kafka.frame(api, version, request)
    }

    fn answer(&mut self, request: &[u8], api: &Api, version: i16) -> Option<Struct<'static>> {
        self.kafka.client.set_room(self.room);
        let bytes = frame(request);
        // At once, or in two parts.
        let (first, second) = bytes.split_at(self.server.world.random(bytes.len()));
        self.kafka.client.send(first);
        self.kafka.client.send(second);
        let answer = self.kafka.receive(api, version);
        if answer.is_none() {
            self.kafka = Kafka::new(self.server.connect(), "again");
        }
        answer
    }
}

/// Asks for this, and is gone at a byte of the request or of the answer, or takes no more of it.
fn is_cut(server: &Simulated<Broker>, (api, version, body): (&Api, i16, Struct<'_>)) {
    let world = &server.world;
    let mut kafka = Kafka::new(server.connect(), "cut");
    kafka.client.set_room(1 + world.random(2_000));
    let bytes = frame(&kafka.frame(api, version, &body));
    match world.random(3) {
        0 => kafka.client.send(&bytes[..world.random(bytes.len())]),
        1 => {
            kafka.client.send(&bytes);
            let count = world.random(300);
            kafka.client.take_within(count, Duration::from_secs(10));
        }
        _ => {
            kafka.client.send(&bytes);
            kafka.client.set_room(1);
            // Until the server has ended it, which takes no more than both.
            let limits = &server.common.limits;
            world.sleep(limits.handshake_timeout + limits.response_timeout);
        }
    }
}

#[test]
fn traps_are_met_and_clients_cut_off_in_any_order() {
    let old = old_log_dir();
    for number in 0..CUT {
        Owner(number).make(old.path());
    }
    for seed in 0..SEEDS {
        let broker = open_served(old.path());
        // So little that they wait for each other.
        let limits = ServerLimits {
            requests_bytes_max: 128 << 10,
            ..ServerLimits::default()
        };
        let server = Simulated::new(seed, Arc::new(broker), limits, None);
        let done = Arc::new(AtomicUsize::new(0));
        for (name, trap) in ALL {
            let done = Arc::clone(&done);
            server.client(move |server| {
                trap(&mut Caller::new(server, name));
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        for number in 0..CUT {
            let done = Arc::clone(&done);
            server.client(move |server| {
                for request in Owner(number).requests(true) {
                    is_cut(server, request);
                }
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        server.run();
        assert_eq!(done.load(Ordering::Relaxed), ALL.len() + CUT, "seed {seed}");
        assert!(server.service.awaits_nothing());
    }
}
