//! The reference model of seats: which players must be in the room after each tick. It shares no code with the engine.

use std::collections::{BTreeMap, BTreeSet};

use dunlin_engine::{
    host::Step,
    room::{SeatClaim, SeatKey},
};
use dunlin_rooms::PlayerId;

/// The expected players and their seats after a tick.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptSeatModel {
    /// The last tick of each player if its client does not return, or `None` while it has a client.
    players: BTreeMap<PlayerId, Option<u64>>,
    seats: BTreeMap<SeatKey, PlayerId>,
    /// The players in the room by their valid seat tokens.
    tokens: BTreeMap<u128, PlayerId>,
    /// The seat token of each player's last join, and the token that the client presented with it.
    valid: BTreeMap<PlayerId, (u128, Option<u128>)>,
    /// Players after their first join, until an input or a second join shows that the client has the reply.
    unanswered: BTreeSet<PlayerId>,
    /// All players that ever joined.
    known: BTreeSet<PlayerId>,
}

/// The outcome of a join: the player, and whether it was in the room before.
pub type SeatedAs = Option<(PlayerId, bool)>;

impl KeptSeatModel {
    /// Applies tick `tick` of the room, which processed `steps`. `joins` are the outcomes of the joins in order, and
    /// `grace_ticks` is the time for which players stay without their clients.
    ///
    /// # Errors
    /// If a join got the wrong player, or a player left too early.
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
                // Players leave at once without a grace period, or while the client may not have its first token.
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
                        // While the node stops, the time is not limited. It is set after the restart.
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

    pub fn players(&self) -> impl Iterator<Item = PlayerId> + '_ {
        self.players.keys().copied()
    }

    /// The number of players without a client.
    pub fn away(&self) -> usize {
        self.players.values().filter(|last| last.is_some()).count()
    }

    fn join(&mut self, seat: SeatKey, claim: SeatClaim, joined: SeatedAs) -> Result<(), String> {
        let (player, is_back) = joined.ok_or("a join is rejected")?;
        let own = claim.returned.and_then(|token| self.owner_of(token.0));
        match own {
            Some(own) if (player, is_back) != (own, true) => {
                return Err(format!("the client of {own:?} gets {player:?}, resumed: {is_back}"));
            }
            None if is_back || self.known.contains(&player) => {
                return Err(format!("a new client gets {player:?}, resumed: {is_back}"));
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

    /// The player that a token resumes. The previous token is only valid while the player is away.
    fn owner_of(&self, token: u128) -> Option<PlayerId> {
        let player = *self.tokens.get(&token)?;
        let is_last = self.valid.get(&player).is_some_and(|(last, _)| *last == token);
        let is_away = self.players.get(&player).is_some_and(Option::is_some);
        (is_last || is_away).then_some(player)
    }

    /// Records that the client has the token of its last join.
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
