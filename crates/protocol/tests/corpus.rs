//! The fuzz targets' bodies over their committed seeds, so that what a fuzzer once found stays found.

use dunlin_proof::corpus;
use dunlin_protocol::fuzzing;

#[test]
fn protocol_json() {
    corpus::play("protocol_json", fuzzing::json);
}

#[test]
fn protocol_protobuf() {
    corpus::play("protocol_protobuf", fuzzing::protobuf);
}
