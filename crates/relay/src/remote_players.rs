//! The players of other nodes in rooms of this node. A room sees the shards of such a node beside those of its own, under
//! the numbers of the node's slot.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use dunlin_engine::{
    ShardIndex,
    event::NodeSlot,
    message::SubscriptionRequest,
    room::{
        Departure, EventAudience, FromRoom, JoinParams, JoinedAs, NotJoined, Opening, RoomKey, RoomThreadIndex,
        SeatChange, SeatClaim, SeatKey, SeatToken, ToRoom,
    },
};
use dunlin_protocol::{ClientInfo, Encoding, Payload, UnsubscribeCode};
use dunlin_rooms::{Grid, GridShape, SnapshotFormat, TickUpdate};

use crate::{
    Output, RelayEffect,
    format::{
        Audience, Change, Claim, Document, Join, JoinOutcome, JoiningPlayer, Leaving, Map, Message, RoomId, Seat,
        TickPart, ToEdge, ToHost, UPDATE_BYTES_MAX, Update,
    },
    remote_rooms::{Malformed, room_id},
};

/// Why the players of another node are removed.
const TOO_LARGE: &str = "the room is too large for players on other nodes";

/// The players of other nodes.
#[derive(Debug)]
pub(crate) struct RemotePlayers {
    room_threads: u16,
    slots: Slots,
    nodes: BTreeMap<NodeSlot, EdgeNode>,
    by_name: BTreeMap<Arc<str>, NodeSlot>,
    /// The message that is being put together: its parts for the shards of one node arrive one after the other.
    pending: Option<Pending>,
    /// The last encoded update, which nodes with players of the room receive.
    encoded: Option<EncodedUpdate>,
    /// Ticks and keyframes that were too long to be sent.
    updates_refused: u64,
}

/// A node that has, or lately had, players in rooms of this node.
#[derive(Debug)]
struct EdgeNode {
    node: Arc<str>,
    players: BTreeMap<(RoomKey, SeatKey), RemotePlayer>,
}

#[derive(Clone, Copy, Debug)]
struct RemotePlayer {
    /// The thread of its room.
    thread: RoomThreadIndex,
    /// Whether its client receives changed fields.
    receives_changes: bool,
}

impl EdgeNode {
    /// The players in a room.
    fn players_of(&self, room: RoomKey) -> impl Iterator<Item = (SeatKey, RemotePlayer)> {
        let first = SeatKey { shard: ShardIndex(0), index: 0, generation: 0 };
        let players = self.players.range((room, first)..).take_while(move |((of, _), _)| *of == room);
        players.map(|((_, seat), player)| (*seat, *player))
    }

    /// Whether updates of a room have changed fields. A node that has such a player reads them.
    fn receives_changes(&self, room: RoomKey) -> bool {
        self.players_of(room).any(|(_, player)| player.receives_changes)
    }
}

/// An update as nodes receive it, in each way that one has needed.
#[derive(Debug)]
struct EncodedUpdate {
    update: Arc<TickUpdate>,
    whole_states: Option<Vec<u8>>,
    with_changes: Option<Vec<u8>>,
}

impl EncodedUpdate {
    const fn new(update: Arc<TickUpdate>) -> Self {
        Self { update, whole_states: None, with_changes: None }
    }

    fn bytes(&mut self, has_changes: bool) -> &[u8] {
        let Self { update, whole_states, with_changes } = self;
        if has_changes && update.formats().contains(SnapshotFormat::TypedProtobuf) {
            with_changes.get_or_insert_with(|| update.to_bytes_with_changes())
        } else {
            whole_states.get_or_insert_with(|| update.to_bytes())
        }
    }
}

/// A message with an update.
#[derive(Debug)]
struct Pending {
    slot: NodeSlot,
    room: RoomKey,
    update: Arc<TickUpdate>,
    parts: PendingParts,
}

#[derive(Debug)]
enum PendingParts {
    /// The shards that need the world.
    Keyframe {
        shards: Vec<u16>,
        map: Map,
    },
    Tick(Vec<TickPart>),
}

impl PendingParts {
    /// About their bytes.
    fn bytes(&self) -> usize {
        let of_change = |change: &Change| CHANGE_BYTES + change.own.as_ref().map_or(0, |own| own.len());
        match self {
            Self::Keyframe { shards, .. } => 2 * shards.len(),
            Self::Tick(parts) => parts.iter().flat_map(|part| &part.changes).map(of_change).sum(),
        }
    }
}

/// Bytes of the numbers of a change.
const CHANGE_BYTES: usize = 16;

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
            by_name: BTreeMap::new(),
            pending: None,
            encoded: None,
            updates_refused: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.values().map(|node| node.players.len()).sum()
    }

    /// Whether a node has players in rooms of this node.
    pub(crate) fn serves(&self, node: &str) -> bool {
        let slot = self.by_name.get(node).and_then(|slot| self.nodes.get(slot));
        slot.is_some_and(|node| !node.players.is_empty())
    }

    /// The number of ticks and keyframes that were too long to be sent.
    pub(crate) const fn updates_refused(&self) -> u64 {
        self.updates_refused
    }

    /// Processes a message of a node with players.
    ///
    /// # Errors
    /// If no node sends it.
    pub(crate) fn receive(&mut self, from: &Arc<str>, message: ToHost, out: &mut Output) -> Result<(), Malformed> {
        let slot = self.by_name.get(from).copied();
        match message {
            ToHost::Join(join) => return self.join(from, join, false, out),
            // In JSON, nothing of an update has fields.
            ToHost::TypedJoin(join) if !join.player.is_protobuf => return Err(Malformed),
            ToHost::TypedJoin(join) => return self.join(from, join, true, out),
            ToHost::Leave { room, seat, how } => {
                let Some(slot) = slot else { return Ok(()) };
                let (room, seat) = (room_key(room), seat_key(slot, seat)?);
                // Its join was refused, or the room has ended.
                let player = self.node_mut(slot).players.remove(&(room, seat));
                let Some(RemotePlayer { thread, .. }) = player else { return Ok(()) };
                let departure = match how {
                    Leaving::Left => Departure::Left,
                    Leaving::Lost => Departure::Lost,
                    Leaving::Unanswered => Departure::Unanswered,
                };
                let message = ToRoom::Leave { room, seat, departure };
                out.effects.push(RelayEffect::ToThread { thread, message });
            }
            ToHost::Input { room, seat, number, data } => {
                let Some(slot) = slot else { return Ok(()) };
                let (room, seat) = (room_key(room), seat_key(slot, seat)?);
                // The room also gets the input of a player that has left: the next tick returns its place in the inbox of
                // the shard, which other players there use.
                let node = self.node_mut(slot);
                let player = node.players.get(&(room, seat)).copied();
                let Some(player) = player.or_else(|| node.players_of(room).next().map(|(_, player)| player)) else {
                    return Ok(());
                };
                let thread = player.thread;
                let message = ToRoom::Input { room, seat, number, data: data.into() };
                out.effects.push(RelayEffect::ToThread { thread, message });
            }
        }
        Ok(())
    }

    /// A client of another node joins a room.
    fn join(&mut self, from: &Arc<str>, join: Join, receives_changes: bool, out: &mut Output) -> Result<(), Malformed> {
        let Join { room, thread, channel, seat, player } = join;
        if thread >= self.room_threads {
            return Err(Malformed);
        }
        let Some(slot) = self.by_name.get(from).copied().or_else(|| self.add(from)) else {
            // Every other node of a large cluster has players here.
            let refusal = ToEdge::Joined { room, seat, outcome: JoinOutcome::Gone };
            out.send_to(from, Message::ToEdge(refusal));
            return Ok(());
        };
        let (room, seat, thread) = (room_key(room), seat_key(slot, seat)?, RoomThreadIndex(thread));
        self.node_mut(slot).players.insert((room, seat), RemotePlayer { thread, receives_changes });
        let request = Box::new(request_of(channel, seat, *player, receives_changes));
        out.effects.push(RelayEffect::ToThread { thread, message: ToRoom::Join { room, request } });
        Ok(())
    }

    /// Processes a message of a room for a shard of another node.
    pub(crate) fn take(&mut self, shard: ShardIndex, message: FromRoom, out: &mut Output) {
        let slot = shard.node();
        // The node is gone; its players have left the room, which does not know it yet.
        if !self.nodes.contains_key(&slot) {
            return;
        }
        let message = match message {
            FromRoom::Tick { room, update, changes, inputs_taken } => {
                return self.take_tick(shard, (room, update), (changes, inputs_taken), out);
            }
            FromRoom::Keyframe { room, channel: _, grid, ticks_per_second, keyframe, is_recorded: _ } => {
                return self.take_keyframe(shard, (room, keyframe), map_of(&grid, ticks_per_second), out);
            }
            message => message,
        };
        self.send_pending(out);
        let to_edge = match message {
            FromRoom::Joined { room, request, outcome } => {
                let Some(join) = request.join else { return };
                if outcome.is_err() {
                    self.node_mut(slot).players.remove(&(room, join.seat));
                }
                ToEdge::Joined { room: room_id(room), seat: seat_of(join.seat), outcome: outcome_of(outcome) }
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
            | FromRoom::Keyframe { .. }
            | FromRoom::Tick { .. } => unreachable!("a room sends it to shards of its own node"),
        };
        let node = Arc::clone(&self.node_mut(slot).node);
        out.send_to(&node, Message::ToEdge(to_edge));
    }

    /// Sends the message that was being put together. Call it when no message of a room follows at once.
    pub(crate) fn send_pending(&mut self, out: &mut Output) {
        let Some(Pending { slot, room, update, parts }) = self.pending.take() else { return };
        // The last player there has left, and the inbox of its shard with it: nobody would use the update.
        let node = self.node_mut(slot);
        if node.players_of(room).next().is_none() {
            return;
        }
        let receives_changes = node.receives_changes(room);
        let part_bytes = parts.bytes();
        let update = self.encoded(update);
        // From an update that has no changes, mirrors write whole states.
        let encoded = [receives_changes, false].into_iter().find_map(|has_changes| {
            let bytes = update.bytes(has_changes);
            (bytes.len() + part_bytes <= UPDATE_BYTES_MAX).then(|| bytes.to_vec())
        });
        let Some(encoded) = encoded else { return self.refuse_update(slot, room, out) };
        let (room, update) = (room_id(room), Update(encoded));
        let message = match parts {
            PendingParts::Keyframe { shards, map } => ToEdge::Keyframe { room, shards, map, update },
            PendingParts::Tick(parts) => ToEdge::Tick { room, update, parts },
        };
        out.send_to(&self.node_mut(slot).node, Message::ToEdge(message));
    }

    /// A node is gone or unused, or the stream of its messages has a gap: its players leave. Returns their number.
    pub(crate) fn lose(&mut self, node: &str, out: &mut Output) -> usize {
        let slot = self.by_name.remove(node);
        let Some((slot, lost)) = slot.and_then(|slot| self.nodes.remove_entry(&slot)) else { return 0 };
        self.pending.take_if(|pending| pending.slot == slot);
        self.slots.free.push_back(slot);
        let count = lost.players.len();
        out.effects.extend(lost.players.into_iter().map(|((room, seat), RemotePlayer { thread, .. })| {
            let message = ToRoom::Leave { room, seat, departure: Departure::Lost };
            RelayEffect::ToThread { thread, message }
        }));
        count
    }

    fn add(&mut self, node: &Arc<str>) -> Option<NodeSlot> {
        let slot = self.slots.free.pop_front()?;
        self.nodes.insert(slot, EdgeNode { node: Arc::clone(node), players: BTreeMap::new() });
        self.by_name.insert(Arc::clone(node), slot);
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
        let part = TickPart {
            shard: shard.on_its_node(),
            inputs_taken,
            changes: changes.into_iter().map(change_of).collect(),
        };
        match &mut self.pending {
            Some(Pending { slot, room: of, update: last, parts: PendingParts::Tick(parts) })
                if *slot == shard.node() && *of == room && Arc::ptr_eq(last, &update) =>
            {
                parts.push(part);
            }
            _ => {
                self.send_pending(out);
                let parts = PendingParts::Tick(vec![part]);
                self.pending = Some(Pending { slot: shard.node(), room, update, parts });
            }
        }
    }

    fn take_keyframe(
        &mut self,
        shard: ShardIndex,
        (room, update): (RoomKey, Arc<TickUpdate>),
        map: Map,
        out: &mut Output,
    ) {
        match &mut self.pending {
            Some(Pending { slot, room: of, update: last, parts: PendingParts::Keyframe { shards, .. } })
                if *slot == shard.node() && *of == room && Arc::ptr_eq(last, &update) =>
            {
                shards.push(shard.on_its_node());
            }
            _ => {
                self.send_pending(out);
                let parts = PendingParts::Keyframe { shards: vec![shard.on_its_node()], map };
                self.pending = Some(Pending { slot: shard.node(), room, update, parts });
            }
        }
    }

    /// The update of a room is too long for a node: its players leave for good. With the code of a room that failed, they
    /// would join again and meet the same end.
    fn refuse_update(&mut self, slot: NodeSlot, room: RoomKey, out: &mut Output) {
        self.updates_refused += 1;
        let node = self.node_mut(slot);
        let players: Vec<(SeatKey, RemotePlayer)> = node.players_of(room).collect();
        for (seat, RemotePlayer { thread, .. }) in players {
            node.players.remove(&(room, seat));
            let message = ToRoom::Leave { room, seat, departure: Departure::Left };
            out.effects.push(RelayEffect::ToThread { thread, message });
        }
        let (code, reason) = (UnsubscribeCode::ROOM_CLOSED.0, Some(TOO_LARGE.into()));
        out.send_to(&node.node, Message::ToEdge(ToEdge::Over { room: room_id(room), code, reason }));
    }

    /// An update is encoded once for all nodes, whose messages follow one another, and once for those that receive changes.
    fn encoded(&mut self, update: Arc<TickUpdate>) -> &mut EncodedUpdate {
        let last = self.encoded.take().filter(|last| Arc::ptr_eq(&last.update, &update));
        self.encoded.insert(last.unwrap_or_else(|| EncodedUpdate::new(update)))
    }
}

/// A join as a room receives it from an owner. The answer needs no more of it than the seat.
fn request_of(channel: Box<str>, seat: SeatKey, player: JoiningPlayer, is_typed: bool) -> SubscriptionRequest {
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
    let join = JoinParams {
        seat,
        info,
        address,
        is_spectator,
        is_typed,
        data: data.into(),
        opening: Opening::Used,
        claim,
        // The node of the session waits.
        waits_until_us: 0,
        held_until_us: 0,
    };
    let encoding = if is_protobuf { Encoding::Protobuf } else { Encoding::Json };
    SubscriptionRequest::of_remote_join(channel.into(), encoding, join)
}

fn outcome_of(outcome: Result<JoinedAs, NotJoined>) -> JoinOutcome {
    match outcome {
        Ok(JoinedAs { is_back }) => JoinOutcome::Joined { is_back },
        Err(NotJoined::Refused(refusal)) => JoinOutcome::Refused { code: refusal.code, message: refusal.message },
        Err(NotJoined::Reserved) => JoinOutcome::Reserved,
        Err(NotJoined::Gone) => JoinOutcome::Gone,
        Err(NotJoined::Unavailable) => JoinOutcome::Unavailable,
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
