//! The cluster threads of two nodes on real servers. The shards only record the events that they receive.

use std::{
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use dunlin_cluster::{
    core::{
        BroadcastNamespace, CoreEvent, CoreLimits, StreamChange,
        leases::LeaseChange,
        peers::{NodeDescription, PeerChange, PeerEffect, PeerEvent, PeerLimits, SurveyNumber, SurveyTarget},
        room_logs::{RoomLogEffect, RoomLogEvent},
    },
    streams::StreamDifference,
    thread::{ClusterFault, ClusterHost, ClusterNamespace, ClusterOptions, ClusterState, ClusterThread},
};
use dunlin_engine::{
    Event, ShardIndex,
    broadcast::BroadcastMessage,
    event::{ShardEvents, Ticket},
    log::{LoadNumber, LoadQuery, LogError, LogPage, LogRecord, ProposalNumber},
};
use dunlin_proof::nats::NatsServers;
use dunlin_protocol::{ClientInfo, Payload, Publication};

use crate::links::{PATIENCE, options};

const SHARD: ShardIndex = ShardIndex(0);

#[derive(Debug)]
enum Told {
    Committed(u64, Result<u64, LogError>),
    Loaded(Result<Box<LogPage>, LogError>),
    Replicated(u64, Bytes),
    Followed(Box<str>),
    BroadcastReceived(Box<str>, BroadcastMessage),
    Trimmed,
    TrimCommitted(Ticket, Result<(), LogError>),
    Interrupted,
    ReadinessChanged(bool),
    Peers(PeerEffect),
    RoomLog(RoomLogEffect),
}

struct Shards(Mutex<Sender<Told>>);

impl Shards {
    fn tell(&self, told: Told) {
        let _ = self.0.lock().expect("the lock is not poisoned").send(told);
    }
}

impl ShardEvents for Shards {
    fn send(&self, _: ShardIndex, event: Event<'static>) -> bool {
        self.tell(match event {
            Event::Committed { proposal, outcome, .. } => Told::Committed(proposal.0, outcome),
            Event::TrimCommitted { ticket, outcome } => Told::TrimCommitted(ticket, outcome),
            Event::Loaded { outcome, .. } => Told::Loaded(outcome),
            Event::Replicated { record, .. } => {
                Told::Replicated(record.publication.offset, record.publication.data.bytes().clone())
            }
            Event::Followed { channel } => Told::Followed(channel.as_ref().into()),
            Event::BroadcastReceived { channel, message } => Told::BroadcastReceived(channel.as_ref().into(), message),
            Event::Trimmed { .. } => Told::Trimmed,
            Event::Interrupted { .. } => Told::Interrupted,
            Event::UserSessionsElsewhere { user, sessions } => {
                Told::Peers(PeerEffect::UserSessionsElsewhere { user, sessions })
            }
            other => panic!("{other:?}"),
        });
        true
    }
}

impl ClusterHost for Shards {
    fn shard_count(&self) -> u16 {
        1
    }
    fn peers(&self, effect: PeerEffect) {
        self.tell(Told::Peers(effect));
    }
    fn room_log(&self, effect: RoomLogEffect) {
        self.tell(Told::RoomLog(effect));
    }
    fn stream_changed(&self, _: &str, _: &StreamChange) {}

    fn readiness_changed(&self, is_ready: bool) {
        self.tell(Told::ReadinessChanged(is_ready));
    }
}

pub struct ThreadOfNode {
    thread: ClusterThread,
    told: Receiver<Told>,
}

pub fn cluster_options(urls: &str, node: &str, replicas: u16) -> ClusterOptions {
    let mut links = options(urls).0;
    links.inbox = format!("_DN.{node}").into();
    links.name = node.into();
    ClusterOptions {
        links,
        prefix: "dn".into(),
        node: node.into(),
        namespaces: vec![
            None,
            Some(ClusterNamespace {
                name: "chat".into(),
                history_size: 10,
                history_ttl_ms: 60_000,
                meta_ttl_ms: 3_600_000,
                history_bytes_max: usize::MAX,
            }),
            None,
        ],
        broadcasts: ["", "chat", "typing"]
            .map(|name| Some(BroadcastNamespace { name: name.into(), is_wide: false }))
            .into(),
        keeps_rooms: false,
        replicas,
        is_in_memory: false,
        partitions: 2,
        duplicate_window_ms: 120_000,
        publication_bytes_max: 64 << 10,
        // Long timeouts, because other tests use the processors as well.
        limits: CoreLimits {
            peers: PeerLimits { silence_timeout_ms: 600_000, survey_timeout_ms: 60_000, ..PeerLimits::default() },
            follow_timeout_ms: 600_000,
            ..CoreLimits::default()
        },
        start_timeout: PATIENCE,
        requests_max: 1_000,
        requests_bytes_max: 64 << 20,
    }
}

/// Starts the thread of a node and stops it. Returns the differences between the streams and the options.
pub fn start_and_stop(options: ClusterOptions) -> Result<Vec<StreamDifference>, ClusterFault> {
    let answers = Arc::new(Shards(Mutex::new(channel().0)));
    ClusterThread::start(options, answers).map(|(_, differences)| differences)
}

impl ThreadOfNode {
    pub fn start(urls: &str, node: &str, replicas: u16) -> Self {
        Self::start_with(cluster_options(urls, node, replicas))
    }

    pub fn start_with(options: ClusterOptions) -> Self {
        let (sender, told) = channel();
        let answers = Arc::new(Shards(Mutex::new(sender)));
        let (thread, differences) = ClusterThread::start(options, answers).expect("the cluster takes the node");
        assert_eq!(differences, []);
        Self { thread, told }
    }

    pub fn follow(&self, channel: &str) -> LogPage {
        let follow = CoreEvent::Follow { shard: SHARD, channel: channel.into(), namespace: 1 };
        self.thread.send(follow).expect("the thread runs");
        self.load(channel, LoadQuery::newest(100))
    }

    pub fn load(&self, channel: &str, query: LoadQuery) -> LogPage {
        let load = CoreEvent::Load { shard: SHARD, channel: channel.into(), load: LoadNumber(1), query };
        self.thread.request(load).expect("the thread runs");
        loop {
            if let Told::Loaded(outcome) = self.next() {
                return *outcome.expect("it is loaded");
            }
        }
    }

    pub fn publish(&self, channel: &str, number: u64) {
        let publication = Publication {
            data: Payload::from_opaque(Bytes::from(number.to_string())),
            info: None,
            offset: 0,
            tags: Vec::default(),
            time_ms: 0,
            epoch: Box::default(),
            version: 0,
        };
        let record =
            LogRecord { publication: Arc::new(publication), version_epoch: Box::default(), idempotency_key: None };
        let propose = CoreEvent::Propose {
            shard: SHARD,
            channel: channel.into(),
            namespace: 1,
            proposal: ProposalNumber(number),
            record: Box::new(record),
        };
        self.thread.request(propose).expect("the thread runs");
    }

    /// The next event for a shard.
    fn next(&self) -> Told {
        loop {
            match self.told.recv_timeout(PATIENCE).expect("the shard receives an event") {
                Told::ReadinessChanged(_) | Told::Followed(_) | Told::Peers(PeerEffect::LeaseChanged(_)) => {}
                told => return told,
            }
        }
    }

    /// Waits for the next change of readiness.
    fn readiness(&self) -> bool {
        loop {
            if let Told::ReadinessChanged(is_ready) = self.told.recv_timeout(PATIENCE).expect("it changes") {
                return is_ready;
            }
        }
    }

    pub fn room_log(&self, event: RoomLogEvent) {
        self.thread.request(CoreEvent::RoomLog(event)).expect("the thread runs");
    }

    /// The next answer about the log of a room.
    pub fn room_log_answer(&self) -> RoomLogEffect {
        loop {
            if let Told::RoomLog(effect) = self.next() {
                return effect;
            }
        }
    }

    pub fn committed(&self, number: u64) -> Result<u64, LogError> {
        loop {
            match self.next() {
                Told::Committed(at, outcome) if at == number => return outcome,
                _ => {}
            }
        }
    }
}

#[test]
fn publications_reach_another_node_in_order_and_can_be_loaded() {
    let servers = NatsServers::start(3, "");
    let (a, b) = (ThreadOfNode::start(&servers.urls(), "a", 3), ThreadOfNode::start(&servers.urls(), "b", 3));
    let page = a.follow("chat:1");
    assert!(page.records.is_empty() && page.epoch.len() == 8, "{page:?}");
    assert_eq!(b.follow("chat:1").epoch, page.epoch);
    let mut offsets = Vec::new();
    for number in 1..=50 {
        a.publish("chat:1", number);
    }
    for number in 1..=50 {
        offsets.push(a.committed(number).expect("the quorum stores it"));
    }
    assert!(offsets.is_sorted());
    let mut seen = Vec::new();
    while seen.len() < 50 {
        match b.next() {
            Told::Replicated(offset, data) => seen.push((offset, data)),
            other => panic!("{other:?}"),
        }
    }
    let published: Vec<_> =
        offsets.iter().zip(1_u64..).map(|(at, number)| (*at, Bytes::from(number.to_string()))).collect();
    assert_eq!(seen, published);
    let page = b.load("chat:1", LoadQuery::after(offsets[44], 100));
    assert_eq!(page.records.iter().map(|record| record.publication.offset).collect::<Vec<_>>(), offsets[45..]);
    assert!(page.floor <= offsets[44], "{page:?}");
    // The channel keeps ten publications.
    let page = b.load("chat:1", LoadQuery::after(offsets[10], 100));
    assert!(page.floor > offsets[10], "{page:?}");
    let state = b.thread.state();
    assert!(state.is_ready && state.counters.interrupted == 0, "{state:?}");
}

/// A node that learns of the removal only from its answer must find nothing before it.
#[test]
fn a_removal_is_stored_when_it_is_answered() {
    let servers = NatsServers::start(3, "");
    let (a, b) = (ThreadOfNode::start(&servers.urls(), "a", 3), ThreadOfNode::start(&servers.urls(), "b", 3));
    for round in 0..20 {
        let channel = format!("chat:{round}");
        a.follow(&channel);
        a.publish(&channel, 1);
        a.committed(1).expect("the quorum stores it");
        let ticket = Some(Ticket(round));
        let removal = CoreEvent::Trim { shard: SHARD, channel: channel.as_str().into(), namespace: 1, ticket };
        a.thread.request(removal).expect("the thread runs");
        loop {
            match a.next() {
                Told::TrimCommitted(answered, outcome) => {
                    assert_eq!((Some(answered), outcome), (ticket, Ok(())));
                    break;
                }
                Told::Trimmed => {}
                other => panic!("{other:?}"),
            }
        }
        let page = b.follow(&channel);
        assert!(page.records.is_empty(), "round {round}: {page:?}");
    }
}

#[test]
fn a_killed_nats_server_loses_no_publication() {
    let mut servers = NatsServers::start(3, "");
    let (a, b) = (ThreadOfNode::start(&servers.urls(), "a", 3), ThreadOfNode::start(&servers.urls(), "b", 3));
    a.follow("chat:1");
    b.follow("chat:1");
    let mut acknowledged = Vec::new();
    for round in 0..3 {
        for number in round * 100 + 1..=round * 100 + 100 {
            if number == round * 100 + 50 {
                servers.kill(usize::try_from(round).expect("it is small"));
            }
            a.publish("chat:1", number);
        }
        for number in round * 100 + 1..=round * 100 + 100 {
            if let Ok(offset) = a.committed(number) {
                acknowledged.push((offset, number));
            }
        }
        servers.restart(usize::try_from(round).expect("it is small"));
    }
    let last = acknowledged.last().expect("something is acknowledged").0;
    let mut seen = Vec::new();
    while seen.last().is_none_or(|(offset, _)| *offset < last) {
        match b.next() {
            Told::Replicated(offset, data) => {
                seen.push((
                    offset,
                    std::str::from_utf8(&data).expect("it is text").parse::<u64>().expect("it is a number"),
                ));
            }
            // Arrives if the stream has no leader for longer than a second. Subscribers would then recover.
            Told::Interrupted => panic!("interrupted"),
            other => panic!("{other:?}"),
        }
    }
    assert!(seen.windows(2).all(|pair| pair[0].0 < pair[1].0), "the order of the stream");
    let missing: Vec<_> = acknowledged.iter().filter(|one| !seen.contains(one)).collect();
    assert!(missing.is_empty(), "acknowledged and not delivered: {missing:?}");
}

#[test]
fn a_node_that_loses_its_server_is_not_ready_until_it_returns() {
    let mut servers = NatsServers::start(1, "");
    let node = ThreadOfNode::start(&servers.urls(), "a", 1);
    assert!(node.readiness());
    let state = node.thread.state();
    assert!(state.is_ready && state.counters.links_opened == [1; 3], "{state:?}");
    servers.kill(0);
    assert!(!node.readiness());
    assert!(!node.thread.state().is_ready);
    servers.restart(0);
    assert!(node.readiness());
    let state = node.thread.state();
    assert!(state.is_ready && state.counters.links_opened.iter().all(|opened| *opened >= 2), "{state:?}");
}

#[test]
fn a_failed_start_reports_its_reason() {
    let servers = NatsServers::start(1, "");
    let start = |options| start_and_stop(options).expect_err("the start fails");
    let mut options = cluster_options("nats://127.0.0.1:1", "a", 1);
    options.start_timeout = Duration::ZERO;
    assert!(matches!(start(options), ClusterFault::Connect(faults) if faults.by_server.len() == 1));
    let mut options = cluster_options(&servers.urls(), "a", 1);
    options.publication_bytes_max = 1 << 20;
    assert!(matches!(start(options), ClusterFault::MaxPayload { there: 1_048_576, wanted: 1_052_672 }));
    let mut options = cluster_options(&servers.urls(), "a", 3);
    options.start_timeout = Duration::ZERO;
    assert!(start(options).to_string().contains("broker.nats.jetstream.replicas"));
}

/// Broadcasts from one node until the other one receives the message. Without other nodes' answers, nothing confirms
/// that the server has processed the subscription.
fn broadcast_until_received(from: &ThreadOfNode, to: &ThreadOfNode, data: &'static str) -> BroadcastMessage {
    let payload = Payload::from_opaque(Bytes::from_static(data.as_bytes()));
    let publication = Publication {
        data: payload,
        info: None,
        offset: 0,
        tags: vec![("k".into(), "v".into())],
        time_ms: 0,
        epoch: Box::default(),
        version: 0,
    };
    let message = BroadcastMessage::Publication(Arc::new(publication));
    let give_up = Instant::now() + PATIENCE;
    while Instant::now() < give_up {
        let (channel, message) = ("typing:1".into(), message.clone());
        from.thread.broadcast(CoreEvent::Broadcast { channel, namespace: 2, message });
        if let Ok(Told::BroadcastReceived(channel, message)) = to.told.recv_timeout(Duration::from_millis(50)) {
            assert_eq!(&*channel, "typing:1");
            return message;
        }
    }
    panic!("no broadcast arrives")
}

#[test]
fn broadcasts_reach_other_nodes_and_not_the_sender() {
    let servers = NatsServers::start(1, "");
    let (a, b) = (ThreadOfNode::start(&servers.urls(), "a", 1), ThreadOfNode::start(&servers.urls(), "b", 1));
    for node in [&a, &b] {
        assert!(node.readiness(), "before that, broadcasts are dropped");
        let follow = CoreEvent::Follow { shard: SHARD, channel: "typing:1".into(), namespace: 2 };
        node.thread.send(follow).expect("the thread runs");
    }
    for (from, to, data) in [(&a, &b, "of a"), (&b, &a, "of b")] {
        // The first event that the receiver gets: a node does not receive its own broadcasts.
        let BroadcastMessage::Publication(publication) = broadcast_until_received(from, to, data) else {
            panic!("not a publication")
        };
        assert_eq!((&publication.data.bytes()[..], publication.tags.len()), (data.as_bytes(), 1));
    }
    // The thread publishes its state after its answers.
    let give_up = Instant::now() + PATIENCE;
    while a.thread.state().counters.broadcasts_received == 0 {
        assert!(Instant::now() < give_up, "no received broadcast is counted");
        std::thread::sleep(Duration::from_millis(1));
    }
    let counters = a.thread.state().counters;
    assert!(counters.broadcasts_sent > 0, "{counters:?}");
    assert_eq!((counters.broadcast_channels, counters.broadcasts_dropped), (1, [0; 5]));
    assert!(a.thread.broadcast_bytes_max() > 64 << 10);
}

#[test]
fn broadcasts_after_a_confirmed_follow_arrive_from_any_server() {
    let servers = NatsServers::start(3, "");
    let nodes = ["a", "b", "c"].map(|name| ThreadOfNode::start(&servers.urls(), name, 1));
    for node in &nodes {
        assert!(node.readiness(), "before that, follows are not confirmed");
        node.announce("node");
    }
    let [a, others @ ..] = &nodes;
    for _ in others {
        assert_eq!(a.changed().1, PeerChange::Joined);
    }
    for round in 0..100 {
        let channel = format!("typing:{round}");
        let follow = CoreEvent::Follow { shard: SHARD, channel: channel.as_str().into(), namespace: 2 };
        a.thread.send(follow).expect("the thread runs");
        assert_eq!(a.followed(), channel);
        for other in others {
            let (channel, message) = (channel.as_str().into(), join_of(round));
            other.thread.broadcast(CoreEvent::Broadcast { channel, namespace: 2, message });
        }
        for _ in others {
            let Told::BroadcastReceived(from, _) = a.next() else { panic!("the event is not a broadcast") };
            assert_eq!(*from, *channel);
        }
    }
    assert_eq!(a.thread.state().counters.follows_unconfirmed, 0);
}

fn join_of(round: u32) -> BroadcastMessage {
    let (user, client) = (round.to_string().as_str().into(), "c".into());
    BroadcastMessage::Join(Arc::new(ClientInfo { user, client, conn_info: None, chan_info: None }))
}

impl ThreadOfNode {
    /// Waits for the confirmation of a follow.
    fn followed(&self) -> String {
        loop {
            if let Told::Followed(channel) = self.told.recv_timeout(PATIENCE).expect("it is answered") {
                return channel.into();
            }
        }
    }

    pub fn announce(&self, name: &str) {
        let about = NodeDescription { name: name.into(), version: "1".into(), started_ms: 1, session_tag_key: None };
        self.thread.send(CoreEvent::Peers(PeerEvent::Announce { about })).expect("the thread runs");
    }

    /// Waits for the next change of a lease that this node holds or takes.
    pub fn lease_change(&self) -> LeaseChange {
        loop {
            let told = self.told.recv_timeout(PATIENCE).expect("a lease changes");
            if let Told::Peers(PeerEffect::LeaseChanged(change)) = told {
                return change;
            }
        }
    }

    pub fn state(&self) -> ClusterState {
        self.thread.state()
    }

    pub fn stop(&self) {
        self.thread.stop();
    }

    /// Waits until another node joins or leaves.
    pub fn changed(&self) -> (Box<str>, PeerChange) {
        loop {
            if let Told::Peers(PeerEffect::Changed { node, change }) = self.next() {
                return (node.node, change);
            }
        }
    }
}

#[test]
fn nodes_discover_query_and_drop_each_other() {
    let servers = NatsServers::start(1, "");
    let (a, b) = (ThreadOfNode::start(&servers.urls(), "a", 1), ThreadOfNode::start(&servers.urls(), "b", 1));
    a.announce("one");
    b.announce("two");
    assert_eq!((a.changed(), b.changed()), (("b".into(), PeerChange::Joined), ("a".into(), PeerChange::Joined)));
    for (number, to) in [(1, SurveyTarget::All), (2, SurveyTarget::Node("b".into()))] {
        let survey = PeerEvent::Survey { number: SurveyNumber(number), to, payload: Bytes::from_static(b"?") };
        a.thread.request(CoreEvent::Peers(survey)).expect("the thread runs");
        let Told::Peers(PeerEffect::Queried { query, payload, .. }) = b.next() else { panic!("it is asked") };
        assert_eq!(&*payload, b"?");
        let answer = PeerEvent::QueryAnswered { query, payload: Bytes::from_static(b"!") };
        b.thread.send(CoreEvent::Peers(answer)).expect("the thread runs");
        let Told::Peers(PeerEffect::Surveyed { number: at, outcome }) = a.next() else { panic!("it ends") };
        let found = outcome.expect("it was not refused");
        assert!(at == SurveyNumber(number) && found.is_complete(), "{found:?}");
        assert_eq!(found.answers.iter().map(|answer| &*answer.payload).collect::<Vec<_>>(), [b"!"]);
    }
    assert_eq!(a.thread.state().nodes.iter().map(|live| &*live.about.name).collect::<Vec<_>>(), ["one", "two"]);
    b.thread.stop();
    assert_eq!(a.changed(), ("b".into(), PeerChange::Left));
}

#[test]
fn a_recovery_right_after_an_attach_uses_the_window_of_another_node() {
    let servers = NatsServers::start(1, "");
    let (a, b) = (ThreadOfNode::start(&servers.urls(), "a", 1), ThreadOfNode::start(&servers.urls(), "b", 1));
    a.announce("one");
    b.announce("two");
    assert_eq!((a.changed(), b.changed()), (("b".into(), PeerChange::Joined), ("a".into(), PeerChange::Joined)));
    // A node without processor time does not answer in time. The channel is then recovered from the stream, so retry.
    for number in 0..200 {
        let channel = format!("chat:{number}");
        a.follow(&channel);
        let published = 10 * number + 1..10 * number + 5;
        published.clone().for_each(|publication| a.publish(&channel, publication));
        let offsets: Vec<u64> = published.map(|publication| a.committed(publication).expect("it is stored")).collect();
        b.follow(&channel);
        let page = b.load(&channel, LoadQuery::after(offsets[0], 100));
        assert_eq!(page.records.iter().map(|record| record.publication.offset).collect::<Vec<_>>(), offsets[1..]);
        assert!(page.floor <= offsets[0], "{page:?}");
        if b.thread.state().counters.peer_windows > 0 {
            return;
        }
    }
    panic!("no window was used: {:?}", b.thread.state());
}
