//! How clients reach the node: `websocket.*` and the transports that Dunlin does not have yet.

use super::{
    COUNT, ENABLED, Groups, Key,
    Kind::{Any, Bool, Duration, Int, Text},
    NUMBER, TLS, own, part, part_table, refused_table, table, warned, warned_table, yes,
};

const ONLY_WEBSOCKET: &str =
    "WebSocket is the one transport that Dunlin has yet, so clients of this one could not connect";
const NO_COMPRESSION: &str = "frames leave uncompressed, which takes more bytes";
const NO_BUFFERS: &str = "Dunlin keeps no buffers per connection";

pub(super) const TOP: &[Key] = &[
    table("websocket", &[WEBSOCKET], "The WebSocket endpoint."),
    refused_table("sse", HTTP_SSE, ONLY_WEBSOCKET),
    refused_table("http_stream", HTTP_STREAM, ONLY_WEBSOCKET),
    refused_table(
        "webtransport",
        &[
            ENABLED,
            &[part("handler_prefix", Text, "/connection/webtransport"), part("message_size_limit", NUMBER, "65536")],
        ],
        ONLY_WEBSOCKET,
    ),
    warned_table(
        "emulation",
        &[&[part("handler_prefix", Text, "/emulation"), part("max_request_body_size", NUMBER, "65536")]],
        "Dunlin has none of the transports that it serves",
    ),
    refused_table("uni_websocket", UNI_WEBSOCKET, ONLY_WEBSOCKET),
    refused_table("uni_sse", UNI_SSE, ONLY_WEBSOCKET),
    refused_table("uni_http_stream", UNI_HTTP_STREAM, ONLY_WEBSOCKET),
    refused_table("uni_grpc", UNI_GRPC, ONLY_WEBSOCKET),
    warned_table(
        "init",
        &[ENABLED, &[part("handler_prefix", Text, "/connection/init")]],
        "the endpoint is answered with 404",
    ),
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
    warned("compression", Bool, "false", NO_COMPRESSION),
    warned("compression_min_size", NUMBER, "0", NO_COMPRESSION),
    warned("compression_level", NUMBER, "1", NO_COMPRESSION),
    warned("compression_prepared_message_cache_size", NUMBER, "0", NO_COMPRESSION),
    warned("decompressed_message_size_limit", NUMBER, "0", NO_COMPRESSION),
    warned("read_buffer_size", NUMBER, "0", NO_BUFFERS),
    warned("write_buffer_size", NUMBER, "0", NO_BUFFERS),
    warned("use_write_buffer_pool", Bool, "false", NO_BUFFERS),
    warned("process_commands_off_read_loop", Bool, "false", "a shard reads and answers in one loop"),
];

const HTTP_SSE: Groups =
    &[ENABLED, &[part("handler_prefix", Text, "/connection/sse"), part("max_request_body_size", NUMBER, "65536")]];

const HTTP_STREAM: Groups = &[
    ENABLED,
    &[part("handler_prefix", Text, "/connection/http_stream"), part("max_request_body_size", NUMBER, "65536")],
];

const UNI_WEBSOCKET: Groups = &[
    ENABLED,
    &[
        part("handler_prefix", Text, "/connection/uni_websocket"),
        part("compression", Bool, "false"),
        part("compression_min_size", NUMBER, "0"),
        part("compression_level", NUMBER, "1"),
        part("read_buffer_size", NUMBER, "0"),
        part("use_write_buffer_pool", Bool, "false"),
        part("write_buffer_size", NUMBER, "0"),
        part("write_timeout", Duration, "1000ms"),
        part("message_size_limit", COUNT, "65536"),
        part("decompressed_message_size_limit", NUMBER, "0"),
        part("disable_closing_handshake", Bool, "false"),
        part("disable_disconnect_push", Bool, "false"),
        part("join_push_messages", Bool, "false"),
    ],
];

const CONNECT_CODES: Groups = &[ENABLED, &[part("transforms", Any, "")]];

const UNI_SSE: Groups = &[
    ENABLED,
    &[
        part("handler_prefix", Text, "/connection/uni_sse"),
        part("max_request_body_size", NUMBER, "65536"),
        part_table("connect_code_to_http_response", CONNECT_CODES),
    ],
];

const UNI_HTTP_STREAM: Groups = &[
    ENABLED,
    &[
        part("handler_prefix", Text, "/connection/uni_http_stream"),
        part("max_request_body_size", NUMBER, "65536"),
        part_table("connect_code_to_http_response", CONNECT_CODES),
    ],
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
