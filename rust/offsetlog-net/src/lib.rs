//! Serves Kafka's directories to real Kafka clients, and mirrors a live cluster's topics batch for batch.
//!
//! The protocol logic touches no socket: it takes the bytes of a request and the time, and returns a [`Step`], whose reply is made of
//! bytes and of ranges of files. A transport runs it on sockets; a test runs it under a seeded scheduler.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)
)]

// What tests outside of this crate share with those inside names it so.
#[cfg(test)]
extern crate self as offsetlog_net;

pub mod client;
pub mod coordinator;
pub mod error_code;
pub mod mirror;
pub mod sasl;
pub mod server;
pub mod serving;
mod socket;
mod step;
#[cfg(feature = "tls")]
pub mod tls;
pub mod transport;

pub use step::{
    AnyRoom, Changes, Peer, Piece, Reply, Room, SMALL_VALUES, Service, Step, VALUE_BYTES,
};
