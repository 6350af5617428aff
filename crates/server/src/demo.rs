//! The demo: pages at `/`, simulated prices, and bots in the arena. Enabled only if `demo.dir` is set.

pub mod bots;
pub mod guests;
mod market;
pub mod paths;
pub mod publisher;
pub mod site;
