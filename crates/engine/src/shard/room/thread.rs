//! The owner's view of the room threads.

/// What an owner stores about a room thread.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::shard) struct RoomThread {
    /// From its last load report.
    pub(in crate::shard) load_permille: u16,
    /// Rooms that this shard has opened there since that report. Each counts as one permille, so that rooms opened
    /// between two reports are spread over the threads.
    pub(in crate::shard) opened_since: u32,
    /// The number of open rooms of this shard on the thread.
    pub(in crate::shard) open: u32,
}
