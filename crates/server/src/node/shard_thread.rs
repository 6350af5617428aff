//! A shard thread: everything that one shard has, and its loop.

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use dunlin_engine::{Effect, Effects, Event, Now, SessionKey, Shard, ShardIndex};
use dunlin_websocket::deflate::Inflater;
use tokio::sync::{mpsc, oneshot};

use super::{
    HandOver, NetCounters, NetOptions, ShardDoor, VerifyTokens,
    admission::{Entrants, Gate},
    answers::Answers,
    clock::Clock,
    deadlines::Deadlines,
    doorbell::Doorbell,
    drain::Stages,
    inbox::{Tickets, ToShard},
    peers::Peers,
    placement::Loads,
    secure::Secure,
};
use crate::{
    backend::{AskBackends, PickedHeaders},
    net::{Connections, Door, Reactor},
    rooms::RoomLinks,
};

/// What all shards of a node have in common.
pub(super) struct Shared {
    pub(super) net: NetOptions,
    pub(super) door: Door,
    pub(super) tokens: Arc<dyn VerifyTokens>,
    pub(super) backends: Arc<dyn AskBackends>,
    pub(super) hand_over: mpsc::Sender<HandOver>,
    pub(super) clock: Clock,
    pub(super) gate: Gate,
    pub(super) loads: Loads,
    /// Sessions of the node.
    pub(super) sessions: AtomicU32,
    /// Tells the threads to end. Whoever sets it rings every doorbell.
    pub(super) stopping: AtomicBool,
}

/// Everything that belongs to one shard.
pub(super) struct ShardThread<R> {
    pub(super) index: ShardIndex,
    pub(super) shared: Arc<Shared>,
    pub(super) reactor: R,
    pub(super) shard: Shard,
    pub(super) connections: Connections,
    pub(super) sessions: u32,
    /// What sessions' own requests had in the header fields that backends want, by the index of the session.
    pub(super) picked_headers: HashMap<u32, PickedHeaders>,
    pub(super) peers: Peers,
    pub(super) room_links: RoomLinks,
    /// All shards of the node, by index.
    pub(super) doors: Arc<[ShardDoor]>,
    pub(super) entrants: Entrants,
    pub(super) inbox: mpsc::Receiver<ToShard>,
    pub(super) answers: Answers,
    pub(super) doorbell: Arc<Doorbell>,
    pub(super) tickets: Tickets,
    pub(super) effects: Effects,
    /// Lends its capacity to [`ShardThread::perform_effects`].
    pub(super) performing: Vec<Effect>,
    /// Lends its capacity to [`ShardThread::flush`].
    pub(super) flushing: Vec<SessionKey>,
    /// Sessions that go on reading, and have something left that was read before.
    pub(super) resumed: Vec<SessionKey>,
    /// Undoes the compression of what clients send.
    pub(super) inflater: Inflater,
    /// The TLS of the connections; `None` where they have none.
    pub(super) secure: Option<Secure>,
    pub(super) head_deadlines: Deadlines,
    pub(super) linger_deadlines: Deadlines,
    pub(super) message_deadlines: Deadlines,
    pub(super) counters: NetCounters,
    /// Read after the wait, and again at the end of the turn.
    pub(super) now: Now,
    pub(super) life: Life,
}

/// How far the shard is on its way out.
#[derive(Debug)]
pub(super) enum Life {
    Open,
    /// No connection is taken; `gone` is told when no session is left.
    Draining {
        gone: Option<oneshot::Sender<()>>,
        /// Until all sessions are told.
        stages: Option<Stages>,
    },
}

impl<R: Reactor> ShardThread<R> {
    /// Runs until it is stopped.
    ///
    /// # Errors
    /// Of the reactor.
    pub(super) fn run(mut self) -> io::Result<()> {
        while !self.shared.stopping.load(Ordering::Relaxed) {
            self.turn()?;
        }
        Ok(())
    }

    /// One turn: wait, take in what happened, let the engine say what follows from it, do that, write once to every
    /// session that has something to write.
    fn turn(&mut self) -> io::Result<()> {
        let timeout = self.timeout();
        self.reactor.wait(timeout)?;
        self.doorbell.sleeping.disarm();
        let waited_from_us = self.now.mono_us;
        self.now = self.shared.clock.now();
        self.counters.idle_us += self.now.mono_us - waited_from_us;
        self.counters.turns += 1;
        let began_us = self.now.mono_us;

        self.peers.flush();
        self.room_links.flush();
        let intake = self.peers.may_take_in();
        self.counters.held_turns += u64::from(!intake);
        self.take_completions(intake);
        self.take_messages();
        self.take_room_messages();
        if intake {
            self.take_requests();
            self.take_answers();
            self.feed_resumed();
            self.meet_own_deadlines();
        }
        self.meet_engine_deadlines();
        self.drain_on();
        self.perform_effects();
        // Before the writes, so that the other shards write at the same time.
        self.counters.wakes += self.peers.announce() + self.room_links.announce();
        self.flush();
        self.perform_effects();
        self.counters.wakes += self.peers.announce() + self.peers.announce_room();
        self.counters.wakes += self.room_links.announce() + self.room_links.announce_room();

        self.now = self.shared.clock.now();
        self.shard.handle(self.now, Event::TurnEnded, &mut self.effects);
        self.counters.busy_us += self.now.mono_us - began_us;
        self.tell_if_drained();
        Ok(())
    }

    /// How long the next wait may be; zero if there is something to do already. Otherwise the doorbell is armed, so that
    /// whoever has something for this shard rings it.
    fn timeout(&mut self) -> Option<Duration> {
        if self.has_own_work() {
            return Some(Duration::ZERO);
        }
        self.doorbell.sleeping.arm();
        // To be looked for after the arming: what comes from here on rings.
        self.peers.flush();
        self.room_links.flush();
        self.counters.wakes += self.peers.announce() + self.room_links.announce();
        let intake = self.peers.may_take_in();
        // The flush may have ended a time without intake, of which reads and resumed sessions are left.
        let has_left =
            !self.inbox.is_empty() || !self.answers.is_empty() || self.reactor.has_more() || !self.resumed.is_empty();
        let is_called = self.peers.has_messages() || self.has_room_messages() || (intake && has_left);
        if is_called || self.shared.stopping.load(Ordering::Relaxed) {
            self.doorbell.sleeping.disarm();
            return Some(Duration::ZERO);
        }
        self.next_deadline_us(intake).map(|due_us| Duration::from_micros(due_us.saturating_sub(self.now.mono_us)))
    }

    /// Whether the last turn left something that nobody will call for.
    fn has_own_work(&self) -> bool {
        let reads = self.peers.may_take_in() && (self.reactor.has_more() || !self.resumed.is_empty());
        reads || !self.effects.dirty.is_empty() || !self.effects.list.is_empty()
    }

    /// What room threads say leads to notices, as requests do.
    fn has_room_messages(&self) -> bool {
        self.peers.may_take_requests() && self.room_links.has_messages()
    }

    fn tell_if_drained(&mut self) {
        if let Life::Draining { gone, .. } = &mut self.life
            && self.sessions == 0
            && let Some(gone) = gone.take()
        {
            // Nobody waits any more if the deadline has passed.
            let _ = gone.send(());
        }
    }
}

impl Shared {
    /// Counts one more session, if there may be one.
    pub(super) fn admit_session(&self) -> bool {
        let max = match self.net.sessions_max {
            0 => u32::MAX,
            max => max,
        };
        self.sessions
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| (count < max).then(|| count + 1))
            .is_ok()
    }

    /// Counts one less.
    pub(super) fn dismiss_session(&self) {
        self.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}
