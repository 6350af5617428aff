//! Keys of backend requests: `client.proxy.*`, `channel.proxy.*`, `rpc.proxy`, `proxies[]`, and of `webhooks`.

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

pub(super) const WEBHOOKS: &[Key] = &[
    own(
        "endpoint",
        Url,
        "",
        "URL that receives the events; begins with `http://` or `https://`. Empty: no events. Each node sends its own.",
    ),
    own(
        "secret",
        Secret,
        "",
        "The key of the signatures, as the Standard Webhooks specification has it: `whsec_`, then 24 to 64 random bytes in base64. Required with `endpoint`.",
    ),
    own(
        "previous_secret",
        Secret,
        "",
        "While the backend changes to a new `secret`: the old one. Each request then has both signatures.",
    ),
    own(
        "events",
        Texts,
        "",
        "The kinds of events: `connected`, `disconnected`, `subscribed`, `unsubscribed`, `occupied`, `vacated`, `room_opened`, `room_ended`. Empty: all. All but the first two also need `channel_events` of the namespace.",
    ),
    own("timeout", Duration, "5s", "Timeout of a request. After it, the request is sent again."),
    own("batch_size", Int(1, 10_000), "1000", "Maximum number of events in a request."),
    own("batch_wait", Duration, "200ms", "How long the node waits for more events before it sends a request."),
    own("queue_limit", Int(1, 1 << 24), "262144", "Events that wait. Beyond it, new ones are dropped and counted."),
    own(
        "queue_size_limit",
        COUNT,
        "67108864",
        "Bytes of the events that wait. Beyond it, new ones are dropped and counted.",
    ),
    own(
        "retry_timeout",
        Duration,
        "10m",
        "How long the events of a request are sent again after failures. Then they are dropped and counted.",
    ),
    own(
        "retry_max_delay",
        Duration,
        "30s",
        "Maximum time between two attempts. It begins with half a second, doubles with each failure, and is shortened at random by up to a half.",
    ),
    table(
        "http",
        &[&[
            table("tls", &[CLIENT_TLS], "TLS towards the backend."),
            own("static_headers", Any, "", "Header fields of every request: a table of names and values."),
        ]],
        "The requests to the backend.",
    ),
];

pub(super) const CLIENT_TLS: &[Key] = &[
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
