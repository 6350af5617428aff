//! The connections of one node: queues both ways, each in order, and what is lost when a connection goes down.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dunlin_cluster::link::{LinkEffect, LinkEvent, LinkName, PublishFault, ReadFault};

/// A node's connections.
#[derive(Default)]
pub struct LinkQueues {
    /// Since when a connection is up; it is down if the time is ahead.
    up_at_us: [u64; 3],
    is_up: [bool; 3],
    /// When a connection came up.
    came_up_us: [u64; 3],
    leads_nowhere: [bool; 3],
    /// What the node has subscribed to.
    subscriptions: BTreeSet<Box<str>>,
    /// What the servers know of it.
    pub interest: BTreeSet<Box<str>>,
    /// Since when the servers of each node know of what no stream publishes.
    known_from_us: BTreeMap<Box<str>, Vec<u64>>,
    /// When the newest subscription reaches the server of each node.
    spread_us: Vec<u64>,
    upward: [VecDeque<(u64, LinkEffect)>; 3],
    downward: [VecDeque<(u64, LinkEvent)>; 3],
    /// Messages that come out of order: a server that paused.
    late: Vec<(u64, LinkEvent)>,
}

/// The connection that performs an effect.
pub fn link_of(effect: &LinkEffect) -> LinkName {
    match effect {
        LinkEffect::Subscribe { .. } | LinkEffect::Unsubscribe { .. } => LinkName::Live,
        LinkEffect::Publish { link, .. } => *link,
        _ => LinkName::Read,
    }
}

/// What is reported of an effect that nobody answers.
pub fn silence_of(effect: &LinkEffect) -> Option<LinkEvent> {
    Some(match fault_of(effect)? {
        LinkEvent::Acknowledged { request, .. } => {
            LinkEvent::Acknowledged { request, outcome: Err(PublishFault::TimedOut) }
        }
        LinkEvent::Answered { request, .. } => LinkEvent::Answered { request, outcome: Err(ReadFault::TimedOut) },
        LinkEvent::StreamInfo { request, .. } => LinkEvent::StreamInfo { request, outcome: Err(ReadFault::TimedOut) },
        other => other,
    })
}

/// The answer to an effect whose connection is down.
fn fault_of(effect: &LinkEffect) -> Option<LinkEvent> {
    match effect {
        LinkEffect::Subscribe { .. } | LinkEffect::Unsubscribe { .. } | LinkEffect::Reconnect { .. } => None,
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
        LinkEffect::Describe { request, .. } => {
            Some(LinkEvent::StreamInfo { request: *request, outcome: Err(ReadFault::Disconnected) })
        }
    }
}

/// What is left of an event whose connection went down before it arrived.
fn fault_instead(event: &LinkEvent) -> Option<LinkEvent> {
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
    /// A connection leads to a server that is parted from the others, until it is opened again.
    pub fn lead_nowhere(&mut self, link: LinkName) {
        self.leads_nowhere[link as usize] = self.is_up[link as usize];
    }

    /// Whether it does.
    pub fn is_parted(&self, link: LinkName) -> bool {
        self.leads_nowhere[link as usize]
    }

    /// Since when messages between nodes get through, if they do.
    pub fn sound_since_us(&self) -> Option<u64> {
        let used = [LinkName::Live as usize, LinkName::Publish as usize];
        let is_sound = used.iter().all(|link| self.is_up[*link] && !self.leads_nowhere[*link]);
        used.iter().map(|link| self.came_up_us[*link]).max().filter(|_| is_sound)
    }

    /// The node sends something.
    pub fn send(&mut self, now_us: u64, ready_us: u64, effect: LinkEffect) {
        match &effect {
            LinkEffect::Reconnect { link } => return self.cut(now_us, *link, now_us),
            LinkEffect::Subscribe { subject } => drop(self.subscriptions.insert(subject.clone())),
            LinkEffect::Unsubscribe { subject } => drop(self.subscriptions.remove(subject)),
            _ => {}
        }
        let link = link_of(&effect) as usize;
        if self.is_up[link] {
            self.upward[link].push_back((ready_us, effect));
        } else if let Some(fault) = fault_of(&effect) {
            self.downward[link].push_back((ready_us, fault));
        }
    }

    /// The servers send something; it is lost if the connection is down.
    pub fn reply(&mut self, ready_us: u64, link: LinkName, event: LinkEvent) {
        let link = link as usize;
        if self.leads_nowhere[link] && matches!(event, LinkEvent::Delivered { .. }) {
            return;
        }
        if self.is_up[link] {
            self.downward[link].push_back((ready_us, event));
        } else if let Some(fault) = fault_instead(&event) {
            self.downward[link].push_back((ready_us, fault));
        }
    }

    /// The same, beside the order.
    pub fn reply_late(&mut self, ready_us: u64, event: LinkEvent) {
        self.late.push((ready_us, event));
    }

    /// A connection goes down, until a time.
    pub fn cut(&mut self, now_us: u64, link: LinkName, until_us: u64) {
        let place = link as usize;
        if !std::mem::replace(&mut self.is_up[place], false) {
            return;
        }
        self.up_at_us[place] = until_us;
        self.leads_nowhere[place] = false;
        if link == LinkName::Live {
            self.interest.clear();
            self.known_from_us.clear();
            self.late.clear();
        }
        let lost: Vec<_> = self.downward[place].drain(..).filter_map(|(_, event)| fault_instead(&event)).collect();
        let unsent: Vec<_> = self.upward[place].drain(..).filter_map(|(_, effect)| fault_of(&effect)).collect();
        self.downward[place].extend(lost.into_iter().chain(unsent).map(|event| (now_us, event)));
        self.downward[place].push_back((now_us, LinkEvent::Disconnected { link }));
    }

    /// What a server that paused would have sent is lost with it.
    pub fn forget_late(&mut self) {
        self.late.clear();
    }

    /// Connections come up whose time has come. The node's subscriptions reach the servers before anything else.
    pub fn reconnect(&mut self, now_us: u64, delay_us: u64) {
        for link in LinkName::ALL {
            let place = link as usize;
            if self.is_up[place] || self.up_at_us[place] > now_us {
                continue;
            }
            self.is_up[place] = true;
            self.came_up_us[place] = now_us;
            if link == LinkName::Live {
                let known = self.subscriptions.iter().cloned();
                self.upward[place].extend(known.map(|subject| (now_us + delay_us, LinkEffect::Subscribe { subject })));
            }
            self.downward[place].push_back((now_us, LinkEvent::Connected { link, max_payload: 1 << 20 }));
        }
    }

    /// A subscription travels on to the servers of the nodes, behind those before it.
    pub fn spread(&mut self, subject: &str, reaches_us: impl Iterator<Item = u64>) {
        let before = std::mem::take(&mut self.spread_us).into_iter().chain(std::iter::repeat(0));
        self.spread_us = reaches_us.zip(before).map(|(reaches_us, before_us)| reaches_us.max(before_us)).collect();
        self.known_from_us.insert(subject.into(), self.spread_us.clone());
    }

    /// Whether the server of the node at `place` sends what is published there to this node.
    pub fn is_known_at(&self, place: usize, now_us: u64, subject: &str) -> bool {
        let known_from_us = self.known_from_us.get(subject).and_then(|places| places.get(place));
        self.interest.contains(subject) && known_from_us.is_some_and(|from_us| *from_us <= now_us)
    }

    /// Everything comes up at once, at the next [`LinkQueues::reconnect`].
    pub fn heal(&mut self) {
        self.up_at_us = [0; 3];
    }

    /// What has reached the servers.
    pub fn take_sent(&mut self, now_us: u64, link: LinkName) -> Option<LinkEffect> {
        let queue = &mut self.upward[link as usize];
        queue.pop_front_if(|(ready_us, _)| *ready_us <= now_us).map(|(_, effect)| effect)
    }

    /// What has reached the node.
    pub fn take_event(&mut self, now_us: u64) -> Option<LinkEvent> {
        if let Some(place) = self.late.iter().position(|(ready_us, _)| *ready_us <= now_us) {
            return Some(self.late.swap_remove(place).1);
        }
        let mut queues = self.downward.iter_mut();
        queues.find_map(|queue| queue.pop_front_if(|(ready_us, _)| *ready_us <= now_us)).map(|(_, event)| event)
    }

    /// Republished messages that have not arrived are lost: their leader has died before it sent them. Returns how many.
    pub fn lose_republished(&mut self, is_lost: impl Fn(&LinkEvent) -> bool) -> usize {
        let queue = &mut self.downward[LinkName::Live as usize];
        let known = queue.len();
        queue.retain(|(_, event)| !is_lost(event));
        known - queue.len()
    }
}
