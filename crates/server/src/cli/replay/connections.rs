//! What the connections of players have carried, by tick.
//!
//! The recording says of a snapshot what was skipped before it. A page asks the other way round: what did a player have at a
//! tick, and why not more?

use std::collections::BTreeMap;

use dunlin_rooms::{
    PlayerId,
    recording::{Carried, RecordedStep, Replay},
};
use serde_json::{Value, json};

/// Maximum number of gaps of all players. With their places, they take less than 64 MiB.
const GAPS_MAX: usize = 1 << 20;

/// What a player was not sent.
#[derive(Clone, Copy, Debug)]
enum Gap {
    Carried(Carried),
    /// The player had no connection.
    Away {
        from: u32,
        /// The tick with its next connection, or without the player.
        until: u32,
    },
    /// Nothing is told of the player's connection: it was on another node.
    Untold {
        from: u32,
        until: u32,
    },
}

impl Gap {
    fn from(&self) -> u32 {
        match self {
            Self::Carried(carried) => carried.first_skipped_tick(),
            Self::Away { from, .. } | Self::Untold { from, .. } => *from,
        }
    }
}

/// The gaps of all players, in the order in which they were told.
#[derive(Debug, Default)]
pub(super) struct Connections {
    gaps: BTreeMap<PlayerId, Vec<Gap>>,
    count: usize,
    pub(super) left_out: usize,
}

impl Connections {
    /// Notes what was told before a tick that was replayed.
    pub(super) fn note(&mut self, tick: u32, replay: &Replay<'_>) {
        for (player, carried) in replay.carried() {
            self.add(*player, Gap::Carried(*carried));
        }
        for step in replay.steps() {
            match step.step {
                RecordedStep::Away { player } => {
                    self.end_open(player, tick);
                    self.add(player, Gap::Away { from: tick, until: u32::MAX });
                }
                RecordedStep::Back { player, .. } | RecordedStep::Leave { player } => self.end_open(player, tick),
                _ => {}
            }
        }
        for player in replay.untold() {
            self.add(*player, Gap::Untold { from: tick, until: u32::MAX });
        }
    }

    fn add(&mut self, player: PlayerId, gap: Gap) {
        if self.count == GAPS_MAX {
            self.left_out += 1;
            return;
        }
        self.count += 1;
        self.gaps.entry(player).or_default().push(gap);
    }

    /// Ends what lasts until the player's next connection.
    fn end_open(&mut self, player: PlayerId, tick: u32) {
        if let Some(Gap::Away { until, .. } | Gap::Untold { until, .. }) =
            self.gaps.get_mut(&player).and_then(|gaps| gaps.last_mut())
        {
            *until = tick;
        }
    }

    /// The last tick up to which nothing is missing of what is known of the player. What it was not sent after that, nobody has
    /// told if it was in the room to the end of the recording.
    pub(super) fn told_until(&self, player: PlayerId) -> u32 {
        match self.gaps.get(&player).and_then(|gaps| gaps.last()) {
            None => 0,
            Some(Gap::Carried(carried)) => carried.tick,
            Some(Gap::Away { until, .. } | Gap::Untold { until, .. }) => until.saturating_sub(1),
        }
    }

    /// What the player had after this tick, if that was not this tick with everything.
    pub(super) fn at(&self, player: PlayerId, tick: u32) -> Option<Value> {
        let gaps = self.gaps.get(&player)?;
        let (last, before) = gaps.get(..gaps.partition_point(|gap| gap.from() <= tick))?.split_last()?;
        match last {
            Gap::Away { from, until } if tick < *until => {
                let had_tick = match before.last() {
                    Some(Gap::Carried(carried)) if !carried.is_sent => carried.had_tick,
                    _ => from.saturating_sub(1),
                };
                Some(had(had_tick, "away", *from, until.saturating_sub(1)))
            }
            Gap::Untold { from, until } if tick < *until => {
                Some(had(tick, "other_node", *from, until.saturating_sub(1)))
            }
            Gap::Carried(carried) if tick < carried.tick => {
                let (why, from, to) = reason_at(carried, tick);
                let mut had = had(carried.had_tick, why, from, to);
                // What the snapshot before left out is still missing.
                if let Some(Gap::Carried(before)) = before.last()
                    && before.tick == carried.had_tick
                    && let Some(zones) = zones(before)
                {
                    had["zones"] = zones;
                }
                Some(had)
            }
            Gap::Carried(carried) if tick == carried.tick && carried.is_sent => {
                zones(carried).map(|zones| json!({ "tick": tick, "zones": zones }))
            }
            Gap::Away { .. } | Gap::Untold { .. } | Gap::Carried(_) => None,
        }
    }
}

fn had(tick: u32, why: &str, from: u32, to: u32) -> Value {
    json!({ "tick": tick, "why": why, "from": from, "to": to })
}

/// Why a tick was skipped, and the first and the last that were skipped for the same reason.
fn reason_at(carried: &Carried, tick: u32) -> (&'static str, u32, u32) {
    let mut from = carried.first_skipped_tick();
    for (ticks, why) in [(carried.paced_ticks, "pace"), (carried.limited_ticks, "bandwidth")] {
        if tick < from + ticks {
            return (why, from, from + ticks - 1);
        }
        from += ticks;
    }
    (carried.wait.name(), from, carried.tick - 1)
}

/// For each zone that waits, the tick that the player has of it; `None` if none waits.
fn zones(carried: &Carried) -> Option<Value> {
    let since = carried.zone_ages_ticks.map(|age_ticks| (age_ticks > 0).then(|| carried.tick - age_ticks));
    since.iter().any(Option::is_some).then(|| json!(since))
}

#[cfg(test)]
mod tests {
    use dunlin_rooms::recording::CarriedWait;

    use super::*;

    const PLAYER: PlayerId = PlayerId(1);

    fn of(gaps: &[Gap]) -> Connections {
        let mut connections = Connections::default();
        for gap in gaps {
            connections.add(PLAYER, *gap);
        }
        connections
    }

    fn sent(had_tick: u32, tick: u32) -> Carried {
        Carried { had_tick, tick, is_sent: true, ..Carried::default() }
    }

    #[test]
    fn each_tick_of_a_gap_has_its_reason() {
        let mixed = Carried { paced_ticks: 1, limited_ticks: 2, waited_ticks: 3, ..sent(10, 17) };
        let late = Carried { waited_ticks: 1, wait: CarriedWait::Shard, ..sent(17, 19) };
        let connections = of(&[Gap::Carried(mixed), Gap::Carried(late)]);
        for (tick, expected) in [
            (10, None),
            (11, Some(had(10, "pace", 11, 11))),
            (12, Some(had(10, "bandwidth", 12, 13))),
            (13, Some(had(10, "bandwidth", 12, 13))),
            (14, Some(had(10, "connection", 14, 16))),
            (16, Some(had(10, "connection", 14, 16))),
            (17, None),
            (18, Some(had(17, "shard", 18, 18))),
            (19, None),
            (u32::MAX, None),
        ] {
            assert_eq!(connections.at(PLAYER, tick), expected, "tick {tick}");
        }
        assert_eq!(connections.at(PlayerId(2), 12), None);
        assert_eq!([1, 2].map(|player| connections.told_until(PlayerId(player))), [19, 0]);
    }

    #[test]
    fn zones_wait_until_the_next_snapshot() {
        let left_out = Carried { zone_ages_ticks: [0, 0, 3, 5], ..sent(20, 21) };
        let late = Carried { limited_ticks: 1, ..sent(21, 23) };
        let connections = of(&[Gap::Carried(left_out), Gap::Carried(late)]);
        let waiting = json!([null, null, 18, 16]);
        assert_eq!(connections.at(PLAYER, 20), None);
        assert_eq!(connections.at(PLAYER, 21), Some(json!({ "tick": 21, "zones": waiting })));
        let mut limited = had(21, "bandwidth", 22, 22);
        limited["zones"] = waiting;
        assert_eq!(connections.at(PLAYER, 22), Some(limited));
        assert_eq!(connections.at(PLAYER, 23), None, "nothing waits any more");
    }

    #[test]
    fn who_is_away_has_what_it_had_before() {
        let behind = Carried { waited_ticks: 4, is_sent: false, ..sent(30, 35) };
        let mut connections = of(&[Gap::Carried(behind), Gap::Away { from: 35, until: u32::MAX }]);
        assert_eq!(connections.at(PLAYER, 34), Some(had(30, "connection", 31, 34)));
        assert_eq!(connections.at(PLAYER, 35), Some(had(30, "away", 35, u32::MAX - 1)));
        connections.end_open(PLAYER, 50);
        assert_eq!(connections.at(PLAYER, 49), Some(had(30, "away", 35, 49)));
        assert_eq!(connections.at(PLAYER, 50), None);
        let first = Carried { waited_ticks: 2, ..sent(0, 52) };
        connections.add(PLAYER, Gap::Carried(first));
        assert_eq!(connections.at(PLAYER, 51), Some(had(0, "connection", 50, 51)));
        let in_time = of(&[Gap::Away { from: 8, until: 9 }]);
        assert_eq!(in_time.at(PLAYER, 8), Some(had(7, "away", 8, 8)));
    }

    #[test]
    fn a_connection_to_another_node_is_unknown() {
        let mut connections = of(&[Gap::Untold { from: 3, until: u32::MAX }]);
        assert_eq!(connections.at(PLAYER, 2), None);
        assert_eq!(connections.at(PLAYER, 9), Some(had(9, "other_node", 3, u32::MAX - 1)));
        connections.end_open(PLAYER, 9);
        assert_eq!(connections.told_until(PLAYER), 8);
        assert_eq!(connections.at(PLAYER, 8), Some(had(8, "other_node", 3, 8)));
        assert_eq!(connections.at(PLAYER, 9), None);
    }

    #[test]
    fn gaps_are_bounded() {
        let mut connections = Connections { count: GAPS_MAX - 1, ..Connections::default() };
        for tick in [5, 7] {
            connections.add(PLAYER, Gap::Carried(Carried { waited_ticks: 1, ..sent(tick - 2, tick) }));
        }
        assert_eq!((connections.count, connections.left_out), (GAPS_MAX, 1));
        assert!(connections.at(PLAYER, 4).is_some() && connections.at(PLAYER, 6).is_none());
        assert!(GAPS_MAX * size_of::<Gap>() < 64 << 20);
    }
}
