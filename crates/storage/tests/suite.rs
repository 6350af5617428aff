//! Tests of the storage on real disks: stored data and reported errors.

#[path = "../../../fuzz/bodies/storage.rs"]
mod fuzzing;

mod backups;
mod corpus;
mod crashes;
mod faults;
mod harness;
mod keeping;
mod migration;
mod model;
mod rooms;
mod space;
