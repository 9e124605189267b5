//! A topic's own settings with the values that Kafka takes them for: case and blanks of their texts do not matter.

use offsetlog::{EffectiveConfig, LogConfig, MetadataImage, is_secret, settings};
use std::collections::{BTreeMap, BTreeSet};

/// The values of a topic's own settings. What the topic does not set, and what is no value, is Kafka's default.
pub(crate) fn topic_config(configs: &BTreeMap<String, String>) -> LogConfig {
    let holds = EffectiveConfig::on_broker(configs, &MetadataImage::default(), None, None);
    holds.config().clone()
}

/// The settings that segments are built with. What offsetlog does not know, or does not take, has no effect: a topic may have segments that
/// are smaller than they may be today, and its other settings hold all the same.
pub(crate) fn config_to_build_with(configs: &BTreeMap<String, String>) -> LogConfig {
    configs
        .iter()
        .fold(LogConfig::default(), |config, (name, value)| {
            config.with(name, value).unwrap_or(config)
        })
}

/// Settings that kafka-reassign-partitions.sh adds for a reassignment, and removes when it is told that the reassignment is complete.
const THROTTLES: [&str; 5] = [
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
];

/// A setting that a new cluster does not get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NotGiven {
    name: String,
    value: String,
    why: String,
}

impl NotGiven {
    /// The setting, with its value if that may be shown, and why.
    pub(crate) fn told(&self, resource_type: &str, show_secrets: bool) -> String {
        let Self { name, value, why } = self;
        if show_secrets || !is_secret(resource_type, name) {
            format!("{name}={value}: {why}")
        } else {
            format!("{name}: {why}")
        }
    }
}

/// Why a setting limits a reassignment that was going on; `None` for any other. The new cluster has no such reassignment, so nothing would
/// remove the limit there.
pub(crate) fn throttle(name: &str, value: &str) -> Option<NotGiven> {
    THROTTLES.contains(&name).then(|| NotGiven {
        name: name.to_owned(),
        value: value.to_owned(),
        why: "it limits a reassignment, and in a new cluster nothing would remove it".to_owned(),
    })
}

/// Removes from a topic's own settings those that a new cluster cannot have, and returns them. Kafka 4.3 makes no topic with a setting that
/// it does not know or whose value it refuses, and a broker cannot open a log with a value that is refused. The few odd values that Kafka
/// takes and offsetlog does not (docs/settings.md) are removed too. Of settings that contradict each other, the later ones in the order of
/// names are removed; one that is allowed beside another one stays beside it.
pub(crate) fn remove_not_given(configs: &mut BTreeMap<String, String>) -> Vec<NotGiven> {
    let mut removed = Vec::new();
    configs.retain(|name, value| {
        let why = throttle(name, value);
        let is_kept = why.is_none();
        removed.extend(why);
        is_kept
    });
    let pairs = configs.iter();
    if LogConfig::parse(pairs.map(|(name, value)| (name.as_str(), value.as_str()))).is_ok() {
        return removed;
    }
    // One may be allowed only beside another one.
    let mut taken = LogConfig::default();
    let mut names = BTreeSet::new();
    loop {
        let before = names.len();
        for (name, value) in configs.iter() {
            if !names.contains(name)
                && let Ok(with) = taken.with(name, value)
            {
                taken = with;
                names.insert(name.clone());
            }
        }
        if names.len() == before {
            break;
        }
    }
    configs.retain(|name, value| {
        let why = match taken.with(name, value) {
            Ok(_) => return true,
            Err(_) if !settings().iter().any(|setting| setting.name == name) => {
                "Kafka 4.3 has no such setting".to_owned()
            }
            Err(error) => format!("the value is refused: {error}"),
        };
        removed.push(NotGiven {
            name: name.clone(),
            value: value.clone(),
            why,
        });
        false
    });
    removed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pairs = pairs.iter();
        let owned = pairs.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        owned.collect()
    }

    fn of(pairs: &[(&str, &str)]) -> LogConfig {
        topic_config(&map(pairs))
    }

    #[test]
    fn values_are_those_that_kafka_reads() {
        for text in ["true", "TRUE", " True "] {
            assert!(of(&[("remote.storage.enable", text)]).remote_storage_enable());
        }
        for text in ["false", "no", ""] {
            assert!(!of(&[("remote.storage.enable", text)]).remote_storage_enable());
        }
        assert!(of(&[("cleanup.policy", "delete , compact")]).is_compacted());
        assert_eq!(of(&[("retention.ms", " -1 ")]).retention_ms(), -1);
        assert_eq!(
            of(&[]),
            LogConfig::default(),
            "no broker is asked for what the topic does not set"
        );
    }

    /// One that Kafka does not know takes none along that is valid beside others.
    #[test]
    fn what_is_allowed_together_stays_together() {
        let mut configs = map(&[
            ("local.retention.ms", "700000000"),
            ("message.format.version", "3.0"),
            ("remote.storage.enable", "true"),
            ("retention.ms", "864000000"),
        ]);
        let removed = remove_not_given(&mut configs);
        let names: Vec<&str> = removed.iter().map(|each| each.name.as_str()).collect();
        assert_eq!(names, ["message.format.version"]);
        assert_eq!(configs.len(), 3);
    }

    /// Also beside one that is no value, that offsetlog does not know, or that goes with none of the others.
    #[test]
    fn one_value_does_not_hide_another() {
        let configs = map(&[
            ("cleanup.policy", "compact"),
            ("follower.replication.throttled.replicas", "none"),
            ("message.format.version", "2.0"),
            ("remote.storage.enable", "true"),
            ("segment.bytes", "100"),
            ("segment.ms", " 5 "),
        ]);
        assert!(topic_config(&configs).is_compacted());
        let built_with: Vec<(&str, String)> = config_to_build_with(&configs)
            .given()
            .map(|(name, value)| (name, value.to_owned()))
            .collect();
        let expected = [("cleanup.policy", "compact"), ("segment.ms", "5")];
        assert_eq!(
            built_with,
            expected.map(|(name, value)| (name, value.to_owned()))
        );
    }
}
