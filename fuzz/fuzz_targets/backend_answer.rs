#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dunlin::fuzzing::backend_answer(data));
