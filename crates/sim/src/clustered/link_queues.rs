//! The connections of one node to the servers. Each has an ordered queue in each direction. What is queued is lost when
//! the connection goes down.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dunlin_cluster::link::{LinkEffect, LinkEvent, LinkName, PublishFault, ReadFault};

#[derive(Default)]
pub struct LinkQueues {
    /// When each connection may come up again.
    up_at_us: [u64; 3],
    is_up: [bool; 3],
    /// When each connection came up.
    came_up_us: [u64; 3],
    partitioned: [bool; 3],
    /// Subjects to which the node subscribed.
    subscriptions: BTreeSet<Box<str>>,
    /// Subjects for which the subscription reached the servers.
    pub interest: BTreeSet<Box<str>>,
    /// For subjects that no stream stores: when the subscription reaches the server of each node.
    known_from_us: BTreeMap<Box<str>, Vec<u64>>,
    /// When the last subscription reaches the server of each node.
    spread_us: Vec<u64>,
    to_servers: [VecDeque<(u64, LinkEffect)>; 3],
    to_node: [VecDeque<(u64, LinkEvent)>; 3],
    /// Messages that a paused server holds back. They leave it behind later ones, on the same connection.
    late: Vec<(u64, LinkEvent)>,
    reach: Reach,
}

/// Whether the messages of a node reach the other nodes.
#[derive(Clone, Copy, Default)]
enum Reach {
    #[default]
    Reaches,
    /// Its server was partitioned from the other servers, and the connection has not come up since.
    Silent,
    /// It came up then. The other nodes learn of the node again when they hear of it.
    BackSince(u64),
}

/// After that, the other nodes have heard of a node that was silent, and publications that they began before have ended.
const HEARD_AFTER_US: u64 = 2_000_000;

/// The connection on which an effect is sent.
pub fn link_of(effect: &LinkEffect) -> LinkName {
    match effect {
        LinkEffect::Subscribe { .. } | LinkEffect::Unsubscribe { .. } => LinkName::Live,
        LinkEffect::Publish { link, .. } => *link,
        LinkEffect::Purge { .. } => LinkName::Publish,
        _ => LinkName::Read,
    }
}

/// The event for an effect whose reply never arrives.
pub fn timeout_of(effect: &LinkEffect) -> Option<LinkEvent> {
    Some(match disconnected_reply(effect)? {
        LinkEvent::Acknowledged { request, .. } => {
            LinkEvent::Acknowledged { request, outcome: Err(PublishFault::TimedOut) }
        }
        LinkEvent::Answered { request, .. } => LinkEvent::Answered { request, outcome: Err(ReadFault::TimedOut) },
        LinkEvent::StreamInfo { request, .. } => LinkEvent::StreamInfo { request, outcome: Err(ReadFault::TimedOut) },
        other => other,
    })
}

/// The event for an effect whose connection is down.
fn disconnected_reply(effect: &LinkEffect) -> Option<LinkEvent> {
    match effect {
        LinkEffect::Subscribe { .. }
        | LinkEffect::Unsubscribe { .. }
        | LinkEffect::Reconnect { .. }
        | LinkEffect::Purge { .. } => None,
        LinkEffect::Publish { request, .. } => {
            let request = (*request)?;
            Some(LinkEvent::Acknowledged { request, outcome: Err(PublishFault::Disconnected) })
        }
        LinkEffect::LastOf { request, .. }
        | LinkEffect::Range { request, .. }
        | LinkEffect::Sequences { request, .. }
        | LinkEffect::FirstSince { request, .. } => {
            Some(LinkEvent::Answered { request: *request, outcome: Err(ReadFault::Disconnected) })
        }
        LinkEffect::Describe { request, .. } | LinkEffect::Create { request, .. } => {
            Some(LinkEvent::StreamInfo { request: *request, outcome: Err(ReadFault::Disconnected) })
        }
    }
}

/// The event that replaces one whose connection went down before it arrived.
fn disconnected_instead(event: &LinkEvent) -> Option<LinkEvent> {
    match event {
        LinkEvent::Acknowledged { request, .. } => {
            Some(LinkEvent::Acknowledged { request: *request, outcome: Err(PublishFault::Disconnected) })
        }
        LinkEvent::Answered { request, .. } => {
            Some(LinkEvent::Answered { request: *request, outcome: Err(ReadFault::Disconnected) })
        }
        LinkEvent::StreamInfo { request, .. } => {
            Some(LinkEvent::StreamInfo { request: *request, outcome: Err(ReadFault::Disconnected) })
        }
        _ => None,
    }
}

impl LinkQueues {
    /// Partitions the server of a connection from the other servers until the node reconnects.
    pub fn partition(&mut self, link: LinkName) {
        self.partitioned[link as usize] = self.is_up[link as usize];
        if link == LinkName::Publish && self.is_up[link as usize] {
            self.reach = Reach::Silent;
        }
    }

    /// Whether another node may not know of this one, because its messages do not reach others, or have not for long.
    pub fn may_be_unknown(&self, now_us: u64) -> bool {
        match self.reach {
            Reach::Reaches => false,
            Reach::Silent => true,
            Reach::BackSince(since_us) => now_us < since_us + HEARD_AFTER_US,
        }
    }

    /// Whether the server of a connection is partitioned.
    pub fn is_partitioned(&self, link: LinkName) -> bool {
        self.partitioned[link as usize]
    }

    /// Since when messages to and from other nodes are delivered, or `None` if they are not.
    pub fn delivers_since_us(&self) -> Option<u64> {
        let used = [LinkName::Live as usize, LinkName::Publish as usize];
        let is_delivering = used.iter().all(|link| self.is_up[*link] && !self.partitioned[*link]);
        used.iter().map(|link| self.came_up_us[*link]).max().filter(|_| is_delivering)
    }

    /// Queues an effect of the node.
    pub fn send(&mut self, now_us: u64, ready_us: u64, effect: LinkEffect) {
        match &effect {
            LinkEffect::Reconnect { link } => return self.cut(now_us, *link, now_us),
            LinkEffect::Subscribe { subject } => drop(self.subscriptions.insert(subject.clone())),
            LinkEffect::Unsubscribe { subject } => drop(self.subscriptions.remove(subject)),
            _ => {}
        }
        let link = link_of(&effect) as usize;
        if self.is_up[link] {
            self.to_servers[link].push_back((ready_us, effect));
        } else if let Some(fault) = disconnected_reply(&effect) {
            self.to_node[link].push_back((ready_us, fault));
        }
    }

    /// Queues an event of the servers. A delivery is lost if the connection is down.
    pub fn reply(&mut self, ready_us: u64, link: LinkName, event: LinkEvent) {
        let link = link as usize;
        if self.partitioned[link] && matches!(event, LinkEvent::Delivered { .. }) {
            return;
        }
        if self.is_up[link] {
            self.to_node[link].push_back((ready_us, event));
        } else if let Some(fault) = disconnected_instead(&event) {
            self.to_node[link].push_back((ready_us, fault));
        }
    }

    /// Queues a delivery that leaves its server late, behind those that were sent after it.
    pub fn reply_late(&mut self, ready_us: u64, event: LinkEvent) {
        self.late.push((ready_us, event));
    }

    /// Takes a connection down until `until_us`.
    pub fn cut(&mut self, now_us: u64, link: LinkName, until_us: u64) {
        let link_index = link as usize;
        if !std::mem::replace(&mut self.is_up[link_index], false) {
            return;
        }
        self.up_at_us[link_index] = until_us;
        self.partitioned[link_index] = false;
        if link == LinkName::Live {
            self.interest.clear();
            self.known_from_us.clear();
            self.late.clear();
        }
        let lost: Vec<_> =
            self.to_node[link_index].drain(..).filter_map(|(_, event)| disconnected_instead(&event)).collect();
        let unsent: Vec<_> =
            self.to_servers[link_index].drain(..).filter_map(|(_, effect)| disconnected_reply(&effect)).collect();
        self.to_node[link_index].extend(lost.into_iter().chain(unsent).map(|event| (now_us, event)));
        self.to_node[link_index].push_back((now_us, LinkEvent::Disconnected { link }));
    }

    /// Drops the late deliveries of a server that paused.
    pub fn forget_late(&mut self) {
        self.late.clear();
    }

    /// Brings up the connections that are due. The node first sends its subscriptions again.
    pub fn reconnect(&mut self, now_us: u64, delay_us: u64) {
        for link in LinkName::ALL {
            let link_index = link as usize;
            if self.is_up[link_index] || self.up_at_us[link_index] > now_us {
                continue;
            }
            self.is_up[link_index] = true;
            self.came_up_us[link_index] = now_us;
            if link == LinkName::Publish && matches!(self.reach, Reach::Silent) {
                self.reach = Reach::BackSince(now_us);
            }
            if link == LinkName::Live {
                let known = self.subscriptions.iter().cloned();
                self.to_servers[link_index]
                    .extend(known.map(|subject| (now_us + delay_us, LinkEffect::Subscribe { subject })));
            }
            self.to_node[link_index].push_back((now_us, LinkEvent::Connected { link, max_payload: 1 << 20 }));
        }
    }

    /// Propagates a subscription to the servers of all nodes. It does not overtake earlier ones.
    pub fn spread(&mut self, subject: &str, reaches_us: impl Iterator<Item = u64>) {
        let before = std::mem::take(&mut self.spread_us).into_iter().chain(std::iter::repeat(0));
        self.spread_us = reaches_us.zip(before).map(|(reaches_us, before_us)| reaches_us.max(before_us)).collect();
        self.known_from_us.insert(subject.into(), self.spread_us.clone());
    }

    /// Whether the server of node `node_index` forwards messages of `subject` to this node.
    pub fn is_known_at(&self, node_index: usize, now_us: u64, subject: &str) -> bool {
        let known_from_us = self.known_from_us.get(subject).and_then(|times| times.get(node_index));
        self.interest.contains(subject) && known_from_us.is_some_and(|from_us| *from_us <= now_us)
    }

    /// Lets all connections come up at the next [`LinkQueues::reconnect`].
    pub fn reconnect_all(&mut self) {
        self.up_at_us = [0; 3];
    }

    /// The next effect that reached the servers.
    pub fn take_sent(&mut self, now_us: u64, link: LinkName) -> Option<LinkEffect> {
        let queue = &mut self.to_servers[link as usize];
        queue.pop_front_if(|(ready_us, _)| *ready_us <= now_us).map(|(_, effect)| effect)
    }

    /// The next event that reached the node.
    pub fn take_event(&mut self, now_us: u64) -> Option<LinkEvent> {
        while let Some(found) = self.late.iter().position(|(ready_us, _)| *ready_us <= now_us) {
            // It does not overtake what its connection has in flight: one that is stalled delivers nothing.
            let (ready_us, event) = self.late.swap_remove(found);
            self.reply(ready_us, LinkName::Live, event);
        }
        let mut queues = self.to_node.iter_mut();
        queues.find_map(|queue| queue.pop_front_if(|(ready_us, _)| *ready_us <= now_us)).map(|(_, event)| event)
    }

    /// Drops republished messages in flight, because their leader died before it sent them. Returns their number.
    pub fn lose_republished(&mut self, is_lost: impl Fn(&LinkEvent) -> bool) -> usize {
        let queue = &mut self.to_node[LinkName::Live as usize];
        let known = queue.len();
        queue.retain(|(_, event)| !is_lost(event));
        known - queue.len()
    }
}
