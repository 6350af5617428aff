//! The three connections to NATS: performs [`LinkEffect`]s and yields [`LinkEvent`]s.
//!
//! Each connection is a task of the caller's runtime with a bounded queue. Effects that do not fit wait in [`Links`],
//! in order. The caller stops accepting requests while [`Links::waiting`] is above its limit.

mod awaited;
pub(crate) mod connecting;
mod reads;
mod replies;
mod session;

use std::{collections::VecDeque, fmt, sync::Arc, time::Duration};

use tokio::sync::mpsc;

use crate::link::{LinkEffect, LinkEvent, LinkName};

pub use async_nats::{Client as NatsClient, HeaderMap as NatsHeaders, ServerAddr};
pub(crate) use connecting::ClientNotice;
pub use connecting::{LinkCredentials, parsed_servers};
pub(crate) use replies::stream_state_of;

/// Maximum number of effects queued for a connection's task.
const QUEUED_EFFECTS_MAX: usize = 128;
/// Maximum number of events of all connections queued for the caller.
const QUEUED_EVENTS_MAX: usize = 4_096;

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
    /// Maximum number of queued messages per subscription. Further ones are dropped, and [`LinkEvent::SlowConsumer`] is
    /// reported.
    pub subscription_messages_max: usize,
    /// Receives the reports for the log.
    pub report: Arc<dyn Fn(LinkReport) + Send + Sync>,
}

impl fmt::Debug for LinkOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<&str> = self.servers.iter().map(ServerAddr::host).collect();
        f.debug_struct("LinkOptions").field("servers", &servers).field("name", &self.name).finish_non_exhaustive()
    }
}

/// An event of a connection, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkReport {
    /// A connection was opened.
    Connected {
        /// The connection.
        link: LinkName,
        /// Host and port.
        server: String,
    },
    /// A connection went down.
    Lost {
        /// The connection.
        link: LinkName,
        /// Host and port.
        server: String,
    },
    /// A server refused a connection. Reported once per server, until one accepts it.
    ConnectFailed {
        /// The connection.
        link: LinkName,
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
        link: LinkName,
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
        match connecting::connect(LinkName::Read, server, options).await {
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
    queues: [EffectQueue; 3],
    events: mpsc::Receiver<LinkEvent>,
}

#[derive(Debug)]
struct EffectQueue {
    sender: mpsc::Sender<LinkEffect>,
    waiting: VecDeque<LinkEffect>,
    waiting_bytes: usize,
}

impl Links {
    /// Starts to open the connections. Must be called in a Tokio runtime.
    pub fn start(options: &LinkOptions) -> Self {
        let (event_sender, events) = mpsc::channel(QUEUED_EVENTS_MAX);
        let queues = LinkName::ALL.map(|link| {
            let (sender, effects) = mpsc::channel(QUEUED_EFFECTS_MAX);
            tokio::spawn(session::run(link, options.clone(), effects, event_sender.clone()));
            EffectQueue { sender, waiting: VecDeque::new(), waiting_bytes: 0 }
        });
        Self { queues, events }
    }

    /// Performs an effect, or queues it.
    pub fn perform(&mut self, effect: LinkEffect) {
        let link = match &effect {
            LinkEffect::Subscribe { .. } | LinkEffect::Unsubscribe { .. } => LinkName::Live,
            LinkEffect::Publish { link, .. } | LinkEffect::Reconnect { link } => *link,
            LinkEffect::LastOf { .. }
            | LinkEffect::Range { .. }
            | LinkEffect::Sequences { .. }
            | LinkEffect::FirstSince { .. }
            | LinkEffect::Create { .. }
            | LinkEffect::Describe { .. } => LinkName::Read,
        };
        self.queues[link as usize].push(effect);
    }

    /// The number of effects that wait because a connection's queue is full.
    pub fn waiting(&self) -> usize {
        self.queues.iter().map(|queue| queue.waiting.len()).sum()
    }

    /// Their bytes.
    pub fn waiting_bytes(&self) -> usize {
        self.queues.iter().map(|queue| queue.waiting_bytes).sum()
    }

    /// The next event. Also forwards waiting effects. Cancel-safe: no event is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<LinkEvent> {
        let [live, publish, read] = &mut self.queues;
        loop {
            tokio::select! {
                event = self.events.recv() => return event,
                () = live.pass_on(), if !live.waiting.is_empty() => {}
                () = publish.pass_on(), if !publish.waiting.is_empty() => {}
                () = read.pass_on(), if !read.waiting.is_empty() => {}
            }
        }
    }

    /// Sends what is queued, and closes the connections. Their last events are dropped.
    pub async fn close(mut self) {
        for queue in &mut self.queues {
            while !queue.waiting.is_empty() {
                queue.pass_on().await;
            }
        }
        let Self { queues, mut events } = self;
        drop(queues);
        while events.recv().await.is_some() {}
    }

    /// The next event that has already arrived.
    pub fn try_next(&mut self) -> Option<LinkEvent> {
        self.events.try_recv().ok()
    }
}

impl EffectQueue {
    fn push(&mut self, effect: LinkEffect) {
        self.waiting_bytes += effect.bytes();
        self.waiting.push_back(effect);
        while !self.waiting.is_empty() {
            let Ok(permit) = self.sender.try_reserve() else { return };
            if let Some(effect) = self.waiting.pop_front() {
                self.waiting_bytes -= effect.bytes();
                permit.send(effect);
            }
        }
    }

    async fn pass_on(&mut self) {
        let Ok(permit) = self.sender.reserve().await else {
            // The task has ended, which only the end of the runtime causes.
            self.waiting.clear();
            self.waiting_bytes = 0;
            return;
        };
        if let Some(effect) = self.waiting.pop_front() {
            self.waiting_bytes -= effect.bytes();
            permit.send(effect);
        }
    }
}
