//! Converts the settings of transports other than the WebSocket.

use dunlin_net::{ClientEndpoint, TlsFiles, Transport};
use dunlin_websocket::WebSocketLimits;

use super::{EmulationOptions, TransportOptions, resolve::Reader};

pub(super) fn resolve(r: &mut Reader<'_>) -> TransportOptions {
    let places: Vec<ClientEndpoint> = ["http_stream", "sse", "uni_websocket", "uni_http_stream", "uni_sse"]
        .into_iter()
        .filter_map(|table| {
            let transport = transport(r, table);
            let path = r.prefix_if(&format!("{table}.enabled"), true, &format!("{table}.handler_prefix"))?;
            Some(ClientEndpoint { path, transport })
        })
        .collect();
    let is_emulated =
        |place: &ClientEndpoint| matches!(place.transport, Transport::HttpStream { .. } | Transport::Sse { .. });
    let emulation = EmulationOptions {
        handler_prefix: r.prefix("emulation.handler_prefix"),
        body_bytes_max: r.count("emulation.max_request_body_size"),
    };
    let emulation = Some(emulation).filter(|_| places.iter().any(is_emulated));
    let message_bytes_max = r.count("uni_websocket.message_size_limit");
    let uni_websocket_limits = WebSocketLimits {
        frame_bytes_max: message_bytes_max,
        message_bytes_max,
        fragments_max: r.narrow("websocket.fragments_per_message_limit"),
        unfinished_age_max_ms: r.ms("websocket.unfinished_message_timeout"),
        inflated_bytes_max: or_else(r.count("uni_websocket.decompressed_message_size_limit"), message_bytes_max),
        inflated_ratio_max: r.count("websocket.decompression_ratio_limit"),
    };
    TransportOptions {
        places,
        emulation,
        init_prefix: r.prefix_if("init.enabled", true, "init.handler_prefix"),
        uni_websocket_limits,
        mail_bytes_max: r.count("emulation.waiting_size_limit"),
    }
}

/// The TLS sources, if TLS is enabled.
pub(super) fn tls(r: &mut Reader<'_>) -> Option<TlsFiles> {
    let files = TlsFiles {
        certificate: r.text("http_server.tls.cert_pem"),
        key: r.text("http_server.tls.key_pem"),
        client_ca: r.text("http_server.tls.client_ca_pem"),
    };
    if !r.bool("http_server.tls.enabled") {
        return None;
    }
    for (path, value) in [("http_server.tls.cert_pem", &files.certificate), ("http_server.tls.key_pem", &files.key)] {
        if value.is_empty() {
            r.error(path, "is empty, but TLS needs it: set a file, or PEM text");
        }
    }
    Some(files)
}

fn transport(r: &mut Reader<'_>, table: &str) -> Transport {
    if table == "uni_websocket" {
        return Transport::UniWebSocket { deflate: r.bool("uni_websocket.compression") };
    }
    let body_bytes_max = r.count(&format!("{table}.max_request_body_size"));
    match table {
        "http_stream" => Transport::HttpStream { body_bytes_max },
        "sse" => Transport::Sse { body_bytes_max },
        "uni_http_stream" => Transport::UniHttpStream { body_bytes_max },
        _ => Transport::UniSse { body_bytes_max },
    }
}

/// `number`, or `other` if `number` is zero.
pub(super) fn or_else(number: usize, other: usize) -> usize {
    if number == 0 { other } else { number }
}
