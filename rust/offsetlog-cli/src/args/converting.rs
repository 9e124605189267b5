//! The verb that makes a new directory of an old one.

use super::writing::{Compression, Setting, parse_setting};
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

Exit codes: 0 done; 2 usage error or damage in OLD; 130 interrupted.")]
pub(crate) struct Convert {
    /// The partition directory to be converted, such as old/orders-0
    #[arg(value_name = "OLD")]
    pub(crate) old: PathBuf,

    /// The new partition directory: not there yet, or empty
    #[arg(value_name = "NEW")]
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
