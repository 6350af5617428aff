//! The fuzz targets' bodies over their committed seeds, so that what a fuzzer once found stays found.

use dunlin_proof::corpus;
use dunlin_websocket::fuzzing;

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
