//! The public interface of rooms: ticks and their outcomes, joins and refusals, save and restore, recordings and
//! replays.

use dunlin_protocol::Encoding;
use dunlin_rooms::{
    FormatSet, GridError, GridShape, InputError, NewObject, PlayerChange, PlayerId, Position, Refusal, RestoreError,
    Room, RoomOptions, Scope, Scoped, Simulation, TickOutcome, Visibility, Visitor, World,
    recording::{Comparison, Header, MAGIC, Recorder, Replay, ReplayError, compare, replay},
};
use proptest::{collection::vec, prelude::*};

use crate::drift::drift;

const OBJECTS: u32 = 300;

fn options() -> RoomOptions {
    RoomOptions { players_max: 20, ..RoomOptions::default() }
}

fn room(seed: u64) -> Room {
    Room::new(options(), seed, drift(OBJECTS)).expect("a map")
}

/// An action on a room between ticks. Players are identified by their numbers.
#[derive(Clone, Debug)]
enum Act {
    Join { user: String, encoding: Encoding, data: &'static [u8] },
    Leave(u32),
    Input { player: u32, number: u32, data: Vec<u8> },
    Message(Vec<u8>),
    Tick,
}

fn act() -> impl Strategy<Value = Act> {
    let data = prop_oneof![Just(&b""[..]), Just(&b"no"[..]), Just(&b"no500"[..])];
    let encoding = prop_oneof![Just(Encoding::Json), Just(Encoding::Protobuf)];
    prop_oneof![
        2 => (0..9u8, encoding, data).prop_map(|(user, encoding, data)| Act::Join { user: format!("u{user}"), encoding, data }),
        1 => (1..12u32).prop_map(Act::Leave),
        6 => (1..12u32, 1..999u32, vec(any::<u8>(), 0..4)).prop_map(|(player, number, data)| Act::Input { player, number, data }),
        2 => vec(any::<u8>(), 0..4).prop_map(Act::Message),
        6 => Just(Act::Tick),
    ]
}

/// Performs an action and records it. Returns the outcome of a tick.
fn act_on(room: &mut Room, recorder: &mut Recorder, act: &Act) -> Option<TickOutcome> {
    match act {
        Act::Join { user, encoding, data } => {
            let visitor = Visitor::of_user(user);
            recorder.join(&visitor, *encoding, data);
            let _ = room.join(&visitor, *encoding, data);
        }
        Act::Leave(player) => {
            recorder.leave(PlayerId(*player));
            room.leave(PlayerId(*player));
        }
        Act::Input { player, number, data } => {
            recorder.input(PlayerId(*player), *number, data);
            room.input(PlayerId(*player), *number, data);
        }
        Act::Message(data) => {
            recorder.message(data);
            let _ = room.message(data);
        }
        Act::Tick => {
            let outcome = room.tick(0);
            recorder.tick(room);
            return Some(outcome);
        }
    }
    None
}

fn header(seed: u64) -> Header {
    Header {
        simulation: "drift".to_owned(),
        params: "{}".to_owned(),
        seed,
        channel: "arena:1".to_owned(),
        options: options(),
    }
}

/// The data of an input: the steps to the right and downwards.
fn push(tick: u32, player: u32) -> [u8; 2] {
    [(tick * player % 31) as u8, (tick + player) as u8].map(|step| step.wrapping_sub(15))
}

/// A recorded game of `ticks` ticks with joins, leaves and inputs.
fn game(ticks: u32) -> (Room, Vec<u8>) {
    let (mut room, mut recorder) = (room(11), Recorder::new(&header(11), Vec::new()));
    for tick in 0..ticks {
        let mut acts = vec![Act::Tick];
        if tick % 10 == 0 {
            let encoding = Encoding::ALL[(tick / 10 % 2) as usize];
            acts.insert(0, Act::Join { user: format!("bot-{tick}"), encoding, data: b"" });
        }
        if tick % 35 == 34 {
            acts.insert(0, Act::Leave(tick / 35));
        }
        for player in 1..=tick / 10 {
            acts.insert(0, Act::Input { player, number: tick, data: push(tick, player).to_vec() });
        }
        for act in acts {
            act_on(&mut room, &mut recorder, &act);
        }
    }
    (room, std::mem::take(recorder.written()))
}

#[test]
fn the_same_seed_and_inputs_give_the_same_hash_in_every_build() {
    let (room, recording) = game(120);
    assert_eq!(room.state_hash(), 0x3e4e_fb7e_d977_bce7);
    assert_eq!(game(120).1, recording);
}

#[test]
fn a_recording_is_replayed_to_the_same_hashes() {
    let (room, recording) = game(120);
    let mut replayed = replay(&recording, |header| {
        assert_eq!(header, &self::header(11));
        drift(OBJECTS)
    })
    .expect("a recording");
    for tick in 1..=120 {
        assert_eq!(replayed.next_tick(), Some(Ok(tick)));
        assert_eq!(replayed.room().tick_number(), tick);
    }
    assert_eq!(replayed.next_tick(), None);
    assert_eq!(replayed.room().state_hash(), room.state_hash());
    let player = replayed.player_of("bot-110").expect("it joined");
    assert_eq!(replayed.room().world().view_of(player), room.world().view_of(player));
    assert_eq!(replayed.room().world().avatar_of(player), room.world().avatar_of(player));
    assert_eq!(replayed.player_of("somebody"), None);
    for cell in (0..256).map(dunlin_rooms::CellIndex) {
        assert_eq!(replayed.room().world().cell_hash(cell), room.world().cell_hash(cell));
    }
}

#[test]
fn a_replay_goes_on_from_any_checkpoint() {
    let (_, recording) = game(120);
    let mut first = replay(&recording, |_| drift(OBJECTS)).expect("a recording");
    let header = first.header().clone();
    let mut checkpoints = vec![first.checkpoint()];
    while let Some(tick) = first.next_tick() {
        assert!(tick.is_ok());
        checkpoints.push(first.checkpoint());
    }
    for (tick, checkpoint) in checkpoints.iter().enumerate() {
        assert_eq!(checkpoint.tick() as usize, tick);
        let mut resumed = Replay::resume(&header, checkpoint, drift(OBJECTS)).expect("the game restores it");
        assert_eq!(resumed.finish(), Ok(120), "each hash after tick {tick} is that of the recording");
        assert_eq!(resumed.player_of("bot-110"), first.player_of("bot-110"));
    }
    let of_another_map = Box::new(Script(GridShape { columns: 2, ..drift(1).grid() }, |_| {}));
    assert_eq!(Replay::resume(&header, &checkpoints[60], of_another_map).err(), Some(ReplayError::Restore));
}

#[test]
fn a_message_is_answered_or_refused_by_the_game() {
    let mut room = room(1);
    assert!(room.message(b"rain").is_ok_and(|answer| answer.iter().all(u8::is_ascii_digit)));
    let refusal = |code, message: &str| Err(Refusal { code, message: message.into() });
    assert_eq!(room.message(&[9]), refusal(459, "no"));
    assert_eq!(room.message(&[]), refusal(400, "say something"), "2000 is outside the codes of a game");
    let mut deaf = Room::new(options(), 1, Box::new(Script(drift(1).grid(), |_| {}))).expect("a map");
    assert_eq!(deaf.message(b"rain"), refusal(400, "this game takes no messages"));
}

#[test]
fn a_changed_input_is_found_at_its_tick() {
    let (_, mut recording) = game(120);
    // These bytes are player 2's input of tick 59. They occur only once in the recording.
    let [right, down] = push(59, 2);
    let input = [3, 2, 59, 2, right, down];
    let places: Vec<usize> = (0..recording.len()).filter(|&place| recording[place..].starts_with(&input)).collect();
    let &[place] = &places[..] else { panic!("{places:?}") };
    recording[place + 4] += 1;
    let mut replayed = replay(&recording, |_| drift(OBJECTS)).expect("a recording");
    match replayed.finish() {
        Err(ReplayError::Divergence { tick, expected, actual }) => {
            assert_eq!(tick, 60);
            assert_ne!(expected, actual);
        }
        other => panic!("{other:?}"),
    }
    assert!(
        matches!(replayed.next_tick(), Some(Err(ReplayError::Divergence { tick: 61, .. }))),
        "the replay can continue"
    );
}

fn compared(one: &[u8], other: &[u8]) -> Result<Comparison, (bool, ReplayError)> {
    let [mut one, mut other] = [one, other].map(|of| replay(of, |_| drift(OBJECTS)).expect("a recording"));
    compare(&mut one, &mut other)
}

#[test]
fn recordings_are_compared_up_to_the_first_difference() {
    let [(_, short), (_, long)] = [game(30), game(40)];
    assert_eq!(compared(&short, &short), Ok(Comparison::Equal { ticks: [30, 30] }));
    assert_eq!(compared(&short, &long), Ok(Comparison::Equal { ticks: [30, 40] }));
    assert_eq!(compared(&long, &short[..short.len() - 1]), Ok(Comparison::Equal { ticks: [40, 29] }));

    // The same game with one more input, and a player who leaves.
    let (mut changed, mut recorder) = (room(11), Recorder::new(&header(11), Vec::new()));
    let join = Act::Join { user: "bot-0".to_owned(), encoding: Encoding::Json, data: b"" };
    let input = Act::Input { player: 1, number: 1, data: push(1, 1).to_vec() };
    for act in [join, Act::Tick, input, Act::Leave(1), Act::Tick] {
        act_on(&mut changed, &mut recorder, &act);
    }
    let Ok(Comparison::Different(difference)) = compared(&short, recorder.written()) else { panic!("no difference") };
    assert_eq!((difference.tick, difference.players), (2, [vec![PlayerId(1)], vec![]]));
    assert_eq!(
        difference.steps,
        [vec![], vec!["player 1 sends input 1: f2f3".to_owned(), "player 1 leaves".to_owned()]]
    );
    assert_ne!(difference.state_hashes[0], difference.state_hashes[1]);
    assert!(difference.objects.iter().any(|(_, [one, other])| one.is_some() && other.is_none()));

    let other = std::mem::take(Recorder::new(&header(12), Vec::new()).written());
    let Ok(Comparison::Different(difference)) = compared(&short, &other) else { panic!("no difference") };
    assert_eq!(difference.tick, 0);
    // The error names the recording that does not replay.
    let same_seed = std::mem::take(Recorder::new(&header(11), Vec::new()).written());
    let fault = [&same_seed[..], &[0; 9]].concat();
    assert!(matches!(compared(&short, &fault), Err((true, ReplayError::Divergence { tick: 1, .. }))));
    assert!(matches!(compared(&fault, &short), Err((false, ReplayError::Divergence { tick: 1, .. }))));
}

#[test]
fn another_seed_differs_at_once() {
    let (_, recording) = game(20);
    let mut header_only = Vec::new();
    std::mem::swap(&mut header_only, Recorder::new(&header(11), Vec::new()).written());
    let mut other = std::mem::take(Recorder::new(&header(12), Vec::new()).written());
    other.extend_from_slice(&recording[header_only.len()..]);
    let mut replayed = replay(&other, |_| drift(OBJECTS)).expect("a recording");
    assert!(matches!(replayed.finish(), Err(ReplayError::Divergence { tick: 1, .. })));
}

#[test]
fn invalid_recordings_are_refused() {
    let whole = game(3).1;
    let mut other_version = whole.clone();
    other_version[MAGIC.len()] = 5;
    let mut unknown_record = whole.clone();
    unknown_record.push(9);
    let mut bad_rate = std::mem::take(
        Recorder::new(&Header { options: RoomOptions { ticks_per_second: 241, ..options() }, ..header(1) }, Vec::new())
            .written(),
    );
    bad_rate.push(0);
    let cases: [(&[u8], ReplayError); 7] = [
        (b"", ReplayError::NoRecording),
        (b"DUNLINR", ReplayError::NoRecording),
        (b"{\"json\":true}", ReplayError::NoRecording),
        (MAGIC, ReplayError::BreaksOff),
        (&other_version, ReplayError::UnknownVersion(5)),
        (&unknown_record, ReplayError::Malformed),
        (&bad_rate, ReplayError::Malformed),
    ];
    for (bytes, expected) in cases {
        let result = replay(bytes, |_| drift(OBJECTS)).and_then(|mut replayed| replayed.finish());
        assert_eq!(result, Err(expected));
    }
    let broken_off = &whole[..whole.len() - 3];
    let mut replayed = replay(broken_off, |_| drift(OBJECTS)).expect("a header");
    assert_eq!(replayed.next_tick(), Some(Ok(1)));
    assert_eq!(replayed.next_tick(), Some(Ok(2)));
    assert_eq!(replayed.next_tick(), Some(Err(ReplayError::BreaksOff)));
    assert_eq!(replayed.next_tick(), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_restored_room_continues_like_the_original(before in vec(act(), 0..60), after in vec(act(), 0..60)) {
        let (mut original, mut unheard) = (room(5), Recorder::new(&header(5), Vec::new()));
        for act in &before {
            act_on(&mut original, &mut unheard, act);
        }
        let mut saved = Vec::new();
        original.save(&mut saved);
        let mut restored = Room::restore(options(), &saved, drift(OBJECTS)).expect("the state is valid");
        prop_assert_eq!(restored.state_hash(), original.state_hash());
        prop_assert_eq!(restored.formats(), original.formats());
        for act in after.iter().chain([&Act::Tick]) {
            let outcome = act_on(&mut original, &mut unheard, act);
            let of_restored = act_on(&mut restored, &mut unheard, act);
            prop_assert_eq!(restored.state_hash(), original.state_hash());
            if let (Some(outcome), Some(of_restored)) = (outcome, of_restored) {
                prop_assert_eq!(outcome.scoped, of_restored.scoped);
                prop_assert_eq!(outcome.update.tick(), of_restored.update.tick());
            }
        }
    }

    #[test]
    fn any_game_is_replayed(acts in vec(act(), 0..150)) {
        let (mut room, mut recorder) = (room(5), Recorder::new(&header(5), Vec::new()));
        for act in &acts {
            act_on(&mut room, &mut recorder, act);
        }
        let recording = std::mem::take(recorder.written());
        let mut replayed = replay(&recording, |_| drift(OBJECTS)).expect("a recording");
        prop_assert_eq!(replayed.finish(), Ok(room.tick_number()));
        prop_assert_eq!(replayed.room().state_hash(), room.state_hash());
    }

    #[test]
    fn damaged_recordings_are_harmless(
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4), cut in any::<prop::sample::Index>(),
    ) {
        let mut recording = game(12).1;
        for (place, byte) in damage {
            *place.get_mut(&mut recording) = byte;
        }
        recording.truncate(cut.index(recording.len()) + 1);
        if let Ok(mut replayed) = replay(&recording, |_| drift(OBJECTS)) {
            while replayed.next_tick().is_some() {}
        }
    }
}

#[test]
fn players_of_a_restored_room_get_full_changes() {
    let (room, _) = game(30);
    let mut saved = Vec::new();
    room.save(&mut saved);
    let mut restored = Room::restore(options(), &saved, drift(OBJECTS)).expect("the state is valid");
    let news = restored.tick(0).players;
    assert_eq!(news.iter().map(|change| change.player).collect::<Vec<_>>(), room.world().players().collect::<Vec<_>>());
    assert!(news.len() == 3 && news.iter().all(|change| change.own.is_some()));
    assert_eq!(news.iter().map(|change| change.ack).collect::<Vec<_>>(), [29, 29, 0]);
}

#[test]
fn a_room_estimates_the_memory_of_its_world() {
    let script = |world: &mut World| {
        let state = [7; 1_000];
        for _ in 0..1_000 {
            let position = Position { x: 3, y: 3 };
            let object = NewObject { position, kind: 0, visibility: Visibility::Everyone, state: &state };
            world.spawn(object).expect("there is room");
        }
    };
    let mut room = Room::new(options(), 1, Box::new(Script(SCRIPT_SHAPE, script))).expect("a map");
    let before = room.world_bytes();
    room.tick(0);
    let grown = room.world_bytes() - before;
    assert!((1_000_000..2_000_000).contains(&grown), "{grown}");
}

#[test]
fn invalid_saved_rooms_are_refused() {
    let mut saved = Vec::new();
    game(30).0.save(&mut saved);
    let restore = |options: RoomOptions, saved: &[u8]| Room::restore(options, saved, drift(OBJECTS)).err();
    assert_eq!(restore(options(), &saved), None);
    assert_eq!(restore(options(), b""), Some(RestoreError));
    assert_eq!(restore(options(), &saved[1..]), Some(RestoreError));
    assert_eq!(restore(options(), &saved[..saved.len() - 1]), Some(RestoreError));
    assert_eq!(restore(RoomOptions { objects_max: 10, ..options() }, &saved), Some(RestoreError));
}

#[test]
fn a_player_change_is_reported_on_joins_and_changes() {
    let mut room = room(3);
    let player = room.join(&Visitor::of_user("ann"), Encoding::Protobuf, b"").expect("there is room").player;
    let change = |outcome: TickOutcome| -> Option<PlayerChange> {
        assert!(outcome.players.len() <= 1);
        outcome.players.into_iter().next()
    };
    let joined = change(room.tick(1)).expect("it has joined");
    let avatar = room.world().avatar_of(player).expect("it has one");
    assert_eq!((joined.player, joined.ack, joined.avatar), (player, 0, avatar.0));
    assert_eq!(Some(joined.view), room.world().view_of(player));
    assert!(joined.own.is_some_and(|own| !own.is_empty()), "its purse object");
    assert_eq!(change(room.tick(2)), None);
    assert!(room.input(player, 7, &[1, 1]));
    let acknowledged = change(room.tick(3)).expect("an input was applied");
    assert_eq!((acknowledged.ack, acknowledged.own), (7, None));
    assert!(!room.input(player, 8, b"nonsense"));
    assert_eq!(change(room.tick(4)).expect("a refused input is acknowledged").ack, 8);
    assert!(!room.input(PlayerId(99), 1, &[1, 1]), "no such player");
    while !(player.0 + room.tick_number() + 1).is_multiple_of(20) {
        assert_eq!(change(room.tick(5)), None);
    }
    assert!(change(room.tick(6)).expect("its purse has changed").own.is_some());
    room.leave(player);
    room.leave(player);
    assert_eq!(change(room.tick(7)), None);
    assert_eq!((room.player_count(), room.object_count()), (0, OBJECTS as usize));
}

#[test]
fn players_are_limited_and_refusals_have_the_games_code() {
    let mut room = room(3);
    let code =
        |room: &mut Room, data: &[u8]| room.join(&Visitor::of_user(""), Encoding::Json, data).map_err(|r| r.code);
    for (data, expected) in [("no400", 400), ("no1999", 1_999), ("no399", 400), ("no2000", 400), ("no777", 777)] {
        assert_eq!(code(&mut room, data.as_bytes()), Err(expected), "{data}");
    }
    assert_eq!((room.player_count(), room.formats()), (0, FormatSet::default()));
    let players: Vec<PlayerId> = (0..20).map(|_| code(&mut room, b"").expect("there is room").player).collect();
    assert_eq!(players, (6..26).map(PlayerId).collect::<Vec<_>>(), "no number is reused");
    assert_eq!(code(&mut room, b""), Err(400));
    assert_eq!(room.formats(), FormatSet::default().with(Encoding::Json));
    room.leave(PlayerId(6));
    assert!(code(&mut room, b"").is_ok());
}

/// A simulation that runs the given function in each tick.
struct Script(GridShape, fn(&mut World));

impl Simulation for Script {
    fn grid(&self) -> GridShape {
        self.0
    }

    fn start(&mut self, world: &mut World) {
        let object =
            NewObject { position: Position { x: 5, y: 5 }, kind: 0, visibility: Visibility::Everyone, state: b"" };
        world.spawn(object).expect("there is room");
    }

    fn join(&mut self, world: &mut World, player: PlayerId, _: &Visitor<'_>, data: &[u8]) -> Result<(), Refusal> {
        world.set_viewpoint(player, Position { x: u32::from(data[0]), y: u32::from(data[1]) });
        Ok(())
    }

    fn leave(&mut self, _: &mut World, _: PlayerId) {}

    fn input(&mut self, _: &mut World, _: PlayerId, _: &[u8]) -> Result<(), InputError> {
        Ok(())
    }

    fn tick(&mut self, world: &mut World) {
        (self.1)(world);
    }

    fn save(&self, _: &mut Vec<u8>) {}

    fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
        Ok(())
    }
}

const SCRIPT_SHAPE: GridShape =
    GridShape { columns: 8, rows: 8, cell_units: 10, near_cells: 1, far_cells: 1, far_interval_ticks: 2 };

#[test]
fn events_reach_their_scope_in_order() {
    let script = |world: &mut World| {
        let near = |world: &World, x, y| Scope::Near(world.grid().cell_of(Position { x, y }));
        let scopes = [
            Scope::All,
            near(world, 25, 25),
            near(world, 75, 75),
            near(world, 0, 75),
            Scope::Near(dunlin_rooms::CellIndex(64)),
            Scope::Player(PlayerId(2)),
            Scope::Player(PlayerId(9)),
        ];
        for (number, scope) in scopes.into_iter().enumerate() {
            world.emit(scope, &number.to_string()).expect("few events");
        }
        world.publish("news", "[1]").expect("few events");
    };
    let mut room = Room::new(options(), 1, Box::new(Script(SCRIPT_SHAPE, script))).expect("a map");
    for place in [[45, 45], [5, 5], [55, 25], [75, 45]] {
        room.join(&Visitor::of_user(""), Encoding::Json, &place).expect("there is room");
    }
    let event = |players: Option<&[u32]>, number: u32| Scoped::Event {
        players: players.map(|players| players.iter().copied().map(PlayerId).collect()),
        data: format!("{{\"tick\":1,\"event\":{number}}}").into(),
    };
    let news = Scoped::Publication { channel: "news".into(), data: "[1]".into() };
    // Players see two cells in each direction. From (4, 4) that includes cell (2, 2), but neither (7, 7), which is in
    // no player's view, nor (0, 7).
    let expected = [event(None, 0), event(Some(&[1, 2]), 1), event(Some(&[2]), 5), news];
    assert_eq!(room.tick(0).scoped, expected);
    let tick_2 = room.tick(0).scoped;
    assert_eq!(tick_2.len(), 4);
    assert!(matches!(&tick_2[0], Scoped::Event { data, .. } if data == "{\"tick\":2,\"event\":0}"));
}

#[test]
fn an_update_has_changes_and_a_keyframe_has_everything() {
    let script = |world: &mut World| {
        if world.tick() == 2 {
            let first = world.objects().next().expect("there is one").0;
            world.move_to(first, Position { x: 25, y: 5 });
        }
    };
    let mut room = Room::new(options(), 1, Box::new(Script(SCRIPT_SHAPE, script))).expect("a map");
    room.join(&Visitor::of_user(""), Encoding::Protobuf, &[0, 0]).expect("there is room");
    let quiet = room.tick(1_000).update;
    assert_eq!((quiet.tick(), quiet.time_us(), quiet.cell_count(), quiet.is_keyframe()), (1, 1_000, 0, false));
    let moved = room.tick(2_000).update;
    assert_eq!((moved.tick(), moved.cell_count()), (2, 2));
    assert_eq!(moved.formats(), FormatSet::default().with(Encoding::Protobuf));
    let keyframe = room.keyframe(FormatSet::default().with(Encoding::Json));
    assert_eq!((keyframe.tick(), keyframe.time_us(), keyframe.cell_count()), (2, 2_000, 1));
    assert!(keyframe.is_keyframe() && keyframe.formats().contains(Encoding::Json));
}

#[test]
fn impossible_maps_are_refused() {
    let of = |shape| Room::new(options(), 1, Box::new(Script(shape, |_| ()))).err();
    assert_eq!(of(GridShape { columns: 0, ..SCRIPT_SHAPE }), Some(GridError::Cells));
    assert_eq!(of(SCRIPT_SHAPE), None);
}
