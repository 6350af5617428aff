//! A naive model of a world, and its updates for a mirror.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use dunlin_rooms::{
    CellIndex, ChangedView, FormatSet, Grid, ObjectBefore, ObjectId, ObjectView, Position, Schema, SnapshotFormat,
    State, StateWriter, TickUpdate, UpdateWriter, wire,
};

use crate::kinds::{Bag, Light, Walker};

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

fn walker(chance: &mut Chance) -> Vec<u8> {
    encoded(&Walker {
        heading: chance.next() as u8,
        score: chance.below(600) as i16 - 300,
        is_on: chance.below(2) == 0,
        light: match chance.below(3) {
            0 => Light::Red,
            1 => Light::Amber,
            _ => Light::Green,
        },
        target: [None, Some(ObjectId(chance.next() as u32 | 1))][chance.below(2) as usize],
        wide: chance.next() as u32,
        name: "äbcdef".chars().take(chance.below(6) as usize).collect(),
    })
}

fn bag(chance: &mut Chance) -> Vec<u8> {
    encoded(&Bag {
        label: "x".repeat(chance.below(4) as usize),
        pair: [chance.next() as i8, chance.next() as i8],
        amount: chance.below(2) as u16 * chance.below(9) as u16,
        items: (0..chance.below(4)).map(|_| 5 + chance.below(600) as u16).collect(),
    })
}

fn encoded<T: State>(state: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    assert_eq!(StateWriter::write(state, &mut bytes), 0);
    bytes
}

/// Some kinds are visible only near, in most worlds.
fn schema(chance: &mut Chance, ranges: &BTreeMap<u16, u32>) -> Arc<Schema> {
    let mut ranges: Vec<_> = ranges.iter().collect();
    // The order in which a game declares them does not matter.
    if chance.below(2) == 0 {
        ranges.reverse();
    }
    let schema = Schema::new().with::<Walker>();
    let schema = ranges.into_iter().fold(schema, |schema, (kind, units)| schema.with_visible_within(*kind, *units));
    Arc::new(schema.with::<Bag>())
}

fn ranges(chance: &mut Chance, grid: &Grid) -> BTreeMap<u16, u32> {
    let kinds = chance.below(4);
    (0..kinds).map(|_| (chance.below(4) as u16, 1 + chance.below(4 * grid.shape().cell_units))).collect()
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
        let position = Position { x: chance.below(width), y: chance.below(height) };
        let kind = chance.below(4) as u16;
        Self { position, kind, state: Self::any_state(kind, chance) }
    }

    /// A state; some do not have the form of their kind.
    fn any_state(kind: u16, chance: &mut Chance) -> Vec<u8> {
        match kind {
            1 if chance.below(12) > 0 => walker(chance),
            2 if chance.below(12) > 0 => bag(chance),
            _ => (0..chance.below(12)).map(|_| chance.next() as u8).collect(),
        }
    }

    /// Changes some of the bytes, or all.
    fn change(&mut self, chance: &mut Chance) {
        let new = Self::any_state(self.kind, chance);
        match chance.below(4) {
            // Not the form of a kind any more, but close to it.
            1 => self.state.push(0),
            // The heading and the low byte of the score of a walker.
            0 if self.kind == 1 && new.len() > 3 && self.state.len() > 3 => {
                self.state[0] = self.state[0].wrapping_add(chance.below(9) as u8);
                self.state[1] ^= chance.below(4) as u8;
            }
            _ => self.state = new,
        }
    }

    pub fn before(&self, corner: Position) -> ObjectBefore<'_> {
        ObjectBefore { x: self.position.x - corner.x, y: self.position.y - corner.y, state: &self.state }
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
    /// How far kinds are visible, in units.
    ranges: BTreeMap<u16, u32>,
    things: BTreeMap<u32, Thing>,
    last_id: u32,
    /// The world after each tick, by tick.
    past: Vec<Cells>,
    writer: UpdateWriter,
}

pub fn all_formats() -> FormatSet {
    SnapshotFormat::ALL.into_iter().fold(FormatSet::default(), FormatSet::with)
}

impl World {
    pub fn new(grid: Grid, chance: &mut Chance) -> Self {
        let ranges = ranges(chance, &grid);
        let writer = UpdateWriter::new(schema(chance, &ranges), grid.shape().cell_units);
        let things = BTreeMap::new();
        let mut world = Self { grid, tick: 0, ranges, things, last_id: 0, past: Vec::new(), writer };
        for _ in 0..chance.below(60) {
            world.spawn(chance);
        }
        world.past.push(world.cells());
        world
    }

    pub fn time_us(&self) -> u64 {
        1_700_000_000_000_000 + u64::from(self.tick) * 16_667
    }

    /// Whether a player sees the objects of a kind in a visible cell that is this far away.
    pub fn is_near(&self, kind: u16, distance: u16) -> bool {
        // Each cell begun counts.
        self.ranges.get(&kind).is_none_or(|units| u32::from(distance) <= units.div_ceil(self.grid.shape().cell_units))
    }

    /// What a player sees of a cell that is this far away.
    pub fn near_at(&self, tick: u32, cell: CellIndex, distance: u16) -> BTreeMap<u32, Thing> {
        let things = self.cell_at(tick, cell);
        things.into_iter().filter(|(_, thing)| self.is_near(thing.kind, distance)).collect()
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
                7 => thing.state = new.state,
                8 | 10..13 => thing.change(chance),
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
        self.writer.begin(self.tick, self.time_us(), all_formats(), false);
        let (before, now) = (&self.past[self.tick as usize - 1], &self.past[self.tick as usize]);
        for cell in before.keys().chain(now.keys()).copied().collect::<BTreeSet<_>>() {
            let (before, now) = (before.get(&cell).unwrap_or(&nothing), now.get(&cell).unwrap_or(&nothing));
            if before != now {
                let corner = self.grid.corner(cell);
                let changed = now.iter().filter(|(id, thing)| before.get(id) != Some(thing));
                let departed = before.keys().filter(|id| !now.contains_key(id));
                self.writer.cell(
                    cell,
                    changed.map(|(id, thing)| ChangedView {
                        now: thing.view(*id, corner),
                        before: before.get(id).map(|thing| thing.before(corner)),
                    }),
                    departed.map(|id| ObjectId(*id)),
                    now.iter().map(|(id, thing)| thing.view(*id, corner)),
                );
            }
        }
        Arc::new(self.writer.finish(&self.grid))
    }

    pub fn keyframe(&mut self) -> Arc<TickUpdate> {
        self.writer.begin(self.tick, self.time_us(), all_formats(), true);
        for (cell, things) in &self.past[self.tick as usize] {
            let corner = self.grid.corner(*cell);
            let full = things.iter().map(|(id, thing)| thing.view(*id, corner));
            self.writer.cell(*cell, std::iter::empty::<ObjectView<'_>>(), std::iter::empty(), full);
        }
        Arc::new(self.writer.finish(&self.grid))
    }
}
