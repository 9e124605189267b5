//! Whole connections in memory: their bytes, their clients and their clock are the test's.

#![allow(clippy::panic, missing_docs, unreachable_pub)]

mod cuts;
mod panics;
mod passing;
mod separate;
mod timeouts;
mod traps;
mod waits;
mod wire;
mod world;

/// The client of the protocol logic's own tests.
#[path = "../../tests/broker/client.rs"]
#[allow(dead_code, reason = "those tests use the rest")]
mod logic;

/// What clients of that meet.
#[path = "../../tests/broker/known_traps.rs"]
mod known_traps;

/// Some of these.
#[path = "../../tests/broker/trap_15.rs"]
mod trap_15;
#[path = "../../tests/broker/trap_16.rs"]
mod trap_16;

/// The protocol logic of the tests with sockets.
#[path = "../../tests/common/mod.rs"]
#[allow(dead_code, reason = "those tests use the rest")]
mod echo;

/// Clients whose data bears their mark.
#[path = "../../tests/common/marks.rs"]
mod marks;
