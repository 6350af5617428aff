//! A node with a room that is kept on disk: the disk is simulated as an actor with delays, and the node crashes or is
//! stopped and started again. Connections are cut, also
//! before the answer to a join, and players come back with their seat tokens, or expire to the tick. What they see is compared with what the room was
//! like at each tick.

mod client;
mod disk;
mod game;
mod room;
mod seats;
mod world;

pub use world::KeptWorld;

/// A mistake of the room's thread, which tests make to check that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptFlaw {
    /// What a tick led to is shown before the log has what it began with.
    ShowsUnlogged,
    /// Players whose clients are gone because the node stops leave the room.
    StopsWithoutDrain,
    /// The room goes on from its checkpoint without the log behind it.
    ForgetsLog,
    /// Players whose connections are lost leave at once.
    LosesSeats,
    /// They stay for one tick too long.
    GraceIsLonger,
    /// The room goes on after a restart as if all clients were still there.
    RestoresClients,
}
