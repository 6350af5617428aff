//! Ends subscriptions.

use std::sync::Arc;

use dunlin_protocol::{Push, Reply, UnsubscribeCode};

use crate::{
    SessionKey,
    hub::LocalChannelId,
    message::{ShardRequest, Subscriber},
    record::{RecordLevel, SessionIncident},
    refused::RefusedCommand,
    room::{Departure, LeftSeat},
    session::{Ending, Session, Subscription},
    shard::NamespaceChange,
};

use super::{
    Context, Sessions,
    commands::{CommandOutcome, NO_CHANNEL},
};

impl Sessions {
    pub(super) fn unsubscribe(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        command_id: u32,
        channel: &str,
    ) -> CommandOutcome {
        if channel.is_empty() {
            return Err(RefusedCommand::bad_request(NO_CHANNEL));
        }
        let Some(id) = self.hub.find(channel) else { return Ok(Some(Reply::Unsubscribe)) };
        let Some(subscription) = self.table.at_mut(key.index).subscription_mut(id) else {
            return Ok(Some(Reply::Unsubscribe));
        };
        if subscription.is_ending() {
            return Ok(Some(Reply::Unsubscribe));
        }
        if subscription.place.is_none() {
            // The unsubscribe command is answered after the subscribe command, which the owner has not answered yet.
            subscription.extra.get_or_insert_default().ending = Some(Ending::Asked { command_id });
            return Ok(None);
        }
        self.drop_subscription(context, key, id);
        Ok(Some(Reply::Unsubscribe))
    }

    /// Ends a subscription and informs the client. Does nothing if the session no longer has it: the push about an
    /// earlier one may have closed the session.
    pub(super) fn end_subscription(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        id: LocalChannelId,
        code: UnsubscribeCode,
    ) {
        self.end_subscription_with(context, key, id, code, code.reason());
    }

    /// As [`Sessions::end_subscription`], with another reason.
    pub(super) fn end_subscription_with(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        id: LocalChannelId,
        code: UnsubscribeCode,
        reason: &str,
    ) {
        let session = self.table.get_mut(key);
        let Some(subscription) = session.and_then(|session| session.subscription_mut(id)) else { return };
        if subscription.place.is_none() {
            // The owner has not answered yet. If the client has unsubscribed already, that takes precedence.
            subscription
                .extra
                .get_or_insert_default()
                .ending
                .get_or_insert_with(|| Ending::Forced { code, reason: reason.into() });
            return;
        }
        let channel = Arc::clone(&self.hub.channel(id).name);
        self.drop_subscription(context, key, id);
        if context.records(RecordLevel::Sessions) {
            let what = SessionIncident::Unsubscribed { channel: Arc::clone(&channel), code: code.0 };
            self.record(context, key, what);
        }
        let push = Push::Unsubscribe { channel: &channel, code, reason };
        self.push(context, key, &push);
    }

    /// Ends a subscription: removes it from the session, from the hub and from its owner.
    pub(super) fn drop_subscription(&mut self, context: &mut Context, key: SessionKey, id: LocalChannelId) {
        let session = self.table.at_mut(key.index);
        let Some(subscription) = session.remove_subscription(id) else { return };
        self.table.outbox(key.index).discard_latest(id);
        self.detach(context, key, &subscription, Departure::Left);
    }

    /// Removes a subscription, which its session no longer lists, from the hub and from its owner. A pending one is
    /// handled when the owner answers.
    pub(super) fn detach(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        subscription: &Subscription,
        departure: Departure,
    ) {
        let id = subscription.channel;
        if let Some(place) = subscription.place {
            let session = self.table.at(key.index);
            let subscriber = Self::subscriber(session, subscription);
            let seat = subscription.seat();
            let room = seat.and_then(|seat| self.room_of(context, seat));
            let left = room.map(|(room, seat)| LeftSeat { room, seat, departure });
            if let Some(moved) = self.hub.remove(id, subscriber.class, place) {
                let moved = self.table.at_mut(moved.session).subscription_mut(id);
                moved.expect("the index and the sessions agree").place = Some(place);
            }
            let channel = self.hub.channel(id);
            let (name, namespace) = (Arc::clone(&channel.name), channel.namespace);
            context.count(namespace).subscriptions -= 1;
            context.leave_owner(name, subscriber, left);
            if let Some(seat) = seat {
                self.free_seat(context, seat);
            }
        } else if let Some(seat) = subscription.seat() {
            let departure = if subscription.is_ending() { Departure::Left } else { departure };
            self.seats.at_mut(seat).departure = Some(departure);
        }
        self.release(subscription);
    }

    /// Releases a subscription's channel and filter in the hub.
    pub(super) fn release(&mut self, subscription: &Subscription) {
        if let Some(filter) = subscription.filter {
            self.hub.release_filter(subscription.channel, filter);
        }
        self.hub.release(subscription.channel);
    }

    fn subscriber(session: &Session, subscription: &Subscription) -> Subscriber {
        let info = session.info.as_ref().filter(|_| subscription.flags.needs_client_info());
        Subscriber {
            class: session.class(subscription.flags),
            join_leave: subscription.flags.join_leave,
            info: info.map(|info| Arc::clone(subscription.info(info))),
            presence: subscription.flags.presence,
            announced: subscription.flags.announced,
        }
    }

    /// Ends subscriptions whose channels became unknown, or whose positions became invalid.
    pub(in crate::shard) fn end_subscriptions_of(&mut self, context: &mut Context, changes: &[NamespaceChange]) {
        let mut ended: Vec<(SessionKey, LocalChannelId, UnsubscribeCode)> = Vec::new();
        for session in self.table.iter() {
            for subscription in &session.subscriptions {
                let namespace = self.hub.channel(subscription.channel).namespace;
                let code = match changes.get(usize::from(namespace.0)) {
                    Some(NamespaceChange::Retired) => UnsubscribeCode::SERVER,
                    // A client cannot resubscribe where it did not subscribe itself: such a subscription continues
                    // without a position.
                    Some(NamespaceChange::StreamGone)
                        if subscription.flags.positioned && !subscription.flags.server_side =>
                    {
                        UnsubscribeCode::INSUFFICIENT_STATE
                    }
                    _ => continue,
                };
                ended.push((session.key, subscription.channel, code));
            }
        }
        for (key, id, code) in ended {
            self.end_subscription(context, key, id, code);
        }
    }
}
impl Context {
    pub(super) fn leave_owner(&mut self, channel: Arc<str>, subscriber: Subscriber, seat: Option<LeftSeat>) {
        let owner = self.owner(&channel);
        let request = ShardRequest::Unsubscribe { channel, shard: self.identity.index, subscriber, seat };
        self.request(owner, request);
    }
}
