//! The fuzz targets' bodies over their committed seeds, so that what a fuzzer once found stays found.

use std::{fs, path::Path};

use dunlin_websocket::fuzzing;

#[test]
fn websocket_receiver() {
    run("websocket_receiver", fuzzing::receiver);
}

#[test]
fn websocket_deflate() {
    run("websocket_deflate", fuzzing::deflate);
}

#[test]
fn websocket_handshake() {
    run("websocket_handshake", fuzzing::handshake);
}

fn run(target: &str, body: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = fs::read_dir(&corpus).unwrap_or_else(|error| panic!("{}: {error}", corpus.display()));
    let mut seeds = 0;
    for entry in entries {
        let path = entry.expect("an entry").path();
        // Shown only when the body fails: the seed to look at.
        println!("{}", path.display());
        body(&fs::read(&path).expect("a readable seed"));
        seeds += 1;
    }
    assert!(seeds >= 10, "{} has only {seeds} seeds", corpus.display());
}
