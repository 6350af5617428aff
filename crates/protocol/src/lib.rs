//! The messages between clients and shards: commands, replies, pushes, codes, and their JSON and Protobuf encodings.
//!
//! The wire format is Centrifugo's client protocol (`centrifugal/protocol`, `definitions/client.proto`). A transport
//! frame contains one or more messages. JSON messages are separated by a line feed; each Protobuf message follows its
//! length as an unsigned varint. This crate decodes frames into [`Command`]s and encodes [`Reply`]s and [`Push`]es. It
//! uses neither sockets nor sessions.

#![forbid(unsafe_code)]

mod codes;
mod command;
mod decimal;
mod delta;
mod encoded;
mod filter;
mod json;
mod json_limits;
mod payload;
pub mod protobuf;
mod push;
mod reply;

pub use codes::{Disconnect, ErrorCode, UnsubscribeCode};
pub use command::{
    Command, ConnectRequest, HistoryRequest, PublishRequest, Request, RpcRequest, StreamPosition, SubRefreshRequest,
    SubscribeFlags, SubscribeRequest,
};
pub use decimal::Decimal;
pub use delta::DeltaEncoder;
pub use encoded::{EncodedPublications, Gaps};
pub use filter::{FilterError, FilterLimits, TagTest, TagsFilter};
pub use json_limits::{JSON_DEPTH_MAX, ShapeLimits};
pub use payload::{NotJson, NumberMember, Payload, text_member};
pub use push::{ChannelRef, ClientInfo, DataForm, Publication, Push, Tags};
pub use reply::{
    ConnectResult, HistoryResult, PresenceResult, PresenceStatsResult, RefreshResult, Reply, RpcResult, SubscribeResult,
};

/// How the messages of a session are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Encoding {
    /// Text frames; messages joined with `\n`; payloads are raw JSON.
    Json,
    /// Binary frames; messages prefixed with a varint length; payloads are opaque bytes.
    Protobuf,
}

impl Encoding {
    /// Every encoding, in the order of [`Encoding::index`].
    pub const ALL: [Self; 2] = [Self::Json, Self::Protobuf];

    /// A dense number for arrays that hold one entry for each encoding.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name as metrics, logs and configuration write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Protobuf => "protobuf",
        }
    }
}

/// A frame, or a message within it, that violates the protocol. The session is always closed with
/// [`Disconnect::BAD_REQUEST`]. The text is for the log, and never contains payload bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// The violation, as a constant text.
    pub what: &'static str,
}

/// The commands of one transport frame, in order. Decoding stops at the first error.
///
/// An empty frame yields one error, and so does an empty line in JSON, except for one line feed at the end of the
/// frame. In Protobuf, a message of length 0 is an empty command.
pub enum Commands<'a> {
    /// From a text frame.
    Json(json::JsonDecoder<'a>),
    /// From a binary frame.
    Protobuf(protobuf::ProtobufDecoder<'a>),
}

impl<'a> Commands<'a> {
    /// Reads the commands of `frame`, written in `encoding`.
    pub fn new(encoding: Encoding, frame: &'a [u8]) -> Self {
        match encoding {
            Encoding::Json => Self::Json(json::JsonDecoder::new(frame)),
            Encoding::Protobuf => Self::Protobuf(protobuf::ProtobufDecoder::new(frame)),
        }
    }

    /// The same, but a message that exceeds `limits` is an error.
    #[must_use]
    pub fn within(mut self, limits: ShapeLimits) -> Self {
        match &mut self {
            Self::Json(decoder) => decoder.set_limits(limits),
            Self::Protobuf(decoder) => decoder.set_limits(limits),
        }
        self
    }

    /// The bytes that are not decoded yet. A session that must wait, for example for the verification of a token,
    /// stores them and continues later with `Commands::new(encoding, rest)`. Empty at the end of the frame.
    pub fn rest(&self) -> &'a [u8] {
        match self {
            Self::Json(decoder) => decoder.rest(),
            Self::Protobuf(decoder) => decoder.rest(),
        }
    }
}

impl<'a> Iterator for Commands<'a> {
    type Item = Result<Command<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Json(decoder) => decoder.next(),
            Self::Protobuf(decoder) => decoder.next(),
        }
    }
}

/// Decodes the connect request of a unidirectional transport: a single JSON object. Empty input is an empty request.
///
/// # Errors
/// If the input is not a connect request, or exceeds `limits`.
pub fn decode_connect(bytes: &[u8], limits: ShapeLimits) -> Result<ConnectRequest<'_>, DecodeError> {
    json::read_connect(bytes, limits)
}

/// Appends the message `reply` to the command `id` to `out`, without any separator in JSON and with its length prefix
/// in Protobuf. On an error, `out` is unchanged.
///
/// # Errors
/// [`NotJson`] if `encoding` is JSON and a payload is not.
pub fn encode_reply(encoding: Encoding, id: u32, reply: &Reply, out: &mut Vec<u8>) -> Result<(), NotJson> {
    match encoding {
        Encoding::Json => json::encode_reply(id, reply, out, None),
        Encoding::Protobuf => {
            protobuf::encode_reply(id, reply, out);
            Ok(())
        }
    }
}

/// As [`encode_reply`], but leaves out [`EncodedPublications`] that are large enough, and stores their positions in
/// `gaps`. After an error the content of `gaps` is undefined.
///
/// # Errors
/// [`NotJson`] if `encoding` is JSON and a payload is not.
pub fn encode_reply_around(
    encoding: Encoding,
    id: u32,
    reply: &Reply,
    out: &mut Vec<u8>,
    gaps: &mut Gaps,
) -> Result<(), NotJson> {
    match encoding {
        Encoding::Json => json::encode_reply(id, reply, out, Some(gaps)),
        Encoding::Protobuf => {
            protobuf::encode_reply_around(id, reply, out, gaps);
            Ok(())
        }
    }
}

/// Appends the message with `push` (a Reply without an id) to `out`. On an error, `out` is unchanged.
///
/// # Errors
/// [`NotJson`] if `encoding` is JSON and a payload is not.
pub fn encode_push(encoding: Encoding, push: &Push<'_>, out: &mut Vec<u8>) -> Result<(), NotJson> {
    match encoding {
        Encoding::Json => json::encode_push(push, out),
        Encoding::Protobuf => {
            protobuf::encode_push(push, out);
            Ok(())
        }
    }
}

/// Appends `push` without the reply around it, for unidirectional transports. On an error, `out` is unchanged.
///
/// # Errors
/// [`NotJson`] if `encoding` is JSON and a payload is not.
pub fn encode_bare_push(encoding: Encoding, push: &Push<'_>, out: &mut Vec<u8>) -> Result<(), NotJson> {
    match encoding {
        Encoding::Json => json::encode_bare_push(push, out),
        Encoding::Protobuf => {
            protobuf::encode_bare_push(push, out);
            Ok(())
        }
    }
}

/// Appends to `out` the part before `data` of a message with a publication of `channel` that has only `data`, of
/// `data_bytes` bytes. After `data`, the caller must append the encoding's entry of [`PUBLICATION_TAILS`]. So a caller
/// whose data is in several parts need not join them first.
pub fn publication_head(encoding: Encoding, channel: &str, data_bytes: usize, out: &mut Vec<u8>) {
    match encoding {
        Encoding::Json => json::publication_head(channel, out),
        Encoding::Protobuf => protobuf::publication_head(channel, data_bytes, out),
    }
}

/// The part after `data` of a message that [`publication_head`] began, by [`Encoding::index`].
pub const PUBLICATION_TAILS: [&[u8]; Encoding::ALL.len()] = [b"}}}", b""];

/// The message with which a server requests a pong: an empty reply.
pub const fn ping_message(encoding: Encoding) -> &'static [u8] {
    match encoding {
        Encoding::Json => b"{}",
        Encoding::Protobuf => &[0],
    }
}
