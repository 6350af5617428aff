//! Commands and replies in the form of the vectors in `schema/vectors/protocol`: JSON objects with the fields that are
//! set. Payloads are strings, or `{"hex": "…"}` if they are not UTF-8.
#![allow(dead_code, reason = "each test uses its part")]

use std::sync::Arc;

use bytes::Bytes;
use dunlin_protocol::{
    ClientInfo, Command, ConnectResult, Disconnect, ErrorCode, HistoryResult, Payload, PresenceResult,
    PresenceStatsResult, Publication, RefreshResult, Reply, Request, RpcResult, StreamPosition, SubscribeRequest,
    SubscribeResult, Tags, UnsubscribeCode,
};
use serde_json::{Map, Value, json};

/// The meaning of `command`.
pub fn of_command(command: &Command<'_>) -> Value {
    let mut meaning = json!({"id": command.id});
    if let Some(request) = &command.request {
        let (name, request) = of_request(request);
        meaning[name] = request;
    }
    without_zeros(meaning)
}

fn of_request(request: &Request<'_>) -> (&'static str, Value) {
    match request {
        Request::Connect(connect) => {
            let subs = connect.subs.iter().map(|(channel, sub)| (channel.to_string(), of_subscribe(sub)));
            let subs = subs.collect::<Map<_, _>>();
            let mut meaning = without_zeros(json!({
                "token": connect.token, "data": payload(connect.data), "name": connect.name, "version": connect.version,
            }));
            if !subs.is_empty() {
                meaning["subs"] = Value::Object(subs);
            }
            ("connect", meaning)
        }
        Request::Subscribe(subscribe) => ("subscribe", of_subscribe(subscribe)),
        Request::Unsubscribe { channel } => ("unsubscribe", without_zeros(json!({"channel": channel}))),
        Request::Publish(publish) => (
            "publish",
            without_zeros(json!({"channel": publish.channel, "data": payload(publish.data), "type": publish.kind})),
        ),
        Request::Presence { channel } => ("presence", without_zeros(json!({"channel": channel}))),
        Request::PresenceStats { channel } => ("presence_stats", without_zeros(json!({"channel": channel}))),
        Request::History(history) => {
            let mut meaning =
                without_zeros(json!({"channel": history.channel, "limit": history.limit, "reverse": history.reverse}));
            if let Some(StreamPosition { offset, epoch }) = &history.since {
                meaning["since"] = without_zeros(json!({"offset": offset, "epoch": epoch}));
            }
            ("history", meaning)
        }
        Request::Ping => ("ping", json!({})),
        Request::Send { data } => ("send", without_zeros(json!({"data": payload(*data)}))),
        Request::Rpc(rpc) => ("rpc", without_zeros(json!({"data": payload(rpc.data), "method": rpc.method}))),
        Request::Refresh { token } => ("refresh", without_zeros(json!({"token": token}))),
        Request::SubRefresh(refresh) => (
            "sub_refresh",
            without_zeros(json!({"channel": refresh.channel, "token": refresh.token, "type": refresh.kind})),
        ),
    }
}

fn of_subscribe(subscribe: &SubscribeRequest<'_>) -> Value {
    without_zeros(json!({
        "channel": subscribe.channel,
        "token": subscribe.token,
        "recover": subscribe.recover,
        "epoch": subscribe.epoch,
        "offset": subscribe.offset,
        "data": payload(subscribe.data),
        "positioned": subscribe.positioned,
        "recoverable": subscribe.recoverable,
        "join_leave": subscribe.join_leave,
        "delta": subscribe.delta,
        "tf": subscribe.tags_filter.is_some(),
        "flag": subscribe.flag.0,
        "type": subscribe.kind,
    }))
}

/// The meaning of a command, reduced to the parts that the crate reads: of several requests only the `chosen` one, and
/// of a tags filter only its presence.
pub fn as_read(command: &Value, chosen: Option<&str>) -> Value {
    const NOT_READ: &[(&str, &[&str])] = &[
        ("connect", &["headers", "flag", "dict", "profile"]),
        ("subscribe", &["phase", "cursor", "limit", "asc"]),
        ("publish", &["key", "removed"]),
        ("sub_refresh", &["track", "untrack"]),
    ];
    let mut command = command.clone();
    let fields = command.as_object_mut().expect("a command is an object");
    if let Some(chosen) = chosen {
        fields.retain(|name, _| name == "id" || name == chosen);
    }
    for (request, names) in NOT_READ {
        if let Some(request) = fields.get_mut(*request).and_then(Value::as_object_mut) {
            request.retain(|name, _| !names.contains(&name.as_str()));
        }
    }
    if let Some(filter) = fields.get_mut("subscribe").and_then(|subscribe| subscribe.get_mut("tf")) {
        *filter = Value::Bool(true);
    }
    command
}

fn without_zeros(mut object: Value) -> Value {
    let is_zero = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_u64() == Some(0),
        Value::String(text) => text.is_empty(),
        _ => false,
    };
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|_, value| !is_zero(value));
    }
    object
}

fn payload(bytes: Option<&[u8]>) -> Value {
    match bytes.map(|bytes| (bytes, str::from_utf8(bytes))) {
        None => Value::Null,
        Some((_, Ok(text))) => text.into(),
        Some((bytes, Err(_))) => json!({"hex": hex(bytes)}),
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}

pub fn unhex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "{text}");
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal digits"))
        .collect()
}

/// Creates values from a meaning.
pub struct Reader {
    /// Creates payloads, either known to be JSON or of unknown content.
    pub make_payload: fn(Bytes) -> Payload,
}

impl Reader {
    /// The id and the reply that `meaning` describes; `None` for a push or a ping.
    pub fn reply(&self, meaning: &Value) -> Option<(u32, Reply)> {
        let id = number(&meaning["id"]) as u32;
        let (name, result) = meaning.as_object()?.iter().find(|(name, _)| *name != "id")?;
        let reply = match name.as_str() {
            "error" => match number(&result["code"]) {
                code @ 400..2_000 => Reply::Refused {
                    code: code as u16,
                    message: text(&result["message"]).into(),
                    temporary: result["temporary"] == true,
                },
                _ => Reply::Error(error(result)),
            },
            "connect" => Reply::Connect(Box::new(self.connect(result))),
            "subscribe" => Reply::Subscribe(Box::new(self.subscribe(result))),
            "unsubscribe" => Reply::Unsubscribe,
            "publish" => Reply::Publish,
            "presence" => Reply::Presence(self.presence(result)),
            "presence_stats" => Reply::PresenceStats(PresenceStatsResult {
                num_clients: number(&result["num_clients"]) as u32,
                num_users: number(&result["num_users"]) as u32,
            }),
            "history" => Reply::History(HistoryResult {
                publications: self.publications(&result["publications"]),
                epoch: text(&result["epoch"]).into(),
                offset: number(&result["offset"]),
            }),
            "rpc" => Reply::Rpc(RpcResult { data: self.payload(&result["data"]) }),
            "refresh" => Reply::Refresh(RefreshResult {
                client: text(&result["client"]).into(),
                version: text(&result["version"]).to_owned().leak(),
                ttl_s: ttl_s(result),
            }),
            "sub_refresh" => Reply::SubRefresh { ttl_s: ttl_s(result) },
            "push" => return None,
            other => panic!("no such reply: {other}"),
        };
        Some((id, reply))
    }

    fn connect(&self, result: &Value) -> ConnectResult {
        let subs = result["subs"].as_object().into_iter().flatten();
        ConnectResult {
            client: text(&result["client"]).into(),
            version: text(&result["version"]).to_owned().leak(),
            ttl_s: ttl_s(result),
            data: self.payload(&result["data"]),
            subs: subs.map(|(channel, sub)| (channel.as_str().into(), self.subscribe(sub))).collect(),
            ping_s: number(&result["ping"]) as u32,
            pong: result["pong"] == true,
            session: text(&result["session"]).into(),
            node: text(&result["node"]).into(),
            time_ms: result["time"].as_i64().unwrap_or_default(),
        }
    }

    pub fn subscribe(&self, result: &Value) -> SubscribeResult {
        SubscribeResult {
            ttl_s: ttl_s(result),
            recoverable: result["recoverable"] == true,
            positioned: result["positioned"] == true,
            epoch: text(&result["epoch"]).into(),
            offset: number(&result["offset"]),
            publications: self.publications(&result["publications"]),
            patches: Vec::new(),
            encoded: None,
            recovered: result["recovered"] == true,
            was_recovering: result["was_recovering"] == true,
            data: self.payload(&result["data"]),
            delta: result["delta"] == true,
            channel_number: number(&result["id"]),
        }
    }

    /// The result of a subscription with deltas. The meaning contains the data as the JSON string of text frames, and
    /// `written` converts it to the bytes to encode.
    pub fn subscribe_with_delta(&self, result: &Value, written: impl Fn(&Payload) -> Vec<u8>) -> SubscribeResult {
        let mut subscribe = self.subscribe(result);
        for (publication, meant) in
            subscribe.publications.iter_mut().zip(result["publications"].as_array().into_iter().flatten())
        {
            let publication = Arc::make_mut(publication);
            let bytes = written(&publication.data);
            subscribe.patches.push((meant["delta"] == true).then(|| bytes.clone().into()));
            publication.data = (self.make_payload)(bytes.into());
        }
        subscribe
    }

    fn presence(&self, result: &Value) -> PresenceResult {
        let clients = result["presence"].as_object().into_iter().flatten();
        PresenceResult { clients: clients.map(|(_, info)| Arc::new(self.client_info(info))).collect() }
    }

    fn publications(&self, publications: &Value) -> Vec<Arc<Publication>> {
        let publications = publications.as_array().into_iter().flatten();
        publications.map(|publication| Arc::new(self.publication(publication))).collect()
    }

    pub fn publication(&self, publication: &Value) -> Publication {
        let tags = publication["tags"].as_object().into_iter().flatten();
        Publication {
            data: self.payload(&publication["data"]).unwrap_or_else(|| (self.make_payload)(Bytes::new())),
            info: publication.get("info").map(|info| Arc::new(self.client_info(info))),
            offset: number(&publication["offset"]),
            tags: tags.map(|(key, value)| (key.as_str().into(), text(value).into())).collect::<Tags>(),
            time_ms: publication["time"].as_i64().unwrap_or_default(),
            epoch: text(&publication["epoch"]).into(),
            version: number(&publication["version"]),
        }
    }

    pub fn client_info(&self, info: &Value) -> ClientInfo {
        ClientInfo {
            user: text(&info["user"]).into(),
            client: text(&info["client"]).into(),
            conn_info: self.payload(&info["conn_info"]),
            chan_info: self.payload(&info["chan_info"]),
        }
    }

    pub fn payload(&self, payload: &Value) -> Option<Payload> {
        let bytes = match payload {
            Value::Null => return None,
            Value::String(text) => text.as_bytes().to_vec(),
            other => unhex(text(&other["hex"])),
        };
        Some((self.make_payload)(bytes.into()))
    }
}

fn error(error: &Value) -> ErrorCode {
    let code = ErrorCode::ALL.iter().find(|code| error["code"] == code.code()).expect("a known code");
    assert_eq!((text(&error["message"]), error["temporary"] == true), (code.message(), code.temporary()));
    *code
}

pub fn disconnect(disconnect: &Value) -> Disconnect {
    let code = number(&disconnect["code"]) as u16;
    Disconnect { code, reason: text(&disconnect["reason"]).to_owned().into() }
}

pub fn unsubscribe_code(unsubscribe: &Value) -> UnsubscribeCode {
    UnsubscribeCode(number(&unsubscribe["code"]) as u32)
}

pub fn ttl_s(result: &Value) -> Option<u32> {
    (result["expires"] == true).then(|| number(&result["ttl"]) as u32)
}

pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

/// A Protobuf field of bytes with this tag.
pub fn length_prefixed(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    let mut length = content.len();
    while length >= 128 {
        bytes.push((length % 128) as u8 + 128);
        length /= 128;
    }
    bytes.push(length as u8);
    bytes.extend_from_slice(content);
    bytes
}
