//! Runs the fuzz target's body over its committed seeds, so that old findings stay fixed.

use dunlin_proof::corpus;

#[path = "../../../fuzz/bodies/http_head.rs"]
mod fuzzing;

#[test]
fn heads_of_requests() {
    corpus::play("http_head", fuzzing::head);
}
