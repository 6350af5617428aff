//! Rates that subscribers state: the updates per second of a subscription, and the bytes per second of a session.

use std::fmt;

use dunlin_protocol::NumberMember;

/// The member of a subscription's data, and of a request to change its pace.
pub(crate) const UPDATES_PER_SECOND: &str = "updates_per_second_max";
/// The member of a request to change the pace of a session.
pub(crate) const BYTES_PER_SECOND: &str = "bytes_per_second_max";

/// The range of a subscription's updates per second. A turn every ten seconds bounds how old the newest value may be, and
/// how long a shard keeps it. Beyond a thousand, a turn is shorter than those of the event loop under load.
const UPDATES_RANGE: (f64, f64) = (0.1, 1_000.0);

/// The range of a session's bytes per second: one small update, and the maximum of `room.player_bandwidth_limit`.
const BYTES_RANGE: (u32, u32) = (1_000, 1 << 30);

const SECOND_US: u32 = 1_000_000;

/// How often a subscription is queued the newest values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpdatePace {
    interval_us: u32,
}

/// How many bytes of the latest lane and of snapshots a session is sent per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BytePace {
    bytes_per_second: u32,
}

/// A rate outside its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaceError {
    /// Of the updates per second.
    Updates,
    /// Of the bytes per second.
    Bytes,
}

/// A change of a pace by the server API; `None` removes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PaceChange {
    /// Of a subscription.
    Subscription {
        /// Its channel.
        channel: Box<str>,
        /// The new pace.
        pace: Option<UpdatePace>,
    },
    /// Of a session.
    Session(Option<BytePace>),
}

impl UpdatePace {
    /// A pace of this many updates per second.
    ///
    /// # Errors
    /// [`PaceError::Updates`]
    pub fn from_updates_per_second(updates: f64) -> Result<Self, PaceError> {
        let (min, max) = UPDATES_RANGE;
        // NaN is in no range.
        if !(min..=max).contains(&updates) {
            return Err(PaceError::Updates);
        }
        // The rate of an interval has that interval again, although it is rounded.
        let interval_us = (f64::from(SECOND_US) / updates - 0.001).ceil();
        #[expect(clippy::cast_sign_loss, reason = "the rate is in its range")]
        Ok(Self { interval_us: interval_us as u32 })
    }

    /// The pace that a member of a client's data states; `None` for no pace.
    pub(crate) fn from_member(member: NumberMember) -> Result<Option<Self>, PaceError> {
        match member {
            NumberMember::Null => Ok(None),
            NumberMember::Number(updates) => Self::from_updates_per_second(updates).map(Some),
            NumberMember::Absent | NumberMember::Other => Err(PaceError::Updates),
        }
    }

    /// The time from one turn to the next.
    pub(crate) fn interval_us(self) -> u64 {
        self.interval_us.into()
    }

    /// Updates per second.
    pub fn updates_per_second(self) -> f64 {
        f64::from(SECOND_US) / f64::from(self.interval_us)
    }

    /// Ticks from one snapshot to the next, in a room with this many ticks per second.
    pub(crate) fn interval_ticks(self, ticks_per_second: u32) -> u32 {
        // The interval is rounded up to a microsecond, which must not add a tick: 30 of 60 ticks are every second one.
        let ticks = (u64::from(self.interval_us - 1) * u64::from(ticks_per_second)).div_ceil(SECOND_US.into());
        u32::try_from(ticks).unwrap_or(u32::MAX).max(1)
    }
}

impl BytePace {
    /// A pace of this many bytes per second.
    ///
    /// # Errors
    /// [`PaceError::Bytes`]
    pub fn from_bytes_per_second(bytes: f64) -> Result<Self, PaceError> {
        let (min, max) = BYTES_RANGE;
        if !(f64::from(min)..=f64::from(max)).contains(&bytes) {
            return Err(PaceError::Bytes);
        }
        #[expect(clippy::cast_sign_loss, reason = "the rate is in its range")]
        Ok(Self { bytes_per_second: bytes as u32 })
    }

    /// The pace that a member of a client's data states; `None` for no pace.
    pub(crate) fn from_member(member: NumberMember) -> Result<Option<Self>, PaceError> {
        match member {
            NumberMember::Null => Ok(None),
            NumberMember::Number(bytes) => Self::from_bytes_per_second(bytes).map(Some),
            NumberMember::Absent | NumberMember::Other => Err(PaceError::Bytes),
        }
    }

    /// Bytes per second.
    pub const fn bytes_per_second(self) -> u32 {
        self.bytes_per_second
    }
}

impl fmt::Display for PaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Updates => {
                let (min, max) = UPDATES_RANGE;
                write!(f, "{UPDATES_PER_SECOND} must be a number from {min} to {max}, or null for no pace")
            }
            Self::Bytes => {
                let (min, max) = BYTES_RANGE;
                write!(f, "{BYTES_PER_SECOND} must be a number from {min} to {max}, or null for no pace")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paces_are_accepted_within_their_ranges() {
        let updates = |updates| UpdatePace::from_updates_per_second(updates).map(UpdatePace::interval_us);
        assert_eq!([0.1, 1.0, 60.0, 1_000.0].map(updates), [10_000_000, 1_000_000, 16_667, 1_000].map(Ok));
        for refused in [0.0, -0.0, -1.0, 0.099, 1_000.1, 1e6, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(updates(refused), Err(PaceError::Updates), "{refused}");
        }
        let bytes = |bytes| BytePace::from_bytes_per_second(bytes).map(BytePace::bytes_per_second);
        assert_eq!([1_000.0, 1_073_741_824.0].map(bytes), [1_000, 1 << 30].map(Ok));
        for refused in [0.0, -1.0, 999.0, 1_073_741_825.0, 1e18, f64::NAN, f64::INFINITY] {
            assert_eq!(bytes(refused), Err(PaceError::Bytes), "{refused}");
        }
    }

    #[test]
    fn the_rate_of_a_pace_has_the_same_interval() {
        for interval_us in (1_000..10_000).chain([16_667, 333_333, 3_333_334, 9_999_999, 10_000_000]) {
            let pace = UpdatePace { interval_us };
            assert_eq!(UpdatePace::from_updates_per_second(pace.updates_per_second()), Ok(pace));
        }
    }

    #[test]
    fn an_interval_is_a_whole_number_of_ticks_and_at_least_one() {
        let ticks = |updates: f64, per_second| {
            UpdatePace::from_updates_per_second(updates).map(|pace| pace.interval_ticks(per_second))
        };
        assert_eq!(ticks(1.0, 60), Ok(60));
        assert_eq!(ticks(0.1, 60), Ok(600));
        assert_eq!((ticks(30.0, 60), ticks(60.0, 60)), (Ok(2), Ok(1)));
        assert_eq!(ticks(50.0, 60), Ok(2), "never more often than stated");
        assert_eq!(ticks(1_000.0, 20), Ok(1));
    }
}
