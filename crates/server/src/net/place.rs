//! The paths at which clients come to a shard, and what is spoken there.

/// A path, and what is spoken there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The whole path.
    pub path: String,
    /// What is spoken.
    pub transport: Transport,
}

/// How clients come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A WebSocket.
    WebSocket {
        /// Whether permessage-deflate is agreed on.
        deflate: bool,
    },
    /// The response to a POST, with commands by requests of their own.
    HttpStream {
        /// Bytes of the request's body.
        body_bytes_max: usize,
    },
    /// Server-sent events, with commands by requests of their own.
    Sse {
        /// Bytes of the request's body.
        body_bytes_max: usize,
    },
    /// A WebSocket on which only the server speaks.
    UniWebSocket {
        /// Whether permessage-deflate is agreed on.
        deflate: bool,
    },
    /// The response to a POST, on which only the server speaks.
    UniHttpStream {
        /// Bytes of the request's body.
        body_bytes_max: usize,
    },
    /// Server-sent events, on which only the server speaks.
    UniSse {
        /// Bytes of the request's body.
        body_bytes_max: usize,
    },
}

impl Place {
    /// A WebSocket without compression.
    pub fn websocket(path: &str) -> Self {
        Self { path: path.to_owned(), transport: Transport::WebSocket { deflate: false } }
    }
}
