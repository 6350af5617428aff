//! What a client makes of what it reads, and whether it could be true.

use std::collections::BTreeMap;

use dunlin_engine::{Options, options::RecoveryMode};

use crate::{
    checks::{
        Limits, Verdict, accept_input, check_history, check_join, check_recovery, check_room_history,
        could_recover_surely, judge_error, judge_success, refuse_input,
    },
    model::{Fate, Model},
    plan::RoomPlan,
    token::Tokens,
    wire::{ErrorBody, HistoryResult, Message, Position, Push, Say, SubscribeResult, WireFrame, decode},
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

    fn limits(&self) -> Limits {
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
            Say::Subscribe { channel, recover: Some(from), .. } if code == 112 => {
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
                    && could_recover_surely(hearing.model, limits, facts, from, now, hearing.unix_ms)
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
            (Say::Connect { token, subs }, Message { connect: Some(result), .. }) => {
                self.phase = Phase::Live;
                self.id.clone_from(&result.client);
                self.hear_server_side(hearing, asked, subs, &result.subs)?;
                self.expiry_s = hearing.tokens.find(token).and_then(|token| token.expires_at_s);
                self.latest_expiry_s = self.expiry_s;
                check_ttl(hearing, self.expiry_s, result.expires, result.ttl)?;
                if result.ping != 2 || !result.pong {
                    return Err("the connect reply tells other pings".to_owned());
                }
                return Ok(Some(Next::Connected));
            }
            (Say::Refresh { token }, Message { refresh: Some(result), .. }) => {
                self.expiry_s = hearing.tokens.find(token).and_then(|token| token.expires_at_s);
                check_ttl(hearing, self.expiry_s, result.expires, result.ttl)?;
            }
            (Say::Subscribe { channel, token, .. }, Message { subscribe: Some(result), .. }) => {
                let limits = hearing.limits();
                let mut subscription = match asked.join {
                    Some(_) => check_join(hearing.model, limits, asked, &result)?,
                    None => check_recovery(hearing.model, limits, asked, &result, hearing.unix_ms)?,
                };
                subscription.expiry_s = hearing.tokens.find(token).and_then(|token| token.expires_at_s);
                subscription.latest_expiry_s = subscription.expiry_s;
                check_ttl(hearing, subscription.expiry_s, result.expires, result.ttl)?;
                self.subscriptions.insert(channel.clone(), subscription);
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
            (Say::Rpc, Message { rpc: Some(_), .. }) => {}
            (say, message) => return Err(format!("{message:?} answers {say:?}")),
        }
        Ok(None)
    }

    /// What `connect` says of the server's subscriptions: all of the token's are there, and nothing else but what an
    /// operator made meanwhile.
    fn hear_server_side(
        &mut self,
        hearing: &mut Hearing<'_>,
        asked: &Pending,
        recovers: &[(String, Position)],
        results: &BTreeMap<String, SubscribeResult>,
    ) -> Result<(), String> {
        for channel in &self.server_side {
            let was_ended = || {
                let of_channel = |order: &&Order| order.channel.is_empty() || order.channel == *channel;
                hearing.ended.iter().filter(of_channel).any(|order| order.is_about(&self.profile.user, &self.id))
            };
            if !results.contains_key(channel) && !was_ended() {
                return Err(format!("connect is answered without {channel}, which the token subscribes to"));
            }
        }
        for (channel, result) in results {
            let of_token = self.server_side.contains(channel);
            let recover = recovers.iter().find(|(of, _)| of == channel).map(|(_, position)| position.clone());
            let api_count = match asked.api_counts.get(channel) {
                Some(count) if of_token => *count,
                _ => self.ordered_count(hearing, channel)?,
            };
            let asked = Pending { sent_us: asked.sent_us, api_count, ..pending(server_side(channel, recover)) };
            self.enter(hearing, channel, &asked, result)?;
        }
        Ok(())
    }

    /// The API's publications when an operator subscribed the client to `channel`, at the least.
    fn ordered_count(&self, hearing: &Hearing<'_>, channel: &str) -> Result<u64, String> {
        let orders = hearing.subscribed.iter().filter(|order| order.channel == channel);
        let about = orders.filter(|order| order.is_about(&self.profile.user, &self.id));
        about.map(|order| order.api_count).min().ok_or_else(|| format!("nobody subscribed the client to {channel}"))
    }

    fn enter(
        &mut self,
        hearing: &mut Hearing<'_>,
        channel: &str,
        asked: &Pending,
        result: &SubscribeResult,
    ) -> Result<(), String> {
        let limits = hearing.limits();
        let subscription = check_recovery(hearing.model, limits, asked, result, hearing.unix_ms)?;
        if result.expires || self.subscriptions.insert(channel.to_owned(), subscription).is_some() {
            return Err(format!("{channel}: the server subscribes once more, or for a time"));
        }
        Ok(())
    }

    fn hear_push(&mut self, hearing: &mut Hearing<'_>, push: Push) -> Result<Option<Next>, String> {
        let channel = push.channel;
        if let Some(result) = &push.subscribe {
            let api_count = self.ordered_count(hearing, &channel)?;
            let asked = Pending { api_count, ..pending(server_side(&channel, None)) };
            return self.enter(hearing, &channel, &asked, result).map(|()| None);
        }
        let Some(subscription) = self.subscriptions.get_mut(&channel) else {
            return Err(format!("a push for {channel} without a subscription"));
        };
        match (push.publication, push.join, push.leave, push.unsubscribe) {
            (Some(publication), None, None, None) if subscription.seat.is_some() => {
                subscription.of_room(&mut hearing.model.rooms.pages(), self.profile.encoding, &publication)?;
            }
            (Some(publication), None, None, None) => {
                let latest_s = [subscription.latest_expiry_s, self.latest_expiry_s].into_iter().flatten().min();
                // One that expires while its owner answers is ended by the next timer after the answer.
                let after_answer_ms = subscription.live_ms + crate::plan::LATE_WAKE_US / 1_000;
                let number = subscription.publication(hearing.model, &publication)?;
                let accepted_ms = hearing.model.published[number as usize].accepted_ms;
                let is_late = |at_s: u64| accepted_ms > after_answer_ms.max(at_s * 1_000 + grace_ms(hearing));
                if latest_s.is_some_and(is_late) {
                    return Err(format!("{channel}: a publication after the expiry, {latest_s:?}"));
                }
            }
            (None, Some(join), None, None) => subscription.who(&join.info.client, true)?,
            (None, None, Some(leave), None) => subscription.who(&leave.info.client, false)?,
            (None, None, None, Some(unsubscribe)) => {
                let code = unsubscribe.code;
                let expiry_s = subscription.expiry_s;
                let has_expired = expiry_s.is_some_and(|at_s| at_s * 1_000 + 300 <= hearing.unix_ms);
                let was_ended = hearing.ended.iter().any(|order| {
                    let of_channel = order.channel.is_empty() || order.channel == channel;
                    of_channel && order.is_about(&self.profile.user, &self.id) && u32::from(order.code) == code
                });
                let room = subscription.seat.as_ref().map(|seat| seat.room);
                let has_ended = room.is_some_and(|room| hearing.model.rooms.pages().ended_with(room, code));
                let is_lost = code == 2500 && subscription.positioned && hearing.lost.contains(&channel);
                if !(was_ended || code == 2501 && has_expired || has_ended || is_lost) {
                    return Err(format!("{channel}: unsubscribed with {code}, expiry {expiry_s:?}"));
                }
                self.forget(&channel);
                return Ok((code >= 2500).then_some(Next::Resubscribes(channel)));
            }
            other => return Err(format!("a push that is not one thing: {other:?}")),
        }
        Ok(None)
    }

    /// Ends a subscription, and keeps its position.
    fn forget(&mut self, channel: &str) {
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
        let has_expired = self.expiry_s.is_some_and(|at_s| at_s * 1_000 + 300 <= unix_ms);
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

/// What a client would have said to have the subscription.
fn server_side(channel: &str, recover: Option<Position>) -> Say {
    Say::Subscribe {
        channel: channel.to_owned(),
        token: String::new(),
        recover,
        positioned: false,
        recoverable: false,
        join_leave: false,
        reject_unrecoverable: false,
        data: Vec::new(),
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
fn check_ttl(hearing: &Hearing<'_>, expiry_s: Option<u64>, expires: bool, ttl: u32) -> Result<(), String> {
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
fn grace_ms(hearing: &Hearing<'_>) -> u64 {
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
