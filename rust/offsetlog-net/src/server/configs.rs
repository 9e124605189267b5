//! `DescribeConfigs`: the settings of topics and of this broker, as far as the log dirs tell them.

use super::broker::Broker;
use super::request::{elements, int, is_set, structs, text};
use crate::error_code::ErrorCode;
use offsetlog::format::message::{Struct, Value};
use offsetlog::{EffectiveConfig, Kind, Setting, SettingSource, is_secret, settings};
use std::collections::{HashMap, HashSet};

/// Kafka's numbers for resources.
const TOPIC: i32 = 2;
const BROKER: i32 = 4;

/// Kafka's numbers for types of settings, `ConfigDef.Type`.
const BOOLEAN: i8 = 1;
const STRING: i8 = 2;
const INT: i8 = 3;
const LONG: i8 = 5;
const DOUBLE: i8 = 6;
const LIST: i8 = 7;
const PASSWORD: i8 = 9;

/// Settings that Kafka returns only if a topic has them.
const INTERNAL: &str = "internal.";
/// Kafka's words for a request that asks for what it does not know.
const INVALID_REQUEST: &str = "This most likely occurs because of a request being malformed by the client library or the message was sent to an incompatible broker. See the broker logs for more details.";

/// A resource: its type and name, and the settings that are asked for, all without a set.
type Wanted<'r> = (i32, &'r str, Option<HashSet<&'r str>>);

/// The resources of a request. A repeated one is answered once, with all settings that were asked for.
fn wanted<'r>(request: &'r Struct<'_>) -> Vec<Wanted<'r>> {
    let mut places: HashMap<(i32, &str), usize> = HashMap::new();
    let mut all: Vec<Wanted<'r>> = Vec::new();
    for resource in structs(request, "resources") {
        let kind = int(resource, "resourceType", 0);
        let name = text(resource, "resourceName").unwrap_or_default();
        let keys = elements(resource, "configurationKeys");
        let keys = (!keys.is_empty()).then(|| keys.iter().filter_map(Value::as_str).collect());
        let place = *places.entry((kind, name)).or_insert(all.len());
        match all.get_mut(place) {
            None => all.push((kind, name, keys)),
            Some((.., known)) => match (known.as_mut(), keys) {
                (Some(known), Some(keys)) => known.extend(keys),
                _ => *known = None,
            },
        }
    }
    all
}

impl Broker {
    pub(super) fn describe_configs(&self, request: &Struct<'_>, now_ms: i64) -> Struct<'static> {
        let how = How {
            with_synonyms: is_set(request, "includeSynonyms"),
            with_documentation: is_set(request, "includeDocumentation"),
        };
        // One resource of an unknown type, and Kafka refuses all.
        let is_invalid = structs(request, "resources")
            .any(|resource| !matches!(int(resource, "resourceType", 0), TOPIC | BROKER));
        let results: Vec<Struct<'static>> = wanted(request)
            .into_iter()
            .map(|(kind, name, keys)| {
                let is_wanted = |name: &str| keys.as_ref().is_none_or(|keys| keys.contains(name));
                let found = match kind {
                    _ if is_invalid => Err((ErrorCode::InvalidRequest, INVALID_REQUEST.to_owned())),
                    TOPIC => self.topic_configs(name, how, is_wanted, now_ms),
                    _ => self.broker_configs(name, is_wanted),
                };
                let result = Struct::new()
                    .with("resourceType", kind)
                    .with("resourceName", name.to_owned());
                match found {
                    Ok(configs) => result.with("errorMessage", "").with("configs", configs),
                    Err((code, words)) => {
                        result.with("errorCode", code).with("errorMessage", words)
                    }
                }
            })
            .collect();
        Struct::new().with("results", results)
    }

    fn topic_configs(
        &self,
        name: &str,
        how: How,
        is_wanted: impl Fn(&str) -> bool,
        now_ms: i64,
    ) -> Result<Vec<Struct<'static>>, (ErrorCode, String)> {
        if let Some(why) = invalid_topic(name) {
            let words = format!("Topic name is invalid: {why}");
            return Err((ErrorCode::InvalidTopicException, words));
        }
        if self.catalog().topic(name).is_none() {
            return Err((ErrorCode::UnknownTopicOrPartition, String::new()));
        }
        let Some(cluster) = &self.cluster.settings else {
            let words = "the settings cannot be read".to_owned();
            return Err((ErrorCode::KafkaStorageError, words));
        };
        self.cluster
            .look_for(name, &self.log_dir, &self.options, now_ms);
        let found = self
            .log_dir
            .topic_settings_from(name, cluster)
            .map_err(|error| (ErrorCode::KafkaStorageError, error.to_string()))?;
        Ok(settings()
            .iter()
            .filter(|setting| {
                let is_own = found.config.source(setting.name) == SettingSource::Topic;
                is_wanted(setting.name) && (is_own || !setting.name.starts_with(INTERNAL))
            })
            .map(|setting| self.topic_config(setting, &found.config, how))
            .collect())
    }

    /// The settings of a `server.properties`, if one was given.
    fn broker_configs(
        &self,
        name: &str,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<Struct<'static>>, (ErrorCode, String)> {
        // Without a name: dynamic defaults of all brokers, which are no settings of this server.
        if name.is_empty() {
            return Ok(Vec::new());
        }
        if name.parse::<i32>().is_err() {
            let words = format!("Broker id must be an integer, but it is: {name}");
            return Err((ErrorCode::InvalidRequest, words));
        }
        if name.parse() != Ok(self.node_id) {
            let words = format!(
                "Unexpected broker id, expected {} or empty string, but received {name}",
                self.node_id
            );
            return Err((ErrorCode::InvalidRequest, words));
        }
        let given = self
            .options
            .broker_settings
            .iter()
            .flat_map(|settings| &settings.given);
        Ok(given
            .filter(|(name, _)| is_wanted(name))
            .map(|(name, value)| {
                let is_secret = is_secret("broker", name);
                Struct::new()
                    .with("name", name.clone())
                    .with("value", (!is_secret).then(|| value.clone()))
                    .with("readOnly", true)
                    .with("configSource", source_code(SettingSource::Broker))
                    .with("isSensitive", is_secret)
                    .with("configType", if is_secret { PASSWORD } else { STRING })
                    .with("documentation", Value::Null)
            })
            .collect())
    }
}

#[derive(Clone, Copy)]
struct How {
    with_synonyms: bool,
    with_documentation: bool,
}

impl Broker {
    fn topic_config(
        &self,
        setting: &Setting,
        config: &EffectiveConfig,
        how: How,
    ) -> Struct<'static> {
        let source = config.source(setting.name);
        let value = shown(
            setting,
            config.text(setting.name).unwrap_or(setting.default),
        );
        let mut answer = Struct::new()
            .with("name", setting.name)
            .with("configSource", source_code(source))
            .with("configType", type_code(&setting.kind));
        if how.with_documentation {
            answer.set("documentation", setting.documentation);
        } else {
            answer.set("documentation", Value::Null);
        }
        if how.with_synonyms && source != SettingSource::Unknown {
            answer.set("synonyms", self.synonyms(setting, source, &value));
        }
        answer.with("value", value)
    }

    /// The layers that a value is looked for in, the one that holds first: the topic's, the broker's dynamic ones, `server.properties`,
    /// and Kafka's default where it has one. Of dynamic ones that a topic's hides nothing is known.
    fn synonyms(
        &self,
        setting: &Setting,
        source: SettingSource,
        value: &str,
    ) -> Vec<Struct<'static>> {
        let layer = |name: &'static str, value: String, source: SettingSource| {
            Struct::new()
                .with("name", name)
                .with("value", value)
                .with("source", source_code(source))
        };
        let mut found = Vec::new();
        match source {
            SettingSource::Topic | SettingSource::Option => {
                found.push(layer(setting.name, value.to_owned(), source));
            }
            SettingSource::DynamicBroker | SettingSource::DynamicDefaultBroker => {
                let name = setting.broker_synonyms.first().unwrap_or(&setting.name);
                found.push(layer(name, value.to_owned(), source));
            }
            _ => {}
        }
        let Some(settings) = &self.options.broker_settings else {
            return found;
        };
        for name in setting.broker_synonyms {
            if let Some(given) = settings.given.get(*name) {
                found.push(layer(name, given.clone(), SettingSource::Broker));
            }
        }
        if let Some((name, value)) = broker_default(setting) {
            found.push(layer(name, value, SettingSource::Default));
        }
        found
    }
}

/// What Kafka's `Topic.validate` finds wrong with a name, in its words.
fn invalid_topic(name: &str) -> Option<String> {
    const LONGEST: usize = 249;
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    match name {
        "" => Some("the empty string is not allowed".to_owned()),
        "." | ".." => Some(format!("'{name}' is not allowed")),
        _ if name.len() > LONGEST => Some(format!(
            "the length of '{name}' is longer than the max allowed length {LONGEST}"
        )),
        _ if !name.bytes().all(is_legal) => Some(format!(
            "'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
        )),
        _ => None,
    }
}

/// A number as Java writes a double.
fn shown(setting: &Setting, value: &str) -> String {
    let is_whole = value.parse::<i64>().is_ok();
    if matches!(setting.kind, Kind::Ratio) && is_whole {
        return format!("{value}.0");
    }
    value.to_owned()
}

/// The broker's setting that has a default, which is the last of several, and the default in its unit.
fn broker_default(setting: &Setting) -> Option<(&'static str, String)> {
    // A broker flushes when the system does, and of the times of a roll it tells no default.
    if matches!(
        setting.name,
        "flush.ms" | "segment.ms" | "segment.jitter.ms"
    ) {
        return None;
    }
    let name = setting.broker_synonyms.last()?;
    let default = setting.default;
    if name.strip_suffix(".hours").is_none() {
        return Some((name, shown(setting, default)));
    }
    let hours = default.parse::<i64>().ok()? / 3_600_000;
    Some((name, hours.to_string()))
}

/// Kafka's numbers for where a value comes from, `DescribeConfigsResponse.ConfigSource`.
const fn source_code(source: SettingSource) -> i8 {
    match source {
        SettingSource::Unknown => 0,
        SettingSource::Option | SettingSource::Topic => 1,
        SettingSource::DynamicBroker => 2,
        SettingSource::DynamicDefaultBroker => 3,
        SettingSource::Broker => 4,
        SettingSource::Default => 5,
    }
}

const fn type_code(kind: &Kind) -> i8 {
    match kind {
        Kind::Boolean => BOOLEAN,
        Kind::Int { .. } => INT,
        Kind::Long { .. } => LONG,
        Kind::Ratio => DOUBLE,
        Kind::List(_) | Kind::Replicas => LIST,
        _ => STRING,
    }
}
