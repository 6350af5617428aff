//! The players of a world, their viewpoints, and the objects that represent them.

use super::{ObjectId, PlayerId, Role, World};
use crate::{CellIndex, Position};

impl World {
    /// The players, in the order of joining. Excludes spectators, and includes away players.
    ///
    /// ```
    /// # use dunlin_rooms::Position;
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// // A round begins: all players go to the start.
    /// let players: Vec<_> = world.players().collect();
    /// for player in players {
    ///     world.set_viewpoint(player, Position { x: 0, y: 0 });
    /// }
    /// # Ok(())
    /// # })
    /// ```
    pub fn players(&self) -> impl Iterator<Item = PlayerId> {
        self.players.iter().filter(|player| player.role == Role::Player).map(|player| player.id)
    }

    /// The number of players.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// assert_eq!(world.player_count(), 1);
    /// # Ok(())
    /// # })
    /// ```
    pub fn player_count(&self) -> usize {
        self.players.len() - self.players.spectator_count()
    }

    /// Whether this is a player in the room.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// assert!(world.is_player(ada));
    /// # Ok(())
    /// # })
    /// ```
    pub fn is_player(&self, player: PlayerId) -> bool {
        self.players.get(player).is_some_and(|player| player.role == Role::Player)
    }

    /// The number of spectators.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// assert_eq!(world.spectator_count(), 0);
    /// # Ok(())
    /// # })
    /// ```
    pub fn spectator_count(&self) -> usize {
        self.players.spectator_count()
    }

    /// The positions of the players, in the order of joining: that of the player's avatar, or its viewpoint if it has
    /// none.
    ///
    /// ```
    /// # use dunlin_rooms::Position;
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// world.set_viewpoint(ada, Position { x: 300, y: 300 });
    /// let (player, avatar, position) = world.player_positions().next().expect("one player");
    /// assert_eq!((player, avatar, position.x), (ada, None, 300));
    /// # Ok(())
    /// # })
    /// ```
    pub fn player_positions(&self) -> impl Iterator<Item = (PlayerId, Option<ObjectId>, Position)> {
        self.players.iter().filter(|player| player.role == Role::Player).map(|player| {
            let slot = player.avatar.and_then(|avatar| self.slots.find(avatar));
            let position = slot.map_or(player.viewpoint, |slot| self.slots.at(slot).object.position);
            (player.id, slot.and(player.avatar), position)
        })
    }

    /// Sets a player's viewpoint. Before the first call it is the map's corner.
    ///
    /// ```
    /// # use dunlin_rooms::Position;
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// world.set_viewpoint(ada, Position { x: 300, y: 300 });
    /// assert_eq!(world.view_of(ada), Some(world.grid().cell_of(Position { x: 300, y: 300 })));
    /// # Ok(())
    /// # })
    /// ```
    pub fn set_viewpoint(&mut self, player: PlayerId, position: Position) {
        let position = self.grid.clamp(position);
        self.players.look(player, position, self.grid.cell_of(position));
    }

    /// The cell of a player's viewpoint.
    ///
    /// ```
    /// # use dunlin_rooms::Position;
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// world.set_viewpoint(ada, Position { x: 0, y: 0 });
    /// assert_eq!(world.view_of(ada).map(|cell| cell.0), Some(0));
    /// # Ok(())
    /// # })
    /// ```
    pub fn view_of(&self, player: PlayerId) -> Option<CellIndex> {
        self.players.get(player).map(|player| player.view)
    }

    /// Sets the object that represents a player. Its client is informed.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// # let chest = example::spawn_chest(world)?;
    /// world.set_avatar(ada, Some(chest));
    /// assert_eq!(world.avatar_of(ada), Some(chest));
    /// # Ok(())
    /// # })
    /// ```
    pub fn set_avatar(&mut self, player: PlayerId, avatar: Option<ObjectId>) {
        if let Some(player) = self.players.get_mut(player).filter(|player| player.avatar != avatar) {
            player.avatar = avatar;
            player.is_dirty = true;
        }
    }

    /// The object that represents a player.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
    /// # example::in_world(|world, ada| {
    /// if let Some(avatar) = world.avatar_of(ada) {
    ///     world.despawn(avatar);
    /// }
    /// assert_eq!(world.avatar_of(ada), None, "none was set");
    /// # Ok(())
    /// # })
    /// ```
    pub fn avatar_of(&self, player: PlayerId) -> Option<ObjectId> {
        self.players.get(player)?.avatar
    }
}
