//! The task that runs the queues and the lobbies. It receives requests, places tickets ten times per second, and
//! performs the effects.

use std::{
    collections::BTreeMap,
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
use tokio::time::MissedTickBehavior;

use super::{
    MatchHandle, MatchReport, MatchRequest, MatchTask, MatchmakingReport, PUBLICATIONS_AT_ONCE, TicketAnswer,
    TicketCommand, TicketFault, TicketName, TicketRequester, TicketTarget,
    lobby::Lobby,
    openings::{Opened, Openings, opened_room, overrides},
};
use crate::{node::Node, rooms::RoomReport};

/// Interval at which tickets are placed.
const PLACE_INTERVAL: Duration = Duration::from_millis(100);
/// Number of intervals between two reports of the rooms.
const PLACINGS_PER_REPORT: u32 = 5;

struct Queue {
    settings: MatchSettings,
    matchmaker: Matchmaker,
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
    openings: Openings,
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

pub(super) async fn run(task: MatchTask, node: Node) {
    let MatchTask { mut requests, handle, lobbies, boot } = task;
    let queue = |settings: &MatchSettings| Queue {
        // Room channels differ between two starts, because clients may still know the channels of the previous start.
        matchmaker: Matchmaker::new(settings.rules.clone(), &format!("{}match-{boot:08x}-", settings.channel_prefix)),
        settings: settings.clone(),
        busy_ns: 0,
        longest_ns: 0,
    };
    let mut queues = Queues {
        openings: Openings::new(node.clone()),
        node,
        boot,
        started: Instant::now(),
        queues: handle.settings.iter().map(queue).collect(),
        lobbies: lobbies.into_iter().map(Lobby::new).collect(),
        handle,
    };
    let mut ticks = tokio::time::interval(PLACE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut placings: u32 = 0;
    while !queues.node.has_stopped() {
        tokio::select! {
            request = requests.recv() => match request {
                Some(request) => queues.carry_out(request).await,
                None => return,
            },
            opened = queues.openings.next() => queues.on_opened(opened).await,
            _ = ticks.tick() => {
                if placings.is_multiple_of(PLACINGS_PER_REPORT) {
                    queues.take_reports().await;
                    queues.sweep_requesters();
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

    async fn carry_out(&mut self, MatchRequest { command, reply }: MatchRequest) {
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
                let confirmed = self.queue_of(ticket).and_then(|index| {
                    let confirmed = self.queues[index].matchmaker.confirm(now_ms, ticket.id, &user);
                    confirmed.map(|()| index).map_err(TicketFault::Refused)
                });
                reply(confirmed.and_then(|index| self.answer(index, ticket.id)));
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
                    let status = self.queues[index].matchmaker.status(id, user.as_deref());
                    let status = status.ok_or(TicketFault::Refused(MatchRefusal::UnknownTicket))?;
                    Ok(TicketAnswer::new(self.name(index, id), status))
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
        let id = self.queues[index].matchmaker.submit(now_ms, request).map_err(TicketFault::Refused)?;
        if let Some((requester, mut requesters)) = requesters {
            requesters.hold(&requester.user, id);
        }
        Ok((index, id))
    }

    /// Removes the requesters of tickets that no longer wait.
    fn sweep_requesters(&self) {
        for (index, queue) in self.queues.iter().enumerate() {
            self.handle.sweep(index, |ticket| queue.matchmaker.is_pending(ticket));
        }
    }

    fn index_of(&self, namespace: &str) -> Result<usize, TicketFault> {
        let place = self.queues.iter().position(|queue| queue.settings.namespace == namespace);
        place.ok_or(TicketFault::NotEnabled)
    }

    fn queue_of(&self, ticket: TicketName) -> Result<usize, TicketFault> {
        let index = usize::from(ticket.queue);
        let is_known = ticket.boot == self.boot && index < self.queues.len();
        is_known.then_some(index).ok_or(TicketFault::Refused(MatchRefusal::UnknownTicket))
    }

    fn find(&self, target: &TicketTarget) -> Result<(usize, TicketId, Option<Arc<str>>), TicketFault> {
        match target {
            TicketTarget::Named(ticket) => Ok((self.queue_of(*ticket)?, ticket.id, None)),
            TicketTarget::OfMember(ticket, user) => Ok((self.queue_of(*ticket)?, ticket.id, Some(Arc::clone(user)))),
            TicketTarget::OfUser { namespace, user } => {
                let index = self.index_of(namespace)?;
                let id = self.queues[index].matchmaker.ticket_of(user);
                let id = id.ok_or(TicketFault::Refused(MatchRefusal::UnknownTicket))?;
                Ok((index, id, Some(Arc::clone(user))))
            }
        }
    }

    fn name(&self, index: usize, id: TicketId) -> TicketName {
        TicketName { boot: self.boot, queue: u16::try_from(index).unwrap_or(u16::MAX), id }
    }

    fn answer(&self, index: usize, id: TicketId) -> Result<TicketAnswer, TicketFault> {
        let status = self.queues[index].matchmaker.status(id, None);
        let status = status.ok_or(TicketFault::Refused(MatchRefusal::UnknownTicket))?;
        Ok(TicketAnswer::new(self.name(index, id), status))
    }

    async fn place(&mut self) {
        for index in 0..self.queues.len() {
            let now_ms = self.now_ms();
            let mut effects = Vec::new();
            let queue = &mut self.queues[index];
            let begun = Instant::now();
            queue.matchmaker.place(now_ms, &mut effects);
            let took_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            queue.busy_ns += took_ns;
            queue.longest_ns = queue.longest_ns.max(took_ns);
            self.perform(index, effects).await;
        }
    }

    async fn take_reports(&mut self) {
        let rooms = self.node.rooms();
        let now_ms = self.now_ms();
        for index in 0..self.queues.len() {
            let mut effects = Vec::new();
            self.adopt_rooms(index, now_ms, &rooms, &mut effects);
            let binds_places = self.queues[index].settings.binds_places;
            let states = rooms.iter().map(|room| RoomState {
                channel: &room.channel,
                players: room.places_taken(),
                players_joined: room.players_joined,
                players_max: room.players_max,
                reservations: binds_places.then_some(&*room.reservations),
                accepts: room.is_public(),
            });
            self.queues[index].matchmaker.on_rooms_reported(now_ms, states, &mut effects);
            self.perform(index, effects).await;
        }
        for index in 0..self.lobbies.len() {
            self.lobbies[index].update(now_ms, &rooms, &self.node).await;
        }
    }

    /// Adopts rooms that the queue has not opened, if it is configured to fill them.
    fn adopt_rooms(&mut self, index: usize, now_ms: u64, rooms: &[RoomReport], effects: &mut Vec<MatchEffect>) {
        let Queue { settings, matchmaker, .. } = &mut self.queues[index];
        if !settings.fill_opened_rooms {
            return;
        }
        for room in rooms.iter().filter(|room| room.is_made && *room.namespace == *settings.namespace) {
            let number = (room.key.number << 16) | u64::from(room.key.owner.0);
            if !matchmaker.has_room(&room.channel, number) {
                matchmaker.adopt_room(now_ms, opened_room(settings, room, number), effects);
            }
        }
    }

    /// Begins to open rooms, and notifies users.
    async fn perform(&mut self, index: usize, effects: Vec<MatchEffect>) {
        for effect in &effects {
            if let MatchEffect::OpenRoom { room, channel, criteria, region } = effect {
                let overrides = overrides(&self.queues[index].settings, criteria, region.as_deref());
                self.openings.begin(index, *room, Arc::clone(channel), overrides);
            }
        }
        self.reserve(index, &effects).await;
        self.inform(index, &effects).await;
    }

    /// Sends to each room the reservations that began and ended.
    async fn reserve(&self, index: usize, effects: &[MatchEffect]) {
        let MatchSettings { binds_places: true, rules, .. } = &self.queues[index].settings else { return };
        let timeout_ms = u32::try_from(rules.reserve_timeout_ms).unwrap_or(u32::MAX);
        let mut rooms: BTreeMap<Arc<str>, Vec<PlaceReservation>> = BTreeMap::new();
        for effect in effects {
            let (ticket, users, channel) = match effect {
                MatchEffect::Placed { ticket, users, channel } => (ticket, users.clone(), channel),
                MatchEffect::Withdrawn { ticket, channel }
                | MatchEffect::Ended { ticket, channel: Some(channel), .. } => (ticket, Vec::new(), channel),
                MatchEffect::OpenRoom { .. } | MatchEffect::Ended { .. } => continue,
            };
            rooms.entry(Arc::clone(channel)).or_default().push(PlaceReservation {
                number: ticket.0,
                users,
                timeout_ms,
            });
        }
        let sent = stream::iter(rooms).map(|(channel, reservations)| async move {
            let request = ApiRequest::ReservePlaces { channel: (*channel).into(), reservations: reservations.into() };
            // If the room has closed in the meantime, it is missing in the next report, and its tickets wait again.
            let _ = self.node.ask_owner(&channel, request).await;
        });
        sent.buffer_unordered(PUBLICATIONS_AT_ONCE).collect::<()>().await;
    }

    async fn on_opened(&mut self, Opened { queue: index, room, outcome }: Opened) {
        let now_ms = self.now_ms();
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
        MatchmakingReport { queues: queues.collect(), lobbies: self.lobbies.iter().map(Lobby::report).collect() }
    }
}

fn payload(fields: NoticeFields<'_>) -> Payload {
    let json = serde_json::to_vec(&NoticeJson { r#match: fields });
    let json = json.unwrap_or_else(|_| unreachable!("a notice is made of texts"));
    Payload::from_json(Bytes::from(json))
}
