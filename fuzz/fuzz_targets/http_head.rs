#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dunlin::fuzzing::http_head(data));
