//! A small Protobuf reader for the messages of the server. It rejects unknown fields.

use super::message::{
    ClientInfoBody, ConnectBody, DisconnectPush, Empty, ErrorBody, Expiry, HistoryBody, PresenceBody, PresencePush,
    PresenceStatsBody, PublicationBody, PushBody, RefreshBody, RpcBody, ServerMessage, SubscribeBody, UnsubscribePush,
};

/// Reads the length-prefixed messages of a frame.
pub(super) fn messages(mut payload: &[u8]) -> Result<Vec<ServerMessage>, String> {
    let mut messages = Vec::new();
    while !payload.is_empty() {
        let message = delimited(&mut payload)?;
        messages.push(read(message, reply)?);
    }
    if messages.is_empty() { Err("empty frame".to_owned()) } else { Ok(messages) }
}

/// The value of a field on the wire.
#[derive(Clone, Copy)]
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    fn number(self) -> Result<u64, String> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Bytes(_) => Err("bytes instead of a number".to_owned()),
        }
    }

    fn bytes(self) -> Result<&'a [u8], String> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Number(_) => Err("a number instead of bytes".to_owned()),
        }
    }

    fn small(self) -> Result<u32, String> {
        u32::try_from(self.number()?).map_err(|_| "a number exceeds 32 bits".to_owned())
    }

    fn flag(self) -> Result<bool, String> {
        Ok(self.number()? != 0)
    }

    fn text(self) -> Result<String, String> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| "text is not UTF-8".to_owned())
    }
}

/// Reads one message. `field` stores each field in the result.
fn read<T: Default>(
    mut bytes: &[u8],
    field: impl Fn(&mut T, u64, Value<'_>) -> Result<(), String>,
) -> Result<T, String> {
    let mut read = T::default();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let value = match key & 7 {
            0 => Value::Number(varint(&mut bytes)?),
            2 => Value::Bytes(delimited(&mut bytes)?),
            kind => return Err(format!("wire type {kind}")),
        };
        field(&mut read, key >> 3, value)?;
    }
    Ok(read)
}

fn varint(bytes: &mut &[u8]) -> Result<u64, String> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or("a number is incomplete")?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err("a number of more than ten bytes".to_owned())
}

fn delimited<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], String> {
    let length = varint(bytes)?;
    let length = usize::try_from(length).map_err(|_| "the length of a field overflows")?;
    let (field, rest) = bytes.split_at_checked(length).ok_or("a field is incomplete")?;
    *bytes = rest;
    Ok(field)
}

fn unknown(what: &str, number: u64) -> Result<(), String> {
    Err(format!("{what} has no field {number}"))
}

fn reply(message: &mut ServerMessage, number: u64, value: Value<'_>) -> Result<(), String> {
    match number {
        1 => message.id = value.small()?,
        2 => message.error = Some(read(value.bytes()?, error)?),
        4 => message.push = Some(read(value.bytes()?, push)?),
        5 => message.connect = Some(read(value.bytes()?, connect)?),
        6 => message.subscribe = Some(read(value.bytes()?, subscribe)?),
        7 => message.unsubscribe = Some(read(value.bytes()?, empty)?),
        8 => message.publish = Some(read(value.bytes()?, empty)?),
        9 => message.presence = Some(read(value.bytes()?, presence)?),
        10 => message.presence_stats = Some(read(value.bytes()?, presence_stats)?),
        11 => message.history = Some(read(value.bytes()?, history)?),
        13 => message.rpc = Some(read(value.bytes()?, rpc)?),
        14 => message.refresh = Some(read(value.bytes()?, refresh)?),
        15 => message.sub_refresh = Some(read(value.bytes()?, expiry)?),
        _ => return unknown("reply", number),
    }
    Ok(())
}

fn empty(_: &mut Empty, number: u64, _: Value<'_>) -> Result<(), String> {
    unknown("an empty result", number)
}

fn rpc(result: &mut RpcBody, number: u64, value: Value<'_>) -> Result<(), String> {
    match number {
        1 => result.data = value.bytes()?.to_vec(),
        _ => return unknown("rpc result", number),
    }
    Ok(())
}

fn error(error: &mut ErrorBody, number: u64, value: Value<'_>) -> Result<(), String> {
    match number {
        1 => error.code = value.small()?,
        2 => error.message = value.text()?,
        3 => error.temporary = value.flag()?,
        _ => return unknown("error", number),
    }
    Ok(())
}

fn push(push: &mut PushBody, number: u64, value: Value<'_>) -> Result<(), String> {
    match number {
        1 => push.id = value.number()?,
        2 => push.channel = value.text()?,
        4 => push.publication = Some(read(value.bytes()?, publication)?),
        5 => push.join = Some(read(value.bytes()?, who)?),
        6 => push.leave = Some(read(value.bytes()?, who)?),
        7 => push.unsubscribe = Some(read(value.bytes()?, unsubscribe)?),
        11 => push.disconnect = Some(read(value.bytes()?, disconnect)?),
        12 => push.refresh = Some(read(value.bytes()?, expiry)?),
        9 => push.subscribe = Some(read(value.bytes()?, subscribe_push)?),
        _ => return unknown("push", number),
    }
    Ok(())
}

fn disconnect(disconnect: &mut DisconnectPush, number: u64, value: Value<'_>) -> Result<(), String> {
    match number {
        1 => disconnect.code = value.small()?,
        2 => disconnect.reason = value.text()?,
        3 => disconnect.reconnect = value.flag()?,
        _ => return unknown("disconnect", number),
    }
    Ok(())
}

fn who(who: &mut PresencePush, number: u64, value: Value<'_>) -> Result<(), String> {
    match number {
        1 => who.info = read(value.bytes()?, client_info)?,
        _ => return unknown("join or leave", number),
    }
    Ok(())
}

fn unsubscribe(unsubscribe: &mut UnsubscribePush, number: u64, value: Value<'_>) -> Result<(), String> {
    match number {
        2 => unsubscribe.code = value.small()?,
        3 => unsubscribe.reason = value.text()?,
        _ => return unknown("unsubscribe", number),
    }
    Ok(())
}

fn client_info(info: &mut ClientInfoBody, number: u64, value: Value<'_>) -> Result<(), String> {
    match number {
        1 => info.user = value.text()?,
        2 => info.client = value.text()?,
        3 => info.conn_info = value.bytes()?.to_vec(),
        4 => info.chan_info = value.bytes()?.to_vec(),
        _ => return unknown("client info", number),
    }
    Ok(())
}

fn publication(publication: &mut PublicationBody, number: u64, value: Value<'_>) -> Result<(), String> {
    match number {
        4 => publication.data = value.bytes()?.to_vec(),
        5 => publication.info = Some(read(value.bytes()?, client_info)?),
        6 => publication.offset = value.number()?,
        7 => {
            let (key, value) = read(value.bytes()?, |entry: &mut (String, String), number, value| {
                match number {
                    1 => entry.0 = value.text()?,
                    2 => entry.1 = value.text()?,
                    _ => return unknown("tag", number),
                }
                Ok(())
            })?;
            if publication.tags.insert(key, value).is_some() {
                return Err("a tag twice".to_owned());
            }
        }
        8 => publication.delta = value.flag()?,
        9 => publication.time = value.number()?.cast_signed(),
        14 => publication.epoch = value.text()?,
        16 => publication.version = value.number()?,
        _ => return unknown("publication", number),
    }
    Ok(())
}

fn connect(result: &mut ConnectBody, number: u64, value: Value<'_>) -> Result<(), String> {
    match number {
        1 => result.client = value.text()?,
        2 => result.version = value.text()?,
        3 => result.expires = value.flag()?,
        4 => result.ttl = value.small()?,
        5 => result.data = value.bytes()?.to_vec(),
        6 => {
            let (channel, result_of) = read(value.bytes()?, |entry: &mut (String, SubscribeBody), number, value| {
                match number {
                    1 => entry.0 = value.text()?,
                    2 => entry.1 = read(value.bytes()?, subscribe)?,
                    _ => return unknown("entry of subs", number),
                }
                Ok(())
            })?;
            if result.subs.insert(channel, result_of).is_some() {
                return Err("a server-side subscription twice".to_owned());
            }
        }
        7 => result.ping = value.small()?,
        8 => result.pong = value.flag()?,
        9 => result.session = value.text()?,
        10 => result.node = value.text()?,
        _ => return unknown("connect result", number),
    }
    Ok(())
}

/// Reads a subscribe push. It has fewer fields than a subscribe result, with other numbers.
fn subscribe_push(result: &mut SubscribeBody, number: u64, value: Value<'_>) -> Result<(), String> {
    match number {
        1 => result.recoverable = value.flag()?,
        4 => result.epoch = value.text()?,
        5 => result.offset = value.number()?,
        6 => result.positioned = value.flag()?,
        _ => return unknown("subscribe push", number),
    }
    Ok(())
}

fn subscribe(result: &mut SubscribeBody, number: u64, value: Value<'_>) -> Result<(), String> {
    match number {
        1 => result.expires = value.flag()?,
        2 => result.ttl = value.small()?,
        3 => result.recoverable = value.flag()?,
        6 => result.epoch = value.text()?,
        7 => result.publications.push(read(value.bytes()?, publication)?),
        8 => result.recovered = value.flag()?,
        9 => result.offset = value.number()?,
        10 => result.positioned = value.flag()?,
        11 => result.data = value.bytes()?.to_vec(),
        12 => result.was_recovering = value.flag()?,
        13 => result.delta = value.flag()?,
        14 => result.id = value.number()?,
        _ => return unknown("subscribe result", number),
    }
    Ok(())
}

fn presence(result: &mut PresenceBody, number: u64, value: Value<'_>) -> Result<(), String> {
    if number != 1 {
        return unknown("presence", number);
    }
    let (key, info) = read(value.bytes()?, |entry: &mut (String, ClientInfoBody), number, value| {
        match number {
            1 => entry.0 = value.text()?,
            2 => entry.1 = read(value.bytes()?, client_info)?,
            _ => return unknown("presence entry", number),
        }
        Ok(())
    })?;
    if result.presence.insert(key, info).is_some() { Err("a client twice in presence".to_owned()) } else { Ok(()) }
}

fn presence_stats(result: &mut PresenceStatsBody, number: u64, value: Value<'_>) -> Result<(), String> {
    match number {
        1 => result.num_clients = value.small()?,
        2 => result.num_users = value.small()?,
        _ => return unknown("presence stats", number),
    }
    Ok(())
}

fn history(result: &mut HistoryBody, number: u64, value: Value<'_>) -> Result<(), String> {
    match number {
        1 => result.publications.push(read(value.bytes()?, publication)?),
        2 => result.epoch = value.text()?,
        3 => result.offset = value.number()?,
        _ => return unknown("history", number),
    }
    Ok(())
}

fn refresh(result: &mut RefreshBody, number: u64, value: Value<'_>) -> Result<(), String> {
    match number {
        1 => result.client = value.text()?,
        2 => result.version = value.text()?,
        3 => result.expires = value.flag()?,
        4 => result.ttl = value.small()?,
        _ => return unknown("refresh result", number),
    }
    Ok(())
}

fn expiry(result: &mut Expiry, number: u64, value: Value<'_>) -> Result<(), String> {
    match number {
        1 => result.expires = value.flag()?,
        2 => result.ttl = value.small()?,
        _ => return unknown("sub refresh result", number),
    }
    Ok(())
}
