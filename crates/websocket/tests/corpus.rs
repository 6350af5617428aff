//! Runs the fuzz targets' bodies over their committed seeds, so that old findings stay fixed.

use dunlin_proof::corpus;

use crate::fuzzing;

#[test]
fn websocket_receiver() {
    corpus::play("websocket_receiver", fuzzing::receiver);
}

#[test]
fn websocket_deflate() {
    corpus::play("websocket_deflate", fuzzing::deflate);
}

#[test]
fn websocket_handshake() {
    corpus::play("websocket_handshake", fuzzing::handshake);
}
