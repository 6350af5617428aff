//! Sockets: the reactor, the listener, the connections, and the HTTP head that each begins with.

mod body;
mod choice;
mod connection;
mod epoll;
mod forwarded;
mod head;
mod io_uring;
mod listener;
mod place;
mod reactor;
mod response;
mod stream_request;
mod upgrade;
mod waker;

pub use body::Body;
pub use choice::{NoReactor, ReactorChoice, ReactorKind, ReactorWish, Reactors, choose};
pub use connection::{BodyStage, Connection, Connections, HeadStage, STREAM_BEHIND_BYTES_MAX, SessionStage, Stage};
pub use epoll::Epoll;
pub use forwarded::TrustedProxies;
pub use head::{HeadBuffer, HeadLimits};
pub use io_uring::{Unavailable, Uring, probe};
pub use listener::{SocketOptions, bind, set_up_adopted};
pub use place::{Place, Transport};
pub use reactor::{
    Completion, ConnectionKey, READ_BUFFER_BYTES, Reactor, ReactorCounters, Released, SEND_SLICES_MAX, SendOutcome,
    Sent,
};
pub use response::{RefusalReason, Refused};
pub use upgrade::{Door, HEAD_FIELDS_MAX, OriginCheck, Verdict};
pub use waker::Waker;
