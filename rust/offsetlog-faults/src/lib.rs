//! What the engine's promises are tested with: a simulated disk that can lose power, a disk that fails, scripts, a model of what
//! must be there afterwards, and the checks.
//!
//! * [`SimDisk`] keeps for every file and every name what is on the disk and what the system only has in memory, records each
//!   change, and makes the states that a loss of power may leave.
//! * [`FaultDisk`] stands in front of any disk and fails, shortens or ends the chosen calls.
//! * [`Script`] is a short life of a log; [`Model`] is told what happens and knows which logs may be found afterwards.
//! * [`Golden`](golden::Golden) is a part of what a real broker wrote, [`Edit`](damage::Edit) a change of one of its files, and [`StillDisk`]
//!   the disk on which it is read.
//! * [`check`] opens what a crash left and compares.
//!
//! Nothing of the engine is used to decide what is right: batches are encoded and files are walked by code of this crate.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::cast_precision_loss,
    clippy::similar_names,
    clippy::unnecessary_wraps,
    reason = "a test tool: a panic is a failed test"
)]

pub mod batch;
pub mod check;
pub mod cleaned;
pub mod crash;
pub mod damage;
pub mod fault;
pub mod files;
pub mod golden;
pub mod model;
pub mod plain;
pub mod report;
pub mod run;
pub mod script;
pub mod sim;
pub mod still;
pub mod targets;

pub use fault::FaultDisk;
pub use model::Model;
pub use report::Row;
pub use script::Script;
pub use sim::SimDisk;
pub use still::StillDisk;
