//! What the nodes of a cluster ask each other, and how they answer. The server API and the shards both ask through it.
//!
//! [`kinds`] declares each kind of question once, with its answer. A message is a JSON document with the version of the
//! format. It becomes a type where it arrives, and what is not understood is counted and refused. Nodes of the previous
//! release exchange the same bytes (`peers/golden.txt`).
//!
//! All kinds share the bounds of a survey: `broker.nats.peers.survey_timeout` is the deadline, `surveys_limit` bounds
//! what a node asks, `queries_limit` what it answers, and an answer is one message of NATS.

mod access_rules;
mod ask;
mod channel_owner;
mod counters;
mod forwards;
mod kinds;
mod matchmaking;
mod message;
mod occupancy;
mod presence;
mod recordings;
mod rooms;
mod serve;
mod sessions;
mod shards;
#[cfg(test)]
mod tests;

pub use access_rules::{AccessAnswer, AccessOrder, AccessQuestion};
pub use ask::{AskFault, ForwardFault, MissingPeer, PeerAnswers, ask_all, ask_node, emulate_on};
#[cfg(test)]
pub(crate) use tests::arrived;

pub(crate) use message::json_bytes;

pub use counters::{QuestionCounters, QuestionCounts};
pub use forwards::{Forward, Forwards};
pub use kinds::{
    ChannelCount, ChannelCountsQuestion, ChannelPageQuestion, ChannelPart, ChannelRooms, ChannelRoomsQuestion,
    Channels, ChannelsQuestion, CountedChannel, Description, Done, Info, InfoQuestion, ListedRoom, ListedSession,
    MissingPart, NewestKeysQuestion, Question, Received, RoomList, RoomListQuestion, Rooms, RoomsQuestion, Sessions,
    SessionsQuestion, StatusQuestion,
};
pub use matchmaking::{
    HandOverOrder, HandOverReply, MatchRooms, MatchRoomsQuestion, OpenRoomOrder, ReserveOrder, RoomOpening,
    TicketOrder, TicketReply,
};
pub use message::{NOT_UNDERSTOOD, PeerError};
pub use occupancy::{OccupancyAnswer, OccupancyQuestion};
pub use presence::{Presence, PresenceQuestion, PresenceUsers, PresenceUsersQuestion};
pub use recordings::{
    ListedRecording, RecordingList, RecordingNode, RecordingPart, RecordingPartQuestion, RecordingsQuestion,
};
pub use rooms::{CloseRoomOrder, RoomClosed, close_room_here};
pub use serve::{AskedParts, LocalReports, OwnName, PeerService};
pub use sessions::{DisconnectOrder, PaceOrder, RefreshOrder, SubscribeOrder, UnsubscribeOrder};
pub use shards::{ChannelQuestion, QuestionKind, QuestionQueue, QuestionReceivers, QuestionSenders};
