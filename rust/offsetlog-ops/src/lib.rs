//! The operations on a broker's directories, dead or alive, one function each. The engine reads and writes; this crate decides what is
//! worth reading and writing.
//!
//! It uses the public names of `offsetlog` only, and knows neither a terminal nor Python. Every function but
//! [`end_transaction`] and [`adopt`] reads its source without changing it.
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)
)]

mod adopt;
mod broker_groups;
mod commands;
mod end_transaction;
mod identity;
mod kafka_topics;
mod places;
mod producer_ids;
mod producers;
mod prometheus;
mod recreation;
mod replicas;
mod reset;
mod restore;
mod retention;
mod salvage;
mod shell;
mod topic_config;
mod verify;
mod when;
mod why;
mod words;

pub use adopt::{AdoptOptions, AdoptProgress, Adopted, AdoptedPartition, adopt};
pub use end_transaction::{
    EndTransactionOptions, EndedTransaction, TransactionEnd, end_transaction, transaction_ends,
};
pub use identity::{DirectoryIdentity, DirectoryKind, Identity, Outcome, identity};
pub use producers::{PartitionProducer, ProducerList, ProducersOptions, Standing, producers};
pub use prometheus::groups_prometheus;
pub use recreation::{Recreation, TopicToMake, recreation};
pub use replicas::{ChosenReplica, Replica, UnopenedReplica, choose_replica};
pub use reset::{Refused, ResetPlan, reset_plan};
pub use restore::name_matches;
pub use restore::{
    PartitionState, PartitionToRestore, Remaining, RestoreOptions, RestorePlan, RestoreProgress,
    Target,
};
pub use salvage::{
    LeftOut, Loss, SalvageOptions, SalvageProgress, SalvageReport, TakenBack, salvage,
};
pub use verify::{Verified, verify, why_stray};
pub use when::When;
pub use why::{
    Answer, DecisiveSetting, Question, Reason, WhyOptions, WhyReport, which_metadata, why,
};
pub use words::span;
