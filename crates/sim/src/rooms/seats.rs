//! The reference model of seats: who must be in a room after each tick. It shares no code with the engine.

use std::collections::{BTreeMap, BTreeSet};

use dunlin_engine::{
    api::KickTarget,
    host::{CompletedTick, Entered, Step},
    room::{SeatClaim, SeatKey},
};
use dunlin_rooms::PlayerId;

/// The players of a room.
pub struct SeatTruth {
    grace_ticks: u32,
    away_per_user_max: usize,
    players: BTreeMap<PlayerId, SeatHolder>,
    seats: BTreeMap<SeatKey, PlayerId>,
    /// Seats that leave next because their connections are lost.
    lost: BTreeSet<SeatKey>,
    /// Every player that there was.
    known: BTreeSet<PlayerId>,
    /// Players whom the backend had removed in the last tick, and how many of them were away.
    pub kicked: (BTreeSet<PlayerId>, u64),
}

struct SeatHolder {
    user: String,
    /// That of the last join, where joins get tokens.
    token: Option<u128>,
    /// What that join returned, until the client has shown that it has the answer.
    returned: Option<u128>,
    away: Option<Absence>,
}

struct Absence {
    /// The last tick in which the player is in the room.
    last_tick: u64,
    /// Because its user had too many.
    is_displaced: bool,
}

impl SeatTruth {
    /// Of an empty room.
    pub fn new(grace_ticks: u32, away_per_user_max: u32) -> Self {
        Self {
            grace_ticks,
            away_per_user_max: away_per_user_max as usize,
            players: BTreeMap::new(),
            seats: BTreeMap::new(),
            lost: BTreeSet::new(),
            known: BTreeSet::new(),
            kicked: (BTreeSet::new(), 0),
        }
    }

    /// The connection of a seat is lost, and the room gets the message.
    pub fn lose(&mut self, seat: SeatKey) {
        self.lost.insert(seat);
    }

    /// The room has run tick `tick`, which began with `steps`.
    ///
    /// # Errors
    /// Whoever is doubled, lost or mixed up.
    pub fn run(&mut self, tick: u64, steps: &[Step], done: &CompletedTick) -> Result<(), String> {
        self.expire(tick);
        self.kicked = (BTreeSet::new(), 0);
        let (mut joins, mut kicks) = (done.joins(), done.ordered_kicks());
        for step in steps {
            match step {
                Step::Join { seat, info, claim, .. } => {
                    let (of, joined) = joins.next().filter(|(of, _)| of == seat).ok_or("a join without an outcome")?;
                    self.join(of, &info.user, *claim, joined)?;
                }
                Step::Leave { seat } => {
                    let is_lost = self.lost.remove(seat);
                    if let Some(player) = self.seats.remove(seat) {
                        if is_lost && self.grace_ticks > 0 {
                            return Err(format!("{player:?} leaves with its connection"));
                        }
                        self.players.remove(&player);
                    }
                }
                Step::Away { seat, .. } => {
                    if !self.lost.remove(seat) {
                        return Err(format!("{seat:?} has left, and its player stays"));
                    }
                    if let Some(player) = self.seats.remove(seat) {
                        self.go_away(player, tick);
                    }
                }
                Step::Input { seat, .. } => {
                    let holder = self.seats.get(seat).and_then(|player| self.players.get_mut(player));
                    if let Some(holder) = holder {
                        holder.returned = None;
                    }
                }
                Step::Kick { order, .. } => {
                    let expected = self.meant_by(&order.target);
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
        Ok(())
    }

    /// The players that must be in the room.
    pub fn players(&self) -> impl Iterator<Item = PlayerId> + '_ {
        self.players.keys().copied()
    }

    /// Players without a client.
    pub fn away(&self) -> usize {
        self.players.values().filter(|holder| holder.away.is_some()).count()
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
            // The game, or the room, lets nobody in.
            (None, None) => return Ok(()),
            _ => return Err(format!("a client of {user:?} gets {joined:?}, and should get {own:?}")),
        };
        if entered.left_seat != before {
            return Err(format!("{:?} had {before:?}, and leaves {:?}", entered.player, entered.left_seat));
        }
        if let Some(before) = before {
            self.seats.remove(&before);
        }
        self.seats.insert(seat, entered.player);
        let own_tokens = self.players.get(&entered.player).map(|holder| [holder.token, holder.returned]);
        let returned = claim.returned.map(|token| token.0);
        let returned = returned.filter(|token| own_tokens.is_some_and(|own| own.contains(&Some(*token))));
        let token = claim.given.map(|token| token.0);
        self.players.insert(entered.player, SeatHolder { user: user.to_owned(), token, returned, away: None });
        Ok(())
    }

    /// The player that a join has to get: that of its token, otherwise the user's first one that is away.
    fn claimed(&self, user: &str, claim: SeatClaim) -> Option<PlayerId> {
        claim.given?;
        let is_meant = |holder: &SeatHolder| {
            let Some(token) = claim.returned.map(|token| token.0) else { return false };
            let is_earlier = holder.returned == Some(token) && holder.away.is_some();
            holder.user == user && (holder.token == Some(token) || is_earlier)
        };
        let of_token = self.players.iter().find(|(_, holder)| is_meant(holder));
        let is_away = |holder: &SeatHolder| !user.is_empty() && holder.user == user && holder.away.is_some();
        let found = of_token.or_else(|| self.players.iter().find(|(_, holder)| is_away(holder)));
        found.map(|(player, _)| *player)
    }

    fn go_away(&mut self, player: PlayerId, tick: u64) {
        let Some(holder) = self.players.get_mut(&player) else { return };
        holder.away = Some(Absence { last_tick: tick + u64::from(self.grace_ticks) - 1, is_displaced: false });
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

    fn meant_by(&self, target: &KickTarget) -> Vec<PlayerId> {
        let is_meant = |player: PlayerId, holder: &SeatHolder| match target {
            KickTarget::User(user) => !user.is_empty() && *holder.user == **user,
            KickTarget::Player(meant) => player == *meant,
            KickTarget::Client(_) => false,
        };
        let players = self.players.iter();
        players.filter(|(player, holder)| is_meant(**player, holder)).map(|(player, _)| *player).collect()
    }

    /// Returns whether the player was away.
    fn remove(&mut self, player: PlayerId) -> bool {
        self.seats.retain(|_, seated| *seated != player);
        self.players.remove(&player).is_some_and(|holder| holder.away.is_some())
    }
}
