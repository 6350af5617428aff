//! Opens and authenticates sessions, and admits them to their users. The server-side subscriptions of `connect` come from
//! the token or a backend, the user's personal channel, and the client's request.
//!
//! A shard knows its own sessions of a user. If the number of a user's sessions on the node is limited, the user has a
//! *home* shard, chosen by hash like a channel's owner. The home decides whether a new session is admitted, and is
//! notified when one ends. Nodes without such a limit have no homes.
//!
//! Only the session's own client receives its secret id. An id names the session's position, so that a command on another
//! connection finds it, and has 128 random bits, so that it cannot be guessed. In a cluster, a tag follows
//! ([`crate::session_tag`]).

use std::sync::Arc;

use dunlin_protocol::{ClientInfo, ConnectRequest, ConnectResult, Disconnect, ErrorCode, Push, Reply, decode_connect};
use rand_chacha::rand_core::RngCore;

use crate::{
    SessionKey, ShardIndex,
    backend::{ConnectResponse, ProxyRequestKind, ProxyResponse, ProxyResult},
    event::{ConnectionClaims, ServerSubscription, TokenError, TokenIdentity},
    frame::{FrameRef, build_frame, encode_push_on, reply_frame},
    message::{Admission, ShardRequest},
    record::SessionIncident,
    refused::{Refused, RefusedCommand},
    room::Departure,
    session::{ConnectGrant, ConnectParams, Paused, PausedOn, PendingConnect, Phase, ProxiedCommand, SessionExtra},
};

use super::{
    Context,
    commands::CommandRef,
    node_rates::Rates,
    open_sessions::{Cause, OpenSessions},
    permission::is_open_to,
    refresh::session_expiry_us,
    subscribe::{Subscribing, check_server_side},
    time_to_live::TimeToLive,
};

/// The default disconnects that replace errors on unidirectional transports.
const UNIDIRECTIONAL_DISCONNECTS: [(ErrorCode, Disconnect); 4] = [
    (ErrorCode::Expired, Disconnect::EXPIRED),
    (ErrorCode::TokenExpired, Disconnect::EXPIRED),
    (ErrorCode::TooManyRequests, Disconnect::TOO_MANY_REQUESTS),
    (ErrorCode::PermissionDenied, Disconnect::PERMISSION_DENIED),
];

/// The `connect` of one session.
pub(super) struct Connecting<'s> {
    pub(super) context: &'s mut Context,
    pub(super) sessions: &'s mut OpenSessions,
    pub(super) rates: &'s mut Rates,
    pub(super) key: SessionKey,
}

impl Connecting<'_> {
    fn subscribing(&mut self) -> Subscribing<'_> {
        Subscribing { context: self.context, sessions: self.sessions, rates: self.rates, key: self.key }
    }

    /// Handles the connect request on a unidirectional transport. Further data on it is ignored.
    pub(super) fn receive_connect(&mut self, bytes: &[u8]) {
        let Some(session) = self.sessions.table.get(self.key) else { return };
        if session.phase != Phase::Fresh || session.paused.is_some() {
            return;
        }
        let outcome = if let Ok(request) = decode_connect(bytes, self.context.shape_limits()) {
            self.connect(0, &request)
        } else {
            self.context.counters.malformed_frames += 1;
            Err(RefusedCommand::bad_request(
                "a connect request that cannot be decoded, or that is deeper or wider than allowed",
            ))
        };
        match outcome {
            Ok(()) => {}
            Err(RefusedCommand::Disconnect { disconnect, why }) => {
                self.sessions.close_for(self.context, self.key, &disconnect, Cause { command: None, why });
            }
            Err(refused) => unreachable!("{refused:?} is answered where it is decided"),
        }
    }

    /// Runs `connect`: authenticates by the token, else by the backend, else as the anonymous user.
    pub(super) fn connect(&mut self, command_id: u32, request: &ConnectRequest<'_>) -> Result<(), RefusedCommand> {
        let is_fresh = self.sessions.table.get(self.key).is_some_and(|session| session.phase == Phase::Fresh);
        if !is_fresh {
            return Err(Disconnect::BAD_REQUEST.into());
        }
        // Before any token check, so that a connect storm is stopped here.
        if !self.rates.connects.try_take(self.context.now.mono_us) {
            self.context.counters.connects_refused += 1;
            let why = "more connects in a second than client.connect_rate_limit";
            self.refuse_connect(command_id, Refused::new(ErrorCode::TooManyRequests, why).into());
            return Ok(());
        }
        let position = |offset: u64, epoch: &str| (offset, Box::from(epoch));
        let subs = request.subs.iter().filter(|(channel, _)| !channel.is_empty());
        let subs =
            subs.map(|(channel, sub)| (Box::from(&**channel), sub.recover.then(|| position(sub.offset, &sub.epoch))));
        let mut params = ConnectParams { client: None, subs: subs.collect() };
        if !request.token.is_empty() {
            let paused_on = PausedOn::Connect { command_id, params: Box::new(params) };
            self.sessions.table.wait_for_token(self.key, paused_on, &request.token, &mut self.context.effects);
            return Ok(());
        }
        if let Some(proxy) = self.context.options.backend.connect {
            params.client = Some(self.context.new_client_id());
            let kind = ProxyRequestKind::Connect {
                data: request.data.and_then(|data| self.sessions.table.at(self.key.index).payload(data)),
                name: (&*request.name).into(),
                version: (&*request.version).into(),
                channels: params.subs.iter().map(|(channel, _)| channel.clone()).collect(),
            };
            self.sessions.send_proxy_request(
                self.key,
                command_id,
                (proxy, kind),
                ProxiedCommand::Connect(params),
                &mut self.context.effects,
            );
            return Ok(());
        }
        let client = &self.context.options.client;
        if !client.allow_anonymous_connect_without_token && !client.insecure {
            return Err(RefusedCommand::bad_request(
                "no token, and client.allow_anonymous_connect_without_token is off",
            ));
        }
        let grant = self.grant(command_id, None, ConnectionClaims::default());
        self.admit_session(grant, &params, true);
        Ok(())
    }

    /// The token of a `connect` was verified.
    pub(super) fn connect_with_token(
        &mut self,
        command_id: u32,
        params: &ConnectParams,
        outcome: Result<ConnectionClaims, TokenError>,
    ) {
        let refused = match outcome {
            Ok(claims)
                if claims.user.is_empty() && self.context.options.client.disallow_anonymous_connection_tokens =>
            {
                Disconnect::PERMISSION_DENIED.into()
            }
            Ok(mut claims) => {
                if let Err(revoked) = self.context.check_revoked(&claims.user, &claims.token) {
                    return self.refuse_connect(command_id, revoked.into());
                }
                if self.context.options.client.insecure {
                    claims.expires_at_ms = None;
                }
                let mut grant = self.grant(command_id, None, claims);
                grant.subscriptions.iter_mut().for_each(|planned| planned.from_token = true);
                return self.admit_session(grant, params, true);
            }
            Err(TokenError::Expired) => ErrorCode::TokenExpired.into(),
            Err(TokenError::Invalid) => Disconnect::INVALID_TOKEN.into(),
            Err(TokenError::Unavailable) => ErrorCode::Internal.into(),
        };
        self.refuse_connect(command_id, refused);
    }

    /// The backend has responded to a `connect`.
    pub(super) fn connect_by_backend(&mut self, command_id: u32, params: &ConnectParams, outcome: ProxyResult) {
        let answer = match outcome {
            Ok(ProxyResponse::Connect(answer)) => *answer,
            Ok(_) => return self.refuse_connect(command_id, ErrorCode::Internal.into()),
            Err(refusal) => return self.refuse_connect(command_id, refusal.into()),
        };
        let ConnectResponse { user, expires_at_ms, info, data, meta, subscriptions } = answer;
        let claims =
            ConnectionClaims { user, info, expires_at_ms, meta, subscriptions, token: TokenIdentity::default() };
        let mut grant = self.grant(command_id, params.client.clone(), claims);
        grant.data = data;
        self.admit_session(grant, params, false);
    }

    fn grant(&self, command_id: u32, client: Option<Arc<str>>, claims: ConnectionClaims) -> ConnectGrant {
        let ConnectionClaims { user, info, expires_at_ms, meta, subscriptions, token: _ } = claims;
        let mut grant = ConnectGrant {
            command_id,
            client,
            user: self.sessions.users.intern(user),
            info,
            data: None,
            meta,
            expires_at_ms,
            subscriptions: Vec::with_capacity(subscriptions.len().min(self.context.options.client.channel_limit)),
            positions: Vec::new(),
        };
        // Each is compared with all previous ones. One past the limit is enough to refuse the session.
        for subscription in subscriptions {
            if grant.subscriptions.len() > self.context.options.client.channel_limit {
                break;
            }
            grant.plan(subscription);
        }
        grant
    }

    /// Admits an authenticated session, or refuses it with a reason.
    fn admit_session(&mut self, mut grant: ConnectGrant, params: &ConnectParams, may_choose: bool) {
        if self.is_blocked(&grant.user) {
            return self.refuse_connect(grant.command_id, Disconnect::FORCE_NO_RECONNECT.into());
        }
        let plan = self.complete_plan(&mut grant, params, may_choose);
        match plan.and_then(|()| self.take_recoveries(&grant)) {
            Err(refused) => self.refuse_connect(grant.command_id, refused),
            Ok(()) if self.context.counts_sessions_of(&grant.user) => self.request_admission(grant),
            Ok(()) => self.let_in(grant),
        }
    }

    /// Whether the user is blocked, which is counted.
    fn is_blocked(&mut self, user: &str) -> bool {
        let is_blocked = self.context.access.is_blocked(user, self.context.now.unix_ms);
        self.context.counters.blocked_connects += u64::from(is_blocked);
        is_blocked
    }

    /// Takes tokens for the session's recoveries from this shard's rate limit.
    fn take_recoveries(&mut self, grant: &ConnectGrant) -> Result<(), RefusedCommand> {
        grant.subscriptions.iter().try_for_each(|planned| self.rates.take_recovery(self.context, planned))
    }

    /// Adds the session to its user and requests its subscriptions. `connect` is answered when the owners have
    /// answered.
    pub(super) fn let_in(&mut self, grant: ConnectGrant) {
        let ttl = TimeToLive::until(grant.expires_at_ms, self.context.now).unwrap_or(Some(TimeToLive::OVER));
        let client = grant.client.unwrap_or_else(|| self.context.new_client_id());
        let info = ClientInfo { user: grant.user, client: Arc::clone(&client), conn_info: grant.info, chan_info: None };
        let user_place = self.sessions.users.add(&info.user, self.key);
        let expiry_us = session_expiry_us(self.context, ttl);
        let options = Arc::clone(&self.context.options);
        let wire = self.sessions.table.at(self.key.index).wire;
        let secret = if wire.has_secret_id() { self.new_secret() } else { Box::default() };
        let pings = options.client.ping_interval_ms;
        let result = ConnectResult {
            client,
            version: options.version,
            ttl_s: ttl.filter(|_| options.backend.refresh.is_none()).map(TimeToLive::whole_s),
            data: grant.data,
            subs: Vec::with_capacity(grant.subscriptions.len()),
            ping_s: (pings / 1_000) as u32,
            pong: pings > 0 && options.client.pong_timeout_ms > 0 && !wire.is_unidirectional(),
            session: secret.clone(),
            node: if wire.is_emulated() { options.node_id.clone() } else { Box::default() },
            time_ms: if options.client.connect_include_server_time {
                self.context.now.unix_ms.cast_signed()
            } else {
                0
            },
        };
        let session = self.sessions.table.at_mut(self.key.index);
        session.info = Some(Arc::new(info));
        session.user_place = user_place;
        session.phase = Phase::Connecting;
        session.deadlines.end_us = u64::MAX;
        session.deadlines.expiry_us = expiry_us;
        if !secret.is_empty() || grant.meta.is_some() {
            session.extra = Some(Box::new(SessionExtra { secret, meta: grant.meta, ..SessionExtra::default() }));
        }
        self.sessions.table.schedule(self.key, &mut self.context.timers);
        let missing = grant.subscriptions.len();
        let ConnectGrant { command_id, subscriptions, positions, .. } = grant;
        let pending = PendingConnect { command_id, result, missing, refused: None, recovered_bytes: 0, positions };
        if missing == 0 {
            return self.answer_connect(pending);
        }
        self.sessions.table.pause(self.key, PausedOn::Subscriptions(Box::new(pending)), &mut self.context.effects);
        self.sessions.table.outbox(self.key.index).cork();
        for planned in subscriptions {
            self.subscribing().request_server_side(planned);
        }
    }

    /// All owners have answered.
    pub(super) fn answer_connect(&mut self, pending: PendingConnect) {
        if let Some(refused) = pending.refused {
            self.sessions.leave_everything(self.context, self.key, Departure::Left);
            let outbox = self.sessions.table.outbox(self.key.index);
            if let Some(before_cork) = outbox.uncork() {
                outbox.discard_latest_and_behind(before_cork);
            }
            return self.refuse_connect(pending.command_id, refused.into());
        }
        let first_ping_us = self.first_ping_us();
        self.sessions.record(self.context, self.key, SessionIncident::Connected);
        let session = self.sessions.table.at_mut(self.key.index);
        session.phase = Phase::Live;
        session.deadlines.ping_us = first_ping_us;
        let wire = session.wire;
        self.sessions.table.schedule(self.key, &mut self.context.timers);
        self.sessions.tell_connected(self.context, self.key);
        let result = pending.result;
        let frame = if wire.is_unidirectional() {
            let push = Push::Connect { result: &result };
            let frame = build_frame(wire, &mut self.context.scratch, |out| encode_push_on(wire, &push, out));
            frame.map(|bytes| FrameRef::own(bytes, self.context.now.mono_us))
        } else {
            let reply = Reply::Connect(Box::new(result));
            reply_frame(wire, pending.command_id, &reply, &mut self.context.scratch, self.context.now.mono_us)
        };
        let Ok(frame) = frame else {
            return self.sessions.close(self.context, self.key, &Disconnect::INAPPROPRIATE_PROTOCOL);
        };
        let outbox = self.sessions.table.outbox(self.key.index);
        // Publications that arrived during the wait are queued already, and have to follow this frame.
        outbox.push_next(frame);
        outbox.uncork();
        outbox.list(self.key.index, &mut self.context.effects);
    }

    /// Answers `connect` with an error, after which no command is accepted, or closes the session.
    pub(super) fn refuse_connect(&mut self, command_id: u32, refused: RefusedCommand) {
        let command = CommandRef { id: command_id, command: "connect", channel: None };
        let Some(session) = self.sessions.table.get_mut(self.key) else { return };
        session.phase = Phase::Refused;
        let refused = if session.wire.is_unidirectional() { self.without_reply(refused) } else { refused };
        self.sessions.refuse(self.context, self.key, command, refused);
    }

    /// Asks the user's home to admit the session.
    pub(super) fn request_admission(&mut self, grant: ConnectGrant) {
        let user = Arc::clone(&grant.user);
        self.sessions.table.pause(self.key, PausedOn::Admission(Box::new(grant)), &mut self.context.effects);
        let asker = self.context.asker(self.key, 0);
        let home = self.context.owner(&user);
        self.context.request(home, ShardRequest::Arrive { user, asker });
    }

    /// The home has decided about a session.
    pub(in crate::shard) fn arrived(&mut self, user: &Arc<str>, admission: Admission) {
        let waits = |paused_on: &PausedOn| matches!(paused_on, PausedOn::Admission(_));
        let Some(Paused { paused_on, unparsed }) = self.sessions.table.take_paused(self.key, waits) else {
            self.context.counters.late_messages += 1;
            if admission == Admission::Admitted {
                self.context.send_depart(user, self.key);
            }
            return;
        };
        let PausedOn::Admission(grant) = paused_on else { unreachable!("looked at above") };
        let refusal = match admission {
            // The user may have been blocked in the meantime.
            Admission::Admitted if self.is_blocked(user) => {
                self.context.send_depart(user, self.key);
                self.refuse_connect(grant.command_id, Disconnect::FORCE_NO_RECONNECT.into());
                return self.sessions.resume(self.key, unparsed);
            }
            Admission::Admitted => None,
            Admission::FullHere => Some(Disconnect::CONNECTION_LIMIT.into()),
            // The end of another node may not be known yet. The client retries later.
            Admission::FullElsewhere => Some(ErrorCode::TooManyRequests.into()),
        };
        match refusal {
            None => self.let_in(*grant),
            Some(refusal) => {
                self.context.counters.user_sessions_refused += 1;
                self.refuse_connect(grant.command_id, refusal);
            }
        }
        self.sessions.resume(self.key, unparsed);
    }

    /// A refusal of `connect` on a transport without replies: a disconnect replaces an error.
    fn without_reply(&self, refused: RefusedCommand) -> RefusedCommand {
        let (number, why) = match refused {
            RefusedCommand::Error(Refused { code, why }) => (code.code(), why),
            RefusedCommand::Explained { code, .. } => (code.code(), None),
            RefusedCommand::Own { code, .. } => (u32::from(code), None),
            RefusedCommand::Disconnect { .. } => return refused,
        };
        let configured = &self.context.options.client.connect_code_to_unidirectional_disconnect;
        let configured = configured.iter().find(|(code, _)| *code == number).map(|(_, disconnect)| disconnect.clone());
        let usual = || UNIDIRECTIONAL_DISCONNECTS.into_iter().find(|(code, _)| code.code() == number);
        let disconnect = configured.or_else(|| usual().map(|(_, disconnect)| disconnect));
        RefusedCommand::Disconnect { disconnect: disconnect.unwrap_or(Disconnect::INTERNAL), why }
    }

    /// The first ping comes at a random time in the second half of the interval, so that sessions that connected at the
    /// same time are not pinged at the same time.
    fn first_ping_us(&mut self) -> u64 {
        let half_us = self.context.options.client.ping_interval_ms.saturating_mul(1_000) / 2;
        if half_us == 0 {
            return u64::MAX;
        }
        self.context.now.mono_us.saturating_add(half_us + self.context.random.next_u64() % half_us)
    }

    /// Adds the personal channel and the channels that the client requested, and checks all subscriptions.
    fn complete_plan(
        &self,
        grant: &mut ConnectGrant,
        params: &ConnectParams,
        may_choose: bool,
    ) -> Result<(), RefusedCommand> {
        if let Some(channel) = self.personal_channel(&grant.user) {
            grant.plan(ServerSubscription { channel, ..ServerSubscription::default() });
        }
        let channels_max = self.context.options.client.channel_limit;
        for (channel, position) in &params.subs {
            // Each is compared with all previous ones, so the loop stops one past the limit.
            if grant.subscriptions.len() > channels_max {
                return Err(Disconnect::CHANNEL_LIMIT.into());
            }
            if may_choose && self.may_choose(&grant.user, channel)? {
                grant.plan(ServerSubscription { channel: channel.clone(), ..ServerSubscription::default() });
            }
            let planned = grant.subscriptions.iter_mut().find(|planned| planned.channel == *channel);
            match (planned, position) {
                (Some(planned), Some(position)) => planned.recover_since = Some(position.clone()),
                (None, Some(position)) if grant.positions.len() < channels_max => {
                    grant.positions.push((channel.clone(), position.clone()));
                }
                _ => {}
            }
        }
        if grant.subscriptions.len() > channels_max {
            return Err(Disconnect::CHANNEL_LIMIT.into());
        }
        if TimeToLive::until(grant.expires_at_ms, self.context.now).is_err() {
            return Err(ErrorCode::Expired.into());
        }
        for planned in &grant.subscriptions {
            check_server_side(self.context, planned)?;
        }
        Ok(())
    }

    /// The name of the user's personal channel; `None` for the anonymous user, or if there are no personal channels.
    fn personal_channel(&self, user: &str) -> Option<Box<str>> {
        let personal = self.context.options.client.personal_channel.as_ref().filter(|_| !user.is_empty())?;
        let channel = &self.context.options.channel;
        let (namespace, mark) = (&personal.namespace, channel.user_boundary);
        Some(if namespace.is_empty() {
            format!("{mark}{user}").into()
        } else {
            format!("{namespace}{}{mark}{user}", channel.namespace_boundary).into()
        })
    }

    /// Whether the server may subscribe a session of `user` to `channel` on the client's request: only if the client
    /// could subscribe by itself, without a token or a backend.
    fn may_choose(&self, user: &str, channel: &str) -> Result<bool, RefusedCommand> {
        let namespace = match self.context.names.resolve(channel) {
            Ok(namespace) => namespace,
            Err(ErrorCode::UnknownChannel) => {
                return Err(RefusedCommand::bad_request("connect names a channel whose namespace is not configured"));
            }
            Err(_) => return Ok(false),
        };
        let options = self.context.namespace(namespace);
        let is_ours = options.subscribe_proxy.is_none() && options.room.is_none();
        Ok(is_ours && !self.context.names.is_private(channel) && is_open_to(self.context, user, channel, namespace))
    }

    /// A new id for the session.
    fn new_secret(&mut self) -> Box<str> {
        let (high, low) = (self.context.random.next_u64(), self.context.random.next_u64());
        let SessionKey { index, generation } = self.key;
        let id = format!("{:x}-{index:x}-{generation:x}-{high:016x}{low:016x}", self.context.identity.index.0);
        self.context.options.session_tag_key.as_ref().map_or_else(|| id.clone(), |key| key.tagged(&id)).into()
    }
}

/// The shard of the session with this secret id; `None` if it is not a valid id.
pub fn shard_of_session(secret: &str) -> Option<ShardIndex> {
    read_place(secret).map(|(shard, _)| shard)
}

pub(super) fn read_place(secret: &str) -> Option<(ShardIndex, SessionKey)> {
    let mut parts = secret.split('-');
    let mut number = || u32::from_str_radix(parts.next()?, 16).ok();
    let (shard, index, generation) = (number()?, number()?, number()?);
    Some((ShardIndex(u16::try_from(shard).ok()?), SessionKey { index, generation }))
}
