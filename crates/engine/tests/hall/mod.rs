//! A node with rooms: the test acts as its room threads, with real rooms, and every client keeps a replica.
#![allow(dead_code, reason = "each test uses its part")]

use std::collections::BTreeMap;

use dunlin_engine::{
    Event, FrameClass, Options, SessionKey,
    host::{HostOptions, RoomHost, RoutedMessage, Runner, TokensRefused},
    message::{AnswerPace, Asker, Subscriber, SubscriptionRequest},
    options::{NamespaceOptions, RoomLimits, RoomOpenings},
    room::{FromRoom, JoinParams, NotJoined, RoomKey, RoomThreadIndex, SeatKey, ToRoom},
};
use dunlin_protocol::{
    Encoding,
    protobuf::wire::{Reader, Value as Field},
};
use dunlin_rooms::{
    GridShape, InputError, NewObject, ObjectId, PlayerId, Position, Refusal, Replica, RestoreError, Room, RoomOptions,
    Schema, Scope, Simulation, Visibility, Visitor, World,
    recording::Carried,
    wire::{Input, encode_input},
};
use serde_json::{Value, json};

use crate::node::{self, Node};

/// The options of a room's host, for tests that state only what they are about.
pub const TERMS: HostOptions = HostOptions {
    shard_count: 1,
    node_seed: 1,
    empty_ticks_max: 100,
    ticks_per_second: 60,
    seat_grace_ticks: 0,
    away_per_user_max: 8,
    call_bytes_max: 1_024,
    is_recorded: false,
};

/// Objects move at random, unless the meadow is quiet; players move by their inputs, and may shout.
#[derive(Clone, Copy)]
pub struct Meadow {
    pub shape: GridShape,
    pub sheep: u32,
    /// Where wolves are. In each tick, each of them walks on, in its cell.
    pub wolves: &'static [Position],
    /// How important they are to players with a bandwidth limit.
    pub wolf_weight: u8,
    pub is_quiet: bool,
}

/// The kind of wolves.
pub const WOLF: u16 = 4;

impl Default for Meadow {
    fn default() -> Self {
        let shape =
            GridShape { columns: 10, rows: 10, cell_units: 100, near_cells: 1, far_cells: 0, far_interval_ticks: 1 };
        Self { shape, sheep: 80, wolves: &[], wolf_weight: 1, is_quiet: false }
    }
}

impl Simulation for Meadow {
    fn grid(&self) -> GridShape {
        self.shape
    }

    fn start(&mut self, world: &mut World) {
        for number in 0..self.sheep {
            let position = Position { x: number * 370 % 1_000, y: number * 130 % 1_000 };
            let object = NewObject { position, kind: 1, visibility: Visibility::Everyone, state: b"sheep" };
            world.spawn(object).expect("room for sheep");
        }
        for position in self.wolves {
            let object =
                NewObject { position: *position, kind: WOLF, visibility: Visibility::Everyone, state: b"wolf" };
            world.spawn(object).expect("room for wolves");
        }
    }

    fn schema(&self) -> Schema {
        Schema::new().with_weight(WOLF, self.wolf_weight)
    }

    fn join(&mut self, world: &mut World, player: PlayerId, _: &Visitor<'_>, data: &[u8]) -> Result<(), Refusal> {
        if data == br#""no""# {
            return Err(Refusal { code: 450, message: "not today".into() });
        }
        let position = Position { x: player.0 * 130 % 1_000, y: player.0 * 70 % 1_000 };
        let avatar = NewObject { position, kind: 2, visibility: Visibility::Everyone, state: b"me" };
        let avatar = world.spawn(avatar).expect("room for a player");
        let purse = NewObject { position, kind: 3, visibility: Visibility::Owner(player), state: b"gold" };
        world.spawn(purse).expect("room for a purse");
        world.set_avatar(player, Some(avatar));
        world.set_viewpoint(player, position);
        if data == br#""goat""# {
            world.kick(player, "no goats");
        }
        Ok(())
    }

    fn leave(&mut self, world: &mut World, player: PlayerId) {
        let is_of_player = |visibility: Visibility| visibility == Visibility::Owner(player);
        let purses: Vec<ObjectId> =
            world.objects().filter(|(_, object)| is_of_player(object.visibility)).map(|(id, _)| id).collect();
        let avatar = world.avatar_of(player);
        for id in purses.into_iter().chain(avatar) {
            world.despawn(id);
        }
    }

    fn away(&mut self, world: &mut World, player: PlayerId) {
        if let Some(avatar) = world.avatar_of(player) {
            world.set_state(avatar, b"away").expect("a short state");
        }
    }

    fn back(&mut self, world: &mut World, player: PlayerId, _: &Visitor<'_>) {
        if let Some(avatar) = world.avatar_of(player) {
            world.set_state(avatar, b"back").expect("a short state");
        }
    }

    fn input(&mut self, world: &mut World, player: PlayerId, data: &[u8]) -> Result<(), InputError> {
        let emitted = match data {
            b"shout" => world.emit(Scope::All, r#""shout""#),
            b"whisper" => world.emit(Scope::Player(player), r#""whisper""#),
            b"news" => world.publish("news", r#""news""#),
            b"kick" => {
                let others: Vec<PlayerId> = world.players().filter(|other| *other != player).collect();
                for other in others {
                    world.kick(other, "no sheep dogs");
                }
                Ok(())
            }
            b"close" => {
                world.close("the sheep sleep");
                Ok(())
            }
            [x, y] => {
                let position = Position { x: u32::from(*x) * 4, y: u32::from(*y) * 4 };
                world.set_viewpoint(player, position);
                if let Some(avatar) = world.avatar_of(player) {
                    world.move_to(avatar, position);
                }
                Ok(())
            }
            _ => return Err(InputError),
        };
        emitted.map_err(|_| InputError)
    }

    fn message(&mut self, world: &mut World, data: &[u8]) -> Result<Vec<u8>, Refusal> {
        match data {
            b"no" => Err(Refusal { code: 451, message: "not today".into() }),
            b"rain" => {
                world.emit(Scope::All, r#""rain""#).map_err(|_| Refusal { code: 452, message: "too many".into() })?;
                Ok(world.player_count().to_string().into())
            }
            _ => Ok(data.repeat(2)),
        }
    }

    fn tick(&mut self, world: &mut World) {
        if self.is_quiet {
            return;
        }
        let sheep: Vec<(ObjectId, Position)> = world
            .objects()
            .filter(|(id, object)| object.kind == 1 && id.0 % 4 == 0)
            .map(|(id, object)| (id, object.position))
            .collect();
        for (id, Position { x, y }) in sheep {
            let (right, down) = (world.random_below(61), world.random_below(61));
            world.move_to(id, Position { x: (x + right).saturating_sub(30), y: (y + down).saturating_sub(30) });
        }
        let wolves: Vec<(ObjectId, Position)> = world
            .objects()
            .filter(|(_, object)| object.kind == WOLF)
            .map(|(id, object)| (id, object.position))
            .collect();
        for (id, position) in wolves {
            let x = position.x / 100 * 100 + (world.tick() * 3 + id.0) % 100;
            world.move_to(id, Position { x, ..position });
        }
    }

    fn save(&self, _: &mut Vec<u8>) {}

    fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
        Ok(())
    }
}

/// The state that a client builds from its messages.
#[derive(Default)]
pub struct Seen {
    /// By channel.
    pub replicas: BTreeMap<String, Replica>,
    pub snapshots: usize,
    /// Channel, offset and data of publications with an offset.
    pub events: Vec<(String, u64, String)>,
    /// All other messages, and closes; only for JSON sessions.
    pub messages: Vec<String>,
    rest: Vec<u8>,
}

pub struct Hall {
    pub node: Node,
    /// The simulation of rooms that open.
    pub meadow: Meadow,
    pub rooms: BTreeMap<RoomKey, (RoomHost, Runner)>,
    pub seen: BTreeMap<String, Seen>,
    pub empty_ticks_max: u32,
    pub seat_grace_ticks: u32,
    pub away_per_user_max: u32,
    /// Seat tokens of joins without effect, so far.
    pub tokens_refused: TokensRefused,
    /// Whether owners are notified when a world is created.
    pub reports_made: bool,
    /// Whether rooms that open are recorded.
    pub is_recorded: bool,
    /// What their recordings were told of connections, so far.
    pub carried: Vec<(PlayerId, Carried)>,
    /// Messages that arrived for rooms that do not exist.
    pub strays: Vec<ToRoom>,
}

/// A join at the seat of `params`, as an owner sends it to a room.
pub fn join_message(room: RoomKey, params: JoinParams, encoding: Encoding) -> ToRoom {
    let SeatKey { shard, index, generation } = params.seat;
    let request = SubscriptionRequest {
        answer: AnswerPace::Short,
        channel: "arena:a".into(),
        asker: Asker { shard, session: SessionKey { index, generation }, command_id: 1 },
        creator: dunlin_engine::channel_creators::ChannelCreator::default(),
        subscriber: Subscriber {
            class: FrameClass::plain(encoding.into()),
            join_leave: false,
            info: None,
            presence: false,
            announced: false,
        },
        positioned: true,
        was_recovering: false,
        asked_us: 0,
        recover: None,
        filter: None,
        join: Some(Box::new(params)),
    };
    ToRoom::Join { room, request: Box::new(request) }
}

pub fn options() -> Options {
    let no_rates =
        RoomOpenings { per_second: 0, session_per_second: 0, source_per_second: 0, ..RoomOpenings::default() };
    let mut options = Options { room_threads: 1, room_openings: no_rates, ..Options::default() };
    node::options::permissive(&mut options);
    options.without_namespace.history_size = 10;
    options.without_namespace.history_ttl_ms = 60_000;
    let arena = NamespaceOptions {
        name: "arena".to_owned(),
        history_size: 20,
        history_ttl_ms: 60_000,
        force_recovery: true,
        room: Some(RoomLimits {
            inputs_per_second: 10,
            input_bytes_max: 16,
            inbox_inputs_max: 12,
            messages_max: 2,
            message_bytes_max: 16,
            metadata_bytes_max: 12,
            ..RoomLimits::default()
        }),
        ..options.without_namespace.clone()
    };
    options.namespaces.push(arena);
    options
}

impl Hall {
    pub fn new(shards: u16, options: Options) -> Self {
        Self {
            node: Node::new(shards, options),
            meadow: Meadow::default(),
            rooms: BTreeMap::new(),
            seen: BTreeMap::new(),
            empty_ticks_max: 1_000,
            seat_grace_ticks: 0,
            away_per_user_max: 2,
            tokens_refused: TokensRefused::default(),
            reports_made: true,
            is_recorded: false,
            carried: Vec::new(),
            strays: Vec::new(),
        }
    }

    /// Opens and connects a session.
    pub fn open(&mut self, name: &str, encoding: Encoding, shard: u16) {
        self.node.open(name, encoding, shard);
        self.send_json(name, &json!({"id": 1, "connect": {}}));
        self.seen.insert(name.to_owned(), Seen::default());
        self.look();
        self.seen(name).messages.clear();
    }

    pub fn send_json(&mut self, name: &str, command: &Value) {
        let encoding = self.node.client(name).encoding;
        self.node.receive(name, node::wire::commands(encoding, std::slice::from_ref(command)));
    }

    pub fn subscribe(&mut self, name: &str, channel: &str) {
        self.send_json(name, &json!({"id": 2, "subscribe": {"channel": channel}}));
    }

    /// Joins a room with this data.
    pub fn join(&mut self, name: &str, channel: &str, data: &Value) {
        self.send_json(name, &json!({"id": 2, "subscribe": {"channel": channel, "data": data}}));
    }

    /// Drops the client's state, so that its name can be used again.
    pub fn forget(&mut self, name: &str) {
        self.leave(name);
        self.seen.remove(name);
        self.node.clients.remove(name);
    }

    pub fn unsubscribe(&mut self, name: &str, channel: &str) {
        self.send_json(name, &json!({"id": 3, "unsubscribe": {"channel": channel}}));
    }

    pub fn publish(&mut self, name: &str, channel: &str, number: u32, data: &[u8]) {
        match self.node.client(name).encoding {
            Encoding::Json => {
                let input = json_input(number, "", data);
                self.send_json(name, &json!({"id": 10 + number, "publish": {"channel": channel, "data": input}}));
            }
            Encoding::Protobuf => {
                let mut input = Vec::new();
                encode_input(Encoding::Protobuf, &Input { number, room: "".into(), data: data.into() }, &mut input);
                let publish = [long_field(1, channel.as_bytes()), long_field(2, &input)].concat();
                let command = [vec![1 << 3, 9], long_field(7, &publish)].concat();
                self.node.receive(name, [vec![command.len() as u8], command].concat());
            }
        }
    }

    pub fn send(&mut self, name: &str, room: &str, number: u32, data: &[u8]) {
        self.send_json(name, &json!({"send": {"data": json_input(number, room, data)}}));
    }

    /// Opens sessions that join the room of `channel`.
    pub fn gather(&mut self, names: &[(&str, Encoding, u16)], channel: &str) {
        for (name, encoding, shard) in names {
            self.open(name, *encoding, *shard);
            self.subscribe(name, channel);
        }
        self.tick();
    }

    pub fn on_message(&mut self, shard: u16, message: FromRoom) {
        self.node.handle(shard, Event::FromRoom { from: RoomThreadIndex(0), message });
    }

    /// Delivers the shards' messages to their rooms.
    pub fn pass(&mut self) {
        while let Some((_, message)) = self.node.to_rooms.pop_front() {
            let room = match &message {
                ToRoom::Open { room, channel, .. } => {
                    let world = Room::new(RoomOptions::default(), room.number, Box::new(self.meadow)).expect("a map");
                    let terms = HostOptions {
                        shard_count: self.node.shards.len() as u16,
                        node_seed: node::NODE_SEED,
                        empty_ticks_max: self.empty_ticks_max,
                        seat_grace_ticks: self.seat_grace_ticks,
                        away_per_user_max: self.away_per_user_max,
                        is_recorded: self.is_recorded,
                        ..TERMS
                    };
                    let host = RoomHost::new(*room, channel.clone(), world.grid().clone(), terms);
                    assert!(self.rooms.insert(*room, (host, Runner::new(world))).is_none(), "opened once");
                    if self.reports_made {
                        let (owner, made) = (room.owner, FromRoom::Made { room: *room, channel: channel.clone() });
                        self.on_message(owner.0, made);
                    }
                    continue;
                }
                ToRoom::Close { room, code, reason } => {
                    let (mut host, _) = self.rooms.remove(room).expect("closed once, and after it was opened");
                    let mut outgoing = Vec::new();
                    host.end(*code, reason.as_ref(), &NotJoined::Gone, &mut outgoing);
                    for (shard, message) in outgoing {
                        self.on_message(shard.0, message);
                    }
                    continue;
                }
                message => message.room(),
            };
            match self.rooms.get_mut(&room) {
                Some((host, _)) => host.take(message),
                None => self.strays.push(message),
            }
        }
    }

    /// Runs a tick of every room, and delivers its messages.
    pub fn tick(&mut self) {
        let outgoing = self.run_rooms();
        self.deliver(outgoing);
    }

    /// Runs a tick of every room. Returns its messages.
    pub fn run_rooms(&mut self) -> Vec<RoutedMessage> {
        self.pass();
        let mut outgoing = Vec::new();
        for (host, runner) in self.rooms.values_mut() {
            host.refuse_unreserved(runner, &mut outgoing);
            let batch = host.begin();
            self.carried.extend(&batch.carried);
            let done = runner.run(&batch, self.node.now.unix_ms * 1_000);
            self.tokens_refused += done.tokens_refused();
            host.finish(done, &mut outgoing);
        }
        outgoing
    }

    /// Delivers messages of rooms.
    pub fn deliver(&mut self, outgoing: Vec<RoutedMessage>) {
        for (shard, message) in outgoing {
            self.on_message(shard.0, message);
        }
        self.pass();
        self.look();
    }

    /// Makes clients read what they received.
    pub fn look(&mut self) {
        for (name, seen) in &mut self.seen {
            let client = self.node.clients.get_mut(name).expect("a client");
            seen.read(client.encoding, &std::mem::take(&mut client.received));
        }
    }

    pub fn seen(&mut self, name: &str) -> &mut Seen {
        self.seen.get_mut(name).expect("a client")
    }

    pub fn only_room(&self) -> &(RoomHost, Runner) {
        assert_eq!(self.rooms.len(), 1);
        self.rooms.values().next().expect("a room")
    }

    /// Checks that the client's replica equals the world as of the last tick.
    pub fn check(&self, name: &str, channel: &str) {
        let (_, runner) =
            self.rooms.values().find(|(host, _)| **host.channel() == *channel).expect("an open room of the channel");
        let (room, replica) = (runner.room(), &self.seen[name].replicas[channel]);
        assert_eq!(replica.tick(), room.tick_number(), "{name}'s tick");
        let grid = room.grid();
        let mut objects = 1;
        for (cell, _) in grid.visible(replica.view()) {
            assert_eq!(replica.cell_hash(cell), room.world().cell_hash(cell), "{name}'s cell {cell:?}");
            let visible = room.world().objects_in(cell);
            objects += visible.filter(|(_, object)| object.visibility == Visibility::Everyone).count();
        }
        assert_eq!(replica.objects().count(), objects, "{name} sees the cells of its view, and its purse");
        let avatar = replica.avatar().and_then(|avatar| replica.object(avatar)).expect("its own object");
        assert_eq!(grid.cell_of(avatar.position), replica.view(), "{name} looks from where it is");
    }

    pub fn queued(&mut self, name: &str) -> (usize, usize) {
        let (shard, session) = self.node.client(name).place;
        self.node.shards[usize::from(shard)].queued(session).expect("a session")
    }

    /// Makes the client's socket accept this many bytes.
    pub fn take(&mut self, name: &str, bytes: usize) {
        self.node.client(name).room_bytes = bytes;
        let place = self.node.client(name).place;
        self.node.write(place);
        self.look();
    }

    pub fn leave(&mut self, name: &str) {
        let (shard, session) = self.node.client(name).place;
        self.node.client(name).is_gone = true;
        self.node.handle(shard, Event::Gone { session });
    }

    pub fn holdings(&self) -> [usize; 2] {
        let unanswered: usize = self.node.shards.iter().map(dunlin_engine::Shard::unanswered_joins).sum();
        let holdings = self.node.shards.iter().map(dunlin_engine::Shard::room_holdings);
        holdings.fold([unanswered, 0], |sums, more| [sums[0] + more[0], sums[1] + more[1]])
    }
}

/// A length-delimited field with short content.
fn long_field(number: u8, content: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, content.len() as u8], content].concat()
}

fn json_input(number: u32, room: &str, data: &[u8]) -> Value {
    let mut bytes = Vec::new();
    encode_input(Encoding::Json, &Input { number, room: room.into(), data: data.into() }, &mut bytes);
    serde_json::from_slice(&bytes).expect("JSON")
}

impl Seen {
    /// Whether no partial frame is buffered.
    pub fn rest_is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn read(&mut self, encoding: Encoding, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        while let Some((opcode, start, end)) = node::wire::frame(&self.rest) {
            let payload = self.rest[start..end].to_vec();
            self.rest.drain(..end);
            match (opcode, encoding) {
                (0x81, Encoding::Json) => {
                    let text = String::from_utf8(payload).expect("UTF-8");
                    for line in text.split('\n') {
                        self.read_json(line);
                    }
                }
                (0x82, Encoding::Protobuf) => {
                    let mut frame = Reader::new(&payload);
                    while !frame.rest().is_empty() {
                        self.read_protobuf(frame.length_prefixed().expect("a message"));
                    }
                }
                (0x88, _) => self.messages.push(format!("close {}", String::from_utf8_lossy(&payload[2..]))),
                (opcode, _) => panic!("opcode {opcode:#x}"),
            }
        }
    }

    fn read_json(&mut self, line: &str) {
        let message: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let push = &message["push"];
        match &push["pub"] {
            Value::Null => self.messages.push(line.to_owned()),
            publication => {
                let channel = push["channel"].as_str().expect("a channel");
                let offset = publication["offset"].as_u64().unwrap_or_default();
                self.publication(Encoding::Json, channel, offset, publication["data"].to_string().as_bytes());
            }
        }
    }

    fn read_protobuf(&mut self, message: &[u8]) {
        let Some(push) = field(message, 4) else { return };
        let Some(publication) = field(push, 4) else { return };
        let channel = str::from_utf8(field(push, 2).expect("a channel")).expect("UTF-8").to_owned();
        let mut reader = Reader::new(publication);
        let mut offset = 0;
        while let Some((number, value)) = reader.field().expect("a field") {
            if let (6, Field::Varint(number)) = (number, value) {
                offset = number;
            }
        }
        self.publication(Encoding::Protobuf, &channel, offset, field(publication, 4).unwrap_or_default());
    }

    fn publication(&mut self, encoding: Encoding, channel: &str, offset: u64, data: &[u8]) {
        if offset > 0 {
            let data = String::from_utf8(data.to_vec()).expect("UTF-8");
            return self.events.push((channel.to_owned(), offset, data));
        }
        self.snapshots += 1;
        let replica = self.replicas.entry(channel.to_owned()).or_default();
        replica.apply(encoding, data).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(data)));
    }
}

fn field(message: &[u8], wanted: u32) -> Option<&[u8]> {
    let mut reader = Reader::new(message);
    while let Some((number, value)) = reader.field().expect("a field") {
        if let (true, Field::Bytes(bytes)) = (number == wanted, value) {
            return Some(bytes);
        }
    }
    None
}
