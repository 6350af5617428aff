//! The bandwidth limit of seats, in rooms whose namespace limits it.

use std::num::NonZeroU32;

use dunlin_rooms::Allowance;

use super::{SeatIndex, Seats};

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
            if seated.is_due() {
                continue;
            }
            let has_base = room.mirror.as_ref().is_some_and(|mirror| mirror.reaches(seat.base));
            if allowance.allows_frame(now_us, limit, has_base) {
                seated.due_from_tick = tick;
                mark(seated.session);
            } else {
                skipped += 1;
            }
        }
        skipped
    }

    /// Since when a seat gets no snapshots because of its allowance.
    pub(crate) fn limited_since_us(&self, index: SeatIndex) -> Option<u64> {
        self.at(index).allowance?.skipped_since_us()
    }
}
