//! Messages of magic 0 and 1, and the sets that wrap them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use offsetlog_format::BatchView;
use offsetlog_format::legacy::{Message, MessageSet, single_record};

fuzz_target!(|bytes: &[u8]| {
    let Ok(view) = BatchView::parse(bytes) else {
        return;
    };
    let _ = view.check_crc();
    let _ = Message::parse(&view);
    let _ = single_record(&view);
    if let Ok(mut set) = MessageSet::new(&view.header, view.payload()) {
        let mut seen = 0_usize;
        while let Ok(Some(_)) = set.next_record() {
            seen += 1;
        }
        assert!(seen <= bytes.len());
    }
});
