//! Sockets: reactors, listeners, connections, TLS, and the HTTP head of each connection's first request.

mod body;
mod body_length;
mod connection;
mod endpoints;
mod epoll;
mod forwarded;
mod head;
mod headers;
mod io_uring;
mod listener;
mod reactor;
mod reactor_choice;
mod request_scanner;
mod response;
mod socket_facts;
mod stream_request;
mod tls;
mod upgrade;
mod waker;

/// What the reactor on `io_uring` is made of, for the load generator, whose clients have no descriptors either.
pub mod uring {
    pub use crate::io_uring::{ASIDE, Buffers, Cqe, GROUP, Ring, Target, size_for};
}

pub use body::RequestBody;
pub use body_length::is_websocket_upgrade;
pub use connection::{
    BodyStage, Connection, ConnectionStage, Connections, FINISHED_BYTES_MAX, HeadStage, STREAM_BEHIND_BYTES_MAX,
    SessionStage, Unread,
};
pub use endpoints::{ClientEndpoint, Transport};
pub use epoll::Epoll;
pub use forwarded::TrustedProxies;
pub use head::{HeadBuffer, HeadLimits};
pub use headers::{HeaderPicker, PickedField, PickedHeaders};
pub use io_uring::{Unavailable, Uring};
pub use listener::{SocketOptions, bind, is_out_of_files, set_up_adopted};
pub use reactor::{
    Completion, ConnectionKey, READ_BUFFER_BYTES, Reactor, ReactorCounters, Released, SEND_SLICES_MAX, SendCompletion,
    SendOutcome, SocketDescriptor,
};
pub use reactor_choice::{NoReactor, ReactorChoice, ReactorKind, ReactorLimits, ReactorOption, Reactors, choose};
pub use request_scanner::{RequestScanner, Scanned};
pub use response::{RefusalReason, Refused};
pub use socket_facts::{SegmentCounts, SocketFacts, Traffic};
pub use tls::{Certificates, ClientTls, Decrypted, TlsError, TlsFiles, TlsSession, without_roots};
pub use upgrade::{Acceptor, HEAD_FIELDS_MAX, HeadVerdict, OriginCheck};
pub use waker::Waker;
