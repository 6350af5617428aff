//! The decisions of a room thread about one room, without the thread.
//!
//! A [`RoomHost`] holds the state of one room that the game cannot touch: pending joins, players and their seats, and
//! the shards that have its world. A [`Runner`] holds the room itself and runs the game's code. A tick has three steps:
//! [`RoomHost::begin`] takes the queued steps, [`Runner::run`] runs the game, and [`RoomHost::finish`] produces the
//! messages to send. Only the second step runs foreign code. If it never returns, the host is intact, and
//! [`RoomHost::end`] notifies every player.

mod absent_players;
mod by_shard;
mod calls;
mod checkpoint;
mod not_restored;
mod reserved_places;
mod runner;
mod seated_players;
mod tokens_refused;
mod unanswered_joins;

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use dunlin_protocol::{ClientInfo, Payload, UnsubscribeCode};
use dunlin_rooms::{CallId, FormatSet, Grid, PlayerId, Scoped, SnapshotFormat, TickUpdate, recording::Carried};
use hashbrown::HashMap;

use crate::{
    ShardIndex,
    api::KickTarget,
    backend::ProxyResult,
    message::SubscriptionRequest,
    owner_of,
    room::{
        Departure, EventAudience, FromRoom, JoinedAs, NotJoined, RoomKey, SeatCarried, SeatChange, SeatKey, ToRoom,
    },
};

use by_shard::ByShard;
pub use calls::CallCounts;
use calls::outcome_of;
pub use checkpoint::{CHECKPOINT_VERSION, Checkpoint, Continued, RoomOrigin, TickRecord};
pub use not_restored::NotRestored;
use reserved_places::ReservedPlaces;
pub use runner::{AwayTerms, CompletedTick, Entered, Runner, Step, visitor_of};
pub use tokens_refused::TokensRefused;
use unanswered_joins::UnansweredJoins;

/// A message and the shard that receives it.
pub type RoutedMessage = (ShardIndex, FromRoom);

/// The settings that a host needs from its node and its room's namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostOptions {
    /// Shards of the node.
    pub shard_count: u16,
    /// The node's seed, which places channels.
    pub node_seed: u64,
    /// Ticks without a player before the host asks the owner to close the room; at least 1.
    pub empty_ticks_max: u32,
    /// Ticks per second, for clients.
    pub ticks_per_second: u32,
    /// Ticks that a player stays without a client; 0: it leaves when its connection ends.
    pub seat_grace_ticks: u32,
    /// Maximum number of away players per user. One more removes the one that would leave first.
    pub away_per_user_max: u32,
    /// Maximum bytes of the backend's answer to a call of the game.
    pub call_bytes_max: usize,
    /// Whether the room is recorded, so that the shards of its node tell what the connections of players carry.
    pub is_recorded: bool,
}

/// The input of a tick.
#[derive(Debug, Default)]
pub struct TickBatch {
    /// In the order of arrival.
    pub steps: Vec<Step>,
    /// What the connections of players have carried, for the recording alone. In the order of arrival.
    pub carried: Vec<(PlayerId, Carried)>,
    shards: ByShard<ShardBefore>,
}

/// A shard before a tick.
#[derive(Clone, Copy, Debug, Default)]
struct ShardBefore {
    players: u32,
    /// The forms in which it has the world.
    known: FormatSet,
}

/// The state of one room, apart from the game.
#[derive(Debug)]
pub struct RoomHost {
    key: RoomKey,
    channel: Arc<str>,
    grid: Grid,
    options: HostOptions,
    arrived: Arrived,
    joins: UnansweredJoins,
    players: HashMap<PlayerId, Player, foldhash::quality::FixedState>,
    seats: HashMap<SeatKey, PlayerId, foldhash::quality::FixedState>,
    places: ReservedPlaces,
    shards: ByShard<ShardPart>,
    empty_ticks: u32,
    /// While the node drains, players whose clients are gone stay for the restart.
    is_draining: bool,
}

/// What waits for the next tick.
#[derive(Debug, Default)]
struct Arrived {
    steps: VecDeque<Step>,
    carried: Vec<(PlayerId, Carried)>,
}

#[derive(Debug)]
struct Player {
    seat: SeatKey,
    format: SnapshotFormat,
    user: Arc<str>,
    client: Arc<str>,
    /// Whether the player was in the room before the join of its seat.
    is_back: bool,
}

/// The audience of the last event. Events at one place in one tick share it.
#[derive(Debug, Default)]
struct Addressed {
    players: Vec<PlayerId>,
    audience: EventAudience,
}

/// The part of a room that one shard serves.
#[derive(Clone, Debug, Default)]
struct ShardPart {
    /// Players of each form, by [`SnapshotFormat::index`].
    players: [u32; SnapshotFormat::ALL.len()],
    /// The forms in which it has the world; empty if it does not have it.
    known: FormatSet,
    inputs_taken: u32,
    changes: Vec<SeatChange>,
    /// Capacity for the next list of changes: the number of changes in the last tick, plus a quarter.
    changes_before: usize,
}

/// Minimum capacity of a list of changes.
const CHANGES_MIN: usize = 8;

impl ShardPart {
    /// Whether anything has to be known about the shard after a tick.
    fn is_used(&self) -> bool {
        self.player_count() > 0 || self.inputs_taken > 0
    }

    fn player_count(&self) -> u32 {
        self.players.iter().sum()
    }

    fn read(&self) -> FormatSet {
        let read = SnapshotFormat::ALL.into_iter().filter(|format| self.players[format.index()] > 0);
        read.fold(FormatSet::default(), FormatSet::with)
    }
}

/// The form of frames that a client asks for.
fn format_of(request: &SubscriptionRequest) -> SnapshotFormat {
    let encoding = request.subscriber.class.encoding();
    let is_typed = request.join.as_ref().is_some_and(|join| join.is_typed);
    if is_typed { SnapshotFormat::typed(encoding) } else { encoding.into() }
}

impl RoomHost {
    /// The state of a room that has just been opened.
    pub fn new(key: RoomKey, channel: Arc<str>, grid: Grid, options: HostOptions) -> Self {
        Self {
            key,
            channel,
            grid,
            options,
            arrived: Arrived::default(),
            joins: UnansweredJoins::default(),
            players: HashMap::default(),
            seats: HashMap::default(),
            places: ReservedPlaces::default(),
            shards: ByShard::new(options.shard_count),
            empty_ticks: 0,
            is_draining: false,
        }
    }

    /// The room continues from a checkpoint, without its players' clients. Call it before anything else. A player whose
    /// client does not come back within `grace_ticks` leaves.
    pub fn restored(&mut self, grace_ticks: u32) {
        self.arrived.steps.push_front(Step::AllAway { grace_ticks });
    }

    /// The node shuts down, and the room continues after the restart: players whose clients are gone stay.
    pub fn begin_drain(&mut self) {
        self.is_draining = true;
    }

    /// The room's key.
    pub fn key(&self) -> RoomKey {
        self.key
    }

    /// The room's channel.
    pub fn channel(&self) -> &Arc<str> {
        &self.channel
    }

    /// The number of players.
    pub fn player_count(&self) -> usize {
        self.players.len()
    }

    /// The number of steps that wait for the next tick. Inputs are bounded by the shards' credit, the rest by the
    /// number of subscriptions.
    pub fn arrived_len(&self) -> usize {
        self.arrived.steps.len()
    }

    /// Queues a message about this room for the next tick. Reservations apply at once. The caller handles opening and
    /// closing.
    pub fn take(&mut self, message: ToRoom) {
        let step = match message {
            ToRoom::Join { request, .. } => {
                let join = request.join.as_ref().expect("a room's subscription says what joining takes");
                let (seat, info, data) = (join.seat, Arc::clone(&join.info), join.data.clone());
                let (format, claim, is_spectator) = (format_of(&request), join.claim, join.is_spectator);
                let address = join.address;
                self.joins.add(seat, request);
                Step::Join { seat, info, address, is_spectator, format, data, claim }
            }
            ToRoom::Leave { seat, departure: Departure::Unanswered, .. } => {
                return self.joins.abandon(seat);
            }
            ToRoom::Leave { seat, departure, .. } => self.departure(seat, departure == Departure::Lost),
            ToRoom::Input { seat, number, data, .. } => Step::Input { seat, number, data },
            ToRoom::Carried { told, .. } => return self.take_carried(&told),
            ToRoom::Message { id, data, .. } => Step::Message { id, data },
            ToRoom::ChangeListing { id, change, .. } => Step::ChangeListing { id, change },
            ToRoom::Kick { id, order, .. } => Step::Kick { id, seats: self.seats_of(&order.target), order },
            ToRoom::ReservePlaces { reservations, .. } => {
                return self.places.reserve(&reservations, self.options.ticks_per_second);
            }
            ToRoom::Open { .. } | ToRoom::OpenRemote { .. } | ToRoom::Close { .. } => {
                unreachable!("the caller opens and closes rooms")
            }
        };
        self.arrived.steps.push_back(step);
    }

    /// What is told is no step: it has no effect on the room, and is in no log. Of a player that has left before it arrives,
    /// nothing more is recorded.
    fn take_carried(&mut self, told: &[SeatCarried]) {
        debug_assert!(told.iter().all(|told| told.carried.is_possible()), "{told:?}");
        let players = told.iter().filter_map(|told| Some((*self.seats.get(&told.seat)?, told.carried)));
        self.arrived.carried.extend(players);
    }

    fn departure(&self, seat: SeatKey, may_come_back: bool) -> Step {
        let HostOptions { seat_grace_ticks: grace_ticks, away_per_user_max: per_user_max, .. } = self.options;
        if self.is_draining {
            Step::Away { seat, stay: None }
        } else if may_come_back && grace_ticks > 0 {
            Step::Away { seat, stay: Some(AwayTerms { grace_ticks, per_user_max }) }
        } else {
            Step::Leave { seat }
        }
    }

    /// Parts with the sessions that have ended before their joins were answered. Their waiting joins are not run. Players who
    /// have joined leave before the waiting steps: one of these may be the next join of the same client.
    fn part_with_abandoned(&mut self) {
        for seat in self.joins.part_with_abandoned(&mut self.arrived.steps).into_iter().rev() {
            let Some(player) = self.seats.get(&seat).and_then(|player| self.players.get(player)) else { continue };
            // The client does not have the token of this join.
            let may_come_back = player.is_back || !player.user.is_empty();
            self.arrived.steps.push_front(self.departure(seat, may_come_back));
        }
    }

    /// Queues the backend's result of a call for the next tick.
    pub fn take_answer(&mut self, call: CallId, result: ProxyResult) {
        let outcome = outcome_of(result, self.options.call_bytes_max);
        self.arrived.steps.push_back(Step::Answer { call, outcome });
    }

    /// The number of places reserved for users who have not joined.
    pub fn reserved_places(&self) -> usize {
        self.places.len()
    }

    /// The reservations that have not expired: the number, and how many users have not joined.
    pub fn reservations(&self) -> impl Iterator<Item = (u64, u32)> {
        self.places.reservations()
    }

    /// Refuses joins that arrived since the last tick while all free places are reserved for other users. Call it right
    /// before [`RoomHost::begin`]. The answers are appended to `outgoing`.
    pub fn refuse_unreserved(&mut self, runner: &Runner, outgoing: &mut Vec<RoutedMessage>) {
        // A join whose session has ended takes no place.
        self.part_with_abandoned();
        let Self { places, arrived, joins, key, .. } = self;
        let Some(mut admission) = places.begin_admission(runner) else { return };
        arrived.steps.retain(|step| {
            let is_admitted = admission.admits(step);
            if let (Step::Join { seat, .. }, false) = (step, is_admitted)
                && let Some(request) = joins.take(*seat)
            {
                let outcome = Err(NotJoined::Reserved);
                outgoing.push((key.answers_join_at(*seat), FromRoom::Joined { room: *key, request, outcome }));
            }
            is_admitted
        });
    }

    /// Begins a tick with the queued steps.
    pub fn begin(&mut self) -> TickBatch {
        self.part_with_abandoned();
        let steps: Vec<Step> = self.arrived.steps.drain(..).collect();
        for step in &steps {
            if let Step::Input { seat, .. } = step {
                self.shards.get_or_insert(seat.shard).inputs_taken += 1;
            }
        }
        let before = |part: &ShardPart| ShardBefore { players: part.player_count(), known: part.known };
        TickBatch { steps, carried: std::mem::take(&mut self.arrived.carried), shards: self.shards.map(before) }
    }

    /// Ends a tick and appends its messages to `outgoing`.
    pub fn finish(&mut self, done: CompletedTick, outgoing: &mut Vec<RoutedMessage>) {
        let CompletedTick { entered, left, answered, keyframe, kicked, away, outcome, .. } = done;
        self.answer_unseen(outgoing);
        // Joins and leaves, in the order in which they were applied.
        let mut left = left.into_iter().peekable();
        for (place, seat, joined) in entered {
            while let Some((_, seat)) = left.next_if(|(left_place, _)| *left_place < place) {
                self.remove(seat);
            }
            let Some(request) = self.joins.take(seat) else { continue };
            let outcome = match joined {
                Ok(entered) => {
                    if let Some(left_seat) = self.add(entered, seat, &request) {
                        outgoing.push(self.unseated(left_seat, UnsubscribeCode::SEAT_TAKEN, None));
                    }
                    Ok(JoinedAs { is_back: entered.is_back })
                }
                Err(refusal) => Err(NotJoined::Refused(refusal)),
            };
            outgoing.push((self.key.answers_join_at(seat), FromRoom::Joined { room: self.key, request, outcome }));
        }
        left.for_each(|(_, seat)| self.remove(seat));
        // Kicked players do not receive this tick, because their subscription ends.
        for (seat, reason) in kicked {
            self.remove(seat);
            let reason = (!reason.is_empty()).then(|| reason.into());
            outgoing.push(self.unseated(seat, UnsubscribeCode::KICKED, reason));
        }
        outgoing.extend(answered.into_iter().map(|(id, answer)| {
            let channel = Arc::clone(&self.channel);
            (self.key.owner, FromRoom::Answered { room: self.key, channel, id, answer })
        }));
        if let Some((keyframe, formats)) = keyframe {
            self.send_keyframes(&keyframe, formats, outgoing);
        }
        for change in outcome.players {
            let Some(player) = self.players.get(&change.player) else { continue };
            let seat = player.seat;
            let dunlin_rooms::PlayerChange { view, ack, avatar, own, .. } = change;
            let part = self.shards.get_or_insert(seat.shard);
            if part.changes.capacity() == 0 {
                // The tick takes ownership of the list, so reserve about the length of the last one at once.
                part.changes.reserve(part.changes_before.max(CHANGES_MIN));
            }
            part.changes.push(SeatChange { seat, view, ack, avatar, own });
        }
        let formats = outcome.update.formats();
        for (shard, part) in self.shards.iter_mut() {
            // The shard no longer receives updates in forms without readers, so its world in them is out of date.
            let up_to_date = part.known.iter().filter(|format| formats.contains(*format));
            part.known = up_to_date.fold(FormatSet::default(), FormatSet::with);
            part.changes_before = part.changes.len() + part.changes.len() / 4;
            if part.player_count() > 0 || part.inputs_taken > 0 {
                let message = FromRoom::Tick {
                    room: self.key,
                    update: Arc::clone(&outcome.update),
                    changes: std::mem::take(&mut part.changes),
                    inputs_taken: std::mem::take(&mut part.inputs_taken),
                };
                outgoing.push((shard, message));
            }
        }
        let mut addressed = Addressed::default();
        for scoped in outcome.scoped {
            self.address(scoped, &mut addressed, outgoing);
        }
        self.shards.retain_remote(ShardPart::is_used);
        if let Some(reason) = outcome.removals.closing {
            let (channel, reason) = (Arc::clone(&self.channel), reason.into());
            outgoing.push((self.key.owner, FromRoom::Closing { room: self.key, channel, reason }));
        }
        self.watch_emptiness(away, outgoing);
    }

    /// The seats of a user or a client, including joins that wait for the next tick. A runner's seat table has only
    /// players that may come back, so it cannot find them all. Sorted, because a replay must find the same seats.
    fn seats_of(&self, target: &KickTarget) -> Vec<SeatKey> {
        let is_meant = |user: &str, client: &str| match target {
            KickTarget::User(meant) => !meant.is_empty() && **meant == *user,
            KickTarget::Client(meant) => !meant.is_empty() && **meant == *client,
            KickTarget::Player(_) => false,
        };
        let is_joining = |info: &ClientInfo| is_meant(&info.user, &info.client);
        let joining = self.joins.waiting().filter(|(_, join)| is_joining(&join.info));
        let seated = self.players.values().filter(|player| is_meant(&player.user, &player.client));
        let seats = joining.map(|(seat, _)| seat).chain(seated.map(|player| player.seat));
        seats.collect::<BTreeSet<SeatKey>>().into_iter().collect()
    }

    /// Sends the world before the tick to the shards that need it.
    fn send_keyframes(&mut self, keyframe: &Arc<TickUpdate>, formats: FormatSet, outgoing: &mut Vec<RoutedMessage>) {
        for (shard, part) in self.shards.iter_mut() {
            if !part.known.covers_objects_of(part.read()) {
                part.known = formats;
                let message = FromRoom::Keyframe {
                    room: self.key,
                    channel: Arc::clone(&self.channel),
                    grid: self.grid.clone(),
                    ticks_per_second: self.options.ticks_per_second,
                    keyframe: Arc::clone(keyframe),
                    is_recorded: self.options.is_recorded,
                };
                outgoing.push((shard, message));
            }
        }
    }

    fn answer_unseen(&mut self, outgoing: &mut Vec<RoutedMessage>) {
        for (seat, request) in self.joins.take_unseen() {
            let outcome = Err(NotJoined::Gone);
            outgoing.push((self.key.answers_join_at(seat), FromRoom::Joined { room: self.key, request, outcome }));
        }
    }

    fn unseated(&self, seat: SeatKey, code: UnsubscribeCode, reason: Option<Arc<str>>) -> RoutedMessage {
        (seat.shard, FromRoom::Unseated { room: self.key, seat, code, reason })
    }

    /// Ends the room, because it failed or was closed: notifies all players and, with `not_joined`, all pending joins. A
    /// caller that ends the room on its own initiative also sends [`FromRoom::Failed`] to the owner.
    pub fn end(
        &mut self,
        code: UnsubscribeCode,
        reason: Option<&Arc<str>>,
        not_joined: &NotJoined,
        outgoing: &mut Vec<RoutedMessage>,
    ) {
        self.answer_unseen(outgoing);
        let (requests, abandoned) = self.joins.take_all();
        for (seat, request) in requests {
            // A join whose session has ended does not ask for the room again.
            let outcome = Err(if abandoned.contains(&seat) { NotJoined::Gone } else { not_joined.clone() });
            outgoing.push((self.key.answers_join_at(seat), FromRoom::Joined { room: self.key, request, outcome }));
        }
        for (shard, part) in self.shards.iter_mut() {
            if std::mem::take(&mut part.players) != [0; SnapshotFormat::ALL.len()] {
                let reason = reason.cloned();
                outgoing.push((shard, FromRoom::Over { room: self.key, code, reason }));
            }
        }
        self.players.clear();
        self.seats.clear();
        self.arrived = Arrived::default();
    }

    /// Assigns a seat to a player. Returns its former seat.
    fn add(&mut self, entered: Entered, seat: SeatKey, request: &SubscriptionRequest) -> Option<SeatKey> {
        let Entered { player, is_back, format, .. } = entered;
        if let Some(join) = request.join.as_ref().filter(|join| !join.is_spectator) {
            self.places.use_place(&join.info.user);
        }
        let info = request.join.as_ref().map(|join| &join.info);
        let text = |text: Option<&Arc<str>>| text.map_or_else(|| Arc::from(""), Arc::clone);
        let (user, client) = (text(info.map(|info| &info.user)), text(info.map(|info| &info.client)));
        let before = self.players.insert(player, Player { seat, format, user, client, is_back });
        self.seats.insert(seat, player);
        self.shards.get_or_insert(seat.shard).players[format.index()] += 1;
        // The new seat is added before the old one is removed: a shard that has both keeps the world.
        let before = before?;
        self.seats.remove(&before.seat);
        self.leave_shard(before.seat, before.format);
        Some(before.seat)
    }

    fn remove(&mut self, seat: SeatKey) {
        let Some(player) = self.seats.remove(&seat).and_then(|player| self.players.remove(&player)) else { return };
        self.leave_shard(seat, player.format);
    }

    /// Subtracts a player from a shard.
    fn leave_shard(&mut self, seat: SeatKey, format: SnapshotFormat) {
        let part = self.shards.get_or_insert(seat.shard);
        part.players[format.index()] -= 1;
        if part.player_count() == 0 {
            // A shard drops the world with its last seat.
            part.known = FormatSet::default();
        }
    }

    fn address(&self, scoped: Scoped, addressed: &mut Addressed, outgoing: &mut Vec<RoutedMessage>) {
        let message = match scoped {
            Scoped::Event { players, data } => {
                let audience = players.map(|players| {
                    if addressed.players != players {
                        *addressed = Addressed { audience: self.audience(&players), players };
                    }
                    Box::new(addressed.audience.clone())
                });
                let data = Payload::from_json(data);
                let event = |audience| {
                    let (channel, data) = (Arc::clone(&self.channel), data.clone());
                    FromRoom::Event { room: self.key, channel, data, audience }
                };
                // Each other node has its own stream of the room's events, to which its owner appends this one.
                for shard in self.nodes_with_players(audience.as_deref()) {
                    outgoing.push((shard, event(audience.clone())));
                }
                (self.key.owner, event(audience))
            }
            Scoped::Publication { channel, data } => {
                let owner = owner_of(&channel, self.options.shard_count, self.options.node_seed);
                (owner, FromRoom::Publish { channel: channel.into(), data: Payload::from_json(data) })
            }
        };
        outgoing.push(message);
    }

    /// One shard of each other node with players who receive an event.
    fn nodes_with_players(&self, audience: Option<&EventAudience>) -> Vec<ShardIndex> {
        let receives = |shard: ShardIndex, part: &ShardPart| match audience {
            Some(audience) => !audience.seats_on(shard).is_empty(),
            None => part.player_count() > 0,
        };
        let with_players = self.shards.remote().filter(|(shard, part)| receives(*shard, part));
        let mut shards: Vec<ShardIndex> = with_players.map(|(shard, _)| shard).collect();
        shards.dedup_by_key(|shard| shard.node());
        shards
    }

    fn audience(&self, players: &[PlayerId]) -> EventAudience {
        let present = || players.iter().filter_map(|player| self.players.get(player));
        let mut seats: Vec<SeatKey> = present().map(|player| player.seat).collect();
        seats.sort_unstable();
        let mut users: Vec<Arc<str>> =
            present().filter(|player| !player.user.is_empty()).map(|player| Arc::clone(&player.user)).collect();
        users.sort_unstable();
        users.dedup();
        EventAudience { seats: seats.into(), users: users.into() }
    }

    /// Asks the owner to end an empty room. It asks again after the same time, because the owner refuses while a join
    /// is on its way, and that join may fail.
    fn watch_emptiness(&mut self, away: usize, outgoing: &mut Vec<RoutedMessage>) {
        let is_empty = self.players.is_empty() && away == 0 && !self.is_draining;
        self.empty_ticks = if is_empty { self.empty_ticks + 1 } else { 0 };
        if self.empty_ticks >= self.options.empty_ticks_max {
            self.empty_ticks = 0;
            outgoing.push((self.key.owner, FromRoom::Idle { room: self.key, channel: Arc::clone(&self.channel) }));
        }
    }
}
