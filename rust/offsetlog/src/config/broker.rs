//! Settings of a broker: the defaults that it gives its topics, and where its logs are (Kafka 4.3.0, `KafkaConfig`).

use super::table::settings;
use super::{LogConfig, Setting, shown};
use crate::disk::{Disk, IoCall, read_whole};
use crate::error::{Error, Result};
use crate::local_path::given_path;
use offsetlog_format::meta_properties::read_properties;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const HOUR_MS: i64 = 3_600_000;
const MINUTE_MS: i64 = 60_000;
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Where a broker keeps its logs by default: a folder, and the name in it.
const DEFAULT_LOG_DIR: (&str, &str) = ("/tmp", "kafka-logs");

/// A broker's settings about storage.
#[derive(Clone, Debug, PartialEq)]
pub struct BrokerSettings {
    /// Defaults for topics that do not set them, as if they were given.
    pub topic_defaults: LogConfig,
    /// `log.dirs`, or else `log.dir`, or else Kafka's own default.
    pub log_dirs: Vec<PathBuf>,
    /// Everything that was given, by the broker's own names.
    pub given: BTreeMap<String, String>,
}

impl BrokerSettings {
    /// Reads a `server.properties`.
    ///
    /// # Errors
    /// `Io`; `MetadataFile` for a text that is no properties file; `Argument` as [`parse`](Self::parse).
    pub fn read(disk: &dyn Disk, path: &Path) -> Result<Self> {
        let path = &given_path(path)?;
        let bytes = read_whole(disk, path, FILE_BYTES_MAX)
            .map_err(|error| Error::io(IoCall::Read, path, error))?;
        let properties =
            read_properties(&bytes).map_err(|error| Error::new(error).at_path(path))?;
        let pairs = properties
            .iter()
            .map(|property| (property.key.as_str(), property.value.as_str()));
        Self::parse(pairs).map_err(|error| error.at_path(path))
    }

    /// Takes a broker's settings. Ignores those that are not about storage; of a name given twice, the last one counts.
    ///
    /// # Errors
    /// `Argument`, named for the setting: a value that a broker would refuse.
    pub fn parse<'n, 'v>(pairs: impl IntoIterator<Item = (&'n str, &'v str)>) -> Result<Self> {
        let given: BTreeMap<&str, &str> = pairs.into_iter().collect();
        let mut defaults = Vec::new();
        for setting in settings() {
            let set = setting
                .broker_synonyms
                .iter()
                .find_map(|&name| given.get(name).map(|value| (name, *value)));
            if let Some((name, value)) = set {
                defaults.push((setting.name, topic_value(setting, name, value)?));
            }
        }
        // Not checked together: a broker's own minimum may be above its maximum, until a topic has both.
        let topic_defaults = LogConfig::of_canonical(defaults);
        Ok(Self {
            topic_defaults,
            log_dirs: log_dirs(&given)?,
            given: given
                .iter()
                .map(|(&name, &value)| (name.to_owned(), value.to_owned()))
                .collect(),
        })
    }
}

impl LogConfig {
    /// These settings, and for what they do not set the ones of a broker.
    ///
    /// # Errors
    /// `Argument`: the two together contradict each other.
    pub fn or_defaults(&self, defaults: &Self) -> Result<Self> {
        let mut given = defaults.given.clone();
        given.extend(self.given.clone());
        let config = Self::of(given);
        config.check_together()?;
        Ok(config)
    }

    fn of_canonical(pairs: Vec<(&'static str, String)>) -> Self {
        Self::of(pairs.into_iter().collect())
    }
}

/// The canonical text of a topic's setting for what a broker has under one of its names.
pub(crate) fn topic_value(
    setting: &'static Setting,
    name: &'static str,
    value: &str,
) -> Result<String> {
    let unit = match name.rsplit('.').next() {
        Some("hours") => Some((HOUR_MS, i64::from(name == "log.roll.hours"))),
        Some("minutes") => Some((MINUTE_MS, i64::MIN)),
        _ => None,
    };
    let refused = |expected: &str| {
        Error::argument(name, format!("{} found, {expected} expected", shown(value)))
    };
    if setting.name == "retention.ms" {
        let number: i64 = match unit {
            Some(_) => value.trim().parse::<i32>().map(i64::from),
            None => value.trim().parse(),
        }
        .map_err(|_| refused("a whole number"))?;
        // Below 0 is for ever to a broker, and 0 never.
        return match number {
            0 => Err(refused("-1, or 1 or more")),
            1.. => Ok((number * unit.map_or(1, |(ms, _)| ms)).to_string()),
            _ => Ok("-1".to_owned()),
        };
    }
    if let Some((ms, minimum)) = unit {
        let number: i32 = value
            .trim()
            .parse()
            .map_err(|_| refused("a whole number (int)"))?;
        let number = i64::from(number);
        if number < minimum.max(0) {
            return Err(refused(&format!("at least {}", minimum.max(0))));
        }
        return Ok((number * ms).to_string());
    }
    setting
        .kind
        .canonical(value)
        .map_err(|expected| refused(&expected))
}

fn log_dirs(given: &BTreeMap<&str, &str>) -> Result<Vec<PathBuf>> {
    let (name, text) = match (given.get("log.dirs"), given.get("log.dir")) {
        (Some(text), _) => ("log.dirs", *text),
        (None, Some(text)) => ("log.dir", *text),
        (None, None) => {
            let (folder, name) = DEFAULT_LOG_DIR;
            return Ok(vec![Path::new(folder).join(name)]);
        }
    };
    let mut dirs: Vec<PathBuf> = Vec::new();
    for dir in text.split(',').map(str::trim).filter(|dir| !dir.is_empty()) {
        let dir = PathBuf::from(dir);
        if !dirs.contains(&dir) {
            dirs.push(dir);
        }
    }
    if dirs.is_empty() {
        return Err(Error::argument(
            name,
            format!("{} found, a directory expected", shown(text)),
        ));
    }
    Ok(dirs)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kafka's own answers. One refusal of ours is not Kafka's: an index size with which it opens no log.
    #[test]
    fn as_kafka_does() {
        let vectors = include_str!("../../../../tests/data/settings/broker.txt");
        let mut cases = 0;
        for line in vectors.lines().filter(|line| !line.starts_with('#')) {
            let (text, expected) = line.split_once(" -> ").unwrap();
            let pairs = text.split(';').filter_map(|pair| pair.split_once('='));
            let found = match BrokerSettings::parse(pairs) {
                Err(_) => "refused".to_owned(),
                Ok(settings) => {
                    let plain = LogConfig::default();
                    let changed: Vec<String> = settings
                        .topic_defaults
                        .given()
                        .filter(|(name, value)| plain.text(name) != Some(value))
                        .map(|(name, value)| format!("{name}={value}"))
                        .collect();
                    let dirs: Vec<String> = settings
                        .log_dirs
                        .iter()
                        .map(|dir| dir.display().to_string())
                        .collect();
                    format!("{} | {}", changed.join(";"), dirs.join(","))
                }
            };
            let ours = text == "log.index.size.max.bytes=4";
            let expected = if ours { "refused" } else { expected };
            assert_eq!(found, expected, "{text:?}");
            cases += 1;
        }
        assert!(cases > 35, "{cases}");
    }

    #[test]
    fn a_topic_stands_above_its_broker() {
        let broker = BrokerSettings::parse([("log.roll.hours", "2"), ("log.retention.ms", "9")]);
        let topic = LogConfig::parse([("retention.ms", "7")]).unwrap();
        let both = topic.or_defaults(&broker.unwrap().topic_defaults).unwrap();
        assert_eq!((both.segment_ms(), both.retention_ms()), (7_200_000, 7));
        assert_eq!(both.given().count(), 2);
    }
}
