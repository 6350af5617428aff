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
mod payload;
pub mod protobuf;
mod push;
mod reply;
mod shape;

pub use codes::{Disconnect, ErrorCode, UnsubscribeCode};
pub use command::{
    Command, ConnectRequest, HistoryRequest, PublishRequest, Request, RpcRequest, StreamPosition, SubRefreshRequest,
    SubscribeFlags, SubscribeRequest,
};
pub use decimal::Decimal;
pub use delta::DeltaEncoder;
pub use encoded::{EncodedPublications, Gaps};
pub use filter::{FilterError, FilterLimits, TagTest, TagsFilter};
pub use payload::{NotJson, Payload, text_member};
pub use push::{ChannelRef, ClientInfo, DataForm, Publication, Push, Tags};
pub use reply::{
    ConnectResult, HistoryResult, PresenceResult, PresenceStatsResult, RefreshResult, Reply, RpcResult, SubscribeResult,
};
pub use shape::{JSON_DEPTH_MAX, ShapeLimits};

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

/// A frame, or a message within it, that is not of the protocol. The answer to it is always
/// [`Disconnect::BAD_REQUEST`]; the text is for the log and never holds payload bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// What was wrong, in a few fixed words.
    pub what: &'static str,
}

/// The commands of one transport frame, in order. Decoding stops at the first error.
///
/// An empty frame yields one error, and so does an empty line in JSON, but for one line feed at the end of the frame. In
/// Protobuf a message of length 0 is an empty command.
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

    /// The same, but a message that goes past `limits` is an error.
    #[must_use]
    pub fn within(mut self, limits: ShapeLimits) -> Self {
        match &mut self {
            Self::Json(decoder) => decoder.set_limits(limits),
            Self::Protobuf(decoder) => decoder.set_limits(limits),
        }
        self
    }

    /// What has not been decoded yet: a session that must wait (for a token to be verified) keeps it and goes on later
    /// with `Commands::new(encoding, rest)`. Empty when the frame is used up.
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

/// Appends the message `reply` to the command `id` to `out`, without any separator in JSON and with its length prefix in
/// Protobuf. On an error `out` is as it was.
///
/// # Errors
/// [`NotJson`] if a payload inside is not JSON and `encoding` is.
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

/// Appends the message that carries `push` (a Reply without an id) to `out`. On an error `out` is as it was.
///
/// # Errors
/// [`NotJson`] if a payload inside is not JSON and `encoding` is.
pub fn encode_push(encoding: Encoding, push: &Push<'_>, out: &mut Vec<u8>) -> Result<(), NotJson> {
    match encoding {
        Encoding::Json => json::encode_push(push, out),
        Encoding::Protobuf => {
            protobuf::encode_push(push, out);
            Ok(())
        }
    }
}

/// Appends `push` without the reply around it, as unidirectional transports carry it. On an error `out` is as it was.
///
/// # Errors
/// [`NotJson`] if a payload inside is not JSON and `encoding` is.
pub fn encode_bare_push(encoding: Encoding, push: &Push<'_>, out: &mut Vec<u8>) -> Result<(), NotJson> {
    match encoding {
        Encoding::Json => json::encode_bare_push(push, out),
        Encoding::Protobuf => {
            protobuf::encode_bare_push(push, out);
            Ok(())
        }
    }
}

/// Appends to `out` what stands before `data` in the message that carries a publication of `channel` with nothing but
/// `data`, of `data_bytes` bytes. Behind `data` follows the encoding's entry of [`PUBLICATION_TAILS`]. So one who has
/// `data` in parts need not copy them to one place.
pub fn publication_head(encoding: Encoding, channel: &str, data_bytes: usize, out: &mut Vec<u8>) {
    match encoding {
        Encoding::Json => json::publication_head(channel, out),
        Encoding::Protobuf => protobuf::publication_head(channel, data_bytes, out),
    }
}

/// What stands behind `data` in a message that [`publication_head`] began, by [`Encoding::index`].
pub const PUBLICATION_TAILS: [&[u8]; Encoding::ALL.len()] = [b"}}}", b""];

/// The message by which a server asks for a pong: a wholly empty reply.
pub const fn ping_message(encoding: Encoding) -> &'static [u8] {
    match encoding {
        Encoding::Json => b"{}",
        Encoding::Protobuf => &[0],
    }
}
