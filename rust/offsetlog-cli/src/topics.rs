//! `offsetlog create` and `offsetlog delete`: topics of log dirs.

use crate::EXIT_FINE;
use crate::args::{Create, Delete, Setting};
use crate::console::Console;
use crate::escape::escaped;
use crate::failure::Failure;
use crate::json::{Shown, write_json};
use offsetlog::disk::{OverlayDisk, RealDisk};
use offsetlog::{BrokerSettings, LogConfig, LogDir, LogDirOptions, NewTopic, OpenOptions};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One partition that was made or deleted, as a JSON line.
#[derive(Serialize)]
struct PartitionLine<'a> {
    topic: &'a str,
    partition: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic_id: Option<String>,
    path: Shown<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dry_run: Option<bool>,
}

pub(crate) fn create(args: &Create, console: &mut Console<'_>) -> Result<i32, Failure> {
    let config = config_of(&args.settings)?;
    let log_dir = open(&args.paths, console)?;
    let topic = NewTopic {
        name: &args.topic,
        partitions: args.partitions,
        config,
        topic_id: args.topic_id,
    };
    let made = log_dir.create_topic(&topic);
    let closed = log_dir.close();
    let topic_id = made.map_err(Failure::Writing)?;
    closed.map_err(Failure::Writing)?;
    for (partition, path) in log_dir.directories(&args.topic) {
        if args.json {
            let line = PartitionLine {
                topic: &args.topic,
                partition,
                topic_id: Some(topic_id.to_string()),
                path: Shown::path(&path),
                dry_run: None,
            };
            write_line(console, &line)?;
        } else {
            writeln!(console.out, "{}", shown(&path))?;
        }
    }
    Ok(EXIT_FINE)
}

pub(crate) fn delete(args: &Delete, console: &mut Console<'_>) -> Result<i32, Failure> {
    // Only an existing topic can be deleted: no folder is created for that.
    LogDir::open(&args.paths, &OpenOptions::default()).map_err(Failure::Writing)?;
    let terms = LogDirOptions {
        internal_topics: args.internal.iter().cloned().collect(),
        ..LogDirOptions::default()
    };
    let log_dir = open_with(&args.paths, &terms, args.dry_run, console)?;
    let directories = log_dir.directories(&args.topic);
    let deleted = if args.dry_run {
        log_dir.check_delete(&args.topic)
    } else {
        log_dir.delete_topic(&args.topic)
    };
    let closed = log_dir.close();
    deleted.map_err(Failure::Writing)?;
    // Lines of checkpoints that find no room go when a topic of the name is made.
    if let Err(error) = closed
        && !error.is_out_of_room()
    {
        return Err(Failure::Writing(error));
    }
    for (partition, path) in directories {
        if args.json {
            let line = PartitionLine {
                topic: &args.topic,
                partition,
                topic_id: None,
                path: Shown::path(&path),
                dry_run: Some(args.dry_run),
            };
            write_line(console, &line)?;
        } else {
            let verb = if args.dry_run {
                "would be deleted"
            } else {
                "deleted"
            };
            writeln!(console.out, "{}: {verb}", shown(&path))?;
        }
    }
    Ok(EXIT_FINE)
}

/// The defaults that a broker's `server.properties` sets for topics without settings of their own.
pub(crate) fn broker_defaults(path: Option<&Path>) -> Result<LogConfig, Failure> {
    let Some(path) = path else {
        return Ok(LogConfig::default());
    };
    let settings = BrokerSettings::read(&RealDisk, path).map_err(Failure::Writing)?;
    Ok(settings.topic_defaults)
}

/// Log dirs for appending, with what was odd told.
pub(crate) fn open(paths: &[PathBuf], console: &mut Console<'_>) -> Result<LogDir, Failure> {
    open_with(paths, &LogDirOptions::default(), false, console)
}

/// The same, with what is known of the cluster; for a dry run every change stays in memory.
pub(crate) fn open_with(
    paths: &[PathBuf],
    how: &LogDirOptions,
    dry_run: bool,
    console: &mut Console<'_>,
) -> Result<LogDir, Failure> {
    let mut options = OpenOptions {
        interrupt: console.terminal.interrupt.clone(),
        ..OpenOptions::default()
    };
    if dry_run {
        options.disk = Arc::new(OverlayDisk::new(options.disk));
    }
    let log_dir = LogDir::open_for_append(paths, &options, how).map_err(Failure::Writing)?;
    for warning in log_dir.warnings() {
        console.warn(&warning);
    }
    Ok(log_dir)
}

pub(crate) fn config_of(settings: &[Setting]) -> Result<LogConfig, Failure> {
    let pairs = unique(settings)?;
    LogConfig::parse(pairs).map_err(Failure::Writing)
}

/// Settings by name, each given once.
pub(crate) fn unique(settings: &[Setting]) -> Result<BTreeMap<&str, &str>, Failure> {
    let mut pairs = BTreeMap::new();
    for Setting(name, value) in settings {
        if pairs.insert(name.as_str(), value.as_str()).is_some() {
            let text = format!("the setting {name} is given twice");
            return Err(Failure::Usage(text));
        }
    }
    Ok(pairs)
}

pub(crate) fn write_line(console: &mut Console<'_>, line: &impl Serialize) -> Result<(), Failure> {
    write_json(&mut console.out, line)?;
    console.out.write_all(b"\n")?;
    Ok(())
}

/// A directory as people would write it from where they are.
pub(crate) fn shown(path: &Path) -> String {
    let here = std::env::current_dir().ok();
    let near = here.and_then(|here| path.strip_prefix(here).ok());
    escaped(&near.unwrap_or(path).to_string_lossy())
}
