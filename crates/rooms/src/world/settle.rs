//! Determines the changes of a tick after its end.
//!
//! Every change *touches* its object. At the end of the tick the world is *settled*: for each touched object, the
//! players who saw it before are compared with those who see it now. So the order of the changes within a tick does not
//! matter, and an object that was created and removed in the same tick is never reported.

use super::{Events, Object, Player, Players, Visibility, World, slots::Shown};
use crate::{CellIndex, ObjectView, UpdateWriter, tick_update::StillObject, world::slots::Slot};

impl World {
    /// Records that an object has changed.
    pub(super) fn touch(&mut self, slot: u32) {
        let round = self.round;
        let place = self.slots.at_mut(slot);
        if place.round != round {
            place.round = round;
            self.touched.push(slot);
        }
    }

    /// Removes an object from its cell's list.
    pub(super) fn unlink(&mut self, slot: u32) {
        let &Slot { cell, place, .. } = self.slots.at(slot);
        if let Some(moved) = self.cells.take(cell, place) {
            self.slots.at_mut(moved).place = place;
        }
    }

    /// Reports the departure of an object to all players who saw it.
    pub(super) fn unshow(&mut self, slot: u32) {
        let &Slot { id, shown, object_hash, state_hash, .. } = self.slots.at(slot);
        self.settled_hash ^= state_hash;
        match shown {
            Shown::Nowhere => {}
            Shown::In(cell) => {
                self.cells.toggle(cell, object_hash);
                self.cells.depart(cell, id);
            }
            Shown::To(player) => self.players.take_own(player, id),
        }
    }

    /// Determines the changes.
    pub(crate) fn settle(&mut self) {
        let touched = std::mem::take(&mut self.touched);
        for &slot in &touched {
            if self.slots.at(slot).is_live() {
                self.settle_object(slot);
            }
        }
        self.touched = touched;
        self.cells.sort();
        self.settle_past();
    }

    fn settle_object(&mut self, index: u32) {
        let to = self.show_from_now(index);
        let slot = self.slots.at_mut(index);
        let (id, before, was_hash) = (slot.id, slot.shown, slot.object_hash);
        let object_hash = slot.hash_object();
        let state_hash = slot.hash_state(index, object_hash);
        self.settled_hash ^= slot.state_hash ^ state_hash;
        (slot.object_hash, slot.state_hash, slot.shown) = (object_hash, state_hash, to);
        match before {
            Shown::Nowhere => {}
            Shown::In(cell) => {
                self.cells.toggle(cell, was_hash);
                if before != to {
                    self.cells.depart(cell, id);
                }
            }
            Shown::To(player) => {
                if before != to {
                    self.players.take_own(player, id);
                }
            }
        }
        match to {
            Shown::Nowhere => {}
            Shown::In(cell) => {
                self.cells.toggle(cell, object_hash);
                self.cells.mark(cell);
            }
            Shown::To(player) => self.players.give_own(player, id, index),
        }
    }

    /// Determines who sees an object from now on. If its owner has left, no player does.
    fn show_from_now(&mut self, index: u32) -> Shown {
        let slot = self.slots.at_mut(index);
        match slot.object.visibility {
            Visibility::Everyone => Shown::In(slot.cell),
            Visibility::Nobody => Shown::Nowhere,
            Visibility::Owner(player) if self.players.get(player).is_some() => Shown::To(player),
            Visibility::Owner(_) => {
                slot.object.visibility = Visibility::Nobody;
                Shown::Nowhere
            }
        }
    }

    /// Writes every changed cell to `writer`.
    pub(crate) fn write_changes(&self, writer: &mut UpdateWriter) {
        for &cell in self.cells.dirty() {
            let changed = self.changed_in(cell);
            let departed = self.cells.departed(cell).iter().map(|&(_, id)| id);
            let still = self.shown_in(cell).filter(|slot| slot.round != self.round);
            let still = still.map(|slot| StillObject { touched: slot.round, view: self.view_in_cell(cell, slot) });
            let changed = changed.map(|slot| self.view_in_cell(cell, slot));
            writer.changed_cell(self.round, cell, changed, departed, &still);
        }
    }

    /// Writes every cell that is not empty to `writer`.
    pub(crate) fn write_all(&self, writer: &mut UpdateWriter) {
        for (cell, _) in self.cells.occupied() {
            let full = self.shown_in(cell).map(|slot| self.view_in_cell(cell, slot));
            if self.shown_in(cell).next().is_some() {
                writer.cell(cell, std::iter::empty(), std::iter::empty(), full);
            }
        }
    }

    /// The objects of a cell that players receive.
    fn shown_in(&self, cell: CellIndex) -> impl Iterator<Item = &Slot> + Clone {
        let slots = self.cells.slots(cell).iter().map(|&slot| self.slots.at(slot));
        slots.filter(|slot| slot.object.visibility == Visibility::Everyone)
    }

    /// The objects of a cell that are new or changed.
    pub(super) fn changed_in(&self, cell: CellIndex) -> impl Iterator<Item = &Slot> {
        self.shown_in(cell).filter(|slot| slot.round == self.round)
    }

    fn view_in_cell<'a>(&self, cell: CellIndex, slot: &'a Slot) -> ObjectView<'a> {
        let corner = self.grid.corner(cell);
        let Object { position, kind, ref state, .. } = slot.object;
        ObjectView { id: slot.id, kind, x: position.x - corner.x, y: position.y - corner.y, state }
    }

    /// A player's own objects, in the order of their numbers.
    pub(crate) fn own_of<'a>(&'a self, player: &'a Player) -> impl Iterator<Item = ObjectView<'a>> {
        player.own.values().map(|&slot| {
            let slot = self.slots.at(slot);
            let Object { position, kind, ref state, .. } = slot.object;
            ObjectView { id: slot.id, kind, x: position.x, y: position.y, state }
        })
    }

    pub(crate) fn player_table(&self) -> &Players {
        &self.players
    }

    pub(crate) fn players_mut(&mut self) -> &mut Players {
        &mut self.players
    }

    /// The events of this tick.
    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    /// Clears the events after they were sent.
    pub(crate) fn forget_events(&mut self) {
        self.events.clear();
    }

    /// Clears the changes after they were encoded. Later changes belong to the next tick.
    pub(crate) fn forget_changes(&mut self) {
        self.touched.clear();
        self.cells.forget_changes();
        self.round += 1;
        for player in self.players.iter_mut() {
            (player.is_dirty, player.is_own_dirty) = (false, false);
        }
    }
}
