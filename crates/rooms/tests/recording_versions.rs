//! Replays recordings that released versions have written.

use dunlin_protocol::Encoding;
use dunlin_rooms::{
    GridShape, InputError, NewObject, PlayerId, Position, Refusal, RestoreError, Room, RoomOptions, Scope, Simulation,
    Visibility, Visitor, World,
    recording::{
        Carried, CarriedWait, Comparison, Header, RecordedStep, Recorder, Replay, ReplayError, compare, inputs, replay,
        tells_of_connections,
    },
};

/// A recording of [`act`] in hexadecimal, written by the last commit that recorded version 1.
const VERSION_1: &str = include_str!("fixtures/recording-1.txt");
/// A recording of [`act_with_seats`], written by the last commit that recorded version 2.
const VERSION_2: &str = include_str!("fixtures/recording-2.txt");
/// A recording of [`act_with_addresses`], written by the last commit that recorded version 3.
const VERSION_3: &str = include_str!("fixtures/recording-3.txt");

/// Each player has an object at a random place, whose state is its last input.
struct Pebbles;

impl Simulation for Pebbles {
    fn grid(&self) -> GridShape {
        GridShape { columns: 4, rows: 4, cell_units: 100, near_cells: 1, far_cells: 0, far_interval_ticks: 1 }
    }

    fn start(&mut self, world: &mut World) {
        let position = Position { x: 150, y: 250 };
        world
            .spawn(NewObject { position, kind: 1, visibility: Visibility::Everyone, state: b"stone" })
            .expect("there is room");
    }

    fn join(&mut self, world: &mut World, player: PlayerId, visitor: &Visitor<'_>, data: &[u8]) -> Result<(), Refusal> {
        if data == b"\"no\"" {
            return Err(Refusal { code: 450, message: "no".into() });
        }
        let position = Position { x: world.random_below(400), y: world.random_below(400) };
        let state = visitor.user.as_bytes();
        let made = world.spawn(NewObject { position, kind: 2, visibility: Visibility::Owner(player), state });
        world.set_avatar(player, made.ok());
        world.set_viewpoint(player, position);
        Ok(())
    }

    fn leave(&mut self, world: &mut World, _: PlayerId) {
        world.emit(Scope::All, "\"left\"").expect("a short event");
    }

    fn input(&mut self, world: &mut World, player: PlayerId, data: &[u8]) -> Result<(), InputError> {
        let avatar = world.avatar_of(player).ok_or(InputError)?;
        world.set_state(avatar, data).map_err(|_| InputError)
    }

    fn tick(&mut self, world: &mut World) {
        let avatars: Vec<_> = world.players().filter_map(|player| world.avatar_of(player)).collect();
        for avatar in avatars {
            let position = Position { x: world.random_below(400), y: world.random_below(400) };
            world.move_to(avatar, position);
        }
    }

    fn save(&self, _: &mut Vec<u8>) {}

    fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
        Ok(())
    }
}

fn header() -> Header {
    Header {
        simulation: "pebbles".to_owned(),
        params: r#"{"stones":1}"#.to_owned(),
        seed: 7,
        channel: String::new(),
        // Version 1 has no limits on spectators, metadata and calls.
        options: RoomOptions {
            spectators_max: 0,
            metadata_bytes_max: 0,
            calls_max: 0,
            call_bytes_max: 0,
            ..RoomOptions::default()
        },
    }
}

/// A player with every field of version 2 disconnects and returns; a spectator watches.
fn act_with_seats(room: &mut Room, recorder: &mut Recorder) {
    let visitor = Visitor { user: "ada", client: "c-1", info: b"[1]", ..Visitor::default() };
    let spectator = Visitor { is_spectator: true, ..Visitor::of_user("eve") };
    for visitor in [&visitor, &spectator] {
        recorder.join(visitor, Encoding::Json, b"{}");
        room.join(visitor, Encoding::Json, b"{}").expect("there is room");
    }
    tick(room, recorder);
    recorder.away(PlayerId(1));
    room.away(PlayerId(1));
    tick(room, recorder);
    let again = Visitor { client: "c-2", ..visitor };
    recorder.back(PlayerId(1), &again, Encoding::Protobuf);
    room.back(PlayerId(1), &again, Encoding::Protobuf);
    input(room, recorder, PlayerId(1), 1, b"on");
    tick(room, recorder);
}

/// A player with an address disconnects and returns from another one.
fn act_with_addresses(room: &mut Room, recorder: &mut Recorder) {
    let address = |text: &str| Some(text.parse().expect("an address"));
    let visitor =
        Visitor { user: "ada", client: "c-1", info: b"[1]", address: address("192.0.2.7"), ..Visitor::default() };
    recorder.join(&visitor, Encoding::Json, b"{}");
    room.join(&visitor, Encoding::Json, b"{}").expect("there is room");
    tick(room, recorder);
    recorder.away(PlayerId(1));
    room.away(PlayerId(1));
    tick(room, recorder);
    let again = Visitor { client: "c-2", address: address("2001:db8::7"), ..visitor };
    recorder.back(PlayerId(1), &again, Encoding::Protobuf);
    room.back(PlayerId(1), &again, Encoding::Protobuf);
    input(room, recorder, PlayerId(1), 1, b"on");
    tick(room, recorder);
}

/// Two players join, a third one is refused, and the first one leaves.
fn act(room: &mut Room, recorder: &mut Recorder) {
    let join = |room: &mut Room, recorder: &mut Recorder, user, encoding, data| {
        let visitor = Visitor::of_user(user);
        recorder.join(&visitor, encoding, data);
        room.join(&visitor, encoding, data).map(|joined| joined.player)
    };
    let ada = join(room, recorder, "ada", Encoding::Json, b"{}").expect("ada is in");
    let other = join(room, recorder, "", Encoding::Protobuf, b"").expect("the other is in");
    join(room, recorder, "bob", Encoding::Json, b"\"no\"").expect_err("bob is refused");
    tick(room, recorder);
    input(room, recorder, ada, 300, b"\x00\xff");
    tick(room, recorder);
    recorder.leave(ada);
    room.leave(ada);
    input(room, recorder, other, 1, b"on");
    tick(room, recorder);
}

fn input(room: &mut Room, recorder: &mut Recorder, player: PlayerId, number: u32, data: &[u8]) {
    recorder.input(player, number, data);
    assert!(room.input(player, number, data));
}

fn tick(room: &mut Room, recorder: &mut Recorder) {
    room.tick(0);
    recorder.tick(room);
}

fn recorded() -> Vec<u8> {
    recorded_of(&header(), act)
}

fn recorded_of(header: &Header, act: fn(&mut Room, &mut Recorder)) -> Vec<u8> {
    let mut room = Room::open(header.options.clone(), header.info(), Box::new(Pebbles)).expect("a map");
    let mut recorder = Recorder::new(header, Vec::new());
    act(&mut room, &mut recorder);
    std::mem::take(recorder.written())
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.trim().as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("digits"));
    digits.map(|pair| u8::from_str_radix(pair, 16).expect("digits")).collect()
}

fn finished(recording: &[u8]) -> Replay<'_> {
    let mut replayed = replay(recording, |_| Box::new(Pebbles)).expect("a recording");
    // Compares the state hash of each tick.
    assert_eq!(replayed.finish(), Ok(3));
    replayed
}

#[test]
fn a_recording_of_version_1_is_replayed() {
    let (old, new) = (unhex(VERSION_1), recorded());
    assert_eq!((old[8], new[8]), (1, 4), "the versions");
    let (old, new) = (finished(&old), finished(&new));
    assert_eq!((old.header(), new.header()), (&header(), &header()));
    assert_eq!(old.room().state_hash(), new.room().state_hash());
    let world = old.room().world();
    assert_eq!(world.players().collect::<Vec<_>>(), [PlayerId(2)]);
    let states: Vec<_> = world.objects().map(|(_, object)| object.state.clone()).collect();
    assert_eq!(states, [&b"stone"[..], b"\x00\xff", b"on"]);
}

fn header_with_seats() -> Header {
    Header { channel: "stones:1".to_owned(), options: RoomOptions::default(), ..header() }
}

#[test]
fn a_recording_of_version_2_is_replayed() {
    let (old, new) = (unhex(VERSION_2), recorded_of(&header_with_seats(), act_with_seats));
    assert_eq!((old[8], new[8]), (2, 4), "the versions");
    assert_eq!(old[9..], new[9..], "without addresses, the versions differ only in their number");
    let (old, new) = (finished(&old), finished(&new));
    assert_eq!((old.header(), old.room().state_hash()), (&header_with_seats(), new.room().state_hash()));
}

#[test]
fn a_recording_of_version_3_is_replayed() {
    let (old, new) = (unhex(VERSION_3), recorded_of(&header_with_seats(), act_with_addresses));
    assert_eq!((old[8], new[8]), (3, 4), "the versions");
    assert_eq!(old[9..], new[9..], "if nothing is told of connections, the versions differ only in their number");
    assert_eq!([&old, &new].map(|recording| tells_of_connections(recording)), [false, true]);
    let (old, new) = (finished(&old), finished(&new));
    assert_eq!((old.header(), old.room().state_hash()), (&header_with_seats(), new.room().state_hash()));
}

#[test]
fn a_later_version_is_named() {
    let mut recording = recorded();
    recording[8] = 5;
    assert_eq!(Header::read(&recording), Err(ReplayError::UnknownVersion(5)));
}

const LATE: Carried = Carried {
    had_tick: 0,
    tick: 2,
    paced_ticks: 0,
    limited_ticks: 0,
    waited_ticks: 1,
    wait: CarriedWait::Shard,
    is_sent: true,
    zone_ages_ticks: [0; 4],
};

/// The same as [`act_with_seats`], and what is told of its players.
fn act_with_connections(room: &mut Room, recorder: &mut Recorder) {
    let mut acted = Recorder::new(&header_with_seats(), Vec::new());
    act_with_seats(room, &mut acted);
    let whole = std::mem::take(acted.written());
    let empty = Recorder::new(&header_with_seats(), Vec::new()).written().len();
    // Between two ticks, in the middle of steps, and behind the last tick, as a room that is cut leaves it.
    let ends: Vec<usize> = (empty..=whole.len()).filter(|end| inputs(&whole[..*end]).is_ok()).collect();
    let mut from = empty;
    for end in ends {
        recorder.written().extend_from_slice(&whole[from..end]);
        from = end;
        for player in [1, 2] {
            recorder.carried(PlayerId(player), LATE);
        }
        recorder.untold(PlayerId(2));
    }
}

#[test]
fn what_connections_carried_has_no_effect_on_a_replay() {
    let header = header_with_seats();
    let (plain, told) = (recorded_of(&header, act_with_seats), recorded_of(&header, act_with_connections));
    assert!(told.len() > plain.len());
    assert_eq!(inputs(&told).map(|inputs| inputs.len()), Ok(1));
    let mut replays = [&plain, &told].map(|recording| replay(recording, |_| Box::new(Pebbles)).expect("a recording"));
    let [one, other] = &mut replays;
    assert_eq!(compare(one, other), Ok(Comparison::Equal { ticks: [3, 3] }));
    let mut watched = replay(&told, |_| Box::new(Pebbles)).expect("a recording");
    watched.watch();
    let mut counts = Vec::new();
    while let Some(tick) = watched.next_tick() {
        tick.expect("the same states");
        assert!(watched.carried().iter().all(|(_, carried)| *carried == LATE));
        assert_eq!(2 * watched.untold().len(), watched.carried().len());
        counts.push(watched.carried().len());
    }
    // Twice at each place: before the two joins and after each of them, and so on.
    assert_eq!(counts, [6, 4, 6]);
    assert_eq!(watched.room().state_hash(), finished(&plain).room().state_hash());
}

#[test]
fn addresses_are_recorded() {
    for address in ["192.0.2.7", "2001:db8::7"] {
        let visitor = Visitor {
            address: Some(address.parse().expect("an address")),
            is_spectator: true,
            ..Visitor::of_user("ada")
        };
        let (mut room, mut recorder) = (
            Room::open(header().options, header().info(), Box::new(Pebbles)).expect("a map"),
            Recorder::new(&header(), Vec::new()),
        );
        recorder.join(&visitor, Encoding::Json, b"");
        recorder.back(PlayerId(9), &visitor, Encoding::Json);
        tick(&mut room, &mut recorder);
        let recording = std::mem::take(recorder.written());
        let mut replayed = replay(&recording, |_| Box::new(Pebbles)).expect("a recording");
        replayed.watch();
        assert_eq!(replayed.next_tick(), Some(Ok(1)));
        let steps: Vec<_> = replayed.steps().iter().map(|replayed| replayed.step).collect();
        let [RecordedStep::Join { visitor: joined, .. }, RecordedStep::Back { visitor: back, .. }] = steps[..] else {
            panic!("{steps:?}")
        };
        assert_eq!((joined, back), (visitor, visitor));
        for end in 0..recording.len() {
            let cut = &recording[..end];
            // A truncated recording must not cause a panic.
            if let Ok(mut replayed) = replay(cut, |_| Box::new(Pebbles)) {
                let _ = replayed.finish();
            }
        }
    }
}
