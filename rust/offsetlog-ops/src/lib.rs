//! What an operator does with the directories of a broker, dead or alive, one function each. The engine reads and writes; this crate
//! decides what is worth reading and writing.
//!
//! It uses the public names of `offsetlog` only, and knows neither a terminal nor Python. Every function reads its source without
//! changing it.
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)
)]

mod prometheus;
mod reset;
mod commands;
mod identity;
mod kafka_topics;
mod places;
mod recreation;
mod salvage;
mod shell;

pub use prometheus::groups_prometheus;
pub use reset::{Refused, ResetPlan, reset_plan};
pub use identity::{DirectoryIdentity, DirectoryKind, Identity, Outcome, identity};
pub use recreation::{Recreation, TopicToMake, recreation};
pub use salvage::{
    LeftOut, Loss, SalvageOptions, SalvageProgress, SalvageReport, TakenBack, salvage,
};
