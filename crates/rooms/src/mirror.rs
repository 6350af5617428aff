//! A shard's mirror of a room, which assembles the bodies of snapshots.

mod body_cache;
mod history;
mod merge;
mod weights;
mod zones;

use std::{ops::Range, rc::Rc, sync::Arc};

use dunlin_protocol::Encoding;

use crate::{
    Band, CellIndex, ClockRate, Grid, Schema, SnapshotFormat, TickUpdate,
    layers::Reaches,
    wire::{self, BodyHead},
};
use body_cache::{BodyCache, BodyKey};
use history::History;
use merge::{MergeKey, Merges, States};
use weights::Weights;
use zones::ZonePlan;

pub use zones::{ZONES, Zones};

/// Clients do not choose cells and bases, so an unseeded hash is safe.
type HashState = foldhash::fast::FixedState;

/// A larger buffer is freed instead of being kept for the next tick.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// The state of a client: the tick last written to its socket, and the view that it was written for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Base {
    /// The tick; 0 for none.
    pub tick: u32,
    /// The cell at the center of the player's view.
    pub view: CellIndex,
}

/// The part of a frame that is shared by all players with the same view and base.
#[derive(Debug, Default)]
pub struct SnapshotBody {
    /// The bytes on the wire after the player's header: the rest of `data`, then the mirror's tail for the encoding.
    pub bytes: Vec<u8>,
    /// The number of `bytes` that belong to `data`: all except the tail.
    pub data_bytes: usize,
    /// The tick of the world's state.
    pub tick: u32,
    /// The tick of the base; 0 if the body has the full state of the view.
    pub base_tick: u32,
    /// The client's cells of each zone are as of this tick or a later one.
    pub zone_ticks: [u32; ZONES],
    /// The zones that were due and were left out.
    pub is_postponed: [bool; ZONES],
    /// Bytes of the changes to each zone, without cells that have come into view, which do not wait; 0 if the client has no
    /// [`Zones`], or gets the full state.
    pub zone_bytes: [u32; ZONES],
}

/// Counters of a mirror.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MirrorCounters {
    /// Assembled bodies.
    pub assemblies: u64,
    /// Assembled bodies with the full state of the view.
    pub assemblies_full: u64,
    /// Assembled bodies with a base before the last tick.
    pub assemblies_catch_up: u64,
    /// Requested bodies.
    pub bodies: u64,
    /// Bytes of the assembled bodies.
    pub assembled_bytes: u64,
    /// How often a cell was looked at for the weights of a view's zones.
    pub weighed_cells: u64,
}

/// A shard's copy of a room's world.
#[derive(Debug)]
pub struct Mirror {
    grid: Grid,
    ticks_per_second: u32,
    schema: Arc<Schema>,
    reaches: Reaches,
    tails: [&'static [u8]; Encoding::ALL.len()],
    history: History,
    /// The tick of the last update since the keyframe that does not have a form, by [`SnapshotFormat::index`]; 0 if all
    /// have it.
    lacking_ticks: [u32; SnapshotFormat::ALL.len()],
    merges: Merges,
    bodies: BodyCache,
    weights: Weights,
    counters: MirrorCounters,
}

impl Mirror {
    /// A mirror of the world in `keyframe`. `tails`, by [`Encoding::index`], are the bytes after `data` on the wire:
    /// each body ends with the tail of its encoding.
    pub fn new(
        grid: Grid,
        ticks_per_second: u32,
        keyframe: Arc<TickUpdate>,
        tails: [&'static [u8]; Encoding::ALL.len()],
    ) -> Self {
        let (schema, reaches) = (Arc::clone(keyframe.schema()), keyframe.reaches());
        let lacking_ticks = lacking_since(&keyframe, [0; SnapshotFormat::ALL.len()]);
        let weights = Weights::new(&grid, &keyframe);
        Self {
            grid,
            ticks_per_second,
            schema,
            reaches,
            tails,
            weights,
            history: History::new(keyframe),
            lacking_ticks,
            merges: Merges::default(),
            bodies: BodyCache::default(),
            counters: MirrorCounters::default(),
        }
    }

    /// Ticks per second of the room.
    pub const fn ticks_per_second(&self) -> u32 {
        self.ticks_per_second
    }

    /// Ticks in a second of real time at the current rate of the room's clock; at least 1.
    pub fn ticks_per_real_second(&self) -> u32 {
        let thousandths = u64::from(self.ticks_per_second) * u64::from(self.rate().permille());
        u32::try_from(thousandths / 1_000).unwrap_or(u32::MAX).max(1)
    }

    /// What the states of the objects are made of.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Applies the next update, or another keyframe, which invalidates all bases before it.
    pub fn apply(&mut self, update: Arc<TickUpdate>) {
        if update.is_keyframe() {
            (self.schema, self.reaches) = (Arc::clone(update.schema()), update.reaches());
            self.lacking_ticks = [0; SnapshotFormat::ALL.len()];
        }
        self.lacking_ticks = lacking_since(&update, self.lacking_ticks);
        self.weights.apply(&self.grid, &update);
        self.history.apply(update);
        self.merges.clear();
        self.bodies.clear();
    }

    /// The tick of the world's state.
    pub fn tick(&self) -> u32 {
        self.history.latest().tick()
    }

    /// The Unix time of that tick.
    pub fn time_us(&self) -> u64 {
        self.history.latest().time_us()
    }

    /// The rate of the room's clock in the interval before that tick.
    pub fn rate(&self) -> ClockRate {
        self.history.latest().rate()
    }

    /// The body that brings a client with this base to the current tick, for this view. Equal requests share one body.
    /// `base` must be that of an earlier body of this room, and the encoding of `format` must be one of the keyframe and
    /// of all updates since. If the updates that the body needs do not have a typed form, it has whole states, which every
    /// client of the encoding reads.
    pub fn body(&mut self, format: impl Into<SnapshotFormat>, view: CellIndex, base: Base) -> Rc<SnapshotBody> {
        self.body_of_zones(format, view, base, None)
    }

    /// As [`Mirror::body`], for a client whose cells may wait. All later bodies of such a client must also be requested
    /// here.
    pub fn body_of_zones(
        &mut self,
        format: impl Into<SnapshotFormat>,
        view: CellIndex,
        base: Base,
        zones: Option<Zones>,
    ) -> Rc<SnapshotBody> {
        let format = self.written(format.into(), base);
        self.counters.bodies += 1;
        let base = self.usable(base);
        let zones = zones.filter(|_| base.is_some());
        let key = (format, view, base, zones);
        if let Some(body) = self.bodies.get(&key) {
            return body;
        }
        let mut shared = self.bodies.take();
        if let Some(body) = Rc::get_mut(&mut shared) {
            self.write_body(key, body);
            self.count(base, body.bytes.len());
        }
        self.bodies.put(key, &shared);
        shared
    }

    /// Whether a body for this base is smaller than the full state of the view.
    pub fn reaches(&self, base: Base) -> bool {
        self.usable(base).is_some()
    }

    /// For each zone, how many ticks a client's state of it is old; 0 if the zone is not due.
    pub(crate) fn due_ages(&self, known_ticks: [u32; ZONES]) -> [u32; ZONES] {
        zones::due_ages(self.grid.shape(), self.tick(), known_ticks)
    }

    /// For each zone of this view, the weight of the most important object in it.
    pub(crate) fn zone_weights(&mut self, view: CellIndex) -> [u8; ZONES] {
        self.weights.of_zones(&self.grid, view)
    }

    /// The counters.
    pub fn counters(&self) -> MirrorCounters {
        MirrorCounters { weighed_cells: self.weights.weighed_cells(), ..self.counters }
    }

    /// `format` if the mirror has it, and otherwise that of the same encoding with whole states. Updates from before the
    /// first player who asked for fields have whole states only, and so have those of another node in JSON, or of an earlier
    /// version.
    fn written(&self, format: SnapshotFormat, base: Base) -> SnapshotFormat {
        let lacking_tick = self.lacking_ticks[format.index()];
        let is_there = match format.in_room_with(&self.schema) {
            SnapshotFormat::Json | SnapshotFormat::Protobuf => false,
            // Full cells may be from any update since the keyframe.
            SnapshotFormat::TypedJson => lacking_tick == 0,
            // Full cells are those with whole states.
            SnapshotFormat::TypedProtobuf => lacking_tick <= base.tick,
        };
        if is_there { format } else { format.encoding().into() }
    }

    /// `None` for a base whose changes are no longer in the history.
    fn usable(&self, base: Base) -> Option<Base> {
        let is_usable = base.tick != 0 && base.tick <= self.tick() && self.history.reaches(base.tick);
        is_usable.then_some(base)
    }

    fn count(&mut self, base: Option<Base>, bytes: usize) {
        self.counters.assemblies += 1;
        self.counters.assembled_bytes += bytes as u64;
        match base {
            None => self.counters.assemblies_full += 1,
            Some(base) if self.history.after(base.tick).len() > 1 => self.counters.assemblies_catch_up += 1,
            Some(_) => {}
        }
    }

    fn write_body(&mut self, (format, view, base, zones): BodyKey, body: &mut SnapshotBody) {
        body.tick = self.tick();
        (body.zone_ticks, body.is_postponed, body.zone_bytes) = ([body.tick; ZONES], [false; ZONES], [0; ZONES]);
        body.base_tick = base.map_or(0, |base| base.tick);
        body.bytes.clear();
        let encoding = format.encoding();
        let shape = self.grid.shape();
        let plan = base.map(|base| match zones {
            None => ZonePlan::of_base(shape, body.tick, base),
            Some(zones) => ZonePlan::new(shape, body.tick, base, zones),
        });
        let head = BodyHead {
            tick: body.tick,
            base: body.base_tick,
            time_us: self.time_us(),
            grid: base.is_none().then_some((self.grid.shape(), self.ticks_per_second)),
            view,
            rate: self.rate(),
            waited: plan.as_ref().zip(base).map_or(0, |(plan, base)| plan.waited(shape, base, view)),
        };
        wire::write_body_head(encoding, &head, &mut body.bytes);
        match base.zip(plan) {
            None => self.write_everything(format, view, &mut body.bytes),
            Some((base, plan)) => {
                (body.zone_ticks, body.is_postponed) = (plan.ticks_after, plan.is_postponed);
                match zones {
                    None => self.write_changes(format, view, base, &plan, &mut body.bytes),
                    Some(_) => self.write_zones(format, view, base, &plan, body),
                }
            }
        }
        wire::write_body_end(encoding, &mut body.bytes);
        body.data_bytes = body.bytes.len();
        body.bytes.extend_from_slice(self.tails[encoding.index()]);
    }

    fn write_everything(&self, format: SnapshotFormat, view: CellIndex, out: &mut Vec<u8>) {
        for (cell, _, distance) in self.grid.visible_at(view) {
            self.history.write_new(format, cell, self.reaches.depth(distance), out);
        }
    }

    fn write_changes(
        &mut self,
        format: SnapshotFormat,
        view: CellIndex,
        base: Base,
        plan: &ZonePlan,
        out: &mut Vec<u8>,
    ) {
        let Self { grid, history, merges, schema, reaches, .. } = self;
        let states = States { schema, cell_units: grid.shape().cell_units };
        let mut steps = Steps::new(history, format, base.tick);
        for (cell, band, distance) in grid.visible_at(view) {
            let is_still = view == base.view;
            let band_before = if is_still { Some(band) } else { grid.band(base.view, cell) };
            let depth = reaches.depth(distance);
            let is_as_deep = is_still || reaches.is_empty() || reaches.depth(grid.distance(base.view, cell)) == depth;
            let key = |since, is_step| MergeKey { format, cell, since, depth, is_step };
            match band_before {
                None => {
                    steps.flush(out);
                    history.write_new(format, cell, depth, out);
                }
                // Neither does a far cell wait then: what the client has of it depends on nothing but the base's view.
                Some(_) if !is_as_deep => {
                    steps.flush(out);
                    history.write_known(format, cell, depth, out);
                }
                Some(_) if band == Band::Far && !plan.is_far_sent() => {}
                Some(Band::Near) if steps.is_one() => {
                    if let Some(place) = steps.cell(cell, depth, out) {
                        merges.write_step(history, states, (key(base.tick, true), place), out);
                    }
                }
                Some(before) => {
                    let since = if before == Band::Near { base.tick } else { plan.far_known_tick() };
                    steps.flush(out);
                    merges.write_or_full(history, states, key(since, false), out);
                }
            }
        }
        steps.flush(out);
    }

    /// As [`Mirror::write_changes`], for a client whose zones have ticks of their own.
    fn write_zones(
        &mut self,
        format: SnapshotFormat,
        view: CellIndex,
        base: Base,
        plan: &ZonePlan,
        body: &mut SnapshotBody,
    ) {
        let Self { grid, history, merges, schema, reaches, .. } = self;
        let states = States { schema, cell_units: grid.shape().cell_units };
        let SnapshotBody { bytes: out, zone_bytes, .. } = body;
        let mut steps = Steps::new(history, format, base.tick);
        for (cell, _, distance) in grid.visible_at(view) {
            let Some(zone) = zones::zone(grid, view, cell) else { continue };
            let is_still = view == base.view;
            let before = if is_still { Some(zone) } else { zones::zone(grid, base.view, cell) };
            let depth = reaches.depth(distance);
            let is_as_deep = is_still || reaches.is_empty() || reaches.depth(grid.distance(base.view, cell)) == depth;
            let key = |since, is_step| MergeKey { format, cell, since, depth, is_step };
            let bytes_before = out.len() + steps.waiting_bytes();
            let Some(before) = before else {
                steps.flush(out);
                history.write_new(format, cell, depth, out);
                continue;
            };
            if !is_as_deep {
                steps.flush(out);
                history.write_known(format, cell, depth, out);
                continue;
            }
            match plan.known_ticks[before] {
                _ if plan.leaves_out(before, zone) => {}
                // Then the zone was sent with the base, so its cells are as of the base, and not of a later tick.
                since if since == base.tick && steps.is_one() => {
                    if let Some(place) = steps.cell(cell, depth, out) {
                        merges.write_step(history, states, (key(since, true), place), out);
                    }
                }
                since => {
                    steps.flush(out);
                    merges.write_or_full(history, states, key(since, false), out);
                }
            }
            zone_bytes[zone] += (out.len() + steps.waiting_bytes() - bytes_before) as u32;
        }
        steps.flush(out);
    }
}

/// The ticks of the last updates that lack a form, after this one.
fn lacking_since(update: &TickUpdate, before: [u32; SnapshotFormat::ALL.len()]) -> [u32; SnapshotFormat::ALL.len()] {
    SnapshotFormat::ALL.map(|format| {
        // A keyframe may be of tick 0.
        if update.formats().contains(format) { before[format.index()] } else { update.tick().max(1) }
    })
}

/// Iterates over the update of a single tick, cell by cell in ascending order, for a client that is one tick behind.
/// Adjacent segments are copied together.
struct Steps<'a> {
    update: Option<&'a TickUpdate>,
    format: SnapshotFormat,
    /// The first cell that has not been passed yet.
    place: usize,
    /// The segments that have not been copied yet.
    run: Range<usize>,
}

impl<'a> Steps<'a> {
    fn new(history: &'a History, format: SnapshotFormat, base: u32) -> Self {
        let mut updates = history.after(base);
        let update = updates.next().filter(|_| updates.len() == 0);
        Self { update, format, place: 0, run: 0..0 }
    }

    /// Whether the client is one tick behind.
    fn is_one(&self) -> bool {
        self.update.is_some()
    }

    /// Bytes of the segments that have not been copied yet.
    fn waiting_bytes(&self) -> usize {
        self.run.len()
    }

    /// Returns the index of the cell in the update if its segment has layers beyond `depth`: it has to be written without them.
    fn cell(&mut self, cell: CellIndex, depth: u8, out: &mut Vec<u8>) -> Option<usize> {
        let update = self.update?;
        let rest = update.cells().get(self.place..).unwrap_or_default();
        if rest.first().is_some_and(|changed| changed.cell < cell) {
            self.place += rest.partition_point(|changed| changed.cell < cell);
        }
        if let Some(changed) = update.cells().get(self.place).filter(|changed| changed.cell == cell) {
            if changed.layer_max >= depth {
                self.place += 1;
                self.flush(out);
                return Some(self.place - 1);
            }
            let segment = update.delta(self.format, self.place);
            if self.run.end == segment.start {
                self.run.end = segment.end;
            } else {
                self.flush(out);
                self.run = segment;
            }
            self.place += 1;
        }
        None
    }

    fn flush(&mut self, out: &mut Vec<u8>) {
        if let Some(update) = self.update.filter(|_| !self.run.is_empty()) {
            out.extend_from_slice(&update.deltas(self.format)[self.run.clone()]);
            self.run.start = self.run.end;
        }
    }
}

#[cfg(test)]
mod tests;
