//! What a player with a bandwidth limit may be sent, and which zones of its view wait.
//!
//! The limit is a token bucket of one second. Below half of it, the zones of the view around the first wait for their
//! turn; when it is empty, ticks are skipped. A frame is always sent whole, so the credit can become negative.
//!
//! The turn is that of the zone with the highest priority: its weight, times that of the most important kind of object in it,
//! which the game declares, times the ticks since it was sent. It is sent when the credit covers what it took the last time. So
//! the ages of the zones keep the ratio of their weights, however little the limit leaves for them, and the credit stays at the
//! reserve. A zone that took nothing the last time does not wait: mostly it takes nothing again. When something begins in it, it
//! is sent once whatever is left, and waits from then on.
//!
//! A player that has waited for longer than the history reaches needs the full state. If that were sent as soon as the
//! credit is positive, paying for it could outlast the history again, and all its frames would be full ones. So the
//! player waits until the bucket is full: after a full frame that fits into it, some credit is left for changes.

use std::num::NonZeroU32;

use crate::{CellIndex, Mirror, SnapshotBody, ZONES, Zones};

/// The bytes that a player may be sent now.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    /// In millionths of a byte; negative if more was sent than allowed.
    credit_millionths: i64,
    refilled_us: u64,
    /// Since when its ticks are skipped.
    skipped_since_us: Option<u64>,
    /// The zones of its client; `None` before the first frame.
    zones: Option<SentZones>,
}

/// What a client has of the zones of its view.
#[derive(Clone, Copy, Debug)]
struct SentZones {
    /// The ticks of their states.
    ticks: [u32; ZONES],
    /// The bytes of each when it was sent the last time.
    bytes: [u32; ZONES],
}

/// Maximum debt: no frame is longer.
const DEBT_BYTES_MAX: i64 = 1 << 40;
const ONE: i64 = 1_000_000;
/// How much more often a zone is sent than the last one. The first is in every frame.
const WEIGHTS: [u32; ZONES] = [u32::MAX, 4, 2, 1];
/// The part of the bucket that waiting zones do not use: for the first zone when more happens there.
const RESERVE_DIVISOR: i64 = 8;

impl Allowance {
    /// A full bucket, of a limit in bytes per second.
    pub fn new(now_us: u64, limit: NonZeroU32) -> Self {
        let credit_millionths = i64::from(limit.get()) * ONE;
        Self { credit_millionths, refilled_us: now_us, skipped_since_us: None, zones: None }
    }

    /// Adds what the limit allows by now.
    pub fn refill(&mut self, now_us: u64, limit: NonZeroU32) {
        let elapsed_us = i64::try_from(now_us.saturating_sub(self.refilled_us)).unwrap_or(i64::MAX);
        let refill = elapsed_us.saturating_mul(limit.get().into());
        self.credit_millionths = self.credit_millionths.saturating_add(refill).min(i64::from(limit.get()) * ONE);
        self.refilled_us = now_us;
    }

    /// Whether a frame may be sent at this tick. `has_base` says whether it is smaller than the full state of the view.
    pub fn allows_frame(&mut self, now_us: u64, limit: NonZeroU32, has_base: bool) -> bool {
        let is_allowed = if has_base { self.is_left() } else { self.is_whole(limit) };
        if is_allowed {
            self.skipped_since_us = None;
        } else {
            self.skipped_since_us.get_or_insert(now_us);
        }
        is_allowed
    }

    /// Since when no frame has been allowed.
    pub fn skipped_since_us(&self) -> Option<u64> {
        self.skipped_since_us
    }

    fn is_left(self) -> bool {
        self.credit_millionths > 0
    }

    /// Whether the bucket is full.
    fn is_whole(self, limit: NonZeroU32) -> bool {
        self.credit_millionths >= i64::from(limit.get()) * ONE
    }

    /// Subtracts a frame whose first bytes were written.
    fn take(&mut self, frame_bytes: usize) {
        let bytes = i64::try_from(frame_bytes).unwrap_or(DEBT_BYTES_MAX).min(DEBT_BYTES_MAX);
        self.credit_millionths = self.credit_millionths.saturating_sub(bytes * ONE).max(-DEBT_BYTES_MAX * ONE);
    }

    /// The first bytes of a frame with this body were written. Returns by how many ticks the oldest zone was behind it;
    /// `None` for the first frame.
    pub fn written(&mut self, frame_bytes: usize, body: &SnapshotBody) -> Option<u32> {
        self.take(frame_bytes);
        let before = self.zones;
        let mut bytes = before.map_or([0; ZONES], |zones| zones.bytes);
        // A full state says nothing about the zones.
        for (zone, bytes) in bytes.iter_mut().enumerate().filter(|_| body.base_tick > 0) {
            if body.zone_ticks[zone] == body.tick {
                *bytes = body.zone_bytes[zone];
            }
        }
        self.zones = Some(SentZones { ticks: body.zone_ticks, bytes });
        before.map(|zones| body.tick.saturating_sub(zones.ticks.into_iter().min().unwrap_or(body.tick)))
    }

    /// How the next frame treats the zones; without a limit now, none waits.
    pub fn zones(&self, limit: Option<NonZeroU32>, view: CellIndex, mirror: &mut Mirror) -> Option<Zones> {
        let sent = self.zones?;
        let is_low = |limit: &NonZeroU32| self.credit_millionths < i64::from(limit.get()) * ONE / 2;
        let waiting = limit.filter(is_low).map_or([false; ZONES], |limit| {
            let left_bytes = self.credit_millionths / ONE - i64::from(limit.get()) / RESERVE_DIVISOR;
            waiting_zones(left_bytes, sent.bytes, mirror.due_ages(sent.ticks), mirror.zone_weights(view))
        });
        Some(Zones { known_ticks: sent.ticks, waiting })
    }
}

/// The zones for which the bytes do not suffice, in the order of their priority. Whoever does not fit holds up those
/// after it, or a large zone would never get its turn.
fn waiting_zones(
    left_bytes: i64,
    bytes: [u32; ZONES],
    ages_ticks: [u32; ZONES],
    weights: [u8; ZONES],
) -> [bool; ZONES] {
    let priority = |zone: usize| u64::from(WEIGHTS[zone]) * u64::from(weights[zone]) * u64::from(ages_ticks[zone]);
    let mut left_bytes = left_bytes.saturating_sub(bytes[0].into());
    let mut waiting = [false; ZONES];
    let mut order: [usize; ZONES] = std::array::from_fn(|zone| zone);
    order[1..].sort_by_key(|zone| std::cmp::Reverse(priority(*zone)));
    // A zone that is not due or in which nothing changes costs nothing.
    for zone in order.into_iter().skip(1).filter(|zone| ages_ticks[*zone] > 0 && bytes[*zone] > 0) {
        left_bytes = left_bytes.saturating_sub(bytes[zone].into());
        waiting[zone] = left_bytes < 0;
    }
    waiting
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: NonZeroU32 = NonZeroU32::new(10_000).expect("above 0");

    #[test]
    fn bytes_per_second_are_limited() {
        let mut allowance = Allowance::new(5, LIMIT);
        allowance.take(9_999);
        assert!(allowance.is_left());
        allowance.take(1);
        assert!(!allowance.is_left(), "at the limit");
        // One byte takes 100 µs.
        allowance.refill(104, LIMIT);
        allowance.refill(105, LIMIT);
        assert!(allowance.is_left());
        allowance.take(1 + 5_000);
        allowance.refill(500_105, LIMIT);
        assert!(!allowance.is_left(), "the debt is paid");
        allowance.refill(500_205, LIMIT);
        assert!(allowance.is_left());
    }

    #[test]
    fn saved_allowance_is_limited_to_a_second() {
        let mut allowance = Allowance::new(0, LIMIT);
        allowance.refill(u64::MAX, LIMIT);
        assert!(allowance.is_whole(LIMIT));
        allowance.take(1);
        assert!(!allowance.is_whole(LIMIT) && allowance.is_left());
        allowance.take(9_999);
        assert!(!allowance.is_left());
        allowance.take(usize::MAX);
        allowance.take(usize::MAX);
        allowance.refill(u64::MAX, LIMIT);
        assert!(!allowance.is_left());
    }

    fn body(tick: u32, zone_ticks: [u32; ZONES], zone_bytes: [u32; ZONES]) -> SnapshotBody {
        SnapshotBody { tick, base_tick: tick - 1, zone_ticks, zone_bytes, ..SnapshotBody::default() }
    }

    #[test]
    fn the_oldest_zone_gives_the_age_and_zones_keep_what_they_took() {
        let mut allowance = Allowance::new(0, LIMIT);
        let first = SnapshotBody { base_tick: 0, ..body(7, [7; ZONES], [0; ZONES]) };
        assert_eq!(allowance.written(100, &first), None);
        assert_eq!(allowance.written(100, &body(8, [8, 7, 8, 8], [10, 0, 30, 40])), Some(1));
        assert_eq!(allowance.written(100, &body(10, [10, 7, 10, 8], [11, 0, 31, 0])), Some(3));
        let SentZones { ticks, bytes } = allowance.zones.expect("frames were written");
        assert_eq!((ticks, bytes), ([10, 7, 10, 8], [11, 0, 31, 40]));
        assert_eq!(allowance.credit_millionths, i64::from(LIMIT.get() - 300) * ONE);
    }

    #[test]
    fn the_zone_with_the_highest_priority_has_its_turn() {
        const BYTES: [u32; ZONES] = [100, 200, 300, 400];
        let waiting = |left_bytes, ages| waiting_zones(left_bytes, BYTES, ages, [1; ZONES]);
        // Four times 3, twice 7, and 13.
        assert_eq!(waiting(1_000, [1, 3, 7, 13]), [false; ZONES], "all fit");
        assert_eq!(waiting(999, [1, 3, 7, 13]), [false, true, false, false], "the last in the order waits");
        assert_eq!(waiting(400, [1, 3, 7, 13]), [false, true, false, true]);
        assert_eq!(waiting(399, [1, 3, 7, 13]), [false, true, true, true], "a large zone holds up those after it");
        assert_eq!(waiting(i64::MIN, [1, 3, 0, 13]), [false, true, false, true], "the third is not due");
        let quiet = waiting_zones(-1, [100, 0, 300, 400], [1, 3, 7, 13], [1; ZONES]);
        assert_eq!(quiet, [false, false, true, true], "all is quiet");
    }

    #[test]
    fn an_important_object_brings_its_zone_forward() {
        const BYTES: [u32; ZONES] = [100, 200, 300, 400];
        let waiting = |weights| waiting_zones(500, BYTES, [1, 1, 1, 1], weights);
        assert_eq!(waiting([1, 1, 1, 1]), [false, false, true, true], "4, 2 and 1");
        assert_eq!(waiting([1, 1, 1, 4]), [false, false, true, true], "as soon as the second, which is nearer");
        assert_eq!(waiting([1, 1, 1, 5]), [false, true, true, false]);
        assert_eq!(
            waiting([1, u8::MAX, u8::MAX, u8::MAX]),
            [false, false, true, true],
            "what is equal keeps its order"
        );
    }

    /// Each tick, the frame is what the limit says; a frame takes as many bytes as its zones.
    #[test]
    fn ages_follow_the_weights_whatever_is_left() {
        const BYTES: [u32; ZONES] = [50, 100, 100, 100];
        for left_bytes_a_tick in [80, 120, 200] {
            let (mut credit, mut ages, mut sums) = (0, [1; ZONES], [0; ZONES]);
            for tick in 0..3_000 {
                credit += left_bytes_a_tick;
                let waiting = waiting_zones(credit, BYTES, ages, [1; ZONES]);
                for zone in 0..ZONES {
                    sums[zone] += if tick < 300 { 0 } else { ages[zone] - 1 };
                    ages[zone] = if waiting[zone] { ages[zone] + 1 } else { 1 };
                    credit -= i64::from(if waiting[zone] { 0 } else { BYTES[zone] });
                }
                assert!(ages.iter().all(|age| *age < 30), "nothing starves: {ages:?}");
            }
            assert!(sums[0] == 0 && sums[1] <= sums[2] && sums[2] <= sums[3], "{left_bytes_a_tick}: {sums:?}");
        }
    }
}
