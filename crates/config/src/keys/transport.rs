//! Keys of transports: `websocket.*` and the other ones.

use super::{
    COUNT_OR_ZERO, Key, ValueKind,
    ValueKind::{Bool, Duration, Int, Text},
    own, table, yes,
};

pub(super) const TOP: &[Key] = &[
    table("websocket", &[WEBSOCKET], "The WebSocket endpoint."),
    table(
        "sse",
        &[SSE],
        "Server-sent events, for networks that block WebSocket. Clients send commands to the `emulation` endpoint.",
    ),
    table(
        "http_stream",
        &[HTTP_STREAM],
        "HTTP streaming, for networks that block WebSocket. Clients send commands to the `emulation` endpoint.",
    ),
    table("emulation", &[EMULATION], "The endpoint for commands of `http_stream` and `sse` clients."),
    table(
        "uni_websocket",
        &[UNI_WEBSOCKET],
        "Unidirectional WebSocket: after the connect request, only the server sends.",
    ),
    table("uni_sse", &[UNI_SSE], "Unidirectional server-sent events: the client sends only a connect request."),
    table(
        "uni_http_stream",
        &[UNI_HTTP_STREAM],
        "Unidirectional HTTP streaming: the client sends only a connect request.",
    ),
    table("init", &[INIT], "An endpoint that returns `{}`, to test the connection."),
];

const WEBSOCKET: &[Key] = &[
    yes("disabled", Bool, "false", "Disable the endpoint."),
    yes("handler_prefix", Text, "/connection/websocket", "Path of the endpoint."),
    yes(
        "message_size_limit",
        Int(1, 1 << 30),
        "65536",
        "Maximum size in bytes of one message, including all its frames. Beyond it the connection ends with 1009.",
    ),
    own(
        "frame_size_limit",
        Int(0, 1 << 30),
        "0",
        "Maximum size in bytes of one frame. 0: `websocket.message_size_limit`.",
    ),
    own(
        "fragments_per_message_limit",
        Int(1, 1 << 30),
        "128",
        "Maximum number of frames of one message. Beyond it the connection ends with 1008.",
    ),
    own(
        "unfinished_message_timeout",
        Duration,
        "10s",
        "How long a client may take to send a message, from its first byte.",
    ),
    yes(
        "compression",
        Bool,
        "false",
        "Negotiate permessage-deflate with clients that offer it, without context takeover: a publication is compressed once \
         for all of them.",
    ),
    yes("compression_min_size", COUNT_OR_ZERO, "0", "Minimum size in bytes of a message that is compressed."),
    yes("compression_level", Int(1, 9), "1", "Compression level from 1 (fastest) to 9 (smallest)."),
    yes(
        "decompressed_message_size_limit",
        Int(0, 1 << 30),
        "0",
        "Maximum size in bytes of one compressed message after decompression. 0: `websocket.message_size_limit`. Beyond it \
         the connection ends with 1009.",
    ),
    own(
        "decompression_ratio_limit",
        Int(1, 2_000),
        "256",
        "Maximum ratio of decompressed to compressed size, for messages above 16 KiB. Beyond it the connection ends with \
         1009.",
    ),
];

const ON: &str = "Enable the transport.";
const PATH: &str = "Path of the endpoint.";
const BODY: &str = "Maximum size of a request body in bytes. A larger request gets 413.";

const SSE: &[Key] = &[
    yes("enabled", Bool, "false", ON),
    yes("handler_prefix", Text, "/connection/sse", PATH),
    yes("max_request_body_size", BODY_SIZE, "65536", BODY),
];

const HTTP_STREAM: &[Key] = &[
    yes("enabled", Bool, "false", ON),
    yes("handler_prefix", Text, "/connection/http_stream", PATH),
    yes("max_request_body_size", BODY_SIZE, "65536", BODY),
];

const EMULATION: &[Key] = &[
    yes("handler_prefix", Text, "/emulation", PATH),
    yes("max_request_body_size", BODY_SIZE, "65536", BODY),
    own(
        "waiting_size_limit",
        BODY_SIZE,
        "262144",
        "Maximum size in bytes of the commands queued for one session while its token is verified or a backend is called. \
         Beyond it a request gets 503.",
    ),
];

const INIT: &[Key] = &[
    yes("enabled", Bool, "false", "Enable the endpoint, for pages whose origin is in `client.allowed_origins`."),
    yes("handler_prefix", Text, "/connection/init", PATH),
];

const BODY_SIZE: ValueKind = Int(1, 1 << 30);

const UNI_WEBSOCKET: &[Key] = &[
    yes("enabled", Bool, "false", ON),
    yes("handler_prefix", Text, "/connection/uni_websocket", PATH),
    yes("compression", Bool, "false", "Negotiate permessage-deflate with clients that offer it."),
    yes(
        "message_size_limit",
        BODY_SIZE,
        "65536",
        "Maximum size in bytes of one message. Beyond it the connection ends with 1009.",
    ),
    yes(
        "decompressed_message_size_limit",
        Int(0, 1 << 30),
        "0",
        "Maximum size in bytes of one compressed message after decompression. 0: `uni_websocket.message_size_limit`.",
    ),
    yes("disable_closing_handshake", Bool, "false", "End connections without a close frame."),
    yes(
        "disable_disconnect_push",
        Bool,
        "false",
        "Send the reason of a disconnect in the close frame only, without a push before it.",
    ),
];

const UNI_SSE: &[Key] = &[
    yes("enabled", Bool, "false", ON),
    yes("handler_prefix", Text, "/connection/uni_sse", PATH),
    yes("max_request_body_size", BODY_SIZE, "65536", BODY),
];

const UNI_HTTP_STREAM: &[Key] = &[
    yes("enabled", Bool, "false", ON),
    yes("handler_prefix", Text, "/connection/uni_http_stream", PATH),
    yes("max_request_body_size", BODY_SIZE, "65536", BODY),
];
