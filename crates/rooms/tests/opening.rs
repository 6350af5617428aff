//! A game that reads the parameters of its room: when it opens, after a restore, and in a replay.

use dunlin_protocol::Encoding;
use dunlin_rooms::{
    GridShape, InputError, NewObject, ObjectId, PlayerId, Position, Refusal, RestoreError, Room, RoomInfo, RoomOptions,
    Simulation, Visibility, Visitor, World,
    recording::{Header, Recorder, replay},
};

/// The state of the first object consists of the channel, the parameters and the seed. Each input adds such an object.
struct Label;

fn spawn_label(world: &mut World) {
    let RoomInfo { channel, params, seed } = world.info();
    let state = format!("{channel} {params} {seed}");
    let object =
        NewObject { position: Position::default(), kind: 1, visibility: Visibility::Everyone, state: state.as_bytes() };
    world.spawn(object).expect("there is room");
}

impl Simulation for Label {
    fn grid(&self) -> GridShape {
        GridShape { columns: 1, rows: 1, cell_units: 64, near_cells: 0, far_cells: 0, far_interval_ticks: 1 }
    }

    fn start(&mut self, world: &mut World) {
        spawn_label(world);
    }

    fn join(&mut self, _: &mut World, _: PlayerId, _: &Visitor<'_>, _: &[u8]) -> Result<(), Refusal> {
        Ok(())
    }

    fn leave(&mut self, _: &mut World, _: PlayerId) {}

    fn input(&mut self, world: &mut World, _: PlayerId, _: &[u8]) -> Result<(), InputError> {
        spawn_label(world);
        Ok(())
    }

    fn tick(&mut self, _: &mut World) {}

    fn save(&self, _: &mut Vec<u8>) {}

    fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
        Ok(())
    }
}

fn header() -> Header {
    Header {
        simulation: "label".to_owned(),
        params: r#"{"map":"ice"}"#.to_owned(),
        seed: 300,
        channel: "arena:7".to_owned(),
        options: RoomOptions::default(),
    }
}

fn labels(room: &Room) -> Vec<&str> {
    let states = (1..).map_while(|number| room.world().object(ObjectId(number)));
    states.map(|object| std::str::from_utf8(&object.state).expect("text")).collect()
}

#[test]
fn a_game_gets_and_keeps_its_opening_parameters() {
    let header = header();
    let mut recorder = Recorder::new(&header, Vec::new());
    let mut room = Room::open(header.options.clone(), header.info(), Box::new(Label)).expect("a map");
    let visitor = Visitor::of_user("ann");
    recorder.join(&visitor, Encoding::Json, b"");
    let player = room.join(&visitor, Encoding::Json, b"").expect("there is room").player;
    recorder.input(player, 1, b"");
    assert!(room.input(player, 1, b""));
    room.tick_without_update();
    recorder.tick(&room);
    assert_eq!(labels(&room), [r#"arena:7 {"map":"ice"} 300"#; 2]);

    let mut saved = Vec::new();
    room.save(&mut saved);
    assert_eq!(Room::saved_params(&saved), Some(r#"{"map":"ice"}"#));
    let mut restored = Room::restore(RoomOptions::default(), &saved, Box::new(Label)).expect("the state is valid");
    assert_eq!((restored.world().info(), restored.state_hash()), (room.world().info(), room.state_hash()));
    assert!(restored.input(player, 2, b""));
    assert_eq!(labels(&restored), [r#"arena:7 {"map":"ice"} 300"#; 3]);

    let recording = std::mem::take(recorder.written());
    let mut replay = replay(&recording, |_| Box::new(Label)).expect("a recording");
    assert_eq!(replay.finish(), Ok(1));
    assert_eq!(labels(replay.room()), labels(&room));
}

#[test]
fn a_room_without_a_channel_has_its_seed() {
    let room = Room::new(RoomOptions::default(), 9, Box::new(Label)).expect("a map");
    assert_eq!(room.world().info(), &RoomInfo { seed: 9, ..RoomInfo::default() });
    let mut saved = Vec::new();
    room.save(&mut saved);
    assert_eq!(Room::saved_params(&saved), None);
    assert_eq!(Room::saved_params(&[]), None);
}
