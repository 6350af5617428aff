//! A naive model of a world, and its updates for a mirror.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use dunlin_protocol::Encoding;
use dunlin_rooms::{CellIndex, EncodingSet, Grid, ObjectId, ObjectView, Position, TickUpdate, UpdateWriter, wire};

/// `SplitMix64`.
pub struct Chance(pub u64);

impl Chance {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let number = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ number >> 31
    }

    pub fn below(&mut self, bound: u32) -> u32 {
        (self.next() % u64::from(bound)) as u32
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thing {
    pub position: Position,
    pub kind: u16,
    pub state: Vec<u8>,
}

impl Thing {
    pub fn any(chance: &mut Chance, grid: &Grid) -> Self {
        let (width, height) = grid.size_units();
        Self {
            position: Position { x: chance.below(width), y: chance.below(height) },
            kind: chance.below(4) as u16,
            state: (0..chance.below(12)).map(|_| chance.next() as u8).collect(),
        }
    }

    pub fn view(&self, id: u32, corner: Position) -> ObjectView<'_> {
        ObjectView {
            id: ObjectId(id),
            kind: self.kind,
            x: self.position.x - corner.x,
            y: self.position.y - corner.y,
            state: &self.state,
        }
    }

    pub fn hash(&self, id: u32) -> u64 {
        wire::object_hash(ObjectId(id), self.kind, self.position, &self.state)
    }
}

type Cells = BTreeMap<CellIndex, BTreeMap<u32, Thing>>;

pub struct World {
    pub grid: Grid,
    pub tick: u32,
    things: BTreeMap<u32, Thing>,
    last_id: u32,
    /// The world after each tick, by tick.
    past: Vec<Cells>,
    writer: UpdateWriter,
}

pub fn both_encodings() -> EncodingSet {
    EncodingSet::default().with(Encoding::Json).with(Encoding::Protobuf)
}

impl World {
    pub fn new(grid: Grid, chance: &mut Chance) -> Self {
        let mut world = Self {
            grid,
            tick: 0,
            things: BTreeMap::new(),
            last_id: 0,
            past: Vec::new(),
            writer: UpdateWriter::default(),
        };
        for _ in 0..chance.below(60) {
            world.spawn(chance);
        }
        world.past.push(world.cells());
        world
    }

    pub fn time_us(&self) -> u64 {
        1_700_000_000_000_000 + u64::from(self.tick) * 16_667
    }

    pub fn cell_at(&self, tick: u32, cell: CellIndex) -> BTreeMap<u32, Thing> {
        self.past[tick as usize].get(&cell).cloned().unwrap_or_default()
    }

    fn spawn(&mut self, chance: &mut Chance) {
        self.last_id += 1 + chance.below(100);
        self.things.insert(self.last_id, Thing::any(chance, &self.grid));
    }

    fn cells(&self) -> Cells {
        let mut cells = Cells::new();
        for (id, thing) in &self.things {
            cells.entry(self.grid.cell_of(thing.position)).or_default().insert(*id, thing.clone());
        }
        cells
    }

    /// Advances the world by one tick of random changes.
    pub fn step(&mut self, chance: &mut Chance) -> Arc<TickUpdate> {
        for id in self.things.keys().copied().collect::<Vec<_>>() {
            let new = Thing::any(chance, &self.grid);
            let Some(thing) = self.things.get_mut(&id) else { continue };
            match chance.below(20) {
                0..6 => {
                    let step = self.grid.shape().cell_units / 3 + 1;
                    let Position { x, y } = thing.position;
                    let moved = Position {
                        x: (x + chance.below(2 * step)).saturating_sub(step),
                        y: (y + chance.below(2 * step)).saturating_sub(step),
                    };
                    thing.position = self.grid.clamp(moved);
                }
                6 => thing.position = new.position,
                7 | 8 => thing.state = new.state,
                9 if chance.below(8) == 0 => drop(self.things.remove(&id)),
                _ => {}
            }
        }
        (0..chance.below(3)).for_each(|_| self.spawn(chance));
        if chance.below(50) == 0 {
            self.things.clear();
        }
        self.tick += 1;
        self.past.push(self.cells());
        self.update()
    }

    fn update(&mut self) -> Arc<TickUpdate> {
        let nothing = BTreeMap::new();
        self.writer.begin(self.tick, self.time_us(), both_encodings(), false);
        let (before, now) = (&self.past[self.tick as usize - 1], &self.past[self.tick as usize]);
        for cell in before.keys().chain(now.keys()).copied().collect::<BTreeSet<_>>() {
            let (before, now) = (before.get(&cell).unwrap_or(&nothing), now.get(&cell).unwrap_or(&nothing));
            if before != now {
                let corner = self.grid.corner(cell);
                let changed = now.iter().filter(|(id, thing)| before.get(id) != Some(thing));
                let departed = before.keys().filter(|id| !now.contains_key(id));
                self.writer.cell(
                    cell,
                    changed.map(|(id, thing)| thing.view(*id, corner)),
                    departed.map(|id| ObjectId(*id)),
                    now.iter().map(|(id, thing)| thing.view(*id, corner)),
                );
            }
        }
        Arc::new(self.writer.finish(&self.grid))
    }

    pub fn keyframe(&mut self) -> Arc<TickUpdate> {
        self.writer.begin(self.tick, self.time_us(), both_encodings(), true);
        for (cell, things) in &self.past[self.tick as usize] {
            let corner = self.grid.corner(*cell);
            let full = things.iter().map(|(id, thing)| thing.view(*id, corner));
            self.writer.cell(*cell, std::iter::empty(), std::iter::empty(), full);
        }
        Arc::new(self.writer.finish(&self.grid))
    }
}
