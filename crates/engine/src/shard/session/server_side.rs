//! Server-side subscriptions: from the connection token, a backend, the personal channel, the client's request in
//! `connect`, or the API.

use std::sync::Arc;

use dunlin_protocol::{DataForm, Disconnect, ErrorCode, Push, Reply, SubscribeResult, UnsubscribeCode};

use crate::{
    SessionKey,
    event::ServerSubscription,
    hub::LocalChannelId,
    message::{NotSubscribed, RecoverFrom},
    names::NamespaceIndex,
    planted::Bug,
    session::{Ending, Paused, PausedOn, SubscriptionFlags},
};

use super::{
    Context, Sessions,
    refresh::{AlreadyExpired, TimeToLive},
    subscribe::NewSubscription,
};

impl Sessions {
    /// Sends a subscription that [`Sessions::check_server_side`] accepted to its channel's owner.
    pub(super) fn request_server_side(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        subscription: ServerSubscription,
    ) {
        let Ok(namespace) = context.names.resolve(&subscription.channel) else { return };
        let ttl = TimeToLive::until(subscription.grant.expires_at_ms, context.now).unwrap_or(Some(TimeToLive::OVER));
        let mut flags = self.subscription_flags(context, key, None, namespace, subscription.grant.overrides);
        (flags.server_side, flags.from_token) = (true, subscription.from_token);
        let was_recovering = subscription.recover_since.is_some();
        let since = subscription.recover_since.filter(|_| flags.recoverable);
        let new_subscription = NewSubscription {
            channel: &subscription.channel,
            namespace,
            flags,
            info: subscription.grant.info,
            data: subscription.grant.data,
            // The client is not involved in its expiry.
            ttl_s: None,
            expiry_us: context.subscription_expiry_us(namespace, ttl),
            was_recovering,
            recover: since.map(|(offset, epoch)| RecoverFrom { offset, epoch, reject_unrecoverable: false }),
            filter: None,
            joins: None,
        };
        self.send_subscription_request(context, key, 0, new_subscription);
    }

    /// Subscribes a session by the API.
    pub(super) fn subscribe_by_api(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        subscription: &ServerSubscription,
    ) {
        let Some(session) = self.table.get_mut(key) else { return };
        let id = self.hub.find(&subscription.channel);
        if id.is_some_and(|id| session.subscription(id).is_some()) {
            // An existing subscription stays as it is.
            return;
        }
        if session.subscriptions.len() >= context.options.client.channel_limit {
            return self.close(context, key, &Disconnect::CHANNEL_LIMIT);
        }
        let mut subscription = subscription.clone();
        if let Some(Paused { paused_on: PausedOn::Subscriptions(pending), .. }) = session.paused.as_deref_mut() {
            pending.missing += 1;
            let place = pending.positions.iter().position(|(channel, _)| *channel == subscription.channel);
            let position = place.map(|place| pending.positions.swap_remove(place).1);
            if let (Some(position), None) = (position, &subscription.recover_since) {
                subscription.recover_since = Some(position);
                self.take_late_recovery(context, key, &subscription);
            }
        }
        self.request_server_side(context, key, subscription);
    }

    /// The client has requested, in a `connect` that is not answered yet, the recovery of a subscription that the API
    /// makes now.
    fn take_late_recovery(&mut self, context: &mut Context, key: SessionKey, subscription: &ServerSubscription) {
        if self.take_recovery(context, subscription).is_err()
            && let Some(Paused { paused_on: PausedOn::Subscriptions(pending), .. }) =
                self.table.at_mut(key.index).paused.as_deref_mut()
        {
            pending.refused.get_or_insert(ErrorCode::TooManyRequests.into());
        }
    }

    /// An owner has answered a server-side subscription.
    pub(super) fn server_side_answered(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        id: LocalChannelId,
        mut outcome: Result<SubscribeResult, NotSubscribed>,
        ending: Option<Ending>,
    ) {
        let recovered_bytes = self.fit_recovery(context, key, &mut outcome);
        let is_accepted = outcome.is_ok();
        let channel = is_accepted.then(|| Arc::clone(&self.hub.channel(id).name));
        if ending.is_some() && is_accepted {
            // The subscription ended before the client was informed.
            self.drop_subscription(context, key, id);
        }
        let session = self.table.at_mut(key.index);
        if let Some(Paused { paused_on: PausedOn::Subscriptions(pending), .. }) = session.paused.as_deref_mut() {
            pending.missing -= 1;
            pending.recovered_bytes += recovered_bytes;
            let subs = &mut pending.result.subs;
            let mut again = None;
            match (outcome, channel) {
                (Ok(result), Some(channel)) if ending.is_none() => {
                    if subs.iter().any(|(name, _)| **name == *channel) {
                        again = Some((channel, result));
                    } else {
                        subs.push((Box::from(&*channel), result));
                    }
                }
                (Ok(_), _) => {}
                (Err(refused), _) => {
                    pending.refused.get_or_insert(refused.of_connect());
                }
            }
            if let Some((channel, result)) = again {
                // The API has ended the subscription in the reply and made another one. The push that ends the first
                // one is queued after the reply, so this push must follow it.
                self.send_subscribed(context, key, &channel, &result);
            }
            return self.enter_if_complete(context, key);
        }
        let is_ending = ending.is_some();
        match (outcome, ending) {
            (Ok(result), None) => {
                self.send_subscribed(context, key, &channel.unwrap_or_default(), &result);
            }
            (Err(_), None) => context.counters.server_subscriptions_refused += 1,
            (_, Some(Ending::Asked { command_id })) => {
                self.reply(context, key, command_id, &Reply::Unsubscribe);
            }
            (_, Some(Ending::Forced { .. })) => {}
        }
        if is_ending {
            self.recall_after_ending(key, id, &mut context.effects);
        }
    }

    /// Truncates the recovery of a server-side subscription if it does not fit next to the rest of the answer to
    /// `connect`, or next to the queued bytes. Returns the remaining bytes of the recovery.
    fn fit_recovery(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        outcome: &mut Result<SubscribeResult, NotSubscribed>,
    ) -> usize {
        let Ok(result) = outcome else { return 0 };
        let other_bytes = match self.table.at(key.index).paused.as_deref() {
            Some(Paused { paused_on: PausedOn::Subscriptions(pending), .. }) => pending.recovered_bytes,
            _ => self.table.outbox(key.index).queued_bytes(),
        };
        context.cut_recovery(result, other_bytes)
    }

    /// Answers `connect` if all owners have answered.
    fn enter_if_complete(&mut self, context: &mut Context, key: SessionKey) {
        let waits_for_all = !context.planted.is(Bug::ConnectAnsweredEarly);
        let is_complete = |paused: &Paused| matches!(&paused.paused_on, PausedOn::Subscriptions(pending) if pending.missing == 0 || !waits_for_all);
        let session = self.table.at_mut(key.index);
        let Some(paused) = session.paused.take_if(|paused| is_complete(paused)) else { return };
        let Paused { paused_on, unparsed } = *paused;
        let PausedOn::Subscriptions(pending) = paused_on else { unreachable!("looked at above") };
        self.answer_connect(context, key, *pending);
        self.resume(key, unparsed);
    }

    /// Sends the push of a server-side subscription to the client. Recovered publications follow as pushes.
    fn send_subscribed(&mut self, context: &mut Context, key: SessionKey, channel: &str, result: &SubscribeResult) {
        self.push(context, key, &Push::Subscribe { channel, result });
        for publication in &result.publications {
            let (channel, data) = (channel.into(), DataForm::Plain);
            self.push(context, key, &Push::Publication { channel, publication, data, skipped: 0 });
        }
    }

    /// Ends the subscriptions to a channel that cannot continue, so that their clients resubscribe.
    pub(in crate::shard) fn end_stale(
        &mut self,
        context: &mut Context,
        channel: &str,
        is_stale: fn(&SubscriptionFlags) -> bool,
    ) {
        let Some(id) = context.counters.found_or_late(self.hub.find(channel)) else { return };
        let entries = self.hub.channel(id).classes().flat_map(|(_, subscribers)| subscribers);
        let keys: Vec<SessionKey> = entries.map(|entry| self.table.at(entry.session).key).collect();
        for key in keys {
            let subscription = self.table.get(key).and_then(|session| session.subscription(id));
            match subscription.map(|subscription| subscription.flags).filter(is_stale) {
                Some(flags) if flags.server_side => {
                    self.close(context, key, &Disconnect::INSUFFICIENT_STATE);
                }
                Some(_) => self.end_subscription(context, key, id, UnsubscribeCode::INSUFFICIENT_STATE),
                None => {}
            }
        }
    }
}
impl Context {
    /// Whether a server-side subscription is possible. Rooms have none, because the client has to send the data of the
    /// join.
    pub(super) fn check_server_side(&self, subscription: &ServerSubscription) -> Result<NamespaceIndex, ErrorCode> {
        let namespace = self.names.resolve(&subscription.channel)?;
        if self.namespace(namespace).room.is_some() {
            return Err(ErrorCode::NotAvailable);
        }
        match TimeToLive::until(subscription.grant.expires_at_ms, self.now) {
            Ok(_) => Ok(namespace),
            Err(AlreadyExpired) => Err(ErrorCode::Expired),
        }
    }
}
