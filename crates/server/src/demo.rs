//! The demonstration: pages at `/`, made-up prices, and players for the arena. On when `demo.dir` is set, and never
//! otherwise.

pub mod bots;
mod market;
pub mod publisher;
pub mod site;
