//! `offsetlog settings`: which settings there are, which hold for a topic, and changing those of a topic.

use crate::args::Settings;
use crate::console::Console;
use crate::escape::escaped;
use crate::failure::{Failure, with_advice_to_writers};
use crate::json::write_json;
use crate::maintain::settings_as_of;
use crate::table::{Align, Table};
use crate::topics::{broker_defaults, open, unique};
use crate::{EXIT_ERROR, EXIT_FINE, EXIT_NOTHING};
use offsetlog::disk::{RealDisk, wall_clock};
use offsetlog::format::DirectoryName;
use offsetlog::{
    BrokerSettings, EffectiveConfig, LogConfig, LogDir, OpenOptions, SettingSource, settings,
};
use offsetlog_ops::which_metadata;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;

/// A setting of the table, as a JSON line.
#[derive(Serialize)]
struct SettingLine {
    name: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    default: &'static str,
    bounds: String,
    broker_synonyms: &'static [&'static str],
    effective: bool,
    documentation: &'static str,
}

/// What holds for a topic, as a JSON line.
#[derive(Serialize)]
struct ValueLine<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<&'a str>,
    name: &'static str,
    value: Option<&'a str>,
    from: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

/// A topic that failed, as a JSON line.
#[derive(Serialize)]
struct FailedLine<'a> {
    topic: &'a str,
    partition: Option<i32>,
    error: String,
}

/// What upkeep decides by: where a broker's log dir does not tell, that is worth a line.
const DECISIVE: [&str; 3] = ["cleanup.policy", "retention.bytes", "retention.ms"];

pub(crate) fn run(args: &Settings, console: &mut Console<'_>) -> Result<i32, Failure> {
    let broker = broker_defaults(args.broker.as_deref())?;
    if args.paths.is_empty() {
        if args.broker.is_some() {
            let mut values = Values::new(args, &broker);
            values.add(None, &LogConfig::default());
            values.write(console)?;
        } else {
            list(args, console)?;
        }
        return Ok(EXIT_FINE);
    }
    let mut failed = if args.is_change() {
        change(args, console)?
    } else {
        Failed::new()
    };
    let log_dir = LogDir::open(&args.paths, &OpenOptions::default())?;
    let static_settings = args.broker.as_deref();
    let static_settings = static_settings
        .map(|path| BrokerSettings::read(&RealDisk, path))
        .transpose()?;
    let cluster = log_dir.cluster_settings(static_settings.as_ref(), args.metadata.as_deref())?;
    let mut values = Values::new(args, &broker);
    let mut newest = None;
    let mut metadata_paths = BTreeSet::new();
    let mut found = false;
    for topic in log_dir.topics().into_keys() {
        if args.topics.is_empty() || args.topics.contains(&topic) {
            found = true;
            let held = log_dir.topic_settings_from(&topic, &cluster);
            let stored = log_dir.topic_config(&topic);
            match held.and_then(|held| Ok((held, stored?))) {
                Ok((held, stored)) => {
                    newest = newest.max(held.metadata_timestamp);
                    metadata_paths.extend(held.metadata_path);
                    if held.broker.is_some() {
                        values.add_effective(&topic, &held.config);
                    } else {
                        values.add(Some(&topic), &stored);
                        tell_differing(&log_dir, &topic, console)?;
                    }
                }
                Err(error) => pass_over(error, &topic, &mut failed)?,
            }
        }
    }
    values.write(console)?;
    if let Some(timestamp) = newest {
        console.note(&settings_as_of(timestamp, wall_clock()));
        let which = which_metadata(&log_dir, &metadata_paths);
        if let Some(which) = which.filter(|_| args.metadata.is_none()) {
            console.warn(&which);
        }
    }
    if let Some(reason) = values.reason() {
        console.note(&format!("what is unknown: {reason}"));
    }
    for (topic, error) in &failed {
        tell(topic, error, args, console)?;
    }
    if !failed.is_empty() {
        return Ok(EXIT_ERROR);
    }
    if !found {
        console.warn("no such topic here");
        return Ok(EXIT_NOTHING);
    }
    Ok(EXIT_FINE)
}

/// Names the partitions that have other settings than the first one, whose settings are shown.
fn tell_differing(
    log_dir: &LogDir,
    topic: &str,
    console: &mut Console<'_>,
) -> Result<(), offsetlog::Error> {
    for (partition, config) in log_dir.differing_configs(topic)? {
        let given: Vec<String> = config
            .given()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let given = if given.is_empty() {
            "none".to_owned()
        } else {
            given.join(" ")
        };
        console.warn(&format!(
            "{topic}-{partition} has other settings than what is shown of its topic: {given}"
        ));
    }
    Ok(())
}

/// Topics that failed, each once.
type Failed = BTreeMap<String, offsetlog::Error>;

/// Records the failure of one topic; the others continue. Returns an error that ends the command: one that names no file is about the
/// arguments.
fn pass_over(
    error: offsetlog::Error,
    topic: &str,
    failed: &mut Failed,
) -> Result<(), offsetlog::Error> {
    if error.is_of_process() || error.path().is_none() {
        return Err(error);
    }
    // An error of changing it came first, and says more than one of reading it.
    failed.entry(topic.to_owned()).or_insert(error);
    Ok(())
}

/// Names a topic that failed, and the partition by the file that the error names.
fn tell(
    topic: &str,
    error: &offsetlog::Error,
    args: &Settings,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    if args.json {
        let names = error.path().into_iter().flat_map(Path::ancestors);
        let names = names.filter_map(|path| path.file_name()?.to_str());
        let mut found = names.filter_map(|name| DirectoryName::parse(name).ok());
        let line = FailedLine {
            topic,
            partition: found.next().map(|name| name.partition),
            error: error.to_string(),
        };
        write_json(&mut console.out, &line)?;
        console.out.write_all(b"\n")?;
    }
    // On a terminal both streams are one.
    console.out.flush()?;
    let words = if args.is_change() {
        with_advice_to_writers(error)
    } else {
        error.to_string()
    };
    console.error(&format!("{topic}: {words}"));
    Ok(())
}

/// Every setting there is.
fn list(args: &Settings, console: &mut Console<'_>) -> Result<(), Failure> {
    let mut table = Table::new(&[
        ("SETTING", Align::Left),
        ("TYPE", Align::Left),
        ("DEFAULT", Align::Left),
        ("BOUNDS", Align::Left),
    ]);
    for setting in settings() {
        if args.json {
            let line = SettingLine {
                name: setting.name,
                kind: setting.kind.type_name(),
                default: setting.default,
                bounds: setting.kind.bounds(),
                broker_synonyms: setting.broker_synonyms,
                effective: setting.effective,
                documentation: setting.documentation,
            };
            write_json(&mut console.out, &line)?;
            console.out.write_all(b"\n")?;
        }
        table.push([
            setting.name.to_owned(),
            setting.kind.type_name().to_owned(),
            setting.default.to_owned(),
            setting.kind.bounds(),
        ]);
    }
    if !args.json {
        table.write(console)?;
    }
    Ok(())
}

/// Gives topics settings, and takes some. Returns the topics that could not be changed.
fn change(args: &Settings, console: &mut Console<'_>) -> Result<Failed, Failure> {
    let given = unique(&args.given)?;
    if let Some(both) = args
        .unset
        .iter()
        .find(|name| given.contains_key(name.as_str()))
    {
        return Err(Failure::Usage(format!(
            "{both} is to be set (--config) and removed (--unset): say one of them"
        )));
    }
    let unknown = args
        .unset
        .iter()
        .find(|name| !settings().iter().any(|setting| setting.name == **name));
    if let Some(name) = unknown {
        // The parser of settings says which one may have been meant.
        LogConfig::parse([(name.as_str(), "")]).map_err(Failure::Writing)?;
    }
    // Settings can only be changed if the topic exists: no folder, and no lock in one, is created for that.
    LogDir::open(&args.paths, &OpenOptions::default()).map_err(Failure::Writing)?;
    let log_dir = open(&args.paths, console)?;
    // Each partition keeps what it has beside that.
    let change_one = |topic: &String| {
        log_dir.change_topic_config(topic, |stored| {
            let mut pairs: BTreeMap<&str, &str> = stored.given().collect();
            pairs.extend(&given);
            pairs.retain(|name, _| !args.unset.iter().any(|unset| unset == name));
            LogConfig::parse(pairs)
        })
    };
    let mut failed = Failed::new();
    let changed = args.topics.iter().try_for_each(|topic| {
        let changed = change_one(topic);
        changed.or_else(|error| pass_over(error, topic, &mut failed))
    });
    let closed = log_dir.close();
    changed.and(closed).map_err(Failure::Writing)?;
    Ok(failed)
}

/// What holds, topic by topic.
struct Values<'a> {
    args: &'a Settings,
    broker: &'a LogConfig,
    rows: Vec<Row>,
}

/// Topic, setting, value, where it comes from, and why it is not known.
type Row = (
    Option<String>,
    &'static str,
    Option<String>,
    &'static str,
    Option<String>,
);

impl<'a> Values<'a> {
    const fn new(args: &'a Settings, broker: &'a LogConfig) -> Self {
        Self {
            args,
            broker,
            rows: Vec::new(),
        }
    }

    fn add(&mut self, topic: Option<&str>, given: &LogConfig) {
        let names = |config: &LogConfig| config.given().map(|(name, _)| name).collect::<Vec<_>>();
        let (of_topic, of_broker) = (names(given), names(self.broker));
        for setting in settings() {
            let (config, from) = if of_topic.contains(&setting.name) {
                (given, "topic")
            } else if of_broker.contains(&setting.name) {
                (self.broker, "broker")
            } else if self.args.all {
                (given, "default")
            } else {
                continue;
            };
            let value = config.text(setting.name).unwrap_or_default();
            self.rows.push((
                topic.map(str::to_owned),
                setting.name,
                Some(value.to_owned()),
                from,
                None,
            ));
        }
    }

    /// What the cluster says.
    fn add_effective(&mut self, topic: &str, config: &EffectiveConfig) {
        for setting in settings() {
            let source = config.source(setting.name);
            let is_shown = match source {
                SettingSource::Default => self.args.all,
                SettingSource::Unknown => self.args.all || DECISIVE.contains(&setting.name),
                _ => true,
            };
            if is_shown {
                self.rows.push((
                    Some(topic.to_owned()),
                    setting.name,
                    config.text(setting.name).map(str::to_owned),
                    source.name(),
                    config.reason(setting.name).map(str::to_owned),
                ));
            }
        }
    }

    /// Why the first one is not known that is not.
    fn reason(&self) -> Option<&str> {
        let reasons = self.rows.iter().filter_map(|row| row.4.as_deref());
        reasons.min()
    }

    fn write(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        if self.args.json {
            for (topic, name, value, from, reason) in &self.rows {
                let line = ValueLine {
                    topic: topic.as_deref(),
                    name,
                    value: value.as_deref(),
                    from,
                    reason: reason.as_deref(),
                };
                write_json(&mut console.out, &line)?;
                console.out.write_all(b"\n")?;
            }
            return Ok(());
        }
        let mut table = Table::new(&[
            ("TOPIC", Align::Left),
            ("SETTING", Align::Left),
            ("VALUE", Align::Left),
            ("FROM", Align::Left),
        ]);
        for (topic, name, value, from, _) in &self.rows {
            table.push([
                escaped(topic.as_deref().unwrap_or("-")),
                (*name).to_owned(),
                escaped(value.as_deref().unwrap_or("?")),
                (*from).to_owned(),
            ]);
        }
        table.write(console)?;
        Ok(())
    }
}
