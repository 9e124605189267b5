//! `offsetlog groups --reset-csv`: the file for Kafka's tools on standard output, how to use it and what it lacks on standard error.

use super::write_text;
use crate::console::Console;
use crate::escape::{escaped, is_unsafe};
use offsetlog::Group;
use offsetlog_ops::{ResetPlan, reset_plan};
use std::fmt::Write;
use std::io;

/// Writes the file; returns whether all that was asked for is in it.
pub(super) fn write(groups: &[Group], console: &mut Console<'_>) -> io::Result<bool> {
    let plan = reset_plan(groups);
    write_text(&plan.csv, console)?;
    for refused in &plan.refused {
        let topic = refused.topic.as_deref().map(escaped);
        let topic = topic.map_or_else(String::new, |topic| format!(", topic {topic}"));
        let group = escaped(&refused.group);
        console.error(&format!(
            "group {group}{topic} is not in the file: {}",
            refused.reason
        ));
    }
    for group in groups.iter().filter(|group| group.offsets.is_empty()) {
        let group = escaped(&group.group_id);
        console.note(&format!("group {group} has committed no offsets"));
    }
    if plan.csv.is_empty() {
        return Ok(plan.refused.is_empty());
    }
    if let Some(lost) = lost(&plan) {
        console.note(&lost);
    }
    for (tool, names) in [
        ("kafka-consumer-groups.sh", &plan.groups),
        ("kafka-streams-groups.sh", &plan.streams_groups),
    ] {
        if !names.is_empty() {
            console.note(&command(tool, names));
        }
    }
    Ok(plan.refused.is_empty())
}

fn lost(plan: &ResetPlan) -> Option<String> {
    let parts = [
        (plan.with_metadata, "metadata"),
        (plan.with_leader_epoch, "a leader epoch"),
    ];
    let parts = parts.iter().filter(|(count, _)| *count > 0);
    let parts: Vec<String> = parts
        .map(|(count, what)| format!("{count} committed with {what}"))
        .collect();
    (!parts.is_empty()).then(|| {
        format!(
            "the file has offsets only; it lacks what is beside them: {}",
            parts.join(", ")
        )
    })
}

/// Each group by its name: `--all-groups` means those that the cluster has, and a restored one may have none yet.
fn command(tool: &str, groups: &[String]) -> String {
    let mut command = format!("to use FILE: {tool} --bootstrap-server HOST:9092 --reset-offsets");
    for group in groups {
        // A string takes every write.
        let _ = write!(command, " --group {}", shell_word(group));
    }
    command.push_str(" --from-file FILE --dry-run, then with --execute instead of --dry-run");
    command
}

/// A name as a word of a shell, without a character that could steer a terminal.
fn shell_word(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/:@%+".contains(&byte);
    if !name.is_empty() && name.bytes().all(is_plain) {
        return name.to_owned();
    }
    if !name.contains(is_unsafe) {
        return format!("'{}'", name.replace('\'', r"'\''"));
    }
    let mut word = "$'".to_owned();
    for character in name.chars() {
        // A string takes every write.
        let _ = match character {
            '\'' | '\\' => write!(word, "\\{character}"),
            plain if !is_unsafe(plain) => write!(word, "{plain}"),
            ascii if ascii.is_ascii() => write!(word, "\\x{:02x}", u32::from(ascii)),
            other => write!(word, "\\U{:08x}", u32::from(other)),
        };
    }
    word.push('\'');
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words_of_a_shell() {
        for (name, word) in [
            ("billing-2", "billing-2"),
            ("", "''"),
            ("it's $HOME", r"'it'\''s $HOME'"),
            ("a\x1b[1m'\\\u{202e}é", r"$'a\x1b[1m\'\\\U0000202eé'"),
        ] {
            assert_eq!(shell_word(name), word);
        }
    }
}
