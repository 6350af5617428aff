//! The players of other nodes in rooms of this node. A room sees the shards of such a node beside those of its own, under
//! the numbers of the node's slot.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use dunlin_engine::{
    FrameClass, SessionKey, ShardIndex, Wire,
    creators::ChannelCreator,
    event::NodeSlot,
    message::{Asker, Subscriber, SubscriptionRequest},
    room::{
        Departure, EventAudience, FromRoom, JoinParams, JoinedAs, NotJoined, Opening, RoomKey, RoomThreadIndex,
        SeatChange, SeatClaim, SeatKey, SeatToken, ToRoom,
    },
};
use dunlin_protocol::{ClientInfo, Payload};
use dunlin_rooms::{Grid, GridShape, TickUpdate};

use crate::{
    Output, RelayEffect,
    edge::{Malformed, room_id},
    format::{
        Audience, Change, Claim, Document, JoinOutcome, JoiningPlayer, Map, Message, RoomId, Seat, TickPart, ToEdge,
        ToHost, Update,
    },
};

/// The players of other nodes.
#[derive(Debug)]
pub(crate) struct RemotePlayers {
    room_threads: u16,
    slots: Slots,
    nodes: BTreeMap<NodeSlot, EdgeNode>,
    /// The tick that is being put together: its parts for the shards of one node arrive one after the other.
    tick: Option<PendingTick>,
    /// The last encoded update, which all nodes with players of the room receive.
    encoded: Option<(Arc<TickUpdate>, Vec<u8>)>,
}

/// A node with players in rooms of this node.
#[derive(Debug)]
struct EdgeNode {
    node: Arc<str>,
    /// The thread of each player's room.
    players: BTreeMap<(RoomKey, SeatKey), RoomThreadIndex>,
}

#[derive(Debug)]
struct PendingTick {
    slot: NodeSlot,
    room: RoomId,
    update: Arc<TickUpdate>,
    parts: Vec<TickPart>,
}

/// The slots that are not in use.
#[derive(Debug)]
struct Slots {
    /// In the order in which they became free, so that a message to a slot's earlier node is gone long before the slot has
    /// another one.
    free: VecDeque<NodeSlot>,
}

impl RemotePlayers {
    pub(crate) fn new(room_threads: u16) -> Self {
        Self {
            room_threads,
            slots: Slots { free: (1..=u8::MAX).map(NodeSlot).collect() },
            nodes: BTreeMap::new(),
            tick: None,
            encoded: None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.values().map(|node| node.players.len()).sum()
    }

    /// Whether a node has players in rooms of this node.
    pub(crate) fn serves(&self, node: &str) -> bool {
        self.nodes.values().any(|of| *of.node == *node)
    }

    /// Processes a message of a node with players.
    ///
    /// # Errors
    /// If no node sends it.
    pub(crate) fn receive(&mut self, from: &Arc<str>, message: ToHost, out: &mut Output) -> Result<(), Malformed> {
        let slot = self.nodes.iter().find(|(_, node)| node.node == *from).map(|(slot, _)| *slot);
        match message {
            ToHost::Join { room, thread, channel, seat, player } => {
                if thread >= self.room_threads {
                    return Err(Malformed);
                }
                let Some(slot) = slot.or_else(|| self.add(from)) else {
                    // Every other node of a large cluster has players here.
                    let refusal = ToEdge::Joined { room, seat, outcome: JoinOutcome::Gone };
                    out.send_to(from, Message::ToEdge(refusal));
                    return Ok(());
                };
                let (room, seat, thread) = (room_key(room), seat_key(slot, seat)?, RoomThreadIndex(thread));
                self.node_mut(slot).players.insert((room, seat), thread);
                let request = Box::new(request_of(channel, seat, *player));
                out.effects.push(RelayEffect::ToThread { thread, message: ToRoom::Join { room, request } });
            }
            ToHost::Leave { room, seat, is_lost } => {
                let Some(slot) = slot else { return Ok(()) };
                let (room, seat) = (room_key(room), seat_key(slot, seat)?);
                // Its join was refused, or the room has ended.
                let Some(thread) = self.node_mut(slot).players.remove(&(room, seat)) else { return Ok(()) };
                let departure = if is_lost { Departure::Lost } else { Departure::Left };
                let message = ToRoom::Leave { room, seat, departure };
                out.effects.push(RelayEffect::ToThread { thread, message });
            }
            ToHost::Input { room, seat, number, data } => {
                let Some(slot) = slot else { return Ok(()) };
                let (room, seat) = (room_key(room), seat_key(slot, seat)?);
                let Some(thread) = self.node_mut(slot).players.get(&(room, seat)).copied() else { return Ok(()) };
                let message = ToRoom::Input { room, seat, number, data: data.into() };
                out.effects.push(RelayEffect::ToThread { thread, message });
            }
        }
        Ok(())
    }

    /// Processes a message of a room for a shard of another node.
    pub(crate) fn take(&mut self, shard: ShardIndex, message: FromRoom, out: &mut Output) {
        let slot = shard.node();
        // The node is gone; its players have left the room, which does not know it yet.
        if !self.nodes.contains_key(&slot) {
            return;
        }
        if let FromRoom::Tick { room, update, changes, inputs_taken } = message {
            return self.take_tick(shard, (room, update), (changes, inputs_taken), out);
        }
        self.send_tick(out);
        let shard = shard.on_its_node();
        let to_edge = match message {
            FromRoom::Joined { room, request, outcome } => {
                let Some(join) = request.join else { return };
                if outcome.is_err() {
                    self.node_mut(slot).players.remove(&(room, join.seat));
                }
                ToEdge::Joined { room: room_id(room), seat: seat_of(join.seat), outcome: outcome_of(outcome) }
            }
            FromRoom::Keyframe { room, channel: _, grid, ticks_per_second, keyframe } => {
                let (map, update) = (map_of(&grid, ticks_per_second), Update(self.encoded(&keyframe)));
                ToEdge::Keyframe { room: room_id(room), shard, map, update }
            }
            FromRoom::Event { room, channel: _, data, audience } => {
                let audience = audience.map(|audience| audience_of(slot, &audience));
                ToEdge::Event { room: room_id(room), data: data.bytes().to_vec(), audience }
            }
            FromRoom::Unseated { room, seat, code, reason } => {
                let reason = reason.as_deref().map(Box::from);
                ToEdge::Unseated { room: room_id(room), seat: seat_of(seat), code: code.0, reason }
            }
            FromRoom::Over { room, code, reason } => {
                self.node_mut(slot).players.retain(|(of, _), _| *of != room);
                ToEdge::Over { room: room_id(room), code: code.0, reason: reason.as_deref().map(Box::from) }
            }
            FromRoom::Made { .. }
            | FromRoom::Answered { .. }
            | FromRoom::Publish { .. }
            | FromRoom::Idle { .. }
            | FromRoom::Closing { .. }
            | FromRoom::Failed { .. }
            | FromRoom::Load { .. }
            | FromRoom::Tick { .. } => unreachable!("a room sends it to shards of its own node"),
        };
        let node = Arc::clone(&self.node_mut(slot).node);
        out.send_to(&node, Message::ToEdge(to_edge));
    }

    /// Sends the tick that was being put together. Call it when no message of a room follows at once.
    pub(crate) fn send_tick(&mut self, out: &mut Output) {
        let Some(PendingTick { slot, room, update, parts }) = self.tick.take() else { return };
        let update = Update(self.encoded(&update));
        let node = Arc::clone(&self.node_mut(slot).node);
        out.send_to(&node, Message::ToEdge(ToEdge::Tick { room, update, parts }));
    }

    /// A node is gone, or the stream of its messages has a gap: its players leave. Returns their number.
    pub(crate) fn lose(&mut self, node: &str, out: &mut Output) -> usize {
        let slot = self.nodes.iter().find(|(_, of)| *of.node == *node).map(|(slot, _)| *slot);
        let Some((slot, lost)) = slot.and_then(|slot| self.nodes.remove_entry(&slot)) else { return 0 };
        self.tick.take_if(|tick| tick.slot == slot);
        self.slots.free.push_back(slot);
        let count = lost.players.len();
        out.effects.extend(lost.players.into_iter().map(|((room, seat), thread)| {
            let message = ToRoom::Leave { room, seat, departure: Departure::Lost };
            RelayEffect::ToThread { thread, message }
        }));
        count
    }

    fn add(&mut self, node: &Arc<str>) -> Option<NodeSlot> {
        let slot = self.slots.free.pop_front()?;
        self.nodes.insert(slot, EdgeNode { node: Arc::clone(node), players: BTreeMap::new() });
        Some(slot)
    }

    fn node_mut(&mut self, slot: NodeSlot) -> &mut EdgeNode {
        self.nodes.get_mut(&slot).expect("the caller has found the node")
    }

    fn take_tick(
        &mut self,
        shard: ShardIndex,
        (room, update): (RoomKey, Arc<TickUpdate>),
        (changes, inputs_taken): (Vec<SeatChange>, u32),
        out: &mut Output,
    ) {
        let (slot, room) = (shard.node(), room_id(room));
        let part = TickPart {
            shard: shard.on_its_node(),
            inputs_taken,
            changes: changes.into_iter().map(change_of).collect(),
        };
        match &mut self.tick {
            Some(tick) if tick.slot == slot && tick.room == room && Arc::ptr_eq(&tick.update, &update) => {
                tick.parts.push(part);
            }
            _ => {
                self.send_tick(out);
                self.tick = Some(PendingTick { slot, room, update, parts: vec![part] });
            }
        }
    }

    /// An update is encoded once for all nodes, whose messages follow one another.
    fn encoded(&mut self, update: &Arc<TickUpdate>) -> Vec<u8> {
        if let Some((encoded, bytes)) = &self.encoded
            && Arc::ptr_eq(encoded, update)
        {
            return bytes.clone();
        }
        let bytes = update.to_bytes();
        self.encoded = Some((Arc::clone(update), bytes.clone()));
        bytes
    }
}

/// A join as a room receives it from an owner. The answer needs no more of it than the seat.
fn request_of(channel: Box<str>, seat: SeatKey, player: JoiningPlayer) -> SubscriptionRequest {
    let JoiningPlayer { user, client, connection_info, channel_info, address, is_spectator, is_protobuf, data, claim } =
        player;
    let payload = |Document { is_json, bytes }: Document| {
        if is_json { Payload::from_json(bytes.into()) } else { Payload::from_opaque(bytes.into()) }
    };
    let info = Arc::new(ClientInfo {
        user: user.into(),
        client: client.into(),
        conn_info: connection_info.map(payload),
        chan_info: channel_info.map(payload),
    });
    let Claim { given, returned, is_one_per_user, keeps_returned } = claim;
    let claim =
        SeatClaim { given: given.map(SeatToken), returned: returned.map(SeatToken), is_one_per_user, keeps_returned };
    let join = JoinParams { seat, info, address, is_spectator, data: data.into(), opening: Opening::Used, claim };
    let wire = if is_protobuf { Wire::WebSocketProtobuf } else { Wire::WebSocketJson };
    let session = SessionKey { index: seat.index, generation: seat.generation };
    SubscriptionRequest {
        answer_may_be_large: false,
        channel: channel.into(),
        asker: Asker { shard: seat.shard, session, command_id: 0 },
        creator: ChannelCreator::default(),
        subscriber: Subscriber {
            class: FrameClass::plain(wire),
            join_leave: false,
            info: None,
            presence: false,
            announced: false,
        },
        positioned: false,
        was_recovering: false,
        recover: None,
        filter: None,
        join: Some(Box::new(join)),
    }
}

fn outcome_of(outcome: Result<JoinedAs, NotJoined>) -> JoinOutcome {
    match outcome {
        Ok(JoinedAs { is_back }) => JoinOutcome::Joined { is_back },
        Err(NotJoined::Refused(refusal)) => JoinOutcome::Refused { code: refusal.code, message: refusal.message },
        Err(NotJoined::Reserved) => JoinOutcome::Reserved,
        Err(NotJoined::Gone) => JoinOutcome::Gone,
    }
}

fn map_of(grid: &Grid, ticks_per_second: u32) -> Map {
    let GridShape { columns, rows, cell_units, near_cells, far_cells, far_interval_ticks } = *grid.shape();
    Map { columns, rows, cell_units, near_cells, far_cells, far_interval_ticks, ticks_per_second }
}

fn change_of(change: SeatChange) -> Change {
    let SeatChange { seat, view, ack, avatar, own } = change;
    let own = own.map(|own| own.to_vec().into());
    Change { index: seat.index, generation: seat.generation, view: view.0, ack, avatar, own }
}

/// The part of an event's recipients on a node. The users may be on any node: each may recover the event where it was.
fn audience_of(slot: NodeSlot, audience: &EventAudience) -> Audience {
    let seats = audience.seats.iter().filter(|seat| seat.shard.node() == slot).map(|seat| seat_of(*seat));
    Audience { seats: seats.collect(), users: audience.users.iter().map(|user| (**user).into()).collect() }
}

const fn room_key(room: RoomId) -> RoomKey {
    RoomKey { owner: ShardIndex(room.owner), number: room.number }
}

fn seat_key(slot: NodeSlot, seat: Seat) -> Result<SeatKey, Malformed> {
    let Seat { shard, index, generation } = seat;
    Ok(SeatKey { shard: slot.shard(shard).ok_or(Malformed)?, index, generation })
}

/// The seat as its own node knows it.
const fn seat_of(seat: SeatKey) -> Seat {
    Seat { shard: seat.shard.on_its_node(), index: seat.index, generation: seat.generation }
}
