use std::sync::Arc;

use dunlin_engine::{
    Event,
    log::{LoadNumber, LoadQuery},
};

use crate::{
    core::{
        CoreEffect, CoreEvent, CoreLimits,
        rig::{FENCE, Rig, SHARD, stored},
    },
    link::{LinkEvent, ReadAnswer},
};

/// The newest message that this node knows, and the position of the client.
const KNOWN: u64 = FENCE / 10;
const AFTER: u64 = 50;

impl Rig {
    /// A client that has seen `AFTER` on another node connects to this one, while the stream has `newest`.
    fn load_ahead(&mut self, newest: u64) {
        let channel: Arc<str> = "chat:1".into();
        self.handle(CoreEvent::Follow { shard: SHARD, channel: Arc::clone(&channel), namespace: 1 });
        self.newest = newest;
        let query = LoadQuery::after(AFTER, 100);
        self.handle(CoreEvent::Load { shard: SHARD, channel, load: LoadNumber(1), query });
    }

    /// The client's publications, once its load is answered.
    fn take_loaded(&mut self) -> Option<(Vec<u64>, u64)> {
        self.effects.drain(..).find_map(|effect| match effect {
            CoreEffect::ToShard { event: Event::Loaded { outcome, .. }, .. } => {
                let page = outcome.expect("the load is not refused");
                Some((page.records.iter().map(|record| record.publication.offset).collect(), page.through))
            }
            _ => None,
        })
    }

    /// Answers the read of the messages that this node lacks.
    fn answer_range(&mut self, sequences: &[u64]) {
        let (request, subject) = self.ranges.pop().expect("the missing messages are read");
        let subject = subject.expect("the read is for a channel");
        let messages = sequences.iter().map(|sequence| stored(&subject, *sequence)).collect();
        let outcome = Ok(ReadAnswer { messages, ..ReadAnswer::default() });
        self.handle(CoreEvent::Link(LinkEvent::Answered { request, outcome }));
    }
}

#[test]
fn a_client_ahead_waits_for_messages_at_or_below_the_fence() {
    let mut rig = Rig::new(CoreLimits::default());
    rig.load_ahead(FENCE - 1);
    assert_eq!(rig.take_loaded(), None);
    rig.answer_range(&[40, 60, FENCE - 1]);
    assert_eq!(rig.take_loaded(), Some((vec![60], 60)));
}

#[test]
fn a_client_ahead_waits_for_messages_before_the_newest() {
    let mut rig = Rig::new(CoreLimits::default());
    // The message was stored after the fence, and its live copy is in flight.
    let newest = 10 * FENCE;
    rig.load_ahead(newest);
    assert_eq!(rig.take_loaded(), None, "a message after the client's position may be lost");
    rig.answer_range(&[40, 60, newest]);
    assert_eq!(rig.take_loaded(), Some((vec![60], 60)));
}

#[test]
fn a_client_ahead_is_answered_at_once_if_nothing_is_missing() {
    let mut rig = Rig::new(CoreLimits::default());
    rig.load_ahead(KNOWN);
    assert_eq!(rig.take_loaded(), Some((vec![], FENCE + 2)));
}
