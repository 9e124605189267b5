//! The text files of log dirs and partitions.
#![no_main]

use libfuzzer_sys::fuzz_target;
use offsetlog_format::clean_shutdown::read_broker_epoch;
use offsetlog_format::{
    DirectoryName, LeaderEpochs, MetaProperties, OffsetCheckpoint, PartitionMetadata,
};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(checkpoint) = OffsetCheckpoint::parse(bytes) {
        if let Ok(written) = checkpoint.write() {
            assert_eq!(OffsetCheckpoint::parse(&written).ok(), Some(checkpoint));
        }
    }
    let _ = LeaderEpochs::parse(bytes);
    let _ = LeaderEpochs::parse_strict(bytes);
    let _ = PartitionMetadata::parse(bytes);
    let _ = MetaProperties::parse(bytes);
    let _ = read_broker_epoch(bytes);
    if let Ok(name) = std::str::from_utf8(bytes) {
        let _ = DirectoryName::parse(name);
    }
});
