//! A client's copy of the visible part of a world, updated by snapshots.

mod json;
mod protobuf;
mod seen_objects;
mod staged;

use std::fmt;

use dunlin_protocol::Encoding;

use crate::{
    CellIndex, ClockRate, Grid, ObjectId, Position, Schema, State, StateReader, TickTime, ZONES, wire::zone_wait,
};
use seen_objects::SeenObjects;
use staged::{ChangesBase, Staged, StagedObject, StagedStates};

/// The limits of a replica.
#[derive(Clone, Copy, Debug)]
struct Limits {
    objects: usize,
    /// Total bytes of all objects' states.
    state_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { objects: 1_000_000, state_bytes: 256 << 20 }
    }
}

/// An object that a client sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenObject {
    /// The position, in units from the corner of the map.
    pub position: Position,
    /// The game's number for the kind of the object.
    pub kind: u16,
    /// The game's other data.
    pub state: Vec<u8>,
    /// The object's cell; `None` for an object that only this player receives.
    pub cell: Option<CellIndex>,
}

/// Why a snapshot cannot be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaError {
    /// The snapshot cannot be decoded.
    Malformed,
    /// The base of the snapshot is a tick that this client does not have.
    WrongBase,
    /// The snapshot contains a cell outside the map or the view.
    WrongCell,
    /// The snapshot would exceed the replica's limits.
    TooLarge,
}

/// A client's copy of the visible part of a world: at most 1,000,000 objects with 256 MiB of states.
#[derive(Debug, Default)]
pub struct Replica {
    tick: u32,
    time: TickTime,
    waited: u32,
    moved: bool,
    ack: u32,
    avatar: u32,
    view: CellIndex,
    grid: Option<Grid>,
    ticks_per_second: u32,
    schema: Schema,
    seen: SeenObjects,
    limits: Limits,
    /// Kept only to reuse its memory.
    staged: Staged,
}

impl Replica {
    /// Applies the `data` of a publication with offset 0. After an error, the replica is unchanged.
    ///
    /// # Errors
    /// [`ReplicaError`]
    pub fn apply(&mut self, encoding: Encoding, data: &[u8]) -> Result<(), ReplicaError> {
        let mut staged = std::mem::take(&mut self.staged);
        let outcome = staged.read(encoding, data, &self.schema).and_then(|()| self.check(&mut staged, data));
        let schema = staged.schema.take();
        let outcome = outcome.map(|grid| {
            self.schema = schema.unwrap_or_else(|| std::mem::take(&mut self.schema));
            self.take_in(&staged, grid, staged.states(data));
        });
        self.staged = staged;
        outcome
    }

    /// Validates a whole snapshot; returns its map.
    fn check(&self, staged: &mut Staged, data: &[u8]) -> Result<Grid, ReplicaError> {
        if staged.tick == 0 || staged.base > staged.tick {
            return Err(ReplicaError::Malformed);
        }
        if staged.base != 0 && staged.base != self.tick {
            return Err(ReplicaError::WrongBase);
        }
        let grid = match (staged.base, &self.grid, &staged.grid) {
            (0, _, Some(grid)) if grid.ticks_per_second != 0 => Grid::new(grid.shape).ok(),
            (0, ..) => None,
            (_, grid, _) => grid.clone(),
        };
        let grid = grid.ok_or(ReplicaError::Malformed)?;
        if staged.view as usize >= grid.len() {
            return Err(ReplicaError::WrongCell);
        }
        check_cells(staged, &grid)?;
        // Changes build on what is here, so a snapshot without a base has none.
        let nothing = SeenObjects::default();
        let seen = if staged.base == 0 { &nothing } else { &self.seen };
        let state_bytes_max = self.limits.state_bytes;
        staged.read_changes(data, &ChangesBase { seen, schema: &self.schema, grid: &grid, state_bytes_max })?;
        check_objects(staged, &grid)?;
        if self.would_be_too_large(staged) {
            return Err(ReplicaError::TooLarge);
        }
        Ok(grid)
    }

    /// Whether the snapshot exceeds the limits. Departures are not subtracted. All upserted objects are counted as new
    /// first; known ones are subtracted only if that exceeds a limit.
    fn would_be_too_large(&self, staged: &Staged) -> bool {
        let coming = || staged.own.iter().chain(&staged.upserts).chain(&staged.changed);
        let is_new = staged.base == 0;
        let (objects, state_bytes) = if is_new { (0, 0) } else { (self.seen.len(), self.seen.state_bytes()) };
        let coming_bytes: usize = coming().map(|object| object.state.len()).sum();
        let (mut objects, mut state_bytes) = (objects + coming().count(), state_bytes + coming_bytes);
        let is_too_large =
            |objects: usize, state_bytes: usize| objects > self.limits.objects || state_bytes > self.limits.state_bytes;
        if is_too_large(objects, state_bytes) && !is_new {
            for known in coming().filter_map(|object| self.seen.get(object.id)) {
                objects -= 1;
                state_bytes = state_bytes.saturating_sub(known.state.len());
            }
        }
        is_too_large(objects, state_bytes)
    }

    /// Applies a validated snapshot, which cannot fail.
    fn take_in(&mut self, staged: &Staged, grid: Grid, states: StagedStates<'_>) {
        let view = CellIndex(staged.view);
        if staged.base == 0 {
            self.seen.clear();
            self.ticks_per_second = staged.grid.map_or(0, |grid| grid.ticks_per_second);
        }
        if staged.has_own {
            self.seen.set_own(&staged.own, states);
        }
        if view != self.view {
            self.seen.keep_cells(|cell| grid.band(view, cell).is_some());
        }
        for cell in staged.cells.iter().filter(|cell| cell.is_full) {
            self.seen.empty_cell(CellIndex(cell.cell));
        }
        for parts in staged.cells() {
            for id in parts.departed {
                self.seen.depart(CellIndex(parts.cell.cell), *id);
            }
        }
        for parts in staged.cells() {
            let cell = CellIndex(parts.cell.cell);
            self.seen.upsert_all(cell, grid.corner(cell), parts.upserts, states);
            self.seen.upsert_all(cell, grid.corner(cell), parts.changed, states);
        }
        self.tick = staged.tick;
        self.time = TickTime { unix_us: staged.time_us, rate: staged.rate };
        self.waited = staged.waited;
        self.moved = staged.moved;
        self.ack = staged.ack;
        self.avatar = staged.avatar;
        self.view = view;
        self.grid = Some(grid);
    }

    /// The tick of the replica; 0 before the first snapshot.
    pub fn tick(&self) -> u32 {
        self.tick
    }

    /// The server's Unix time of that tick.
    pub fn time_us(&self) -> u64 {
        self.time.unix_us
    }

    /// The rate of the room's clock in the interval before that tick.
    pub fn rate(&self) -> ClockRate {
        self.time.rate
    }

    /// For each zone, by how many ticks before the base of the last snapshot its cells were sent last. All are 0 if no
    /// cells have waited for a bandwidth limit.
    pub fn waited_ticks(&self) -> [u32; ZONES] {
        std::array::from_fn(|zone| zone_wait(self.waited, zone))
    }

    /// Whether the room has moved to another node since the snapshot before.
    pub fn has_moved(&self) -> bool {
        self.moved
    }

    /// The number of the last input that the room has applied.
    pub fn ack(&self) -> u32 {
        self.ack
    }

    /// The player's own object.
    pub fn avatar(&self) -> Option<ObjectId> {
        (self.avatar != 0).then_some(ObjectId(self.avatar))
    }

    /// The map; `None` before the first snapshot that contains it.
    pub fn grid(&self) -> Option<&Grid> {
        self.grid.as_ref()
    }

    /// Ticks per second; 0 before the first snapshot.
    pub fn ticks_per_second(&self) -> u32 {
        self.ticks_per_second
    }

    /// What the states of the objects are made of; empty for a client that has not asked for it.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The state of a visible object; `None` if there is no such object of this kind.
    pub fn get<T: State>(&self, id: ObjectId) -> Option<T> {
        let seen = self.object(id).filter(|seen| seen.kind == T::KIND)?;
        StateReader::read(&seen.state)
    }

    /// The cell of the player's viewpoint.
    pub fn view(&self) -> CellIndex {
        self.view
    }

    /// A visible object.
    pub fn object(&self, id: ObjectId) -> Option<&SeenObject> {
        self.seen.get(id.0)
    }

    /// All visible objects, in no particular order.
    pub fn objects(&self) -> impl Iterator<Item = (ObjectId, &SeenObject)> {
        self.seen.iter()
    }

    /// The exclusive-or of [`crate::wire::object_hash`] over the objects in a cell, updated with every change.
    pub fn cell_hash(&self, cell: CellIndex) -> u64 {
        self.seen.cell_hash(cell)
    }
}

/// Checks that cells are in ascending order and visible. A cell may occur twice only as a full segment followed by its
/// changes.
fn check_cells(staged: &Staged, grid: &Grid) -> Result<(), ReplicaError> {
    let view = CellIndex(staged.view);
    if staged
        .cells
        .iter()
        .any(|cell| cell.cell as usize >= grid.len() || grid.band(view, CellIndex(cell.cell)).is_none())
    {
        return Err(ReplicaError::WrongCell);
    }
    let follows = |[one, next]: &[_; 2]| {
        let (one, next): (&staged::StagedCell, &staged::StagedCell) = (one, next);
        one.cell < next.cell || one.cell == next.cell && one.is_full && !next.is_full
    };
    if staged.cells.array_windows().all(follows) { Ok(()) } else { Err(ReplicaError::Malformed) }
}

/// Checks that objects have an id and are inside their cell.
fn check_objects(staged: &Staged, grid: &Grid) -> Result<(), ReplicaError> {
    let within = |objects: &[StagedObject], width, height| {
        objects.iter().all(|object| object.id != 0 && object.x < width && object.y < height)
    };
    let (width, height) = grid.size_units();
    let cell_units = grid.shape().cell_units;
    let is_right = within(&staged.own, width, height)
        && within(&staged.upserts, cell_units, cell_units)
        && within(&staged.changed, cell_units, cell_units)
        && staged.departed.iter().all(|id| *id != 0);
    if is_right { Ok(()) } else { Err(ReplicaError::Malformed) }
}

impl fmt::Display for ReplicaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "the snapshot is malformed",
            Self::WrongBase => "the snapshot builds on a tick that is not here",
            Self::WrongCell => "the snapshot is about a cell outside the view",
            Self::TooLarge => "the snapshot holds more than may be kept",
        })
    }
}

impl std::error::Error for ReplicaError {}

#[cfg(test)]
mod tests;
