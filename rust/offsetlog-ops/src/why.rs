//! Explains what keeps records of a partition: from being deleted, from being compacted, from being read with `read_committed`.
//!
//! Uses a broker's own rules: Kafka's `UnifiedLog.deleteOldSegments`, `LogCleanerManager` and `ProducerStateManager`. Opens nothing for
//! writing.

mod compaction;
mod deletion;
mod reading;

use crate::producers::{Coordinators, PartitionProducer, is_among, pass_over};
use offsetlog::{
    BrokerSettings, EffectiveConfig, Log, LogDir, PartitionProgress, Result, SettingSource,
    TopicPartition, TopicSettings, Unread,
};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The broker's own setting that ends compaction, and with it the deletion of a compacted topic's segments.
const CLEANER: &str = "log.cleaner.enable";

/// The cluster's metadata log.
const METADATA_TOPIC: &str = "__cluster_metadata";

/// What is asked of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// Why are its oldest segments not deleted?
    Deletion,
    /// Why is it not compacted?
    Compaction,
    /// Why does `read_committed` end before the log does?
    CommittedRead,
}

impl Question {
    /// A word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deletion => "deletion",
            Self::Compaction => "compaction",
            Self::CommittedRead => "read_committed",
        }
    }
}

/// The kinds of answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Nothing holds it: a broker or `maintain` does it next.
    Due,
    /// There is no record.
    Empty,
    /// `cleanup.policy` has no `delete`.
    Policy,
    /// Neither `retention.ms` nor `retention.bytes` has a limit.
    Unlimited,
    /// The oldest segment is not old enough, nor the log large enough.
    NotDue,
    /// A record of a later time keeps segments whose own records are old enough.
    LaterTimestamp,
    /// The high watermark is below the end of the segment.
    NotReplicated,
    /// Everything that could be compacted is in the active segment.
    ActiveSegment,
    /// A transaction has no marker.
    OpenTransaction,
    /// `min.compaction.lag.ms` has not passed.
    CompactionLag,
    /// The dirty share is not above `min.cleanable.dirty.ratio`.
    DirtyRatio,
    /// Nothing was appended since the last compaction.
    Clean,
    /// `log.cleaner.enable=false`: the broker neither compacts nor deletes segments of a compacted topic.
    CleanerOff,
    /// A setting that decides is not known here.
    UnknownSetting,
    /// Tiered storage has rules of its own.
    Tiered,
}

impl Reason {
    /// Its name, the same in JSON and in Python.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Due => "due",
            Self::Empty => "empty",
            Self::Policy => "policy",
            Self::Unlimited => "unlimited",
            Self::NotDue => "not-due",
            Self::LaterTimestamp => "later-timestamp",
            Self::NotReplicated => "not-replicated",
            Self::ActiveSegment => "active-segment",
            Self::OpenTransaction => "open-transaction",
            Self::CompactionLag => "compaction-lag",
            Self::DirtyRatio => "dirty-ratio",
            Self::Clean => "clean",
            Self::CleanerOff => "cleaner-off",
            Self::UnknownSetting => "unknown-setting",
            Self::Tiered => "tiered",
        }
    }
}

/// A setting that decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisiveSetting {
    /// Kafka's name.
    pub name: &'static str,
    /// Its value; `None` if it is not known.
    pub value: Option<String>,
    /// Where the value comes from.
    pub source: SettingSource,
}

/// What keeps records of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The partition.
    pub partition: TopicPartition,
    /// Its directory.
    pub path: PathBuf,
    /// What was asked.
    pub question: Question,
    /// The kind of answer.
    pub reason: Reason,
    /// The answer in a sentence.
    pub sentence: String,
    /// What would free the records; empty if nothing holds them.
    pub remedy: String,
    /// Base offset of the segment in question.
    pub segment: Option<i64>,
    /// Offset of the record that decides.
    pub offset: Option<i64>,
    /// Its timestamp, in milliseconds since 1970.
    pub timestamp: Option<i64>,
    /// When the segment will be due, in milliseconds since 1970, if nothing changes.
    pub due_timestamp: Option<i64>,
    /// Bytes that are kept by this, or due.
    pub bytes: Option<u64>,
    /// The producer whose transaction is open.
    pub producer: Option<PartitionProducer>,
    /// The settings that decided.
    pub settings: Vec<DecisiveSetting>,
}

/// How partitions are asked about.
#[derive(Debug, Clone, Default)]
pub struct WhyOptions {
    /// Only these topics; if empty, all but the cluster's metadata log.
    pub topics: Vec<String>,
    /// Only partitions with these numbers; all if empty.
    pub partitions: Vec<i32>,
    /// The broker's `server.properties`, for settings that only it has.
    pub broker: Option<BrokerSettings>,
    /// The directory with the cluster's metadata log, if it is not one of the log dirs.
    pub metadata: Option<PathBuf>,
    /// The time in milliseconds since 1970 by which ages are computed; by default the log dir's clock.
    pub now: Option<i64>,
    /// Called as the work proceeds.
    pub progress: PartitionProgress,
}

/// The answers for several partitions.
#[derive(Debug, Default)]
pub struct WhyReport {
    /// By partition and question. Each partition has an answer about deletion, one about compaction if it is compacted, and one about
    /// reading if `read_committed` ends early.
    pub answers: Vec<Answer>,
    /// What could not be taken into account, and why.
    pub warnings: Vec<String>,
    /// Partitions that could not be read.
    pub unread: Vec<Unread>,
}

/// One partition, and what decides about it.
struct Case<'c> {
    log: Log,
    partition: &'c TopicPartition,
    settings: &'c EffectiveConfig,
    /// Whether its broker has no cleaner.
    cleaner_is_off: bool,
    /// Offset up to which records may be removed: other brokers may lack the rest.
    removable_end: i64,
    now: i64,
}

impl Case<'_> {
    fn answer(&self, question: Question, reason: Reason, sentence: String) -> Answer {
        Answer {
            partition: self.partition.clone(),
            path: self.log.path().to_path_buf(),
            question,
            reason,
            sentence,
            remedy: String::new(),
            segment: None,
            offset: None,
            timestamp: None,
            due_timestamp: None,
            bytes: None,
            producer: None,
            settings: Vec::new(),
        }
    }

    fn setting(&self, name: &'static str) -> DecisiveSetting {
        DecisiveSetting {
            name,
            value: self.settings.text(name).map(str::to_owned),
            source: self.settings.source(name),
        }
    }

    /// `name=value (source)`.
    fn shown(&self, name: &'static str) -> String {
        let setting = self.setting(name);
        let value = setting.value.as_deref().unwrap_or("?");
        format!("{name}={value} ({})", setting.source.name())
    }

    /// The answer where the broker has no cleaner: Kafka's `LogManager.cleanupLogs` then passes compacted topics over, and no cleaner
    /// thread takes them.
    fn cleaner_off(&self, question: Question, bytes: u64) -> Answer {
        let sentence = format!(
            "{CLEANER}=false ({}): the broker neither compacts this topic nor deletes its segments",
            SettingSource::Broker.name()
        );
        Answer {
            remedy: format!(
                "{CLEANER}=true in the broker's server.properties, and a start of the broker; `offsetlog maintain` refuses as long as it is false"
            ),
            bytes: Some(bytes),
            settings: vec![DecisiveSetting {
                name: CLEANER,
                value: Some("false".to_owned()),
                source: SettingSource::Broker,
            }],
            ..self.answer(question, Reason::CleanerOff, sentence)
        }
    }

    /// The answer where one of these settings is not known.
    fn unknown(&self, question: Question, names: &[&'static str]) -> Option<Answer> {
        let is_unknown =
            |name: &&&'static str| self.settings.source(name) == SettingSource::Unknown;
        let name = *names.iter().find(is_unknown)?;
        let reason = self.settings.reason(name).unwrap_or("nobody gives it");
        let sentence = format!("{name} is not known here: {reason}");
        Some(Answer {
            remedy: "pass the broker's server.properties with --broker, and the directory of the cluster's metadata log with --metadata"
                .to_owned(),
            settings: vec![self.setting(name)],
            ..self.answer(question, Reason::UnknownSetting, sentence)
        })
    }
}

/// Explains for each partition of a log dir what keeps its records from being deleted, compacted, or read with `read_committed`.
///
/// Reads the names and sizes of segments, the time indexes of the oldest ones, and the batch headers that the last stable offset needs.
/// `__transaction_state` is read once, and only if there is an open transaction. Nothing is changed.
///
/// # Errors
/// `Interrupted`; that of `progress`; `LogDir` for log dirs of several clusters, and if `metadata` has no metadata log. Those of a partition are in the report.
///
/// ```no_run
/// # fn main() -> Result<(), offsetlog::Error> {
/// use offsetlog::{PartitionProgress, LogDir, OpenOptions};
/// use offsetlog_ops::{WhyOptions, why};
///
/// let log_dir = LogDir::open(&["/var/lib/kafka"], &OpenOptions::default())?;
/// for answer in why(&log_dir, &WhyOptions::default())?.answers {
///     println!("{}: {}. {}", answer.partition, answer.sentence, answer.remedy);
/// }
/// # Ok(())
/// # }
/// ```
pub fn why(log_dir: &LogDir, options: &WhyOptions) -> Result<WhyReport> {
    log_dir.check_one_cluster()?;
    let mut report = WhyReport::default();
    let cluster = log_dir.cluster_settings(options.broker.as_ref(), options.metadata.as_deref())?;
    let now = options.now.unwrap_or_else(|| (log_dir.options().clock)());
    let mut coordinators = Coordinators::new(log_dir);
    let mut settings: Option<(String, TopicSettings)> = None;
    let mut partitions = log_dir.partitions();
    partitions.retain(|partition| {
        // Snapshots decide what the metadata log keeps, and no topic's settings.
        let is_left_out = options.topics.is_empty() && partition.topic == METADATA_TOPIC;
        !is_left_out
            && is_among(&options.topics, &partition.topic)
            && is_among(&options.partitions, &partition.partition)
    });
    let mut metadata_paths = BTreeSet::new();
    options.progress.for_each(partitions, |partition| {
        if settings
            .as_ref()
            .is_none_or(|(topic, _)| *topic != partition.topic)
        {
            settings = match log_dir.topic_settings_from(&partition.topic, &cluster) {
                Ok(found) => {
                    metadata_paths.extend(found.metadata_path.clone());
                    Some((partition.topic.clone(), found))
                }
                Err(error) => return pass_over(error, partition, &mut report.unread),
            };
        }
        let Some((_, settings)) = &settings else {
            return Ok(());
        };
        let case = log_dir
            .log(&partition.topic, partition.partition)
            .and_then(|log| {
                Ok(Case {
                    removable_end: log_dir.removable_end(&log, &cluster)?,
                    log,
                    partition: &partition,
                    settings: &settings.config,
                    cleaner_is_off: settings.cleaner_is_off,
                    now,
                })
            });
        let failed =
            case.and_then(|case| answer_into(&mut report.answers, &case, &mut coordinators));
        match failed {
            Ok(()) => Ok(()),
            Err(error) => pass_over(error, partition, &mut report.unread),
        }
    })?;
    report.warnings = coordinators.into_warnings();
    if options.metadata.is_none() {
        report
            .warnings
            .extend(which_metadata(log_dir, &metadata_paths));
    }
    Ok(report)
}

/// Says which metadata log the settings are of, if these log dirs have several: they may say different things.
#[must_use]
pub fn which_metadata(log_dir: &LogDir, read: &BTreeSet<PathBuf>) -> Option<String> {
    let logs = log_dir.directories(METADATA_TOPIC);
    let of_cluster = logs.iter().filter(|(partition, _)| *partition == 0);
    let count = of_cluster.count();
    if count < 2 || read.is_empty() {
        return None;
    }
    let paths: Vec<String> = read.iter().map(|path| path.display().to_string()).collect();
    Some(format!(
        "of {count} metadata logs here the newest is read: {}",
        paths.join(", ")
    ))
}

/// Adds what there is to say of a partition. Damage that keeps one question from being answered hides no other answer.
///
/// # Errors
/// The first error, after all questions were asked.
fn answer_into(
    answers: &mut Vec<Answer>,
    case: &Case<'_>,
    coordinators: &mut Coordinators<'_>,
) -> Result<()> {
    let asked = [
        deletion::answer(case).map(Some),
        compaction::answer(case, coordinators),
        reading::answer(case, coordinators),
    ];
    let mut done = Ok(());
    for answer in asked {
        match answer {
            Ok(answer) => answers.extend(answer),
            Err(error) => done = done.and(Err(error)),
        }
    }
    done
}
