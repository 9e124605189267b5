//! Whole connections to a server of a real broker's log dir, in memory: what the fuzzer keeps, cut anywhere, with bytes changed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    missing_docs
)]

use offsetlog_net::server::{Broker, ServeOptions};
use offsetlog_net::transport::{ServerLimits, answer_all};
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn broker() -> Broker {
    let log_dir = root().join("tests/data/kafka-4.3.0/clean/log-dir-1");
    Broker::open(&[log_dir], ServeOptions::default()).unwrap()
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

#[test]
fn what_is_kept_is_answered_and_each_prefix_by_a_prefix() {
    let (broker, limits) = (broker(), ServerLimits::default());
    for (name, input) in kept() {
        let whole = answer_all(&broker, &limits, &input);
        let count = frames(&whole).len();
        match name.as_str() {
            "reads" => assert_eq!(count, 5),
            "group" => assert!(count >= 2),
            _ => {}
        }
        for end in 0..input.len() {
            let part = answer_all(&broker, &limits, &input[..end]);
            assert!(frames(&part).len() <= count, "{name}: {end}");
        }
    }
}

#[test]
fn changed_bytes_never_panic_and_answers_stay_whole() {
    let (broker, limits) = (broker(), ServerLimits::default());
    let mut random = fastrand::Rng::with_seed(26);
    for (_, input) in kept() {
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
            frames(&answer_all(&broker, &limits, &input));
        }
    }
}
