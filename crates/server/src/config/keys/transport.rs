//! How clients reach the node: `websocket.*` and the transports that Dunlin does not have yet.

use super::{
    COUNT_OR_ZERO, ENABLED, Groups, Key, Kind,
    Kind::{Any, Bool, Duration, Int, Text},
    NUMBER, TLS, own, part, part_table, refused_table, table, warned, yes,
};

const NO_QUIC: &str = "Dunlin speaks no QUIC, so clients of this transport could not connect";
const NO_GRPC: &str = "Dunlin speaks no gRPC, so clients of this transport could not connect";
const NO_CACHE: &str = "a publication is compressed once, and nothing has to be kept for that";
const ONE_COMPRESSION: &str = "`websocket.compression_level` and `websocket.compression_min_size` hold here too";
const HEAD_FIRST: &str =
    "the response begins before it is known whether the client may connect; a client that may not is told by a push";
const NO_BUFFERS: &str = "Dunlin keeps no buffers per connection";

pub(super) const TOP: &[Key] = &[
    table("websocket", &[WEBSOCKET], "The WebSocket endpoint."),
    table(
        "sse",
        &[SSE],
        "Server-sent events, for networks that let no WebSocket through; commands come by `emulation`.",
    ),
    table(
        "http_stream",
        &[HTTP_STREAM],
        "A streaming HTTP response, for networks that let no WebSocket through; commands come by `emulation`.",
    ),
    refused_table(
        "webtransport",
        &[
            ENABLED,
            &[part("handler_prefix", Text, "/connection/webtransport"), part("message_size_limit", NUMBER, "65536")],
        ],
        NO_QUIC,
    ),
    table("emulation", &[EMULATION], "Requests that carry commands of clients of `http_stream` and `sse`."),
    table("uni_websocket", &[UNI_WEBSOCKET], "A WebSocket on which only the server speaks, after a connect request."),
    table("uni_sse", &[UNI_SSE], "Server-sent events to clients that send nothing but a connect request."),
    table(
        "uni_http_stream",
        &[UNI_HTTP_STREAM],
        "A streaming HTTP response to clients that send nothing but a connect request.",
    ),
    refused_table("uni_grpc", UNI_GRPC, NO_GRPC),
    table("init", &[INIT], "An endpoint that answers `{}`, to see whether one gets through."),
];

const WEBSOCKET: &[Key] = &[
    yes("disabled", Bool, "false", "Switches the endpoint off."),
    yes("handler_prefix", Text, "/connection/websocket", "Path of the endpoint."),
    yes(
        "message_size_limit",
        Int(1, 1 << 30),
        "65536",
        "Bytes of one message, over all its frames. Past it the connection ends with 1009.",
    ),
    own("frame_size_limit", Int(0, 1 << 30), "0", "Bytes of one frame; 0 for those of a message."),
    own(
        "fragments_per_message_limit",
        Int(1, 1 << 30),
        "128",
        "Frames of one message. Past it the connection ends with 1008.",
    ),
    own("unfinished_message_timeout", Duration, "10s", "Time for a message to come whole after its first byte."),
    warned(
        "write_timeout",
        Duration,
        "1000ms",
        "a peer that takes nothing is ended by its queue's limits or a missing pong",
    ),
    yes(
        "compression",
        Bool,
        "false",
        "Agrees on permessage-deflate with clients that offer it, without context takeover: a publication is compressed once \
         for all of them.",
    ),
    yes(
        "compression_min_size",
        COUNT_OR_ZERO,
        "0",
        "Bytes from which a message is compressed, if that makes it shorter.",
    ),
    yes("compression_level", Int(1, 9), "1", "From 1, quick, to 9, small."),
    warned("compression_prepared_message_cache_size", NUMBER, "0", NO_CACHE),
    yes(
        "decompressed_message_size_limit",
        Int(0, 1 << 30),
        "0",
        "Bytes of one message that came compressed, when it no longer is; 0 for `message_size_limit`. Past it the connection \
         ends with 1009.",
    ),
    own(
        "decompression_ratio_limit",
        Int(1, 2_000),
        "256",
        "How many times longer than what came a compressed message may become, beyond 16 KiB. Past it the connection ends \
         with 1009.",
    ),
    warned("read_buffer_size", NUMBER, "0", NO_BUFFERS),
    warned("write_buffer_size", NUMBER, "0", NO_BUFFERS),
    warned("use_write_buffer_pool", Bool, "false", NO_BUFFERS),
    warned("process_commands_off_read_loop", Bool, "false", "a shard reads and answers in one loop"),
];

const ON: &str = "Switches the transport on.";
const PATH: &str = "Path of the endpoint.";
const BODY: &str = "Bytes of a request's body. One more is answered with 413.";

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
        "Bytes of commands that wait for one session while a token or a backend is asked about it. Past it a request is \
         answered with 503.",
    ),
];

const INIT: &[Key] = &[
    yes("enabled", Bool, "false", "Switches the endpoint on. Pages of `client.allowed_origins` may ask it."),
    yes("handler_prefix", Text, "/connection/init", PATH),
];

const BODY_SIZE: Kind = Int(1, 1 << 30);

const UNI_WEBSOCKET: &[Key] = &[
    yes("enabled", Bool, "false", ON),
    yes("handler_prefix", Text, "/connection/uni_websocket", PATH),
    yes("compression", Bool, "false", "Agrees on permessage-deflate with clients that offer it."),
    warned("compression_min_size", NUMBER, "0", ONE_COMPRESSION),
    warned("compression_level", NUMBER, "1", ONE_COMPRESSION),
    warned("read_buffer_size", NUMBER, "0", NO_BUFFERS),
    warned("use_write_buffer_pool", Bool, "false", NO_BUFFERS),
    warned("write_buffer_size", NUMBER, "0", NO_BUFFERS),
    warned(
        "write_timeout",
        Duration,
        "1000ms",
        "a peer that takes nothing is ended by its queue's limits or a missing pong",
    ),
    yes("message_size_limit", BODY_SIZE, "65536", "Bytes of one message. Past it the connection ends with 1009."),
    yes(
        "decompressed_message_size_limit",
        Int(0, 1 << 30),
        "0",
        "Bytes of one message that came compressed, when it no longer is; 0 for `message_size_limit`.",
    ),
    yes("disable_closing_handshake", Bool, "false", "Ends connections without a close frame."),
    yes(
        "disable_disconnect_push",
        Bool,
        "false",
        "Tells clients why they are closed by the close frame alone, and not by a push before it as well.",
    ),
    warned(
        "join_push_messages",
        Bool,
        "false",
        "a push is put into a frame once for all who get it, so each has a frame of its own; many leave in one write",
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
