//! A client of channels with a log. It checks that everything that it receives was committed.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    session::{ClientSession, Received},
    wire::{
        ClientCommand, ClientInfoBody, ClientPosition, PublicationBody, PushBody, ServerMessage, SubscribeBody,
        SubscribeCommand, WireFrame,
    },
};

use super::{ChannelTruth, SeenKeys, Truth};

/// A client, across all its connections.
#[derive(Default)]
pub struct LogClient {
    pub session: ClientSession,
    /// The last positions of live subscriptions, by channel.
    pub live: BTreeMap<String, ClientPosition>,
    /// The positions to recover from, by channel.
    pub positions: BTreeMap<String, ClientPosition>,
    /// The ids of pending commands whose recovery must succeed.
    pub must_recover: BTreeSet<u32>,
    /// Its client id, or empty before the connect reply.
    pub client_id: String,
    /// Whether the server closed or rejected the connection.
    pub is_over: bool,
    /// The number of recoveries with publications, and of failed ones.
    pub recoveries: (u64, u64),
    /// Number of subscriptions that the server ended because it may have missed publications.
    pub interrupted: u64,
    /// Received broadcasts, which the world checks.
    pub broadcasts: Vec<SeenBroadcast>,
    /// Replies with the newest publications of keys, which the world checks.
    pub seen_keys: Vec<SeenKeys>,
    /// Replies to subscriptions to channels without history: the channel, and the data of the publications.
    pub replies: Vec<(String, Vec<Vec<u8>>)>,
    /// The number of its last subscription to each channel. The numbers count the subscriptions to all channels.
    pub periods: BTreeMap<String, u64>,
    /// Whether channels share offsets, so that a position may be that of a message in another channel.
    is_of_cluster: bool,
    subscribed_times: u64,
}

impl LogClient {
    /// Creates a client of a cluster, where channels share offsets.
    pub fn of_cluster() -> Self {
        Self { is_of_cluster: true, ..Self::default() }
    }

    /// Whether it is connected.
    pub fn is_open(&self) -> bool {
        self.session.at.is_some() && self.session.is_connected && !self.is_over
    }

    /// Ends the connection. The positions are kept.
    pub fn leave(&mut self) {
        self.session.leave();
        self.must_recover.clear();
        self.is_over = false;
        self.client_id.clear();
        self.positions.append(&mut self.live);
    }

    /// Whether it has a subscription, or a pending subscribe or unsubscribe command.
    pub fn has_or_requested(&self, channel: &str) -> bool {
        let asks = |command: &ClientCommand| match command {
            ClientCommand::Subscribe(subscribe) => subscribe.channel == channel,
            ClientCommand::Unsubscribe { channel: of } => of == channel,
            _ => false,
        };
        self.live.contains_key(channel) || self.session.pending.values().any(asks)
    }

    /// The channels to which it was subscribed, if it is connected.
    pub fn missed_channels(&self) -> Vec<String> {
        let is_missed = |channel: &&String| self.session.is_connected && !self.has_or_requested(channel);
        self.positions.keys().filter(is_missed).cloned().collect()
    }

    /// Subscribes and recovers from the last position. `must_recover` is set if the recovery must succeed.
    pub fn subscribe(&mut self, channel: &str, must_recover: bool) {
        let has_history = !is_without_history(channel);
        let subscribe = SubscribeCommand {
            recover: self.positions.get(channel).filter(|_| has_history).cloned(),
            recoverable: has_history,
            ..SubscribeCommand::to(channel)
        };
        let id = self.session.send(ClientCommand::Subscribe(subscribe.into()));
        self.must_recover.extend(must_recover.then_some(id));
    }

    pub fn unsubscribe(&mut self, channel: &str) {
        if let Some(position) = self.live.remove(channel) {
            self.positions.insert(channel.to_owned(), position);
            self.session.send(ClientCommand::Unsubscribe { channel: channel.to_owned() });
        }
    }

    /// Reads bytes and checks the messages. If `may_fail` is set, commands may get temporary errors.
    ///
    /// # Errors
    /// If a message contains something that was not committed, or a publication is missing.
    pub fn read(&mut self, truth: &Truth, may_fail: bool, bytes: Vec<u8>) -> Result<(), String> {
        self.session.feed(bytes);
        while let Some(frame) = self.session.next()? {
            match frame {
                Received::Messages(messages) => {
                    messages.into_iter().try_for_each(|message| self.on_message(truth, may_fail, message))?;
                }
                // All data is JSON, unless a node passes on what a replica has damaged.
                Received::Other(WireFrame::Close(code, _)) if self.is_of_cluster && code != Some(NOT_JSON) => {
                    self.is_over = true;
                }
                Received::Other(other) => return Err(format!("{other:?}")),
            }
        }
        Ok(())
    }

    fn on_message(&mut self, truth: &Truth, may_fail: bool, message: ServerMessage) -> Result<(), String> {
        if message == ServerMessage::default() {
            self.session.to_server.push(b"{}".to_vec());
            return Ok(());
        }
        if let Some(push) = message.push {
            if push.unsubscribe.as_ref().is_some_and(|push| self.is_of_cluster && push.code == 2_500) {
                self.interrupted += 1;
                if let Some(position) = self.live.remove(&push.channel) {
                    self.positions.insert(push.channel, position);
                }
                return Ok(());
            }
            if self.is_of_cluster
                && let Some(what) = BroadcastKind::of(&push)
            {
                if self.live.contains_key(&push.channel) {
                    let period = self.periods.get(&push.channel).copied().unwrap_or_default();
                    self.broadcasts.push(SeenBroadcast { channel: push.channel, period, what });
                }
                return Ok(());
            }
            let publication = push.publication.ok_or_else(|| format!("an unexpected push for {}", push.channel))?;
            // After an unsubscribe command, publications may still be in flight.
            let Some(position) = self.live.get_mut(&push.channel) else { return Ok(()) };
            return next(truth, &push.channel, position, &publication);
        }
        let command = self.session.answered(&message)?;
        let must_recover = self.must_recover.remove(&message.id);
        if let Some(error) = message.error {
            self.is_over |= matches!(command, ClientCommand::Connect { .. });
            let is_known = matches!(error.code, 100 | 111) && may_fail;
            return if is_known { Ok(()) } else { Err(format!("unexpected error {} for {command:?}", error.code)) };
        }
        if let Some(connect) = message.connect {
            self.client_id = connect.client;
        }
        match (command, message.subscribe, message.history) {
            (ClientCommand::Connect { .. }, ..) => self.session.is_connected = true,
            (ClientCommand::Subscribe(subscribe), Some(result), _) => {
                self.subscribed(truth, subscribe.channel, subscribe.recover.as_ref(), &result, must_recover)?;
            }
            (ClientCommand::Publish { channel, data }, ..) => {
                let is_committed = is_without_history(&channel)
                    || truth.get(&channel).is_some_and(|truth| {
                        let lost = truth.lost.iter().map(|(_, known)| known);
                        truth.data.values().chain(lost).any(|known| *known == data)
                    });
                if !is_committed {
                    return Err(format!("{channel}: a publication is acknowledged, but not committed"));
                }
            }
            (ClientCommand::History { channel, .. }, _, Some(result)) => {
                let empty = ChannelTruth::default();
                let truth = truth.get(&channel).unwrap_or(&empty);
                if truth.invalid_epochs.contains(&result.epoch) {
                    return Ok(());
                }
                for publication in &result.publications {
                    truth.check(&channel, publication.offset, &publication.data)?;
                }
                let offsets: Vec<u64> = result.publications.iter().map(|publication| publication.offset).collect();
                if offsets.windows(2).any(|pair| truth.next(pair[0]) != Some(pair[1])) {
                    return Err(format!("{channel}: the history has a gap: {offsets:?}"));
                }
            }
            (ClientCommand::Unsubscribe { .. }, ..) => {}
            (command, ..) => return Err(format!("{command:?} gets a reply of another kind")),
        }
        Ok(())
    }

    fn subscribed(
        &mut self,
        truth: &Truth,
        channel: String,
        recover: Option<&ClientPosition>,
        result: &SubscribeBody,
        must_recover: bool,
    ) -> Result<(), String> {
        let top = truth.get(&channel).map_or(0, ChannelTruth::top);
        let is_invalid = truth.get(&channel).is_some_and(|truth| truth.invalid_epochs.contains(&result.epoch));
        if result.offset > top && !self.is_of_cluster {
            return Err(format!(
                "{channel}: a subscribe reply has offset {}, but only {top} is committed",
                result.offset
            ));
        }
        let mut position = ClientPosition { epoch: result.epoch.clone(), offset: result.offset };
        match recover {
            Some(from) if result.recovered && from.epoch != result.epoch => {
                return Err(format!("{channel}: recovered from {from:?} into the epoch {}", result.epoch));
            }
            // The node has not detected the truncation yet.
            _ if is_invalid => {}
            Some(from) if result.recovered => {
                self.recoveries.0 += u64::from(!result.publications.is_empty());
                // A reply without publications may only skip offsets that have no publication in this channel.
                let missed = truth.get(&channel).and_then(|truth| truth.next(from.offset));
                if result.publications.is_empty() && missed.is_some_and(|missed| missed <= result.offset) {
                    return Err(format!("{channel}: recovered from {from:?} at {}, without {missed:?}", result.offset));
                }
                position.offset = if result.publications.is_empty() { result.offset } else { from.offset };
                for publication in &result.publications {
                    next(truth, &channel, &mut position, publication)?;
                }
            }
            Some(from) if must_recover => {
                return Err(format!("{channel}: not recovered from {from:?}, although all publications are available"));
            }
            Some(_) => self.recoveries.1 += 1,
            None => {}
        }
        if !result.recovered && !is_invalid && !is_without_history(&channel) {
            self.seen_keys.push(SeenKeys::of(&channel, result));
        }
        if is_without_history(&channel) {
            let data = result.publications.iter().map(|publication| publication.data.clone());
            self.replies.push((channel.clone(), data.collect()));
        }
        self.subscribed_times += 1;
        self.periods.insert(channel.clone(), self.subscribed_times);
        self.positions.remove(&channel);
        self.live.insert(channel, position);
        Ok(())
    }
}

/// Checks that no client misses a publication when nothing is in flight. `is_loss_provable` tells whether a node can
/// detect that publications of a channel were lost in an epoch.
///
/// # Errors
/// The first publication or loss that a client missed.
pub fn check_complete(
    clients: &[LogClient],
    truth: &Truth,
    is_loss_provable: impl Fn(&str, &str) -> bool,
) -> Result<(), String> {
    for (number, client) in clients.iter().enumerate() {
        for (channel, position) in &client.live {
            let Some(truth) = truth.get(channel) else { continue };
            let error = if truth.invalid_epochs.contains(&position.epoch) {
                let is_provable = is_loss_provable(channel, &position.epoch);
                is_provable.then(|| format!("{channel} continues from a lost position {position:?}"))
            } else {
                let missing = truth.next(position.offset);
                missing.map(|missing| format!("{channel} at {}, without {missing}", position.offset))
            };
            if let Some(error) = error {
                return Err(format!("client {number} at rest: {error}"));
            }
        }
    }
    Ok(())
}

/// A message without an offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BroadcastKind {
    Publication(Vec<u8>),
    Join(String),
    Leave(String),
}

impl BroadcastKind {
    /// The message without an offset in a push, if there is one.
    fn of(push: &PushBody) -> Option<Self> {
        let client = |info: &ClientInfoBody| info.client.clone();
        match push {
            PushBody { join: Some(join), .. } => Some(Self::Join(client(&join.info))),
            PushBody { leave: Some(leave), .. } => Some(Self::Leave(client(&leave.info))),
            PushBody { publication: Some(publication), .. } if publication.offset == 0 => {
                Some(Self::Publication(publication.data.clone()))
            }
            _ => None,
        }
    }
}

/// A received message without an offset.
#[derive(Clone, Debug)]
pub struct SeenBroadcast {
    pub channel: String,
    /// The number of the client's subscription.
    pub period: u64,
    pub what: BroadcastKind,
}

/// The close code of a JSON client whose channel has data that is not JSON.
const NOT_JSON: u16 = 3506;

/// Whether the channel is in a namespace without history.
pub fn is_without_history(channel: &str) -> bool {
    channel.starts_with("live:") || channel.starts_with("kept:")
}

/// Checks the next publication of a channel: it was committed, and no committed publication before it is missing.
fn next(truth: &Truth, channel: &str, position: &mut ClientPosition, seen: &PublicationBody) -> Result<(), String> {
    let empty = ChannelTruth::default();
    let truth = truth.get(channel).unwrap_or(&empty);
    if truth.invalid_epochs.contains(&position.epoch) {
        if seen.offset <= position.offset {
            return Err(format!("{channel}: {} follows {}", seen.offset, position.offset));
        }
        position.offset = seen.offset;
        return Ok(());
    }
    truth.check(channel, seen.offset, &seen.data)?;
    let expected = truth.next(position.offset);
    // The first message after a stream was emptied says that nothing of its channel came before it. So a node that was not sent
    // the last messages before that notices no gap, and its subscribers miss them. Only publications up to the emptying are
    // excused; the next epoch ends the subscriptions.
    let expected_after_emptying = truth.next(position.offset.max(truth.emptied_through));
    if ![expected, expected_after_emptying].contains(&Some(seen.offset)) {
        return Err(format!("{channel}: {} follows {}, but {expected:?} is committed", seen.offset, position.offset));
    }
    position.offset = seen.offset;
    Ok(())
}
