//! Events for the application's backend: who came and went (`webhooks.*`).
//!
//! Shards put events into a bounded queue and go on; what does not fit is dropped and counted. A thread sends them in
//! batches, in order, one request at a time, signed as the Standard Webhooks specification has it. A batch is sent again
//! until the backend has taken it, it has refused it, or `webhooks.retry_timeout` has passed. So an event arrives at least
//! once, or is counted as lost.
//!
//! In a cluster, the nodes first find out together which channels are occupied ([`Teller`]).

// This module handles what backends send.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::string_slice))]

mod counters;
mod message;
mod occupancy;
mod sender;
mod teller;

use std::{
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use dunlin_config::WebhookOptions;
use dunlin_engine::lifecycle::{Lifecycle, LifecycleEvent, LifecycleKinds};
use dunlin_net::Traffic;
use dunlin_queues::{CountedSender, Refused, declared::WEBHOOK_EVENTS};
use tokio::sync::{oneshot, watch};

use crate::{backend::Endpoint, telemetry::webhook_events};

use counters::Counters;
use occupancy::{CHANGES_BYTES_MAX, NodeChannels};
use sender::Sender;

pub use counters::{EventLoss, RequestOutcome, WebhookCounts};
pub use occupancy::{Changes, ChannelState};
pub use teller::Teller;

/// An event, with what the kernel has counted about the connection of a session that has ended.
#[derive(Clone, Debug)]
pub struct Happened {
    /// The event.
    pub event: LifecycleEvent,
    /// The bytes of a session that has ended.
    pub traffic: Option<Traffic>,
}

/// The webhooks of a node. Shards call it on their own threads, so it does not block.
pub struct Webhooks {
    queue: CountedSender<Happened>,
    kinds: LifecycleKinds,
    /// The channels of this node, if the nodes of a cluster find out together which channels are occupied.
    channels: Option<Mutex<NodeChannels>>,
    counters: Arc<Counters>,
    stop: watch::Sender<bool>,
    /// Completes when the thread has ended.
    ended: Mutex<Option<oneshot::Receiver<()>>>,
}

/// Why there are no webhooks.
#[derive(Debug)]
pub enum WebhookError {
    /// The thread could not be started.
    Thread(io::Error),
    /// The TLS options are invalid, for this reason.
    Tls(String),
}

impl Webhooks {
    /// Starts the thread. `node` is the id of this node, unique for each start. `is_clustered`: a [`Teller`] tells which
    /// channels are occupied.
    ///
    /// # Errors
    /// [`WebhookError`]
    pub fn start(options: &WebhookOptions, node: &str, is_clustered: bool) -> Result<Self, WebhookError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(WebhookError::Thread)?;
        let endpoint = Endpoint::new(&options.endpoint, options.tls.as_deref(), 1).map_err(WebhookError::Tls)?;
        let declared = WEBHOOK_EVENTS.with_messages(options.queue_events_max).with_bytes(options.queue_bytes_max);
        let (queue, events) = declared.counted_channel();
        let counters = Arc::new(Counters::default());
        let (stop, stopped) = watch::channel(false);
        let (ending, ended) = oneshot::channel();
        let sender = Sender::new(endpoint, options.clone(), node, Arc::clone(&counters), stopped);
        let run = move || {
            runtime.block_on(sender.run(events));
            runtime.shutdown_background();
            // An error means that nobody waits.
            let _ = ending.send(());
        };
        thread::Builder::new().name("webhooks".to_owned()).spawn(run).map_err(WebhookError::Thread)?;
        let channels = is_clustered.then(Mutex::default);
        Ok(Self { queue, kinds: options.kinds, channels, counters, stop, ended: Mutex::new(Some(ended)) })
    }

    /// Sends an event of this node.
    pub fn push(&self, happened: Happened) {
        let of_node = match &happened.event.what {
            Lifecycle::Occupied { channel } => Some((channel, ChannelState::Occupied)),
            Lifecycle::Vacated { channel } => Some((channel, ChannelState::Vacated)),
            _ => None,
        };
        if let Some((channel, state)) = of_node
            && let Some(mut channels) = self.channels()
        {
            channels.set(channel, state);
        } else {
            self.enqueue(happened);
        }
    }

    /// Sends an event of the cluster, if the backend wants it.
    fn tell(&self, channel: Arc<str>, state: ChannelState) {
        let what = match state {
            ChannelState::Occupied => Lifecycle::Occupied { channel },
            ChannelState::Vacated => Lifecycle::Vacated { channel },
        };
        let event = LifecycleEvent { unix_ms: counters::unix_ms(), what };
        if self.kinds.contains(event.kind()) {
            self.enqueue(Happened { event, traffic: None });
        }
    }

    /// The next changes of this node's channels; `None` if no node asks for them.
    pub fn channels_since(&self, version: u64) -> Option<Changes> {
        self.channels().map(|channels| channels.since(version, CHANGES_BYTES_MAX))
    }

    fn channels(&self) -> Option<MutexGuard<'_, NodeChannels>> {
        self.channels.as_ref().map(|channels| channels.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn enqueue(&self, happened: Happened) {
        let bytes = happened.event.kept_bytes() + size_of::<Option<Traffic>>();
        if let Err(Refused::Full(_) | Refused::Closed(_)) = self.queue.try_send(happened, bytes) {
            self.counters.count_lost(EventLoss::QueueFull, 1);
            webhook_events::WebhookQueueFull.emit();
        }
    }

    /// Sends what waits, and ends the thread. Events that are not taken within `timeout` are lost.
    pub async fn flush(&self, timeout: Duration) {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(ended) = ended else { return };
        self.stop.send_replace(true);
        if tokio::time::timeout(timeout, ended).await.is_err() {
            let left = self.waiting().0;
            self.counters.count_lost(EventLoss::Shutdown, left);
            webhook_events::WebhookEventsLost { reason: EventLoss::Shutdown.name(), events: left }.emit();
        }
    }

    /// The counters at this moment.
    pub fn counts(&self) -> WebhookCounts {
        let (waiting, waiting_bytes) = self.waiting();
        self.counters.now(waiting, waiting_bytes)
    }

    /// Events that were not taken yet, and the bytes of those in the queue.
    fn waiting(&self) -> (u64, u64) {
        (self.queue.messages() as u64 + self.counters.in_flight(), self.queue.bytes() as u64)
    }
}

impl fmt::Display for WebhookError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread(error) => write!(f, "can't get a thread for webhooks: {error}"),
            Self::Tls(why) => write!(f, "webhooks: can't set up TLS: {why}"),
        }
    }
}

impl std::error::Error for WebhookError {}

#[cfg(test)]
mod tests;
