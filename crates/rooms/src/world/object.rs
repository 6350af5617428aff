//! An object of a world, as the game sees it.

use crate::{PlayerId, Position};

/// An object's number in its world; never 0, and never reused.
///
/// ```
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
/// # example::in_world(|world, ada| {
/// let chest = example::spawn_chest(world)?;
/// assert_eq!(chest.0, 1, "the first object of the world");
/// # Ok(())
/// # })
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId(pub u32);

/// The players that receive an object.
///
/// ```
/// use dunlin_rooms::{NewObject, Position, Visibility};
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
/// # example::in_world(|world, ada| {
/// // A clue that other clients never receive, so that they cannot show it.
/// let position = Position { x: 300, y: 300 };
/// world.spawn(NewObject { position, kind: 9, visibility: Visibility::Owner(ada), state: b"dig here" })?;
/// # Ok(())
/// # })
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// Every player whose view contains its cell.
    Everyone,
    /// One player, regardless of its view. If the player has left at the end of a tick, this becomes `Nobody`.
    Owner(PlayerId),
    /// No player receives the object.
    Nobody,
}

/// An object of a world.
///
/// ```
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
/// # example::in_world(|world, ada| {
/// let chest = example::spawn_chest(world)?;
/// let object = world.object(chest).expect("it was just made");
/// assert_eq!((object.kind, object.state.as_slice()), (7, &b"full"[..]));
/// # Ok(())
/// # })
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// In units from the corner of the map.
    pub position: Position,
    /// The game's number for the kind of the object.
    pub kind: u16,
    /// The players that receive it.
    pub visibility: Visibility,
    /// The game's other data for clients.
    pub state: Vec<u8>,
}

/// The parameters of [`World::spawn`].
///
/// ```
/// # use dunlin_rooms as dunlin_game;
/// use dunlin_game::{NewObject, Position, Visibility};
///
/// /// A star that all players see.
/// fn star(position: Position) -> NewObject<'static> {
///     NewObject { position, kind: 2, visibility: Visibility::Everyone, state: &[] }
/// }
/// assert_eq!(star(Position::default()).kind, 2);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct NewObject<'a> {
    /// The object's position; limited to the map.
    pub position: Position,
    /// The game's number for the kind of the object.
    pub kind: u16,
    /// The players that receive it.
    pub visibility: Visibility,
    /// The game's other data for clients.
    pub state: &'a [u8],
}
