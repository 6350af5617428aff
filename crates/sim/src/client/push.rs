//! Handles pushes and server-side subscriptions.

use std::collections::BTreeMap;

use crate::{
    checks::check_recovery,
    wire::{ClientCommand, ClientPosition, Expiry, PushBody, SubscribeBody, SubscribeCommand},
};

use super::{
    Client, Next, OperatorAction, Pending, ReceiveContext,
    receive::{check_ttl, grace_ms, pending},
};

impl Client {
    /// Checks the server-side subscriptions in a connect reply: all that the token requests, and otherwise only those
    /// that an operator made in the meantime.
    pub(super) fn on_server_side(
        &mut self,
        receiving: &mut ReceiveContext<'_>,
        request: &Pending,
        recovers: &[(String, ClientPosition)],
        results: &BTreeMap<String, SubscribeBody>,
    ) -> Result<(), String> {
        for channel in &self.server_side {
            let was_ended = || {
                let of_channel = |action: &&OperatorAction| action.channel.is_empty() || action.channel == *channel;
                receiving.ended.iter().filter(of_channel).any(|action| action.is_about(&self.profile.user, &self.id))
            };
            if !results.contains_key(channel) && !was_ended() {
                return Err(format!("the connect reply lacks {channel}, to which the token subscribes"));
            }
        }
        for (channel, result) in results {
            let of_token = self.server_side.contains(channel);
            let recover = recovers.iter().find(|(of, _)| of == channel).map(|(_, position)| position.clone());
            let api_count = match request.api_counts.get(channel) {
                Some(count) if of_token => *count,
                _ => self.ordered_count(receiving, channel)?,
            };
            let request = Pending { sent_us: request.sent_us, api_count, ..pending(server_side(channel, recover)) };
            self.add_subscription(receiving, channel, &request, result, recovers.len() == 1)?;
        }
        Ok(())
    }

    /// A lower bound for the number of API publications when an operator subscribed the client to `channel`.
    fn ordered_count(&self, receiving: &ReceiveContext<'_>, channel: &str) -> Result<u64, String> {
        let actions = receiving.subscribed.iter().filter(|action| action.channel == channel);
        let about = actions.filter(|action| action.is_about(&self.profile.user, &self.id));
        about
            .map(|action| action.api_count)
            .min()
            .ok_or_else(|| format!("no operator subscribed the client to {channel}"))
    }

    fn add_subscription(
        &mut self,
        receiving: &mut ReceiveContext<'_>,
        channel: &str,
        request: &Pending,
        result: &SubscribeBody,
        is_alone: bool,
    ) -> Result<(), String> {
        let mut limits = receiving.limits();
        if !is_alone {
            // Other recoveries, or queued messages, may use up the byte limit.
            limits.recovery_bytes_max = 0;
        }
        let subscription =
            check_recovery(receiving.model, limits, request, result, (self.profile.encoding, receiving.unix_ms))?;
        if result.expires || self.subscriptions.insert(channel.to_owned(), subscription).is_some() {
            return Err(format!("{channel}: the server subscribes the client again, or with an expiry"));
        }
        Ok(())
    }

    /// Checks a refresh push, which an operator caused.
    fn on_refreshed(&mut self, receiving: &mut ReceiveContext<'_>, expiry: &Expiry) -> Result<(), String> {
        receiving.model.count("refresh push");
        self.refreshes.1 += 1;
        let mut expiries = self.expiries_by_api.iter();
        if expiries.any(|expiry_s| check_ttl(receiving, *expiry_s, expiry.expires, expiry.ttl).is_ok()) {
            return Ok(());
        }
        Err(format!("{expiry:?}, but operators set {:?}", self.expiries_by_api))
    }

    /// The channel of a push. Publications, joins and leaves use the channel number if there is one.
    fn channel_of(&self, push: &PushBody) -> Result<String, String> {
        let is_delivery = push.publication.is_some() || push.join.is_some() || push.leave.is_some();
        if push.refresh.is_some() {
            let is_bare = push.channel.is_empty() && push.id == 0 && !is_delivery;
            return is_bare.then(String::new).ok_or_else(|| format!("a refresh push with a channel: {push:?}"));
        }
        if push.id == 0 {
            let numbered = self.subscriptions.get(&push.channel).is_some_and(|subscription| subscription.number > 0);
            if push.channel.is_empty() || is_delivery && numbered {
                return Err(format!("a push without a channel number: {push:?}"));
            }
            return Ok(push.channel.clone());
        }
        let mut subscriptions = self.subscriptions.values();
        let found = subscriptions.find(|subscription| subscription.number == push.id);
        let found = found.filter(|_| is_delivery && push.channel.is_empty());
        found
            .map(|subscription| subscription.channel.clone())
            .ok_or_else(|| format!("an unexpected channel number: {push:?}"))
    }

    pub(super) fn on_push(
        &mut self,
        receiving: &mut ReceiveContext<'_>,
        push: PushBody,
    ) -> Result<Option<Next>, String> {
        if let Some(disconnect) = &push.disconnect {
            if self.profile.wire.is_websocket() && !self.profile.wire.is_unidirectional() {
                return Err("a disconnect push in addition to a close frame".to_owned());
            }
            self.disconnect_code = Some(disconnect.code as u16);
            return Ok(None);
        }
        let channel = self.channel_of(&push)?;
        if push.id > 0 {
            receiving.model.count("channel number used");
        }
        if push.publication.as_ref().is_some_and(|publication| publication.delta) {
            receiving.model.count("delta applied");
        }
        if let Some(expiry) = &push.refresh {
            return self.on_refreshed(receiving, expiry).map(|()| None);
        }
        if let Some(result) = &push.subscribe {
            let api_count = self.ordered_count(receiving, &channel)?;
            let request = Pending { api_count, newest_follows_reply: true, ..pending(server_side(&channel, None)) };
            return self.add_subscription(receiving, &channel, &request, &result.into(), false).map(|()| None);
        }
        let Some(subscription) = self.subscriptions.get_mut(&channel) else {
            return Err(format!("a push for {channel} without a subscription"));
        };
        match (push.publication, push.join, push.leave, push.unsubscribe) {
            (Some(publication), None, None, None) if subscription.seat.is_some() => {
                let mut rooms = receiving.model.rooms.lock();
                subscription.room_publication(&mut rooms, self.profile.encoding, &publication)?;
            }
            (Some(publication), None, None, None) => {
                let latest_s = [subscription.latest_expiry_s, self.latest_expiry_s].into_iter().flatten().min();
                // A subscription that expires before the reply arrives is ended by the next timer after the reply.
                let after_answer_ms = subscription.live_ms + crate::plan::LATE_WAKE_US / 1_000;
                let number = subscription.publication(receiving.model, &publication)?;
                let accepted_ms = receiving.model.published[number as usize].accepted_ms;
                let is_late = |at_s: u64| accepted_ms > after_answer_ms.max(at_s * 1_000 + grace_ms(receiving));
                if latest_s.is_some_and(is_late) {
                    return Err(format!("{channel}: a publication after the expiry, {latest_s:?}"));
                }
            }
            (None, Some(join), None, None) => subscription.record_presence(&join.info.client, true)?,
            (None, None, Some(leave), None) => subscription.record_presence(&leave.info.client, false)?,
            (None, None, None, Some(unsubscribe)) => {
                let code = unsubscribe.code;
                let expiry_s = subscription.expiry_s;
                let has_expired = expiry_s.is_some_and(|at_s| at_s * 1_000 + 300 <= receiving.unix_ms);
                let was_ended = receiving.ended.iter().any(|action| {
                    let of_channel = action.channel.is_empty() || action.channel == channel;
                    of_channel && action.is_about(&self.profile.user, &self.id) && u32::from(action.code) == code
                });
                let seat = subscription.seat.as_ref();
                let has_ended = seat.is_some_and(|seat| seat.has_ended(receiving.model, code));
                let is_lost = code == 2500 && subscription.positioned && receiving.lost.contains(&channel);
                let was_expired_by_backend = receiving.expired_by_backend.contains(&(self.id.clone(), channel.clone()));
                if !(was_ended || code == 2501 && (has_expired || was_expired_by_backend) || has_ended || is_lost) {
                    return Err(format!("{channel}: unsubscribed with {code}, expiry {expiry_s:?}"));
                }
                self.forget(&channel);
                return Ok((code >= 2500).then_some(Next::Resubscribes(channel)));
            }
            other => return Err(format!("a push without exactly one kind: {other:?}")),
        }
        Ok(None)
    }
}

/// The subscribe command that corresponds to a server-side subscription.
fn server_side(channel: &str, recover: Option<ClientPosition>) -> ClientCommand {
    ClientCommand::Subscribe(SubscribeCommand { recover, ..SubscribeCommand::to(channel) }.into())
}
