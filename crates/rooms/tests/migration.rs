//! Rooms that continue with another version of their game, with other parameters or on another map.

use dunlin_protocol::Encoding;
use dunlin_rooms::{
    GridShape, InputError, Migrated, Migration, MigrationError, NotMigrated, ObjectId, OldRoom, PlayerId, Position,
    Refusal, RestoreError, Room, RoomOptions, Schema, Simulation, StateReader, Visibility, Visitor, World, state,
};

mod first {
    dunlin_rooms::state! {
        /// A runner of version 1.
        #[derive(Debug, PartialEq)]
        pub struct Runner: 1 {
            pub points: u8,
            pub lives: u8,
        }
    }
}

state! {
    /// Points are wider, and the level is new.
    #[derive(Debug, PartialEq)]
    struct Wide: 1 {
        level: u8,
        points: u32,
        lives: u8,
    }
}

state! {
    /// Points have another name, so only the game knows what they are.
    #[derive(Debug, PartialEq)]
    struct Renamed: 1 {
        score: u16,
        lives: u8,
    }
}

state! {
    /// The lives of an earlier build are gone.
    #[derive(Debug, PartialEq)]
    struct WithoutLives: 1 {
        points: u8,
    }
}

/// What a version of the game does with a room of another one.
#[derive(Clone, Copy, PartialEq)]
enum Migrates {
    Never,
    /// Counts in tenths of a second, where version 1 counted ticks.
    Count,
    /// The same, and gives runners their new fields.
    Runners,
    Refuses,
}

/// Each player has a runner. The game counts.
struct Runners {
    version: u32,
    columns: u16,
    schema: fn() -> Schema,
    migrates: Migrates,
    count: u32,
    /// What the migration has received.
    was: Option<(u32, String, u32)>,
}

impl Runners {
    fn of_version(version: u32, schema: fn() -> Schema, migrates: Migrates) -> Self {
        Self { version, columns: 8, schema, migrates, count: 0, was: None }
    }

    fn first() -> Self {
        Self::of_version(1, || Schema::new().with::<first::Runner>(), Migrates::Never)
    }
}

impl Simulation for Runners {
    fn grid(&self) -> GridShape {
        let columns = self.columns;
        GridShape { columns, rows: 8, cell_units: 64, near_cells: 1, far_cells: 0, far_interval_ticks: 1 }
    }

    fn schema(&self) -> Schema {
        (self.schema)()
    }

    /// The past is part of the state hash.
    fn rewind_ticks(&self) -> u8 {
        4
    }

    fn start(&mut self, _: &mut World) {}

    fn join(&mut self, world: &mut World, player: PlayerId, _: &Visitor<'_>, _: &[u8]) -> Result<(), Refusal> {
        let place = Position { x: 500, y: 100 };
        let runner = world.add(place, Visibility::Everyone, &first::Runner { points: 0, lives: 3 }).expect("space");
        world.set_avatar(player, Some(runner));
        world.set_viewpoint(player, place);
        Ok(())
    }

    fn leave(&mut self, _: &mut World, _: PlayerId) {}

    fn input(&mut self, world: &mut World, player: PlayerId, _: &[u8]) -> Result<(), InputError> {
        let runner = world.avatar_of(player).ok_or(InputError)?;
        world.update(runner, |runner: &mut first::Runner| runner.points += 1).map_err(|_| InputError)
    }

    fn tick(&mut self, _: &mut World) {
        self.count += 1;
    }

    fn save(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.count.to_le_bytes());
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), RestoreError> {
        self.count = u32::from_le_bytes(saved.try_into().map_err(|_| RestoreError)?);
        Ok(())
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn migrate(&mut self, world: &mut World, old: &OldRoom<'_>) -> Result<(), NotMigrated> {
        match self.migrates {
            Migrates::Never => return Err(NotMigrated::Unsupported),
            Migrates::Refuses => return Err(NotMigrated::Unusable("a round runs".into())),
            Migrates::Count | Migrates::Runners => {}
        }
        self.restore(old.saved)?;
        self.count = self.count * 10 / old.ticks_per_second;
        self.was = Some((old.version, old.params.to_owned(), old.ticks_per_second));
        if self.migrates == Migrates::Runners {
            let runners: Vec<ObjectId> = world.objects().map(|(id, _)| id).collect();
            for id in runners {
                let state = world.object(id).and_then(|object| StateReader::read::<first::Runner>(&object.state));
                let first::Runner { points, lives } = state.ok_or(RestoreError)?;
                world.set(id, &Renamed { score: points.into(), lives }).map_err(|_| RestoreError)?;
            }
        }
        let _ = world.emit(dunlin_rooms::Scope::All, r#"{"new":"rules"}"#);
        Ok(())
    }
}

/// A room of version 1 after 60 ticks, whose player has 7 points, and what is saved of it.
fn saved() -> (Room, PlayerId, Vec<u8>) {
    let mut room = Room::new(RoomOptions::default(), 1, Box::new(Runners::first())).expect("a map");
    let ann = room.join(&Visitor::of_user("ann"), Encoding::Json, b"").expect("there is room").player;
    for number in 1..=60 {
        if number <= 7 {
            assert!(room.input(ann, number, b""));
        }
        room.tick_without_update();
    }
    let mut saved = Vec::new();
    room.save(&mut saved);
    (room, ann, saved)
}

fn migrate(now: Runners, is_for_game: bool) -> Result<Migrated, MigrationError> {
    let (room, _, saved) = saved();
    let migration = Migration {
        version: room.game_version(),
        schema: room.schema(),
        ticks_per_second: 60,
        state_hash: room.state_hash(),
        old_params: "{}",
        params: r#"{"new":1}"#,
        is_for_game,
    };
    Room::migrate(RoomOptions { ticks_per_second: 30, ..RoomOptions::default() }, &saved, Box::new(now), &migration)
}

fn wide() -> Schema {
    Schema::new().with::<Wide>()
}

fn renamed() -> Schema {
    Schema::new().with::<Renamed>()
}

#[test]
fn a_game_takes_over_the_room_of_an_earlier_version() {
    let (before, ann, _) = saved();
    let mut migrated = migrate(Runners::of_version(2, wide, Migrates::Count), true).expect("it is taken over");
    assert_eq!((migrated.converted_states, migrated.is_by_game), (1, true));
    let world = migrated.room.world();
    assert_eq!((world.tick(), world.ticks_per_second()), (60, 30));
    assert_eq!(&*world.info().params, r#"{"new":1}"#);
    assert_eq!(world.avatar_of(ann), before.world().avatar_of(ann));
    let runner = world.avatar_of(ann).expect("the player is in the room");
    assert_eq!(world.get::<Wide>(runner), Some(Wide { level: 0, points: 7, lives: 3 }));
    // The player receives everything, and what the migration has said.
    let outcome = migrated.room.tick(1);
    assert_eq!(outcome.players.iter().map(|change| change.player).collect::<Vec<_>>(), [ann]);
    assert_eq!(outcome.scoped.len(), 1);
    // It goes on from its own checkpoint as any room.
    let mut saved = Vec::new();
    migrated.room.save(&mut saved);
    let again = Runners::of_version(2, wide, Migrates::Never);
    let again = Room::restore(migrated.room.options().clone(), &saved, Box::new(again)).expect("it is of this version");
    assert_eq!(again.state_hash(), migrated.room.state_hash());
}

#[test]
fn fields_alone_need_no_game() {
    // The same rules: `restore` is called.
    let migrated = migrate(Runners::of_version(1, wide, Migrates::Never), false).expect("it is converted");
    assert_eq!((migrated.converted_states, migrated.is_by_game), (1, false));
    let same = migrate(Runners::first(), false).expect("nothing has changed");
    assert_eq!((same.converted_states, same.is_by_game), (0, false));
    assert_eq!(same.room.state_hash(), saved().0.state_hash());
}

/// A build from before a field was added finds a checkpoint with it, after a rollback or on a node that is not updated yet.
#[test]
fn fields_that_a_build_does_not_know_keep_their_values() {
    let without = || Schema::new().with::<WithoutLives>();
    let error = migrate(Runners::of_version(1, without, Migrates::Never), false).expect_err("it would drop them");
    let difference = "kind 1 (Runner): the field `lives` is gone, and the game does not have a higher version";
    let MigrationError::States(found) = error else { panic!("{error:?}") };
    assert_eq!(found.to_string(), difference);
    // A lower version that takes rooms over, such as those with other parameters, does not drop them either.
    let error = migrate(Runners::of_version(0, without, Migrates::Count), true).expect_err("it would drop them");
    let MigrationError::StatesLeft(found) = error else { panic!("{error:?}") };
    assert_eq!(found.to_string(), difference);
    let migrated = migrate(Runners::of_version(2, without, Migrates::Count), true).expect("it has given them up");
    assert_eq!((migrated.converted_states, migrated.is_by_game), (1, true));
}

#[test]
fn states_that_only_the_game_knows_must_get_their_new_form() {
    let migrated = migrate(Runners::of_version(2, renamed, Migrates::Runners), true).expect("it is taken over");
    let world = migrated.room.world();
    let runner = world.avatar_of(saved().1).expect("the player is in the room");
    assert_eq!(world.get::<Renamed>(runner), Some(Renamed { score: 7, lives: 3 }));
    let left = migrate(Runners::of_version(2, renamed, Migrates::Count), true).expect_err("states are left");
    let MigrationError::StatesLeft(difference) = left else { panic!("{left:?}") };
    let name = "kind 1 (Runner): the field `points` is gone and `score` is new, which may be its new name";
    assert_eq!(difference.to_string(), name);
    // The same version, so that the states are the only reason.
    let states = migrate(Runners::of_version(1, renamed, Migrates::Never), false).expect_err("it has no migration");
    assert_eq!(states, MigrationError::States(difference));
}

#[test]
fn a_room_that_the_game_refuses_is_not_taken_over() {
    let error = |migrates| migrate(Runners::of_version(2, wide, migrates), true).expect_err("refused");
    assert_eq!(error(Migrates::Never), MigrationError::Game(NotMigrated::Unsupported));
    assert_eq!(error(Migrates::Refuses), MigrationError::Game(NotMigrated::Unusable("a round runs".into())));
}

#[test]
fn a_room_continues_on_another_map() {
    let small =
        |is_for_game| migrate(Runners { columns: 4, ..Runners::of_version(2, wide, Migrates::Count) }, is_for_game);
    assert_eq!(small(false).expect_err("the game does not know"), MigrationError::Unreadable);
    let migrated = small(true).expect("it is taken over");
    let world = migrated.room.world();
    let runner = world.avatar_of(saved().1).and_then(|runner| world.object(runner)).expect("the runner");
    assert_eq!(runner.position, Position { x: 255, y: 100 }, "at the edge");
    assert_eq!(world.near(runner.position, 1).count(), 1, "in the cell of its new place");
}

#[test]
fn a_state_that_is_not_the_saved_one_is_not_taken_over() {
    let (room, _, saved) = saved();
    let migration = Migration {
        version: 1,
        schema: room.schema(),
        ticks_per_second: 60,
        state_hash: room.state_hash() ^ 1,
        old_params: "",
        params: "",
        is_for_game: true,
    };
    let now = || Box::new(Runners::of_version(2, wide, Migrates::Count));
    let error = Room::migrate(RoomOptions::default(), &saved, now(), &migration).expect_err("another state");
    assert_eq!(error, MigrationError::OtherState { tick: 60, actual: room.state_hash() });
    for length in 0..saved.len() {
        let cut = Room::migrate(RoomOptions::default(), &saved[..length], now(), &migration);
        assert!(cut.is_err(), "{length}");
    }
}
