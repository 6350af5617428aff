//! Encodes a world: all state that determines its future, including orders.

use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

use super::{NewObject, Player, Scope, Visibility, World, events::Target, removals::PendingRemovals, slots::Slot};
use crate::{
    CellIndex, Grid, ListingState, ObjectId, PlayerId, RoomOptions,
    binary::{Reader, Unreadable, put_bytes, put_number, put_position},
};

impl World {
    /// Appends the form that [`World::restore`] reads.
    pub(crate) fn save(&self, out: &mut Vec<u8>) {
        let word_position = self.generator.get_word_pos();
        for number in [u64::from(self.tick), self.info.seed, word_position as u64, (word_position >> 64) as u64] {
            put_number(number, out);
        }
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
        put_number(u64::from(self.players.last_id), out);
        put_number(self.players.len() as u64, out);
        for player in self.players.iter() {
            put_number(u64::from(player.id.0), out);
            out.push(player.tag());
            put_position(player.viewpoint, out);
            put_number(u64::from(player.ack), out);
            put_number(player.avatar.map_or(0, |id| u64::from(id.0)), out);
        }
        put_number(self.events.iter().len() as u64, out);
        for (target, json) in self.events.iter() {
            save_target(target, out);
            put_bytes(json.as_bytes(), out);
        }
        self.removals.save(out);
        self.listing.save(out);
        self.calls.save(out);
    }

    /// Restores a world that was saved in a version of the format. All players, and their own objects, are reported as
    /// new.
    pub(crate) fn restore(
        grid: Grid,
        options: &RoomOptions,
        version: u8,
        saved: &mut Reader<'_>,
    ) -> Result<Self, Unreadable> {
        let tick = saved.number_of()?;
        let mut world = Self::new(grid, options, saved.number()?);
        world.tick = tick;
        let (low, high) = (saved.number()?, saved.number()?);
        let word_position = u128::from(high) << 64 | u128::from(low);
        world.generator = ChaCha8Rng::seed_from_u64(world.info.seed);
        world.generator.set_word_pos(word_position);
        if world.generator.get_word_pos() != word_position {
            return Err(Unreadable::Wrong);
        }
        world.restore_objects(saved)?;
        world.restore_players(saved)?;
        for _ in 0..saved.count()? {
            let target = restore_target(saved)?;
            world.events.add(target, saved.text()?).map_err(|_| Unreadable::Wrong)?;
        }
        if version >= 2 {
            world.removals = PendingRemovals::restore(saved)?;
            world.listing = ListingState::restore(saved)?;
            world.calls.restore(saved)?;
        }
        // The visibility of objects follows from the rest of the state, so no change is reported now.
        world.settle();
        world.forget_changes();
        for player in world.players.iter_mut() {
            (player.is_dirty, player.is_own_dirty) = (true, !player.own.is_empty());
        }
        Ok(world)
    }

    fn restore_objects(&mut self, saved: &mut Reader<'_>) -> Result<(), Unreadable> {
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
            let (position, state) = (saved.position()?, saved.bytes()?);
            let is_possible = id.0 <= self.slots.last_id
                && self.grid.clamp(position) == position
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
                if !self.slots.at(slot).is_live() || self.slots.at(slot).cell != cell {
                    return Err(Unreadable::Wrong);
                }
                self.slots.at_mut(slot).place = self.cells.add(cell, slot);
            }
        }
        if is_listed.contains(&false) { Err(Unreadable::Wrong) } else { Ok(()) }
    }

    fn restore_players(&mut self, saved: &mut Reader<'_>) -> Result<(), Unreadable> {
        self.players.last_id = saved.number_of()?;
        let mut last = 0;
        for _ in 0..saved.count()? {
            let id = saved.number_of()?;
            if id <= last || id > self.players.last_id {
                return Err(Unreadable::Wrong);
            }
            last = id;
            let (encoding, role) = Player::read_tag(saved.byte()?).ok_or(Unreadable::Wrong)?;
            let mut player = Player::new(PlayerId(id), encoding, role);
            player.viewpoint = saved.position()?;
            if self.grid.clamp(player.viewpoint) != player.viewpoint {
                return Err(Unreadable::Wrong);
            }
            player.view = self.grid.cell_of(player.viewpoint);
            player.ack = saved.number_of()?;
            player.avatar = Some(ObjectId(saved.number_of()?)).filter(|avatar| avatar.0 != 0);
            self.players.put_back(player);
        }
        Ok(())
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

fn save_target(target: &Target, out: &mut Vec<u8>) {
    match target {
        Target::Players(Scope::All) => out.push(0),
        Target::Players(Scope::Near(cell)) => {
            out.push(1);
            put_number(u64::from(cell.0), out);
        }
        Target::Players(Scope::Player(player)) => {
            out.push(2);
            put_number(u64::from(player.0), out);
        }
        Target::Channel(name) => {
            out.push(3);
            put_bytes(name.as_bytes(), out);
        }
    }
}

fn restore_target(saved: &mut Reader<'_>) -> Result<Target, Unreadable> {
    Ok(match saved.byte()? {
        0 => Target::Players(Scope::All),
        1 => Target::Players(Scope::Near(CellIndex(saved.number_of()?))),
        2 => Target::Players(Scope::Player(PlayerId(saved.number_of()?))),
        3 => Target::Channel(saved.text()?.into()),
        _ => return Err(Unreadable::Wrong),
    })
}
