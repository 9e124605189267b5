//! A topic's own settings with the values that Kafka takes them for: case and blanks of their texts do not matter.

use offsetlog::{EffectiveConfig, LogConfig, MetadataImage};
use std::collections::BTreeMap;

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
