//! Opening, authenticating and refreshing a session.

use std::sync::Arc;

use dunlin_protocol::{ClientInfo, ConnectRequest, ConnectResult, Disconnect, ErrorCode, RefreshResult, Reply};
use rand_chacha::rand_core::RngCore;

use crate::{
    Effects, Now, SessionKey, Wire,
    event::{ConnectionClaims, TokenError},
    session::{Phase, Session, Waiting},
};

use super::Shard;

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

    pub(super) fn connect(
        &mut self,
        now: Now,
        key: SessionKey,
        command_id: u32,
        request: &ConnectRequest<'_>,
        effects: &mut Effects,
    ) -> Result<Option<Reply>, Disconnect> {
        let is_fresh = self.sessions.get(key).is_some_and(|session| session.phase == Phase::Fresh);
        if !is_fresh {
            return Err(Disconnect::BAD_REQUEST);
        }
        // Before anybody is asked about a token: what a storm would overrun is behind here.
        if !self.connects.takes(now.mono_us) {
            self.counters.connects_refused += 1;
            return Ok(Some(self.refuse(key, ErrorCode::TooManyRequests)));
        }
        if !request.token.is_empty() {
            self.wait_for_token(key, Waiting::Connect { command_id }, &request.token, effects);
            return Ok(None);
        }
        let client = &self.options.client;
        if !client.allow_anonymous_connect_without_token && !client.insecure {
            return Err(Disconnect::BAD_REQUEST);
        }
        Ok(Some(self.admit(now, key, ConnectionClaims::default())))
    }

    /// A connection token was verified, for `connect` or for `refresh`.
    pub(super) fn token_verified(
        &mut self,
        now: Now,
        key: SessionKey,
        outcome: Result<ConnectionClaims, TokenError>,
        effects: &mut Effects,
    ) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let Some(held) = session.held.take() else { return };
        let (command_id, answer) = match held.waiting {
            Waiting::Connect { command_id } => (command_id, self.connect_with_token(now, key, outcome)),
            Waiting::Refresh { command_id } => (command_id, self.refresh_with_token(now, key, outcome)),
            Waiting::Subscribe { .. } | Waiting::SubRefresh { .. } | Waiting::Ending { .. } => {
                unreachable!("these do not wait for a connection token")
            }
        };
        match answer {
            Ok(reply) => self.reply(now, key, command_id, &reply, effects),
            Err(disconnect) => self.close(now, key, &disconnect, effects),
        }
        self.resume(now, key, &held, effects);
    }

    fn connect_with_token(
        &mut self,
        now: Now,
        key: SessionKey,
        outcome: Result<ConnectionClaims, TokenError>,
    ) -> Result<Reply, Disconnect> {
        match outcome {
            Ok(claims) if claims.user.is_empty() && self.options.client.disallow_anonymous_connection_tokens => {
                Err(Disconnect::PERMISSION_DENIED)
            }
            Ok(mut claims) => {
                if self.options.client.insecure {
                    claims.expires_at_s = None;
                }
                Ok(self.admit(now, key, claims))
            }
            Err(TokenError::Expired) => Ok(self.refuse(key, ErrorCode::TokenExpired)),
            Err(TokenError::Invalid) => Err(Disconnect::INVALID_TOKEN),
            Err(TokenError::Unavailable) => Ok(self.refuse(key, ErrorCode::Internal)),
        }
    }

    /// Answers `connect` with an error, after which the session is good for nothing.
    fn refuse(&mut self, key: SessionKey, code: ErrorCode) -> Reply {
        if let Some(session) = self.sessions.get_mut(key) {
            session.phase = Phase::Refused;
        }
        Reply::Error(code)
    }

    /// Makes the session a live one of its user.
    fn admit(&mut self, now: Now, key: SessionKey, claims: ConnectionClaims) -> Reply {
        let Ok(ttl_s) = ttl_s(now, claims.expires_at_s) else { return self.refuse(key, ErrorCode::Expired) };
        let client = self.new_client_id();
        let user = self.intern_user(claims.user);
        let info = ClientInfo { user, client: Arc::clone(&client), conn_info: claims.info, chan_info: None };
        let options = Arc::clone(&self.options);
        let first_ping_us = self.first_ping_us(now);
        let user_place = self.add_to_user(&info.user, key);
        let session = self.sessions.at_mut(key.index);
        session.info = Some(Arc::new(info));
        session.user_place = user_place;
        session.phase = Phase::Live;
        session.deadlines.end_us = u64::MAX;
        session.deadlines.ping_us = first_ping_us;
        session.deadlines.expiry_us = expiry_us(now, ttl_s, options.client.expired_close_delay_ms);
        self.schedule_session(key);
        Reply::Connect(Box::new(ConnectResult {
            client,
            version: options.version,
            ttl_s,
            data: None,
            subs: Vec::new(),
            ping_s: (options.client.ping_interval_ms / 1_000) as u32,
            pong: options.client.ping_interval_ms > 0 && options.client.pong_timeout_ms > 0,
            time_ms: if options.client.connect_include_server_time { now.unix_ms.cast_signed() } else { 0 },
        }))
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

    /// The one copy of a user's id on this shard.
    fn intern_user(&self, user: String) -> Arc<str> {
        match self.users.get_key_value(user.as_str()) {
            Some((known, _)) => Arc::clone(known),
            None => user.into(),
        }
    }

    fn add_to_user(&mut self, user: &Arc<str>, key: SessionKey) -> u32 {
        // Most users have one session.
        let sessions = self.users.entry(Arc::clone(user)).or_insert_with(|| Vec::with_capacity(1));
        sessions.push(key);
        (sessions.len() - 1) as u32
    }

    /// Takes the session out of its user's list.
    pub(super) fn remove_from_user(&mut self, user: &Arc<str>, place: u32) {
        let sessions = self.users.get_mut(user).expect("a live session's user has a list");
        sessions.swap_remove(place as usize);
        if let Some(moved) = sessions.get(place as usize) {
            self.sessions.at_mut(moved.index).user_place = place;
        } else if sessions.is_empty() {
            self.users.remove(user);
        }
    }

    pub(super) fn refresh(
        &mut self,
        key: SessionKey,
        command_id: u32,
        token: &str,
        effects: &mut Effects,
    ) -> Result<(), Disconnect> {
        if token.is_empty() {
            return Err(Disconnect::BAD_REQUEST);
        }
        self.wait_for_token(key, Waiting::Refresh { command_id }, token, effects);
        Ok(())
    }

    fn refresh_with_token(
        &mut self,
        now: Now,
        key: SessionKey,
        outcome: Result<ConnectionClaims, TokenError>,
    ) -> Result<Reply, Disconnect> {
        let claims = match outcome {
            Ok(claims) => claims,
            Err(TokenError::Expired) => return Err(Disconnect::EXPIRED),
            Err(TokenError::Invalid) => return Err(Disconnect::INVALID_TOKEN),
            Err(TokenError::Unavailable) => return Ok(Reply::Error(ErrorCode::Internal)),
        };
        let Some(session) = self.sessions.get_mut(key) else { return Err(Disconnect::BAD_REQUEST) };
        let Some(info) = &mut session.info else { return Err(Disconnect::BAD_REQUEST) };
        if *info.user != *claims.user {
            return Err(Disconnect::INVALID_TOKEN);
        }
        let ttl_s = match ttl_s(now, claims.expires_at_s) {
            Ok(Some(0)) | Err(AlreadyExpired) => return Ok(Reply::Error(ErrorCode::Expired)),
            Ok(ttl_s) => ttl_s,
        };
        if claims.info.is_some() {
            Arc::make_mut(info).conn_info = claims.info;
        }
        session.deadlines.expiry_us = expiry_us(now, ttl_s, self.options.client.expired_close_delay_ms);
        self.schedule_session(key);
        // The session's id and the version stay as `connect` told them, and are not told again.
        Ok(Reply::Refresh(RefreshResult { client: Arc::default(), version: "", ttl_s }))
    }
}

/// The moment lies in the past.
pub(super) struct AlreadyExpired;

/// The longest time to live that counts, as in Centrifugo: a year.
const TTL_MAX_S: u64 = 365 * 24 * 60 * 60;

/// Seconds until `expires_at_s`, at most [`TTL_MAX_S`].
pub(super) fn ttl_s(now: Now, expires_at_s: Option<u64>) -> Result<Option<u32>, AlreadyExpired> {
    let Some(expires_at_s) = expires_at_s else { return Ok(None) };
    let ttl_s = expires_at_s.checked_sub(now.unix_ms / 1_000).ok_or(AlreadyExpired)?;
    Ok(Some(ttl_s.min(TTL_MAX_S) as u32))
}

/// When something that lives for `ttl_s` is over, with a grace.
pub(super) fn expiry_us(now: Now, ttl_s: Option<u32>, grace_ms: u64) -> u64 {
    match ttl_s {
        Some(ttl_s) => now.after_ms(grace_ms.saturating_add(u64::from(ttl_s) * 1_000)),
        None => u64::MAX,
    }
}
