//! What a client makes of what it reads, and whether it could be true.

use std::collections::{BTreeMap, BTreeSet};

use dunlin_engine::{
    Options,
    backend::ProxyIndex,
    options::{NamespaceOptions, RecoveryMode},
};

use crate::{
    checks::{
        Limits, Verdict, accept_input, check_history, check_join, check_recovery, check_room_history,
        could_recover_surely, judge_error, judge_success, refuse_input,
    },
    model::{Fate, Model},
    plan::RoomPlan,
    token::{Token, Tokens},
    wire::{ConnectResult, ErrorBody, HistoryResult, Message, Say, SubscribeResult, WireFrame, decode},
};

use super::{Client, Goodbye, Misdeeds, Order, Pending, Phase, Upward};

/// What a client needs to know to judge what it hears.
pub struct Hearing<'a> {
    /// Options of the node.
    pub options: &'a Options,
    /// The rooms of the plan.
    pub rooms: Option<&'a RoomPlan>,
    /// What is known.
    pub model: &'a mut Model,
    /// All tokens.
    pub tokens: &'a Tokens,
    /// Subscriptions that operators ended.
    pub ended: &'a [Order],
    /// Subscriptions that operators made.
    pub subscribed: &'a [Order],
    /// Sessions and subscriptions that the backend said are over.
    pub lapsed: &'a BTreeSet<(String, String)>,
    /// Channels whose streams went under their subscribers.
    pub lost: &'a [String],
    /// The time.
    pub now_us: u64,
    /// The same in Unix milliseconds.
    pub unix_ms: u64,
}

/// What a client does next about its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The server said goodbye.
    Closed(Option<u16>),
    /// `connect` was answered: subscribe to what was had before.
    Connected,
    /// A subscription ended with a code that asks to come back.
    Resubscribes(String),
}

impl Hearing<'_> {
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

    pub(super) fn limits(&self) -> Limits {
        let client = &self.options.client;
        Limits { recovery_publications_max: client.recovery_publications_max, queue_bytes_max: client.queue_bytes_max }
    }
}

impl Client {
    /// Takes in bytes from its socket; says what to do next, for each message that asks for something.
    ///
    /// # Errors
    /// Whatever in them cannot be true.
    pub fn read(&mut self, hearing: &mut Hearing<'_>, bytes: impl Iterator<Item = u8>) -> Result<Vec<Next>, String> {
        self.reader.feed(bytes);
        let mut next = Vec::new();
        while let Some(frame) = self.reader.next()? {
            if self.phase == Phase::Over {
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
                WireFrame::Close(code, _) => {
                    self.phase = Phase::Over;
                    next.push(Next::Closed(code));
                    continue;
                }
            };
            for message in decode(self.profile.encoding, &payload)? {
                next.extend(self.hear(hearing, message)?);
            }
        }
        Ok(next)
    }

    /// Whether the bytes read so far end within a frame.
    pub fn is_within_frame(&self) -> bool {
        self.reader.is_within_frame()
    }

    fn hear(&mut self, hearing: &mut Hearing<'_>, message: Message) -> Result<Option<Next>, String> {
        if message == Message::default() {
            self.pings += 1;
            if self.profile.answers_pings {
                self.add((Say::Pong, pending(Say::Pong)));
                self.send_frame();
            }
            return Ok(None);
        }
        if message.id == 0 {
            let push = message.push.ok_or("a message without an id is no push")?;
            return self.hear_push(hearing, push);
        }
        let id = message.id;
        let asked = self.pending.remove(&id).ok_or_else(|| format!("a reply to {id}, which waits for none"))?;
        let outcome = match message.error {
            Some(error) => self.hear_error(hearing, &asked, &error).map(|()| None),
            None => self.hear_success(hearing, &asked, message),
        };
        outcome.map_err(|error| format!("reply {id}: {error}"))
    }

    fn hear_error(&mut self, hearing: &mut Hearing<'_>, asked: &Pending, error: &ErrorBody) -> Result<(), String> {
        let code = error.code;
        if let (Some(number), Some(rooms), Say::Publish { channel, .. }) = (asked.input, hearing.rooms, &asked.say) {
            let seat = self.subscriptions.get(channel).and_then(|subscription| subscription.seat.as_deref());
            return refuse_input(&mut hearing.model.rooms.pages(), rooms, number, seat, code);
        }
        if let Some(join) = asked.join.filter(|_| matches!(code, 100 | 400..)) {
            return hearing.model.rooms.pages().refuse_join(join, hearing.rooms, code, &error.message);
        }
        judge_error(&hearing.verdict(&self.profile.user, &self.id), asked, code)?;
        if let Some(number) = asked.number {
            hearing.model.published[number as usize].fate = Fate::Refused;
        }
        match &asked.say {
            Say::Connect { .. } => {
                self.phase = Phase::Refused;
                self.misdeeds.was_refused = true;
            }
            Say::Subscribe { channel, .. } if code == 112 && asked.join.is_some() => {
                self.positions.remove(channel);
            }
            Say::Subscribe { channel, recover: Some(from), filter, .. } if code == 112 => {
                let facts = hearing.model.channel(channel).ok_or("an unknown channel")?;
                let top = facts.tops.get(&from.epoch).copied().unwrap_or(0);
                // What is cached now may have come since; and all there is must be known.
                let is_stream = facts.rules.as_ref().is_some_and(|rules| rules.recovery_mode == RecoveryMode::Stream);
                let is_known = is_stream && hearing.model.offsets_at_most(channel) == top;
                let is_alive = facts.is_alive(&from.epoch, hearing.now_us);
                let limits = hearing.limits();
                let now = (&*from.epoch, top);
                if is_known
                    && is_alive
                    && could_recover_surely(
                        hearing.model,
                        limits,
                        facts,
                        (from, filter.as_deref()),
                        now,
                        hearing.unix_ms,
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

    fn hear_success(
        &mut self,
        hearing: &mut Hearing<'_>,
        asked: &Pending,
        message: Message,
    ) -> Result<Option<Next>, String> {
        judge_success(&hearing.verdict(&self.profile.user, &self.id), asked)?;
        match (&asked.say, message) {
            (Say::Connect { .. }, Message { connect: Some(result), .. }) => {
                self.hear_connected(hearing, asked, &result)?;
                return Ok(Some(Next::Connected));
            }
            (Say::Refresh { token }, Message { refresh: Some(result), .. }) => {
                self.expiry_s = hearing.tokens.find(token).and_then(|token| token.expires_at_s);
                check_ttl(hearing, self.expiry_s, result.expires, result.ttl)?;
            }
            (Say::Subscribe { .. }, Message { subscribe: Some(result), .. }) => {
                self.hear_subscribed(hearing, asked, &result)?;
            }
            (Say::SubRefresh { channel, token }, Message { sub_refresh: Some(result), .. }) => {
                let expiry_s = hearing.tokens.find(token).and_then(|token| token.expires_at_s);
                check_ttl(hearing, expiry_s, result.expires, result.ttl)?;
                if let Some(subscription) = self.subscriptions.get_mut(channel) {
                    subscription.expiry_s = expiry_s;
                }
            }
            (Say::Unsubscribe { channel }, Message { unsubscribe: Some(_), .. }) => self.forget(channel),
            (Say::Publish { .. }, Message { publish: Some(_), .. }) => {
                if let Some(input) = asked.input {
                    return accept_input(&mut hearing.model.rooms.pages(), input).map(|()| None);
                }
                let number = asked.number.ok_or("a publish without a number")?;
                hearing.model.published[number as usize].fate = Fate::Accepted;
            }
            (Say::Presence { .. }, Message { presence: Some(result), .. }) => {
                if result.presence.iter().any(|(client, info)| *client != info.client) {
                    return Err("a client under another's id in presence".to_owned());
                }
            }
            (Say::PresenceStats { .. }, Message { presence_stats: Some(result), .. }) => {
                if result.num_users > result.num_clients {
                    return Err(format!("{result:?}"));
                }
            }
            (Say::History { .. }, Message { history: Some(result), .. }) => {
                hear_history(hearing, &self.profile.user, asked, &result)?;
            }
            (Say::Rpc { method }, Message { rpc: Some(result), .. }) => {
                if result.data != format!("\"{method}\"").into_bytes() {
                    return Err(format!("{method} returns {}", String::from_utf8_lossy(&result.data)));
                }
            }
            (say, message) => return Err(format!("{message:?} answers {say:?}")),
        }
        Ok(None)
    }

    fn hear_connected(
        &mut self,
        hearing: &mut Hearing<'_>,
        asked: &Pending,
        result: &ConnectResult,
    ) -> Result<(), String> {
        let Say::Connect { token, subs } = &asked.say else { return Err("no connect command".to_owned()) };
        self.phase = Phase::Live;
        self.id.clone_from(&result.client);
        let backend = &hearing.options.backend;
        let paper = hearing.paper(token, backend.connect.is_some(), &result.data)?;
        if token.is_empty() {
            self.server_side = paper.map_or_else(Vec::new, |paper| paper.subs.clone());
        }
        if paper.is_some_and(|paper| !self.profile.user.is_empty() && paper.user != self.profile.user) {
            return Err("let in as somebody else".to_owned());
        }
        // Where a backend is asked it expires when that says so.
        self.expiry_s = paper.and_then(|paper| paper.expires_at_s).filter(|_| backend.refresh.is_none());
        self.latest_expiry_s = self.latest_of_operators(self.expiry_s);
        let mut told = self.expiries_by_api.iter().copied().chain([self.expiry_s]);
        if backend.refresh.is_some() {
            check_ttl(hearing, None, result.expires, result.ttl)?;
        } else if !told.any(|expiry_s| check_ttl(hearing, expiry_s, result.expires, result.ttl).is_ok()) {
            check_ttl(hearing, self.expiry_s, result.expires, result.ttl)?;
        }
        if result.ping != 2 || !result.pong {
            return Err("the connect reply tells other pings".to_owned());
        }
        self.hear_server_side(hearing, asked, subs, &result.subs)
    }

    /// The later of `expiry_s` and what operators set.
    pub(super) fn latest_of_operators(&self, expiry_s: Option<u64>) -> Option<u64> {
        self.expiries_by_api.iter().fold(expiry_s, |latest, expiry| Some(latest?.max((*expiry)?)))
    }

    fn hear_subscribed(
        &mut self,
        hearing: &mut Hearing<'_>,
        asked: &Pending,
        result: &SubscribeResult,
    ) -> Result<(), String> {
        let Say::Subscribe { channel, token, .. } = &asked.say else { return Err("no subscribe command".to_owned()) };
        let limits = hearing.limits();
        let heard = (self.profile.encoding, hearing.unix_ms);
        let mut subscription = match asked.join {
            Some(_) => check_join(hearing.model, limits, asked, result)?,
            None => check_recovery(hearing.model, limits, asked, result, heard)?,
        };
        let rules = hearing.model.channel(channel).and_then(|facts| facts.rules.as_ref());
        let asks = |whom: fn(&NamespaceOptions) -> Option<ProxyIndex>| rules.and_then(whom).is_some();
        let paper = hearing.paper(token, asks(|rules| rules.subscribe_proxy), &result.data)?;
        if paper.is_some_and(|paper| paper.channel != *channel) {
            return Err(format!("subscribed to {channel} by what is said of {paper:?}"));
        }
        let expires_at_s = paper.and_then(|paper| paper.expires_at_s);
        subscription.expiry_s = expires_at_s.filter(|_| !asks(|rules| rules.sub_refresh_proxy));
        subscription.latest_expiry_s = subscription.expiry_s;
        check_ttl(hearing, subscription.expiry_s, result.expires, result.ttl)?;
        if result.id > 0 {
            hearing.model.numbers(result.id, channel)?;
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
            said_send,
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
            Some(3501) => *broke_protocol || *was_refused || *said_send,
            Some(3502) => self.id.is_empty(),
            Some(3508) => *said_send,
            code => code.is_some() && *violated == code || *closed == Goodbye::Said(code),
        }
    }

    /// Says goodbye.
    pub fn close(&mut self, code: Option<u16>) {
        self.misdeeds.closed = Goodbye::Said(code);
        self.upward.push(Upward::Close(code));
    }
}

fn hear_history(hearing: &mut Hearing<'_>, user: &str, asked: &Pending, result: &HistoryResult) -> Result<(), String> {
    let Say::History { channel, limit, since, reverse } = &asked.say else { return Err("no history".to_owned()) };
    let most = i32::try_from(hearing.options.client.history_publications_max).unwrap_or(i32::MAX);
    let limit = if (0..=most).contains(limit) { *limit } else { most };
    if let Some(facts) = hearing.model.channel_mut(channel) {
        facts.used(&result.epoch, asked.sent_us);
    }
    let asked = (limit, since.as_ref(), *reverse);
    if hearing.rooms.is_some_and(|rooms| rooms.channels.contains(channel)) {
        return check_room_history(&mut hearing.model.rooms.pages(), (channel, user), asked, result);
    }
    check_history(hearing.model, channel, asked, result, 0)
}

/// Whether the seconds to live are those of the token, at some moment since it was presented.
pub(super) fn check_ttl(hearing: &Hearing<'_>, expiry_s: Option<u64>, expires: bool, ttl: u32) -> Result<(), String> {
    let now_s = hearing.unix_ms / 1_000;
    let least = expiry_s.map(|expiry_s| expiry_s.saturating_sub(now_s));
    match least {
        Some(least) if expires && u64::from(ttl) >= least => Ok(()),
        None if !expires && ttl == 0 => Ok(()),
        _ => Err(format!("expires {expires}, ttl {ttl}, by the token {expiry_s:?} at {now_s}")),
    }
}

/// The longest time for which something that has expired may still be served: grace, a late timer, and the second that
/// a time to live is rounded by.
pub(super) fn grace_ms(hearing: &Hearing<'_>) -> u64 {
    hearing.options.client.expired_close_delay_ms + crate::plan::LATE_WAKE_US / 1_000 + 1_000
}

/// A command that is not waited for.
pub(super) fn pending(say: Say) -> Pending {
    Pending {
        say,
        sent_us: 0,
        api_count: 0,
        api_counts: BTreeMap::new(),
        number: None,
        had: false,
        at_limit: false,
        input: None,
        join: None,
    }
}
