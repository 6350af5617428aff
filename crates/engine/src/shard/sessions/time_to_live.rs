//! The time until a session or a subscription expires.

use crate::Now;

/// The expiry is in the past.
#[derive(Debug)]
pub(super) struct AlreadyExpired;

/// Maximum time to live: a year, as in Centrifugo. Longer ones are truncated.
const TTL_MAX_S: u64 = 365 * 24 * 60 * 60;

/// The time until the expiry of a session or subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeToLive {
    ms: u64,
}

impl TimeToLive {
    /// Of something that has expired since it was admitted.
    pub(super) const OVER: Self = Self { ms: 0 };

    /// The time until `expires_at_ms`, at most [`TTL_MAX_S`]; `None` for no expiry.
    pub(super) fn until(expires_at_ms: Option<u64>, now: Now) -> Result<Option<Self>, AlreadyExpired> {
        let Some(expires_at_ms) = expires_at_ms else { return Ok(None) };
        let ms = expires_at_ms.checked_sub(now.unix_ms).filter(|ms| *ms > 0).ok_or(AlreadyExpired)?;
        Ok(Some(Self { ms: ms.min(TTL_MAX_S * 1_000) }))
    }

    /// Whole seconds for the client. A part of a second counts as one, because messages leave 0 out.
    pub(super) const fn whole_s(self) -> u32 {
        self.ms.div_ceil(1_000) as u32
    }
}

/// The deadline of something with this time to live, with a grace period.
pub(super) fn expiry_us(now: Now, ttl: Option<TimeToLive>, grace_ms: u64) -> u64 {
    let Some(ttl) = ttl else { return u64::MAX };
    // The grace period is the client's time to refresh, which it begins after the whole seconds that it was told. Counted
    // from the expiry, a fraction of a second would be taken from it.
    let ttl_ms = if grace_ms == 0 { ttl.ms } else { u64::from(ttl.whole_s()) * 1_000 };
    now.after_ms(grace_ms.saturating_add(ttl_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expiry_counts_to_the_millisecond() {
        let now = Now { mono_us: 5_000_000, unix_ms: 1_700_000_000_900 };
        for (expires_at_ms, expected) in [
            (None, Some((None, u64::MAX))),
            (Some(1_700_000_000_899), None),
            (Some(1_700_000_000_900), None),
            (Some(1_700_000_000_901), Some((Some(1), 5_001_000))),
            (Some(1_700_000_001_000), Some((Some(1), 5_100_000))),
            (Some(1_700_000_001_900), Some((Some(1), 6_000_000))),
            (Some(1_700_000_001_901), Some((Some(2), 6_001_000))),
            (Some(u64::MAX), Some((Some(31_536_000), 31_536_005_000_000))),
        ] {
            let ttl = TimeToLive::until(expires_at_ms, now).ok();
            let seen = ttl.map(|ttl| (ttl.map(TimeToLive::whole_s), expiry_us(now, ttl, 0)));
            assert_eq!(seen, expected, "{expires_at_ms:?}");
        }
    }

    #[test]
    fn a_grace_period_begins_when_the_client_refreshes() {
        let now = Now { mono_us: 5_000_000, unix_ms: 1_700_000_000_900 };
        for (expires_at_ms, expected_us) in [(1_700_000_005_000, 11_000_000), (1_700_000_005_900, 11_000_000)] {
            let ttl = TimeToLive::until(Some(expires_at_ms), now).expect("it has not expired");
            assert_eq!(expiry_us(now, ttl, 1_000), expected_us, "{expires_at_ms}");
        }
    }
}
