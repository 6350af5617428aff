//! The limits of rooms that shards enforce.

use std::num::NonZeroU32;

/// The limits of a namespace's rooms that shards enforce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoomLimits {
    /// Rate limit on a player's inputs, per second, with a burst of the same number. One more is answered with error
    /// 111.
    pub inputs_per_second: u32,
    /// Maximum bytes of one input's data. A longer one is answered with error 107.
    pub input_bytes_max: usize,
    /// Maximum number of inputs of one shard that wait for a room. One more is answered with error 111.
    pub inbox_inputs_max: u32,
    /// Maximum bytes of frames sent to a player per second; `None` for no limit.
    pub frame_bytes_per_second: Option<NonZeroU32>,
    /// Whether players receive seat tokens, with which they come back after a reconnect or a restart.
    pub gives_seat_tokens: bool,
    /// Whether a room goes on on another node when its own one has stopped or died.
    pub moves: bool,
    /// Whether a user has at most one player in a room: a join takes over the user's player.
    pub is_one_seat_per_user: bool,
    /// Whether the game receives the addresses of clients.
    pub shows_address: bool,
    /// Maximum number of messages of the backend that wait for a room. One more is answered with error 111.
    pub messages_max: usize,
    /// Maximum bytes of a message, and of the game's answer. A longer message is answered with error 107.
    pub message_bytes_max: usize,
    /// Maximum number of players of a room. `room_open` with more is answered with error 107.
    pub players_max: usize,
    /// Maximum bytes of the metadata that the backend gives a room. Longer metadata is answered with error 107.
    pub metadata_bytes_max: usize,
    /// Names of the parameters that a join may set for a room that it opens.
    pub join_params: Vec<Box<str>>,
    /// Maximum bytes of the parameters with which a room is opened.
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
            moves: false,
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
