//! Handles the messages that a client reads, and checks them.

use std::collections::{BTreeMap, BTreeSet};

use dunlin_engine::{
    Options, Wire,
    backend::ProxyIndex,
    options::{NamespaceOptions, RecoveryMode},
};

use crate::{
    checks::{
        RecoveryLimits, Verdict, accept_input, check_history, check_join, check_recovery, check_room_history,
        could_recover_surely, judge_error, judge_success, refuse_input, seat_answer,
    },
    model::{Fate, Model},
    plan::RoomPlan,
    token::{Token, Tokens},
    wire::{
        ClientCommand, ConnectBody, ErrorBody, HistoryBody, PushBody, ServerMessage, SubscribeBody, WireFrame, decode,
        decode_push,
    },
};

use super::{Client, ClientClose, ClientPhase, Misdeeds, OperatorAction, Pending, Upward};

/// What a client needs to know to judge what it hears.
pub struct ReceiveContext<'a> {
    pub options: &'a Options,
    /// The rooms of the plan.
    pub rooms: Option<&'a RoomPlan>,
    pub model: &'a mut Model,
    pub tokens: &'a Tokens,
    /// Subscriptions that operators ended.
    pub ended: &'a [OperatorAction],
    /// Subscriptions that operators made.
    pub subscribed: &'a [OperatorAction],
    /// Sessions and subscriptions that the backend said are over.
    pub lapsed: &'a BTreeSet<(String, String)>,
    /// Channels whose streams went under their subscribers.
    pub lost: &'a [String],
    pub now_us: u64,
    /// The same in Unix milliseconds.
    pub unix_ms: u64,
}

/// What a client does next about its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The server has closed the session.
    Closed(Option<u16>),
    /// `connect` was answered: subscribe to what was had before.
    Connected,
    /// A subscription ended with a code that asks to come back.
    Resubscribes(String),
}

impl ReceiveContext<'_> {
    fn verdict<'a>(&'a self, user: &'a str, client: &'a str) -> Verdict<'a> {
        let Self { options, tokens, unix_ms, subscribed, .. } = self;
        Verdict { options, tokens, user, now_s: unix_ms / 1_000, subscribed, client }
    }

    /// What a token says or, without one, the backend, whose paper has this name in the data of the reply.
    fn paper(&self, token: &str, asks: bool, data: &[u8]) -> Result<Option<&Token>, String> {
        if !asks || !token.is_empty() {
            let is_true = data.is_empty();
            return is_true.then(|| self.tokens.find(token)).ok_or_else(|| format!("data that nobody gave: {data:?}"));
        }
        let name: String = serde_json::from_slice(data).map_err(|error| error.to_string())?;
        self.tokens.find(&name).map(Some).ok_or_else(|| format!("{name}, which the backend did not say"))
    }

    pub(super) fn limits(&self) -> RecoveryLimits {
        let client = &self.options.client;
        let recovery_bytes_max = client.queue_bytes_max - client.queue_bytes_max / 4;
        RecoveryLimits {
            recovery_publications_max: client.recovery_publications_max,
            recovery_bytes_max,
            queue_bytes_max: client.queue_bytes_max,
            forgets: self.options.channel.channels_max < 1_000,
        }
    }
}

impl Client {
    /// Takes in bytes from its socket; says what to do next, for each message that asks for something.
    ///
    /// # Errors
    /// Whatever in them cannot be true.
    pub fn read(
        &mut self,
        receiving: &mut ReceiveContext<'_>,
        bytes: impl Iterator<Item = u8>,
    ) -> Result<Vec<Next>, String> {
        self.reader.feed(bytes);
        let mut next = Vec::new();
        while let Some(frame) = self.reader.next()? {
            if self.phase == ClientPhase::Over {
                return Err(format!("{frame:?} comes behind the close frame"));
            }
            let payload = match frame {
                WireFrame::Text(payload) | WireFrame::Binary(payload) => payload,
                WireFrame::Pong(payload) => {
                    if self.own_pings.is_empty() || self.own_pings.remove(0) != payload {
                        return Err("a pong answers no ping".to_owned());
                    }
                    continue;
                }
                WireFrame::Ping if self.profile.wire.is_unidirectional() => continue,
                WireFrame::Ping => return Err("a ping frame to a client that speaks".to_owned()),
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
                next.extend(self.on_plain(receiving, &payload)?);
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

    /// Hears a push where only the server speaks. The first brings what `connect` is answered with elsewhere.
    fn on_plain(&mut self, receiving: &mut ReceiveContext<'_>, payload: &[u8]) -> Result<Option<Next>, String> {
        if self.disconnect_code.is_some() {
            return Err("a push comes behind the close frame".to_owned());
        }
        let mut push = decode_push(payload)?;
        if push == PushBody::default() {
            self.pings += 1;
            return Ok(None);
        }
        let Some(result) = push.connect.take() else { return self.on_push(receiving, push) };
        let (_, asked) = self.pending.pop_first().ok_or("connected without having asked")?;
        self.on_success(receiving, &asked, ServerMessage { connect: Some(result), ..ServerMessage::default() })
    }

    fn on_message(
        &mut self,
        receiving: &mut ReceiveContext<'_>,
        message: ServerMessage,
    ) -> Result<Option<Next>, String> {
        if self.disconnect_code.is_some() {
            return Err(format!("{message:?} comes behind the close frame"));
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
            let push = message.push.ok_or("a message without an id is no push")?;
            return self.on_push(receiving, push);
        }
        let id = message.id;
        let asked = self.pending.remove(&id).ok_or_else(|| format!("a reply to {id}, which waits for none"))?;
        let outcome = match message.error {
            Some(error) => self.on_error(receiving, &asked, &error).map(|()| None),
            None => self.on_success(receiving, &asked, message),
        };
        outcome.map_err(|error| format!("reply {id}: {error}"))
    }

    fn on_error(
        &mut self,
        receiving: &mut ReceiveContext<'_>,
        asked: &Pending,
        error: &ErrorBody,
    ) -> Result<(), String> {
        let code = error.code;
        if let (Some(number), Some(rooms), ClientCommand::Publish { channel, .. }) =
            (asked.input, receiving.rooms, &asked.command)
        {
            let seat = self.subscriptions.get(channel).and_then(|subscription| subscription.seat.as_deref());
            return refuse_input(&mut receiving.model.rooms.pages(), rooms, number, seat, code);
        }
        if let Some(join) = asked.join.filter(|_| matches!(code, 100 | 400..)) {
            return receiving.model.rooms.pages().refuse_join(join, receiving.rooms, code, &error.message);
        }
        judge_error(&receiving.verdict(&self.profile.user, &self.id), asked, code)?;
        if let Some(number) = asked.number {
            receiving.model.published[number as usize].fate = Fate::Refused;
        }
        match &asked.command {
            ClientCommand::Connect { .. } => {
                self.phase = ClientPhase::Refused;
                self.misdeeds.was_refused = true;
            }
            ClientCommand::Subscribe { channel, .. } if code == 112 && asked.join.is_some() => {
                self.positions.remove(channel);
            }
            ClientCommand::Subscribe { channel, recover: Some(from), filter, .. } if code == 112 => {
                let facts = receiving.model.channel(channel).ok_or("an unknown channel")?;
                let top = facts.tops.get(&from.epoch).copied().unwrap_or(0);
                // What is cached now may have come since; and all there is must be known.
                let is_stream = facts.rules.as_ref().is_some_and(|rules| rules.recovery_mode == RecoveryMode::Stream);
                let is_known = is_stream && receiving.model.offsets_at_most(channel) == top;
                let is_alive = facts.is_alive(&from.epoch, receiving.now_us);
                let limits = receiving.limits();
                let now = (&*from.epoch, top);
                if is_known
                    && is_alive
                    && could_recover_surely(
                        receiving.model,
                        limits,
                        facts,
                        (from, filter.as_deref()),
                        now,
                        receiving.unix_ms,
                    )
                {
                    return Err(format!("{channel}: refused to recover from {from:?}, though it is all there"));
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
        asked: &Pending,
        message: ServerMessage,
    ) -> Result<Option<Next>, String> {
        judge_success(&receiving.verdict(&self.profile.user, &self.id), asked)?;
        match (&asked.command, message) {
            (ClientCommand::Connect { .. }, ServerMessage { connect: Some(result), .. }) => {
                self.on_connected(receiving, asked, &result)?;
                return Ok(Some(Next::Connected));
            }
            (ClientCommand::Refresh { token }, ServerMessage { refresh: Some(result), .. }) => {
                self.expiry_s = receiving.tokens.find(token).and_then(|token| token.expires_at_s);
                check_ttl(receiving, self.expiry_s, result.expires, result.ttl)?;
            }
            (ClientCommand::Subscribe { .. }, ServerMessage { subscribe: Some(result), .. }) => {
                self.on_subscribed(receiving, asked, &result)?;
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
                if let Some(input) = asked.input {
                    return accept_input(&mut receiving.model.rooms.pages(), input).map(|()| None);
                }
                let number = asked.number.ok_or("a publish without a number")?;
                receiving.model.published[number as usize].fate = Fate::Accepted;
            }
            (ClientCommand::Presence { .. }, ServerMessage { presence: Some(result), .. }) => {
                if result.presence.iter().any(|(client, info)| *client != info.client) {
                    return Err("a client under another's id in presence".to_owned());
                }
            }
            (ClientCommand::PresenceStats { .. }, ServerMessage { presence_stats: Some(result), .. }) => {
                if result.num_users > result.num_clients {
                    return Err(format!("{result:?}"));
                }
            }
            (ClientCommand::History { .. }, ServerMessage { history: Some(result), .. }) => {
                on_history(receiving, &self.profile.user, asked, &result)?;
            }
            (ClientCommand::Rpc { method }, ServerMessage { rpc: Some(result), .. }) => {
                if result.data != format!("\"{method}\"").into_bytes() {
                    return Err(format!("{method} returns {}", String::from_utf8_lossy(&result.data)));
                }
            }
            (command, message) => return Err(format!("{message:?} answers {command:?}")),
        }
        Ok(None)
    }

    fn on_connected(
        &mut self,
        receiving: &mut ReceiveContext<'_>,
        asked: &Pending,
        result: &ConnectBody,
    ) -> Result<(), String> {
        let ClientCommand::Connect { token, subs } = &asked.command else {
            return Err("no connect command".to_owned());
        };
        self.phase = ClientPhase::Live;
        receiving.model.count(connected_on(self.profile.wire));
        self.id.clone_from(&result.client);
        let backend = &receiving.options.backend;
        let paper = receiving.paper(token, backend.connect.is_some(), &result.data)?;
        if token.is_empty() {
            self.server_side = paper.map_or_else(Vec::new, |paper| paper.subs.clone());
        }
        if paper.is_some_and(|paper| !self.profile.user.is_empty() && paper.user != self.profile.user) {
            return Err("let in as somebody else".to_owned());
        }
        // Where a backend is asked it expires when that says so.
        self.expiry_s = paper.and_then(|paper| paper.expires_at_s).filter(|_| backend.refresh.is_none());
        self.latest_expiry_s = self.latest_of_operators(self.expiry_s);
        let mut allowed_expiries = self.expiries_by_api.iter().copied().chain([self.expiry_s]);
        if backend.refresh.is_some() {
            check_ttl(receiving, None, result.expires, result.ttl)?;
        } else if !allowed_expiries.any(|expiry_s| check_ttl(receiving, expiry_s, result.expires, result.ttl).is_ok()) {
            check_ttl(receiving, self.expiry_s, result.expires, result.ttl)?;
        }
        if result.ping != 2 || result.pong == self.profile.wire.is_unidirectional() {
            return Err("the connect reply tells other pings".to_owned());
        }
        self.on_server_side(receiving, asked, subs, &result.subs)
    }

    /// The later of `expiry_s` and what operators set.
    pub(super) fn latest_of_operators(&self, expiry_s: Option<u64>) -> Option<u64> {
        self.expiries_by_api.iter().fold(expiry_s, |latest, expiry| Some(latest?.max((*expiry)?)))
    }

    fn on_subscribed(
        &mut self,
        receiving: &mut ReceiveContext<'_>,
        asked: &Pending,
        result: &SubscribeBody,
    ) -> Result<(), String> {
        let ClientCommand::Subscribe { channel, token, .. } = &asked.command else {
            return Err("no subscribe command".to_owned());
        };
        let limits = receiving.limits();
        let received = (self.profile.encoding, receiving.unix_ms);
        let mut subscription = match asked.join {
            Some(_) => check_join(receiving.model, limits, asked, result)?,
            None => check_recovery(receiving.model, limits, asked, result, received)?,
        };
        let rules = receiving.model.channel(channel).and_then(|facts| facts.rules.as_ref());
        let asks = |whom: fn(&NamespaceOptions) -> Option<ProxyIndex>| rules.and_then(whom).is_some();
        if let Some((token, _)) = asked.join.and_then(|_| seat_answer(&result.data)) {
            self.seat_tokens.entry(channel.clone()).or_default().push(token);
        }
        let data = if asked.join.is_some() { &[][..] } else { &result.data };
        let paper = receiving.paper(token, asks(|rules| rules.subscribe_proxy), data)?;
        if paper.is_some_and(|paper| paper.channel != *channel) {
            return Err(format!("subscribed to {channel} by what is said of {paper:?}"));
        }
        let expires_at_s = paper.and_then(|paper| paper.expires_at_s);
        subscription.expiry_s = expires_at_s.filter(|_| !asks(|rules| rules.sub_refresh_proxy));
        subscription.latest_expiry_s = subscription.expiry_s;
        check_ttl(receiving, subscription.expiry_s, result.expires, result.ttl)?;
        if result.id > 0 {
            receiving.model.numbers(result.id, channel)?;
        }
        self.subscriptions.insert(channel.clone(), subscription);
        Ok(())
    }

    /// Ends a subscription, and keeps its position.
    pub(super) fn forget(&mut self, channel: &str) {
        if let Some(subscription) = self.subscriptions.remove(channel)
            && let Some(position) = subscription.position()
        {
            self.positions.insert(channel.to_owned(), position);
        }
    }

    /// Whether what the client did, or did not do, explains a close by the server with `code`. What the operator did is
    /// judged by the caller.
    pub fn explains_close(&self, code: Option<u16>, unix_ms: u64) -> bool {
        let Misdeeds {
            broke_protocol,
            was_refused,
            sent_message,
            forged_token,
            expired_refresh,
            refreshed,
            sub_refreshed: _,
            violated,
            closed,
        } = &self.misdeeds;
        let expiries = self.expiries_by_api.iter().filter(|_| !self.is_extended).chain([&self.expiry_s]);
        let has_expired = expiries.flatten().any(|at_s| at_s * 1_000 + 300 <= unix_ms);
        match code {
            Some(3005) => has_expired || *expired_refresh,
            // It may have left a channel that its token subscribes to.
            Some(3010) => *refreshed && !self.server_side.is_empty(),
            Some(3500) => *forged_token,
            Some(3501) => *broke_protocol || *was_refused || *sent_message,
            Some(3502) => self.id.is_empty(),
            Some(3508) => *sent_message,
            code => code.is_some() && *violated == code || *closed == ClientClose::Sent(code),
        }
    }

    /// Sends a close frame.
    pub fn close(&mut self, code: Option<u16>) {
        self.misdeeds.closed = ClientClose::Sent(code);
        self.upward.push(Upward::Close(code));
    }
}

/// What is counted when a client is connected.
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
    asked: &Pending,
    result: &HistoryBody,
) -> Result<(), String> {
    let ClientCommand::History { channel, limit, since, reverse } = &asked.command else {
        return Err("no history".to_owned());
    };
    let most = i32::try_from(receiving.options.client.history_publications_max).unwrap_or(i32::MAX);
    let limit = if (0..=most).contains(limit) { *limit } else { most };
    if let Some(facts) = receiving.model.channel_mut(channel) {
        facts.used(&result.epoch, asked.sent_us);
    }
    let asked = (limit, since.as_ref(), *reverse);
    if receiving.rooms.is_some_and(|rooms| rooms.channels.contains(channel)) {
        return check_room_history(&mut receiving.model.rooms.pages(), (channel, user), asked, result);
    }
    check_history(receiving.model, channel, asked, result, 0)
}

/// Whether the seconds to live are those of the token, at some moment since it was presented.
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
        _ => Err(format!("expires {expires}, ttl {ttl}, by the token {expiry_s:?} at {now_s}")),
    }
}

/// The longest time for which something that has expired may still be served: grace, a late timer, and the second that
/// a time to live is rounded by.
pub(super) fn grace_ms(receiving: &ReceiveContext<'_>) -> u64 {
    receiving.options.client.expired_close_delay_ms + crate::plan::LATE_WAKE_US / 1_000 + 1_000
}

/// A command that is not waited for.
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
        newest_behind: false,
    }
}
