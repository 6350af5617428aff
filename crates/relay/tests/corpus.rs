//! Runs the fuzz target's body over its committed seeds, so that old findings stay fixed.

use dunlin_proof::corpus;

use crate::fuzzing;

#[test]
fn relay_frame() {
    corpus::play("relay_frame", fuzzing::frames);
}
