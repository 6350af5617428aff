//! The JSON encoding: one object per line of a text frame. Field names are those of the Protobuf definitions, most zero
//! values are omitted, 64-bit integers are numbers, and payloads are embedded verbatim.

mod decode;
mod encode;
mod write;

pub use decode::JsonDecoder;
pub(crate) use decode::read_connect;
pub(crate) use encode::{encode_bare_push, encode_publications, encode_push, encode_reply, publication_head};
