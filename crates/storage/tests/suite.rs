//! The storage on real disks: what it keeps, and what it says when it cannot.

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
