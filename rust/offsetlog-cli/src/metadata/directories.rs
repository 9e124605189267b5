//! `offsetlog metadata --directories`: what a broker would do with each log dir and each directory in it.

use super::print;
use crate::args::Metadata;
use crate::console::Console;
use crate::escape::escaped;
use crate::failure::{Failure, with_advice};
use crate::json::Shown;
use crate::progress::Progress;
use crate::table::{Align, Table, or_dash};
use crate::{EXIT_ERROR, EXIT_FINE};
use offsetlog::OpenOptions;
use offsetlog_ops::{DirectoryIdentity, DirectoryKind, identity};
use serde::Serialize;

/// One directory, as a JSON line.
#[derive(Serialize)]
struct DirectoryLine<'a> {
    path: Shown<'a>,
    kind: &'static str,
    outcome: &'static str,
    reason: &'a str,
    topic: Option<&'a str>,
    partition: Option<i32>,
    topic_id: Option<String>,
    version: Option<i32>,
    cluster_id: Option<&'a str>,
    node_id: Option<i32>,
    directory_id: Option<String>,
}

pub(super) fn run(
    args: &Metadata,
    options: &OpenOptions,
    console: &mut Console<'_>,
) -> Result<i32, Failure> {
    let (bar, progress) = Progress::of_directories(console);
    let found = identity(&args.paths, options, &progress)?;
    drop(bar);
    for warning in &found.warnings {
        console.warn(warning);
    }
    if !found.has_metadata && found.metadata_error.is_none() {
        console.warn(
            "no metadata of the cluster here: give the metadata.log.dir, or ZooKeeper's dataDir, beside the log dirs",
        );
    }
    for name in &args.topics {
        let is_of = |each: &DirectoryIdentity| each.topic.as_ref() == Some(name);
        if !found.directories.iter().any(is_of) {
            console.warn(&format!("no directory of topic {}", escaped(name)));
        }
    }
    let is_chosen = |each: &&DirectoryIdentity| {
        let topic = each.topic.as_ref();
        args.topics.is_empty() || topic.is_some_and(|topic| args.topics.contains(topic))
    };
    let chosen: Vec<_> = found.directories.iter().filter(is_chosen).collect();
    let lines: Vec<_> = chosen.iter().map(|each| line(each)).collect();
    let code = print(&lines, |_| table(&chosen), args.json, console)?;
    if let Some(error) = &found.metadata_error {
        console.error(&format!(
            "the metadata cannot be read: {}",
            with_advice(error)
        ));
        return Ok(if code == EXIT_FINE { EXIT_ERROR } else { code });
    }
    Ok(code)
}

fn line(each: &DirectoryIdentity) -> DirectoryLine<'_> {
    DirectoryLine {
        path: Shown::path(&each.path),
        kind: each.kind.name(),
        outcome: each.outcome.name(),
        reason: &each.reason,
        topic: each.topic.as_deref(),
        partition: each.partition,
        topic_id: each.topic_id.map(|id| id.to_string()),
        version: each.version,
        cluster_id: each.cluster_id.as_deref(),
        node_id: each.node_id,
        directory_id: each.directory_id.map(|id| id.to_string()),
    }
}

fn table(all: &[&DirectoryIdentity]) -> Table {
    let mut table = Table::new(&[
        ("NODE", Align::Right),
        ("KIND", Align::Left),
        ("ID", Align::Left),
        ("BROKER", Align::Left),
        ("DIRECTORY", Align::Left),
        ("WHY", Align::Left),
    ]);
    for each in all {
        let id = match each.kind {
            DirectoryKind::LogDir => each.directory_id,
            _ => each.topic_id,
        };
        table.push([
            or_dash(each.node_id),
            each.kind.name().to_owned(),
            or_dash(id),
            each.outcome.name().to_owned(),
            escaped(&each.path.display().to_string()),
            escaped(&each.reason),
        ]);
    }
    table
}
