//! Opens and authenticates sessions.

use core::net::IpAddr;
use std::sync::Arc;

use dunlin_protocol::{
    ClientInfo, ConnectRequest, ConnectResult, Disconnect, ErrorCode, Push, Reply, ShapeLimits, decode_connect,
};
use rand_chacha::rand_core::RngCore;

use crate::{
    SessionKey, SourceKey, Wire,
    backend::{ConnectResponse, ProxyRequestKind, ProxyResponse, ProxyResult},
    event::{ConnectionClaims, ServerSubscription, TokenError},
    frame::{FrameRef, build_frame, encode_push_on, reply_frame},
    planted::Bug,
    record::SessionIncident,
    room::Departure,
    session::{
        ConnectGrant, ConnectParams, Paused, PausedOn, PendingConnect, Phase, ProxiedCommand, RefusedConnect, Session,
        SessionExtra,
    },
};

use super::{Context, Sessions, refresh::TimeToLive};

/// The default disconnects that replace errors on unidirectional transports.
const UNIDIRECTIONAL_DISCONNECTS: [(ErrorCode, Disconnect); 4] = [
    (ErrorCode::Expired, Disconnect::EXPIRED),
    (ErrorCode::TokenExpired, Disconnect::EXPIRED),
    (ErrorCode::TooManyRequests, Disconnect::TOO_MANY_REQUESTS),
    (ErrorCode::PermissionDenied, Disconnect::PERMISSION_DENIED),
];

impl Sessions {
    pub(in crate::shard) fn open(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        wire: Wire,
        from: (Option<SourceKey>, Option<IpAddr>),
    ) {
        context.counters.sessions_opened += 1;
        let end_us = context.now.after_ms(context.options.client.stale_close_delay_ms);
        self.table.insert(Session::new(key, wire, from, end_us));
        self.schedule_session(context, key);
        if self.drain.admits_none {
            self.close(context, key, &Disconnect::SHUTDOWN);
        }
    }

    /// Handles the connect request on a unidirectional transport. Further data on it is ignored.
    pub(super) fn receive_connect(&mut self, context: &mut Context, key: SessionKey, bytes: &[u8]) {
        let Some(session) = self.table.get(key) else { return };
        if session.phase != Phase::Fresh || session.paused.is_some() {
            return;
        }
        let outcome = if let Ok(request) = decode_connect(bytes, context.shape_limits()) {
            self.connect(context, key, 0, &request)
        } else {
            context.note_refusal_reason(
                "a connect request that cannot be decoded, or that is deeper or wider than allowed",
            );
            context.counters.malformed_frames += 1;
            Err(Disconnect::BAD_REQUEST)
        };
        if let Err(disconnect) = outcome {
            self.close(context, key, &disconnect);
        }
    }

    /// Runs `connect`: authenticates by the token, else by the backend, else as the anonymous user.
    pub(super) fn connect(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        command_id: u32,
        request: &ConnectRequest<'_>,
    ) -> Result<(), Disconnect> {
        let is_fresh = self.table.get(key).is_some_and(|session| session.phase == Phase::Fresh);
        if !is_fresh {
            return Err(Disconnect::BAD_REQUEST);
        }
        // Before any token check, so that a connect storm is stopped here.
        if !self.rates.connects.try_take(context.now.mono_us) {
            context.counters.connects_refused += 1;
            context.note_refusal_reason("more connects in a second than client.connect_rate_limit");
            self.refuse_connect(context, key, command_id, ErrorCode::TooManyRequests.into());
            return Ok(());
        }
        let position = |offset: u64, epoch: &str| (offset, Box::from(epoch));
        let subs = request.subs.iter().filter(|(channel, _)| !channel.is_empty());
        let subs =
            subs.map(|(channel, sub)| (Box::from(&**channel), sub.recover.then(|| position(sub.offset, &sub.epoch))));
        let mut params = ConnectParams { client: None, subs: subs.collect() };
        if !request.token.is_empty() {
            let paused_on = PausedOn::Connect { command_id, params: Box::new(params) };
            self.wait_for_token(key, paused_on, &request.token, &mut context.effects);
            return Ok(());
        }
        if let Some(proxy) = context.options.backend.connect {
            params.client = Some(context.new_client_id());
            let kind = ProxyRequestKind::Connect {
                data: request.data.and_then(|data| self.payload(key, data)),
                name: (&*request.name).into(),
                version: (&*request.version).into(),
                channels: params.subs.iter().map(|(channel, _)| channel.clone()).collect(),
            };
            self.send_proxy_request(
                key,
                command_id,
                proxy,
                kind,
                ProxiedCommand::Connect(params),
                &mut context.effects,
            );
            return Ok(());
        }
        let client = &context.options.client;
        if !client.allow_anonymous_connect_without_token && !client.insecure {
            context.note_refusal_reason("no token, and client.allow_anonymous_connect_without_token is off");
            return Err(Disconnect::BAD_REQUEST);
        }
        let grant = self.grant(context, command_id, None, ConnectionClaims::default());
        self.admit_session(context, key, grant, &params, true);
        Ok(())
    }

    /// A connection token of `connect` or `refresh` was verified.
    pub(in crate::shard) fn token_verified(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        outcome: Result<ConnectionClaims, TokenError>,
    ) {
        let waits = |paused_on: &PausedOn| matches!(paused_on, PausedOn::Connect { .. } | PausedOn::Refresh { .. });
        let paused =
            self.table.get_mut(key).and_then(|session| session.paused.take_if(|paused| waits(&paused.paused_on)));
        let Some(paused) = paused else { return };
        let Paused { paused_on, unparsed } = *paused;
        match paused_on {
            PausedOn::Connect { command_id, params } => {
                self.connect_with_token(context, key, command_id, &params, outcome);
            }
            PausedOn::Refresh { command_id } => {
                let answer = self.refresh_with_token(context, key, outcome).map(Some);
                self.note_command_if_refused(context, key, &answer, "refresh", None);
                match answer {
                    Ok(Some(reply)) => self.reply(context, key, command_id, &reply),
                    Ok(None) => {}
                    Err(disconnect) => self.close(context, key, &disconnect),
                }
            }
            _ => unreachable!("looked at above"),
        }
        self.resume(key, unparsed);
    }

    /// The token of a `connect` was verified.
    pub(super) fn connect_with_token(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        command_id: u32,
        params: &ConnectParams,
        outcome: Result<ConnectionClaims, TokenError>,
    ) {
        let refused = match outcome {
            Ok(claims) if claims.user.is_empty() && context.options.client.disallow_anonymous_connection_tokens => {
                Disconnect::PERMISSION_DENIED.into()
            }
            Ok(mut claims) => {
                if context.options.client.insecure {
                    claims.expires_at_ms = None;
                }
                let mut grant = self.grant(context, command_id, None, claims);
                grant.subscriptions.iter_mut().for_each(|planned| planned.from_token = true);
                return self.admit_session(context, key, grant, params, true);
            }
            Err(TokenError::Expired) => ErrorCode::TokenExpired.into(),
            Err(TokenError::Invalid) => Disconnect::INVALID_TOKEN.into(),
            Err(TokenError::Unavailable) => ErrorCode::Internal.into(),
        };
        self.refuse_connect(context, key, command_id, refused);
    }

    /// The backend has responded to a `connect`.
    pub(super) fn connect_by_backend(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        command_id: u32,
        params: &ConnectParams,
        outcome: ProxyResult,
    ) {
        let answer = match outcome {
            Ok(ProxyResponse::Connect(answer)) => *answer,
            Ok(_) => return self.refuse_connect(context, key, command_id, ErrorCode::Internal.into()),
            Err(refusal) => return self.refuse_connect(context, key, command_id, refusal.into()),
        };
        let ConnectResponse { user, expires_at_ms, info, data, meta, subscriptions } = answer;
        let claims = ConnectionClaims { user, info, expires_at_ms, meta, subscriptions };
        let mut grant = self.grant(context, command_id, params.client.clone(), claims);
        grant.data = data;
        self.admit_session(context, key, grant, params, false);
    }

    fn grant(
        &self,
        context: &Context,
        command_id: u32,
        client: Option<Arc<str>>,
        claims: ConnectionClaims,
    ) -> ConnectGrant {
        let ConnectionClaims { user, info, expires_at_ms, meta, subscriptions } = claims;
        let mut grant = ConnectGrant {
            command_id,
            client,
            user: self.users.intern(user),
            info,
            data: None,
            meta,
            expires_at_ms,
            subscriptions: Vec::with_capacity(subscriptions.len().min(context.options.client.channel_limit)),
            positions: Vec::new(),
        };
        // Each is compared with all previous ones. One past the limit is enough to refuse the session.
        for subscription in subscriptions {
            if grant.subscriptions.len() > context.options.client.channel_limit {
                break;
            }
            grant.plan(subscription);
        }
        grant
    }

    /// Admits an authenticated session, or refuses it with a reason.
    fn admit_session(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        mut grant: ConnectGrant,
        params: &ConnectParams,
        may_choose: bool,
    ) {
        let plan = context.complete_plan(&mut grant, params, may_choose);
        match plan.and_then(|()| self.take_recoveries(context, &grant)) {
            Err(refused) => self.refuse_connect(context, key, grant.command_id, refused),
            Ok(()) if context.counts_sessions_of(&grant.user) => self.request_admission(context, key, grant),
            Ok(()) => self.let_in(context, key, grant),
        }
    }

    /// Takes tokens for the session's recoveries from this shard's rate limit.
    fn take_recoveries(&mut self, context: &mut Context, grant: &ConnectGrant) -> Result<(), RefusedConnect> {
        grant.subscriptions.iter().try_for_each(|planned| self.take_recovery(context, planned))
    }

    /// Takes a token for the recovery of a server-side subscription from this shard's rate limit.
    pub(super) fn take_recovery(
        &mut self,
        context: &mut Context,
        subscription: &ServerSubscription,
    ) -> Result<(), RefusedConnect> {
        if subscription.recover_since.is_none() {
            return Ok(());
        }
        let forced = subscription.grant.overrides.force_recovery;
        let namespace = context.names.resolve(&subscription.channel)?;
        let recovers = forced.unwrap_or(context.namespace(namespace).force_recovery);
        if recovers && !self.rates.recoveries.try_take(context.now.mono_us) {
            context.counters.recoveries_refused += 1;
            return Err(ErrorCode::TooManyRequests.into());
        }
        Ok(())
    }

    /// Adds the session to its user and requests its subscriptions. `connect` is answered when the owners have
    /// answered.
    pub(super) fn let_in(&mut self, context: &mut Context, key: SessionKey, grant: ConnectGrant) {
        let ttl = TimeToLive::until(grant.expires_at_ms, context.now).unwrap_or(Some(TimeToLive::OVER));
        let client = grant.client.unwrap_or_else(|| context.new_client_id());
        let info = ClientInfo { user: grant.user, client: Arc::clone(&client), conn_info: grant.info, chan_info: None };
        let user_place = self.users.add(&info.user, key);
        let expiry_us = context.session_expiry_us(ttl);
        let options = Arc::clone(&context.options);
        let wire = self.table.at(key.index).wire;
        let secret = if wire.has_secret_id() { context.new_secret(key) } else { Box::default() };
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
            time_ms: if options.client.connect_include_server_time { context.now.unix_ms.cast_signed() } else { 0 },
        };
        let session = self.table.at_mut(key.index);
        session.info = Some(Arc::new(info));
        session.user_place = user_place;
        session.phase = Phase::Connecting;
        session.deadlines.end_us = u64::MAX;
        session.deadlines.expiry_us = expiry_us;
        if !secret.is_empty() || grant.meta.is_some() {
            session.extra = Some(Box::new(SessionExtra { secret, meta: grant.meta, refresh: None }));
        }
        self.schedule_session(context, key);
        let missing = grant.subscriptions.len();
        let ConnectGrant { command_id, subscriptions, positions, .. } = grant;
        let pending = PendingConnect { command_id, result, missing, refused: None, recovered_bytes: 0, positions };
        if missing == 0 {
            return self.answer_connect(context, key, pending);
        }
        self.pause(key, PausedOn::Subscriptions(Box::new(pending)), &mut context.effects);
        self.table.outbox(key.index).cork();
        for planned in subscriptions {
            self.request_server_side(context, key, planned);
        }
    }

    /// All owners have answered.
    pub(super) fn answer_connect(&mut self, context: &mut Context, key: SessionKey, pending: PendingConnect) {
        if let Some(code) = pending.refused {
            self.leave_everything(context, key, Departure::Left);
            let outbox = self.table.outbox(key.index);
            if let Some(before_cork) = outbox.uncork() {
                outbox.discard_latest_and_behind(before_cork);
            }
            return self.refuse_connect(context, key, pending.command_id, code.into());
        }
        let first_ping_us = context.first_ping_us();
        self.record(context, key, SessionIncident::Connected);
        let session = self.table.at_mut(key.index);
        session.phase = Phase::Live;
        session.deadlines.ping_us = first_ping_us;
        let wire = session.wire;
        self.schedule_session(context, key);
        let result = pending.result;
        let frame = if wire.is_unidirectional() {
            let push = Push::Connect { result: &result };
            let frame = build_frame(wire, &mut context.scratch, |out| encode_push_on(wire, &push, out));
            frame.map(|bytes| FrameRef::own(bytes, context.now.mono_us))
        } else {
            let reply = Reply::Connect(Box::new(result));
            reply_frame(wire, pending.command_id, &reply, &mut context.scratch, context.now.mono_us)
        };
        let Ok(frame) = frame else {
            return self.close(context, key, &Disconnect::INAPPROPRIATE_PROTOCOL);
        };
        let outbox = self.table.outbox(key.index);
        if context.planted.is(Bug::CorkedIsListedTwice) && outbox.is_corked() && outbox.is_writable() {
            context.effects.dirty.push(key);
        }
        // Publications that arrived during the wait are queued already, and have to follow this frame.
        outbox.push_next(frame);
        outbox.uncork();
        outbox.list(key.index, &mut context.effects);
    }

    /// Answers `connect` with an error, after which no command is accepted, or closes the session.
    pub(super) fn refuse_connect(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        command_id: u32,
        refused: RefusedConnect,
    ) {
        self.note_command(context, key, "connect", None);
        let Some(session) = self.table.get_mut(key) else { return };
        session.phase = Phase::Refused;
        let is_unidirectional = session.wire.is_unidirectional();
        let reply = match refused {
            RefusedConnect::Disconnect(disconnect) => return self.close(context, key, &disconnect),
            RefusedConnect::Error(code) => Reply::Error(code),
            RefusedConnect::Own { code, message, temporary } => Reply::Refused { code, message, temporary },
        };
        if is_unidirectional {
            let disconnect = context.unidirectional_disconnect(&reply);
            return self.close(context, key, &disconnect);
        }
        self.reply(context, key, command_id, &reply);
    }
}
impl Context {
    /// Limits on the nesting depth and the width of a client's message.
    pub(in crate::shard) fn shape_limits(&self) -> ShapeLimits {
        let client = &self.options.client;
        ShapeLimits { json_depth_max: client.json_depth_max, object_keys_max: client.object_keys_max }
    }

    /// The disconnect that replaces an error of `connect` on transports without a reply.
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

    /// The first ping comes at a random time in the second half of the interval, so that sessions that connected at the
    /// same time are not pinged at the same time.
    fn first_ping_us(&mut self) -> u64 {
        let half_us = self.options.client.ping_interval_ms.saturating_mul(1_000) / 2;
        if half_us == 0 {
            return u64::MAX;
        }
        self.now.mono_us.saturating_add(half_us + self.random.next_u64() % half_us)
    }
}
