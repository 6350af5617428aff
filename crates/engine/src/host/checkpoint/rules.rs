//! What a checkpoint says about the rules of its game.

use dunlin_rooms::Schema;

use super::{NotRestored, step_format::RecordReader};

/// The version before games had one, which is that of a game that says none.
const FIRST_VERSION: u32 = 1;

/// The version of the game that saved a room, and what the states of its objects were made of.
#[derive(Clone, Debug)]
pub(super) struct SavedRules {
    pub(super) version: u32,
    pub(super) schema: SavedSchema,
}

#[derive(Clone, Debug)]
pub(super) enum SavedSchema {
    Known(Schema),
    /// An earlier version of Dunlin has saved the room. Its states are taken for those of now.
    Unknown,
}

impl SavedRules {
    pub(super) fn read(reader: &mut RecordReader<'_>, checkpoint_version: u8) -> Result<Self, NotRestored> {
        if checkpoint_version < 5 {
            return Ok(Self { version: FIRST_VERSION, schema: SavedSchema::Unknown });
        }
        let (version, document) = (reader.number_of()?, reader.bytes()?);
        // A game without kinds has no document.
        let schema = if document.is_empty() { Ok(Schema::new()) } else { Schema::from_document(document) };
        Ok(Self { version, schema: SavedSchema::Known(schema.map_err(|_| NotRestored::Malformed)?) })
    }
}
