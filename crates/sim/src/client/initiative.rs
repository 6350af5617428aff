//! The actions that a client starts itself.

use crate::{
    chance::Chance,
    checks::Subscription,
    model::{Model, Publisher},
    plan::{KIND_TAG, KINDS, NUMBER_TAG, NUMBERS, Plan, RESTRICTED},
    token::{Flaw, Token, Tokens},
    wire::{ClientCommand, ClientPosition, Filter},
};

use super::{Client, ClientClose, ClientPhase, Pending, Upward, receive::pending};

/// What a client needs to act.
pub struct Initiative<'a> {
    pub plan: &'a Plan,
    pub chance: &'a mut Chance,
    pub model: &'a mut Model,
    pub tokens: &'a mut Tokens,
    pub now_us: u64,
    /// The same in Unix seconds.
    pub now_s: u64,
}

impl Initiative<'_> {
    /// A token for `user`, mostly a good one; `channel` is empty for a connection.
    fn token(&mut self, client: &mut Client, channel: &str) -> String {
        let naughty = client.profile.naughtiness;
        let flaws: &[Flaw] = if client.phase == ClientPhase::Live {
            &[Flaw::Forged, Flaw::Expired, Flaw::Foreign]
        } else {
            &[Flaw::Expired]
        };
        let flaw = if self.chance.percent(naughty) { *self.chance.pick(flaws) } else { Flaw::None };
        let expires_at_s = self.chance.percent(50).then(|| self.now_s + self.chance.between(1, 4));
        client.misdeeds.forged_token |= matches!(flaw, Flaw::Forged | Flaw::Foreign);
        let subs = if channel.is_empty() { client.server_side.clone() } else { Vec::new() };
        let (user, channel) = (client.profile.user.clone(), channel.to_owned());
        self.tokens.issue(Token { flaw, user, channel, expires_at_s, subs, ..Token::default() })
    }

    /// What a client wants of a channel, if not all; seldom where it may not ask for that.
    fn filter(&mut self, channel: &str) -> Option<Filter> {
        let rules = self.model.channel(channel).and_then(|facts| facts.rules.as_ref());
        let share = if rules.is_some_and(|rules| rules.allow_tags_filter) { 50 } else { 3 };
        self.chance.percent(share).then(|| self.any_filter(3))
    }

    fn any_filter(&mut self, depth: usize) -> Filter {
        match self.chance.below(12) {
            0 => Filter::Tag(KIND_TAG, self.word(&["in", "nin"]), vec!["a", self.word(&KINDS)]),
            1 => Filter::Tag(self.word(&[KIND_TAG, NUMBER_TAG]), self.word(&["ex", "nex"]), Vec::new()),
            2 | 3 => Filter::Tag(NUMBER_TAG, self.word(&["gt", "gte", "lt", "lte"]), vec![self.word(&NUMBERS)]),
            4 | 5 => Filter::Tag(KIND_TAG, self.word(&["neq", "sw", "ew", "ct"]), vec![self.word(&KINDS)]),
            6 if depth > 0 => Filter::Of("not", vec![self.any_filter(depth - 1)]),
            7 | 8 if depth > 0 => {
                let of = self.word(&["and", "or"]);
                let count = self.chance.between(1, 3);
                Filter::Of(of, (0..count).map(|_| self.any_filter(depth - 1)).collect())
            }
            9 if self.chance.percent(20) => Filter::Of(self.word(&["xor", "or", "not"]), Vec::new()),
            _ => Filter::Tag(KIND_TAG, "eq", vec![self.word(&KINDS)]),
        }
    }

    fn word(&mut self, of: &'static [&'static str]) -> &'static str {
        of[self.chance.below(of.len())]
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

/// A command with what has to be remembered of it.
pub(super) fn pending_of(
    initiative: &Initiative<'_>,
    command: ClientCommand,
    channel: &str,
) -> (ClientCommand, Pending) {
    let api_count = initiative.model.channel(channel).map_or(0, |facts| facts.api_count);
    (command.clone(), Pending { sent_us: initiative.now_us, api_count, ..pending(command) })
}

impl Client {
    /// Says `connect`.
    pub fn connect(&mut self, initiative: &mut Initiative<'_>) {
        let user = self.profile.user.clone();
        let backend = &initiative.plan.options.backend;
        self.is_extended = backend.refresh.is_some();
        let by_backend = backend.connect.is_some() && (user.is_empty() || initiative.chance.percent(50));
        if user.is_empty() && !by_backend {
            self.server_side.clear();
        } else if !by_backend {
            self.server_side = initiative.plan.server_side(initiative.chance);
        }
        let token = if user.is_empty() || by_backend { String::new() } else { initiative.token(self, "") };
        // It may be over before it is let in.
        self.expiry_s = initiative.tokens.find(&token).and_then(|token| token.expires_at_s);
        self.expiry_s = self.expiry_s.filter(|_| backend.refresh.is_none());
        let known = self.server_side.iter().filter_map(|channel| {
            let position = self.positions.get(channel)?.clone();
            Some((channel.clone(), position))
        });
        let subs = known.collect();
        let (command, mut first) = initiative.pending(ClientCommand::Connect { token, subs }, "");
        let counts = initiative
            .plan
            .channels
            .iter()
            .map(|channel| (channel.clone(), initiative.model.channel(channel).map_or(0, |facts| facts.api_count)));
        first.api_counts = counts.collect();
        self.add((command, first));
        self.ping_sometimes(initiative, 15);
        // Some don't wait for the answer.
        if !by_backend && !self.profile.wire.is_unidirectional() && initiative.chance.percent(10) {
            self.add_resubscriptions(initiative);
        }
        self.send_frame();
    }

    /// Subscribes to what it had before.
    pub fn resubscribe(&mut self, initiative: &mut Initiative<'_>) {
        if self.profile.wire.is_unidirectional() {
            return;
        }
        self.add_resubscriptions(initiative);
        self.send_frame();
    }

    /// Subscribes to one channel again.
    pub fn resubscribe_to(&mut self, initiative: &mut Initiative<'_>, channel: &str) {
        if self.profile.wire.is_unidirectional() {
            return;
        }
        self.add_subscribe(initiative, channel);
        self.send_frame();
    }

    fn add_resubscriptions(&mut self, initiative: &mut Initiative<'_>) {
        let most = initiative.plan.options.client.commands_per_frame_max - 1;
        let is_asked = |channel: &&String| self.phase != ClientPhase::Connecting || !self.server_side.contains(channel);
        let channels: Vec<String> = self.positions.keys().filter(is_asked).take(most).cloned().collect();
        for channel in channels {
            self.add_subscribe(initiative, &channel);
        }
    }

    /// A subscribe command, unless the answer to one is on its way. Nobody subscribes twice by accident.
    pub(super) fn add_subscribe(&mut self, initiative: &mut Initiative<'_>, channel: &str) {
        let had = self.subscriptions.contains_key(channel) && !self.leaves(channel) || self.asks_for(channel);
        if had && !initiative.chance.percent(5) {
            return;
        }
        let needs_token = channel.contains("lock:");
        let token = if needs_token && !initiative.chance.percent(10) || initiative.chance.percent(3) {
            initiative.token(self, channel)
        } else {
            String::new()
        };
        // What an SDK knows of a stream that it has not seen is nothing: it asks for whatever is cached.
        let recover = match self.positions.get(channel).cloned() {
            // Some wrote it down a while ago.
            Some(position) if initiative.chance.percent(20) => {
                let offset = position.offset.saturating_sub(initiative.chance.below(5) as u64);
                Some(ClientPosition { offset, ..position })
            }
            Some(position) if !initiative.chance.percent(5) => Some(position),
            _ => initiative.chance.percent(20).then(ClientPosition::default),
        };
        let (data, join) = self.join_data(initiative, channel);
        let command = ClientCommand::Subscribe {
            data,
            channel: channel.to_owned(),
            token,
            recover,
            positioned: initiative.chance.percent(30),
            recoverable: initiative.chance.percent(70),
            join_leave: initiative.chance.percent(50),
            reject_unrecoverable: initiative.chance.percent(20),
            delta: if initiative.chance.percent(40) { "fossil" } else { "" },
            compact: initiative.chance.percent(60),
            filter: initiative.filter(channel).map(Box::new),
        };
        let (command, mut pending) = initiative.pending(command, channel);
        pending.join = join;
        pending.had = had;
        pending.at_limit = self.subscriptions_at_most() >= initiative.plan.options.client.channel_limit;
        self.add((command, pending));
    }

    /// Does something, or nothing.
    pub fn act(&mut self, initiative: &mut Initiative<'_>) {
        if self.phase == ClientPhase::Connecting || self.profile.wire.is_unidirectional() {
            return self.ping_sometimes(initiative, 20);
        }
        // Behind a close frame, or bytes against the protocol, nothing counts.
        if self.phase != ClientPhase::Live
            || self.misdeeds.closed != ClientClose::NotSent
            || self.misdeeds.violated.is_some()
        {
            return;
        }
        if initiative.chance.percent(self.profile.naughtiness) {
            return self.misbehave(initiative);
        }
        for _ in 0..initiative.chance.between(1, 3) {
            // One turn adds two commands at most.
            if self.frame.len() + 2 <= initiative.plan.options.client.commands_per_frame_max {
                self.add_command(initiative);
            }
        }
        if initiative.chance.percent(6) {
            self.ask_for_much(initiative);
        }
        self.send_frame();
        self.ping_sometimes(initiative, 3);
    }

    /// Fills the frame with commands that have large answers.
    fn ask_for_much(&mut self, initiative: &mut Initiative<'_>) {
        let kept = initiative.plan.channels.iter().filter(|channel| channel.starts_with("rec:"));
        let kept: Vec<String> = kept.cloned().collect();
        while !kept.is_empty() && self.frame.len() < initiative.plan.options.client.commands_per_frame_max {
            let channel = initiative.chance.pick(&kept).clone();
            let command = self.history(initiative, &channel);
            let command = initiative.pending(command, &channel);
            self.add(command);
        }
    }

    fn ping_sometimes(&mut self, initiative: &mut Initiative<'_>, percent: u32) {
        if self.profile.wire.is_websocket() && initiative.chance.percent(percent) {
            let payload = vec![initiative.chance.below(256) as u8; initiative.chance.below(126)];
            self.own_pings.push(payload.clone());
            self.upward.push(Upward::Ping(payload));
        }
    }

    fn add_command(&mut self, initiative: &mut Initiative<'_>) {
        if let Some(rooms) = &initiative.plan.rooms
            && self.profile.wire.is_websocket()
            && initiative.chance.percent(40)
        {
            return self.add_room_command(initiative, rooms);
        }
        let channel = initiative.channel();
        let command = match initiative.chance.weighted(&[30, 10, 30, 6, 4, 3, 3, 3, 1, 1]) {
            0 => {
                let any = initiative.chance.pick(&initiative.plan.channels);
                let channel = if initiative.chance.percent(30) { any.clone() } else { channel };
                return self.add_subscribe(initiative, &channel);
            }
            1 => return self.add_unsubscribe(initiative),
            2 => return self.add_publish(initiative, &channel),
            3 => self.history(initiative, &channel),
            4 => ClientCommand::Presence { channel: channel.clone() },
            5 => ClientCommand::PresenceStats { channel: channel.clone() },
            6 => {
                if initiative.plan.options.backend.refresh.is_some() {
                    if !initiative.chance.percent(5) {
                        return;
                    }
                    self.misdeeds.broke_protocol = true;
                }
                let token = initiative.token(self, "");
                self.misdeeds.refreshed = true;
                self.on_refresh_sent(initiative, &token);
                ClientCommand::Refresh { token }
            }
            7 => {
                // The server's own are not the client's to refresh.
                if self.asks_for(&channel) || self.server_side.contains(&channel) {
                    return;
                }
                let rules = initiative.model.channel(&channel).and_then(|facts| facts.rules.as_ref());
                if rules.is_some_and(|rules| rules.sub_refresh_proxy.is_some()) {
                    if !initiative.chance.percent(10) {
                        return;
                    }
                    self.misdeeds.broke_protocol = true;
                }
                self.misdeeds.sub_refreshed = true;
                let token = initiative.token(self, &channel);
                if let Some(subscription) = self.subscriptions.get_mut(&channel) {
                    let expiry_s = initiative.tokens.find(&token).and_then(|token| token.expires_at_s);
                    subscription.latest_expiry_s =
                        subscription.latest_expiry_s.and_then(|latest| expiry_s.map(|expiry| expiry.max(latest)));
                }
                ClientCommand::SubRefresh { channel: channel.clone(), token }
            }
            8 => ClientCommand::Rpc { method: format!("m{}", initiative.now_us) },
            _ => ClientCommand::Ping,
        };
        let command = initiative.pending(command, &channel);
        self.add(command);
    }

    fn on_refresh_sent(&mut self, initiative: &Initiative<'_>, token: &str) {
        let Some(token) = initiative.tokens.find(token) else { return };
        self.misdeeds.expired_refresh |= token.flaw == Flaw::Expired || token.expires_at_s.is_some();
        self.latest_expiry_s =
            self.latest_expiry_s.and_then(|latest| token.expires_at_s.map(|expiry| expiry.max(latest)));
    }

    /// Ends a subscription, now and then twice, or to begin it anew in the same frame.
    fn add_unsubscribe(&mut self, initiative: &mut Initiative<'_>) {
        let asked = self.pending.values().filter_map(|pending| match &pending.command {
            ClientCommand::Subscribe { channel, .. } => Some(channel),
            _ => None,
        });
        let channels: Vec<String> = self.subscriptions.keys().chain(asked).cloned().collect();
        if channels.is_empty() {
            return;
        }
        let channel = initiative.chance.pick(&channels).clone();
        self.add_unsubscribe_from(initiative, &channel);
    }

    pub(super) fn add_unsubscribe_from(&mut self, initiative: &mut Initiative<'_>, channel: &str) {
        if let Some(position) = self.subscriptions.get(channel).and_then(Subscription::position) {
            self.positions.insert(channel.to_owned(), position);
        }
        let command = initiative.pending(ClientCommand::Unsubscribe { channel: channel.to_owned() }, channel);
        self.add(command);
        match initiative.chance.below(10) {
            0..2 => {
                let command = initiative.pending(ClientCommand::Unsubscribe { channel: channel.to_owned() }, channel);
                self.add(command);
            }
            2..5 => self.add_subscribe(initiative, channel),
            _ => {}
        }
    }

    fn add_publish(&mut self, initiative: &mut Initiative<'_>, channel: &str) {
        let fill = match initiative.chance.below(10) {
            0 => initiative.chance.between(100, 1_200) as usize,
            _ => initiative.chance.below(60),
        };
        let publisher = Publisher::Session(self.id.clone());
        let number = initiative.model.begin(channel, publisher, fill, false);
        let data = initiative.model.published[number as usize].data.clone();
        let (command, mut pending) =
            initiative.pending(ClientCommand::Publish { channel: channel.to_owned(), data }, channel);
        pending.number = Some(number);
        self.add((command, pending));
    }

    pub(super) fn history(&mut self, initiative: &mut Initiative<'_>, channel: &str) -> ClientCommand {
        let limit = *initiative.chance.pick(&[0, 1, 2, 5, -1, i32::MAX, i32::MIN]);
        let known = self.subscriptions.get(channel).and_then(Subscription::position);
        let since = known.filter(|_| initiative.chance.percent(60)).map(|mut position| {
            let back = initiative.chance.below(6) as u64;
            position.offset = position.offset.saturating_sub(back);
            position
        });
        ClientCommand::History { channel: channel.to_owned(), limit, since, reverse: initiative.chance.percent(30) }
    }

    fn misbehave(&mut self, initiative: &mut Initiative<'_>) {
        let kinds = if self.profile.wire.is_websocket() { 7 } else { 5 };
        let broke = match initiative.chance.below(kinds) {
            0 => vec![initiative.pending(ClientCommand::Connect { token: String::new(), subs: Vec::new() }, "")],
            1 => vec![initiative.pending(ClientCommand::Pong, ""), initiative.pending(ClientCommand::Pong, "")],
            2 => vec![initiative.pending(ClientCommand::Unsubscribe { channel: String::new() }, "")],
            3 => {
                let most = initiative.plan.options.client.commands_per_frame_max;
                (0..=most).map(|_| initiative.pending(ClientCommand::Rpc { method: "m".to_owned() }, "")).collect()
            }
            4 => {
                self.misdeeds.sent_message = true;
                vec![initiative.pending(ClientCommand::Send { data: b"{}".to_vec() }, "")]
            }
            5 => {
                let code = *initiative.chance.pick(&[1002, 1007, 1009]);
                self.misdeeds.violated = Some(code);
                return self.upward.push(Upward::Violation(code));
            }
            _ => {
                self.misdeeds.broke_protocol = true;
                let garbage = (0..initiative.chance.below(20)).map(|_| 0xff - initiative.chance.below(9) as u8);
                let frame = Upward::Frame(garbage.collect(), false);
                return self.upward.push(frame);
            }
        };
        self.misdeeds.broke_protocol |= !self.misdeeds.sent_message;
        for command in broke {
            self.add(command);
        }
        self.send_frame();
    }
}
