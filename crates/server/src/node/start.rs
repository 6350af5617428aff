//! Starts the threads of a node.

use std::{
    io,
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    process,
    sync::{Arc, atomic::AtomicBool},
    thread,
    time::Duration,
};

use dunlin_engine::{NamespaceNames, Options, Seed, ShardIdentity, ShardIndex};
use dunlin_net::{
    Acceptor, HeadLimits, Reactor, ReactorChoice, ReactorLimits, Reactors, SocketOptions, Waker, bind, choose,
};
use dunlin_queues::declared::{REPORT_REQUESTS, SHARD_INBOX, SHARD_RING};
use tokio::sync::Semaphore;

use super::{
    Inner, Node, NodeLogs, NodeStart, SESSION_QUERIES_MAX, ShardHandle, StartError,
    admission::Gate,
    busy_window::TurnTimes,
    clients::Clients,
    clock::Clock,
    engine::Engine,
    inbox::Inbox,
    peers::{self, Peers},
    placement::{Loads, Placement},
    rings::Rings,
    services::Services,
    shard_thread::{ShardThread, Shared},
    shard_waker::ShardWaker,
};
use crate::{
    access_sync::AccessKeeper,
    rooms::{RoomLinks, Rooms, RoomsOfNode},
    telemetry::log,
};

/// The parts of a shard that are sent to its thread. The engine's shard is created on the thread itself.
pub(super) struct ShardSetup<R> {
    pub(super) identity: ShardIdentity,
    pub(super) seed: Seed,
    pub(super) options: Arc<Options>,
    pub(super) shared: Arc<Shared>,
    pub(super) reactor: R,
    pub(super) peers: Peers,
    pub(super) room_links: RoomLinks,
    pub(super) shard_handles: Arc<[ShardHandle]>,
    pub(super) inbox: Inbox,
}

pub(super) fn start(start: NodeStart) -> Result<Node, StartError> {
    let NodeStart { net, engine, rooms, tokens, backends, webhooks, tracer, logs, origins, hand_over } = start;
    assert!(net.shard_count > 0, "a node has at least one shard");
    let socket_options = SocketOptions { backlog: net.backlog, notsent_lowat_bytes: net.notsent_lowat_bytes };
    let listen_error = |source| StartError::listen(net.listen, "--port", source);
    let listeners = bind(net.listen, net.shard_count, socket_options).map_err(listen_error)?;
    let local_addr = listeners.first().expect("there is a shard").local_addr().map_err(listen_error)?;

    let limits = ReactorLimits { read_bytes_max: net.read_bytes_per_turn, connections_max: net.shard_connections_max };
    let (reactors, choice) = choose(net.reactor, listeners, limits).map_err(StartError::Reactor)?;
    let start = NodeStart { net, engine, rooms, tokens, backends, webhooks, tracer, logs, origins, hand_over };
    match reactors {
        Reactors::IoUring(reactors) => start_with(start, reactors, choice, local_addr),
        Reactors::Epoll(reactors) => start_with(start, reactors, choice, local_addr),
    }
}

/// Starts a node with reactors of this kind. The whole event loop is compiled for each kind.
fn start_with<R: Reactor + Send + 'static>(
    start: NodeStart,
    reactors: Vec<(R, Arc<Waker>)>,
    choice: ReactorChoice,
    local_addr: SocketAddr,
) -> Result<Node, StartError> {
    let NodeStart { net, engine, rooms, tokens, backends, webhooks, tracer, logs, origins, hand_over } = start;
    let NodeLogs { queues, storage, cluster } = logs;
    let shard_wakers: Vec<_> = reactors.iter().map(|(_, waker)| Arc::new(ShardWaker::new(Arc::clone(waker)))).collect();
    let node_seed = u64::from_ne_bytes(random()?);
    let (ring_messages, inbox_requests, count) = (net.ring_messages, net.inbox_requests, net.shard_count);
    let limits = HeadLimits { head_bytes_max: net.head_bytes_max, request_line_bytes_max: net.request_line_bytes_max };
    let shared = Arc::new(Shared {
        acceptor: Acceptor { places: net.places.clone(), origins, limits, headers: backends.wanted_headers().clone() },
        tokens,
        backends,
        webhooks,
        tracer,
        storage,
        cluster,
        hand_over,
        gate: Gate::new(&net.admission, net.sessions_max),
        loads: Loads::new(count, net.shard_imbalance_max, choice.connections_max.unwrap_or(u32::MAX)),
        net,
        clock: Clock::start(),
        stopping: AtomicBool::new(false),
    });
    let peers = peers::connect(&shard_wakers, &SHARD_RING.with_messages(ring_messages));
    let (storage, cluster, tracer) = (shared.storage.clone(), shared.cluster.as_ref(), shared.tracer.as_ref());
    let of_node = RoomsOfNode::new((node_seed, storage), cluster, &shared.backends, tracer);
    let rooms = Rooms::start(rooms, engine.room_threads, &shard_wakers, of_node);
    let (rooms, room_links) = rooms.map_err(resource("a thread for rooms"))?;
    let (senders, inboxes): (Vec<_>, Vec<_>) =
        shard_wakers.iter().map(|_| SHARD_INBOX.with_messages(inbox_requests).tokio_channel()).unzip();
    let (reports, report_inboxes): (Vec<_>, Vec<_>) =
        shard_wakers.iter().map(|_| REPORT_REQUESTS.tokio_channel()).unzip();
    let shard_handles = senders.into_iter().zip(reports).zip(&shard_wakers);
    let shard_handles = shard_handles
        .map(|((inbox, reports), shard_waker)| ShardHandle::new(inbox, reports, Arc::clone(shard_waker)))
        .collect();
    let access = AccessKeeper::new(engine.access, engine.access_rules.as_deref());
    // The shards have the rules that the limits allow. Their copies have no limits of their own, which would refuse a change
    // that this node has accepted.
    let engine = Arc::new(Options { access_rules: Some(access.all()), ..(*engine).clone() });
    let inner = Inner {
        shared,
        rooms,
        names: NamespaceNames::new(&engine),
        shards: shard_handles,
        session_queries: Semaphore::new(SESSION_QUERIES_MAX),
        access,
        node_seed,
        local_addr,
        reactor: choice,
    };
    let reactors = reactors.into_iter().map(|(reactor, _)| reactor);
    let inboxes = inboxes.into_iter().zip(report_inboxes);
    let parts = reactors.zip(peers).zip(room_links).zip(inboxes).zip(shard_wakers);
    for (index, ((((reactor, peers), room_links), (inbox, report_requests)), shard_waker)) in (0..count).zip(parts) {
        let events = queues.take(ShardIndex(index), Arc::clone(&shard_waker));
        let setup = ShardSetup {
            identity: ShardIdentity { index: ShardIndex(index), count },
            seed: Seed { node: node_seed, shard: random().inspect_err(|_| inner.stop())? },
            options: Arc::clone(&engine),
            shared: Arc::clone(&inner.shared),
            reactor,
            peers,
            room_links,
            shard_handles: Arc::clone(&inner.shards),
            inbox: Inbox::new(inbox, report_requests, events, shard_waker),
        };
        let spawned = thread::Builder::new().name(format!("shard-{index}")).spawn(move || live(setup));
        if let Err(error) = spawned {
            inner.stop();
            return Err(resource("a thread for a shard")(error));
        }
    }
    Ok(Node { inner: Arc::new(inner) })
}

/// Time to write the last log lines before the process ends.
const LAST_LINES_TIMEOUT: Duration = Duration::from_millis(500);

/// Runs a shard. If a shard fails, the process ends: other shards cannot serve its channels, and clients reconnect to a
/// working node.
fn live<R: Reactor>(setup: ShardSetup<R>) {
    let ShardIndex(index) = setup.identity.index;
    let ending = catch_unwind(AssertUnwindSafe(|| make(setup).run()));
    match ending {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            eprintln!("dunlin: shard {index} cannot wait for its sockets: {error}; the process ends");
            log::flush(LAST_LINES_TIMEOUT);
            process::abort();
        }
        Err(_) => {
            eprintln!("dunlin: shard {index} panicked, see above; the process ends");
            log::flush(LAST_LINES_TIMEOUT);
            process::abort();
        }
    }
}

pub(super) fn make<R: Reactor>(setup: ShardSetup<R>) -> ShardThread<R> {
    let ShardSetup { identity, seed, options, shared, reactor, peers, room_links, shard_handles, inbox } = setup;
    let engine = Engine::new(Arc::clone(&shared), identity, options, seed);
    let index = identity.index;
    ShardThread {
        index,
        clients: Clients::new(index, Arc::clone(&shared), reactor),
        rings: Rings::new(index, peers, room_links),
        services: Services::new(index, Arc::clone(&shared), inbox.event_sender()),
        placement: Placement::new(index.0, Arc::clone(&shared), shard_handles),
        times: TurnTimes::new(engine.now().mono_us),
        engine,
        inbox,
        shared,
    }
}

fn resource(what: &'static str) -> impl FnOnce(io::Error) -> StartError {
    move |source| StartError::Resource { what, source }
}

fn random<const LENGTH: usize>() -> Result<[u8; LENGTH], StartError> {
    let mut bytes = [0; LENGTH];
    getrandom::fill(&mut bytes).map_err(|_| StartError::Random)?;
    Ok(bytes)
}
