//! `offsetlog restore`: the plan, the work, and what is left to be done by hand.

use crate::args::Restore;
use crate::console::Console;
use crate::escape::escaped;
use crate::failure::Failure;
use crate::json::{Shown, write_json};
use crate::progress::Progress;
use crate::salvage::{
    self, LossLine, TakenBackLine, left_out_line, loss_line, taken_back_line, words_of,
};
use crate::table::{Align, Table, human, or_dash};
use crate::{EXIT_DAMAGED, EXIT_ERROR, EXIT_FINE, EXIT_NOTHING};
use offsetlog::disk::IoCall;
use offsetlog::format::counted;
use offsetlog::{Error, OpenOptions, TopicPartition, local_path};
use offsetlog_ops::{
    PartitionState, PartitionToRestore, RestoreOptions, RestorePlan, Target, When, span,
};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

/// One partition, as a JSON line.
#[derive(Serialize)]
struct PartitionLine<'a> {
    topic: &'a str,
    partition: i32,
    state: &'static str,
    reason: Option<String>,
    source: Shown<'a>,
    other_replicas: Vec<ReplicaLine<'a>>,
    into: Vec<PlaceLine<'a>>,
    topic_id: Option<String>,
    log_start_offset: i64,
    log_end_offset: Option<i64>,
    is_cut: bool,
    bytes: u64,
    newest_timestamp: Option<i64>,
    leader_epoch: Option<i32>,
    leader_epoch_max: Option<i32>,
    records: Option<u64>,
    losses: Vec<LossLine<'a>>,
    taken_back: Vec<TakenBackLine<'a>>,
    left_out: Vec<salvage::LeftOutLine<'a>>,
    first_unstable_offset: Option<i64>,
}

#[derive(Serialize)]
struct ReplicaLine<'a> {
    path: Shown<'a>,
    less: &'a str,
}

#[derive(Serialize)]
struct PlaceLine<'a> {
    node_id: Option<i32>,
    path: Shown<'a>,
}

/// The plan, as the first JSON line of what is no dry run. Nothing else has its field: if the work ends early, it may be the last line.
#[derive(Serialize)]
struct PlanLine<'a> {
    plan: Planned<'a>,
}

/// The lines of a dry run in one.
#[derive(Serialize)]
struct Planned<'a> {
    partitions: Vec<PartitionLine<'a>>,
    #[serde(flatten)]
    whole: WholeLine<'a>,
}

/// The whole, as the last JSON line.
#[derive(Serialize)]
struct WholeLine<'a> {
    target: &'static str,
    dry_run: bool,
    bytes: u64,
    reading_seconds_min: Option<u64>,
    missing: Vec<String>,
    left_out: Vec<LeftOutLine<'a>>,
    bootstrap_checkpoints: Vec<Shown<'a>>,
    remaining: Vec<RemainingLine<'a>>,
    warnings: &'a [String],
}

#[derive(Serialize)]
struct LeftOutLine<'a> {
    name: &'a str,
    reason: &'a str,
}

#[derive(Serialize)]
struct RemainingLine<'a> {
    about: &'a str,
    reason: &'a str,
    commands: &'a [String],
}

pub(crate) fn run(args: &Restore, console: &mut Console<'_>) -> Result<i32, Failure> {
    console.quiet = args.quiet;
    let how = RestoreOptions {
        topics: args.topics.clone(),
        until: args.until.map(|When(until)| until),
        ends: args
            .offsets
            .as_deref()
            .map(read_ends)
            .transpose()?
            .unwrap_or_default(),
        new_cluster: args.new_cluster,
        metadata: args.metadata.clone(),
        broker: args.broker.clone(),
        replication_factor: args.replication_factor,
        single_replica: args.single_replica,
        keep_retention: args.keep_retention,
    };
    let options = OpenOptions {
        interrupt: console.terminal.interrupt.clone(),
        ..OpenOptions::default()
    };
    let mut plan = RestorePlan::make(&args.sources, &args.into, &how, &options)?;
    if !args.json {
        write_plan(&plan, args, console)?;
    } else if !args.dry_run {
        write_json(&mut console.out, &plan_line(&plan))?;
        console.out.write_all(b"\n")?;
    }
    if plan.partitions.is_empty() && plan.missing.is_empty() {
        write_rest(&plan, args, console)?;
        return Ok(if plan.has_losses() {
            EXIT_DAMAGED
        } else {
            EXIT_NOTHING
        });
    }
    if !args.dry_run {
        console.out.flush()?;
        let (bar, told) = Progress::told(console);
        let done = plan.run(told.as_ref());
        drop(bar);
        if let Err(error) = done {
            // What is done is done, and nobody else tells.
            let is_untouched =
                |state: &_| matches!(state, PartitionState::Planned | PartitionState::Refused(_));
            let partitions = plan.partitions.iter();
            let done = partitions.filter(|each| !is_untouched(&each.state));
            write_states(done, args, console)?;
            console.out.flush()?;
            return Err(Failure::Writing(error));
        }
    }
    write_states(&plan.partitions, args, console)?;
    write_rest(&plan, args, console)?;
    Ok(exit_code(&plan))
}

fn write_states<'p>(
    partitions: impl IntoIterator<Item = &'p PartitionToRestore>,
    args: &Restore,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    for each in partitions {
        if args.json {
            write_json(&mut console.out, &line_of(each))?;
            console.out.write_all(b"\n")?;
        } else {
            write_state(each, args.dry_run, console)?;
        }
    }
    Ok(())
}

/// Whether a partition could not be restored.
fn has_failed(plan: &RestorePlan) -> bool {
    plan.partitions.iter().any(|each| {
        matches!(
            each.state,
            PartitionState::Failed(_) | PartitionState::Refused(_)
        )
    })
}

fn exit_code(plan: &RestorePlan) -> i32 {
    if has_failed(plan) {
        EXIT_ERROR
    } else if plan.has_losses() {
        EXIT_DAMAGED
    } else {
        EXIT_FINE
    }
}

/// Reads lines of topic,partition,offset, the form of Kafka's own tools.
fn read_ends(path: &Path) -> Result<BTreeMap<TopicPartition, i64>, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::Engine(Error::io(IoCall::Read, path, error)))?;
    let mut ends = BTreeMap::new();
    for (number, line) in text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
    {
        let mut fields = line.split(',').map(|field| field.trim().trim_matches('"'));
        let end = (|| {
            let topic = fields.next().filter(|topic| !topic.is_empty())?.to_owned();
            let partition = fields.next()?.parse().ok().filter(|number| *number >= 0)?;
            let end: i64 = fields.next()?.parse().ok().filter(|end| *end >= 0)?;
            let partition = TopicPartition { topic, partition };
            fields.next().is_none().then_some((partition, end))
        })();
        let Some((partition, end)) = end else {
            return Err(Failure::Usage(format!(
                "{}, line {}: {line:?} found, topic,partition,offset expected",
                path.display(),
                number + 1
            )));
        };
        if ends.insert(partition, end).is_some() {
            return Err(Failure::Usage(format!(
                "{}, line {}: the partition stands there twice",
                path.display(),
                number + 1
            )));
        }
    }
    Ok(ends)
}

fn write_plan(
    plan: &RestorePlan,
    args: &Restore,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let into = match plan.target {
        Target::NewCluster => "a cluster that has not started yet",
        Target::StoppedBroker => "a stopped broker's log dirs",
        Target::Folder => "a folder of no broker",
    };
    let partitions = counted(plan.partitions.len(), "partition");
    let bytes = human(plan.bytes());
    let seconds = plan.reading_seconds_min();
    let time = seconds.map_or_else(String::new, |seconds| {
        let time =
            span(i64::try_from(seconds).map_or(i64::MAX, |seconds| seconds.saturating_mul(1000)));
        format!(" in {time} at least")
    });
    writeln!(
        console.out,
        "plan: {partitions} into {into}, {bytes} to read{time}"
    )?;
    let mut table = Table::new(&[
        ("PARTITION", Align::Left),
        ("START", Align::Right),
        ("END", Align::Right),
        ("BYTES", Align::Right),
        ("NEWEST", Align::Left),
        ("EPOCH", Align::Right),
        ("FROM", Align::Left),
        ("INTO", Align::Left),
    ]);
    for each in &plan.partitions {
        let into: Vec<String> = each
            .into
            .iter()
            .map(|(node, path)| place(*node, path, &args.into))
            .collect();
        let epoch = match (each.leader_epoch, each.leader_epoch_max) {
            (Some(epoch), Some(maximum)) => format!("{epoch} > {maximum}"),
            (epoch, _) => or_dash(epoch),
        };
        table.push([
            escaped(&name_of(each)),
            each.log_start_offset.to_string(),
            or_dash(each.log_end_offset),
            human(each.bytes),
            or_dash(each.newest_timestamp.map(When)),
            epoch,
            escaped(&folder_of(&each.source, &args.sources)),
            escaped(&if into.is_empty() {
                "-".to_owned()
            } else {
                into.join(" and ")
            }),
        ]);
    }
    table.write(console)?;
    for each in &plan.partitions {
        for (path, less) in &each.other_replicas {
            let line = format!(
                "{}: fills holes alone: {} {less}",
                name_of(each),
                path.display()
            );
            writeln!(console.out, "{}", escaped(&line))?;
        }
    }
    Ok(())
}

/// The log dir around a partition directory, as it was given.
fn folder_of(path: &Path, given: &[PathBuf]) -> String {
    let folder = path.parent().unwrap_or(path);
    let is_same = |given: &&PathBuf| local_path(given).is_ok_and(|given| given == folder);
    let given = given.iter().find(is_same).map_or(folder, PathBuf::as_path);
    given.display().to_string()
}

fn place(node: Option<i32>, path: &Path, given: &[PathBuf]) -> String {
    let folder = folder_of(path, given);
    match node {
        Some(node) => format!("{folder} (broker {node})"),
        None => folder,
    }
}

fn name_of(each: &PartitionToRestore) -> String {
    format!("{}-{}", each.topic, each.partition)
}

fn write_state(
    each: &PartitionToRestore,
    dry_run: bool,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let name = name_of(each);
    let mut lines = Vec::new();
    match &each.state {
        PartitionState::Planned if dry_run => {}
        PartitionState::Planned => lines.push(format!("{name}: not restored")),
        PartitionState::There(report) => {
            lines.push(format!("{name}: is there already, record for record"));
            lines.extend(words_of(report));
        }
        PartitionState::Restored(report) => {
            let records = counted(report.built.records, "record");
            lines.push(format!("{name}: {records} restored, and read back"));
            lines.extend(words_of(report));
        }
        PartitionState::Refused(reason) => lines.push(format!("{name}: refused: {reason}")),
        PartitionState::Failed(error) => lines.push(format!("{name}: failed: {error}")),
    }
    for line in lines {
        writeln!(console.out, "{}", escaped(&line))?;
    }
    Ok(())
}

fn write_rest(
    plan: &RestorePlan,
    args: &Restore,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    if args.json {
        write_json(&mut console.out, &whole_line(plan, args.dry_run))?;
        console.out.write_all(b"\n")?;
        return Ok(());
    }
    let mut lines = Vec::new();
    for missing in &plan.missing {
        let empty = if plan.target == Target::NewCluster {
            ": it begins empty"
        } else {
            ""
        };
        lines.push(format!(
            "missing: {missing} is in none of the sources{empty}"
        ));
    }
    for (name, reason) in &plan.left_out {
        lines.push(format!("left out: {name}: {reason}"));
    }
    let is_empty = plan.partitions.is_empty() && plan.missing.is_empty();
    if !args.dry_run && !is_empty && !has_failed(plan) {
        let files = plan.bootstrap_checkpoints.iter();
        lines.extend(files.map(|path| {
            format!(
                "topics written: {}; a controller reads the file of its metadata.log.dir alone",
                path.display()
            )
        }));
    }
    if !plan.remaining.is_empty() {
        lines.push("left to do:".to_owned());
    }
    for each in &plan.remaining {
        lines.push(format!("  {}: {}", each.about, each.reason));
        lines.extend(each.commands.iter().map(|command| format!("    {command}")));
    }
    for line in lines {
        writeln!(console.out, "{}", escaped(&line))?;
    }
    for warning in &plan.warnings {
        console.warn(warning);
    }
    Ok(())
}

fn plan_line(plan: &RestorePlan) -> PlanLine<'_> {
    PlanLine {
        plan: Planned {
            partitions: plan.partitions.iter().map(line_of).collect(),
            whole: whole_line(plan, false),
        },
    }
}

fn line_of(each: &PartitionToRestore) -> PartitionLine<'_> {
    let report = each.state.report();
    PartitionLine {
        topic: &each.topic,
        partition: each.partition,
        state: each.state.name(),
        reason: each.state.reason(),
        source: Shown::path(&each.source),
        other_replicas: each
            .other_replicas
            .iter()
            .map(|(path, less)| ReplicaLine {
                path: Shown::path(path),
                less,
            })
            .collect(),
        into: each
            .into
            .iter()
            .map(|(node_id, path)| PlaceLine {
                node_id: *node_id,
                path: Shown::path(path),
            })
            .collect(),
        topic_id: each.topic_id.map(|id| id.to_string()),
        log_start_offset: each.log_start_offset,
        log_end_offset: each.log_end_offset,
        is_cut: each.is_cut,
        bytes: each.bytes,
        newest_timestamp: each.newest_timestamp,
        leader_epoch: each.leader_epoch,
        leader_epoch_max: each.leader_epoch_max,
        records: report.map(|report| report.built.records),
        losses: report.map_or_else(Vec::new, |report| {
            report.losses.iter().map(loss_line).collect()
        }),
        taken_back: report.map_or_else(Vec::new, |report| {
            report.taken_back.iter().map(taken_back_line).collect()
        }),
        left_out: report.map_or_else(Vec::new, |report| {
            report.left_out.iter().map(left_out_line).collect()
        }),
        first_unstable_offset: report.and_then(|report| report.first_unstable_offset),
    }
}

fn whole_line(plan: &RestorePlan, dry_run: bool) -> WholeLine<'_> {
    WholeLine {
        target: plan.target.name(),
        dry_run,
        bytes: plan.bytes(),
        reading_seconds_min: plan.reading_seconds_min(),
        missing: plan.missing.iter().map(ToString::to_string).collect(),
        left_out: plan
            .left_out
            .iter()
            .map(|(name, reason)| LeftOutLine { name, reason })
            .collect(),
        bootstrap_checkpoints: plan
            .bootstrap_checkpoints
            .iter()
            .map(|path| Shown::path(path))
            .collect(),
        remaining: plan
            .remaining
            .iter()
            .map(|each| RemainingLine {
                about: &each.about,
                reason: &each.reason,
                commands: &each.commands,
            })
            .collect(),
        warnings: &plan.warnings,
    }
}
