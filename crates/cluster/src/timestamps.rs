//! The server's timestamps: RFC 3339 in UTC. [`crate::record::unix_ms`] reads them.

const DAY_MS: u64 = 86_400_000;

/// Formats a Unix time for the server.
pub fn timestamp(unix_ms: u64) -> String {
    let (days, clock_ms) = (unix_ms / DAY_MS + 719_468, unix_ms % DAY_MS);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (seconds, milliseconds) = (clock_ms / 1_000, clock_ms % 1_000);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_day_round_trips() {
        for unix_ms in (0..4_200_000_000_000).step_by(86_399_989) {
            assert_eq!(crate::record::unix_ms(&timestamp(unix_ms)), Some(unix_ms));
        }
    }

    #[test]
    fn known_times_are_written() {
        for (text, unix_ms) in [
            ("1970-01-01T00:00:00.000Z", 0),
            ("2000-02-29T23:59:59.999Z", 951_868_799_999),
            ("2026-11-23T04:39:25.123Z", 1_795_408_765_123),
            ("2100-03-01T00:00:00.500Z", 4_107_542_400_500),
        ] {
            assert_eq!(timestamp(unix_ms), text);
        }
    }
}
