//! Fetch sessions (KIP-227): they remember what a client fetches, so that it need not repeat it, and gets only what changed.
//!
//! Source: Kafka's `FetchManager` and `FetchSession`.

use crate::error_code::ErrorCode;
use offsetlog::format::Uuid;
use offsetlog::format::name::TOPIC_MAXIMUM_CHARACTERS;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

/// A session that was not used for this long makes room for another one.
const EVICT_AFTER_MS: i64 = 120_000;
/// Most bytes of memory, about, for all sessions.
const BYTES_MAX: usize = 64 << 20;
/// The epoch of a request that begins a session, and of one that ends it or wants none.
const INITIAL: i32 = 0;
const FINAL: i32 = -1;

/// What a client wants of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Empty for a topic of which only the id was given.
    pub(crate) topic: Arc<str>,
    /// Zeros for a topic that was given by name.
    pub(crate) topic_id: Uuid,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) current_epoch: i32,
    pub(crate) last_fetched_epoch: i32,
    pub(crate) max_bytes: i32,
}

/// Topic, id and partition.
pub(crate) type Key = (Arc<str>, [u8; 16], i32);

/// Whether no topic can have this name. A session does not keep such a name: looking a long name up takes time.
fn is_no_topic(name: &str) -> bool {
    name.len() > TOPIC_MAXIMUM_CHARACTERS
}

/// What a partition costs in a session: its names may be shared, but need not.
fn bytes_of(key: &Key) -> usize {
    2 * key.0.len() + 2 * size_of::<Key>() + size_of::<Kept>() + 64
}

impl Wanted {
    pub(crate) fn key(&self) -> Key {
        (
            Arc::clone(&self.topic),
            self.topic_id.to_bytes(),
            self.partition,
        )
    }
}

/// What was answered of a partition, as far as the next answer depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) has_records: bool,
    pub(crate) high_watermark: i64,
    pub(crate) log_start: i64,
    pub(crate) is_error: bool,
    pub(crate) is_diverging: bool,
}

#[derive(Debug)]
struct Kept {
    wanted: Wanted,
    high_watermark: i64,
    log_start: i64,
}

impl Kept {
    fn new(wanted: Wanted, told: Option<&Told>) -> Self {
        Self {
            wanted,
            high_watermark: told
                .filter(|told| !told.is_error)
                .map_or(-1, |told| told.high_watermark),
            log_start: told.map_or(-1, |told| told.log_start),
        }
    }

    /// Records an answer. Returns whether the response must include the partition.
    fn update(&mut self, told: &Told) -> bool {
        let moved = self.high_watermark != told.high_watermark || self.log_start != told.log_start;
        self.log_start = told.log_start;
        // The end of an error is reported, too.
        self.high_watermark = if told.is_error {
            -1
        } else {
            told.high_watermark
        };
        told.has_records || moved || told.is_error || told.is_diverging
    }
}

#[derive(Debug)]
struct Session {
    epoch: i32,
    uses_ids: bool,
    last_used_ms: i64,
    partitions: HashMap<Key, Kept>,
    /// In the order in which they are read: those that had records last come last.
    order: Vec<Key>,
    bytes: usize,
}

/// How a fetch is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Everything, and no session.
    Sessionless,
    /// Everything, and a session begins.
    Begin {
        /// Whether topics are given by id.
        uses_ids: bool,
    },
    /// What changed in this session.
    GoOn {
        /// The session.
        id: i32,
        /// Its epoch after this request.
        epoch: i32,
    },
}

/// The sessions of all connections.
#[derive(Debug)]
pub(crate) struct FetchSessions {
    sessions: HashMap<i32, Session>,
    sessions_max: usize,
    bytes: usize,
    /// Ids that nobody can guess: a client that knows one could disturb the session.
    random: RandomState,
    count: u64,
}

impl FetchSessions {
    pub(crate) fn new(sessions_max: usize) -> Self {
        Self {
            sessions: HashMap::new(),
            sessions_max,
            bytes: 0,
            random: RandomState::new(),
            count: 0,
        }
    }

    /// Takes a request: says how it is answered, and which partitions are to be read.
    pub(crate) fn take(
        &mut self,
        (id, epoch): (i32, i32),
        uses_ids: bool,
        wanted: Vec<Wanted>,
        forgotten: &[Key],
        now_ms: i64,
    ) -> Result<(Plan, Vec<Wanted>), ErrorCode> {
        if epoch == INITIAL || epoch == FINAL {
            self.remove(id);
            let plan = if epoch == FINAL {
                Plan::Sessionless
            } else {
                Plan::Begin { uses_ids }
            };
            return Ok((plan, wanted));
        }
        let room = BYTES_MAX.saturating_sub(self.bytes);
        let Some(session) = self.sessions.get_mut(&id) else {
            return Err(ErrorCode::FetchSessionIdNotFound);
        };
        if session.epoch != epoch {
            return Err(ErrorCode::InvalidFetchSessionEpoch);
        }
        if session.uses_ids != uses_ids {
            return Err(ErrorCode::FetchSessionTopicIdError);
        }
        let more = wanted.iter().map(|each| bytes_of(&each.key()));
        if more.sum::<usize>() > room || wanted.iter().any(|each| is_no_topic(&each.topic)) {
            // The client begins another session, which is not kept.
            self.remove(id);
            return Err(ErrorCode::FetchSessionIdNotFound);
        }
        let before = session.bytes;
        for each in wanted.iter().cloned() {
            let key = each.key();
            if let Some(kept) = session.partitions.get_mut(&key) {
                let topic = Arc::clone(&kept.wanted.topic);
                kept.wanted = Wanted { topic, ..each };
            } else {
                session.bytes = session.bytes.saturating_add(bytes_of(&key));
                session.order.push(key.clone());
                session.partitions.insert(key, Kept::new(each, None));
            }
        }
        for key in forgotten.iter().filter(|key| !is_no_topic(&key.0)) {
            if session.partitions.remove(key).is_some() {
                session.bytes = session.bytes.saturating_sub(bytes_of(key));
            }
        }
        let kept = &session.partitions;
        session.order.retain(|key| kept.contains_key(key));
        let after = session.bytes;
        self.bytes = self.bytes.saturating_sub(before).saturating_add(after);
        if session.partitions.is_empty() {
            self.remove(id);
            return Ok((Plan::Sessionless, wanted));
        }
        session.epoch = next_epoch(epoch);
        session.last_used_ms = now_ms;
        let plan = Plan::GoOn {
            id,
            epoch: session.epoch,
        };
        let order = session.order.iter();
        let wanted = order.filter_map(|key| Some(session.partitions.get(key)?.wanted.clone()));
        Ok((plan, wanted.collect()))
    }

    /// Takes the answers of all partitions: returns the session's id for the response, and for each partition whether to include it.
    pub(crate) fn answered(
        &mut self,
        plan: Plan,
        parts: &[(Wanted, Told)],
        now_ms: i64,
    ) -> Result<(i32, Vec<bool>), ErrorCode> {
        let all = vec![true; parts.len()];
        match plan {
            Plan::Sessionless => Ok((0, all)),
            Plan::Begin { uses_ids } => Ok((self.begin(uses_ids, parts, now_ms), all)),
            Plan::GoOn { id, epoch } => {
                let Some(session) = self.sessions.get_mut(&id) else {
                    return Err(ErrorCode::FetchSessionIdNotFound);
                };
                if session.epoch != epoch {
                    return Err(ErrorCode::InvalidFetchSessionEpoch);
                }
                session.last_used_ms = now_ms;
                let mut is_told = Vec::new();
                let mut read = Vec::new();
                let mut is_read = HashSet::new();
                for (wanted, told) in parts {
                    let key = wanted.key();
                    let kept = session.partitions.get_mut(&key);
                    is_told.push(kept.is_some_and(|kept| kept.update(told)));
                    if told.has_records && is_read.insert(key.clone()) {
                        read.push(key);
                    }
                }
                if !read.is_empty() {
                    session.order.retain(|key| !is_read.contains(key));
                    session.order.extend(read);
                }
                Ok((id, is_told))
            }
        }
    }

    fn begin(&mut self, uses_ids: bool, parts: &[(Wanted, Told)], now_ms: i64) -> i32 {
        let bytes = parts.iter().map(|(wanted, _)| bytes_of(&wanted.key()));
        let bytes = bytes.sum();
        let is_kept = !parts.iter().any(|(wanted, _)| is_no_topic(&wanted.topic));
        if !is_kept || !self.make_room(bytes, now_ms) {
            return 0;
        }
        let id = self.new_id();
        let mut session = Session {
            epoch: next_epoch(INITIAL),
            uses_ids,
            last_used_ms: now_ms,
            partitions: HashMap::new(),
            order: Vec::new(),
            bytes: 0,
        };
        for (wanted, told) in parts {
            let key = wanted.key();
            let kept = Kept::new(wanted.clone(), Some(told));
            if session.partitions.insert(key.clone(), kept).is_none() {
                session.bytes = session.bytes.saturating_add(bytes_of(&key));
                session.order.push(key);
            }
        }
        self.bytes = self.bytes.saturating_add(session.bytes);
        self.sessions.insert(id, session);
        id
    }

    /// Whether a session of this many bytes may begin. Ends the one that was not used for longest, if that is long.
    fn make_room(&mut self, bytes: usize, now_ms: i64) -> bool {
        let has_room = |sessions: &Self| {
            sessions.sessions.len() < sessions.sessions_max
                && sessions.bytes.saturating_add(bytes) <= BYTES_MAX
        };
        if has_room(self) {
            return true;
        }
        let oldest = self
            .sessions
            .iter()
            .min_by_key(|(_, session)| session.last_used_ms)
            .map(|(id, session)| (*id, session.last_used_ms));
        if let Some((id, last_used_ms)) = oldest
            && now_ms.saturating_sub(last_used_ms) > EVICT_AFTER_MS
        {
            self.remove(id);
        }
        has_room(self)
    }

    fn remove(&mut self, id: i32) {
        if let Some(session) = self.sessions.remove(&id) {
            self.bytes = self.bytes.saturating_sub(session.bytes);
        }
    }

    fn new_id(&mut self) -> i32 {
        loop {
            self.count = self.count.wrapping_add(1);
            let mut hasher = self.random.build_hasher();
            hasher.write_u64(self.count);
            let id = (hasher.finish() >> 33) as i32;
            if id > 0 && !self.sessions.contains_key(&id) {
                return id;
            }
        }
    }
}

const fn next_epoch(epoch: i32) -> i32 {
    match epoch {
        i32::MAX => 1,
        epoch => epoch + 1,
    }
}
