//! The transactional ids in the `__transaction_state` of a log dir, by producer id.

use offsetlog::{
    Error, LogDir, PartitionProgress, ProducerState, Result, Transaction, TransactionList,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};

const TOPIC: &str = "__transaction_state";

/// What the transaction coordinators stored in a log dir. Read when it is first asked for.
pub(crate) struct Coordinators<'l> {
    log_dir: &'l LogDir,
    progress: PartitionProgress,
    known: Option<Known>,
}

#[derive(Default)]
struct Known {
    transactions: Vec<Transaction>,
    /// Slots in `transactions`; of the same producer id the one that was changed last.
    by_producer: HashMap<i64, usize>,
    /// Whether no transactional id of the cluster can be missing.
    is_whole: bool,
    /// A partition that cannot be read, and why.
    unread: Option<String>,
    /// Of partitions with bytes behind the last batch that are none, what is said of it.
    torn_ends: BTreeMap<i32, String>,
    /// Whether the beginning of a partition is missing.
    starts_late: bool,
    warnings: Vec<String>,
}

impl<'l> Coordinators<'l> {
    pub(crate) fn new(log_dir: &'l LogDir) -> Self {
        Self::told(log_dir, PartitionProgress::default())
    }

    /// Calls `progress` before each partition of theirs that is read.
    pub(crate) const fn told(log_dir: &'l LogDir, progress: PartitionProgress) -> Self {
        Self {
            log_dir,
            progress,
            known: None,
        }
    }

    /// The transactional id with this producer's id.
    pub(crate) fn of(&mut self, producer: &ProducerState) -> Result<Option<&Transaction>> {
        self.known()?;
        Ok(self.known_of(producer))
    }

    /// The same, if all was read.
    pub(crate) fn known_of(&self, producer: &ProducerState) -> Option<&Transaction> {
        let known = self.known.as_ref()?;
        let slot = known.by_producer.get(&producer.producer_id)?;
        known.transactions.get(*slot)
    }

    /// Whether no transactional id of the cluster can be missing here.
    pub(crate) fn are_whole(&mut self) -> Result<bool> {
        Ok(self.known()?.is_whole)
    }

    /// Whether any partition of `__transaction_state` is here.
    pub(crate) fn are_here(&self) -> bool {
        self.log_dir.topics().contains_key(TOPIC)
    }

    /// A partition of `__transaction_state` that cannot be read, and why, if any was found.
    pub(crate) fn unread(&self) -> Option<&str> {
        self.known.as_ref()?.unread.as_deref()
    }

    /// Why the record of this transaction may not be the newest one; without a transaction, why any may be missing.
    pub(crate) fn torn_end(&self, transaction: Option<&Transaction>) -> Option<&str> {
        let torn_ends = &self.known.as_ref()?.torn_ends;
        let found = match transaction {
            Some(transaction) => torn_ends.get(&transaction.partition),
            None => torn_ends.values().next(),
        };
        found.map(String::as_str)
    }

    /// Whether the beginning of a partition is missing.
    pub(crate) fn starts_late(&self) -> bool {
        self.known.as_ref().is_some_and(|known| known.starts_late)
    }

    /// What is odd about the records; empty before they are read.
    pub(crate) fn warnings(&self) -> &[String] {
        self.known.as_ref().map_or(&[], |known| &known.warnings)
    }

    pub(crate) fn into_warnings(self) -> Vec<String> {
        self.known.map(|known| known.warnings).unwrap_or_default()
    }

    fn known(&mut self) -> Result<&Known> {
        if self.known.is_none() {
            self.known = Some(Known::read(self.log_dir, &self.progress)?);
        }
        self.known
            .as_ref()
            .ok_or_else(|| Error::argument("log_dir", "nothing was read"))
    }
}

impl Known {
    fn read(log_dir: &LogDir, progress: &PartitionProgress) -> Result<Self> {
        let TransactionList {
            transactions,
            mut warnings,
            unread,
            torn_ends,
            starts_late,
            is_whole,
        } = log_dir.transaction_list(progress)?;
        let mut by_producer: HashMap<i64, usize> = HashMap::new();
        for (slot, transaction) in transactions.iter().enumerate() {
            let ids = [
                Some(transaction.producer_id),
                transaction.previous_producer_id,
                transaction.next_producer_id,
            ];
            for id in ids.into_iter().flatten().filter(|&id| id >= 0) {
                let newest = by_producer.entry(id).or_insert(slot);
                let known = transactions.get(*newest);
                if known.is_some_and(|known| {
                    known.last_update_timestamp < transaction.last_update_timestamp
                }) {
                    *newest = slot;
                }
            }
        }
        let is_whole = is_whole && has_all(log_dir)?;
        warnings.extend(unread.iter().map(|unread| {
            format!(
                "transactional ids are missing: {} cannot be read: {}",
                unread.partition, unread.error
            )
        }));
        Ok(Self {
            transactions,
            by_producer,
            is_whole,
            unread: unread
                .first()
                .map(|unread| format!("{} cannot be read: {}", unread.partition, unread.error)),
            torn_ends,
            starts_late,
            warnings,
        })
    }
}

/// Whether all partitions of the topic are in the log dir, as the cluster's metadata in it has them.
fn has_all(log_dir: &LogDir) -> Result<bool> {
    let image = match log_dir.metadata() {
        Err(error) if error.is_of_process() => return Err(error),
        Err(_) | Ok(None) => return Ok(false),
        Ok(Some(image)) => image,
    };
    let topics = log_dir.topics();
    let here: BTreeSet<i32> = topics.get(TOPIC).into_iter().flatten().copied().collect();
    let mut registered = image.topics.iter().filter(|topic| topic.name == TOPIC);
    let is_here = |number: &i32| here.contains(number);
    Ok(image.is_complete
        && registered
            .next()
            .is_some_and(|topic| topic.partitions.keys().all(is_here)))
}
