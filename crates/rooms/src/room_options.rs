//! The operator's options of a room.

/// The operator's options of a room. The limits of the world bound each room's memory.
///
/// ```
/// # use dunlin_rooms as dunlin_game;
/// use dunlin_game::RoomOptions;
///
/// // What `Script::with` of the test kit takes: a small room without a backend.
/// let options = RoomOptions { players_max: 2, calls_max: 0, ..RoomOptions::default() };
/// assert_eq!((options.ticks_per_second, options.players_max), (60, 2));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoomOptions {
    /// Ticks per second, 1 to 240.
    pub ticks_per_second: u32,
    /// Maximum number of objects in the world.
    pub objects_max: usize,
    /// Maximum bytes of one object's state.
    pub state_bytes_max: usize,
    /// Maximum number of players; one more is refused with code 400.
    pub players_max: usize,
    /// Maximum number of spectators; one more is refused with code 400.
    pub spectators_max: usize,
    /// Maximum number of events and publications per tick.
    pub events_per_tick_max: usize,
    /// Maximum bytes of one event or publication.
    pub event_bytes_max: usize,
    /// Maximum bytes of the metadata.
    pub metadata_bytes_max: usize,
    /// Maximum number of the game's calls that wait for answers; 0 without a backend.
    pub calls_max: usize,
    /// Maximum bytes of the method and the data of a call together, and of its answer.
    pub call_bytes_max: usize,
}

impl Default for RoomOptions {
    fn default() -> Self {
        Self {
            ticks_per_second: 60,
            objects_max: 100_000,
            state_bytes_max: 1_024,
            players_max: 10_000,
            spectators_max: 10_000,
            events_per_tick_max: 1_024,
            event_bytes_max: 16_384,
            metadata_bytes_max: 4_096,
            calls_max: 64,
            call_bytes_max: 16_384,
        }
    }
}
