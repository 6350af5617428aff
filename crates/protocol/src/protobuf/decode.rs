//! Decodes binary frames into commands.
//!
//! Rules for each message: unknown fields of any wire type are skipped, except groups, which are an error. A known
//! field with a wrong wire type is an error, as is a string that is not valid UTF-8. If a scalar, string or message
//! occurs more than once, the last one is used (proto3 would merge messages, but no encoder splits them). Numbers out
//! of range are truncated, as in proto3. Empty bytes are equivalent to absent ones. Unknown fields are not parsed, so
//! the nesting depth is that of the known messages.

use std::borrow::Cow;

use super::wire::{Reader, Value};
use crate::{
    Command, ConnectRequest, DecodeError, FilterError, HistoryRequest, PublishRequest, Request, RpcRequest,
    ShapeLimits, StreamPosition, SubRefreshRequest, SubscribeFlags, SubscribeRequest, command::each_channel_once,
    filter::RawNode,
};

/// Reads the commands of a binary frame.
pub struct ProtobufDecoder<'a> {
    /// Unread messages; `None` after the last item of the frame.
    rest: Option<&'a [u8]>,
    /// Maximum number of subscriptions of one `connect`.
    subs_max: usize,
}

impl<'a> ProtobufDecoder<'a> {
    pub(crate) fn new(frame: &'a [u8]) -> Self {
        Self { rest: Some(frame), subs_max: usize::MAX }
    }

    pub(crate) fn set_limits(&mut self, limits: ShapeLimits) {
        self.subs_max = limits.object_keys_max as usize;
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest.unwrap_or_default()
    }

    pub(crate) fn next(&mut self) -> Option<Result<Command<'a>, DecodeError>> {
        let mut messages = Reader::new(self.rest.take()?);
        if messages.rest().is_empty() {
            return Some(Err(DecodeError { what: "empty message" }));
        }
        let command = messages.length_prefixed().and_then(|message| read_command(message, self.subs_max));
        if command.is_ok() {
            self.rest = Some(messages.rest()).filter(|rest| !rest.is_empty());
        }
        Some(command)
    }
}

/// Keeps the request with the lowest field number. The others are checked and dropped.
fn read_command(message: &[u8], subs_max: usize) -> Result<Command<'_>, DecodeError> {
    let mut id = 0;
    let mut chosen: Option<(u32, Request<'_>)> = None;
    each_field(message, |field, value| {
        if field == 1 {
            id = value.varint()? as u32;
        } else if let Some(request) = read_request(field, value, subs_max)?
            && chosen.as_ref().is_none_or(|(first, _)| field <= *first)
        {
            chosen = Some((field, request));
        }
        Ok(())
    })?;
    Ok(Command { id, request: chosen.map(|(_, request)| request) })
}

fn read_request(field: u32, value: Value<'_>, subs_max: usize) -> Result<Option<Request<'_>>, DecodeError> {
    if !(4..=15).contains(&field) {
        return Ok(None);
    }
    let message = value.bytes()?;
    Ok(Some(match field {
        4 => Request::Connect(Box::new(read_connect(message, subs_max)?)),
        5 => Request::Subscribe(Box::new(read_subscribe(message)?)),
        6 => Request::Unsubscribe { channel: read_only_text(message)? },
        7 => Request::Publish(read_publish(message)?),
        8 => Request::Presence { channel: read_only_text(message)? },
        9 => Request::PresenceStats { channel: read_only_text(message)? },
        10 => Request::History(read_history(message)?),
        11 => each_field(message, |_, _| Ok(())).map(|()| Request::Ping)?,
        12 => Request::Send { data: read_send(message)? },
        13 => Request::Rpc(read_rpc(message)?),
        14 => Request::Refresh { token: read_only_text(message)? },
        _ => Request::SubRefresh(read_sub_refresh(message)?),
    }))
}

fn read_connect(message: &[u8], subs_max: usize) -> Result<ConnectRequest<'_>, DecodeError> {
    let mut request = ConnectRequest::default();
    each_field(message, |field, value| {
        match field {
            1 => request.token = text(value)?,
            2 => request.data = payload(value)?,
            3 if request.subs.len() >= subs_max => return Err(DecodeError { what: "too many fields" }),
            3 => request.subs.push(read_sub(value.bytes()?)?),
            4 => request.name = text(value)?,
            5 => request.version = text(value)?,
            _ => {}
        }
        Ok(())
    })?;
    each_channel_once(&mut request.subs);
    Ok(request)
}

/// An entry of the map `subs`.
fn read_sub(entry: &[u8]) -> Result<(Cow<'_, str>, SubscribeRequest<'_>), DecodeError> {
    let mut channel = Cow::default();
    let mut request = SubscribeRequest::default();
    each_field(entry, |field, value| {
        match field {
            1 => channel = text(value)?,
            2 => request = read_subscribe(value.bytes()?)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok((channel, request))
}

fn read_subscribe(message: &[u8]) -> Result<SubscribeRequest<'_>, DecodeError> {
    let mut request = SubscribeRequest::default();
    each_field(message, |field, value| {
        match field {
            1 => request.channel = text(value)?,
            2 => request.token = text(value)?,
            3 => request.recover = value.varint()? != 0,
            6 => request.epoch = text(value)?,
            7 => request.offset = value.varint()?,
            8 => request.data = payload(value)?,
            9 => request.positioned = value.varint()? != 0,
            10 => request.recoverable = value.varint()? != 0,
            11 => request.join_leave = value.varint()? != 0,
            12 => request.delta = text(value)?,
            13 => request.tags_filter = Some(value.bytes()?),
            14 => request.flag = SubscribeFlags(value.varint()?.cast_signed()),
            15 => request.kind = int32(value)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(request)
}

fn read_publish(message: &[u8]) -> Result<PublishRequest<'_>, DecodeError> {
    let mut request = PublishRequest::default();
    each_field(message, |field, value| {
        match field {
            1 => request.channel = text(value)?,
            2 => request.data = payload(value)?,
            3 => request.kind = int32(value)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(request)
}

fn read_history(message: &[u8]) -> Result<HistoryRequest<'_>, DecodeError> {
    let mut request = HistoryRequest::default();
    each_field(message, |field, value| {
        match field {
            1 => request.channel = text(value)?,
            7 => request.limit = int32(value)?,
            8 => request.since = Some(read_position(value.bytes()?)?),
            9 => request.reverse = value.varint()? != 0,
            _ => {}
        }
        Ok(())
    })?;
    Ok(request)
}

fn read_position(message: &[u8]) -> Result<StreamPosition<'_>, DecodeError> {
    let mut position = StreamPosition::default();
    each_field(message, |field, value| {
        match field {
            1 => position.offset = value.varint()?,
            2 => position.epoch = text(value)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(position)
}

fn read_send(message: &[u8]) -> Result<Option<&[u8]>, DecodeError> {
    let mut data = None;
    each_field(message, |field, value| {
        if field == 1 {
            data = payload(value)?;
        }
        Ok(())
    })?;
    Ok(data)
}

fn read_rpc(message: &[u8]) -> Result<RpcRequest<'_>, DecodeError> {
    let mut request = RpcRequest::default();
    each_field(message, |field, value| {
        match field {
            1 => request.data = payload(value)?,
            2 => request.method = text(value)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(request)
}

fn read_sub_refresh(message: &[u8]) -> Result<SubRefreshRequest<'_>, DecodeError> {
    let mut request = SubRefreshRequest::default();
    each_field(message, |field, value| {
        match field {
            1 => request.channel = text(value)?,
            2 => request.token = text(value)?,
            3 => request.kind = int32(value)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(request)
}

/// Reads the string in field 1 of a message, and ignores other fields.
fn read_only_text(message: &[u8]) -> Result<Cow<'_, str>, DecodeError> {
    let mut only = Cow::default();
    each_field(message, |field, value| {
        if field == 1 {
            only = text(value)?;
        }
        Ok(())
    })?;
    Ok(only)
}

fn each_field<'a>(
    message: &'a [u8],
    mut read: impl FnMut(u32, Value<'a>) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let mut fields = Reader::new(message);
    while let Some((field, value)) = fields.field()? {
        read(field, value)?;
    }
    Ok(())
}

fn text(value: Value<'_>) -> Result<Cow<'_, str>, DecodeError> {
    value.text().map(Cow::Borrowed)
}

fn payload(value: Value<'_>) -> Result<Option<&[u8]>, DecodeError> {
    value.bytes().map(|bytes| Some(bytes).filter(|bytes| !bytes.is_empty()))
}

/// Proto3 encodes negative numbers with 64 bits, and decoders keep the lower 32.
fn int32(value: Value<'_>) -> Result<i32, DecodeError> {
    value.varint().map(|number| number as i32)
}

/// A tags filter of at most `depth_left` levels.
pub(crate) fn read_filter(message: &[u8], depth_left: usize) -> Result<RawNode<'_>, FilterError> {
    let depth_left = depth_left.checked_sub(1).ok_or(FilterError::TooLarge)?;
    let mut node = RawNode::default();
    let mut fields = Reader::new(message);
    while let Some((field, value)) = fields.field().map_err(|_| FilterError::Malformed)? {
        let text = || text(value).map_err(|_| FilterError::Malformed);
        match field {
            1 => node.op = Some(text()?),
            2 => node.key = Some(text()?),
            3 => node.cmp = Some(text()?),
            4 => node.val = Some(text()?),
            5 => node.vals.get_or_insert_default().push(text()?),
            6 => {
                let message = value.bytes().map_err(|_| FilterError::Malformed)?;
                node.nodes.get_or_insert_default().push(read_filter(message, depth_left)?);
            }
            _ => {}
        }
    }
    Ok(node)
}
