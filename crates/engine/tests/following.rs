//! Publications that are followed through their stages: accepted, received by a shard with subscribers, taken by its last
//! socket.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_engine::{
    Effects, Event, Now, Options, Seed, SessionKey, Shard, ShardIdentity, ShardIndex, Wire,
    api::ApiRequest,
    backend::PublishHow,
    counters::{Histogram, NamespaceCounters},
    event::{RecoveryReport, Ticket},
    options::{ClientOptions, FollowOptions, NamespaceOptions},
};
use dunlin_proof::allocations::allocations_of;
use dunlin_protocol::Payload;

struct Rig {
    shard: Shard,
    effects: Effects,
    now: Now,
}

impl Rig {
    /// A shard with one subscriber.
    fn new(following: FollowOptions) -> Self {
        let namespace = NamespaceOptions {
            allow_subscribe_for_client: true,
            allow_subscribe_for_anonymous: true,
            history_size: 100,
            history_ttl_ms: 60_000,
            history_meta_ttl_ms: 600_000,
            force_recovery: true,
            ..NamespaceOptions::default()
        };
        let client = ClientOptions { allow_anonymous_connect_without_token: true, ..ClientOptions::default() };
        let options = Options { client, without_namespace: namespace, following, ..Options::default() };
        let identity = ShardIdentity { index: ShardIndex(0), count: 1 };
        let now = Now { mono_us: 1_000_000, unix_ms: 1_700_000_000_000 };
        let shard = Shard::new(identity, Arc::new(options), Seed { node: 7, shard: [3; 32] });
        let mut rig = Self { shard, effects: Effects::default(), now };
        rig.subscribe(0, "");
        rig
    }

    /// Publishes once, and writes to all sockets.
    fn turn(&mut self) {
        self.publish();
        self.write_all();
        self.effects.list.clear();
    }

    fn subscribe(&mut self, index: u32, fields: &str) {
        let session = SessionKey { index, generation: 1 };
        self.handle(Event::Opened { session, wire: Wire::WebSocketJson, source: None, address: None });
        let frame =
            format!("{{\"id\":1,\"connect\":{{}}}}\n{{\"id\":2,\"subscribe\":{{\"channel\":\"news\"{fields}}}}}");
        self.handle(Event::Received { session, frame: frame.as_bytes() });
        self.write_all();
    }

    fn handle(&mut self, event: Event<'_>) {
        self.shard.handle(self.now, event, &mut self.effects);
    }

    fn publish(&mut self) {
        let data = Payload::from_json(Bytes::from_static(b"1"));
        let request = ApiRequest::Publish { channel: "news".into(), data, how: PublishHow::default() };
        self.handle(Event::Api { ticket: Ticket(1), request });
    }

    /// Ends a turn in which all sockets take everything.
    fn write_all(&mut self) {
        for session in std::mem::take(&mut self.effects.dirty) {
            let bytes = self.shard.outgoing(session).map(<[u8]>::len).sum();
            self.handle(Event::Wrote { session, bytes });
        }
        self.handle(Event::TurnEnded);
    }

    /// The observations of the three stages.
    fn observed(&self) -> [u64; 3] {
        let NamespaceCounters { publish_to_commit, publish_to_shard, publish_to_last_socket, .. } =
            &self.shard.counters().namespaces[0];
        [publish_to_commit, publish_to_shard, publish_to_last_socket].map(Histogram::count)
    }
}

fn one_of(publication_interval: u32) -> FollowOptions {
    FollowOptions { publication_interval, ..FollowOptions::default() }
}

#[test]
fn one_of_so_many_publications_is_followed() {
    for (interval, followed) in [(0, 0), (1, 7), (3, 3), (7, 1), (1_000, 1)] {
        let mut rig = Rig::new(one_of(interval));
        for _ in 0..7 {
            rig.publish();
            rig.write_all();
        }
        assert_eq!(rig.observed(), [followed; 3], "{interval}");
    }
}

#[test]
fn following_allocates_nothing() {
    let [unfollowed, followed] = [0, 1].map(|interval| {
        [1, 100].map(|subscribers| {
            let mut rig = Rig::new(one_of(interval));
            for index in 1..subscribers {
                rig.subscribe(index, "");
            }
            for _ in 0..200 {
                rig.turn();
            }
            let counts: Vec<usize> = (0..32).map(|_| allocations_of(|| rig.turn()).0).collect();
            assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
            counts[0]
        })
    });
    assert_eq!(unfollowed, followed);
}

/// Prints what following costs a publication. On a busy machine, only the median of many pairs says something.
#[test]
#[ignore = "a measurement, whose result is for people"]
fn cost_of_following() {
    const TURNS: u32 = 20_000;
    let mut rigs = [0, 1_000, 1].map(|interval| (interval, Rig::new(one_of(interval)), Vec::new()));
    for _ in 0..41 {
        for (_, rig, took_ns) in &mut rigs {
            let begun = std::time::Instant::now();
            for _ in 0..TURNS {
                rig.turn();
            }
            took_ns.push(begun.elapsed().as_nanos() / u128::from(TURNS));
        }
    }
    for (interval, _, mut took_ns) in rigs {
        took_ns.sort_unstable();
        println!("1 of {interval}: {} ns per publication (median; {} to {})", took_ns[20], took_ns[0], took_ns[40]);
    }
}

#[test]
fn the_last_socket_is_waited_for() {
    let mut rig = Rig::new(one_of(1));
    rig.publish();
    // The socket takes nothing in this turn.
    let dirty = std::mem::take(&mut rig.effects.dirty);
    rig.handle(Event::TurnEnded);
    assert_eq!(rig.observed(), [1, 1, 0]);
    rig.now.mono_us += 5_000;
    rig.effects.dirty = dirty;
    rig.write_all();
    assert_eq!(rig.observed(), [1, 1, 1]);
    assert_eq!(rig.shard.counters().namespaces[0].publish_to_last_socket.sum_us, 5_000);
    assert_eq!(rig.shard.counters().namespaces[0].publish_to_socket.sum_us, 0);
}

#[test]
fn a_session_that_ends_is_not_waited_for() {
    let mut rig = Rig::new(one_of(1));
    rig.publish();
    rig.effects.dirty.clear();
    rig.handle(Event::Gone { session: SessionKey { index: 0, generation: 1 } });
    rig.handle(Event::TurnEnded);
    assert_eq!(rig.observed(), [1, 1, 1]);
}

#[test]
fn the_number_of_frames_that_are_waited_for_is_limited() {
    for (published, followed) in [(16, 16), (17, 16)] {
        let mut rig = Rig::new(one_of(1));
        for _ in 0..published {
            rig.publish();
        }
        rig.write_all();
        assert_eq!(rig.observed(), [published, published, followed]);
        assert_eq!(rig.shard.counters().namespaces[0].frames_unfollowed, published - followed);
        rig.publish();
        rig.write_all();
        assert_eq!(rig.observed()[2], followed + 1, "there is room again");
    }
}

#[test]
fn a_stalled_socket_is_waited_for_until_a_limit() {
    let mut rig = Rig::new(one_of(1));
    for _ in 0..16 {
        rig.publish();
    }
    rig.handle(Event::TurnEnded);
    rig.now.mono_us += 10_000_000;
    rig.handle(Event::TurnEnded);
    assert_eq!(rig.observed(), [16, 16, 0], "at the limit");
    rig.now.mono_us += 1;
    rig.handle(Event::TurnEnded);
    assert_eq!(rig.observed(), [16; 3], "one past it");
    rig.publish();
    rig.write_all();
    assert_eq!(rig.observed(), [17; 3], "there is room again");
    assert_eq!(rig.shard.counters().namespaces[0].frames_unfollowed, 0);
}

#[test]
fn recoveries_are_reported_if_that_is_wanted() {
    let mut rig = Rig::new(FollowOptions { recoveries: true, ..FollowOptions::default() });
    rig.publish();
    rig.write_all();
    assert!(rig.effects.recoveries.is_empty(), "nobody has recovered");
    rig.subscribe(1, ",\"recover\":true,\"offset\":0");
    let [RecoveryReport { session, channel, is_recovered, publications, .. }] = &rig.effects.recoveries[..] else {
        panic!("{:?}", rig.effects.recoveries)
    };
    assert_eq!((session.index, &**channel, *publications), (1, "news", 1));
    assert!(is_recovered);
    let mut rig = Rig::new(FollowOptions::default());
    rig.publish();
    rig.subscribe(1, ",\"recover\":true,\"offset\":0");
    assert!(rig.effects.recoveries.is_empty());
}
