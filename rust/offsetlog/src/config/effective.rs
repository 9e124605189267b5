//! The effective settings of a cluster's topic, computed as Kafka does: each setting's value, and the layer that it comes from.
//!
//! Source: Kafka's `ConfigEntry.ConfigSource`, `KafkaConfig.extractLogConfigMap` and `ServerTopicConfigSynonyms`. A broker merges
//! its layers by its own names first and looks for a setting's names, in their order, in the outcome.

use super::broker::topic_value;
use super::{BrokerSettings, LogConfig, Setting, settings};
use crate::log::MetadataImage;
use std::collections::BTreeMap;

/// Where the value of a setting comes from, highest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SettingSource {
    /// The caller gave it.
    Option,
    /// The topic's own: of the cluster, or stored by us where no cluster has the topic.
    Topic,
    /// The broker's dynamic setting.
    DynamicBroker,
    /// The cluster's dynamic default for all brokers.
    DynamicDefaultBroker,
    /// A `server.properties`.
    Broker,
    /// Kafka's default.
    Default,
    /// Nobody can tell: a layer that may have it was not given.
    Unknown,
}

impl SettingSource {
    /// A word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Option => "option",
            Self::Topic => "topic",
            Self::DynamicBroker => "dynamic broker",
            Self::DynamicDefaultBroker => "dynamic default broker",
            Self::Broker => "broker",
            Self::Default => "default",
            Self::Unknown => "unknown",
        }
    }
}

/// The effective settings of a topic, each with its source. An unknown setting has Kafka's default as its value: check
/// [`source`](Self::source) before a decision.
#[derive(Debug, Clone, PartialEq)]
pub struct EffectiveConfig {
    values: LogConfig,
    sources: BTreeMap<&'static str, SettingSource>,
    /// Why those are not known that are not.
    reasons: BTreeMap<&'static str, String>,
    /// `segment.bytes` is less than it may be today; the values have it as `internal.segment.bytes`.
    has_small_segments: bool,
}

/// The layers of a topic in a broker's log dir.
#[derive(Debug, Default)]
pub(crate) struct Layers<'l> {
    pub(crate) option: Option<&'l LogConfig>,
    pub(crate) topic: Option<&'l BTreeMap<String, String>>,
    pub(crate) dynamic_broker: Option<&'l BTreeMap<String, String>>,
    pub(crate) dynamic_default: Option<&'l BTreeMap<String, String>>,
    /// By a topic's names; says nothing of what is not in it.
    pub(crate) defaults: Option<&'l LogConfig>,
    pub(crate) broker: Option<&'l BrokerSettings>,
    /// Why what is not among the topic's settings may be set all the same.
    pub(crate) missing: Option<&'l str>,
}

/// What was found of a setting.
enum Found {
    Value(SettingSource, String),
    Unknown(String),
}

impl EffectiveConfig {
    /// The settings of a topic that no cluster has: all is known.
    pub(crate) fn own(topic: &LogConfig, defaults: &LogConfig, values: LogConfig) -> Self {
        let has = |config: &LogConfig, name| config.given().any(|(given, _)| given == name);
        let sources = settings().iter().map(|setting| {
            let source = if has(topic, setting.name) {
                SettingSource::Topic
            } else if has(defaults, setting.name) {
                SettingSource::Broker
            } else {
                SettingSource::Default
            };
            (setting.name, source)
        });
        Self {
            values,
            sources: sources.collect(),
            reasons: BTreeMap::new(),
            has_small_segments: false,
        }
    }

    /// The settings that a broker has for a topic whose own settings are `topic`. `metadata` has the cluster's dynamic settings of brokers,
    /// `broker` is its `server.properties`: without it, what nothing above sets is unknown. Looks at no file.
    ///
    /// ```
    /// use offsetlog::{EffectiveConfig, MetadataImage, SettingSource};
    /// use std::collections::BTreeMap;
    ///
    /// let mut metadata = MetadataImage::default();
    /// let dynamic = BTreeMap::from([("log.retention.ms".to_owned(), "1000".to_owned())]);
    /// metadata.configs.insert(("broker".to_owned(), "1".to_owned()), dynamic);
    /// let found = EffectiveConfig::on_broker(&BTreeMap::new(), &metadata, Some(1), None);
    /// assert_eq!(found.text("retention.ms"), Some("1000"));
    /// assert_eq!(found.source("retention.ms"), SettingSource::DynamicBroker);
    /// assert_eq!(found.source("retention.bytes"), SettingSource::Unknown);
    /// ```
    #[must_use]
    pub fn on_broker(
        topic: &BTreeMap<String, String>,
        metadata: &MetadataImage,
        node_id: Option<i32>,
        broker: Option<&BrokerSettings>,
    ) -> Self {
        let of = |name: String| metadata.configs.get(&("broker".to_owned(), name));
        Self::of_cluster(&Layers {
            topic: Some(topic),
            dynamic_broker: node_id.and_then(|id| of(id.to_string())),
            dynamic_default: of(String::new()),
            broker,
            ..Layers::default()
        })
    }

    /// The settings of a topic of a cluster.
    pub(crate) fn of_cluster(layers: &Layers<'_>) -> Self {
        let mut given = BTreeMap::new();
        let mut sources = BTreeMap::new();
        let mut reasons = BTreeMap::new();
        let mut has_small_segments = false;
        for setting in settings() {
            let (source, value) = match layers.find(setting) {
                Found::Value(source, value) => (source, Some(value)),
                Found::Unknown(reason) => {
                    reasons.insert(setting.name, reason);
                    (SettingSource::Unknown, None)
                }
            };
            sources.entry(setting.name).or_insert(source);
            let Some(value) = value.filter(|_| source != SettingSource::Default) else {
                continue;
            };
            match setting.kind.canonical(&value) {
                Ok(value) => {
                    given.insert(setting.name, value);
                }
                // Before 4.0 segments could be as small as one likes.
                Err(_) if is_small_segment(setting, &value) => {
                    has_small_segments = true;
                    given.insert(INTERNAL_SEGMENT_BYTES, value.trim().to_owned());
                    sources.insert(INTERNAL_SEGMENT_BYTES, source);
                    reasons.remove(INTERNAL_SEGMENT_BYTES);
                }
                Err(expected) => {
                    let shown = super::shown(&value);
                    reasons.insert(setting.name, format!("{shown} found, {expected} expected"));
                    sources.insert(setting.name, SettingSource::Unknown);
                }
            }
        }
        Self {
            values: LogConfig::of(given),
            sources,
            reasons,
            has_small_segments,
        }
    }

    /// The same with what a caller gives in their place.
    pub(crate) fn with_option(mut self, option: &LogConfig) -> Self {
        let mut given = self.values.given.clone();
        if self.has_small_segments && option.given().any(|(name, _)| name == SEGMENT_BYTES) {
            self.has_small_segments = false;
            given.remove(INTERNAL_SEGMENT_BYTES);
            self.sources
                .insert(INTERNAL_SEGMENT_BYTES, SettingSource::Default);
        }
        for (name, value) in option.given() {
            given.insert(name, value.to_owned());
            self.sources.insert(name, SettingSource::Option);
            self.reasons.remove(name);
        }
        self.values = LogConfig::of(given);
        self
    }

    /// The values that hold.
    #[must_use]
    pub const fn config(&self) -> &LogConfig {
        &self.values
    }

    /// Where the value of a setting comes from; `Unknown` also for what is no setting.
    #[must_use]
    pub fn source(&self, name: &str) -> SettingSource {
        let source = self.sources.get(name).copied();
        source.unwrap_or(SettingSource::Unknown)
    }

    /// The text of the value that holds, `None` where that is not known.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        if name == SEGMENT_BYTES && self.has_small_segments {
            return self.values.text(INTERNAL_SEGMENT_BYTES);
        }
        (self.source(name) != SettingSource::Unknown)
            .then(|| self.values.text(name))
            .flatten()
    }

    /// Why a setting is not known; `None` where it is.
    #[must_use]
    pub fn reason(&self, name: &str) -> Option<&str> {
        self.reasons.get(name).map(String::as_str)
    }

    /// Those of these that are not known.
    pub(crate) fn unknown_of<'n>(&self, names: &[&'n str]) -> Vec<&'n str> {
        let unknown = |name: &&&str| self.source(name) == SettingSource::Unknown;
        names.iter().filter(unknown).copied().collect()
    }
}

const SEGMENT_BYTES: &str = "segment.bytes";
const INTERNAL_SEGMENT_BYTES: &str = "internal.segment.bytes";

fn is_small_segment(setting: &Setting, value: &str) -> bool {
    let bytes = value.trim().parse::<i32>();
    setting.name == SEGMENT_BYTES && bytes.is_ok_and(|bytes| bytes >= 0)
}

impl Layers<'_> {
    fn find(&self, setting: &'static Setting) -> Found {
        let of = |config: Option<&LogConfig>| {
            let mut given = config.into_iter().flat_map(LogConfig::given);
            given.find_map(|(name, value)| (name == setting.name).then(|| value.to_owned()))
        };
        if let Some(value) = of(self.option) {
            return Found::Value(SettingSource::Option, value);
        }
        if let Some(value) = self.topic.and_then(|topic| topic.get(setting.name)) {
            return Found::Value(SettingSource::Topic, value.clone());
        }
        if let Some(missing) = self.missing {
            return Found::Unknown(missing.to_owned());
        }
        for (slot, name) in setting.broker_synonyms.iter().enumerate() {
            let dynamic = [
                (SettingSource::DynamicBroker, self.dynamic_broker),
                (SettingSource::DynamicDefaultBroker, self.dynamic_default),
            ];
            let found = dynamic
                .into_iter()
                .find_map(|(source, layer)| Some((source, layer?.get(*name)?)));
            if let Some((source, value)) = found {
                // A name that comes before this one may be set in what was not given.
                if slot > 0 && self.broker.is_none() {
                    return Found::Unknown(format!(
                        "{name} is set, and whether {} is, the broker's server.properties says",
                        setting.broker_synonyms.first().unwrap_or(name)
                    ));
                }
                return of_broker(source, setting, name, value);
            }
            let value = self.broker.and_then(|broker| broker.given.get(*name));
            if let Some(value) = value {
                return of_broker(SettingSource::Broker, setting, name, value);
            }
        }
        if let Some(value) = of(self.defaults) {
            return Found::Value(SettingSource::Broker, value);
        }
        if self.broker.is_some() || setting.broker_synonyms.is_empty() {
            return Found::Value(SettingSource::Default, setting.default.to_owned());
        }
        Found::Unknown("the broker's server.properties may set it".to_owned())
    }
}

/// A value under a broker's name, by a topic's.
fn of_broker(
    source: SettingSource,
    setting: &'static Setting,
    name: &'static str,
    value: &str,
) -> Found {
    match topic_value(setting, name, value) {
        Ok(value) => Found::Value(source, value),
        Err(_) if is_small_segment(setting, value) => Found::Value(source, value.to_owned()),
        Err(error) => Found::Unknown(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_topic(pairs: &[(&str, &str)]) -> EffectiveConfig {
        let pairs = pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        EffectiveConfig::of_cluster(&Layers {
            topic: Some(&pairs.collect()),
            ..Layers::default()
        })
    }

    #[test]
    fn segments_of_before_4_0_are_told_as_small_as_they_are() {
        let small = of_topic(&[("segment.bytes", "2000")]);
        assert_eq!(small.text("segment.bytes"), Some("2000"));
        assert_eq!(small.source("segment.bytes"), SettingSource::Topic);
        assert_eq!(small.config().text("internal.segment.bytes"), Some("2000"));
        let option = LogConfig::parse([("segment.bytes", "1048576")]).unwrap();
        let given = small.with_option(&option);
        assert_eq!(given.text("segment.bytes"), Some("1048576"));
        assert_eq!(given.config().text("internal.segment.bytes"), Some(""));
        assert_eq!(given.source("segment.bytes"), SettingSource::Option);
        let both = [
            ("segment.bytes", "1048576"),
            ("internal.segment.bytes", "3000"),
        ];
        let given =
            of_topic(&[("segment.bytes", "2000")]).with_option(&LogConfig::parse(both).unwrap());
        assert_eq!(given.text("segment.bytes"), Some("1048576"));
        assert_eq!(given.config().text("internal.segment.bytes"), Some("3000"));
    }
}
