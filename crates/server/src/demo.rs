//! The demonstration: a page at `/`, and made-up prices for it. On when `demo.dir` is set, and never otherwise.

mod market;
pub mod publisher;
pub mod site;
