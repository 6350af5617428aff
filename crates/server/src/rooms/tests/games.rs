//! Games for tests.

use std::{
    hint::black_box,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use dunlin_games::{BadParams, Registry};
use dunlin_rooms::{
    GridShape, InputError, NewObject, ObjectId, PlayerId, Position, Refusal, RestoreError, Scope, Simulation,
    Visibility, Visitor, World,
};

pub fn registry() -> Registry {
    Registry::default()
        .with("walk", |_| Ok(Box::<Walk>::default()))
        .with("rogue", |_| Ok(Box::<Rogue>::default()))
        .with("gated", |_| {
            GATE.wait_in_constructor();
            Ok(Box::<Gated>::default())
        })
        .with("endless", |_| {
            while ENDLESS_ON.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
            Ok(Box::<Rogue>::default())
        })
        .with("stillborn", |_| panic!("on purpose"))
        .with("broken", |_| Err(BadParams("`size` is missing".to_owned())))
}

/// Whether the endless constructor keeps looping.
pub static ENDLESS_ON: AtomicBool = AtomicBool::new(true);

/// Blocks a game's constructor and destructor until the test opens it.
pub struct Gate {
    pub is_shut: AtomicBool,
    pub constructors: AtomicU64,
    pub destructors: AtomicU64,
}

pub static GATE: Gate =
    Gate { is_shut: AtomicBool::new(true), constructors: AtomicU64::new(0), destructors: AtomicU64::new(0) };

impl Gate {
    fn wait_in_constructor(&self) {
        self.constructors.fetch_add(1, Ordering::AcqRel);
        self.wait();
    }

    fn wait(&self) {
        while self.is_shut.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A correct game, except that its constructor and its destructor block.
#[derive(Default)]
struct Gated(Rogue);

impl Simulation for Gated {
    fn grid(&self) -> GridShape {
        self.0.grid()
    }

    fn start(&mut self, _: &mut World) {}

    fn join(&mut self, _: &mut World, _: PlayerId, _: &Visitor<'_>, _: &[u8]) -> Result<(), Refusal> {
        Ok(())
    }

    fn leave(&mut self, _: &mut World, _: PlayerId) {}

    fn input(&mut self, _: &mut World, _: PlayerId, _: &[u8]) -> Result<(), InputError> {
        Ok(())
    }

    fn tick(&mut self, _: &mut World) {}

    fn save(&self, _: &mut Vec<u8>) {}

    fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
        Ok(())
    }
}

impl Drop for Gated {
    fn drop(&mut self) {
        GATE.destructors.fetch_add(1, Ordering::AcqRel);
        GATE.wait();
    }
}

/// Each player has an object and may move it.
#[derive(Default)]
pub struct Walk {
    avatars: Vec<(PlayerId, ObjectId)>,
}

impl Simulation for Walk {
    fn grid(&self) -> GridShape {
        GridShape { columns: 4, rows: 4, cell_units: 100, near_cells: 1, far_cells: 0, far_interval_ticks: 1 }
    }

    fn start(&mut self, world: &mut World) {
        for _ in 0..20 {
            let position = Position { x: world.random_below(400), y: world.random_below(400) };
            let object = NewObject { position, kind: 1, visibility: Visibility::Everyone, state: b"stone" };
            world.spawn(object).expect("there is room");
        }
    }

    fn join(&mut self, world: &mut World, player: PlayerId, visitor: &Visitor<'_>, _: &[u8]) -> Result<(), Refusal> {
        if visitor.user == "eve" {
            return Err(Refusal { code: 403, message: "not you".into() });
        }
        let position = Position { x: 10, y: 10 };
        let object = NewObject { position, kind: 2, visibility: Visibility::Everyone, state: b"" };
        let avatar = world.spawn(object).expect("there is room");
        world.set_avatar(player, Some(avatar));
        self.avatars.push((player, avatar));
        Ok(())
    }

    fn leave(&mut self, world: &mut World, player: PlayerId) {
        self.avatars.retain(|(other, avatar)| {
            if *other == player {
                world.despawn(*avatar);
            }
            *other != player
        });
    }

    fn input(&mut self, world: &mut World, player: PlayerId, data: &[u8]) -> Result<(), InputError> {
        let (_, avatar) = self.avatars.iter().find(|(other, _)| *other == player).ok_or(InputError)?;
        match data {
            b"right" => {
                let Position { x, y } = world.object(*avatar).ok_or(InputError)?.position;
                world.move_to(*avatar, Position { x: x + 1, y });
            }
            b"whisper" => world.emit(Scope::Player(player), r#"{"psst":true}"#).map_err(|_| InputError)?,
            b"publish" => world.publish("board", r#"{"top":[]}"#).map_err(|_| InputError)?,
            _ => return Err(InputError),
        }
        Ok(())
    }

    fn tick(&mut self, _: &mut World) {}

    fn save(&self, out: &mut Vec<u8>) {
        let numbers = self.avatars.iter().flat_map(|(player, avatar)| [player.0, avatar.0]);
        numbers.for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), RestoreError> {
        let (pairs, []) = saved.as_chunks::<8>() else { return Err(RestoreError) };
        let number = |bytes: &[u8]| bytes.try_into().map(u32::from_le_bytes).map_err(|_| RestoreError);
        for pair in pairs {
            self.avatars.push((PlayerId(number(&pair[..4])?), ObjectId(number(&pair[4..])?)));
        }
        Ok(())
    }
}

/// Whether a looping rogue keeps looping.
pub static LOOPS_ON: AtomicBool = AtomicBool::new(true);
/// Whether a spinning rogue keeps spinning.
pub static SPINS_ON: AtomicBool = AtomicBool::new(true);
/// The number of rogues that have begun to spin.
pub static SPINS_BEGUN: AtomicU64 = AtomicU64::new(0);
/// The number of rogues that were dropped after they had looped.
pub static DROPPED_AFTER_LOOP: AtomicU64 = AtomicU64::new(0);

/// A game that executes its inputs, including harmful ones.
#[derive(Default)]
struct Rogue {
    hoard: Vec<Vec<u8>>,
    grows: bool,
    swells: bool,
    dawdles: bool,
    is_spoilt: bool,
    has_looped: bool,
}

impl Simulation for Rogue {
    fn grid(&self) -> GridShape {
        GridShape { columns: 1, rows: 1, cell_units: 100, near_cells: 0, far_cells: 0, far_interval_ticks: 1 }
    }

    fn start(&mut self, _: &mut World) {}

    fn join(&mut self, _: &mut World, _: PlayerId, _: &Visitor<'_>, _: &[u8]) -> Result<(), Refusal> {
        Ok(())
    }

    fn leave(&mut self, _: &mut World, _: PlayerId) {}

    fn input(&mut self, _: &mut World, _: PlayerId, data: &[u8]) -> Result<(), InputError> {
        match data {
            b"panic" => panic!("on purpose"),
            b"loop" => {
                self.has_looped = true;
                while LOOPS_ON.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
            }
            b"spin" => {
                SPINS_BEGUN.fetch_add(1, Ordering::AcqRel);
                while SPINS_ON.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
            }
            b"hang" => loop {
                std::thread::park();
            },
            b"grow" => self.grows = true,
            b"keep" => self.hoard.push(vec![1; 1_000]),
            b"swell" => self.swells = true,
            b"dawdle" => self.dawdles = true,
            b"hurry" => self.dawdles = false,
            b"spoil" => self.is_spoilt = true,
            _ => return Err(InputError),
        }
        Ok(())
    }

    fn tick(&mut self, world: &mut World) {
        if self.grows {
            self.hoard.push(black_box(vec![1; 1 << 20]));
        }
        for _ in 0..if self.swells { 1_024 } else { 0 } {
            let position = Position { x: 10, y: 10 };
            let object = NewObject { position, kind: 1, visibility: Visibility::Nobody, state: &[1; 1_024] };
            world.spawn(object).expect("there is room");
        }
        let began = Instant::now();
        while self.dawdles && began.elapsed() < Duration::from_millis(8) {
            std::hint::spin_loop();
        }
    }

    fn save(&self, _: &mut Vec<u8>) {
        assert!(!self.is_spoilt, "on purpose");
    }

    fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        self.hoard.iter().map(Vec::capacity).sum()
    }
}

impl Drop for Rogue {
    fn drop(&mut self) {
        DROPPED_AFTER_LOOP.fetch_add(u64::from(self.has_looped), Ordering::AcqRel);
    }
}
