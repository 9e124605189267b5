#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| offsetlog_faults::targets::protocol(bytes));
