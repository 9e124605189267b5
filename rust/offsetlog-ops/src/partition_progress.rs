//! How verbs that read many partitions tell which one they are at.

use offsetlog::{Result, TopicPartition};
use std::fmt;
use std::sync::Arc;

type Told = dyn Fn(u64, u64, &TopicPartition) -> Result<()> + Send + Sync;

/// Called before each partition with the number of partitions that are done, that of all, and the partition; and at the end once more. An
/// error ends the work, and is returned by it.
#[derive(Clone, Default)]
pub struct PartitionProgress(Option<Arc<Told>>);

impl PartitionProgress {
    /// Calls this.
    #[must_use]
    pub fn new(
        told: impl Fn(u64, u64, &TopicPartition) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(told)))
    }

    /// Does something with each partition.
    pub(crate) fn for_each(
        &self,
        partitions: Vec<TopicPartition>,
        mut work: impl FnMut(TopicPartition) -> Result<()>,
    ) -> Result<()> {
        let Some(told) = &self.0 else {
            return partitions.into_iter().try_for_each(work);
        };
        let total = partitions.len() as u64;
        let last = partitions.last().cloned();
        for (done, partition) in (0..).zip(partitions) {
            told(done, total, &partition)?;
            work(partition)?;
        }
        match last {
            Some(last) => told(total, total, &last),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for PartitionProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PartitionProgress")
            .field(&self.0.is_some())
            .finish()
    }
}
