//! The server API: what an application's backend asks of the node (`docs/http-api.md`).
//!
//! A request passes three doors: [`Command`] (its bytes become types, and what cannot be true is refused), [`Executor`]
//! (which asks the shards), and back as JSON. Names of methods and fields, and the codes of errors, are Centrifugo's.

mod command;
mod error;
mod execute;
#[doc(hidden)]
pub mod fuzzing;
mod glob;
mod legacy;
mod method;
mod result;
mod service;
#[cfg(test)]
mod tests;
mod wire;

pub use command::{Batch, Command, Malformed, Parsed, RequestLimits};
pub use error::ApiError;
pub use execute::{Executor, NodeIdentity};
pub use method::Method;
pub use service::{ApiOptions, Service, answer, answer_legacy};

/// What a command led to: the JSON of its result, or an error.
pub type Outcome = Result<Box<serde_json::value::RawValue>, ApiError>;
