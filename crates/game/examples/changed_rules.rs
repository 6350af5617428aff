//! A game in two versions, for tests of a server whose rules change under its rooms: `RULES` in the environment says which one
//! this process is. A game of your own has one version at a time; `docs/own-game.md` describes how to change it.
//!
//! In version 1, runners have points. In version 2 they have levels as well, and the game counts in tenths of a second
//! where it counted ticks.

use std::process::ExitCode;

use dunlin_game::{
    GridShape, InputError, NotMigrated, ObjectId, OldRoom, PlayerId, Position, Refusal, Registry, RestoreError, Schema,
    Scope, Simulation, Visibility, Visitor, World, state,
};

mod first {
    dunlin_game::state! {
        /// A runner of version 1.
        pub struct Runner: 1 {
            pub points: u8,
        }
    }
}

state! {
    /// A runner of version 2. Its state is converted: points are wider, and the level is 0.
    struct Runner: 1 {
        points: u32,
        level: u8,
    }
}

/// Which version of the game this process runs.
#[derive(Clone, Copy, PartialEq)]
enum Rules {
    First,
    Second,
    SecondWithoutMigration,
    SecondThatPanics,
}

struct Runners {
    rules: Rules,
    count: u32,
}

impl Simulation for Runners {
    fn grid(&self) -> GridShape {
        GridShape { columns: 1, rows: 1, cell_units: 1_024, near_cells: 0, far_cells: 0, far_interval_ticks: 1 }
    }

    fn schema(&self) -> Schema {
        if self.rules == Rules::First { Schema::new().with::<first::Runner>() } else { Schema::new().with::<Runner>() }
    }

    fn start(&mut self, _: &mut World) {}

    fn join(&mut self, world: &mut World, player: PlayerId, _: &Visitor<'_>, _: &[u8]) -> Result<(), Refusal> {
        let (place, everyone) = (Position { x: 512, y: 512 }, Visibility::Everyone);
        let full = |_| Refusal { code: 409, message: "the field is full".into() };
        let runner = match self.rules {
            Rules::First => world.add(place, everyone, &first::Runner { points: 7 }),
            _ => world.add(place, everyone, &Runner { points: 0, level: 1 }),
        };
        world.set_avatar(player, Some(runner.map_err(full)?));
        Ok(())
    }

    fn leave(&mut self, world: &mut World, player: PlayerId) {
        let _ = (world, player);
    }

    fn input(&mut self, _: &mut World, _: PlayerId, _: &[u8]) -> Result<(), InputError> {
        Ok(())
    }

    fn tick(&mut self, world: &mut World) {
        self.count += 1;
        if world.tick().is_multiple_of(10) {
            let runners: Vec<u32> = match self.rules {
                Rules::First => vec![],
                _ => ids(world).filter_map(|id| world.get::<Runner>(id)).map(|runner| runner.points).collect(),
            };
            let version = self.version();
            let event = format!(r#"{{"version":{version},"count":{},"points":{runners:?}}}"#, self.count);
            let _ = world.emit(Scope::All, &event);
        }
    }

    fn save(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.count.to_le_bytes());
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), RestoreError> {
        self.count = u32::from_le_bytes(saved.try_into().map_err(|_| RestoreError)?);
        Ok(())
    }

    fn version(&self) -> u32 {
        if self.rules == Rules::First { 1 } else { 2 }
    }

    fn migrate(&mut self, world: &mut World, old: &OldRoom<'_>) -> Result<(), NotMigrated> {
        match self.rules {
            Rules::Second if old.version == 1 => {}
            Rules::SecondThatPanics => panic!("the migration is wrong"),
            _ => return Err(NotMigrated::Unsupported),
        }
        self.restore(old.saved)?;
        self.count = self.count * 10 / old.ticks_per_second;
        let runners: Vec<ObjectId> = ids(world).collect();
        for id in runners {
            let _ = world.update(id, |runner: &mut Runner| runner.level = 1);
        }
        Ok(())
    }
}

/// The runners. There are no other objects.
fn ids(world: &World) -> impl Iterator<Item = ObjectId> {
    world.objects().map(|(id, _)| id)
}

fn main() -> ExitCode {
    dunlin_game::run(Registry::built_in().with("runners", |_| {
        let rules = match std::env::var("RULES").as_deref() {
            Ok("2") => Rules::Second,
            Ok("2-without-migration") => Rules::SecondWithoutMigration,
            Ok("2-panics") => Rules::SecondThatPanics,
            _ => Rules::First,
        };
        Ok(Box::new(Runners { rules, count: 0 }))
    }))
}
