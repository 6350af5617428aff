//! The server API for the application's backend (`docs/http-api.md`).
//!
//! A request passes three stages: [`ApiCommand`] parses and checks its bytes, [`Executor`] sends requests to the
//! shards, and the result becomes JSON. Names of methods and fields and error codes are Centrifugo's.

mod all_nodes;
mod block_and_revoke;
mod body;
mod channel_page_merge;
mod channels;
mod command;
mod error;
mod execute;
pub mod glob;
mod history;
mod info;
pub mod legacy;
mod method;
mod own_node;
mod paces;
mod paging;
mod paths;
mod presence;
mod publish;
mod result;
mod room_list;
mod rooms;
mod rpc;
mod service;
mod session_orders;
mod sessions;
mod status;
#[cfg(test)]
mod tests;
mod tickets;
mod trace;
mod wire;

pub use body::Malformed;
pub use channel_page_merge::ChannelsWanted;
pub use command::{CommandBatch, Parsed, RequestLimits};
pub use error::ApiError;
pub use execute::Executor;
pub use method::{ApiCommand, Method};
pub use own_node::{NodeIdentity, OwnNode};
pub use paths::{BinaryPaths, PathsWanted, read_json as read_paths};
pub use room_list::RoomQuery;
pub use service::{AdmittedRequest, ApiOptions, Executed, Service, answer, answer_legacy};
pub use sessions::SessionsWanted;
pub use trace::{TracedRoute, trace};

/// The result of a command as JSON, or an error.
pub type JsonResult = Result<Box<serde_json::value::RawValue>, ApiError>;
