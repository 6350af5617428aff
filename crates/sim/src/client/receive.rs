//! Handles and checks the messages that a client receives.

use std::collections::{BTreeMap, BTreeSet};

use dunlin_engine::{
    Options, Wire,
    backend::ProxyIndex,
    options::{NamespaceOptions, RecoveryMode},
};

use crate::{
    checks::{
        Recovery, RecoveryLimits, ReplyContext, accept_input, check_error, check_history, check_join, check_recovery,
        check_room_history, check_success, must_be_recoverable, reject_input, seat_answer,
    },
    model::{Model, Outcome},
    plan::RoomPlan,
    token::{Token, Tokens},
    wire::{
        ClientCommand, ConnectBody, ErrorBody, HistoryBody, PushBody, ServerMessage, SubscribeBody, SubscribeCommand,
        WireFrame, decode, decode_push,
    },
};

use super::{Client, ClientClose, ClientPhase, CloseReasons, OperatorAction, Pending, ToServer};

/// What a client needs to check received messages.
pub struct ReceiveContext<'a> {
    pub options: &'a Options,
    /// The rooms of the plan.
    pub rooms: Option<&'a RoomPlan>,
    pub model: &'a mut Model,
    pub tokens: &'a Tokens,
    /// Actions of operators that ended subscriptions.
    pub ended: &'a [OperatorAction],
    /// Actions of operators that created subscriptions.
    pub subscribed: &'a [OperatorAction],
    /// Sessions and subscriptions that the backend expired.
    pub expired_by_backend: &'a BTreeSet<(String, String)>,
    /// Channels whose streams lost their positions.
    pub lost: &'a [String],
    pub now_us: u64,
    /// The time in Unix milliseconds.
    pub unix_ms: u64,
}

/// What a client does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The server closed the session.
    Closed(Option<u16>),
    /// The client is connected and resubscribes to its channels.
    Connected,
    /// A subscription ended with a code that requests to resubscribe.
    Resubscribes(String),
}

impl ReceiveContext<'_> {
    fn reply_context<'a>(&'a self, user: &'a str, client: &'a str) -> ReplyContext<'a> {
        let Self { options, tokens, unix_ms, subscribed, .. } = self;
        ReplyContext { options, tokens, user, now_s: unix_ms / 1_000, subscribed, client }
    }

    /// Returns the token that granted the request. Without a token in the request, the backend granted it and returned
    /// the name of a token as the data of the reply.
    fn granted(&self, token: &str, by_backend: bool, data: &[u8]) -> Result<Option<&Token>, String> {
        if !by_backend || !token.is_empty() {
            let is_valid = data.is_empty();
            return is_valid.then(|| self.tokens.find(token)).ok_or_else(|| format!("unexpected data: {data:?}"));
        }
        let name: String = serde_json::from_slice(data).map_err(|error| error.to_string())?;
        self.tokens.find(&name).map(Some).ok_or_else(|| format!("the backend did not return {name}"))
    }

    pub(super) fn limits(&self) -> RecoveryLimits {
        let client = &self.options.client;
        let recovery_bytes_max = client.queue_bytes_max - client.queue_bytes_max / 4;
        RecoveryLimits {
            recovery_publications_max: client.recovery_publications_max,
            recovery_bytes_max,
            queue_bytes_max: client.queue_bytes_max,
            evicts_channels: self.options.channel.channels_max < 1_000,
        }
    }
}

impl Client {
    /// Reads bytes from the socket and handles the messages. Returns what the client does next, or why a message is invalid.
    pub fn read(
        &mut self,
        receiving: &mut ReceiveContext<'_>,
        bytes: impl Iterator<Item = u8>,
    ) -> Result<Vec<Next>, String> {
        self.reader.feed(bytes);
        let mut next = Vec::new();
        while let Some(frame) = self.reader.next()? {
            if self.phase == ClientPhase::Over {
                return Err(format!("{frame:?} follows the close frame"));
            }
            let payload = match frame {
                WireFrame::Text(payload) | WireFrame::Binary(payload) => payload,
                WireFrame::Pong(payload) => {
                    if self.own_pings.is_empty() || self.own_pings.remove(0) != payload {
                        return Err("a pong without a ping".to_owned());
                    }
                    continue;
                }
                WireFrame::Ping if self.profile.wire.is_unidirectional() => continue,
                WireFrame::Ping => return Err("a ping frame to a bidirectional client".to_owned()),
                WireFrame::End => {
                    let code = self.disconnect_code.take().ok_or("a response ends without a reason")?;
                    self.phase = ClientPhase::Over;
                    next.push(Next::Closed(Some(code)));
                    continue;
                }
                WireFrame::Close(code, _) => {
                    self.phase = ClientPhase::Over;
                    next.push(Next::Closed(code));
                    continue;
                }
            };
            if self.profile.wire.is_unidirectional() {
                next.extend(self.on_unidirectional(receiving, &payload)?);
                continue;
            }
            for message in decode(self.profile.encoding, &payload)? {
                next.extend(self.on_message(receiving, message)?);
            }
        }
        Ok(next)
    }

    /// Whether the bytes read so far end within a frame.
    pub fn is_within_frame(&self) -> bool {
        self.reader.is_within_frame()
    }

    /// Handles a push of a unidirectional transport. The first push contains the connect reply.
    fn on_unidirectional(
        &mut self,
        receiving: &mut ReceiveContext<'_>,
        payload: &[u8],
    ) -> Result<Option<Next>, String> {
        if self.disconnect_code.is_some() {
            return Err("a push follows the disconnect push".to_owned());
        }
        let mut push = decode_push(payload)?;
        if push == PushBody::default() {
            self.pings += 1;
            return Ok(None);
        }
        let Some(result) = push.connect.take() else { return self.on_push(receiving, push) };
        let (_, request) = self.pending.pop_first().ok_or("a connect push without a connect request")?;
        self.on_success(receiving, &request, ServerMessage { connect: Some(result), ..ServerMessage::default() })
    }

    fn on_message(
        &mut self,
        receiving: &mut ReceiveContext<'_>,
        message: ServerMessage,
    ) -> Result<Option<Next>, String> {
        if self.disconnect_code.is_some() {
            return Err(format!("{message:?} follows the disconnect push"));
        }
        if message == ServerMessage::default() {
            self.pings += 1;
            if self.profile.answers_pings {
                self.add((ClientCommand::Pong, pending(ClientCommand::Pong)));
                self.send_frame();
            }
            return Ok(None);
        }
        if message.id == 0 {
            let push = message.push.ok_or("a message without an id is not a push")?;
            return self.on_push(receiving, push);
        }
        let id = message.id;
        let request = self.pending.remove(&id).ok_or_else(|| format!("a reply to the unknown command {id}"))?;
        let outcome = match message.error {
            Some(error) => self.on_error(receiving, &request, &error).map(|()| None),
            None => self.on_success(receiving, &request, message),
        };
        outcome.map_err(|error| format!("reply {id}: {error}"))
    }

    fn on_error(
        &mut self,
        receiving: &mut ReceiveContext<'_>,
        request: &Pending,
        error: &ErrorBody,
    ) -> Result<(), String> {
        let code = error.code;
        if let (Some(number), Some(rooms), ClientCommand::Publish { channel, .. }) =
            (request.input, receiving.rooms, &request.command)
        {
            let seat = self.subscriptions.get(channel).and_then(|subscription| subscription.seat.as_deref());
            return reject_input(&mut receiving.model.rooms.lock(), rooms, number, seat, code);
        }
        if let Some(join) = request.join.filter(|_| code == 111) {
            return receiving.model.rooms.lock().give_up_join(join, receiving.rooms, receiving.now_us);
        }
        if let Some(join) = request.join.filter(|_| matches!(code, 100 | 400..)) {
            return receiving.model.rooms.lock().reject_join(join, receiving.rooms, code, &error.message);
        }
        check_error(&receiving.reply_context(&self.profile.user, &self.id), request, code)?;
        if let Some(number) = request.number {
            receiving.model.published[number as usize].outcome = Outcome::Rejected;
        }
        match &request.command {
            ClientCommand::Connect { .. } => {
                self.phase = ClientPhase::Rejected;
                self.close_reasons.was_rejected = true;
            }
            ClientCommand::Subscribe(subscribe) if code == 112 && request.join.is_some() => {
                self.positions.remove(&subscribe.channel);
            }
            ClientCommand::Subscribe(subscribe) if code == 112 => {
                let SubscribeCommand { channel, recover, filter, .. } = &**subscribe;
                let Some(from) = recover else { return Ok(()) };
                let facts = receiving.model.channel(channel).ok_or("an unknown channel")?;
                let top = facts.tops.get(&from.epoch).copied().unwrap_or(0);
                // In cache mode, the cached publication may be newer. In stream mode, the model must know all offsets.
                let is_stream = facts.rules.as_ref().is_some_and(|rules| rules.recovery_mode == RecoveryMode::Stream);
                let is_known = is_stream && receiving.model.offsets_at_most(channel) == top;
                let is_alive = facts.is_alive(&from.epoch, receiving.now_us);
                let limits = receiving.limits();
                let now = (&*from.epoch, top);
                let recovery = Recovery { from, filter: filter.as_ref(), now_ms: receiving.unix_ms };
                if is_known && is_alive && must_be_recoverable(receiving.model, limits, facts, &recovery, now) {
                    return Err(format!(
                        "{channel}: rejected to recover from {from:?}, although all publications are available"
                    ));
                }
                self.positions.remove(channel);
            }
            _ => {}
        }
        Ok(())
    }

    fn on_success(
        &mut self,
        receiving: &mut ReceiveContext<'_>,
        request: &Pending,
        message: ServerMessage,
    ) -> Result<Option<Next>, String> {
        check_success(&receiving.reply_context(&self.profile.user, &self.id), request)?;
        match (&request.command, message) {
            (ClientCommand::Connect { .. }, ServerMessage { connect: Some(result), .. }) => {
                self.on_connected(receiving, request, &result)?;
                return Ok(Some(Next::Connected));
            }
            (ClientCommand::Refresh { token }, ServerMessage { refresh: Some(result), .. }) => {
                self.expiry_s = receiving.tokens.find(token).and_then(|token| token.expires_at_s);
                check_ttl(receiving, self.expiry_s, result.expires, result.ttl)?;
            }
            (ClientCommand::Subscribe(_), ServerMessage { subscribe: Some(result), .. }) => {
                self.on_subscribed(receiving, request, &result)?;
            }
            (ClientCommand::SubRefresh { channel, token }, ServerMessage { sub_refresh: Some(result), .. }) => {
                let expiry_s = receiving.tokens.find(token).and_then(|token| token.expires_at_s);
                check_ttl(receiving, expiry_s, result.expires, result.ttl)?;
                if let Some(subscription) = self.subscriptions.get_mut(channel) {
                    subscription.expiry_s = expiry_s;
                }
            }
            (ClientCommand::Unsubscribe { channel }, ServerMessage { unsubscribe: Some(_), .. }) => {
                self.forget(channel);
            }
            (ClientCommand::Publish { .. }, ServerMessage { publish: Some(_), .. }) => {
                if let Some(input) = request.input {
                    return accept_input(&mut receiving.model.rooms.lock(), input).map(|()| None);
                }
                let number = request.number.ok_or("a publish without a number")?;
                receiving.model.published[number as usize].outcome = Outcome::Accepted;
            }
            (ClientCommand::Presence { .. }, ServerMessage { presence: Some(result), .. }) => {
                if result.presence.iter().any(|(client, info)| *client != info.client) {
                    return Err("a client under the id of another client in presence".to_owned());
                }
            }
            (ClientCommand::PresenceStats { .. }, ServerMessage { presence_stats: Some(result), .. }) => {
                if result.num_users > result.num_clients {
                    return Err(format!("{result:?}"));
                }
            }
            (ClientCommand::History { .. }, ServerMessage { history: Some(result), .. }) => {
                on_history(receiving, &self.profile.user, request, &result)?;
            }
            (ClientCommand::Rpc { method }, ServerMessage { rpc: Some(result), .. }) => {
                if result.data != format!("\"{method}\"").into_bytes() {
                    return Err(format!("{method} returns {}", String::from_utf8_lossy(&result.data)));
                }
            }
            (command, message) => return Err(format!("unexpected reply {message:?} to {command:?}")),
        }
        Ok(None)
    }

    fn on_connected(
        &mut self,
        receiving: &mut ReceiveContext<'_>,
        request: &Pending,
        result: &ConnectBody,
    ) -> Result<(), String> {
        let ClientCommand::Connect { token, subs } = &request.command else {
            return Err("no connect command".to_owned());
        };
        self.phase = ClientPhase::Live;
        receiving.model.count(connected_on(self.profile.wire));
        self.id.clone_from(&result.client);
        let backend = &receiving.options.backend;
        let granted = receiving.granted(token, backend.connect.is_some(), &result.data)?;
        if token.is_empty() {
            self.server_side = granted.map_or_else(Vec::new, |granted| granted.subs.clone());
        }
        if granted.is_some_and(|granted| !self.profile.user.is_empty() && granted.user != self.profile.user) {
            return Err("connected as another user".to_owned());
        }
        // If a backend handles refreshes, it decides when the session expires.
        self.expiry_s = granted.and_then(|granted| granted.expires_at_s).filter(|_| backend.refresh.is_none());
        self.latest_expiry_s = self.latest_of_operators(self.expiry_s);
        let mut allowed_expiries = self.expiries_by_api.iter().copied().chain([self.expiry_s]);
        if backend.refresh.is_some() {
            check_ttl(receiving, None, result.expires, result.ttl)?;
        } else if !allowed_expiries.any(|expiry_s| check_ttl(receiving, expiry_s, result.expires, result.ttl).is_ok()) {
            check_ttl(receiving, self.expiry_s, result.expires, result.ttl)?;
        }
        let ping_s = receiving.options.client.ping_interval_ms / 1_000;
        if u64::from(result.ping) != ping_s || result.pong == self.profile.wire.is_unidirectional() {
            return Err("the connect reply has wrong ping options".to_owned());
        }
        self.on_server_side(receiving, request, subs, &result.subs)
    }

    /// The latest of `expiry_s` and the expiries that operators set. `None` means never.
    pub(super) fn latest_of_operators(&self, expiry_s: Option<u64>) -> Option<u64> {
        self.expiries_by_api.iter().fold(expiry_s, |latest, expiry| Some(latest?.max((*expiry)?)))
    }

    fn on_subscribed(
        &mut self,
        receiving: &mut ReceiveContext<'_>,
        request: &Pending,
        result: &SubscribeBody,
    ) -> Result<(), String> {
        let SubscribeCommand { channel, token, .. } = request.subscribe()?;
        let limits = receiving.limits();
        let received = (self.profile.encoding, receiving.unix_ms);
        let mut subscription = match request.join {
            Some(_) => check_join(receiving.model, limits, request, result)?,
            None => check_recovery(receiving.model, limits, request, result, received)?,
        };
        let rules = receiving.model.channel(channel).and_then(|facts| facts.rules.as_ref());
        let uses_backend = |proxy: fn(&NamespaceOptions) -> Option<ProxyIndex>| rules.and_then(proxy).is_some();
        if let Some((token, _)) = request.join.and_then(|_| seat_answer(&result.data)) {
            self.seat_tokens.entry(channel.clone()).or_default().push(token);
        }
        let data = if request.join.is_some() { &[][..] } else { &result.data };
        let granted = receiving.granted(token, uses_backend(|rules| rules.subscribe_proxy), data)?;
        if granted.is_some_and(|granted| granted.channel != *channel) {
            return Err(format!("subscribed to {channel} with a token for {granted:?}"));
        }
        let expires_at_s = granted.and_then(|granted| granted.expires_at_s);
        subscription.expiry_s = expires_at_s.filter(|_| !uses_backend(|rules| rules.sub_refresh_proxy));
        subscription.latest_expiry_s = subscription.expiry_s;
        check_ttl(receiving, subscription.expiry_s, result.expires, result.ttl)?;
        if result.id > 0 {
            receiving.model.assign_number(result.id, channel)?;
        }
        self.subscriptions.insert(channel.clone(), subscription);
        Ok(())
    }

    /// Ends a subscription and keeps its position.
    pub(super) fn forget(&mut self, channel: &str) {
        if let Some(subscription) = self.subscriptions.remove(channel)
            && let Some(position) = subscription.position()
        {
            self.positions.insert(channel.to_owned(), position);
        }
    }

    /// Whether an action of the client, or its expiry, is a reason for the server to close with `code`. The caller
    /// checks the actions of operators.
    pub fn permits_close(&self, code: Option<u16>, unix_ms: u64) -> bool {
        let CloseReasons {
            broke_protocol,
            was_rejected,
            sent_message,
            forged_token,
            expired_refresh,
            refreshed,
            sub_refreshed: _,
            violated,
            closed,
        } = &self.close_reasons;
        let expiries = self.expiries_by_api.iter().filter(|_| !self.is_extended).chain([&self.expiry_s]);
        let has_expired = expiries.flatten().any(|at_s| at_s * 1_000 + 300 <= unix_ms);
        match code {
            Some(3005) => has_expired || *expired_refresh,
            // A refresh fails this way if the client left a channel of its token.
            Some(3010) => *refreshed && !self.server_side.is_empty(),
            Some(3500) => *forged_token,
            Some(3501) => *broke_protocol || *was_rejected || *sent_message,
            Some(3502) => self.id.is_empty(),
            Some(3508) => *sent_message,
            code => code.is_some() && *violated == code || *closed == ClientClose::Sent(code),
        }
    }

    /// Sends a close frame.
    pub fn close(&mut self, code: Option<u16>) {
        self.close_reasons.closed = ClientClose::Sent(code);
        self.to_server.push(ToServer::Close(code));
    }
}

/// The label of a connection with this transport.
const fn connected_on(wire: Wire) -> &'static str {
    match wire {
        Wire::WebSocketJson => "connected on WebSocketJson",
        Wire::WebSocketProtobuf => "connected on WebSocketProtobuf",
        Wire::WebSocketDeflateJson => "connected on WebSocketDeflateJson",
        Wire::WebSocketDeflateProtobuf => "connected on WebSocketDeflateProtobuf",
        Wire::HttpStreamJson => "connected on HttpStreamJson",
        Wire::HttpStreamProtobuf => "connected on HttpStreamProtobuf",
        Wire::Sse => "connected on Sse",
        Wire::UniWebSocket => "connected on UniWebSocket",
        Wire::UniWebSocketDeflate => "connected on UniWebSocketDeflate",
        Wire::UniHttpStream => "connected on UniHttpStream",
        Wire::UniSse => "connected on UniSse",
    }
}

fn on_history(
    receiving: &mut ReceiveContext<'_>,
    user: &str,
    request: &Pending,
    result: &HistoryBody,
) -> Result<(), String> {
    let ClientCommand::History { channel, limit, since, reverse } = &request.command else {
        return Err("not a history command".to_owned());
    };
    let most = i32::try_from(receiving.options.client.history_publications_max).unwrap_or(i32::MAX);
    let limit = if (0..=most).contains(limit) { *limit } else { most };
    if let Some(facts) = receiving.model.channel_mut(channel) {
        facts.record_use(&result.epoch, request.sent_us);
    }
    let request = (limit, since.as_ref(), *reverse);
    if receiving.rooms.is_some_and(|rooms| rooms.channels.contains(channel)) {
        return check_room_history(&mut receiving.model.rooms.lock(), (channel, user), request, result);
    }
    check_history(receiving.model, channel, request, result, 0)
}

/// Checks the time to live in a reply against the expiry of the token. The server may have computed it earlier.
pub(super) fn check_ttl(
    receiving: &ReceiveContext<'_>,
    expiry_s: Option<u64>,
    expires: bool,
    ttl: u32,
) -> Result<(), String> {
    let now_s = receiving.unix_ms / 1_000;
    let least = expiry_s.map(|expiry_s| expiry_s.saturating_sub(now_s));
    match least {
        Some(least) if expires && u64::from(ttl) >= least => Ok(()),
        None if !expires && ttl == 0 => Ok(()),
        _ => Err(format!("expires {expires}, ttl {ttl}, but the token expires at {expiry_s:?}, now {now_s}")),
    }
}

/// The longest time for which the server may serve an expired session or subscription: the close delay, a late timer,
/// and the rounding of the time to live to seconds.
pub(super) fn grace_ms(receiving: &ReceiveContext<'_>) -> u64 {
    receiving.options.client.expired_close_delay_ms + crate::plan::LATE_WAKE_US / 1_000 + 1_000
}

/// A pending command with default values.
pub(super) fn pending(command: ClientCommand) -> Pending {
    Pending {
        command,
        sent_us: 0,
        api_count: 0,
        api_counts: BTreeMap::new(),
        number: None,
        had: false,
        at_limit: false,
        input: None,
        join: None,
        newest_follows_reply: false,
    }
}
