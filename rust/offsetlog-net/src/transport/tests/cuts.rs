//! Answers of every kind, cut at every byte: by a client that is gone, and by one that takes no more.

use super::super::clock::Clock as _;
use super::super::ended::Ended;
use super::marks::Owner;
use super::passing::{Server, Then, request};
use super::world::BEGIN_MS;
use crate::sasl::Users;
use crate::server::{Broker, ServeOptions};
use crate::step::Service as _;
use offsetlog::format::message::Struct;
use offsetlog::format::protocol::{ANNOUNCED, apis};
use std::collections::BTreeSet;

#[test]
fn answers_of_every_kind_are_cut_at_every_byte() {
    let folder = tempfile::tempdir().unwrap();
    let owner = Owner(1);
    owner.make(folder.path());
    let broker = Broker::open(&[folder.path()], ServeOptions::default()).unwrap();
    let server = Server::new(broker.with_coordinator(None, BEGIN_MS).unwrap());
    let mut kinds = BTreeSet::new();
    let (mut cuts, mut same) = (0, 0);
    let mechanism = Struct::new().with("mechanism", "PLAIN");
    let words = Struct::new().with("authBytes", vec![0_u8; 3]);
    let of_gate = [
        (&apis::SASL_HANDSHAKE, 1, mechanism),
        (&apis::SASL_AUTHENTICATE, 1, words),
    ];
    for (api, version, body) in owner.requests(true).into_iter().chain(of_gate) {
        let input = request(api, version, &body);
        let (whole, ended) = server.answer(&input, usize::MAX, Then::Gone);
        assert!(matches!(ended, Ended::ByClient), "{}: {ended}", api.name);
        let length = u32::from_be_bytes(*whole.first_chunk().unwrap()) as usize;
        assert_eq!(whole.len(), 4 + length, "{}", api.name);
        kinds.insert(api.key);
        // Numbers are given anew, and members leave meanwhile; all else is answered alike each time.
        let is_same = server.answer(&input, usize::MAX, Then::Gone).0 == whole;
        let is_same = is_same && !matches!(api.key, 8..=16 | 42 | 47);
        same += usize::from(is_same);
        for end in 0..whole.len() {
            for then in [Then::Gone, Then::Silent] {
                let began = server.clock.since();
                let (part, ended) = server.answer(&input, end, then);
                assert_eq!(part.len(), end);
                assert!(!is_same || whole.starts_with(&part), "{}", api.name);
                let name = api.name;
                match then {
                    Then::Gone => {
                        assert!(matches!(ended, Ended::Broken(_)), "{name} {end}: {ended}");
                    }
                    Then::Silent => {
                        assert!(matches!(ended, Ended::SlowClient), "{name} {end}: {ended}");
                        // Joins wait for other members first.
                        let took = server.clock.since().saturating_sub(began);
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
    let all: BTreeSet<i16> = ANNOUNCED.iter().map(|it| it.api.key).collect();
    assert_eq!(kinds, all, "an answer of each kind");
    assert!(cuts > 10_000, "{cuts}");
    assert!(same > 15, "{same}");
    // Nobody waits for anything.
    assert!(server.broker.awaits_nothing());
    server.broker.tick(server.clock.wall_ms());
}

/// Last words, behind which the server ends the connection.
#[test]
fn a_refusal_is_cut_at_every_byte() {
    let folder = tempfile::tempdir().unwrap();
    Owner(1).make(folder.path());
    let broker = Broker::open(&[folder.path()], ServeOptions::default()).unwrap();
    let users = Users::of_passwords([("ann", "secret")]).unwrap();
    let server = Server::with_users(broker, Some(users));
    let mechanism = Struct::new().with("mechanism", "GSSAPI");
    let input = request(&apis::SASL_HANDSHAKE, 1, &mechanism);
    let (whole, ended) = server.answer(&input, usize::MAX, Then::Gone);
    assert!(matches!(ended, Ended::Authentication(_)), "{ended}");
    assert!(whole.len() > 50);
    for end in 0..whole.len() {
        let (part, ended) = server.answer(&input, end, Then::Gone);
        assert_eq!(part, whole[..end]);
        assert!(matches!(ended, Ended::Broken(_)), "{ended}");
        let (part, ended) = server.answer(&input, end, Then::Silent);
        assert_eq!(part, whole[..end]);
        assert!(matches!(ended, Ended::SlowClient), "{ended}");
    }
}
