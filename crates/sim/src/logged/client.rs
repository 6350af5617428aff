//! A client of channels with a log: reads every byte and checks that everything it sees was committed.

use std::collections::BTreeMap;

use dunlin_engine::{SessionKey, Wire};
use dunlin_protocol::Encoding;

use crate::wire::{
    ClientCommand, ClientInfoBody, ClientPosition, FrameReader, PublicationBody, PushBody, ServerMessage,
    SubscribeBody, WireFrame, decode,
};

use super::{ChannelTruth, Truth};

/// A client, over all its connections.
pub struct LogClient {
    /// Its session, if it is connected.
    pub session: Option<(usize, SessionKey)>,
    /// Whether the shard wants no frame of it now.
    pub paused: bool,
    /// Frames that it wants to send.
    pub upward: Vec<Vec<u8>>,
    /// The last offsets by channel, of live subscriptions.
    pub live: BTreeMap<String, ClientPosition>,
    /// Where it goes on when it subscribes again.
    pub positions: BTreeMap<String, ClientPosition>,
    /// Commands without a reply.
    pub pending: BTreeMap<u32, (ClientCommand, bool)>,
    /// Whether `connect` was answered.
    pub is_connected: bool,
    /// Who it is, which its token says; empty for nobody.
    pub user: String,
    /// The id of its connection; empty until `connect` is answered.
    pub client_id: String,
    /// The server has closed its connection, or has refused it.
    pub is_over: bool,
    /// Recoveries that brought something, and those that could not be complete.
    pub recoveries: (u64, u64),
    /// Subscriptions that the server ended because it may have missed something.
    pub interrupted: u64,
    /// What it was sent without an offset, for the world to take.
    pub broadcasts: Vec<SeenBroadcast>,
    /// Its subscription to each channel, by their number over all channels.
    pub periods: BTreeMap<String, u64>,
    /// A position may be that of a message in another channel.
    is_of_cluster: bool,
    subscribed_times: u64,
    reader: FrameReader,
    next_id: u32,
}

impl LogClient {
    /// A client that is not connected.
    pub fn new() -> Self {
        Self {
            session: None,
            paused: false,
            upward: Vec::new(),
            live: BTreeMap::new(),
            positions: BTreeMap::new(),
            pending: BTreeMap::new(),
            is_connected: false,
            user: String::new(),
            client_id: String::new(),
            is_over: false,
            recoveries: (0, 0),
            interrupted: 0,
            broadcasts: Vec::new(),
            periods: BTreeMap::new(),
            is_of_cluster: false,
            subscribed_times: 0,
            reader: FrameReader::new(Wire::WebSocketJson),
            next_id: 1,
        }
    }

    /// The same of a cluster, where channels share offsets.
    pub fn of_cluster() -> Self {
        Self { is_of_cluster: true, ..Self::new() }
    }

    /// Begins a connection.
    pub fn open(&mut self, shard: usize, session: SessionKey) {
        self.session = Some((shard, session));
        self.reader = FrameReader::new(Wire::WebSocketJson);
        (self.paused, self.is_connected, self.is_over) = (false, false, false);
        self.client_id.clear();
        self.send(ClientCommand::Connect { token: self.user.clone(), subs: Vec::new() }, false);
    }

    /// Whether it has a session that is connected.
    pub fn is_open(&self) -> bool {
        self.session.is_some() && self.is_connected && !self.is_over
    }

    /// Ends it. What it knows of channels stays.
    pub fn leave(&mut self) {
        self.session = None;
        self.upward.clear();
        self.pending.clear();
        self.positions.append(&mut self.live);
    }

    /// Whether it has a subscription, or asks for one.
    pub fn knows(&self, channel: &str) -> bool {
        let asks = |command: &ClientCommand| matches!(command, ClientCommand::Subscribe { channel: of, .. } | ClientCommand::Unsubscribe { channel: of } if of == channel);
        self.live.contains_key(channel) || self.pending.values().any(|(command, _)| asks(command))
    }

    /// Subscribes, from where it was. `must_recover` says that everything that it missed is there.
    pub fn subscribe(&mut self, channel: &str, must_recover: bool) {
        let has_history = !is_without_history(channel);
        let command = ClientCommand::Subscribe {
            channel: channel.to_owned(),
            token: String::new(),
            recover: self.positions.get(channel).filter(|_| has_history).cloned(),
            positioned: false,
            recoverable: has_history,
            join_leave: false,
            reject_unrecoverable: false,
            delta: "",
            compact: false,
            filter: None,
            data: Vec::new(),
        };
        self.send(command, must_recover);
    }

    /// Ends a subscription.
    pub fn unsubscribe(&mut self, channel: &str) {
        if let Some(position) = self.live.remove(channel) {
            self.positions.insert(channel.to_owned(), position);
            self.send(ClientCommand::Unsubscribe { channel: channel.to_owned() }, false);
        }
    }

    /// Sends a command.
    pub fn send(&mut self, command: ClientCommand, must_recover: bool) {
        let id = self.next_id;
        self.next_id += 1;
        self.upward.push(crate::wire::encode(Encoding::Json, &[(id, command.clone())]));
        self.pending.insert(id, (command, must_recover));
    }

    /// Reads bytes. Channels of publish commands that were acknowledged are counted.
    ///
    /// # Errors
    /// Whatever in them was not committed, or is missing.
    pub fn read(&mut self, truth: &Truth, may_fail: bool, bytes: impl Iterator<Item = u8>) -> Result<(), String> {
        self.reader.feed(bytes);
        while let Some(frame) = self.reader.next()? {
            let payload = match frame {
                WireFrame::Text(payload) => payload,
                WireFrame::Close(..) if self.is_of_cluster => {
                    self.is_over = true;
                    continue;
                }
                other => return Err(format!("{other:?}")),
            };
            for message in decode(Encoding::Json, &payload)? {
                self.on_message(truth, may_fail, message)?;
            }
        }
        Ok(())
    }

    fn on_message(&mut self, truth: &Truth, may_fail: bool, message: ServerMessage) -> Result<(), String> {
        if message == ServerMessage::default() {
            self.upward.push(b"{}".to_vec());
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
            let publication = push.publication.ok_or_else(|| format!("an odd push for {}", push.channel))?;
            // Behind an unsubscribe command, some are still on their way.
            let Some(position) = self.live.get_mut(&push.channel) else { return Ok(()) };
            return next(truth, &push.channel, position, &publication);
        }
        let (command, must_recover) = self.pending.remove(&message.id).ok_or("a reply that nobody waits for")?;
        if let Some(error) = message.error {
            self.is_over |= matches!(command, ClientCommand::Connect { .. });
            let is_known = matches!(error.code, 100 | 111) && may_fail;
            return if is_known { Ok(()) } else { Err(format!("error {} answers {command:?}", error.code)) };
        }
        if let Some(connect) = message.connect {
            self.client_id = connect.client;
        }
        match (command, message.subscribe, message.history) {
            (ClientCommand::Connect { .. }, ..) => self.is_connected = true,
            (ClientCommand::Subscribe { channel, recover, .. }, Some(result), _) => {
                self.subscribed(truth, channel, recover.as_ref(), &result, must_recover)?;
            }
            (ClientCommand::Publish { channel, data }, ..) => {
                let is_committed = is_without_history(&channel)
                    || truth.get(&channel).is_some_and(|truth| {
                        let lost = truth.lost.iter().map(|(_, known)| known);
                        truth.data.values().chain(lost).any(|known| *known == data)
                    });
                if !is_committed {
                    return Err(format!("{channel}: a publication is acknowledged that is not committed"));
                }
            }
            (ClientCommand::History { channel, .. }, _, Some(result)) => {
                let empty = ChannelTruth::default();
                let truth = truth.get(&channel).unwrap_or(&empty);
                if truth.void_epochs.contains(&result.epoch) {
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
            (command, ..) => return Err(format!("{command:?} is answered otherwise")),
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
        let is_void = truth.get(&channel).is_some_and(|truth| truth.void_epochs.contains(&result.epoch));
        if result.offset > top && !self.is_of_cluster {
            return Err(format!("{channel}: a subscriber is told of offset {}, and {top} is committed", result.offset));
        }
        let mut position = ClientPosition { epoch: result.epoch.clone(), offset: result.offset };
        match recover {
            Some(from) if result.recovered && from.epoch != result.epoch => {
                return Err(format!("{channel}: recovered from {from:?} into the epoch {}", result.epoch));
            }
            // The node does not know yet.
            _ if is_void => {}
            Some(from) if result.recovered => {
                self.recoveries.0 += u64::from(!result.publications.is_empty());
                // Where nothing is missed, the answer may be ahead only by what nobody has.
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
                return Err(format!("{channel}: not recovered from {from:?}, and all is there"));
            }
            Some(_) => self.recoveries.1 += 1,
            None => {}
        }
        self.subscribed_times += 1;
        self.periods.insert(channel.clone(), self.subscribed_times);
        self.positions.remove(&channel);
        self.live.insert(channel, position);
        Ok(())
    }
}

/// Something without an offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BroadcastKind {
    Publication(Vec<u8>),
    Join(String),
    Leave(String),
}

impl BroadcastKind {
    /// What a push has without an offset.
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

/// What a client was sent without an offset.
#[derive(Clone, Debug)]
pub struct SeenBroadcast {
    pub channel: String,
    /// Which of the client's subscriptions it came by.
    pub period: u64,
    pub what: BroadcastKind,
}

/// Whether the channel is one of the namespace without history.
pub fn is_without_history(channel: &str) -> bool {
    channel.starts_with("live:")
}

/// Takes in the next publication of a channel: it was committed, and nothing that was committed is missing before it.
fn next(truth: &Truth, channel: &str, position: &mut ClientPosition, seen: &PublicationBody) -> Result<(), String> {
    let empty = ChannelTruth::default();
    let truth = truth.get(channel).unwrap_or(&empty);
    if truth.void_epochs.contains(&position.epoch) {
        if seen.offset <= position.offset {
            return Err(format!("{channel}: {} comes behind {}", seen.offset, position.offset));
        }
        position.offset = seen.offset;
        return Ok(());
    }
    truth.check(channel, seen.offset, &seen.data)?;
    let expected = truth.next(position.offset);
    if expected != Some(seen.offset) {
        return Err(format!(
            "{channel}: {} comes behind {}, where {expected:?} is committed",
            seen.offset, position.offset
        ));
    }
    position.offset = seen.offset;
    Ok(())
}
