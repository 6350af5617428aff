#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dunlin::http::api::fuzzing::body(data));
