//! Runs room threads. The test acts as a shard.

use std::{
    collections::HashMap,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use dunlin_config::{RecordingSettings, RoomSettings, RoomsOptions};
use dunlin_engine::{
    ShardIndex,
    message::SubscriptionRequest,
    room::{Departure, FromRoom, JoinParams, NotJoined, Opening, RoomKey, RoomThreadIndex, SeatClaim, SeatKey, ToRoom},
};
use dunlin_net::Waker;
use dunlin_protocol::{ClientInfo, Encoding, UnsubscribeCode};
use dunlin_rooms::RoomOverrides;

use super::games;
use crate::{
    backend::{NoBackends, ProxyClient},
    node::{NodeStorage, ShardWaker},
    rooms::{RoomCounters, RoomLinks, Rooms, RoomsOfNode},
};

/// Maximum time that a test waits for a condition. Only a failing test waits this long.
const PATIENCE: Duration = Duration::from_mins(1);

pub struct Rig {
    pub rooms: Rooms,
    links: RoomLinks,
    /// The links of the shards that read no messages.
    _deaf: Vec<RoomLinks>,
    next_room: u64,
    next_seat: u32,
    /// Answers to joins that arrived during other waits.
    joined: HashMap<SeatKey, Result<(), NotJoined>>,
}

/// Settings of a namespace with this game.
pub fn settings(simulation: &str) -> RoomSettings {
    RoomSettings { simulation: simulation.to_owned(), ..RoomSettings::default() }
}

/// Recordings in this directory, without limits.
pub fn recording_in(directory: &Path) -> RecordingSettings {
    RecordingSettings { directory: directory.to_owned(), bytes_max: 0, ttl_ms: 0 }
}

/// The subscription request of a session to the room `a`.
pub fn join_request(seat: SeatKey, user: &str, claim: SeatClaim) -> SubscriptionRequest {
    let join = JoinParams {
        seat,
        info: Arc::new(ClientInfo::of_user(user)),
        address: None,
        is_spectator: false,
        is_typed: false,
        data: Bytes::new(),
        opening: Opening::Reserved,
        claim,
        waits_until_us: 0,
        held_until_us: 0,
    };
    SubscriptionRequest::of_remote_join("a".into(), Encoding::Json, join)
}

/// Options with these namespaces.
pub fn options(namespaces: Vec<RoomSettings>) -> RoomsOptions {
    let namespaces = namespaces.into_iter().map(|settings| Some(Arc::new(settings))).collect();
    RoomsOptions { registry: Arc::new(games::registry()), namespaces, ..RoomsOptions::default() }
}

/// Waits for a condition. Fails the test if it is not met in time.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Rig {
    pub fn start(threads: u16, namespaces: Vec<RoomSettings>) -> Self {
        Self::with_rings(threads, namespaces, 1_024)
    }

    pub fn with_rings(threads: u16, namespaces: Vec<RoomSettings>, ring_messages: usize) -> Self {
        Self::with(threads, 1, RoomsOptions { ring_messages, ..options(namespaces) })
    }

    /// Starts a rig whose test acts as the first of `shard_count` shards. The other shards read no messages.
    pub fn with(threads: u16, shard_count: u16, options: RoomsOptions) -> Self {
        Self::with_storage(threads, shard_count, options, None)
    }

    /// The same, with stored rooms.
    pub fn with_storage(
        threads: u16,
        shard_count: u16,
        options: RoomsOptions,
        storage: Option<Arc<NodeStorage>>,
    ) -> Self {
        let waker = Arc::new(Waker::eventfd().expect("an eventfd"));
        let shard_wakers: Vec<_> = (0..shard_count).map(|_| Arc::new(ShardWaker::new(Arc::clone(&waker)))).collect();
        let backends = Arc::new(NoBackends::default()) as Arc<dyn ProxyClient>;
        let of_node =
            RoomsOfNode { node_seed: 1, frames: None, storage, cluster: None, backends: &backends, tracer: None };
        let (rooms, mut links) = Rooms::start(options, threads, &shard_wakers, of_node).expect("threads");
        let deaf = links.split_off(1);
        let links = links.remove(0);
        Self { rooms, links, _deaf: deaf, next_room: 1, next_seat: 1, joined: HashMap::new() }
    }

    pub fn counters(&self) -> RoomCounters {
        self.rooms.threads().remove(0).counters
    }

    fn send(&mut self, message: ToRoom) {
        self.links.send(RoomThreadIndex(0), message);
        self.links.announce();
    }

    pub fn open(&mut self, namespace: u16, channel: &str) -> RoomKey {
        self.open_for(ShardIndex(0), namespace, channel)
    }

    /// Opens a room of the first namespace with settings of its own.
    pub fn open_with(&mut self, channel: &str, overrides: RoomOverrides) {
        let room = RoomKey { owner: ShardIndex(0), number: self.next_room };
        self.next_room += 1;
        self.send(ToRoom::Open { room, channel: channel.into(), namespace: 0, overrides: Arc::new(overrides) });
    }

    /// Opens a room whose owner is shard `owner`.
    pub fn open_for(&mut self, owner: ShardIndex, namespace: u16, channel: &str) -> RoomKey {
        let room = RoomKey { owner, number: self.next_room };
        self.next_room += 1;
        self.send(ToRoom::Open { room, channel: channel.into(), namespace, overrides: Arc::default() });
        room
    }

    pub fn close(&mut self, room: RoomKey, code: UnsubscribeCode) {
        self.send(ToRoom::Close { room, code, reason: None });
    }

    pub fn join(&mut self, room: RoomKey, user: &str) -> SeatKey {
        self.join_with(room, user, SeatClaim::default())
    }

    /// Joins as a spectator.
    pub fn watch(&mut self, room: RoomKey) -> SeatKey {
        let seat = SeatKey { shard: room.owner, index: self.next_seat, generation: 0 };
        self.next_seat += 1;
        let mut request = join_request(seat, "", SeatClaim::default());
        request.join.as_mut().expect("a join").is_spectator = true;
        self.send(ToRoom::Join { room, request: Box::new(request) });
        seat
    }

    /// Reports a lost connection of a session.
    pub fn lose(&mut self, room: RoomKey, seat: SeatKey) {
        self.send(ToRoom::Leave { room, seat, departure: Departure::Lost });
    }

    /// Reports the end of a session whose join is not answered.
    pub fn abandon(&mut self, room: RoomKey, seat: SeatKey) {
        self.send(ToRoom::Leave { room, seat, departure: Departure::Unanswered });
    }

    pub fn join_with(&mut self, room: RoomKey, user: &str, claim: SeatClaim) -> SeatKey {
        // The session is on the shard of the room's owner.
        let seat = SeatKey { shard: room.owner, index: self.next_seat, generation: 0 };
        self.next_seat += 1;
        let request = join_request(seat, user, claim);
        self.send(ToRoom::Join { room, request: Box::new(request) });
        seat
    }

    pub fn input(&mut self, room: RoomKey, seat: SeatKey, number: u32, data: &[u8]) {
        self.send(ToRoom::Input { room, seat, number, data: Bytes::copy_from_slice(data) });
    }

    /// Receives messages until one matches.
    pub fn take_until(&mut self, what: &str, mut is_it: impl FnMut(&FromRoom) -> bool) {
        wait_until(what, || {
            self.links.flush();
            self.links.announce();
            while let Some(message) = self.links.next(0) {
                if let FromRoom::Joined { request, outcome, .. } = &message {
                    let seat = request.join.as_ref().expect("a join is answered").seat;
                    self.joined.insert(seat, outcome.clone().map(|_| ()));
                }
                if is_it(&message) {
                    return true;
                }
            }
            self.links.announce_room();
            false
        });
    }

    pub fn wait_joined(&mut self, seat: SeatKey) -> Result<(), NotJoined> {
        if !self.joined.contains_key(&seat) {
            let is_answer = |request: &SubscriptionRequest| request.join.as_ref().is_some_and(|join| join.seat == seat);
            self.take_until(
                "the answer to a join",
                |message| matches!(message, FromRoom::Joined { request, .. } if is_answer(request)),
            );
        }
        self.joined.remove(&seat).expect("it was waited for")
    }

    /// Stops the threads, and waits for their end.
    pub fn stop(&self) {
        self.rooms.stop();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(self.rooms.ended());
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.rooms.stop();
    }
}
