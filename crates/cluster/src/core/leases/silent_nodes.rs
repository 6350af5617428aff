//! The leases of other nodes: observed, and taken when they are silent.

use crate::{
    core::{Context, CoreEffect, peers::PeerEffect},
    link::{PublishAck, PublishFault, ReadAnswer, ReadFault},
    record::MESSAGE_ID,
};

use super::{
    Asked, LeaseChange, Leases, Phase,
    record::{LeaseRecord, LeaseStatus},
};

/// A lease held by another node.
#[derive(Debug)]
pub(super) struct ObservedLease {
    /// The sequence of its newest known message.
    newest: u64,
    seen_us: u64,
    /// The id of the message that takes it. Each copy has the same id.
    taking: Option<Box<str>>,
    /// Whether an answer is pending.
    is_awaiting_reply: bool,
    not_before_us: u64,
}

impl ObservedLease {
    fn silent_from_us(&self, storing_since_us: u64, timeout_us: u64) -> u64 {
        (self.seen_us.max(storing_since_us) + timeout_us).max(self.not_before_us)
    }
}

impl Leases {
    /// Handles a message of a lease that was read or republished.
    pub(super) fn observe(&mut self, context: &mut Context, record: &LeaseRecord, sequence: u64) {
        if *record.node == *context.options.node {
            self.own_lease_observed(context, &record.status, sequence);
            return;
        }
        let is_late = self.others.get(&record.node).is_some_and(|known| sequence <= known.newest);
        if is_late || !matches!(self.phase, Phase::Starting | Phase::Running) {
            return;
        }
        if record.status != LeaseStatus::Held {
            self.others.remove(&record.node);
            // Also if it was known to be over: each audit reads it again, so a room that could not be opened is found again.
            self.news.is_other_over = true;
            return;
        }
        let has_room = self.others.len() < context.options.limits.peers.nodes_max;
        if !has_room && !self.others.contains_key(&record.node) {
            self.counters.dropped += 1;
            return;
        }
        self.note_renewal(context, &record.node, sequence);
    }

    fn note_renewal(&mut self, context: &mut Context, node: &str, sequence: u64) {
        let is_awaiting_reply = self.others.get(node).is_some_and(|known| known.is_awaiting_reply);
        let observed = ObservedLease {
            newest: sequence,
            seen_us: context.now.mono_us,
            taking: None,
            is_awaiting_reply,
            not_before_us: 0,
        };
        self.others.insert(node.into(), observed);
    }

    /// Since when the silence of other leases counts; `None` while it does not.
    fn silence_counts_from_us(&self, context: &Context) -> Option<u64> {
        let is_storing = context.now.mono_us <= self.storing.newest_us + Self::renewal_pause_us(context);
        self.own.term.and(self.storing.since_us).filter(|_| is_storing)
    }

    pub(super) fn silent_due_us(&self, context: &Context) -> Option<u64> {
        let since_us = self.silence_counts_from_us(context)?;
        let timeout_us = context.options.limits.peers.silence_timeout_ms * 1_000;
        let idle = self.others.values().filter(|observed| !observed.is_awaiting_reply);
        idle.map(|observed| observed.silent_from_us(since_us, timeout_us)).min()
    }

    pub(super) fn take_silent(&mut self, context: &mut Context) {
        let now_us = context.now.mono_us;
        let Some(since_us) = self.silence_counts_from_us(context) else { return };
        let timeout_us = context.options.limits.peers.silence_timeout_ms * 1_000;
        let silent: Vec<Box<str>> = self
            .others
            .iter()
            .filter(|(_, observed)| {
                !observed.is_awaiting_reply && observed.silent_from_us(since_us, timeout_us) <= now_us
            })
            .map(|(node, _)| node.clone())
            .collect();
        for node in silent {
            self.take(context, &node);
        }
    }

    fn take(&mut self, context: &mut Context, node: &str) {
        let new_id = Self::message_id(context);
        let observed = context.strays.expected(self.others.get_mut(node), "it was found to be silent");
        let Some(observed) = observed else { return };
        observed.is_awaiting_reply = true;
        let (id, expected) = (observed.taking.get_or_insert(new_id).clone(), observed.newest);
        let record = LeaseRecord::taken(node, &context.options.node);
        self.send_record(context, Asked::Taking(node.into()), &record, &id, expected);
    }

    pub(super) fn taking_acknowledged(
        &mut self,
        context: &mut Context,
        node: Box<str>,
        outcome: Result<PublishAck, PublishFault>,
    ) {
        match outcome {
            Ok(ack) => self.taken(context, &node, ack.sequence),
            // The holder has renewed it, another node has taken it, or the first copy was stored.
            Err(fault) if fault.is_wrong_last_sequence() => self.read(context, Asked::ReadOfOther(node)),
            Err(_) => self.retry_taking(context, &node),
        }
    }

    fn retry_taking(&mut self, context: &mut Context, node: &str) {
        let not_before_us = context.now.mono_us + Self::retry_us(context);
        if let Some(observed) = self.others.get_mut(node) {
            (observed.is_awaiting_reply, observed.not_before_us) = (false, not_before_us);
        }
    }

    fn taken(&mut self, context: &mut Context, node: &str, sequence: u64) {
        self.counters.taken += 1;
        let change = LeaseChange::Took { node: node.into() };
        context.effects.push(CoreEffect::Peers(PeerEffect::LeaseChanged(change)));
        if let Some(observed) = self.others.get_mut(node) {
            observed.is_awaiting_reply = false;
            // Otherwise its holder has already begun a new term.
            if observed.newest < sequence {
                self.others.remove(node);
            }
        }
    }

    /// Handles the newest message of another lease, after the condition failed.
    pub(super) fn other_lease_read(
        &mut self,
        context: &mut Context,
        node: &str,
        outcome: Result<ReadAnswer, ReadFault>,
    ) {
        let Ok(answer) = outcome else { return self.retry_taking(context, node) };
        let Some(observed) = context.strays.found_or_late(self.others.get_mut(node)) else { return };
        observed.is_awaiting_reply = false;
        let Some(message) = answer.messages.last() else {
            self.others.remove(node);
            return;
        };
        let id = message.headers.get(MESSAGE_ID);
        if id.is_some() && id == observed.taking.as_deref() {
            return self.taken(context, node, message.sequence);
        }
        match LeaseRecord::of(&message.headers).map(|record| record.status) {
            Some(LeaseStatus::Held) => self.note_renewal(context, node, message.sequence),
            _ => drop(self.others.remove(node)),
        }
    }
}
