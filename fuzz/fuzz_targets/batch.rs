//! A batch of any magic from hostile bytes: headers, CRC, records and headers of records where the payload is not compressed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use offsetlog_format::v2::RecordsV2;
use offsetlog_format::{BatchHeader, BatchView, Frame};

fuzz_target!(|bytes: &[u8]| {
    let _ = Frame::parse(bytes);
    let _ = BatchHeader::parse(bytes);
    let Ok(view) = BatchView::parse(bytes) else {
        return;
    };
    // A wrong CRC must not keep the fuzzer out of what is behind it.
    let _ = view.check_crc();
    let Ok(mut records) = RecordsV2::new(&view.header, view.payload()) else {
        return;
    };
    let mut seen = 0_usize;
    while let Ok(Some(record)) = records.next_record() {
        seen += 1;
        for header in record.headers.iter() {
            let _ = header;
        }
    }
    // Each record takes at least one byte: a count from the file never makes more of them.
    assert!(seen <= bytes.len());
});
