//! All tests of this crate's public interface and of the binary, in one binary.

#[macro_use]
mod each_reactor;

#[path = "../../../fuzz/bodies/backend_answer.rs"]
mod backend_answer;
#[path = "../../../fuzz/bodies/http_api.rs"]
mod http_api;
#[path = "../../../fuzz/bodies/http_emulation.rs"]
mod http_emulation;

mod cli;
mod corpus;
mod http;
mod http_bodies;
mod node;
mod reactor;
mod wake_flag_model;
