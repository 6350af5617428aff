//! The commands of clients, in both encodings.

use dunlin_protocol::Encoding;
use serde_json::{Value, json, value::RawValue};

use super::Filter;

/// A position in a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientPosition {
    pub epoch: String,
    /// The last offset seen.
    pub offset: u64,
}

/// A command. Its tokens are strings that the simulated verifier can look up.
#[derive(Clone, Debug)]
pub enum ClientCommand {
    Connect {
        token: String,
        /// Positions from which to recover server-side subscriptions.
        subs: Vec<(String, ClientPosition)>,
    },
    Subscribe(Box<SubscribeCommand>),
    Unsubscribe {
        channel: String,
    },
    Publish {
        channel: String,
        data: Vec<u8>,
    },
    Presence {
        channel: String,
    },
    PresenceStats {
        channel: String,
    },
    History {
        channel: String,
        limit: i32,
        since: Option<ClientPosition>,
        reverse: bool,
    },
    Ping,
    Send {
        data: Vec<u8>,
    },
    Rpc {
        method: String,
    },
    Refresh {
        token: String,
    },
    SubRefresh {
        channel: String,
        token: String,
    },
    /// The reply to a ping. It has no id.
    Pong,
}

/// A request to subscribe.
#[derive(Clone, Debug, Default)]
pub struct SubscribeCommand {
    pub channel: String,
    pub token: String,
    pub recover: Option<ClientPosition>,
    pub positioned: bool,
    pub recoverable: bool,
    pub join_leave: bool,
    pub reject_unrecoverable: bool,
    /// The delta format, or empty for none.
    pub delta: &'static str,
    /// Whether the server may replace the channel name by a number.
    pub compact: bool,
    pub filter: Option<Filter>,
    /// JSON data for the game, if the channel has a room.
    pub data: Vec<u8>,
}

impl SubscribeCommand {
    /// A request to subscribe to `channel`, with nothing else.
    pub fn to(channel: &str) -> Self {
        Self { channel: channel.to_owned(), ..Self::default() }
    }

    /// The bits of the flag.
    fn flag(&self) -> u64 {
        u64::from(self.compact) | u64::from(self.reject_unrecoverable) << 1
    }
}

impl ClientCommand {
    /// The token that it presents, or empty for none.
    pub fn token(&self) -> &str {
        match self {
            Self::Subscribe(subscribe) => &subscribe.token,
            Self::Connect { token, .. } | Self::Refresh { token } | Self::SubRefresh { token, .. } => token,
            _ => "",
        }
    }
}

/// Encodes a frame of commands with their ids.
pub fn encode(encoding: Encoding, commands: &[(u32, ClientCommand)]) -> Vec<u8> {
    match encoding {
        Encoding::Json => {
            let lines: Vec<String> = commands.iter().map(|(id, command)| json_line(*id, command)).collect();
            lines.join("\n").into_bytes()
        }
        Encoding::Protobuf => {
            let mut frame = Vec::new();
            for (id, command) in commands {
                let mut message = ProtobufWriter::default();
                write_command(&mut message, *id, command);
                put_varint(&mut frame, message.0.len() as u64);
                frame.extend(message.0);
            }
            frame
        }
    }
}

fn json_line(id: u32, command: &ClientCommand) -> String {
    if let ClientCommand::Publish { channel, data } = command {
        // The payload is inserted unchanged.
        let data: &RawValue = serde_json::from_slice(data).expect("JSON clients publish JSON");
        return format!(r#"{{"id":{id},"publish":{{"channel":{},"data":{data}}}}}"#, json!(channel));
    }
    if let ClientCommand::Send { data } = command {
        let data: &RawValue = serde_json::from_slice(data).expect("JSON clients send JSON");
        return format!(r#"{{"send":{{"data":{data}}}}}"#);
    }
    let (kind, body) = json_body(command);
    match kind {
        "" => "{}".to_owned(),
        _ => json!({ "id": id, kind: body }).to_string(),
    }
}

fn json_body(command: &ClientCommand) -> (&'static str, Value) {
    match command {
        ClientCommand::Connect { token, subs } => {
            let subs = subs.iter().map(|(channel, ClientPosition { epoch, offset })| {
                (channel.clone(), json!({ "recover": true, "epoch": epoch, "offset": offset }))
            });
            ("connect", json!({ "token": token, "name": "sim", "subs": Value::Object(subs.collect()) }))
        }
        ClientCommand::Subscribe(subscribe) => ("subscribe", json_subscribe(subscribe)),
        ClientCommand::Unsubscribe { channel } => ("unsubscribe", json!({ "channel": channel })),
        ClientCommand::Publish { .. } | ClientCommand::Send { .. } => unreachable!("written by the caller"),
        ClientCommand::Presence { channel } => ("presence", json!({ "channel": channel })),
        ClientCommand::PresenceStats { channel } => ("presence_stats", json!({ "channel": channel })),
        ClientCommand::History { channel, limit, since, reverse } => {
            let since = since.as_ref().map(|at| json!({ "offset": at.offset, "epoch": at.epoch }));
            ("history", json!({ "channel": channel, "limit": limit, "since": since, "reverse": reverse }))
        }
        ClientCommand::Ping => ("ping", json!({})),
        ClientCommand::Rpc { method } => ("rpc", json!({ "method": method, "data": 1 })),
        ClientCommand::Refresh { token } => ("refresh", json!({ "token": token })),
        ClientCommand::SubRefresh { channel, token } => ("sub_refresh", json!({ "channel": channel, "token": token })),
        ClientCommand::Pong => ("", Value::Null),
    }
}

fn json_subscribe(subscribe: &SubscribeCommand) -> Value {
    let SubscribeCommand { channel, token, recover, positioned, recoverable, join_leave, delta, .. } = subscribe;
    let data = Some(&subscribe.data).filter(|data| !data.is_empty());
    let data: Option<Value> = data.map(|data| serde_json::from_slice(data).expect("clients join with JSON"));
    let at = recover.clone().unwrap_or_default();
    json!({
        "channel": channel, "token": token, "recover": recover.is_some(), "epoch": at.epoch, "offset": at.offset,
        "positioned": positioned, "recoverable": recoverable, "join_leave": join_leave, "flag": subscribe.flag(),
        "delta": delta, "tf": subscribe.filter.as_ref().map(Filter::json), "data": data,
    })
}

/// A Protobuf message being written.
#[derive(Default)]
pub(super) struct ProtobufWriter(pub(super) Vec<u8>);

impl ProtobufWriter {
    pub(super) fn number(&mut self, field: u64, number: u64) {
        if number != 0 {
            put_varint(&mut self.0, field << 3);
            put_varint(&mut self.0, number);
        }
    }

    pub(super) fn bytes(&mut self, field: u64, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.within(field, bytes);
        }
    }

    pub(super) fn message(&mut self, field: u64, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.within(field, &inner.0);
    }

    fn within(&mut self, field: u64, bytes: &[u8]) {
        put_varint(&mut self.0, field << 3 | 2);
        put_varint(&mut self.0, bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }
}

fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn write_command(writer: &mut ProtobufWriter, id: u32, command: &ClientCommand) {
    if !matches!(command, ClientCommand::Send { .. } | ClientCommand::Pong) {
        writer.number(1, id.into());
    }
    let channel_only = |channel: &str| {
        let channel = channel.as_bytes().to_vec();
        move |body: &mut ProtobufWriter| body.bytes(1, &channel)
    };
    match command {
        ClientCommand::Connect { token, subs } => writer.message(4, |body| {
            body.bytes(1, token.as_bytes());
            for (channel, position) in subs {
                body.message(3, |entry| {
                    entry.bytes(1, channel.as_bytes());
                    entry.message(2, |sub| {
                        sub.number(3, 1);
                        sub.bytes(6, position.epoch.as_bytes());
                        sub.number(7, position.offset);
                    });
                });
            }
            body.bytes(4, b"sim");
        }),
        ClientCommand::Subscribe(subscribe) => writer.message(5, |body| write_subscribe(body, subscribe)),
        ClientCommand::Unsubscribe { channel } => writer.message(6, channel_only(channel)),
        ClientCommand::Publish { channel, data } => writer.message(7, |body| {
            body.bytes(1, channel.as_bytes());
            body.bytes(2, data);
        }),
        ClientCommand::Presence { channel } => writer.message(8, channel_only(channel)),
        ClientCommand::PresenceStats { channel } => writer.message(9, channel_only(channel)),
        ClientCommand::History { channel, limit, since, reverse } => writer.message(10, |body| {
            body.bytes(1, channel.as_bytes());
            body.number(7, i64::from(*limit).cast_unsigned());
            if let Some(since) = since {
                body.message(8, |at| {
                    at.number(1, since.offset);
                    at.bytes(2, since.epoch.as_bytes());
                });
            }
            body.number(9, u64::from(*reverse));
        }),
        ClientCommand::Ping => writer.message(11, |_| {}),
        ClientCommand::Send { data } => writer.message(12, |body| body.bytes(1, data)),
        ClientCommand::Rpc { method } => writer.message(13, |body| body.bytes(2, method.as_bytes())),
        ClientCommand::Refresh { token } => writer.message(14, |body| body.bytes(1, token.as_bytes())),
        ClientCommand::SubRefresh { channel, token } => writer.message(15, |body| {
            body.bytes(1, channel.as_bytes());
            body.bytes(2, token.as_bytes());
        }),
        ClientCommand::Pong => {}
    }
}

fn write_subscribe(body: &mut ProtobufWriter, subscribe: &SubscribeCommand) {
    let at = subscribe.recover.clone().unwrap_or_default();
    body.bytes(1, subscribe.channel.as_bytes());
    body.bytes(2, subscribe.token.as_bytes());
    body.number(3, u64::from(subscribe.recover.is_some()));
    body.bytes(6, at.epoch.as_bytes());
    body.number(7, at.offset);
    body.bytes(8, &subscribe.data);
    body.number(9, u64::from(subscribe.positioned));
    body.number(10, u64::from(subscribe.recoverable));
    body.number(11, u64::from(subscribe.join_leave));
    body.bytes(12, subscribe.delta.as_bytes());
    if let Some(filter) = &subscribe.filter {
        body.message(13, |node| filter.write(node));
    }
    body.number(14, subscribe.flag());
}
