//! The limits of rooms that shards enforce.

use std::num::NonZeroU32;

/// What the shards need to know of the rooms of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoomLimits {
    /// Inputs that a player may send in a second, and as many at once. One more is answered with error 111.
    pub inputs_per_second: u32,
    /// Bytes of one input's data. A longer one is answered with error 107.
    pub input_bytes_max: usize,
    /// Inputs of one shard that may wait for a room. One more is answered with error 111.
    pub inbox_inputs_max: u32,
    /// Bytes of frames that a player is sent in a second; `None`: as many as there are.
    pub frame_bytes_per_second: Option<NonZeroU32>,
    /// Whether players get seat tokens, with which they come back after a reconnect or a restart.
    pub gives_seat_tokens: bool,
    /// Whether a user has at most one player in a room: a join takes over the user's player.
    pub is_one_seat_per_user: bool,
    /// Whether the game learns the addresses of clients.
    pub shows_address: bool,
    /// Messages of the backend that may wait for a room. One more is answered with error 111.
    pub messages_max: usize,
    /// Bytes of a message, and of the game's answer. A longer message is answered with error 107.
    pub message_bytes_max: usize,
    /// Players of a room. `room_open` with more is answered with error 107.
    pub players_max: usize,
    /// Bytes of the metadata that the backend gives a room. Longer metadata is answered with error 107.
    pub metadata_bytes_max: usize,
    /// Names of the parameters that a join may set for the room that it opens.
    pub join_params: Vec<Box<str>>,
    /// Bytes of the parameters with which a room is opened.
    pub params_bytes_max: usize,
}

impl Default for RoomLimits {
    fn default() -> Self {
        Self {
            inputs_per_second: 120,
            input_bytes_max: 1_024,
            inbox_inputs_max: 16_384,
            frame_bytes_per_second: None,
            gives_seat_tokens: false,
            is_one_seat_per_user: false,
            shows_address: false,
            messages_max: 256,
            message_bytes_max: 16_384,
            players_max: 10_000,
            metadata_bytes_max: 4_096,
            join_params: Vec::new(),
            params_bytes_max: 16_384,
        }
    }
}
