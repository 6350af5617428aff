//! The messages between shards and room threads.
//!
//! A room belongs to a channel whose namespace has [`crate::options::NamespaceOptions::room`]. The channel's owner
//! opens it on the least loaded room thread. All joins and leaves take one path: session's shard → owner → room thread
//! → owner → session's shard, over FIFO rings. So the owner's subscribers and the room's players agree, a room is
//! closed only when no join is in flight, and events, which take the same path back, cannot overtake the answer to a
//! join. Inputs and snapshots, which are frequent and may be dropped, go directly between a session's shard and the
//! room thread.
//!
//! `RoomHost` in `engine::host`, a pure type that the simulator also runs, decides what a room thread does with these
//! messages. The server's room threads only pass messages and keep the time.
//!
//! A room of another node may be lost and go on elsewhere. Its players stay subscribed then: their seats are *kept*, and each
//! session's shard joins again for them, with [`SeatClaim::keeping`], on the way that joins take. Until a tick of the room has
//! named the seat, its inputs wait at the session's shard.
//!
//! A message from a room thread makes a shard send only notices to shards, and to room threads only [`ToRoom::Close`], once
//! per room, the inputs of a kept seat, once, and [`ToRoom::Carried`], once per tick. A message to a room thread never blocks
//! a shard: what waits for a thread is bounded by the number of subscriptions, by each room's inbox, and by the ticks that the
//! thread itself has sent.

use core::net::IpAddr;
use std::{fmt, sync::Arc};

use bytes::Bytes;
use dunlin_protocol::{ClientInfo, ErrorCode, Payload, UnsubscribeCode};
use dunlin_rooms::{CellIndex, Grid, ListingChange, Refusal, RoomOverrides, TickUpdate, recording::Carried};

use crate::{
    ShardIndex,
    api::{KickOrder, PlaceReservation},
    event::NodeSlot,
    message::SubscriptionRequest,
};

/// A room thread's number on its node, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RoomThreadIndex(pub u16);

/// A room on its node. The owner of its channel assigns the number and never reuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RoomKey {
    /// The owner of its channel.
    pub owner: ShardIndex,
    /// The number that the owner assigned.
    pub number: u64,
}

/// One session's subscription to one room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeatKey {
    /// The shard of the session.
    pub shard: ShardIndex,
    /// The seat's index on that shard.
    pub index: u32,
    /// Counts the seats that have used this index, so that a late message for an earlier seat matches no seat.
    pub generation: u32,
}

impl RoomKey {
    /// The shard that receives the answer to a join: the owner, which subscribes the player; or that of a session on
    /// another node, where the owner of the channel on that node does.
    pub fn answers_join_at(self, seat: SeatKey) -> ShardIndex {
        if seat.shard.node() == NodeSlot::OWN { self.owner } else { seat.shard }
    }
}

/// The part of a subscription to a room that plain channels do not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinParams {
    /// The player's seat.
    pub seat: SeatKey,
    /// The session's user, its client id and its info.
    pub info: Arc<ClientInfo>,
    /// The client's address, if the game receives it.
    pub address: Option<IpAddr>,
    /// Whether the client joins as a spectator.
    pub is_spectator: bool,
    /// Whether the client reads the fields of states.
    pub is_typed: bool,
    /// The client's data for the game.
    pub data: Bytes,
    /// Whether the join may open a room.
    pub opening: Opening,
    /// The player that the join may take over, and its new seat token.
    pub claim: SeatClaim,
    /// Until when the join asks again for a room that moves to another node. Then it is refused.
    pub waits_until_us: u64,
    /// Until when its answer waits for the client to read. Then it is refused.
    pub held_until_us: u64,
}

/// Maximum time for which a join waits for a room that moves to another node, and after that until its client reads.
pub(crate) const JOIN_WAIT_MAX_MS: u64 = 3_000;

/// Maximum time from a client's subscribe command until its join is answered. SDKs wait 5 s, and need time to receive the answer.
pub(crate) const JOIN_HELD_MAX_MS: u64 = 4_500;

const _: () = assert!(JOIN_WAIT_MAX_MS < JOIN_HELD_MAX_MS, "a join that has waited for its room may be held");

/// A secret of 128 random bits that brings a client back to its player.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SeatToken(pub u128);

/// The seat tokens of a join.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeatClaim {
    /// The token that the answer gives the client; `None` if players are not kept.
    pub given: Option<SeatToken>,
    /// The token that the client presents: that of its last join.
    pub returned: Option<SeatToken>,
    /// Whether the join takes over the user's player even if that player has a client.
    pub is_one_per_user: bool,
    /// Whether `returned` stays valid until the client proves that it received `given`. False in logs of earlier
    /// versions.
    pub keeps_returned: bool,
}

impl SeatClaim {
    /// The claim of a node that has kept its player's subscription while the room had no host. The token stays the same, and
    /// that is what tells such a claim: the tokens that joins of clients are given are new.
    pub const fn keeping(token: SeatToken) -> Self {
        Self { given: Some(token), returned: Some(token), is_one_per_user: false, keeps_returned: false }
    }

    /// Whether this is the claim of a node, which joins for a player that the room has, and for no new one.
    pub fn is_keeping(self) -> bool {
        self.given.is_some() && self.given == self.returned
    }
}

/// Why a presented seat token has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenRefusal {
    /// No player of the room has it: it is stale or invented.
    Unknown,
    /// The player of the token belongs to another user.
    OtherUser,
}

/// How a session leaves a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// The session unsubscribed.
    Left,
    /// The connection ended. The client may return.
    Lost,
    /// The connection ended before the join was answered. The client may return.
    Unanswered,
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

/// The outcome of an accepted join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinedAs {
    /// Whether the player was already in the room.
    pub is_back: bool,
}

/// The member of a join's data with which a client asks to spectate, and its value.
const SEAT: (&str, &str) = ("seat", "spectator");

/// Whether a join's data asks to spectate.
pub fn asks_to_spectate(data: &[u8]) -> bool {
    dunlin_protocol::text_member(data, SEAT.0).is_some_and(|value| value == SEAT.1)
}

/// The member of a join's data with which a client asks for typed snapshots, and its value.
const SNAPSHOTS: (&str, &str) = ("snapshots", "typed");

/// Whether a join's data asks for snapshots with the fields of states.
pub fn asks_for_typed_snapshots(data: &[u8]) -> bool {
    dunlin_protocol::text_member(data, SNAPSHOTS.0).is_some_and(|value| value == SNAPSHOTS.1)
}

/// The member with a seat token, in a join's data and in the answer's.
const SEAT_TOKEN: &str = "seat_token";
/// Hexadecimal digits of a seat token.
const SEAT_TOKEN_DIGITS: usize = 32;

impl SeatToken {
    /// The token in a join's data, if the data is a JSON object with one.
    pub fn in_join_data(data: &[u8]) -> Option<Self> {
        let text = dunlin_protocol::text_member(data, SEAT_TOKEN)?;
        let is_token = text.len() == SEAT_TOKEN_DIGITS && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        u128::from_str_radix(&text, 16).ok().filter(|_| is_token).map(Self)
    }

    /// The data of the answer to a subscription. `is_back`: whether the player was already in the room. `given`: the
    /// data from the backend or the client's token. If `given` is not a JSON object, the seat token is left out.
    pub fn answer(self, is_back: bool, given: Option<Payload>) -> Payload {
        let members = format!(r#""{SEAT_TOKEN}":"{:032x}","seat_resumed":{is_back}}}"#, self.0);
        let Some(given) = given else { return Payload::from_json(format!("{{{members}").into()) };
        let of_object = given.bytes().trim_ascii().strip_prefix(b"{").and_then(|rest| rest.strip_suffix(b"}"));
        let Some(of_object) = of_object.filter(|_| given.is_json()) else { return given };
        let comma = if of_object.trim_ascii().is_empty() { "" } else { "," };
        Payload::from_json([b"{", of_object, comma.as_bytes(), members.as_bytes()].concat().into())
    }
}

/// Hides the token.
impl fmt::Debug for SeatToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SeatToken")
    }
}

/// Whether a join may open a room if there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// The session and its address are within their rate limits; a token is reserved until the answer.
    Reserved,
    /// A rate limit is exceeded.
    Refused(RoomRefusal),
    /// The owner opened a room: the token is used.
    Used,
}

/// Why a room is not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoomRefusal {
    /// The maximum number of rooms is open.
    Limit,
    /// The maximum number of worlds is being created.
    Queue,
    /// The node exceeded its rate limit.
    Rate,
    /// The session exceeded its rate limit.
    SessionRate,
    /// The client's address exceeded its rate limit.
    AddressRate,
    /// The client may not set these parameters, or they are too long.
    Params,
    /// The room's metadata is too long, or its maximum number of players is out of range.
    Listing,
    /// Another node of the cluster has the room.
    Elsewhere,
    /// Another node of the cluster has not answered whether it has the room.
    Unanswered,
}

impl RoomRefusal {
    /// Every reason, in index order of [`crate::counters::NamespaceRoomCounters::refused`].
    pub const ALL: [Self; 9] = [
        Self::Limit,
        Self::Queue,
        Self::Rate,
        Self::SessionRate,
        Self::AddressRate,
        Self::Params,
        Self::Listing,
        Self::Elsewhere,
        Self::Unanswered,
    ];

    /// The name used in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Queue => "queue",
            Self::Rate => "rate",
            Self::SessionRate => "session_rate",
            Self::AddressRate => "address_rate",
            Self::Params => "params",
            Self::Listing => "listing",
            Self::Elsewhere => "elsewhere",
            Self::Unanswered => "unanswered",
        }
    }

    /// The error that answers a join.
    pub const fn code(self) -> ErrorCode {
        match self {
            Self::Limit => ErrorCode::LimitExceeded,
            Self::Params | Self::Listing | Self::Elsewhere => ErrorCode::BadRequest,
            Self::Queue | Self::Rate | Self::SessionRate | Self::AddressRate | Self::Unanswered => {
                ErrorCode::TooManyRequests
            }
        }
    }
}

/// Maximum number of rooms that a shard has promised to other nodes, which then open them. A node that asks for one more
/// is told to try again.
pub const PROMISES_MAX: usize = 10_000;

/// Where another node of the cluster has a room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoomSite {
    /// The id of this run of the node.
    pub node: Arc<str>,
    /// The room on that node.
    pub room: RoomKey,
    /// The thread there that runs it.
    pub thread: RoomThreadIndex,
    /// Whether that node sends changed fields for clients that receive them. One of an earlier version sends whole states.
    pub sends_changes: bool,
}

/// Whether another node of the cluster has a room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoomElsewhere {
    /// All other nodes have answered that they do not.
    Nowhere {
        /// Whether some of them ask for it as well. All these leave it to this node, which has a lower id.
        is_contended: bool,
    },
    /// One has it.
    Open {
        /// The name of the node.
        node: Box<str>,
        /// Where to send joins; `None` if that node takes none from other nodes.
        site: Option<Box<RoomSite>>,
    },
    /// It is not known: a node has not answered, or is about to open it and may still be refused.
    Unanswered,
}

/// The state of a room on this node, as another node is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoomState {
    /// It is not open.
    None,
    /// This node asks the others whether it may open it.
    Asking,
    /// It is open, or its world is being created.
    Open {
        /// The room.
        room: RoomKey,
        /// Its thread.
        thread: RoomThreadIndex,
    },
}

/// A message to a room thread.
#[derive(Debug)]
pub enum ToRoom {
    /// From the owner, before all other messages about the room.
    Open {
        /// The room.
        room: RoomKey,
        /// The room's channel.
        channel: Arc<str>,
        /// The namespace's index in [`crate::Options::namespaces`], from 1; 0 for channels outside all namespaces.
        namespace: u16,
        /// Overrides of the namespace's settings.
        overrides: Arc<RoomOverrides>,
    },
    /// From the owner, before all other messages about the room: the players of this node join a room of another node.
    /// Only the relay receives it, which takes the place of the room's thread.
    OpenRemote {
        /// The room on this node.
        room: RoomKey,
        /// The room's channel.
        channel: Arc<str>,
        /// The room on its node.
        site: Box<RoomSite>,
    },
    /// From the owner: a client asks to join. Answered with [`FromRoom::Joined`]. `request.join` is set.
    Join {
        /// The room.
        room: RoomKey,
        /// The subscription, returned with the answer.
        request: Box<SubscriptionRequest>,
    },
    /// From the owner: a player whose join was accepted has left. With [`Departure::Unanswered`], the session of a join
    /// has ended; the join is answered anyway, and another leave follows if it is accepted.
    Leave {
        /// The room.
        room: RoomKey,
        /// The player's seat.
        seat: SeatKey,
        /// How it left.
        departure: Departure,
    },
    /// From a session's shard: a player's input. It counts against the room's inbox until a [`FromRoom::Tick`] reports
    /// it as taken.
    Input {
        /// The room.
        room: RoomKey,
        /// The player's seat.
        seat: SeatKey,
        /// The client's number of the input.
        number: u32,
        /// Bytes for the game.
        data: Bytes,
    },
    /// From the shard of sessions: what the connections of players have carried since the tick before, of those that have not
    /// simply been sent each tick with everything. Only for the recording of the room, which has asked for it in
    /// [`FromRoom::Keyframe`].
    Carried {
        /// The room.
        room: RoomKey,
        /// At most one for each frame, and one for each player that leaves.
        told: Vec<SeatCarried>,
    },
    /// From the owner: a message of the backend. Answered with [`FromRoom::Answered`], unless the room ends first.
    Message {
        /// The room.
        room: RoomKey,
        /// The owner's number of the message.
        id: u64,
        /// Bytes for the game.
        data: Bytes,
    },
    /// From the owner: the backend changes how the room is listed. Answered like a message.
    ChangeListing {
        /// The room.
        room: RoomKey,
        /// The owner's number of the change.
        id: u64,
        /// The change.
        change: Arc<ListingChange>,
    },
    /// From the owner: the backend removes players. Answered like a message.
    Kick {
        /// The room.
        room: RoomKey,
        /// The owner's number of the kick.
        id: u64,
        /// The players and spectators to remove.
        order: Arc<KickOrder>,
    },
    /// From the owner: places are reserved or released.
    ReservePlaces {
        /// The room.
        room: RoomKey,
        /// In order.
        reservations: Arc<[PlaceReservation]>,
    },
    /// From the owner: no player is in the room, and no join is in flight. The last message about the room.
    Close {
        /// The room.
        room: RoomKey,
        /// The code; players whose joins were still accepted receive it.
        code: UnsubscribeCode,
        /// The reason for clients; `None` for the default reason of the code.
        reason: Option<Arc<str>>,
    },
}

impl ToRoom {
    /// Its bytes of variable size, without the names of channels and users.
    pub fn queued_bytes(&self) -> usize {
        match self {
            Self::Input { data, .. } | Self::Message { data, .. } => data.len(),
            Self::Join { request, .. } => request.queued_bytes(),
            Self::Open { overrides, .. } => overrides.params.len(),
            Self::ReservePlaces { reservations, .. } => size_of_val(&**reservations),
            Self::Carried { told, .. } => size_of_val(&**told),
            _ => 0,
        }
    }

    /// The room that the message is about.
    pub const fn room(&self) -> RoomKey {
        match self {
            Self::Open { room, .. }
            | Self::OpenRemote { room, .. }
            | Self::Join { room, .. }
            | Self::Leave { room, .. }
            | Self::Input { room, .. }
            | Self::Carried { room, .. }
            | Self::Message { room, .. }
            | Self::ChangeListing { room, .. }
            | Self::Kick { room, .. }
            | Self::ReservePlaces { room, .. }
            | Self::Close { room, .. } => *room,
        }
    }
}

/// A message from a room thread. The first eight variants go to the owner of the channel that they name. The answer to
/// the join of a player on another node, and events for such players, go to a shard of that node, which the relay serves.
#[derive(Debug)]
pub enum FromRoom {
    /// The room's world is created. The first message about a room, unless it fails first.
    Made {
        /// The room.
        room: RoomKey,
        /// The room's channel.
        channel: Arc<str>,
    },
    /// The answer to a join.
    Joined {
        /// The room.
        room: RoomKey,
        /// The subscription that it answers.
        request: Box<SubscriptionRequest>,
        /// Whether the join was accepted.
        outcome: Result<JoinedAs, NotJoined>,
    },
    /// The game's answer to a message of the backend.
    Answered {
        /// The room.
        room: RoomKey,
        /// The room's channel.
        channel: Arc<str>,
        /// The owner's number of the message.
        id: u64,
        /// The answer, or why the game refused the message.
        answer: Result<Bytes, Refusal>,
    },
    /// An event of the room: a publication of its channel with an offset.
    Event {
        /// The room. Events of a room that has ended are not published.
        room: RoomKey,
        /// The channel.
        channel: Arc<str>,
        /// The JSON document.
        data: Payload,
        /// The recipients; `None` for all subscribers.
        audience: Option<Box<EventAudience>>,
    },
    /// A publication of the simulation in another channel.
    Publish {
        /// The channel.
        channel: Arc<str>,
        /// The JSON document.
        data: Payload,
    },
    /// The room has been empty for the maximum time. Answered with [`ToRoom::Close`], unless a join is in flight.
    Idle {
        /// The room.
        room: RoomKey,
        /// The room's channel.
        channel: Arc<str>,
    },
    /// The game ends the room. Repeated until [`ToRoom::Close`] arrives.
    Closing {
        /// The room.
        room: RoomKey,
        /// The room's channel.
        channel: Arc<str>,
        /// The reason, for clients.
        reason: Arc<str>,
    },
    /// The room failed and is gone. The shards of its players receive [`FromRoom::Over`].
    Failed {
        /// The room.
        room: RoomKey,
        /// The room's channel.
        channel: Arc<str>,
        /// The reason for the client that opened it, if there is a useful one.
        refusal: Option<Refusal>,
    },
    /// To a shard that is about to have the room's first player, or the first with an encoding: the whole world. Sent
    /// before the tick that names the player.
    Keyframe {
        /// The room.
        room: RoomKey,
        /// The room's channel.
        channel: Arc<str>,
        /// The room's map.
        grid: Grid,
        /// Ticks per second.
        ticks_per_second: u32,
        /// The world.
        keyframe: Arc<TickUpdate>,
        /// Whether the shard tells what connections have carried, because the room is recorded.
        is_recorded: bool,
    },
    /// To every shard with players of the room: a tick.
    Tick {
        /// The room.
        room: RoomKey,
        /// The changes.
        update: Arc<TickUpdate>,
        /// Changes of this shard's players. A player receives frames from the first tick that names it.
        changes: Vec<SeatChange>,
        /// Inputs of this shard that left the room's inbox since the last tick.
        inputs_taken: u32,
    },
    /// To every shard with players of the room: their subscriptions end.
    Over {
        /// The room.
        room: RoomKey,
        /// The code of the end.
        code: UnsubscribeCode,
        /// The reason for clients; `None` for the default reason of the code.
        reason: Option<Arc<str>>,
    },
    /// To the shard of a session: its player has left, or another session has taken it over.
    Unseated {
        /// The room.
        room: RoomKey,
        /// The session's seat.
        seat: SeatKey,
        /// The code of the end.
        code: UnsubscribeCode,
        /// The reason for the client; `None` for the default reason of the code.
        reason: Option<Arc<str>>,
    },
    /// To every shard, periodically: the load of the thread.
    Load {
        /// Thousandths of its time that the thread spent on ticks, or that it needs for rooms whose clocks are slowed.
        permille: u16,
        /// The number of the thread's rooms.
        rooms: u32,
    },
}

impl FromRoom {
    /// Its bytes of variable size, without the names of channels and users.
    pub fn queued_bytes(&self) -> usize {
        match self {
            Self::Joined { request, .. } => request.queued_bytes(),
            Self::Answered { answer: Ok(data), .. } => data.len(),
            Self::Event { data, .. } | Self::Publish { data, .. } => data.bytes().len(),
            Self::Keyframe { keyframe, .. } => keyframe.memory_bytes(),
            Self::Tick { update, changes, .. } => update.memory_bytes() + size_of_val(&**changes),
            _ => 0,
        }
    }
}

/// Why a join was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotJoined {
    /// The game refused it.
    Refused(Refusal),
    /// All free places are reserved for other users.
    Reserved,
    /// The room has ended; another one may open soon.
    Gone,
    /// The room goes on, but not here or not yet: its node stops or is lost, or what is stored of it cannot be read now.
    Unavailable,
}

/// The recipients of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventAudience {
    /// The players' seats, in ascending order.
    pub seats: Arc<[SeatKey]>,
    /// The distinct user ids of the players that have one, in ascending order. These users may recover the event, and
    /// read it in the channel's history.
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

/// What the connection of a player has carried, for the recording of its room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeatCarried {
    /// The player's seat.
    pub seat: SeatKey,
    /// What it has carried.
    pub carried: Carried,
}

/// Changes of a player, for the header of its frames.
#[derive(Clone, Debug)]
pub struct SeatChange {
    /// The player's seat.
    pub seat: SeatKey,
    /// The cell of its viewpoint.
    pub view: CellIndex,
    /// The number of the last applied input.
    pub ack: u32,
    /// The player's own object; 0 for none.
    pub avatar: u32,
    /// All objects that only this player receives, in its encoding, if they changed.
    pub own: Option<Bytes>,
}
