#![no_main]
//! Requests of one connection to a server of a real broker's log dir.

use offsetlog_net::server::{Broker, ServeOptions};
use offsetlog_net::transport::{ServerLimits, answer_all};
use std::sync::LazyLock;

static BROKER: LazyLock<Broker> = LazyLock::new(|| {
    let log_dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/kafka-4.3.0/clean/log-dir-1");
    Broker::open(&[log_dir], ServeOptions::default()).expect("a log dir of the tests")
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = answer_all(&*BROKER, &ServerLimits::default(), bytes);
});
