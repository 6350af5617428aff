//! Publishes listings of rooms in a lobby channel.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_config::{LOBBY_KEY, LOBBY_REMOVAL, LobbySettings};
use dunlin_engine::{
    api::{ApiAnswer, ApiRequest},
    backend::PublishHow,
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
        Self { board: LobbyBoard::new(settings.limits), settings, report }
    }

    pub(super) fn report(&self) -> LobbyReport {
        LobbyReport { rooms: self.board.len(), ..self.report.clone() }
    }

    /// Another node publishes the listings from now on.
    pub(super) fn leave(&mut self) {
        self.board = LobbyBoard::new(self.settings.limits);
    }

    /// This node publishes the listings from now on. Another one has published some, which are removed unless they are
    /// repeated.
    pub(super) async fn take_over(&mut self, node: &Node) {
        let channel: Box<str> = self.settings.channel.as_str().into();
        let mut keys = Vec::new();
        if let Some(cluster) = node.cluster() {
            let question = NewestKeysQuestion { channel: channel.clone() };
            let answers = peers::ask_all(cluster, &question).await.map(|answers| answers.results).unwrap_or_default();
            keys.extend(answers.into_iter().flat_map(|answer| answer.found.keys));
        }
        if let Ok(Ok(ApiAnswer::NewestKeys(own))) =
            node.ask_owner(&channel, ApiRequest::NewestKeys { channel: channel.clone() }).await
        {
            keys.extend(own);
        }
        for key in keys {
            let tags = &key.publication.tags;
            let is_removal = tags.iter().any(|(name, _)| **name == *LOBBY_REMOVAL);
            if let Some((_, room)) = tags.iter().find(|(name, _)| **name == *LOBBY_KEY && !is_removal) {
                self.board.on_refused(&LobbyEffect::Remove((**room).into()));
            }
        }
    }

    /// Publishes changed listings.
    pub(super) async fn update(&mut self, now_ms: u64, rooms: &[&RoomSummary], node: &Node) {
        let players_max = self.settings.players_max;
        let settings = &self.settings;
        let listed = rooms.iter().filter(|room| settings.has(&room.channel) && room.is_public);
        let listings = listed.map(|room| (Arc::clone(&room.channel), listing(room, players_max)));
        let effects = self.board.update(now_ms, listings);
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
