#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dunlin_rooms::fuzzing::input(data));
