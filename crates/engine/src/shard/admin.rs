//! The server API.

use std::sync::Arc;

use dunlin_protocol::{Disconnect, ErrorCode, Payload, Push, UnsubscribeCode};

use crate::{
    Effect, Effects, Now, SessionKey,
    api::{Answer, ApiAnswer, ApiRequest, HistoryQuery, SessionFilter, Survey},
    event::Ticket,
    hub::LocalChannelId,
    session::{Held, Phase, Session, Waiting},
    stream::Reader,
};

use super::{Shard, hash_of, publication::Draft, refresh::ttl_s};

/// Upper bounds, but for the last, of the classes of [`Survey::behind_sessions`], in microseconds.
const BEHIND_BOUNDS_US: [u64; 5] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000];

impl Shard {
    pub(super) fn answer_api(&mut self, now: Now, ticket: Ticket, request: ApiRequest, effects: &mut Effects) {
        let answer = self.carry_out_api(now, request, effects);
        effects.list.push(Effect::Answer { ticket, answer });
    }

    fn carry_out_api(&mut self, now: Now, request: ApiRequest, effects: &mut Effects) -> Answer {
        match request {
            ApiRequest::Publish { channel, data, how } => {
                let draft = Draft { data, info: None, how, audience: None };
                let (offset, epoch) = self.accept(now, &channel.into(), &draft, effects)?;
                Ok(ApiAnswer::Published { offset, epoch })
            }
            ApiRequest::Presence { channel } => {
                self.require(&channel, |options| options.presence)?;
                Ok(ApiAnswer::Presence(self.presence(&channel)))
            }
            ApiRequest::PresenceStats { channel } => {
                self.require(&channel, |options| options.presence)?;
                let (num_clients, num_users) = self.presence_stats(&channel);
                Ok(ApiAnswer::PresenceStats { num_clients, num_users })
            }
            ApiRequest::History { channel, query } => self.api_history(now, &channel.into(), &query),
            ApiRequest::HistoryRemove { channel } => {
                self.require(&channel, crate::options::NamespaceOptions::has_stream)?;
                if let Some(stream) = self.channels.get_mut(&*channel).and_then(|channel| channel.stream.as_mut()) {
                    stream.clear();
                    if stream.take_answers() {
                        self.answers.forget(&channel);
                    }
                }
                Ok(ApiAnswer::Done { sessions: 0 })
            }
            ApiRequest::Channels => Ok(ApiAnswer::Channels(self.subscribed_channels())),
            ApiRequest::Disconnect { user, only, whitelist, disconnect } => {
                let keys = self.sessions_of(&user, &only, &whitelist);
                Ok(self.disconnect_all(now, &keys, &disconnect, effects))
            }
            ApiRequest::Subscribe { user, only, subscription } => {
                self.check_server_side(now, &subscription)?;
                let keys = self.sessions_of(&user, &only, &[]);
                for key in &keys {
                    self.subscribe_by_api(now, *key, &subscription, effects);
                }
                Ok(ApiAnswer::Done { sessions: keys.len() as u32 })
            }
            ApiRequest::Refresh { user, only, expired, expires_at_s, info } => {
                let keys = self.sessions_of(&user, &only, &[]);
                for key in &keys {
                    self.refresh_by_api(now, *key, expired, expires_at_s, info.as_ref(), effects);
                }
                Ok(ApiAnswer::Done { sessions: keys.len() as u32 })
            }
            ApiRequest::Unsubscribe { channel, user, only, code } => {
                if !channel.is_empty() {
                    self.names.resolve(&channel)?;
                }
                let keys = self.sessions_of(&user, &only, &[]);
                Ok(self.unsubscribe_all(now, &keys, &channel, code, effects))
            }
            ApiRequest::OpenRoom { channel } => self.open_room_by_api(&channel.into(), effects),
            ApiRequest::CloseRoom { channel } => self.close_room_by_api(&channel.into(), effects),
            ApiRequest::Survey => Ok(ApiAnswer::Survey(Box::new(self.survey(now)))),
        }
    }

    fn require(
        &self,
        channel: &str,
        has: impl FnOnce(&crate::options::NamespaceOptions) -> bool,
    ) -> Result<(), ErrorCode> {
        let namespace = self.names.resolve(channel)?;
        if has(self.namespace(namespace)) { Ok(()) } else { Err(ErrorCode::NotAvailable) }
    }

    fn api_history(&mut self, now: Now, channel: &Arc<str>, query: &HistoryQuery) -> Answer {
        self.require(channel, crate::options::NamespaceOptions::has_stream)?;
        let part = self.history(now, channel, query, Reader::Server)?;
        Ok(ApiAnswer::History { publications: part.publications, epoch: part.epoch, offset: part.offset })
    }

    fn subscribed_channels(&self) -> Vec<(Arc<str>, u32)> {
        let subscribed = self.channels.values().filter(|channel| channel.subscribers() > 0);
        subscribed.map(|channel| (Arc::clone(&channel.name), channel.subscribers())).collect()
    }

    /// Authenticated sessions of `user` that `only` lets pass, but for the `spared` ones.
    fn sessions_of(&self, user: &str, only: &SessionFilter, spared: &[Box<str>]) -> Vec<SessionKey> {
        let Some(keys) = self.users.get(user) else { return Vec::new() };
        let passes = |key: &SessionKey| {
            let Some(session) = self.sessions.get(*key) else { return false };
            let Some(info) = &session.info else { return false };
            let secret = session.extra.as_ref().map_or("", |extra| &extra.secret);
            only.client.as_ref().is_none_or(|client| **client == *info.client)
                && only.session.as_ref().is_none_or(|wanted| !secret.is_empty() && **wanted == *secret)
                && !spared.iter().any(|spared| **spared == *info.client)
        };
        keys.iter().copied().filter(passes).collect()
    }

    /// Sets a session's expiry and tells its client.
    fn refresh_by_api(
        &mut self,
        now: Now,
        key: SessionKey,
        expired: bool,
        expires_at_s: Option<u64>,
        info: Option<&Payload>,
        effects: &mut Effects,
    ) {
        let ttl_s = ttl_s(now, expires_at_s);
        let (false, Ok(ttl_s)) = (expired || matches!(ttl_s, Ok(Some(0))), ttl_s) else {
            return self.close(now, key, &Disconnect::EXPIRED, effects);
        };
        let Some(session) = self.sessions.get_mut(key) else { return };
        if let (Some(of_session), Some(info)) = (&mut session.info, info) {
            Arc::make_mut(of_session).conn_info = Some(info.clone());
        }
        if let Some(Held { waiting: Waiting::Subscriptions(entrance), .. }) = session.held.as_deref_mut() {
            // The answer to `connect` says it.
            entrance.result.ttl_s = ttl_s.filter(|_| self.options.backend.refresh.is_none());
        } else {
            self.push(now, key, &Push::Refresh { ttl_s }, effects);
        }
        if self.sessions.get(key).is_some_and(Session::is_authenticated) {
            self.expire_after(now, key, ttl_s);
        }
    }

    fn disconnect_all(
        &mut self,
        now: Now,
        keys: &[SessionKey],
        disconnect: &Disconnect,
        effects: &mut Effects,
    ) -> ApiAnswer {
        for key in keys {
            self.close(now, *key, disconnect, effects);
        }
        ApiAnswer::Done { sessions: keys.len() as u32 }
    }

    fn unsubscribe_all(
        &mut self,
        now: Now,
        keys: &[SessionKey],
        channel: &str,
        code: UnsubscribeCode,
        effects: &mut Effects,
    ) -> ApiAnswer {
        let mut sessions = 0;
        for &key in keys {
            let Some(session) = self.sessions.get(key) else { continue };
            let going_on = session.subscriptions.iter().filter(|subscription| !subscription.is_ending());
            let of_channel: Vec<LocalChannelId> = going_on
                .map(|subscription| subscription.channel)
                .filter(|id| channel.is_empty() || *self.hub.channel(*id).name == *channel)
                .collect();
            sessions += u32::from(!of_channel.is_empty());
            for id in of_channel {
                self.end_subscription(now, key, id, code, effects);
            }
        }
        ApiAnswer::Done { sessions }
    }

    fn survey(&mut self, now: Now) -> Survey {
        let mut survey = Survey {
            sessions: self.sessions.iter().filter(|session| session.phase == Phase::Live).count() as u32,
            subscriptions: self.counters.namespaces.iter().map(|counters| counters.subscriptions).sum::<u64>() as u32,
            channels: self.channels.values().filter(|channel| channel.subscribers() > 0).count() as u32,
            seats: self.seats.holdings()[0] as u32,
            rooms: self.seats.holdings()[1] as u32,
            users: self.users.keys().map(|user| hash_of(&**user, self.node_seed)).collect(),
            ..Survey::default()
        };
        for outbox in self.sessions.outboxes() {
            survey.queued_bytes += outbox.queued_bytes() as u64;
            survey.queued_frames += outbox.queued_frames() as u64;
            let age_us = outbox.oldest_us().map_or(0, |oldest_us| now.mono_us.saturating_sub(oldest_us));
            survey.queue_age_ms_max = survey.queue_age_ms_max.max(age_us / 1_000);
            for (class, bound_us) in survey.behind_sessions.iter_mut().zip(BEHIND_BOUNDS_US) {
                *class += u32::from(age_us > bound_us);
            }
        }
        survey
    }
}
