//! TLS: the node's certificates, and the TLS state of one connection. The state moves with its socket between a shard
//! and the control thread.

mod certificate;
mod client;
mod session;

pub use certificate::{Certificates, TlsError, TlsFiles};
pub use client::{ClientTls, without_roots};
pub use session::{Decrypted, TlsSession};
