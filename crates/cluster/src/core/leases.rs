//! The lease of each node: a proof for all nodes that the node is live, and a number that increases when it was not.
//!
//! A lease is the newest message on the node's subject, in a stream that keeps one message per subject. Each message is
//! stored on the condition that its predecessor is still the newest (compare-and-set). So if a node renews its lease
//! while others take it, exactly one succeeds, whatever their clocks show.
//!
//! - The holder renews the lease with each heartbeat, with one message in flight. While the stream has no leader,
//!   renewals fail, and the lease stays held, because no other node can take it either.
//! - The stream republishes each renewal. A node that has received none of another node for `silence_timeout_ms` takes
//!   that lease, but only if the stream has stored its own renewals for as long. Otherwise the stream itself may be
//!   silent.
//! - A refused condition may belong to a duplicate of a message that was stored: a stream with one replica checks the
//!   condition before it looks for duplicates. So the newest message is read, and its id decides.
//! - A node whose lease was taken is informed by the stream, and begins a new term. The number of a term is the
//!   sequence of its first message.

mod others;
mod own;
mod record;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::link::{
    LinkEffect, LinkName, MessageHeaders, PublishAck, PublishFault, ReadAnswer, ReadFault, RequestNumber,
};

use super::{
    Core, CoreEffect, Requester, Timer,
    peers::PeerEffect,
    standing::{StreamKey, StreamWatch},
};

use others::ObservedLease;
use own::OwnLease;
use record::LeaseRecord;

pub use record::LeaseNames;

/// A change of a lease that involves this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseChange {
    /// This node holds its lease.
    Began {
        /// The number of its term.
        term: u64,
    },
    /// Another node has taken the lease of this node.
    Lost {
        /// The other node.
        by: Box<str>,
    },
    /// The stream of the leases is gone, and with it this node's lease.
    Gone,
    /// This node has taken the lease of a node that did not renew it.
    Took {
        /// That node.
        node: Box<str>,
    },
}

/// Counters of leases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseCounters {
    /// The number of the term in which this node holds its lease; 0 if it does not.
    pub term: u64,
    /// Leases held by other nodes (gauge).
    pub others: u64,
    /// Leases of other nodes that this node has taken.
    pub taken: u64,
    /// How often another node has taken the lease of this node.
    pub lost: u64,
    /// Messages that are invalid, or exceed the limit of observed nodes.
    pub dropped: u64,
}

/// The purpose of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Asked {
    Renewal,
    ReadOfOwn,
    Taking(Box<str>),
    ReadOfOther(Box<str>),
    ReadOfAll,
}

/// The leases, as known to this node.
#[derive(Debug)]
pub(super) struct Leases {
    names: LeaseNames,
    pub(super) watch: StreamWatch,
    /// The epoch of the stream, once it is known.
    epoch: Option<Box<str>>,
    is_on: bool,
    is_started: bool,
    own: OwnLease,
    others: BTreeMap<Box<str>, ObservedLease>,
    requests: BTreeMap<RequestNumber, Asked>,
    /// Since when the stream has stored this node's renewals without a pause.
    storing_since_us: Option<u64>,
    stored_us: u64,
    /// When all leases are read again, to find those whose renewals were not republished.
    audit_due_us: Option<u64>,
    /// The earliest timer that is set.
    scheduled_us: Option<u64>,
    counters: LeaseCounters,
}

impl Leases {
    pub(super) fn new(prefix: &str, is_on: bool) -> Self {
        Self {
            names: LeaseNames::new(prefix),
            watch: StreamWatch::default(),
            epoch: None,
            is_on,
            is_started: false,
            own: OwnLease::default(),
            others: BTreeMap::new(),
            requests: BTreeMap::new(),
            storing_since_us: None,
            stored_us: 0,
            audit_due_us: None,
            scheduled_us: None,
            counters: LeaseCounters::default(),
        }
    }

    /// Whether this node uses a stream of leases.
    pub(super) const fn has_stream(&self) -> bool {
        self.is_on
    }

    pub(super) fn stream(&self) -> &str {
        &self.names.stream
    }

    pub(super) fn counters(&self) -> LeaseCounters {
        let (term, others) = (self.own.term.unwrap_or(0), self.others.len() as u64);
        LeaseCounters { term, others, ..self.counters.clone() }
    }

    /// The stream has stored a message of this node.
    fn mark_stored(&mut self, now_us: u64, pause_us_max: u64) {
        if self.storing_since_us.is_none() || now_us > self.stored_us + pause_us_max {
            self.storing_since_us = Some(now_us);
        }
        self.stored_us = now_us;
    }
}

impl Core {
    const fn renewal_interval_us(&self) -> u64 {
        self.context.options.limits.peers.heartbeat_interval_ms * 1_000
    }

    /// Without a stored renewal for longer than this, the stream itself may be silent.
    const fn renewal_pause_us(&self) -> u64 {
        2 * self.renewal_interval_us()
    }

    /// Pause before a retry: two renewals fit into the time after which a lease is taken.
    const fn lease_retry_us(&self) -> u64 {
        self.renewal_interval_us() / 2
    }

    /// Starts the leases when this node is a member of the cluster.
    pub(super) fn review_leases(&mut self) {
        if !self.leases.is_on || self.leases.is_started || !self.peers.is_connected_member() {
            return;
        }
        self.leases.is_started = true;
        self.context.link(LinkEffect::Subscribe { subject: self.leases.names.live_subjects() });
        self.leases.own.due_us = Some(self.context.now.mono_us);
        self.leases.audit_due_us = Some(self.context.now.mono_us);
        self.run_leases();
    }

    /// Releases the lease when this node leaves the cluster.
    pub(super) fn release_lease(&mut self) {
        self.leases.is_on = false;
        if let Some(expected) = self.leases.own.term.take().map(|_| self.leases.own.newest) {
            let record = LeaseRecord::released(&self.context.options.node);
            let id = self.lease_message_id();
            self.send_lease_record(None, &record, &id, expected);
        }
        self.leases.others.clear();
        (self.leases.own.due_us, self.leases.audit_due_us) = (None, None);
    }

    /// A connection is down: renewals of other nodes may not arrive.
    pub(super) const fn leases_disconnected(&mut self) {
        self.leases.storing_since_us = None;
    }

    /// The stream is gone: nobody holds a lease.
    pub(super) fn lease_stream_gone(&mut self) {
        self.leases.others.clear();
        self.leases.storing_since_us = None;
        self.leases.own.forget_stream(self.context.now.mono_us);
        if self.leases.own.term.take().is_some() {
            self.leases.counters.lost += 1;
            self.context.effects.push(CoreEffect::Peers(PeerEffect::LeaseChanged(LeaseChange::Gone)));
        }
    }

    /// The stream has stated its epoch. Another one than before means that it was created again.
    pub(super) fn lease_facts_known(&mut self, epoch: Box<str>) {
        let known = self.leases.epoch.replace(epoch);
        if known.is_some() && known != self.leases.epoch {
            self.lease_stream_gone();
            self.leases.audit_due_us = self.leases.audit_due_us.map(|_| self.context.now.mono_us);
            self.run_leases();
        }
    }

    /// A timer is due: this node renews its lease, and takes silent ones.
    pub(super) fn lease_timer(&mut self) {
        let scheduled_us = self.leases.scheduled_us.take().unwrap_or(self.context.now.mono_us);
        if self.context.now.mono_us > scheduled_us + self.renewal_interval_us()
            && self.leases.storing_since_us.is_some()
        {
            // This node itself was paused, and has not read the messages of that time yet.
            self.leases.storing_since_us = Some(self.context.now.mono_us);
        }
        self.run_leases();
    }

    fn run_leases(&mut self) {
        if !self.leases.is_on || !self.leases.is_started {
            return;
        }
        self.audit_leases();
        self.renew_lease();
        self.take_silent_leases();
        self.schedule_leases();
    }

    fn audit_leases(&mut self) {
        if self.leases.audit_due_us.is_some_and(|due_us| due_us <= self.context.now.mono_us) {
            self.leases.audit_due_us = None;
            self.describe(StreamKey::Leases);
            self.read_leases(Asked::ReadOfAll);
        }
    }

    fn schedule_leases(&mut self) {
        let due_us =
            [self.leases.own.due_us, self.leases.audit_due_us, self.silent_lease_due_us(self.context.now.mono_us)]
                .into_iter()
                .flatten()
                .min();
        if let Some(due_us) = due_us
            && self.leases.scheduled_us.is_none_or(|scheduled_us| due_us < scheduled_us)
        {
            self.leases.scheduled_us = Some(due_us);
            self.context.set_timer(due_us, Timer::Leases);
        }
    }

    /// Handles a message on a subscription, if it is about a lease.
    pub(super) fn lease_arrived(&mut self, subject: &str, headers: &MessageHeaders) -> bool {
        let Some(node) = self.leases.names.node_of_live(subject) else { return false };
        let record = LeaseRecord::of(headers).filter(|record| record.node == node);
        let Some((record, sequence)) = record.zip(headers.number("Nats-Sequence")) else {
            self.leases.counters.dropped += 1;
            return true;
        };
        self.observe_lease(&record, sequence);
        self.schedule_leases();
        true
    }

    /// The stream has answered a message, or there was no answer.
    pub(super) fn lease_acknowledged(&mut self, request: RequestNumber, outcome: Result<PublishAck, PublishFault>) {
        match &outcome {
            Ok(_) | Err(PublishFault::Refused { .. }) => self.context.silence.end(LinkName::Publish),
            // On a node that publishes nothing, only its renewals show that the connection is broken.
            Err(PublishFault::TimedOut) => self.context.on_silence(LinkName::Publish),
            Err(PublishFault::NoResponders | PublishFault::Disconnected) => {}
        }
        self.stream_answered(StreamKey::Leases, outcome.as_ref().err());
        match self.leases.requests.remove(&request) {
            Some(Asked::Renewal) => self.renewal_acknowledged(outcome),
            Some(Asked::Taking(node)) => self.taking_acknowledged(node, outcome),
            _ => {}
        }
        self.schedule_leases();
    }

    /// A read was answered.
    pub(super) fn lease_read(&mut self, request: RequestNumber, outcome: Result<ReadAnswer, ReadFault>) {
        match &outcome {
            // A node without other reads has only these to notice that the connection is broken.
            Err(ReadFault::TimedOut | ReadFault::NoResponders) => self.context.on_silent_lease_read(),
            Ok(_) | Err(_) => self.context.silence.end_of_lease_reads(),
        }
        match (self.leases.requests.remove(&request), outcome) {
            (Some(Asked::ReadOfOwn), outcome) => self.own_lease_read(outcome),
            (Some(Asked::ReadOfOther(node)), outcome) => self.other_lease_read(&node, outcome),
            (Some(Asked::ReadOfAll), outcome) => self.all_leases_read(&outcome),
            _ => {}
        }
        self.schedule_leases();
    }

    fn all_leases_read(&mut self, outcome: &Result<ReadAnswer, ReadFault>) {
        let pause_us = match outcome {
            // A server that refuses the read, for instance because it would return too many records, will refuse the
            // next one as well.
            Ok(_) | Err(ReadFault::Refused { .. }) => self.context.options.limits.audit_interval_ms * 1_000,
            Err(_) => self.lease_retry_us(),
        };
        self.leases.audit_due_us = Some(self.context.now.mono_us.saturating_add(pause_us));
        for message in outcome.iter().flat_map(|answer| &answer.messages) {
            if let Some(record) = LeaseRecord::of(&message.headers) {
                self.observe_lease(&record, message.sequence);
            }
        }
    }

    fn lease_message_id(&mut self) -> Box<str> {
        let number = self.context.next_number();
        format!("%_l-{}-{number}", self.context.options.node).into()
    }

    fn ask_about_lease(&mut self, asked: Asked) -> RequestNumber {
        let request = self.context.request(Requester::Lease);
        self.leases.requests.insert(request, asked);
        request
    }

    /// Sends a record to be stored after the message with the expected sequence.
    fn send_lease_record(&mut self, asked: Option<Asked>, record: &LeaseRecord, id: &str, expected: u64) {
        let request = asked.map(|asked| self.ask_about_lease(asked));
        let subject = self.leases.names.subject_of(&record.node);
        let (headers, payload) = (record.headers(id, expected), bytes::Bytes::new());
        self.context.link(LinkEffect::Publish { link: LinkName::Publish, request, subject, headers, payload });
    }

    fn read_leases(&mut self, asked: Asked) {
        let subject = match &asked {
            Asked::Taking(node) | Asked::ReadOfOther(node) => self.leases.names.subject_of(node),
            Asked::Renewal | Asked::ReadOfOwn => self.leases.names.subject_of(&self.context.options.node),
            Asked::ReadOfAll => self.leases.names.all_subjects(),
        };
        let stream = self.leases.names.stream.clone();
        let request = self.ask_about_lease(asked);
        self.context.link(LinkEffect::LastOf { request, stream, subjects: vec![subject], floor: None });
    }
}
