//! Answers Kafka clients from log dirs that no broker runs on: the protocol logic, without a socket.
//!
//! `catalog` knows what is served, `partition` what clients see of one; each API has a module of its own. [`Broker`] reads the header of a
//! request and dispatches. It changes nothing on the disk.

mod api_versions;
mod broker;
mod catalog;
mod cluster;
mod committed;
mod configs;
mod coordinated;
mod describe;
mod fetch;
mod fetch_sessions;
mod groups;
mod identity;
mod leader_epochs;
mod list_offsets;
mod metadata;
mod open_transactions;
mod options;
mod partition;
mod refusals;
mod reply;
mod report;
mod request;

pub use broker::{Broker, Session};
pub use groups::{Caller, GroupAnswer, Groups};
pub use options::{Event, OnEvent, OpenTransactions, ServeOptions, Until};
pub use report::{OpenTransactionReport, PartitionReport, ReplicaReport, ServeReport, TopicReport};
