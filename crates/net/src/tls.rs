//! TLS: the node's certificates, and the TLS state of one connection. The state moves with its socket between a shard
//! and the control thread.

mod client;
mod reloaded_certificates;
mod session;

pub use client::{ClientTls, without_roots};
pub use reloaded_certificates::{Certificates, TlsError, TlsFiles};
pub use session::{Decrypted, TlsSession};
