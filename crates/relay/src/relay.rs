//! The relay of a node: what it decides, without threads, connections and clocks.

use std::{collections::BTreeMap, mem, sync::Arc};

use dunlin_engine::{
    ShardIndex,
    event::NodeSlot,
    room::{FromRoom, RoomThreadIndex, ToRoom},
};

use crate::{
    edge::{Malformed, RemoteRooms},
    format::{FrameHead, FrameKind, Message, ToHost, VERSION},
    host::RemotePlayers,
    link::{Arrived, NodeLink, frame, messages},
};

/// What a relay needs to know of its node.
#[derive(Clone, Debug)]
pub struct RelayOptions {
    /// The id of this run of the node.
    pub node: Arc<str>,
    /// Shards of the node; at most [`NodeSlot::SHARDS_MAX`].
    pub shard_count: u16,
    /// Room threads of the node, without the relay.
    pub room_threads: u16,
    /// A random number.
    pub seed: u64,
}

/// An action for the caller to perform.
#[derive(Debug)]
pub enum RelayEffect {
    /// To a shard of this node, as a message of the room thread behind the last one.
    ToShard {
        /// The shard.
        shard: ShardIndex,
        /// The message.
        message: FromRoom,
    },
    /// To a room thread of this node.
    ToThread {
        /// The thread.
        thread: RoomThreadIndex,
        /// The message.
        message: ToRoom,
    },
    /// To another node, after all frames before it. It may be lost.
    Send {
        /// The id of the node.
        node: Arc<str>,
        /// The frame.
        frame: Vec<u8>,
    },
}

/// Why all rooms and players between this node and another one have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLoss {
    /// Nothing has arrived for [`SILENCE_US_MAX`].
    Silence,
    /// A frame is missing.
    Gap,
    /// The other node has lost the link.
    Peer,
    /// The other node has sent what is not of this protocol.
    Malformed,
    /// This node has lost its connection to NATS, or stops.
    Disconnected,
}

impl LinkLoss {
    /// Every reason, in index order of [`RelayCounters::losses`].
    pub const ALL: [Self; 5] = [Self::Silence, Self::Gap, Self::Peer, Self::Malformed, Self::Disconnected];

    /// The name used in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Silence => "silence",
            Self::Gap => "gap",
            Self::Peer => "peer",
            Self::Malformed => "malformed",
            Self::Disconnected => "disconnected",
        }
    }
}

/// The counters of a relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayCounters {
    /// Rooms of other nodes with players of this node.
    pub rooms: u64,
    /// Players of this node in them.
    pub players_away: u64,
    /// Players of other nodes in rooms of this node.
    pub players_here: u64,
    /// Frames sent.
    pub frames_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Frames received.
    pub frames_received: u64,
    /// Their bytes.
    pub bytes_received: u64,
    /// Frames of another version, or of none.
    pub frames_unknown: u64,
    /// Links that were lost while they had rooms or players, by [`LinkLoss`].
    pub losses: [u64; LinkLoss::ALL.len()],
}

/// A node sends something at least this often while it has rooms or players in common with another one.
const ALIVE_INTERVAL_US: u64 = 500_000;
/// A node from which nothing has arrived for this long is gone.
pub const SILENCE_US_MAX: u64 = 3_000_000;
/// A link without rooms and players is forgotten after this time.
const UNUSED_US_MAX: u64 = 60_000_000;
/// The time between two calls of [`Relay::wake`].
pub const WAKE_INTERVAL_US: u64 = 250_000;

/// The relay of a node. It is the room thread of the rooms of other nodes for the shards of this node, and the shards of
/// other nodes for the rooms of this node.
#[derive(Debug)]
pub struct Relay {
    options: RelayOptions,
    links: BTreeMap<Arc<str>, NodeLink>,
    rooms: RemoteRooms,
    players: RemotePlayers,
    out: Output,
    /// The number of streams that this node has begun.
    epochs: u64,
    counters: RelayCounters,
}

/// What a message causes.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pub(crate) effects: Vec<RelayEffect>,
    to_nodes: Vec<(Arc<str>, Message)>,
}

impl Output {
    pub(crate) fn send_to(&mut self, node: &Arc<str>, message: Message) {
        self.to_nodes.push((Arc::clone(node), message));
    }

    pub(crate) fn send_to_host(&mut self, node: &Arc<str>, message: ToHost) {
        self.send_to(node, Message::ToHost(message));
    }
}

impl Relay {
    /// The relay of a node that has just started.
    ///
    /// # Panics
    /// If the node has more than [`NodeSlot::SHARDS_MAX`] shards.
    pub fn new(options: RelayOptions) -> Self {
        assert!(options.shard_count <= NodeSlot::SHARDS_MAX, "a slot has numbers for 256 shards");
        Self {
            links: BTreeMap::new(),
            rooms: RemoteRooms::new(options.shard_count),
            players: RemotePlayers::new(options.room_threads),
            out: Output::default(),
            epochs: 0,
            counters: RelayCounters::default(),
            options,
        }
    }

    /// A shard of this node has sent a message to a room of another node.
    pub fn take_to_room(&mut self, now_us: u64, message: ToRoom) {
        self.rooms.take(message, &mut self.out);
        self.queue(now_us);
    }

    /// A room of this node has sent a message to a shard of another node.
    pub fn take_from_room(&mut self, now_us: u64, shard: ShardIndex, message: FromRoom) {
        self.players.take(shard, message, &mut self.out);
        self.queue(now_us);
    }

    /// A frame has arrived.
    pub fn receive(&mut self, now_us: u64, bytes: &[u8]) {
        self.counters.frames_received += 1;
        self.counters.bytes_received += bytes.len() as u64;
        let Ok((FrameHead { version: VERSION, from, kind }, part)) = postcard::take_from_bytes(bytes) else {
            self.counters.frames_unknown += 1;
            return;
        };
        if *from == *self.options.node {
            return;
        }
        let from = Arc::from(from);
        match kind {
            FrameKind::Reset { epoch } => {
                if self.links.get(&from).is_some_and(|link| link.sends(epoch)) {
                    self.lose(now_us, &from, LinkLoss::Peer);
                }
            }
            FrameKind::Part { epoch, number, is_last } => {
                let arrived = self.arrived(now_us, &from, (epoch, number, is_last), part);
                match arrived {
                    Arrived::Batch(batch) => self.take_batch(now_us, &from, &batch),
                    Arrived::Nothing => {}
                    Arrived::Restarted => {
                        self.lose(now_us, &from, LinkLoss::Peer);
                        if let Arrived::Batch(batch) = self.arrived(now_us, &from, (epoch, number, is_last), part) {
                            self.take_batch(now_us, &from, &batch);
                        }
                    }
                    Arrived::Lost => {
                        self.lose(now_us, &from, LinkLoss::Gap);
                        self.reset(&from, epoch);
                    }
                }
            }
        }
    }

    /// The connection to NATS is lost, so frames may be missing; or the node stops.
    pub fn disconnect(&mut self, now_us: u64) {
        let nodes: Vec<Arc<str>> = self.links.keys().cloned().collect();
        for node in nodes {
            self.lose(now_us, &node, LinkLoss::Disconnected);
        }
    }

    /// Call it every [`WAKE_INTERVAL_US`].
    pub fn wake(&mut self, now_us: u64) {
        let mut silent = Vec::new();
        let mut unused = Vec::new();
        for (node, link) in &mut self.links {
            let heard_us_ago = now_us.saturating_sub(link.heard_us);
            if self.rooms.uses(node) || self.players.serves(node) {
                if heard_us_ago > SILENCE_US_MAX {
                    silent.push(Arc::clone(node));
                } else if now_us.saturating_sub(link.sent_us()) >= ALIVE_INTERVAL_US {
                    link.push(&Message::Alive);
                }
            } else if heard_us_ago.min(now_us.saturating_sub(link.sent_us())) > UNUSED_US_MAX {
                unused.push(Arc::clone(node));
            }
        }
        for node in silent {
            self.lose(now_us, &node, LinkLoss::Silence);
        }
        for node in unused {
            self.links.remove(&node);
        }
    }

    /// The effects of the calls since the last one, in order. The frames are put together here, so that one frame has what a
    /// turn of the caller brings.
    pub fn take_effects(&mut self, now_us: u64) -> Vec<RelayEffect> {
        self.players.send_tick(&mut self.out);
        self.queue(now_us);
        let Self { links, epochs, options, out, counters, .. } = self;
        for (node, link) in links {
            let frames = link.take_frames(&options.node, now_us, &mut || next_epoch(epochs, options.seed));
            for frame in frames {
                counters.frames_sent += 1;
                counters.bytes_sent += frame.len() as u64;
                out.effects.push(RelayEffect::Send { node: Arc::clone(node), frame });
            }
        }
        mem::take(&mut out.effects)
    }

    /// The counters.
    pub fn counters(&self) -> RelayCounters {
        RelayCounters {
            rooms: self.rooms.len() as u64,
            players_away: self.rooms.player_count() as u64,
            players_here: self.players.len() as u64,
            ..self.counters
        }
    }

    fn arrived(
        &mut self,
        now_us: u64,
        from: &Arc<str>,
        (epoch, number, is_last): (u64, u64, bool),
        part: &[u8],
    ) -> Arrived {
        let link = self.link(now_us, from);
        link.heard_us = now_us;
        link.receive(epoch, number, is_last, part)
    }

    fn take_batch(&mut self, now_us: u64, from: &Arc<str>, batch: &[u8]) {
        let taken = messages(batch).map_err(|_| Malformed).and_then(|messages| {
            messages.into_iter().try_for_each(|message| match message {
                Message::Alive => Ok(()),
                Message::ToHost(message) => self.players.receive(from, message, &mut self.out),
                Message::ToEdge(message) => self.rooms.receive(from, message, &mut self.out),
            })
        });
        self.queue(now_us);
        if taken == Err(Malformed) {
            self.lose(now_us, from, LinkLoss::Malformed);
        }
    }

    /// Ends all rooms and players between this node and another one. Both begin new streams.
    fn lose(&mut self, now_us: u64, node: &Arc<str>, why: LinkLoss) {
        let lost = self.rooms.lose(node, &mut self.out) + self.players.lose(node, &mut self.out);
        self.queue(now_us);
        self.counters.losses[why as usize] += u64::from(lost > 0);
        let epoch = next_epoch(&mut self.epochs, self.options.seed);
        if let Some(ended) = self.links.get_mut(node).and_then(|link| link.close(epoch)) {
            self.reset(node, ended);
        }
    }

    fn reset(&mut self, node: &Arc<str>, epoch: u64) {
        let frame = frame(&self.options.node, FrameKind::Reset { epoch }, &[]);
        self.out.effects.push(RelayEffect::Send { node: Arc::clone(node), frame });
    }

    /// Queues messages for other nodes in their streams.
    fn queue(&mut self, now_us: u64) {
        for (node, message) in mem::take(&mut self.out.to_nodes) {
            self.link(now_us, &node).push(&message);
        }
    }

    fn link(&mut self, now_us: u64, node: &Arc<str>) -> &mut NodeLink {
        let Self { links, epochs, options, .. } = self;
        links.entry(Arc::clone(node)).or_insert_with(|| NodeLink::new(next_epoch(epochs, options.seed), now_us))
    }
}

/// A number that no other stream has. Two nodes never compare theirs.
fn next_epoch(epochs: &mut u64, seed: u64) -> u64 {
    *epochs += 1;
    seed.wrapping_add(*epochs)
}
