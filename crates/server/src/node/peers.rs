//! A shard's rings to and from the other shards of its node.
//!
//! Two rings lead from each shard to each other: requests, which make their receiver send notices, and notices, which make
//! it send nothing. What a shard takes in depends on what waits for room in its overflows:
//!
//! - notices are always taken,
//! - requests while no notice waits,
//! - sockets and the control thread's inbox, which lead to both, while nothing waits.
//!
//! So a notice that waits will find room, whatever else is full; therefore a request that waits will, too; and no shards
//! wait for each other in a circle. (Were requests not taken while *requests* wait, two shards could.) The overflow is what
//! one turn produced, and at most one message for each subscription that ends.

use std::sync::Arc;

use dunlin_engine::{
    ShardIndex,
    message::{Notice, Request, ShardMessage},
};

use super::doorbell::Doorbell;
use crate::ring::{Receiver, Sender, Sent, ring};

/// The other shards, as one shard sees them.
#[derive(Debug)]
pub(super) struct Peers {
    /// By shard index; `None` in the shard's own place.
    links: Vec<Option<Link>>,
    /// Messages in the overflows of all rings for requests, and for notices.
    requests_overflow: usize,
    notices_overflow: usize,
}

#[derive(Debug)]
struct Link {
    requests_out: Sender<Request>,
    notices_out: Sender<Notice>,
    requests_in: Receiver<Request>,
    notices_in: Receiver<Notice>,
    door: Arc<Doorbell>,
    /// Something was put into a ring since the door's bell was rung.
    unannounced: bool,
}

/// Connects the shards behind `doors`, in order, with rings of `capacity` messages.
pub(super) fn connect(doors: &[Arc<Doorbell>], capacity: usize) -> Vec<Peers> {
    let count = doors.len();
    let mut peers: Vec<Peers> = (0..count)
        .map(|_| Peers { links: (0..count).map(|_| None).collect(), requests_overflow: 0, notices_overflow: 0 })
        .collect();
    for left in 0..count {
        for right in left + 1..count {
            let [there, back] = [(); 2].map(|()| (ring(capacity), ring(capacity)));
            let ((there_requests_out, there_requests_in), (there_notices_out, there_notices_in)) = there;
            let ((back_requests_out, back_requests_in), (back_notices_out, back_notices_in)) = back;
            peers[left].links[right] = Some(Link {
                requests_out: there_requests_out,
                notices_out: there_notices_out,
                requests_in: back_requests_in,
                notices_in: back_notices_in,
                door: Arc::clone(&doors[right]),
                unannounced: false,
            });
            peers[right].links[left] = Some(Link {
                requests_out: back_requests_out,
                notices_out: back_notices_out,
                requests_in: there_requests_in,
                notices_in: there_notices_in,
                door: Arc::clone(&doors[left]),
                unannounced: false,
            });
        }
    }
    peers
}

impl Peers {
    /// How many places there are, the shard's own included.
    pub(super) fn len(&self) -> usize {
        self.links.len()
    }

    /// Sends `message`. Its receiver is told by [`Peers::announce`].
    pub(super) fn send(&mut self, to: ShardIndex, message: ShardMessage) -> Sent {
        let link = self.links[usize::from(to.0)].as_mut().expect("a shard sends itself nothing");
        let (sent, overflow) = match message {
            ShardMessage::Request(request) => (link.requests_out.send(request), &mut self.requests_overflow),
            ShardMessage::Notice(notice) => (link.notices_out.send(notice), &mut self.notices_overflow),
        };
        match sent {
            Sent::Ring => link.unannounced = true,
            Sent::Overflow => *overflow += 1,
        }
        sent
    }

    /// Tells the receivers of what was sent; returns how many had to be woken.
    pub(super) fn announce(&mut self) -> u64 {
        let unannounced = self
            .links
            .iter_mut()
            .flatten()
            .filter_map(|link| std::mem::take(&mut link.unannounced).then(|| u64::from(link.door.ring())));
        unannounced.sum()
    }

    /// Moves overflows into their rings, as far as there is room.
    pub(super) fn flush(&mut self) {
        if self.overflow_len() == 0 {
            return;
        }
        for link in self.links.iter_mut().flatten() {
            let (requests, notices) = (link.requests_out.flush(), link.notices_out.flush());
            self.requests_overflow -= requests;
            self.notices_overflow -= notices;
            link.unannounced |= requests + notices > 0;
        }
    }

    /// Messages that wait in overflows.
    pub(super) fn overflow_len(&self) -> usize {
        self.requests_overflow + self.notices_overflow
    }

    /// Whether requests of other shards may be taken.
    pub(super) fn may_take_requests(&self) -> bool {
        self.notices_overflow == 0
    }

    /// Whether anything may be taken that can lead to any message.
    pub(super) fn may_take_in(&self) -> bool {
        self.overflow_len() == 0
    }

    /// The next notice from the shard in `place`.
    pub(super) fn next_notice(&mut self, place: usize) -> Option<Notice> {
        self.links.get_mut(place)?.as_mut()?.notices_in.receive()
    }

    /// The next request from the shard in `place`.
    pub(super) fn next_request(&mut self, place: usize) -> Option<Request> {
        self.links.get_mut(place)?.as_mut()?.requests_in.receive()
    }

    /// Wakes the shards that wait for the room that was made since they began to. Returns how many were woken.
    pub(super) fn announce_room(&self) -> u64 {
        let starved = self.links.iter().flatten().filter(|link| {
            // Both are asked: each bell rings once.
            let (requests, notices) = (link.requests_in.made_room(), link.notices_in.made_room());
            requests || notices
        });
        starved.map(|link| u64::from(link.door.ring())).sum()
    }

    /// Whether there is a message that may be taken.
    pub(super) fn has_messages(&self) -> bool {
        let requests = self.may_take_requests();
        let mut links = self.links.iter().flatten();
        links.any(|link| !link.notices_in.is_empty() || (requests && !link.requests_in.is_empty()))
    }

    /// Messages that wait in the rings to this shard.
    pub(super) fn depth(&self) -> usize {
        self.links.iter().flatten().map(|link| link.notices_in.len() + link.requests_in.len()).sum()
    }
}
