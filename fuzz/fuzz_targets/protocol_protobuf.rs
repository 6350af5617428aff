#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dunlin_protocol::fuzzing::protobuf(data));
