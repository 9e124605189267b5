//! Producer snapshots: what can be read can be written, and reads as the same again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use offsetlog_format::snapshot::{read_producer_snapshot, write_producer_snapshot};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(entries) = read_producer_snapshot(bytes) {
        if let Ok(written) = write_producer_snapshot(&entries) {
            assert_eq!(read_producer_snapshot(&written).ok(), Some(entries));
        }
    }
});
