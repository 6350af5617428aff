//! Opening and authenticating a session.

use std::sync::Arc;

use dunlin_protocol::{
    ClientInfo, ConnectRequest, ConnectResult, Disconnect, ErrorCode, Push, Reply, ShapeLimits, decode_connect,
};
use rand_chacha::rand_core::RngCore;

use crate::{
    Effects, Now, SessionKey, Wire,
    backend::{Ask, BackendAnswer, BackendOutcome, ConnectAnswer},
    event::{ConnectionClaims, ServerSubscription, TokenError},
    frame::{FrameRef, build_frame, encode_push_on, reply_frame},
    session::{
        Arrival, AskedFor, ConnectWish, Entrance, Held, Phase, Planned, RefusedConnect, Session, SessionExtra, Waiting,
    },
};

use super::{Shard, refresh::ttl_s};

/// Which disconnect an error becomes where only the server speaks, if nothing else is configured.
const UNIDIRECTIONAL_DISCONNECTS: [(ErrorCode, Disconnect); 4] = [
    (ErrorCode::Expired, Disconnect::EXPIRED),
    (ErrorCode::TokenExpired, Disconnect::EXPIRED),
    (ErrorCode::TooManyRequests, Disconnect::TOO_MANY_REQUESTS),
    (ErrorCode::PermissionDenied, Disconnect::PERMISSION_DENIED),
];

impl Shard {
    pub(super) fn open(&mut self, now: Now, key: SessionKey, wire: Wire, effects: &mut Effects) {
        self.counters.sessions_opened += 1;
        let end_us = now.after_ms(self.options.client.stale_close_delay_ms);
        self.sessions.insert(Session::new(key, wire, end_us));
        self.schedule_session(key);
        if self.draining {
            self.close(now, key, &Disconnect::SHUTDOWN, effects);
        }
    }

    /// Takes the connect request of a session on whose wire only the server speaks. What else comes on it is nothing.
    pub(super) fn receive_connect(&mut self, now: Now, key: SessionKey, bytes: &[u8], effects: &mut Effects) {
        let Some(session) = self.sessions.get(key) else { return };
        if session.phase != Phase::Fresh || session.held.is_some() {
            return;
        }
        let outcome = if let Ok(request) = decode_connect(bytes, self.shape_limits()) {
            self.connect(now, key, 0, &request, effects)
        } else {
            self.counters.malformed_frames += 1;
            Err(Disconnect::BAD_REQUEST)
        };
        if let Err(disconnect) = outcome {
            self.close(now, key, &disconnect, effects);
        }
    }

    /// How deep and wide a client's message may be.
    pub(super) fn shape_limits(&self) -> ShapeLimits {
        let client = &self.options.client;
        ShapeLimits { json_depth_max: client.json_depth_max, object_keys_max: client.object_keys_max }
    }

    /// Carries out `connect`: by its token, else by the backend's word, else as the anonymous user.
    pub(super) fn connect(
        &mut self,
        now: Now,
        key: SessionKey,
        command_id: u32,
        request: &ConnectRequest<'_>,
        effects: &mut Effects,
    ) -> Result<(), Disconnect> {
        let is_fresh = self.sessions.get(key).is_some_and(|session| session.phase == Phase::Fresh);
        if !is_fresh {
            return Err(Disconnect::BAD_REQUEST);
        }
        // Before anybody is asked about a token: what a storm would overrun is behind here.
        if !self.connects.takes(now.mono_us) {
            self.counters.connects_refused += 1;
            self.refuse_connect(now, key, command_id, ErrorCode::TooManyRequests.into(), effects);
            return Ok(());
        }
        let position = |offset: u64, epoch: &str| (offset, Box::from(epoch));
        let subs = request.subs.iter().filter(|(channel, _)| !channel.is_empty());
        let subs =
            subs.map(|(channel, sub)| (Box::from(&**channel), sub.recover.then(|| position(sub.offset, &sub.epoch))));
        let mut wish = ConnectWish { client: None, subs: subs.collect() };
        if !request.token.is_empty() {
            let waiting = Waiting::Connect { command_id, wish: Box::new(wish) };
            self.wait_for_token(key, waiting, &request.token, effects);
            return Ok(());
        }
        if let Some(proxy) = self.options.backend.connect {
            wish.client = Some(self.new_client_id());
            let ask = Ask::Connect {
                data: request.data.and_then(|data| self.payload(key, data)),
                name: (&*request.name).into(),
                version: (&*request.version).into(),
                channels: wish.subs.iter().map(|(channel, _)| channel.clone()).collect(),
            };
            self.ask_backend(key, command_id, proxy, ask, AskedFor::Connect(wish), effects);
            return Ok(());
        }
        let client = &self.options.client;
        if !client.allow_anonymous_connect_without_token && !client.insecure {
            return Err(Disconnect::BAD_REQUEST);
        }
        let arrival = self.arrival(command_id, None, ConnectionClaims::default());
        self.arrive(now, key, arrival, &wish, true, effects);
        Ok(())
    }

    /// A connection token was verified, for `connect` or for `refresh`.
    pub(super) fn token_verified(
        &mut self,
        now: Now,
        key: SessionKey,
        outcome: Result<ConnectionClaims, TokenError>,
        effects: &mut Effects,
    ) {
        let waits = |waiting: &Waiting| matches!(waiting, Waiting::Connect { .. } | Waiting::Refresh { .. });
        let held = self.sessions.get_mut(key).and_then(|session| session.held.take_if(|held| waits(&held.waiting)));
        let Some(held) = held else { return };
        let Held { waiting, rest } = *held;
        match waiting {
            Waiting::Connect { command_id, wish } => {
                self.connect_with_token(now, key, command_id, &wish, outcome, effects);
            }
            Waiting::Refresh { command_id } => match self.refresh_with_token(now, key, outcome) {
                Ok(reply) => self.reply(now, key, command_id, &reply, effects),
                Err(disconnect) => self.close(now, key, &disconnect, effects),
            },
            _ => unreachable!("looked at above"),
        }
        self.resume(now, key, rest, effects);
    }

    /// A token that `connect` presented was verified.
    pub(super) fn connect_with_token(
        &mut self,
        now: Now,
        key: SessionKey,
        command_id: u32,
        wish: &ConnectWish,
        outcome: Result<ConnectionClaims, TokenError>,
        effects: &mut Effects,
    ) {
        let refused = match outcome {
            Ok(claims) if claims.user.is_empty() && self.options.client.disallow_anonymous_connection_tokens => {
                Disconnect::PERMISSION_DENIED.into()
            }
            Ok(mut claims) => {
                if self.options.client.insecure {
                    claims.expires_at_s = None;
                }
                let mut arrival = self.arrival(command_id, None, claims);
                arrival.subscriptions.iter_mut().for_each(|planned| planned.from_token = true);
                return self.arrive(now, key, arrival, wish, true, effects);
            }
            Err(TokenError::Expired) => ErrorCode::TokenExpired.into(),
            Err(TokenError::Invalid) => Disconnect::INVALID_TOKEN.into(),
            Err(TokenError::Unavailable) => ErrorCode::Internal.into(),
        };
        self.refuse_connect(now, key, command_id, refused, effects);
    }

    /// A backend that was asked who the session is has answered.
    pub(super) fn connect_by_backend(
        &mut self,
        now: Now,
        key: SessionKey,
        command_id: u32,
        wish: &ConnectWish,
        outcome: BackendOutcome,
        effects: &mut Effects,
    ) {
        let answer = match outcome {
            Ok(BackendAnswer::Connect(answer)) => *answer,
            Ok(_) => return self.refuse_connect(now, key, command_id, ErrorCode::Internal.into(), effects),
            Err(refusal) => return self.refuse_connect(now, key, command_id, refusal.into(), effects),
        };
        let ConnectAnswer { user, expires_at_s, info, data, meta, subscriptions } = answer;
        let claims = ConnectionClaims { user, info, expires_at_s, meta, subscriptions };
        let mut arrival = self.arrival(command_id, wish.client.clone(), claims);
        arrival.data = data;
        self.arrive(now, key, arrival, wish, false, effects);
    }

    fn arrival(&self, command_id: u32, client: Option<Arc<str>>, claims: ConnectionClaims) -> Arrival {
        let ConnectionClaims { user, info, expires_at_s, meta, subscriptions } = claims;
        let mut arrival = Arrival {
            command_id,
            client,
            user: self.intern_user(user),
            info,
            data: None,
            meta,
            expires_at_s,
            subscriptions: Vec::with_capacity(subscriptions.len().min(self.options.client.channel_limit)),
        };
        // Each is compared with all before it. One too many is enough to be refused.
        for subscription in subscriptions {
            if arrival.subscriptions.len() > self.options.client.channel_limit {
                break;
            }
            arrival.plan(subscription);
        }
        arrival
    }

    /// Lets a session in of which it is known who it is, or says why not.
    fn arrive(
        &mut self,
        now: Now,
        key: SessionKey,
        mut arrival: Arrival,
        wish: &ConnectWish,
        may_choose: bool,
        effects: &mut Effects,
    ) {
        let plan = self.complete_plan(now, &mut arrival, wish, may_choose);
        match plan.and_then(|()| self.take_recoveries(now, &arrival)) {
            Err(refused) => self.refuse_connect(now, key, arrival.command_id, refused, effects),
            Ok(()) if self.counts_sessions_of(&arrival.user) => self.ask_home(key, arrival, effects),
            Ok(()) => self.let_in(now, key, arrival, effects),
        }
    }

    /// Adds the personal channel and what the client chose, and sees to it that all can be ordered.
    fn complete_plan(
        &self,
        now: Now,
        arrival: &mut Arrival,
        wish: &ConnectWish,
        may_choose: bool,
    ) -> Result<(), RefusedConnect> {
        if let Some(channel) = self.personal_channel(&arrival.user) {
            arrival.plan(ServerSubscription { channel, ..ServerSubscription::default() });
        }
        let channels_max = self.options.client.channel_limit;
        for (channel, position) in &wish.subs {
            // Each is compared with all before it, so it stops at the first too many.
            if arrival.subscriptions.len() > channels_max {
                return Err(Disconnect::CHANNEL_LIMIT.into());
            }
            if may_choose && self.may_choose(&arrival.user, channel)? {
                arrival.plan(ServerSubscription { channel: channel.clone(), ..ServerSubscription::default() });
            }
            let planned = arrival.subscriptions.iter_mut().find(|planned| planned.subscription.channel == *channel);
            if let (Some(planned), Some(position)) = (planned, position) {
                planned.recovers = true;
                planned.subscription.recover_since = Some(position.clone());
            }
        }
        if arrival.subscriptions.len() > channels_max {
            return Err(Disconnect::CHANNEL_LIMIT.into());
        }
        if ttl_s(now, arrival.expires_at_s).is_err() {
            return Err(ErrorCode::Expired.into());
        }
        for planned in &arrival.subscriptions {
            self.check_server_side(now, &planned.subscription)?;
        }
        Ok(())
    }

    /// Takes what the session will recover off this shard's share of recoveries.
    fn take_recoveries(&mut self, now: Now, arrival: &Arrival) -> Result<(), RefusedConnect> {
        for planned in arrival.subscriptions.iter().filter(|planned| planned.recovers) {
            let forced = planned.subscription.overrides.force_recovery;
            let namespace = self.names.resolve(&planned.subscription.channel)?;
            let recovers = forced.unwrap_or(self.namespace(namespace).force_recovery);
            if recovers && !self.recoveries.takes(now.mono_us) {
                self.counters.recoveries_refused += 1;
                return Err(ErrorCode::TooManyRequests.into());
            }
        }
        Ok(())
    }

    /// The name of the user's own channel; `None` for the anonymous user, or if there are no such channels.
    fn personal_channel(&self, user: &str) -> Option<Box<str>> {
        let personal = self.options.client.personal_channel.as_ref().filter(|_| !user.is_empty())?;
        let channel = &self.options.channel;
        let (namespace, mark) = (&personal.namespace, channel.user_boundary);
        Some(if namespace.is_empty() {
            format!("{mark}{user}").into()
        } else {
            format!("{namespace}{}{mark}{user}", channel.namespace_boundary).into()
        })
    }

    /// Whether the server subscribes a session of `user` to `channel` because the client asks it to: it could do so
    /// itself, without a token and without asking a backend.
    fn may_choose(&self, user: &str, channel: &str) -> Result<bool, RefusedConnect> {
        let namespace = match self.names.resolve(channel) {
            Ok(namespace) => namespace,
            Err(ErrorCode::UnknownChannel) => return Err(Disconnect::BAD_REQUEST.into()),
            Err(_) => return Ok(false),
        };
        let options = self.namespace(namespace);
        let is_ours = options.subscribe_proxy.is_none() && options.room.is_none();
        Ok(is_ours && !self.names.is_private(channel) && self.is_open_to(user, channel, namespace))
    }

    /// Makes the session one of its user, and orders its subscriptions. `connect` is answered when the owners have.
    pub(super) fn let_in(&mut self, now: Now, key: SessionKey, arrival: Arrival, effects: &mut Effects) {
        let ttl_s = ttl_s(now, arrival.expires_at_s).unwrap_or(Some(0));
        let client = arrival.client.unwrap_or_else(|| self.new_client_id());
        let info =
            ClientInfo { user: arrival.user, client: Arc::clone(&client), conn_info: arrival.info, chan_info: None };
        let user_place = self.add_to_user(&info.user, key);
        let expiry_us = self.session_expiry_us(now, ttl_s);
        let options = Arc::clone(&self.options);
        let wire = self.sessions.at(key.index).wire;
        let secret = if wire.has_secret_id() { self.new_secret(key) } else { Box::default() };
        let pings = options.client.ping_interval_ms;
        let result = ConnectResult {
            client,
            version: options.version,
            ttl_s: ttl_s.filter(|_| options.backend.refresh.is_none()),
            data: arrival.data,
            subs: Vec::with_capacity(arrival.subscriptions.len()),
            ping_s: (pings / 1_000) as u32,
            pong: pings > 0 && options.client.pong_timeout_ms > 0 && !wire.is_unidirectional(),
            session: secret.clone(),
            node: if wire.is_emulated() { options.node_id.clone() } else { Box::default() },
            time_ms: if options.client.connect_include_server_time { now.unix_ms.cast_signed() } else { 0 },
        };
        let session = self.sessions.at_mut(key.index);
        session.info = Some(Arc::new(info));
        session.user_place = user_place;
        session.phase = Phase::Connecting;
        session.deadlines.end_us = u64::MAX;
        session.deadlines.expiry_us = expiry_us;
        if !secret.is_empty() || arrival.meta.is_some() {
            session.extra = Some(Box::new(SessionExtra { secret, meta: arrival.meta, refresh: None }));
        }
        self.schedule_session(key);
        let missing = arrival.subscriptions.len();
        let entrance = Entrance { command_id: arrival.command_id, result, missing, refused: None };
        if missing == 0 {
            return self.answer_connect(now, key, entrance, effects);
        }
        self.hold(key, Waiting::Subscriptions(Box::new(entrance)), effects);
        let outbox = self.sessions.outbox(key.index);
        (outbox.corked, outbox.listed) = (true, true);
        for planned in arrival.subscriptions {
            self.order_server_side(now, key, planned, effects);
        }
    }

    /// All owners have answered.
    pub(super) fn answer_connect(&mut self, now: Now, key: SessionKey, entrance: Entrance, effects: &mut Effects) {
        if let Some(code) = entrance.refused {
            self.leave_everything(key, effects);
            self.sessions.outbox(key.index).discard_unbegun();
            self.uncork(key, effects);
            return self.refuse_connect(now, key, entrance.command_id, code.into(), effects);
        }
        let first_ping_us = self.first_ping_us(now);
        let session = self.sessions.at_mut(key.index);
        session.phase = Phase::Live;
        session.deadlines.ping_us = first_ping_us;
        let wire = session.wire;
        self.schedule_session(key);
        let result = entrance.result;
        let frame = if wire.is_unidirectional() {
            let push = Push::Connect { result: &result };
            let frame = build_frame(wire, &mut self.scratch, |out| encode_push_on(wire, &push, out));
            frame.map(|bytes| FrameRef::own(bytes, now.mono_us))
        } else {
            let reply = Reply::Connect(Box::new(result));
            reply_frame(wire, entrance.command_id, &reply, &mut self.scratch, now.mono_us)
        };
        let Ok(frame) = frame else {
            return self.close(now, key, &Disconnect::INAPPROPRIATE_PROTOCOL, effects);
        };
        // Publications that came while the owners answered wait already, and belong behind this.
        self.sessions.outbox(key.index).push_next(frame);
        self.uncork(key, effects);
        if self.is_too_far_behind(key.index) {
            self.close_slow(now, key, effects);
        }
    }

    /// Lets the caller write to the session.
    fn uncork(&mut self, key: SessionKey, effects: &mut Effects) {
        let outbox = self.sessions.outbox(key.index);
        let was_corked = std::mem::take(&mut outbox.corked);
        if !std::mem::replace(&mut outbox.listed, true) || was_corked {
            effects.dirty.push(key);
        }
    }

    /// Answers `connect` with an error, after which the session is good for nothing, or closes the session.
    pub(super) fn refuse_connect(
        &mut self,
        now: Now,
        key: SessionKey,
        command_id: u32,
        refused: RefusedConnect,
        effects: &mut Effects,
    ) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.phase = Phase::Refused;
        let is_unidirectional = session.wire.is_unidirectional();
        let reply = match refused {
            RefusedConnect::Disconnect(disconnect) => return self.close(now, key, &disconnect, effects),
            RefusedConnect::Error(code) => Reply::Error(code),
            RefusedConnect::Own { code, message, temporary } => Reply::Refused { code, message, temporary },
        };
        if is_unidirectional {
            let disconnect = self.unidirectional_disconnect(&reply);
            return self.close(now, key, &disconnect, effects);
        }
        self.reply(now, key, command_id, &reply, effects);
    }

    /// What an error of `connect` becomes where there is no reply to put it in.
    fn unidirectional_disconnect(&self, error: &Reply) -> Disconnect {
        let number = match error {
            Reply::Error(code) => code.code(),
            Reply::Refused { code, .. } => u32::from(*code),
            _ => ErrorCode::Internal.code(),
        };
        let configured = &self.options.client.connect_code_to_unidirectional_disconnect;
        if let Some((_, disconnect)) = configured.iter().find(|(code, _)| *code == number) {
            return disconnect.clone();
        }
        let usual = UNIDIRECTIONAL_DISCONNECTS.into_iter().find(|(code, _)| code.code() == number);
        usual.map_or(Disconnect::INTERNAL, |(_, disconnect)| disconnect)
    }

    /// The first ping comes at a random moment in the second half of the interval, so that sessions which came together
    /// are not pinged together.
    fn first_ping_us(&mut self, now: Now) -> u64 {
        let half_us = self.options.client.ping_interval_ms.saturating_mul(1_000) / 2;
        if half_us == 0 {
            return u64::MAX;
        }
        now.mono_us.saturating_add(half_us + self.random.next_u64() % half_us)
    }
}

impl Arrival {
    /// Adds a subscription, unless there is one to the channel.
    fn plan(&mut self, subscription: ServerSubscription) {
        let is_new = self.subscriptions.iter().all(|planned| planned.subscription.channel != subscription.channel);
        if is_new && !subscription.channel.is_empty() {
            self.subscriptions.push(Planned { subscription, from_token: false, recovers: false });
        }
    }
}
