//! Times in JSON: of claims, hooks and the server API.

use std::fmt;

use serde::{Deserialize, Deserializer, de::Visitor};

/// The end of the year 9999, the last year that RFC 3339 can represent. A later time is reduced to it.
const TIME_MAX_S: i64 = 253_402_300_799;

/// Seconds since 1970, possibly with a fraction (RFC 7519, section 2), rounded to milliseconds. That is the resolution
/// of the clock that it is compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnixTime {
    ms: i64,
}

impl UnixTime {
    /// Milliseconds since 1970. A time before is 0.
    pub fn unix_ms(self) -> u64 {
        u64::try_from(self.ms).unwrap_or(0)
    }

    /// The time of an expiry in milliseconds since 1970. 0 and negative times mean never.
    pub fn expiry_ms(self) -> Option<u64> {
        u64::try_from(self.ms).ok().filter(|ms| *ms > 0)
    }

    /// Whether the time is before 1970.
    pub const fn is_negative(self) -> bool {
        self.ms < 0
    }
}

impl<'de> Deserialize<'de> for UnixTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_f64(TimeVisitor)
    }
}

struct TimeVisitor;

impl Visitor<'_> for TimeVisitor {
    type Value = UnixTime;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("seconds since 1970")
    }

    fn visit_u64<E: serde::de::Error>(self, seconds: u64) -> Result<UnixTime, E> {
        self.visit_i64(i64::try_from(seconds).unwrap_or(i64::MAX))
    }

    fn visit_i64<E>(self, seconds: i64) -> Result<UnixTime, E> {
        Ok(UnixTime { ms: seconds.clamp(-TIME_MAX_S, TIME_MAX_S) * 1_000 })
    }

    fn visit_f64<E>(self, seconds: f64) -> Result<UnixTime, E> {
        let s_max = TIME_MAX_S as f64;
        let ms = (seconds.clamp(-s_max, s_max) * 1_000.0).round() as i64;
        // 0 can mean never, which a time in the first millisecond does not.
        Ok(UnixTime { ms: if ms == 0 && seconds > 0.0 { 1 } else { ms } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_to_the_millisecond() {
        for (json, unix_ms, expiry_ms) in [
            ("1700000000", 1_700_000_000_000, Some(1_700_000_000_000)),
            ("1700000000.0", 1_700_000_000_000, Some(1_700_000_000_000)),
            ("1.7e9", 1_700_000_000_000, Some(1_700_000_000_000)),
            ("1700000000.001", 1_700_000_000_001, Some(1_700_000_000_001)),
            ("1700000000.9994", 1_700_000_000_999, Some(1_700_000_000_999)),
            ("1700000000.1234567", 1_700_000_000_123, Some(1_700_000_000_123)),
            ("0", 0, None),
            ("0.0", 0, None),
            ("0.0000001", 1, Some(1)),
            ("-0.5", 0, None),
            ("-5", 0, None),
            ("1e300", 253_402_300_799_000, Some(253_402_300_799_000)),
            ("18446744073709551615", 253_402_300_799_000, Some(253_402_300_799_000)),
            ("-1e300", 0, None),
        ] {
            let time: UnixTime = serde_json::from_str(json).unwrap();
            assert_eq!((time.unix_ms(), time.expiry_ms()), (unix_ms, expiry_ms), "{json}");
        }
        for json in ["null", "true", "\"1700000000\"", "[]", "{}"] {
            assert!(serde_json::from_str::<UnixTime>(json).is_err(), "{json}");
        }
    }
}
