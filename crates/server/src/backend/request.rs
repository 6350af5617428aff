//! Encodes a request to a backend: the JSON of Centrifugo's proxies.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use dunlin_config::ProxyOptions;
use dunlin_engine::backend::{ProxyError, ProxyRequest, ProxyRequestKind};
use dunlin_protocol::{Encoding, ErrorCode};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::json_members::embedded;

/// The fields of all kinds of requests; each kind uses some of them.
#[derive(Default, Serialize)]
struct Body<'b> {
    #[serde(skip_serializing_if = "str::is_empty")]
    client: &'b str,
    #[serde(skip_serializing_if = "str::is_empty")]
    transport: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    protocol: &'static str,
    encoding: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'b str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    channel: Option<&'b str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'b str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'b RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    b64data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meta: Option<&'b RawValue>,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'b str,
    #[serde(skip_serializing_if = "str::is_empty")]
    version: &'b str,
    #[serde(skip_serializing_if = "Option::is_none")]
    channels: Option<&'b [Box<str>]>,
}

/// The body of the request.
///
/// # Errors
/// Error 107 if the session's data is not JSON and the proxy supports only JSON.
pub(super) fn body(request: &ProxyRequest, options: &ProxyOptions) -> Result<Vec<u8>, ProxyError> {
    let asker = &request.asker;
    let mut body = Body {
        client: &asker.client,
        transport: asker.wire.transport_name(),
        protocol: match asker.wire.encoding() {
            Encoding::Json => "json",
            Encoding::Protobuf => "protobuf",
        },
        encoding: if options.binary_encoding { "binary" } else { "json" },
        user: asker.user.as_deref().filter(|user| !user.is_empty()),
        ..Body::default()
    };
    let mut data = None;
    match &request.kind {
        ProxyRequestKind::Connect { data: own, name, version, channels } => {
            data = own.as_ref();
            (body.name, body.version) = (name, version);
            body.channels = Some(&**channels).filter(|channels| !channels.is_empty());
        }
        ProxyRequestKind::Refresh => {}
        ProxyRequestKind::Subscribe { channel, data: own } => {
            data = own.as_ref();
            body.channel = Some(channel);
        }
        ProxyRequestKind::Publish { channel, data: own } => {
            data = Some(own);
            body.channel = Some(channel);
        }
        ProxyRequestKind::SubRefresh { channel } => body.channel = Some(channel),
        ProxyRequestKind::Rpc { method, data: own } => {
            data = own.as_ref();
            body.method = Some(method);
        }
        ProxyRequestKind::RoomCall { channel, method, data: own } => {
            data = Some(own);
            // A game calls, not a client.
            (body.client, body.transport, body.protocol) = ("", "", "");
            body.channel = Some(channel);
            body.method = Some(method);
        }
    }
    if let Some(data) = data.filter(|data| !data.bytes().is_empty()) {
        if options.binary_encoding {
            body.b64data = Some(STANDARD.encode(data.bytes()));
        } else {
            body.data = Some(embedded(data).ok_or_else(not_json)?);
        }
    }
    if options.include_meta && !matches!(request.kind, ProxyRequestKind::Connect { .. }) {
        body.meta = asker.meta.as_ref().and_then(embedded);
    }
    serde_json::to_vec(&body).map_err(|_| ProxyError::Failed)
}

fn not_json() -> ProxyError {
    let code = ErrorCode::BadRequest;
    ProxyError::Error { code: 107, message: code.message().into(), temporary: code.temporary() }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use dunlin_engine::{
        Wire,
        backend::{ProxyIndex, ProxyRequestId, ProxySession},
    };
    use serde_json::{Value, json};

    use super::{super::tests::options, *};

    fn payload(bytes: &'static [u8]) -> dunlin_protocol::Payload {
        dunlin_protocol::Payload::from_opaque(Bytes::from_static(bytes))
    }

    fn request_json(wire: Wire, ask: ProxyRequestKind, options: &ProxyOptions) -> Result<Value, ProxyError> {
        let user = (!matches!(ask, ProxyRequestKind::Connect { .. })).then(|| "42".into());
        let asker = ProxySession { client: "c-1".into(), wire, user, meta: Some(payload(br#"{"plan": "pro"}"#)) };
        let request = ProxyRequest { id: ProxyRequestId(1), proxy: ProxyIndex(0), asker, kind: ask };
        body(&request, options).map(|body| serde_json::from_slice(&body).unwrap())
    }

    #[test]
    fn each_kind_has_its_fields() {
        let plain = options("http://127.0.0.1/");
        let with_meta = ProxyOptions { include_meta: true, ..plain.clone() };
        let connect = ProxyRequestKind::Connect {
            data: Some(payload(br#"{"a":1}"#)),
            name: "js".into(),
            version: "1.2".into(),
            channels: vec!["news".into()],
        };
        assert_eq!(
            request_json(Wire::WebSocketJson, connect, &with_meta).unwrap(),
            json!({"client": "c-1", "transport": "websocket", "protocol": "json", "encoding": "json", "data": {"a": 1},
                "name": "js", "version": "1.2", "channels": ["news"]})
        );
        assert_eq!(
            request_json(Wire::Sse, ProxyRequestKind::Refresh, &with_meta).unwrap(),
            json!({"client": "c-1", "transport": "sse", "protocol": "json", "encoding": "json", "user": "42",
                "meta": {"plan": "pro"}})
        );
        assert_eq!(
            request_json(
                Wire::WebSocketProtobuf,
                ProxyRequestKind::Subscribe { channel: "chat:1".into(), data: None },
                &plain
            )
            .unwrap(),
            json!({"client": "c-1", "transport": "websocket", "protocol": "protobuf", "encoding": "json", "user": "42",
                "channel": "chat:1"})
        );
        let call = ProxyRequestKind::RoomCall { channel: "arena:1".into(), method: "m".into(), data: payload(b"[1]") };
        let called = request_json(Wire::WebSocketJson, call, &plain).unwrap();
        assert_eq!(called["data"], json!([1]));
        assert_eq!((&called["channel"], &called["method"]), (&json!("arena:1"), &json!("m")));
        assert!(called.get("client").is_none() && called.get("transport").is_none(), "{called}");
        let data = payload(b"\"hi\"");
        assert_eq!(
            request_json(Wire::HttpStreamJson, ProxyRequestKind::Publish { channel: "chat:1".into(), data }, &plain)
                .unwrap(),
            json!({"client": "c-1", "transport": "http_stream", "protocol": "json", "encoding": "json", "user": "42",
                "channel": "chat:1", "data": "hi"})
        );
        assert_eq!(
            request_json(Wire::WebSocketJson, ProxyRequestKind::SubRefresh { channel: "chat:1".into() }, &plain)
                .unwrap(),
            json!({"client": "c-1", "transport": "websocket", "protocol": "json", "encoding": "json", "user": "42",
                "channel": "chat:1"})
        );
        assert_eq!(
            request_json(Wire::WebSocketJson, ProxyRequestKind::Rpc { method: "m".into(), data: None }, &plain)
                .unwrap(),
            json!({"client": "c-1", "transport": "websocket", "protocol": "json", "encoding": "json", "user": "42",
                "method": "m"})
        );
    }

    #[test]
    fn bytes_are_sent_as_json_or_base64() {
        let plain = options("http://127.0.0.1/");
        let binary = ProxyOptions { binary_encoding: true, ..plain.clone() };
        let rpc = |bytes| ProxyRequestKind::Rpc { method: "m".into(), data: Some(payload(bytes)) };
        let not_json = request_json(Wire::WebSocketProtobuf, rpc(&[0, 255]), &plain);
        assert!(matches!(not_json, Err(ProxyError::Error { code: 107, .. })), "{not_json:?}");
        let body = request_json(Wire::WebSocketProtobuf, rpc(&[0, 255]), &binary).unwrap();
        assert_eq!((&body["encoding"], &body["b64data"], body.get("data")), (&json!("binary"), &json!("AP8="), None));
        assert_eq!(request_json(Wire::WebSocketJson, rpc(b"[1, 2]"), &plain).unwrap()["data"], json!([1, 2]));
    }
}
