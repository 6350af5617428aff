//! The part of a room that calls the game's code.

use core::net::IpAddr;
use std::{collections::BTreeSet, fmt, sync::Arc};

use bytes::Bytes;
use dunlin_protocol::ClientInfo;
use dunlin_rooms::{
    CallError, CallId, FormatSet, GameCall, ListingChange, PlayerId, Refusal, Removals, Room, SnapshotFormat,
    TickOutcome, TickTime, TickUpdate, Visitor, WorldError,
};

use super::{
    ByShard, CallCounts, NotRestored, RoomOrigin, ShardBefore, TickBatch, TickRecord,
    absent_players::{AbsentPlayers, LeavesAt},
    checkpoint,
    seated_players::SeatedPlayers,
    tokens_refused::TokensRefused,
};
use crate::{
    api::{KickOrder, KickTarget},
    room::{SeatClaim, SeatKey},
};

/// Something that happens to a room before its next tick.
#[derive(Clone, Debug)]
pub enum Step {
    /// A client asks to join.
    Join {
        /// The seat of the join.
        seat: SeatKey,
        /// User and connection of the client.
        info: Arc<ClientInfo>,
        /// Address of the client, if the game receives it.
        address: Option<IpAddr>,
        /// Whether it joins as a spectator.
        is_spectator: bool,
        /// The form of its frames.
        format: SnapshotFormat,
        /// Bytes for the game.
        data: Bytes,
        /// The player that it may take over, and its new seat token.
        claim: SeatClaim,
    },
    /// A client has left.
    Leave {
        /// The seat that becomes free.
        seat: SeatKey,
    },
    /// An input of a player.
    Input {
        /// The player's seat.
        seat: SeatKey,
        /// The client's number of the input.
        number: u32,
        /// Bytes for the game.
        data: Bytes,
    },
    /// A message of the backend.
    Message {
        /// The owner's number of the message.
        id: u64,
        /// Bytes for the game.
        data: Bytes,
    },
    /// The backend's answer to a call of the game, or the error.
    Answer {
        /// The room's number of the call.
        call: CallId,
        /// Bytes for the game.
        outcome: Result<Bytes, CallError>,
    },
    /// The backend changes how the room is listed.
    ChangeListing {
        /// The owner's number of the change.
        id: u64,
        /// The change.
        change: Arc<ListingChange>,
    },
    /// The backend removes players at the end of the tick.
    Kick {
        /// The owner's number of the kick.
        id: u64,
        /// The players to remove.
        order: Arc<KickOrder>,
        /// The seats of the user or the client.
        seats: Vec<SeatKey>,
    },
    /// A player's client has disconnected. The player stays until the client returns.
    Away {
        /// The player's seat.
        seat: SeatKey,
        /// How long the player stays; `None` until the room continues after a restart.
        stay: Option<AwayTerms>,
    },
    /// The room continues from a checkpoint without clients. Players stay until their clients return or the grace ends.
    AllAway {
        /// How long a seat is kept, in ticks.
        grace_ticks: u32,
    },
}

/// How long players stay without their clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AwayTerms {
    /// How long a seat is kept, in ticks.
    pub grace_ticks: u32,
    /// The limit of away players per user. Users without an id have no limit, as they cannot be distinguished.
    pub per_user_max: u32,
}

/// The refusal code of an invalid listing change.
const BAD_LISTING_CODE: u16 = 400;
/// The refusal code of a kick without a matching player or spectator, and of a kept seat without its player.
const NOBODY_CODE: u16 = 404;

/// A room, including the game.
pub struct Runner {
    room: Room,
    seated_players: SeatedPlayers,
    /// Inputs that the game could not decode.
    undecodable_inputs: u64,
    /// Ticks since the room was created. Unlike the world's tick number, it never restarts.
    ticks_run: u64,
    absent_players: AbsentPlayers,
}

/// The results of a batch of steps.
#[derive(Default)]
struct Applied {
    entered: Vec<(usize, SeatKey, Result<Entered, Refusal>)>,
    left: Vec<(usize, SeatKey)>,
    answered: Vec<MessageAnswer>,
    ordered_kicks: Vec<Vec<PlayerId>>,
    expired: usize,
    displaced: usize,
    tokens_refused: TokensRefused,
    calls: CallCounts,
}

/// A join that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entered {
    /// The player in the room.
    pub player: PlayerId,
    /// Whether the player was already in the room.
    pub is_back: bool,
    /// The form of its frames.
    pub format: SnapshotFormat,
    /// The player's former seat, if its previous client had not left yet.
    pub left_seat: Option<SeatKey>,
}

/// A message's number, and the game's answer to it.
pub(super) type MessageAnswer = (u64, Result<Bytes, Refusal>);

/// The results of a tick.
#[derive(Debug)]
pub struct CompletedTick {
    /// Joins: index in the batch, seat, and outcome.
    pub(super) entered: Vec<(usize, SeatKey, Result<Entered, Refusal>)>,
    /// Leaves: index in the batch, and seat.
    pub(super) left: Vec<(usize, SeatKey)>,
    pub(super) answered: Vec<MessageAnswer>,
    /// The players that each kick of the backend removes.
    ordered_kicks: Vec<Vec<PlayerId>>,
    /// The world before the tick, if a shard may need its keyframe, with the forms of the keyframe.
    pub(super) keyframe: Option<(Arc<TickUpdate>, FormatSet)>,
    /// Seats whose players the game has removed, with the reasons.
    pub(super) kicked: Vec<(SeatKey, Box<str>)>,
    /// Players without a client.
    pub(super) away: usize,
    /// Players that left because they did not come back in time.
    expired: usize,
    /// Players that leave in the next tick because their users have too many away players.
    displaced: usize,
    /// Seat tokens without effect.
    tokens_refused: TokensRefused,
    /// Counts of the game's calls by outcome.
    calls: CallCounts,
    pub(super) outcome: TickOutcome,
}

impl Runner {
    /// A runner of a room without players.
    pub fn new(room: Room) -> Self {
        let (seated_players, absent_players) = (SeatedPlayers::default(), AbsentPlayers::default());
        Self::continued(room, 0, seated_players, absent_players)
    }

    /// A runner of a room that has run before.
    pub(super) fn continued(
        room: Room,
        ticks_run: u64,
        seated_players: SeatedPlayers,
        absent_players: AbsentPlayers,
    ) -> Self {
        Self { room, seated_players, undecodable_inputs: 0, ticks_run, absent_players }
    }

    /// The room.
    pub fn room(&self) -> &Room {
        &self.room
    }

    /// The players that clients can take over after a restart, with their users.
    pub fn seat_users(&self) -> impl Iterator<Item = (PlayerId, &Arc<str>)> {
        self.absent_players.iter().map(|(player, seat, _)| (player, &seat.user))
    }

    /// The number of inputs so far that the game could not decode.
    pub fn undecodable_inputs(&self) -> u64 {
        self.undecodable_inputs
    }

    /// Ticks since the room was created, including those before a restart.
    pub fn ticks_run(&self) -> u64 {
        self.ticks_run
    }

    /// Applies the pending steps and runs one tick. `time` is what the snapshots say about time.
    pub fn run(&mut self, batch: &TickBatch, time: impl Into<TickTime>) -> CompletedTick {
        let keyframe = self.keyframe_for(batch);
        let Applied { entered, left, answered, ordered_kicks, expired, displaced, tokens_refused, mut calls } =
            self.apply(&batch.steps);
        let formats = self.room.formats();
        let keyframe = keyframe.map(|keyframe| (keyframe, formats));
        let outcome = self.room.tick(time);
        let kicked = self.on_removals(&outcome.removals);
        let away = self.absent_players.away_count();
        calls.timed_out += u64::from(outcome.calls.timed_out);
        calls.refused += u64::from(outcome.calls.refused);
        CompletedTick {
            entered,
            left,
            answered,
            ordered_kicks,
            keyframe,
            kicked,
            away,
            expired,
            displaced,
            tokens_refused,
            calls,
            outcome,
        }
    }

    /// Appends a checkpoint. Call it directly after a tick, for the reason given at [`Room::save`].
    pub fn save(&self, origin: &RoomOrigin, out: &mut Vec<u8>) {
        checkpoint::put_begin(origin, self.ticks_run, &self.room, out);
        checkpoint::put_players(&self.seated_players, &self.absent_players, out);
        self.room.save(out);
    }

    /// Runs a recorded tick again. `tick_count` is the count of the tick that the record belongs to.
    ///
    /// # Errors
    /// [`NotRestored::MissingRecord`], [`NotRestored::OtherState`]; the runner is unchanged.
    pub fn replay(&mut self, tick_count: u64, record: &TickRecord) -> Result<(), NotRestored> {
        let expected = self.ticks_run + 1;
        if tick_count != expected {
            return Err(NotRestored::MissingRecord { expected, found: tick_count });
        }
        if let Some(state_hash) = record.state_hash {
            self.check_state(state_hash)?;
        }
        self.apply(&record.steps);
        let removals = self.room.tick_without_update();
        self.on_removals(&removals);
        Ok(())
    }

    pub(super) fn check_state(&self, expected: u64) -> Result<(), NotRestored> {
        let (tick, actual) = (self.room.tick_number(), self.room.state_hash());
        if expected == actual { Ok(()) } else { Err(NotRestored::OtherState { tick, expected, actual }) }
    }

    /// The players that leave at the start of the next tick because they did not come back in time, in order.
    pub fn expiring(&self) -> impl Iterator<Item = PlayerId> {
        self.absent_players.expired(self.ticks_run + 1)
    }

    /// The player on a seat.
    pub(super) fn player(&self, seat: SeatKey) -> Option<PlayerId> {
        self.seated_players.player(seat)
    }

    /// The player that a user would come back to.
    pub(super) fn claimed_by(&self, user: &str, claim: SeatClaim) -> Option<PlayerId> {
        self.absent_players.claimed_by(user, claim)
    }

    /// Forgets players that the game has removed. Returns their seats, with the reasons.
    fn on_removals(&mut self, removals: &Removals) -> Vec<(SeatKey, Box<str>)> {
        let mut seats = Vec::new();
        for (player, reason) in &removals.kicked {
            self.absent_players.forget(*player);
            if let Some(seat) = self.seated_players.remove_player(*player) {
                seats.push((seat, reason.clone()));
            }
        }
        seats
    }

    /// Applies the steps before a tick. Players whose time to come back has expired leave first.
    fn apply(&mut self, steps: &[Step]) -> Applied {
        let expiring: Vec<PlayerId> = self.expiring().collect();
        self.ticks_run += 1;
        let expired = expiring.iter().filter(|player| !self.absent_players.is_displaced(**player)).count();
        let mut applied = Applied { expired, ..Applied::default() };
        for player in expiring {
            self.leave(player);
        }
        for (place, step) in steps.iter().enumerate() {
            self.apply_step(place, step, &mut applied);
        }
        applied
    }

    fn apply_step(&mut self, place: usize, step: &Step, applied: &mut Applied) {
        match step {
            Step::Join { seat, info, address, is_spectator, format, data, claim } => {
                let visitor = visitor_of(info, *address, *is_spectator);
                applied.tokens_refused.count(self.absent_players.token_refusal(&info.user, *claim));
                let joined = self.join_or_come_back(*seat, &visitor, *format, data, *claim);
                // A seat that is kept has its tokens.
                if let Ok(entered) = joined.as_ref()
                    && !claim.is_keeping()
                {
                    self.absent_players.insert_join(entered.player, Arc::clone(&info.user), *claim);
                }
                applied.entered.push((place, *seat, joined));
            }
            Step::Leave { seat } => {
                if let Some(player) = self.seated_players.remove_seat(*seat) {
                    self.leave(player);
                    applied.left.push((place, *seat));
                }
            }
            Step::Input { seat, number, data } => {
                // Inputs of players that have left are dropped.
                if let Some(player) = self.seated_players.player(*seat) {
                    self.absent_players.confirm(player);
                    self.undecodable_inputs += u64::from(!self.room.input(player, *number, data));
                }
            }
            Step::Message { id, data } => {
                applied.answered.push((*id, self.room.message(data).map(Bytes::from)));
            }
            Step::Answer { call, outcome } => {
                let given = outcome.as_ref().map(|data| &data[..]).map_err(Clone::clone);
                let is_late = !self.room.answer(*call, given);
                applied.calls.count(outcome, is_late);
            }
            Step::ChangeListing { id, change } => {
                let changed = self.room.change_listing(change);
                let refused = |error: WorldError| Refusal { code: BAD_LISTING_CODE, message: error.to_string().into() };
                applied.answered.push((*id, changed.map(|()| Bytes::new()).map_err(refused)));
            }
            Step::Kick { id, order, seats } => {
                let players = self.kick(order, seats);
                applied.answered.push((*id, answer_to_kick(&players)));
                applied.ordered_kicks.push(players);
            }
            Step::Away { seat, stay } => {
                if let Some(player) = self.seated_players.remove_seat(*seat) {
                    applied.displaced += usize::from(self.go_away(player, *stay));
                    applied.left.push((place, *seat));
                }
            }
            Step::AllAway { grace_ticks } => {
                applied.calls.lost += self.room.lose_calls() as u64;
                // Spectators cannot come back.
                let seated = self.seated_players.iter().map(|(_, player)| player);
                let mut leaving: Vec<PlayerId> = seated.filter(|player| !self.absent_players.has(*player)).collect();
                leaving.sort_unstable();
                for player in leaving {
                    self.room.leave(player);
                }
                self.seated_players.clear();
                self.absent_players.set_all_away(LeavesAt(self.ticks_run.saturating_add(u64::from(*grace_ticks))));
            }
        }
    }

    /// Marks players for removal at the end of the tick, including a user's away players. Returns them, in order.
    fn kick(&mut self, order: &KickOrder, seats: &[SeatKey]) -> Vec<PlayerId> {
        let mut players: BTreeSet<PlayerId> =
            seats.iter().filter_map(|seat| self.seated_players.player(*seat)).collect();
        match &order.target {
            KickTarget::User(user) => players.extend(self.absent_players.of_user(user)),
            KickTarget::Player(player) => players.extend([*player]),
            KickTarget::Client(_) => {}
        }
        players.retain(|player| self.room.kick(*player, &order.reason));
        players.into_iter().collect()
    }

    /// Keeps a player without its client, if it has a seat. Returns whether another player of the user has to leave.
    fn go_away(&mut self, player: PlayerId, stay: Option<AwayTerms>) -> bool {
        let grace_ticks = stay.map_or(u64::MAX, |stay| stay.grace_ticks.into());
        if !self.absent_players.set_away(player, LeavesAt(self.ticks_run.saturating_add(grace_ticks))) {
            self.leave(player);
            return false;
        }
        self.room.away(player);
        // In the next tick, like all players that do not come back, so that it is in the recording.
        stay.is_some_and(|stay| self.absent_players.displace(player, stay.per_user_max, LeavesAt(self.ticks_run + 1)))
    }

    fn join_or_come_back(
        &mut self,
        seat: SeatKey,
        visitor: &Visitor<'_>,
        format: SnapshotFormat,
        data: &[u8],
        claim: SeatClaim,
    ) -> Result<Entered, Refusal> {
        let (player, is_back) = match self.absent_players.claimed_by(visitor.user, claim) {
            Some(player) => {
                self.absent_players.end_absence(player);
                if claim.is_keeping() {
                    self.room.go_on(player, visitor, format);
                } else {
                    self.room.back(player, visitor, format);
                }
                (player, true)
            }
            None if claim.is_keeping() => {
                return Err(Refusal { code: NOBODY_CODE, message: "the player has left the room".into() });
            }
            None => (self.room.join(visitor, format, data)?.player, false),
        };
        let format = self.room.format_for(format);
        Ok(Entered { player, is_back, format, left_seat: self.seated_players.put(seat, player) })
    }

    fn leave(&mut self, player: PlayerId) {
        self.absent_players.forget(player);
        self.room.leave(player);
    }

    /// The world as of the last tick, if a join may be the first on its shard, or the first there with its form.
    /// Computed before any step is applied: no update contains what an input creates and the tick removes.
    fn keyframe_for(&self, batch: &TickBatch) -> Option<Arc<TickUpdate>> {
        if !self.may_need_keyframe(batch) {
            return None;
        }
        let formats = batch.steps.iter().fold(self.room.formats(), |all, step| match step {
            Step::Join { format, .. } => all.with(self.room.format_for(*format)),
            _ => all,
        });
        Some(self.room.keyframe(formats))
    }

    /// Whether a join, if accepted, needs a keyframe: its shard does not have the world in its form. Joins and
    /// leaves on a shard with other players need none.
    fn may_need_keyframe(&self, batch: &TickBatch) -> bool {
        let mut shards: Option<ByShard<ShardBefore>> = None;
        batch.steps.iter().any(|step| match step {
            // The player's seat on another shard may be the last one there.
            Step::Join { info, claim, .. } if self.absent_players.claimed_by(&info.user, *claim).is_some() => true,
            Step::Join { seat, format, .. } => {
                let shards = shards.as_ref().unwrap_or(&batch.shards);
                let needed = FormatSet::default().with(self.room.format_for(*format));
                shards.get(seat.shard).is_none_or(|shard| !shard.known.covers_objects_of(needed))
            }
            Step::Leave { seat } | Step::Away { seat, .. } if self.seated_players.player(*seat).is_some() => {
                let shards = shards.get_or_insert_with(|| batch.shards.clone());
                let shard = shards.get_or_insert(seat.shard);
                // Joins are not counted, because they may be refused: this is a lower bound on the number of players.
                shard.players = shard.players.saturating_sub(1);
                if shard.players == 0 {
                    // A shard drops the world with its last player.
                    shard.known = FormatSet::default();
                }
                false
            }
            _ => false,
        })
    }
}

impl CompletedTick {
    /// Takes the calls to send to the backend.
    pub fn take_calls(&mut self) -> Vec<GameCall> {
        std::mem::take(&mut self.outcome.calls.sent)
    }

    /// Counts of calls by outcome.
    pub fn calls(&self) -> CallCounts {
        self.calls
    }

    /// The joins, in order: the seat, and the accepted player.
    pub fn joins(&self) -> impl Iterator<Item = (SeatKey, Option<Entered>)> + '_ {
        self.entered.iter().map(|(_, seat, joined)| (*seat, joined.as_ref().ok().copied()))
    }

    /// The number of players that left because they did not come back in time.
    pub fn expired(&self) -> usize {
        self.expired
    }

    /// The number of players that leave in the next tick because their users have too many away players.
    pub fn displaced(&self) -> usize {
        self.displaced
    }

    /// Seat tokens of joins that had no effect.
    pub fn tokens_refused(&self) -> TokensRefused {
        self.tokens_refused
    }

    /// The players that each kick of the backend removes, in the order of the steps.
    pub fn ordered_kicks(&self) -> impl Iterator<Item = &[PlayerId]> {
        self.ordered_kicks.iter().map(Vec::as_slice)
    }

    /// The number of players and spectators that the game or the backend removed.
    pub fn kicked(&self) -> usize {
        self.outcome.removals.kicked.len()
    }

    /// The number of players without a client.
    pub fn away(&self) -> usize {
        self.away
    }

    /// Whether the world before the tick was encoded.
    pub fn has_keyframe(&self) -> bool {
        self.keyframe.is_some()
    }
}

/// The number of removed players.
///
/// # Errors
/// The [`Refusal`] if no player was removed.
fn answer_to_kick(players: &[PlayerId]) -> Result<Bytes, Refusal> {
    if players.is_empty() {
        return Err(Refusal { code: NOBODY_CODE, message: "no such player or spectator is in the room".into() });
    }
    Ok(Bytes::from(players.len().to_string()))
}

/// What the game receives about a client.
pub fn visitor_of(info: &ClientInfo, address: Option<IpAddr>, is_spectator: bool) -> Visitor<'_> {
    let of_token = info.chan_info.as_ref().or(info.conn_info.as_ref());
    let info_bytes = of_token.map_or(&[][..], |info| info.bytes());
    Visitor { user: &info.user, client: &info.client, info: info_bytes, is_spectator, address }
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").field("players", &self.seated_players.len()).finish_non_exhaustive()
    }
}
