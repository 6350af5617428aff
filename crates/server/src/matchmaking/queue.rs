//! The task that runs the queues and the lobbies. It receives requests, places tickets ten times per second, and
//! performs the effects.

use std::{
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use dunlin_config::MatchSettings;
use dunlin_engine::{
    api::{ApiRequest, PlaceReservation},
    backend::PublishHow,
};
use dunlin_matchmaking::{
    EndReason, MatchEffect, MatchRefusal, Matchmaker, RoomState, TicketId, TicketRequest, TicketStatus,
};
use dunlin_protocol::Payload;
use futures_util::{StreamExt as _, stream};
use serde::Serialize;
use tokio::{
    sync::oneshot,
    task::{JoinError, JoinSet},
    time::MissedTickBehavior,
};

use super::{
    Asker, HandedTickets, MatchHandle, MatchReport, MatchRequest, MatchTask, MatchmakingReport, NamedTicket,
    PUBLICATIONS_AT_ONCE, QueuePeerCounts, Reply, TakenTickets, TicketAnswer, TicketCommand, TicketFault, TicketName,
    TicketRequester, TicketTarget, Verdicts,
    cluster_rooms::{KnownRoom, NodeAnswer},
    hand_over::{Arrived, Batch},
    lobby::{self, Listed, Lobby},
    openings::{Opened, Openings, opened_room, params},
    queue_peers::{PeerAnswer, QueuePeers, handed_at_once},
    remembered::bound_users,
    reservation_number::{Reserved, reservation_number},
    reserving::{Placement, Reserving},
    ticket_names::TicketNames,
};
use crate::{node::Node, peers::OpenRoomOrder};

/// Interval at which tickets are placed.
const PLACE_INTERVAL: Duration = Duration::from_millis(100);
/// Number of intervals between two reports of the rooms.
const PLACINGS_PER_REPORT: u32 = 5;

struct Queue {
    settings: MatchSettings,
    matchmaker: Matchmaker,
    /// Of tickets that were handed over.
    names: TicketNames,
    busy_ns: u64,
    longest_ns: u64,
}

struct Queues {
    node: Node,
    handle: MatchHandle,
    boot: u32,
    started: Instant,
    queues: Vec<Queue>,
    lobbies: Vec<Lobby>,
    listed_rooms: JoinSet<Listed>,
    openings: Openings,
    reserving: Reserving,
    peers: QueuePeers,
    leave: Leave,
}

/// How far the node is in leaving its cluster.
enum Leave {
    No,
    /// The node has stopped, and the sender is told when no ticket waits here.
    Waits(oneshot::Sender<()>),
    Done,
}

/// The publication in the channel of a user.
#[derive(Serialize)]
struct NoticeJson<'n> {
    r#match: NoticeFields<'n>,
}

#[derive(Serialize)]
struct NoticeFields<'n> {
    namespace: &'n str,
    ticket: String,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    channel: Option<&'n str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    users: &'n [&'n str],
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

pub(super) async fn run(task: MatchTask, node: Node, own: Box<str>) {
    let MatchTask { mut requests, handle, lobbies, boot, forwards } = task;
    let queue = |settings: &MatchSettings| Queue {
        // Room channels differ between two starts, because clients may still know the channels of the previous start.
        matchmaker: Matchmaker::new(settings.rules.clone(), &format!("{}match-{boot:08x}-", settings.channel_prefix)),
        settings: settings.clone(),
        names: TicketNames::default(),
        busy_ns: 0,
        longest_ns: 0,
    };
    let mut queues = Queues {
        openings: Openings::new(node.clone()),
        reserving: Reserving::new(node.clone()),
        peers: QueuePeers::new(node.clone(), own, &handle.region, forwards),
        leave: Leave::No,
        node,
        boot,
        started: Instant::now(),
        queues: handle.settings.iter().map(queue).collect(),
        lobbies: lobbies.into_iter().map(Lobby::new).collect(),
        listed_rooms: JoinSet::new(),
        handle,
    };
    let mut ticks = tokio::time::interval(PLACE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut placings: u32 = 0;
    while !queues.has_ended() {
        tokio::select! {
            request = requests.recv() => match request {
                Some(request) => queues.take(request).await,
                None => return,
            },
            opened = queues.openings.next() => queues.on_opened(opened).await,
            sent = queues.reserving.next() => {
                let placements = queues.reserving.on_sent(sent);
                queues.tell_placed(placements).await;
            }
            Some(listed) = queues.listed_rooms.join_next() => queues.on_listed(listed),
            answer = queues.peers.next() => queues.on_answer(answer).await,
            _ = ticks.tick() => {
                queues.follow_site().await;
                if placings.is_multiple_of(PLACINGS_PER_REPORT) {
                    queues.begin_report().await;
                    queues.sweep();
                }
                placings = placings.wrapping_add(1);
                queues.place().await;
                let report = queues.report();
                *queues.handle.report.lock().unwrap_or_else(PoisonError::into_inner) = report;
            }
        }
    }
}

impl Queues {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    async fn take(&mut self, request: MatchRequest) {
        match request {
            MatchRequest::Command { command, reply, .. } if self.peers.is_moving(&command) => {
                reply(Err(TicketFault::Unreachable));
            }
            MatchRequest::Command { command, asker, reply } if asker != Asker::Node && !self.is_here(&command) => {
                self.peers.forward(command, asker, reply, &self.handle);
            }
            MatchRequest::Command { command, reply, .. } => self.carry_out(command, reply).await,
            MatchRequest::HandOver { leaving, handed, reply } => {
                if let Some(node) = leaving {
                    self.peers.note_leaving(node);
                }
                // An error means that the other node has stopped waiting.
                let _ = reply.send(self.take_over(handed));
            }
            MatchRequest::Enter { lost } => self.enter(lost),
            MatchRequest::Leave { reply } => self.leave = Leave::Waits(reply),
        }
    }

    /// A node of a cluster whose shards have stopped still hands over its tickets.
    fn has_ended(&self) -> bool {
        self.node.has_stopped() && (matches!(self.leave, Leave::Done) || !self.peers.has_cluster())
    }

    /// Whether a command is for this node: its ticket is here, or would be.
    fn is_here(&self, command: &TicketCommand) -> bool {
        match command {
            TicketCommand::Submit { .. } => self.peers.is_here(),
            TicketCommand::Confirm { ticket, .. } => self.find_named(*ticket).is_ok(),
            TicketCommand::Cancel(target) | TicketCommand::Status(target) => self.find(target).is_ok(),
        }
    }

    async fn carry_out(&mut self, command: TicketCommand, reply: Reply) {
        let now_ms = self.now_ms();
        match command {
            TicketCommand::Submit { namespace, request, requester } => {
                match self.submit(now_ms, &namespace, request, requester.as_ref()) {
                    Ok((index, id)) => {
                        reply(self.answer(index, id));
                        self.invite(index, id).await;
                    }
                    Err(fault) => reply(Err(fault)),
                }
            }
            TicketCommand::Confirm { ticket, user } => {
                let confirmed = self.find_named(ticket).and_then(|(index, id)| {
                    let confirmed = self.queues[index].matchmaker.confirm(now_ms, id, &user);
                    confirmed.map(|()| (index, id)).map_err(TicketFault::Refused)
                });
                reply(confirmed.and_then(|(index, id)| self.answer(index, id)));
            }
            TicketCommand::Cancel(target) => {
                let mut effects = Vec::new();
                let cancelled = self.find(&target).and_then(|(index, id, user)| {
                    let matchmaker = &mut self.queues[index].matchmaker;
                    let cancelled = matchmaker.cancel(now_ms, id, user.as_deref(), &mut effects);
                    cancelled.map(|()| (index, id)).map_err(TicketFault::Refused)
                });
                reply(cancelled.clone().and_then(|(index, id)| self.answer(index, id)));
                if let Ok((index, _)) = cancelled {
                    self.perform(index, effects).await;
                }
            }
            TicketCommand::Status(target) => {
                let status = self.find(&target).and_then(|(index, id, user)| {
                    Ok(TicketAnswer::new(self.name(index, id), self.status(index, id, user.as_deref())?))
                });
                reply(status);
            }
        }
    }

    /// Submits a ticket. Its requester counts while the ticket waits. Returns the queue and the number of the ticket.
    fn submit(
        &mut self,
        now_ms: u64,
        namespace: &str,
        request: TicketRequest,
        requester: Option<&TicketRequester>,
    ) -> Result<(usize, TicketId), TicketFault> {
        let index = self.index_of(namespace)?;
        let mut requesters = requester.and_then(|requester| Some((requester, self.handle.requesters_of(index)?)));
        if let Some((requester, requesters)) = &mut requesters {
            requesters.renew(requester)?;
        }
        let users = bound_users(&request).to_vec();
        let id = self.queues[index].matchmaker.submit(now_ms, request).map_err(TicketFault::Refused)?;
        self.handle.remembered().forget_of(namespace, &users);
        if let Some((requester, mut requesters)) = requesters {
            requesters.hold(&requester.user, id);
        }
        Ok((index, id))
    }

    /// Removes the requesters of tickets that no longer wait, and the names of those that are no longer known.
    fn sweep(&mut self) {
        for (index, queue) in self.queues.iter_mut().enumerate() {
            let Queue { matchmaker, names, .. } = queue;
            self.handle.sweep(index, |ticket| matchmaker.is_pending(ticket));
            names.retain(|ticket| matchmaker.status(ticket, None).is_some());
        }
    }

    /// Begins or ends to run the queues and the lobbies.
    async fn follow_site(&mut self) {
        let was_here = self.peers.find_site();
        match (was_here, self.peers.is_here()) {
            (true, false) => self.lobbies.iter_mut().for_each(Lobby::leave),
            (false, true) if self.peers.has_cluster() => {
                self.lobbies.iter_mut().for_each(Lobby::take_over);
            }
            _ => {}
        }
        self.go_on_handing_over().await;
    }

    /// Hands over the tickets that wait on this node and not on the one that runs the queues, one batch at a time.
    async fn go_on_handing_over(&mut self) {
        if let Some(batch) = self.peers.recalled() {
            self.keep_all(batch).await;
        }
        self.peers.repeat_hand_over();
        if !self.begin_hand_over() && !self.peers.is_handing_over() {
            self.leave = match std::mem::replace(&mut self.leave, Leave::No) {
                Leave::Waits(reply) => {
                    // An error means that the node has waited for too long.
                    let _ = reply.send(());
                    Leave::Done
                }
                other => other,
            };
        }
    }

    /// Sends the next batch. Returns whether there is one.
    fn begin_hand_over(&mut self) -> bool {
        let Some(successor) = self.peers.successor() else { return false };
        let now_ms = self.now_ms();
        for index in 0..self.queues.len() {
            let Queue { settings, matchmaker, .. } = &mut self.queues[index];
            let handed = matchmaker.hand_over(now_ms, handed_at_once(&settings.rules));
            if handed.is_empty() {
                continue;
            }
            let named = handed.into_iter().map(|(id, ticket)| {
                let name = self.name(index, id);
                self.queues[index].names.remove(id);
                NamedTicket { name, ticket }
            });
            let tickets = named.collect();
            let namespace = self.queues[index].settings.namespace.as_str().into();
            self.peers.begin_hand_over(successor, Batch { queue: index, namespace, tickets, dated: Instant::now() });
            return true;
        }
        false
    }

    /// Goes on with tickets of another node, and tells which are here now.
    fn take_over(&mut self, HandedTickets { namespace, tickets, unreadable }: HandedTickets) -> TakenTickets {
        let index = self.index_of(&namespace);
        let offered = tickets.len() + unreadable;
        let mut answer = TakenTickets::default();
        for ticket in tickets {
            let name = ticket.name;
            // A known ticket was handed over before, and the answer was lost.
            let is_known = self.find_named(name).is_ok();
            let kept = match &index {
                Ok(index) if !is_known => Some(self.keep(*index, &ticket)),
                _ => None,
            };
            self.peers.counts.taken_over += u64::from(kept == Some(Ok(())));
            if is_known || kept == Some(Ok(())) {
                answer.taken.push(name);
            } else if kept == Some(Err(MatchRefusal::UserHasTicket)) {
                answer.bound.push(name);
            }
        }
        self.peers.counts.not_taken_over += (offered - answer.taken.len()) as u64;
        answer
    }

    /// Goes on with tickets of this node that waited on one that is gone. They are handed over like others.
    fn enter(&mut self, HandedTickets { namespace, tickets, unreadable: _ }: HandedTickets) {
        let Ok(index) = self.index_of(&namespace) else {
            // Only the other node had a queue for them.
            self.peers.counts.not_taken_over += tickets.len() as u64;
            return;
        };
        for ticket in tickets {
            let status = TicketCommand::Status(TicketTarget::Named(ticket.name));
            if !self.is_here(&status) && !self.peers.is_moving(&status) {
                let is_kept = self.keep(index, &ticket).is_ok();
                self.peers.counts.entered_again += u64::from(is_kept);
                self.peers.counts.not_taken_over += u64::from(!is_kept);
                if !is_kept {
                    // Tried again, it would get a second room for its users when their other ticket is over.
                    self.handle.remembered().forget(ticket.name);
                }
            }
        }
    }

    /// Decides about the tickets that nodes remember. They and this one hear of it.
    fn judge(&mut self, remembered: Vec<(Box<str>, Vec<TicketName>)>) {
        let own = self.handle.remembered().names(Instant::now());
        if own.is_empty() && remembered.iter().all(|(_, names)| names.is_empty()) {
            return;
        }
        let reserved = Reserved::of(&self.handle.settings, &self.peers.rooms);
        for (node, names) in remembered {
            let verdicts = self.verdicts(&names, &reserved);
            self.peers.tell(node, verdicts);
        }
        let verdicts = self.verdicts(&own, &reserved);
        self.handle.follow(&self.node, &verdicts);
    }

    /// A ticket with places in a room is settled, also if the node is gone that has placed it. Only the node that runs the queues,
    /// and that knows all rooms, can tell that a ticket is lost.
    fn verdicts(&self, names: &[TicketName], reserved: &Reserved) -> Verdicts {
        let can_miss = self.peers.is_here() && self.peers.rooms.is_whole();
        let mut verdicts = Verdicts::default();
        for name in names {
            match self.find_named(*name) {
                Ok((index, id)) if self.queues[index].matchmaker.is_pending(id) => {}
                Ok(_) => verdicts.settled.push(*name),
                Err(_) if reserved.has(*name) => verdicts.settled.push(*name),
                Err(_) if can_miss => verdicts.unknown.push(*name),
                Err(_) => {}
            }
        }
        verdicts
    }

    /// Puts a ticket of another node, or one that no other node has taken, into a queue.
    fn keep(&mut self, index: usize, NamedTicket { name, ticket }: &NamedTicket) -> Result<(), MatchRefusal> {
        let now_ms = self.now_ms();
        let queue = &mut self.queues[index];
        let id = queue.matchmaker.take_over(now_ms, ticket.clone())?;
        queue.names.insert(*name, id);
        Ok(())
    }

    /// Goes on with tickets that no other node has. One that is refused here as well ends: its users have requested another one
    /// meanwhile, or the queue is full.
    async fn keep_all(&mut self, mut batch: Batch) {
        batch.tickets.retain(|ticket| self.keep(batch.queue, ticket).is_err());
        self.end_all(batch).await;
    }

    /// Ends tickets with which no node goes on.
    async fn end_all(&mut self, Batch { queue: index, tickets, .. }: Batch) {
        let now_ms = self.now_ms();
        let mut effects = Vec::new();
        for NamedTicket { name, ticket } in tickets {
            // One that was entered again on this node does not come back.
            self.handle.remembered().forget(name);
            let queue = &mut self.queues[index];
            let id = queue.matchmaker.end_handed(now_ms, ticket, &mut effects);
            queue.names.insert(name, id);
        }
        self.perform(index, effects).await;
    }

    async fn on_answer(&mut self, answer: PeerAnswer) {
        match answer {
            PeerAnswer::Rooms(round) => {
                let waiting = |(node, answer): &(Box<str>, Option<NodeAnswer>)| {
                    Some((node.clone(), answer.as_ref()?.waiting.clone()))
                };
                let remembered = round.iter().filter_map(waiting).collect();
                self.peers.rooms.take(round, self.handle.own_rooms(&self.node));
                self.judge(remembered);
                self.take_reports().await;
            }
            PeerAnswer::HandedOver(reply) => {
                if let Arrived::Answered { kept, over, .. } = self.peers.handed_over(reply.as_ref()) {
                    self.keep_all(kept).await;
                    self.end_all(over).await;
                }
                self.go_on_handing_over().await;
            }
        }
    }

    fn index_of(&self, namespace: &str) -> Result<usize, TicketFault> {
        let place = self.queues.iter().position(|queue| queue.settings.namespace == namespace);
        place.ok_or(TicketFault::NotEnabled)
    }

    /// The queue of a ticket that has this name, and its number there.
    fn find_named(&self, ticket: TicketName) -> Result<(usize, TicketId), TicketFault> {
        let mut queues = self.queues.iter().enumerate();
        if let Some(found) = queues.find_map(|(index, queue)| Some((index, queue.names.id_of(ticket)?))) {
            return Ok(found);
        }
        let index = usize::from(ticket.queue);
        let queue = self.queues.get(index).filter(|_| ticket.boot == self.boot);
        let known = queue.and_then(|queue| queue.matchmaker.status(ticket.id, None));
        known.map(|_| (index, ticket.id)).ok_or(TicketFault::Refused(MatchRefusal::UnknownTicket))
    }

    fn find(&self, target: &TicketTarget) -> Result<(usize, TicketId, Option<Arc<str>>), TicketFault> {
        match target {
            TicketTarget::Named(ticket) => self.find_named(*ticket).map(|(index, id)| (index, id, None)),
            TicketTarget::OfMember(ticket, user) => {
                self.find_named(*ticket).map(|(index, id)| (index, id, Some(Arc::clone(user))))
            }
            TicketTarget::OfUser { namespace, user } => {
                let index = self.index_of(namespace)?;
                let id = self.queues[index].matchmaker.ticket_of(user);
                let id = id.ok_or(TicketFault::Refused(MatchRefusal::UnknownTicket))?;
                Ok((index, id, Some(Arc::clone(user))))
            }
        }
    }

    fn name(&self, index: usize, id: TicketId) -> TicketName {
        let own = TicketName { boot: self.boot, queue: u16::try_from(index).unwrap_or(u16::MAX), id };
        self.queues[index].names.name_of(id).unwrap_or(own)
    }

    fn answer(&self, index: usize, id: TicketId) -> Result<TicketAnswer, TicketFault> {
        Ok(TicketAnswer::new(self.name(index, id), self.status(index, id, None)?))
    }

    async fn place(&mut self) {
        let is_here = self.peers.is_here();
        for index in 0..self.queues.len() {
            let now_ms = self.now_ms();
            let mut effects = Vec::new();
            let queue = &mut self.queues[index];
            let begun = Instant::now();
            // The tickets that wait here are on their way to the node that runs the queues.
            if is_here {
                queue.matchmaker.place(now_ms, &mut effects);
            } else {
                queue.matchmaker.run_timers(now_ms, &mut effects);
            }
            let took_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            queue.busy_ns += took_ns;
            queue.longest_ns = queue.longest_ns.max(took_ns);
            self.perform(index, effects).await;
        }
    }

    /// Asks nodes for the listings that they keep, if this one has taken over a lobby.
    fn ask_for_listings(&mut self) {
        for (index, lobby) in self.lobbies.iter_mut().enumerate() {
            if let Some(channel) = lobby.needs_listings() {
                let node = self.node.clone();
                self.listed_rooms.spawn(async move { (index, lobby::listed_rooms(&node, &channel).await) });
            }
        }
    }

    fn on_listed(&mut self, listed: Result<Listed, JoinError>) {
        let (index, rooms) = listed.unwrap_or_else(|failure| std::panic::resume_unwind(failure.into_panic()));
        self.lobbies[index].on_listings(rooms);
    }

    /// Takes reports of all rooms. Those of other nodes come later.
    async fn begin_report(&mut self) {
        self.ask_for_listings();
        if !self.peers.has_cluster() {
            self.peers.rooms.take_own(self.handle.own_rooms(&self.node));
            self.take_reports().await;
        } else if self.peers.is_here() || self.queues.iter().any(|queue| queue.matchmaker.has_unfinished()) {
            self.peers.begin_round();
        }
    }

    async fn take_reports(&mut self) {
        let now_ms = self.now_ms();
        for index in 0..self.queues.len() {
            let mut effects = Vec::new();
            self.adopt_rooms(index, now_ms, &mut effects);
            let Queue { settings, names, .. } = &self.queues[index];
            let binds_places = settings.binds_places;
            let known = self.peers.rooms.of_namespace(&settings.namespace);
            let known: Vec<_> =
                known.map(|known| (names.own_reservations(self.boot, &known.room.reservations), known)).collect();
            let states = known.iter().map(|(reservations, KnownRoom { room, is_present })| RoomState {
                channel: &room.channel,
                players: room.players,
                players_joined: room.players_joined,
                players_max: room.players_max,
                reservations: binds_places.then_some(&**reservations),
                accepts: room.is_public && *is_present,
            });
            self.queues[index].matchmaker.on_rooms_reported(now_ms, states, &mut effects);
            self.perform(index, effects).await;
        }
        if self.peers.is_here() {
            let (rooms, is_whole) = (self.peers.rooms.all().collect::<Vec<_>>(), self.peers.rooms.is_whole());
            for lobby in &mut self.lobbies {
                lobby.update(now_ms, &rooms, is_whole, &self.node).await;
            }
        }
    }

    /// Adopts rooms that the queue has not opened, if it is configured to fill them.
    fn adopt_rooms(&mut self, index: usize, now_ms: u64, effects: &mut Vec<MatchEffect>) {
        let Queue { settings, matchmaker, .. } = &mut self.queues[index];
        if !settings.fill_opened_rooms {
            return;
        }
        for KnownRoom { room, .. } in self.peers.rooms.of_namespace(&settings.namespace) {
            if room.is_made && !matchmaker.has_room(&room.channel, &room.params) {
                matchmaker.adopt_room(now_ms, opened_room(settings, room), effects);
            }
        }
    }

    /// Begins to open rooms, and notifies users.
    async fn perform(&mut self, index: usize, effects: Vec<MatchEffect>) {
        for effect in &effects {
            if let MatchEffect::OpenRoom { room, channel, criteria, region } = effect {
                let params = params(&self.queues[index].settings, criteria, region.as_deref());
                let order = OpenRoomOrder { channel: (**channel).into(), params };
                let on = self.peers.rooms.node_for(region.as_deref());
                self.peers.rooms.note_opening(on.as_deref(), Arc::clone(channel));
                self.openings.begin(index, *room, order, on);
            }
        }
        let effects = self.reserve(index, effects);
        self.inform(index, &effects).await;
    }

    /// Sends to each room the reservations that began and ended. Returns the effects that users hear of at once.
    fn reserve(&mut self, index: usize, effects: Vec<MatchEffect>) -> Vec<MatchEffect> {
        let MatchSettings { binds_places: true, rules, .. } = &self.queues[index].settings else { return effects };
        let timeout_ms = u32::try_from(rules.reserve_timeout_ms).unwrap_or(u32::MAX);
        let mut at_once = Vec::new();
        for effect in effects {
            let (ticket, users, channel) = match &effect {
                MatchEffect::Placed { ticket, users, channel } => (*ticket, users.clone(), Arc::clone(channel)),
                MatchEffect::Withdrawn { ticket, channel }
                | MatchEffect::Ended { ticket, channel: Some(channel), .. } => {
                    (*ticket, Vec::new(), Arc::clone(channel))
                }
                MatchEffect::OpenRoom { .. } | MatchEffect::Ended { .. } => {
                    at_once.push(effect);
                    continue;
                }
            };
            let host = self.peers.rooms.node_of(&channel).map(Box::from);
            // By its name: the number tells the next node that runs the queues whose places these are.
            let number = reservation_number(self.name(index, ticket));
            let reservation = PlaceReservation { number, users, timeout_ms };
            self.reserving.push(host.clone(), &channel, reservation);
            match effect {
                MatchEffect::Placed { ticket, users, channel } => {
                    self.reserving.announce(host, Placement { queue: index, ticket, users, channel });
                }
                effect => at_once.push(effect),
            }
        }
        self.reserving.send();
        at_once
    }

    /// Informs users whose places are reserved now, unless they have lost them meanwhile.
    async fn tell_placed(&mut self, placements: Vec<Placement>) {
        let mut effects: Vec<_> = self.queues.iter().map(|_| Vec::new()).collect();
        for Placement { queue, ticket, users, channel } in placements {
            let has_places = match self.queues[queue].matchmaker.status(ticket, None) {
                Some(TicketStatus::Placed(room) | TicketStatus::Joined(room)) => room == channel,
                _ => false,
            };
            if has_places {
                effects[queue].push(MatchEffect::Placed { ticket, users, channel });
            }
        }
        for (index, effects) in effects.iter().enumerate() {
            self.inform(index, effects).await;
        }
    }

    /// The status of a ticket. Users may rely on reserved places, so a ticket waits until its reservation has arrived.
    fn status(&self, index: usize, id: TicketId, user: Option<&str>) -> Result<TicketStatus, TicketFault> {
        match self.queues[index].matchmaker.status(id, user) {
            Some(TicketStatus::Placed(channel)) if self.reserving.has_placed(index, id, &channel) => {
                Ok(TicketStatus::Waiting)
            }
            Some(status) => Ok(status),
            None => Err(TicketFault::Refused(MatchRefusal::UnknownTicket)),
        }
    }

    async fn on_opened(&mut self, Opened { queue: index, room, outcome, fell_back }: Opened) {
        let now_ms = self.now_ms();
        // Before the reservations are sent there.
        if let Some(channel) = fell_back {
            self.peers.rooms.note_opened_here(&channel);
        }
        let mut effects = Vec::new();
        let matchmaker = &mut self.queues[index].matchmaker;
        match outcome {
            Ok(()) => matchmaker.on_room_opened(now_ms, room, &mut effects),
            Err(failure) => matchmaker.on_open_failed(now_ms, room, failure, &mut effects),
        }
        self.perform(index, effects).await;
    }

    /// Publishes what happened to tickets in the channels of their users.
    async fn inform(&self, index: usize, effects: &[MatchEffect]) {
        let settings = &self.queues[index].settings;
        let Some(prefix) = &settings.notify_prefix else { return };
        let mut notices = Vec::new();
        for effect in effects {
            let fields = |id: &TicketId, status| NoticeFields {
                namespace: &settings.namespace,
                ticket: self.name(index, *id).to_string(),
                status,
                channel: None,
                users: &[],
                reason: None,
            };
            let (users, notice) = match effect {
                MatchEffect::Placed { ticket, users, channel } => {
                    (users, NoticeFields { channel: Some(channel), ..fields(ticket, "placed") })
                }
                MatchEffect::Ended { ticket, users, reason, .. } => {
                    (users, NoticeFields { reason: Some(EndReason::name(*reason)), ..fields(ticket, "ended") })
                }
                MatchEffect::OpenRoom { .. } | MatchEffect::Withdrawn { .. } => continue,
            };
            let data = payload(notice);
            notices.extend(users.iter().map(|user| (format!("{prefix}{user}"), data.clone())));
        }
        self.publish(notices).await;
    }

    /// Asks the users of a party to confirm.
    async fn invite(&self, index: usize, id: TicketId) {
        let queue = &self.queues[index];
        let status = queue.matchmaker.status(id, None);
        let (Some(prefix), Some(TicketStatus::Unconfirmed(users))) = (&queue.settings.notify_prefix, status) else {
            return;
        };
        let ticket = self.name(index, id).to_string();
        let namespace = &queue.settings.namespace;
        let names: Vec<&str> = users.iter().map(|user| &**user).collect();
        let notice = NoticeFields { namespace, ticket, status: "invited", channel: None, users: &names, reason: None };
        let data = payload(notice);
        self.publish(users.iter().map(|user| (format!("{prefix}{user}"), data.clone())).collect()).await;
    }

    async fn publish(&self, notices: Vec<(String, Payload)>) {
        let sent = stream::iter(notices).map(|(channel, data)| async move {
            let how = PublishHow::default();
            let request = ApiRequest::Publish { channel: channel.as_str().into(), data, how };
            // A refusal affects only this user's channel, and the user can request the status.
            let _ = self.node.ask_owner(&channel, request).await;
        });
        sent.buffer_unordered(PUBLICATIONS_AT_ONCE).collect::<()>().await;
    }

    fn report(&self) -> MatchmakingReport {
        let queues = self.queues.iter().enumerate().map(|(index, queue)| {
            let refused = self.handle.requesters_of(index).map(|requesters| requesters.refused()).unwrap_or_default();
            MatchReport {
                rate_limited: refused.by_rate,
                address_limited: refused.by_address,
                namespace: queue.settings.namespace.clone(),
                counters: *queue.matchmaker.counters(),
                gauges: queue.matchmaker.gauges(),
                busy_ns: queue.busy_ns,
                longest_ns: queue.longest_ns,
            }
        });
        let lobbies = self.lobbies.iter().map(Lobby::report).collect();
        let (remembered, not_remembered) = self.handle.remembered().counts();
        MatchmakingReport {
            queues: queues.collect(),
            lobbies,
            peers: QueuePeerCounts { remembered, not_remembered, ..self.peers.counts },
            lost_reservations: self.reserving.lost,
        }
    }
}

fn payload(fields: NoticeFields<'_>) -> Payload {
    let json = serde_json::to_vec(&NoticeJson { r#match: fields });
    let json = json.unwrap_or_else(|_| unreachable!("a notice is made of texts"));
    Payload::from_json(Bytes::from(json))
}
