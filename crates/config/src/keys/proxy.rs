//! Keys of backend requests: `client.proxy.*`, `channel.proxy.*`, `rpc.proxy`, `proxies[]`.

use super::{
    COUNT, Key,
    ValueKind::{Any, Bool, Duration, Int, Secret, Text, Texts, Url},
    own, table, yes,
};

pub(super) const PROXY: &[Key] = &[
    yes("endpoint", Url, "", "URL of the backend; begins with `http://` or `https://`."),
    yes("timeout", Duration, "1s", "Timeout of a request, until the response is complete."),
    yes(
        "http_headers",
        Texts,
        "",
        "Names of header fields of the client's HTTP request that are forwarded to the backend. `x-real-ip` and `x-forwarded-for` carry the client's address: resolved through `http_server.trusted_proxies` if it is set; otherwise as the request has it, or else the address of the connection.",
    ),
    yes(
        "binary_encoding",
        Bool,
        "false",
        "Send the client's data as base64 (`b64data`). If false, it is sent as JSON, and data that is not JSON gets error 107.",
    ),
    yes("include_connection_meta", Bool, "false", "Send the `meta` of the token or of the connect response."),
    own(
        "requests_limit",
        Int(1, 1 << 20),
        "256",
        "Maximum number of concurrent requests. Beyond it the client gets error 111.",
    ),
    own("response_size_limit", COUNT, "1048576", "Maximum size in bytes of a response. A larger one causes error 100."),
    own(
        "failures_limit",
        Int(0, 10_000),
        "20",
        "Number of consecutive failures after which the circuit breaker opens: clients get error 100 at once. Connection failures, timeouts and statuses of 500 and above count; at most half of them may come from one session, user or address. 0: never.",
    ),
    own("failures_pause", Duration, "1s", "How long the circuit breaker stays open. Then one request is tried."),
    table(
        "http",
        &[&[
            table("tls", &[CLIENT_TLS], "TLS towards the backend."),
            yes("static_headers", Any, "", "Header fields of every request: a table of names and values."),
            yes(
                "status_to_code_transforms",
                Any,
                "",
                "Maps response statuses other than 200 to errors and disconnects: a list of `{status_code, to_error: {code, message, temporary}}` and `{status_code, to_disconnect: {code, reason}}`. A status that is not listed is a failure.",
            ),
        ]],
        "The requests to the backend.",
    ),
];

const CLIENT_TLS: &[Key] = &[
    yes(
        "enabled",
        Bool,
        "false",
        "Apply the keys of this table. If false, the certificate of an `https` URL is verified with the system's CA certificates.",
    ),
    yes(
        "server_ca_pem",
        Text,
        "",
        "CA certificates that verify the backend, instead of the system's: the path of a PEM file, PEM text, or base64 of PEM text.",
    ),
    yes("cert_pem", Text, "", "The client certificate that Dunlin presents, in the same forms as `server_ca_pem`."),
    yes("key_pem", Secret, "", "The private key of `cert_pem`, in the same forms."),
    yes(
        "server_name",
        Text,
        "",
        "The name that the backend's certificate must have, instead of the host name of the URL.",
    ),
    yes("insecure_skip_verify", Bool, "false", "Accept any certificate. For development only."),
];
