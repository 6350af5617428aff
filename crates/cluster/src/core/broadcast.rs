//! Broadcasts: messages without an offset are sent over core NATS, from one node to all others that follow the channel.
//! A broadcast is sent once, and lost if a connection is down.
//!
//! A followed channel has its own subscription, or shares a wildcard subscription with all channels of its namespace. A
//! channel keeps its kind of subscription while it is followed, because a change could lose or duplicate messages.
//!
//! A server that was paused delivers what it held back when it continues, behind newer messages that its clients have
//! sent over another server. So each broadcast has a number of its node, and a channel drops what is older than the
//! newest one that it has received from the same node.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use bytes::Bytes;
use dunlin_engine::{Event, ShardIndex, broadcast::BroadcastMessage};

use crate::{
    link::{LinkEffect, MessageHeaders},
    names::{BroadcastNames, decode_token, fnv1a},
    record,
};

use super::{Context, CoreEffect, CoreOptions, Timer, lingering::Lingering, publish::HEADER_BYTES};

/// A namespace whose channels are shared between nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BroadcastNamespace {
    /// The namespace's name; empty for channels outside all namespaces.
    pub name: Box<str>,
    /// Broadcasts are rare, so one wildcard subscription serves all its channels from the start.
    pub is_wide: bool,
}

/// Why a broadcast was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BroadcastDrop {
    /// The connection was down.
    Disconnected,
    /// The broadcast is larger than the servers accept, or the channel's name is too long.
    TooLarge,
    /// The broadcast arrived from NATS and was not sent by Dunlin.
    Malformed,
    /// The queue of the thread was full.
    QueueFull,
    /// It arrived behind a newer broadcast of the same node to the same channel.
    Late,
}

impl BroadcastDrop {
    /// Every variant.
    pub const ALL: [Self; 5] = [Self::Disconnected, Self::TooLarge, Self::Malformed, Self::QueueFull, Self::Late];

    /// The name used in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Disconnected => "disconnected",
            Self::TooLarge => "too_large",
            Self::Malformed => "malformed",
            Self::QueueFull => "queue_full",
            Self::Late => "late",
        }
    }
}

/// The channels whose broadcasts are received.
#[derive(Debug)]
pub(super) struct Broadcasts {
    /// By the number of the namespace.
    namespaces: Vec<Option<SharedNamespace>>,
    by_subject_prefix: BTreeMap<Box<str>, u16>,
    channels: BTreeMap<Arc<str>, BroadcastChannel>,
    pub(super) lingering: Lingering,
}

#[derive(Debug)]
struct SharedNamespace {
    names: BroadcastNames,
    is_always_wide: bool,
    /// The number of channels that use the wildcard subscription. It exists while this is above 0.
    wide_channels: usize,
    /// The next request number when the wildcard subscription was made.
    wide_number: u64,
    is_wide_confirmed: bool,
    /// The number of channels with their own subscriptions.
    narrow_channels: usize,
}

#[derive(Debug)]
struct BroadcastChannel {
    shard: ShardIndex,
    namespace: u16,
    /// Whether the wildcard subscription serves the channel.
    is_wide: bool,
    is_followed: bool,
    /// The next request number when the channel was subscribed to.
    number: u64,
    /// Whether the servers of all nodes know the subscription.
    is_confirmed: bool,
    lingers_until_us: u64,
    received: ReceivedNumbers,
}

/// The newest broadcast of each node that a channel has received. The nodes that sent the newest ones are last.
#[derive(Debug, Default)]
struct ReceivedNumbers(VecDeque<NewestOfNode>);

#[derive(Debug)]
struct NewestOfNode {
    /// The hash of the node's id, which is random.
    node_hash: u64,
    number: u64,
}

impl ReceivedNumbers {
    /// Records a broadcast. Returns whether it is newer than all others of its node. At most `nodes_max` nodes are kept.
    fn take(&mut self, node: &str, number: u64, nodes_max: usize) -> bool {
        let node_hash = fnv1a(node.bytes());
        // A channel mostly receives from the node that sent last.
        if let Some(place) = self.0.iter().rposition(|known| known.node_hash == node_hash) {
            if number <= self.0[place].number {
                return false;
            }
            self.0.remove(place);
        } else if self.0.len() >= nodes_max {
            self.0.pop_front();
        }
        self.0.push_back(NewestOfNode { node_hash, number });
        true
    }
}

impl Broadcasts {
    pub(super) fn new(options: &CoreOptions) -> Self {
        let namespaces: Vec<Option<SharedNamespace>> = options
            .broadcasts
            .iter()
            .map(|namespace| {
                namespace.as_ref().map(|namespace| SharedNamespace {
                    names: BroadcastNames::new(&options.prefix, &namespace.name),
                    is_always_wide: namespace.is_wide,
                    wide_channels: 0,
                    wide_number: 0,
                    is_wide_confirmed: false,
                    narrow_channels: 0,
                })
            })
            .collect();
        let numbered = (0_u16..).zip(&namespaces);
        let prefixes = numbered
            .filter_map(|(number, namespace)| Some((namespace.as_ref()?.names.subject_prefix().into(), number)));
        Self {
            by_subject_prefix: prefixes.collect(),
            namespaces,
            channels: BTreeMap::new(),
            lingering: Lingering::default(),
        }
    }

    pub(super) fn channel_count(&self) -> usize {
        self.channels.len()
    }

    /// Whether a server of another node may not know a channel's subscription.
    pub(super) fn is_unconfirmed(&self, name: &str) -> bool {
        self.channels.get(name).is_some_and(|channel| !channel.is_confirmed)
    }

    /// The servers of all nodes know the subscriptions made before `number`.
    pub(super) fn confirm(&mut self, name: &str, number: u64) {
        let Some(channel) = self.channels.get_mut(name) else { return };
        let (namespace, is_wide) = (channel.namespace, channel.is_wide);
        channel.is_confirmed |= channel.number < number;
        if let Some(namespace) = self.namespace_mut(namespace).filter(|_| is_wide) {
            namespace.is_wide_confirmed |= namespace.wide_number < number;
        }
    }

    fn namespace_mut(&mut self, number: u16) -> Option<&mut SharedNamespace> {
        self.namespaces.get_mut(usize::from(number))?.as_mut()
    }
}

impl SharedNamespace {
    /// Subscribes to one more channel. Returns whether the wildcard subscription serves it; `None` if the channel's
    /// name is too long for a subject.
    fn subscribe(&mut self, context: &mut Context, name: &str, wide_channels_min: usize, number: u64) -> Option<bool> {
        let subject = self.names.subject(name)?;
        let is_wide = self.is_always_wide || self.wide_channels > 0 || self.narrow_channels + 1 >= wide_channels_min;
        if is_wide {
            self.wide_channels += 1;
            if self.wide_channels == 1 {
                (self.wide_number, self.is_wide_confirmed) = (number, false);
                context.link(LinkEffect::Subscribe { subject: self.names.all_subjects() });
            }
        } else {
            self.narrow_channels += 1;
            context.link(LinkEffect::Subscribe { subject });
        }
        Some(is_wide)
    }

    fn unsubscribe(&mut self, context: &mut Context, name: &str, is_wide: bool) {
        if is_wide {
            self.wide_channels -= 1;
            if self.wide_channels == 0 {
                context.link(LinkEffect::Unsubscribe { subject: self.names.all_subjects() });
            }
        } else {
            self.narrow_channels -= 1;
            if let Some(subject) = self.names.subject(name) {
                context.link(LinkEffect::Unsubscribe { subject });
            }
        }
    }
}

impl Broadcasts {
    pub(super) fn follow(&mut self, context: &mut Context, shard: ShardIndex, name: &Arc<str>, number: u16) {
        if let Some(channel) = self.channels.get_mut(name) {
            channel.shard = shard;
            channel.is_followed = true;
            let lingered_until_us = std::mem::replace(&mut channel.lingers_until_us, u64::MAX);
            self.end_lingering(context, lingered_until_us, name);
        } else {
            self.subscribe(context, shard, name, number);
        }
    }

    fn subscribe(&mut self, context: &mut Context, shard: ShardIndex, name: &Arc<str>, namespace: u16) {
        let number = context.next_number();
        let wide_channels_min = context.options.limits.wide_channels_min;
        let Some(of_nodes) = self.namespace_mut(namespace) else { return };
        let Some(is_wide) = of_nodes.subscribe(context, name, wide_channels_min, number) else { return };
        let is_confirmed = is_wide && of_nodes.is_wide_confirmed;
        let (is_followed, lingers_until_us) = (true, u64::MAX);
        let channel = BroadcastChannel {
            shard,
            namespace,
            is_wide,
            is_followed,
            number,
            is_confirmed,
            lingers_until_us,
            received: ReceivedNumbers::default(),
        };
        self.channels.insert(Arc::clone(name), channel);
    }

    pub(super) fn unfollow(&mut self, context: &mut Context, name: &Arc<str>, only_user: u64) {
        let due_us = context.now.after_ms(context.options.limits.linger_ms);
        let Some(channel) = self.channels.get_mut(name) else { return };
        channel.is_followed = false;
        let lingered_until_us = std::mem::replace(&mut channel.lingers_until_us, due_us);
        self.end_lingering(context, lingered_until_us, name);
        self.lingering.insert(due_us, Arc::clone(name), only_user);
        context.set_timer(due_us, Timer::BroadcastLinger(Arc::clone(name)));
        self.bound_lingering(context, only_user);
    }

    pub(super) fn linger_over(&mut self, context: &mut Context, name: &Arc<str>) {
        let is_over =
            |channel: &BroadcastChannel| !channel.is_followed && channel.lingers_until_us <= context.now.mono_us;
        if self.channels.get(name).is_some_and(is_over) {
            self.end(context, name);
        }
    }

    /// Receives the broadcasts of a channel no longer.
    pub(super) fn end(&mut self, context: &mut Context, name: &Arc<str>) {
        let channel = context.strays.expected(self.channels.remove(name), "a channel that lingers is subscribed to");
        let Some(channel) = channel else { return };
        self.end_lingering(context, channel.lingers_until_us, name);
        if let Some(namespace) = self.namespace_mut(channel.namespace) {
            namespace.unsubscribe(context, name, channel.is_wide);
        }
    }

    pub(super) fn broadcast(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        namespace: u16,
        message: &BroadcastMessage,
    ) {
        let Some(namespace) = self.namespace_mut(namespace) else { return };
        let subject = namespace.names.subject(name);
        if !context.links.publish {
            return context.count_dropped(BroadcastDrop::Disconnected);
        }
        let (mut headers, payload) = record::encode_broadcast(message);
        headers.push(record::NODE, context.options.node.clone());
        headers.push(record::NUMBER, (context.counters.broadcasts_sent + 1).to_string());
        let bytes = headers.bytes() + payload.len() + HEADER_BYTES;
        let Some(subject) = subject.filter(|_| bytes <= context.payload_bytes_max) else {
            return context.count_dropped(BroadcastDrop::TooLarge);
        };
        context.counters.broadcasts_sent += 1;
        context.publish(subject, headers, payload);
    }

    /// Handles a broadcast of another node. Returns whether the subject is one of broadcasts.
    pub(super) fn arrived(
        &mut self,
        context: &mut Context,
        subject: &str,
        headers: &MessageHeaders,
        payload: &Bytes,
        is_by_wildcard: bool,
    ) -> bool {
        // A token contains no dot.
        let Some((prefix, token)) = subject.rsplit_once('.') else { return false };
        if !self.by_subject_prefix.contains_key(prefix) {
            return false;
        }
        let Some(name) = decode_token(token) else {
            context.count_dropped(BroadcastDrop::Malformed);
            return true;
        };
        let followed = context.strays.found_or_late(self.channels.get_key_value(&*name));
        let Some((name, channel)) = followed else { return true };
        if !channel.is_followed || channel.is_wide != is_by_wildcard {
            return true;
        }
        let (name, shard) = (Arc::clone(name), channel.shard);
        let sender = headers.get(record::NODE);
        // The servers send a node its own publications.
        if sender == Some(&*context.options.node) {
            return true;
        }
        match sender.and_then(|_| record::decode_broadcast(headers, payload)) {
            Some(_) if self.is_late(context, &name, headers) => context.count_dropped(BroadcastDrop::Late),
            Some(message) => {
                context.counters.broadcasts_received += 1;
                let event = Event::BroadcastReceived { channel: name, message };
                context.effects.push(CoreEffect::ToShard { shard, event });
            }
            None => context.count_dropped(BroadcastDrop::Malformed),
        }
        true
    }

    /// Whether a newer broadcast of the same node has arrived before. Earlier versions send no numbers.
    fn is_late(&mut self, context: &mut Context, name: &Arc<str>, headers: &MessageHeaders) -> bool {
        let nodes_max = context.options.limits.peers.nodes_max;
        let (Some(node), Some(number)) = (headers.get(record::NODE), headers.number(record::NUMBER)) else {
            return false;
        };
        let channel = self.channels.get_mut(name);
        channel.is_some_and(|channel| !channel.received.take(node, number, nodes_max))
    }

    fn end_lingering(&mut self, context: &mut Context, due_us: u64, name: &Arc<str>) {
        if self.lingering.remove(due_us, name) {
            context.timers.remove(&(due_us, Timer::BroadcastLinger(Arc::clone(name))));
        }
    }

    /// Ends the channels that have lingered for longest beyond the limit and the share of a user.
    fn bound_lingering(&mut self, context: &mut Context, user: u64) {
        while let Some(name) = self.lingering.excess(context.options.limits.lingering_max, user) {
            self.end(context, &name);
        }
    }
}

#[cfg(test)]
mod tests;
