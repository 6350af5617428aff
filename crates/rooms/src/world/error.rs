//! Why a change of the world is refused.

use std::fmt;

/// Why a change of the world is refused.
///
/// ```
/// use dunlin_rooms::{NewObject, Position, Visibility, WorldError};
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
/// # example::in_world(|world, ada| {
/// let state = [0; 2_000];
/// let object = NewObject { position: Position::default(), kind: 1, visibility: Visibility::Nobody, state: &state };
/// assert_eq!(world.spawn(object), Err(WorldError::StateTooLong));
/// # Ok(())
/// # })
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorldError {
    /// The maximum number of objects is reached, or all numbers have been used.
    TooManyObjects,
    /// An object's state is longer than the limit.
    StateTooLong,
    /// There is no such object.
    NoSuchObject,
    /// The object is of another kind, or its state does not have the form of the struct.
    WrongState,
    /// The maximum number of events in this tick is reached.
    TooManyEvents,
    /// An event is not JSON or longer than the limit, or its channel's name is empty or longer than the limit.
    BadEvent,
    /// The metadata is not JSON, or longer than the limit.
    BadMetadata,
    /// The maximum number of calls (`room.calls_limit`) waits for answers, or all numbers have been used.
    TooManyCalls,
    /// The method and the data of a call are longer than `room.call_size_limit`.
    CallTooLong,
    /// The room has no backend to call: `room.call_proxy_enabled` is off.
    NoBackend,
}

impl fmt::Display for WorldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooManyObjects => "the world holds as many objects as it may",
            Self::StateTooLong => "an object's state is longer than it may be",
            Self::NoSuchObject => "there is no such object",
            Self::WrongState => "the object is of another kind, or its state does not have the form of the struct",
            Self::TooManyEvents => "there have been as many events in this tick as there may be",
            Self::BadEvent => "an event is not JSON, or longer than it may be",
            Self::BadMetadata => "the metadata is not JSON, or longer than room.metadata_size_limit",
            Self::TooManyCalls => "as many calls wait for their answers as room.calls_limit allows",
            Self::CallTooLong => "a call is longer than room.call_size_limit",
            Self::NoBackend => "the room has no backend to call: room.call_proxy_enabled is off",
        })
    }
}

impl std::error::Error for WorldError {}
