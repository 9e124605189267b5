//! Whole connections to a server of a real broker's log dir, in memory: what the fuzzer keeps, cut anywhere, with bytes changed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    missing_docs
)]

use offsetlog_net::sasl::Users;
use offsetlog_net::server::{Broker, ServeOptions};
use offsetlog_net::transport::{ServerLimits, answer_all};
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn broker() -> Broker {
    let log_dir = root().join("tests/data/kafka-4.3.0/clean/log-dir-1");
    let broker = Broker::open(&[log_dir], ServeOptions::default()).unwrap();
    broker.with_coordinator(None, 0).unwrap()
}

/// Those of the kept input that says who it is.
fn users() -> Arc<Users> {
    Arc::new(Users::of_passwords([("ann", "secret")]).unwrap())
}

fn kept() -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(root().join("fuzz/kept/connection")).unwrap();
    let files = entries.map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let mut all: Vec<_> = files
        .map(|path| (name(&path), std::fs::read(&path).unwrap()))
        .collect();
    all.sort();
    assert!(all.len() > 5);
    all
}

/// What goes out is frames, each whole.
fn frames(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let length = u32::from_be_bytes(*length) as usize;
        frames.push(&rest[..length]);
        bytes = &rest[length..];
    }
    assert!(bytes.is_empty());
    frames
}

/// The name of a topic that is served.
fn shows_names(bytes: &[u8]) -> bool {
    bytes.windows(5).any(|part| part == b"g-txn")
}

#[test]
fn what_is_kept_is_answered_and_each_prefix_by_a_prefix() {
    let (broker, limits) = (broker(), ServerLimits::default());
    for (name, input) in kept() {
        let whole = answer_all(&broker, &limits, None, &input);
        let count = frames(&whole).len();
        match name.as_str() {
            "reads" => assert_eq!(count, 5),
            "group" => assert_eq!(count, 3),
            "commits" => {
                let found = frames(&whole);
                // It joins at last, which waits for others. Kafka's schemas: a commit without an error, and what was committed.
                assert_eq!(found.len(), 4);
                let topic = b"\0\0\0\x07\0\0\0\x01\0\x07g-plain\0\0\0\x01\0\0\0\0";
                assert_eq!(found[0], [&topic[..], &[0, 0]].concat());
                let offset = b"\0\0\0\0\0\0\0\x05\0\x01m\0\0";
                assert_eq!(found[1], [&topic[..], offset].concat());
                // UNKNOWN_MEMBER_ID.
                assert_eq!(found[2], b"\0\0\0\x07\0\x19");
            }
            _ => {}
        }
        for end in 0..input.len() {
            let part = answer_all(&broker, &limits, None, &input[..end]);
            assert!(frames(&part).len() <= count, "{name}: {end}");
        }
    }
}

/// Only who has said who it is sees anything.
#[test]
fn what_is_kept_is_refused_where_users_are_known() {
    let (broker, limits, users) = (broker(), ServerLimits::default(), users());
    for (name, input) in kept() {
        let whole = answer_all(&broker, &limits, Some(Arc::clone(&users)), &input);
        let count = frames(&whole).len();
        match name.as_str() {
            // The handshake, the password, Metadata and Fetch.
            "login" => assert_eq!(count, 4),
            // The handshake, and that the password is wrong: SASL_AUTHENTICATION_FAILED.
            "sasl" => {
                let found = frames(&whole);
                assert_eq!(found.len(), 2);
                assert!(found[1].starts_with(b"\0\0\0\x07\0\x3a"), "{:?}", found[1]);
            }
            // What versions there are, anybody may ask.
            "reads" | "group" => assert_eq!(count, 1),
            "commits" => assert_eq!(count, 0),
            _ => {}
        }
        assert_eq!(shows_names(&whole), name == "login", "{name}");
        for end in 0..input.len() {
            let part = answer_all(&broker, &limits, Some(Arc::clone(&users)), &input[..end]);
            assert!(frames(&part).len() <= count, "{name}: {end}");
        }
    }
}

#[test]
fn changed_bytes_never_panic_and_answers_stay_whole() {
    let (broker, limits, users) = (broker(), ServerLimits::default(), users());
    let mut random = fastrand::Rng::with_seed(26);
    for (name, input) in kept() {
        for _ in 0..300 {
            let mut input = input.clone();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..input.len());
                input[at] = if random.bool() {
                    random.u8(..)
                } else {
                    *random.choice(&[0, 1, 0x7f, 0x80, 0xff]).unwrap()
                };
            }
            frames(&answer_all(&broker, &limits, None, &input));
            let gated = answer_all(&broker, &limits, Some(Arc::clone(&users)), &input);
            frames(&gated);
            assert!(name == "login" || !shows_names(&gated), "{name}");
        }
    }
}
