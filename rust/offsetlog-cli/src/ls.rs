//! `offsetlog ls`: partitions or topics, with sizes, offsets and times.

use crate::args::{Ls, Selection};
use crate::console::Console;
use crate::failure::{Failure, with_advice};
use crate::json::{Shown, write_json};
use crate::progress::Progress;
use crate::select::{Chosen, Source};
use crate::table::{Align, Table, human, or_dash};
use crate::unread::of_one;
use crate::{EXIT_ERROR, EXIT_FINE, EXIT_NOTHING};
use offsetlog::format::name::{DirectoryName, DirectoryState};
use offsetlog::{Log, ScanOptions};
use offsetlog_ops::When;
use serde::{Serialize, Serializer};
use std::io::Write;
use std::path::{Path, PathBuf};

/// What messages of magic 0 have for a timestamp.
const NO_TIMESTAMP: i64 = -1;

/// One partition, as a JSON line. Times are milliseconds since 1970.
#[derive(Debug, Serialize)]
struct PartitionLine {
    topic: String,
    partition: i32,
    topic_id: Option<String>,
    #[serde(serialize_with = "show_path")]
    path: PathBuf,
    segments: Option<u64>,
    size_bytes: Option<u64>,
    log_start_offset: Option<i64>,
    log_end_offset: Option<i64>,
    high_watermark: Option<i64>,
    last_stable_offset: Option<i64>,
    leader_epoch: Option<i32>,
    first_timestamp: Option<i64>,
    last_timestamp: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stray: Option<String>,
    /// Why something of it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// The answer, or the first failure of one partition.
fn known<T>(
    answer: Result<T, offsetlog::Error>,
    failure: &mut Option<offsetlog::Error>,
) -> Option<T> {
    match answer {
        Ok(answer) => Some(answer),
        Err(error) => {
            if failure.is_none() || error.is_of_process() {
                *failure = Some(error);
            }
            None
        }
    }
}

fn show_path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    Shown::path(path).serialize(serializer)
}

impl PartitionLine {
    /// What can be shown of a log, and the first failure: damage hides only what it touches.
    fn of(log: &Log) -> (Self, Option<offsetlog::Error>) {
        let mut failure = None;
        let failed = &mut failure;
        let segments = known(log.segments(), failed);
        let log_end_offset = known(log.log_end_offset(), failed);
        let line = Self {
            topic: log.topic().to_owned(),
            partition: log.partition(),
            topic_id: known(log.topic_id(), failed)
                .flatten()
                .map(|id| id.to_string()),
            path: log.path().to_path_buf(),
            segments: segments.as_ref().map(|segments| segments.len() as u64),
            size_bytes: segments.map(|all| all.iter().map(|segment| segment.size_bytes).sum()),
            log_start_offset: known(log.log_start_offset(), failed),
            log_end_offset,
            high_watermark: known(log.high_watermark(), failed),
            last_stable_offset: known(log.last_stable_offset(), failed),
            leader_epoch: known(log.leader_epoch(), failed).flatten(),
            first_timestamp: known(first_timestamp(log), failed).flatten(),
            last_timestamp: log_end_offset
                .and_then(|end| known(last_timestamp(log, end), failed).flatten()),
            stray: None,
            error: None,
        };
        (line, failure)
    }

    /// Of a partition that cannot be opened.
    fn unopened(chosen: &Chosen, path: PathBuf) -> Self {
        Self {
            topic: chosen.topic.clone(),
            partition: chosen.partition,
            topic_id: None,
            path,
            segments: None,
            size_bytes: None,
            log_start_offset: None,
            log_end_offset: None,
            high_watermark: None,
            last_stable_offset: None,
            leader_epoch: None,
            first_timestamp: None,
            last_timestamp: None,
            stray: None,
            error: None,
        }
    }
}

/// Timestamp of the first record; batch headers do not tell, since a log may start within a batch.
fn first_timestamp(log: &Log) -> Result<Option<i64>, offsetlog::Error> {
    let mut scan = log.scan(&ScanOptions {
        limit: Some(1),
        ..ScanOptions::default()
    })?;
    while let Some(mut batch) = scan.next_batch()? {
        if let Some(record) = batch.next_record()? {
            return Ok(Some(record.timestamp).filter(|timestamp| *timestamp != NO_TIMESTAMP));
        }
    }
    Ok(None)
}

/// Greatest timestamp of the last batch, which a transaction's marker may be: one look-up.
fn last_timestamp(log: &Log, log_end_offset: i64) -> Result<Option<i64>, offsetlog::Error> {
    if log.log_start_offset()? >= log_end_offset {
        return Ok(None);
    }
    let last = log.locate(log_end_offset - 1)?.batch;
    Ok(last
        .map(|batch| batch.max_timestamp)
        .filter(|timestamp| *timestamp != NO_TIMESTAMP))
}

/// One topic, as a JSON line.
#[derive(Debug, Serialize)]
struct TopicLine {
    topic: String,
    partitions: Vec<i32>,
    segments: u64,
    size_bytes: u64,
    first_timestamp: Option<i64>,
    last_timestamp: Option<i64>,
    /// Partitions of which something could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unread: Vec<i32>,
}

impl From<&PartitionLine> for TopicLine {
    fn from(line: &PartitionLine) -> Self {
        Self {
            topic: line.topic.clone(),
            partitions: vec![line.partition],
            segments: line.segments.unwrap_or_default(),
            size_bytes: line.size_bytes.unwrap_or_default(),
            first_timestamp: line.first_timestamp,
            last_timestamp: line.last_timestamp,
            unread: line.error.iter().map(|_| line.partition).collect(),
        }
    }
}

impl TopicLine {
    fn add(&mut self, line: &PartitionLine) {
        self.partitions.push(line.partition);
        self.segments += line.segments.unwrap_or_default();
        self.size_bytes += line.size_bytes.unwrap_or_default();
        self.unread
            .extend(line.error.iter().map(|_| line.partition));
        self.first_timestamp = [self.first_timestamp, line.first_timestamp]
            .into_iter()
            .flatten()
            .min();
        self.last_timestamp = self.last_timestamp.max(line.last_timestamp);
    }
}

pub(crate) fn run(args: &Ls, console: &mut Console<'_>) -> Result<i32, Failure> {
    let source = Source::open(&args.selection, console)?;
    let mut lines = Vec::with_capacity(source.chosen.len());
    let mut damaged = false;
    let progress = Progress::new(console, source.chosen.len() as u64);
    for (done, chosen) in source.chosen.iter().enumerate() {
        progress.set(done as u64, &chosen.topic);
        let (mut line, failure) = match source.log(chosen, console) {
            Ok(log) => {
                let (line, mut failure) = PartitionLine::of(&log);
                if let Some(Some(torn)) = known(log.torn_tail(), &mut failure) {
                    console.warn(&format!("{}: {torn}", chosen.name()));
                }
                (line, failure)
            }
            Err(failure) => {
                let line = PartitionLine::unopened(chosen, source.path_of(chosen));
                (line, Some(of_one(failure)?))
            }
        };
        if let Some(error) = failure {
            // One damaged partition does not hide the others, nor what is sound of itself.
            let error = of_one(error.into())?;
            console.error(&format!("{}: {}", chosen.name(), with_advice(&error)));
            line.error = Some(error.to_string());
            damaged = true;
        }
        lines.push(line);
    }
    drop(progress);
    tell_set_aside(&args.selection, console);
    let mut strays = source.strays(console);
    for line in &mut lines {
        line.stray = strays.remove(&line.path);
    }
    match (args.by_topic, args.json) {
        (false, true) => write_lines(&lines, console)?,
        (false, false) => partition_table(&lines, args.human).write(console)?,
        (true, true) => write_lines(&by_topic(&lines), console)?,
        (true, false) => topic_table(&by_topic(&lines), args.human).write(console)?,
    }
    Ok(if damaged {
        EXIT_ERROR
    } else if lines.is_empty() {
        EXIT_NOTHING
    } else {
        EXIT_FINE
    })
}

/// Reports that a broker has set directories aside in the listed log dirs: their records are in no partition of the list.
fn tell_set_aside(selection: &Selection, console: &mut Console<'_>) {
    let is_asked = |topic: &str| {
        let asked = &selection.topics;
        asked.is_empty() || asked.iter().any(|asked| asked == topic)
    };
    let is_set_aside = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        DirectoryName::parse(&name)
            .is_ok_and(|parsed| parsed.state == DirectoryState::Stray && is_asked(parsed.topic))
    };
    let folders = selection
        .paths
        .iter()
        .filter_map(|path| path.read_dir().ok());
    let entries = folders.flatten().filter_map(Result::ok);
    let mut found: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(is_set_aside)
        .collect();
    found.sort();
    let Some(first) = found.first().map(|first| first.display()) else {
        return;
    };
    let which = match found.len() {
        1 => format!("{first} is not listed: a broker has set it aside as a stray"),
        count => format!(
            "{count} directories are not listed: a broker has set them aside as strays, {first} first"
        ),
    };
    console.warn(&format!(
        "{which}; `offsetlog metadata --directories` says what else a broker would do, and every verb reads one by its path"
    ));
}

fn by_topic(lines: &[PartitionLine]) -> Vec<TopicLine> {
    let mut topics: Vec<TopicLine> = Vec::new();
    for line in lines {
        match topics.last_mut() {
            Some(last) if last.topic == line.topic => last.add(line),
            _ => topics.push(line.into()),
        }
    }
    topics
}

fn write_lines<T: Serialize>(lines: &[T], console: &mut Console<'_>) -> Result<(), Failure> {
    for line in lines {
        write_json(&mut console.out, line)?;
        console.out.write_all(b"\n")?;
    }
    Ok(())
}

fn size(bytes: u64, for_people: bool) -> String {
    if for_people {
        human(bytes)
    } else {
        bytes.to_string()
    }
}

fn partition_table(lines: &[PartitionLine], for_people: bool) -> Table {
    let mut table = Table::new(&[
        ("TOPIC", Align::Left),
        ("PARTITION", Align::Right),
        ("SEGMENTS", Align::Right),
        ("BYTES", Align::Right),
        ("LOG-START", Align::Right),
        ("LOG-END", Align::Right),
        ("HIGH-WATERMARK", Align::Right),
        ("LEADER-EPOCH", Align::Right),
        ("FIRST-TIME", Align::Left),
        ("LAST-TIME", Align::Left),
    ]);
    for line in lines {
        table.push([
            line.topic.clone(),
            line.partition.to_string(),
            or_dash(line.segments),
            or_dash(line.size_bytes.map(|bytes| size(bytes, for_people))),
            or_dash(line.log_start_offset),
            or_dash(line.log_end_offset),
            or_dash(line.high_watermark),
            or_dash(line.leader_epoch),
            or_dash(line.first_timestamp.map(When)),
            or_dash(line.last_timestamp.map(When)),
        ]);
    }
    table
}

fn topic_table(lines: &[TopicLine], for_people: bool) -> Table {
    let mut table = Table::new(&[
        ("TOPIC", Align::Left),
        ("PARTITIONS", Align::Right),
        ("SEGMENTS", Align::Right),
        ("BYTES", Align::Right),
        ("FIRST-TIME", Align::Left),
        ("LAST-TIME", Align::Left),
    ]);
    for line in lines {
        table.push([
            line.topic.clone(),
            line.partitions.len().to_string(),
            line.segments.to_string(),
            size(line.size_bytes, for_people),
            or_dash(line.first_timestamp.map(When)),
            or_dash(line.last_timestamp.map(When)),
        ]);
    }
    table
}
