//! Keys of transports: `websocket.*` and the other ones, including those that Dunlin does not support yet.

use super::{
    COUNT_OR_ZERO, ENABLED, Groups, Key, NUMBER, TLS, ValueKind,
    ValueKind::{Any, Bool, Duration, Int, Text},
    own, part, part_table, refused_table, table, warned, yes,
};

const NO_QUIC: &str = "Dunlin does not support QUIC, so clients of this transport could not connect";
const NO_GRPC: &str = "Dunlin does not support gRPC, so clients of this transport could not connect";
const NO_CACHE: &str = "Dunlin compresses a publication once and needs no cache";
const ONE_COMPRESSION: &str =
    "`websocket.compression_level` and `websocket.compression_min_size` apply to this transport as well";
const HEAD_FIRST: &str =
    "the response starts before Dunlin accepts or refuses the client; a refused client receives a push";
const NO_BUFFERS: &str = "Dunlin keeps no buffers per connection";

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
    refused_table(
        "webtransport",
        &[
            ENABLED,
            &[part("handler_prefix", Text, "/connection/webtransport"), part("message_size_limit", NUMBER, "65536")],
        ],
        NO_QUIC,
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
    refused_table("uni_grpc", UNI_GRPC, NO_GRPC),
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
    warned(
        "write_timeout",
        Duration,
        "1000ms",
        "Dunlin closes a peer that does not read because of its queue limits or a missing pong",
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
    warned("compression_prepared_message_cache_size", NUMBER, "0", NO_CACHE),
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
    warned("read_buffer_size", NUMBER, "0", NO_BUFFERS),
    warned("write_buffer_size", NUMBER, "0", NO_BUFFERS),
    warned("use_write_buffer_pool", Bool, "false", NO_BUFFERS),
    warned("process_commands_off_read_loop", Bool, "false", "a shard reads and executes commands in one loop"),
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
    warned("compression_min_size", NUMBER, "0", ONE_COMPRESSION),
    warned("compression_level", NUMBER, "1", ONE_COMPRESSION),
    warned("read_buffer_size", NUMBER, "0", NO_BUFFERS),
    warned("use_write_buffer_pool", Bool, "false", NO_BUFFERS),
    warned("write_buffer_size", NUMBER, "0", NO_BUFFERS),
    warned(
        "write_timeout",
        Duration,
        "1000ms",
        "Dunlin closes a peer that does not read because of its queue limits or a missing pong",
    ),
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
    warned(
        "join_push_messages",
        Bool,
        "false",
        "a push is encoded once for all sessions, in a separate frame; one write carries many frames",
    ),
];

const CONNECT_CODES: Groups = &[ENABLED, &[part("transforms", Any, "")]];

const UNI_SSE: &[Key] = &[
    yes("enabled", Bool, "false", ON),
    yes("handler_prefix", Text, "/connection/uni_sse", PATH),
    yes("max_request_body_size", BODY_SIZE, "65536", BODY),
    refused_table("connect_code_to_http_response", CONNECT_CODES, HEAD_FIRST),
];

const UNI_HTTP_STREAM: &[Key] = &[
    yes("enabled", Bool, "false", ON),
    yes("handler_prefix", Text, "/connection/uni_http_stream", PATH),
    yes("max_request_body_size", BODY_SIZE, "65536", BODY),
    refused_table("connect_code_to_http_response", CONNECT_CODES, HEAD_FIRST),
];

const UNI_GRPC: Groups = &[
    ENABLED,
    &[
        part("address", Text, ""),
        part("port", NUMBER, "11000"),
        part("max_receive_message_size", NUMBER, "0"),
        part_table("tls", TLS),
    ],
];
