//! What the cluster's metadata says beside the directories, read again when it has changed.

use super::broker::lock;
use super::catalog::Surroundings;
use super::options::{Event, ServeOptions};
use offsetlog::{ClusterSettings, Group, LogDir, MetadataImage, MetadataMark, Result, TopicImage};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

/// The metadata is read again after this time at the earliest. A controller that runs writes to it twice a second, and a cluster of
/// hundreds of thousands of partitions has tens of megabytes of it: reading them takes some tenths of a second.
const READ_EVERY_MS: i64 = 5000;
/// A request for a topic that the metadata lacks reads the metadata at once, but no more than once in this time: a broker writes the topic
/// to the metadata before it creates the directories.
const ASKED_EVERY_MS: i64 = 1000;
/// Sources that could not be read are read again after this time, even if no file has changed since.
const READ_FAILED_EVERY_MS: i64 = 60_000;
/// The same reason is reported again after this time.
const TELL_AGAIN_MS: i64 = 3_600_000;
/// At most this many reasons are reported in that time.
const TOLD_MAX: usize = 16;

/// The cluster around the log dirs that are served.
#[derive(Debug)]
pub(super) struct Cluster {
    /// The layers below the topics' own settings.
    pub(super) settings: Option<ClusterSettings>,
    surroundings: Mutex<Arc<Surroundings>>,
    /// Held while the metadata is read: the reading thread waits for it, and so does a request for an unknown topic.
    looked: Mutex<Looked>,
}

/// The last look at the metadata.
#[derive(Debug)]
struct Looked {
    /// Its files before it was read.
    mark: MetadataMark,
    /// How far it reached, without what it says; `None` if there was none.
    known: Option<MetadataImage>,
    next_ms: i64,
    /// When a topic was asked for that it does not have.
    asked_ms: Option<i64>,
    /// When to read failed sources again, even if no file has changed.
    again_ms: Option<i64>,
    /// The reasons that were reported, and when.
    told: BTreeMap<String, i64>,
}

impl Cluster {
    /// Reads the metadata.
    ///
    /// # Errors
    /// `Interrupted`; `LogDir` if the options name a folder that has no metadata.
    pub(super) fn open(
        log_dir: &LogDir,
        options: &ServeOptions,
        groups: &[Group],
        warnings: &mut Vec<String>,
    ) -> Result<Self> {
        let settings = log_dir.cluster_settings(
            options.broker_settings.as_ref(),
            options.metadata.as_deref(),
        );
        let settings = match settings {
            Ok(settings) => Some(settings),
            // A metadata path that the user named must work.
            Err(error) if options.metadata.is_some() => return Err(error),
            Err(error) => {
                warnings.push(format!("settings are not known: {error}"));
                None
            }
        };
        let mut again_ms = None;
        let mark = log_dir.metadata_mark(settings.as_ref());
        let image = match log_dir.metadata() {
            Ok(image) => image,
            Err(error) if error.is_of_process() => return Err(error),
            Err(error) => {
                warnings.push(format!("the cluster's metadata cannot be read: {error}"));
                again_ms = Some(i64::MIN);
                None
            }
        };
        if let Some(settings) = &settings {
            read_settings(log_dir, settings);
        }
        let topics = image.as_ref().map(topics_of).unwrap_or_default();
        let surroundings = Surroundings::new(topics, groups, settings.clone());
        Ok(Self {
            settings,
            surroundings: Mutex::new(Arc::new(surroundings)),
            looked: Mutex::new(Looked {
                mark,
                known: image.as_ref().map(reach_of),
                next_ms: i64::MIN,
                asked_ms: None,
                again_ms,
                told: BTreeMap::new(),
            }),
        })
    }

    pub(super) fn surroundings(&self) -> Arc<Surroundings> {
        Arc::clone(&lock(&self.surroundings))
    }

    /// A group has committed this leader epoch.
    pub(super) fn committed(&self, topic: &str, partition: i32, epoch: i32) {
        Arc::make_mut(&mut *lock(&self.surroundings)).committed(topic, partition, epoch);
    }

    /// Reads the metadata again if it has changed and was not read a moment ago. A part that cannot be read keeps its last known state.
    pub(super) fn follow(&self, log_dir: &LogDir, options: &ServeOptions, now_ms: i64) {
        let mut looked = lock(&self.looked);
        // A clock that was set back must not stop it.
        let is_due =
            now_ms >= looked.next_ms || looked.next_ms.saturating_sub(now_ms) > READ_EVERY_MS;
        if is_due {
            self.read_if_changed(&mut looked, log_dir, options, now_ms);
        }
    }

    /// Reads the metadata now if it does not have a topic that is asked for, and has changed.
    pub(super) fn look_for(
        &self,
        topic: &str,
        log_dir: &LogDir,
        options: &ServeOptions,
        now_ms: i64,
    ) {
        if self.surroundings().topics.contains_key(topic) {
            return;
        }
        let mut looked = lock(&self.looked);
        let is_known = self.surroundings().topics.contains_key(topic);
        // A clock that was set back must not stop it.
        let is_recent = |at: i64| (0..ASKED_EVERY_MS).contains(&now_ms.saturating_sub(at));
        if !is_known && !looked.asked_ms.is_some_and(is_recent) {
            looked.asked_ms = Some(now_ms);
            self.read_if_changed(&mut looked, log_dir, options, now_ms);
        }
    }

    fn read_if_changed(
        &self,
        looked: &mut Looked,
        log_dir: &LogDir,
        options: &ServeOptions,
        now_ms: i64,
    ) {
        let mark = log_dir.metadata_mark(self.settings.as_ref());
        if mark == looked.mark && looked.again_ms.is_none_or(|again| now_ms < again) {
            return;
        }
        looked.mark = mark;
        looked.again_ms = None;
        looked.next_ms = now_ms.saturating_add(READ_EVERY_MS);
        let mut failed = Vec::new();
        match read(log_dir, looked.known.as_ref()) {
            Ok(Some(image)) => {
                looked.known = Some(reach_of(&image));
                let topics = topics_of(&image);
                Arc::make_mut(&mut *lock(&self.surroundings)).topics = topics;
            }
            Ok(None) => {}
            Err(reason) => failed.push(reason),
        }
        // Settings may come from other places, which can be read even if that one cannot.
        match self.settings.as_ref().map(ClusterSettings::refresh) {
            Some(Ok(reasons)) => {
                // Both may be read from the same place.
                failed.retain(|own| !reasons.iter().any(|reason| reason.ends_with(own)));
                failed.extend(reasons);
            }
            Some(Err(error)) => failed.push(error.to_string()),
            None => {}
        }
        if failed.is_empty() {
            return;
        }
        looked.again_ms = Some(now_ms.saturating_add(READ_FAILED_EVERY_MS));
        let reason = failed.join("; ");
        if looked.is_news(&reason, now_ms) {
            options.tell(&Event::MetadataNotRead { reason });
        }
    }
}

impl Looked {
    /// Whether to report the reason: a recurring one once an hour, and only a few reasons in that time.
    fn is_news(&mut self, reason: &str, now_ms: i64) -> bool {
        let is_recent = |told: i64| (0..TELL_AGAIN_MS).contains(&now_ms.saturating_sub(told));
        self.told.retain(|_, told| is_recent(*told));
        if self.told.len() >= TOLD_MAX || self.told.contains_key(reason) {
            return false;
        }
        self.told.insert(reason.to_owned(), now_ms);
        true
    }
}

/// Reads the metadata again; `None` if there is none, and was none.
fn read(
    log_dir: &LogDir,
    known: Option<&MetadataImage>,
) -> std::result::Result<Option<MetadataImage>, String> {
    let image = log_dir
        .metadata_again()
        .map_err(|error| error.to_string())?;
    match (known, &image) {
        (Some(_), None) => Err("it is no longer in the log dirs".to_owned()),
        (Some(known), Some(image)) => image
            .less_than(known)
            .map_or(Ok(()), |why| Err(why.to_owned())),
        _ => Ok(()),
    }?;
    Ok(image)
}

/// How far it reaches.
fn reach_of(image: &MetadataImage) -> MetadataImage {
    MetadataImage {
        end_offset: image.end_offset,
        is_complete: image.is_complete,
        is_of_zookeeper: image.is_of_zookeeper,
        ..MetadataImage::default()
    }
}

fn topics_of(image: &MetadataImage) -> Arc<HashMap<String, TopicImage>> {
    let topics = image.topics.iter();
    Arc::new(
        topics
            .map(|topic| (topic.name.clone(), topic.clone()))
            .collect(),
    )
}

/// Reads the sources of settings, once for each log dir: what is known of them stays if they cannot be read later.
fn read_settings(log_dir: &LogDir, settings: &ClusterSettings) {
    let mut seen = BTreeSet::new();
    for topic in log_dir.topics().into_keys() {
        let first = log_dir.directories(&topic).into_iter().next();
        let parent = first.and_then(|(_, path)| path.parent().map(std::path::Path::to_path_buf));
        if seen.insert(parent) {
            // An error here occurs again for each request, which then reports it.
            let _ = log_dir.topic_settings_from(&topic, settings);
        }
    }
}
