//! The actions of clients.

use crate::{
    chance::Chance,
    checks::Subscription,
    model::{Model, Publisher},
    plan::{KIND_TAG, KINDS, NUMBER_TAG, NUMBERS, Plan, RESTRICTED},
    token::{Flaw, Token, Tokens},
    wire::{ClientCommand, ClientPosition, Filter, SubscribeCommand},
};

use super::{Client, ClientClose, ClientPhase, Pending, ToServer, receive::pending};

/// What a client needs to act.
pub struct ActContext<'a> {
    pub plan: &'a Plan,
    pub chance: &'a mut Chance,
    pub model: &'a mut Model,
    pub tokens: &'a mut Tokens,
    pub now_us: u64,
    /// The time in Unix seconds.
    pub now_s: u64,
}

impl ActContext<'_> {
    /// Issues a token for the client, mostly a valid one. An empty `channel` means a connection token.
    fn token(&mut self, client: &mut Client, channel: &str) -> String {
        let violations_percent = client.profile.violations_percent;
        let flaws: &[Flaw] = if client.phase == ClientPhase::Live {
            &[Flaw::Forged, Flaw::Expired, Flaw::Foreign]
        } else {
            &[Flaw::Expired]
        };
        let flaw = if self.chance.percent(violations_percent) { *self.chance.pick(flaws) } else { Flaw::None };
        let expires_at_s = self.chance.percent(50).then(|| self.now_s + self.chance.between(1, 4));
        client.close_reasons.forged_token |= matches!(flaw, Flaw::Forged | Flaw::Foreign);
        let subs = if channel.is_empty() { client.server_side.clone() } else { Vec::new() };
        let (user, channel) = (client.profile.user.clone(), channel.to_owned());
        self.tokens.issue(Token { flaw, user, channel, expires_at_s, subs, ..Token::default() })
    }

    /// A random filter for a channel, or none. It is rarely used where filters are not allowed.
    fn filter(&mut self, channel: &str) -> Option<Filter> {
        let rules = self.model.channel(channel).and_then(|facts| facts.rules.as_ref());
        let share = if rules.is_some_and(|rules| rules.allow_tags_filter) { 50 } else { 3 };
        self.chance.percent(share).then(|| self.random_filter(3))
    }

    fn random_filter(&mut self, depth: usize) -> Filter {
        match self.chance.below(12) {
            0 => Filter::Tag(KIND_TAG, self.word(&["in", "nin"]), vec!["a", self.word(&KINDS)]),
            1 => Filter::Tag(self.word(&[KIND_TAG, NUMBER_TAG]), self.word(&["ex", "nex"]), Vec::new()),
            2 | 3 => Filter::Tag(NUMBER_TAG, self.word(&["gt", "gte", "lt", "lte"]), vec![self.word(&NUMBERS)]),
            4 | 5 => Filter::Tag(KIND_TAG, self.word(&["neq", "sw", "ew", "ct"]), vec![self.word(&KINDS)]),
            6 if depth > 0 => Filter::Of("not", vec![self.random_filter(depth - 1)]),
            7 | 8 if depth > 0 => {
                let of = self.word(&["and", "or"]);
                let count = self.chance.between(1, 3);
                Filter::Of(of, (0..count).map(|_| self.random_filter(depth - 1)).collect())
            }
            9 if self.chance.percent(20) => Filter::Of(self.word(&["xor", "or", "not"]), Vec::new()),
            _ => Filter::Tag(KIND_TAG, "eq", vec![self.word(&KINDS)]),
        }
    }

    fn word(&mut self, of: &'static [&'static str]) -> &'static str {
        of[self.chance.below(of.len())]
    }

    /// Whether clients may read nothing for long.
    fn has_seldom_pings(&self) -> bool {
        self.plan.rooms.as_ref().is_some_and(|rooms| rooms.seldom_pings)
    }

    fn channel(&mut self) -> String {
        match self.chance.below(40) {
            0 => RESTRICTED.to_owned(),
            1 => "nowhere:a".to_owned(),
            2 => "plain:a-name-that-is-longer-than-a-name-may-be".to_owned(),
            _ => self.plan.channel(self.chance).clone(),
        }
    }

    fn pending(&self, command: ClientCommand, channel: &str) -> (ClientCommand, Pending) {
        pending_of(self, command, channel)
    }
}

/// Pairs a command with the data that the check of its reply needs.
pub(super) fn pending_of(context: &ActContext<'_>, command: ClientCommand, channel: &str) -> (ClientCommand, Pending) {
    let api_count = context.model.channel(channel).map_or(0, |facts| facts.api_count);
    (command.clone(), Pending { sent_us: context.now_us, api_count, ..pending(command) })
}

impl Client {
    /// Sends a connect command.
    pub fn connect(&mut self, context: &mut ActContext<'_>) {
        let user = self.profile.user.clone();
        let backend = &context.plan.options.backend;
        self.is_extended = backend.refresh.is_some();
        let by_backend = backend.connect.is_some() && (user.is_empty() || context.chance.percent(50));
        if user.is_empty() && !by_backend {
            self.server_side.clear();
        } else if !by_backend {
            self.server_side = context.plan.server_side(context.chance);
        }
        let token = if user.is_empty() || by_backend { String::new() } else { context.token(self, "") };
        // The token may expire before the connect reply.
        self.expiry_s = context.tokens.find(&token).and_then(|token| token.expires_at_s);
        self.expiry_s = self.expiry_s.filter(|_| backend.refresh.is_none());
        let known = self.server_side.iter().filter_map(|channel| {
            let position = self.positions.get(channel)?.clone();
            Some((channel.clone(), position))
        });
        let subs = known.collect();
        let (command, mut first) = context.pending(ClientCommand::Connect { token, subs }, "");
        let counts = context
            .plan
            .channels
            .iter()
            .map(|channel| (channel.clone(), context.model.channel(channel).map_or(0, |facts| facts.api_count)));
        first.api_counts = counts.collect();
        self.add((command, first));
        self.ping_sometimes(context, 15);
        // Some clients do not wait for the connect reply.
        if !by_backend && !self.profile.wire.is_unidirectional() && context.chance.percent(10) {
            self.add_resubscriptions(context);
        }
        self.send_frame();
    }

    /// Resubscribes to all channels with a position.
    pub fn resubscribe(&mut self, context: &mut ActContext<'_>) {
        if self.profile.wire.is_unidirectional() {
            return;
        }
        self.add_resubscriptions(context);
        self.send_frame();
    }

    /// Resubscribes to one channel.
    pub fn resubscribe_to(&mut self, context: &mut ActContext<'_>, channel: &str) {
        if self.profile.wire.is_unidirectional() {
            return;
        }
        self.add_subscribe(context, channel);
        self.send_frame();
    }

    fn add_resubscriptions(&mut self, context: &mut ActContext<'_>) {
        let most = context.plan.options.client.commands_per_frame_max - 1;
        let must_request =
            |channel: &&String| self.phase != ClientPhase::Connecting || !self.server_side.contains(channel);
        let channels: Vec<String> = self.positions.keys().filter(must_request).take(most).cloned().collect();
        for channel in channels {
            self.add_subscribe(context, &channel);
        }
    }

    /// Adds a subscribe command. If the client already has or requested the subscription, it does so rarely.
    pub(super) fn add_subscribe(&mut self, context: &mut ActContext<'_>, channel: &str) {
        let had =
            self.subscriptions.contains_key(channel) && !self.is_unsubscribing(channel) || self.is_subscribing(channel);
        if had && !context.chance.percent(5) {
            return;
        }
        let needs_token = channel.contains("lock:");
        let token = if needs_token && !context.chance.percent(10) || context.chance.percent(3) {
            context.token(self, channel)
        } else {
            String::new()
        };
        // Without a position, an SDK recovers from the default position, which requests the cached publication. Where clients
        // may not read for long, most do, because the sessions of those that recover hold their joins.
        let unknown_percent = if context.has_seldom_pings() { 80 } else { 20 };
        let recover = match self.positions.get(channel).cloned() {
            // Some clients use an older position.
            Some(position) if context.chance.percent(20) => {
                let offset = position.offset.saturating_sub(context.chance.below(5) as u64);
                Some(ClientPosition { offset, ..position })
            }
            Some(position) if !context.chance.percent(5) => Some(position),
            _ => context.chance.percent(unknown_percent).then(ClientPosition::default),
        };
        let (data, join) = self.join_data(context, channel);
        let subscribe = SubscribeCommand {
            data,
            channel: channel.to_owned(),
            token,
            recover,
            positioned: context.chance.percent(30),
            recoverable: context.chance.percent(70),
            join_leave: context.chance.percent(50),
            reject_unrecoverable: context.chance.percent(20),
            delta: if context.chance.percent(40) { "fossil" } else { "" },
            compact: context.chance.percent(60),
            filter: context.filter(channel),
        };
        let (command, mut pending) = context.pending(ClientCommand::Subscribe(subscribe.into()), channel);
        pending.join = join;
        pending.had = had;
        pending.at_limit = self.subscriptions_at_most() >= context.plan.options.client.channel_limit;
        self.add((command, pending));
    }

    /// Runs a random action of the client, if it may act.
    pub fn act(&mut self, context: &mut ActContext<'_>) {
        if self.phase == ClientPhase::Connecting || self.profile.wire.is_unidirectional() {
            return self.ping_sometimes(context, 20);
        }
        // The server ignores everything after a close frame or a protocol violation.
        if self.phase != ClientPhase::Live
            || self.close_reasons.closed != ClientClose::NotSent
            || self.close_reasons.violated.is_some()
        {
            return;
        }
        if context.chance.percent(self.profile.violations_percent) {
            return self.violate_protocol(context);
        }
        for _ in 0..context.chance.between(1, 3) {
            // One iteration adds at most two commands.
            if self.frame.len() + 2 <= context.plan.options.client.commands_per_frame_max {
                self.add_command(context);
            }
        }
        // So that more waits for clients that do not read than a held join lets wait.
        let large_percent = if context.has_seldom_pings() { 25 } else { 6 };
        if context.chance.percent(large_percent) {
            self.request_large_replies(context);
        }
        self.send_frame();
        self.ping_sometimes(context, 3);
    }

    /// Fills the frame with commands that have large replies.
    fn request_large_replies(&mut self, context: &mut ActContext<'_>) {
        let kept = context.plan.channels.iter().filter(|channel| channel.starts_with("rec:"));
        let kept: Vec<String> = kept.cloned().collect();
        while !kept.is_empty() && self.frame.len() < context.plan.options.client.commands_per_frame_max {
            let channel = context.chance.pick(&kept).clone();
            let command = self.history(context, &channel);
            let command = context.pending(command, &channel);
            self.add(command);
        }
    }

    fn ping_sometimes(&mut self, context: &mut ActContext<'_>, percent: u32) {
        if self.profile.wire.is_websocket() && context.chance.percent(percent) {
            let payload = vec![context.chance.below(256) as u8; context.chance.below(126)];
            self.own_pings.push(payload.clone());
            self.to_server.push(ToServer::Ping(payload));
        }
    }

    fn add_command(&mut self, context: &mut ActContext<'_>) {
        if let Some(rooms) = &context.plan.rooms
            && self.profile.wire.is_websocket()
            && context.chance.percent(40)
        {
            return self.add_room_command(context, rooms);
        }
        let channel = context.channel();
        let command = match context.chance.weighted(&[30, 10, 30, 6, 4, 3, 3, 3, 1, 1]) {
            0 => {
                let any = context.chance.pick(&context.plan.channels);
                let channel = if context.chance.percent(30) { any.clone() } else { channel };
                return self.add_subscribe(context, &channel);
            }
            1 => return self.add_unsubscribe(context),
            2 => return self.add_publish(context, &channel),
            3 => self.history(context, &channel),
            4 => ClientCommand::Presence { channel: channel.clone() },
            5 => ClientCommand::PresenceStats { channel: channel.clone() },
            6 => {
                if context.plan.options.backend.refresh.is_some() {
                    if !context.chance.percent(5) {
                        return;
                    }
                    self.close_reasons.broke_protocol = true;
                }
                let token = context.token(self, "");
                self.close_reasons.refreshed = true;
                self.on_refresh_sent(context, &token);
                ClientCommand::Refresh { token }
            }
            7 => {
                // Clients cannot refresh server-side subscriptions.
                if self.is_subscribing(&channel) || self.server_side.contains(&channel) {
                    return;
                }
                let rules = context.model.channel(&channel).and_then(|facts| facts.rules.as_ref());
                if rules.is_some_and(|rules| rules.sub_refresh_proxy.is_some()) {
                    if !context.chance.percent(10) {
                        return;
                    }
                    self.close_reasons.broke_protocol = true;
                }
                self.close_reasons.sub_refreshed = true;
                let token = context.token(self, &channel);
                if let Some(subscription) = self.subscriptions.get_mut(&channel) {
                    let expiry_s = context.tokens.find(&token).and_then(|token| token.expires_at_s);
                    subscription.latest_expiry_s =
                        subscription.latest_expiry_s.and_then(|latest| expiry_s.map(|expiry| expiry.max(latest)));
                }
                ClientCommand::SubRefresh { channel: channel.clone(), token }
            }
            8 => ClientCommand::Rpc { method: format!("m{}", context.now_us) },
            _ => ClientCommand::Ping,
        };
        let command = context.pending(command, &channel);
        self.add(command);
    }

    fn on_refresh_sent(&mut self, context: &ActContext<'_>, token: &str) {
        let Some(token) = context.tokens.find(token) else { return };
        self.close_reasons.expired_refresh |= token.flaw == Flaw::Expired || token.expires_at_s.is_some();
        self.latest_expiry_s =
            self.latest_expiry_s.and_then(|latest| token.expires_at_s.map(|expiry| expiry.max(latest)));
    }

    /// Adds an unsubscribe command, sometimes followed by another one, or by a subscribe, in the same frame.
    fn add_unsubscribe(&mut self, context: &mut ActContext<'_>) {
        let requested = self.pending.values().filter_map(|pending| match &pending.command {
            ClientCommand::Subscribe(subscribe) => Some(&subscribe.channel),
            _ => None,
        });
        let channels: Vec<String> = self.subscriptions.keys().chain(requested).cloned().collect();
        if channels.is_empty() {
            return;
        }
        let channel = context.chance.pick(&channels).clone();
        self.add_unsubscribe_from(context, &channel);
    }

    pub(super) fn add_unsubscribe_from(&mut self, context: &mut ActContext<'_>, channel: &str) {
        if let Some(position) = self.subscriptions.get(channel).and_then(Subscription::position) {
            self.positions.insert(channel.to_owned(), position);
        }
        let command = context.pending(ClientCommand::Unsubscribe { channel: channel.to_owned() }, channel);
        self.add(command);
        match context.chance.below(10) {
            0..2 => {
                let command = context.pending(ClientCommand::Unsubscribe { channel: channel.to_owned() }, channel);
                self.add(command);
            }
            2..5 => self.add_subscribe(context, channel),
            _ => {}
        }
    }

    fn add_publish(&mut self, context: &mut ActContext<'_>, channel: &str) {
        let fill = match context.chance.below(10) {
            0 => context.chance.between(100, 1_200) as usize,
            _ => context.chance.below(60),
        };
        let publisher = Publisher::Session(self.id.clone());
        let number = context.model.begin_publication(channel, publisher, fill, false);
        let data = context.model.published[number as usize].data.clone();
        let (command, mut pending) =
            context.pending(ClientCommand::Publish { channel: channel.to_owned(), data }, channel);
        pending.number = Some(number);
        self.add((command, pending));
    }

    pub(super) fn history(&mut self, context: &mut ActContext<'_>, channel: &str) -> ClientCommand {
        let limit = *context.chance.pick(&[0, 1, 2, 5, -1, i32::MAX, i32::MIN]);
        let known = self.subscriptions.get(channel).and_then(Subscription::position);
        let since = known.filter(|_| context.chance.percent(60)).map(|mut position| {
            let back = context.chance.below(6) as u64;
            position.offset = position.offset.saturating_sub(back);
            position
        });
        ClientCommand::History { channel: channel.to_owned(), limit, since, reverse: context.chance.percent(30) }
    }

    fn violate_protocol(&mut self, context: &mut ActContext<'_>) {
        let kinds = if self.profile.wire.is_websocket() { 7 } else { 5 };
        let broke = match context.chance.below(kinds) {
            0 => vec![context.pending(ClientCommand::Connect { token: String::new(), subs: Vec::new() }, "")],
            1 => vec![context.pending(ClientCommand::Pong, ""), context.pending(ClientCommand::Pong, "")],
            2 => vec![context.pending(ClientCommand::Unsubscribe { channel: String::new() }, "")],
            3 => {
                let most = context.plan.options.client.commands_per_frame_max;
                (0..=most).map(|_| context.pending(ClientCommand::Rpc { method: "m".to_owned() }, "")).collect()
            }
            4 => {
                self.close_reasons.sent_message = true;
                vec![context.pending(ClientCommand::Send { data: b"{}".to_vec() }, "")]
            }
            5 => {
                let code = *context.chance.pick(&[1002, 1007, 1009]);
                self.close_reasons.violated = Some(code);
                return self.to_server.push(ToServer::Violation(code));
            }
            _ => {
                self.close_reasons.broke_protocol = true;
                let garbage = (0..context.chance.below(20)).map(|_| 0xff - context.chance.below(9) as u8);
                let frame = ToServer::Frame(garbage.collect(), false);
                return self.to_server.push(frame);
            }
        };
        self.close_reasons.broke_protocol |= !self.close_reasons.sent_message;
        for command in broke {
            self.add(command);
        }
        self.send_frame();
    }
}
