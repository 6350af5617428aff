//! The paths that serve clients, and the transport of each.

/// A path and its transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientEndpoint {
    /// The complete path.
    pub path: String,
    /// The transport at this path.
    pub transport: Transport,
}

/// A transport with its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A WebSocket.
    WebSocket {
        /// Whether permessage-deflate is negotiated.
        deflate: bool,
    },
    /// The response to a POST request; commands arrive in separate HTTP requests.
    HttpStream {
        /// Maximum length of the request's body.
        body_bytes_max: usize,
    },
    /// Server-sent events; commands arrive in separate HTTP requests.
    Sse {
        /// Maximum length of the request's body.
        body_bytes_max: usize,
    },
    /// A unidirectional WebSocket.
    UniWebSocket {
        /// Whether permessage-deflate is negotiated.
        deflate: bool,
    },
    /// The response to a POST request, unidirectional.
    UniHttpStream {
        /// Maximum length of the request's body.
        body_bytes_max: usize,
    },
    /// Server-sent events, unidirectional.
    UniSse {
        /// Maximum length of the request's body.
        body_bytes_max: usize,
    },
}

impl ClientEndpoint {
    /// A WebSocket without compression.
    pub fn websocket(path: &str) -> Self {
        Self { path: path.to_owned(), transport: Transport::WebSocket { deflate: false } }
    }
}
