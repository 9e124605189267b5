//! Records of `__cluster_metadata` to be written: those that make topics, partitions and settings exist
//! (FORMAT.md «Internal topics»).
//!
//! Source: Kafka's `TopicRecord`, `PartitionRecord`, `ConfigRecord` and `ProducerIdsRecord`, in the frame of `MetadataRecordSerde`.
//!
//! ```
//! use offsetlog_format::internal_topic::MetadataRecord;
//! use offsetlog_format::metadata_record::config_record;
//!
//! let bytes = config_record(2, "orders", "retention.ms", Some("-1"));
//! assert_eq!(MetadataRecord::decode(&bytes)?.message.name, "ConfigRecord");
//! # Ok::<(), offsetlog_format::FormatError>(())
//! ```

use crate::uuid::Uuid;
use crate::varint::write_unsigned;
use alloc::vec::Vec;

/// The number that a `ConfigRecord` of a topic has.
pub const TOPIC_RESOURCE: i8 = 2;

const FRAME_VERSION: u32 = 1;
const TOPIC: u32 = 2;
const PARTITION: u32 = 3;
const CONFIG: u32 = 4;
const PRODUCER_IDS: u32 = 15;

/// A partition with all of its replicas in sync.
#[derive(Debug, Clone, Copy)]
pub struct PartitionToMake<'a> {
    /// Its topic's id.
    pub topic_id: Uuid,
    /// Its number.
    pub partition: i32,
    /// Ids of the brokers that have it; the first one leads.
    pub replicas: &'a [i32],
    /// The leader epoch that it begins with.
    pub leader_epoch: i32,
    /// For each replica the `directory.id` of its log dir. `None`: brokers before 3.7 know none.
    pub directories: Option<&'a [Uuid]>,
}

/// Makes a `TopicRecord`, version 0.
#[must_use]
pub fn topic_record(name: &str, topic_id: Uuid) -> Vec<u8> {
    let mut out = frame(TOPIC, 0);
    compact_text(&mut out, name);
    out.extend_from_slice(&topic_id.to_bytes());
    no_tags(&mut out);
    out
}

/// Makes a `PartitionRecord`: version 1 with directories, else 0.
#[must_use]
pub fn partition_record(partition: &PartitionToMake<'_>) -> Vec<u8> {
    let mut out = frame(PARTITION, u32::from(partition.directories.is_some()));
    out.extend_from_slice(&partition.partition.to_be_bytes());
    out.extend_from_slice(&partition.topic_id.to_bytes());
    // The replicas, and those in sync.
    compact_numbers(&mut out, partition.replicas);
    compact_numbers(&mut out, partition.replicas);
    // Nobody is being added or removed.
    compact_numbers(&mut out, &[]);
    compact_numbers(&mut out, &[]);
    let leader = partition.replicas.first().copied().unwrap_or(-1);
    out.extend_from_slice(&leader.to_be_bytes());
    out.extend_from_slice(&partition.leader_epoch.to_be_bytes());
    // The partition epoch.
    out.extend_from_slice(&0_i32.to_be_bytes());
    if let Some(directories) = partition.directories {
        compact_length(&mut out, directories.len());
        for directory in directories {
            out.extend_from_slice(&directory.to_bytes());
        }
    }
    no_tags(&mut out);
    out
}

/// Makes a `ConfigRecord`, version 0. Without a value it takes the setting away.
#[must_use]
pub fn config_record(
    resource_type: i8,
    resource: &str,
    name: &str,
    value: Option<&str>,
) -> Vec<u8> {
    let mut out = frame(CONFIG, 0);
    out.extend_from_slice(&resource_type.to_be_bytes());
    compact_text(&mut out, resource);
    compact_text(&mut out, name);
    match value {
        Some(value) => compact_text(&mut out, value),
        None => write_unsigned(&mut out, 0),
    }
    no_tags(&mut out);
    out
}

/// Makes a `ProducerIdsRecord`, version 0: ids below `next_producer_id` are not given out again.
#[must_use]
pub fn producer_ids_record(broker_id: i32, broker_epoch: i64, next_producer_id: i64) -> Vec<u8> {
    let mut out = frame(PRODUCER_IDS, 0);
    out.extend_from_slice(&broker_id.to_be_bytes());
    out.extend_from_slice(&broker_epoch.to_be_bytes());
    out.extend_from_slice(&next_producer_id.to_be_bytes());
    no_tags(&mut out);
    out
}

fn frame(record_type: u32, version: u32) -> Vec<u8> {
    let mut out = Vec::new();
    for number in [FRAME_VERSION, record_type, version] {
        write_unsigned(&mut out, number);
    }
    out
}

fn no_tags(out: &mut Vec<u8>) {
    write_unsigned(out, 0);
}

/// One more than the length, as 0 stands for null.
fn compact_length(out: &mut Vec<u8>, length: usize) {
    write_unsigned(out, u32::try_from(length + 1).unwrap_or(u32::MAX));
}

fn compact_text(out: &mut Vec<u8>, text: &str) {
    compact_length(out, text.len());
    out.extend_from_slice(text.as_bytes());
}

fn compact_numbers(out: &mut Vec<u8>, numbers: &[i32]) {
    compact_length(out, numbers.len());
    for number in numbers {
        out.extend_from_slice(&number.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;

    fn hex(bytes: &[u8]) -> String {
        use core::fmt::Write;
        bytes.iter().fold(String::new(), |mut text, byte| {
            write!(text, "{byte:02x}").unwrap();
            text
        })
    }

    const ID: [u8; 16] = [
        0x31, 0x62, 0x7a, 0x14, 0x74, 0xdf, 0x45, 0x8c, 0xba, 0xee, 0x3c, 0xf0, 0x65, 0xd7, 0xaa,
        0x49,
    ];

    #[test]
    fn the_bytes_are_those_that_kafka_writes() {
        let id = Uuid::from_bytes(ID);
        assert_eq!(
            hex(&topic_record("top", id)),
            "01020004746f7031627a1474df458cbaee3cf065d7aa4900"
        );
        assert_eq!(
            hex(&config_record(
                TOPIC_RESOURCE,
                "top",
                "retention.ms",
                Some("5")
            )),
            "0104000204746f700d726574656e74696f6e2e6d73023500"
        );
        assert_eq!(
            hex(&config_record(TOPIC_RESOURCE, "top", "retention.ms", None)),
            "0104000204746f700d726574656e74696f6e2e6d730000"
        );
        let partition = PartitionToMake {
            topic_id: id,
            partition: 3,
            replicas: &[1],
            leader_epoch: 0,
            directories: Some(&[id]),
        };
        // Version 2 differs in its number alone while nobody is eligible.
        let of_kafka = "0103020000000331627a1474df458cbaee3cf065d7aa49020000000102000000010101000000010000000000000000\
                        0231627a1474df458cbaee3cf065d7aa4900";
        let version_1 = of_kafka.replacen("010302", "010301", 1);
        assert_eq!(hex(&partition_record(&partition)), version_1);
    }
}
