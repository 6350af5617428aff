//! Sockets: the reactor, the listener, the connections, and the HTTP head that each begins with.

mod connection;
mod epoll;
mod head;
mod listener;
mod reactor;
mod response;
mod upgrade;

pub use connection::{Connection, Connections, HeadStage, SessionStage, Stage};
pub use epoll::{Epoll, Waker};
pub use head::{HeadBuffer, HeadLimits};
pub use listener::{SocketOptions, bind, set_up_adopted};
pub use reactor::{Completion, ConnectionKey, READ_BUFFER_BYTES, Reactor, SEND_SLICES_MAX, SendOutcome, Sent};
pub use response::{RefusalReason, Refused};
pub use upgrade::{Door, HEAD_FIELDS_MAX, OriginCheck, Verdict};
