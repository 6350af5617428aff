//! What nodes send each other about rooms, as bytes.
//!
//! A *batch* is one message or several, one behind the other. It travels in one *frame*, or in several if it is longer
//! than a message of NATS may be. The formats are those of `postcard`: numbers are varints, and fields follow in the
//! order of their declaration. An older node cannot skip a message that it does not know. So a new kind of message needs
//! a new [`VERSION`], or is sent only to nodes that have said that they know it, as [`ToHost::TypedJoin`] is.

#![allow(missing_docs, reason = "a field whose name says all has no comment")]

use core::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The version of the formats. Frames of another version are counted and ignored.
pub const VERSION: u8 = 3;

/// Maximum bytes of a batch in one frame. With its head, a frame must fit into a message of NATS: 1 MiB by default. If the
/// servers allow less, a part is smaller.
pub const PART_BYTES_MAX: usize = 512 << 10;

/// Maximum bytes of a batch, which its receiver has in memory twice: as parts, and as messages. The largest message is a
/// world of [`UPDATE_BYTES_MAX`].
pub const BATCH_BYTES_MAX: usize = 32 << 20;

/// Messages for other nodes are sent when they have this many bytes, also in the middle of a turn.
pub const BATCH_FULL_BYTES: usize = 8 << 20;

/// Maximum bytes of a tick or a keyframe for one node: sixteen frames. A room with a larger world is not for players of
/// other nodes: at 60 ticks per second, it would fill any network.
pub const UPDATE_BYTES_MAX: usize = 8 << 20;

/// The head of a frame. The rest of the frame is a part of a batch, or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameHead<'a> {
    pub version: u8,
    /// The id of this run of the sender.
    #[serde(borrow)]
    pub from: &'a str,
    /// When it was sent, by a clock that began with the sender.
    pub sent_us: u64,
    /// The epoch of what the two nodes share.
    pub epoch: u64,
    pub kind: FrameKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FrameKind {
    /// A part of a batch, in a stream of frames.
    Part {
        /// The number of the frame in the epoch, from 0.
        number: u64,
        /// Whether the batch is complete with this part.
        is_last: bool,
    },
    /// Everything before this epoch has ended.
    Reset,
}

/// A message between two nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// Nothing has happened; the node lives.
    Alive,
    ToHost(ToHost),
    ToEdge(ToEdge),
}

/// A room on the node that runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RoomId {
    /// The shard of its channel's owner.
    pub owner: u16,
    pub number: u64,
}

/// A seat on the node of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Seat {
    pub shard: u16,
    pub index: u32,
    pub generation: u32,
}

/// To the node that runs the room.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToHost {
    Join(Join),
    Leave {
        room: RoomId,
        seat: Seat,
        how: Leaving,
    },
    Input {
        room: RoomId,
        seat: Seat,
        number: u32,
        #[serde(with = "serde_bytes")]
        data: Vec<u8>,
    },
    /// As [`ToHost::Join`], for a client that receives changed fields in Protobuf: from now on and until it leaves, the
    /// updates of the room have them. Only for a node that has said that it sends changes, with the address of the room.
    TypedJoin(Join),
}

/// A client joins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Join {
    pub room: RoomId,
    pub thread: u16,
    pub channel: Box<str>,
    pub seat: Seat,
    pub player: Box<JoiningPlayer>,
}

/// How a session leaves, as in the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Leaving {
    Left,
    Lost,
    Unanswered,
}

/// What a game learns of a client that joins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JoiningPlayer {
    pub user: Box<str>,
    pub client: Box<str>,
    pub connection_info: Option<Document>,
    pub channel_info: Option<Document>,
    pub address: Option<IpAddr>,
    pub is_spectator: bool,
    pub is_protobuf: bool,
    #[serde(with = "serde_bytes")]
    pub data: Vec<u8>,
    pub claim: Claim,
}

/// The seat tokens of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    pub given: Option<u128>,
    pub returned: Option<u128>,
    pub is_one_per_user: bool,
    pub keeps_returned: bool,
}

/// Bytes of an application.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    pub is_json: bool,
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
}

/// To a node with players of the room.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToEdge {
    Joined {
        room: RoomId,
        seat: Seat,
        outcome: JoinOutcome,
    },
    Keyframe {
        room: RoomId,
        /// The shards that need it.
        shards: Vec<u16>,
        map: Map,
        update: Update,
    },
    Tick {
        room: RoomId,
        update: Update,
        parts: Vec<TickPart>,
    },
    Event {
        room: RoomId,
        #[serde(with = "serde_bytes")]
        data: Vec<u8>,
        /// `None` for all players.
        audience: Option<Audience>,
    },
    Unseated {
        room: RoomId,
        seat: Seat,
        code: u32,
        reason: Option<Box<str>>,
    },
    Over {
        room: RoomId,
        code: u32,
        reason: Option<Box<str>>,
    },
}

impl ToEdge {
    pub const fn room(&self) -> RoomId {
        match self {
            Self::Joined { room, .. }
            | Self::Keyframe { room, .. }
            | Self::Tick { room, .. }
            | Self::Event { room, .. }
            | Self::Unseated { room, .. }
            | Self::Over { room, .. } => *room,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum JoinOutcome {
    Joined { is_back: bool },
    Refused { code: u16, message: Box<str> },
    Reserved,
    Gone,
    Unavailable,
}

/// The map of a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Map {
    pub columns: u16,
    pub rows: u16,
    pub cell_units: u32,
    pub near_cells: u16,
    pub far_cells: u16,
    pub far_interval_ticks: u16,
    pub ticks_per_second: u32,
}

/// A `TickUpdate`, in the format of its crate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Update(#[serde(with = "serde_bytes")] pub Vec<u8>);

/// The part of a tick for one shard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TickPart {
    pub shard: u16,
    pub inputs_taken: u32,
    pub changes: Vec<Change>,
}

/// Changes of a player.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    pub index: u32,
    pub generation: u32,
    pub view: u32,
    pub ack: u32,
    pub avatar: u32,
    pub own: Option<serde_bytes::ByteBuf>,
}

/// The recipients of an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Audience {
    pub seats: Vec<Seat>,
    pub users: Vec<Box<str>>,
}
