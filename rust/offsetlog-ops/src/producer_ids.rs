//! Whether a cluster gives out producer ids again that records have which are put into it.
//!
//! Source: Kafka's `ProducerIdControlManager`, whose first block begins at 0; a `ProducerIdsRecord` says where the next one begins.

use offsetlog::MetadataImage;

/// The next producer id that a cluster gives out; `None` where its metadata does not tell.
pub(crate) fn next_of(metadata: &MetadataImage) -> Option<i64> {
    // One that has given out none has no record of it.
    let is_all = metadata.is_complete && !metadata.is_of_zookeeper;
    metadata.next_producer_id.or(is_all.then_some(0))
}

/// What that means, in a sentence, if ids up to `greatest` are in `what`.
pub(crate) fn given_again(what: &str, greatest: i64, next: Option<i64>) -> Option<String> {
    let next = next.filter(|next| *next <= greatest)?;
    Some(format!(
        "{what} has producer ids up to {greatest}, and the cluster gives out ids from {next} on: a broker may take the first records of a new \
         producer for those of an old one of the same id, until producer.id.expiration.ms (a day) has passed"
    ))
}
