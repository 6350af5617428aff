//! The kinds of questions: of each, the name of its method, its parameters and its answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use dunlin_cluster::keys;
use dunlin_engine::event::{PeerKey, PeerKeys};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned};
use serde_json::{
    Map, Value,
    value::{RawValue, to_raw_value},
};

use super::{
    access_rules::{AccessAnswer, AccessOrder, AccessQuestion},
    matchmaking::{
        HandOverOrder, HandOverReply, MatchRooms, MatchRoomsQuestion, OpenRoomOrder, ReserveOrder, RoomOpening,
        TicketOrder, TicketReply,
    },
    message::NotUnderstood,
    occupancy::{OccupancyAnswer, OccupancyQuestion},
    presence::{Presence, PresenceQuestion, PresenceUsers, PresenceUsersQuestion},
    recordings::{RecordingList, RecordingPart, RecordingPartQuestion, RecordingsQuestion},
    rooms::{CloseRoomOrder, RoomClosed, RoomStateAnswer, RoomStateQuestion},
    sessions::{DisconnectOrder, PaceOrder, RefreshOrder, SubscribeOrder, UnsubscribeOrder},
};

/// The parameters of a question.
pub trait Question: Serialize + DeserializeOwned + Sync {
    /// The name of the kind in messages.
    const METHOD: &'static str;

    /// Maximum size of an answer that is read. Any answer is one message of NATS.
    const ANSWER_BYTES_MAX: usize;

    /// What the other node answers.
    type Answer: Serialize + DeserializeOwned + Send;
}

/// A page of rooms has at most half a MiB, unless its only room has more: metadata of 64 KiB and parameters of 1 MiB at most.
const ROOM_LIST_BYTES_MAX: usize = 2 << 20;

/// A list of recordings has the newest hundred, each with names and a reason.
const RECORDINGS_BYTES_MAX: usize = 1 << 20;

macro_rules! questions {
    ($($(#[$doc:meta])* $kind:ident = $method:literal, $question:ty => $answer:ty $(, $bytes_max:expr)?;)*) => {
        /// A question of another node.
        #[derive(Clone, Debug)]
        pub enum Received { $($(#[$doc])* $kind($question),)* }

        /// The names of all kinds.
        #[cfg(test)]
        pub(super) const METHODS: &[&str] = &[$($method),*];

        impl Received {
            pub(super) fn of(method: &str, params: &RawValue) -> Result<Self, NotUnderstood> {
                match method {
                    $($method => Ok(Self::$kind(serde_json::from_str(params.get())?)),)*
                    _ => Err(NotUnderstood::Unknown),
                }
            }
        }

        $(impl Question for $question {
            const METHOD: &'static str = $method;

            const ANSWER_BYTES_MAX: usize = [$($bytes_max,)? usize::MAX][0];

            type Answer = $answer;
        })*
    };
}

questions! {
    /// The sessions in a channel's presence.
    Presence = "presence", PresenceQuestion => Presence;
    /// The users of a channel's presence. Their numbers cannot be added, because a user can be on several nodes.
    PresenceUsers = "presence_users", PresenceUsersQuestion => PresenceUsers;
    /// The channels with subscribers.
    Channels = "channels", ChannelsQuestion => Channels;
    /// A page of the channels with subscribers, for the console.
    ChannelPage = "channel_page", ChannelPageQuestion => ChannelPart;
    /// The subscribers of some channels.
    ChannelCounts = "channel_counts", ChannelCountsQuestion => Channels;
    /// What a node says about itself.
    Info = "info", InfoQuestion => Info;
    /// The state of a node, for the console.
    Status = "status", StatusQuestion => Info;
    /// All rooms.
    Rooms = "rooms", RoomsQuestion => Rooms;
    /// A page of rooms.
    RoomList = "room_list", RoomListQuestion => RoomList, ROOM_LIST_BYTES_MAX;
    /// The rooms of a channel. A node has at most one; a node without one returns an empty list, not an error.
    ChannelRooms = "channel_rooms", ChannelRoomsQuestion => ChannelRooms;
    /// A page of sessions.
    Sessions = "sessions", SessionsQuestion => Sessions;
    /// Whether the node has the room of a channel, or asks for it as well.
    RoomState = "room_state", RoomStateQuestion => RoomStateAnswer;
    /// Close the room of a channel, if the node has it.
    CloseRoom = "close_room", CloseRoomOrder => RoomClosed;
    /// The newest recordings, for the console.
    Recordings = "recordings", RecordingsQuestion => RecordingList, RECORDINGS_BYTES_MAX;
    /// A part of a recording, which the console of another node replays.
    RecordingPart = "recording_part", RecordingPartQuestion => RecordingPart, RECORDINGS_BYTES_MAX;
    /// The newest publications of a channel's keys.
    NewestKeys = "newest_keys", NewestKeysQuestion => NewestKeys;
    /// The channels that have got their first subscriber, or lost their last one.
    Occupancy = "occupancy", OccupancyQuestion => OccupancyAnswer;
    /// Commands of a session whose transport carries data only from the server.
    Emulate = "emulate", EmulateOrder => EmulateAnswer;
    /// Close sessions.
    Disconnect = "disconnect", DisconnectOrder => Done;
    /// End subscriptions.
    Unsubscribe = "unsubscribe", UnsubscribeOrder => Done;
    /// Subscribe sessions.
    Subscribe = "subscribe", SubscribeOrder => Done;
    /// Put rules about who may not connect in force.
    Access = "access", AccessOrder => Done;
    /// A page of the rules about who may not connect.
    AccessRules = "access_rules", AccessQuestion => AccessAnswer;
    /// Set the expiry of sessions.
    Refresh = "refresh", RefreshOrder => Done;
    /// Change paces of sessions or of their subscriptions.
    Pace = "pace", PaceOrder => Done;
    /// A command about a ticket of matchmaking.
    MatchTicket = "match_ticket", TicketOrder => TicketReply;
    /// Go on with tickets that are in no room.
    MatchHandOver = "match_hand_over", HandOverOrder => HandOverReply;
    /// A page of the rooms that queues and lobbies know.
    MatchRooms = "match_rooms", MatchRoomsQuestion => MatchRooms;
    /// Open a room on this node.
    OpenRoom = "open_room", OpenRoomOrder => RoomOpening;
    /// Reserve places in a room of this node.
    ReservePlaces = "reserve_places", ReserveOrder => Done;
}

/// The answer to a command, which has taken effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {}

/// A JSON object in which a node describes itself or a room. It is passed on unchanged, because a node of another release
/// may describe more than this one knows.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Description(Box<RawValue>);

impl Description {
    /// The description as JSON; `None` if it is not an object.
    pub fn new(described: &impl Serialize) -> Option<Self> {
        to_raw_value(described).ok().and_then(Self::of_json)
    }

    fn of_json(json: Box<RawValue>) -> Option<Self> {
        json.get().starts_with('{').then_some(Self(json))
    }

    /// The JSON object.
    pub fn json(&self) -> &str {
        self.0.get()
    }
}

impl<'de> Deserialize<'de> for Description {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Box::<RawValue>::deserialize(deserializer)?;
        Self::of_json(json).ok_or_else(|| serde::de::Error::custom("not an object"))
    }
}

/// The channels whose names match a pattern.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChannelsQuestion {
    /// Empty for all channels.
    pub pattern: Box<str>,
}

/// Channels with subscribers, by name.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Channels {
    /// The channels.
    pub channels: BTreeMap<Box<str>, ChannelCount>,
}

/// The sessions in a channel.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ChannelCount {
    /// Their number.
    pub num_clients: u32,
}

/// The channels that a page lists.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChannelPageQuestion {
    /// The name after which the page begins, in the order of names; empty for the first page.
    pub cursor: Box<str>,
    /// The most subscribers first; otherwise in the order of names.
    pub largest: bool,
    /// Maximum number of channels.
    pub limit: usize,
    /// The pattern of names; empty for all.
    pub pattern: Box<str>,
}

/// A page of the channels of a node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ChannelPart {
    /// In the order of the page.
    pub channels: Vec<CountedChannel>,
    /// Whether more channels follow the last one.
    pub more: bool,
    /// How many channels match, on all pages.
    pub total: u64,
}

/// A channel in a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedChannel {
    /// Its name.
    pub channel: Box<str>,
    /// Its subscribers.
    pub num_clients: u32,
}

/// The channels whose subscribers are counted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChannelCountsQuestion {
    /// Their names.
    pub channels: BTreeSet<Box<str>>,
}

/// See [`Received::Info`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct InfoQuestion {}

/// See [`Received::Status`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct StatusQuestion {}

/// A node's description of itself, in a list.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Info {
    /// The descriptions.
    pub nodes: Vec<Description>,
}

/// See [`Received::Rooms`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct RoomsQuestion {}

/// The rooms of a node, by channel.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rooms {
    /// The rooms.
    pub rooms: BTreeMap<Box<str>, Description>,
}

/// The rooms that a page lists.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RoomListQuestion {
    /// The place after which the page begins; empty for the first page.
    pub cursor: Box<str>,
    /// Whether unlisted rooms are wanted.
    pub include_unlisted: bool,
    /// Maximum number of rooms.
    pub limit: usize,
    /// Only locked rooms, or only others.
    pub locked: Option<bool>,
    /// Members that the metadata has.
    pub metadata: Map<String, Value>,
    /// Minimum number of free places.
    pub min_free_places: u32,
    /// The namespace; `None` for all.
    pub namespace: Option<Box<str>>,
    /// The pattern of channel names; empty for all.
    pub pattern: Box<str>,
}

/// A page of rooms.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RoomList {
    /// In the order of their places.
    pub rooms: Vec<ListedRoom>,
    /// The place of the last one, if more rooms follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more: Option<Box<str>>,
}

/// A room in a page, with the fields that determine its place.
#[derive(Clone, Debug)]
pub struct ListedRoom {
    /// Its channel.
    pub channel: Box<str>,
    /// The id of its node.
    pub node_uid: Box<str>,
    /// Its description.
    pub room: Description,
}

impl ListedRoom {
    /// A room that is described by `room`; `None` if that has no place.
    pub fn new(room: Description) -> Option<Self> {
        #[derive(Deserialize)]
        struct Placed {
            channel: Box<str>,
            node: NodeUid,
        }
        #[derive(Deserialize)]
        struct NodeUid {
            uid: Box<str>,
        }
        let Placed { channel, node } = serde_json::from_str(room.json()).ok()?;
        Some(Self { channel, node_uid: node.uid, room })
    }
}

impl Serialize for ListedRoom {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.room.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ListedRoom {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let room = Description::deserialize(deserializer)?;
        Self::new(room).ok_or_else(|| serde::de::Error::custom("a room without a place"))
    }
}

/// See [`Received::ChannelRooms`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChannelRoomsQuestion {
    /// The channel.
    pub channel: Box<str>,
}

/// The rooms of a channel on one node: zero or one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChannelRooms {
    /// The rooms.
    pub rooms: Vec<Description>,
}

/// The sessions that a page lists.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SessionsQuestion {
    /// The address of their clients.
    pub address: Option<Box<str>>,
    /// A channel that they are subscribed to.
    pub channel: Option<Box<str>>,
    /// The public id of the session.
    pub client: Option<Box<str>>,
    /// The place after which the page begins; empty for the first page.
    pub cursor: Box<str>,
    /// Whether their queues are divided by channel.
    pub explained: bool,
    /// Maximum number of sessions.
    pub limit: usize,
    /// Their user; empty for the anonymous user.
    pub user: Option<Box<str>>,
}

/// A page of sessions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sessions {
    /// In the order of their places.
    pub sessions: Vec<ListedSession>,
    /// Whether more sessions follow the last one.
    pub more: bool,
    /// The parts of the node that did not answer.
    pub missing: Vec<MissingPart>,
}

/// A session in a page, with its place.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListedSession {
    /// Unix time since which its oldest frame has waited; the maximum if none waits.
    pub behind_since_us: u64,
    /// Its public id.
    pub client: Box<str>,
    /// Its description.
    pub session: Description,
}

/// A part of a result that is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingPart {
    /// The name of the node, or its id if it has none.
    pub node: Box<str>,
    /// For human readers.
    pub why: String,
}

/// See [`Received::NewestKeys`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NewestKeysQuestion {
    /// The channel.
    pub channel: Box<str>,
}

/// The newest publications of keys, in the format of [`dunlin_cluster::keys`].
#[derive(Clone, Debug)]
pub struct NewestKeys {
    /// The publications, the newest first, and whether some are missing.
    pub found: PeerKeys,
    /// Of an answer to be written, its maximum size.
    bytes_max: usize,
}

impl NewestKeys {
    /// An answer of at most this size: it has the first of these that fit, and says whether some are missing.
    pub const fn new(found: Vec<PeerKey>, bytes_max: usize) -> Self {
        Self { found: PeerKeys { keys: found, is_partial: false }, bytes_max }
    }
}

impl Serialize for NewestKeys {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        keys::encode(&self.found.keys, self.bytes_max).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for NewestKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Box::<RawValue>::deserialize(deserializer)?;
        let found = keys::decode(json.get()).ok_or_else(|| serde::de::Error::custom("not keys"))?;
        Ok(Self { found, bytes_max: usize::MAX })
    }
}

/// See [`Received::Emulate`].
#[derive(Clone, Serialize, Deserialize)]
pub struct EmulateOrder {
    /// The secret id of the session.
    pub session: Box<str>,
    /// The commands.
    #[serde(rename = "b64data", with = "super::presence::base64")]
    pub commands: Vec<u8>,
}

/// Hides the session's secret id, and what its client sends.
impl fmt::Debug for EmulateOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { session: _, commands } = self;
        f.debug_struct("EmulateOrder").field("bytes", &commands.len()).finish_non_exhaustive()
    }
}

/// The answer to [`EmulateOrder`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct EmulateAnswer {
    /// False if too many bytes are queued for the session.
    pub taken: bool,
}
