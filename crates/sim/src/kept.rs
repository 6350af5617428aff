//! A node with a room that is stored on disk. The simulated disk has delays, and the node crashes, or stops and starts
//! again. Connections are lost, also before the reply to a join. Players resume with their seat tokens, or expire at
//! the exact tick. Each snapshot that a client receives is compared with the recorded room at that tick.

mod client;
mod disk;
mod game;
mod room;
mod world;

pub use world::KeptWorld;

/// A bug that tests plant in the room thread to verify that the checks find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptFlaw {
    /// The messages of a tick are sent before the log has its input record.
    ShowsUnlogged,
    /// Players leave the room when the node closes their connections to stop.
    StopsWithoutDrain,
    /// The room is restored from its checkpoint without the log records after it.
    ForgetsLog,
    /// Players leave at once when their connection is lost.
    LosesSeats,
    /// Players leave one tick late.
    GraceIsLonger,
    /// After a restart, the room treats all clients as still connected.
    RestoresClients,
}
