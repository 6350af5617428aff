//! Subscriptions that the server makes: by the connection token, a backend, the user's own channel, the client's wish at
//! `connect`, or the API.

use std::sync::Arc;

use dunlin_protocol::{DataForm, Disconnect, ErrorCode, Push, Reply, SubscribeResult, UnsubscribeCode};

use crate::{
    Effects, Now, SessionKey,
    event::ServerSubscription,
    hub::LocalChannelId,
    message::{NotSubscribed, RecoverFrom},
    names::NamespaceIndex,
    session::{Ending, Held, Planned, Waiting},
};

use super::{Shard, refresh::ttl_s, subscribe::Terms};

impl Shard {
    /// Whether a subscription can be made at all. A room is joined by the client alone, which has to say what it joins
    /// with.
    pub(super) fn check_server_side(
        &self,
        now: Now,
        subscription: &ServerSubscription,
    ) -> Result<NamespaceIndex, ErrorCode> {
        let namespace = self.names.resolve(&subscription.channel)?;
        if self.namespace(namespace).room.is_some() {
            return Err(ErrorCode::NotAvailable);
        }
        match ttl_s(now, subscription.expires_at_s) {
            Ok(Some(0)) | Err(_) => Err(ErrorCode::Expired),
            Ok(_) => Ok(namespace),
        }
    }

    /// Sends a subscription, which [`Shard::check_server_side`] has let pass, to its channel's owner.
    pub(super) fn order_server_side(&mut self, now: Now, key: SessionKey, planned: Planned, effects: &mut Effects) {
        let Planned { subscription, from_token, recovers } = planned;
        let Ok(namespace) = self.names.resolve(&subscription.channel) else { return };
        let ttl_s = ttl_s(now, subscription.expires_at_s).unwrap_or(Some(0));
        let mut flags = self.subscription_flags(key, None, namespace, subscription.overrides);
        (flags.server_side, flags.from_token) = (true, from_token);
        let since = subscription.recover_since.filter(|_| flags.recoverable);
        let terms = Terms {
            channel: &subscription.channel,
            namespace,
            flags,
            info: subscription.info,
            data: subscription.data,
            // The client has no part in its expiry.
            ttl_s: None,
            expiry_us: self.subscription_expiry_us(now, namespace, ttl_s),
            was_recovering: recovers || since.is_some(),
            recover: since.map(|(offset, epoch)| RecoverFrom { offset, epoch, reject_unrecoverable: false }),
            filter: None,
            joins: None,
        };
        self.order(key, 0, terms, effects);
    }

    /// Subscribes a session by the API.
    pub(super) fn subscribe_by_api(
        &mut self,
        now: Now,
        key: SessionKey,
        subscription: &ServerSubscription,
        effects: &mut Effects,
    ) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let id = self.hub.find(&subscription.channel);
        if id.is_some_and(|id| session.subscription(id).is_some()) {
            // It stays as it is, whoever made it.
            return;
        }
        if session.subscriptions.len() >= self.options.client.channel_limit {
            return self.close(now, key, &Disconnect::CHANNEL_LIMIT, effects);
        }
        if let Some(Held { waiting: Waiting::Subscriptions(entrance), .. }) = session.held.as_deref_mut() {
            entrance.missing += 1;
        }
        let recovers = subscription.recover_since.is_some();
        let planned = Planned { subscription: subscription.clone(), from_token: false, recovers };
        self.order_server_side(now, key, planned, effects);
    }

    /// An owner has answered a subscription that the server made.
    pub(super) fn server_side_answered(
        &mut self,
        now: Now,
        key: SessionKey,
        id: LocalChannelId,
        outcome: Result<SubscribeResult, NotSubscribed>,
        ending: Option<Ending>,
        effects: &mut Effects,
    ) {
        let is_accepted = outcome.is_ok();
        let channel = is_accepted.then(|| Arc::clone(&self.hub.channel(id).name));
        if ending.is_some() && is_accepted {
            // Over before the client heard of it.
            self.drop_subscription(key, id, effects);
        }
        let session = self.sessions.at_mut(key.index);
        if let Some(Held { waiting: Waiting::Subscriptions(entrance), .. }) = session.held.as_deref_mut() {
            entrance.missing -= 1;
            match outcome {
                Ok(result) if ending.is_none() => {
                    entrance.result.subs.extend(channel.map(|channel| (Box::from(&*channel), result)));
                }
                Ok(_) => {}
                Err(refused) => {
                    entrance.refused.get_or_insert(refused.code());
                }
            }
            return self.enter_if_complete(now, key, effects);
        }
        match (outcome, ending) {
            (Ok(result), None) => {
                self.tell_subscribed(now, key, &channel.unwrap_or_default(), &result, effects);
            }
            (Err(_), None) => self.counters.server_subscriptions_refused += 1,
            (_, Some(Ending::Asked { command_id })) => self.reply(now, key, command_id, &Reply::Unsubscribe, effects),
            (_, Some(Ending::Forced(_))) => {}
        }
        if ending.is_some() {
            self.resume_after_ending(now, key, id, effects);
        }
    }

    /// Answers `connect` if no owner's answer is missing any more.
    fn enter_if_complete(&mut self, now: Now, key: SessionKey, effects: &mut Effects) {
        #[cfg(feature = "planted-bugs")]
        let waits_for_all = self.planted != Some(crate::planted::Bug::ConnectAnsweredEarly);
        #[cfg(not(feature = "planted-bugs"))]
        let waits_for_all = true;
        let is_complete = |held: &Held| matches!(&held.waiting, Waiting::Subscriptions(entrance) if entrance.missing == 0 || !waits_for_all);
        let session = self.sessions.at_mut(key.index);
        let Some(held) = session.held.take_if(|held| is_complete(held)) else { return };
        let Held { waiting, rest } = *held;
        let Waiting::Subscriptions(entrance) = waiting else { unreachable!("looked at above") };
        self.answer_connect(now, key, *entrance, effects);
        self.resume(now, key, rest, effects);
    }

    /// Tells the client of a subscription that it did not ask for. What it recovers comes as publications.
    fn tell_subscribed(
        &mut self,
        now: Now,
        key: SessionKey,
        channel: &str,
        result: &SubscribeResult,
        effects: &mut Effects,
    ) {
        self.push(now, key, &Push::Subscribe { channel, result }, effects);
        for publication in &result.publications {
            let (channel, data) = (channel.into(), DataForm::Plain);
            self.push(now, key, &Push::Publication { channel, publication, data, skipped: 0 }, effects);
        }
    }

    /// A channel's stream has gone under its subscribers. Those that count on their positions start anew.
    pub(super) fn position_lost(&mut self, now: Now, channel: &str, effects: &mut Effects) {
        let Some(id) = self.hub.find(channel) else {
            self.counters.late_messages += 1;
            return;
        };
        let entries = self.hub.channel(id).classes().flat_map(|(_, subscribers)| subscribers);
        let keys: Vec<SessionKey> = entries.map(|entry| self.sessions.at(entry.session).key).collect();
        for key in keys {
            let subscription = self.sessions.get(key).and_then(|session| session.subscription(id));
            match subscription.map(|subscription| subscription.flags).filter(|flags| flags.positioned) {
                Some(flags) if flags.server_side => self.close(now, key, &Disconnect::INSUFFICIENT_STATE, effects),
                Some(_) => self.end_subscription(now, key, id, UnsubscribeCode::INSUFFICIENT_STATE, effects),
                None => {}
            }
        }
    }
}
