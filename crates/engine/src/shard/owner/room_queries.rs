//! Asks the other nodes of a cluster for a room before this node opens it. Nodes do not share rooms, so a second world
//! under the same name would divide the players, and its events would carry the same offsets.
//!
//! If two nodes ask at the same time, each is told that the other one asks. Then the node with the lower id opens the
//! room: both compare the same two ids, so exactly one of them does. A node that does not ask promises the room with its
//! answer: it would not learn from the other one, which still waits for a third node, that it was there first.

use std::{collections::BTreeMap, sync::Arc};

use dunlin_protocol::ErrorCode;
use dunlin_rooms::{Refusal, RoomOverrides};

use crate::{
    Effect,
    event::Ticket,
    log_in_flight::ParkedCost,
    message::{NotSubscribed, SubscriptionRequest},
    refused::Refused,
    room::{Opening, PROMISES_MAX, RoomElsewhere, RoomRefusal, RoomState},
};

use super::{Context, Owner, rooms::refuse_join};

/// The refusal code of joins to a room of another node. HTTP has the same code for a request to the wrong server.
const ELSEWHERE_CODE: u16 = 421;
const ELSEWHERE: &str = "the room is open on another node of the cluster: room_info says on which";
const UNANSWERED: &str = "a node of the cluster has not answered whether it has the room, or is opening it";
const TOO_MANY: &str = "room.messages_limit requests wait for the room";
const TOO_MANY_PROMISES: &str =
    "the shard has left too many rooms to nodes that have asked for them; retry in a moment";

/// A request that opens a room if no other node has it.
#[derive(Debug)]
enum WaitingRequest {
    Join(Box<SubscriptionRequest>),
    Open { ticket: Ticket, overrides: Box<RoomOverrides> },
}

/// The requests that wait for the answers of other nodes, by channel. Each channel has one query in flight. Joins count as
/// parked requests; the limits of the server API bound the others, and those of a room all of its own.
#[derive(Debug, Default)]
pub(super) struct RoomQueries {
    waiting: BTreeMap<Arc<str>, Vec<WaitingRequest>>,
    /// Until when this node leaves a room to another one that has asked for it.
    promised_until_us: BTreeMap<Arc<str>, u64>,
}

impl Owner {
    /// Whether other nodes may have the room of a channel.
    pub(super) fn should_ask_for_room(&self, context: &Context, name: &str) -> bool {
        let has_peers = context.options.log.peer_queries_max > 0 && self.rooms.has_threads();
        has_peers
            && self.channels.named(name).is_none_or(|channel| channel.room.is_none())
            && context.names.resolve(name).is_ok_and(|namespace| context.namespace(namespace).room.is_some())
    }

    /// Makes a join wait until the other nodes have answered.
    pub(super) fn ask_for_room_to_join(&mut self, context: &mut Context, request: Box<SubscriptionRequest>) {
        let cost = ParkedCost::of_subscription(&request);
        if let Err(refused) = self.log_traffic.check_parked(&context.options.log, cost) {
            return refuse_join(context, request, refused.into());
        }
        if !self.may_wait_for_room(context, &request.channel) {
            return refuse_join(context, request, Refused::new(ErrorCode::TooManyRequests, TOO_MANY).into());
        }
        self.log_traffic.note_parked(&request);
        let name = Arc::clone(&request.channel);
        self.ask_for_room(context, name, WaitingRequest::Join(request));
    }

    /// Makes a request of the server API wait until the other nodes have answered.
    pub(super) fn ask_for_room_to_open(
        &mut self,
        context: &mut Context,
        ticket: Ticket,
        name: &Arc<str>,
        overrides: &RoomOverrides,
    ) -> Result<(), Refused> {
        if !self.may_wait_for_room(context, name) {
            return Err(Refused::new(ErrorCode::TooManyRequests, TOO_MANY));
        }
        let overrides = Box::new(overrides.clone());
        self.ask_for_room(context, Arc::clone(name), WaitingRequest::Open { ticket, overrides });
        Ok(())
    }

    fn may_wait_for_room(&self, context: &Context, name: &str) -> bool {
        let namespace = context.names.resolve(name).ok();
        let limits = namespace.and_then(|namespace| context.namespace(namespace).room.as_ref());
        let waiting_max = limits.map_or(0, |limits| limits.messages_max);
        self.room_queries.waiting.get(name).is_none_or(|waiting| waiting.len() < waiting_max)
    }

    fn ask_for_room(&mut self, context: &mut Context, name: Arc<str>, request: WaitingRequest) {
        let waiting = self.room_queries.waiting.entry(Arc::clone(&name)).or_default();
        waiting.push(request);
        if waiting.len() == 1 {
            if let Ok(namespace) = context.names.resolve(&name) {
                context.count(namespace).rooms.queries += 1;
            }
            context.effects.list.push(Effect::QueryRoom { channel: name });
        }
    }

    /// The other nodes have answered.
    pub(in crate::shard) fn room_queried(&mut self, context: &mut Context, name: &Arc<str>, found: &RoomElsewhere) {
        let Some(waiting) = self.room_queries.waiting.remove(name) else {
            context.counters.late_messages += 1;
            return;
        };
        // The other node may have asked everybody before this one did, so it is not in their answers.
        let is_left = *found == RoomElsewhere::Nowhere && self.is_promised(context, name);
        let found = if is_left { &RoomElsewhere::Unanswered } else { found };
        for request in waiting {
            match request {
                WaitingRequest::Join(request) => {
                    self.log_traffic.unpark(&request);
                    match not_here(found) {
                        None => self.join_here(context, request),
                        Some(refusal) => {
                            count_refusal(context, name, refusal);
                            refuse_join(context, request, why_not_joined(found, refusal));
                        }
                    }
                }
                WaitingRequest::Open { ticket, overrides } => match not_here(found) {
                    None => self.open_room_here(context, ticket, name, &overrides),
                    Some(refusal) => {
                        count_refusal(context, name, refusal);
                        let why = if refusal == RoomRefusal::Elsewhere { ELSEWHERE } else { UNANSWERED };
                        context.answer_api(ticket, Err(Refused::new(refusal.code(), why)));
                    }
                },
            }
        }
    }

    /// The state of a channel's room on this node, for another one that asks for it. If it is neither open nor asked for,
    /// it is promised to the other one, for as long as that one may take to open it.
    ///
    /// # Errors
    /// [`ErrorCode::TooManyRequests`] beyond [`PROMISES_MAX`].
    pub(super) fn room_state_for_peer(
        &mut self,
        context: &Context,
        name: Arc<str>,
        wait_ms: u64,
    ) -> Result<RoomState, Refused> {
        if self.channels.named(&name).is_some_and(|channel| channel.room.is_some()) {
            return Ok(RoomState::Open);
        }
        // A node that has promised the room asks only where it is, and does not open it.
        if self.room_queries.waiting.contains_key(&name) && !self.is_promised(context, &name) {
            return Ok(RoomState::Asking);
        }
        let promised_until_us = &mut self.room_queries.promised_until_us;
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

    fn is_promised(&mut self, context: &Context, name: &str) -> bool {
        let promised = &mut self.room_queries.promised_until_us;
        let is_in_force = promised.get(name).is_some_and(|until_us| *until_us > context.now.mono_us);
        if !is_in_force {
            promised.remove(name);
        }
        is_in_force
    }
}

/// Why the room is not opened on this node.
const fn not_here(found: &RoomElsewhere) -> Option<RoomRefusal> {
    match found {
        RoomElsewhere::Nowhere => None,
        RoomElsewhere::Open { .. } => Some(RoomRefusal::Elsewhere),
        RoomElsewhere::Unanswered => Some(RoomRefusal::Unanswered),
    }
}

fn why_not_joined(found: &RoomElsewhere, refusal: RoomRefusal) -> NotSubscribed {
    match found {
        RoomElsewhere::Open { node } => {
            let message = format!("the room is open on the node {node}").into();
            NotSubscribed::Refused(Refusal { code: ELSEWHERE_CODE, message })
        }
        RoomElsewhere::Nowhere | RoomElsewhere::Unanswered => refusal.code().into(),
    }
}

fn count_refusal(context: &mut Context, name: &str, refusal: RoomRefusal) {
    if let Ok(namespace) = context.names.resolve(name) {
        context.count(namespace).rooms.refused[refusal as usize] += 1;
    }
}

/// Whether a join may open a room.
pub(super) fn may_open(request: &SubscriptionRequest) -> bool {
    request.join.as_ref().is_none_or(|join| !matches!(join.opening, Opening::Refused(_)))
}
