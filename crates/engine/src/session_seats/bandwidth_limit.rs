//! The bandwidth limit of a seat, in rooms whose namespace limits it.
//!
//! The limit is a token bucket of one second. Below half of it, far cells are postponed; when it is empty, ticks are
//! skipped. A frame is always sent whole, so the credit can become negative.
//!
//! A seat that has waited for longer than the history reaches needs the full state. If that were sent as soon as the
//! credit is positive, paying for it could outlast the history again, and all its frames would be full ones. So the
//! seat waits until the bucket is full: after a full frame that fits into it, some credit is left for changes.

use std::num::NonZeroU32;

use dunlin_rooms::FarCells;

use super::{SeatIndex, Seats};

/// The bytes that a seat may be sent now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    /// In millionths of a byte; negative if more was sent than allowed.
    credit_millionths: i64,
    refilled_us: u64,
    /// Since when its ticks are skipped.
    skipped_since_us: Option<u64>,
    /// The tick of the newest far cells sent to its client; `None` before the first frame.
    pub(super) far_tick: Option<u32>,
}

/// Maximum debt: no frame is longer.
const DEBT_BYTES_MAX: i64 = 1 << 40;
const ONE: i64 = 1_000_000;

impl Allowance {
    fn new(now_us: u64, limit: NonZeroU32) -> Self {
        let credit_millionths = i64::from(limit.get()) * ONE;
        Self { credit_millionths, refilled_us: now_us, skipped_since_us: None, far_tick: None }
    }

    fn refill(&mut self, now_us: u64, limit: NonZeroU32) {
        let elapsed_us = i64::try_from(now_us.saturating_sub(self.refilled_us)).unwrap_or(i64::MAX);
        let refill = elapsed_us.saturating_mul(limit.get().into());
        self.credit_millionths = self.credit_millionths.saturating_add(refill).min(i64::from(limit.get()) * ONE);
        self.refilled_us = now_us;
    }

    /// Whether a frame may be sent.
    fn is_left(self) -> bool {
        self.credit_millionths > 0
    }

    /// Whether the bucket is full.
    fn is_whole(self, limit: NonZeroU32) -> bool {
        self.credit_millionths >= i64::from(limit.get()) * ONE
    }

    /// Subtracts a frame whose first bytes were written.
    pub(super) fn take(&mut self, frame_bytes: usize) {
        let bytes = i64::try_from(frame_bytes).unwrap_or(DEBT_BYTES_MAX).min(DEBT_BYTES_MAX);
        self.credit_millionths = self.credit_millionths.saturating_sub(bytes * ONE).max(-DEBT_BYTES_MAX * ONE);
    }

    /// How its next frame treats far cells.
    pub(super) fn far_cells(self, limit: Option<NonZeroU32>) -> Option<FarCells> {
        let is_low = |limit: NonZeroU32| self.credit_millionths < i64::from(limit.get()) * ONE / 2;
        Some(FarCells { known_tick: self.far_tick?, is_postponed: limit.is_some_and(is_low) })
    }
}

impl Seats {
    /// As [`Seats::mark_all_due`], except for seats that have exhausted their allowance. Returns their number.
    pub(crate) fn mark_due_within(
        &mut self,
        place: u32,
        now_us: u64,
        limit: NonZeroU32,
        mut mark: impl FnMut(u32),
    ) -> u64 {
        let Self { seats, rooms, .. } = self;
        let room = rooms[place as usize].as_mut().expect("a room's place is forgotten with the room");
        let mut skipped = 0;
        let tick = room.tick();
        for seated in room.seated.iter_mut().filter(|seated| seated.rests_until_tick <= tick) {
            let seat = seats[seated.seat.0 as usize].as_deref_mut().expect("who is seated has a seat");
            let allowance = seat.allowance.get_or_insert_with(|| Allowance::new(now_us, limit));
            allowance.refill(now_us, limit);
            if seated.is_due {
                continue;
            }
            let has_base = room.mirror.as_ref().is_some_and(|mirror| mirror.reaches(seat.base));
            let may_send = if has_base { allowance.is_left() } else { allowance.is_whole(limit) };
            if may_send {
                allowance.skipped_since_us = None;
                seated.is_due = true;
                mark(seated.session);
            } else {
                allowance.skipped_since_us.get_or_insert(now_us);
                skipped += 1;
            }
        }
        skipped
    }

    /// Since when a seat gets no snapshots because of its allowance.
    pub(crate) fn limited_since_us(&self, index: SeatIndex) -> Option<u64> {
        self.at(index).allowance?.skipped_since_us
    }
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

    #[test]
    fn far_cells_are_postponed_when_less_than_half_is_left() {
        let mut allowance = Allowance::new(0, LIMIT);
        assert_eq!(allowance.far_cells(Some(LIMIT)), None, "no frame was sent");
        allowance.far_tick = Some(7);
        let postponed = |allowance: Allowance, limit| allowance.far_cells(limit).is_some_and(|far| far.is_postponed);
        allowance.take(5_000);
        assert!(!postponed(allowance, Some(LIMIT)), "half is left");
        allowance.take(1);
        assert!(postponed(allowance, Some(LIMIT)));
        assert!(!postponed(allowance, None), "the limit was removed");
        assert_eq!(allowance.far_cells(None).map(|far| far.known_tick), Some(7));
    }
}
