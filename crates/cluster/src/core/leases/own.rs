//! The lease of this node.

use crate::{
    core::{Core, CoreEffect, peers::PeerEffect},
    link::{PublishAck, PublishFault, ReadAnswer, ReadFault},
    planted::CoreBug,
    record::MESSAGE_ID,
};

use super::{
    Asked, LeaseChange,
    record::{LeaseRecord, LeaseStatus},
};

/// The lease of this node.
#[derive(Debug, Default)]
pub(super) struct OwnLease {
    /// The sequence of its newest known message.
    pub(super) newest: u64,
    /// The sequence of the first message of the term, while the lease is held.
    pub(super) term: Option<u64>,
    /// The renewal that is not confirmed yet.
    renewal: Option<Renewal>,
    /// When to send the next message; `None` while an answer is pending.
    pub(super) due_us: Option<u64>,
}

/// A renewal. Each copy has the same id and the same condition.
#[derive(Debug)]
struct Renewal {
    id: Box<str>,
    expected: u64,
    begun_us: u64,
}

impl OwnLease {
    /// The stream is gone: the next message is the first one in a new stream.
    pub(super) fn forget_stream(&mut self, now_us: u64) {
        self.newest = 0;
        self.renewal = None;
        // While an answer is pending, it sets the time.
        self.due_us = self.due_us.map(|_| now_us);
    }
}

impl Core {
    pub(super) fn renew_lease(&mut self) {
        let now_us = self.context.now.mono_us;
        if self.leases.own.due_us.is_none_or(|due_us| due_us > now_us) {
            return;
        }
        self.leases.own.due_us = None;
        if self.leases.own.renewal.is_none() {
            let (id, expected) = (self.lease_message_id(), self.leases.own.newest);
            self.leases.own.renewal = Some(Renewal { id, expected, begun_us: now_us });
        }
        let Some(Renewal { id, expected, .. }) = &self.leases.own.renewal else { return };
        let (id, expected) = (id.clone(), *expected);
        let record = LeaseRecord::held(&self.context.options.node);
        self.send_lease_record(Some(Asked::Renewal), &record, &id, expected);
    }

    pub(super) fn renewal_acknowledged(&mut self, outcome: Result<PublishAck, PublishFault>) {
        match outcome {
            Ok(ack) => self.renewal_stored(ack.sequence),
            Err(fault) if fault.is_wrong_last_sequence() && self.context.planted.is(CoreBug::RefusedRenewalNotRead) => {
                self.lose_lease(self.leases.own.newest, "");
            }
            Err(fault) if fault.is_wrong_last_sequence() => self.read_leases(Asked::ReadOfOwn),
            // The lease stays held, because no node can take it while the stream stores nothing.
            Err(_) => {
                self.leases.storing_since_us = None;
                self.leases.own.due_us = Some(self.context.now.mono_us + self.lease_retry_us());
            }
        }
    }

    fn renewal_stored(&mut self, sequence: u64) {
        let (now_us, interval_us) = (self.context.now.mono_us, self.renewal_interval_us());
        let own = &mut self.leases.own;
        let begun_us = own.renewal.take().map_or(now_us, |renewal| renewal.begun_us);
        if sequence <= own.newest {
            // The record was stored, and the lease was taken before the answer arrived.
            own.due_us = Some(now_us);
            return;
        }
        own.newest = sequence;
        own.due_us = Some(now_us.max(begun_us + interval_us));
        // A truncated stream assigns sequences again.
        if own.term.is_none_or(|term| sequence <= term) {
            own.term = Some(sequence);
            let change = LeaseChange::Began { term: sequence };
            self.context.effects.push(CoreEffect::Peers(PeerEffect::LeaseChanged(change)));
        }
        self.leases.mark_stored(now_us, self.renewal_pause_us());
    }

    /// Handles the newest message of this node's lease, after the condition failed.
    pub(super) fn own_lease_read(&mut self, outcome: Result<ReadAnswer, ReadFault>) {
        let retry_us = self.context.now.mono_us + self.lease_retry_us();
        let Ok(answer) = outcome else {
            self.leases.own.due_us = Some(retry_us);
            return;
        };
        let newest = answer.messages.last();
        let id = newest.and_then(|message| message.headers.get(MESSAGE_ID));
        if let (Some(message), Some(renewal)) = (newest, &self.leases.own.renewal)
            && id == Some(&*renewal.id)
        {
            return self.renewal_stored(message.sequence);
        }
        // A lagging replica returns an older message; the next attempt is then refused again.
        self.leases.own.renewal = None;
        self.leases.own.due_us = Some(retry_us);
        let sequence = newest.map_or(0, |message| message.sequence);
        let status = newest.and_then(|message| LeaseRecord::of(&message.headers)).map(|record| record.status);
        match (status, self.leases.own.term) {
            (Some(LeaseStatus::Taken { by }), Some(term)) if sequence > term => self.lose_lease(sequence, &by),
            _ => self.leases.own.newest = sequence,
        }
    }

    /// A message of this node's own lease was republished.
    pub(super) fn own_lease_observed(&mut self, status: &LeaseStatus, sequence: u64) {
        if let LeaseStatus::Taken { by } = status
            && sequence > self.leases.own.newest
        {
            self.lose_lease(sequence, by);
        }
    }

    fn lose_lease(&mut self, sequence: u64, by: &str) {
        self.leases.own.newest = sequence;
        if self.leases.own.term.take().is_some() {
            self.leases.counters.lost += 1;
            let change = LeaseChange::Lost { by: by.into() };
            self.context.effects.push(CoreEffect::Peers(PeerEffect::LeaseChanged(change)));
        }
        if self.leases.requests.values().all(|asked| !matches!(asked, Asked::Renewal | Asked::ReadOfOwn)) {
            self.leases.own.renewal = None;
            self.leases.own.due_us = Some(self.context.now.mono_us);
        }
    }
}
