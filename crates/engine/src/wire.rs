//! How a session's messages are framed, and which sessions can share a frame.

use dunlin_protocol::Encoding;

/// What a session speaks: its transport, its encoding, and whether only the server speaks. Given when it is opened, and the
/// same for life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Wire {
    /// WebSocket, text frames.
    WebSocketJson,
    /// WebSocket, binary frames.
    WebSocketProtobuf,
    /// WebSocket with permessage-deflate, text frames.
    WebSocketDeflateJson,
    /// WebSocket with permessage-deflate, binary frames.
    WebSocketDeflateProtobuf,
    /// The response of one HTTP request, a line for each message; commands come by `/emulation`.
    HttpStreamJson,
    /// The response of one HTTP request, messages with their lengths; commands come by `/emulation`.
    HttpStreamProtobuf,
    /// Server-sent events; commands come by `/emulation`.
    Sse,
    /// WebSocket on which only the server speaks, bare pushes.
    UniWebSocket,
    /// The same, with permessage-deflate.
    UniWebSocketDeflate,
    /// HTTP response on which only the server speaks, bare pushes.
    UniHttpStream,
    /// Server-sent events on which only the server speaks, bare pushes.
    UniSse,
}

/// What stands around a message on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// A WebSocket frame, compressed where that is worth it.
    WebSocket { deflate: bool },
    /// A chunk of an HTTP/1.1 response (RFC 9112, section 7.1) with these bytes before and behind the message.
    Chunk { before: &'static str, behind: &'static str },
}

impl Wire {
    /// Every one, in the order of [`Wire::index`].
    pub const ALL: [Self; 11] = [
        Self::WebSocketJson,
        Self::WebSocketProtobuf,
        Self::WebSocketDeflateJson,
        Self::WebSocketDeflateProtobuf,
        Self::HttpStreamJson,
        Self::HttpStreamProtobuf,
        Self::Sse,
        Self::UniWebSocket,
        Self::UniWebSocketDeflate,
        Self::UniHttpStream,
        Self::UniSse,
    ];

    /// A dense number for arrays that hold one entry for each.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// What its messages are written in.
    pub const fn encoding(self) -> Encoding {
        match self {
            Self::WebSocketProtobuf | Self::WebSocketDeflateProtobuf | Self::HttpStreamProtobuf => Encoding::Protobuf,
            _ => Encoding::Json,
        }
    }

    /// Whether the client can send nothing but its first request.
    pub const fn is_unidirectional(self) -> bool {
        matches!(self, Self::UniWebSocket | Self::UniWebSocketDeflate | Self::UniHttpStream | Self::UniSse)
    }

    /// Whether commands come by requests of their own, which name the session.
    pub const fn is_emulated(self) -> bool {
        matches!(self, Self::HttpStreamJson | Self::HttpStreamProtobuf | Self::Sse)
    }

    /// Whether its sessions have a secret id that only the client receives.
    pub const fn has_secret_id(self) -> bool {
        self.is_unidirectional() || self.is_emulated()
    }

    /// Whether it is a WebSocket.
    pub const fn is_websocket(self) -> bool {
        matches!(self.framing(), Framing::WebSocket { .. })
    }

    /// The transport's name in backend requests and metrics, as in Centrifugo.
    pub const fn transport_name(self) -> &'static str {
        match self {
            Self::WebSocketJson
            | Self::WebSocketProtobuf
            | Self::WebSocketDeflateJson
            | Self::WebSocketDeflateProtobuf => "websocket",
            Self::HttpStreamJson | Self::HttpStreamProtobuf => "http_stream",
            Self::Sse => "sse",
            Self::UniWebSocket | Self::UniWebSocketDeflate => "uni_websocket",
            Self::UniHttpStream => "uni_http_stream",
            Self::UniSse => "uni_sse",
        }
    }

    pub(crate) const fn framing(self) -> Framing {
        match self {
            Self::WebSocketJson | Self::WebSocketProtobuf | Self::UniWebSocket => Framing::WebSocket { deflate: false },
            Self::WebSocketDeflateJson | Self::WebSocketDeflateProtobuf | Self::UniWebSocketDeflate => {
                Framing::WebSocket { deflate: true }
            }
            Self::HttpStreamJson | Self::UniHttpStream => Framing::Chunk { before: "", behind: "\n" },
            Self::HttpStreamProtobuf => Framing::Chunk { before: "", behind: "" },
            Self::Sse | Self::UniSse => Framing::Chunk { before: "data: ", behind: "\n\n" },
        }
    }
}

impl From<Encoding> for Wire {
    /// The plain WebSocket with this encoding.
    fn from(encoding: Encoding) -> Self {
        match encoding {
            Encoding::Json => Self::WebSocketJson,
            Encoding::Protobuf => Self::WebSocketProtobuf,
        }
    }
}

/// Subscriptions that are sent the same bytes. A publication is encoded once for each class that somebody on the node is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameClass {
    /// What their sessions speak.
    pub wire: Wire,
    /// Whether pushes carry the channel's number instead of its name.
    pub compact: bool,
    /// Whether data is sent as the difference to the publication before.
    pub delta: bool,
}

impl FrameClass {
    /// Of a session, before anything was agreed on for the subscription.
    pub const fn plain(wire: Wire) -> Self {
        Self { wire, compact: false, delta: false }
    }

    /// What its frames are written in.
    pub const fn encoding(self) -> Encoding {
        self.wire.encoding()
    }
}
