//! A game that judges shots by the tick that its players saw, also after a restore.

use dunlin_protocol::Encoding;
use dunlin_rooms::{
    GridShape, InputError, NewObject, ObjectId, PlayerId, Position, Refusal, RestoreError, Room, RoomOptions, Scope,
    Scoped, Simulation, Visibility, Visitor, World,
};

const KEPT_TICKS: u8 = 4;
const STEP: u32 = 10;
const TARGET: ObjectId = ObjectId(1);

/// A target moves to the right. An input contains the tick that its player saw and the place of the shot.
struct Range {
    rewind_ticks: u8,
}

const RANGE: Range = Range { rewind_ticks: KEPT_TICKS };

impl Simulation for Range {
    fn grid(&self) -> GridShape {
        GridShape { columns: 8, rows: 1, cell_units: 64, near_cells: 8, far_cells: 0, far_interval_ticks: 1 }
    }

    fn rewind_ticks(&self) -> u8 {
        self.rewind_ticks
    }

    fn start(&mut self, world: &mut World) {
        let object = NewObject { position: Position::default(), kind: 1, visibility: Visibility::Everyone, state: b"" };
        assert_eq!(world.spawn(object), Ok(TARGET));
    }

    fn join(&mut self, _: &mut World, _: PlayerId, _: &Visitor<'_>, _: &[u8]) -> Result<(), Refusal> {
        Ok(())
    }

    fn leave(&mut self, _: &mut World, _: PlayerId) {}

    fn input(&mut self, world: &mut World, player: PlayerId, data: &[u8]) -> Result<(), InputError> {
        let &[seen_tick, x] = data else { return Err(InputError) };
        let rewound = world.rewind(seen_tick.into());
        let is_hit = rewound.near(Position { x: x.into(), y: 0 }, 2).any(|near| near.id == TARGET);
        let event = format!("[{},{is_hit}]", rewound.tick());
        world.emit(Scope::Player(player), &event).map_err(|_| InputError)
    }

    fn tick(&mut self, world: &mut World) {
        let position = Position { x: world.tick() * STEP, y: 0 };
        world.move_to(TARGET, position);
    }

    fn save(&self, _: &mut Vec<u8>) {}

    fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
        Ok(())
    }
}

/// Shoots, for each claimed tick, at the position that the target had after that tick. Returns the outcomes.
fn shots(room: &mut Room) -> Vec<String> {
    for seen_tick in 0..=20_u8 {
        assert!(room.input(PlayerId(1), u32::from(seen_tick) + 1, &[seen_tick, seen_tick * STEP as u8]));
    }
    let answers = room.tick(0).scoped.into_iter().map(|scoped| match scoped {
        Scoped::Event { data, .. } => String::from_utf8(data.to_vec()).expect("text"),
        Scoped::Publication { .. } => panic!("the game publishes nothing"),
    });
    answers.collect()
}

#[test]
fn a_shot_hits_where_the_player_saw_its_target() {
    let mut room = Room::new(RoomOptions::default(), 1, Box::new(RANGE)).expect("a map");
    room.join(&Visitor::of_user(""), Encoding::Json, b"").expect("there is room");
    (0..10).for_each(|_| drop(room.tick(0)));
    let mut saved = Vec::new();
    room.save(&mut saved);
    let mut restored = Room::restore(RoomOptions::default(), &saved, Box::new(RANGE)).expect("the state is valid");
    assert_eq!(restored.state_hash(), room.state_hash());

    let answers = shots(&mut room);
    // The room knows ticks 6 to 10: the four that it keeps, and the last complete one. It clamps other claims to them.
    let expected = (0..=20).map(|seen_tick: u32| {
        let judged = seen_tick.clamp(6, 10);
        format!(r#"{{"tick":11,"event":[{judged},{}]}}"#, judged == seen_tick)
    });
    assert_eq!(answers, expected.collect::<Vec<_>>());
    assert_eq!(shots(&mut restored), answers);
    assert_eq!(restored.state_hash(), room.state_hash());
}

#[test]
fn a_restored_room_keeps_its_number_of_past_ticks() {
    for (made_with, restored_with) in [(0, 4), (4, 0), (4, 2), (2, 200)] {
        let made = Range { rewind_ticks: made_with };
        let mut room = Room::new(RoomOptions::default(), 1, Box::new(made)).expect("a map");
        room.join(&Visitor::of_user(""), Encoding::Json, b"").expect("there is room");
        (0..10).for_each(|_| drop(room.tick(0)));
        let mut saved = Vec::new();
        room.save(&mut saved);
        let other = Range { rewind_ticks: restored_with };
        let mut restored = Room::restore(RoomOptions::default(), &saved, Box::new(other)).expect("the state is valid");
        assert_eq!(restored.state_hash(), room.state_hash(), "{made_with} ticks, then {restored_with}");
        assert_eq!(shots(&mut restored), shots(&mut room), "{made_with} ticks, then {restored_with}");
    }
}
