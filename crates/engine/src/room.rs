//! The messages between shards and room threads.
//!
//! A room belongs to a channel whose namespace has [`crate::options::NamespaceOptions::room`]. The channel's owner opens
//! it, on the room thread with the least to do, and everything about who is in it takes one road: session's shard →
//! owner → room thread → owner → session's shard, over rings that keep order. So the owner's book of subscribers and the
//! room's book of players agree, a room is closed only when nobody can be on the way to it, and events, which take the
//! road back, cannot overtake the answer to a join. Inputs and snapshots, which are many and may be dropped, go directly
//! between a session's shard and the room thread.
//!
//! What a room thread does with these is decided by a pure type, `RoomHost` in `engine::host`, which the simulator runs as
//! well; the server's room threads only carry messages and keep the time.
//!
//! A message from a room thread leads a shard to send notices to shards, and to room threads nothing but
//! [`ToRoom::Close`], one for a room. A message to a room thread never holds up a shard: what waits for a thread is
//! bounded by the subscriptions that there are and by each room's inbox.

use core::net::IpAddr;
use std::{fmt, sync::Arc};

use bytes::Bytes;
use dunlin_protocol::{ClientInfo, ErrorCode, Payload, UnsubscribeCode};
use dunlin_rooms::{CellIndex, Grid, ListingChange, Refusal, RoomOverrides, TickUpdate};

use crate::{
    ShardIndex,
    api::{KickOrder, PlaceReservation},
    message::SubscriptionRequest,
};

/// A room thread's number on its node, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RoomThreadIndex(pub u16);

/// A room on its node. The owner of its channel gives the number, and gives none twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RoomKey {
    /// The owner of its channel.
    pub owner: ShardIndex,
    /// The owner's number for it.
    pub number: u64,
}

/// A player's place on the shard of its session: one session's subscription to one room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeatKey {
    /// The shard of the session.
    pub shard: ShardIndex,
    /// Its number there.
    pub index: u32,
    /// Counts the seats that had this number, so that what arrives late for the first finds nobody.
    pub generation: u32,
}

/// What a subscription to a room needs beyond one to a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinParams {
    /// Where the player will sit.
    pub seat: SeatKey,
    /// The session's user, its client id and its info.
    pub info: Arc<ClientInfo>,
    /// The client's address, if the game learns it.
    pub address: Option<IpAddr>,
    /// Whether it only watches.
    pub is_spectator: bool,
    /// What the client gave for the game.
    pub data: Bytes,
    /// Whether a room may be opened for it.
    pub opening: Opening,
    /// Which player it may take over, and how it can come back.
    pub claim: SeatClaim,
}

/// A secret of 128 random bits that brings a client back to its player.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SeatToken(pub u128);

/// The seat tokens of a join.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeatClaim {
    /// The token that the answer gives the client; `None` where players are not kept.
    pub given: Option<SeatToken>,
    /// The token that the client has returned: that of its last join.
    pub returned: Option<SeatToken>,
    /// Whether the join takes over the user's player, also if that has a client.
    pub is_one_per_user: bool,
    /// Whether `returned` stays valid until the client has shown that it has `given`. Not in logs of earlier versions.
    pub keeps_returned: bool,
}

/// Why a seat token that a join returned has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenRefusal {
    /// No player of the room has it: it is void or invented.
    Unknown,
    /// Its player is another user's.
    OtherUser,
}

/// How a session leaves a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// Its subscription has ended.
    Left,
    /// Its connection has ended. It may come back.
    Lost,
}

/// A seat that becomes free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftSeat {
    /// The room.
    pub room: RoomKey,
    /// The seat.
    pub seat: SeatKey,
    /// How its session left.
    pub departure: Departure,
}

/// How a player has joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinedAs {
    /// Whether it was in the room before.
    pub is_back: bool,
}

/// The member of a join's data with which a client asks to watch, and its value.
const SEAT: (&str, &str) = ("seat", "spectator");

/// Whether a join's data asks for watching only.
pub fn asks_to_spectate(data: &[u8]) -> bool {
    dunlin_protocol::text_member(data, SEAT.0).is_some_and(|value| value == SEAT.1)
}

/// The member of a join's data, and of the answer's, that contains a seat token.
const SEAT_TOKEN: &str = "seat_token";
/// Hexadecimal digits of a seat token.
const SEAT_TOKEN_DIGITS: usize = 32;

impl SeatToken {
    /// The token in a join's data, if that is a JSON object with one.
    pub fn in_join_data(data: &[u8]) -> Option<Self> {
        let text = dunlin_protocol::text_member(data, SEAT_TOKEN)?;
        let is_token = text.len() == SEAT_TOKEN_DIGITS && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        u128::from_str_radix(&text, 16).ok().filter(|_| is_token).map(Self)
    }

    /// What the answer to a subscription has as its data. `is_back`: whether the player was in the room before. `given`: what
    /// the backend or the client's token gives as data. If that is no JSON object, it has no place for the seat token.
    pub fn answer(self, is_back: bool, given: Option<Payload>) -> Payload {
        let members = format!(r#""{SEAT_TOKEN}":"{:032x}","seat_resumed":{is_back}}}"#, self.0);
        let Some(given) = given else { return Payload::from_json(format!("{{{members}").into()) };
        let of_object = given.bytes().trim_ascii().strip_prefix(b"{").and_then(|rest| rest.strip_suffix(b"}"));
        let Some(of_object) = of_object.filter(|_| given.is_json()) else { return given };
        let comma = if of_object.trim_ascii().is_empty() { "" } else { "," };
        Payload::from_json([b"{", of_object, comma.as_bytes(), members.as_bytes()].concat().into())
    }
}

/// Does not show it.
impl fmt::Debug for SeatToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SeatToken")
    }
}

/// Whether a room may be opened for a join that finds none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// The session and its address have an opening left, which is set aside until the answer.
    Reserved,
    /// They have none left.
    Refused(RoomRefusal),
    /// The owner opened a room: the opening is used.
    Used,
}

/// Why a room is not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoomRefusal {
    /// As many rooms are open as may be.
    Limit,
    /// As many worlds are being made as may be.
    Queue,
    /// The node has opened as many in the last second as it may.
    Rate,
    /// The session has.
    SessionRate,
    /// The client's address has.
    AddressRate,
    /// Whoever opens it may not set its parameters, or they are too long.
    Params,
    /// Its metadata is too long, or its number of players is not possible.
    Listing,
}

impl RoomRefusal {
    /// Every reason, in the order of their places in [`crate::counters::NamespaceRoomCounters::refused`].
    pub const ALL: [Self; 7] =
        [Self::Limit, Self::Queue, Self::Rate, Self::SessionRate, Self::AddressRate, Self::Params, Self::Listing];

    /// The name as metrics write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Queue => "queue",
            Self::Rate => "rate",
            Self::SessionRate => "session_rate",
            Self::AddressRate => "address_rate",
            Self::Params => "params",
            Self::Listing => "listing",
        }
    }

    /// The error that a join is answered with.
    pub const fn code(self) -> ErrorCode {
        match self {
            Self::Limit => ErrorCode::LimitExceeded,
            Self::Params | Self::Listing => ErrorCode::BadRequest,
            Self::Queue | Self::Rate | Self::SessionRate | Self::AddressRate => ErrorCode::TooManyRequests,
        }
    }
}

/// To a room thread.
#[derive(Debug)]
pub enum ToRoom {
    /// From the owner, before anything else about the room.
    Open {
        /// The room.
        room: RoomKey,
        /// Its channel.
        channel: Arc<str>,
        /// The namespace's place in [`crate::Options::namespaces`], from 1; 0 for channels without one.
        namespace: u16,
        /// What differs from the settings of the namespace.
        overrides: Arc<RoomOverrides>,
    },
    /// From the owner: a player wants to join. Answered with [`FromRoom::Joined`]. `request.join` is there.
    Join {
        /// The room.
        room: RoomKey,
        /// The subscription, given back with the answer.
        request: Box<SubscriptionRequest>,
    },
    /// From the owner: a player whose join was accepted is gone.
    Leave {
        /// The room.
        room: RoomKey,
        /// Whose.
        seat: SeatKey,
        /// How it left.
        departure: Departure,
    },
    /// From a session's shard: a player's input. It counts against the room's inbox until [`FromRoom::Tick`] says that it
    /// was taken.
    Input {
        /// The room.
        room: RoomKey,
        /// Whose.
        seat: SeatKey,
        /// The client's number for it.
        number: u32,
        /// For the game.
        data: Bytes,
    },
    /// From the owner: a message of the backend. Answered with [`FromRoom::Answered`], unless the room ends before.
    Message {
        /// The room.
        room: RoomKey,
        /// The owner's number for it.
        id: u64,
        /// For the game.
        data: Bytes,
    },
    /// From the owner: the backend changes how the room is listed. Answered as a message.
    ChangeListing {
        /// The room.
        room: RoomKey,
        /// The owner's number for it.
        id: u64,
        /// The change.
        change: Arc<ListingChange>,
    },
    /// From the owner: the backend removes players. Answered as a message.
    Kick {
        /// The room.
        room: RoomKey,
        /// The owner's number for it.
        id: u64,
        /// Whom.
        order: Arc<KickOrder>,
    },
    /// From the owner: places are reserved, or released.
    ReservePlaces {
        /// The room.
        room: RoomKey,
        /// In order.
        reservations: Arc<[PlaceReservation]>,
    },
    /// From the owner: nobody is or will be there. The last message about the room.
    Close {
        /// The room.
        room: RoomKey,
        /// The code; players that have joined after all receive it.
        code: UnsubscribeCode,
        /// The reason for clients; `None` for that of the code.
        reason: Option<Arc<str>>,
    },
}

impl ToRoom {
    /// The room that it is about.
    pub const fn room(&self) -> RoomKey {
        match self {
            Self::Open { room, .. }
            | Self::Join { room, .. }
            | Self::Leave { room, .. }
            | Self::Input { room, .. }
            | Self::Message { room, .. }
            | Self::ChangeListing { room, .. }
            | Self::Kick { room, .. }
            | Self::ReservePlaces { room, .. }
            | Self::Close { room, .. } => *room,
        }
    }
}

/// From a room thread. The first eight go to the owner of the channel that they name.
#[derive(Debug)]
pub enum FromRoom {
    /// The room's world is made. The first message about a room that does not fail before.
    Made {
        /// The room.
        room: RoomKey,
        /// Its channel.
        channel: Arc<str>,
    },
    /// The answer to a join.
    Joined {
        /// The room.
        room: RoomKey,
        /// The subscription that it answers.
        request: Box<SubscriptionRequest>,
        /// Whether the player is in.
        outcome: Result<JoinedAs, NotJoined>,
    },
    /// The game's answer to a message of the backend.
    Answered {
        /// The room.
        room: RoomKey,
        /// Its channel.
        channel: Arc<str>,
        /// The owner's number for the message.
        id: u64,
        /// The answer, or why the game does not carry it out.
        answer: Result<Bytes, Refusal>,
    },
    /// An event of the room: a publication of its channel with an offset.
    Event {
        /// The room. Of one that is over, nothing is published any more.
        room: RoomKey,
        /// The channel.
        channel: Arc<str>,
        /// The JSON document.
        data: Payload,
        /// For whom; `None` for everybody.
        audience: Option<Box<EventAudience>>,
    },
    /// A publication of the simulation in another channel.
    Publish {
        /// The channel.
        channel: Arc<str>,
        /// The JSON document.
        data: Payload,
    },
    /// The room has been empty for as long as it may be. Answered with [`ToRoom::Close`], unless somebody is on the way.
    Idle {
        /// The room.
        room: RoomKey,
        /// Its channel.
        channel: Arc<str>,
    },
    /// The game wants the room to end. Repeated until [`ToRoom::Close`] comes.
    Closing {
        /// The room.
        room: RoomKey,
        /// Its channel.
        channel: Arc<str>,
        /// The reason, for clients.
        reason: Arc<str>,
    },
    /// The room failed and is gone. The shards of its players receive [`FromRoom::Over`].
    Failed {
        /// The room.
        room: RoomKey,
        /// Its channel.
        channel: Arc<str>,
        /// The reason for whoever opened it, if there is one that helps.
        refusal: Option<Refusal>,
    },
    /// To a shard that is about to have the room's first player, or the first with an encoding: the whole world. Comes
    /// before the tick that names the player.
    Keyframe {
        /// The room.
        room: RoomKey,
        /// Its channel.
        channel: Arc<str>,
        /// Its map.
        grid: Grid,
        /// Ticks in a second.
        ticks_per_second: u32,
        /// The world.
        keyframe: Arc<TickUpdate>,
    },
    /// To every shard that has players of the room: a tick.
    Tick {
        /// The room.
        room: RoomKey,
        /// What changed.
        update: Arc<TickUpdate>,
        /// What is new about players of this shard. A player gets frames from the first tick on that names it.
        changes: Vec<SeatChange>,
        /// Inputs of this shard that left the room's inbox since the last tick.
        inputs_taken: u32,
    },
    /// To every shard that has players of the room: their subscriptions are over.
    Over {
        /// The room.
        room: RoomKey,
        /// Why.
        code: UnsubscribeCode,
        /// The reason for clients; `None` for that of the code.
        reason: Option<Arc<str>>,
    },
    /// To the shard of a session: its player is gone, or another session has it.
    Unseated {
        /// The room.
        room: RoomKey,
        /// The session's seat.
        seat: SeatKey,
        /// Why.
        code: UnsubscribeCode,
        /// The reason for the client; `None` for that of the code.
        reason: Option<Arc<str>>,
    },
    /// To every shard, now and then: how busy the thread is.
    Load {
        /// Thousandths of the last second that it spent ticking; rooms that it has, if that is nothing.
        permille: u16,
        /// Rooms that it has.
        rooms: u32,
    },
}

/// Why a player is not in a room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotJoined {
    /// The game does not want it.
    Refused(Refusal),
    /// All free places are reserved for other users.
    Reserved,
    /// The room is gone; there may be another one soon.
    Gone,
}

/// For whom an event is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventAudience {
    /// The players' seats, in ascending order.
    pub seats: Arc<[SeatKey]>,
    /// The distinct user ids of those that have one, in ascending order: who may recover the event, and read it in the
    /// channel's history.
    pub users: Arc<[Arc<str>]>,
}

impl EventAudience {
    /// The seats on `shard`.
    pub fn seats_on(&self, shard: ShardIndex) -> &[SeatKey] {
        let start = self.seats.partition_point(|seat| seat.shard < shard);
        let end = self.seats.partition_point(|seat| seat.shard <= shard);
        self.seats.get(start..end).unwrap_or_default()
    }
}

/// What is new about a player, for the header of its frames.
#[derive(Clone, Debug)]
pub struct SeatChange {
    /// Whose.
    pub seat: SeatKey,
    /// The cell that it looks from.
    pub view: CellIndex,
    /// The number of the last input that was applied.
    pub ack: u32,
    /// Its own object; 0 for none.
    pub avatar: u32,
    /// All objects that it alone is sent, in its encoding, if they changed.
    pub own: Option<Bytes>,
}
