//! Whole connections in memory: their bytes, their clients and their clock are the test's.

#![allow(clippy::panic, missing_docs, unreachable_pub)]

mod cuts;
mod panics;
mod passing;
mod separate;
mod timeouts;
mod waits;
mod wire;
mod world;

/// The client of the protocol logic's own tests.
#[path = "../../tests/broker/client.rs"]
#[allow(dead_code, reason = "those tests use the rest")]
mod logic;

/// The protocol logic of the tests with sockets.
#[path = "../../tests/common/mod.rs"]
#[allow(dead_code, reason = "those tests use the rest")]
mod echo;

/// Clients whose data bears their mark.
#[path = "../../tests/common/marks.rs"]
mod marks;
