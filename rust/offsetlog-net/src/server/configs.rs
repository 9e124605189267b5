//! `DescribeConfigs`: the settings of topics and of this broker, as far as the log dirs tell them.

use super::broker::Broker;
use super::request::{elements, int, is_set, structs, text};
use crate::error_code::ErrorCode;
use offsetlog::format::message::{Struct, Value};
use offsetlog::{EffectiveConfig, Kind, Setting, SettingSource, is_secret, settings};

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

/// Settings that Kafka tells only where a topic has them.
const INTERNAL: &str = "internal.";
/// Kafka's words for a request that asks for what it does not know.
const INVALID_REQUEST: &str = "This most likely occurs because of a request being malformed by the client library or the message was sent to an incompatible broker. See the broker logs for more details.";

impl Broker {
    pub(super) fn describe_configs(&self, request: &Struct<'_>) -> Struct<'static> {
        let how = How {
            with_synonyms: is_set(request, "includeSynonyms"),
            with_documentation: is_set(request, "includeDocumentation"),
        };
        // One resource of an unknown type, and Kafka refuses all.
        let is_invalid = structs(request, "resources")
            .any(|resource| !matches!(int(resource, "resourceType", 0), TOPIC | BROKER));
        let results: Vec<Struct<'static>> = structs(request, "resources")
            .map(|resource| {
                let kind = int(resource, "resourceType", 0);
                let name = text(resource, "resourceName").unwrap_or_default();
                let keys = resource
                    .get("configurationKeys")
                    .filter(|keys| keys.as_array().is_some_and(|keys| !keys.is_empty()))
                    .map(|_| {
                        let keys = elements(resource, "configurationKeys").iter();
                        keys.filter_map(Value::as_str).collect::<Vec<_>>()
                    });
                let is_wanted = |name: &str| keys.as_ref().is_none_or(|keys| keys.contains(&name));
                let found = match kind {
                    _ if is_invalid => Err((ErrorCode::InvalidRequest, INVALID_REQUEST.to_owned())),
                    TOPIC => self.topic_configs(name, how, is_wanted),
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
    ) -> Result<Vec<Struct<'static>>, (ErrorCode, String)> {
        if self.catalog().topic(name).is_none() {
            let words = format!("The topic '{name}' does not exist.");
            return Err((ErrorCode::UnknownTopicOrPartition, words));
        }
        let Some(cluster) = &self.settings else {
            let words = "the settings cannot be read".to_owned();
            return Err((ErrorCode::KafkaStorageError, words));
        };
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
            .map(|setting| topic_config(setting, &found.config, how))
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

fn topic_config(setting: &Setting, config: &EffectiveConfig, how: How) -> Struct<'static> {
    let source = config.source(setting.name);
    let value = config.text(setting.name).unwrap_or(setting.default);
    let mut answer = Struct::new()
        .with("name", setting.name)
        .with("value", value.to_owned())
        .with("configSource", source_code(source))
        .with("configType", type_code(&setting.kind));
    if how.with_documentation {
        answer.set("documentation", setting.documentation);
    } else {
        answer.set("documentation", Value::Null);
    }
    if how.with_synonyms && source != SettingSource::Unknown {
        let name = match source {
            SettingSource::Topic | SettingSource::Option => setting.name,
            _ => setting.broker_synonyms.first().unwrap_or(&setting.name),
        };
        let synonym = Struct::new()
            .with("name", name)
            .with("value", value.to_owned())
            .with("source", source_code(source));
        answer.set("synonyms", vec![synonym]);
    }
    answer
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
