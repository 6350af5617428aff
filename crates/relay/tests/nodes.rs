//! Nodes with relays: one runs a real room, the others have players in it. The test carries the frames, and drops some.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use bytes::Bytes;
use dunlin_engine::{
    ShardIndex,
    host::{HostOptions, RoomHost, RoutedMessage, Runner},
    message::SubscriptionRequest,
    room::{
        Departure, FromRoom, JoinParams, NotJoined, Opening, RoomKey, RoomSite, RoomThreadIndex, SeatClaim, SeatKey,
        ToRoom,
    },
};
use dunlin_protocol::{ClientInfo, Encoding};
use dunlin_relay::{Relay, RelayEffect, RelayOptions};
use dunlin_rooms::{
    Base, CellIndex, ClockRate, GridShape, InputError, Mirror, ObjectId, PlayerId, Position, Refusal, Replica,
    RestoreError, Room, RoomOptions, Schema, Scope, Simulation, SnapshotFormat, TickTime, TickUpdate, Visibility,
    Visitor, World, state, wire,
};

/// The room on its node.
pub const ROOM: RoomKey = RoomKey { owner: ShardIndex(0), number: 7 };
/// The same room as the edges know it.
pub const REMOTE: RoomKey = RoomKey { owner: ShardIndex(1), number: 3 };
pub const EDGE_SHARDS: u16 = 2;

state! {
    /// What each player has.
    struct Walker: 1 {
        steps: u16 [delta_bits(4)],
        is_awake: bool,
    }
}

/// Each player has a walker, which its inputs move. An input may also say something, to all or to the player alone.
#[derive(Default)]
struct Meadow;

impl Simulation for Meadow {
    fn grid(&self) -> GridShape {
        GridShape { columns: 8, rows: 1, cell_units: 10, near_cells: 1, far_cells: 0, far_interval_ticks: 1 }
    }

    fn schema(&self) -> Schema {
        Schema::new().with::<Walker>()
    }

    fn start(&mut self, _: &mut World) {}

    fn join(&mut self, world: &mut World, player: PlayerId, _: &Visitor<'_>, data: &[u8]) -> Result<(), Refusal> {
        if data == b"no" {
            return Err(Refusal { code: 450, message: "not today".into() });
        }
        let position = Position { x: player.0 * 7 % 80, y: 0 };
        let walker = world.add(position, Visibility::Everyone, &Walker { steps: 0, is_awake: true });
        let walker = walker.map_err(|_| Refusal { code: 451, message: "full".into() })?;
        world.set_avatar(player, Some(walker));
        world.set_viewpoint(player, position);
        Ok(())
    }

    fn leave(&mut self, world: &mut World, player: PlayerId) {
        if let Some(walker) = world.avatar_of(player) {
            world.despawn(walker);
        }
    }

    fn input(&mut self, world: &mut World, player: PlayerId, data: &[u8]) -> Result<(), InputError> {
        match data {
            b"shout" => world.emit(Scope::All, r#""shout""#).map_err(|_| InputError),
            b"whisper" => world.emit(Scope::Player(player), r#""whisper""#).map_err(|_| InputError),
            b"close" => {
                world.close("the sheep sleep");
                Ok(())
            }
            [x] => {
                let position = Position { x: u32::from(*x) % 80, y: 0 };
                let walker: ObjectId = world.avatar_of(player).ok_or(InputError)?;
                world.move_to(walker, position);
                world.update(walker, |walker: &mut Walker| walker.steps += 1).map_err(|_| InputError)?;
                world.set_viewpoint(player, position);
                Ok(())
            }
            _ => Err(InputError),
        }
    }

    fn tick(&mut self, _: &mut World) {}

    fn save(&self, _: &mut Vec<u8>) {}

    fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
        Ok(())
    }
}

/// The node that runs the room, with one shard.
pub struct HostNode {
    pub relay: Relay,
    pub host: RoomHost,
    runner: Runner,
    /// What a player of this node sees, which the others must see as well.
    pub mirror: Option<Mirror>,
    pub events: usize,
    /// The update that all shards received in the last tick.
    pub updates: Vec<Arc<TickUpdate>>,
}

/// A node with players in the room.
pub struct EdgeNode {
    name: Arc<str>,
    pub relay: Relay,
    pub mirrors: Vec<Option<Mirror>>,
    /// Each player that has joined, and its view.
    pub seats: BTreeMap<SeatKey, Option<CellIndex>>,
    /// What the client of each of them has.
    clients: BTreeMap<SeatKey, Client>,
    /// Whether it receives changes for players who ask for them: both nodes know them.
    pub knows_changes: bool,
    pub answers: Vec<Result<SeatKey, (SeatKey, NotJoined)>>,
    /// The events, and the seats of those that are not for all.
    pub events: Vec<(String, Option<Vec<SeatKey>>)>,
    pub ended: Vec<&'static str>,
    pub inputs_taken: u32,
    pub ticks: Vec<(u16, u32)>,
}

/// A client that misses some ticks.
#[derive(Default)]
struct Client {
    base: Base,
    replica: Replica,
}

/// The nodes, and the frames between them.
pub struct Nodes {
    pub now_us: u64,
    /// The rate of the room's clock.
    pub rate: ClockRate,
    pub host: HostNode,
    pub edges: Vec<EdgeNode>,
    pub frames: VecDeque<(Arc<str>, Vec<u8>)>,
    /// The number of frames and bytes that each node has received, by its name.
    pub received: BTreeMap<Arc<str>, (usize, usize)>,
}

fn name(edge: usize) -> Arc<str> {
    format!("edge{edge}").into()
}

fn relay(node: &str, shard_count: u16) -> Relay {
    Relay::new(RelayOptions { node: node.into(), shard_count, room_threads: 1 })
}

impl EdgeNode {
    fn new(name: Arc<str>) -> Self {
        Self {
            relay: relay(&name, EDGE_SHARDS),
            name,
            mirrors: (0..EDGE_SHARDS).map(|_| None).collect(),
            seats: BTreeMap::new(),
            clients: BTreeMap::new(),
            knows_changes: true,
            answers: Vec::new(),
            events: Vec::new(),
            ended: Vec::new(),
            inputs_taken: 0,
            ticks: Vec::new(),
        }
    }
}

impl Nodes {
    /// A room with a player on its own node, and this number of other nodes.
    pub fn new(edge_count: usize) -> Self {
        let room = Room::new(RoomOptions::default(), 1, Box::new(Meadow)).expect("a map");
        let options = HostOptions {
            shard_count: 1,
            node_seed: 1,
            empty_ticks_max: 1_000,
            ticks_per_second: 60,
            seat_grace_ticks: 0,
            away_per_user_max: 8,
            call_bytes_max: 1_024,
            is_recorded: true,
        };
        let host = HostNode {
            relay: relay("host", 1),
            host: RoomHost::new(ROOM, "arena".into(), room.grid().clone(), options),
            runner: Runner::new(room),
            mirror: None,
            events: 0,
            updates: Vec::new(),
        };
        let edges = (0..edge_count).map(|index| EdgeNode::new(name(index))).collect();
        let (frames, received) = (VecDeque::new(), BTreeMap::new());
        let mut nodes = Self { now_us: 1, rate: ClockRate::FULL, host, edges, frames, received };
        let own = SeatKey { shard: ShardIndex(0), index: 0, generation: 1 };
        // The second receives changed fields.
        for index in [0, 3] {
            let seat = SeatKey { index, ..own };
            let request = Box::new(request(seat, b"", encoding_of(seat)));
            nodes.host.host.take(ToRoom::Join { room: ROOM, request });
        }
        nodes.tick();
        nodes
    }

    /// An edge begins a new run.
    pub fn restart(&mut self, edge: usize, run: u32) {
        self.edges[edge] = EdgeNode::new(format!("edge{edge}, run {run}").into());
    }

    /// The owner on an edge learns where the room is.
    pub fn open(&mut self, edge: usize) {
        let (room, thread, sends_changes) = (ROOM, RoomThreadIndex(0), self.edges[edge].knows_changes);
        let site = Box::new(RoomSite { node: "host".into(), room, thread, sends_changes });
        self.send_to_room(edge, ToRoom::OpenRemote { room: REMOTE, channel: "arena".into(), site });
    }

    pub fn join(&mut self, edge: usize, seat: SeatKey, data: &'static [u8], encoding: Encoding) {
        self.send_to_room(edge, ToRoom::Join { room: REMOTE, request: Box::new(request(seat, data, encoding)) });
    }

    pub fn leave(&mut self, edge: usize, seat: SeatKey) {
        self.edges[edge].seats.remove(&seat);
        self.edges[edge].clients.remove(&seat);
        self.send_to_room(edge, ToRoom::Leave { room: REMOTE, seat, departure: Departure::Left });
    }

    pub fn input(&mut self, edge: usize, seat: SeatKey, number: u32, data: Vec<u8>) {
        self.send_to_room(edge, ToRoom::Input { room: REMOTE, seat, number, data: data.into() });
    }

    pub fn send_to_room(&mut self, edge: usize, message: ToRoom) {
        self.edges[edge].relay.take_to_room(self.now_us, message);
    }

    /// Runs a tick of the room. Its messages are on their way afterwards.
    pub fn tick(&mut self) {
        let Self { host: HostNode { host, runner, .. }, .. } = self;
        let batch = host.begin();
        let done = runner.run(&batch, TickTime { unix_us: self.now_us, rate: self.rate });
        let mut outgoing = Vec::new();
        host.finish(done, &mut outgoing);
        self.pass_on(outgoing);
    }

    /// The world for a shard that does not have it.
    pub fn keyframe(&self) -> Arc<TickUpdate> {
        let room = self.host.runner.room();
        room.keyframe(room.formats())
    }

    /// The room fails.
    pub fn fail(&mut self) {
        self.fail_with(&NotJoined::Gone);
    }

    /// The room fails, and its joins with this reason.
    pub fn fail_with(&mut self, not_joined: &NotJoined) {
        let mut outgoing = Vec::new();
        self.host.host.end(dunlin_protocol::UnsubscribeCode::ROOM_FAILED, None, not_joined, &mut outgoing);
        self.pass_on(outgoing);
    }

    fn pass_on(&mut self, outgoing: Vec<RoutedMessage>) {
        self.host.updates.clear();
        for (shard, message) in outgoing {
            if let FromRoom::Tick { update, .. } = &message {
                self.host.updates.push(Arc::clone(update));
            }
            if shard.0 > 0 {
                self.host.relay.take_from_room(self.now_us, shard, message);
                continue;
            }
            match message {
                FromRoom::Keyframe { grid, ticks_per_second, keyframe, .. } => {
                    show(&mut self.host.mirror, grid, ticks_per_second, keyframe);
                }
                FromRoom::Tick { update, .. } => self.host.mirror.as_mut().expect("a keyframe came").apply(update),
                FromRoom::Event { .. } => self.host.events += 1,
                _ => {}
            }
        }
    }

    /// Delivers all frames that `arrives` does not drop, and everything that they cause.
    pub fn settle(&mut self, mut arrives: impl FnMut(&[u8]) -> bool) {
        loop {
            self.perform();
            let Some((node, frame)) = self.frames.pop_front() else { return };
            if !arrives(&frame) {
                continue;
            }
            let received = self.received.entry(Arc::clone(&node)).or_default();
            *received = (received.0 + 1, received.1 + frame.len());
            match self.edges.iter_mut().find(|edge| edge.name == node) {
                Some(edge) => edge.relay.receive(self.now_us, &frame),
                None if *node == *"host" => self.host.relay.receive(self.now_us, &frame),
                // It is gone.
                None => {}
            }
        }
    }

    /// Lets time pass, in steps of the relays' clocks, with ticks in between.
    pub fn wait(&mut self, time_us: u64, mut arrives: impl FnMut(&[u8]) -> bool) {
        let until_us = self.now_us + time_us;
        while self.now_us < until_us {
            self.now_us += dunlin_relay::WAKE_INTERVAL_US;
            self.host.relay.wake(self.now_us);
            for edge in &mut self.edges {
                edge.relay.wake(self.now_us);
            }
            self.tick();
            self.settle(&mut arrives);
        }
    }

    pub fn perform(&mut self) {
        for effect in self.host.relay.take_effects(self.now_us) {
            match effect {
                RelayEffect::ToThread { message, .. } => self.host.host.take(message),
                RelayEffect::Send { node, frame } => self.frames.push_back((node, frame)),
                RelayEffect::ToShard { .. } => panic!("the host has no remote rooms"),
            }
        }
        for edge in 0..self.edges.len() {
            for effect in self.edges[edge].relay.take_effects(self.now_us) {
                match effect {
                    RelayEffect::ToShard { shard, message } => self.take(edge, shard, message),
                    RelayEffect::Send { node, frame } => self.frames.push_back((node, frame)),
                    RelayEffect::ToThread { .. } => panic!("the edges have no rooms of their own"),
                }
            }
        }
    }

    /// A shard of an edge takes a message of its relay.
    fn take(&mut self, edge: usize, shard: ShardIndex, message: FromRoom) {
        let node = &mut self.edges[edge];
        let mirror = &mut node.mirrors[usize::from(shard.0)];
        match message {
            FromRoom::Joined { request, outcome, .. } => {
                assert_eq!(shard, REMOTE.owner);
                let seat = request.join.expect("a room's subscription").seat;
                node.answers.push(outcome.map(|_| seat).map_err(|error| (seat, error.clone())));
                if node.answers.last().is_some_and(Result::is_ok) {
                    node.seats.insert(seat, None);
                }
            }
            FromRoom::Keyframe { grid, ticks_per_second, keyframe, .. } => {
                show(mirror, grid, ticks_per_second, keyframe);
            }
            FromRoom::Tick { update, changes, inputs_taken, .. } => {
                node.ticks.push((shard.0, update.tick()));
                node.inputs_taken += inputs_taken;
                if let Some(mirror) = mirror {
                    mirror.apply(update);
                }
                for change in changes {
                    assert_eq!(change.seat.shard, shard);
                    if let Some(view) = node.seats.get_mut(&change.seat) {
                        *view = Some(change.view);
                    }
                }
            }
            FromRoom::Event { data, audience, .. } => {
                let seats = audience.map(|audience| audience.seats.to_vec());
                node.events.push((String::from_utf8_lossy(data.bytes()).into_owned(), seats));
            }
            FromRoom::Idle { .. } => self.edges[edge].ended.push("idle"),
            FromRoom::Failed { .. } => {
                node.ended.push("failed");
                node.seats.clear();
                node.clients.clear();
                node.mirrors.fill_with(|| None);
            }
            FromRoom::Closing { .. } => node.ended.push("closing"),
            message => panic!("{message:?}"),
        }
    }

    /// Checks that each player of an edge sees what a player on the room's node would see in its place, and gets the same
    /// bytes. One who asks for fields in JSON gets the schema and whole states, and so does one in Protobuf if one of the
    /// nodes does not know changes.
    pub fn check_views(&mut self) {
        let here = self.host.mirror.as_mut().expect("a player is there");
        for edge in &mut self.edges {
            for (seat, view) in &edge.seats {
                let view = view.expect("the tick that brought the player named it");
                let encoding = encoding_of(*seat);
                let format = if is_typed(*seat) { SnapshotFormat::typed(encoding) } else { encoding.into() };
                let has_changes = edge.knows_changes && format == SnapshotFormat::TypedProtobuf;
                let form_here = if has_changes { format } else { encoding.into() };
                let mirror = edge.mirrors[usize::from(seat.shard.0)].as_mut().expect("a keyframe came before the tick");
                assert_eq!(*mirror.schema(), Meadow.schema());
                for tick in [0, mirror.tick() - 1] {
                    let base = Base { tick, view };
                    let seen = mirror.body(format, view, base).bytes.clone();
                    assert_eq!(seen, here.body(form_here, view, base).bytes, "{seat:?} of {tick}");
                }
                let client = edge.clients.entry(*seat).or_default();
                // Those of other shards and seats miss other ticks.
                if (mirror.tick() + seat.index + u32::from(seat.shard.0)).is_multiple_of(3) {
                    client.receive(mirror, format, view);
                    let mut there = Client::default();
                    there.receive(here, format, view);
                    assert_eq!(client.objects(), there.objects(), "{seat:?}");
                }
            }
        }
    }
}

impl Client {
    fn receive(&mut self, mirror: &mut Mirror, format: SnapshotFormat, view: CellIndex) {
        let (encoding, body) = (format.encoding(), mirror.body(format, view, self.base));
        let mut data = Vec::new();
        wire::write_player_header(encoding, 0, 0, None, &mut data);
        if format.is_typed() && self.base.tick == 0 {
            wire::write_schema(encoding, mirror.schema(), &mut data);
        }
        data.extend_from_slice(&body.bytes[..body.data_bytes]);
        self.replica.apply(encoding, &data).expect("a good snapshot");
        self.base = Base { tick: body.tick, view };
    }

    fn objects(&self) -> BTreeMap<ObjectId, (Position, Vec<u8>)> {
        self.replica.objects().map(|(id, seen)| (id, (seen.position, seen.state.clone()))).collect()
    }
}

/// Whether a player asks for fields: some do on each shard, in both encodings.
const fn is_typed(seat: SeatKey) -> bool {
    seat.index / 2 % 2 == 1
}

/// The encoding of a player: both occur on each shard.
pub const fn encoding_of(seat: SeatKey) -> Encoding {
    if seat.index.is_multiple_of(2) { Encoding::Json } else { Encoding::Protobuf }
}

fn show(mirror: &mut Option<Mirror>, grid: dunlin_rooms::Grid, ticks_per_second: u32, keyframe: Arc<TickUpdate>) {
    match mirror {
        Some(mirror) => mirror.apply(keyframe),
        None => *mirror = Some(Mirror::new(grid, ticks_per_second, keyframe, [b"", b""])),
    }
}

fn request(seat: SeatKey, data: &'static [u8], encoding: Encoding) -> SubscriptionRequest {
    let join = JoinParams {
        seat,
        info: Arc::new(ClientInfo::of_user("ann")),
        address: None,
        is_spectator: false,
        is_typed: is_typed(seat),
        data: Bytes::from_static(data),
        opening: Opening::Reserved,
        claim: SeatClaim::default(),
        waits_until_us: 0,
        held_until_us: 0,
    };
    SubscriptionRequest::of_remote_join("arena".into(), encoding, join)
}
