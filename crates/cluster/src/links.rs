//! The three connections to NATS: performs [`LinkEffect`]s and yields [`LinkEvent`]s.
//!
//! Each connection is a task of the caller's runtime with a queue of effects, which takes all of them, in order. The caller
//! stops accepting requests while [`Links::is_full`].

pub(crate) mod connecting;
mod reads;
mod reconnecting;
mod replies;
mod subscription;
mod unanswered_requests;
mod unwritten;

use std::{fmt, sync::Arc, time::Duration};

use dunlin_queues::{
    CountedReceiver, CountedSender,
    declared::{LINK_EFFECTS, LINK_EVENTS},
};

use crate::link::{LinkEffect, LinkEvent, LinkName};

pub use async_nats::{Client as NatsClient, HeaderMap as NatsHeaders, ServerAddr};
pub(crate) use connecting::ClientNotice;
pub use connecting::{LinkCredentials, parsed_servers};
pub(crate) use reconnecting::Servers;
pub(crate) use replies::stream_state_of;

/// How to connect to the servers.
#[derive(Clone)]
pub struct LinkOptions {
    /// The servers, tried in turn.
    pub servers: Vec<ServerAddr>,
    /// The credentials for the servers.
    pub credentials: LinkCredentials,
    /// Encrypts all connections if set. Otherwise the address or the server decides about encryption.
    pub tls: Option<rustls::ClientConfig>,
    /// The node's name in the servers' lists of connections.
    pub name: Box<str>,
    /// The prefix of the subjects for answers. It must be unique among processes.
    pub inbox: Box<str>,
    /// Timeout for opening a connection.
    pub dial_timeout: Duration,
    /// Timeout for the acknowledgement of a publication.
    pub ack_timeout: Duration,
    /// Timeout for the answer to a read.
    pub read_timeout: Duration,
    /// Maximum number of events that wait for the caller. Further messages of subscriptions are dropped, and
    /// [`LinkEvent::SlowConsumer`] is reported.
    pub messages_max: usize,
    /// Maximum number of their bytes.
    pub messages_bytes_max: usize,
    /// Receives the reports for the log.
    pub report: Arc<dyn Fn(LinkReport) + Send + Sync>,
}

impl fmt::Debug for LinkOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<&str> = self.servers.iter().map(ServerAddr::host).collect();
        f.debug_struct("LinkOptions").field("servers", &servers).field("name", &self.name).finish_non_exhaustive()
    }
}

/// A connection of a node, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionName {
    /// One of the protocol of channels.
    Channels(LinkName),
    /// The one for frames about rooms.
    Rooms,
}

impl ConnectionName {
    /// The name in logs.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Channels(link) => link.label(),
            Self::Rooms => "rooms",
        }
    }

    /// A number that no other connection has.
    const fn index(self) -> usize {
        match self {
            Self::Channels(link) => link as usize,
            Self::Rooms => LinkName::ALL.len(),
        }
    }
}

impl From<LinkName> for ConnectionName {
    fn from(link: LinkName) -> Self {
        Self::Channels(link)
    }
}

/// An event of a connection, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkReport {
    /// A connection was opened.
    Connected {
        /// The connection.
        link: ConnectionName,
        /// Host and port.
        server: String,
    },
    /// A connection went down.
    Lost {
        /// The connection.
        link: ConnectionName,
        /// Host and port.
        server: String,
    },
    /// A server refused a connection. Reported once per server, until one accepts it.
    ConnectFailed {
        /// The connection.
        link: ConnectionName,
        /// Host and port.
        server: String,
        /// The reason, as text of the system or the server.
        error: String,
    },
    /// The start waits for the servers.
    Waiting {
        /// What for.
        why: String,
        /// The seconds that are left.
        left_s: u64,
    },
    /// A server has reported an error, for example a missing permission.
    ServerError {
        /// The connection.
        link: ConnectionName,
        /// The server's text.
        text: String,
    },
}

/// Opens a connection for requests before the links are started.
///
/// # Errors
/// If none of the servers accepts a connection; contains the reason of each.
pub async fn open_once(options: &LinkOptions) -> Result<NatsClient, ConnectFaults> {
    let mut faults = ConnectFaults::default();
    for server in &options.servers {
        match connecting::connect(LinkName::Read.into(), server, options).await {
            Ok((client, _notices)) => return Ok(client),
            Err(error) => {
                faults.is_refused |= connecting::is_refused(&error);
                let server = format!("{}:{}", server.host(), server.port());
                faults.by_server.push((server, connecting::described(&error)));
            }
        }
    }
    Err(faults)
}

/// Why no server accepts a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectFaults {
    /// Host and port of each server, and the reason.
    pub by_server: Vec<(String, String)>,
    /// Whether one of them refuses the credentials or the certificate, so that a retry is pointless.
    pub is_refused: bool,
}

impl fmt::Display for ConnectFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no NATS server takes a connection")?;
        for (index, (server, why)) in self.by_server.iter().enumerate() {
            write!(f, "{} {server}: {why}", if index == 0 { ":" } else { "," })?;
        }
        Ok(())
    }
}

impl std::error::Error for ConnectFaults {}

/// The connections of a node.
#[derive(Debug)]
pub struct Links {
    effects: [CountedSender<LinkEffect>; 3],
    events: CountedReceiver<LinkEvent>,
}

impl Links {
    /// Starts to open the connections. Must be called in a Tokio runtime.
    pub fn start(options: &LinkOptions) -> Self {
        let of_events = LINK_EVENTS.with_messages(options.messages_max).with_bytes(options.messages_bytes_max);
        let (event_sender, events) = of_events.counted_channel();
        let effects = LinkName::ALL.map(|link| {
            let (sender, effects) = LINK_EFFECTS.counted_channel();
            tokio::spawn(reconnecting::run(link, options.clone(), effects, event_sender.clone()));
            sender
        });
        Self { effects, events }
    }

    /// Queues an effect. It is never refused: the caller checks [`Links::is_full`] before it takes what causes effects.
    pub fn perform(&self, effect: LinkEffect) {
        let link = match &effect {
            LinkEffect::Subscribe { .. } | LinkEffect::Unsubscribe { .. } => LinkName::Live,
            LinkEffect::Publish { link, .. } | LinkEffect::Reconnect { link } => *link,
            LinkEffect::Purge { .. } => LinkName::Publish,
            LinkEffect::LastOf { .. }
            | LinkEffect::Range { .. }
            | LinkEffect::Sequences { .. }
            | LinkEffect::FirstSince { .. }
            | LinkEffect::Create { .. }
            | LinkEffect::Describe { .. } => LinkName::Read,
        };
        let bytes = effect.bytes();
        // A task that has ended performs nothing, which only the end of the runtime causes.
        self.effects[link as usize].send_admitted(effect, bytes);
    }

    /// The number of effects that wait for the connections.
    pub fn waiting(&self) -> usize {
        self.effects.iter().map(CountedSender::messages).sum()
    }

    /// Whether so many effects wait, or so many bytes of them, that nothing may be taken that causes more.
    pub fn is_full(&self) -> bool {
        let bytes: usize = self.effects.iter().map(CountedSender::bytes).sum();
        self.waiting() >= LINK_EFFECTS.messages.max || bytes >= LINK_EFFECTS.bytes_max()
    }

    /// The next event. Cancel-safe: no event is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<LinkEvent> {
        self.events.recv().await
    }

    /// Sends what is queued, and closes the connections. Their last events are dropped.
    pub async fn close(self) {
        let Self { effects, mut events } = self;
        drop(effects);
        while events.recv().await.is_some() {}
    }

    /// The next event that has already arrived.
    pub fn try_next(&mut self) -> Option<LinkEvent> {
        self.events.try_recv()
    }
}
