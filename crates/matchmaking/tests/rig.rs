//! A matchmaker with a node that opens its rooms and lets users in.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use dunlin_matchmaking::{
    EndReason, Initiator, MatchCriteria, MatchEffect, MatchRefusal, MatchRules, Matchmaker, OpenFailure, OpenedRoom,
    RoomState, TicketId, TicketRequest, TicketStatus,
};

pub struct Rig {
    pub matchmaker: Matchmaker,
    pub now_ms: u64,
    /// Players of the open rooms.
    pub rooms: BTreeMap<Arc<str>, u32>,
    /// Players that have ever joined each room.
    pub joined: BTreeMap<Arc<str>, u64>,
    /// Rooms in which each ticket was placed, in order.
    pub placed: BTreeMap<TicketId, Vec<Arc<str>>>,
    pub ended: BTreeMap<TicketId, EndReason>,
    /// What the node does with rooms that are to be opened.
    pub opens: Result<(), OpenFailure>,
    pub opened: usize,
    /// Rooms that take no players.
    pub closed: BTreeSet<Arc<str>>,
    /// Rooms that bind places to users: the tickets whose reservations have reached each, with the users who have not joined.
    pub bound: BTreeMap<Arc<str>, Vec<(u64, u32)>>,
    /// The places of each room, also beyond those that tickets fill.
    pub places: u32,
    /// Tickets that lost their places, in order.
    pub withdrawn: Vec<TicketId>,
}

pub fn request(users: &[&str]) -> TicketRequest {
    TicketRequest {
        initiator: Initiator::Backend,
        users: users.iter().map(|user| Arc::from(*user)).collect(),
        criteria: MatchCriteria::default(),
        region: None,
        skill: 0,
    }
}

pub fn criteria(pairs: &[(&str, &str)]) -> MatchCriteria {
    let pairs = pairs.iter().map(|(name, value)| (Box::from(*name), Box::from(*value)));
    MatchCriteria::new(pairs).expect("short criteria")
}

impl Rig {
    pub fn new(rules: MatchRules) -> Self {
        Self {
            matchmaker: Matchmaker::new(rules, "arena:"),
            now_ms: 1_000,
            rooms: BTreeMap::new(),
            joined: BTreeMap::new(),
            placed: BTreeMap::new(),
            ended: BTreeMap::new(),
            opens: Ok(()),
            opened: 0,
            closed: BTreeSet::new(),
            bound: BTreeMap::new(),
            places: 100,
            withdrawn: Vec::new(),
        }
    }

    pub fn submit(&mut self, request: TicketRequest) -> Result<TicketId, MatchRefusal> {
        self.matchmaker.submit(self.now_ms, request)
    }

    /// A ticket that must be accepted.
    pub fn ticket(&mut self, users: &[&str]) -> TicketId {
        self.submit(request(users)).expect("accepted")
    }

    pub fn status(&self, ticket: TicketId) -> Option<TicketStatus> {
        self.matchmaker.status(ticket, None)
    }

    /// Places tickets and does what the effects say, after some time.
    pub fn pass(&mut self, after_ms: u64) {
        self.now_ms += after_ms;
        let mut effects = Vec::new();
        self.matchmaker.place(self.now_ms, &mut effects);
        self.perform(effects);
    }

    pub fn perform(&mut self, effects: Vec<MatchEffect>) {
        let mut next = Vec::new();
        for effect in effects {
            match effect {
                MatchEffect::OpenRoom { room, channel, .. } => match self.opens {
                    Ok(()) => {
                        self.opened += 1;
                        self.rooms.insert(channel, 0);
                        self.matchmaker.on_room_opened(self.now_ms, room, &mut next);
                    }
                    Err(failure) => self.matchmaker.on_open_failed(self.now_ms, room, failure, &mut next),
                },
                MatchEffect::Placed { ticket, channel, .. } => self.placed.entry(ticket).or_default().push(channel),
                MatchEffect::Withdrawn { ticket, .. } => self.withdrawn.push(ticket),
                MatchEffect::Ended { ticket, reason, .. } => {
                    assert!(self.ended.insert(ticket, reason).is_none(), "{ticket:?} ended twice");
                }
            }
        }
        if !next.is_empty() {
            self.perform(next);
        }
    }

    /// Somebody else opens a room. It is reported.
    pub fn adopt(&mut self, channel: &str, params: &str, criteria: Option<MatchCriteria>) {
        let mut effects = Vec::new();
        let opened = OpenedRoom { channel: channel.into(), params: params.into(), criteria, region: None };
        self.rooms.entry(channel.into()).or_default();
        self.matchmaker.adopt_room(self.now_ms, opened, &mut effects);
        self.perform(effects);
        self.report();
    }

    pub fn cancel(&mut self, ticket: TicketId, user: Option<&str>) -> Result<(), MatchRefusal> {
        let mut effects = Vec::new();
        let outcome = self.matchmaker.cancel(self.now_ms, ticket, user, &mut effects);
        self.perform(effects);
        outcome
    }

    /// Reports the rooms.
    pub fn report(&mut self) {
        let mut effects = Vec::new();
        let joined = |channel| self.joined.get(channel).copied().unwrap_or_default();
        let rooms: Vec<_> =
            self.rooms.iter().map(|(channel, players)| (Arc::clone(channel), *players, joined(channel))).collect();
        let bound = self.bound.clone();
        let states = rooms.iter().map(|(channel, players, joined)| RoomState {
            channel,
            players: *players,
            players_joined: *joined,
            players_max: self.places,
            reservations: bound.get(channel).map(Vec::as_slice),
            accepts: !self.closed.contains(channel),
        });
        self.matchmaker.on_rooms_reported(self.now_ms, states, &mut effects);
        self.perform(effects);
    }

    /// Changes the number of players of a room, and reports it. If there are more than before, new ones have joined.
    pub fn players(&mut self, channel: &str, players: u32) {
        let before = std::mem::replace(self.rooms.get_mut(channel).expect("an open room"), players);
        *self.joined.entry(channel.into()).or_default() += u64::from(players.saturating_sub(before));
        self.report();
    }
}
