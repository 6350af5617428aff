//! Backends with scripted responses. Requests and responses are JSON objects.

use bytes::Bytes;
use dunlin_engine::{
    Now,
    backend::{
        ConnectResponse, Overrides, ProxyError, ProxyRequest, ProxyRequestKind, ProxyResponse, ProxyResult, PublishHow,
        PublishResponse, RefreshResponse,
    },
    event::{ServerSubscription, SubscriptionGrant},
};
use dunlin_protocol::{Disconnect, Payload};
use serde_json::{Map, Value, json};

use super::tokens::expiry;

/// The request as JSON, with its session.
pub fn request(request: &ProxyRequest) -> Value {
    let shown = |data: &Option<Payload>| data.as_ref().map(text);
    let (name, mut fields) = match &request.kind {
        ProxyRequestKind::Connect { data, name, version, channels } => {
            ("connect", json!({"data": shown(data), "name": name, "version": version, "channels": channels}))
        }
        ProxyRequestKind::Refresh => ("refresh", json!({})),
        ProxyRequestKind::Subscribe { channel, data } => {
            ("subscribe", json!({"channel": &**channel, "data": shown(data)}))
        }
        ProxyRequestKind::Publish { channel, data } => ("publish", json!({"channel": &**channel, "data": text(data)})),
        ProxyRequestKind::SubRefresh { channel } => ("sub_refresh", json!({"channel": &**channel})),
        ProxyRequestKind::RoomCall { channel, method, data } => {
            ("room_call", json!({"channel": &**channel, "method": method, "data": text(data)}))
        }
        ProxyRequestKind::Rpc { method, data } => ("rpc", json!({"method": method, "data": shown(data)})),
    };
    let asker = &request.asker;
    fields["of"] = json!(request.proxy.0);
    fields["client"] = json!(&*asker.client);
    fields["user"] = json!(asker.user.as_deref());
    fields["meta"] = json!(shown(&asker.meta));
    if let Some(fields) = fields.as_object_mut() {
        fields.retain(|_, value| !(value.is_null() || value == "" || *value == json!([])));
    }
    json!({ name: fields })
}

/// The outcome that `answer` describes.
pub fn outcome(answer: &Value, now: Now) -> ProxyResult {
    if let Some(refusal) = answer.as_str() {
        return Err(match refusal {
            "failed" => ProxyError::Failed,
            "busy" => ProxyError::Busy,
            other => panic!("no refusal {other}"),
        });
    }
    let (name, fields) = answer.as_object().and_then(|object| object.iter().next()).expect("one kind of answer");
    let code = || fields["code"].as_u64().expect("a code") as u16;
    let words = |name: &str| fields[name].as_str().unwrap_or_default().to_owned();
    Ok(match name.as_str() {
        "error" => {
            let (code, temporary) = (code(), fields["temporary"] == true);
            return Err(ProxyError::Error { code, message: words("message").into(), temporary });
        }
        "disconnect" => {
            return Err(ProxyError::Disconnect(Disconnect { code: code(), reason: words("reason").into() }));
        }
        "connect" => ProxyResponse::Connect(Box::new(ConnectResponse {
            user: words("user"),
            expires_at_ms: ttl(fields, now),
            info: payload(&fields["info"]),
            data: payload(&fields["data"]),
            meta: payload(&fields["meta"]),
            subscriptions: fields["subs"].as_object().map_or_else(Vec::new, |subs| subscriptions(subs, now)),
        })),
        "refresh" | "sub_refresh" => {
            let answer = RefreshResponse {
                expired: fields["expired"] == true,
                expires_at_ms: ttl(fields, now),
                info: payload(&fields["info"]),
                meta: payload(&fields["meta"]),
            };
            if name == "refresh" { ProxyResponse::Refresh(answer) } else { ProxyResponse::SubRefresh(answer) }
        }
        "subscribe" => ProxyResponse::Subscribe(Box::new(grant(fields, now))),
        "publish" => ProxyResponse::Publish(Box::new(PublishResponse {
            data: payload(&fields["data"]),
            how: PublishHow { skip_history: fields["skip_history"] == true, ..PublishHow::default() },
        })),
        "rpc" => ProxyResponse::Rpc { data: payload(&fields["data"]) },
        other => panic!("no answer {other}"),
    })
}

fn subscriptions(subs: &Map<String, Value>, now: Now) -> Vec<ServerSubscription> {
    subs.iter().map(|(channel, fields)| subscription(channel, fields, now)).collect()
}

/// A server-side subscription, as responses and API requests describe it.
pub fn subscription(channel: &str, fields: &Value, now: Now) -> ServerSubscription {
    let since = fields.get("since").map(|since| {
        let epoch = since["epoch"].as_str().unwrap_or_default();
        (since["offset"].as_u64().unwrap_or_default(), Box::from(epoch))
    });
    ServerSubscription {
        channel: channel.into(),
        grant: grant(fields, now),
        recover_since: since,
        ..ServerSubscription::default()
    }
}

fn grant(fields: &Value, now: Now) -> SubscriptionGrant {
    SubscriptionGrant {
        info: payload(&fields["info"]),
        data: payload(&fields["data"]),
        expires_at_ms: ttl(fields, now),
        overrides: overrides(&fields["override"]),
    }
}

pub fn overrides(fields: &Value) -> Overrides {
    Overrides {
        presence: fields["presence"].as_bool(),
        join_leave: fields["join_leave"].as_bool(),
        force_push_join_leave: fields["force_push_join_leave"].as_bool(),
        force_positioning: fields["force_positioning"].as_bool(),
        force_recovery: fields["force_recovery"].as_bool(),
    }
}

pub fn ttl(fields: &Value, now: Now) -> Option<u64> {
    fields["ttl"].as_f64().map(|ttl_s| expiry(&ttl_s.to_string(), now))
}

pub fn payload(value: &Value) -> Option<Payload> {
    (!value.is_null()).then(|| Payload::from_json(Bytes::from(value.to_string())))
}

fn text(payload: &Payload) -> String {
    String::from_utf8_lossy(payload.bytes()).into_owned()
}
