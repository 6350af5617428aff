//! Commands that a channel's owner answers: checks them, sends them to the owner, and passes its answers on.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use dunlin_protocol::{
    ClientInfo, Disconnect, ErrorCode, HistoryRequest, HistoryResult, Payload, PresenceResult, PresenceStatsResult,
    PublishRequest, Reply,
};

use crate::{
    SessionKey,
    api::HistoryQuery,
    backend::ProxyRequestKind,
    message::{Asker, Notice, ShardRequest},
    options::DataFormat,
    refused::{Refused, RefusedCommand},
    session::ProxiedCommand,
};

use super::{
    Context, Sessions,
    commands::{CommandOutcome, CommandRef, NO_CHANNEL},
    permission::Permission,
};
use crate::shard::{HISTORY_OFF, PRESENCE_OFF};

/// What a command reads from a channel's owner.
#[derive(Clone, Copy)]
enum ReadKind {
    Presence,
    History,
}

impl Sessions {
    pub(super) fn publish(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        command_id: u32,
        request: &PublishRequest<'_>,
    ) -> CommandOutcome {
        let channel = &*request.channel;
        if channel.is_empty() {
            return Err(RefusedCommand::bad_request(NO_CHANNEL));
        }
        let data = request.data.unwrap_or_default();
        let namespace = context.resolve(channel)?;
        let options = context.namespace(namespace);
        if options.room.is_some() {
            return self.publish_input(context, key, channel, data);
        }
        if data.is_empty() && options.publication_data_format != DataFormat::Binary {
            return Err(Refused::new(ErrorCode::BadRequest, "a publication without data").into());
        }
        let proxy = options.publish_proxy;
        let is_allowed =
            proxy.is_some() || self.permits(context, key, channel, namespace, Permission::publish(options));
        if request.kind != 0 || !is_allowed {
            return Err(ErrorCode::PermissionDenied.into());
        }
        let data = self.payload(key, data).unwrap_or_else(|| Payload::from_opaque(Bytes::new()));
        if let Some(proxy) = proxy {
            let channel = self.channel_name(channel);
            let kind = ProxyRequestKind::Publish { channel: Arc::clone(&channel), data: data.clone() };
            self.send_proxy_request(
                key,
                command_id,
                proxy,
                kind,
                ProxiedCommand::Publish { channel, data },
                &mut context.effects,
            );
            return Ok(None);
        }
        let Some(info) = self.info_in_channel(key, channel) else { return Err(Disconnect::BAD_REQUEST.into()) };
        let asker = self.register_request(context, key, command_id, false);
        let (channel_name, creator) = (self.channel_name(channel), self.creator(context, key));
        let request = ShardRequest::Publish { channel: channel_name, data, info, how: Box::default(), creator, asker };
        context.request(context.owner(channel), request);
        Ok(None)
    }

    pub(super) fn ask_presence(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        command_id: u32,
        channel: &str,
    ) -> CommandOutcome {
        let bytes_max = context.options.client.presence_bytes_max;
        let make = |channel, asker| ShardRequest::Presence { channel, bytes_max, asker };
        self.request_presence(context, key, command_id, channel, true, make)
    }

    pub(super) fn ask_presence_stats(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        command_id: u32,
        channel: &str,
    ) -> CommandOutcome {
        let make = |channel, asker| ShardRequest::PresenceStats { channel, asker };
        self.request_presence(context, key, command_id, channel, false, make)
    }

    fn request_presence(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        command_id: u32,
        channel: &str,
        is_reply_large: bool,
        make: impl FnOnce(Arc<str>, Asker) -> ShardRequest,
    ) -> CommandOutcome {
        if channel.is_empty() {
            return Err(RefusedCommand::bad_request(NO_CHANNEL));
        }
        self.check_read(context, key, channel, ReadKind::Presence)?;
        let request = make(self.channel_name(channel), self.register_request(context, key, command_id, is_reply_large));
        context.request(context.owner(channel), request);
        Ok(None)
    }

    pub(super) fn ask_history(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        command_id: u32,
        request: &HistoryRequest<'_>,
    ) -> CommandOutcome {
        let channel = &*request.channel;
        if channel.is_empty() {
            return Err(RefusedCommand::bad_request(NO_CHANNEL));
        }
        self.check_read(context, key, channel, ReadKind::History)?;
        let limit_max = i32::try_from(context.options.client.history_publications_max).unwrap_or(i32::MAX);
        let limit = if (0..=limit_max).contains(&request.limit) { request.limit } else { limit_max };
        let since = request.since.as_ref().map(|since| (since.offset, Box::from(&*since.epoch)));
        let bytes_max = Some(context.options.client.history_bytes_max);
        let query = HistoryQuery { limit, since, reverse: request.reverse, bytes_max };
        let (channel_name, asker) = (self.channel_name(channel), self.register_request(context, key, command_id, true));
        let request = ShardRequest::History { channel: channel_name, query, reader: self.user(key), asker };
        context.request(context.owner(channel), request);
        Ok(None)
    }

    /// Passes the owner's answer on to the session that sent the request.
    pub(in crate::shard) fn take_notice(&mut self, context: &mut Context, notice: Notice) {
        let is_reply_large = matches!(notice, Notice::Presence { .. } | Notice::History { .. });
        let (command, channel, asker, reply) = match notice {
            Notice::Deliver(delivery) => return self.deliver(context, &delivery),
            Notice::RoomOver { channel, room, code, reason } => {
                return self.room_is_over(context, &channel, room, (code, reason));
            }
            Notice::Subscribed { request, outcome } => {
                return self.subscribed(context, *request, outcome);
            }
            Notice::PositionLost { channel } => {
                return self.end_stale(context, &channel, |flags| flags.positioned);
            }
            Notice::FollowingLost { channel } => return self.end_stale(context, &channel, |_| true),
            Notice::Arrived { user, asker, admission } => {
                return self.arrived(context, &user, asker, admission);
            }
            Notice::Superseded { session } => return self.superseded(context, session),
            Notice::Published { channel, asker, outcome } => {
                ("publish", channel, asker, outcome.map(|()| Reply::Publish))
            }
            Notice::Presence { channel, asker, outcome } => {
                ("presence", channel, asker, outcome.map(|clients| Reply::Presence(PresenceResult { clients })))
            }
            Notice::PresenceStats { channel, asker, outcome } => (
                "presence_stats",
                channel,
                asker,
                outcome.map(|(num_clients, num_users)| {
                    Reply::PresenceStats(PresenceStatsResult { num_clients, num_users })
                }),
            ),
            Notice::History { channel, asker, outcome } => (
                "history",
                channel,
                asker,
                outcome.map(|part| {
                    let part = *part;
                    Reply::History(HistoryResult {
                        publications: part.publications,
                        epoch: part.epoch,
                        offset: part.offset,
                    })
                }),
            ),
        };
        if self.is_gone(asker.session) {
            context.counters.late_messages += 1;
            return;
        }
        let outcome = reply.map(Some).map_err(RefusedCommand::from);
        let command = CommandRef { id: asker.command_id, command, channel: Some(&channel) };
        self.answer(context, asker.session, command, outcome);
        self.on_owner_reply(asker.session, is_reply_large, &mut context.effects);
    }

    /// Checks that the namespace of `channel` stores the requested data, and that the session may read it.
    fn check_read(&self, context: &Context, key: SessionKey, channel: &str, kind: ReadKind) -> Result<(), Refused> {
        let namespace = context.resolve(channel)?;
        let options = context.namespace(namespace);
        let (is_on, off_reason, permission) = match kind {
            ReadKind::Presence => (options.presence, PRESENCE_OFF, Permission::presence(options)),
            ReadKind::History => (options.has_stream(), HISTORY_OFF, Permission::history(options)),
        };
        if !is_on {
            return Err(Refused::new(ErrorCode::NotAvailable, off_reason));
        }
        if self.permits(context, key, channel, namespace, permission) {
            Ok(())
        } else {
            Err(ErrorCode::PermissionDenied.into())
        }
    }

    /// The session's info in `channel`.
    pub(super) fn info_in_channel(&self, key: SessionKey, channel: &str) -> Option<Arc<ClientInfo>> {
        let session = self.table.get(key)?;
        let info = session.info.as_ref()?;
        let subscription = self.hub.find(channel).and_then(|id| session.subscription(id));
        Some(Arc::clone(subscription.map_or(info, |subscription| subscription.info(info))))
    }

    /// The session's user; empty for the anonymous user.
    pub(super) fn user(&self, key: SessionKey) -> Arc<str> {
        let info = self.table.get(key).and_then(|session| session.info.as_ref());
        info.map_or_else(|| Arc::from(""), |info| Arc::clone(&info.user))
    }

    /// The shared copy of a channel's name, if this shard has one.
    pub(super) fn channel_name(&self, channel: &str) -> Arc<str> {
        match self.hub.find(channel) {
            Some(id) => Arc::clone(&self.hub.channel(id).name),
            None => Arc::from(Cow::Borrowed(channel)),
        }
    }
}
impl Context {
    pub(super) fn asker(&self, session: SessionKey, command_id: u32) -> Asker {
        Asker { shard: self.identity.index, session, command_id }
    }
}
