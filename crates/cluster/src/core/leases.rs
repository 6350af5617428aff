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

mod own;
mod record;
mod silent_nodes;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::link::{
    LinkEffect, LinkName, MessageHeaders, PublishAck, PublishFault, ReadAnswer, ReadFault, RequestNumber,
};

use super::{
    Context, CoreEffect, Requester, Timer,
    peers::{PeerEffect, Peers},
    stream_standing::{StreamKey, StreamWatch},
};

use own::OwnLease;
use record::LeaseRecord;
use silent_nodes::ObservedLease;

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
    Release,
    ReadOfOwn,
    Taking(Box<str>),
    ReadOfOther(Box<str>),
    ReadOfAll,
}

/// How long a node that leaves tries to release its lease.
const RELEASE_TIMEOUT_MS: u64 = 2_000;

/// Changes of leases since they were asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LeaseNews {
    /// Another node has no lease any more.
    pub(super) is_other_over: bool,
    /// This node has lost its lease.
    pub(super) is_own_lost: bool,
}

/// Whether the stream stores this node's renewals.
#[derive(Clone, Copy, Debug, Default)]
struct Storing {
    /// Since when it has stored them without a pause.
    since_us: Option<u64>,
    /// When it stored the last one.
    newest_us: u64,
}

/// How far this node is with its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The configuration has no leases.
    Unused,
    /// This node is not a member of the cluster yet.
    Starting,
    Running,
    /// This node leaves the cluster as soon as the stream has stored that its lease is free.
    Releasing {
        /// When it leaves in any case.
        until_us: u64,
    },
    Ended,
}

/// The leases, as known to this node.
#[derive(Debug)]
pub(super) struct Leases {
    names: LeaseNames,
    pub(super) watch: StreamWatch,
    /// The epoch of the stream, once it is known.
    epoch: Option<Box<str>>,
    phase: Phase,
    own: OwnLease,
    others: BTreeMap<Box<str>, ObservedLease>,
    /// Whether the leases that were held before this node started are known.
    are_others_read: bool,
    requests: BTreeMap<RequestNumber, Asked>,
    storing: Storing,
    /// When all leases are read again, to find those whose renewals were not republished.
    audit_due_us: Option<u64>,
    /// The earliest timer that is set.
    scheduled_us: Option<u64>,
    counters: LeaseCounters,
    /// What the logs of rooms need to know, until they take it.
    news: LeaseNews,
}

impl Leases {
    pub(super) fn new(prefix: &str, is_on: bool) -> Self {
        let names = LeaseNames::new(prefix);
        Self {
            watch: StreamWatch::new(StreamKey::Leases, &names.stream),
            names,
            epoch: None,
            phase: if is_on { Phase::Starting } else { Phase::Unused },
            own: OwnLease::default(),
            others: BTreeMap::new(),
            are_others_read: false,
            requests: BTreeMap::new(),
            storing: Storing::default(),
            audit_due_us: None,
            scheduled_us: None,
            counters: LeaseCounters::default(),
            news: LeaseNews::default(),
        }
    }

    /// Whether this node uses a stream of leases.
    pub(super) const fn has_stream(&self) -> bool {
        matches!(self.phase, Phase::Starting | Phase::Running | Phase::Releasing { .. })
    }

    pub(super) fn counters(&self) -> LeaseCounters {
        let (term, others) = (self.own.term.unwrap_or(0), self.others.len() as u64);
        LeaseCounters { term, others, ..self.counters.clone() }
    }

    /// The other nodes that hold a lease.
    pub(super) fn holders(&self) -> impl Iterator<Item = &str> {
        self.others.keys().map(|node| &**node)
    }

    pub(super) fn take_news(&mut self) -> LeaseNews {
        std::mem::take(&mut self.news)
    }

    /// Whether this node holds its lease, as far as it knows.
    pub(super) const fn is_held(&self) -> bool {
        matches!(self.phase, Phase::Running) && self.own.term.is_some()
    }

    pub(super) fn is_holder(&self, node: &str) -> bool {
        self.others.contains_key(node)
    }

    /// Whether [`Self::holders`] is complete, as far as the stream tells: it may refuse to.
    pub(super) const fn are_known(&self) -> bool {
        self.are_others_read || !matches!(self.phase, Phase::Starting | Phase::Running)
    }

    /// The stream has stored a message of this node.
    fn mark_stored(&mut self, now_us: u64, pause_us_max: u64) {
        if self.storing.since_us.is_none() || now_us > self.storing.newest_us + pause_us_max {
            self.storing.since_us = Some(now_us);
        }
        self.storing.newest_us = now_us;
    }
}

impl Leases {
    const fn renewal_interval_us(context: &Context) -> u64 {
        context.options.limits.peers.heartbeat_interval_ms * 1_000
    }

    /// Without a stored renewal for longer than this, the stream itself may be silent.
    const fn renewal_pause_us(context: &Context) -> u64 {
        2 * Self::renewal_interval_us(context)
    }

    /// Pause before a retry: two renewals fit into the time after which a lease is taken.
    const fn retry_us(context: &Context) -> u64 {
        Self::renewal_interval_us(context) / 2
    }

    /// Starts the leases when this node is a member of the cluster.
    pub(super) fn review(&mut self, context: &mut Context, peers: &Peers) {
        if self.phase != Phase::Starting || !peers.is_connected_member() {
            return;
        }
        self.phase = Phase::Running;
        context.link(LinkEffect::Subscribe { subject: self.names.live_subjects() });
        self.own.due_us = Some(context.now.mono_us);
        self.audit_due_us = Some(context.now.mono_us);
        self.run(context);
    }

    /// Releases the lease when this node leaves the cluster, and stays until the stream has stored that. A release is
    /// conditional on the newest renewal that is known to be stored, or it could remove the mark of a node that has taken
    /// the lease. So the answer to a renewal in doubt is awaited first: the stream would refuse the release, and other
    /// nodes would wait until the lease is silent.
    pub(super) fn release(&mut self, context: &mut Context) {
        self.others.clear();
        self.audit_due_us = None;
        // The first renewal may be stored although its answer is missing.
        if self.own.term.is_none() && !self.own.has_renewal_in_doubt() {
            return self.end();
        }
        self.phase = Phase::Releasing { until_us: context.now.after_ms(RELEASE_TIMEOUT_MS) };
        // The leader that should have answered may be gone: a copy of the renewal is answered by the new one.
        self.own.due_us = Some(context.now.mono_us);
        self.run(context);
    }

    fn send_release(&mut self, context: &mut Context) {
        self.own.due_us = Some(context.now.mono_us + Self::retry_us(context));
        let record = LeaseRecord::released(&context.options.node);
        let id = Self::message_id(context);
        self.send_record(context, Asked::Release, &record, &id, self.own.newest);
    }

    fn release_acknowledged(&mut self, context: &mut Context, outcome: Result<PublishAck, PublishFault>) {
        match outcome {
            Ok(_) => self.end(),
            // An earlier copy of it is stored, or another node has taken the lease.
            Err(fault) if fault.is_wrong_last_sequence() => self.read(context, Asked::ReadOfOwn),
            // It is sent again when it is due.
            Err(_) => {}
        }
    }

    fn end(&mut self) {
        self.phase = Phase::Ended;
        self.own = OwnLease::default();
    }

    /// Whether this node has to stay connected for its release.
    pub(super) const fn is_releasing(&self) -> bool {
        matches!(self.phase, Phase::Releasing { .. })
    }

    /// A connection is down: renewals of other nodes may not arrive.
    pub(super) const fn disconnected(&mut self) {
        self.storing.since_us = None;
    }

    /// The stream is gone: nobody holds a lease.
    pub(super) fn stream_gone(&mut self, context: &mut Context) {
        if self.is_releasing() {
            return self.end();
        }
        self.others.clear();
        self.storing.since_us = None;
        self.own.forget_stream(context.now.mono_us);
        if self.own.term.take().is_some() {
            self.counters.lost += 1;
            self.news.is_own_lost = true;
            context.effects.push(CoreEffect::Peers(PeerEffect::LeaseChanged(LeaseChange::Gone)));
        }
    }

    /// The stream has stated its epoch. Another one than before means that it was created again.
    pub(super) fn facts_known(&mut self, context: &mut Context, epoch: Box<str>) {
        let known = self.epoch.replace(epoch);
        if known.is_some() && known != self.epoch {
            self.stream_gone(context);
            self.audit_due_us = self.audit_due_us.map(|_| context.now.mono_us);
            self.run(context);
        }
    }

    /// A timer is due: this node renews its lease, and takes silent ones.
    pub(super) fn on_timer(&mut self, context: &mut Context) {
        let scheduled_us = self.scheduled_us.take().unwrap_or(context.now.mono_us);
        if context.now.mono_us > scheduled_us + Self::renewal_interval_us(context) && self.storing.since_us.is_some() {
            // This node itself was paused, and has not read the messages of that time yet.
            self.storing.since_us = Some(context.now.mono_us);
        }
        self.run(context);
    }

    fn run(&mut self, context: &mut Context) {
        match self.phase {
            Phase::Running => {
                self.audit(context);
                self.renew(context);
                self.take_silent(context);
                self.schedule(context);
            }
            Phase::Releasing { until_us } if until_us <= context.now.mono_us => self.end(),
            Phase::Releasing { .. } => {
                if self.own.due_us.is_some_and(|due_us| due_us <= context.now.mono_us) {
                    if self.own.has_renewal_in_doubt() {
                        self.renew(context);
                        self.own.due_us = Some(context.now.mono_us + Self::retry_us(context));
                    } else {
                        self.send_release(context);
                    }
                }
                self.schedule(context);
            }
            Phase::Unused | Phase::Starting | Phase::Ended => {}
        }
    }

    fn audit(&mut self, context: &mut Context) {
        if self.audit_due_us.is_some_and(|due_us| due_us <= context.now.mono_us) {
            self.audit_due_us = None;
            self.watch.describe(context);
            self.read(context, Asked::ReadOfAll);
        }
    }

    fn schedule(&mut self, context: &mut Context) {
        let due_us = match self.phase {
            Phase::Releasing { until_us } => self.own.due_us.into_iter().chain([until_us]).min(),
            Phase::Unused | Phase::Starting | Phase::Ended => None,
            Phase::Running => {
                [self.own.due_us, self.audit_due_us, self.silent_due_us(context)].into_iter().flatten().min()
            }
        };
        if let Some(due_us) = due_us
            && self.scheduled_us.is_none_or(|scheduled_us| due_us < scheduled_us)
        {
            self.scheduled_us = Some(due_us);
            context.set_timer(due_us, Timer::Leases);
        }
    }

    /// Handles a message on a subscription, if it is about a lease.
    pub(super) fn arrived(&mut self, context: &mut Context, subject: &str, headers: &MessageHeaders) -> bool {
        let Some(node) = self.names.node_of_live(subject) else { return false };
        let record = LeaseRecord::of(headers).filter(|record| record.node == node);
        let Some((record, sequence)) = record.zip(headers.number("Nats-Sequence")) else {
            self.counters.dropped += 1;
            return true;
        };
        self.observe(context, &record, sequence);
        self.schedule(context);
        true
    }

    /// Whether the connection for publications is silent. On a node that publishes nothing, only renewals show it.
    pub(super) fn note_silence(context: &mut Context, outcome: &Result<PublishAck, PublishFault>) {
        match outcome {
            Ok(_) | Err(PublishFault::Refused { .. }) => context.unanswered.end(LinkName::Publish),
            Err(PublishFault::TimedOut) => context.on_silence(LinkName::Publish),
            Err(PublishFault::NoResponders | PublishFault::Disconnected) => {}
        }
    }

    /// The stream has answered a message, or there was no answer.
    pub(super) fn acknowledged(
        &mut self,
        context: &mut Context,
        request: RequestNumber,
        outcome: Result<PublishAck, PublishFault>,
    ) {
        match self.requests.remove(&request) {
            // Another copy was answered before.
            Some(Asked::Renewal | Asked::Release) if self.phase == Phase::Ended => context.strays.late += 1,
            Some(Asked::Renewal) if self.is_releasing() && !self.own.has_renewal_in_doubt() => context.strays.late += 1,
            Some(Asked::Renewal) => self.renewal_acknowledged(context, outcome),
            Some(Asked::Release) => self.release_acknowledged(context, outcome),
            Some(Asked::Taking(node)) => self.taking_acknowledged(context, node, outcome),
            Some(Asked::ReadOfOwn | Asked::ReadOfOther(_) | Asked::ReadOfAll) | None => {
                context.strays.count_impossible("each message of a lease has its purpose until it is answered");
            }
        }
        self.schedule(context);
    }

    /// A read was answered.
    pub(super) fn read_answered(
        &mut self,
        context: &mut Context,
        request: RequestNumber,
        outcome: Result<ReadAnswer, ReadFault>,
    ) {
        match &outcome {
            // A node without other reads has only these to notice that the connection is broken.
            Err(ReadFault::TimedOut | ReadFault::NoResponders) => context.on_silent_lease_read(),
            Ok(_) | Err(_) => context.unanswered.end_of_lease_reads(),
        }
        match (self.requests.remove(&request), outcome) {
            (Some(Asked::ReadOfOwn | Asked::ReadOfOther(_) | Asked::ReadOfAll), _) if self.phase == Phase::Ended => {
                context.strays.late += 1;
            }
            (Some(Asked::ReadOfOwn), outcome) => self.own_lease_read(context, outcome),
            (Some(Asked::ReadOfOther(node)), outcome) => self.other_lease_read(context, &node, outcome),
            (Some(Asked::ReadOfAll), outcome) => self.all_leases_read(context, &outcome),
            (Some(Asked::Renewal | Asked::Release | Asked::Taking(_)) | None, _) => {
                context.strays.count_impossible("each read of a lease has its purpose until it is answered");
            }
        }
        self.schedule(context);
    }

    fn all_leases_read(&mut self, context: &mut Context, outcome: &Result<ReadAnswer, ReadFault>) {
        let pause_us = match outcome {
            // A server that refuses the read, for instance because it would return too many records, will refuse the
            // next one as well.
            Ok(_) | Err(ReadFault::Refused { .. }) => context.options.limits.audit_interval_ms * 1_000,
            Err(_) => Self::retry_us(context),
        };
        self.audit_due_us = Some(context.now.mono_us.saturating_add(pause_us));
        self.are_others_read |= matches!(outcome, Ok(_) | Err(ReadFault::Refused { .. }));
        for message in outcome.iter().flat_map(|answer| &answer.messages) {
            if let Some(record) = LeaseRecord::of(&message.headers) {
                self.observe(context, &record, message.sequence);
            }
        }
    }

    fn message_id(context: &mut Context) -> Box<str> {
        let number = context.next_number();
        format!("%_l-{}-{number}", context.options.node).into()
    }

    fn ask(&mut self, context: &mut Context, asked: Asked) -> RequestNumber {
        let request = context.request(Requester::Lease);
        self.requests.insert(request, asked);
        request
    }

    /// Sends a record to be stored after the message with the expected sequence.
    fn send_record(&mut self, context: &mut Context, asked: Asked, record: &LeaseRecord, id: &str, expected: u64) {
        let request = Some(self.ask(context, asked));
        let subject = self.names.subject_of(&record.node);
        let (headers, payload) = (record.headers(id, expected), bytes::Bytes::new());
        context.link(LinkEffect::Publish { link: LinkName::Publish, request, subject, headers, payload });
    }

    fn read(&mut self, context: &mut Context, asked: Asked) {
        let subject = match &asked {
            Asked::Taking(node) | Asked::ReadOfOther(node) => self.names.subject_of(node),
            Asked::Renewal | Asked::Release | Asked::ReadOfOwn => self.names.subject_of(&context.options.node),
            Asked::ReadOfAll => self.names.all_subjects(),
        };
        let stream = self.names.stream.clone();
        let request = self.ask(context, asked);
        context.link(LinkEffect::LastOf { request, stream, subjects: vec![subject], floor: None });
    }
}
