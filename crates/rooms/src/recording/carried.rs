//! What a player's connection carried, when that was not simply each tick with everything.
//!
//! It is told after the fact, and has no effect on the room: a replay passes it on, and nothing else.

use std::fmt;

use crate::{
    PlayerId, ZONES,
    binary::{Reader, Unreadable, put_number},
};

/// The ticks that a player was not sent before a snapshot, or before it left, and what that snapshot left out.
///
/// The ticks that were skipped are consecutive: first those that the player's pace left out, then those for which its
/// bandwidth limit allowed no snapshot, then those of which a snapshot waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// The last tick that the player had; 0 for none.
    pub had_tick: u32,
    /// The first tick after those that were skipped: that of the snapshot, if it was sent.
    pub tick: u32,
    /// Ticks that its pace left out: it asks for fewer.
    pub paced_ticks: u32,
    /// Ticks for which its bandwidth limit allowed no snapshot.
    pub limited_ticks: u32,
    /// Ticks of which a snapshot was due and was not written.
    pub waited_ticks: u32,
    /// What those waited for.
    pub wait: CarriedWait,
    /// Whether the snapshot was sent. Otherwise, the player has left before.
    pub is_sent: bool,
    /// How many ticks before the snapshot the state is that the player has of each zone of its view that waits for its
    /// bandwidth limit; 0 for zones that do not wait.
    pub zone_ages_ticks: [u32; ZONES],
}

/// What a snapshot that was due waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CarriedWait {
    /// The connection, which had not taken what was sent before.
    #[default]
    Connection,
    /// The shard, to which several ticks came at once: it, or what the ticks passed before, was behind.
    Shard,
    /// The connection, or the bytes per second that the session has stated.
    SessionPace,
}

impl CarriedWait {
    /// By the number in recordings.
    const ALL: [Self; 3] = [Self::Connection, Self::Shard, Self::SessionPace];

    /// The name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Shard => "shard",
            Self::SessionPace => "session_pace",
        }
    }
}

/// The bits of the flags.
const WAIT_BITS: u8 = 0b11;
const IS_SENT: u8 = 1 << 2;
const HAS_ZONES: u8 = 1 << 3;

impl Carried {
    /// The number of skipped ticks.
    pub fn skipped_ticks(&self) -> u32 {
        self.paced_ticks.saturating_add(self.limited_ticks).saturating_add(self.waited_ticks)
    }

    /// The first skipped tick; the tick of the snapshot if none was.
    pub fn first_skipped_tick(&self) -> u32 {
        self.tick.saturating_sub(self.skipped_ticks())
    }

    /// Whether there is something to tell: most players have each tick with everything.
    pub fn is_worth_telling(&self) -> bool {
        self.skipped_ticks() > 0 || self.zone_ages_ticks != [0; ZONES]
    }

    /// Whether it can have happened. Writers assert it and readers demand it, so that who uses it need not.
    pub fn is_possible(&self) -> bool {
        let counts = [self.paced_ticks, self.limited_ticks, self.waited_ticks];
        let skipped = counts.iter().try_fold(0_u32, |sum, ticks| sum.checked_add(*ticks));
        // The ticks of a room begin with 1, and those after what the player had are skipped, all of them.
        let follows = skipped.is_some_and(|skipped| match self.had_tick {
            0 => skipped < self.tick,
            had_tick => had_tick.checked_add(skipped).and_then(|tick| tick.checked_add(1)) == Some(self.tick),
        });
        let waited = self.waited_ticks > 0 || self.wait == CarriedWait::default();
        let has_ages = self.zone_ages_ticks.iter().all(|age_ticks| *age_ticks < self.tick);
        self.is_worth_telling() && follows && waited && has_ages
    }

    pub(super) fn write(&self, player: PlayerId, out: &mut Vec<u8>) {
        debug_assert!(self.is_possible(), "{self:?}");
        let has_zones = self.zone_ages_ticks != [0; ZONES];
        put_number(u64::from(player.0), out);
        let sent = if self.is_sent { IS_SENT } else { 0 };
        out.push(self.wait as u8 | sent | if has_zones { HAS_ZONES } else { 0 });
        for number in [self.tick, self.had_tick, self.paced_ticks, self.limited_ticks, self.waited_ticks] {
            put_number(u64::from(number), out);
        }
        for age_ticks in self.zone_ages_ticks.iter().filter(|_| has_zones) {
            put_number(u64::from(*age_ticks), out);
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<(PlayerId, Self), Unreadable> {
        let player = PlayerId(reader.number_of()?);
        let flags = reader.byte()?;
        let wait = CarriedWait::ALL.get(usize::from(flags & WAIT_BITS)).copied().ok_or(Unreadable::Wrong)?;
        if flags & !(WAIT_BITS | IS_SENT | HAS_ZONES) != 0 {
            return Err(Unreadable::Wrong);
        }
        let mut carried = Self {
            tick: reader.number_of()?,
            had_tick: reader.number_of()?,
            paced_ticks: reader.number_of()?,
            limited_ticks: reader.number_of()?,
            waited_ticks: reader.number_of()?,
            wait,
            is_sent: flags & IS_SENT != 0,
            zone_ages_ticks: [0; ZONES],
        };
        if flags & HAS_ZONES != 0 {
            for age_ticks in &mut carried.zone_ages_ticks {
                *age_ticks = reader.number_of()?;
            }
        }
        if carried.is_possible() { Ok((player, carried)) } else { Err(Unreadable::Wrong) }
    }
}

/// A description for humans, after the player.
impl fmt::Display for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.is_sent, self.had_tick) {
            (true, 0) => write!(f, "was sent tick {} first", self.tick)?,
            (true, had_tick) => write!(f, "was sent tick {} after tick {had_tick}", self.tick)?,
            (false, 0) => f.write_str("has left before it was sent a tick")?,
            (false, had_tick) => write!(f, "has left with tick {had_tick}")?,
        }
        for (ticks, why) in [
            (self.paced_ticks, "left out by its pace"),
            (self.limited_ticks, "skipped for its bandwidth limit"),
            (self.waited_ticks, self.wait.text()),
        ] {
            if ticks > 0 {
                write!(f, ", {ticks} {} {why}", if ticks == 1 { "tick" } else { "ticks" })?;
            }
        }
        for (zone, age_ticks) in self.zone_ages_ticks.iter().enumerate().filter(|(_, age_ticks)| **age_ticks > 0) {
            write!(f, ", zone {zone} waits since tick {} for its bandwidth limit", self.tick - age_ticks)?;
        }
        Ok(())
    }
}

impl CarriedWait {
    const fn text(self) -> &'static str {
        match self {
            Self::Connection => "skipped because its connection had not taken the last snapshot",
            Self::Shard => "skipped because several came to its shard at once",
            Self::SessionPace => "skipped because its connection or its session's pace allowed no more",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAYER: PlayerId = PlayerId(300);

    /// What can happen, its bytes, and its text.
    fn vectors() -> [(Carried, &'static [u8], &'static str); 5] {
        let sent = Carried { is_sent: true, ..Carried::default() };
        [
            (
                Carried { had_tick: 812, tick: 821, waited_ticks: 8, ..sent },
                &[0xac, 2, 4, 0xb5, 6, 0xac, 6, 0, 0, 8],
                "was sent tick 821 after tick 812, 8 ticks skipped because its connection had not taken the last \
                 snapshot",
            ),
            (
                Carried { had_tick: 5, tick: 13, paced_ticks: 1, limited_ticks: 2, waited_ticks: 4, ..sent },
                &[0xac, 2, 4, 13, 5, 1, 2, 4],
                "was sent tick 13 after tick 5, 1 tick left out by its pace, 2 ticks skipped for its bandwidth limit, 4 \
                 ticks skipped because its connection had not taken the last snapshot",
            ),
            (
                Carried { had_tick: 820, tick: 821, zone_ages_ticks: [0, 0, 0, 16], ..sent },
                &[0xac, 2, 12, 0xb5, 6, 0xb4, 6, 0, 0, 0, 0, 0, 0, 16],
                "was sent tick 821 after tick 820, zone 3 waits since tick 805 for its bandwidth limit",
            ),
            (
                Carried { tick: 4, waited_ticks: 3, wait: CarriedWait::Shard, ..sent },
                &[0xac, 2, 5, 4, 0, 0, 0, 3],
                "was sent tick 4 first, 3 ticks skipped because several came to its shard at once",
            ),
            (
                Carried { had_tick: 7, tick: 9, waited_ticks: 1, wait: CarriedWait::SessionPace, ..Carried::default() },
                &[0xac, 2, 2, 9, 7, 0, 0, 1],
                "has left with tick 7, 1 tick skipped because its connection or its session's pace allowed no more",
            ),
        ]
    }

    fn read(bytes: &[u8]) -> Result<(PlayerId, Carried), Unreadable> {
        Carried::read(&mut Reader::new(bytes))
    }

    #[test]
    fn it_is_written_as_in_the_vectors_and_read_again() {
        for (carried, bytes, text) in vectors() {
            let mut written = Vec::new();
            carried.write(PLAYER, &mut written);
            assert_eq!(written, bytes, "{carried:?}");
            assert_eq!(read(bytes), Ok((PLAYER, carried)));
            assert_eq!(carried.to_string(), text);
            assert_eq!(carried.first_skipped_tick() + carried.skipped_ticks(), carried.tick);
            for end in 0..bytes.len() {
                assert_eq!(read(&bytes[..end]), Err(Unreadable::Short), "cut after {end} bytes");
            }
        }
    }

    #[test]
    fn what_cannot_have_happened_is_not_read() {
        const MOST: &[u8] = &[0xff, 0xff, 0xff, 0xff, 0x0f];
        let cases: [(&str, Vec<u8>); 9] = [
            ("nothing to tell", vec![1, 4, 6, 5, 0, 0, 0]),
            ("ticks between are not told", vec![1, 4, 9, 5, 0, 0, 1]),
            ("the past", vec![1, 4, 5, 9, 0, 0, 1]),
            ("more skipped ticks than there were", vec![1, 4, 3, 0, 0, 0, 3]),
            ("a reason without ticks", vec![1, 5, 7, 5, 1, 0, 0]),
            ("an unknown reason", vec![1, 7, 7, 5, 0, 0, 1]),
            ("an unknown flag", vec![1, 4 | 16, 7, 5, 0, 0, 1]),
            ("a zone older than the room", vec![1, 12, 6, 5, 0, 0, 0, 0, 0, 0, 6]),
            ("a sum that overflows", [&[1, 4][..], MOST, &[0], MOST, MOST, &[1]].concat()),
        ];
        for (what, bytes) in cases {
            assert_eq!(read(&bytes), Err(Unreadable::Wrong), "{what}");
        }
        assert!(read(&[1, 4, 3, 0, 0, 0, 2]).is_ok(), "the first ticks of the room");
        assert!(read(&[1, 12, 6, 5, 0, 0, 0, 0, 0, 0, 5]).is_ok(), "a zone as old as the room");
    }
}
