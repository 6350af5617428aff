//! What all parts of a core share: the event, its effects, and what every protocol needs.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use dunlin_engine::Now;

use crate::link::{LinkEffect, LinkName, MessageHeaders, RequestNumber};

use super::{
    BroadcastDrop, CoreCounters, CoreEffect, CoreOptions, StrayCounters,
    peers::PeerEffect,
    timers::{LinksUp, Requester, Timer},
    unanswered_requests::UnansweredRequests,
};

/// The surroundings of the parts of a core. None of them owns what is here, and each uses it with every event; so a part
/// is called with this and with its own event, and two parts can be used at the same time.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) now: Now,
    /// The effects of the event so far.
    pub(super) effects: Vec<CoreEffect>,
    pub(super) options: CoreOptions,
    pub(super) links: LinksUp,
    /// The largest message that the servers accept; 0 before the first connection.
    pub(super) payload_bytes_max: usize,
    pub(super) unanswered: UnansweredRequests,
    pub(super) requests: BTreeMap<RequestNumber, Requester>,
    pub(super) timers: BTreeSet<(u64, Timer)>,
    numbered: u64,
    pub(super) counters: CoreCounters,
    pub(super) strays: StrayCounters,
}

impl Context {
    pub(super) fn new(options: CoreOptions) -> Self {
        Self {
            now: Now { mono_us: 0, unix_ms: 0 },
            effects: Vec::new(),
            options,
            links: LinksUp::default(),
            payload_bytes_max: 0,
            unanswered: UnansweredRequests::default(),
            requests: BTreeMap::new(),
            timers: BTreeSet::new(),
            numbered: 0,
            counters: CoreCounters::default(),
            strays: StrayCounters::default(),
        }
    }

    pub(super) fn link(&mut self, effect: LinkEffect) {
        self.effects.push(CoreEffect::Link(effect));
    }

    /// Publishes a message that no request waits for.
    pub(super) fn publish(&mut self, subject: Box<str>, headers: MessageHeaders, payload: Bytes) {
        self.link(LinkEffect::Publish { link: LinkName::Publish, request: None, subject, headers, payload });
    }

    pub(super) fn push_peer_effect(&mut self, effect: PeerEffect) {
        self.effects.push(CoreEffect::Peers(effect));
    }

    /// The newest number of this core.
    pub(super) const fn newest_number(&self) -> u64 {
        self.numbered
    }

    /// Registers the receiver of a new request's answer.
    pub(super) fn request(&mut self, requester: Requester) -> RequestNumber {
        let number = RequestNumber(self.next_number());
        self.requests.insert(number, requester);
        number
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.numbered += 1;
        self.numbered
    }

    pub(super) fn set_timer(&mut self, due_us: u64, timer: Timer) {
        self.timers.insert((due_us, timer));
    }

    /// An answer has no requester that takes one of its kind. Without any, the request was answered twice.
    pub(super) fn count_other_requester(&mut self, requester: Option<Requester>) {
        match requester {
            None => self.strays.late += 1,
            Some(_) => self.strays.count_impossible("a request is answered in its own kind"),
        }
    }

    /// A request on a connection has had no answer.
    pub(super) fn on_silence(&mut self, link: LinkName) {
        let since_us = self.unanswered.begin(link, self.now.mono_us);
        self.reconnect_if_silent(link, since_us);
    }

    /// A read of leases has had no answer.
    pub(super) fn on_silent_lease_read(&mut self) {
        let since_us = self.unanswered.begin_of_lease_reads(self.now.mono_us);
        self.reconnect_if_silent(LinkName::Read, since_us);
    }

    fn reconnect_if_silent(&mut self, link: LinkName, since_us: u64) {
        let is_long = self.now.mono_us >= since_us + self.options.limits.silence_timeout_ms * 1_000;
        if is_long {
            self.unanswered.end(link);
            if link == LinkName::Read {
                self.unanswered.end_of_lease_reads();
            }
            self.counters.silent_connections += 1;
            self.link(LinkEffect::Reconnect { link });
        }
    }

    pub(super) const fn count_dropped(&mut self, why: BroadcastDrop) {
        self.counters.broadcasts_dropped[why as usize] += 1;
    }
}
