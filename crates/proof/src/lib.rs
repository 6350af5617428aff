//! What the tests of several crates share. No crate needs it to run.

pub mod allocations;
pub mod chance;
pub mod corpus;
pub mod members;
pub mod nats;
pub mod programs;

use std::path::PathBuf;

/// The root of the checkout whose tests run.
///
/// # Panics
/// Outside of a checkout.
#[must_use]
pub fn repository() -> PathBuf {
    // Not the path that this crate was compiled at: checkouts that share a target folder share its library as well.
    let package =
        std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    let root = package.ancestors().find(|folder| folder.join("scripts/need").exists());
    root.expect("the tests of a package run in a checkout").to_owned()
}
