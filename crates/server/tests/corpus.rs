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
