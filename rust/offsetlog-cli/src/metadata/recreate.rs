//! `offsetlog metadata --as-commands` and `--as-yaml`: what recreates a cluster's topics and settings.

use crate::args::Metadata;
use crate::console::Console;
use crate::failure::{Failure, with_advice};
use crate::progress::Progress;
use crate::{EXIT_ERROR, EXIT_FINE, EXIT_NOTHING};
use offsetlog::OpenOptions;
use offsetlog_ops::recreation;
use std::io::Write;

pub(super) fn run(
    args: &Metadata,
    options: &OpenOptions,
    console: &mut Console<'_>,
) -> Result<i32, Failure> {
    let (bar, progress) = Progress::of_directories(console);
    let found = recreation(&args.paths, &args.topics, options, &progress)?;
    drop(bar);
    for warning in &found.warnings {
        console.warn(warning);
    }
    let text = if args.as_yaml {
        found.kafka_topics(&args.strimzi_cluster, args.show_secrets)?
    } else {
        found.commands(
            &args.bootstrap_server,
            args.replica_assignment,
            args.show_secrets,
        )
    };
    console.out.write_all(text.as_bytes())?;
    if let Some(error) = &found.metadata_error {
        console.error(&format!(
            "topics are those of the directories, as the metadata cannot be read: {}",
            with_advice(error)
        ));
        return Ok(EXIT_ERROR);
    }
    if found.metadata.is_none() {
        console.warn("no metadata of the cluster here: what nobody knows is told in comments");
    }
    let is_nothing = found.topics.is_empty() && (found.is_of_some || found.metadata.is_none());
    Ok(if is_nothing { EXIT_NOTHING } else { EXIT_FINE })
}
