//! The client's side of the wire, written a second time: WebSocket frames from the server, messages in them, and commands.
//! It shares no code with the server, so that a mistake in one does not hide in the other.

mod command;
mod filter;
mod frame;
mod input;
mod message;
mod patch;
mod protobuf;

pub use command::{Position, Say, encode};
pub use filter::Filter;
pub use frame::{FrameReader, WireFrame};
pub use input::encode_input;
pub use message::{
    ClientInfo, ConnectResult, ErrorBody, Expiry, HistoryResult, Message, PublicationBody, Push, SubscribeResult,
    decode,
};
pub use patch::apply;
