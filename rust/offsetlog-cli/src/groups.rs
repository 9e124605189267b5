//! `offsetlog groups`: consumer groups, what they have committed and how far behind that is, out of log dirs.

mod reset;

use crate::args::Groups;
use crate::console::Console;
use crate::escape::{escaped, shown};
use crate::failure::Failure;
use crate::json::write_json;
use crate::progress::Progress;
use crate::table::{Align, Table, or_dash};
use crate::unread::tell;
use crate::{EXIT_ERROR, EXIT_FINE, EXIT_NOTHING};
use offsetlog::{Group, GroupsOptions, LogDir, OpenOptions};
use offsetlog_ops::{When, groups_prometheus, span};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// One group, as a JSON line.
#[derive(Serialize)]
struct GroupLine<'a> {
    group: &'a str,
    kind: Option<&'a str>,
    state: String,
    protocol_type: Option<&'a str>,
    protocol: Option<&'a str>,
    epoch: Option<i32>,
    leader: Option<&'a str>,
    members: Vec<MemberLine<'a>>,
    offsets: Vec<OffsetLine<'a>>,
    share_offsets: Vec<ShareOffsetLine<'a>>,
}

#[derive(Serialize)]
struct MemberLine<'a> {
    member_id: &'a str,
    instance_id: Option<&'a str>,
    client_id: &'a str,
    client_host: &'a str,
    assignment: BTreeMap<&'a str, &'a [i32]>,
}

#[derive(Serialize)]
struct OffsetLine<'a> {
    topic: &'a str,
    partition: i32,
    offset: i64,
    leader_epoch: Option<i32>,
    log_end_offset: Option<i64>,
    lag: Option<i64>,
    first_unread_timestamp: Option<i64>,
    time_lag_ms: Option<i64>,
    commit_timestamp: i64,
    metadata: &'a str,
    topic_id: Option<String>,
    is_of_another_topic: bool,
}

#[derive(Serialize)]
struct ShareOffsetLine<'a> {
    topic: &'a str,
    partition: i32,
    start_offset: Option<i64>,
    leader_epoch: Option<i32>,
    delivery_complete_count: Option<i32>,
    log_end_offset: Option<i64>,
    lag: Option<i64>,
    first_unread_timestamp: Option<i64>,
    time_lag_ms: Option<i64>,
}

pub(crate) fn run(args: &Groups, console: &mut Console<'_>) -> Result<i32, Failure> {
    console.quiet = args.quiet;
    let options = OpenOptions {
        interrupt: console.terminal.interrupt.clone(),
        ..OpenOptions::default()
    };
    let log_dir = LogDir::open(&args.paths, &options)?;
    let (bar, progress) = Progress::of_partitions(console);
    let (mut groups, left_out, unread) = log_dir.groups(&GroupsOptions {
        // These outputs do not show how far groups are behind.
        without_lag: args.reset_csv || args.members || args.state,
        progress,
    })?;
    drop(bar);
    for warning in log_dir.warnings().iter().chain(&left_out) {
        console.warn(warning);
    }
    if !args.names.is_empty() {
        for name in &args.names {
            if !groups.iter().any(|group| group.group_id == *name) {
                console.warn(&format!("no group {} here", escaped(name)));
            }
        }
        groups.retain(|group| args.names.contains(&group.group_id));
    }
    let mut is_complete = true;
    let now = args.now.map_or_else(|| (options.clock)(), |When(now)| now);
    if args.json {
        for group in &groups {
            write_json(&mut console.out, &line_of(group, now))?;
            console.out.write_all(b"\n")?;
        }
    } else if args.prometheus {
        write_text(&groups_prometheus(&groups, now), console)?;
    } else if args.reset_csv {
        is_complete = reset::write(&groups, console)?;
    } else if args.members {
        members(&groups).write(console)?;
    } else if args.state {
        states(&groups).write(console)?;
    } else {
        offsets(&groups, now).write(console)?;
        let has = |what: fn(&Group) -> bool| groups.iter().any(what);
        if has(|group| !group.offsets.is_empty()) && has(|group| !group.share_offsets.is_empty()) {
            writeln!(console.out)?;
        }
        share_offsets(&groups, now).write(console)?;
    }
    if tell(&unread, args.json, console)? || !is_complete {
        return Ok(EXIT_ERROR);
    }
    if groups.is_empty() {
        console.warn("no groups here; they are in the log dirs that hold __consumer_offsets");
        return Ok(EXIT_NOTHING);
    }
    Ok(EXIT_FINE)
}

/// Writes text for another program unchanged. On a terminal nothing in it may steer the terminal, so it is shown escaped.
fn write_text(text: &str, console: &mut Console<'_>) -> io::Result<()> {
    if !console.terminal.stdout_is_terminal {
        return console.out.write_all(text.as_bytes());
    }
    for line in text.lines() {
        writeln!(console.out, "{}", escaped(line))?;
    }
    Ok(())
}

fn offsets(groups: &[Group], now: i64) -> Table {
    let mut table = Table::new(&[
        ("GROUP", Align::Left),
        ("TOPIC", Align::Left),
        ("PARTITION", Align::Right),
        ("CURRENT-OFFSET", Align::Right),
        ("LOG-END-OFFSET", Align::Right),
        ("LAG", Align::Right),
        ("TIME-LAG", Align::Right),
        ("COMMITTED-AT", Align::Left),
        ("METADATA", Align::Left),
    ]);
    for group in groups {
        for each in &group.offsets {
            table.push([
                escaped(&group.group_id),
                escaped(&each.topic),
                each.partition.to_string(),
                each.offset.to_string(),
                or_dash(each.log_end_offset),
                or_dash(each.lag()),
                or_dash(each.first_unread.age_ms(now).map(span)),
                When(each.commit_timestamp).to_string(),
                or_dash(shown(&each.metadata)),
            ]);
        }
    }
    table
}

fn share_offsets(groups: &[Group], now: i64) -> Table {
    let mut table = Table::new(&[
        ("GROUP", Align::Left),
        ("TOPIC", Align::Left),
        ("PARTITION", Align::Right),
        ("LEADER-EPOCH", Align::Right),
        ("START-OFFSET", Align::Right),
        ("LOG-END-OFFSET", Align::Right),
        ("LAG", Align::Right),
        ("TIME-LAG", Align::Right),
    ]);
    for group in groups {
        for each in &group.share_offsets {
            table.push([
                escaped(&group.group_id),
                escaped(&each.topic),
                each.partition.to_string(),
                or_dash(each.leader_epoch),
                or_dash(each.start_offset),
                or_dash(each.log_end_offset),
                or_dash(each.lag()),
                or_dash(each.first_unread.age_ms(now).map(span)),
            ]);
        }
    }
    table
}

fn states(groups: &[Group]) -> Table {
    let mut table = Table::new(&[
        ("GROUP", Align::Left),
        ("KIND", Align::Left),
        ("STATE", Align::Left),
        ("EPOCH", Align::Right),
        ("ASSIGNMENT-STRATEGY", Align::Left),
        ("MEMBERS", Align::Right),
    ]);
    for group in groups {
        table.push([
            escaped(&group.group_id),
            or_dash(shown(group.kind)),
            group.state.to_string(),
            or_dash(group.epoch),
            or_dash(group.protocol.as_deref().and_then(shown)),
            group.members.len().to_string(),
        ]);
    }
    table
}

fn members(groups: &[Group]) -> Table {
    let mut table = Table::new(&[
        ("GROUP", Align::Left),
        ("KIND", Align::Left),
        ("MEMBER-ID", Align::Left),
        ("INSTANCE-ID", Align::Left),
        ("CLIENT-ID", Align::Left),
        ("HOST", Align::Left),
        ("ASSIGNMENT", Align::Left),
    ]);
    for group in groups {
        for member in &group.members {
            let given = member.assignment.iter().map(|(topic, numbers)| {
                let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
                format!("{}({})", escaped(topic), numbers.join(","))
            });
            let given = given.collect::<Vec<_>>().join(" ");
            table.push([
                escaped(&group.group_id),
                or_dash(shown(group.kind)),
                escaped(&member.member_id),
                or_dash(member.instance_id.as_deref().and_then(shown)),
                or_dash(shown(&member.client_id)),
                or_dash(shown(&member.client_host)),
                or_dash(shown(&given)),
            ]);
        }
    }
    table
}

fn line_of(group: &Group, now: i64) -> GroupLine<'_> {
    let members = group.members.iter().map(|member| MemberLine {
        member_id: &member.member_id,
        instance_id: member.instance_id.as_deref(),
        client_id: &member.client_id,
        client_host: &member.client_host,
        assignment: member
            .assignment
            .iter()
            .map(|(topic, numbers)| (topic.as_str(), numbers.as_slice()))
            .collect(),
    });
    let offsets = group.offsets.iter().map(|each| OffsetLine {
        topic: &each.topic,
        partition: each.partition,
        offset: each.offset,
        leader_epoch: each.leader_epoch,
        log_end_offset: each.log_end_offset,
        lag: each.lag(),
        first_unread_timestamp: each.first_unread.timestamp(),
        time_lag_ms: each.first_unread.age_ms(now),
        commit_timestamp: each.commit_timestamp,
        metadata: &each.metadata,
        topic_id: Some(each.topic_id)
            .filter(|id| !id.is_zero())
            .map(|id| id.to_string()),
        is_of_another_topic: each.is_of_another_topic,
    });
    let share_offsets = group.share_offsets.iter().map(|each| ShareOffsetLine {
        topic: &each.topic,
        partition: each.partition,
        start_offset: each.start_offset,
        leader_epoch: each.leader_epoch,
        delivery_complete_count: each.delivery_complete_count,
        log_end_offset: each.log_end_offset,
        lag: each.lag(),
        first_unread_timestamp: each.first_unread.timestamp(),
        time_lag_ms: each.first_unread.age_ms(now),
    });
    GroupLine {
        group: &group.group_id,
        kind: Some(group.kind).filter(|kind| !kind.is_empty()),
        state: group.state.to_string(),
        protocol_type: group.protocol_type.as_deref(),
        protocol: group.protocol.as_deref(),
        epoch: group.epoch,
        leader: group.leader.as_deref(),
        members: members.collect(),
        offsets: offsets.collect(),
        share_offsets: share_offsets.collect(),
    }
}
