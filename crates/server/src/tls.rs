//! TLS: what a node shows its clients, and the state of one connection. A connection's state goes with its socket, from a
//! shard to the control thread and back.

mod certificate;
mod session;
mod stream;

pub use certificate::{Certificates, TlsError, TlsFiles};
pub use session::{Decrypted, TlsSession};
pub use stream::TlsStream;
