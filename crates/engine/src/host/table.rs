//! The part of a room that runs the game's code.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use dunlin_protocol::Encoding;
use dunlin_rooms::{EncodingSet, PlayerChange, PlayerId, Refusal, Room, Scoped, TickOutcome, TickUpdate, Visitor};
use hashbrown::HashMap;

use super::{Batch, ShardBefore};
use crate::room::SeatKey;

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
}

/// A room, with the game in it.
pub struct Table {
    room: Room,
    players: HashMap<SeatKey, PlayerId, foldhash::quality::FixedState>,
    /// Inputs that the game could make nothing of.
    inputs_senseless: u64,
}

/// What a tick led to.
#[derive(Debug)]
pub struct Done {
    /// Joins: place in the batch, seat, and whether the player is in.
    pub(super) entered: Vec<(usize, SeatKey, Result<PlayerId, Refusal>)>,
    /// Leaves: place in the batch, and seat.
    pub(super) left: Vec<(usize, SeatKey)>,
    /// The world before the tick, if some shard may need to be told of it, and the encodings that are in use since.
    pub(super) keyframe: Option<(Arc<TickUpdate>, EncodingSet)>,
    pub(super) outcome: TickOutcome,
}

impl Table {
    /// For a room that nobody is in.
    pub fn new(room: Room) -> Self {
        Self { room, players: HashMap::default(), inputs_senseless: 0 }
    }

    /// The room.
    pub fn room(&self) -> &Room {
        &self.room
    }

    /// Inputs that the game could make nothing of, so far.
    pub fn inputs_senseless(&self) -> u64 {
        self.inputs_senseless
    }

    /// Carries out what has come in, and one tick. `time_us` is the Unix time that clients are told.
    pub fn run(&mut self, batch: Batch, time_us: u64) -> Done {
        let keyframe = self.keyframe_for(&batch);
        let mut entered = Vec::new();
        let mut left = Vec::new();
        for (place, step) in batch.steps.into_iter().enumerate() {
            match step {
                Step::Join { seat, user, encoding, data } => {
                    let joined = self.room.join(&Visitor { user: &user }, encoding, &data);
                    let joined = joined.map(|joined| joined.player);
                    if let Ok(player) = joined {
                        self.players.insert(seat, player);
                    }
                    entered.push((place, seat, joined));
                }
                Step::Leave { seat } => {
                    if let Some(player) = self.players.remove(&seat) {
                        self.room.leave(player);
                        left.push((place, seat));
                    }
                }
                Step::Input { seat, number, data } => {
                    // Of somebody who has left, nothing is made.
                    let Some(player) = self.players.get(&seat) else { continue };
                    self.inputs_senseless += u64::from(!self.room.input(*player, number, &data));
                }
            }
        }
        let encodings = self.room.encodings();
        let keyframe = keyframe.map(|keyframe| (keyframe, encodings));
        Done { entered, left, keyframe, outcome: self.room.tick(time_us) }
    }

    /// The world as of the last tick, if somebody may come who is the first on a shard, or the first there with an encoding.
    /// Taken before anything is applied: what an input makes and the tick takes away is in no update.
    fn keyframe_for(&self, batch: &Batch) -> Option<Arc<TickUpdate>> {
        if !self.may_need_keyframe(batch) {
            return None;
        }
        let encodings = batch.steps.iter().fold(self.room.encodings(), |all, step| match step {
            Step::Join { encoding, .. } => all.with(*encoding),
            Step::Leave { .. } | Step::Input { .. } => all,
        });
        Some(self.room.keyframe(encodings))
    }

    /// Whether a join, if it is accepted, is to a shard that does not know the world in its encoding. Who comes and goes
    /// among others does not cost a world.
    fn may_need_keyframe(&self, batch: &Batch) -> bool {
        let mut shards: Option<Vec<ShardBefore>> = None;
        batch.steps.iter().any(|step| match step {
            Step::Join { seat, encoding, .. } => {
                let shards = shards.as_deref().unwrap_or(&batch.shards);
                shards.get(usize::from(seat.shard.0)).is_none_or(|shard| !shard.known.contains(*encoding))
            }
            Step::Leave { seat } if self.players.contains_key(seat) => {
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
            Step::Leave { .. } | Step::Input { .. } => false,
        })
    }
}

impl Done {
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

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("players", &self.players.len()).finish_non_exhaustive()
    }
}
