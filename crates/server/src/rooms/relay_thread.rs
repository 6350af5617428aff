//! The thread of the relay, which passes messages between the rings and the frames of other nodes. The decisions are in
//! [`Relay`].

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use dunlin_cluster::node_frames::{FrameEvent, NodeFrames, NodeFramesOptions};
use dunlin_relay::{Relay, RelayCounters, RelayEffect, RelayOptions, WAKE_INTERVAL_US};
use tokio::sync::{Notify, mpsc};

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
    shared: Arc<Shared>,
    alive: mpsc::Sender<()>,
) -> io::Result<RelayHandle> {
    let counters = Arc::<Mutex<RelayCounters>>::default();
    let handle = RelayHandle { waker: Arc::clone(&rings.waker), counters: Arc::clone(&counters) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let options = RelayOptions {
        node: frames.node().into(),
        shard_count: rings.shards.shard_count(),
        room_threads: u16::try_from(rings.threads.len()).unwrap_or(u16::MAX),
        seed: shared.random_seed(),
    };
    thread::Builder::new().name("rooms-relay".to_owned()).spawn(move || {
        let _alive = alive;
        runtime.block_on(async {
            let woken = Arc::<Notify>::default();
            rings.waker.attend_as_relay(Arc::clone(&woken));
            let relay = Relay::new(options);
            let frames = NodeFrames::start(frames);
            let now = Instant::now();
            Running { relay, rings, frames, shared, counters, began: now, wake_at: now, woken }.run().await;
        });
    })?;
    Ok(handle)
}

struct Running {
    relay: Relay,
    rings: RelayRings,
    frames: NodeFrames,
    shared: Arc<Shared>,
    counters: Arc<Mutex<RelayCounters>>,
    began: Instant,
    /// The next call of [`Relay::wake`].
    wake_at: Instant,
    woken: Arc<Notify>,
}

impl Running {
    async fn run(mut self) {
        loop {
            self.turn();
            if self.shared.is_stopping() {
                self.relay.disconnect(self.now_us());
                self.perform_effects();
                self.rings.shards.announce();
                self.rings.threads.announce();
                return self.frames.close().await;
            }
            self.rings.waker.waiting.arm();
            // Check after arming: later messages and space in rings wake the relay.
            self.flush();
            if self.rings.shards.has_messages() || self.rings.threads.has_messages() || self.shared.is_stopping() {
                self.rings.waker.waiting.disarm();
                // The connection has its turn as well.
                tokio::task::yield_now().await;
                continue;
            }
            tokio::select! {
                () = self.woken.notified() => {}
                event = self.frames.next() => match event {
                    Some(event) => self.take(event),
                    // Only the end of the runtime ends the task of the connection.
                    None => return,
                },
                () = tokio::time::sleep_until(self.wake_at.into()) => {}
            }
            self.rings.waker.waiting.disarm();
        }
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
            }
        }
        for shard in 0..self.rings.shards.shard_count() {
            for _ in 0..MESSAGES_PER_LOOK {
                let Some(message) = self.rings.shards.next(shard) else { break };
                self.relay.take_to_room(now_us, message);
            }
        }
        for _ in 0..MESSAGES_PER_LOOK {
            let Some(event) = self.frames.try_next() else { break };
            self.take(event);
        }
        if Instant::now() >= self.wake_at {
            self.wake_at = Instant::now() + Duration::from_micros(WAKE_INTERVAL_US);
            self.relay.wake(now_us);
        }
        self.perform_effects();
        self.flush();
        *self.counters.lock().unwrap_or_else(PoisonError::into_inner) = self.relay.counters();
    }

    fn take(&mut self, event: FrameEvent) {
        let now_us = self.now_us();
        match event {
            FrameEvent::Frame(frame) => self.relay.receive(now_us, &frame),
            FrameEvent::Lost => self.relay.disconnect(now_us),
        }
    }

    fn perform_effects(&mut self) {
        for effect in self.relay.take_effects(self.now_us()) {
            match effect {
                RelayEffect::ToShard { shard, message } => self.rings.shards.send(shard, message),
                RelayEffect::ToThread { thread, message } => self.rings.threads.send(thread, message),
                // A frame that does not fit is missing at its receiver, which notices.
                RelayEffect::Send { node, frame } => drop(self.frames.send(node, frame)),
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
