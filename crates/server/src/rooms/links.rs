//! The rings between shards and room threads: one in each direction for each pair.
//!
//! A shard can always send to a room thread: if the ring is full, the message waits in the shard's overflow, which the
//! engine bounds and which delays nothing else. Messages to shards wait in the room thread's overflow. While too many
//! wait for one shard, the rooms that last sent to this shard do not tick. A shard reads them as it reads requests,
//! because they cause only notices.
//!
//! The relay, if there is one, is the last room thread for the shards. For the room threads it is the shards of all other
//! nodes: one ring takes the messages to all of them.

use std::sync::Arc;

use dunlin_engine::{
    ShardIndex,
    room::{FromRoom, RoomThreadIndex, ToRoom},
};

use dunlin_queues::Queue;

use super::ThreadWaker;
use crate::{
    node::ShardWaker,
    ring::{RingMessage, RingReceiver, RingSender, SentTo, ring},
};

/// One shard's links to the room threads.
#[derive(Debug, Default)]
pub(crate) struct RoomLinks {
    /// By thread index.
    links: Vec<LinkToThread>,
    overflow: usize,
}

#[derive(Debug)]
struct LinkToThread {
    out: RingSender<ToRoom>,
    inward: RingReceiver<FromRoom>,
    waker: Arc<ThreadWaker>,
    unannounced: bool,
}

/// One room thread's links to the shards.
#[derive(Debug)]
pub(super) struct ShardLinks {
    /// By shard index.
    links: Vec<LinkToShard>,
    overflow: usize,
    /// To the shards of other nodes.
    relay: Option<LinkToRelay>,
}

#[derive(Debug)]
struct LinkToRelay {
    out: RingSender<RemoteMessage>,
    inward: RingReceiver<ToRoom>,
    waker: Arc<ThreadWaker>,
    unannounced: bool,
}

/// A message to a shard of another node.
pub(super) type RemoteMessage = (ShardIndex, FromRoom);

/// The relay's links to the room threads.
#[derive(Debug, Default)]
pub(super) struct ThreadLinks {
    /// By thread index.
    links: Vec<LinkFromRelay>,
}

#[derive(Debug)]
struct LinkFromRelay {
    out: RingSender<ToRoom>,
    inward: RingReceiver<RemoteMessage>,
    waker: Arc<ThreadWaker>,
    unannounced: bool,
}

#[derive(Debug)]
struct LinkToShard {
    out: RingSender<FromRoom>,
    inward: RingReceiver<ToRoom>,
    waker: Arc<ShardWaker>,
    unannounced: bool,
}

impl RingMessage for ToRoom {
    fn bytes(&self) -> usize {
        self.queued_bytes()
    }
}

impl RingMessage for FromRoom {
    fn bytes(&self) -> usize {
        self.queued_bytes()
    }
}

impl RingMessage for RemoteMessage {
    fn bytes(&self) -> usize {
        self.1.queued_bytes()
    }
}

/// Connects each shard with each room thread by rings of these bounds.
pub(super) fn connect(
    shards: &[Arc<ShardWaker>],
    threads: &[Arc<ThreadWaker>],
    queue: &Queue,
) -> (Vec<RoomLinks>, Vec<ShardLinks>) {
    let mut of_shards: Vec<RoomLinks> = shards.iter().map(|_| RoomLinks::default()).collect();
    let mut of_threads = Vec::with_capacity(threads.len());
    for thread_door in threads {
        let mut links = ShardLinks { links: Vec::with_capacity(shards.len()), overflow: 0, relay: None };
        for (shard_door, shard) in shards.iter().zip(&mut of_shards) {
            let (to_thread, at_thread) = ring(queue);
            let (to_shard, at_shard) = ring(queue);
            shard.links.push(LinkToThread {
                out: to_thread,
                inward: at_shard,
                waker: Arc::clone(thread_door),
                unannounced: false,
            });
            let waker = Arc::clone(shard_door);
            links.links.push(LinkToShard { out: to_shard, inward: at_thread, waker, unannounced: false });
        }
        of_threads.push(links);
    }
    (of_shards, of_threads)
}

/// Connects each room thread with the relay. `threads` are their links to the shards, and their wakers.
pub(super) fn connect_relay<'t>(
    threads: impl Iterator<Item = (&'t mut ShardLinks, &'t Arc<ThreadWaker>)>,
    relay: &Arc<ThreadWaker>,
    queue: &Queue,
) -> ThreadLinks {
    let mut of_relay = ThreadLinks::default();
    for (links, thread) in threads {
        let (to_relay, at_relay) = ring(queue);
        let (to_thread, at_thread) = ring(queue);
        links.relay =
            Some(LinkToRelay { out: to_relay, inward: at_thread, waker: Arc::clone(relay), unannounced: false });
        let waker = Arc::clone(thread);
        of_relay.links.push(LinkFromRelay { out: to_thread, inward: at_relay, waker, unannounced: false });
    }
    of_relay
}

impl ThreadLinks {
    /// The number of threads.
    pub(super) fn len(&self) -> usize {
        self.links.len()
    }

    /// Sends `message`. [`ThreadLinks::announce`] wakes its receiver.
    pub(super) fn send(&mut self, to: RoomThreadIndex, message: ToRoom) {
        let link = self.links.get_mut(usize::from(to.0)).expect("the relay checks the numbers of threads");
        link.unannounced |= link.out.send(message) == SentTo::Ring;
    }

    /// Moves messages from overflows to their rings while there is space.
    pub(super) fn flush(&mut self) {
        for link in self.links.iter_mut().filter(|link| link.out.overflow_len() > 0) {
            link.unannounced |= link.out.flush() > 0;
        }
    }

    /// Wakes the receivers of sent messages, and the threads that wait for space in their rings to the relay.
    pub(super) fn announce(&mut self) {
        for link in &mut self.links {
            let starves = link.inward.made_room();
            if std::mem::take(&mut link.unannounced) || starves {
                link.waker.wake();
            }
        }
    }

    /// The next message from the thread with index `place`.
    pub(super) fn next(&mut self, place: usize) -> Option<RemoteMessage> {
        self.links.get_mut(place)?.inward.receive()
    }

    /// Whether there is a message.
    pub(super) fn has_messages(&self) -> bool {
        self.links.iter().any(|link| !link.inward.is_empty())
    }
}

impl RoomLinks {
    /// The number of threads.
    pub(crate) fn len(&self) -> usize {
        self.links.len()
    }

    /// Sends `message`. [`RoomLinks::announce`] wakes its receiver.
    pub(crate) fn send(&mut self, to: RoomThreadIndex, message: ToRoom) -> SentTo {
        let link = self.links.get_mut(usize::from(to.0)).expect("the engine knows how many room threads there are");
        let sent = link.out.send(message);
        match sent {
            SentTo::Ring => link.unannounced = true,
            SentTo::Overflow => self.overflow += 1,
        }
        sent
    }

    /// Moves messages from overflows to their rings while there is space.
    pub(crate) fn flush(&mut self) {
        if self.overflow == 0 {
            return;
        }
        for link in &mut self.links {
            let moved = link.out.flush();
            self.overflow -= moved;
            link.unannounced |= moved > 0;
        }
    }

    /// Wakes the receivers of sent messages. Returns how many of them slept.
    pub(crate) fn announce(&mut self) -> u64 {
        let unannounced = self
            .links
            .iter_mut()
            .filter_map(|link| std::mem::take(&mut link.unannounced).then(|| u64::from(link.waker.wake())));
        unannounced.sum()
    }

    /// Wakes the threads that wait for space in their rings to this shard. Returns how many.
    pub(crate) fn announce_room(&self) -> u64 {
        self.links.iter().filter(|link| link.inward.made_room()).map(|link| u64::from(link.waker.wake())).sum()
    }

    /// The next message from the thread with index `place`.
    pub(crate) fn next(&mut self, place: usize) -> Option<FromRoom> {
        self.links.get_mut(place)?.inward.receive()
    }

    /// Whether there is a message.
    pub(crate) fn has_messages(&self) -> bool {
        self.links.iter().any(|link| !link.inward.is_empty())
    }

    /// Number of messages in overflows.
    pub(crate) fn overflow_len(&self) -> usize {
        self.overflow
    }

    /// Number of messages in the rings to this shard.
    pub(crate) fn depth(&self) -> usize {
        self.links.iter().map(|link| link.inward.len()).sum()
    }
}

impl ShardLinks {
    /// The number of shards.
    pub(super) fn shard_count(&self) -> u16 {
        self.links.len() as u16
    }

    /// Sends `message`. [`ShardLinks::announce`] wakes its receiver.
    pub(super) fn send(&mut self, to: ShardIndex, message: FromRoom) {
        let (sent, unannounced) = if let Some(link) = self.links.get_mut(usize::from(to.0)) {
            (link.out.send(message), &mut link.unannounced)
        } else {
            let relay = self.relay.as_mut().expect("players of other nodes join through the relay");
            (relay.out.send((to, message)), &mut relay.unannounced)
        };
        match sent {
            SentTo::Ring => *unannounced = true,
            SentTo::Overflow => self.overflow += 1,
        }
    }

    /// Moves messages from overflows to their rings while there is space.
    pub(super) fn flush(&mut self) {
        if self.overflow == 0 {
            return;
        }
        for link in &mut self.links {
            let moved = link.out.flush();
            self.overflow -= moved;
            link.unannounced |= moved > 0;
        }
        if let Some(relay) = &mut self.relay {
            let moved = relay.out.flush();
            self.overflow -= moved;
            relay.unannounced |= moved > 0;
        }
    }

    /// Wakes the receivers of sent messages, and the shards that wait for space in their rings to this thread.
    pub(super) fn announce(&mut self) {
        for link in &mut self.links {
            let starves = link.inward.made_room();
            if std::mem::take(&mut link.unannounced) || starves {
                link.waker.wake();
            }
        }
        if let Some(relay) = &mut self.relay {
            let starves = relay.inward.made_room();
            if std::mem::take(&mut relay.unannounced) || starves {
                relay.waker.wake();
            }
        }
    }

    /// The next message from the shard with index `place`; from the relay behind the last one.
    pub(super) fn next(&mut self, place: u16) -> Option<ToRoom> {
        match self.links.get_mut(usize::from(place)) {
            Some(link) => link.inward.receive(),
            None => self.relay.as_mut()?.inward.receive(),
        }
    }

    /// Whether there is a message.
    pub(super) fn has_messages(&self) -> bool {
        self.links.iter().any(|link| !link.inward.is_empty())
            || self.relay.as_ref().is_some_and(|relay| !relay.inward.is_empty())
    }

    /// Number of messages in overflows.
    pub(super) fn overflow_len(&self) -> usize {
        self.overflow
    }

    /// Number of messages that wait for space in the ring to a shard.
    pub(super) fn overflow_of(&self, shard: ShardIndex) -> usize {
        if self.overflow == 0 {
            return 0;
        }
        match self.links.get(usize::from(shard.0)) {
            Some(link) => link.out.overflow_len(),
            None => self.relay.as_ref().map_or(0, |relay| relay.out.overflow_len()),
        }
    }
}
