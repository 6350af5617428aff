//! A shard thread: its state and its event loop.

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use dunlin_engine::{Event, SessionKey, ShardIndex};
use dunlin_net::{Acceptor, Connections, PickedHeaders, Reactor};
use dunlin_token::VerifyTokens;
use tokio::sync::{mpsc, oneshot};

use super::{
    HandOver, NetCounters, NodeNetOptions, ShardHandle,
    admission::{Entrants, Gate, PendingConnections},
    busy_window::BusyWindow,
    clock::Clock,
    cluster::NodeCluster,
    deadlines::Deadlines,
    drain::Stages,
    engine::Engine,
    event_queue::EventQueue,
    inbox::{ReportRequest, Tickets, ToShard},
    peers::Peers,
    placement::Loads,
    secure::Secure,
    shard_waker::ShardWaker,
    storage::NodeStorage,
};
use crate::{backend::ProxyClient, rooms::RoomLinks, telemetry::session_events::RingOverflow};

/// The state that all shards of a node share.
pub(super) struct Shared {
    pub(super) net: NodeNetOptions,
    pub(super) acceptor: Acceptor,
    pub(super) tokens: Arc<dyn VerifyTokens>,
    pub(super) backends: Arc<dyn ProxyClient>,
    pub(super) storage: Option<Arc<NodeStorage>>,
    pub(super) cluster: Option<Arc<NodeCluster>>,
    pub(super) hand_over: mpsc::Sender<HandOver>,
    pub(super) clock: Clock,
    pub(super) gate: Gate,
    pub(super) loads: Loads,
    /// Number of sessions of the node.
    pub(super) sessions: AtomicU32,
    /// Maximum number of sessions; 0 for no limit.
    pub(super) sessions_max: AtomicU32,
    /// Makes the threads end. After setting it, all shards must be woken.
    pub(super) stopping: AtomicBool,
}

/// The state of one shard's thread.
pub(super) struct ShardThread<R> {
    pub(super) index: ShardIndex,
    pub(super) shared: Arc<Shared>,
    pub(super) reactor: R,
    pub(super) engine: Engine,
    pub(super) connections: Connections,
    pub(super) sessions: u32,
    /// Forwarded header fields of sessions, by session index.
    pub(super) picked_headers: HashMap<u32, PickedHeaders>,
    pub(super) peers: Peers,
    pub(super) room_links: RoomLinks,
    /// All shards of the node, by index.
    pub(super) shard_handles: Arc<[ShardHandle]>,
    pub(super) entrants: Entrants,
    pub(super) pending: PendingConnections,
    pub(super) inbox: mpsc::Receiver<ToShard>,
    pub(super) report_requests: mpsc::Receiver<ReportRequest>,
    pub(super) events: EventQueue,
    pub(super) shard_waker: Arc<ShardWaker>,
    pub(super) tickets: Tickets,
    /// A buffer of [`ShardThread::flush`]; reused to keep its capacity.
    pub(super) flushing: Vec<SessionKey>,
    /// Resumed sessions with unread bytes.
    pub(super) resumed: Vec<SessionKey>,
    /// The TLS states; `None` without TLS.
    pub(super) secure: Option<Secure>,
    pub(super) head_deadlines: Deadlines,
    pub(super) linger_deadlines: Deadlines,
    pub(super) message_deadlines: Deadlines,
    pub(super) counters: NetCounters,
    /// Whether the last turn read no input because of an overflow.
    pub(super) is_held: bool,
    pub(super) busy_window: BusyWindow,
    pub(super) life: Life,
}

/// The state of the shard's shutdown.
#[derive(Debug)]
pub(super) enum Life {
    Open,
    /// No connection is accepted; `gone` is notified when no session is left.
    Draining {
        gone: Option<oneshot::Sender<()>>,
        /// `None` after the last stage has begun.
        stages: Option<Stages>,
    },
}

impl<R: Reactor> ShardThread<R> {
    /// Runs until it is stopped.
    ///
    /// # Errors
    /// The error of the reactor.
    pub(super) fn run(mut self) -> io::Result<()> {
        while !self.shared.stopping.load(Ordering::Relaxed) {
            self.turn()?;
        }
        Ok(())
    }

    /// One turn: waits, reads input, passes it to the engine, performs the effects, and writes each dirty session once.
    fn turn(&mut self) -> io::Result<()> {
        let timeout = self.timeout();
        self.reactor.wait(timeout)?;
        self.shard_waker.sleeping.disarm();
        let waited_from_us = self.engine.now().mono_us;
        self.engine.read_clock();
        self.counters.idle_us += self.engine.now().mono_us - waited_from_us;
        self.counters.turns += 1;
        let began_us = self.engine.now().mono_us;

        self.peers.flush();
        self.room_links.flush();
        let intake = self.peers.may_take_in();
        self.counters.held_turns += u64::from(!intake);
        if intake == self.is_held {
            self.is_held = !intake;
            RingOverflow { shard: self.index, waiting: self.peers.overflow_len() }.emit();
        }
        self.take_completions(intake);
        self.take_messages();
        self.take_room_messages();
        self.take_report_requests();
        if intake {
            self.take_requests();
            self.take_events();
            self.engine.recall();
            self.feed_resumed();
            self.meet_own_deadlines();
        }
        self.engine.meet_deadlines();
        self.drain_on();
        self.perform_effects();
        // Before the writes, so that the other shards can write at the same time.
        self.counters.wakes += self.peers.announce() + self.room_links.announce();
        self.flush();
        self.perform_effects();
        self.counters.wakes += self.peers.announce() + self.peers.announce_room();
        self.counters.wakes += self.room_links.announce() + self.room_links.announce_room();

        self.engine.read_clock();
        self.engine.handle(Event::TurnEnded);
        self.counters.busy_us += self.engine.now().mono_us - began_us;
        self.busy_window.turn_ended(self.engine.now().mono_us, self.counters.busy_us);
        self.report_drained();
        Ok(())
    }

    /// The maximum duration of the next wait; zero if there is work. Otherwise this arms the wake flag, so that threads
    /// with messages for this shard ring it.
    fn timeout(&mut self) -> Option<Duration> {
        if self.has_own_work() {
            return Some(Duration::ZERO);
        }
        self.shard_waker.sleeping.arm();
        // Check after arming: later messages wake the shard.
        self.peers.flush();
        self.room_links.flush();
        self.counters.wakes += self.peers.announce() + self.room_links.announce();
        let intake = self.peers.may_take_in();
        // The flush may have ended a phase without intake, which leaves unread sockets and resumed sessions.
        let has_left = !self.inbox.is_empty()
            || !self.events.is_empty()
            || self.reactor.has_more()
            || !self.resumed.is_empty()
            || self.engine.has_recalled();
        let is_asked = !self.report_requests.is_empty();
        let is_called = is_asked || self.peers.has_messages() || self.has_room_messages() || (intake && has_left);
        if is_called || self.shared.stopping.load(Ordering::Relaxed) {
            self.shard_waker.sleeping.disarm();
            return Some(Duration::ZERO);
        }
        self.next_deadline_us(intake)
            .map(|due_us| Duration::from_micros(due_us.saturating_sub(self.engine.now().mono_us)))
    }

    /// Whether work is left for which no thread will ring.
    fn has_own_work(&self) -> bool {
        let has_sessions = || !self.resumed.is_empty() || self.engine.has_recalled();
        let reads = self.peers.may_take_in() && (self.reactor.has_more() || has_sessions());
        reads || self.engine.has_effects()
    }

    /// Whether there are messages of room threads. They cause notices, as requests do.
    fn has_room_messages(&self) -> bool {
        self.peers.may_take_requests() && self.room_links.has_messages()
    }

    fn report_drained(&mut self) {
        if let Life::Draining { gone, .. } = &mut self.life
            && self.sessions == 0
            && let Some(gone) = gone.take()
        {
            // An error means that the deadline has passed and nothing waits.
            let _ = gone.send(());
        }
    }
}

impl Shared {
    /// Counts a session, if the limit allows one more.
    pub(super) fn admit_session(&self) -> bool {
        let max = match self.sessions_max.load(Ordering::Relaxed) {
            0 => u32::MAX,
            max => max,
        };
        self.sessions
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| (count < max).then(|| count + 1))
            .is_ok()
    }

    /// Counts the end of a session.
    pub(super) fn dismiss_session(&self) {
        self.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}
