//! Answers of every kind, cut at every byte: by a client that is gone, and by one that takes no more.

use super::super::clock::Clock as _;
use super::super::ended::Ended;
use super::marks::Owner;
use super::passing::{Server, Then, request};
use super::world::BEGIN_MS;
use crate::server::{Broker, ServeOptions};
use crate::step::Service as _;
use offsetlog::format::protocol::ANNOUNCED;
use std::collections::BTreeSet;

#[test]
fn answers_of_every_kind_are_cut_at_every_byte() {
    let folder = tempfile::tempdir().unwrap();
    let owner = Owner(1);
    owner.make(folder.path());
    let broker = Broker::open(&[folder.path()], ServeOptions::default()).unwrap();
    let server = Server::new(broker.with_coordinator(None, BEGIN_MS).unwrap());
    let mut kinds = BTreeSet::new();
    let mut cuts = 0_usize;
    for (api, version, body) in owner.requests(true) {
        let input = request(api, version, &body);
        let (whole, ended) = server.answer(&input, usize::MAX, Then::Gone);
        assert!(matches!(ended, Ended::ByClient), "{}: {ended}", api.name);
        let length = u32::from_be_bytes(*whole.first_chunk().unwrap()) as usize;
        assert_eq!(whole.len(), 4 + length, "{}", api.name);
        kinds.insert(api.key);
        for end in 0..whole.len() {
            for then in [Then::Gone, Then::Silent] {
                let began = server.clock.since();
                let (part, ended) = server.answer(&input, end, then);
                assert_eq!(part.len(), end);
                let name = api.name;
                match then {
                    Then::Gone => {
                        assert!(matches!(ended, Ended::Broken(_)), "{name} {end}: {ended}")
                    }
                    Then::Silent => {
                        assert!(matches!(ended, Ended::SlowClient), "{name} {end}: {ended}");
                        // Joins wait for other members first.
                        let took = server.clock.since() - began;
                        assert!(took >= server.common.limits.response_timeout, "{took:?}");
                    }
                }
                cuts += 1;
            }
        }
        // Who asks then gets as much as before: what changed is in numbers, such as the next producer's.
        let (again, _) = server.answer(&input, usize::MAX, Then::Gone);
        assert!(
            again.len() >= 4 && again.len().abs_diff(whole.len()) <= 1000,
            "{}",
            api.name
        );
    }
    // SASL's are the gate's, and have a test of their own.
    let sasl = [17, 36];
    let all = ANNOUNCED.iter().map(|it| it.api.key);
    let all: BTreeSet<i16> = all.filter(|key| !sasl.contains(key)).collect();
    assert_eq!(kinds, all, "an answer of each kind");
    assert!(cuts > 10_000, "{cuts}");
    // Nobody waits for anything.
    assert!(server.broker.awaits_nothing());
    server.broker.tick(server.clock.wall_ms());
}
