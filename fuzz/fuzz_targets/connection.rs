#![no_main]
//! Requests of one connection to a server of a real broker's log dir, with groups: for anybody, and for users only.

use offsetlog_net::sasl::Users;
use offsetlog_net::server::{Broker, ServeOptions};
use offsetlog_net::transport::{ServerLimits, answer_all};
use std::cell::RefCell;
use std::sync::{Arc, LazyLock};

/// Groups and commits of so many inputs are kept: then they begin anew, or they would fill the memory.
const INPUTS: usize = 10_000;

fn broker() -> Broker {
    let log_dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/kafka-4.3.0/clean/log-dir-1");
    let broker = Broker::open(&[log_dir], ServeOptions::default()).expect("a log dir of the tests");
    broker.with_coordinator(None, 0).expect("groups in memory")
}

thread_local! {
    static SERVED: RefCell<(usize, Broker)> = RefCell::new((0, broker()));
}

// Those of the kept input that says who it is.
static USERS: LazyLock<Arc<Users>> =
    LazyLock::new(|| Arc::new(Users::of_passwords([("ann", "secret")]).expect("random bytes")));

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let limits = ServerLimits::default();
    SERVED.with_borrow_mut(|(inputs, served)| {
        *inputs += 1;
        if *inputs > INPUTS {
            (*inputs, *served) = (0, broker());
        }
        for users in [None, Some(Arc::clone(&USERS))] {
            let _ = answer_all(served, &limits, users, bytes);
        }
    });
});
