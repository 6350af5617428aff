//! The owner's side of broadcasts: sends other nodes what has no offset, delivers what they send, and follows channels
//! without a log.

use std::sync::Arc;

use dunlin_protocol::{ClientInfo, ErrorCode};

use crate::{
    Effect,
    backend::PublishHow,
    broadcast::BroadcastMessage,
    channel::{Following, OwnedChannel},
    frame::DeliveryBody,
    log_in_flight::{ParkedCost, ProposalParams},
    message::SubscriptionRequest,
    names::NamespaceIndex,
    planted::Bug,
};

use super::{Context, Owner};

impl Owner {
    /// Sends a join to the subscribers on all nodes.
    pub(super) fn announce_join(&mut self, context: &mut Context, name: &Arc<str>, info: Arc<ClientInfo>) {
        self.send_join_or_leave(context, name, DeliveryBody::Join(Arc::clone(&info)));
        if context.names.resolve(name).is_ok_and(|namespace| context.is_shared(namespace)) {
            context.broadcast(name, BroadcastMessage::Join(info));
        }
    }

    /// Sends a leave to the subscribers on all nodes.
    pub(super) fn announce_leave(&mut self, context: &mut Context, name: &Arc<str>, info: Arc<ClientInfo>) {
        self.send_join_or_leave(context, name, DeliveryBody::Leave(Arc::clone(&info)));
        if context.names.resolve(name).is_ok_and(|namespace| context.is_shared(namespace)) {
            context.broadcast(name, BroadcastMessage::Leave(info));
        }
    }

    /// Delivers a broadcast of another node.
    pub(in crate::shard) fn broadcast_received(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        message: BroadcastMessage,
    ) {
        let channel = self.channels.named(name).filter(|channel| context.is_shared(channel.namespace));
        let Some((name, namespace)) =
            context.counters.found_or_late(channel.map(|channel| (Arc::clone(&channel.name), channel.namespace)))
        else {
            return;
        };
        let is_publication = matches!(message, BroadcastMessage::Publication(_));
        if is_publication && context.planted.is(Bug::BroadcastRepeated) {
            context.broadcast(&name, message.clone());
        }
        match message {
            BroadcastMessage::Join(info) => self.send_join_or_leave(context, &name, DeliveryBody::Join(info)),
            BroadcastMessage::Leave(info) => {
                self.send_join_or_leave(context, &name, DeliveryBody::Leave(info));
            }
            // Only a log assigns offsets.
            BroadcastMessage::Publication(publication) if publication.offset > 0 => {
                context.counters.late_messages += 1;
            }
            BroadcastMessage::Publication(publication) => {
                let (how, accepted_us) = (PublishHow::default(), context.now.mono_us);
                let params = ProposalParams { how, audience: None, accepted_us, is_delivered: false };
                // With too many channels, a publication cannot be kept for new subscribers; this channel exists
                // already.
                let delivered = self.deliver_publication(context, &name, namespace, publication, &params, None);
                debug_assert!(delivered.is_ok(), "the channel is there");
                self.review(context, &name);
            }
        }
    }

    /// Whether the node is known to receive what other nodes send to a channel without a log. If not, requests it.
    ///
    /// # Errors
    /// 106 if the shard has no space for the channel.
    pub(super) fn is_following_confirmed(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        namespace: NamespaceIndex,
    ) -> Result<bool, ErrorCode> {
        if !context.is_shared(namespace) {
            return Ok(true);
        }
        let channel = self.owned(context, name, namespace)?;
        let is_confirmed = channel.following.is_confirmed();
        if matches!(channel.following, Following::Not) {
            channel.following = Following::Asked;
            self.log_traffic.requests.push(Effect::Follow { channel: Arc::clone(name) });
        }
        Ok(is_confirmed)
    }

    /// Parks a subscription until other nodes' messages to its channel arrive.
    pub(super) fn park_until_followed(&mut self, request: Box<SubscriptionRequest>) -> Result<(), ErrorCode> {
        let channel = self.channels.named_mut(&request.channel).ok_or(ErrorCode::Internal)?;
        if !matches!(channel.following, Following::Asked | Following::Awaited) {
            return Err(ErrorCode::Internal);
        }
        channel.following = Following::Awaited;
        self.log_traffic.parked.add(ParkedCost::of_subscription(&request));
        self.awaiting_peers.entry(Arc::clone(&channel.name)).or_default().push(request);
        Ok(())
    }

    /// Other nodes' messages to a channel arrive from now on: accepts the subscriptions that waited for them.
    pub(in crate::shard) fn channel_followed(&mut self, context: &mut Context, name: &Arc<str>) {
        let Some(channel) = self.channels.named_mut(name) else { return };
        if !matches!(channel.following, Following::Asked | Following::Awaited) {
            return;
        }
        let parked = self.awaiting_peers.remove(name).unwrap_or_default();
        channel.following = Following::Confirmed;
        if let Some(cache) = &mut channel.key_cache {
            cache.mark_followed(context.now.mono_us);
        }
        for request in parked {
            self.log_traffic.parked.remove(ParkedCost::of_subscription(&request));
            self.subscribe_when_ready(context, request);
        }
        self.review(context, name);
    }
}

impl OwnedChannel {
    /// Follows the channel, unless a log does, while it has subscribers or publications for new subscribers. Returns
    /// the effect, if the state changed.
    pub(super) fn review_following(&mut self, context: &Context) -> Option<Effect> {
        let is_needed = (self.subscribers() > 0 || self.key_cache.is_some())
            && context.is_shared(self.namespace)
            && !context.is_logged(self.namespace);
        let is_asked = !matches!(self.following, Following::Not);
        if is_needed == is_asked || self.following.has_parked() {
            return None;
        }
        self.following = if is_needed { Following::Asked } else { Following::Not };
        let (channel, only_user) = (Arc::clone(&self.name), self.used_by.only());
        Some(if is_needed { Effect::Follow { channel } } else { Effect::Unfollow { channel, only_user } })
    }
}

impl Context {
    /// Whether deliveries without an offset are broadcast to other nodes.
    pub(super) fn is_shared(&self, namespace: NamespaceIndex) -> bool {
        let options = self.namespace(namespace);
        options.is_clustered && options.room.is_none()
    }

    /// Sends a message to the other nodes that follow the channel.
    pub(super) fn broadcast(&mut self, name: &Arc<str>, message: BroadcastMessage) {
        self.effects.list.push(Effect::Broadcast { channel: Arc::clone(name), message });
    }
}
