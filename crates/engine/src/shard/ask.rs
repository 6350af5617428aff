//! Commands that a channel's owner answers: checked here, sent there, and the answers passed on.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use dunlin_protocol::{
    ClientInfo, Disconnect, ErrorCode, HistoryRequest, HistoryResult, Payload, PresenceResult, PresenceStatsResult,
    PublishRequest, Reply,
};

use crate::{
    Effects, Now, SessionKey,
    api::HistoryQuery,
    backend::Ask,
    message::{Asker, Notice, Request, ShardMessage},
    options::DataFormat,
    session::AskedFor,
};

use super::{Shard, permission::Permission};

impl Shard {
    pub(super) fn publish(
        &mut self,
        now: Now,
        key: SessionKey,
        command_id: u32,
        request: &PublishRequest<'_>,
        effects: &mut Effects,
    ) -> Result<Option<Reply>, Disconnect> {
        let channel = &*request.channel;
        let data = request.data.unwrap_or_default();
        if channel.is_empty() || data.is_empty() && !self.takes_nothing_for_data(channel) {
            return Err(Disconnect::BAD_REQUEST);
        }
        let namespace = match self.names.resolve(channel) {
            Ok(namespace) => namespace,
            Err(code) => return Ok(Some(Reply::Error(code))),
        };
        let options = self.namespace(namespace);
        if options.room.is_some() {
            return Ok(Some(self.publish_input(now, key, channel, data, effects)));
        }
        let proxy = options.publish_proxy;
        let is_allowed = proxy.is_some() || self.permits(key, channel, Permission::publish(options));
        if request.kind != 0 || !is_allowed {
            return Ok(Some(Reply::Error(ErrorCode::PermissionDenied)));
        }
        let data = self.payload(key, data).unwrap_or_else(|| Payload::from_opaque(Bytes::new()));
        if let Some(proxy) = proxy {
            let channel = self.channel_name(channel);
            let ask = Ask::Publish { channel: Arc::clone(&channel), data: data.clone() };
            self.ask_backend(key, command_id, proxy, ask, AskedFor::Publish { channel, data }, effects);
            return Ok(None);
        }
        let Some(info) = self.info_in_channel(key, channel) else { return Err(Disconnect::BAD_REQUEST) };
        let asker = self.asker(key, command_id);
        let request = Request::Publish { channel: self.channel_name(channel), data, info, how: Box::default(), asker };
        self.ask_owner(channel, request, effects);
        Ok(None)
    }

    /// Whether publications of `channel` may be empty.
    fn takes_nothing_for_data(&self, channel: &str) -> bool {
        let namespace = self.names.resolve(channel);
        namespace.is_ok_and(|namespace| self.namespace(namespace).publication_data_format == DataFormat::Binary)
    }

    pub(super) fn ask_presence(
        &mut self,
        key: SessionKey,
        command_id: u32,
        channel: &str,
        effects: &mut Effects,
    ) -> Result<Option<Reply>, Disconnect> {
        let bytes_max = self.options.client.presence_bytes_max;
        let make = |channel, asker| Request::Presence { channel, bytes_max, asker };
        self.ask_who_is_there(key, command_id, channel, make, effects)
    }

    pub(super) fn ask_presence_stats(
        &mut self,
        key: SessionKey,
        command_id: u32,
        channel: &str,
        effects: &mut Effects,
    ) -> Result<Option<Reply>, Disconnect> {
        let make = |channel, asker| Request::PresenceStats { channel, asker };
        self.ask_who_is_there(key, command_id, channel, make, effects)
    }

    fn ask_who_is_there(
        &mut self,
        key: SessionKey,
        command_id: u32,
        channel: &str,
        make: impl FnOnce(Arc<str>, Asker) -> Request,
        effects: &mut Effects,
    ) -> Result<Option<Reply>, Disconnect> {
        if channel.is_empty() {
            return Err(Disconnect::BAD_REQUEST);
        }
        let allowed = self.names.resolve(channel).and_then(|namespace| {
            let options = self.namespace(namespace);
            if !options.presence {
                return Err(ErrorCode::NotAvailable);
            }
            if self.permits(key, channel, Permission::presence(options)) {
                Ok(())
            } else {
                Err(ErrorCode::PermissionDenied)
            }
        });
        if let Err(code) = allowed {
            return Ok(Some(Reply::Error(code)));
        }
        let request = make(self.channel_name(channel), self.asker(key, command_id));
        self.ask_owner(channel, request, effects);
        Ok(None)
    }

    pub(super) fn ask_history(
        &mut self,
        key: SessionKey,
        command_id: u32,
        request: &HistoryRequest<'_>,
        effects: &mut Effects,
    ) -> Result<Option<Reply>, Disconnect> {
        let channel = &*request.channel;
        if channel.is_empty() {
            return Err(Disconnect::BAD_REQUEST);
        }
        let allowed = self.names.resolve(channel).and_then(|namespace| {
            let options = self.namespace(namespace);
            if !options.has_stream() {
                return Err(ErrorCode::NotAvailable);
            }
            if self.permits(key, channel, Permission::history(options)) {
                Ok(())
            } else {
                Err(ErrorCode::PermissionDenied)
            }
        });
        if let Err(code) = allowed {
            return Ok(Some(Reply::Error(code)));
        }
        let most = i32::try_from(self.options.client.history_publications_max).unwrap_or(i32::MAX);
        let limit = if (0..=most).contains(&request.limit) { request.limit } else { most };
        let since = request.since.as_ref().map(|since| (since.offset, Box::from(&*since.epoch)));
        let bytes_max = Some(self.options.client.history_bytes_max);
        let query = HistoryQuery { limit, since, reverse: request.reverse, bytes_max };
        let (channel_name, asker) = (self.channel_name(channel), self.asker(key, command_id));
        let request = Request::History { channel: channel_name, query, reader: self.user(key), asker };
        self.ask_owner(channel, request, effects);
        Ok(None)
    }

    /// Passes the owner's answer on to the session that asked.
    pub(super) fn note(&mut self, now: Now, notice: Notice, effects: &mut Effects) {
        let (asker, reply) = match notice {
            Notice::Deliver(delivery) => return self.deliver(now, &delivery, effects),
            Notice::RoomOver { channel, room, code } => return self.room_is_over(now, &channel, room, code, effects),
            Notice::Subscribed { order, outcome } => return self.subscribed(now, *order, outcome, effects),
            Notice::PositionLost { channel } => return self.position_lost(now, &channel, effects),
            Notice::Arrived { user, asker, admitted } => return self.arrived(now, &user, asker, admitted, effects),
            Notice::Superseded { session } => return self.superseded(now, session, effects),
            Notice::Published { asker, outcome } => (asker, outcome.map(|()| Reply::Publish)),
            Notice::Presence { asker, outcome } => {
                (asker, outcome.map(|clients| Reply::Presence(PresenceResult { clients })))
            }
            Notice::PresenceStats { asker, outcome } => (
                asker,
                outcome.map(|(num_clients, num_users)| {
                    Reply::PresenceStats(PresenceStatsResult { num_clients, num_users })
                }),
            ),
            Notice::History { asker, outcome } => (
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
        if self.sessions.get(asker.session).is_none() {
            self.counters.late_messages += 1;
            return;
        }
        self.reply(now, asker.session, asker.command_id, &reply.unwrap_or_else(Reply::Error), effects);
    }

    /// The session's info as `channel` shows it.
    pub(super) fn info_in_channel(&self, key: SessionKey, channel: &str) -> Option<Arc<ClientInfo>> {
        let session = self.sessions.get(key)?;
        let info = session.info.as_ref()?;
        let subscription = self.hub.find(channel).and_then(|id| session.subscription(id));
        Some(Arc::clone(subscription.map_or(info, |subscription| subscription.info(info))))
    }

    /// The session's user; empty for an anonymous one.
    pub(super) fn user(&self, key: SessionKey) -> Arc<str> {
        let info = self.sessions.get(key).and_then(|session| session.info.as_ref());
        info.map_or_else(|| Arc::from(""), |info| Arc::clone(&info.user))
    }

    pub(super) fn asker(&self, session: SessionKey, command_id: u32) -> Asker {
        Asker { shard: self.identity.index, session, command_id }
    }

    /// The one copy of a channel's name, if this shard has one.
    pub(super) fn channel_name(&self, channel: &str) -> Arc<str> {
        match self.hub.find(channel) {
            Some(id) => Arc::clone(&self.hub.channel(id).name),
            None => Arc::from(Cow::Borrowed(channel)),
        }
    }

    pub(super) fn ask_owner(&mut self, channel: &str, request: Request, effects: &mut Effects) {
        self.send(self.owner(channel), ShardMessage::Request(request), effects);
    }
}
