//! The reference model of seats: which players must be in a room after each tick. It shares no code with the engine.

use std::collections::{BTreeMap, BTreeSet};

use dunlin_engine::{
    api::KickTarget,
    host::{CompletedTick, Entered, Step},
    room::{SeatClaim, SeatKey},
};
use dunlin_rooms::{PlayerId, Room};

/// How the clients of a room leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Departures {
    /// They unsubscribe, are kicked, or lose their connections. [`SeatModel::lose`] records the lost connections.
    #[default]
    Any,
    /// They only lose their connections, and the room is restored after its node stops.
    LostConnections,
}

/// The expected players of a room.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeatModel {
    departures: Departures,
    grace_ticks: u32,
    away_per_user_max: usize,
    players: BTreeMap<PlayerId, SeatHolder>,
    seats: BTreeMap<SeatKey, PlayerId>,
    /// Seats whose connections are lost and whose departure the room has not processed yet.
    lost: BTreeSet<SeatKey>,
    /// Seats whose connections were lost before the join was answered. Each counts for one tick.
    abandoned: BTreeSet<SeatKey>,
    /// Players after their first join, until an input or a second join shows that the client has the reply.
    unanswered: BTreeSet<PlayerId>,
    /// All players that ever joined.
    known: BTreeSet<PlayerId>,
    /// The players that the backend kicked in the last tick, and how many of them were away.
    pub kicked: (BTreeSet<PlayerId>, u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct SeatHolder {
    user: String,
    /// The seat token of the last join, if the room issues tokens.
    token: Option<u128>,
    /// The token that the client presented with that join. It is valid until an input shows that the client has the
    /// reply.
    returned: Option<u128>,
    away: Option<Absence>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Absence {
    /// The last tick in which the player is in the room. It has no limit while the node stops.
    last_tick: u64,
    /// Whether the player leaves early because its user has too many players that are away.
    is_displaced: bool,
}

impl SeatModel {
    /// The model of an empty room.
    pub fn new(departures: Departures, grace_ticks: u32, away_per_user_max: u32) -> Self {
        let away_per_user_max = away_per_user_max as usize;
        Self { departures, grace_ticks, away_per_user_max, ..Self::default() }
    }

    /// Applies tick `tick`, which processed `steps`, and compares the players with those of the room.
    ///
    /// # Errors
    /// If a player is duplicated, lost or swapped with another one, or does not leave at the exact tick.
    pub fn check(&mut self, tick: u64, steps: &[Step], done: &CompletedTick, room: &Room) -> Result<(), String> {
        self.run(tick, steps, done)?;
        let here: Vec<PlayerId> = room.world().players().collect();
        if !self.players.keys().eq(&here) {
            return Err(format!("the players are {here:?} instead of {:?}", self.players.keys()));
        }
        let away = self.players.values().filter(|holder| holder.away.is_some()).count();
        if away == done.away() { Ok(()) } else { Err(format!("{} players are away instead of {away}", done.away())) }
    }

    /// Whether a player has the token that a join is given.
    pub fn knows(&self, claim: SeatClaim) -> bool {
        self.players.values().any(|holder| claim.given.is_some_and(|given| holder.token == Some(given.0)))
    }

    /// Records that the room was notified of the lost connection of a seat.
    pub fn lose(&mut self, seat: SeatKey) {
        self.lost.insert(seat);
    }

    /// Records that the room was notified of the lost connection of a seat whose join it had not answered.
    pub fn abandon(&mut self, seat: SeatKey) {
        self.abandoned.insert(seat);
    }

    /// Whether the client of a player can identify itself: it has a user, or the reply to an earlier join.
    fn may_come_back(&self, player: PlayerId) -> bool {
        let is_user = self.players.get(&player).is_some_and(|holder| !holder.user.is_empty());
        is_user || !self.unanswered.contains(&player)
    }

    fn run(&mut self, tick: u64, steps: &[Step], done: &CompletedTick) -> Result<(), String> {
        self.expire(tick);
        self.kicked = (BTreeSet::new(), 0);
        let (mut joins, mut kicks) = (done.joins(), done.ordered_kicks());
        for step in steps {
            match step {
                Step::Join { seat, .. } if self.abandoned.contains(seat) => {
                    return Err(format!("the join of {seat:?} is run, whose session has ended"));
                }
                Step::Join { seat, info, claim, .. } => {
                    let (of, joined) = joins.next().filter(|(of, _)| of == seat).ok_or("a join without an outcome")?;
                    self.join(of, &info.user, *claim, joined)?;
                }
                Step::Leave { seat } => {
                    let (is_noted, is_abandoned) = (self.lost.remove(seat), self.abandoned.remove(seat));
                    if let Some(player) = self.seats.remove(seat) {
                        let is_lost = match self.departures {
                            Departures::Any => is_noted || is_abandoned && self.may_come_back(player),
                            // The player leaves at once while its client may not have the token of its first join.
                            Departures::LostConnections => !self.unanswered.contains(&player),
                        };
                        if is_lost && self.grace_ticks > 0 {
                            return Err(format!("{player:?} leaves with its connection"));
                        }
                        self.remove(player);
                    }
                }
                Step::Away { seat, stay } => {
                    let is_abandoned = self.abandoned.remove(seat);
                    let may_stay = match self.seats.get(seat) {
                        Some(player) if is_abandoned => self.may_come_back(*player),
                        _ => self.lost.remove(seat) || is_abandoned,
                    };
                    if !may_stay && self.departures == Departures::Any {
                        return Err(format!("{seat:?} left, but its player stays"));
                    }
                    if let Some(player) = self.seats.remove(seat) {
                        let last_tick = if stay.is_some() { tick + u64::from(self.grace_ticks) - 1 } else { u64::MAX };
                        self.go_away(player, tick, last_tick);
                    }
                }
                Step::AllAway { grace_ticks } => self.go_all_away(tick + u64::from(*grace_ticks) - 1),
                Step::Input { seat, .. } => {
                    if let Some(player) = self.seats.get(seat) {
                        self.unanswered.remove(player);
                        if let Some(holder) = self.players.get_mut(player) {
                            holder.returned = None;
                        }
                    }
                }
                Step::Kick { order, .. } if self.departures == Departures::Any => {
                    let expected = self.targets(&order.target);
                    let ordered = kicks.next().ok_or("a kick without an outcome")?;
                    if !expected.iter().eq(ordered) {
                        return Err(format!("{:?} removes {ordered:?} instead of {expected:?}", order.target));
                    }
                    self.kicked.0.extend(expected);
                }
                other => return Err(format!("{other:?}")),
            }
        }
        for player in self.kicked.0.clone() {
            self.kicked.1 += u64::from(self.remove(player));
        }
        // The joins of the other ones were not run.
        self.abandoned.clear();
        Ok(())
    }

    fn expire(&mut self, tick: u64) {
        self.players.retain(|_, holder| holder.away.as_ref().is_none_or(|away| away.last_tick >= tick));
    }

    fn join(&mut self, seat: SeatKey, user: &str, claim: SeatClaim, joined: Option<Entered>) -> Result<(), String> {
        let own = self.claimed(user, claim);
        let before = self.seats.iter().find(|(_, seated)| Some(**seated) == own).map(|(before, _)| *before);
        let entered = match (own, joined) {
            (Some(own), Some(entered)) if (entered.player, entered.is_back) == (own, true) => entered,
            (None, Some(entered)) if !entered.is_back && self.known.insert(entered.player) => entered,
            (None, Some(_)) if claim.is_keeping() => {
                return Err(format!("a kept seat gets another player: {joined:?}"));
            }
            // The game or the room rejected the join.
            (None, None) => return Ok(()),
            (_, None) => return Err(format!("a client of {user:?} is rejected, expected {own:?}")),
            (_, Some(Entered { player, is_back, .. })) => {
                return Err(format!("a client of {user:?} gets {player:?}, resumed: {is_back}, expected {own:?}"));
            }
        };
        if entered.left_seat != before {
            return Err(format!("{:?} had seat {before:?}, but leaves {:?}", entered.player, entered.left_seat));
        }
        if let Some(before) = before {
            self.seats.remove(&before);
        }
        self.seats.insert(seat, entered.player);
        if entered.is_back {
            self.unanswered.remove(&entered.player);
        } else {
            self.unanswered.insert(entered.player);
        }
        if claim.is_keeping() {
            self.players.get_mut(&entered.player).expect("the player that it has").away = None;
            return Ok(());
        }
        let own_tokens = self.players.get(&entered.player).map(|holder| [holder.token, holder.returned]);
        let returned = claim.returned.map(|token| token.0);
        let returned = returned.filter(|token| own_tokens.is_some_and(|own| own.contains(&Some(*token))));
        let token = claim.given.map(|token| token.0);
        self.players.insert(entered.player, SeatHolder { user: user.to_owned(), token, returned, away: None });
        Ok(())
    }

    /// The existing player that a join must get: the one that it has made before, the one of its token, or else the user's
    /// first player that is away.
    fn claimed(&self, user: &str, claim: SeatClaim) -> Option<PlayerId> {
        let given = claim.given?;
        let is_same_join = |holder: &SeatHolder| holder.user == user && holder.token == Some(given.0);
        let is_match = |holder: &SeatHolder| {
            let Some(token) = claim.returned.map(|token| token.0) else { return false };
            let is_earlier = holder.returned == Some(token) && holder.away.is_some();
            holder.user == user && (holder.token == Some(token) || is_earlier)
        };
        let of_join = self.players.iter().find(|(_, holder)| is_same_join(holder));
        if claim.is_keeping() {
            return of_join.map(|(player, _)| *player);
        }
        let of_token = of_join.or_else(|| self.players.iter().find(|(_, holder)| is_match(holder)));
        let is_away = |holder: &SeatHolder| !user.is_empty() && holder.user == user && holder.away.is_some();
        let found = of_token.or_else(|| self.players.iter().find(|(_, holder)| is_away(holder)));
        found.map(|(player, _)| *player)
    }

    /// The room goes on without its clients.
    fn go_all_away(&mut self, last_tick: u64) {
        self.seats.clear();
        self.lost.clear();
        self.abandoned.clear();
        for holder in self.players.values_mut() {
            holder.away = Some(Absence { last_tick, is_displaced: false });
        }
    }

    fn go_away(&mut self, player: PlayerId, tick: u64, last_tick: u64) {
        let Some(holder) = self.players.get_mut(&player) else { return };
        holder.away = Some(Absence { last_tick, is_displaced: false });
        let user = holder.user.clone();
        let of_user = self.players.iter_mut().filter(|(_, other)| !user.is_empty() && other.user == user);
        let mut waiting: Vec<(PlayerId, &mut Absence)> = of_user
            .filter_map(|(player, other)| Some((*player, other.away.as_mut().filter(|away| !away.is_displaced)?)))
            .collect();
        waiting.sort_by_key(|(player, away)| (away.last_tick, *player));
        if waiting.len() > self.away_per_user_max {
            (waiting[0].1.last_tick, waiting[0].1.is_displaced) = (tick, true);
        }
    }

    fn targets(&self, target: &KickTarget) -> Vec<PlayerId> {
        let is_match = |player: PlayerId, holder: &SeatHolder| match target {
            KickTarget::User(user) => !user.is_empty() && *holder.user == **user,
            KickTarget::Player(other) => player == *other,
            KickTarget::Client(_) => false,
        };
        let players = self.players.iter();
        players.filter(|(player, holder)| is_match(**player, holder)).map(|(player, _)| *player).collect()
    }

    /// Removes a player and returns whether it was away.
    fn remove(&mut self, player: PlayerId) -> bool {
        self.unanswered.remove(&player);
        self.seats.retain(|_, seated| *seated != player);
        self.players.remove(&player).is_some_and(|holder| holder.away.is_some())
    }
}
