//! The rooms of other nodes in which this node has players. The owner of a channel and the sessions' shards see each as a
//! room of this node, whose thread is the relay.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use dunlin_engine::{
    ShardIndex,
    message::SubscriptionRequest,
    room::{
        Departure, EventAudience, FromRoom, JoinParams, JoinedAs, NotJoined, RoomKey, RoomSite, SeatChange, SeatKey,
        SeatToken, ToRoom,
    },
};
use dunlin_protocol::{Encoding, Payload, UnsubscribeCode};
use dunlin_rooms::{CellIndex, Grid, GridShape, Refusal, Schema, TickUpdate};

use crate::{
    Output, RelayEffect,
    format::{
        Audience, Change, Claim, Document, Join, JoinOutcome, JoiningPlayer, Leaving, Map, RoomId, Seat, TickPart,
        ToEdge, ToHost, Update,
    },
};

/// The code and text of the answer to a message of the backend.
const ELSEWHERE_CODE: u16 = 421;
const ELSEWHERE: &str = "the room is open on another node of the cluster: room_info says on which";

/// The rooms of other nodes.
#[derive(Debug)]
pub(crate) struct RemoteRooms {
    /// Shards of this node.
    shard_count: u16,
    rooms: BTreeMap<RoomKey, RemoteRoom>,
    /// The room on this node, by its node and its number there.
    by_site: BTreeMap<(Arc<str>, RoomId), RoomKey>,
}

#[derive(Debug)]
struct RemoteRoom {
    channel: Arc<str>,
    site: RoomSite,
    /// Joins that the room has not answered.
    requests: BTreeMap<SeatKey, Box<SubscriptionRequest>>,
    /// Players that have joined.
    seats: BTreeSet<SeatKey>,
    /// What its first keyframe says; `None` before it.
    world: Option<RemoteWorld>,
    /// The game has closed it; the owner will confirm.
    is_closing: bool,
}

/// What all keyframes of a room say. Shards that have the world keep what theirs has said, and updates are read with it.
#[derive(Clone, Debug, PartialEq)]
struct RemoteWorld {
    map: Map,
    /// The number of cells of the map.
    cells: usize,
    schema: Arc<Schema>,
}

/// The other node has sent what no room sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

impl RemoteRooms {
    pub(crate) fn new(shard_count: u16) -> Self {
        Self { shard_count, rooms: BTreeMap::new(), by_site: BTreeMap::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.rooms.len()
    }

    pub(crate) fn player_count(&self) -> usize {
        self.rooms.values().map(|room| room.seats.len()).sum()
    }

    /// Whether this node has players, or joins, in rooms of a node.
    pub(crate) fn uses(&self, node: &Arc<str>) -> bool {
        let first = (Arc::clone(node), RoomId { owner: 0, number: 0 });
        let mut rooms = self.by_site.range(first..).take_while(|((of, _), _)| of == node);
        rooms.any(|(_, key)| self.rooms.get(key).is_some_and(RemoteRoom::is_used))
    }

    /// Processes a message for a room.
    pub(crate) fn take(&mut self, message: ToRoom, out: &mut Output) {
        let key = message.room();
        if let ToRoom::OpenRemote { room, channel, site } = message {
            self.by_site.insert((Arc::clone(&site.node), room_id(site.room)), room);
            let remote = RemoteRoom {
                channel,
                site: *site,
                requests: BTreeMap::new(),
                seats: BTreeSet::new(),
                world: None,
                is_closing: false,
            };
            self.rooms.insert(room, remote);
            return;
        }
        let Some(room) = self.rooms.get_mut(&key) else {
            // The room has ended while the message was on its way.
            if let ToRoom::Join { room, request } = message {
                out.effects.push(not_joined(room, request, NotJoined::Unavailable));
            }
            return;
        };
        match message {
            ToRoom::Join { request, .. } => {
                let (seat, join) = room.join(&request);
                room.requests.insert(seat, request);
                out.send_to_host(&room.site.node, join);
            }
            ToRoom::Leave { seat, departure, .. } => {
                room.seats.remove(&seat);
                out.send_to_host(&room.site.node, room.leave(seat, departure));
                // Nobody waits for the room's answer, which may take long.
                if departure == Departure::Unanswered
                    && let Some(request) = room.requests.remove(&seat)
                {
                    out.effects.push(not_joined(key, request, NotJoined::Gone));
                }
                self.close_if_unused(key, out);
            }
            ToRoom::Input { seat, number, data, .. } => {
                let (room_id, seat) = (room_id(room.site.room), seat_of(seat));
                out.send_to_host(&room.site.node, ToHost::Input { room: room_id, seat, number, data: data.into() });
            }
            ToRoom::Message { id, .. } | ToRoom::ChangeListing { id, .. } | ToRoom::Kick { id, .. } => {
                let answer = Err(Refusal { code: ELSEWHERE_CODE, message: ELSEWHERE.into() });
                let channel = Arc::clone(&room.channel);
                out.effects.push(to_owner(key, FromRoom::Answered { room: key, channel, id, answer }));
            }
            // Only matchmaking reserves places, and it does not run in a cluster.
            ToRoom::ReservePlaces { .. } => {}
            ToRoom::Carried { .. } => unreachable!("its keyframes ask for nothing"),
            ToRoom::Close { .. } => self.remove(key, out),
            ToRoom::Open { .. } | ToRoom::OpenRemote { .. } => unreachable!("room threads open rooms of this node"),
        }
    }

    /// Processes a message of a room's node.
    ///
    /// # Errors
    /// If a room cannot have sent it.
    pub(crate) fn receive(&mut self, from: &Arc<str>, message: ToEdge, out: &mut Output) -> Result<(), Malformed> {
        // The room has ended here while the message was on its way.
        let Some(&key) = self.by_site.get(&(Arc::clone(from), message.room())) else { return Ok(()) };
        match message {
            ToEdge::Joined { seat, outcome, .. } => {
                let seat = self.seat_here(seat)?;
                let room = self.room_mut(key);
                let is_over = outcome == JoinOutcome::Unavailable;
                // Without a request, the session of the join has ended.
                if let Some(request) = room.requests.remove(&seat) {
                    let outcome = outcome_of(outcome);
                    if outcome.is_ok() {
                        room.seats.insert(seat);
                    }
                    out.effects.push(to_owner(key, FromRoom::Joined { room: key, request, outcome }));
                }
                if is_over {
                    // The room is no longer there. The next join asks all nodes for it.
                    self.end(key, UnsubscribeCode::ROOM_FAILED, None, out);
                } else {
                    self.close_if_unused(key, out);
                }
            }
            ToEdge::Keyframe { shards, map, update, .. } => {
                let (grid, ticks_per_second) = (grid_of(map)?, map.ticks_per_second);
                let keyframe = Arc::new(TickUpdate::from_bytes(&update.0).map_err(|_| Malformed)?);
                let room = self.room_mut(key);
                let world = RemoteWorld { map, cells: grid.len(), schema: Arc::clone(keyframe.schema()) };
                if *room.world.get_or_insert_with(|| world.clone()) != world {
                    return Err(Malformed);
                }
                let channel = Arc::clone(&room.channel);
                for shard in shards {
                    let (shard, channel, grid) = (self.shard_here(shard)?, Arc::clone(&channel), grid.clone());
                    let keyframe = Arc::clone(&keyframe);
                    // What its players are sent is not told to the room: an older node does not know such a message.
                    let is_recorded = false;
                    let message =
                        FromRoom::Keyframe { room: key, channel, grid, ticks_per_second, keyframe, is_recorded };
                    out.effects.push(RelayEffect::ToShard { shard, message });
                }
            }
            // It was on its way to players from before the room was closed and opened again here.
            ToEdge::Tick { .. } if self.room_mut(key).world.is_none() => {}
            ToEdge::Tick { update, parts, .. } => {
                let update = Arc::new(self.room_mut(key).update(&update)?);
                for part in parts {
                    let (shard, inputs_taken) = (self.shard_here(part.shard)?, part.inputs_taken);
                    let changes = self.room_mut(key).changes(part)?;
                    let message = FromRoom::Tick { room: key, update: Arc::clone(&update), changes, inputs_taken };
                    out.effects.push(RelayEffect::ToShard { shard, message });
                }
            }
            ToEdge::Event { data, audience, .. } => {
                let (channel, data) = (Arc::clone(&self.room_mut(key).channel), Payload::from_opaque(data.into()));
                if !data.is_json() {
                    return Err(Malformed);
                }
                let audience = audience.map(|audience| Box::new(audience_of(audience)));
                let data = Payload::from_json(data.bytes().clone());
                out.effects.push(to_owner(key, FromRoom::Event { room: key, channel, data, audience }));
            }
            ToEdge::Unseated { seat, code, reason, .. } => {
                let (seat, code) = (self.seat_here(seat)?, UnsubscribeCode(code));
                let message = FromRoom::Unseated { room: key, seat, code, reason: reason.map(Arc::from) };
                out.effects.push(RelayEffect::ToShard { shard: seat.shard, message });
            }
            ToEdge::Over { code, reason, .. } => self.end(key, UnsubscribeCode(code), reason.as_deref(), out),
        }
        Ok(())
    }

    fn room_mut(&mut self, key: RoomKey) -> &mut RemoteRoom {
        self.rooms.get_mut(&key).expect("both tables have the same rooms")
    }

    fn shard_here(&self, shard: u16) -> Result<ShardIndex, Malformed> {
        if shard < self.shard_count { Ok(ShardIndex(shard)) } else { Err(Malformed) }
    }

    fn seat_here(&self, seat: Seat) -> Result<SeatKey, Malformed> {
        let Seat { shard, index, generation } = seat;
        Ok(SeatKey { shard: self.shard_here(shard)?, index, generation })
    }

    /// A node is gone, or the stream of its messages has a gap: its rooms end here.
    pub(crate) fn lose(&mut self, node: &Arc<str>, out: &mut Output) -> usize {
        let of_node = |(_, room): &(&RoomKey, &RemoteRoom)| room.site.node == *node;
        let lost: Vec<RoomKey> = self.rooms.iter().filter(of_node).map(|(key, _)| *key).collect();
        for key in &lost {
            self.end(*key, UnsubscribeCode::ROOM_FAILED, None, out);
        }
        lost.len()
    }

    /// A room has ended on its node.
    fn end(&mut self, key: RoomKey, code: UnsubscribeCode, reason: Option<&str>, out: &mut Output) {
        let Some(room) = self.rooms.get_mut(&key) else { return };
        let channel = Arc::clone(&room.channel);
        if code == UnsubscribeCode::ROOM_CLOSED && !room.is_closing {
            // The owner ends the subscriptions, and answers with the last message about the room. Joins are answered behind
            // that: the owner tells their clients that the room was closed, and asks for no other one.
            room.is_closing = true;
            let reason = reason.unwrap_or(code.reason()).into();
            out.effects.push(to_owner(key, FromRoom::Closing { room: key, channel, reason }));
        } else if code != UnsubscribeCode::ROOM_CLOSED {
            self.remove(key, out);
            out.effects.push(to_owner(key, FromRoom::Failed { room: key, channel, refusal: None }));
        }
    }

    /// Without players, the owner asks the nodes again for the next join: the room may have moved.
    fn close_if_unused(&mut self, key: RoomKey, out: &mut Output) {
        if let Some(room) = self.rooms.get(&key).filter(|room| !room.is_used()) {
            let channel = Arc::clone(&room.channel);
            out.effects.push(to_owner(key, FromRoom::Idle { room: key, channel }));
        }
    }

    fn remove(&mut self, key: RoomKey, out: &mut Output) {
        let Some(mut room) = self.rooms.remove(&key) else { return };
        self.by_site.remove(&(Arc::clone(&room.site.node), room_id(room.site.room)));
        room.refuse_joins(key, out);
        for seat in &room.seats {
            out.send_to_host(&room.site.node, room.leave(*seat, Departure::Left));
        }
    }
}

impl RemoteRoom {
    /// Whether it has players or joins of this node.
    fn is_used(&self) -> bool {
        !self.seats.is_empty() || !self.requests.is_empty()
    }

    fn join(&self, request: &SubscriptionRequest) -> (SeatKey, ToHost) {
        let join = request.join.as_deref().expect("a room's subscription says what joining takes");
        // Players of other nodes wait on their own node.
        let JoinParams { seat, info, address, is_spectator, is_typed, data, claim, .. } = join;
        let is_protobuf = request.subscriber.class.encoding() == Encoding::Protobuf;
        let document = |payload: &Payload| Document { is_json: payload.is_json(), bytes: payload.bytes().to_vec() };
        let player = JoiningPlayer {
            user: (*info.user).into(),
            client: (*info.client).into(),
            connection_info: info.conn_info.as_ref().map(document),
            channel_info: info.chan_info.as_ref().map(document),
            address: *address,
            is_spectator: *is_spectator,
            is_protobuf,
            data: data.to_vec(),
            claim: Claim {
                given: claim.given.map(|SeatToken(token)| token),
                returned: claim.returned.map(|SeatToken(token)| token),
                is_one_per_user: claim.is_one_per_user,
                keeps_returned: claim.keeps_returned,
            },
        };
        let join = Join {
            room: room_id(self.site.room),
            thread: self.site.thread.0,
            channel: (*self.channel).into(),
            seat: seat_of(*seat),
            player: Box::new(player),
        };
        // In JSON, changed objects have all their fields, which whole states have as well: nodes send these alone.
        let receives_changes = *is_typed && is_protobuf && self.site.sends_changes;
        (*seat, if receives_changes { ToHost::TypedJoin(join) } else { ToHost::Join(join) })
    }

    /// Refuses the joins that the room has not answered. It may have accepted them, or may be about to.
    fn refuse_joins(&mut self, key: RoomKey, out: &mut Output) {
        for (seat, request) in std::mem::take(&mut self.requests) {
            out.send_to_host(&self.site.node, self.leave(seat, Departure::Unanswered));
            out.effects.push(not_joined(key, request, NotJoined::Unavailable));
        }
    }

    fn leave(&self, seat: SeatKey, departure: Departure) -> ToHost {
        let how = match departure {
            Departure::Left => Leaving::Left,
            Departure::Lost => Leaving::Lost,
            Departure::Unanswered => Leaving::Unanswered,
        };
        ToHost::Leave { room: room_id(self.site.room), seat: seat_of(seat), how }
    }

    /// An update after the first keyframe.
    fn update(&self, bytes: &Update) -> Result<TickUpdate, Malformed> {
        let RemoteWorld { map, schema, .. } = self.world.as_ref().expect("the caller has seen a keyframe");
        TickUpdate::from_bytes_in(&bytes.0, schema, map.cell_units).map_err(|_| Malformed)
    }

    /// The changes of the players of one shard. A mirror shows any cell of its map, and no other.
    fn changes(&self, part: TickPart) -> Result<Vec<SeatChange>, Malformed> {
        let cells = self.world.as_ref().map_or(0, |world| world.cells);
        let change = |change: Change| {
            let Change { index, generation, view, ack, avatar, own } = change;
            let seat = SeatKey { shard: ShardIndex(part.shard), index, generation };
            let own = own.map(|own| own.into_vec().into());
            let is_on_map = usize::try_from(view).is_ok_and(|view| view < cells);
            let change = SeatChange { seat, view: CellIndex(view), ack, avatar, own };
            if is_on_map { Ok(change) } else { Err(Malformed) }
        };
        part.changes.into_iter().map(change).collect()
    }
}

fn to_owner(key: RoomKey, message: FromRoom) -> RelayEffect {
    RelayEffect::ToShard { shard: key.owner, message }
}

fn not_joined(room: RoomKey, request: Box<SubscriptionRequest>, why: NotJoined) -> RelayEffect {
    to_owner(room, FromRoom::Joined { room, request, outcome: Err(why) })
}

fn outcome_of(outcome: JoinOutcome) -> Result<JoinedAs, NotJoined> {
    match outcome {
        JoinOutcome::Joined { is_back } => Ok(JoinedAs { is_back }),
        JoinOutcome::Refused { code, message } => Err(NotJoined::Refused(Refusal { code, message })),
        JoinOutcome::Reserved => Err(NotJoined::Reserved),
        JoinOutcome::Gone => Err(NotJoined::Gone),
        JoinOutcome::Unavailable => Err(NotJoined::Unavailable),
    }
}

fn grid_of(map: Map) -> Result<Grid, Malformed> {
    let Map { columns, rows, cell_units, near_cells, far_cells, far_interval_ticks, ticks_per_second: _ } = map;
    let shape = GridShape { columns, rows, cell_units, near_cells, far_cells, far_interval_ticks };
    Grid::new(shape).map_err(|_| Malformed)
}

fn audience_of(audience: Audience) -> EventAudience {
    let mut seats: Vec<SeatKey> = audience.seats.into_iter().map(seat_key).collect();
    seats.sort_unstable();
    EventAudience { seats: seats.into(), users: audience.users.into_iter().map(Arc::from).collect() }
}

pub(crate) const fn room_id(key: RoomKey) -> RoomId {
    RoomId { owner: key.owner.0, number: key.number }
}

const fn seat_of(seat: SeatKey) -> Seat {
    Seat { shard: seat.shard.0, index: seat.index, generation: seat.generation }
}

const fn seat_key(seat: Seat) -> SeatKey {
    SeatKey { shard: ShardIndex(seat.shard), index: seat.index, generation: seat.generation }
}
