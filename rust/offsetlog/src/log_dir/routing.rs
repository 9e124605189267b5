//! Chooses the partition of a record as Kafka's producers do.
//!
//! Source: Kafka's `Utils.murmur2`, `BuiltInPartitioner` (KIP-794) and `RoundRobinPartitioner`.

use crate::disk::random;
use crate::error::{Error, Result};
use offsetlog_format::Uuid;
use std::collections::HashMap;

/// After this many bytes, records without a key go to another partition: the default `batch.size` of a producer.
const STICKY_BYTES: u64 = 16_384;

/// How records without an explicit partition are routed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Partitioner {
    /// By the hash of the key. Records without a key go to one partition until it got 16,384 bytes, then to another one chosen
    /// at random.
    #[default]
    Default,
    /// To each partition in turn, whatever the key.
    RoundRobin,
}

/// Kafka's 32-bit hash of a key: murmur2 with Kafka's seed.
///
/// ```
/// assert_eq!(offsetlog::murmur2(b"user1"), 1_619_149_554);
/// ```
#[must_use]
pub fn murmur2(bytes: &[u8]) -> i32 {
    const M: u32 = 0x5bd1_e995;
    const SEED: u32 = 0x9747_b28c;
    let mut hash = SEED ^ bytes.len() as u32;
    let mut words = bytes.chunks_exact(4);
    for word in &mut words {
        let word = word
            .iter()
            .rev()
            .fold(0_u32, |word, &byte| word << 8 | u32::from(byte));
        let word = word.wrapping_mul(M);
        let word = (word ^ (word >> 24)).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ word;
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        hash ^= rest
            .iter()
            .rev()
            .fold(0_u32, |word, &byte| word << 8 | u32::from(byte));
        hash = hash.wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    (hash ^ (hash >> 15)) as i32
}

/// The partition of a key in a topic with this many partitions, as every Java producer chooses it. An empty key counts as a
/// key.
///
/// # Errors
/// `Argument` for less than one partition.
///
/// ```
/// assert_eq!(offsetlog::partition_for(b"user2", 12).unwrap(), 5);
/// ```
pub fn partition_for(key: &[u8], partitions: i32) -> Result<i32> {
    if partitions < 1 {
        return Err(Error::argument(
            "partitions",
            format!("{partitions} found, 1 or more expected"),
        ));
    }
    Ok((murmur2(key) & i32::MAX) % partitions)
}

/// The routing state of all topics.
#[derive(Debug)]
pub(super) struct Router {
    topics: HashMap<String, Topic>,
    random: fastrand::Rng,
}

#[derive(Debug, Default)]
struct Topic {
    /// The current partition for records without a key, and the bytes appended to it so far.
    sticky: Option<(i32, u64)>,
    /// Number of records routed in turn.
    turns: u64,
}

impl Router {
    pub(super) fn new(seed: Option<u64>) -> Self {
        Self {
            topics: HashMap::new(),
            random: seed.map_or_else(random, fastrand::Rng::with_seed),
        }
    }

    /// Returns the partition of a record. The partitions of a topic are numbered from 0.
    pub(super) fn route(
        &mut self,
        partitioner: Partitioner,
        topic: &str,
        key: Option<&[u8]>,
        partitions: i32,
    ) -> Result<i32> {
        if let (Partitioner::Default, Some(key)) = (partitioner, key) {
            return partition_for(key, partitions);
        }
        if !self.topics.contains_key(topic) {
            self.topics.insert(topic.to_owned(), Topic::default());
        }
        let random = &mut self.random;
        let Some(state) = self.topics.get_mut(topic) else {
            return Ok(0);
        };
        if partitioner == Partitioner::RoundRobin {
            let turn = state.turns % u64::from(partitions.unsigned_abs().max(1));
            state.turns += 1;
            return Ok(turn as i32);
        }
        let (partition, _) = *state
            .sticky
            .get_or_insert_with(|| (random.i32(0..partitions.max(1)), 0));
        Ok(partition)
    }

    /// Records that `bytes` were appended to the partition that a record without a key was routed to.
    pub(super) fn appended(&mut self, topic: &str, bytes: u64) {
        let Some(state) = self.topics.get_mut(topic) else {
            return;
        };
        // The next partition is drawn when it is needed.
        state.sticky = state
            .sticky
            .map(|(partition, before)| (partition, before + bytes))
            .filter(|&(_, all)| all < STICKY_BYTES);
    }

    /// A random id for a directory.
    pub(super) fn unique_id(&mut self) -> [u8; 16] {
        self.random.u128(..).to_be_bytes()
    }

    /// As [`new_topic_id`].
    pub(super) fn topic_id(&mut self) -> Uuid {
        topic_id_of(|| self.unique_id())
    }

    /// Forgets a topic whose partitions have changed or that was deleted.
    pub(super) fn forget(&mut self, topic: &str) {
        self.topics.remove(topic);
    }
}

/// Draws a topic id as Kafka does (`Uuid.randomUuid`): never one whose text starts with `-`, which tools would take for an option.
///
/// ```
/// assert!(!offsetlog::new_topic_id().to_string().starts_with('-'));
/// ```
#[must_use]
pub fn new_topic_id() -> Uuid {
    topic_id_of(|| random().u128(..).to_be_bytes())
}

fn topic_id_of(mut draw: impl FnMut() -> [u8; 16]) -> Uuid {
    loop {
        let id = Uuid::from_bytes(draw());
        if !id.to_string().starts_with('-') && !id.is_zero() && id != Uuid::METADATA_TOPIC {
            return id;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values were printed by Kafka's own code: the key's bytes, the hash, and the partition of 3, 12 and 50.
    #[test]
    fn hashes_as_kafka_does() {
        let mut cases = 0;
        for line in include_str!("../../../../tests/data/routing/murmur2.txt").lines() {
            let Some((hex, rest)) = line.split_once('|').filter(|_| !line.starts_with('#')) else {
                continue;
            };
            let key: Vec<u8> = (0..hex.len() / 2)
                .map(|at| u8::from_str_radix(&hex[at * 2..at * 2 + 2], 16).unwrap())
                .collect();
            let expected: Vec<i32> = rest
                .split(' ')
                .map(|number| number.parse().unwrap())
                .collect();
            let found = [3, 12, 50].map(|count| partition_for(&key, count).unwrap());
            assert_eq!(
                (murmur2(&key), &found[..]),
                (expected[0], &expected[1..]),
                "{hex}"
            );
            cases += 1;
        }
        assert_eq!(cases, 35);
        assert!(partition_for(b"", 0).is_err());
    }

    #[test]
    fn without_a_key_a_partition_has_its_fill() {
        let mut router = Router::new(Some(7));
        let mut chosen = Vec::new();
        for _ in 0..40 {
            let first = router.route(Partitioner::Default, "t", None, 8).unwrap();
            router.appended("t", 16_383);
            let second = router.route(Partitioner::Default, "t", None, 8).unwrap();
            assert_eq!(first, second, "one byte is missing to a batch");
            router.appended("t", 1);
            chosen.push(first);
        }
        let different: std::collections::BTreeSet<_> = chosen.iter().copied().collect();
        assert_eq!(
            different,
            (0..8).collect(),
            "all are drawn from: {chosen:?}"
        );
    }

    #[test]
    fn in_turn_means_from_zero_on_and_no_look_at_the_key() {
        let mut router = Router::new(None);
        let mut next = |topic| {
            router
                .route(Partitioner::RoundRobin, topic, Some(b"k"), 3)
                .unwrap()
        };
        assert_eq!(
            [next("a"), next("a"), next("b"), next("a"), next("a")],
            [0, 1, 0, 2, 0]
        );
    }
}
