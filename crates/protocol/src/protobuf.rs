//! The Protobuf encoding: messages of `definitions/client.proto`, each after its length as an unsigned varint.

mod decode;
mod encode;
pub mod wire;

pub use decode::ProtobufDecoder;
pub(crate) use decode::read_filter;
pub(crate) use encode::{
    encode_bare_push, encode_publications, encode_push, encode_reply, encode_reply_around, publication_head,
};
