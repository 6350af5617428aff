//! Runs the fuzz targets' bodies over their committed seeds, so that old findings stay fixed.

use dunlin_proof::corpus;

use crate::fuzzing;

#[test]
fn protocol_json() {
    corpus::play("protocol_json", fuzzing::json);
}

#[test]
fn protocol_protobuf() {
    corpus::play("protocol_protobuf", fuzzing::protobuf);
}
