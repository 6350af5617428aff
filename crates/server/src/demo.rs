//! The demo's pages at `/` and what they ask the node for. Enabled only if `demo.dir` is set. Their prices and bots come from
//! `dunlin-demo`, a client.

pub mod guests;
pub mod paths;
pub mod site;
