//! A simulated client. Most of the time it behaves like an SDK. It checks everything that it receives.

mod act;
mod push;
mod receive;
mod rooms;

use std::collections::BTreeMap;

use crate::{
    checks::Subscription,
    plan::Profile,
    wire::{ClientCommand, ClientPosition, FrameReader, SubscribeCommand, encode},
};

pub use act::ActContext;
pub use receive::{Next, ReceiveContext};

/// The state of a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientPhase {
    /// Not connected.
    Offline {
        /// When to reconnect.
        until_us: u64,
    },
    /// The connect command has no reply yet.
    Connecting,
    Live,
    /// The connect command got an error.
    Rejected,
    /// The session ended.
    Over,
}

/// A command without a reply.
#[derive(Debug)]
pub struct Pending {
    pub command: ClientCommand,
    pub sent_us: u64,
    /// Number of API publications in the command's channel when it was sent.
    pub api_count: u64,
    /// For a publish, the number of the publication.
    pub number: Option<u64>,
    /// For an input, its number in the model.
    pub input: Option<u64>,
    /// For a subscribe to a room, the number of the join.
    pub join: Option<u64>,
    /// For a connect, the number of API publications in each channel when it was sent.
    pub api_counts: BTreeMap<String, u64>,
    /// Whether the client had, or had requested, a subscription to the command's channel.
    pub had: bool,
    /// For a subscribe, whether the client may have been at its limit of subscriptions.
    pub at_limit: bool,
    /// Whether the newest publication of each key follows the reply as a push.
    pub newest_follows_reply: bool,
}

impl Pending {
    /// The subscribe command of which this is.
    ///
    /// # Errors
    /// If it is another command.
    pub fn subscribe(&self) -> Result<&SubscribeCommand, String> {
        match &self.command {
            ClientCommand::Subscribe(subscribe) => Ok(subscribe),
            other => Err(format!("not a subscribe command: {other:?}")),
        }
    }
}

/// What a client sends to the server.
#[derive(Debug)]
pub enum ToServer {
    /// A frame of commands, and whether it contains a pong.
    Frame(Vec<u8>, bool),
    /// A WebSocket ping.
    Ping(Vec<u8>),
    /// A close frame.
    Close(Option<u16>),
    /// Bytes that violate RFC 6455. The server must close with this code.
    Violation(u16),
}

/// An action of an operator on the sessions of a user.
#[derive(Clone, Debug)]
pub struct OperatorAction {
    pub user: String,
    /// The client id of the session, or `None` for all sessions.
    pub client: Option<String>,
    /// Client ids of the excluded sessions.
    pub spared: Vec<String>,
    /// The channel. If it is empty, the action applies to all channels or to the session itself.
    pub channel: String,
    pub code: u16,
    /// Number of API publications in the channel at that time.
    pub api_count: u64,
    /// When the new subscription expires, in Unix seconds.
    pub expires_at_s: Option<u64>,
}

impl OperatorAction {
    /// Whether it applies to the session `client` of `user`. It may apply to a session that does not know its id yet.
    pub fn is_about(&self, user: &str, client: &str) -> bool {
        let is_target = self.client.as_deref().is_none_or(|target| target == client);
        self.user == user && (client.is_empty() || is_target && !self.spared.iter().any(|spared| spared == client))
    }
}

/// Whether a client sent a close frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientClose {
    /// It did not.
    #[default]
    NotSent,
    /// It sent one with this code, or without a code.
    Sent(Option<u16>),
}

/// Actions of a client that permit the server to close the session.
#[derive(Debug, Default)]
pub struct CloseReasons {
    pub broke_protocol: bool,
    pub was_rejected: bool,
    pub sent_message: bool,
    pub forged_token: bool,
    pub expired_refresh: bool,
    pub refreshed: bool,
    pub sub_refreshed: bool,
    pub violated: Option<u16>,
    pub closed: ClientClose,
}

/// A client of the simulation, across all its connections.
pub struct Client {
    pub index: usize,
    pub profile: Profile,
    pub phase: ClientPhase,
    /// The number of its connection.
    pub connection: Option<usize>,
    /// The client id of its session.
    pub id: String,
    /// Live subscriptions, as the client sees them.
    pub subscriptions: BTreeMap<String, Subscription>,
    /// Positions to recover from. Their channels are those to which the client resubscribes.
    pub positions: BTreeMap<String, ClientPosition>,
    /// Its seat tokens by channel, oldest first.
    pub seat_tokens: BTreeMap<String, Vec<String>>,
    /// Commands without a reply, by id.
    pub pending: BTreeMap<u32, Pending>,
    pub close_reasons: CloseReasons,
    /// When the connection expires according to the last message of the server.
    pub expiry_s: Option<u64>,
    /// The latest expiry of all tokens that it presented. `None` if one of them never expires.
    pub latest_expiry_s: Option<u64>,
    /// Expiries that operators may have set for the session.
    pub expiries_by_api: Vec<Option<u64>>,
    /// The number of those that it must receive, and that it received.
    pub refreshes: (usize, usize),
    /// Whether a backend may extend the session when it expires.
    pub is_extended: bool,
    /// Number of pings received from the server.
    pub pings: u64,
    /// Payloads of its WebSocket pings without a pong.
    pub own_pings: Vec<Vec<u8>>,
    /// What it has sent and its connection has not taken yet.
    pub to_server: Vec<ToServer>,
    /// The channels to which its connection token subscribes it.
    pub server_side: Vec<String>,
    reader: FrameReader,
    /// The code of a disconnect push.
    pub disconnect_code: Option<u16>,
    next_id: u32,
    /// Commands of the next frame.
    frame: Vec<(u32, ClientCommand)>,
}

impl Client {
    /// Creates a client that is not connected.
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
            close_reasons: CloseReasons::default(),
            expiry_s: None,
            latest_expiry_s: None,
            expiries_by_api: Vec::new(),
            refreshes: (0, 0),
            is_extended: false,
            pings: 0,
            own_pings: Vec::new(),
            to_server: Vec::new(),
            server_side: Vec::new(),
            reader: FrameReader::new(profile.wire),
            disconnect_code: None,
            next_id: 1,
            frame: Vec::new(),
            profile,
        }
    }

    pub fn open(&mut self, connection: usize) {
        self.phase = ClientPhase::Connecting;
        self.connection = Some(connection);
        self.id = String::new();
        self.close_reasons = CloseReasons::default();
        self.pings = 0;
        self.expiry_s = None;
        self.latest_expiry_s = None;
        self.expiries_by_api.clear();
        self.refreshes = (0, 0);
        self.own_pings.clear();
        self.to_server.clear();
        self.reader = FrameReader::new(self.profile.wire);
        self.disconnect_code = None;
        self.next_id = 1;
    }

    /// Ends a connection on the client's side. The positions are kept for the next connection.
    pub fn leave(&mut self, until_us: u64) {
        self.phase = ClientPhase::Offline { until_us };
        self.connection = None;
        self.pending.clear();
        self.to_server.clear();
        for (channel, subscription) in std::mem::take(&mut self.subscriptions) {
            if let Some(position) = subscription.position() {
                self.positions.insert(channel, position);
            }
        }
    }

    /// Adds a command to the next frame.
    pub fn add(&mut self, (command, mut pending): (ClientCommand, Pending)) {
        if let ClientCommand::Publish { channel, .. }
        | ClientCommand::Presence { channel }
        | ClientCommand::PresenceStats { channel }
        | ClientCommand::History { channel, .. } = &command
        {
            pending.had = self.subscriptions.contains_key(channel) || self.is_subscribing(channel);
        }
        let id = self.next_id;
        self.next_id += 1;
        if !matches!(command, ClientCommand::Pong | ClientCommand::Send { .. }) {
            self.pending.insert(id, pending);
        }
        self.frame.push((id, command));
    }

    /// Sends the next frame, unless it is empty.
    pub fn send_frame(&mut self) {
        let frame = std::mem::take(&mut self.frame);
        if !frame.is_empty() {
            let has_pong = frame.iter().any(|(_, command)| matches!(command, ClientCommand::Pong));
            let mut bytes = encode(self.profile.encoding, &frame);
            if self.profile.wire.is_unidirectional() {
                bytes = connect_request(&bytes);
            }
            self.to_server.push(ToServer::Frame(bytes, has_pong));
        }
    }

    /// Discards all subscriptions and positions, like a reloaded web page.
    pub fn reset(&mut self) {
        self.subscriptions.clear();
        self.positions.clear();
    }

    /// Whether the last pending subscribe or unsubscribe command for `channel` is a subscribe.
    pub fn is_subscribing(&self, channel: &str) -> bool {
        matches!(self.last_pending(channel), Some(ClientCommand::Subscribe(_)))
    }

    /// Whether the last pending subscribe or unsubscribe command for `channel` is an unsubscribe.
    pub fn is_unsubscribing(&self, channel: &str) -> bool {
        matches!(self.last_pending(channel), Some(ClientCommand::Unsubscribe { .. }))
    }

    fn last_pending(&self, of: &str) -> Option<&ClientCommand> {
        self.pending.values().rev().map(|pending| &pending.command).find(|command| match command {
            ClientCommand::Subscribe(subscribe) => subscribe.channel == of,
            ClientCommand::Unsubscribe { channel } => channel == of,
            _ => false,
        })
    }

    /// The number of subscriptions that it has or has requested.
    pub fn subscriptions_at_most(&self) -> usize {
        let requested =
            self.pending.values().filter(|pending| matches!(pending.command, ClientCommand::Subscribe(_))).count();
        let at_connect = if self.phase == ClientPhase::Connecting { self.server_side.len() } else { 0 };
        self.subscriptions.len() + requested + at_connect
    }
}

/// Extracts the connect request from a JSON connect command. Clients of unidirectional transports only send the
/// request.
fn connect_request(command: &[u8]) -> Vec<u8> {
    let command: serde_json::Value = serde_json::from_slice(command).expect("the simulator encodes valid JSON");
    command["connect"].to_string().into_bytes()
}
