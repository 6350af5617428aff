//! What queues and lobbies know of a room, on this node or on another one.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::rooms::RoomReport;

/// A room, as nodes describe it to the node that runs the queues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoomSummary {
    /// Its channel.
    #[serde(with = "shared_text")]
    pub channel: Arc<str>,
    /// Its namespace; empty for channels without one.
    #[serde(with = "shared_text")]
    pub namespace: Arc<str>,
    /// Number of players, including those who are away.
    pub players: u32,
    /// Number of players that have joined. Returning players are not counted again.
    pub players_joined: u64,
    /// Maximum number of players.
    pub players_max: u32,
    /// Reservations of places: the number of each, and how many of its users have not joined.
    pub reservations: Box<[(u64, u32)]>,
    /// Whether its world has been created.
    pub is_made: bool,
    /// Whether lobbies list it, and matchmaking places users in it.
    pub is_public: bool,
    /// The metadata as a JSON document; empty if there is none.
    #[serde(with = "shared_text")]
    pub metadata: Arc<str>,
    /// The parameters of its simulation as a JSON document; empty if there are none.
    #[serde(with = "shared_text")]
    pub params: Arc<str>,
}

impl RoomSummary {
    pub(super) fn of(room: &RoomReport) -> Self {
        Self {
            channel: Arc::clone(&room.channel),
            namespace: Arc::clone(&room.namespace),
            players: room.places_taken(),
            players_joined: room.players_joined,
            players_max: room.players_max,
            reservations: room.reservations.clone(),
            is_made: room.is_made,
            is_public: room.is_public(),
            metadata: Arc::clone(&room.metadata),
            params: Arc::clone(&room.params),
        }
    }
}

mod shared_text {
    use std::sync::Arc;

    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<str>, D::Error> {
        Box::<str>::deserialize(deserializer).map(Into::into)
    }
}
