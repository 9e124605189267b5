//! The verb about notes of commits, which the Python package does.

use super::given;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  offsetlog commits data
  offsetlog commits --forget load-2026-03-04 data

What Spark jobs and streams have published is noted in the log dir, so that each publishes once. A job whose note is removed
writes again when it runs again.

Exit codes: 0 done; 1 nothing is noted here; 2 usage or input error.")]
pub(crate) struct Commits {
    /// A log dir; of several that are written to as one, the first
    #[arg(required = true, value_name = "PATH", value_parser = given())]
    pub(crate) path: PathBuf,

    /// Remove the note of this name: that of a transactionId, of a queryId, or as it is listed
    #[arg(long, value_name = "NAME")]
    pub(crate) forget: Option<String>,

    /// With --forget: also a commit that stopped half-way. What is published stays, what is not is dropped
    #[arg(long, requires = "forget")]
    pub(crate) unfinished: bool,

    /// One JSON line a note
    #[arg(long)]
    pub(crate) json: bool,
}
