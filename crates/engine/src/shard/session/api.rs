//! Requests of the server API about users and their sessions.

use dunlin_protocol::{Disconnect, Payload, Push, UnsubscribeCode};

use crate::{
    SessionKey,
    api::{ApiAnswer, ApiRequest, ApiResult, SessionFilter, Survey},
    hub::LocalChannelId,
    session::{Paused, PausedOn, Phase, Session},
};

use super::{Context, Sessions, refresh::TimeToLive};
use crate::shard::hash_of;

/// Lower bounds of the classes of [`Survey::behind_sessions`], in microseconds.
const BEHIND_BOUNDS_US: [u64; 5] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000];

impl Sessions {
    /// Handles a request, and returns the answer.
    pub(in crate::shard) fn serve_api(&mut self, context: &mut Context, request: ApiRequest) -> ApiResult {
        match request {
            ApiRequest::Disconnect { user, only, whitelist, disconnect } => {
                let keys = self.sessions_of(&user, &only, &whitelist);
                Ok(self.disconnect_all(context, &keys, &disconnect))
            }
            ApiRequest::Subscribe { user, only, subscription } => {
                context.check_server_side(&subscription)?;
                let keys = self.sessions_of(&user, &only, &[]);
                for key in &keys {
                    self.subscribe_by_api(context, *key, &subscription);
                }
                Ok(ApiAnswer::Done { sessions: keys.len() as u32 })
            }
            ApiRequest::Refresh { user, only, expired, expires_at_ms, info } => {
                let keys = self.sessions_of(&user, &only, &[]);
                for key in &keys {
                    self.refresh_by_api(context, *key, expired, expires_at_ms, info.as_ref());
                }
                Ok(ApiAnswer::Done { sessions: keys.len() as u32 })
            }
            ApiRequest::Unsubscribe { channel, user, only, code } => {
                if !channel.is_empty() {
                    context.resolve(&channel)?;
                }
                let keys = self.sessions_of(&user, &only, &[]);
                Ok(self.unsubscribe_all(context, &keys, &channel, code))
            }
            request => unreachable!("{request:?} is about a channel"),
        }
    }

    pub(in crate::shard) fn survey(&mut self, context: &Context, survey: &mut Survey) {
        survey.sessions = self.table.iter().filter(|session| session.phase == Phase::Live).count() as u32;
        let namespaces = context.counters.namespaces.iter();
        survey.subscriptions = namespaces.map(|counters| counters.subscriptions).sum::<u64>() as u32;
        [survey.seats, survey.rooms] = self.seats.holdings().map(|count| count as u32);
        survey.users = self.users.ids().map(|user| hash_of(user, context.node_seed)).collect();
        for outbox in self.table.outboxes() {
            survey.queued_bytes += outbox.queued_bytes() as u64;
            survey.queued_frames += outbox.queued_frames() as u64;
            let age_us = outbox.oldest_us().map_or(0, |oldest_us| context.now.mono_us.saturating_sub(oldest_us));
            survey.queue_age_ms_max = survey.queue_age_ms_max.max(age_us / 1_000);
            for (class, bound_us) in survey.behind_sessions.iter_mut().zip(BEHIND_BOUNDS_US) {
                *class += u32::from(age_us > bound_us);
            }
        }
    }

    /// The authenticated sessions of `user` that match `only`, except the `spared` ones.
    fn sessions_of(&self, user: &str, only: &SessionFilter, spared: &[Box<str>]) -> Vec<SessionKey> {
        let passes = |key: &SessionKey| {
            let Some(session) = self.table.get(*key) else { return false };
            let Some(info) = &session.info else { return false };
            let secret = session.extra.as_ref().map_or("", |extra| &extra.secret);
            only.client.as_ref().is_none_or(|client| **client == *info.client)
                && only.session.as_ref().is_none_or(|wanted| !secret.is_empty() && **wanted == *secret)
                && !spared.iter().any(|spared| **spared == *info.client)
        };
        self.users.of(user).iter().copied().filter(passes).collect()
    }

    /// Sets a session's expiry and sends it to its client.
    fn refresh_by_api(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        expired: bool,
        expires_at_ms: Option<u64>,
        info: Option<&Payload>,
    ) {
        let (false, Ok(ttl)) = (expired, TimeToLive::until(expires_at_ms, context.now)) else {
            return self.close(context, key, &Disconnect::EXPIRED);
        };
        let ttl_s = ttl.map(TimeToLive::whole_s);
        let Some(session) = self.table.get_mut(key) else { return };
        if let Some(Paused { paused_on: PausedOn::Subscriptions(pending), .. }) = session.paused.as_deref_mut() {
            // The reply to `connect` contains it.
            pending.result.ttl_s = ttl_s.filter(|_| context.options.backend.refresh.is_none());
        } else {
            self.push(context, key, &Push::Refresh { ttl_s });
        }
        if self.table.get(key).is_some_and(Session::is_authenticated) {
            if let Some(info) = info {
                self.show_with(context, key, info);
            }
            self.expire_after(context, key, ttl);
        }
    }

    fn disconnect_all(&mut self, context: &mut Context, keys: &[SessionKey], disconnect: &Disconnect) -> ApiAnswer {
        for key in keys {
            self.close(context, *key, disconnect);
        }
        ApiAnswer::Done { sessions: keys.len() as u32 }
    }

    fn unsubscribe_all(
        &mut self,
        context: &mut Context,
        keys: &[SessionKey],
        channel: &str,
        code: UnsubscribeCode,
    ) -> ApiAnswer {
        let mut sessions = 0;
        for &key in keys {
            let Some(session) = self.table.get_mut(key) else { continue };
            let asked_for = session.paused.as_mut().and_then(|paused| paused.subscription_params());
            let asked_for = asked_for.filter(|params| channel.is_empty() || *params.channel == *channel);
            let is_asked_for = asked_for.map(|params| params.ended.get_or_insert(code)).is_some();
            let going_on = session.subscriptions.iter().filter(|subscription| !subscription.is_ending());
            let of_channel: Vec<LocalChannelId> = going_on
                .map(|subscription| subscription.channel)
                .filter(|id| channel.is_empty() || *self.hub.channel(*id).name == *channel)
                .collect();
            sessions += u32::from(is_asked_for || !of_channel.is_empty());
            for id in of_channel {
                self.end_subscription(context, key, id, code);
            }
        }
        ApiAnswer::Done { sessions }
    }
}
