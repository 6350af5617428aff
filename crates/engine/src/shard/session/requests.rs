//! Commands that a channel's owner answers: checks them and sends them to the owner.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use dunlin_protocol::{ClientInfo, Disconnect, ErrorCode, HistoryRequest, Payload, PublishRequest, Reply};

use crate::{
    SessionKey,
    api::HistoryQuery,
    backend::ProxyRequestKind,
    message::{Asker, ShardRequest},
    options::DataFormat,
    session::ProxiedCommand,
};

use super::{Context, Sessions, permission::Permission};
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
    ) -> Result<Option<Reply>, Disconnect> {
        let channel = &*request.channel;
        if channel.is_empty() {
            context.note_refusal_reason("no channel is named");
            return Err(Disconnect::BAD_REQUEST);
        }
        let data = request.data.unwrap_or_default();
        let namespace = match context.resolve(channel) {
            Ok(namespace) => namespace,
            Err(code) => return Ok(Some(Reply::Error(code))),
        };
        let options = context.namespace(namespace);
        if options.room.is_some() {
            return Ok(Some(self.publish_input(context, key, channel, data)));
        }
        if data.is_empty() && options.publication_data_format != DataFormat::Binary {
            context.note_refusal_reason("a publication without data");
            return Ok(Some(Reply::Error(ErrorCode::BadRequest)));
        }
        let proxy = options.publish_proxy;
        let is_allowed =
            proxy.is_some() || self.permits(context, key, channel, namespace, Permission::publish(options));
        if request.kind != 0 || !is_allowed {
            return Ok(Some(Reply::Error(ErrorCode::PermissionDenied)));
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
        let Some(info) = self.info_in_channel(key, channel) else { return Err(Disconnect::BAD_REQUEST) };
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
    ) -> Result<Option<Reply>, Disconnect> {
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
    ) -> Result<Option<Reply>, Disconnect> {
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
    ) -> Result<Option<Reply>, Disconnect> {
        if channel.is_empty() {
            context.note_refusal_reason("no channel is named");
            return Err(Disconnect::BAD_REQUEST);
        }
        if let Err(code) = self.check_read(context, key, channel, ReadKind::Presence) {
            return Ok(Some(Reply::Error(code)));
        }
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
    ) -> Result<Option<Reply>, Disconnect> {
        let channel = &*request.channel;
        if channel.is_empty() {
            context.note_refusal_reason("no channel is named");
            return Err(Disconnect::BAD_REQUEST);
        }
        if let Err(code) = self.check_read(context, key, channel, ReadKind::History) {
            return Ok(Some(Reply::Error(code)));
        }
        let most = i32::try_from(context.options.client.history_publications_max).unwrap_or(i32::MAX);
        let limit = if (0..=most).contains(&request.limit) { request.limit } else { most };
        let since = request.since.as_ref().map(|since| (since.offset, Box::from(&*since.epoch)));
        let bytes_max = Some(context.options.client.history_bytes_max);
        let query = HistoryQuery { limit, since, reverse: request.reverse, bytes_max };
        let (channel_name, asker) = (self.channel_name(channel), self.register_request(context, key, command_id, true));
        let request = ShardRequest::History { channel: channel_name, query, reader: self.user(key), asker };
        context.request(context.owner(channel), request);
        Ok(None)
    }

    /// Checks that the namespace of `channel` stores the requested data, and that the session may read it.
    fn check_read(&self, context: &Context, key: SessionKey, channel: &str, kind: ReadKind) -> Result<(), ErrorCode> {
        let namespace = context.resolve(channel)?;
        let options = context.namespace(namespace);
        let (is_on, off_reason, permission) = match kind {
            ReadKind::Presence => (options.presence, PRESENCE_OFF, Permission::presence(options)),
            ReadKind::History => (options.has_stream(), HISTORY_OFF, Permission::history(options)),
        };
        if !is_on {
            context.note_refusal_reason(off_reason);
            return Err(ErrorCode::NotAvailable);
        }
        if self.permits(context, key, channel, namespace, permission) {
            Ok(())
        } else {
            Err(ErrorCode::PermissionDenied)
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
    /// Records why the channel's owner refused a command, for codes that do not explain themselves.
    pub(in crate::shard) fn explain_refusal_by_owner(&self, command: &str, code: ErrorCode) {
        self.clear_refusal_reason();
        match (command, code) {
            ("publish", ErrorCode::BadRequest) => self.note_refusal_reason(
                "the publication is larger than client.queue_max_size, or not in the publication_data_format of its namespace",
            ),
            ("history", ErrorCode::BadRequest) => self.note_refusal_reason("a reverse history since offset 0"),
            ("publish" | "history", ErrorCode::Internal) => self.note_refusal_reason(
                "the log of the channel's namespace failed; /health names the failure of a storage, and the remedy",
            ),
            _ => {}
        }
    }

    pub(super) fn asker(&self, session: SessionKey, command_id: u32) -> Asker {
        Asker { shard: self.identity.index, session, command_id }
    }
}
