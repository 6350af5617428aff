//! Encodes replies and pushes as JSON objects.
//!
//! Fields are written directly to the buffer, in the order of their numbers. Only the growth of `out` allocates. Zero
//! values are omitted, except those that Centrifugo always writes (`generate.sh` of `centrifugal/protocol` lists them).

use super::write::{Object, Writer, write, write_object, write_string};
use crate::{
    ChannelRef, ClientInfo, ConnectResult, DataForm, Disconnect, ErrorCode, Gaps, HistoryResult, NotJson,
    PresenceResult, PresenceStatsResult, Publication, Push, RefreshResult, Reply, SubscribeResult, decimal::Decimal,
    push::SKIPPED_TAG,
};

/// Appends the reply to the command `id`. With `gaps`, leaves out publications that are already encoded.
pub(crate) fn encode_reply(id: u32, reply: &Reply, out: &mut Vec<u8>, gaps: Option<&mut Gaps>) -> Result<(), NotJson> {
    write(out, gaps, |writer| {
        writer.object(|message| {
            message.number("id", id.into());
            write_reply(reply, message);
        });
    })
}

/// Appends the array of a result's publications.
pub(crate) fn encode_publications(result: &SubscribeResult, out: &mut Vec<u8>) -> Result<(), NotJson> {
    write(out, None, |writer| write_publications(result, writer))
}

/// Appends the reply without an id that carries `push`.
pub(crate) fn encode_push(push: &Push<'_>, out: &mut Vec<u8>) -> Result<(), NotJson> {
    write_object(out, |message| message.object("push", |object| write_push(push, object)))
}

/// Appends `push` by itself.
pub(crate) fn encode_bare_push(push: &Push<'_>, out: &mut Vec<u8>) -> Result<(), NotJson> {
    write_object(out, |object| write_push(push, object))
}

/// Appends the part before `data` of the push of a publication of `channel` that has only `data`.
pub(crate) fn publication_head(channel: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"push":{"channel":"#);
    write_string(channel, out);
    out.extend_from_slice(br#","pub":{"data":"#);
}

fn write_reply(reply: &Reply, envelope: &mut Object<'_, '_>) {
    match reply {
        Reply::Error(error) => envelope.object("error", |object| write_error(*error, object)),
        Reply::Refused { code, message, temporary } => envelope.object("error", |object| {
            object.number("code", (*code).into());
            object.text("message", message);
            object.flag("temporary", *temporary);
        }),
        Reply::Connect(result) => envelope.object("connect", |object| write_connect(result, object)),
        Reply::Subscribe(result) => envelope.object("subscribe", |object| write_subscribe(result, object)),
        Reply::Unsubscribe => envelope.object("unsubscribe", |_| {}),
        Reply::Publish => envelope.object("publish", |_| {}),
        Reply::Presence(result) => envelope.object("presence", |object| write_presence(result, object)),
        Reply::PresenceStats(result) => {
            envelope.object("presence_stats", |object| write_presence_stats(*result, object));
        }
        Reply::History(result) => envelope.object("history", |object| write_history(result, object)),
        Reply::Rpc(result) => envelope.object("rpc", |object| object.payload("data", result.data.as_ref())),
        Reply::Refresh(result) => envelope.object("refresh", |object| write_refresh(result, object)),
        Reply::SubRefresh { ttl_s } => envelope.object("sub_refresh", |object| write_expiry(*ttl_s, object)),
    }
}

fn write_push(push: &Push<'_>, envelope: &mut Object<'_, '_>) {
    match *push {
        Push::Publication { channel, publication, data, skipped } => {
            write_channel(channel, envelope);
            envelope.object("pub", |object| write_publication(publication, data, skipped, object));
        }
        Push::Join { channel, info } => {
            write_channel(channel, envelope);
            envelope.object("join", |join| join.object("info", |object| write_client_info(info, object)));
        }
        Push::Leave { channel, info } => {
            write_channel(channel, envelope);
            envelope.object("leave", |leave| leave.object("info", |object| write_client_info(info, object)));
        }
        Push::Unsubscribe { channel, code, reason } => {
            envelope.text("channel", channel);
            envelope.object("unsubscribe", |object| {
                object.number("code", code.0.into());
                object.text("reason", reason);
            });
        }
        Push::Message { data } => envelope.object("message", |object| object.payload("data", Some(data))),
        Push::Subscribe { channel, result } => {
            envelope.text("channel", channel);
            envelope.object("subscribe", |object| write_subscribe_push(result, object));
        }
        Push::Connect { result } => envelope.object("connect", |object| write_connect(result, object)),
        Push::Disconnect { disconnect } => envelope.object("disconnect", |object| write_disconnect(disconnect, object)),
        Push::Refresh { ttl_s } => envelope.object("refresh", |object| write_expiry(ttl_s, object)),
    }
}

fn write_channel(channel: ChannelRef<'_>, envelope: &mut Object<'_, '_>) {
    match channel {
        ChannelRef::Name(name) => envelope.text("channel", name),
        ChannelRef::Number(number) => envelope.number("id", number),
    }
}

fn write_publication(publication: &Publication, data: DataForm<'_>, skipped: u32, object: &mut Object<'_, '_>) {
    match data {
        DataForm::Plain => object.payload("data", Some(&publication.data)),
        DataForm::Whole => object.field("data").payload_as_string(&publication.data),
        DataForm::Patch(patch) => object.field("data").bytes_as_string(patch),
    }
    if let Some(info) = &publication.info {
        object.object("info", |object| write_client_info(info, object));
    }
    object.number("offset", publication.offset);
    if skipped > 0 || !publication.tags.is_empty() {
        object.object("tags", |tags| {
            for (key, value) in publication.tags_beside(skipped) {
                tags.entry(key).string(value);
            }
            if skipped > 0 {
                tags.entry(SKIPPED_TAG).string(Decimal::new(skipped.into()).as_str());
            }
        });
    }
    object.flag("delta", matches!(data, DataForm::Patch(_)));
    object.signed("time", publication.time_ms);
    object.text("epoch", &publication.epoch);
    object.number("version", publication.version);
}

/// Always writes `user` and `client`, even if they are empty, because SDKs require them.
fn write_client_info(info: &ClientInfo, object: &mut Object<'_, '_>) {
    object.field("user").string(&info.user);
    object.field("client").string(&info.client);
    object.payload("conn_info", info.conn_info.as_ref());
    object.payload("chan_info", info.chan_info.as_ref());
}

fn write_error(error: ErrorCode, object: &mut Object<'_, '_>) {
    object.number("code", error.code().into());
    object.text("message", error.message());
    object.flag("temporary", error.temporary());
}

fn write_connect(result: &ConnectResult, object: &mut Object<'_, '_>) {
    object.text("client", &result.client);
    object.text("version", result.version);
    write_expiry(result.ttl_s, object);
    object.payload("data", result.data.as_ref());
    if !result.subs.is_empty() {
        object.object("subs", |subs| {
            for (channel, result) in &result.subs {
                subs.entry(channel).object(|object| write_subscribe(result, object));
            }
        });
    }
    object.number("ping", result.ping_s.into());
    object.flag("pong", result.pong);
    object.text("session", &result.session);
    object.text("node", &result.node);
    object.signed("time", result.time_ms);
}

fn write_subscribe(result: &SubscribeResult, object: &mut Object<'_, '_>) {
    write_expiry(result.ttl_s, object);
    object.flag("recoverable", result.recoverable);
    object.text("epoch", &result.epoch);
    match &result.encoded {
        Some(encoded) => object.field("publications").encoded(encoded),
        None if result.publications.is_empty() => {}
        None => write_publications(result, object.field("publications")),
    }
    object.flag("recovered", result.recovered);
    object.number("offset", result.offset);
    object.flag("positioned", result.positioned);
    object.payload("data", result.data.as_ref());
    object.flag("was_recovering", result.was_recovering);
    object.flag("delta", result.delta);
    object.number("id", result.channel_number);
}

fn write_publications(result: &SubscribeResult, writer: &mut Writer<'_>) {
    writer.array(result.written_publications(), |(publication, data), object| {
        write_publication(publication, data, 0, object);
    });
}

fn write_subscribe_push(result: &SubscribeResult, object: &mut Object<'_, '_>) {
    object.flag("recoverable", result.recoverable);
    object.text("epoch", &result.epoch);
    object.number("offset", result.offset);
    object.flag("positioned", result.positioned);
    object.payload("data", result.data.as_ref());
}

/// Always writes the object, even if it is empty, because SDKs require it.
fn write_presence(result: &PresenceResult, object: &mut Object<'_, '_>) {
    object.object("presence", |presence| {
        for info in &result.clients {
            presence.entry(&info.client).object(|object| write_client_info(info, object));
        }
    });
}

/// Always writes both numbers, even if they are zero, because SDKs require them.
fn write_presence_stats(result: PresenceStatsResult, object: &mut Object<'_, '_>) {
    object.field("num_clients").number(result.num_clients.into());
    object.field("num_users").number(result.num_users.into());
}

/// Always writes all fields, even if they are empty, because SDKs require them.
fn write_history(result: &HistoryResult, object: &mut Object<'_, '_>) {
    let publications = result.publications.iter();
    object.field("publications").array(publications, |publication, object| {
        write_publication(publication, DataForm::Plain, 0, object);
    });
    object.field("epoch").string(&result.epoch);
    object.field("offset").number(result.offset);
}

fn write_refresh(result: &RefreshResult, object: &mut Object<'_, '_>) {
    object.text("client", &result.client);
    object.text("version", result.version);
    write_expiry(result.ttl_s, object);
}

fn write_disconnect(disconnect: &Disconnect, object: &mut Object<'_, '_>) {
    object.number("code", disconnect.code.into());
    object.text("reason", &disconnect.reason);
    object.flag("reconnect", disconnect.reconnects());
}

fn write_expiry(ttl_s: Option<u32>, object: &mut Object<'_, '_>) {
    object.flag("expires", ttl_s.is_some());
    object.number("ttl", ttl_s.unwrap_or_default().into());
}
