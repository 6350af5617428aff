//! The objects of a world, and what has changed since the last tick.
//!
//! Every change *touches* its object. At the end of the tick the objects are *settled*: for each touched object, the
//! players who saw it before are compared with those who see it now. So the order of the changes within a tick does not
//! matter, and an object that was created and removed in the same tick is never reported.

use std::sync::Arc;

use super::{
    NewObject, Object, ObjectId, Player, PlayerId, Players, Visibility, WorldError,
    cells::Cells,
    past::Past,
    slots::{Shown, Slot, Slots},
};
use crate::{
    CellIndex, ChangedView, Grid, Kind, ObjectBefore, ObjectView, Position, RoomOptions, Schema, SchemaDifference,
    UpdateWriter,
    binary::{Reader, Unreadable, put_bytes, put_number, put_position},
    hash::Hasher,
    schema::{KindChange, StateChange},
    tick_update::{DepartedObject, StillObject},
};

/// The objects of a world on its map. [`World`](super::World) describes the methods that a game calls.
#[derive(Debug)]
pub(crate) struct Objects {
    grid: Grid,
    objects_max: usize,
    state_bytes_max: usize,
    schema: Arc<Schema>,
    /// Whether the states before this round are kept, for clients that receive changed fields.
    keeps_states: bool,
    slots: Slots,
    pub(super) cells: Cells,
    /// Counts the updates. Objects touched in a round are processed when the round is settled.
    round: u64,
    /// Slots touched in this round; some may be free again.
    touched: Vec<u32>,
    /// The exclusive-or of the objects' contributions to the state hash, as of the last settlement.
    settled_hash: u64,
    pub(super) past: Past,
}

impl Objects {
    pub(super) fn new(grid: Grid, options: &RoomOptions) -> Self {
        Self {
            cells: Cells::new(grid.len()),
            grid,
            objects_max: options.objects_max,
            state_bytes_max: options.state_bytes_max,
            schema: Arc::default(),
            keeps_states: false,
            slots: Slots::new(),
            round: 1,
            touched: Vec::new(),
            settled_hash: 0,
            past: Past::default(),
        }
    }

    pub(super) fn grid(&self) -> &Grid {
        &self.grid
    }

    pub(super) fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Sets the schema, before there are objects.
    pub(super) fn set_schema(&mut self, schema: Arc<Schema>) {
        self.schema = schema;
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn spawn(&mut self, object: NewObject<'_>) -> Result<ObjectId, WorldError> {
        if self.slots.len() >= self.objects_max {
            return Err(WorldError::TooManyObjects);
        }
        if object.state.len() > self.state_bytes_max {
            return Err(WorldError::StateTooLong);
        }
        let position = self.grid.clamp(object.position);
        let cell = self.grid.cell_of(position);
        let slot = self.slots.make(NewObject { position, ..object }, cell).ok_or(WorldError::TooManyObjects)?;
        self.slots.at_mut(slot).place = self.cells.add(cell, slot);
        self.touch(slot);
        let id = self.slots.at(slot).id;
        self.past.remember(id, None);
        Ok(id)
    }

    pub(super) fn despawn(&mut self, id: ObjectId, players: &mut Players) -> bool {
        let Some(slot) = self.slots.find(id) else { return false };
        self.past.remember(id, Some(self.slots.at(slot).object.position));
        self.unlink(slot);
        self.unshow(slot, players);
        self.slots.release(slot);
        true
    }

    pub(super) fn get(&self, id: ObjectId) -> Option<&Object> {
        self.slots.find(id).map(|slot| &self.slots.at(slot).object)
    }

    pub(super) fn move_to(&mut self, id: ObjectId, position: Position) {
        let Some(slot) = self.slots.find(id) else { return };
        let position = self.grid.clamp(position);
        let Slot { object, cell, .. } = self.slots.at_mut(slot);
        if object.position == position {
            return;
        }
        self.past.remember(id, Some(object.position));
        let (from, to) = (*cell, self.grid.cell_of(position));
        self.touch(slot);
        self.slots.at_mut(slot).object.position = position;
        if from != to {
            self.unlink(slot);
            let place = self.cells.add(to, slot);
            let moved = self.slots.at_mut(slot);
            (moved.cell, moved.place) = (to, place);
        }
    }

    pub(super) fn set_state(&mut self, id: ObjectId, state: &[u8]) -> Result<(), WorldError> {
        let slot = self.slots.find(id).ok_or(WorldError::NoSuchObject)?;
        self.set_state_at(slot, state)
    }

    /// The slot of an object of this kind.
    pub(super) fn find_of_kind(&self, id: ObjectId, kind: u16) -> Result<u32, WorldError> {
        let slot = self.slots.find(id).ok_or(WorldError::NoSuchObject)?;
        if self.slots.at(slot).object.kind == kind { Ok(slot) } else { Err(WorldError::WrongState) }
    }

    /// The object in a slot.
    pub(super) fn at(&self, slot: u32) -> &Object {
        &self.slots.at(slot).object
    }

    pub(super) fn set_state_at(&mut self, slot: u32, state: &[u8]) -> Result<(), WorldError> {
        if state.len() > self.state_bytes_max {
            return Err(WorldError::StateTooLong);
        }
        if self.slots.at(slot).object.state != state {
            self.touch(slot);
            if self.keeps_states {
                self.slots.put_state_and_keep(slot, state);
            } else {
                self.slots.put_state(slot, state);
            }
        }
        Ok(())
    }

    pub(super) fn set_visibility(&mut self, id: ObjectId, visibility: Visibility) {
        let Some(slot) = self.slots.find(id) else { return };
        if self.slots.at(slot).object.visibility != visibility {
            self.touch(slot);
            self.slots.at_mut(slot).object.visibility = visibility;
        }
    }

    pub(super) fn in_cell(&self, cell: CellIndex) -> impl Iterator<Item = (ObjectId, &Object)> {
        self.cells.slots(cell).iter().map(|&slot| {
            let slot = self.slots.at(slot);
            (slot.id, &slot.object)
        })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ObjectId, &Object)> {
        self.slots.live().map(|(_, slot)| (slot.id, &slot.object))
    }

    pub(super) fn cell_hash(&self, cell: CellIndex) -> u64 {
        self.cells.hash(cell)
    }

    pub(super) fn keep_past(&mut self, ticks_max: u8) {
        self.past.keep(ticks_max);
    }

    /// Records that an object changes. Called before its first change in a round.
    pub(super) fn touch(&mut self, slot: u32) {
        let round = self.round;
        let place = self.slots.at_mut(slot);
        if place.round != round {
            place.round = round;
            place.before.position = place.object.position;
            self.touched.push(slot);
        }
    }

    /// Determines the changes of a tick.
    pub(super) fn settle(&mut self, tick: u32, players: &mut Players) {
        let touched = std::mem::take(&mut self.touched);
        for &slot in &touched {
            if self.slots.at(slot).is_live() {
                self.settle_object(slot, players);
            }
        }
        self.touched = touched;
        self.cells.sort();
        self.past.settle(tick, &self.slots);
    }

    /// Writes every changed cell to `writer`.
    pub(super) fn write_changes(&self, writer: &mut UpdateWriter) {
        for &cell in self.cells.dirty() {
            let changed = self.changed_in(cell);
            let departed = self.cells.departed(cell).iter();
            let departed = departed.map(|&(_, id, kind)| DepartedObject { id, kind: Some(kind) });
            let still = self.shown_in(cell).filter(|slot| slot.round != self.round);
            let still = still.map(|slot| StillObject { touched: slot.round, view: self.view_in_cell(cell, slot) });
            let changed = changed.map(|slot| ChangedView {
                now: self.view_in_cell(cell, slot),
                before: self.before_in_cell(cell, slot),
            });
            writer.changed_cell(self.round, cell, changed, departed, &still);
        }
    }

    /// Writes every cell that is not empty to `writer`.
    pub(super) fn write_all(&self, writer: &mut UpdateWriter) {
        for (cell, _) in self.cells.occupied() {
            let full = self.shown_in(cell).map(|slot| self.view_in_cell(cell, slot));
            if self.shown_in(cell).next().is_some() {
                writer.cell(cell, std::iter::empty::<ChangedView<'_>>(), std::iter::empty(), full);
            }
        }
    }

    /// A player's own objects, in the order of their numbers.
    pub(super) fn own_of<'a>(&'a self, player: &'a Player) -> impl Iterator<Item = ObjectView<'a>> {
        player.own.values().map(|&slot| {
            let slot = self.slots.at(slot);
            let Object { position, kind, ref state, .. } = slot.object;
            ObjectView { id: slot.id, kind, x: position.x, y: position.y, state }
        })
    }

    /// Clears the changes after they were encoded. Later changes belong to the next tick. `keeps_states`: whether the next
    /// update may say which fields have changed since this one.
    pub(super) fn forget_changes(&mut self, keeps_states: bool) {
        if self.keeps_states && !keeps_states {
            self.slots.drop_states_before();
        }
        self.keeps_states = keeps_states;
        self.touched.clear();
        self.cells.forget_changes();
        self.round += 1;
    }

    /// Adds everything but the past to a hash.
    pub(super) fn hash(&self, hasher: Hasher) -> Hasher {
        let unsettled = self.touched.iter().fold(0, |hash, &index| {
            let slot = self.slots.at(index);
            hash ^ if slot.is_live() { slot.state_hash ^ slot.hash_state(index, slot.hash_object()) } else { 0 }
        });
        hasher
            .number(self.settled_hash ^ unsettled)
            .number(self.cells.order_hash())
            .number(self.slots.free_hash())
            .number(self.slots.slots.len() as u64)
            .number(u64::from(self.slots.last_id))
    }

    /// Approximate memory in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.slots.memory_bytes()
            + self.cells.memory_bytes()
            + self.past.memory_bytes()
            + self.touched.capacity() * size_of::<u32>()
    }

    /// Appends all but the past, in the form that [`Objects::restore`] reads.
    pub(super) fn save(&self, out: &mut Vec<u8>) {
        put_number(u64::from(self.slots.last_id), out);
        put_number(self.slots.slots.len() as u64, out);
        for slot in &self.slots.slots {
            save_slot(slot, out);
        }
        save_list(&self.slots.free, out);
        put_number(self.cells.occupied().count() as u64, out);
        for (cell, slots) in self.cells.occupied() {
            put_number(u64::from(cell.0), out);
            save_list(slots, out);
        }
    }

    /// Restores what [`Objects::save`] wrote. There are no objects yet. `is_of_other_map`: objects outside of the map move
    /// to its edge, and are in other cells than before.
    pub(super) fn restore(&mut self, saved: &mut Reader<'_>, is_of_other_map: bool) -> Result<(), Unreadable> {
        self.slots.last_id = saved.number_of()?;
        let slot_count = saved.count()?;
        if slot_count > self.objects_max {
            return Err(Unreadable::Wrong);
        }
        for index in 0..slot_count as u32 {
            self.slots.slots.push(Slot::free());
            let id = ObjectId(saved.number_of()?);
            if id.0 == 0 {
                continue;
            }
            let (kind, visibility) = (saved.number_of()?, restore_visibility(saved)?);
            let (was_at, state) = (saved.position()?, saved.bytes()?);
            let position = self.grid.clamp(was_at);
            let is_possible = id.0 <= self.slots.last_id
                && (position == was_at || is_of_other_map)
                && state.len() <= self.state_bytes_max;
            let object = NewObject { position, kind, visibility, state };
            if !is_possible || !self.slots.put_back(index, id, object, self.grid.cell_of(position)) {
                return Err(Unreadable::Wrong);
            }
            self.touch(index);
        }
        // Each free slot must be in the free list exactly once, and each other slot in the list of its cell.
        let mut is_listed = vec![false; slot_count];
        for _ in 0..saved.count()? {
            let slot = list_once(saved, &mut is_listed)?;
            if self.slots.at(slot).is_live() {
                return Err(Unreadable::Wrong);
            }
            self.slots.release(slot);
        }
        for _ in 0..saved.count()? {
            let cell = CellIndex(saved.number_of()?);
            for _ in 0..saved.count()? {
                let slot = list_once(saved, &mut is_listed)?;
                let own_cell = self.slots.at(slot).cell;
                if !self.slots.at(slot).is_live() || (own_cell != cell && !is_of_other_map) {
                    return Err(Unreadable::Wrong);
                }
                self.slots.at_mut(slot).place = self.cells.add(own_cell, slot);
            }
        }
        if is_listed.contains(&false) { Err(Unreadable::Wrong) } else { Ok(()) }
    }

    /// Restores the past as of a tick, after everything else.
    pub(super) fn restore_past(&mut self, tick: u32, saved: &mut Reader<'_>) -> Result<(), Unreadable> {
        self.past = Past::restore(tick, self.slots.last_id, saved)?;
        Ok(())
    }

    /// Forgets the past as of a tick, and stores up to `ticks_max` ticks from now on.
    pub(super) fn begin_past_anew(&mut self, tick: u32, ticks_max: u8) {
        self.past = Past::after(tick, ticks_max);
    }

    /// Converts states field by field. Returns the number of those that have changed.
    pub(super) fn convert_states(&mut self, changes: &[KindChange<'_>]) -> Result<usize, WorldError> {
        let (mut state_now, mut count) = (Vec::new(), 0);
        for KindChange { number, change } in changes {
            let StateChange::Convert(conversion) = change else { continue };
            let slots: Vec<u32> =
                self.slots.live().filter(|(_, slot)| slot.object.kind == *number).map(|(index, _)| index).collect();
            for slot in slots {
                state_now.clear();
                let state = &self.slots.at(slot).object.state;
                if conversion.convert(state, &mut state_now) && *state != state_now {
                    self.set_state_at(slot, &state_now)?;
                    count += 1;
                }
            }
        }
        Ok(count)
    }

    /// The difference of the first kind that only the game can convert and that has an object of which `is_meant` holds,
    /// given its state and its kind now.
    pub(super) fn state_difference(
        &self,
        changes: &[KindChange<'_>],
        is_meant: impl Fn(&[u8], Option<&Kind>) -> bool,
    ) -> Option<SchemaDifference> {
        changes.iter().find_map(|KindChange { number, change }| {
            let StateChange::Unknown { now, difference } = change else { return None };
            let mut objects = self.iter().filter(|(_, object)| object.kind == *number);
            objects.any(|(_, object)| is_meant(&object.state, *now)).then(|| difference.clone())
        })
    }

    /// Removes an object from its cell's list.
    fn unlink(&mut self, slot: u32) {
        let &Slot { cell, place, .. } = self.slots.at(slot);
        if let Some(moved) = self.cells.take(cell, place) {
            self.slots.at_mut(moved).place = place;
        }
    }

    /// Reports the departure of an object to all players who saw it.
    fn unshow(&mut self, slot: u32, players: &mut Players) {
        let &Slot { id, shown, object_hash, state_hash, object: Object { kind, .. }, .. } = self.slots.at(slot);
        self.settled_hash ^= state_hash;
        match shown {
            Shown::Nowhere => {}
            Shown::In(cell) => {
                self.cells.toggle(cell, object_hash);
                self.cells.depart(cell, id, kind);
            }
            Shown::To(player) => players.take_own(player, id),
        }
    }

    fn settle_object(&mut self, index: u32, players: &mut Players) {
        let to = self.show_from_now(index, players);
        let slot = self.slots.at_mut(index);
        let (id, kind, before, was_hash) = (slot.id, slot.object.kind, slot.shown, slot.object_hash);
        let object_hash = slot.hash_object();
        let state_hash = slot.hash_state(index, object_hash);
        self.settled_hash ^= slot.state_hash ^ state_hash;
        (slot.object_hash, slot.state_hash, slot.shown, slot.before.shown) = (object_hash, state_hash, to, before);
        match before {
            Shown::Nowhere => {}
            Shown::In(cell) => {
                self.cells.toggle(cell, was_hash);
                if before != to {
                    self.cells.depart(cell, id, kind);
                }
            }
            Shown::To(player) => {
                if before != to {
                    players.take_own(player, id);
                }
            }
        }
        match to {
            Shown::Nowhere => {}
            Shown::In(cell) => {
                self.cells.toggle(cell, object_hash);
                self.cells.mark(cell);
            }
            Shown::To(player) => players.give_own(player, id, index),
        }
    }

    /// Determines who sees an object from now on. If its owner has left, no player does.
    fn show_from_now(&mut self, index: u32, players: &Players) -> Shown {
        let slot = self.slots.at_mut(index);
        match slot.object.visibility {
            Visibility::Everyone => Shown::In(slot.cell),
            Visibility::Nobody => Shown::Nowhere,
            Visibility::Owner(player) if players.get(player).is_some() => Shown::To(player),
            Visibility::Owner(_) => {
                slot.object.visibility = Visibility::Nobody;
                Shown::Nowhere
            }
        }
    }

    /// The objects of a cell that players receive.
    fn shown_in(&self, cell: CellIndex) -> impl Iterator<Item = &Slot> + Clone {
        let slots = self.cells.slots(cell).iter().map(|&slot| self.slots.at(slot));
        slots.filter(|slot| slot.object.visibility == Visibility::Everyone)
    }

    /// The objects of a cell that are new or changed.
    pub(super) fn changed_in(&self, cell: CellIndex) -> impl Iterator<Item = &Slot> + Clone {
        self.shown_in(cell).filter(|slot| slot.round == self.round)
    }

    /// A changed object as the last update described it, if it was in the same cell and old states are kept.
    pub(super) fn before_in_cell<'a>(&self, cell: CellIndex, slot: &'a Slot) -> Option<ObjectBefore<'a>> {
        if !self.keeps_states || slot.before.shown != Shown::In(cell) {
            return None;
        }
        let corner = self.grid.corner(cell);
        let Position { x, y } = slot.before.position;
        let state = slot.state_before();
        Some(ObjectBefore { x: x - corner.x, y: y - corner.y, state })
    }

    fn view_in_cell<'a>(&self, cell: CellIndex, slot: &'a Slot) -> ObjectView<'a> {
        let corner = self.grid.corner(cell);
        let Object { position, kind, ref state, .. } = slot.object;
        ObjectView { id: slot.id, kind, x: position.x - corner.x, y: position.y - corner.y, state }
    }
}

/// Reads a slot that is not in a list yet.
fn list_once(saved: &mut Reader<'_>, is_listed: &mut [bool]) -> Result<u32, Unreadable> {
    let slot: u32 = saved.number_of()?;
    let is_listed = is_listed.get_mut(slot as usize).ok_or(Unreadable::Wrong)?;
    if std::mem::replace(is_listed, true) { Err(Unreadable::Wrong) } else { Ok(slot) }
}

fn save_list(slots: &[u32], out: &mut Vec<u8>) {
    put_number(slots.len() as u64, out);
    for &slot in slots {
        put_number(u64::from(slot), out);
    }
}

fn save_slot(slot: &Slot, out: &mut Vec<u8>) {
    put_number(u64::from(slot.id.0), out);
    if slot.is_live() {
        put_number(u64::from(slot.object.kind), out);
        let visibility = match slot.object.visibility {
            Visibility::Everyone => 0,
            Visibility::Nobody => 1,
            Visibility::Owner(player) => 2 + u64::from(player.0),
        };
        put_number(visibility, out);
        put_position(slot.object.position, out);
        put_bytes(&slot.object.state, out);
    }
}

fn restore_visibility(saved: &mut Reader<'_>) -> Result<Visibility, Unreadable> {
    Ok(match saved.number()? {
        0 => Visibility::Everyone,
        1 => Visibility::Nobody,
        owner => Visibility::Owner(PlayerId(u32::try_from(owner - 2).map_err(|_| Unreadable::Wrong)?)),
    })
}
