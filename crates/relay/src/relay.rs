//! The relay of a node: what it decides, without threads, connections and clocks.

use std::{cmp::Ordering, collections::BTreeMap, mem, sync::Arc};

use dunlin_engine::{
    ShardIndex,
    event::NodeSlot,
    room::{FromRoom, RoomThreadIndex, ToRoom},
};

use crate::{
    format::{BATCH_FULL_BYTES, FrameHead, FrameKind, Message, PART_BYTES_MAX, ToHost, VERSION},
    link::{Arrived, FrameShape, Messages, NodeLink, PartPlace},
    remote_players::RemotePlayers,
    remote_rooms::{Malformed, RemoteRooms},
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
    /// Nothing has arrived for [`SILENCE_US_MAX`], or the cluster counts the other node as gone.
    Silence,
    /// A frame is missing.
    Gap,
    /// A frame was held back on its way for two seconds longer than others.
    Late,
    /// The other node has lost the link.
    Peer,
    /// The other node has sent what is not of this protocol.
    Malformed,
    /// This node has lost its connection to NATS, or stops.
    Disconnected,
}

impl LinkLoss {
    /// Every reason, in index order of [`RelayCounters::losses`].
    pub const ALL: [Self; 6] = [Self::Silence, Self::Gap, Self::Late, Self::Peer, Self::Malformed, Self::Disconnected];

    /// The name used in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Silence => "silence",
            Self::Gap => "gap",
            Self::Late => "late",
            Self::Peer => "peer",
            Self::Malformed => "malformed",
            Self::Disconnected => "disconnected",
        }
    }
}

/// A limit on what nodes send each other about rooms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayLimit {
    /// A tick or a keyframe was longer than [`crate::format::UPDATE_BYTES_MAX`]: the players of a node were removed.
    Update,
    /// Messages were sent in the middle of a turn, because they had [`crate::format::BATCH_FULL_BYTES`].
    Batch,
    /// A batch of another node was longer than [`crate::format::BATCH_BYTES_MAX`].
    LongBatch,
    /// A frame did not fit into the queue to NATS, or into its node's share of it.
    QueueOut,
    /// A frame of another node did not fit into the queue of this one.
    QueueIn,
    /// No frame was read, because a shard was behind.
    Behind,
}

impl RelayLimit {
    /// Every limit, in index order of [`RelayCounters::limits`].
    pub const ALL: [Self; 6] =
        [Self::Update, Self::Batch, Self::LongBatch, Self::QueueOut, Self::QueueIn, Self::Behind];

    /// The name used in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Update => "update",
            Self::Batch => "batch",
            Self::LongBatch => "long_batch",
            Self::QueueOut => "queue_out",
            Self::QueueIn => "queue_in",
            Self::Behind => "behind",
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
    /// Times that a limit was met, by [`RelayLimit`].
    pub limits: [u64; RelayLimit::ALL.len()],
}

/// A node sends something at least this often while it has rooms or players in common with another one.
const ALIVE_INTERVAL_US: u64 = 500_000;
/// A node from which nothing has arrived for this long is gone.
pub const SILENCE_US_MAX: u64 = 3_000_000;
/// A link without rooms and players is forgotten after this time.
const UNUSED_US_MAX: u64 = 60_000_000;
/// The time between two calls of [`Relay::wake`].
pub const WAKE_INTERVAL_US: u64 = 250_000;
/// A frame with a later epoch is none: nodes begin fewer.
const EPOCH_MAX: u64 = u64::MAX / 2;
/// Maximum bytes of the numbers in the head of a frame.
const HEAD_BYTES: usize = 64;
/// Minimum bytes of a part, whatever the servers allow.
const PART_BYTES_MIN: usize = 1 << 10;

/// The relay of a node. It is the room thread of the rooms of other nodes for the shards of this node, and the shards of
/// other nodes for the rooms of this node.
#[derive(Debug)]
pub struct Relay {
    options: RelayOptions,
    links: BTreeMap<Arc<str>, NodeLink>,
    rooms: RemoteRooms,
    players: RemotePlayers,
    out: Output,
    /// The highest epoch of any link, also of one that is forgotten.
    epochs: u64,
    /// Bytes of the messages that are not sent yet.
    queued_bytes: usize,
    /// Maximum bytes of a batch in one frame.
    part_bytes_max: usize,
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
            queued_bytes: 0,
            part_bytes_max: PART_BYTES_MAX,
            counters: RelayCounters::default(),
            options,
        }
    }

    /// The NATS server takes messages of at most this many bytes.
    pub fn set_payload_bytes_max(&mut self, payload_bytes_max: usize) {
        let head_bytes = HEAD_BYTES + self.options.node.len();
        self.part_bytes_max = payload_bytes_max.saturating_sub(head_bytes).clamp(PART_BYTES_MIN, PART_BYTES_MAX);
    }

    /// The caller has met a limit.
    pub fn count(&mut self, limit: RelayLimit, times: u64) {
        self.counters.limits[limit as usize] += times;
    }

    /// Whether to call [`Relay::take_effects`] before anything else.
    pub fn is_full(&self) -> bool {
        self.queued_bytes >= BATCH_FULL_BYTES
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
        let Ok((FrameHead { version: VERSION, from, sent_us, epoch: epoch @ ..=EPOCH_MAX, kind }, part)) =
            postcard::take_from_bytes(bytes)
        else {
            self.counters.frames_unknown += 1;
            return;
        };
        if *from == *self.options.node {
            return;
        }
        let from = Arc::from(from);
        if !self.agree_on(now_us, &from, epoch) {
            return;
        }
        let (FrameKind::Part { number, is_last }, Some(link)) = (kind, self.links.get_mut(&from)) else { return };
        match link.receive(now_us, PartPlace { sent_us, number, is_last }, part) {
            Arrived::Batch(batch) => self.take_batch(now_us, &from, &batch),
            Arrived::Nothing => {}
            Arrived::Gap => self.lose(now_us, &from, LinkLoss::Gap),
            Arrived::Late => self.lose(now_us, &from, LinkLoss::Late),
            Arrived::TooLong => {
                self.count(RelayLimit::LongBatch, 1);
                self.lose(now_us, &from, LinkLoss::Malformed);
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

    /// The cluster counts a node as gone, earlier than its silence would show here.
    pub fn node_gone(&mut self, now_us: u64, node: &str) {
        if let Some((node, _)) = self.links.get_key_value(node) {
            let node = Arc::clone(node);
            self.lose(now_us, &node, LinkLoss::Silence);
        }
    }

    /// Call it every [`WAKE_INTERVAL_US`].
    pub fn wake(&mut self, now_us: u64) {
        let mut silent = Vec::new();
        let mut unused = Vec::new();
        for (node, link) in &mut self.links {
            let is_used = self.rooms.uses(node) || self.players.serves(node);
            if link.silent_us(now_us, is_used) > SILENCE_US_MAX {
                silent.push(Arc::clone(node));
            } else if is_used && now_us.saturating_sub(link.sent_us()) >= ALIVE_INTERVAL_US {
                self.queued_bytes += link.push(now_us, &Message::Alive);
            } else if !is_used && link.quiet_us(now_us) > UNUSED_US_MAX {
                unused.push(Arc::clone(node));
            }
        }
        for node in silent {
            self.lose(now_us, &node, LinkLoss::Silence);
        }
        for node in unused {
            self.links.remove(&node);
            self.players.lose(&node, &mut self.out);
        }
    }

    /// The effects of the calls since the last one, in order. The frames are put together here, so that one frame has what a
    /// turn of the caller brings.
    pub fn take_effects(&mut self, now_us: u64) -> Vec<RelayEffect> {
        self.players.send_pending(&mut self.out);
        self.queue(now_us);
        self.count(RelayLimit::Batch, u64::from(self.is_full()));
        self.queued_bytes = 0;
        let Self { links, options, out, counters, part_bytes_max, .. } = self;
        let shape = FrameShape { node: &options.node, part_bytes_max: *part_bytes_max };
        for (node, link) in links {
            for frame in link.take_frames(shape, now_us) {
                counters.frames_sent += 1;
                counters.bytes_sent += frame.len() as u64;
                out.effects.push(RelayEffect::Send { node: Arc::clone(node), frame });
            }
        }
        mem::take(&mut out.effects)
    }

    /// The counters.
    pub fn counters(&self) -> RelayCounters {
        let mut limits = self.counters.limits;
        limits[RelayLimit::Update as usize] += self.players.updates_refused();
        RelayCounters {
            rooms: self.rooms.len() as u64,
            players_away: self.rooms.player_count() as u64,
            players_here: self.players.len() as u64,
            limits,
            ..self.counters
        }
    }

    /// Whether a frame of this epoch is current. Follows to a later epoch, and tells the other node of it in an earlier one.
    fn agree_on(&mut self, now_us: u64, from: &Arc<str>, epoch: u64) -> bool {
        self.epochs = self.epochs.max(epoch);
        let link = self.links.entry(Arc::clone(from)).or_insert_with(|| NodeLink::new(epoch, now_us));
        match epoch.cmp(&link.epoch()) {
            Ordering::Equal => true,
            Ordering::Less => {
                if link.should_answer(now_us) {
                    let frame = link.reset_frame(&self.options.node, now_us);
                    self.out.effects.push(RelayEffect::Send { node: Arc::clone(from), frame });
                }
                false
            }
            Ordering::Greater if link.can_move() => {
                link.move_to(epoch, now_us);
                true
            }
            Ordering::Greater => {
                link.begin(epoch, now_us);
                self.end(from, LinkLoss::Peer);
                true
            }
        }
    }

    fn take_batch(&mut self, now_us: u64, from: &Arc<str>, batch: &[u8]) {
        let taken = Messages::of(batch).try_for_each(|message| match message.map_err(|_| Malformed)? {
            Message::Alive => Ok(()),
            Message::ToHost(message) => self.players.receive(from, message, &mut self.out),
            Message::ToEdge(message) => self.rooms.receive(from, message, &mut self.out),
        });
        self.queue(now_us);
        if taken == Err(Malformed) {
            self.lose(now_us, from, LinkLoss::Malformed);
        }
    }

    /// Ends all rooms and players between this node and another one, and begins the next epoch.
    fn lose(&mut self, now_us: u64, node: &Arc<str>, why: LinkLoss) {
        let Some(link) = self.links.get_mut(node) else { return };
        let epoch = link.epoch() + 1;
        link.begin(epoch, now_us);
        self.epochs = self.epochs.max(epoch);
        let frame = link.reset_frame(&self.options.node, now_us);
        self.out.effects.push(RelayEffect::Send { node: Arc::clone(node), frame });
        self.end(node, why);
    }

    /// Ends all rooms and players between this node and another one. The other node has ended them, or will.
    fn end(&mut self, node: &Arc<str>, why: LinkLoss) {
        let lost = self.rooms.lose(node, &mut self.out) + self.players.lose(node, &mut self.out);
        self.out.to_nodes.retain(|(to, _)| to != node);
        self.counters.losses[why as usize] += u64::from(lost > 0);
    }

    /// Queues messages for other nodes in their streams.
    fn queue(&mut self, now_us: u64) {
        for (node, message) in mem::take(&mut self.out.to_nodes) {
            let link = self.links.entry(node).or_insert_with(|| {
                self.epochs += 1;
                NodeLink::new(self.epochs, now_us)
            });
            self.queued_bytes += link.push(now_us, &message);
            self.epochs = self.epochs.max(link.epoch());
        }
    }
}
