//! The server's logic without sockets: requests by hand, answers against what real brokers and consumers said.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    unreachable_pub
)]

mod client;
mod cluster;
mod damage;
mod golden;
mod groups;
mod growth;
#[allow(dead_code, reason = "clients in a world go through all")]
mod known_traps;
mod open_transactions;
mod random;
mod replicas;
mod sessions;
mod trap_15;
mod trap_16;
mod traps;

use client as logic;
