//! The settings of one topic: Kafka's names, text forms, defaults and bounds (Kafka 4.3.0, `LogConfig`).
//!
//! [`settings`] is the table from which everything else follows: what is accepted, the typed values, the documentation. A
//! [`LogConfig`] knows the given and the effective values; it does not know where settings are stored or who asked for them.
//!
//! What Kafka accepts is accepted and what it refuses is refused, with these exceptions, all of them refusals: digits and letters
//! that Java takes for `0` to `9` and for those of `true` and `false`; hexadecimal numbers and `NaN` as a ratio; a
//! `segment.index.bytes` below 12, with which Kafka refuses to open a log; a negative `internal.segment.bytes`.

mod broker;
mod effective;
mod file;
mod table;
mod value;

pub use broker::BrokerSettings;
pub(crate) use effective::Layers;
pub use effective::{EffectiveConfig, SettingSource};
pub use table::{Setting, settings};
pub use value::{CleanupPolicy, CompressionType, Kind, ThrottledReplicas};

use crate::error::{Error, Result};
use offsetlog_format::{Codec, TimestampType};
use std::collections::BTreeMap;
use table::Fields;

/// Edits per name length that still count as a slip of the keyboard: one in three.
const CHARS_PER_EDIT: usize = 3;

/// Settings that no Kafka since 4.0 knows.
const DROPPED: [&str; 3] = [
    "message.downconversion.enable",
    "message.format.version",
    "message.timestamp.difference.max.ms",
];

/// The settings of one topic: what was given, and the value of each setting that holds.
///
/// ```
/// use offsetlog::LogConfig;
///
/// # fn main() -> Result<(), offsetlog::Error> {
/// let config = LogConfig::parse([("segment.ms", " 3600000 "), ("cleanup.policy", "compact, delete")])?;
/// assert_eq!(config.segment_ms(), 3_600_000);
/// assert!(config.is_compacted() && config.is_deleting());
/// assert_eq!(config.retention_ms(), 604_800_000); // not given: Kafka's default
/// let given: Vec<_> = config.given().collect();
/// assert_eq!(given, [("cleanup.policy", "compact,delete"), ("segment.ms", "3600000")]);
///
/// let refused = LogConfig::parse([("segmnt.ms", "1")]).unwrap_err();
/// assert_eq!(refused.to_string(), "config: no topic setting is called \"segmnt.ms\"; did you mean segment.ms?");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct LogConfig {
    given: BTreeMap<&'static str, String>,
    fields: Fields,
}

impl Default for LogConfig {
    /// Kafka's defaults; nothing given.
    fn default() -> Self {
        Self::of(BTreeMap::new())
    }
}

impl LogConfig {
    /// Reads settings by Kafka's names, in Kafka's text forms.
    ///
    /// # Errors
    /// `Argument`, named for the setting: a value of the wrong type or out of bounds, a name given twice, settings that
    /// contradict each other. `Argument` named `config`: a name that is not a topic setting; the text suggests the nearest one.
    pub fn parse<'n, 'v>(pairs: impl IntoIterator<Item = (&'n str, &'v str)>) -> Result<Self> {
        let mut given = BTreeMap::new();
        for (name, value) in pairs {
            let (setting, canonical) = canonical(name, value)?;
            if given.insert(setting.name, canonical).is_some() {
                return Err(Error::argument(setting.name, "given twice"));
            }
        }
        let config = Self::of(given);
        config.check_together()?;
        Ok(config)
    }

    /// The same settings with one more, or with another value for one of them.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn with(&self, name: &str, value: &str) -> Result<Self> {
        let (setting, canonical) = canonical(name, value)?;
        let mut given = self.given.clone();
        given.insert(setting.name, canonical);
        let config = Self::of(given);
        config.check_together()?;
        Ok(config)
    }

    /// The given settings, sorted by name: Kafka's name and the value's canonical text. Defaults are not included.
    pub fn given(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.given
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
    }

    /// The canonical text of the value that holds for a setting; `None` if there is no such setting.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        let setting = find(name).ok()?;
        let given = self.given.get(setting.name).map(String::as_str);
        Some(given.unwrap_or(setting.default))
    }

    /// Reads the bytes that [`write_file`](Self::write_file) made.
    ///
    /// # Errors
    /// `UnsupportedVersion` for a version above 0; `MetadataFile` for anything else that is not such a file: the error's
    /// position is that of the line.
    pub fn read_file(bytes: &[u8]) -> Result<Self> {
        file::read(bytes)
    }

    /// The text that is kept beside the data: a line with the version, then what was given, a line each.
    #[must_use]
    pub fn write_file(&self) -> Vec<u8> {
        file::write(self)
    }

    fn of(given: BTreeMap<&'static str, String>) -> Self {
        let fields = Fields::resolve(&given);
        Self { given, fields }
    }

    /// Largest segment in bytes: `internal.segment.bytes` if it is set, as tests do, else `segment.bytes`.
    #[must_use]
    pub fn segment_bytes(&self) -> i32 {
        self.internal_segment_bytes()
            .unwrap_or_else(|| self.stored_segment_bytes())
    }

    /// Longest time in ms from the first to the newest record of a segment: `segment.ms`, and of a compacted topic no more than
    /// `max.compaction.lag.ms`.
    #[must_use]
    pub fn segment_ms(&self) -> i64 {
        let segment_ms = self.stored_segment_ms();
        if self.is_compacted() {
            segment_ms.min(self.max_compaction_lag_ms())
        } else {
            segment_ms
        }
    }

    /// Whether `cleanup.policy` has `compact`.
    #[must_use]
    pub fn is_compacted(&self) -> bool {
        self.cleanup_policy().compact
    }

    /// Whether `cleanup.policy` has `delete`.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.cleanup_policy().delete
    }

    /// The level at which a codec compresses; `None` is the codec's own, or that it knows no levels.
    #[must_use]
    pub fn compression_level(&self, codec: Codec) -> Option<i32> {
        match codec {
            Codec::Gzip => Some(self.compression_gzip_level()).filter(|level| *level != -1),
            Codec::Lz4 => Some(self.compression_lz4_level()),
            Codec::Zstd => Some(self.compression_zstd_level()),
            Codec::None | Codec::Snappy => None,
        }
    }

    /// The codec in which a leader stores a batch that comes in `codec`.
    #[must_use]
    pub fn codec_for(&self, codec: Codec) -> Codec {
        match self.compression_type() {
            CompressionType::Producer => codec,
            CompressionType::Uncompressed => Codec::None,
            CompressionType::Codec(codec) => codec,
        }
    }

    /// Whether the leader sets the timestamps.
    #[must_use]
    pub fn is_log_append_time(&self) -> bool {
        self.message_timestamp_type() == TimestampType::LogAppend
    }

    /// Checks settings against each other (Kafka's `LogConfig.validate`).
    fn check_together(&self) -> Result<()> {
        let (minimum, maximum) = (self.min_compaction_lag_ms(), self.max_compaction_lag_ms());
        if minimum > maximum {
            return Err(Error::argument(
                "min.compaction.lag.ms",
                format!("{minimum} found, at most max.compaction.lag.ms of {maximum} expected"),
            ));
        }
        if !self.remote_storage_enable() {
            return Ok(());
        }
        if self.is_compacted() {
            return Err(Error::argument(
                "cleanup.policy",
                "compact found, delete or nothing expected for a topic with remote.storage.enable",
            ));
        }
        self.check_local(
            ["local.retention.bytes", "retention.bytes"],
            self.local_retention_bytes(),
            self.retention_bytes(),
        )?;
        self.check_local(
            ["local.retention.ms", "retention.ms"],
            self.local_retention_ms(),
            self.retention_ms(),
        )
    }

    /// A local part can be no more than the whole, and is the whole once nothing is copied away; -2 stands for the whole.
    fn check_local(&self, names: [&'static str; 2], local: i64, whole: i64) -> Result<()> {
        let [local_name, whole_name] = names;
        let expected = if local == -2 || local == whole {
            return Ok(());
        } else if self.remote_log_copy_disable() {
            format!("-2 or {whole_name} of {whole} expected with remote.log.copy.disable")
        } else if whole < 0 || (0..=whole).contains(&local) {
            return Ok(());
        } else {
            format!("-2 or 0 to {whole_name} of {whole} expected with remote.storage.enable")
        };
        Err(Error::argument(
            local_name,
            format!("{local} found, {expected}"),
        ))
    }
}

/// The setting of this name, and the canonical text of a value for it.
fn canonical(name: &str, value: &str) -> Result<(&'static Setting, String)> {
    let setting = find(name)?;
    let canonical = setting.kind.canonical(value).map_err(|expected| {
        let reason = format!("{} found, {expected} expected", shown(value));
        Error::argument(setting.name, reason)
    })?;
    Ok((setting, canonical))
}

/// The topic setting of this name, or what may have been meant.
fn find(name: &str) -> Result<&'static Setting> {
    if let Some(setting) = settings().iter().find(|setting| setting.name == name) {
        return Ok(setting);
    }
    let advice = if DROPPED.contains(&name) {
        "Kafka dropped it with 4.0".to_owned()
    } else if let Some(nearest) = nearest_setting(name) {
        format!("did you mean {nearest}?")
    } else {
        "docs/settings.md lists them all".to_owned()
    };
    Err(Error::argument(
        "config",
        format!("no topic setting is called {}; {advice}", shown(name)),
    ))
}

/// Returns the topic setting whose name, or whose broker-level name, is nearest to an unknown name; `None` if all are far.
#[must_use]
pub fn nearest_setting(name: &str) -> Option<&'static str> {
    // Names of Python arguments and of other cases are the same name, written otherwise.
    let wanted: String = name
        .chars()
        .take(value::SHOWN_CHARS_MAX)
        .map(|c| {
            if c == '_' {
                '.'
            } else {
                c.to_ascii_lowercase()
            }
        })
        .collect();
    let distance = |known: &str| strsim::damerau_levenshtein(&wanted, known);
    settings()
        .iter()
        .flat_map(|setting| {
            let synonyms = setting.broker_synonyms.iter().copied();
            [setting.name]
                .into_iter()
                .chain(synonyms)
                .map(move |known| (distance(known), setting.name))
        })
        .min()
        .filter(|(edits, _)| edits * CHARS_PER_EDIT <= wanted.chars().count())
        .map(|(_, nearest)| nearest)
}

/// A text from outside as an error shows it: quoted, escaped, cut.
fn shown(text: &str) -> String {
    let cut: String = text.chars().take(value::SHOWN_CHARS_MAX).collect();
    let more = if cut.len() < text.len() { "..." } else { "" };
    format!("{cut:?}{more}")
}

#[cfg(test)]
mod tests;
