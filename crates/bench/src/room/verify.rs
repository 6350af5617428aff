//! Compares the players' observations with the world, which is reconstructed from a recording.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use dunlin_games::Registry;
use dunlin_rooms::recording::{Header, Replay, replay};
use dunlin_rooms::wire::object_hash;
use dunlin_rooms::{Band, CellIndex, Grid, Room, Simulation, Visibility};
use serde::Serialize;

use super::observation::Observation;
use crate::error::Error;
use crate::report::{Line, grouped, ratio};

/// The result of a verification.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Verified {
    /// Number of replayed rooms.
    pub rooms: u64,
    /// Number of replayed ticks.
    pub ticks: u64,
    /// Snapshots whose near objects were compared with the world.
    pub snapshots: u64,
    /// Snapshots that differed from the world.
    pub mismatches: u64,
    /// Average number of views per observed tick.
    pub views_per_tick: f64,
    /// Snapshots of ticks that are not in the recording.
    pub unknown_ticks: u64,
    /// The first snapshot that differed from the world.
    pub first_mismatch: Option<String>,
    /// Errors of a recording itself, such as the first tick whose replay differs.
    pub recording_faults: Vec<String>,
}

/// The observations of a room's players, by tick.
pub type ByTick = BTreeMap<u32, Vec<(Observation, u32)>>;

impl Verified {
    /// Whether every snapshot was correct, and at least one was compared.
    pub fn is_good(&self) -> bool {
        self.snapshots > 0 && self.mismatches == 0 && self.unknown_ticks == 0 && self.recording_faults.is_empty()
    }

    pub fn line(&self) -> Line {
        let mut text = format!(
            "{} snapshots held against {} ticks of the replayed world: {} differ",
            grouped(self.snapshots as f64),
            grouped(self.ticks as f64),
            self.mismatches,
        );
        // Writing to a String cannot fail.
        if self.unknown_ticks > 0 {
            let _ = write!(text, ", {} are of ticks that were not recorded", self.unknown_ticks);
        }
        if let Some(first) = &self.first_mismatch {
            let _ = write!(text, "; the first: {first}");
        }
        for fault in &self.recording_faults {
            let _ = write!(text, "; {fault}");
        }
        Line::new("verified", text)
    }

    /// Replays the recording of a room, and compares.
    pub fn check(&mut self, recording: &[u8], seen: &ByTick) {
        let views = seen
            .values()
            .map(|observations| observations.iter().map(|(seen, _)| seen.view).collect::<BTreeSet<_>>().len());
        self.views_per_tick = ratio(views.sum::<usize>() as f64, seen.len() as f64);
        match begin(recording) {
            Ok(mut replay) => self.walk(&mut replay, seen),
            Err(fault) => self.recording_faults.push(fault),
        }
    }

    fn walk(&mut self, replay: &mut Replay<'_>, seen: &ByTick) {
        self.rooms += 1;
        let mut last = 0;
        while let Some(result) = replay.next_tick() {
            match result {
                Ok(tick) => {
                    self.ticks += 1;
                    last = tick;
                    if let Some(observations) = seen.get(&tick) {
                        self.compare(replay.room(), observations);
                    }
                }
                Err(fault) => {
                    self.recording_faults.push(fault.to_string());
                    break;
                }
            }
        }
        let unknown = seen.range(last + 1..).flat_map(|(_, observations)| observations);
        self.unknown_ticks += unknown.map(|(_, times)| u64::from(*times)).sum::<u64>();
    }

    fn compare(&mut self, room: &Room, observations: &[(Observation, u32)]) {
        let grid = room.grid();
        let cells = cell_hashes(room);
        let mut views: HashMap<u32, u64> = HashMap::new();
        for (seen, times) in observations {
            let truth = *views.entry(seen.view).or_insert_with(|| near_hash(grid, seen.view, &cells));
            self.snapshots += u64::from(*times);
            if truth != seen.hash {
                self.mismatches += u64::from(*times);
                let Observation { room, tick, view, hash } = seen;
                self.first_mismatch.get_or_insert_with(|| {
                    format!("room {room}, tick {tick}, seen from cell {view}: hash {hash:016x}, should be {truth:016x}")
                });
            }
        }
    }
}

/// Begins to replay with the simulations that ship with Dunlin.
pub fn begin(recording: &[u8]) -> Result<Replay<'_>, String> {
    let header = Header::read(recording).map_err(|error| error.to_string())?;
    let simulation = simulation(&header)?;
    replay(recording, |_| simulation).map_err(|error| error.to_string())
}

fn simulation(header: &Header) -> Result<Box<dyn Simulation>, String> {
    let params = serde_json::from_str(&header.params).map_err(|error| format!("parameters: {error}"))?;
    match Registry::built_in().make(&header.simulation, &params) {
        Some(made) => made.map_err(|error| error.to_string()),
        None => Err(format!("there is no simulation {}", header.simulation)),
    }
}

/// For each non-empty cell, the exclusive-or of the hashes of the objects that all players receive.
fn cell_hashes(room: &Room) -> HashMap<CellIndex, u64> {
    let mut cells = HashMap::new();
    for (id, object) in room.world().objects() {
        if object.visibility == Visibility::Everyone {
            let hash = object_hash(id, object.kind, object.position, &object.state);
            *cells.entry(room.grid().cell_of(object.position)).or_default() ^= hash;
        }
    }
    cells
}

fn near_hash(grid: &Grid, view: u32, cells: &HashMap<CellIndex, u64>) -> u64 {
    // A view outside the map is invalid.
    if view as usize >= grid.len() {
        return u64::MAX;
    }
    let near = grid.visible(CellIndex(view)).filter(|(_, band)| *band == Band::Near);
    near.fold(0, |hash, (cell, _)| hash ^ cells.get(&cell).copied().unwrap_or(0))
}

/// The observations by room.
pub fn by_room(observations: Vec<(Observation, u32)>) -> BTreeMap<u32, ByTick> {
    let mut rooms: BTreeMap<u32, ByTick> = BTreeMap::new();
    for (observation, times) in observations {
        let ticks = rooms.entry(observation.room).or_default();
        ticks.entry(observation.tick).or_default().push((observation, times));
    }
    rooms
}

pub fn read_recording(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|source| {
        Error::os(format!("read the recording {}", path.display()), source, "check what the server logged")
    })
}

#[cfg(test)]
pub mod tests;
