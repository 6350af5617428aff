//! A client's picture of what it sees, kept up to date by snapshots.

use std::fmt;

use dunlin_protocol::Encoding;

use crate::{CellIndex, Grid, ObjectId, Position};

/// An object that a client sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenObject {
    /// Where it is.
    pub position: Position,
    /// What it is.
    pub kind: u16,
    /// The rest.
    pub state: Vec<u8>,
    /// Its cell; `None` for those that only this player is sent.
    pub cell: Option<CellIndex>,
}

/// Why a snapshot is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaError {
    /// It is not of the format.
    Malformed,
    /// It builds on a tick that this client does not have.
    WrongBase,
    /// It is about a cell outside the map or the view.
    WrongCell,
    /// It would make the replica larger than it may be.
    TooLarge,
}

/// A client's picture of what it sees.
#[derive(Debug, Default)]
pub struct Replica {
    _todo: (),
}

impl Replica {
    /// Takes in the `data` of a publication with offset 0. After an error the replica is unchanged.
    ///
    /// # Errors
    /// [`ReplicaError`]
    pub fn apply(&mut self, encoding: Encoding, data: &[u8]) -> Result<(), ReplicaError> {
        let _ = (encoding, data);
        todo!()
    }

    /// The tick that it shows; 0 before the first snapshot.
    pub fn tick(&self) -> u32 {
        todo!()
    }

    /// The Unix time of that tick at the server.
    pub fn time_us(&self) -> u64 {
        todo!()
    }

    /// The number of the last input that the room had applied.
    pub fn ack(&self) -> u32 {
        todo!()
    }

    /// The player's own object.
    pub fn avatar(&self) -> Option<ObjectId> {
        todo!()
    }

    /// The map, once a snapshot has told it.
    pub fn grid(&self) -> Option<&Grid> {
        todo!()
    }

    /// The cell that the player looks from.
    pub fn view(&self) -> CellIndex {
        todo!()
    }

    /// An object that it sees.
    pub fn object(&self, id: ObjectId) -> Option<&SeenObject> {
        let _ = id;
        todo!()
    }

    /// All objects that it sees, in no particular order.
    pub fn objects(&self) -> impl Iterator<Item = (ObjectId, &SeenObject)> {
        std::iter::empty()
    }

    /// The exclusive-or of [`crate::wire::object_hash`] over the objects in a cell, kept up with every change.
    pub fn cell_hash(&self, cell: CellIndex) -> u64 {
        let _ = cell;
        todo!()
    }
}

impl fmt::Display for ReplicaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "the snapshot is malformed",
            Self::WrongBase => "the snapshot builds on a tick that is not here",
            Self::WrongCell => "the snapshot is about a cell outside the view",
            Self::TooLarge => "the snapshot holds more than may be kept",
        })
    }
}

impl std::error::Error for ReplicaError {}
