//! A client: behaves like an SDK most of the time, and checks everything that it receives.

mod initiative;
mod push;
mod receive;
mod rooms;

use std::collections::BTreeMap;

use crate::{
    checks::Subscription,
    plan::Profile,
    wire::{ClientCommand, ClientPosition, FrameReader, encode},
};

pub use initiative::Initiative;
pub use receive::{Next, ReceiveContext};

/// Where a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientPhase {
    /// Not connected, until this time.
    Offline {
        /// When to come back.
        until_us: u64,
    },
    /// `connect` is not answered.
    Connecting,
    /// Connected.
    Live,
    /// `connect` was answered with an error.
    Refused,
    /// It heard or said the last word.
    Over,
}

/// A command without a reply.
#[derive(Debug)]
pub struct Pending {
    pub command: ClientCommand,
    /// When it was said.
    pub sent_us: u64,
    /// Publications of the API in the command's channel by then.
    pub api_count: u64,
    /// For a publish, its number.
    pub number: Option<u64>,
    /// For an input, its number in the book.
    pub input: Option<u64>,
    /// For a subscribe to a room, the number of the attempt to join.
    pub join: Option<u64>,
    /// For a connect, how many of the API's publications there were by channel.
    pub api_counts: BTreeMap<String, u64>,
    /// Whether the client had, or had asked for, a subscription to the command's channel; for a subscribe, whether it was at
    /// its limit.
    pub had: bool,
    /// See `had`.
    pub at_limit: bool,
    /// Whether the newest publications of keys come behind the answer, as pushes.
    pub newest_behind: bool,
}

/// What a client puts on the wire.
#[derive(Debug)]
pub enum Upward {
    /// A frame of commands; whether it holds a pong.
    Frame(Vec<u8>, bool),
    /// A WebSocket ping.
    Ping(Vec<u8>),
    /// A close frame.
    Close(Option<u16>),
    /// Bytes against RFC 6455, to be answered with this code.
    Violation(u16),
}

/// What an operator ordered about sessions of a user.
#[derive(Clone, Debug)]
pub struct OperatorAction {
    pub user: String,
    /// Which; all, if there is none.
    pub client: Option<String>,
    /// Which not.
    pub spared: Vec<String>,
    /// In which channel; in all, or about the session itself, if it is empty.
    pub channel: String,
    pub code: u16,
    /// How many of the API's publications there were in the channel by then.
    pub api_count: u64,
    /// When the subscription that is made expires, in Unix seconds.
    pub expires_at_s: Option<u64>,
}

impl OperatorAction {
    /// Whether it is about the session `client` of `user`. One that was not told its id may be any.
    pub fn is_about(&self, user: &str, client: &str) -> bool {
        let is_meant = self.client.as_deref().is_none_or(|meant| meant == client);
        self.user == user && (client.is_empty() || is_meant && !self.spared.iter().any(|spared| spared == client))
    }
}

/// Whether a client has closed its session, where the transport has a way to say so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientClose {
    /// It has not.
    #[default]
    NotSent,
    /// With this code, or without one.
    Sent(Option<u16>),
}

/// What a client did that excuses the server for closing.
#[derive(Debug, Default)]
#[allow(missing_docs)]
pub struct Misdeeds {
    pub broke_protocol: bool,
    pub was_refused: bool,
    pub sent_message: bool,
    pub forged_token: bool,
    pub expired_refresh: bool,
    pub refreshed: bool,
    pub sub_refreshed: bool,
    pub violated: Option<u16>,
    pub closed: ClientClose,
}

/// One client of the simulation, over all its connections.
pub struct Client {
    pub index: usize,
    pub profile: Profile,
    pub phase: ClientPhase,
    /// Its connection, by number.
    pub connection: Option<usize>,
    /// Its session's id.
    pub id: String,
    /// Live subscriptions, as far as it knows.
    pub subscriptions: BTreeMap<String, Subscription>,
    /// Positions that it recovers from, and by that the channels it wants.
    pub positions: BTreeMap<String, ClientPosition>,
    /// Its seat tokens by channel, the oldest first.
    pub seat_tokens: BTreeMap<String, Vec<String>>,
    /// Commands without a reply, by id.
    pub pending: BTreeMap<u32, Pending>,
    /// What it did in this connection.
    pub misdeeds: Misdeeds,
    /// When the connection expires, by the last word of the server, and the latest of all tokens it presented.
    pub expiry_s: Option<u64>,
    /// See `expiry_s`; `None` as long as one of them never expires.
    pub latest_expiry_s: Option<u64>,
    /// Expiries that operators gave the session, if it is the one that they meant.
    pub expiries_by_api: Vec<Option<u64>>,
    /// How many of those it must be told of, and how many it was.
    pub refreshes: (usize, usize),
    /// Whether a backend is asked when the session expires.
    pub is_extended: bool,
    /// Pings of the server that it heard.
    pub pings: u64,
    /// Payloads of its own WebSocket pings.
    pub own_pings: Vec<Vec<u8>>,
    /// What it wants to put on the wire.
    pub upward: Vec<Upward>,
    /// Channels that its connection token subscribes it to.
    pub server_side: Vec<String>,
    reader: FrameReader,
    /// The code of a push that says why the session ends.
    pub disconnect_code: Option<u16>,
    next_id: u32,
    /// Commands that it is about to send.
    frame: Vec<(u32, ClientCommand)>,
}

impl Client {
    /// A client that has not connected yet.
    pub fn new(index: usize, profile: Profile) -> Self {
        Self {
            index,
            phase: ClientPhase::Offline { until_us: 0 },
            connection: None,
            id: String::new(),
            subscriptions: BTreeMap::new(),
            positions: BTreeMap::new(),
            seat_tokens: BTreeMap::new(),
            pending: BTreeMap::new(),
            misdeeds: Misdeeds::default(),
            expiry_s: None,
            latest_expiry_s: None,
            expiries_by_api: Vec::new(),
            refreshes: (0, 0),
            is_extended: false,
            pings: 0,
            own_pings: Vec::new(),
            upward: Vec::new(),
            server_side: Vec::new(),
            reader: FrameReader::new(profile.wire),
            disconnect_code: None,
            next_id: 1,
            frame: Vec::new(),
            profile,
        }
    }

    /// Begins a connection.
    pub fn open(&mut self, connection: usize) {
        self.phase = ClientPhase::Connecting;
        self.connection = Some(connection);
        self.id = String::new();
        self.misdeeds = Misdeeds::default();
        self.pings = 0;
        self.expiry_s = None;
        self.latest_expiry_s = None;
        self.expiries_by_api.clear();
        self.refreshes = (0, 0);
        self.own_pings.clear();
        self.upward.clear();
        self.reader = FrameReader::new(self.profile.wire);
        self.disconnect_code = None;
        self.next_id = 1;
    }

    /// Ends a connection, on the client's side. What it knows of streams stays, for the next one.
    pub fn leave(&mut self, until_us: u64) {
        self.phase = ClientPhase::Offline { until_us };
        self.connection = None;
        self.pending.clear();
        self.upward.clear();
        for (channel, subscription) in std::mem::take(&mut self.subscriptions) {
            if let Some(position) = subscription.position() {
                self.positions.insert(channel, position);
            }
        }
    }

    /// Adds a command to the frame that it is about to send.
    pub fn add(&mut self, (command, mut pending): (ClientCommand, Pending)) {
        if let ClientCommand::Publish { channel, .. }
        | ClientCommand::Presence { channel }
        | ClientCommand::PresenceStats { channel }
        | ClientCommand::History { channel, .. } = &command
        {
            pending.had = self.subscriptions.contains_key(channel) || self.asks_for(channel);
        }
        let id = self.next_id;
        self.next_id += 1;
        if !matches!(command, ClientCommand::Pong | ClientCommand::Send { .. }) {
            self.pending.insert(id, pending);
        }
        self.frame.push((id, command));
    }

    /// Sends the frame, unless it is empty.
    pub fn send_frame(&mut self) {
        let frame = std::mem::take(&mut self.frame);
        if !frame.is_empty() {
            let has_pong = frame.iter().any(|(_, command)| matches!(command, ClientCommand::Pong));
            let mut bytes = encode(self.profile.encoding, &frame);
            if self.profile.wire.is_unidirectional() {
                bytes = bare_connect(&bytes);
            }
            self.upward.push(Upward::Frame(bytes, has_pong));
        }
    }

    /// Starts over, as a page that is loaded anew.
    pub fn forget_everything(&mut self) {
        self.subscriptions.clear();
        self.positions.clear();
    }

    /// Whether the last thing it asked about `channel`, and has no answer to, is to subscribe.
    pub fn asks_for(&self, channel: &str) -> bool {
        matches!(self.last_asked(channel), Some(ClientCommand::Subscribe { .. }))
    }

    /// Whether it is to end the subscription.
    pub fn leaves(&self, channel: &str) -> bool {
        matches!(self.last_asked(channel), Some(ClientCommand::Unsubscribe { .. }))
    }

    fn last_asked(&self, of: &str) -> Option<&ClientCommand> {
        self.pending
            .values()
            .rev()
            .map(|pending| &pending.command)
            .find(|command| matches!(command, ClientCommand::Subscribe { channel, .. } | ClientCommand::Unsubscribe { channel } if channel == of))
    }

    /// How many subscriptions it has or has asked for.
    pub fn subscriptions_at_most(&self) -> usize {
        let asked =
            self.pending.values().filter(|pending| matches!(pending.command, ClientCommand::Subscribe { .. })).count();
        let at_connect = if self.phase == ClientPhase::Connecting { self.server_side.len() } else { 0 };
        self.subscriptions.len() + asked + at_connect
    }
}

/// The connect request of a `connect` command in JSON: all that a client says where only the server speaks.
fn bare_connect(command: &[u8]) -> Vec<u8> {
    let command: serde_json::Value = serde_json::from_slice(command).expect("a command of ours");
    command["connect"].to_string().into_bytes()
}
