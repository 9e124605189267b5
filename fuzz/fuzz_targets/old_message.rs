//! Messages of Kafka 0.7, and a run of them as a compressed set holds it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use offsetlog_format::old_message::{OldMessage, OldMessages, is_whole_old_entry};

fuzz_target!(|bytes: &[u8]| {
    let whole = is_whole_old_entry(bytes);
    if let Ok(message) = OldMessage::parse(bytes) {
        assert!(message.size_bytes <= bytes.len());
        assert!(message.payload.len() < message.size_bytes);
        let sound = message.check_crc().is_ok() && !message.payload.is_empty();
        assert!(whole || !sound);
    }
    let mut messages = OldMessages::new(bytes);
    let mut seen = 0_usize;
    while let Ok(Some(message)) = messages.next_message() {
        seen += message.size_bytes;
    }
    assert!(seen <= bytes.len());
});
