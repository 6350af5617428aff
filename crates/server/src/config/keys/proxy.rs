//! How a backend is asked: `client.proxy.*`, `channel.proxy.*`, `rpc.proxy`, `proxies[]`.

use super::{
    COUNT, Key,
    Kind::{Any, Bool, Duration, Int, Secret, Text, Texts},
    TLS, needless, own, part, part_table, table, warned, warned_table, yes,
};

const NO_GRPC: &str = "Dunlin asks backends over HTTP";

pub(super) const PROXY: &[Key] = &[
    yes("endpoint", Text, "", "Where the questions go: an address that begins with `http://` or `https://`."),
    yes("timeout", Duration, "1s", "Time for a question, until its answer is whole."),
    yes(
        "http_headers",
        Texts,
        "",
        "Header fields of the client's own HTTP request that are passed on, by lower-case name.",
    ),
    yes(
        "binary_encoding",
        Bool,
        "false",
        "Send the client's data as base64 (`b64data`), whatever it is. Otherwise it is sent as JSON, and refused with error 107 when it is none.",
    ),
    yes("include_connection_meta", Bool, "false", "Send what the token or the connect hook had as `meta`."),
    own("requests_limit", Int(1, 1 << 20), "256", "Questions at a time. One more is answered with error 111."),
    own("response_size_limit", COUNT, "1048576", "Bytes of an answer. A longer one is a failure."),
    own(
        "failures_limit",
        Int(0, u32::MAX as i64),
        "20",
        "Failures in a row after which the backend is left alone, and clients get error 100 at once. 0 for never.",
    ),
    own("failures_pause", Duration, "1s", "Time for which it is left alone. Then one question tries."),
    table(
        "http",
        &[&[
            table("tls", &[CLIENT_TLS], "The client's side of TLS."),
            yes("static_headers", Any, "", "Header fields of every request: a table of names and texts."),
            yes(
                "status_to_code_transforms",
                Any,
                "",
                "What statuses other than 200 mean: a list of `{status_code, to_error: {code, message, temporary}}` and `{status_code, to_disconnect: {code, reason}}`. Without one, a status is a failure.",
            ),
        ]],
        "The requests.",
    ),
    needless("grpc_metadata", Texts, "", "no client of Dunlin comes by gRPC, so none has metadata"),
    warned("emulated_headers", Texts, "", "header fields that clients make up in `connect` are not passed on"),
    warned_table(
        "grpc",
        &[&[
            part_table("tls", TLS),
            part("credentials_key", Secret, ""),
            part("credentials_value", Secret, ""),
            part("compression", Bool, "false"),
            part("static_metadata", Any, ""),
        ]],
        NO_GRPC,
    ),
];

const CLIENT_TLS: &[Key] = &[
    yes(
        "enabled",
        Bool,
        "false",
        "Use what stands here. An `https` address without it is checked with the system's certificates.",
    ),
    yes(
        "server_ca_pem",
        Text,
        "",
        "Certificates of authorities, instead of the system's: PEM text, a file's path, or base64 of PEM.",
    ),
    yes("cert_pem", Text, "", "Our certificate for the server to check, given in the same ways."),
    yes("key_pem", Secret, "", "Its key, given in the same ways."),
    yes("server_name", Text, "", "The name that the server's certificate has to have, instead of the address's."),
    yes("insecure_skip_verify", Bool, "false", "Believe any certificate. For development alone."),
    needless("client_ca_pem", Text, "", "it is of the server's side of TLS"),
];
