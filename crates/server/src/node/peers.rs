//! A shard's rings to and from the other shards of its node.
//!
//! Each ordered pair of shards has two rings: one for requests, whose receiver may send notices, and one for notices,
//! whose receiver sends nothing. The shard's overflows determine what it reads:
//!
//! - notices: always,
//! - requests: while none of its notices waits,
//! - sockets and the inbox of the control thread: while none of its messages waits.
//!
//! So every waiting notice finds space eventually, whatever else is full. Therefore every waiting request does, too,
//! and shards cannot deadlock. (If a shard stopped reading requests while its own *requests* wait, two shards could
//! deadlock.) The overflow contains at most the messages of one turn, plus one message per subscription that ends.

use std::sync::Arc;

use dunlin_engine::{
    ShardIndex,
    message::{Notice, ShardMessage, ShardRequest},
};

use dunlin_queues::Queue;

use super::shard_waker::ShardWaker;
use crate::ring::{RingMessage, RingReceiver, RingSender, SentTo, ring};

/// One shard's links to the other shards.
#[derive(Debug)]
pub(super) struct Peers {
    /// By shard index; `None` at the shard's own index.
    links: Vec<Option<Link>>,
    /// Number of messages in the overflows, separately for requests and notices.
    requests_overflow: usize,
    notices_overflow: usize,
}

#[derive(Debug)]
struct Link {
    requests_out: RingSender<ShardRequest>,
    notices_out: RingSender<Notice>,
    requests_in: RingReceiver<ShardRequest>,
    notices_in: RingReceiver<Notice>,
    shard_waker: Arc<ShardWaker>,
    /// A message was sent whose receiver was not woken yet.
    unannounced: bool,
}

impl RingMessage for ShardRequest {
    fn bytes(&self) -> usize {
        self.queued_bytes()
    }
}

impl RingMessage for Notice {
    fn bytes(&self) -> usize {
        self.queued_bytes()
    }
}

/// Connects the shards of these wakers, in order, with rings of these bounds.
pub(super) fn connect(shard_wakers: &[Arc<ShardWaker>], queue: &Queue) -> Vec<Peers> {
    let count = shard_wakers.len();
    let mut peers: Vec<Peers> = (0..count)
        .map(|_| Peers { links: (0..count).map(|_| None).collect(), requests_overflow: 0, notices_overflow: 0 })
        .collect();
    for left in 0..count {
        for right in left + 1..count {
            let [there, back] = [(); 2].map(|()| (ring(queue), ring(queue)));
            let ((there_requests_out, there_requests_in), (there_notices_out, there_notices_in)) = there;
            let ((back_requests_out, back_requests_in), (back_notices_out, back_notices_in)) = back;
            peers[left].links[right] = Some(Link {
                requests_out: there_requests_out,
                notices_out: there_notices_out,
                requests_in: back_requests_in,
                notices_in: back_notices_in,
                shard_waker: Arc::clone(&shard_wakers[right]),
                unannounced: false,
            });
            peers[right].links[left] = Some(Link {
                requests_out: back_requests_out,
                notices_out: back_notices_out,
                requests_in: there_requests_in,
                notices_in: there_notices_in,
                shard_waker: Arc::clone(&shard_wakers[left]),
                unannounced: false,
            });
        }
    }
    peers
}

impl Peers {
    /// The number of shards, including this one.
    pub(super) fn len(&self) -> usize {
        self.links.len()
    }

    /// Sends `message`. [`Peers::announce`] wakes its receiver.
    pub(super) fn send(&mut self, to: ShardIndex, message: ShardMessage) -> SentTo {
        let link = self.links[usize::from(to.0)].as_mut().expect("a shard sends itself nothing");
        let (sent, overflow) = match message {
            ShardMessage::Request(request) => (link.requests_out.send(request), &mut self.requests_overflow),
            ShardMessage::Notice(notice) => (link.notices_out.send(notice), &mut self.notices_overflow),
        };
        match sent {
            SentTo::Ring => link.unannounced = true,
            SentTo::Overflow => *overflow += 1,
        }
        sent
    }

    /// Wakes the receivers of sent messages. Returns how many of them slept.
    pub(super) fn announce(&mut self) -> u64 {
        let unannounced = self
            .links
            .iter_mut()
            .flatten()
            .filter_map(|link| std::mem::take(&mut link.unannounced).then(|| u64::from(link.shard_waker.wake())));
        unannounced.sum()
    }

    /// Moves messages from overflows to their rings while there is space.
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

    /// Number of messages in overflows.
    pub(super) fn overflow_len(&self) -> usize {
        self.requests_overflow + self.notices_overflow
    }

    /// Whether requests of other shards may be read.
    pub(super) fn may_take_requests(&self) -> bool {
        self.notices_overflow == 0
    }

    /// Whether input that can cause messages may be read.
    pub(super) fn may_take_in(&self) -> bool {
        self.overflow_len() == 0
    }

    /// The next notice from the shard with index `place`.
    pub(super) fn next_notice(&mut self, place: usize) -> Option<Notice> {
        self.links.get_mut(place)?.as_mut()?.notices_in.receive()
    }

    /// The next request from the shard with index `place`.
    pub(super) fn next_request(&mut self, place: usize) -> Option<ShardRequest> {
        self.links.get_mut(place)?.as_mut()?.requests_in.receive()
    }

    /// Wakes the shards that wait for space in their rings to this shard. Returns how many.
    pub(super) fn announce_room(&self) -> u64 {
        let starved = self.links.iter().flatten().filter(|link| {
            // Both must be evaluated, because each flag is taken once.
            let (requests, notices) = (link.requests_in.made_room(), link.notices_in.made_room());
            requests || notices
        });
        starved.map(|link| u64::from(link.shard_waker.wake())).sum()
    }

    /// Whether there is a message that may be read.
    pub(super) fn has_messages(&self) -> bool {
        let requests = self.may_take_requests();
        let mut links = self.links.iter().flatten();
        links.any(|link| !link.notices_in.is_empty() || (requests && !link.requests_in.is_empty()))
    }

    /// Number of messages in the rings to this shard.
    pub(super) fn depth(&self) -> usize {
        self.links.iter().flatten().map(|link| link.notices_in.len() + link.requests_in.len()).sum()
    }
}
