//! The messages of the server, with the same types for both encodings. Unknown fields are errors.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use dunlin_protocol::Encoding;

use super::protobuf::{Field as _, Message, Value, messages};

/// Declares a message for both encodings: the names of its fields in JSON, and their numbers in Protobuf.
macro_rules! message {
    ($(#[$of_type:meta])* $name:ident { $($(#[$of_field:meta])* $number:literal $field:ident: $type:ty,)* }) => {
        $(#[$of_type])*
        #[derive(Clone, Debug, Default, PartialEq, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $($(#[$of_field])* pub $field: $type,)*
        }

        impl Message for $name {
            fn read_field(&mut self, number: u64, value: Value<'_>) -> Result<(), String> {
                match number {
                    $($number => self.$field.read(value),)*
                    _ => Err(format!("{} has no field {number}: {value:?}", stringify!($name))),
                }
            }
        }
    };
}

message! {
    /// A reply, a push, or, if all fields are empty, a ping.
    ServerMessage {
        1 id: u32,
        2 error: Option<ErrorBody>,
        4 push: Option<PushBody>,
        5 connect: Option<ConnectBody>,
        6 subscribe: Option<SubscribeBody>,
        7 unsubscribe: Option<Empty>,
        8 publish: Option<Empty>,
        9 presence: Option<PresenceBody>,
        10 presence_stats: Option<PresenceStatsBody>,
        11 history: Option<HistoryBody>,
        13 rpc: Option<RpcBody>,
        14 refresh: Option<RefreshBody>,
        15 sub_refresh: Option<Expiry>,
    }
}

message! { Empty {} }

message! {
    RpcBody {
        #[serde(deserialize_with = "raw")]
        1 data: Vec<u8>,
    }
}

message! {
    ErrorBody {
        1 code: u32,
        2 message: String,
        3 temporary: bool,
    }
}

message! {
    PushBody {
        1 id: u64,
        2 channel: String,
        #[serde(rename = "pub")]
        4 publication: Option<PublicationBody>,
        5 join: Option<PresencePush>,
        6 leave: Option<PresencePush>,
        7 unsubscribe: Option<UnsubscribePush>,
        9 subscribe: Option<SubscribePush>,
        10 connect: Option<ConnectBody>,
        11 disconnect: Option<DisconnectPush>,
        12 refresh: Option<Expiry>,
    }
}

message! {
    DisconnectPush {
        1 code: u32,
        2 reason: String,
        3 reconnect: bool,
    }
}

message! {
    PresencePush {
        1 info: ClientInfoBody,
    }
}

message! {
    UnsubscribePush {
        2 code: u32,
        3 reason: String,
    }
}

message! {
    SubscribePush {
        1 recoverable: bool,
        4 epoch: String,
        5 offset: u64,
        6 positioned: bool,
    }
}

impl From<&SubscribePush> for SubscribeBody {
    fn from(push: &SubscribePush) -> Self {
        let SubscribePush { recoverable, epoch, offset, positioned } = push.clone();
        Self { recoverable, epoch, offset, positioned, ..Self::default() }
    }
}

message! {
    ClientInfoBody {
        1 user: String,
        2 client: String,
        #[serde(deserialize_with = "raw")]
        3 conn_info: Vec<u8>,
        #[serde(deserialize_with = "raw")]
        4 chan_info: Vec<u8>,
    }
}

message! {
    PublicationBody {
        #[serde(deserialize_with = "raw")]
        4 data: Vec<u8>,
        5 info: Option<ClientInfoBody>,
        6 offset: u64,
        7 tags: BTreeMap<String, String>,
        8 delta: bool,
        9 time: i64,
        14 epoch: String,
        16 version: u64,
    }
}

message! {
    ConnectBody {
        1 client: String,
        2 version: String,
        3 expires: bool,
        4 ttl: u32,
        #[serde(deserialize_with = "raw")]
        5 data: Vec<u8>,
        6 subs: BTreeMap<String, SubscribeBody>,
        7 ping: u32,
        8 pong: bool,
        9 session: String,
        10 node: String,
    }
}

message! {
    SubscribeBody {
        1 expires: bool,
        2 ttl: u32,
        3 recoverable: bool,
        6 epoch: String,
        7 publications: Vec<PublicationBody>,
        8 recovered: bool,
        9 offset: u64,
        10 positioned: bool,
        #[serde(deserialize_with = "raw")]
        11 data: Vec<u8>,
        12 was_recovering: bool,
        13 delta: bool,
        14 id: u64,
    }
}

message! {
    PresenceBody {
        1 presence: BTreeMap<String, ClientInfoBody>,
    }
}

message! {
    PresenceStatsBody {
        1 num_clients: u32,
        2 num_users: u32,
    }
}

message! {
    HistoryBody {
        1 publications: Vec<PublicationBody>,
        2 epoch: String,
        3 offset: u64,
    }
}

message! {
    RefreshBody {
        1 client: String,
        2 version: String,
        3 expires: bool,
        4 ttl: u32,
    }
}

message! {
    Expiry {
        1 expires: bool,
        2 ttl: u32,
    }
}

/// Decodes the messages of a frame.
///
/// # Errors
/// If the payload is not valid.
pub fn decode(encoding: Encoding, payload: &[u8]) -> Result<Vec<ServerMessage>, String> {
    match encoding {
        Encoding::Json => payload.split(|&byte| byte == b'\n').map(from_json).collect(),
        Encoding::Protobuf => messages(payload),
    }
}

/// Decodes a push of a unidirectional transport.
///
/// # Errors
/// If the payload is not valid.
pub fn decode_push(payload: &[u8]) -> Result<PushBody, String> {
    from_json(payload)
}

fn from_json<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(text).map_err(|error| format!("{error} in {}", String::from_utf8_lossy(text)))
}

fn raw<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    Ok(Box::<RawValue>::deserialize(deserializer)?.get().as_bytes().to_vec())
}
