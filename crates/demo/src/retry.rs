//! What is tried again, and when.

use std::time::{Duration, Instant};

use dunlin_protocol::ErrorCode;

/// Whether the same request may succeed later, by the code that it was refused with: an error code of the protocol, an HTTP status, or the
/// code of a room, which has the meaning of the status.
pub fn is_temporary(code: u32) -> bool {
    let of_protocol = ErrorCode::ALL.iter().find(|known| **known as u32 == code);
    of_protocol.map_or(matches!(code, 408 | 409 | 425 | 429 | 500..600), |known| known.temporary())
}

/// Pauses between attempts. Each is twice as long as the one before, up to a maximum.
#[derive(Debug)]
pub struct Backoff {
    min: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    pub const fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, next: min }
    }

    /// The pause after a failure.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.max);
        pause
    }

    /// An attempt has succeeded.
    pub const fn reset(&mut self) {
        self.next = self.min;
    }
}

/// The first time at `earliest` or later that is a whole number of intervals, at least one, after the previous one. So steps that were
/// missed are skipped, and those of several threads stay apart.
pub fn next_step(previous: Instant, interval: Duration, earliest: Instant) -> Instant {
    let behind = earliest.saturating_duration_since(previous);
    let steps = behind.as_nanos().div_ceil(interval.as_nanos()).max(1);
    previous + interval * u32::try_from(steps).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_temporary_or_final() {
        let temporary = [100, 111, 408, 409, 429, 500, 503];
        let lasting = [0, 101, 102, 103, 107, 108, 400, 401, 403, 404, 421, 600];
        assert_eq!(temporary.map(is_temporary), [true; 7]);
        assert_eq!(lasting.map(is_temporary), [false; 12]);
    }

    #[test]
    fn pauses_are_bounded() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::new(ms(200), ms(1_000));
        assert_eq!([(); 5].map(|()| backoff.pause()), [200, 400, 800, 1_000, 1_000].map(ms));
        backoff.reset();
        assert_eq!(backoff.pause(), ms(200));
    }

    #[test]
    fn steps_keep_their_phase() {
        let (start, ms) = (Instant::now(), Duration::from_millis);
        for (earliest, expected) in [(0, 200), (199, 200), (200, 200), (201, 400), (10_050, 10_200)] {
            assert_eq!(next_step(start, ms(200), start + ms(earliest)), start + ms(expected), "{earliest}");
        }
    }
}
