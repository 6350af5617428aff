//! Passes events of the protocol on to the shards, and deals with those that do not fit into their queues.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::Ordering},
};

use dunlin_engine::{Event, ShardIndex};

use super::{ClusterHost, SharedState};

/// What is on its way to the shards.
pub(super) struct Deliveries<'a> {
    host: Arc<dyn ClusterHost>,
    shared: &'a SharedState,
    /// Channels with a message that did not fit.
    undelivered: BTreeSet<Arc<str>>,
    /// Answers to publications of this node behind a message that did not fit. Each is of one in flight, which are bounded.
    held: Vec<(ShardIndex, Event<'static>)>,
    /// For each shard, the numbers of users' sessions that it does not have; a newer one replaces it.
    counts: Vec<BTreeMap<Arc<str>, u32>>,
    counts_max: usize,
}

impl<'a> Deliveries<'a> {
    pub(super) fn new(host: Arc<dyn ClusterHost>, shared: &'a SharedState, counts_max: usize) -> Self {
        let counts = vec![BTreeMap::new(); usize::from(host.shard_count())];
        Self { host, shared, undelivered: BTreeSet::new(), held: Vec::new(), counts, counts_max }
    }

    pub(super) fn host(&self) -> &dyn ClusterHost {
        &*self.host
    }

    /// Sends an event to a shard. Answers always fit; see [`Event::for_full_queue`].
    pub(super) fn send(&mut self, shard: ShardIndex, event: Event<'static>) {
        let followed = match &event {
            Event::Replicated { channel, .. } | Event::Trimmed { channel, .. } => Some(Arc::clone(channel)),
            // The shard delivers a publication of its own as well when it is committed. A refusal waits behind it: the
            // answers of a channel keep the order of its proposals.
            Event::Committed { channel, .. } if self.undelivered.contains(channel) || self.is_held(channel) => {
                return self.held.push((shard, event));
            }
            _ => None,
        };
        // A shard that received a later message would not notice that it has missed one.
        if followed.as_ref().is_some_and(|channel| self.undelivered.contains(channel)) {
            return;
        }
        let is_broadcast = matches!(event, Event::BroadcastReceived { .. });
        if self.host.send(shard, event) {
            return;
        }
        self.undelivered.extend(followed);
        self.shared.broadcasts_refused.fetch_add(usize::from(is_broadcast), Ordering::Relaxed);
    }

    /// The channels whose subscribers must resubscribe, because a message did not fit.
    pub(super) fn take_undelivered(&mut self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.undelivered)
    }

    fn is_held(&self, channel: &Arc<str>) -> bool {
        self.held.iter().any(|(_, event)| matches!(event, Event::Committed { channel: held, .. } if held == channel))
    }

    /// Sends what was held, after the subscribers of its channels were interrupted.
    pub(super) fn send_held(&mut self) {
        for (shard, event) in std::mem::take(&mut self.held) {
            self.send(shard, event);
        }
    }

    /// Notes the number of sessions that a user has on other nodes. Beyond the limit, a shard keeps the number that it has
    /// until it changes again.
    pub(super) fn count(&mut self, user: &Arc<str>, sessions: u32) {
        let mut is_refused = false;
        for counts in &mut self.counts {
            if counts.len() < self.counts_max || counts.contains_key(user) {
                counts.insert(Arc::clone(user), sessions);
            } else {
                is_refused = true;
            }
        }
        self.shared.counts_refused.fetch_add(usize::from(is_refused), Ordering::Relaxed);
    }

    /// Sends the noted numbers to each shard, until one does not fit. The rest is sent in a later turn, at the latest with
    /// the next heartbeat.
    pub(super) fn send_counts(&mut self) {
        for (shard, counts) in (0..).map(ShardIndex).zip(&mut self.counts) {
            while let Some(count) = counts.first_entry() {
                let (user, sessions) = (Arc::clone(count.key()), *count.get());
                if !self.host.send(shard, Event::UserSessionsElsewhere { user, sessions }) {
                    break;
                }
                count.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use dunlin_engine::{
        broadcast::BroadcastMessage,
        event::ShardEvents,
        log::{LogError, LogRecord, ProposalNumber},
    };
    use dunlin_protocol::{ClientInfo, Payload, Publication, Tags};

    use super::*;
    use crate::core::{StreamChange, peers::PeerEffect, room_logs::RoomLogEffect};

    const SHARD: ShardIndex = ShardIndex(1);

    /// Two shards whose queues take a number of messages of other nodes.
    #[derive(Default)]
    struct Shards {
        places: Mutex<usize>,
        taken: Mutex<Vec<String>>,
    }

    impl ShardEvents for Shards {
        fn send(&self, to: ShardIndex, event: Event<'static>) -> bool {
            let shown = match &event {
                Event::Replicated { channel, record } => format!("{channel} {}", record.publication.offset),
                Event::Trimmed { channel, .. } => format!("{channel} trimmed"),
                Event::UserSessionsElsewhere { user, sessions } => format!("{user} {sessions} {}", to.0),
                Event::BroadcastReceived { channel, .. } => format!("{channel} broadcast"),
                Event::Committed { channel, .. } => format!("{channel} committed"),
                Event::Interrupted { channel } => format!("{channel} interrupted"),
                other => panic!("{other:?}"),
            };
            let is_answer = event.for_full_queue().is_some();
            let mut places = self.places.lock().expect("nobody panics");
            if *places == 0 && !is_answer {
                return false;
            }
            *places = places.saturating_sub(1);
            self.taken.lock().expect("nobody panics").push(shown);
            true
        }
    }

    impl ClusterHost for Shards {
        fn shard_count(&self) -> u16 {
            2
        }
        fn peers(&self, effect: PeerEffect) {
            panic!("{effect:?}");
        }
        fn room_log(&self, effect: RoomLogEffect) {
            panic!("{effect:?}");
        }
        fn stream_changed(&self, _: &str, _: &StreamChange) {}
        fn readiness_changed(&self, _: bool) {}
    }

    impl Shards {
        fn with_places(&self, places: usize) {
            *self.places.lock().expect("nobody panics") = places;
        }

        fn taken(&self) -> Vec<String> {
            std::mem::take(&mut self.taken.lock().expect("nobody panics"))
        }
    }

    fn replicated(channel: &str, offset: u64) -> Event<'static> {
        let data = Payload::from_json("1".into());
        let publication = Arc::new(Publication {
            data,
            info: None,
            offset,
            tags: Tags::new(),
            time_ms: 0,
            epoch: Box::default(),
            version: 0,
        });
        let record = Box::new(LogRecord { publication, version_epoch: Box::default(), idempotency_key: None });
        Event::Replicated { channel: channel.into(), record }
    }

    #[test]
    fn a_channel_with_a_message_that_does_not_fit_is_interrupted() {
        let (shards, shared) = (Arc::new(Shards::default()), SharedState::default());
        let mut deliveries = Deliveries::new(Arc::clone(&shards) as _, &shared, 10);
        shards.with_places(1);
        deliveries.send(SHARD, replicated("a", 1));
        deliveries.send(SHARD, replicated("a", 2));
        shards.with_places(9);
        deliveries.send(SHARD, replicated("a", 3));
        deliveries.send(SHARD, Event::Trimmed { channel: "a".into(), through: 3 });
        deliveries.send(SHARD, replicated("b", 1));
        assert_eq!(shards.taken(), ["a 1", "b 1"], "nothing follows a gap");
        assert_eq!(deliveries.take_undelivered(), BTreeSet::from(["a".into()]));
        deliveries.send(SHARD, replicated("a", 4));
        assert_eq!((shards.taken(), deliveries.take_undelivered().len()), (vec!["a 4".to_owned()], 0));
        shards.with_places(0);
        deliveries.send(SHARD, Event::Trimmed { channel: "b".into(), through: 1 });
        let committed =
            |channel: &str| Event::Committed { channel: channel.into(), proposal: ProposalNumber(1), outcome: Ok(2) };
        deliveries.send(SHARD, committed("c"));
        assert_eq!(shards.taken(), ["c committed"], "an answer always fits");
        deliveries.send(SHARD, committed("b"));
        assert_eq!(deliveries.take_undelivered(), BTreeSet::from(["b".into()]));
        assert!(shards.taken().is_empty(), "it would be delivered behind a gap");
        let refused = Err(LogError::Unavailable);
        deliveries.send(SHARD, Event::Committed { channel: "b".into(), proposal: ProposalNumber(2), outcome: refused });
        assert!(shards.taken().is_empty(), "answers keep their order");
        deliveries.send(SHARD, Event::Interrupted { channel: "b".into() });
        deliveries.send_held();
        assert_eq!(shards.taken(), ["b interrupted", "b committed", "b committed"]);
    }

    #[test]
    fn a_broadcast_that_does_not_fit_is_dropped_and_counted() {
        let (shards, shared) = (Arc::new(Shards::default()), SharedState::default());
        let mut deliveries = Deliveries::new(Arc::clone(&shards) as _, &shared, 10);
        shards.with_places(1);
        for _ in 0..2 {
            let message = BroadcastMessage::Join(Arc::new(ClientInfo::of_user("anna")));
            deliveries.send(SHARD, Event::BroadcastReceived { channel: "a".into(), message });
        }
        assert_eq!(shards.taken(), ["a broadcast"]);
        assert_eq!(shared.broadcasts_refused.load(Ordering::Relaxed), 1);
        assert!(deliveries.take_undelivered().is_empty());
    }

    #[test]
    fn numbers_of_sessions_wait_for_space_and_the_newest_is_sent() {
        let (shards, shared) = (Arc::new(Shards::default()), SharedState::default());
        let mut deliveries = Deliveries::new(Arc::clone(&shards) as _, &shared, 2);
        shards.with_places(1);
        for (user, sessions) in [("anna", 1), ("ben", 1), ("carl", 1), ("anna", 2)] {
            deliveries.count(&user.into(), sessions);
        }
        deliveries.send_counts();
        assert_eq!(shards.taken(), ["anna 2 0"], "one shard has space for one");
        assert_eq!(shared.counts_refused.load(Ordering::Relaxed), 1);
        deliveries.send_counts();
        assert!(shards.taken().is_empty(), "a shard gets a number once");
        deliveries.count(&"anna".into(), 3);
        shards.with_places(9);
        deliveries.send_counts();
        assert_eq!(shards.taken(), ["anna 3 0", "ben 1 0", "anna 3 1", "ben 1 1"], "at the limit, and past it");
        deliveries.send_counts();
        assert!(shards.taken().is_empty(), "each once");
    }
}
