//! Merges the results of nodes.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use super::{
    super::{
        ApiError, JsonResult,
        result::to_outcome,
        room_list::{PageLimit, RoomPlace, place_of},
    },
    MissingResult, PeerResults,
};

const NOT_UNDERSTOOD: &str = "has an answer that this version does not understand";

/// The kind of a method's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResultKind {
    Presence,
    PresenceStats,
    Channels,
    Info,
    Rooms,
    /// A page of rooms.
    RoomList {
        rooms_max: usize,
    },
    RoomInfo,
    /// An empty result of a command that takes effect on each node.
    Empty,
}

/// The users of a channel's presence on one node. Each user is counted once, regardless of the number of sessions.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PresenceUsers {
    pub(super) num_clients: u32,
    /// A hash of each user's id, the same on all nodes.
    pub(super) users: BTreeSet<u64>,
}

#[derive(Serialize, Deserialize)]
struct MergedPresence {
    presence: BTreeMap<Box<str>, Box<RawValue>>,
    #[serde(default, skip_serializing_if = "is_false")]
    partial: bool,
}

#[derive(Serialize)]
struct MergedStats {
    num_clients: u32,
    num_users: u32,
    #[serde(skip_serializing_if = "is_false")]
    partial: bool,
}

#[derive(Serialize, Deserialize)]
struct MergedChannels {
    channels: BTreeMap<Box<str>, ChannelCount>,
    #[serde(default, skip_serializing_if = "is_false")]
    partial: bool,
}

#[derive(Serialize, Deserialize)]
struct ChannelCount {
    num_clients: u32,
}

#[derive(Serialize, Deserialize)]
struct MergedInfo {
    nodes: Vec<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "is_false")]
    partial: bool,
}

#[derive(Serialize, Deserialize)]
struct MergedRooms {
    rooms: BTreeMap<Box<str>, Box<RawValue>>,
    /// Additional rooms of channels for which another node also has a room.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    further_rooms: BTreeMap<Box<str>, Vec<Box<RawValue>>>,
    #[serde(default, skip_serializing_if = "is_false")]
    partial: bool,
}

/// The rooms of a channel on one node: zero or one.
#[derive(Serialize, Deserialize)]
pub(super) struct ChannelRooms {
    pub(super) rooms: Vec<Box<RawValue>>,
}

#[derive(Serialize, Deserialize)]
struct MergedRoomList {
    rooms: Vec<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    more: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "is_false")]
    partial: bool,
}

#[derive(Serialize)]
struct MergedRoomInfo {
    #[serde(flatten)]
    room: BTreeMap<Box<str>, Box<RawValue>>,
    /// Rooms of the same channel on other nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    further_rooms: Vec<Box<RawValue>>,
    #[serde(skip_serializing_if = "is_false")]
    partial: bool,
}

/// The results of all nodes. The first is from this node.
pub(super) struct Merging {
    results: Vec<Box<RawValue>>,
    missing: Vec<MissingResult>,
    is_cut_off: bool,
}

impl Merging {
    pub(super) fn new(own: Box<RawValue>, found: PeerResults) -> Self {
        let PeerResults { mut results, missing, is_cut_off } = found;
        results.insert(0, own);
        Self { results, missing, is_cut_off }
    }

    pub(super) fn finish(mut self, kind: ResultKind) -> JsonResult {
        match kind {
            ResultKind::Presence => {
                let presence = self.take::<MergedPresence>()?.into_iter().flat_map(|part| part.presence).collect();
                to_outcome(&MergedPresence { presence, partial: self.is_partial() })
            }
            ResultKind::PresenceStats => {
                let mut all = PresenceUsers::default();
                for mut part in self.take::<PresenceUsers>()? {
                    all.num_clients = all.num_clients.saturating_add(part.num_clients);
                    all.users.append(&mut part.users);
                }
                let num_users = u32::try_from(all.users.len()).unwrap_or(u32::MAX);
                to_outcome(&MergedStats { num_clients: all.num_clients, num_users, partial: self.is_partial() })
            }
            ResultKind::Channels => {
                let mut channels = BTreeMap::<Box<str>, ChannelCount>::new();
                for (name, count) in self.take::<MergedChannels>()?.into_iter().flat_map(|part| part.channels) {
                    let channel = channels.entry(name).or_insert(ChannelCount { num_clients: 0 });
                    channel.num_clients = channel.num_clients.saturating_add(count.num_clients);
                }
                to_outcome(&MergedChannels { channels, partial: self.is_partial() })
            }
            ResultKind::Info => {
                let nodes = self.take::<MergedInfo>()?.into_iter().flat_map(|part| part.nodes).collect();
                to_outcome(&MergedInfo { nodes, partial: self.is_partial() })
            }
            ResultKind::Rooms => self.finish_rooms(),
            ResultKind::RoomList { rooms_max } => self.finish_room_list(rooms_max),
            ResultKind::RoomInfo => self.finish_room_info(),
            ResultKind::Empty => self.finish_empty(),
        }
    }

    fn finish_rooms(&mut self) -> JsonResult {
        let mut rooms = BTreeMap::new();
        let mut further_rooms = BTreeMap::<Box<str>, Vec<Box<RawValue>>>::new();
        for (channel, room) in self.take::<MergedRooms>()?.into_iter().flat_map(|part| part.rooms) {
            match rooms.entry(channel) {
                Entry::Vacant(place) => {
                    place.insert(room);
                }
                Entry::Occupied(place) => further_rooms.entry(place.key().clone()).or_default().push(room),
            }
        }
        to_outcome(&MergedRooms { rooms, further_rooms, partial: self.is_partial() })
    }

    fn finish_room_list(&mut self, rooms_max: usize) -> JsonResult {
        let (mut rooms, mut end) = (BTreeMap::new(), None::<RoomPlace>);
        for part in self.take::<MergedRoomList>()? {
            // The rooms after the end of a node's page are unknown.
            let own_end = part.more.as_deref().map(RoomPlace::of_cursor);
            let placed: Option<Vec<_>> =
                part.rooms.into_iter().map(|room| place_of(&room).map(|place| (place, room))).collect();
            let (Some(placed), true) = (placed, own_end != Some(None)) else {
                self.missing.push(MissingResult { name: Box::default(), why: NOT_UNDERSTOOD.to_owned() });
                continue;
            };
            end = own_end.flatten().into_iter().chain(end).min();
            rooms.extend(placed);
        }
        let (mut limit, mut page, mut last, mut has_more) =
            (PageLimit::new(rooms_max), Vec::new(), None, end.is_some());
        for (place, room) in rooms {
            if end.as_ref().is_some_and(|end| place > *end) || !limit.takes(room.get().len()) {
                has_more = true;
                break;
            }
            page.push(room);
            last = Some(place);
        }
        let more = last.filter(|_| has_more).map(|last| last.to_cursor().into());
        to_outcome(&MergedRoomList { rooms: page, more, partial: self.is_partial() })
    }

    /// If the room is not found, it may be on a node that returned no result.
    fn finish_room_info(mut self) -> JsonResult {
        let mut rooms = self.take::<ChannelRooms>()?.into_iter().flat_map(|part| part.rooms);
        let Some(room) = rooms.next() else {
            self.check_all_answered("this node does not reach the cluster: the room may be on another one")?;
            return Err(ApiError::NOT_FOUND);
        };
        let room = serde_json::from_str(room.get()).map_err(|_| ApiError::INTERNAL)?;
        to_outcome(&MergedRoomInfo { room, further_rooms: rooms.collect(), partial: self.is_partial() })
    }

    /// A command that has not reached every node fails, so that the application retries it.
    fn finish_empty(self) -> JsonResult {
        self.check_all_answered("this node does not reach the cluster: only its own sessions were changed")?;
        self.results.into_iter().next().ok_or(ApiError::INTERNAL)
    }

    fn check_all_answered(&self, why_cut_off: &str) -> Result<(), ApiError> {
        if self.is_cut_off {
            return Err(ApiError::internal(why_cut_off));
        }
        let names: Vec<String> =
            self.missing.iter().map(|missing| format!("{} {}", missing.name, missing.why)).collect();
        if names.is_empty() {
            return Ok(());
        }
        Err(ApiError::internal(format_args!("node {}: try again", names.join(", node "))))
    }

    fn is_partial(&self) -> bool {
        self.is_cut_off || !self.missing.is_empty()
    }

    /// Parses the results. An invalid result of another node counts as missing.
    fn take<T: DeserializeOwned>(&mut self) -> Result<Vec<T>, ApiError> {
        let mut parts = Vec::with_capacity(self.results.len());
        for (index, result) in self.results.drain(..).enumerate() {
            match serde_json::from_str(result.get()) {
                Ok(part) => parts.push(part),
                Err(_) if index == 0 => return Err(ApiError::INTERNAL),
                Err(_) => {
                    self.missing.push(MissingResult { name: Box::default(), why: NOT_UNDERSTOOD.to_owned() });
                }
            }
        }
        Ok(parts)
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}
