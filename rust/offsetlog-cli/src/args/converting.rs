//! The verbs that make a new directory of an old one.

use super::writing::{Compression, Setting, parse_setting};
use super::{Selection, given};
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  offsetlog convert old/orders-0 new/orders-0
  offsetlog convert -z zstd --config retention.ms=-1 /mnt/kafka-0.8/clicks-3 data/clicks-3
  for p in old/*-*; do offsetlog convert \"$p\" \"new/$(basename \"$p\")\"; done

OLD is a directory of any Kafka since 0.7 and is not changed. Offsets, timestamps, headers, transactions and producers are kept; messages of \
0.7, which have no offsets of today's kind, are numbered from 0. NEW appears whole or not at all; after a crash a folder \
beside it whose name ends in -delete may be removed.

Exit codes: 0 done; 2 usage error or damage in OLD; 3 done, and records are lost that OLD should have; 130 interrupted.")]
pub(crate) struct Convert {
    /// The partition directory to be converted, such as old/orders-0
    #[arg(value_name = "OLD", value_parser = given())]
    pub(crate) old: PathBuf,

    /// The new partition directory: not there yet, or empty
    #[arg(value_name = "NEW", value_parser = given())]
    pub(crate) new: PathBuf,

    /// Codec of all batches; unless given, each keeps its own
    #[arg(short = 'z', long, value_enum, value_name = "CODEC")]
    pub(crate) compression: Option<Compression>,

    /// A topic setting of the new log by Kafka's name, such as segment.bytes=1048576, in place of all those stored with the old one; may be given several times
    #[arg(long = "config", value_name = "NAME=VALUE", value_parser = parse_setting)]
    pub(crate) settings: Vec<Setting>,

    /// A JSON line instead of text
    #[arg(long)]
    pub(crate) json: bool,

    /// Say nothing on standard error but errors
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  offsetlog salvage /mnt/dead/orders-0 --into salvaged
  offsetlog salvage /mnt/dead --into salvaged -t orders --dry-run
  offsetlog salvage --json /mnt/dead --into salvaged | jq -r '.losses[] | [.first_offset, .last_offset] | @tsv'

Each partition becomes DIR/TOPIC-N, whole or not at all; the source is not changed. Records keep their offsets. What an earlier recovery cut \
off, and kept in the folder offsetlog-cut of a partition, comes back where the log has a hole and behind its end; never over offsets that the \
log has, or had and removed.

Exit codes: 0 done, nothing is lost; 2 usage or input error, or a partition failed; 3 done, and something could not be read; 130 interrupted.")]
pub(crate) struct Salvage {
    #[command(flatten)]
    pub(crate) selection: Selection,

    /// The folder that gets the new partition directories; made if it is not there
    #[arg(long, value_name = "DIR", value_parser = given())]
    pub(crate) into: PathBuf,

    /// Take back records too that were cut before the log was truncated below them, and segments that a truncation removed
    #[arg(long)]
    pub(crate) include_truncated: bool,

    /// Write nothing; say what would be salvaged and what is lost
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,

    /// One JSON line a partition instead of text
    #[arg(long)]
    pub(crate) json: bool,
}
