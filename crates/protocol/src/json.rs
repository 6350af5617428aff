//! The JSON form: one object on each line of a text frame. Field names are those of the Protobuf definitions, zero values
//! are left out but for a few, 64-bit integers are numbers and payloads are embedded as they are.

mod decode;
mod encode;
mod write;

pub use decode::Decoder;
pub(crate) use decode::read_connect;
pub(crate) use encode::{encode_bare_push, encode_publications, encode_push, encode_reply, publication_head};
