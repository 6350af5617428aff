//! Publishes listings of rooms in a lobby channel.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_config::{LOBBY_KEY, LOBBY_REMOVAL, LobbySettings};
use dunlin_engine::{
    api::{ApiAnswer, ApiRequest},
    backend::PublishHow,
    event::PeerKey,
};
use dunlin_matchmaking::{LobbyBoard, LobbyEffect, RoomListing};
use dunlin_protocol::Payload;
use futures_util::{StreamExt as _, stream};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{LobbyReport, PUBLICATIONS_AT_ONCE, RoomSummary};
use crate::{
    node::Node,
    peers::{self, NewestKeysQuestion},
};

pub(super) struct Lobby {
    settings: LobbySettings,
    board: LobbyBoard,
    report: LobbyReport,
    cleanup: Cleanup,
}

/// The rooms with listings in the lobby of this index; `None` if nodes have not answered.
pub(super) type Listed = (usize, Option<Vec<Arc<str>>>);

/// The removal of listings that another node has published, of rooms that have closed since.
#[derive(Debug)]
enum Cleanup {
    Done,
    /// The nodes have to be asked for the listings that they keep.
    Due,
    Asked,
    /// These rooms have listings. Those that no node has are removed when the rooms of all nodes are known.
    Found(Vec<Arc<str>>),
}

/// The data of a listing.
#[derive(Serialize)]
struct ListingJson<'l> {
    room: &'l str,
    #[serde(skip_serializing_if = "Option::is_none")]
    players: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_players: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'l RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    closed: Option<bool>,
}

impl Lobby {
    pub(super) fn new(settings: LobbySettings) -> Self {
        let report = LobbyReport { channel: settings.channel.clone(), ..LobbyReport::default() };
        Self { board: LobbyBoard::new(settings.limits), settings, report, cleanup: Cleanup::Done }
    }

    pub(super) fn report(&self) -> LobbyReport {
        LobbyReport { rooms: self.board.len(), ..self.report.clone() }
    }

    /// Another node publishes the listings from now on.
    pub(super) fn leave(&mut self) {
        self.board = LobbyBoard::new(self.settings.limits);
        self.cleanup = Cleanup::Done;
    }

    /// This node publishes the listings from now on. Another one has published some, which are removed unless they are
    /// repeated.
    pub(super) fn take_over(&mut self) {
        self.cleanup = Cleanup::Due;
    }

    /// The channel whose listings are needed; [`Lobby::on_listings`] follows.
    pub(super) fn needs_listings(&mut self) -> Option<Box<str>> {
        if !matches!(self.cleanup, Cleanup::Due) {
            return None;
        }
        self.cleanup = Cleanup::Asked;
        Some(self.settings.channel.as_str().into())
    }

    /// The rooms with listings; `None` if nodes are missing, which are asked again. What they keep would stay otherwise.
    pub(super) fn on_listings(&mut self, rooms: Option<Vec<Arc<str>>>) {
        // Otherwise, another node has taken over meanwhile.
        if matches!(self.cleanup, Cleanup::Asked) {
            self.cleanup = rooms.map_or(Cleanup::Due, Cleanup::Found);
        }
    }

    /// Publishes changed listings. `is_whole` says whether the rooms are those of all nodes.
    pub(super) async fn update(&mut self, now_ms: u64, rooms: &[&RoomSummary], is_whole: bool, node: &Node) {
        let effects = self.changes(now_ms, rooms, is_whole);
        let lobby = &*self.settings.channel;
        // Collected, because the compiler cannot tell that the iterator may move to another thread.
        let requests: Vec<_> = effects.iter().map(|effect| request(lobby, effect)).collect();
        let outcomes = stream::iter(requests).map(|request| node.ask_owner(lobby, request));
        let outcomes: Vec<_> = outcomes.buffered(PUBLICATIONS_AT_ONCE).collect().await;
        for (effect, outcome) in effects.iter().zip(outcomes) {
            if matches!(outcome, Ok(Ok(_))) {
                self.report.published += 1;
            } else {
                self.report.refused += 1;
                self.board.on_refused(effect);
            }
        }
    }

    fn changes(&mut self, now_ms: u64, rooms: &[&RoomSummary], is_whole: bool) -> Vec<LobbyEffect> {
        if is_whole && let Cleanup::Found(rooms) = &mut self.cleanup {
            for room in std::mem::take(rooms) {
                self.board.on_refused(&LobbyEffect::Remove(room));
            }
            self.cleanup = Cleanup::Done;
        }
        let Self { settings, board, .. } = self;
        let listed = rooms.iter().filter(|room| settings.has(&room.channel) && room.is_public);
        board.update(now_ms, listed.map(|room| (Arc::clone(&room.channel), listing(room, settings.players_max))))
    }
}

/// The rooms of which nodes keep a listing in a lobby; `None` if not all live nodes have answered.
pub(super) async fn listed_rooms(node: &Node, lobby: &str) -> Option<Vec<Arc<str>>> {
    let mut keys = Vec::new();
    if let Some(cluster) = node.cluster() {
        let answers = peers::ask_all(cluster, &NewestKeysQuestion { channel: lobby.into() }).await.ok()?;
        if answers.is_partial() {
            return None;
        }
        keys.extend(answers.results.into_iter().flat_map(|answer| answer.found.keys));
    }
    match node.ask_owner(lobby, ApiRequest::NewestKeys { channel: lobby.into() }).await {
        Ok(Ok(ApiAnswer::NewestKeys(own))) => keys.extend(own),
        _ => return None,
    }
    let room_of = |key: &PeerKey| {
        let tag = |name: &str| key.publication.tags.iter().find(|(tag, _)| **tag == *name);
        let (_, room) = tag(LOBBY_KEY).filter(|_| tag(LOBBY_REMOVAL).is_none())?;
        Some(Arc::from(&**room))
    };
    Some(keys.iter().filter_map(room_of).collect())
}

fn listing(room: &RoomSummary, players_max: u32) -> RoomListing {
    RoomListing {
        players: room.players,
        players_max: players_max.min(room.players_max),
        metadata: Arc::clone(&room.metadata),
    }
}

fn request(lobby: &str, effect: &LobbyEffect) -> ApiRequest {
    let (LobbyEffect::Show(channel, _) | LobbyEffect::Remove(channel)) = effect;
    let mut tags = vec![(LOBBY_KEY.into(), Box::from(&**channel))];
    let mut data = ListingJson { room: channel, players: None, max_players: None, metadata: None, closed: None };
    match effect {
        LobbyEffect::Show(_, listing) => {
            (data.players, data.max_players) = (Some(listing.players), Some(listing.players_max));
            data.metadata = serde_json::from_str(&listing.metadata).ok();
        }
        LobbyEffect::Remove(_) => {
            data.closed = Some(true);
            tags.push((LOBBY_REMOVAL.into(), "1".into()));
        }
    }
    let json = serde_json::to_vec(&data).unwrap_or_else(|_| unreachable!("a listing is made of texts and numbers"));
    let how = PublishHow { tags, ..PublishHow::default() };
    ApiRequest::Publish { channel: lobby.into(), data: Payload::from_json(Bytes::from(json)), how }
}

#[cfg(test)]
mod tests {
    use dunlin_matchmaking::LobbyLimits;

    use super::*;

    fn lobby() -> Lobby {
        let limits = LobbyLimits { interval_ms: 0, repeat_ms: 0, publications_max: 10 };
        Lobby::new(LobbySettings {
            channel_prefix: "arena:".into(),
            boundary: ':',
            channel: "lobby".into(),
            players_max: 8,
            limits,
        })
    }

    fn remove(room: &str) -> LobbyEffect {
        LobbyEffect::Remove(room.into())
    }

    #[test]
    fn listings_of_closed_rooms_are_removed_when_all_nodes_have_answered() {
        let mut lobby = lobby();
        assert_eq!(lobby.needs_listings(), None);
        lobby.take_over();
        assert_eq!(lobby.needs_listings().as_deref(), Some("lobby"));
        assert_eq!(lobby.needs_listings(), None, "it was asked");
        lobby.on_listings(None);
        assert_eq!(lobby.changes(0, &[], true), []);
        assert_eq!(lobby.needs_listings().as_deref(), Some("lobby"), "a node did not answer");
        lobby.on_listings(Some(vec!["arena:1".into()]));
        assert_eq!(lobby.changes(1, &[], false), [], "the room may be on a node that has not answered");
        assert_eq!(lobby.changes(2, &[], true), [remove("arena:1")]);
        assert_eq!((lobby.changes(3, &[], true), lobby.needs_listings()), (Vec::new(), None));
    }

    #[test]
    fn an_answer_that_comes_when_another_node_has_the_lobby_is_dropped() {
        let mut lobby = lobby();
        lobby.take_over();
        lobby.needs_listings();
        lobby.leave();
        lobby.on_listings(Some(vec!["arena:1".into()]));
        assert_eq!(lobby.changes(0, &[], true), []);
    }
}
