//! `room_list` and `room_info`: list the rooms of the node, with filters and in pages, and describe one room.

use std::{borrow::Cow, collections::BTreeMap, ops::Bound};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, value::RawValue};

use super::{
    ApiError, Executor, JsonResult, RequestLimits,
    command::{Command, named},
    glob::{Exhausted, Glob, Matcher},
    paging::{self, PageLimit, REPLY_BYTES_MAX},
    result::RoomJson,
    wire::ChannelParams,
};
use crate::{
    insight::NodeJson,
    json_members::empty_if_null,
    peers::{ChannelRooms, Description, ListedRoom, RoomList, RoomListQuestion},
    rooms::RoomReport,
};

/// Default number of rooms in a reply.
const ROOMS_DEFAULT: usize = 100;
/// Maximum number of rooms in a reply.
const ROOMS_MAX: usize = 1_000;
/// Maximum number of metadata members in a filter.
const METADATA_MEMBERS_MAX: usize = 8;
/// Size of a room in a reply, without its texts.
const ROOM_BYTES: usize = 256;
/// How many times as many rooms are looked at next, if the filters leave too few of those before.
const GROWTH: usize = 4;
/// Number of rooms, and of bytes of their metadata, that are examined before other tasks may run.
const ROOMS_PER_TURN: usize = 1_024;
const METADATA_BYTES_PER_TURN: usize = 128 << 10;

/// The rooms that a request selects.
#[derive(Clone, Debug)]
pub struct RoomQuery {
    /// `None`: all. Empty: channels without a namespace.
    namespace: Option<Box<str>>,
    pattern: Option<Glob>,
    is_locked: Option<bool>,
    free_places_min: u32,
    metadata: Map<String, Value>,
    with_unlisted: bool,
    pub(super) rooms_max: usize,
    /// Maximum size of the page.
    bytes_max: usize,
    /// Only rooms after this place.
    after: Option<RoomPlace>,
}

/// The place of a room in the list, which is sorted by channel and then by node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RoomPlace {
    pub(super) channel: Box<str>,
    pub(super) node_uid: Box<str>,
}

#[derive(Serialize)]
struct ListedRoomJson<'a> {
    channel: &'a str,
    node: NodeJson<'a>,
    num_players: u32,
    num_players_away: u32,
    num_spectators: u32,
    max_players: u32,
    locked: bool,
    unlisted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<&'a RawValue>,
    tick: u32,
}

/// The result of `room_info`.
#[derive(Serialize)]
struct RoomInfoJson<'a> {
    channel: &'a str,
    node: NodeJson<'a>,
    #[serde(flatten)]
    room: RoomJson<'a>,
    seed: u64,
    ticks_per_second: u32,
}

/// A page of rooms.
#[derive(Debug)]
struct RoomPage {
    rooms: Vec<RoomReport>,
    /// Whether more rooms follow.
    has_more: bool,
}

/// See [`super::Method::RoomInfo`].
#[derive(Clone, Debug)]
pub struct RoomInfoCommand {
    /// Channel name, not checked yet.
    pub channel: Box<str>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RoomListParams {
    pub namespace: Option<String>,
    #[serde(deserialize_with = "empty_if_null")]
    pub pattern: String,
    pub locked: Option<bool>,
    #[serde(deserialize_with = "empty_if_null")]
    pub min_free_places: u32,
    #[serde(deserialize_with = "empty_if_null")]
    pub metadata: serde_json::Map<String, serde_json::Value>,
    #[serde(deserialize_with = "empty_if_null")]
    pub include_unlisted: bool,
    pub limit: Option<u64>,
    #[serde(deserialize_with = "empty_if_null")]
    pub cursor: String,
}

impl Command for RoomQuery {
    type Params = RoomListParams;

    fn check(params: RoomListParams, _: &RequestLimits) -> Result<Self, ApiError> {
        Self::of_params(params)
    }

    async fn carry_out(self, executor: &Executor) -> JsonResult {
        executor.all_nodes().room_list(&self).await
    }
}

impl Command for RoomInfoCommand {
    type Params = ChannelParams;

    fn check(params: ChannelParams, _: &RequestLimits) -> Result<Self, ApiError> {
        Ok(Self { channel: named(params.channel)? })
    }

    async fn carry_out(self, executor: &Executor) -> JsonResult {
        executor.all_nodes().room_info(self.channel).await
    }
}

impl RoomQuery {
    fn of_params(body: RoomListParams) -> Result<Self, ApiError> {
        let pattern = (!body.pattern.is_empty()).then(|| Glob::compile(&body.pattern));
        let pattern = pattern.transpose().map_err(ApiError::bad_request)?;
        let rooms_max = paging::entries_max("limit", body.limit, ROOMS_DEFAULT, ROOMS_MAX)?;
        if body.metadata.len() > METADATA_MEMBERS_MAX {
            let most = METADATA_MEMBERS_MAX;
            return Err(ApiError::bad_request(format_args!("metadata has more than {most} members")));
        }
        let after = paging::after(&body.cursor, RoomPlace::of_cursor)?;
        Ok(Self {
            namespace: body.namespace.map(Into::into),
            pattern,
            is_locked: body.locked,
            free_places_min: body.min_free_places,
            metadata: body.metadata,
            with_unlisted: body.include_unlisted,
            rooms_max,
            bytes_max: REPLY_BYTES_MAX,
            after,
        })
    }

    /// The question to other nodes for the same rooms.
    pub(super) fn to_question(&self) -> RoomListQuestion {
        RoomListQuestion {
            cursor: self.after.as_ref().map(RoomPlace::to_cursor).unwrap_or_default().into(),
            include_unlisted: self.with_unlisted,
            limit: self.rooms_max,
            locked: self.is_locked,
            metadata: self.metadata.clone(),
            min_free_places: self.free_places_min,
            namespace: self.namespace.clone(),
            pattern: self.pattern.as_ref().map(Glob::pattern).unwrap_or_default().into(),
        }
    }

    /// The rooms that another node asks for, in an answer of at most this size.
    pub(super) fn of_question(question: RoomListQuestion, bytes_max: usize) -> Result<Self, ApiError> {
        let query = Self::of_params(RoomListParams {
            namespace: question.namespace.map(String::from),
            pattern: question.pattern.into(),
            locked: question.locked,
            min_free_places: question.min_free_places,
            metadata: question.metadata,
            include_unlisted: question.include_unlisted,
            limit: u64::try_from(question.limit).ok(),
            cursor: question.cursor.into(),
        })?;
        Ok(Self { bytes_max: query.bytes_max.min(bytes_max), ..query })
    }

    /// The page of a node's rooms. `rooms_from` finds so many of them from a channel on, sorted by channel.
    async fn page(
        &self,
        node_uid: &str,
        rooms_from: impl Fn(Bound<&str>, usize) -> Vec<RoomReport>,
    ) -> Result<RoomPage, Exhausted> {
        let mut matcher = self.pattern.as_ref().map(Glob::matcher);
        let mut page = RoomPage { rooms: Vec::new(), has_more: false };
        let (mut limit, mut bytes_of_turn) = (PageLimit::with_bytes(self.rooms_max, self.bytes_max), 0);
        let mut from = self.beginning(node_uid);
        // One more than the page may have says whether rooms follow.
        let mut batch_max = self.rooms_max.saturating_add(1);
        loop {
            let batch = rooms_from(from.as_ref().map(|channel| &**channel), batch_max);
            let end = batch.last().filter(|_| batch.len() == batch_max).map(|room| Box::from(&*room.channel));
            for (index, room) in batch.into_iter().enumerate() {
                if index % ROOMS_PER_TURN == ROOMS_PER_TURN - 1 || bytes_of_turn > METADATA_BYTES_PER_TURN {
                    bytes_of_turn = 0;
                    tokio::task::yield_now().await;
                }
                bytes_of_turn += if self.metadata.is_empty() { 0 } else { room.metadata.len() };
                if self.fits(&room, matcher.as_mut())? {
                    if !limit.takes(room.channel.len() + room.metadata.len() + room.params.len() + ROOM_BYTES) {
                        page.has_more = true;
                        return Ok(page);
                    }
                    page.rooms.push(room);
                }
            }
            let Some(end) = end else { return Ok(page) };
            from = Bound::Excluded(end);
            batch_max = batch_max.saturating_mul(GROWTH);
            tokio::task::yield_now().await;
        }
    }

    /// The first channel that a page of this node may have.
    fn beginning(&self, node_uid: &str) -> Bound<Box<str>> {
        match &self.after {
            None => Bound::Unbounded,
            // The channel may have rooms on several nodes, which come in the order of their ids.
            Some(after) if *node_uid > *after.node_uid => Bound::Included(after.channel.clone()),
            Some(after) => Bound::Excluded(after.channel.clone()),
        }
    }

    fn fits(&self, room: &RoomReport, matcher: Option<&mut Matcher<'_>>) -> Result<bool, Exhausted> {
        let free_places = room.players_max.saturating_sub(room.places_taken());
        let fits = room.is_made
            && (self.with_unlisted || !room.is_unlisted)
            && self.namespace.as_ref().is_none_or(|namespace| **namespace == *room.namespace)
            && self.is_locked.is_none_or(|is_locked| is_locked == room.is_locked)
            && free_places >= self.free_places_min;
        if !fits {
            return Ok(false);
        }
        let is_named = matcher.map_or(Ok(true), |matcher| matcher.matches(&room.channel));
        Ok(is_named? && has_metadata(&room.metadata, &self.metadata))
    }
}

/// Whether a JSON document is an object that contains these members.
fn has_metadata(metadata: &str, wanted: &Map<String, Value>) -> bool {
    if wanted.is_empty() {
        return true;
    }
    let Ok(members) = serde_json::from_str::<BTreeMap<Cow<'_, str>, &RawValue>>(metadata) else { return false };
    wanted.iter().all(|(name, wanted)| {
        let member = members.get(&**name).and_then(|member| serde_json::from_str::<Value>(member.get()).ok());
        member.as_ref() == Some(wanted)
    })
}

impl RoomPlace {
    pub(super) fn to_cursor(&self) -> String {
        paging::cursor(&self.node_uid, &self.channel)
    }

    pub(super) fn of_cursor(cursor: &str) -> Option<Self> {
        paging::place(cursor, |node_uid, channel| Some(Self { channel: channel.into(), node_uid: node_uid.into() }))
    }
}

/// The page of a node's rooms that a query selects. `rooms_from` finds so many of them from a channel on, sorted by channel.
pub(super) async fn page(
    query: &RoomQuery,
    node: NodeJson<'_>,
    rooms_from: impl Fn(Bound<&str>, usize) -> Vec<RoomReport>,
) -> Result<RoomList, ApiError> {
    let RoomPage { rooms, mut has_more } = query
        .page(node.uid, rooms_from)
        .await
        .map_err(|Exhausted| ApiError::bad_request("the pattern is too expensive for this number of rooms"))?;
    let (mut limit, mut listed) = (PageLimit::with_bytes(query.rooms_max, query.bytes_max), Vec::new());
    for room in &rooms {
        let room_json = Description::new(&ListedRoomJson::new(room, node)).ok_or(ApiError::INTERNAL)?;
        // The sizes before were estimates.
        if !limit.takes(room_json.json().len() + 1) {
            has_more = true;
            break;
        }
        listed.push(ListedRoom { channel: (*room.channel).into(), node_uid: node.uid.into(), room: room_json });
    }
    let last = listed.last().filter(|_| has_more);
    let place = |room: &ListedRoom| RoomPlace { channel: room.channel.clone(), node_uid: room.node_uid.clone() };
    let more = last.map(place).map(|place| place.to_cursor().into());
    Ok(RoomList { rooms: listed, more })
}

/// The room of a channel on a node, if there is one.
pub(super) fn of_channel(room: Option<&RoomReport>, node: NodeJson<'_>) -> Result<ChannelRooms, ApiError> {
    let Some(room) = room.filter(|room| room.is_made) else { return Ok(ChannelRooms { rooms: Vec::new() }) };
    let channel = &*room.channel;
    let (seed, ticks_per_second) = (room.seed, room.ticks_per_second);
    let info = RoomInfoJson { channel, node, room: RoomJson::new(room), seed, ticks_per_second };
    Ok(ChannelRooms { rooms: vec![Description::new(&info).ok_or(ApiError::INTERNAL)?] })
}

impl<'a> ListedRoomJson<'a> {
    fn new(room: &'a RoomReport, node: NodeJson<'a>) -> Self {
        Self {
            channel: &room.channel,
            node,
            num_players: room.players,
            num_players_away: room.players_away,
            num_spectators: room.spectators,
            max_players: room.players_max,
            locked: room.is_locked,
            unlisted: room.is_unlisted,
            metadata: serde_json::from_str(&room.metadata).ok(),
            params: serde_json::from_str(&room.params).ok(),
            tick: room.tick,
        }
    }
}

#[cfg(test)]
mod tests;
