//! The owner's view of the room threads.

/// What an owner knows of a room thread.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::shard) struct RoomThread {
    /// From its last load report.
    pub(in crate::shard) load_permille: u16,
    /// Rooms that this shard has opened there since then. Each counts like a thousandth, so that not all rooms that are
    /// opened between two reports go to one thread.
    pub(in crate::shard) opened_since: u32,
    /// Rooms that this shard has open there.
    pub(in crate::shard) open: u32,
}
