//! Offset, time and transaction indexes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use offsetlog_format::index_entry::{
    OffsetIndexEntry, TimeIndexEntry, check_offset_index, check_time_index, offset_entry_count,
    read_transaction_index, time_entry_count,
};

fuzz_target!(|input: (i64, &[u8])| {
    let (base_offset, bytes) = input;
    for slot in 0..=offset_entry_count(bytes) {
        let _ = OffsetIndexEntry::read(bytes, slot, base_offset);
    }
    for slot in 0..=time_entry_count(bytes) {
        let _ = TimeIndexEntry::read(bytes, slot, base_offset);
    }
    let _ = check_offset_index(bytes, base_offset);
    let _ = check_time_index(bytes, base_offset);
    if let Ok(entries) = read_transaction_index(bytes, base_offset) {
        let mut written = Vec::new();
        for entry in &entries {
            entry.write(&mut written);
        }
        assert_eq!(written, bytes[..written.len()]);
    }
});
