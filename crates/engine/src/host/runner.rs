//! The part of a room that calls the game's code.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use dunlin_protocol::Encoding;
use dunlin_rooms::{EncodingSet, PlayerChange, PlayerId, Refusal, Room, Scoped, TickOutcome, TickUpdate, Visitor};
use hashbrown::HashMap;

use super::{
    ShardBefore, TickBatch,
    seat_book::{LeavesAt, SeatBook},
};
use crate::room::{SeatClaim, SeatKey};

/// Something that happens to a room before its next tick.
#[derive(Clone, Debug)]
pub enum Step {
    /// Somebody wants to join.
    Join {
        /// Where it will sit.
        seat: SeatKey,
        /// Its user id; empty for an anonymous one.
        user: Arc<str>,
        /// What its frames are written in.
        encoding: Encoding,
        /// For the game.
        data: Bytes,
        /// Which player it may take over, and how it can come back.
        claim: SeatClaim,
    },
    /// Somebody is gone.
    Leave {
        /// Who.
        seat: SeatKey,
    },
    /// Somebody's input.
    Input {
        /// Whose.
        seat: SeatKey,
        /// The client's number for it.
        number: u32,
        /// For the game.
        data: Bytes,
    },
    /// Somebody's client is gone, and its player stays until it comes back.
    Away {
        /// Who.
        seat: SeatKey,
    },
    /// The room goes on from a checkpoint: all clients are gone. Players stay until theirs come back, or leave.
    AllAway {
        /// For so many ticks.
        grace_ticks: u32,
    },
}

/// A room, with the game in it.
pub struct Runner {
    pub(super) room: Room,
    pub(super) players: HashMap<SeatKey, PlayerId, foldhash::quality::FixedState>,
    /// Inputs that the game could make nothing of.
    inputs_senseless: u64,
    /// Ticks since the room was made. Unlike the world's number of the tick it never begins anew.
    pub(super) ticks_run: u64,
    pub(super) book: SeatBook,
}

/// What the steps of a batch led to.
#[derive(Default)]
pub(super) struct Applied {
    entered: Vec<(usize, SeatKey, Result<PlayerId, Refusal>)>,
    left: Vec<(usize, SeatKey)>,
}

/// What a tick led to.
#[derive(Debug)]
pub struct CompletedTick {
    /// Joins: place in the batch, seat, and whether the player is in.
    pub(super) entered: Vec<(usize, SeatKey, Result<PlayerId, Refusal>)>,
    /// Leaves: place in the batch, and seat.
    pub(super) left: Vec<(usize, SeatKey)>,
    /// The world before the tick, if a shard may need its keyframe, and the encodings that are in use since.
    pub(super) keyframe: Option<(Arc<TickUpdate>, EncodingSet)>,
    /// Players without a client.
    pub(super) away: usize,
    pub(super) outcome: TickOutcome,
}

impl Runner {
    /// For a room that nobody is in.
    pub fn new(room: Room) -> Self {
        let (players, book) = (HashMap::default(), SeatBook::default());
        Self { room, players, inputs_senseless: 0, ticks_run: 0, book }
    }

    /// The room.
    pub fn room(&self) -> &Room {
        &self.room
    }

    /// The players that clients may take over after a restart, with their users.
    pub fn booked_users(&self) -> impl Iterator<Item = (PlayerId, &Arc<str>)> {
        self.book.iter().map(|(player, seat, _)| (player, &seat.user))
    }

    /// Inputs that the game could make nothing of, so far.
    pub fn inputs_senseless(&self) -> u64 {
        self.inputs_senseless
    }

    /// Ticks since the room was made, also those before a restart.
    pub fn ticks_run(&self) -> u64 {
        self.ticks_run
    }

    /// Applies the pending steps and runs one tick. `time_us` is the Unix time in the snapshots.
    pub fn run(&mut self, batch: TickBatch, time_us: u64) -> CompletedTick {
        let keyframe = self.keyframe_for(&batch);
        let Applied { entered, left } = self.apply(batch.steps);
        let encodings = self.room.encodings();
        let keyframe = keyframe.map(|keyframe| (keyframe, encodings));
        let away = self.book.away_count();
        CompletedTick { entered, left, keyframe, away, outcome: self.room.tick(time_us) }
    }

    /// Carries out what has come in before a tick. Whose time to come back is over leaves first.
    pub(super) fn apply(&mut self, steps: Vec<Step>) -> Applied {
        self.ticks_run += 1;
        while let Some(player) = self.book.take_expired(self.ticks_run) {
            self.room.leave(player);
        }
        let mut applied = Applied::default();
        for (place, step) in steps.into_iter().enumerate() {
            self.apply_step(place, step, &mut applied);
        }
        applied
    }

    fn apply_step(&mut self, place: usize, step: Step, applied: &mut Applied) {
        match step {
            Step::Join { seat, user, encoding, data, claim } => {
                let joined = self.join_or_resume(&user, encoding, &data, claim);
                if let Ok(player) = joined {
                    self.players.insert(seat, player);
                    if let Some(token) = claim.given {
                        self.book.book(player, user, token);
                    }
                }
                applied.entered.push((place, seat, joined));
            }
            Step::Leave { seat } => {
                if let Some(player) = self.players.remove(&seat) {
                    self.leave(player);
                    applied.left.push((place, seat));
                }
            }
            Step::Input { seat, number, data } => {
                // Of somebody who has left, nothing is made.
                if let Some(player) = self.players.get(&seat) {
                    self.inputs_senseless += u64::from(!self.room.input(*player, number, &data));
                }
            }
            Step::Away { seat } => {
                if let Some(player) = self.players.remove(&seat) {
                    if !self.book.set_away(player, LeavesAt(u64::MAX)) {
                        self.leave(player);
                    }
                    applied.left.push((place, seat));
                }
            }
            Step::AllAway { grace_ticks } => {
                self.players.clear();
                self.book.set_all_away(LeavesAt(self.ticks_run.saturating_add(grace_ticks.into())));
            }
        }
    }

    fn join_or_resume(
        &mut self,
        user: &str,
        encoding: Encoding,
        data: &[u8],
        claim: SeatClaim,
    ) -> Result<PlayerId, Refusal> {
        match self.book.take_back(user, claim.returned) {
            Some(player) => {
                self.room.resume(player, encoding);
                Ok(player)
            }
            None => self.room.join(&Visitor { user }, encoding, data).map(|joined| joined.player),
        }
    }

    fn leave(&mut self, player: PlayerId) {
        self.book.forget(player);
        self.room.leave(player);
    }

    /// The world as of the last tick, if somebody may come who is the first on a shard, or the first there with an encoding.
    /// Taken before anything is applied: what an input makes and the tick takes away is in no update.
    fn keyframe_for(&self, batch: &TickBatch) -> Option<Arc<TickUpdate>> {
        if !self.may_need_keyframe(batch) {
            return None;
        }
        let encodings = batch.steps.iter().fold(self.room.encodings(), |all, step| match step {
            Step::Join { encoding, .. } => all.with(*encoding),
            Step::Leave { .. } | Step::Input { .. } | Step::Away { .. } | Step::AllAway { .. } => all,
        });
        Some(self.room.keyframe(encodings))
    }

    /// Whether a join, if it is accepted, is to a shard that does not know the world in its encoding. Who comes and goes
    /// among others does not cost a world.
    fn may_need_keyframe(&self, batch: &TickBatch) -> bool {
        let mut shards: Option<Vec<ShardBefore>> = None;
        batch.steps.iter().any(|step| match step {
            Step::Join { seat, encoding, .. } => {
                let shards = shards.as_deref().unwrap_or(&batch.shards);
                shards.get(usize::from(seat.shard.0)).is_none_or(|shard| !shard.known.contains(*encoding))
            }
            Step::Leave { seat } | Step::Away { seat } if self.players.contains_key(seat) => {
                let shards = shards.get_or_insert_with(|| batch.shards.clone());
                if let Some(shard) = shards.get_mut(usize::from(seat.shard.0)) {
                    // Joins are not counted, since they may be refused: there are as many players at least.
                    shard.players = shard.players.saturating_sub(1);
                    if shard.players == 0 {
                        // With its last player a shard forgets the world.
                        shard.known = EncodingSet::default();
                    }
                }
                false
            }
            Step::Leave { .. } | Step::Input { .. } | Step::Away { .. } | Step::AllAway { .. } => false,
        })
    }
}

impl CompletedTick {
    /// A copy that shares nothing with this but the updates: whoever counts what a room allocates gives away the copy.
    #[must_use]
    pub fn detached(&self) -> Self {
        let copied = |data: &Bytes| Bytes::copy_from_slice(data);
        let players = self
            .outcome
            .players
            .iter()
            .map(|change| PlayerChange { own: change.own.as_ref().map(copied), ..change.clone() });
        let scoped = self.outcome.scoped.iter().map(|scoped| match scoped {
            Scoped::Event { players, data } => Scoped::Event { players: players.clone(), data: copied(data) },
            Scoped::Publication { channel, data } => {
                Scoped::Publication { channel: channel.clone(), data: copied(data) }
            }
        });
        Self {
            entered: self.entered.clone(),
            left: self.left.clone(),
            keyframe: self.keyframe.clone(),
            away: self.away,
            outcome: TickOutcome {
                update: Arc::clone(&self.outcome.update),
                players: players.collect(),
                scoped: scoped.collect(),
            },
        }
    }

    /// The joins, in order: the seat, and who is in.
    pub fn joins(&self) -> impl Iterator<Item = (SeatKey, Option<PlayerId>)> + '_ {
        self.entered.iter().map(|(_, seat, joined)| (*seat, joined.as_ref().ok().copied()))
    }

    /// The updates that go to shards.
    pub fn updates(&self) -> impl Iterator<Item = &Arc<TickUpdate>> {
        self.keyframe.iter().map(|(keyframe, _)| keyframe).chain([&self.outcome.update])
    }
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").field("players", &self.players.len()).finish_non_exhaustive()
    }
}
