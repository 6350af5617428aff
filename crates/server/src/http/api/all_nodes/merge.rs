//! Merges the results of nodes.

use std::collections::{BTreeMap, btree_map::Entry};

use dunlin_engine::insight::{SessionPlace, SessionsQuery};
use serde::Serialize;
use serde_json::value::RawValue;

use super::super::{
    ApiError, JsonResult,
    channel_page_merge::{self, Candidates, NamedPage},
    paging::PageLimit,
    result::{ClientJson, EmptyJson, RoomClosedJson, to_outcome},
    room_list::RoomPlace,
    sessions::cursor_of,
};
use crate::peers::{
    ChannelPart, ChannelRooms, Channels, CountedChannel, Description, Done, Info, ListedSession, MissingPart,
    MissingPeer, NOT_UNDERSTOOD, PeerAnswers, Presence, PresenceUsers, RoomClosed, RoomList, Rooms, Sessions,
};

#[derive(Serialize)]
struct MergedPresence<'a> {
    presence: BTreeMap<&'a str, ClientJson<'a>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    partial: bool,
}

#[derive(Serialize)]
struct MergedStats {
    num_clients: u32,
    num_users: u32,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    partial: bool,
}

#[derive(Serialize)]
struct MergedChannels {
    channels: BTreeMap<Box<str>, ChannelJson>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    partial: bool,
}

#[derive(Serialize)]
struct ChannelJson {
    num_clients: u32,
}

#[derive(Serialize)]
struct MergedInfo {
    nodes: Vec<Description>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    partial: bool,
}

#[derive(Serialize)]
struct MergedRooms {
    rooms: BTreeMap<Box<str>, Description>,
    /// Additional rooms of channels for which another node also has a room.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    further_rooms: BTreeMap<Box<str>, Vec<Description>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    partial: bool,
}

#[derive(Serialize)]
struct MergedRoomList {
    rooms: Vec<Description>,
    #[serde(skip_serializing_if = "Option::is_none")]
    more: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    partial: bool,
}

#[derive(Serialize)]
struct MergedSessions {
    sessions: Vec<Description>,
    #[serde(skip_serializing_if = "Option::is_none")]
    more: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    partial: bool,
    /// The nodes and shards that did not answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<MissingPart>,
}

#[derive(Serialize)]
struct ChannelPage {
    channels: Vec<CountedChannel>,
    /// How many channels match.
    total: u64,
    /// The total counts a channel once for each node.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    total_counts_twice: bool,
    /// In the order of names, the cursor of the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    more: Option<Box<str>>,
    /// In the order of subscribers, how many a channel may have that is not listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing_up_to: Option<u32>,
    missing: Vec<MissingPart>,
}

#[derive(Serialize)]
struct MergedStatus {
    nodes: Vec<Description>,
    missing: Vec<MissingPart>,
}

#[derive(Serialize)]
struct MergedRoomInfo<'a> {
    #[serde(flatten)]
    room: BTreeMap<Box<str>, Box<RawValue>>,
    /// Rooms of the same channel on other nodes.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    further_rooms: &'a [Description],
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    partial: bool,
}

/// The results of all nodes. The first is from this node.
pub(super) struct Merging<A> {
    results: Vec<A>,
    missing: Vec<MissingPeer>,
    is_cut_off: bool,
}

impl<A> Merging<A> {
    pub(super) fn new(own: A, found: PeerAnswers<A>) -> Self {
        let PeerAnswers { mut results, missing, is_cut_off, declining: _ } = found;
        results.insert(0, own);
        Self { results, missing, is_cut_off }
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

    /// The nodes without a result, as a list that is never empty if a result may be missing.
    fn take_missing(&mut self) -> Vec<MissingPart> {
        let named = std::mem::take(&mut self.missing).into_iter();
        let mut missing: Vec<_> = named.map(|MissingPeer { name, why }| MissingPart { node: name, why }).collect();
        if self.is_cut_off {
            let why = "this node does not reach the cluster, and does not know all other nodes".to_owned();
            missing.push(MissingPart { node: Box::default(), why });
        }
        missing
    }

    fn is_partial(&self) -> bool {
        self.is_cut_off || !self.missing.is_empty()
    }
}

pub(super) fn presence(merging: Merging<Presence>) -> JsonResult {
    let partial = merging.is_partial();
    let mut all = Presence::default();
    merging.results.into_iter().for_each(|part| all.merge(part));
    let presence = all.clients().map(|info| (&*info.client, ClientJson::new(info))).collect();
    to_outcome(&MergedPresence { presence, partial })
}

pub(super) fn presence_stats(merging: Merging<PresenceUsers>) -> JsonResult {
    let partial = merging.is_partial();
    let mut all = PresenceUsers::default();
    merging.results.into_iter().for_each(|part| all.merge(part));
    to_outcome(&MergedStats { num_clients: all.num_clients, num_users: all.num_users(), partial })
}

pub(super) fn channels(merging: Merging<Channels>) -> JsonResult {
    let partial = merging.is_partial();
    let mut channels = BTreeMap::<Box<str>, ChannelJson>::new();
    for (name, count) in merging.results.into_iter().flat_map(|part| part.channels) {
        let channel = channels.entry(name).or_insert(ChannelJson { num_clients: 0 });
        channel.num_clients = channel.num_clients.saturating_add(count.num_clients);
    }
    to_outcome(&MergedChannels { channels, partial })
}

impl Merging<ChannelPart> {
    /// The channels that may be the largest ones.
    pub(super) fn candidates(&self) -> Candidates {
        Candidates::of(&self.results)
    }

    /// How many channels match, and whether some may be counted twice.
    fn total(&self) -> (u64, bool) {
        let totals = self.results.iter().map(|part| part.total);
        (totals.clone().sum(), totals.filter(|total| *total > 0).count() > 1)
    }
}

pub(super) fn channels_by_name(mut merging: Merging<ChannelPart>) -> JsonResult {
    let (missing, (total, total_counts_twice)) = (merging.take_missing(), merging.total());
    let NamedPage { channels, more } = channel_page_merge::by_name(merging.results);
    to_outcome(&ChannelPage { channels, total, total_counts_twice, more, missing_up_to: None, missing })
}

/// `parts` are the pages of nodes that have the candidates, and `counted` has their subscribers.
pub(super) fn largest_channels(
    mut parts: Merging<ChannelPart>,
    candidates: &Candidates,
    mut counted: Merging<Channels>,
) -> JsonResult {
    let (mut missing, (total, total_counts_twice)) = (parts.take_missing(), parts.total());
    for part in counted.take_missing() {
        if missing.iter().all(|known| known.node != part.node) {
            missing.push(part);
        }
    }
    let mut counts = BTreeMap::<Box<str>, u32>::new();
    for (name, count) in counted.results.into_iter().flat_map(|part| part.channels) {
        let num_clients = counts.entry(name).or_default();
        *num_clients = num_clients.saturating_add(count.num_clients);
    }
    let (channels, missing_up_to) = channel_page_merge::largest(counts, candidates.others_max);
    let missing_up_to = Some(missing_up_to).filter(|subscribers| *subscribers > 0);
    to_outcome(&ChannelPage { channels, total, total_counts_twice, more: None, missing_up_to, missing })
}

pub(super) fn status(mut merging: Merging<Info>) -> JsonResult {
    let missing = merging.take_missing();
    to_outcome(&MergedStatus { nodes: merging.results.into_iter().flat_map(|part| part.nodes).collect(), missing })
}

pub(super) fn info(merging: Merging<Info>) -> JsonResult {
    let partial = merging.is_partial();
    to_outcome(&MergedInfo { nodes: merging.results.into_iter().flat_map(|part| part.nodes).collect(), partial })
}

pub(super) fn rooms(merging: Merging<Rooms>) -> JsonResult {
    let partial = merging.is_partial();
    let mut rooms = BTreeMap::new();
    let mut further_rooms = BTreeMap::<Box<str>, Vec<Description>>::new();
    for (channel, room) in merging.results.into_iter().flat_map(|part| part.rooms) {
        match rooms.entry(channel) {
            Entry::Vacant(vacant) => {
                vacant.insert(room);
            }
            Entry::Occupied(occupied) => further_rooms.entry(occupied.key().clone()).or_default().push(room),
        }
    }
    to_outcome(&MergedRooms { rooms, further_rooms, partial })
}

pub(super) fn room_list(mut merging: Merging<RoomList>, rooms_max: usize) -> JsonResult {
    let (mut rooms, mut end) = (BTreeMap::new(), None::<RoomPlace>);
    for part in std::mem::take(&mut merging.results) {
        // The rooms after the end of a node's page are unknown.
        let own_end = part.more.as_deref().map(RoomPlace::of_cursor);
        if own_end == Some(None) {
            merging.missing.push(MissingPeer { name: Box::default(), why: NOT_UNDERSTOOD.to_owned() });
            continue;
        }
        end = own_end.flatten().into_iter().chain(end).min();
        rooms.extend(part.rooms.into_iter().map(|listed| {
            let place = RoomPlace { channel: listed.channel, node_uid: listed.node_uid };
            (place, listed.room)
        }));
    }
    let (mut limit, mut page, mut last, mut has_more) = (PageLimit::new(rooms_max), Vec::new(), None, end.is_some());
    for (place, room) in rooms {
        if end.as_ref().is_some_and(|end| place > *end) || !limit.takes(room.json().len()) {
            has_more = true;
            break;
        }
        page.push(room);
        last = Some(place);
    }
    let more = last.filter(|_| has_more).map(|last| last.to_cursor());
    to_outcome(&MergedRoomList { rooms: page, more, partial: merging.is_partial() })
}

/// `query` is that of the request: it bounds the page, and names the client of an error.
pub(super) fn sessions(mut merging: Merging<Sessions>, query: &SessionsQuery) -> JsonResult {
    let mut missing: Vec<MissingPart> = Vec::new();
    let (mut sessions, mut end) = (BTreeMap::new(), None::<SessionPlace>);
    for mut part in std::mem::take(&mut merging.results) {
        missing.append(&mut part.missing);
        let mut last = None;
        for ListedSession { behind_since_us, client, session } in part.sessions {
            let place = SessionPlace { behind_since_us, client: client.into() };
            last = Some(place.clone());
            sessions.insert(place, session);
        }
        // The sessions after the end of a node's page are unknown.
        end = last.filter(|_| part.more).into_iter().chain(end).min();
    }
    missing.extend(merging.missing.into_iter().map(|MissingPeer { name, why }| MissingPart { node: name, why }));
    if query.client.is_some() && sessions.is_empty() {
        return Err(why_no_session(merging.is_cut_off, &missing));
    }
    let (mut limit, mut page, mut last) = (PageLimit::new(query.sessions_max), Vec::new(), None);
    let mut has_more = end.is_some();
    for (place, session) in sessions {
        if end.as_ref().is_some_and(|end| place > *end) || !limit.takes(session.json().len()) {
            has_more = true;
            break;
        }
        page.push(session);
        last = Some(place);
    }
    let more = last.filter(|_| has_more).map(|last| cursor_of(&last));
    let partial = merging.is_cut_off || !missing.is_empty();
    to_outcome(&MergedSessions { sessions: page, more, partial, missing })
}

/// A session that is not found may be on a node that this one does not reach, or on a part that did not answer.
fn why_no_session(is_cut_off: bool, missing: &[MissingPart]) -> ApiError {
    if is_cut_off {
        return ApiError::internal("this node does not reach the cluster: the session may be on another one");
    }
    let parts: Vec<String> = missing.iter().map(|part| format!("node {} {}", part.node, part.why)).collect();
    if parts.is_empty() {
        return ApiError::not_found("no session has this client id: it may have ended");
    }
    ApiError::internal(format_args!("{}, and may have the session: try again", parts.join(", ")))
}

/// If the room is not found, it may be on a node that returned no result.
pub(super) fn room_info(mut merging: Merging<ChannelRooms>) -> JsonResult {
    let rooms: Vec<_> = std::mem::take(&mut merging.results).into_iter().flat_map(|part| part.rooms).collect();
    let Some((room, further_rooms)) = rooms.split_first() else {
        merging.check_all_answered("this node does not reach the cluster: the room may be on another one")?;
        return Err(ApiError::NOT_FOUND);
    };
    let room = serde_json::from_str(room.json()).map_err(|_| ApiError::INTERNAL)?;
    to_outcome(&MergedRoomInfo { room, further_rooms, partial: merging.is_partial() })
}

/// If no node had the room, it may be on one that returned no result.
pub(super) fn room_closed(merging: &Merging<RoomClosed>) -> JsonResult {
    let players: Vec<u32> = merging.results.iter().filter_map(|part| part.num_players).collect();
    if players.is_empty() {
        merging.check_all_answered("this node does not reach the cluster: the room may be open on another one")?;
    }
    to_outcome(&RoomClosedJson { num_players: players.into_iter().fold(0, u32::saturating_add) })
}

/// A command that has not reached every node fails, so that the application retries it.
pub(super) fn done(merging: &Merging<Done>) -> JsonResult {
    merging.check_all_answered("this node does not reach the cluster: only its own sessions were changed")?;
    to_outcome(&EmptyJson {})
}
