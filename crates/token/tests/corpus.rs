//! Runs the fuzz target's body over its committed seeds, so that old findings stay fixed.

use dunlin_proof::corpus;

#[path = "../../../fuzz/bodies/token.rs"]
mod fuzzing;

#[test]
fn tokens() {
    corpus::play("token", fuzzing::token);
}
