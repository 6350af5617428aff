//! Starting a node.

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32},
    },
    thread,
};

use dunlin_engine::{Effects, Now, Options, Seed, Shard, ShardIdentity, ShardIndex};
use dunlin_websocket::deflate::Inflater;
use tokio::sync::mpsc;

use super::{
    Inner, NetCounters, Node, NodeStart, ShardDoor, StartError,
    admission::{Entrants, Gate},
    answers::Answers,
    clock::Clock,
    deadlines::Deadlines,
    doorbell::Doorbell,
    inbox::{Tickets, ToShard},
    peers::{self, Peers},
    placement::Loads,
    secure::Secure,
    shard_thread::{Life, ShardThread, Shared},
};
use crate::{
    net::{Connections, Door, HeadLimits, Reactor, ReactorChoice, Reactors, SocketOptions, Waker, bind, choose},
    rooms::{RoomLinks, Rooms},
};

/// What a thread is given to make its shard of. The engine's shard itself stays on the thread on which it was made.
pub(super) struct Ingredients<R> {
    pub(super) identity: ShardIdentity,
    pub(super) seed: Seed,
    pub(super) options: Arc<Options>,
    pub(super) shared: Arc<Shared>,
    pub(super) reactor: R,
    pub(super) peers: Peers,
    pub(super) room_links: RoomLinks,
    pub(super) doors: Arc<[ShardDoor]>,
    pub(super) inbox: mpsc::Receiver<ToShard>,
    pub(super) doorbell: Arc<Doorbell>,
}

pub(super) fn start(start: NodeStart) -> Result<Node, StartError> {
    let NodeStart { net, engine, rooms, tokens, backends, origins, hand_over } = start;
    assert!(net.shard_count > 0, "a node has at least one shard");
    let socket_options = SocketOptions { backlog: net.backlog, notsent_lowat_bytes: net.notsent_lowat_bytes };
    let listen_error = |source| StartError::Listen { address: net.listen, source };
    let listeners = bind(net.listen, net.shard_count, socket_options).map_err(listen_error)?;
    let local_addr = listeners.first().expect("there is a shard").local_addr().map_err(listen_error)?;

    let (reactors, choice) = choose(net.reactor, listeners, net.read_bytes_per_turn).map_err(StartError::Reactor)?;
    let start = NodeStart { net, engine, rooms, tokens, backends, origins, hand_over };
    match reactors {
        Reactors::IoUring(reactors) => start_with(start, reactors, choice, local_addr),
        Reactors::Epoll(reactors) => start_with(start, reactors, choice, local_addr),
    }
}

/// Starts a node whose shards wait on reactors of this kind: all of a shard's loop is compiled for it.
fn start_with<R: Reactor + Send + 'static>(
    start: NodeStart,
    reactors: Vec<(R, Arc<Waker>)>,
    choice: ReactorChoice,
    local_addr: SocketAddr,
) -> Result<Node, StartError> {
    let NodeStart { net, engine, rooms, tokens, backends, origins, hand_over } = start;
    let headers = backends.wanted_headers().clone();
    let doorbells: Vec<_> = reactors.iter().map(|(_, waker)| Arc::new(Doorbell::new(Arc::clone(waker)))).collect();
    let node_seed = u64::from_ne_bytes(random()?);
    let (ring_messages, inbox_requests, count) = (net.ring_messages, net.inbox_requests, net.shard_count);
    let limits = HeadLimits { head_bytes_max: net.head_bytes_max, request_line_bytes_max: net.request_line_bytes_max };
    let shared = Arc::new(Shared {
        door: Door { places: net.places.clone(), origins, limits, headers },
        tokens,
        backends,
        hand_over,
        gate: Gate::new(&net.admission),
        loads: Loads::new(count, net.shard_imbalance_max),
        net,
        clock: Clock::start(),
        sessions: AtomicU32::new(0),
        stopping: AtomicBool::new(false),
    });
    let peers = peers::connect(&doorbells, ring_messages.max(1));
    let (rooms, room_links) =
        Rooms::start(rooms, engine.room_threads, &doorbells, node_seed).map_err(resource("a thread for rooms"))?;
    let (senders, inboxes): (Vec<_>, Vec<_>) = doorbells.iter().map(|_| mpsc::channel(inbox_requests.max(1))).unzip();
    let doors = senders.into_iter().zip(&doorbells);
    let doors = doors.map(|(inbox, doorbell)| ShardDoor { inbox, doorbell: Arc::clone(doorbell) }).collect();
    let inner = Inner { shared, rooms, shards: doors, node_seed, local_addr, reactor: choice };
    let reactors = reactors.into_iter().map(|(reactor, _)| reactor);
    let parts = reactors.zip(peers).zip(room_links).zip(inboxes).zip(doorbells);
    for (index, ((((reactor, peers), room_links), inbox), doorbell)) in (0..count).zip(parts) {
        let ingredients = Ingredients {
            identity: ShardIdentity { index: ShardIndex(index), count },
            seed: Seed { node: node_seed, shard: random().inspect_err(|_| inner.stop())? },
            options: Arc::clone(&engine),
            shared: Arc::clone(&inner.shared),
            reactor,
            peers,
            room_links,
            doors: Arc::clone(&inner.shards),
            inbox,
            doorbell,
        };
        let spawned = thread::Builder::new().name(format!("shard-{index}")).spawn(move || live(ingredients));
        if let Err(error) = spawned {
            inner.stop();
            return Err(resource("a thread for a shard")(error));
        }
    }
    Ok(Node { inner: Arc::new(inner) })
}

/// A shard's life. A shard that fails takes the process with it: what it owned can't be served by the others, and their
/// clients come back to a node that is whole.
fn live<R: Reactor>(ingredients: Ingredients<R>) {
    let ShardIndex(index) = ingredients.identity.index;
    let ending = catch_unwind(AssertUnwindSafe(|| make(ingredients).run()));
    match ending {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            eprintln!("dunlin: shard {index} can't wait for its sockets: {error}; the process ends");
            process::abort();
        }
        Err(_) => {
            eprintln!("dunlin: shard {index} panicked, see above; the process ends");
            process::abort();
        }
    }
}

pub(super) fn make<R: Reactor>(ingredients: Ingredients<R>) -> ShardThread<R> {
    let Ingredients { identity, seed, options, shared, reactor, peers, room_links, doors, inbox, doorbell } =
        ingredients;
    let now: Now = shared.clock.now();
    let secure = shared.net.certificates.clone().map(Secure::new);
    ShardThread {
        index: identity.index,
        shared,
        reactor,
        shard: Shard::new(identity, options, seed),
        connections: Connections::default(),
        sessions: 0,
        picked_headers: HashMap::new(),
        peers,
        room_links,
        doors,
        entrants: Entrants::default(),
        inbox,
        answers: Answers::new(Arc::clone(&doorbell)),
        doorbell,
        tickets: Tickets::default(),
        effects: Effects::default(),
        performing: Vec::new(),
        flushing: Vec::new(),
        resumed: Vec::new(),
        inflater: Inflater::default(),
        secure,
        head_deadlines: Deadlines::default(),
        linger_deadlines: Deadlines::default(),
        message_deadlines: Deadlines::default(),
        counters: NetCounters::default(),
        now,
        life: Life::Open,
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
