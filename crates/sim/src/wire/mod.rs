//! A second implementation of the wire format: the server's WebSocket frames, the messages in them, and commands. It
//! shares no code with the server, so that a bug of the server is not repeated here.

mod command;
mod filter;
mod frame;
mod input;
mod message;
mod patch;
mod protobuf;

pub use command::{ClientCommand, ClientPosition, SubscribeCommand, encode};
pub use filter::Filter;
pub use frame::{FrameReader, WireFrame};
pub use input::encode_input;
pub use message::{
    ClientInfoBody, ConnectBody, ErrorBody, Expiry, HistoryBody, PublicationBody, PushBody, ServerMessage,
    SubscribeBody, decode, decode_push,
};
pub use patch::apply;
