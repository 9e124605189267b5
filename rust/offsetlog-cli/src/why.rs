//! `offsetlog why`: what keeps records from being deleted, compacted or read, in a sentence each.

use crate::args::Why;
use crate::console::Console;
use crate::escape::escaped;
use crate::failure::Failure;
use crate::json::{Shown, write_json};
use crate::producers::{ProducerLine, line_of as producer_line};
use crate::progress::Progress;
use crate::select::Source;
use crate::unread::tell;
use crate::{EXIT_ERROR, EXIT_FINE, EXIT_NOTHING};
use offsetlog::BrokerSettings;
use offsetlog::disk::RealDisk;
use offsetlog_ops::{Answer, When, WhyOptions, why};
use serde::Serialize;
use std::io::Write;

/// An answer, as a JSON line. Times are milliseconds since 1970.
#[derive(Serialize)]
struct AnswerLine<'a> {
    topic: &'a str,
    partition: i32,
    path: Shown<'a>,
    question: &'static str,
    reason: &'static str,
    sentence: &'a str,
    remedy: &'a str,
    segment: Option<i64>,
    offset: Option<i64>,
    timestamp: Option<i64>,
    due_timestamp: Option<i64>,
    bytes: Option<u64>,
    producer: Option<ProducerLine<'a>>,
    settings: Vec<SettingLine<'a>>,
}

#[derive(Serialize)]
struct SettingLine<'a> {
    name: &'static str,
    value: Option<&'a str>,
    from: &'static str,
}

pub(crate) fn run(args: &Why, console: &mut Console<'_>) -> Result<i32, Failure> {
    let source = Source::open(&args.selection, console)?;
    let (bar, progress) = Progress::of_partitions(console);
    let how = WhyOptions {
        topics: args.selection.topics.clone(),
        partitions: args.selection.partitions.clone(),
        broker: args
            .broker
            .as_deref()
            .map(|path| BrokerSettings::read(&RealDisk, path))
            .transpose()?,
        metadata: args.metadata.clone(),
        now: args.now.map(|When(now)| now),
        progress,
    };
    let report = why(&source.log_dir, &how)?;
    drop(bar);
    for warning in &report.warnings {
        console.warn(warning);
    }
    for answer in &report.answers {
        if args.json {
            write_json(&mut console.out, &line_of(answer))?;
            console.out.write_all(b"\n")?;
        } else {
            write_text(answer, console)?;
        }
    }
    if tell(&report.unread, args.json, console)? {
        return Ok(EXIT_ERROR);
    }
    if report.answers.is_empty() {
        console.warn("no such partition here");
        return Ok(EXIT_NOTHING);
    }
    Ok(EXIT_FINE)
}

fn write_text(answer: &Answer, console: &mut Console<'_>) -> Result<(), Failure> {
    let head = format!(
        "{} {}: {}",
        answer.partition,
        answer.question.name(),
        answer.sentence
    );
    writeln!(console.out, "{}", escaped(&head))?;
    if !answer.remedy.is_empty() {
        writeln!(console.out, "  {}", escaped(&answer.remedy))?;
    }
    Ok(())
}

fn line_of(answer: &Answer) -> AnswerLine<'_> {
    let settings = answer.settings.iter().map(|setting| SettingLine {
        name: setting.name,
        value: setting.value.as_deref(),
        from: setting.source.name(),
    });
    AnswerLine {
        topic: &answer.partition.topic,
        partition: answer.partition.partition,
        path: Shown::path(&answer.path),
        question: answer.question.name(),
        reason: answer.reason.name(),
        sentence: &answer.sentence,
        remedy: &answer.remedy,
        segment: answer.segment,
        offset: answer.offset,
        timestamp: answer.timestamp,
        due_timestamp: answer.due_timestamp,
        bytes: answer.bytes,
        producer: answer.producer.as_ref().map(producer_line),
        settings: settings.collect(),
    }
}
