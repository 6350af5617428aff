//! Runs the fuzz targets' bodies over their committed seeds, so that old findings stay fixed.

use dunlin_proof::corpus::play;

use crate::{backend_answer, http_emulation};

#[test]
fn bodies_of_emulation() {
    play("http_emulation", http_emulation::body);
}

#[test]
fn answers_of_backends() {
    play("backend_answer", backend_answer::answer);
}
