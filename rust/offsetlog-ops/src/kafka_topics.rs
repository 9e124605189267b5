//! A plan as resources of kind `KafkaTopic` for Strimzi's operator.
//!
//! Every scalar is a number of a few digits or text in double quotes with escapes, so that each parser of YAML 1.1 and 1.2 reads what
//! was meant.

use crate::recreation::{Recreation, TopicToMake};
use crate::shell::comment;
use offsetlog::{Error, Result};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Strimzi's since 0.49, and the only one since 1.0.
const API_VERSION: &str = "kafka.strimzi.io/v1";
/// Most characters of a resource's name (RFC 1123, subdomain).
const NAME_MAXIMUM: usize = 253;
/// Most characters of a label's value, which the Kafka resource's name is in each topic.
const LABEL_MAXIMUM: usize = 63;
/// Digits of the hash at the end of a derived name.
const HASH_DIGITS: usize = 16;

impl Recreation {
    /// The topics as resources of kind `KafkaTopic`, for the Kafka resource that is called `cluster`. A topic whose name no resource may
    /// have gets a name made of it, and its own in `topicName`. Settings that are secrets are in it with `show_secrets` only.
    ///
    /// # Errors
    /// `Argument` if no Kafka resource can be called `cluster`.
    pub fn kafka_topics(&self, cluster: &str, show_secrets: bool) -> Result<String> {
        if !is_resource_name(cluster) || cluster.len() > LABEL_MAXIMUM {
            let reason = format!(
                "a Kafka resource has at most {LABEL_MAXIMUM} lower-case letters, digits, '-' and '.', and a letter or digit at each \
                 end, found {cluster:?}"
            );
            return Err(Error::argument("strimzi_cluster", reason));
        }
        let mut out = String::new();
        comment(
            &mut out,
            "Makes the topics of a cluster again, by Strimzi 0.49 or later. Read it before you apply it.",
        );
        comment(
            &mut out,
            "Topic ids cannot be given to an operator: each topic gets a new one. The label names the Kafka resource (--strimzi-cluster).",
        );
        for doubt in self.doubts() {
            comment(&mut out, &format!("WARNING: {doubt}"));
        }
        let mut names: BTreeSet<String> = self
            .topics
            .iter()
            .filter(|topic| is_resource_name(&topic.name))
            .map(|topic| topic.name.clone())
            .collect();
        for topic in &self.topics {
            write_topic(&mut out, topic, cluster, &mut names, show_secrets);
        }
        for (name, why) in &self.left_out {
            comment(&mut out, &format!("left out: {name}: {why}"));
        }
        Ok(out)
    }
}

fn write_topic(
    out: &mut String,
    topic: &TopicToMake,
    cluster: &str,
    names: &mut BTreeSet<String>,
    show_secrets: bool,
) {
    let topic = &topic.for_new_cluster(show_secrets);
    if topic.partitions < 1 {
        let text = format!("left out: {}: no partition of it is known", topic.name);
        comment(out, &text);
        return;
    }
    let name = if is_resource_name(&topic.name) {
        topic.name.clone()
    } else {
        made_name(&topic.name, names)
    };
    out.push_str("---\n");
    for note in &topic.notes {
        comment(out, &format!("{}: {note}", topic.name));
    }
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "apiVersion: {}\nkind: \"KafkaTopic\"\nmetadata:\n  name: {}\n  labels:\n    \"strimzi.io/cluster\": {}\nspec:",
        scalar(API_VERSION),
        scalar(&name),
        scalar(cluster)
    );
    if name != topic.name {
        let _ = writeln!(out, "  topicName: {}", scalar(&topic.name));
    }
    let _ = writeln!(out, "  partitions: {}", topic.partitions);
    if let Some(factor) = topic.replication_factor {
        let _ = writeln!(out, "  replicas: {factor}");
    }
    if !topic.configs.is_empty() {
        out.push_str("  config:\n");
    }
    for (key, value) in &topic.configs {
        // Text for numbers too: the operator takes it, and no parser makes another number of it.
        let _ = writeln!(out, "    {}: {}", scalar(key), scalar(value));
    }
}

/// Text in double quotes, ASCII only.
fn scalar(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        let _ = match character {
            '"' | '\\' => write!(out, "\\{character}"),
            ' '..='~' => write!(out, "{character}"),
            _ if u32::from(character) <= 0xffff => write!(out, "\\u{:04x}", u32::from(character)),
            _ => write!(out, "\\U{:08x}", u32::from(character)),
        };
    }
    out.push('"');
    out
}

/// Whether a resource may have this name: labels of lower-case letters, digits and `-` with dots between them (RFC 1123).
fn is_resource_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() <= NAME_MAXIMUM
        && name.split('.').all(|label| {
            label.bytes().all(|byte| is_letter(byte) || byte == b'-')
                && label.bytes().next().is_some_and(is_letter)
                && label.bytes().next_back().is_some_and(is_letter)
        })
}

/// Derives a name from a topic's: leaves out what it may not contain, and adds a hash of the whole to tell it from others.
fn made_name(topic: &str, names: &mut BTreeSet<String>) -> String {
    let mut stem = String::new();
    for character in topic.chars() {
        if character.is_ascii_alphanumeric() {
            stem.push(character.to_ascii_lowercase());
        } else if !stem.is_empty() && !stem.ends_with('-') {
            stem.push('-');
        }
    }
    stem.truncate(NAME_MAXIMUM - HASH_DIGITS - 1);
    let stem = stem.trim_end_matches('-');
    let stem = if stem.is_empty() { "topic" } else { stem };
    let mut hash = hash_of(topic);
    loop {
        let name = format!("{stem}-{hash:0HASH_DIGITS$x}");
        if names.insert(name.clone()) {
            return name;
        }
        hash = hash.wrapping_add(1);
    }
}

/// FNV-1a, 64 bits: the same name in each run.
fn hash_of(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_resources() {
        for name in ["a", "orders", "a.b-c.0", "0"] {
            assert!(is_resource_name(name), "{name}");
        }
        let long = "x".repeat(249);
        for name in [
            "", "A", "_a", "a_b", ".a", "a.", "a..b", "-a", "a-", "a.-b", "a-.b",
        ] {
            assert!(!is_resource_name(name), "{name}");
            let mut names = BTreeSet::new();
            let made = made_name(&format!("{name}{long}"), &mut names);
            assert!(is_resource_name(&made), "{made}");
            assert!(is_resource_name(&made_name(name, &mut names)));
        }
    }

    #[test]
    fn no_two_topics_have_one_name() {
        let mut names = BTreeSet::new();
        let made: BTreeSet<String> = ["Orders", "orders_", "_orders", "ORDERS", "Orders"]
            .iter()
            .map(|name| made_name(name, &mut names))
            .collect();
        assert_eq!(made.len(), 5);
        assert_eq!(
            made_name("A", &mut BTreeSet::new()),
            made_name("A", &mut BTreeSet::new())
        );
    }

    #[test]
    fn every_scalar_is_in_quotes_and_ascii() {
        assert_eq!(
            scalar("a\"\\\n\u{e9}\u{1f600}"),
            "\"a\\\"\\\\\\u000a\\u00e9\\U0001f600\""
        );
    }
}
