//! Events for the application's backend: who came and went (`webhooks.*`).
//!
//! Shards put events into a bounded queue and go on; what does not fit is dropped and counted. A thread sends them in
//! batches, in order, one request at a time, signed as the Standard Webhooks specification has it. A batch is sent again
//! until the backend has taken it, it has refused it, or `webhooks.retry_timeout` has passed. So an event arrives at least
//! once, or is counted as lost.
//!
//! In a cluster, the nodes first find out together which channels are occupied ([`OccupancyReporter`]).

// This module handles what backends send.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::string_slice))]

mod counters;
mod message;
mod node_channels;
mod occupancy;
mod occupancy_reporter;
mod sender;
mod shared;
mod signature;
mod untold;

use std::{
    fmt, io,
    sync::{Arc, Mutex, PoisonError},
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
use node_channels::CHANGES_BYTES_MAX;
use sender::{Sender, SharedParts};
use shared::SharedChannels;

pub use counters::{EventLoss, RequestOutcome, WebhookCounts};
pub use node_channels::{Changes, ChannelState, Cursor};
pub use occupancy_reporter::OccupancyReporter;

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
    /// The limits of the queue.
    queue_events_max: usize,
    queue_bytes_max: usize,
    kinds: LifecycleKinds,
    /// If the nodes of a cluster find out together which channels are occupied.
    channels: Option<Arc<SharedChannels>>,
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
    /// Starts the thread. `node` is the id of this node, unique for each start. `is_clustered`: an [`OccupancyReporter`] tells
    /// which channels are occupied.
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
        let channels = is_clustered.then(Arc::<SharedChannels>::default);
        let shared = SharedParts { counters: Arc::clone(&counters), channels: channels.clone(), stop: stopped };
        let sender = Sender::new(endpoint, options.clone(), node, shared);
        let run = move || {
            runtime.block_on(sender.run(events));
            runtime.shutdown_background();
            // An error means that nobody waits.
            let _ = ending.send(());
        };
        thread::Builder::new().name("webhooks".to_owned()).spawn(run).map_err(WebhookError::Thread)?;
        Ok(Self {
            queue,
            queue_events_max: options.queue_events_max,
            queue_bytes_max: options.queue_bytes_max,
            kinds: options.kinds,
            channels,
            counters,
            stop,
            ended: Mutex::new(Some(ended)),
        })
    }

    /// Sends an event of this node.
    pub fn push(&self, happened: Happened) {
        let of_node = match &happened.event.what {
            Lifecycle::Occupied { channel } => Some((channel, ChannelState::Occupied)),
            Lifecycle::Vacated { channel } => Some((channel, ChannelState::Vacated)),
            _ => None,
        };
        if let Some((channel, state)) = of_node
            && let Some(channels) = &self.channels
        {
            if !channels.set(channel, state) {
                self.count_ignored(1);
            }
        } else {
            self.enqueue(happened);
        }
    }

    /// Sends an event of the cluster that is this old, if the backend wants it.
    fn tell(&self, channel: Arc<str>, state: ChannelState, age_ms: u64) {
        let what = match state {
            ChannelState::Occupied => Lifecycle::Occupied { channel },
            ChannelState::Vacated => Lifecycle::Vacated { channel },
        };
        let event = LifecycleEvent { unix_ms: counters::unix_ms().saturating_sub(age_ms), what };
        if self.kinds.contains(event.kind()) {
            if let Some(channels) = &self.channels {
                channels.begin_sending(event.unix_ms);
            }
            self.enqueue(Happened { event, traffic: None });
        }
    }

    /// Whether an event of the cluster may be sent now. The other half of the queue is for events that cannot wait.
    fn has_space_for_channels(&self) -> bool {
        self.queue.messages() < self.queue_events_max.div_ceil(2) && self.queue.bytes() < self.queue_bytes_max / 2
    }

    /// The backend is not told of these changes, because there are too many channels.
    fn count_ignored(&self, changes: u64) {
        self.counters.count_lost(EventLoss::ChannelLimit, changes);
        webhook_events::WebhookEventsLost { reason: EventLoss::ChannelLimit.name(), events: changes }.emit();
    }

    /// The next changes of this node's channels for the node `asker`, in an answer of at most about `bytes_max`; `None` if no node
    /// asks for them.
    pub fn answer_channels(&self, asker: &str, cursor: Cursor, bytes_max: usize) -> Option<Changes> {
        self.channels.as_ref().map(|channels| channels.answer(asker, cursor, bytes_max.min(CHANGES_BYTES_MAX)))
    }

    /// The age of the oldest change of the cluster's channels that the backend may not have taken, if this node tells it.
    pub fn behind_ms(&self) -> u64 {
        let oldest_unix_ms = self.channels.as_ref().and_then(|channels| channels.oldest_unix_ms());
        oldest_unix_ms.map_or(0, |oldest_unix_ms| counters::unix_ms().saturating_sub(oldest_unix_ms))
    }

    fn enqueue(&self, happened: Happened) {
        let bytes = happened.event.kept_bytes() + size_of::<Option<Traffic>>();
        if let Err(Refused::Full(happened) | Refused::Closed(happened)) = self.queue.try_send(happened, bytes) {
            if let Some(channels) = &self.channels {
                channels.end_sending(&[happened]);
            }
            self.counters.count_lost(EventLoss::QueueFull, 1);
            webhook_events::WebhookQueueFull.emit();
        }
    }

    /// Sends what waits, and ends the thread. Events that are not taken within `timeout` are lost.
    pub async fn flush(&self, timeout: Duration) {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(ended) = ended else { return };
        self.stop.send_replace(true);
        let is_late = tokio::time::timeout(timeout, ended).await.is_err();
        let untold = self.channels.as_ref().map_or(0, |channels| channels.untold());
        let left = if is_late { self.waiting().0 } else { untold };
        if left > 0 {
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
        let untold = self.channels.as_ref().map_or(0, |channels| channels.untold());
        (self.queue.messages() as u64 + self.counters.in_flight() + untold, self.queue.bytes() as u64)
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
