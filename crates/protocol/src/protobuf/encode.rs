//! Encodes replies and pushes as Protobuf messages.
//!
//! The same code first computes the length of a message and then writes it, so no bytes are moved and only the growth
//! of `out` allocates. Zero values are omitted, except in map entries.

use super::wire::{
    Around, ProtobufMessage, ProtobufSink, write_bytes, write_entry_bytes, write_flag, write_message, write_number,
};
use crate::{
    ChannelRef, ClientInfo, ConnectResult, DataForm, Disconnect, ErrorCode, Gaps, HistoryResult, Payload,
    PresenceResult, PresenceStatsResult, Publication, Push, RefreshResult, Reply, RpcResult, SubscribeResult,
    UnsubscribeCode, decimal::Decimal, push::SKIPPED_TAG,
};

/// Appends the reply to the command `id`.
pub(crate) fn encode_reply(id: u32, reply: &Reply, out: &mut Vec<u8>) {
    out.length_prefixed(&ReplyMessage { id, reply });
}

/// As [`encode_reply`], but leaves out publications that are already encoded, and stores their positions in `gaps`.
pub(crate) fn encode_reply_around(id: u32, reply: &Reply, out: &mut Vec<u8>, gaps: &mut Gaps) {
    Around { out, gaps }.length_prefixed(&ReplyMessage { id, reply });
}

/// Appends the fields of a result's publications.
pub(crate) fn encode_publications(result: &SubscribeResult, out: &mut Vec<u8>) {
    write_publications(result, out);
}

/// Appends the reply without an id that carries `push`.
pub(crate) fn encode_push(push: &Push<'_>, out: &mut Vec<u8>) {
    out.length_prefixed(&Wrapped { field: 4, message: push });
}

/// Appends `push` by itself.
pub(crate) fn encode_bare_push(push: &Push<'_>, out: &mut Vec<u8>) {
    out.length_prefixed(push);
}

/// Appends the part before `data`, which has `data_bytes` bytes, of the push of a publication of `channel` that has
/// only `data`.
pub(crate) fn publication_head(channel: &str, data_bytes: usize, out: &mut Vec<u8>) {
    const PUSH: u8 = 4 << 3 | 2;
    const CHANNEL: u8 = 2 << 3 | 2;
    const PUBLICATION: u8 = 4 << 3 | 2;
    const DATA: u8 = 4 << 3 | 2;
    let field_bytes = |content_bytes: u64| 1 + u64::from((content_bytes | 1).ilog2() / 7 + 1) + content_bytes;
    let data_bytes = data_bytes as u64;
    let publication_bytes = if data_bytes == 0 { 0 } else { field_bytes(data_bytes) };
    let push_bytes = field_bytes(channel.len() as u64) + field_bytes(publication_bytes);
    out.varint(field_bytes(push_bytes));
    out.push(PUSH);
    out.varint(push_bytes);
    out.push(CHANNEL);
    out.varint(channel.len() as u64);
    out.extend_from_slice(channel.as_bytes());
    out.push(PUBLICATION);
    out.varint(publication_bytes);
    if data_bytes > 0 {
        out.push(DATA);
        out.varint(data_bytes);
    }
}

struct ReplyMessage<'a> {
    id: u32,
    reply: &'a Reply,
}

impl ProtobufMessage for ReplyMessage<'_> {
    fn write(&self, sink: &mut impl ProtobufSink) {
        write_number(sink, 1, self.id.into());
        match self.reply {
            Reply::Error(error) => write_message(sink, 2, error),
            Reply::Refused { code, message, temporary } => {
                write_message(sink, 2, &RefusalMessage { code: *code, message, temporary: *temporary });
            }
            Reply::Connect(result) => write_message(sink, 5, &**result),
            Reply::Subscribe(result) => write_message(sink, 6, &**result),
            Reply::Unsubscribe => write_message(sink, 7, &Empty),
            Reply::Publish => write_message(sink, 8, &Empty),
            Reply::Presence(result) => write_message(sink, 9, result),
            Reply::PresenceStats(result) => write_message(sink, 10, result),
            Reply::History(result) => write_message(sink, 11, result),
            Reply::Rpc(result) => write_message(sink, 13, result),
            Reply::Refresh(result) => write_message(sink, 14, result),
            Reply::SubRefresh { ttl_s } => write_message(sink, 15, &Expiry { field: 1, ttl_s: *ttl_s }),
        }
    }
}

impl ProtobufMessage for Push<'_> {
    fn write(&self, sink: &mut impl ProtobufSink) {
        match *self {
            Push::Publication { channel, publication, data, skipped } => {
                write_channel(sink, channel);
                write_message(sink, 4, &PublicationMessage { publication, data, skipped });
            }
            Push::Join { channel, info } => {
                write_channel(sink, channel);
                write_message(sink, 5, &Wrapped { field: 1, message: info });
            }
            Push::Leave { channel, info } => {
                write_channel(sink, channel);
                write_message(sink, 6, &Wrapped { field: 1, message: info });
            }
            Push::Unsubscribe { channel, code, reason } => {
                write_bytes(sink, 2, channel.as_bytes());
                write_message(sink, 7, &UnsubscribeMessage { code, reason });
            }
            Push::Message { data } => write_message(sink, 8, &DataMessage { data }),
            Push::Subscribe { channel, result } => {
                write_bytes(sink, 2, channel.as_bytes());
                write_message(sink, 9, &SubscribeMessage { result });
            }
            Push::Connect { result } => write_message(sink, 10, result),
            Push::Disconnect { disconnect } => write_message(sink, 11, disconnect),
            Push::Refresh { ttl_s } => write_message(sink, 12, &Expiry { field: 1, ttl_s }),
        }
    }
}

fn write_channel(sink: &mut impl ProtobufSink, channel: ChannelRef<'_>) {
    match channel {
        ChannelRef::Number(number) => write_number(sink, 1, number),
        ChannelRef::Name(name) => write_bytes(sink, 2, name.as_bytes()),
    }
}

struct PublicationMessage<'a> {
    publication: &'a Publication,
    data: DataForm<'a>,
    skipped: u32,
}

impl ProtobufMessage for PublicationMessage<'_> {
    fn write(&self, sink: &mut impl ProtobufSink) {
        let patch = if let DataForm::Patch(patch) = self.data { Some(patch) } else { None };
        write_bytes(sink, 4, patch.unwrap_or(self.publication.data.bytes()));
        if let Some(info) = &self.publication.info {
            write_message(sink, 5, &**info);
        }
        write_number(sink, 6, self.publication.offset);
        for (key, value) in self.publication.tags_beside(self.skipped) {
            write_message(sink, 7, &Tag { key, value });
        }
        if self.skipped > 0 {
            let skipped = Decimal::new(self.skipped.into());
            write_message(sink, 7, &Tag { key: SKIPPED_TAG, value: skipped.as_str() });
        }
        write_flag(sink, 8, patch.is_some());
        write_number(sink, 9, self.publication.time_ms.cast_unsigned());
        write_bytes(sink, 14, self.publication.epoch.as_bytes());
        write_number(sink, 16, self.publication.version);
    }
}

struct Tag<'a> {
    key: &'a str,
    value: &'a str,
}

impl ProtobufMessage for Tag<'_> {
    fn write(&self, sink: &mut impl ProtobufSink) {
        write_entry_bytes(sink, 1, self.key.as_bytes());
        write_entry_bytes(sink, 2, self.value.as_bytes());
    }
}

impl ProtobufMessage for ClientInfo {
    fn write(&self, sink: &mut impl ProtobufSink) {
        write_bytes(sink, 1, self.user.as_bytes());
        write_bytes(sink, 2, self.client.as_bytes());
        write_payload(sink, 3, self.conn_info.as_ref());
        write_payload(sink, 4, self.chan_info.as_ref());
    }
}

impl ProtobufMessage for ErrorCode {
    fn write(&self, sink: &mut impl ProtobufSink) {
        write_number(sink, 1, self.code().into());
        write_bytes(sink, 2, self.message().as_bytes());
        write_flag(sink, 3, self.temporary());
    }
}

struct RefusalMessage<'a> {
    code: u16,
    message: &'a str,
    temporary: bool,
}

impl ProtobufMessage for RefusalMessage<'_> {
    fn write(&self, sink: &mut impl ProtobufSink) {
        write_number(sink, 1, self.code.into());
        write_bytes(sink, 2, self.message.as_bytes());
        write_flag(sink, 3, self.temporary);
    }
}

impl ProtobufMessage for ConnectResult {
    fn write(&self, sink: &mut impl ProtobufSink) {
        write_bytes(sink, 1, self.client.as_bytes());
        write_bytes(sink, 2, self.version.as_bytes());
        Expiry { field: 3, ttl_s: self.ttl_s }.write(sink);
        write_payload(sink, 5, self.data.as_ref());
        for (channel, result) in &self.subs {
            write_message(sink, 6, &Entry { key: channel, value: result });
        }
        write_number(sink, 7, self.ping_s.into());
        write_flag(sink, 8, self.pong);
        write_bytes(sink, 9, self.session.as_bytes());
        write_bytes(sink, 10, self.node.as_bytes());
        write_number(sink, 11, self.time_ms.cast_unsigned());
    }
}

impl ProtobufMessage for SubscribeResult {
    fn write(&self, sink: &mut impl ProtobufSink) {
        Expiry { field: 1, ttl_s: self.ttl_s }.write(sink);
        write_flag(sink, 3, self.recoverable);
        write_bytes(sink, 6, self.epoch.as_bytes());
        match &self.encoded {
            Some(encoded) => sink.encoded(encoded),
            None => write_publications(self, sink),
        }
        write_flag(sink, 8, self.recovered);
        write_number(sink, 9, self.offset);
        write_flag(sink, 10, self.positioned);
        write_payload(sink, 11, self.data.as_ref());
        write_flag(sink, 12, self.was_recovering);
        write_flag(sink, 13, self.delta);
        write_number(sink, 14, self.channel_number);
    }
}

fn write_publications(result: &SubscribeResult, sink: &mut impl ProtobufSink) {
    for (publication, data) in result.written_publications() {
        write_message(sink, 7, &PublicationMessage { publication, data, skipped: 0 });
    }
}

/// The push `subscribe`, which has fewer fields than the result, with other field numbers.
struct SubscribeMessage<'a> {
    result: &'a SubscribeResult,
}

impl ProtobufMessage for SubscribeMessage<'_> {
    fn write(&self, sink: &mut impl ProtobufSink) {
        write_flag(sink, 1, self.result.recoverable);
        write_bytes(sink, 4, self.result.epoch.as_bytes());
        write_number(sink, 5, self.result.offset);
        write_flag(sink, 6, self.result.positioned);
        write_payload(sink, 7, self.result.data.as_ref());
    }
}

impl ProtobufMessage for PresenceResult {
    fn write(&self, sink: &mut impl ProtobufSink) {
        for info in &self.clients {
            write_message(sink, 1, &Entry { key: &info.client, value: &**info });
        }
    }
}

impl ProtobufMessage for PresenceStatsResult {
    fn write(&self, sink: &mut impl ProtobufSink) {
        write_number(sink, 1, self.num_clients.into());
        write_number(sink, 2, self.num_users.into());
    }
}

impl ProtobufMessage for HistoryResult {
    fn write(&self, sink: &mut impl ProtobufSink) {
        for publication in &self.publications {
            write_message(sink, 1, &PublicationMessage { publication, data: DataForm::Plain, skipped: 0 });
        }
        write_bytes(sink, 2, self.epoch.as_bytes());
        write_number(sink, 3, self.offset);
    }
}

impl ProtobufMessage for RpcResult {
    fn write(&self, sink: &mut impl ProtobufSink) {
        write_payload(sink, 1, self.data.as_ref());
    }
}

impl ProtobufMessage for RefreshResult {
    fn write(&self, sink: &mut impl ProtobufSink) {
        write_bytes(sink, 1, self.client.as_bytes());
        write_bytes(sink, 2, self.version.as_bytes());
        Expiry { field: 3, ttl_s: self.ttl_s }.write(sink);
    }
}

impl ProtobufMessage for Disconnect {
    fn write(&self, sink: &mut impl ProtobufSink) {
        write_number(sink, 1, self.code.into());
        write_bytes(sink, 2, self.reason.as_bytes());
        write_flag(sink, 3, self.reconnects());
    }
}

struct UnsubscribeMessage<'a> {
    code: UnsubscribeCode,
    reason: &'a str,
}

impl ProtobufMessage for UnsubscribeMessage<'_> {
    fn write(&self, sink: &mut impl ProtobufSink) {
        write_number(sink, 2, self.code.0.into());
        write_bytes(sink, 3, self.reason.as_bytes());
    }
}

struct DataMessage<'a> {
    data: &'a Payload,
}

impl ProtobufMessage for DataMessage<'_> {
    fn write(&self, sink: &mut impl ProtobufSink) {
        write_payload(sink, 1, Some(self.data));
    }
}

/// The fields `expires`, with number `field`, and `ttl`, with the next number, of messages that can expire.
struct Expiry {
    field: u32,
    ttl_s: Option<u32>,
}

impl ProtobufMessage for Expiry {
    fn write(&self, sink: &mut impl ProtobufSink) {
        write_flag(sink, self.field, self.ttl_s.is_some());
        write_number(sink, self.field + 1, self.ttl_s.unwrap_or_default().into());
    }
}

/// An entry of a map whose values are messages.
struct Entry<'a, M> {
    key: &'a str,
    value: &'a M,
}

impl<M: ProtobufMessage> ProtobufMessage for Entry<'_, M> {
    fn write(&self, sink: &mut impl ProtobufSink) {
        write_entry_bytes(sink, 1, self.key.as_bytes());
        write_message(sink, 2, self.value);
    }
}

/// A message that contains only another message.
struct Wrapped<'a, M> {
    field: u32,
    message: &'a M,
}

impl<M: ProtobufMessage> ProtobufMessage for Wrapped<'_, M> {
    fn write(&self, sink: &mut impl ProtobufSink) {
        write_message(sink, self.field, self.message);
    }
}

struct Empty;

impl ProtobufMessage for Empty {
    fn write(&self, _sink: &mut impl ProtobufSink) {}
}

fn write_payload(sink: &mut impl ProtobufSink, field: u32, payload: Option<&Payload>) {
    write_bytes(sink, field, payload.map_or(&[], |payload| payload.bytes()));
}
