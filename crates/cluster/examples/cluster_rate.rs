//! Compares a node's cluster thread with a bare client of NATS on the same servers, in one run:
//! `cluster_rate NATS_URLS REPLICAS [FOLLOWED]`.
//!
//! The servers must be fresh: the program creates the stream `rate_chat_0`.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use dunlin_cluster::{
    core::{CoreEvent, CoreLimits, StreamChange, peers::PeerEffect, room_logs::RoomLogEffect},
    links::{LinkCredentials, LinkOptions, NatsClient, open_once, parsed_servers},
    thread::{ClusterHost, ClusterNamespace, ClusterOptions, ClusterThread},
};
use dunlin_engine::{
    Event, ShardIndex,
    event::ShardEvents,
    log::{LogRecord, ProposalNumber},
};
use dunlin_protocol::{Payload, Publication};
use futures_util::StreamExt;
use tokio::runtime::{Builder, Runtime};

const SHARD: ShardIndex = ShardIndex(0);
const PAYLOAD: &[u8] = &[b'x'; 128];
/// Publications sent one at a time, on each of the two sides.
const LATENCIES: u64 = 3_000;
/// The number of publications in flight.
const WINDOW: u64 = 1_000;
const THROUGHPUT: u64 = 30_000;
const CHANNELS: u64 = 1_000;
const NODES: usize = 3;

#[derive(Default)]
struct Answers {
    committed: AtomicU64,
    replicated: AtomicU64,
    waiting: Mutex<()>,
    changed: Condvar,
}

impl Answers {
    fn notify(&self) {
        let _held = self.waiting.lock();
        self.changed.notify_all();
    }

    fn wait_until(&self, is_so: impl Fn() -> bool) {
        let held = self.waiting.lock().expect("nobody panics");
        // No notification follows a change of the thread's state, so this loop polls.
        let mut held = held;
        while !is_so() {
            held = self.changed.wait_timeout(held, Duration::from_millis(1)).expect("nobody panics").0;
        }
    }
}

impl ShardEvents for Answers {
    fn send(&self, _: ShardIndex, event: Event<'static>) -> bool {
        match event {
            Event::Committed { outcome, .. } => {
                outcome.expect("the stream stores it");
                self.committed.fetch_add(1, Ordering::SeqCst);
                self.notify();
            }
            Event::Replicated { .. } => drop(self.replicated.fetch_add(1, Ordering::SeqCst)),
            Event::Interrupted { channel } => panic!("{channel} is interrupted"),
            _ => {}
        }
        true
    }
}

impl ClusterHost for Answers {
    fn shard_count(&self) -> u16 {
        1
    }
    fn stream_changed(&self, _: &str, _: &StreamChange) {}
    fn readiness_changed(&self, _: bool) {}
    fn peers(&self, _: PeerEffect) {}
    fn room_log(&self, _: RoomLogEffect) {}
}

fn link_options(urls: &str, name: &str) -> LinkOptions {
    LinkOptions {
        servers: parsed_servers(urls).expect("addresses of NATS servers"),
        credentials: LinkCredentials::None,
        tls: None,
        name: name.into(),
        inbox: format!("_DN.{name}").into(),
        dial_timeout: Duration::from_secs(5),
        ack_timeout: Duration::from_secs(5),
        read_timeout: Duration::from_secs(5),
        messages_max: 1 << 20,
        messages_bytes_max: 64 << 20,
        report: Arc::new(|_| {}),
    }
}

struct RateNode {
    thread: ClusterThread,
    answers: Arc<Answers>,
    proposed: u64,
}

impl RateNode {
    fn start(urls: &str, name: &str, replicas: u16) -> Self {
        let namespace = ClusterNamespace {
            name: "chat".into(),
            history_size: 100,
            history_ttl_ms: 3_600_000,
            meta_ttl_ms: 3_600_000,
            history_bytes_max: usize::MAX,
        };
        let options = ClusterOptions {
            links: link_options(urls, name),
            prefix: "rate".into(),
            node: name.into(),
            namespaces: vec![None, Some(namespace)],
            broadcasts: vec![None, None],
            keeps_rooms: false,
            replicas,
            is_in_memory: false,
            partitions: 1,
            duplicate_window_ms: 120_000,
            publication_bytes_max: 64 << 10,
            limits: CoreLimits::default(),
            start_timeout: Duration::from_secs(30),
            requests_max: 1 << 20,
            requests_bytes_max: 64 << 20,
        };
        let answers = Arc::new(Answers::default());
        let (thread, _) = ClusterThread::start(options, Arc::clone(&answers) as _).expect("the cluster takes the node");
        Self { thread, answers, proposed: 0 }
    }

    fn follow(&self, channels: u64) {
        let attached = self.thread.state().counters.attached;
        for channel in 0..channels {
            let channel = channel_name(channel);
            self.thread.send(CoreEvent::Follow { shard: SHARD, channel, namespace: 1 }).expect("the thread runs");
        }
        self.answers.wait_until(|| self.thread.state().counters.attached >= attached + channels);
    }

    fn propose(&mut self, channel: u64) {
        self.proposed += 1;
        let publication = Publication {
            data: Payload::from_opaque(Bytes::from_static(PAYLOAD)),
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
            channel: channel_name(channel),
            namespace: 1,
            proposal: ProposalNumber(self.proposed),
            record: Box::new(record),
        };
        self.thread.request(propose).expect("there is room");
    }

    fn wait_for_commits(&self, in_flight: u64) {
        self.answers.wait_until(|| self.answers.committed.load(Ordering::SeqCst) + in_flight >= self.proposed);
    }
}

fn channel_name(number: u64) -> Arc<str> {
    format!("chat:{number}").into()
}

fn bare_subject(number: u64) -> String {
    format!("rate.p.chat.0.bare:{number}")
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [urls, replicas, more @ ..] = &*arguments else {
        eprintln!("usage: cluster_rate NATS_URLS REPLICAS [FOLLOWED]");
        std::process::exit(2);
    };
    let replicas = replicas.parse().expect("REPLICAS is a number");
    let followed = more.first().map_or(100_000, |text| text.parse().expect("FOLLOWED is a number"));
    let runtime = Builder::new_current_thread().enable_all().build().expect("there are files for it");
    let mut nodes: Vec<RateNode> =
        (0..NODES).map(|number| RateNode::start(urls, &format!("n{number}"), replicas)).collect();
    let bare = runtime.block_on(open_once(&link_options(urls, "bare"))).expect("a server takes the connection");
    for node in &nodes {
        node.follow(CHANNELS);
    }

    compare_latencies(&runtime, &bare, &mut nodes[0]);
    compare_throughput(&runtime, &bare, &mut nodes[0]);
    count_messages(&nodes);
    nodes.truncate(1);
    compare_following(&runtime, urls, &nodes[0], followed);
}

fn compare_latencies(runtime: &Runtime, bare: &NatsClient, node: &mut RateNode) {
    let (mut of_bare, mut of_node) = (Vec::new(), Vec::new());
    for number in 0..LATENCIES {
        let began = Instant::now();
        let asking = bare.request(bare_subject(number % CHANNELS), Bytes::from_static(PAYLOAD));
        runtime.block_on(asking).expect("the stream stores it");
        of_bare.push(began.elapsed());
        let began = Instant::now();
        node.propose(number % CHANNELS);
        node.wait_for_commits(0);
        of_node.push(began.elapsed());
    }
    for (name, percent) in [("median", 50), ("p99", 99)] {
        let (bare, node) = (percentile(&mut of_bare, percent), percentile(&mut of_node, percent));
        println!("latency {name}: bare {bare:.3} ms, node {node:.3} ms, ratio {:.2}", node / bare);
    }
}

fn percentile(times: &mut [Duration], percent: usize) -> f64 {
    times.sort();
    times[(times.len() * percent / 100).min(times.len() - 1)].as_secs_f64() * 1_000.0
}

fn compare_throughput(runtime: &Runtime, bare: &NatsClient, node: &mut RateNode) {
    let (mut of_bare, mut of_node) = (Vec::new(), Vec::new());
    // Alternates, so that both sides see the same load from other processes.
    for _ in 0..3 {
        let began = Instant::now();
        runtime.block_on(publish_bare(bare, THROUGHPUT));
        of_bare.push(began.elapsed());
        let began = Instant::now();
        for number in 0..THROUGHPUT {
            node.wait_for_commits(WINDOW);
            node.propose(number % CHANNELS);
        }
        node.wait_for_commits(0);
        of_node.push(began.elapsed());
    }
    let rate = |times: &mut Vec<Duration>| THROUGHPUT as f64 / percentile(times, 50) * 1_000.0;
    let (bare, node) = (rate(&mut of_bare), rate(&mut of_node));
    println!("publications a second: bare {bare:.0}, node {node:.0}, ratio {:.2}", node / bare);
}

async fn publish_bare(client: &NatsClient, count: u64) {
    let inbox = client.new_inbox();
    let mut answers = client.subscribe(inbox.clone()).await.expect("the connection is open");
    let (mut sent, mut answered) = (0, 0);
    while answered < count {
        while sent < count && sent < answered + WINDOW {
            let sending =
                client.publish_with_reply(bare_subject(sent % CHANNELS), inbox.clone(), Bytes::from_static(PAYLOAD));
            sending.await.expect("the connection is open");
            sent += 1;
        }
        answers.next().await.expect("the stream answers");
        answered += 1;
    }
}

fn count_messages(nodes: &[RateNode]) {
    let published = nodes[0].proposed;
    let received: BTreeMap<usize, u64> =
        nodes.iter().map(|node| node.thread.state().counters.delivered).enumerate().collect();
    println!("{published} publications; messages received by each of {} nodes that follow: {received:?}", nodes.len());
}

fn compare_following(runtime: &Runtime, urls: &str, node: &RateNode, followed: u64) {
    let began = Instant::now();
    runtime.block_on(async {
        let client = open_once(&link_options(urls, "follower")).await.expect("a server takes the connection");
        let mut subscriptions = Vec::new();
        for number in 0..followed {
            let subject = format!("rate.r.chat.0.follow:{number}");
            subscriptions.push(client.subscribe(subject).await.expect("the connection is open"));
        }
        // The answer arrives after the server has read all subscriptions.
        let inbox = client.new_inbox();
        let mut answers = client.subscribe(inbox.clone()).await.expect("the connection is open");
        client.publish(inbox, Bytes::new()).await.expect("the connection is open");
        answers.next().await.expect("the server answers");
    });
    let bare = followed as f64 / began.elapsed().as_secs_f64();
    let began = Instant::now();
    let attached = node.thread.state().counters.attached;
    let resident = resident_bytes();
    for number in 0..followed {
        let channel: Arc<str> = format!("chat:follow:{number}").into();
        node.thread.send(CoreEvent::Follow { shard: SHARD, channel, namespace: 1 }).expect("the thread runs");
    }
    node.answers.wait_until(|| node.thread.state().counters.attached >= attached + followed);
    let node = followed as f64 / began.elapsed().as_secs_f64();
    // The allocator may already own some of this memory, so the first thousands of channels may cost nothing.
    let bytes = resident_bytes().saturating_sub(resident);
    println!("resident memory for a followed channel: {} bytes", bytes / followed.max(1));
    println!("channels followed a second: bare subscriptions {bare:.0}, node {node:.0}, ratio {:.2}", node / bare);
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("its second number");
    pages * 4096
}
