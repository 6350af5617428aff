//! Refreshing a subscription.

use dunlin_protocol::{Disconnect, ErrorCode, Reply, SubRefreshRequest};

use crate::{
    Effects, Now, SessionKey,
    event::{SubscriptionClaims, TokenError},
    session::{Subscription, Waiting},
};

use super::{
    Shard,
    connect::{expiry_us, ttl_s},
    subscribe::with_chan_info,
};

impl Shard {
    pub(super) fn sub_refresh(
        &mut self,
        key: SessionKey,
        command_id: u32,
        request: &SubRefreshRequest<'_>,
        effects: &mut Effects,
    ) -> Result<Option<Reply>, Disconnect> {
        let channel = &*request.channel;
        if channel.is_empty() {
            return Err(Disconnect::BAD_REQUEST);
        }
        let session = self.sessions.at(key.index);
        let subscription = self.hub.find(channel).and_then(|id| session.subscription(id));
        if subscription.is_none_or(Subscription::is_ending) {
            return Ok(Some(Reply::Error(ErrorCode::PermissionDenied)));
        }
        if request.token.is_empty() || request.kind != 0 {
            return Ok(Some(Reply::Error(ErrorCode::BadRequest)));
        }
        let waiting = Waiting::SubRefresh { command_id, channel: channel.into() };
        self.wait_for_token(key, waiting, &request.token, effects);
        Ok(None)
    }

    pub(super) fn sub_refresh_with_token(
        &mut self,
        now: Now,
        key: SessionKey,
        channel: &str,
        outcome: Result<SubscriptionClaims, TokenError>,
    ) -> Result<Reply, Disconnect> {
        let claims = match outcome {
            Ok(claims) => claims,
            Err(TokenError::Expired) => return Ok(Reply::Error(ErrorCode::TokenExpired)),
            Err(TokenError::Invalid) => return Err(Disconnect::INVALID_TOKEN),
            Err(TokenError::Unavailable) => return Ok(Reply::Error(ErrorCode::Internal)),
        };
        self.check_claims(key, channel, &claims)?;
        let Ok(ttl_s) = ttl_s(now, claims.expires_at_s) else { return Ok(Reply::Error(ErrorCode::Expired)) };
        let expiry_us = expiry_us(now, ttl_s, self.options.client.expired_sub_close_delay_ms);
        let id = self.hub.find(channel);
        let session = self.sessions.at_mut(key.index);
        let of_session = session.info.clone();
        let Some(subscription) = id.and_then(|id| session.subscription_mut(id)) else {
            return Ok(Reply::Error(ErrorCode::PermissionDenied));
        };
        subscription.expiry_us = expiry_us;
        // Publications and the leave say it from now on; presence keeps what the subscription came with.
        let info = claims.info.zip(of_session).map(|(chan_info, of_session)| with_chan_info(&of_session, chan_info));
        if info.is_some() || subscription.extra.is_some() {
            subscription.extra.get_or_insert_default().info = info;
        }
        session.deadlines.subscriptions_us = session.deadlines.subscriptions_us.min(expiry_us);
        self.schedule_session(key);
        Ok(Reply::SubRefresh { ttl_s })
    }
}
