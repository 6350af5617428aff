//! What a client says, in both encodings.

use dunlin_protocol::Encoding;
use serde_json::{Value, json, value::RawValue};

use super::Filter;

/// A place in a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The stream's epoch.
    pub epoch: String,
    /// The last offset seen.
    pub offset: u64,
}

/// One command. Tokens are texts that the simulated verifier knows.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Say {
    Connect {
        token: String,
        /// Where to recover the server's subscriptions from.
        subs: Vec<(String, Position)>,
    },
    Subscribe {
        channel: String,
        token: String,
        recover: Option<Position>,
        positioned: bool,
        recoverable: bool,
        join_leave: bool,
        reject_unrecoverable: bool,
        /// How differences are to be written; empty for none.
        delta: &'static str,
        /// Whether a number may stand for the channel.
        compact: bool,
        filter: Option<Box<Filter>>,
        /// For the game, if the channel has a room: JSON.
        data: Vec<u8>,
    },
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
        since: Option<Position>,
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
    /// The answer to a ping; it has no id.
    Pong,
}

impl Say {
    /// The token that it presents; empty for none.
    pub fn token(&self) -> &str {
        match self {
            Self::Connect { token, .. }
            | Self::Subscribe { token, .. }
            | Self::Refresh { token }
            | Self::SubRefresh { token, .. } => token,
            _ => "",
        }
    }
}

/// One frame of commands with their ids.
pub fn encode(encoding: Encoding, commands: &[(u32, Say)]) -> Vec<u8> {
    match encoding {
        Encoding::Json => {
            let lines: Vec<String> = commands.iter().map(|(id, say)| json_line(*id, say)).collect();
            lines.join("\n").into_bytes()
        }
        Encoding::Protobuf => {
            let mut frame = Vec::new();
            for (id, say) in commands {
                let mut message = Message::default();
                write_command(&mut message, *id, say);
                put_varint(&mut frame, message.0.len() as u64);
                frame.extend(message.0);
            }
            frame
        }
    }
}

fn json_line(id: u32, say: &Say) -> String {
    if let Say::Publish { channel, data } = say {
        // The payload goes in as it is.
        let data: &RawValue = serde_json::from_slice(data).expect("JSON clients publish JSON");
        return format!(r#"{{"id":{id},"publish":{{"channel":{},"data":{data}}}}}"#, json!(channel));
    }
    if let Say::Send { data } = say {
        let data: &RawValue = serde_json::from_slice(data).expect("JSON clients send JSON");
        return format!(r#"{{"send":{{"data":{data}}}}}"#);
    }
    let (kind, body) = json_body(say);
    match kind {
        "" => "{}".to_owned(),
        _ => json!({ "id": id, kind: body }).to_string(),
    }
}

fn json_body(say: &Say) -> (&'static str, Value) {
    match say {
        Say::Connect { token, subs } => {
            let subs = subs.iter().map(|(channel, Position { epoch, offset })| {
                (channel.clone(), json!({ "recover": true, "epoch": epoch, "offset": offset }))
            });
            ("connect", json!({ "token": token, "name": "sim", "subs": Value::Object(subs.collect()) }))
        }
        Say::Subscribe { .. } => ("subscribe", json_subscribe(say)),
        Say::Unsubscribe { channel } => ("unsubscribe", json!({ "channel": channel })),
        Say::Publish { .. } | Say::Send { .. } => unreachable!("written by the caller"),
        Say::Presence { channel } => ("presence", json!({ "channel": channel })),
        Say::PresenceStats { channel } => ("presence_stats", json!({ "channel": channel })),
        Say::History { channel, limit, since, reverse } => {
            let since = since.as_ref().map(|at| json!({ "offset": at.offset, "epoch": at.epoch }));
            ("history", json!({ "channel": channel, "limit": limit, "since": since, "reverse": reverse }))
        }
        Say::Ping => ("ping", json!({})),
        Say::Rpc { method } => ("rpc", json!({ "method": method, "data": 1 })),
        Say::Refresh { token } => ("refresh", json!({ "token": token })),
        Say::SubRefresh { channel, token } => ("sub_refresh", json!({ "channel": channel, "token": token })),
        Say::Pong => ("", Value::Null),
    }
}

fn json_subscribe(say: &Say) -> Value {
    let Say::Subscribe { channel, token, recover, positioned, recoverable, join_leave, delta, filter, data, .. } = say
    else {
        unreachable!("called for subscribe alone")
    };
    let data: Option<Value> = (!data.is_empty()).then(|| serde_json::from_slice(data).expect("clients join with JSON"));
    let at = recover.clone().unwrap_or_default();
    json!({
        "channel": channel, "token": token, "recover": recover.is_some(), "epoch": at.epoch, "offset": at.offset,
        "positioned": positioned, "recoverable": recoverable, "join_leave": join_leave, "flag": flag(say),
        "delta": delta, "tf": filter.as_ref().map(|filter| filter.json()), "data": data,
    })
}

/// The bits of a subscribe command's flag.
fn flag(say: &Say) -> u64 {
    let Say::Subscribe { compact, reject_unrecoverable, .. } = say else { return 0 };
    u64::from(*compact) | u64::from(*reject_unrecoverable) << 1
}

/// A Protobuf message being written.
#[derive(Default)]
pub(super) struct Message(pub(super) Vec<u8>);

impl Message {
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

fn write_command(command: &mut Message, id: u32, say: &Say) {
    if !matches!(say, Say::Send { .. } | Say::Pong) {
        command.number(1, id.into());
    }
    let channel_only = |channel: &str| {
        let channel = channel.as_bytes().to_vec();
        move |body: &mut Message| body.bytes(1, &channel)
    };
    match say {
        Say::Connect { token, subs } => command.message(4, |body| {
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
        Say::Subscribe { .. } => command.message(5, |body| write_subscribe(body, say)),
        Say::Unsubscribe { channel } => command.message(6, channel_only(channel)),
        Say::Publish { channel, data } => command.message(7, |body| {
            body.bytes(1, channel.as_bytes());
            body.bytes(2, data);
        }),
        Say::Presence { channel } => command.message(8, channel_only(channel)),
        Say::PresenceStats { channel } => command.message(9, channel_only(channel)),
        Say::History { channel, limit, since, reverse } => command.message(10, |body| {
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
        Say::Ping => command.message(11, |_| {}),
        Say::Send { data } => command.message(12, |body| body.bytes(1, data)),
        Say::Rpc { method } => command.message(13, |body| body.bytes(2, method.as_bytes())),
        Say::Refresh { token } => command.message(14, |body| body.bytes(1, token.as_bytes())),
        Say::SubRefresh { channel, token } => command.message(15, |body| {
            body.bytes(1, channel.as_bytes());
            body.bytes(2, token.as_bytes());
        }),
        Say::Pong => {}
    }
}

fn write_subscribe(body: &mut Message, say: &Say) {
    let Say::Subscribe { channel, token, recover, positioned, recoverable, join_leave, delta, filter, data, .. } = say
    else {
        unreachable!("called for subscribe alone")
    };
    let at = recover.clone().unwrap_or_default();
    body.bytes(1, channel.as_bytes());
    body.bytes(2, token.as_bytes());
    body.number(3, u64::from(recover.is_some()));
    body.bytes(6, at.epoch.as_bytes());
    body.number(7, at.offset);
    body.bytes(8, data);
    body.number(9, u64::from(*positioned));
    body.number(10, u64::from(*recoverable));
    body.number(11, u64::from(*join_leave));
    body.bytes(12, delta.as_bytes());
    if let Some(filter) = filter {
        body.message(13, |node| filter.write(node));
    }
    body.number(14, flag(say));
}
