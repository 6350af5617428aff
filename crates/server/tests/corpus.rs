//! The fuzz targets over their committed seeds.

use dunlin_proof::corpus::play;

#[test]
fn configurations() {
    play("config", dunlin::fuzzing::config);
}

#[test]
fn tokens() {
    play("token", dunlin::fuzzing::token);
}

#[test]
fn heads_of_requests() {
    play("http_head", dunlin::fuzzing::http_head);
}

#[test]
fn bodies_of_emulation() {
    play("http_emulation", dunlin::fuzzing::emulation_body);
}

#[test]
fn answers_of_backends() {
    play("backend_answer", dunlin::fuzzing::backend_answer);
}
