//! The reference model of seats: who must be in the room after each tick. It shares no code with the engine.

use std::collections::{BTreeMap, BTreeSet};

use dunlin_engine::{
    host::Step,
    room::{SeatClaim, SeatKey},
};
use dunlin_rooms::PlayerId;

/// Players and their clients, after a tick.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeatModel {
    /// The last tick in which each player is in the room, if its client does not come back; `None` while it has a client.
    players: BTreeMap<PlayerId, Option<u64>>,
    seats: BTreeMap<SeatKey, PlayerId>,
    /// Whose tokens they are, of players that are in the room.
    tokens: BTreeMap<u128, PlayerId>,
    /// The token of each player's last join, and the one which that returned.
    valid: BTreeMap<PlayerId, (u128, Option<u128>)>,
    /// Players after their first join, until their clients have shown that they have the answer.
    unanswered: BTreeSet<PlayerId>,
    /// Every player that there was.
    known: BTreeSet<PlayerId>,
}

/// A join as the room carried it out: the player, and whether that was in the room before.
pub type SeatedAs = Option<(PlayerId, bool)>;

impl SeatModel {
    /// The room runs tick `tick`, which begins with `steps`. `joins` are the outcomes of the joins in order, and `grace_ticks`
    /// is for how long players stay without their clients.
    ///
    /// # Errors
    /// A join that has another player than its own.
    pub fn run(
        &mut self,
        tick: u64,
        steps: &[Step],
        joins: impl IntoIterator<Item = SeatedAs>,
        grace_ticks: u32,
    ) -> Result<(), String> {
        let gone: Vec<PlayerId> =
            self.players.iter().filter(|(_, last)| last.is_some_and(|last| last < tick)).map(|(id, _)| *id).collect();
        for player in gone {
            self.remove(player);
        }
        let mut joins = joins.into_iter();
        for step in steps {
            match step {
                Step::Join { seat, claim, .. } => {
                    let joined = joins.next().ok_or("a join without an outcome")?;
                    self.join(*seat, *claim, joined).map_err(|error| format!("tick {tick}: {error}"))?;
                }
                // Without grace, and before the answer to a first join: its client has no token.
                Step::Leave { seat } => {
                    if let Some(player) = self.seats.remove(seat) {
                        if grace_ticks > 0 && !self.unanswered.contains(&player) {
                            return Err(format!("tick {tick}: {player:?} leaves with its connection"));
                        }
                        self.remove(player);
                    }
                }
                Step::Input { seat, .. } => {
                    if let Some(player) = self.seats.get(seat) {
                        self.confirm(*player);
                    }
                }
                Step::Away { seat, stay } => {
                    let player = self.seats.remove(seat);
                    if let Some(player) = player {
                        // Without terms until the room goes on after a restart.
                        let last = if stay.is_some() { tick + u64::from(grace_ticks) - 1 } else { u64::MAX };
                        self.players.insert(player, Some(last));
                    }
                }
                Step::AllAway { grace_ticks } => {
                    self.seats.clear();
                    self.players.values_mut().for_each(|last| *last = Some(tick + u64::from(*grace_ticks) - 1));
                }
                other => return Err(format!("tick {tick}: {other:?}")),
            }
        }
        Ok(())
    }

    /// The players that must be in the room.
    pub fn players(&self) -> impl Iterator<Item = PlayerId> + '_ {
        self.players.keys().copied()
    }

    /// Players without a client.
    pub fn away(&self) -> usize {
        self.players.values().filter(|last| last.is_some()).count()
    }

    fn join(&mut self, seat: SeatKey, claim: SeatClaim, joined: SeatedAs) -> Result<(), String> {
        let (player, is_back) = joined.ok_or("a join is refused")?;
        let own = claim.returned.and_then(|token| self.owner_of(token.0));
        match own {
            Some(own) if (player, is_back) != (own, true) => {
                return Err(format!("the client of {own:?} gets {player:?}, back: {is_back}"));
            }
            None if is_back || self.known.contains(&player) => {
                return Err(format!("a new client gets {player:?}, back: {is_back}"));
            }
            _ => {}
        }
        self.known.insert(player);
        if is_back {
            self.unanswered.remove(&player);
        } else {
            self.unanswered.insert(player);
        }
        self.seats.retain(|_, seated| *seated != player);
        self.seats.insert(seat, player);
        self.players.insert(player, None);
        let given = claim.given.ok_or("a join without a token")?.0;
        let returned = own.and(claim.returned).map(|token| token.0);
        self.forget_tokens(player);
        self.valid.insert(player, (given, returned));
        self.tokens.extend([Some(given), returned].into_iter().flatten().map(|token| (token, player)));
        Ok(())
    }

    /// The player that a token brings back: that of the last join always, the one before only while the player is away.
    fn owner_of(&self, token: u128) -> Option<PlayerId> {
        let player = *self.tokens.get(&token)?;
        let is_last = self.valid.get(&player).is_some_and(|(last, _)| *last == token);
        let is_away = self.players.get(&player).is_some_and(Option::is_some);
        (is_last || is_away).then_some(player)
    }

    /// The client has shown that it has the token of its last join.
    fn confirm(&mut self, player: PlayerId) {
        self.unanswered.remove(&player);
        if let Some((_, returned)) = self.valid.get_mut(&player)
            && let Some(returned) = returned.take()
        {
            self.tokens.remove(&returned);
        }
    }

    fn remove(&mut self, player: PlayerId) {
        self.unanswered.remove(&player);
        self.players.remove(&player);
        self.seats.retain(|_, seated| *seated != player);
        self.forget_tokens(player);
    }

    fn forget_tokens(&mut self, player: PlayerId) {
        self.valid.remove(&player);
        self.tokens.retain(|_, owner| *owner != player);
    }
}
