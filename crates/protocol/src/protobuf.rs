//! The Protobuf form: messages of `definitions/client.proto`, each prefixed with its length as an unsigned varint.

mod decode;
mod encode;
pub mod wire;

pub use decode::Decoder;
pub(crate) use decode::read_filter;
pub(crate) use encode::{
    encode_bare_push, encode_publications, encode_push, encode_reply, encode_reply_around, publication_head,
};
