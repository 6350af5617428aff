//! Asks the other nodes of a cluster for a room before this node opens it. If one has it, joins are forwarded to that
//! node: a second world under the same name would divide the players.
//!
//! If two nodes ask at the same time, each is told that the other one asks. Then the node with the lower id opens the
//! room: both compare the same two ids, so exactly one of them does. A node that does not ask promises the room with its
//! answer: it would not learn from the other one, which still waits for a third node, that it was there first.
//!
//! A promise is for one question of the other node. This node makes none while it asks itself. So when all others answer that
//! they do not ask, the questions to which it made promises are over, and it drops these promises. If they stood until their
//! time is over, two nodes whose clients try again and again could promise a room that has failed to each other for ever.
//!
//! While a room moves from a node that stops or has died to another one, no node has it, or a node does not answer. Its
//! players join again at that moment. Their joins wait here and ask again, much sooner than SDKs would after a refusal. If
//! this node itself opens too many rooms, they wait in the line of `opening_line` instead, and ask when it is their turn.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::RangeInclusive,
    sync::Arc,
};

use dunlin_protocol::ErrorCode;
use dunlin_rooms::{Refusal, RoomOverrides};
use hashbrown::HashMap;

use crate::{
    Effect,
    event::Ticket,
    log_in_flight::{ParkedCost, ParkedTotals},
    message::{NotSubscribed, SubscriptionRequest},
    refused::Refused,
    room::{Opening, PROMISES_MAX, RoomElsewhere, RoomKey, RoomRefusal, RoomState, SeatKey},
    shrink::shrink_map,
    timers::{Scheduled, TimerOwner},
};

use super::{Context, opening_line::PlaceInLine};

/// The refusal code of joins to a room of another node. HTTP has the same code for a request to the wrong server.
const ELSEWHERE_CODE: u16 = 421;
pub(super) const ELSEWHERE: &str = "the room is open on another node of the cluster: room_info says on which";
pub(super) const UNANSWERED: &str = "a node of the cluster has not answered whether it has the room, or is opening it";
pub(super) const TOO_MANY: &str = "room.messages_limit requests wait for the room";
const TOO_MANY_HELD: &str = "too many joins wait until their clients read: channel.waiting_requests_limit and channel.waiting_requests_size_limit bound them";
const TOO_MANY_PROMISES: &str =
    "the shard has left too many rooms to nodes that have asked for them; retry in a moment";

/// A request that opens a room if no other node has it.
#[derive(Debug)]
pub(super) enum WaitingRequest {
    Join(Box<SubscriptionRequest>),
    Open { ticket: Ticket, overrides: Box<RoomOverrides> },
}

/// A join that is not answered yet.
#[derive(Debug)]
struct UnansweredJoin {
    place: JoinPlace,
    /// Whether nobody waits for the answer any more.
    is_abandoned: bool,
}

/// Where a join is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JoinPlace {
    /// It waits for the answers of other nodes, or to ask them again.
    Here,
    /// Its session holds it, until the answer fits into the session's queue. The room counts it as pending.
    Session { room: RoomKey, cost: ParkedCost },
    /// A room has it.
    Room,
}

/// The requests that wait for the answers of other nodes, by channel. Each channel has one query in flight. Joins count as
/// parked requests of the shard. As many requests of the server API wait for a room as it may have messages.
#[derive(Debug, Default)]
pub(in crate::shard) struct RoomQueries {
    waiting: BTreeMap<Arc<str>, Vec<WaitingRequest>>,
    /// Until when this node leaves a room to another one that has asked for it.
    promised_until_us: BTreeMap<Arc<str>, u64>,
    /// Joins that ask again in a moment. Meanwhile, this node answers other nodes that it does not ask.
    pausing: BTreeMap<Arc<str>, Pausing>,
    /// In a cluster, the joins that are here, in rooms, or held by their sessions. Bounded by the subscriptions of all sessions.
    unanswered: HashMap<SeatKey, UnansweredJoin, foldhash::quality::FixedState>,
    /// What the joins that sessions hold count for. They have the limits of parked requests, and do not count as such: how long
    /// they are held depends on their clients.
    held: ParkedTotals,
}

/// Joins of a channel that ask again later.
#[derive(Debug, Default)]
pub(super) struct Pausing {
    /// In the order in which they have waited long enough.
    pub(super) joins: VecDeque<Box<SubscriptionRequest>>,
    /// Set if they wait until this node may open the room.
    pub(super) in_line: Option<PlaceInLine>,
    /// When those in the line that have waited too long may ask a last time: they do so together.
    pub(super) last_ask_us: u64,
    scheduled: Scheduled,
}

impl Pausing {
    fn add(&mut self, request: Box<SubscriptionRequest>) {
        let until_us = waits_until_us(&request);
        let at = self.joins.partition_point(|other| waits_until_us(other) <= until_us);
        self.joins.insert(at, request);
    }
}

/// Time after which a join asks again: half of the time that it has waited, within these bounds. All rooms of a node that
/// has died are asked for at the same time, and a question goes to all nodes.
const ASK_AGAIN_MS: RangeInclusive<u64> = 50..=400;

fn pause_ms(request: &SubscriptionRequest, now_us: u64) -> u64 {
    let waited_ms = now_us.saturating_sub(request.asked_us) / 1_000;
    (waited_ms / 2).clamp(*ASK_AGAIN_MS.start(), *ASK_AGAIN_MS.end())
}

impl RoomQueries {
    /// Whether one more request of the server API may wait for the room of a channel.
    pub(super) fn may_wait_to_open(&self, context: &Context, name: &str) -> bool {
        let namespace = context.names.resolve(name).ok();
        let limits = namespace.and_then(|namespace| context.namespace(namespace).room.as_ref());
        let waiting_max = limits.map_or(0, |limits| limits.messages_max);
        let waiting = self.waiting.get(name).into_iter().flatten();
        waiting.filter(|request| matches!(request, WaitingRequest::Open { .. })).count() < waiting_max
    }

    /// The number of joins that are not answered yet.
    pub(in crate::shard) fn unanswered(&self) -> usize {
        self.unanswered.len()
    }

    /// A join is here now, or in a room, until [`RoomQueries::end_stay`].
    pub(super) fn begin_stay(&mut self, context: &Context, request: &SubscriptionRequest, place: JoinPlace) {
        // Without other nodes, no join asks again.
        if let Some(join) = request.join.as_ref().filter(|_| context.options.log.has_peers()) {
            self.unanswered.insert(join.seat, UnansweredJoin { place, is_abandoned: false });
        }
    }

    /// The session of a join holds it, until [`RoomQueries::end_hold`].
    ///
    /// # Errors
    /// Sessions hold too many joins.
    pub(super) fn begin_hold(
        &mut self,
        context: &Context,
        request: &SubscriptionRequest,
        room: RoomKey,
    ) -> Result<(), Refused> {
        let Some(join) = &request.join else { return Err(ErrorCode::Internal.into()) };
        let cost = ParkedCost::of_subscription(request);
        if self.held.exceeded(cost, &context.options.log).is_some() {
            return Err(Refused::new(ErrorCode::TooManyRequests, TOO_MANY_HELD));
        }
        self.held.add(cost);
        let place = JoinPlace::Session { room, cost };
        self.unanswered.insert(join.seat, UnansweredJoin { place, is_abandoned: false });
        Ok(())
    }

    /// A join that its session held has come back, or will not; returns the room that counts it.
    pub(super) fn end_hold(&mut self, seat: SeatKey) -> Option<RoomKey> {
        let JoinPlace::Session { room, cost } = self.unanswered.get(&seat)?.place else { return None };
        self.unanswered.remove(&seat);
        shrink_map(&mut self.unanswered);
        self.held.remove(cost);
        Some(room)
    }

    /// Returns whether somebody still waits for the answer to the join.
    pub(super) fn end_stay(&mut self, request: &SubscriptionRequest) -> bool {
        let unanswered = request.join.as_ref().and_then(|join| self.unanswered.remove(&join.seat));
        shrink_map(&mut self.unanswered);
        unanswered.is_none_or(|unanswered| !unanswered.is_abandoned)
    }

    /// Makes a request wait. The first one of a channel asks the other nodes.
    pub(super) fn add(&mut self, context: &mut Context, name: Arc<str>, request: WaitingRequest) {
        let waiting = self.waiting.entry(Arc::clone(&name)).or_default();
        waiting.push(request);
        if waiting.len() == 1 {
            if let Ok(namespace) = context.names.resolve(&name) {
                context.count(namespace).rooms.queries += 1;
            }
            context.effects.list.push(Effect::QueryRoom { channel: name });
        }
    }

    /// Nobody waits for the answer to a join any more. Returns whether the join waits here.
    pub(super) fn abandon(&mut self, seat: SeatKey) -> bool {
        // It may be answered by now.
        let Some(join) = self.unanswered.get_mut(&seat) else { return false };
        join.is_abandoned = true;
        join.place == JoinPlace::Here
    }

    /// Takes the requests that waited for the room of a channel; `None` if none did.
    pub(super) fn take(&mut self, name: &str) -> Option<Vec<WaitingRequest>> {
        self.waiting.remove(name)
    }

    /// A join asks again in a moment.
    pub(super) fn pause(&mut self, context: &mut Context, request: Box<SubscriptionRequest>) {
        let name = Arc::clone(&request.channel);
        let due_us = context.now.after_ms(pause_ms(&request, context.now.mono_us));
        let pausing = self.pausing.entry(Arc::clone(&name)).or_default();
        pausing.add(request);
        context.timers.schedule(&mut pausing.scheduled, due_us, || TimerOwner::Channel(name));
    }

    /// A join asks again when this node may open the room. `enter` gives its channel a place in the line.
    pub(super) fn wait_in_line(
        &mut self,
        context: &mut Context,
        request: Box<SubscriptionRequest>,
        enter: impl FnOnce(Arc<str>) -> PlaceInLine,
    ) {
        let name = Arc::clone(&request.channel);
        let pausing = self.pausing.entry(Arc::clone(&name)).or_default();
        pausing.in_line.get_or_insert_with(|| enter(Arc::clone(&name)));
        let until_us = waits_until_us(&request);
        pausing.add(request);
        context.timers.schedule(&mut pausing.scheduled, until_us, || TimerOwner::Channel(name));
    }

    /// A channel's timer has expired. Returns whether it is that of its joins.
    pub(super) fn take_timer(&mut self, due_us: u64, name: &str) -> bool {
        self.pausing.get_mut(name).is_some_and(|pausing| pausing.scheduled.take(due_us))
    }

    /// The joins of a channel that are to ask again, if there are any.
    pub(super) fn pausing(&mut self, name: &str) -> Option<&mut Pausing> {
        self.pausing.get_mut(name)
    }

    /// Takes the joins of a channel in the line that have waited too long, and wakes the others in time. Each question goes to all
    /// nodes, so those that follow shortly ask together.
    pub(super) fn take_overdue(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
    ) -> VecDeque<Box<SubscriptionRequest>> {
        let now_us = context.now.mono_us;
        let Some(pausing) = self.pausing.get_mut(name) else { return VecDeque::new() };
        let mut overdue = VecDeque::new();
        if pausing.last_ask_us <= now_us {
            while let Some(request) = pausing.joins.pop_front_if(|request| waits_until_us(request) <= now_us) {
                overdue.push_back(request);
            }
        }
        if !overdue.is_empty() {
            pausing.last_ask_us = context.now.after_ms(*ASK_AGAIN_MS.end());
        }
        if let Some(until_us) = pausing.joins.front().map(|request| waits_until_us(request)) {
            let due_us = until_us.max(pausing.last_ask_us);
            context.timers.schedule(&mut pausing.scheduled, due_us, || TimerOwner::Channel(Arc::clone(name)));
        }
        overdue
    }

    /// Wakes the joins of a channel at `due_us`, or earlier.
    pub(super) fn wake_at(&mut self, context: &mut Context, name: &Arc<str>, due_us: u64) {
        if let Some(pausing) = self.pausing.get_mut(name) {
            context.timers.schedule(&mut pausing.scheduled, due_us, || TimerOwner::Channel(Arc::clone(name)));
        }
    }

    /// Takes the joins of a channel that were to ask again.
    pub(super) fn take_pausing(&mut self, context: &mut Context, name: &str) -> Pausing {
        let pausing = self.pausing.remove(name).unwrap_or_default();
        context.timers.abandon(pausing.scheduled);
        pausing
    }

    /// Whether the other nodes are asked for the room of a channel now.
    pub(super) fn is_asking(&self, name: &str) -> bool {
        self.waiting.contains_key(name)
    }

    pub(in crate::shard) fn asks_again_at(&self, name: &str, due_us: u64) -> bool {
        self.pausing.get(name).is_some_and(|pausing| pausing.scheduled.is_at(due_us))
    }

    /// The state of a room that is not open on this node, for another one that asks for it. If this node has not asked for
    /// it, it is promised to the other one, for as long as that one may take to open it.
    ///
    /// # Errors
    /// [`ErrorCode::TooManyRequests`] beyond [`PROMISES_MAX`].
    pub(super) fn state_for_peer(
        &mut self,
        context: &Context,
        name: Arc<str>,
        wait_ms: u64,
    ) -> Result<RoomState, Refused> {
        // Also if it has promised the room to a third node: it may open the room after all.
        if self.is_asking(&name) {
            return Ok(RoomState::Asking);
        }
        let promised_until_us = &mut self.promised_until_us;
        let now_us = context.now.mono_us;
        if promised_until_us.len() >= PROMISES_MAX {
            promised_until_us.retain(|_, until_us| *until_us > now_us);
            if promised_until_us.len() >= PROMISES_MAX {
                return Err(Refused::new(ErrorCode::TooManyRequests, TOO_MANY_PROMISES));
            }
        }
        promised_until_us.insert(name, context.now.after_ms(wait_ms.saturating_mul(2)));
        Ok(RoomState::None)
    }

    /// Whether the answers leave the room to this node, and it has not promised it to another one.
    pub(super) fn may_open(&mut self, context: &Context, name: &str, is_contended: bool) -> bool {
        if is_contended {
            return !self.is_promised(context, name);
        }
        self.promised_until_us.remove(name);
        true
    }

    fn is_promised(&mut self, context: &Context, name: &str) -> bool {
        let promised = &mut self.promised_until_us;
        let is_in_force = promised.get(name).is_some_and(|until_us| *until_us > context.now.mono_us);
        if !is_in_force {
            promised.remove(name);
        }
        is_in_force
    }
}

/// Why the room is not opened on this node.
pub(super) const fn not_here(found: &RoomElsewhere) -> Option<RoomRefusal> {
    match found {
        RoomElsewhere::Nowhere { .. } => None,
        RoomElsewhere::Open { .. } => Some(RoomRefusal::Elsewhere),
        RoomElsewhere::Unanswered => Some(RoomRefusal::Unanswered),
    }
}

pub(super) fn why_not_joined(found: &RoomElsewhere, refusal: RoomRefusal) -> NotSubscribed {
    match found {
        RoomElsewhere::Open { node, .. } => {
            let message = format!("the room is open on the node {node}").into();
            NotSubscribed::Refused(Refusal { code: ELSEWHERE_CODE, message })
        }
        RoomElsewhere::Nowhere { .. } | RoomElsewhere::Unanswered => refusal.code().into(),
    }
}

pub(super) fn count_refusal(context: &mut Context, name: &str, refusal: RoomRefusal) {
    if let Ok(namespace) = context.names.resolve(name) {
        context.count(namespace).rooms.refused[refusal as usize] += 1;
    }
}

/// Until when a join waits for its room.
pub(super) fn waits_until_us(request: &SubscriptionRequest) -> u64 {
    request.join.as_ref().map_or(0, |join| join.waits_until_us)
}

/// Whether a join may open a room.
pub(super) fn may_open(request: &SubscriptionRequest) -> bool {
    request.join.as_ref().is_none_or(|join| !matches!(join.opening, Opening::Refused(_)))
}
