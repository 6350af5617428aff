//! The lease of this node.

use crate::{
    core::{Context, CoreEffect, peers::PeerEffect},
    link::{PublishAck, PublishFault, ReadAnswer, ReadFault},
    record::MESSAGE_ID,
};

use super::{
    Asked, LeaseChange, Leases,
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
    /// Whether a renewal was sent, and it is not known yet whether it is stored.
    pub(super) const fn has_renewal_in_doubt(&self) -> bool {
        self.renewal.is_some()
    }

    /// The stream is gone: the next message is the first one in a new stream.
    pub(super) fn forget_stream(&mut self, now_us: u64) {
        self.newest = 0;
        self.renewal = None;
        // While an answer is pending, it sets the time.
        self.due_us = self.due_us.map(|_| now_us);
    }
}

impl Leases {
    pub(super) fn renew(&mut self, context: &mut Context) {
        let now_us = context.now.mono_us;
        if self.own.due_us.is_none_or(|due_us| due_us > now_us) {
            return;
        }
        self.own.due_us = None;
        let expected = self.own.newest;
        let begin = || Renewal { id: Self::message_id(context), expected, begun_us: now_us };
        let Renewal { id, expected, .. } = self.own.renewal.get_or_insert_with(begin);
        let (id, expected) = (id.clone(), *expected);
        let record = LeaseRecord::held(&context.options.node);
        self.send_record(context, Asked::Renewal, &record, &id, expected);
    }

    pub(super) fn renewal_acknowledged(&mut self, context: &mut Context, outcome: Result<PublishAck, PublishFault>) {
        match outcome {
            Ok(ack) => self.renewal_stored(context, ack.sequence),
            Err(fault) if fault.is_wrong_last_sequence() => self.read(context, Asked::ReadOfOwn),
            // The lease stays held, because no node can take it while the stream stores nothing.
            Err(_) => {
                self.storing.since_us = None;
                self.own.due_us = Some(context.now.mono_us + Self::retry_us(context));
            }
        }
    }

    fn renewal_stored(&mut self, context: &mut Context, sequence: u64) {
        let (now_us, interval_us) = (context.now.mono_us, Self::renewal_interval_us(context));
        let own = &mut self.own;
        let begun_us = own.renewal.take().map_or(now_us, |renewal| renewal.begun_us);
        if sequence <= own.newest {
            // The record was stored, and the lease was taken before the answer arrived.
            own.due_us = Some(now_us);
            return;
        }
        own.newest = sequence;
        own.due_us = Some(now_us.max(begun_us + interval_us));
        if self.is_releasing() {
            return self.send_release(context);
        }
        let own = &mut self.own;
        // A truncated stream assigns sequences again.
        if own.term.is_none_or(|term| sequence <= term) {
            own.term = Some(sequence);
            let change = LeaseChange::Began { term: sequence };
            context.effects.push(CoreEffect::Peers(PeerEffect::LeaseChanged(change)));
        }
        self.mark_stored(now_us, Self::renewal_pause_us(context));
    }

    /// Handles the newest message of this node's lease, after the condition failed.
    pub(super) fn own_lease_read(&mut self, context: &mut Context, outcome: Result<ReadAnswer, ReadFault>) {
        let retry_us = context.now.mono_us + Self::retry_us(context);
        let Ok(answer) = outcome else {
            self.own.due_us = Some(retry_us);
            return;
        };
        let newest = answer.messages.last();
        let id = newest.and_then(|message| message.headers.get(MESSAGE_ID));
        if let (Some(message), Some(renewal)) = (newest, &self.own.renewal)
            && id == Some(&*renewal.id)
        {
            return self.renewal_stored(context, message.sequence);
        }
        // A lagging replica returns an older message; the next attempt is then refused again.
        self.own.renewal = None;
        self.own.due_us = Some(retry_us);
        let sequence = newest.map_or(0, |message| message.sequence);
        let status = newest.and_then(|message| LeaseRecord::of(&message.headers)).map(|record| record.status);
        match (status, self.own.term) {
            (Some(LeaseStatus::Taken { by }), Some(term)) if sequence > term => self.lose(context, sequence, &by),
            (Some(LeaseStatus::Released), _) if self.is_releasing() => self.end(),
            _ => self.own.newest = sequence,
        }
    }

    /// A message of this node's own lease was republished.
    pub(super) fn own_lease_observed(&mut self, context: &mut Context, status: &LeaseStatus, sequence: u64) {
        if let LeaseStatus::Taken { by } = status
            && sequence > self.own.newest
        {
            self.lose(context, sequence, by);
        }
    }

    fn lose(&mut self, context: &mut Context, sequence: u64, by: &str) {
        if self.is_releasing() {
            return self.end();
        }
        self.own.newest = sequence;
        if self.own.term.take().is_some() {
            self.counters.lost += 1;
            self.news.is_own_lost = true;
            let change = LeaseChange::Lost { by: by.into() };
            context.effects.push(CoreEffect::Peers(PeerEffect::LeaseChanged(change)));
        }
        if self.requests.values().all(|asked| !matches!(asked, Asked::Renewal | Asked::ReadOfOwn)) {
            self.own.renewal = None;
            self.own.due_us = Some(context.now.mono_us);
        }
    }
}
