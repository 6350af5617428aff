//! A running node and its test client.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};

use dunlin::backend::{NoBackends, ProxyClient};
use dunlin::node::{HandOver, NetCounters, Node, NodeLogs, NodeNetOptions, NodeStart, ShardQueues};
use dunlin_config::RoomsOptions;
use dunlin_engine::{
    Options,
    api::{ApiRequest, ApiResult},
    backend::PublishHow,
    event::{ConnectionClaims, SubscriptionClaims, TokenError},
};
use dunlin_net::OriginCheck;
use dunlin_protocol::Payload;
use dunlin_token::{Judged, TokenAnswer, TokenRequest, VerifyTokens};
use tokio::{runtime::Runtime, sync::mpsc};

use crate::each_reactor;

/// Maximum time that a test waits for a condition. Only a failing test waits this long.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A node, with a runtime for the tasks of the control thread.
pub struct Rig {
    pub node: Node,
    pub handed_over: mpsc::Receiver<HandOver>,
    pub runtime: Runtime,
}

/// Options for a node on a free port.
pub fn net_options() -> NodeNetOptions {
    NodeNetOptions {
        reactor: each_reactor::current(),
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        ..NodeNetOptions::default()
    }
}

/// Options that permit everything to all clients.
pub fn engine_options() -> Options {
    let mut options = Options::default();
    options.client.insecure = true;
    options.client.allow_anonymous_connect_without_token = true;
    options
}

impl Rig {
    pub fn start(net: NodeNetOptions, engine: Options) -> Self {
        Self::with_backends(net, engine, Arc::new(NoBackends::default()))
    }

    pub fn with_backends(net: NodeNetOptions, engine: Options, backends: Arc<dyn ProxyClient>) -> Self {
        Self::with(net, engine, backends, RoomsOptions::default())
    }

    pub fn with_rooms(engine: Options, rooms: RoomsOptions) -> Self {
        Self::with(net_options(), engine, Arc::new(NoBackends::default()), rooms)
    }

    fn with(net: NodeNetOptions, engine: Options, backends: Arc<dyn ProxyClient>, rooms: RoomsOptions) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (hand_over, handed_over) = mpsc::channel(1);
        let origins: OriginCheck = Arc::new(|origin, _| origin != Some("https://evil.example"));
        let tokens: Arc<dyn VerifyTokens> = Arc::new(Tokens);
        let engine = Arc::new(engine);
        let logs = NodeLogs { queues: ShardQueues::new(net.shard_count), storage: None, cluster: None };
        let start =
            NodeStart { net, engine, rooms, tokens, backends, webhooks: None, tracer: None, logs, origins, hand_over };
        Self { node: Node::start(start).expect("a node"), handed_over, runtime }
    }

    pub fn simple() -> Self {
        Self::start(net_options(), engine_options())
    }

    pub fn address(&self) -> SocketAddr {
        self.node.local_addr()
    }

    /// Counters of all shards.
    pub fn counters(&self) -> Vec<NetCounters> {
        self.runtime.block_on(self.node.report()).into_iter().map(|report| report.net).collect()
    }

    /// The sum over the shards of one counter.
    pub fn count(&self, pick: impl Fn(&NetCounters) -> u64) -> u64 {
        self.counters().iter().map(pick).sum()
    }

    /// Waits until the sum over the shards of one counter is at least `least`.
    pub fn wait_for(&self, what: &str, least: u64, pick: impl Fn(&NetCounters) -> u64) {
        wait_until(what, || self.count(&pick) >= least);
    }

    pub fn publish(&self, channel: &str, json: &str) -> ApiResult {
        let data = Payload::from_json(json.as_bytes().to_vec().into());
        let request = ApiRequest::Publish { channel: channel.into(), data, how: PublishHow::default() };
        self.runtime.block_on(self.node.ask_owner(channel, request)).expect("the node runs")
    }
}

/// Waits for a condition. Fails the test if it is not met after [`PATIENCE`].
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The released tokens, whose shards may continue.
static RELEASED: (Mutex<BTreeSet<String>>, Condvar) = (Mutex::new(BTreeSet::new()), Condvar::new());

/// Blocks the calling shard thread until the token is released.
fn stall(token: &str) {
    let (released, changed) = &RELEASED;
    let guard = released.lock().expect("not poisoned");
    drop(changed.wait_while(guard, |released| !released.contains(token)).expect("not poisoned"));
}

/// Releases `token`, so that the shard that verifies it continues.
pub fn release(token: &str) {
    let (released, changed) = &RELEASED;
    released.lock().expect("not poisoned").insert(token.to_owned());
    changed.notify_all();
}

/// Accepts `user:NAME` as a connection token of the user NAME, and `channel:NAME` as a subscription token for the
/// channel NAME. A token that begins with `stall:` blocks the shard's thread until it is released.
struct Tokens;

impl VerifyTokens for Tokens {
    fn verify_connection(&self, token: &str, _now_unix_ms: u64) -> Judged<ConnectionClaims> {
        if token.starts_with("stall:") {
            stall(token);
        }
        if token.starts_with("later") || token.starts_with("never") {
            return Judged::Elsewhere;
        }
        let user = token.strip_prefix("user:").ok_or(TokenError::Invalid);
        Judged::Now(user.map(|user| ConnectionClaims { user: user.to_owned(), ..ConnectionClaims::default() }))
    }

    fn verify_subscription(&self, token: &str, _now_unix_ms: u64) -> Judged<SubscriptionClaims> {
        let channel = token.strip_prefix("channel:").ok_or(TokenError::Invalid);
        Judged::Now(channel.map(|channel| SubscriptionClaims {
            user: "ann".to_owned(),
            channel: channel.to_owned(),
            ..SubscriptionClaims::default()
        }))
    }

    /// Verifies on a separate thread, as a real verifier does.
    fn verify_elsewhere(&self, question: TokenRequest) {
        let TokenRequest { kind, token, answer } = question;
        if token.starts_with("never") {
            return;
        }
        std::thread::spawn(move || {
            answer(match token.strip_prefix("later:") {
                Some(user) => TokenAnswer::Connection(Ok(ConnectionClaims {
                    user: user.to_owned(),
                    ..ConnectionClaims::default()
                })),
                None => kind.refused(TokenError::Unavailable),
            });
        });
    }
}
