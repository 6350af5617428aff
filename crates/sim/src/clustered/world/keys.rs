//! Checks the newest publications of keys in a channel without history. A node that begins to follow the channel
//! receives them from the others. Each key has one publisher, so that its publications have an order.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use dunlin_cluster::{
    core::{
        CoreEvent,
        peers::{PeerEvent, QueryNumber, SurveyAnswers, SurveyFault, SurveyNumber, SurveyTarget},
    },
    keys,
};
use dunlin_engine::{
    Event,
    backend::PublishHow,
    event::{PeerKey, PeerKeys},
};

use crate::{
    chance::Chance,
    clustered::surveys::NodeQuestion,
    harness::PromptWorld as _,
    logged::{BroadcastKind, LogClient, data_of_key, is_removal, key_of},
};

use super::{ClusteredWorld, broadcasts::SPREAD_US, peers::FORGOTTEN_AFTER_US};

const KEYS: u64 = 5;
/// Publications of a channel while clients subscribe.
const PUBLICATIONS: u64 = 24;

/// The state of the checks.
pub(super) struct KeysState {
    chance: Chance,
    /// Surveys of nodes about the keys of a channel.
    surveys: BTreeMap<SurveyNumber, (usize, Arc<str>)>,
    /// The channel that is being checked.
    channel: String,
    published: BTreeMap<u8, Vec<Publication>>,
    /// When each client requested its subscription.
    asked_us: BTreeMap<usize, u64>,
    /// What each client knows: the data by key.
    views: BTreeMap<usize, BTreeMap<u8, Vec<u8>>>,
}

#[derive(Debug)]
struct Publication {
    sent_us: u64,
    data: Vec<u8>,
}

impl KeysState {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            chance: Chance::new(seed ^ 0x6b65_7973),
            surveys: BTreeMap::new(),
            channel: String::new(),
            published: BTreeMap::new(),
            asked_us: BTreeMap::new(),
            views: BTreeMap::new(),
        }
    }

    fn begin(&mut self, channel: &str) {
        channel.clone_into(&mut self.channel);
        self.published.clear();
        self.asked_us.clear();
        self.views.clear();
    }

    /// Drops the surveys of a node that is gone.
    pub(super) fn forget_node(&mut self, gone: usize) {
        self.surveys.retain(|_, (node_index, _)| *node_index != gone);
    }

    /// Checks and records what a client has read.
    pub(super) fn on_read(&mut self, number: usize, client: &mut LogClient, now_us: u64) -> Result<(), String> {
        for (channel, seen) in std::mem::take(&mut client.replies) {
            if channel == self.channel {
                let view = self.check_reply(number, seen, now_us)?;
                self.views.insert(number, view);
            }
        }
        for seen in client.broadcasts.iter().filter(|seen| seen.channel == self.channel) {
            let (Some(view), BroadcastKind::Publication(data)) = (self.views.get_mut(&number), &seen.what) else {
                continue;
            };
            let key = key_of(data).ok_or("a publication without a key")?;
            if is_removal(data) {
                view.remove(&key);
            } else {
                view.insert(key, data.clone());
            }
        }
        Ok(())
    }

    /// Each key is as it was at some time since the messages before the request have arrived everywhere.
    fn check_reply(&self, number: usize, seen: Vec<Vec<u8>>, now_us: u64) -> Result<BTreeMap<u8, Vec<u8>>, String> {
        let mut view = BTreeMap::new();
        for data in seen {
            let key = key_of(&data).ok_or("a publication without a key")?;
            if view.insert(key, data).is_some() {
                return Err(format!("{}: client {number} is sent two publications of a key", self.channel));
            }
        }
        let spread_us = self.asked_us.get(&number).copied().unwrap_or(now_us).saturating_sub(SPREAD_US);
        for (key, published) in &self.published {
            let before = published.partition_point(|publication| publication.sent_us <= spread_us);
            let possible = &published[before.saturating_sub(1)..];
            let is_possible = match view.get(key) {
                Some(data) => possible.iter().any(|publication| publication.data == *data),
                None => before == 0 || possible.iter().any(|publication| is_removal(&publication.data)),
            };
            if !is_possible {
                return Err(self.difference(number, *key, view.get(key), possible));
            }
        }
        Ok(view)
    }

    /// Each client knows the newest publication of each key.
    fn check_views(&self) -> Result<(), String> {
        for (number, view) in &self.views {
            for (key, published) in &self.published {
                let newest = published.last().filter(|newest| !is_removal(&newest.data));
                if view.get(key) != newest.map(|newest| &newest.data) {
                    return Err(self.difference(
                        *number,
                        *key,
                        view.get(key),
                        newest.map_or(&[], std::slice::from_ref),
                    ));
                }
            }
        }
        Ok(())
    }

    fn difference(&self, number: usize, key: u8, seen: Option<&Vec<u8>>, possible: &[Publication]) -> String {
        let text = |data: &[u8]| String::from_utf8_lossy(data).into_owned();
        let possible: Vec<String> = possible.iter().map(|publication| text(&publication.data)).collect();
        let (channel, key) = (&self.channel, char::from(key));
        let seen = seen.map(|data| text(data));
        format!("{channel}: client {number} has {seen:?} as the newest of key {key}, but it is one of {possible:?}")
    }
}

impl ClusteredWorld {
    /// The event of a shard's question about the keys of a channel.
    pub(super) fn survey_keys(&mut self, node_index: usize, channel: Arc<str>) -> CoreEvent {
        self.peers.numbered += 1;
        let number = SurveyNumber(self.peers.numbered);
        let payload = NodeQuestion::Keys { channel: channel.to_string() }.encode();
        self.keys.surveys.insert(number, (node_index, channel));
        CoreEvent::Peers(PeerEvent::Survey { number, to: SurveyTarget::All, payload })
    }

    /// The answer to a shard's question, if it is one.
    pub(super) fn keys_surveyed(
        &mut self,
        number: SurveyNumber,
        outcome: &Result<SurveyAnswers, SurveyFault>,
    ) -> Option<Event<'static>> {
        let (_, channel) = self.keys.surveys.remove(&number)?;
        let mut found = PeerKeys { keys: Vec::new(), is_partial: true };
        if let Ok(answers) = outcome {
            found.is_partial = !answers.is_complete();
            for answer in &answers.answers {
                let text = std::str::from_utf8(&answer.payload).unwrap_or_default();
                let PeerKeys { mut keys, is_partial } = keys::decode(text).unwrap_or(PeerKeys::UNKNOWN);
                found.keys.append(&mut keys);
                found.is_partial |= is_partial;
            }
        }
        self.harness.count(match (found.is_partial, found.keys.is_empty()) {
            (true, _) => "keys of some nodes",
            (false, true) => "no keys elsewhere",
            (false, false) => "keys of all nodes",
        });
        Some(Event::KeysAnswered { channel, found })
    }

    /// Sends a node the keys that it asked for.
    pub(super) fn send_keys(&mut self, node_index: usize, query: QueryNumber, found: &[PeerKey]) {
        let payload = Bytes::from(Box::<str>::from(keys::encode(found, usize::MAX)).into_string());
        self.send_to_core(node_index, CoreEvent::Peers(PeerEvent::QueryAnswered { query, payload }));
    }

    /// Publishes to a new channel while clients subscribe, and restarts a node. Each client must know the newest
    /// publication of each key.
    pub(super) fn check_keys(&mut self) -> Result<(), String> {
        self.published += 1;
        let channel = format!("kept:{}", self.published);
        self.keys.begin(&channel);
        for number in 0..self.clients.len() {
            if self.clients[number].session.at.is_none() {
                self.open(number)?;
            }
        }
        self.run_for(SPREAD_US)?;
        let Some(first) = (0..self.clients.len()).find(|number| self.clients[*number].is_open()) else { return Ok(()) };
        self.subscribe_to_keys(first);
        self.run_for(SPREAD_US)?;
        for _ in 0..PUBLICATIONS {
            self.publish_key()?;
            if self.keys.chance.percent(25) {
                let number = self.keys.chance.below(self.clients.len());
                self.subscribe_to_keys(number);
            }
            let pause_us = self.keys.chance.between(0, 40_000);
            self.run_for(pause_us)?;
        }
        self.check_views()?;
        (0..self.clients.len()).for_each(|number| self.subscribe_to_keys(number));
        self.check_views()?;
        self.restart_for_keys(first)?;
        // Faults may lose what is published later.
        self.keys.begin("");
        Ok(())
    }

    /// After a while, each client is subscribed and knows the newest publication of each key.
    fn check_views(&mut self) -> Result<(), String> {
        self.run_for(SPREAD_US)?;
        let channel = self.keys.channel.clone();
        self.await_replies(&channel)?;
        self.keys.check_views()
    }

    fn publish_key(&mut self) -> Result<(), String> {
        self.published += 1;
        let (key, is_removal) = (self.keys.chance.below(KEYS as usize), self.keys.chance.percent(30));
        let (data, tags) = data_of_key(self.published, key as u64, is_removal);
        let publication = Publication { sent_us: self.harness.now_us, data: data.clone() };
        self.keys.published.entry(b'0' + key as u8).or_default().push(publication);
        let channel = self.keys.channel.clone();
        self.publish_broadcast(key % self.nodes.len(), &channel, data, PublishHow { tags, ..PublishHow::default() })
    }

    fn subscribe_to_keys(&mut self, number: usize) {
        let channel = self.keys.channel.clone();
        if self.clients[number].is_open() && !self.clients[number].has_or_requested(&channel) {
            self.keys.asked_us.insert(number, self.harness.now_us);
            self.clients[number].subscribe(&channel, false);
        }
    }

    /// Restarts a node on which a client is not. It receives all keys from the others.
    fn restart_for_keys(&mut self, stays: usize) -> Result<(), String> {
        let node_of = |client: &LogClient| client.session.at.map(|(node_index, _)| node_index);
        let stays_on = node_of(&self.clients[stays]);
        let gone = (0..self.clients.len()).find(|number| {
            let node_index = node_of(&self.clients[*number]);
            node_index.is_some() && node_index != stays_on
        });
        // A new node cannot detect that a stream was truncated, and nothing may happen to nodes without faults.
        let Some(gone) = gone.filter(|_| !self.was_truncated && !self.is_calm) else { return Ok(()) };
        let Some(node_index) = node_of(&self.clients[gone]) else { return Ok(()) };
        let moved: Vec<usize> =
            (0..self.clients.len()).filter(|number| node_of(&self.clients[*number]) == Some(node_index)).collect();
        self.replace_node(node_index);
        self.harness.count("node restarted with keys");
        for number in moved {
            self.keys.views.remove(&number);
            self.open_on(number, node_index, None)?;
        }
        // Until the others know that its predecessor is gone, surveys wait for it.
        self.run_for(FORGOTTEN_AFTER_US)?;
        (0..self.clients.len()).for_each(|number| self.subscribe_to_keys(number));
        self.check_views()
    }
}
