//! The rings between shards and room threads: one in each direction for each pair.
//!
//! What a shard has for a room thread may always be sent: if the ring is full it waits in the shard's overflow, which the
//! engine bounds, and holds nothing else up. What a room thread has for shards waits in its overflow; while more than a
//! bound waits for one shard, the rooms do not tick that last had something for it. A shard takes it in as it takes requests, since it leads to
//! notices alone.

use std::sync::Arc;

use dunlin_engine::{
    ShardIndex,
    room::{FromRoom, RoomThreadIndex, ToRoom},
};

use super::ThreadDoor;
use crate::{
    node::Doorbell,
    ring::{Receiver, Sender, Sent, ring},
};

/// The room threads, as one shard sees them.
#[derive(Debug, Default)]
pub(crate) struct RoomLinks {
    /// By the thread's number.
    links: Vec<LinkToThread>,
    overflow: usize,
}

#[derive(Debug)]
struct LinkToThread {
    out: Sender<ToRoom>,
    inward: Receiver<FromRoom>,
    door: Arc<ThreadDoor>,
    unannounced: bool,
}

/// The shards, as one room thread sees them.
#[derive(Debug)]
pub(super) struct Post {
    /// By the shard's index.
    links: Vec<LinkToShard>,
    overflow: usize,
}

#[derive(Debug)]
struct LinkToShard {
    out: Sender<FromRoom>,
    inward: Receiver<ToRoom>,
    door: Arc<Doorbell>,
    unannounced: bool,
}

/// Connects each shard with each room thread by rings of `capacity` messages.
pub(super) fn connect(
    shards: &[Arc<Doorbell>],
    threads: &[Arc<ThreadDoor>],
    capacity: usize,
) -> (Vec<RoomLinks>, Vec<Post>) {
    let mut of_shards: Vec<RoomLinks> = shards.iter().map(|_| RoomLinks::default()).collect();
    let mut of_threads = Vec::with_capacity(threads.len());
    for thread_door in threads {
        let mut post = Post { links: Vec::with_capacity(shards.len()), overflow: 0 };
        for (shard_door, shard) in shards.iter().zip(&mut of_shards) {
            let (to_thread, at_thread) = ring(capacity);
            let (to_shard, at_shard) = ring(capacity);
            shard.links.push(LinkToThread {
                out: to_thread,
                inward: at_shard,
                door: Arc::clone(thread_door),
                unannounced: false,
            });
            let door = Arc::clone(shard_door);
            post.links.push(LinkToShard { out: to_shard, inward: at_thread, door, unannounced: false });
        }
        of_threads.push(post);
    }
    (of_shards, of_threads)
}

impl RoomLinks {
    /// How many threads there are.
    pub(crate) fn len(&self) -> usize {
        self.links.len()
    }

    /// Sends `message`. Its receiver is told by [`RoomLinks::announce`].
    pub(crate) fn send(&mut self, to: RoomThreadIndex, message: ToRoom) -> Sent {
        let link = self.links.get_mut(usize::from(to.0)).expect("the engine knows how many room threads there are");
        let sent = link.out.send(message);
        match sent {
            Sent::Ring => link.unannounced = true,
            Sent::Overflow => self.overflow += 1,
        }
        sent
    }

    /// Moves overflows into their rings, as far as there is room.
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

    /// Tells the threads of what was sent; returns how many had to be woken.
    pub(crate) fn announce(&mut self) -> u64 {
        let unannounced = self
            .links
            .iter_mut()
            .filter_map(|link| std::mem::take(&mut link.unannounced).then(|| u64::from(link.door.ring())));
        unannounced.sum()
    }

    /// Wakes the threads that wait for the room that was made since they began to. Returns how many were woken.
    pub(crate) fn announce_room(&self) -> u64 {
        self.links.iter().filter(|link| link.inward.made_room()).map(|link| u64::from(link.door.ring())).sum()
    }

    /// The next message from the thread in `place`.
    pub(crate) fn next(&mut self, place: usize) -> Option<FromRoom> {
        self.links.get_mut(place)?.inward.receive()
    }

    /// Whether there is a message.
    pub(crate) fn has_messages(&self) -> bool {
        self.links.iter().any(|link| !link.inward.is_empty())
    }

    /// Messages that wait in the overflow.
    pub(crate) fn overflow_len(&self) -> usize {
        self.overflow
    }

    /// Messages that wait in the rings to this shard.
    pub(crate) fn depth(&self) -> usize {
        self.links.iter().map(|link| link.inward.len()).sum()
    }
}

impl Post {
    /// How many shards there are.
    pub(super) fn shard_count(&self) -> u16 {
        self.links.len() as u16
    }

    /// Sends `message`. Its receiver is told by [`Post::announce`].
    pub(super) fn send(&mut self, to: ShardIndex, message: FromRoom) {
        let link = self.links.get_mut(usize::from(to.0)).expect("rooms know shards of their node alone");
        match link.out.send(message) {
            Sent::Ring => link.unannounced = true,
            Sent::Overflow => self.overflow += 1,
        }
    }

    /// Moves overflows into their rings, as far as there is room.
    pub(super) fn flush(&mut self) {
        if self.overflow == 0 {
            return;
        }
        for link in &mut self.links {
            let moved = link.out.flush();
            self.overflow -= moved;
            link.unannounced |= moved > 0;
        }
    }

    /// Wakes the shards that were sent something, and those that wait for room in their rings to this thread.
    pub(super) fn announce(&mut self) {
        for link in &mut self.links {
            let starves = link.inward.made_room();
            if std::mem::take(&mut link.unannounced) || starves {
                link.door.ring();
            }
        }
    }

    /// The next message of the shard at `place`.
    pub(super) fn next(&mut self, place: u16) -> Option<ToRoom> {
        self.links.get_mut(usize::from(place))?.inward.receive()
    }

    /// Whether there is a message.
    pub(super) fn has_messages(&self) -> bool {
        self.links.iter().any(|link| !link.inward.is_empty())
    }

    /// Messages that wait for room in the ring to a shard.
    pub(super) fn overflow_of(&self, shard: ShardIndex) -> usize {
        if self.overflow == 0 {
            return 0;
        }
        self.links.get(usize::from(shard.0)).map_or(0, |link| link.out.overflow_len())
    }
}
