//! Compares two recordings while both are replayed.

use std::collections::{BTreeMap, BTreeSet};

use super::{Replay, ReplayError};
use crate::{Object, ObjectId, PlayerId, World};

/// The result of a comparison of two recordings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// All states are equal; one recording may be longer.
    Equal {
        /// The number of ticks of each recording.
        ticks: [u32; 2],
    },
    /// The rooms are different after a tick.
    Different(Box<Difference>),
}

/// The first difference between two rooms. The values of the first room come first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The first tick after which the rooms differ; 0 if they were different from the beginning.
    pub tick: u32,
    /// The state hashes.
    pub state_hashes: [u64; 2],
    /// The steps before this tick in only one of the rooms, as [`Replay::steps`].
    pub steps: [Vec<String>; 2],
    /// Players who are in only one of the rooms.
    pub players: [Vec<PlayerId>; 2],
    /// Objects that are different, or in only one of the rooms. If there are none, the difference is in the
    /// simulation's state outside of the world, in players' viewpoints, or in the state of the random numbers.
    pub objects: Vec<(ObjectId, [Option<Object>; 2])>,
}

/// Replays two recordings up to the first difference. Both replays must be at their beginning; steps are collected.
///
/// # Errors
/// The error of a recording, and whether it is the second one. A truncated recording ends at its last complete record.
pub fn compare(one: &mut Replay<'_>, other: &mut Replay<'_>) -> Result<Comparison, (bool, ReplayError)> {
    one.watch();
    other.watch();
    let mut ticks = [0; 2];
    loop {
        if let Some(difference) = Difference::between(one, other) {
            return Ok(Comparison::Different(Box::new(difference)));
        }
        let next = [next_tick(one).map_err(|error| (false, error))?, next_tick(other).map_err(|error| (true, error))?];
        for (ticks, next) in ticks.iter_mut().zip(next) {
            *ticks = next.unwrap_or(*ticks);
        }
        match next {
            [Some(_), Some(_)] => {}
            [None, None] => return Ok(Comparison::Equal { ticks }),
            [Some(_), None] => {
                ticks[0] = rest(one).map_err(|error| (false, error))?.unwrap_or(ticks[0]);
                return Ok(Comparison::Equal { ticks });
            }
            [None, Some(_)] => {
                ticks[1] = rest(other).map_err(|error| (true, error))?.unwrap_or(ticks[1]);
                return Ok(Comparison::Equal { ticks });
            }
        }
    }
}

fn next_tick(replay: &mut Replay<'_>) -> Result<Option<u32>, ReplayError> {
    match replay.next_tick() {
        None | Some(Err(ReplayError::BreaksOff)) => Ok(None),
        Some(result) => result.map(Some),
    }
}

fn rest(replay: &mut Replay<'_>) -> Result<Option<u32>, ReplayError> {
    let mut last = None;
    while let Some(tick) = next_tick(replay)? {
        last = Some(tick);
    }
    Ok(last)
}

impl Difference {
    /// The difference between the rooms of two replays after their last tick; `None` if their state hashes are equal. The
    /// steps are those that were collected.
    pub fn between(one: &Replay<'_>, other: &Replay<'_>) -> Option<Self> {
        let state_hashes = [one, other].map(|replay| replay.room().state_hash());
        if state_hashes[0] == state_hashes[1] {
            return None;
        }
        let worlds = [one.room().world(), other.room().world()];
        let steps = [one, other].map(|replay| replay.steps().iter().map(ToString::to_string).collect::<Vec<_>>());
        Some(Self {
            tick: one.room().tick_number(),
            state_hashes,
            steps: [only(&steps[0], &steps[1]), only(&steps[1], &steps[0])],
            players: players(worlds),
            objects: objects(worlds),
        })
    }

    /// Whether players are in only one of the rooms, or objects differ. Otherwise no client can see the difference yet.
    pub fn is_in_world(&self) -> bool {
        !self.objects.is_empty() || self.players.iter().any(|players| !players.is_empty())
    }
}

/// The items of a list that are not in the other; either may contain one several times.
fn only(list: &[String], other: &[String]) -> Vec<String> {
    let mut others: BTreeMap<&str, usize> = BTreeMap::new();
    for step in other {
        *others.entry(step).or_default() += 1;
    }
    let is_only = |step: &&String| match others.get_mut(step.as_str()) {
        Some(left) if *left > 0 => {
            *left -= 1;
            false
        }
        _ => true,
    };
    list.iter().filter(is_only).cloned().collect()
}

fn players(worlds: [&World; 2]) -> [Vec<PlayerId>; 2] {
    let [one, other] = worlds.map(|world| world.players().collect::<BTreeSet<_>>());
    [one.difference(&other).copied().collect(), other.difference(&one).copied().collect()]
}

fn objects([one, other]: [&World; 2]) -> Vec<(ObjectId, [Option<Object>; 2])> {
    let ids: BTreeSet<ObjectId> = one.objects().chain(other.objects()).map(|(id, _)| id).collect();
    let found = ids.into_iter().map(|id| (id, [one.object(id), other.object(id)]));
    let different = found.filter(|(_, [one, other])| one != other);
    different.map(|(id, objects)| (id, objects.map(Option::<&Object>::cloned))).collect()
}
