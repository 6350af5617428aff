//! How a session's messages are framed, and which sessions can share a frame.

use dunlin_protocol::Encoding;

/// The transport and encoding of a session. Set when the session opens, and never changed.
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
    /// HTTP response with one message per line; commands arrive by `/emulation`.
    HttpStreamJson,
    /// HTTP response with length-prefixed messages; commands arrive by `/emulation`.
    HttpStreamProtobuf,
    /// Server-sent events; commands arrive by `/emulation`.
    Sse,
    /// Unidirectional WebSocket with bare pushes.
    UniWebSocket,
    /// Unidirectional WebSocket with permessage-deflate and bare pushes.
    UniWebSocketDeflate,
    /// Unidirectional HTTP response with bare pushes.
    UniHttpStream,
    /// Unidirectional server-sent events with bare pushes.
    UniSse,
}

/// The framing of a message on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// A WebSocket frame, compressed if that makes it shorter.
    WebSocket { deflate: bool },
    /// A chunk of an HTTP/1.1 response (RFC 9112, section 7.1), with these bytes before and after the message.
    Chunk { before: &'static str, behind: &'static str },
}

impl Wire {
    /// Every variant, in the order of [`Wire::index`].
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

    /// A dense index for arrays with one entry per variant.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The encoding of its messages.
    pub const fn encoding(self) -> Encoding {
        match self {
            Self::WebSocketProtobuf | Self::WebSocketDeflateProtobuf | Self::HttpStreamProtobuf => Encoding::Protobuf,
            _ => Encoding::Json,
        }
    }

    /// Whether the client can send only its first request.
    pub const fn is_unidirectional(self) -> bool {
        matches!(self, Self::UniWebSocket | Self::UniWebSocketDeflate | Self::UniHttpStream | Self::UniSse)
    }

    /// Whether commands arrive in separate requests, which name the session.
    pub const fn is_emulated(self) -> bool {
        matches!(self, Self::HttpStreamJson | Self::HttpStreamProtobuf | Self::Sse)
    }

    /// Whether its sessions have a secret id, which only the client receives.
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

/// Subscriptions that receive identical bytes. A publication is encoded once for each class with subscribers on the
/// node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameClass {
    /// The wire of their sessions.
    pub wire: Wire,
    /// Whether pushes carry the channel's number instead of its name.
    pub compact: bool,
    /// Whether data is sent as a patch against the previous publication.
    pub delta: bool,
}

impl FrameClass {
    /// The class of a session's wire, without any negotiated option.
    pub const fn plain(wire: Wire) -> Self {
        Self { wire, compact: false, delta: false }
    }

    /// The encoding of its frames.
    pub const fn encoding(self) -> Encoding {
        self.wire.encoding()
    }
}
