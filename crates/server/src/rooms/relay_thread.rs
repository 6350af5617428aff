//! The thread of the relay, which passes messages between the rings and the frames of other nodes. The decisions are in
//! [`Relay`].

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use dunlin_cluster::node_frames::{FrameEvent, NodeFrames, NodeFramesOptions};
use dunlin_relay::{Relay, RelayCounters, RelayEffect, RelayLimit, RelayOptions, WAKE_INTERVAL_US};
use tokio::sync::{Notify, mpsc};

use crate::node::GoneNodes;

use super::{
    ThreadWaker,
    links::{ShardLinks, ThreadLinks},
    shared::Shared,
};

/// Maximum number of messages read from one ring, and of frames, at a time.
const MESSAGES_PER_LOOK: usize = 4_096;

/// What the rest of the node sees of the relay.
#[derive(Debug)]
pub(super) struct RelayHandle {
    pub(super) waker: Arc<ThreadWaker>,
    counters: Arc<Mutex<RelayCounters>>,
}

impl RelayHandle {
    pub(super) fn counters(&self) -> RelayCounters {
        *self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The rings of the relay.
pub(super) struct RelayRings {
    /// To and from the shards, as those of a room thread.
    pub(super) shards: ShardLinks,
    pub(super) threads: ThreadLinks,
    pub(super) waker: Arc<ThreadWaker>,
}

/// Starts the thread. It drops `alive` at its end.
///
/// # Errors
/// The error of the operating system.
pub(super) fn start(
    rings: RelayRings,
    frames: NodeFramesOptions,
    (shared, gone): (Arc<Shared>, Arc<GoneNodes>),
    alive: mpsc::Sender<()>,
) -> io::Result<RelayHandle> {
    let counters = Arc::<Mutex<RelayCounters>>::default();
    let handle = RelayHandle { waker: Arc::clone(&rings.waker), counters: Arc::clone(&counters) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let options = RelayOptions {
        node: frames.node().into(),
        shard_count: rings.shards.shard_count(),
        room_threads: u16::try_from(rings.threads.len()).unwrap_or(u16::MAX),
    };
    thread::Builder::new().name("rooms-relay".to_owned()).spawn(move || {
        let _alive = alive;
        runtime.block_on(async {
            let woken = Arc::<Notify>::default();
            rings.waker.attend_as_relay(Arc::clone(&woken));
            let relay = Relay::new(options);
            let desk = Desk::new(relay, rings, NodeFrames::start(frames), counters);
            Running { desk, shared, woken, gone }.run().await;
        });
    })?;
    Ok(handle)
}

struct Running {
    desk: Desk<NodeFrames>,
    shared: Arc<Shared>,
    woken: Arc<Notify>,
    gone: Arc<GoneNodes>,
}

impl Running {
    async fn run(mut self) {
        let desk = &mut self.desk;
        loop {
            for node in self.gone.take() {
                desk.node_gone(&node);
            }
            desk.turn();
            if self.shared.is_stopping() {
                desk.disconnect();
                return self.desk.frames.close().await;
            }
            desk.rings.waker.waiting.arm();
            // Check after arming: later messages and space in rings wake the relay.
            desk.flush();
            if desk.has_messages() || self.shared.is_stopping() {
                desk.rings.waker.waiting.disarm();
                // The connection has its turn as well.
                tokio::task::yield_now().await;
                continue;
            }
            let reads_frames = !desk.is_behind();
            tokio::select! {
                () = self.woken.notified() => {}
                () = self.gone.some() => {}
                event = desk.frames.next(), if reads_frames => match event {
                    Some(event) => desk.take(event),
                    // Only the end of the runtime ends the task of the connection.
                    None => return,
                },
                () = tokio::time::sleep_until(desk.wake_at.into()) => {}
            }
            desk.rings.waker.waiting.disarm();
        }
    }
}

/// Where frames come from and go to.
trait FrameLink {
    /// Queues a frame for a node. Returns whether there was space.
    fn send(&mut self, node: Arc<str>, frame: Vec<u8>) -> bool;

    /// An event that has arrived.
    fn try_next(&mut self) -> Option<FrameEvent>;

    /// The number of frames of other nodes that did not fit since the last call.
    fn take_dropped(&self) -> u64;
}

impl FrameLink for NodeFrames {
    fn send(&mut self, node: Arc<str>, frame: Vec<u8>) -> bool {
        Self::send(self, node, frame)
    }

    fn try_next(&mut self) -> Option<FrameEvent> {
        Self::try_next(self)
    }

    fn take_dropped(&self) -> u64 {
        Self::take_dropped(self)
    }
}

/// Passes messages and frames on.
struct Desk<F> {
    relay: Relay,
    rings: RelayRings,
    frames: F,
    counters: Arc<Mutex<RelayCounters>>,
    began: Instant,
    /// The next call of [`Relay::wake`].
    wake_at: Instant,
    /// Whether the last look found a shard behind.
    was_behind: bool,
}

impl<F: FrameLink> Desk<F> {
    fn new(relay: Relay, rings: RelayRings, frames: F, counters: Arc<Mutex<RelayCounters>>) -> Self {
        let now = Instant::now();
        Self { relay, rings, frames, counters, began: now, wake_at: now, was_behind: false }
    }

    /// Reads what has arrived, and performs what it causes.
    fn turn(&mut self) {
        let now_us = self.now_us();
        self.rings.shards.flush();
        self.rings.threads.flush();
        for thread in 0..self.rings.threads.len() {
            for _ in 0..MESSAGES_PER_LOOK {
                let Some((shard, message)) = self.rings.threads.next(thread) else { break };
                self.relay.take_from_room(now_us, shard, message);
                self.perform_if_full();
            }
        }
        for shard in 0..self.rings.shards.shard_count() {
            for _ in 0..MESSAGES_PER_LOOK {
                let Some(message) = self.rings.shards.next(shard) else { break };
                self.relay.take_to_room(now_us, message);
                self.perform_if_full();
            }
        }
        self.read_frames();
        if Instant::now() >= self.wake_at {
            self.wake_at = Instant::now() + Duration::from_micros(WAKE_INTERVAL_US);
            self.relay.wake(now_us);
            // Not in each turn: the relay counts the players of all rooms.
            *self.counters.lock().unwrap_or_else(PoisonError::into_inner) = self.relay.counters();
        }
        self.perform_effects();
        self.flush();
    }

    fn read_frames(&mut self) {
        for _ in 0..MESSAGES_PER_LOOK {
            // What a frame says goes to the rings at once, so that the next look sees whether it fitted.
            self.perform_effects();
            if self.is_behind() {
                break;
            }
            let Some(event) = self.frames.try_next() else { break };
            self.take(event);
        }
        self.perform_effects();
        let is_behind = self.is_behind();
        self.relay.count(RelayLimit::Behind, u64::from(is_behind && !self.was_behind));
        self.was_behind = is_behind;
        self.relay.count(RelayLimit::QueueIn, self.frames.take_dropped());
    }

    fn take(&mut self, event: FrameEvent) {
        let now_us = self.now_us();
        match event {
            FrameEvent::Connected { payload_bytes_max } => self.relay.set_payload_bytes_max(payload_bytes_max),
            FrameEvent::Frame(frame) => self.relay.receive(now_us, &frame),
            FrameEvent::Lost => self.relay.disconnect(now_us),
        }
    }

    fn node_gone(&mut self, node: &str) {
        self.relay.node_gone(self.now_us(), node);
        self.perform_effects();
    }

    /// The node stops: tells the other nodes.
    fn disconnect(&mut self) {
        self.relay.disconnect(self.now_us());
        self.perform_effects();
        self.rings.shards.announce();
        self.rings.threads.announce();
    }

    fn has_messages(&self) -> bool {
        self.rings.shards.has_messages() || self.rings.threads.has_messages()
    }

    /// Whether messages wait for space in the ring of a shard. A frame becomes many messages, and nothing else bounds what the
    /// relay holds for a shard: so frames wait in their queue, and are lost when it is full or when they are too old.
    ///
    /// Not for a room thread: the shards of the other node bound what their players send to a room, as those of this node do.
    /// Otherwise one game with long ticks would end what all rooms of both nodes share.
    fn is_behind(&self) -> bool {
        self.rings.shards.overflow_len() > 0
    }

    fn perform_if_full(&mut self) {
        if self.relay.is_full() {
            self.perform_effects();
        }
    }

    fn perform_effects(&mut self) {
        for effect in self.relay.take_effects(self.now_us()) {
            match effect {
                RelayEffect::ToShard { shard, message } => self.rings.shards.send(shard, message),
                RelayEffect::ToThread { thread, message } => self.rings.threads.send(thread, message),
                RelayEffect::Send { node, frame } => {
                    // A frame that does not fit is missing at its receiver, which notices.
                    let is_sent = self.frames.send(node, frame);
                    self.relay.count(RelayLimit::QueueOut, u64::from(!is_sent));
                }
            }
        }
    }

    fn flush(&mut self) {
        self.rings.shards.flush();
        self.rings.threads.flush();
        self.rings.shards.announce();
        self.rings.threads.announce();
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests;
