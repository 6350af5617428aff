//! The objects of a world: added, changed and removed by the simulation.

use super::{NewObject, Object, ObjectId, Slot, Visibility, World, WorldError};
use crate::{CellIndex, Position};

impl World {
    /// Adds an object.
    ///
    /// # Errors
    /// [`WorldError::TooManyObjects`], [`WorldError::StateTooLong`]
    ///
    /// ```
    /// # use dunlin_rooms::{NewObject, Position, Visibility};
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// let position = Position { x: 300, y: 300 };
    /// let object = NewObject { position, kind: 7, visibility: Visibility::Everyone, state: b"full" };
    /// let chest = world.spawn(object)?;
    /// assert_eq!(world.object(chest).map(|object| object.kind), Some(7));
    /// # Ok(())
    /// # })
    /// ```
    pub fn spawn(&mut self, object: NewObject<'_>) -> Result<ObjectId, WorldError> {
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

    /// Removes an object; returns whether it existed.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// # let chest = example::spawn_chest(world)?;
    /// assert!(world.despawn(chest));
    /// assert!(!world.despawn(chest), "it is gone");
    /// # Ok(())
    /// # })
    /// ```
    pub fn despawn(&mut self, id: ObjectId) -> bool {
        let Some(slot) = self.slots.find(id) else { return false };
        self.past.remember(id, Some(self.slots.at(slot).object.position));
        self.unlink(slot);
        self.unshow(slot);
        self.slots.release(slot);
        true
    }

    /// `None` if the object does not exist or was despawned.
    ///
    /// ```
    /// # use dunlin_rooms::Position;
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// # let chest = example::spawn_chest(world)?;
    /// let place = world.object(chest).map(|object| object.position);
    /// assert_eq!(place, Some(Position { x: 300, y: 300 }));
    /// # Ok(())
    /// # })
    /// ```
    pub fn object(&self, id: ObjectId) -> Option<&Object> {
        self.slots.find(id).map(|slot| &self.slots.at(slot).object)
    }

    /// Moves an object; the position is limited to the map. Does nothing if the object does not exist.
    ///
    /// ```
    /// # use dunlin_rooms::Position;
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// # let chest = example::spawn_chest(world)?;
    /// world.move_to(chest, Position { x: 310, y: 300 });
    /// assert_eq!(world.object(chest).map(|object| object.position.x), Some(310));
    /// # Ok(())
    /// # })
    /// ```
    pub fn move_to(&mut self, id: ObjectId, position: Position) {
        let Some(slot) = self.slots.find(id) else { return };
        let position = self.grid.clamp(position);
        let Slot { object, cell, .. } = self.slots.at_mut(slot);
        if object.position == position {
            return;
        }
        self.past.remember(id, Some(object.position));
        object.position = position;
        let to = self.grid.cell_of(position);
        if *cell != to {
            self.unlink(slot);
            let place = self.cells.add(to, slot);
            let moved = self.slots.at_mut(slot);
            (moved.cell, moved.place) = (to, place);
        }
        self.touch(slot);
    }

    /// Sets the state of an object.
    ///
    /// # Errors
    /// [`WorldError::StateTooLong`], [`WorldError::NoSuchObject`]
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// # let chest = example::spawn_chest(world)?;
    /// world.set_state(chest, b"empty")?;
    /// assert_eq!(world.object(chest).map(|object| &object.state[..]), Some(&b"empty"[..]));
    /// # Ok(())
    /// # })
    /// ```
    pub fn set_state(&mut self, id: ObjectId, state: &[u8]) -> Result<(), WorldError> {
        let slot = self.slots.find(id).ok_or(WorldError::NoSuchObject)?;
        if state.len() > self.state_bytes_max {
            return Err(WorldError::StateTooLong);
        }
        if self.slots.at(slot).object.state != state {
            self.slots.put_state(slot, state);
            self.touch(slot);
        }
        Ok(())
    }

    /// Sets which players receive an object. Does nothing if the object does not exist.
    ///
    /// ```
    /// # use dunlin_rooms::Visibility;
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// # let chest = example::spawn_chest(world)?;
    /// // Only Ada receives it, wherever she looks.
    /// world.set_visibility(chest, Visibility::Owner(ada));
    /// # Ok(())
    /// # })
    /// ```
    pub fn set_visibility(&mut self, id: ObjectId, visibility: Visibility) {
        let Some(slot) = self.slots.find(id) else { return };
        let object = &mut self.slots.at_mut(slot).object;
        if object.visibility != visibility {
            object.visibility = visibility;
            self.touch(slot);
        }
    }

    /// The objects in a cell, in a deterministic order that depends on earlier changes.
    ///
    /// ```
    /// # use dunlin_rooms::Position;
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// # let chest = example::spawn_chest(world)?;
    /// let cell = world.grid().cell_of(Position { x: 300, y: 300 });
    /// assert!(world.objects_in(cell).any(|(id, _)| id == chest));
    /// # Ok(())
    /// # })
    /// ```
    pub fn objects_in(&self, cell: CellIndex) -> impl Iterator<Item = (ObjectId, &Object)> {
        self.cells.slots(cell).iter().map(|&slot| {
            let slot = self.slots.at(slot);
            (slot.id, &slot.object)
        })
    }

    /// All objects, in an order of the same kind.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// # let chest = example::spawn_chest(world)?;
    /// let chests = world.objects().filter(|(_, object)| object.kind == 7);
    /// assert_eq!(chests.map(|(id, _)| id).collect::<Vec<_>>(), [chest]);
    /// # Ok(())
    /// # })
    /// ```
    pub fn objects(&self) -> impl Iterator<Item = (ObjectId, &Object)> {
        self.slots.live().map(|(_, slot)| (slot.id, &slot.object))
    }

    /// The number of objects.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// # let chest = example::spawn_chest(world)?;
    /// assert_eq!(world.object_count(), 1);
    /// # Ok(())
    /// # })
    /// ```
    pub fn object_count(&self) -> usize {
        self.slots.len()
    }

    /// The exclusive-or of [`crate::wire::object_hash`] over the objects of a cell that are visible to everyone, as of
    /// the last tick. 0 for a cell outside the map.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// let chest = example::spawn_chest(world)?;
    /// let cell = world.grid().cell_of(world.object(chest).expect("there").position);
    /// assert_eq!(world.cell_hash(cell), 0, "the tick is not over");
    /// # Ok(())
    /// # })
    /// ```
    pub fn cell_hash(&self, cell: CellIndex) -> u64 {
        self.cells.hash(cell)
    }
}
