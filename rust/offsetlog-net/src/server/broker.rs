//! The server: takes requests, one at a time from each connection, and dispatches them by API.

use super::catalog::{Catalog, Slot, Topic};
use super::cluster::Cluster;
use super::committed::Committed;
use super::fetch::FetchJob;
use super::fetch_sessions::FetchSessions;
use super::groups::{GroupAnswer, Groups, is_of_groups};
use super::identity::identity;
use super::open_transactions::{Decisions, doubts_of_deciding};
use super::options::{Event, OpenTransactions, ServeOptions};
use super::partition::Partition;
use super::reply::{closed, reply, reply_in};
use super::request::decode;
use crate::coordinator::UnknownOffsets;
use crate::step::{Changes, Peer, Room, Service, Step};
use offsetlog::format::cursor::Reader;
use offsetlog::format::error::Part;
use offsetlog::format::internal_topic::METADATA_TOPIC;
use offsetlog::format::message::Struct;
use offsetlog::format::protocol::{Api, RequestHeader, announced, api, apis};
use offsetlog::{Error, Group, LogDir, Result};
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

#[cfg(test)]
mod inside;

/// The log dirs are listed again after this time.
const LIST_EVERY_MS: i64 = 1000;
/// Partitions that fetches wait for are looked at again after this time.
const LOOK_EVERY_MS: i64 = 20;
/// Upkeep of the groups is looked at after this time.
const UPKEEP_EVERY_MS: i64 = 300_000;

/// Serves log dirs. Many threads may use it at once.
#[derive(Debug)]
pub struct Broker {
    pub(super) options: ServeOptions,
    pub(super) log_dir: LogDir,
    pub(super) node_id: i32,
    pub(super) cluster_id: String,
    pub(super) cluster: Cluster,
    pub(super) sessions: Mutex<FetchSessions>,
    pub(super) decisions: Mutex<Decisions>,
    pub(super) producer_ids: AtomicI64,
    pub(super) warnings: Vec<String>,
    groups: Arc<Vec<Group>>,
    /// What is not known of them.
    pub(super) unknown: UnknownOffsets,
    coordinator: Option<Box<dyn Groups>>,
    catalog: Arc<RwLock<Arc<Catalog>>>,
    /// The partitions that fetches wait for, each with the number of fetches and the end that was seen.
    awaited: Mutex<HashMap<(String, i32), Awaited>>,
    changes: Arc<Changes>,
    next_listing_ms: AtomicI64,
    /// Why the log dirs could not be listed the last time.
    not_listed: Mutex<Option<String>>,
    next_upkeep_ms: AtomicI64,
    /// When undecided open transactions are looked up again.
    pub(super) next_doubt_ms: AtomicI64,
    connections: AtomicU64,
}

#[derive(Debug)]
struct Awaited {
    partition: Arc<Partition>,
    fetches: usize,
    /// Start, end and leader epoch: a log that was truncated may have grown to the same end.
    seen: Option<(i64, i64, i32)>,
}

/// What the server knows of one connection.
#[derive(Debug)]
pub struct Session {
    pub(super) peer: Peer,
    /// Tells connections apart.
    pub(super) connection_id: u64,
    pub(super) waiting: Option<Waiting>,
}

/// A request that waits.
#[derive(Debug)]
pub(super) enum Waiting {
    Fetch(FetchJob),
    Group {
        api: &'static Api,
        version: i16,
        correlation_id: i32,
        ticket: u64,
    },
}

/// The request that is being answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) api: &'static Api,
    pub(super) version: i16,
    pub(super) correlation_id: i32,
    pub(super) client_id: Option<&'a [u8]>,
    pub(super) now_ms: i64,
}

impl Broker {
    /// Opens log dirs to serve them. `paths` are log dirs, partition directories and ZooKeeper's data, of one broker or of several brokers
    /// of a cluster: of several replicas of a partition the best one is served.
    ///
    /// Reads the cluster's metadata, the groups' committed offsets, and of each partition its ends. Changes nothing on the disk.
    ///
    /// # Errors
    /// Those of [`LogDir::open`]; `Argument` if open transactions are to be decided and no partition of `__transaction_state` is here;
    /// `LogDir` if they are to be decided and the log dirs are of several clusters. Without that, only the groups of several clusters are
    /// left out, with a warning.
    pub fn open<P: AsRef<Path>>(paths: &[P], options: ServeOptions) -> Result<Self> {
        // It says which topics and partitions there are, and so which are missing, not only their settings.
        let metadata = options.metadata.as_deref();
        let log_dir = LogDir::open_with_metadata(paths, &options.open, metadata)?;
        let mut warnings = log_dir.warnings();
        let decides_by_state = OpenTransactions::Decide {
            without_state: false,
        };
        if options.open_transactions == decides_by_state
            && !log_dir.topics().contains_key("__transaction_state")
        {
            return Err(Error::argument(
                "open_transactions",
                "no partition of __transaction_state is here, so nobody can tell how open transactions end; to show them as aborted, say so: \
                 --without-state (without_state=True)",
            ));
        }
        let committed = Committed::read(&log_dir, &options, &mut warnings)?;
        // That the metadata cannot be read, the cluster tells.
        let hidden = committed
            .unread()
            .iter()
            .filter(|unread| unread.partition.topic != METADATA_TOPIC);
        warnings.extend(hidden.map(|unread| {
            format!(
                "committed offsets are missing or old: {} cannot be read completely: {}",
                unread.partition, unread.error
            )
        }));
        warnings.extend(doubts_of_deciding(&log_dir, &options)?);
        let cluster = Cluster::open(&log_dir, &options, &committed.groups, &mut warnings)?;
        let unknown = committed.unknown(&log_dir, &cluster.surroundings().topics, &options)?;
        let (cluster_id, node_id) = identity(&log_dir, &mut warnings);
        let catalog = Catalog::read(&log_dir, &cluster.surroundings(), &options, None);
        warnings.extend(catalog.left_out.iter().cloned());
        warnings.extend(catalog.beyond_ends());
        Ok(Self {
            node_id: options.node_id.unwrap_or(node_id),
            sessions: Mutex::new(FetchSessions::new(options.fetch_sessions_max)),
            decisions: Mutex::default(),
            producer_ids: AtomicI64::new(1_000_000_000),
            catalog: Arc::new(RwLock::new(Arc::new(catalog))),
            awaited: Mutex::default(),
            changes: Arc::default(),
            next_listing_ms: AtomicI64::new(i64::MIN),
            not_listed: Mutex::default(),
            next_upkeep_ms: AtomicI64::new(i64::MIN),
            next_doubt_ms: AtomicI64::new(i64::MIN),
            connections: AtomicU64::new(0),
            groups: Arc::new(committed.groups),
            unknown,
            coordinator: None,
            options,
            log_dir,
            cluster,
            cluster_id,
            warnings,
        })
    }

    /// Serves consumer groups too. Leader epochs that they have committed count from now on.
    #[must_use]
    pub fn with_groups(mut self, groups: Box<dyn Groups>) -> Self {
        let catalog = self.catalog();
        for ((topic, number), epoch) in groups.leader_epochs() {
            let slot = catalog
                .topic(&topic)
                .and_then(|topic| topic.slots.get(&number));
            if let Some(partition) = slot.and_then(Slot::partition) {
                partition.raise_epoch(epoch);
            }
            self.cluster.committed(&topic, number, epoch);
        }
        self.coordinator = Some(groups);
        self
    }

    /// Reads the cluster's metadata again if it has changed, every five seconds at most; the next tick serves by it. Takes as long as the
    /// reading does, so a thread of its own calls this about once a second.
    pub fn follow_metadata(&self, now_ms: i64) {
        self.cluster.follow(&self.log_dir, &self.options, now_ms);
    }

    /// Makes the groups' commits durable.
    ///
    /// # Errors
    /// Those of their log.
    pub fn flush_groups(&self) -> Result<()> {
        self.groups_of().map_or(Ok(()), Groups::flush)
    }

    /// Changes when a waiting request may be answered. Whoever answers such requests holds it.
    #[must_use]
    pub fn shared_changes(&self) -> Arc<Changes> {
        Arc::clone(&self.changes)
    }

    /// A function that returns the topic id of a partition: zeros if it has none, `None` if there is no such partition.
    #[must_use]
    pub fn topic_ids(&self) -> crate::coordinator::TopicId {
        let catalog = Arc::clone(&self.catalog);
        Arc::new(move |topic, partition| {
            let catalog = catalog.read().unwrap_or_else(PoisonError::into_inner);
            let topic = catalog.topic(topic)?;
            topic.slots.contains_key(&partition).then_some(topic.id)
        })
    }

    /// A function that returns whether clients see a leader epoch of a partition that is at least the given one.
    #[must_use]
    pub fn told_epochs(&self) -> crate::coordinator::IsTold {
        let catalog = Arc::clone(&self.catalog);
        Arc::new(move |topic, partition, epoch| {
            let catalog = Arc::clone(&catalog.read().unwrap_or_else(PoisonError::into_inner));
            let topic = catalog.topic(topic);
            let slot = topic.and_then(|topic| topic.slots.get(&partition));
            slot.and_then(Slot::partition)
                .is_some_and(|partition| partition.tells(epoch))
        })
    }

    /// The broker id, host and port that clients see.
    #[must_use]
    pub fn node(&self) -> (i32, &str, u16) {
        (self.node_id, &self.options.host, self.options.port)
    }

    /// The log dirs that are served.
    #[must_use]
    pub const fn log_dir(&self) -> &LogDir {
        &self.log_dir
    }

    pub(super) fn groups_of(&self) -> Option<&dyn Groups> {
        self.coordinator.as_deref()
    }

    /// The groups that the log dirs had committed offsets of when they were opened.
    #[must_use]
    pub fn groups(&self) -> &Arc<Vec<Group>> {
        &self.groups
    }

    pub(super) fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lists the log dirs again.
    fn list(&self) {
        let failed = self.log_dir.refresh_listing();
        let failed = failed.err().map(|error| error.to_string());
        // Each listing retries; only a new reason is reported.
        let known = std::mem::replace(&mut *lock(&self.not_listed), failed.clone());
        if let Some(reason) = failed {
            if known.as_ref() != Some(&reason) {
                self.options.tell(&Event::NotListed { reason });
            }
            return;
        }
        let before = self.catalog();
        let surroundings = self.cluster.surroundings();
        let now = Catalog::read(&self.log_dir, &surroundings, &self.options, Some(&before));
        if now.is_as(&before) {
            return;
        }
        let committed = self.groups_of().map(Groups::leader_epochs);
        for ((topic, number), epoch) in committed.into_iter().flatten() {
            let topic = now.topic(&topic);
            let slot = topic.and_then(|topic| topic.slots.get(&number));
            if let Some(partition) = slot.and_then(Slot::partition) {
                partition.raise_epoch(epoch);
            }
        }
        let lines = changes_between(&before, &now);
        *self.catalog.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(now);
        if !lines.is_empty() {
            self.options.tell(&Event::Changed { lines });
            self.changes.announce();
        }
    }

    /// Looks at the partitions that fetches wait for, and announces a change of any of them.
    fn look(&self) {
        let awaited: Vec<((String, i32), Arc<Partition>)> = lock(&self.awaited)
            .iter()
            .map(|(key, awaited)| (key.clone(), Arc::clone(&awaited.partition)))
            .collect();
        let mut moved = false;
        let catalog = self.catalog();
        for (key, partition) in awaited {
            let topic = catalog.topic(&key.0);
            let slot = topic.and_then(|topic| topic.slots.get(&key.1));
            // Its directory may have been replaced since.
            let partition = slot.and_then(Slot::partition).unwrap_or(&partition);
            let bounds = partition
                .bounds()
                .ok()
                .map(|found| (found.start, found.end, found.leader_epoch));
            if let Some(awaited) = lock(&self.awaited).get_mut(&key)
                && awaited.seen != bounds
            {
                awaited.seen = bounds;
                moved = true;
            }
        }
        if moved {
            self.changes.announce();
        }
    }

    /// Registers or removes a fetch that waits for these partitions.
    fn wait_for(&self, job: &FetchJob, begins: bool) {
        let mut awaited = lock(&self.awaited);
        for partition in job.partitions() {
            let key = (partition.topic.clone(), partition.number);
            if begins {
                let known = awaited.entry(key).or_insert_with(|| Awaited {
                    partition: Arc::clone(partition),
                    fetches: 0,
                    seen: None,
                });
                known.fetches += 1;
            } else if let Some(known) = awaited.get_mut(&key) {
                known.fetches = known.fetches.saturating_sub(1);
                if known.fetches == 0 {
                    awaited.remove(&key);
                }
            }
        }
    }

    /// The connection of a request that waits has ended.
    fn forget(&self, waiting: &Waiting) {
        match waiting {
            Waiting::Fetch(job) => self.wait_for(job, false),
            Waiting::Group { ticket, .. } => {
                if let Some(groups) = self.groups_of() {
                    groups.forget(*ticket);
                }
            }
        }
    }

    fn dispatch(&self, session: &mut Session, asked: &Asked<'_>, request: &Struct<'_>) -> Step {
        let answer = match asked.api.key {
            key if key == apis::FETCH.key => return self.begin_fetch(session, asked, request),
            key if key == apis::PRODUCE.key => return Self::refuse_produce(asked, request),
            key if key == apis::METADATA.key => self.metadata(asked, request),
            key if key == apis::LIST_OFFSETS.key => self.list_offsets(asked, request),
            key if key == apis::OFFSET_FOR_LEADER_EPOCH.key => self.leader_epochs(request),
            key if key == apis::DESCRIBE_CLUSTER.key => self.describe_cluster(asked, request),
            key if key == apis::DESCRIBE_CONFIGS.key => {
                self.describe_configs(request, asked.now_ms)
            }
            key if key == apis::DESCRIBE_LOG_DIRS.key => self.describe_log_dirs(request),
            key if key == apis::DESCRIBE_ACLS.key => Self::describe_acls(),
            key if key == apis::INIT_PRODUCER_ID.key => self.init_producer_id(request),
            key => match self.groups_of().filter(|_| is_of_groups(key)) {
                Some(groups) => return Self::ask_groups(session, asked, request, groups),
                None if key == apis::FIND_COORDINATOR.key => Self::find_coordinator(asked, request),
                None => return closed(format!("{} is not served", asked.api.name)),
            },
        };
        reply(asked, &answer, Vec::new())
    }

    fn begin_fetch(&self, session: &mut Session, asked: &Asked<'_>, request: &Struct<'_>) -> Step {
        match self.fetch(asked, request) {
            Ok(job) => {
                self.wait_for(&job, true);
                session.waiting = Some(Waiting::Fetch(job));
                self.go_on(session, asked.now_ms)
            }
            Err(step) => step,
        }
    }

    /// Answers the fetch that waits, if it can be answered. It stays in the session meanwhile, whose end forgets it also after a panic.
    fn go_on(&self, session: &mut Session, now_ms: i64) -> Step {
        let Some(Waiting::Fetch(job)) = &session.waiting else {
            return Step::Silent;
        };
        let Some(step) = self.try_fetch(job, now_ms) else {
            return Step::Wait {
                until_ms: job.until_ms,
            };
        };
        self.wait_for(job, false);
        session.waiting = None;
        step
    }
}

impl Service for Broker {
    type Session = Session;

    fn begin(&self, peer: Peer) -> Session {
        Session {
            peer,
            connection_id: self.connections.fetch_add(1, Ordering::Relaxed),
            waiting: None,
        }
    }

    fn receive(
        &self,
        session: &mut Session,
        frame: &[u8],
        now_ms: i64,
        room: &mut dyn Room,
    ) -> Step {
        // A transport that gave up a request forgets it here.
        if let Some(waiting) = session.waiting.take() {
            self.forget(&waiting);
        }
        let mut reader = Reader::new(frame, Part::Protocol);
        let header = match RequestHeader::read(&mut reader) {
            Ok(header) => header,
            Err(error) => return closed(format!("the header of a request is malformed: {error}")),
        };
        let (Some(api), Some(versions)) = (api(header.api_key), announced(header.api_key)) else {
            return closed(format!("API key {} is not served", header.api_key));
        };
        let asked = Asked {
            api,
            version: header.api_version,
            correlation_id: header.correlation_id,
            client_id: header.client_id,
            now_ms,
        };
        if !versions.has_version(asked.version) || !api.has_version(asked.version) {
            if api.key == apis::API_VERSIONS.key {
                return Self::unsupported_api_versions(&asked);
            }
            return closed(format!(
                "version {} of {} is not served",
                asked.version, api.name
            ));
        }
        let request = match decode(api, asked.version, &reader, room) {
            Ok(request) => request,
            Err(reason) => return closed(reason),
        };
        if api.key == apis::API_VERSIONS.key {
            return Self::api_versions(&asked, &request);
        }
        self.dispatch(session, &asked, &request)
    }

    fn resume(&self, session: &mut Session, now_ms: i64) -> Step {
        let Some(Waiting::Group {
            api,
            version,
            correlation_id,
            ticket,
        }) = &mut session.waiting
        else {
            return self.go_on(session, now_ms);
        };
        let Some(groups) = self.groups_of() else {
            return closed("nobody coordinates groups any more".to_owned());
        };
        match groups.poll(*ticket, now_ms) {
            GroupAnswer::Reply(answer) => {
                let step = reply_in(api, *version, *correlation_id, &answer, Vec::new());
                session.waiting = None;
                step
            }
            GroupAnswer::Wait {
                ticket: next,
                until_ms,
            } => {
                *ticket = next;
                Step::Wait { until_ms }
            }
        }
    }

    fn end(&self, session: Session, now_ms: i64) {
        if let Some(waiting) = &session.waiting {
            self.forget(waiting);
        }
        if let Some(groups) = self.groups_of() {
            groups.disconnect(session.connection_id, now_ms);
        }
    }

    fn tick(&self, now_ms: i64) -> i64 {
        let due = self.next_listing_ms.load(Ordering::Relaxed);
        // A clock that was set back must not stop it.
        let is_due = now_ms >= due || due.saturating_sub(now_ms) > LIST_EVERY_MS;
        if is_due {
            let next = now_ms.saturating_add(LIST_EVERY_MS);
            let order = Ordering::Relaxed;
            if self
                .next_listing_ms
                .compare_exchange(due, next, order, order)
                .is_ok()
            {
                self.list();
            }
        }
        self.doubt_undecided(now_ms);
        self.look();
        let next = now_ms.saturating_add(LOOK_EVERY_MS);
        let Some(groups) = self.groups_of() else {
            return next;
        };
        let next = next.min(groups.tick(now_ms));
        let due = self.next_upkeep_ms.load(Ordering::Relaxed);
        let order = Ordering::Relaxed;
        let later = now_ms.saturating_add(UPKEEP_EVERY_MS);
        if (now_ms >= due || due > later)
            && self
                .next_upkeep_ms
                .compare_exchange(due, later, order, order)
                .is_ok()
            && let Err(error) = groups.maintain()
        {
            self.options.tell(&Event::GroupsFailed {
                reason: error.to_string(),
            });
        }
        next
    }

    fn changes(&self) -> &Changes {
        &self.changes
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What differs, one line for each topic.
fn changes_between(before: &Catalog, now: &Catalog) -> Vec<String> {
    let mut lines = Vec::new();
    let here = |topic: &Topic| {
        let slots = topic.slots.values();
        slots.filter(|slot| slot.partition().is_some()).count()
    };
    for (name, topic) in &now.topics {
        match before.topics.get(name) {
            None => lines.push(format!("{name} came with {} partitions", here(topic))),
            Some(known) if known.id != topic.id => {
                lines.push(format!("{name} was replaced by another topic of this name"));
            }
            Some(known) if here(known) != here(topic) => lines.push(format!(
                "{name} has {} partitions, {} before",
                here(topic),
                here(known)
            )),
            Some(_) => {}
        }
    }
    let removed = before
        .topics
        .keys()
        .filter(|name| !now.topics.contains_key(*name));
    lines.extend(removed.map(|name| format!("{name} was removed")));
    let left_out = now.left_out.iter();
    lines.extend(
        left_out
            .filter(|reason| !before.left_out.contains(reason))
            .map(|reason| format!("not served: {reason}")),
    );
    if lines.is_empty() && !now.serves_as(before) {
        lines.push("directories of partitions were replaced".to_owned());
    }
    lines
}
