//! What the server says unasked: pushes, and the subscriptions that it makes.

use std::collections::BTreeMap;

use crate::{
    checks::check_recovery,
    wire::{Expiry, Position, Push, Say, SubscribeResult},
};

use super::{
    Client, Hearing, Next, Order, Pending,
    hear::{check_ttl, grace_ms, pending},
};

impl Client {
    /// What `connect` says of the server's subscriptions: all of the token's are there, and nothing else but what an
    /// operator made meanwhile.
    pub(super) fn hear_server_side(
        &mut self,
        hearing: &mut Hearing<'_>,
        asked: &Pending,
        recovers: &[(String, Position)],
        results: &BTreeMap<String, SubscribeResult>,
    ) -> Result<(), String> {
        for channel in &self.server_side {
            let was_ended = || {
                let of_channel = |order: &&Order| order.channel.is_empty() || order.channel == *channel;
                hearing.ended.iter().filter(of_channel).any(|order| order.is_about(&self.profile.user, &self.id))
            };
            if !results.contains_key(channel) && !was_ended() {
                return Err(format!("connect is answered without {channel}, which the token subscribes to"));
            }
        }
        for (channel, result) in results {
            let of_token = self.server_side.contains(channel);
            let recover = recovers.iter().find(|(of, _)| of == channel).map(|(_, position)| position.clone());
            let api_count = match asked.api_counts.get(channel) {
                Some(count) if of_token => *count,
                _ => self.ordered_count(hearing, channel)?,
            };
            let asked = Pending { sent_us: asked.sent_us, api_count, ..pending(server_side(channel, recover)) };
            self.enter(hearing, channel, &asked, result)?;
        }
        Ok(())
    }

    /// The API's publications when an operator subscribed the client to `channel`, at the least.
    fn ordered_count(&self, hearing: &Hearing<'_>, channel: &str) -> Result<u64, String> {
        let orders = hearing.subscribed.iter().filter(|order| order.channel == channel);
        let about = orders.filter(|order| order.is_about(&self.profile.user, &self.id));
        about.map(|order| order.api_count).min().ok_or_else(|| format!("nobody subscribed the client to {channel}"))
    }

    fn enter(
        &mut self,
        hearing: &mut Hearing<'_>,
        channel: &str,
        asked: &Pending,
        result: &SubscribeResult,
    ) -> Result<(), String> {
        let limits = hearing.limits();
        let subscription =
            check_recovery(hearing.model, limits, asked, result, (self.profile.encoding, hearing.unix_ms))?;
        if result.expires || self.subscriptions.insert(channel.to_owned(), subscription).is_some() {
            return Err(format!("{channel}: the server subscribes once more, or for a time"));
        }
        Ok(())
    }

    /// An operator has set when the session expires.
    fn hear_refreshed(&mut self, hearing: &mut Hearing<'_>, told: &Expiry) -> Result<(), String> {
        hearing.model.count("told of another expiry");
        self.refreshes.1 += 1;
        let mut expiries = self.expiries_by_api.iter();
        if expiries.any(|expiry_s| check_ttl(hearing, *expiry_s, told.expires, told.ttl).is_ok()) {
            return Ok(());
        }
        Err(format!("{told:?}, and operators said {:?}", self.expiries_by_api))
    }

    /// The channel of a push: by its number where there is one and something was published, or somebody comes or leaves.
    fn channel_of(&self, push: &Push) -> Result<String, String> {
        let is_delivery = push.publication.is_some() || push.join.is_some() || push.leave.is_some();
        if push.refresh.is_some() {
            let is_bare = push.channel.is_empty() && push.id == 0 && !is_delivery;
            return is_bare.then(String::new).ok_or_else(|| format!("a refresh of a channel: {push:?}"));
        }
        if push.id == 0 {
            let numbered = self.subscriptions.get(&push.channel).is_some_and(|subscription| subscription.number > 0);
            if push.channel.is_empty() || is_delivery && numbered {
                return Err(format!("no number: {push:?}"));
            }
            return Ok(push.channel.clone());
        }
        let mut subscriptions = self.subscriptions.values();
        let found = subscriptions.find(|subscription| subscription.number == push.id);
        let found = found.filter(|_| is_delivery && push.channel.is_empty());
        found
            .map(|subscription| subscription.channel.clone())
            .ok_or_else(|| format!("a number without sense: {push:?}"))
    }

    pub(super) fn hear_push(&mut self, hearing: &mut Hearing<'_>, push: Push) -> Result<Option<Next>, String> {
        let channel = self.channel_of(&push)?;
        if push.id > 0 {
            hearing.model.count("number for a channel");
        }
        if push.publication.as_ref().is_some_and(|publication| publication.delta) {
            hearing.model.count("patch applied");
        }
        if let Some(told) = &push.refresh {
            return self.hear_refreshed(hearing, told).map(|()| None);
        }
        if let Some(result) = &push.subscribe {
            let api_count = self.ordered_count(hearing, &channel)?;
            let asked = Pending { api_count, ..pending(server_side(&channel, None)) };
            return self.enter(hearing, &channel, &asked, result).map(|()| None);
        }
        let Some(subscription) = self.subscriptions.get_mut(&channel) else {
            return Err(format!("a push for {channel} without a subscription"));
        };
        match (push.publication, push.join, push.leave, push.unsubscribe) {
            (Some(publication), None, None, None) if subscription.seat.is_some() => {
                subscription.of_room(&mut hearing.model.rooms.pages(), self.profile.encoding, &publication)?;
            }
            (Some(publication), None, None, None) => {
                let latest_s = [subscription.latest_expiry_s, self.latest_expiry_s].into_iter().flatten().min();
                // One that expires while its owner answers is ended by the next timer after the answer.
                let after_answer_ms = subscription.live_ms + crate::plan::LATE_WAKE_US / 1_000;
                let number = subscription.publication(hearing.model, &publication)?;
                let accepted_ms = hearing.model.published[number as usize].accepted_ms;
                let is_late = |at_s: u64| accepted_ms > after_answer_ms.max(at_s * 1_000 + grace_ms(hearing));
                if latest_s.is_some_and(is_late) {
                    return Err(format!("{channel}: a publication after the expiry, {latest_s:?}"));
                }
            }
            (None, Some(join), None, None) => subscription.who(&join.info.client, true)?,
            (None, None, Some(leave), None) => subscription.who(&leave.info.client, false)?,
            (None, None, None, Some(unsubscribe)) => {
                let code = unsubscribe.code;
                let expiry_s = subscription.expiry_s;
                let has_expired = expiry_s.is_some_and(|at_s| at_s * 1_000 + 300 <= hearing.unix_ms);
                let was_ended = hearing.ended.iter().any(|order| {
                    let of_channel = order.channel.is_empty() || order.channel == channel;
                    of_channel && order.is_about(&self.profile.user, &self.id) && u32::from(order.code) == code
                });
                let room = subscription.seat.as_ref().map(|seat| seat.room);
                let has_ended = room.is_some_and(|room| hearing.model.rooms.pages().ended_with(room, code));
                let is_lost = code == 2500 && subscription.positioned && hearing.lost.contains(&channel);
                let has_lapsed = hearing.lapsed.contains(&(self.id.clone(), channel.clone()));
                if !(was_ended || code == 2501 && (has_expired || has_lapsed) || has_ended || is_lost) {
                    return Err(format!("{channel}: unsubscribed with {code}, expiry {expiry_s:?}"));
                }
                self.forget(&channel);
                return Ok((code >= 2500).then_some(Next::Resubscribes(channel)));
            }
            other => return Err(format!("a push that is not one thing: {other:?}")),
        }
        Ok(None)
    }
}

/// What a client would have said to have the subscription.
fn server_side(channel: &str, recover: Option<Position>) -> Say {
    Say::Subscribe {
        channel: channel.to_owned(),
        token: String::new(),
        recover,
        positioned: false,
        recoverable: false,
        join_leave: false,
        reject_unrecoverable: false,
        delta: "",
        compact: false,
        filter: None,
        data: Vec::new(),
    }
}
