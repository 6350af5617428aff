//! The frames of a session's rooms.
//!
//! They are not queued. A tick only marks a session's seats *due*. When the session is written, each due seat assembles
//! a frame of the newest tick, which is offered after the two lanes. Once its first byte is written, the frame moves to
//! the head of the reliable lane, so that it is completed before any other.

use std::rc::Rc;

use dunlin_rooms::SnapshotBody;

use crate::{
    frame::{FrameRef, RoomHead},
    session_seats::{FrameWritten, SeatIndex, Seats, WroteAt},
};

use super::{Outbox, WRITE_SLICES_MAX};

/// Slices of one room frame.
const FRAME_SLICES: usize = 2;

/// The seats of a session.
#[derive(Debug, Default)]
pub(super) struct RoomFrames {
    /// The least recently written first.
    seats: Vec<SeatIndex>,
    /// The seats whose frames were offered for the next write, in order.
    offered: Vec<SeatIndex>,
}

impl Outbox {
    /// Adds a seat to the session.
    pub(crate) fn add_seat(&mut self, seat: SeatIndex) {
        self.rooms.get_or_insert_default().seats.push(seat);
    }

    /// Removes a seat from the session; it may have been due.
    pub(crate) fn remove_seat(&mut self, seat: SeatIndex, was_due: bool) {
        self.due_seats -= u32::from(was_due);
        let Some(rooms) = &mut self.rooms else { return };
        rooms.seats.retain(|of_session| *of_session != seat);
        rooms.offered.retain(|offered| *offered != seat);
        if rooms.seats.is_empty() {
            self.rooms = None;
        }
    }

    /// One more seat is due.
    pub(crate) fn seat_is_due(&mut self, now_us: u64) {
        if self.due_seats == 0 {
            self.due_since_us = now_us;
        }
        self.due_seats += 1;
    }

    /// One seat less is due.
    pub(crate) fn seat_is_not_due(&mut self) {
        self.due_seats -= 1;
    }

    /// Chooses the room frames that the next write offers after the lanes. `offer` assembles the frame of a seat, if it
    /// is due, and returns its bytes.
    pub(crate) fn offer_room_frames(&mut self, mut offer: impl FnMut(SeatIndex) -> Option<usize>) {
        let is_held = self.is_held();
        let Some(rooms) = &mut self.rooms else { return };
        rooms.offered.clear();
        if self.due_seats == 0 || is_held {
            return;
        }
        let mut slices_left = WRITE_SLICES_MAX.saturating_sub(self.lane_slices());
        let mut bytes_left = self.write_bytes_max().saturating_sub(self.queued_bytes - self.head_written);
        let Some(rooms) = &mut self.rooms else { return };
        for &seat in &rooms.seats {
            if slices_left < FRAME_SLICES || bytes_left == 0 {
                break;
            }
            if let Some(bytes) = offer(seat) {
                rooms.offered.push(seat);
                slices_left -= FRAME_SLICES;
                bytes_left = bytes_left.saturating_sub(bytes);
            }
        }
    }

    /// Removes the first `bytes` bytes of the offered room frames. Calls `count` for each frame whose first byte was
    /// written. Returns how many bytes were not offered.
    pub(crate) fn wrote_room_frames(
        &mut self,
        mut bytes: usize,
        now_us: u64,
        seats: &mut Seats,
        mut count: impl FnMut(FrameWritten),
    ) -> usize {
        let mut begun = 0;
        while bytes > 0 {
            let Some(rooms) = &mut self.rooms else { return bytes };
            let Some(&seat) = rooms.offered.get(begun) else { return bytes };
            begun += 1;
            rooms.put_last(seat);
            let written = seats.begun(seat, || WroteAt {
                waited_us: now_us.saturating_sub(self.due_since_us),
                has_session_pace: self.budget().is_some(),
            });
            let length = written.frame_bytes;
            count(written);
            self.due_seats -= 1;
            let offered = seats.take_offer(seat);
            if let Some((head, body)) = offered.filter(|_| bytes < length) {
                self.queue_begun(head, body, bytes);
                break;
            }
            bytes -= length;
        }
        if let Some(rooms) = &mut self.rooms {
            rooms.offered.clear();
        }
        0
    }

    /// Puts the rest of a frame at the head of the reliable lane, after `written` bytes of it were written. Its body
    /// stays shared, so a partial write copies nothing.
    fn queue_begun(&mut self, head: &RoomHead, body: Rc<SnapshotBody>, written: usize) {
        debug_assert!(self.queue.is_empty(), "rooms' frames go behind the lanes");
        let head = head.bytes();
        (self.room_parts, self.room_bytes) = (1, body.bytes.len());
        self.queue.push_front(FrameRef::body(body, self.due_since_us));
        if written < head.len() {
            (self.room_parts, self.room_bytes) = (2, self.room_bytes + head.len());
            self.queue.push_front(FrameRef::own(head.into(), self.due_since_us));
            self.head_written = written;
        } else {
            self.head_written = written - head.len();
        }
        self.queued_bytes += self.room_bytes;
    }
}

impl RoomFrames {
    /// The slices of the offered frames.
    pub(super) fn slices<'a>(&'a self, seats: &'a Seats) -> RoomSlices<'a> {
        RoomSlices { seats, offered: self.offered.iter(), body: None }
    }

    /// Moves a seat to the end, so that the others go first next time.
    fn put_last(&mut self, seat: SeatIndex) {
        if let Some(place) = self.seats.iter().position(|of_session| *of_session == seat) {
            self.seats[place..].rotate_left(1);
        }
    }
}

/// The slices of room frames: the head of each, then its body.
pub(super) struct RoomSlices<'a> {
    seats: &'a Seats,
    offered: std::slice::Iter<'a, SeatIndex>,
    body: Option<&'a [u8]>,
}

impl<'a> Iterator for RoomSlices<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if let Some(body) = self.body.take() {
            return Some(body);
        }
        let [head, body] = self.seats.slices(*self.offered.next()?);
        self.body = Some(body);
        Some(head)
    }
}
