//! A session's two lanes, and how many of their bytes the kernel has accepted.
//!
//! The *reliable* lane is a FIFO. The *latest* lane has one slot per (channel, key). A newer publication replaces the
//! queued one in place, so the memory of a slow session is bounded by the number of keys, not by how far it is behind.
//! The reliable lane is written first, then the slots in the order in which they were first filled. A partly written
//! frame is completed before any other.
//!
//! The frames of the session's rooms come last. They are not queued: see [`room_frames`].

mod byte_budget;
mod queued;
mod room_frames;

use std::collections::{VecDeque, vec_deque};

use hashbrown::HashMap;

use crate::{
    Effects, SessionKey,
    frame::{FrameRef, Parts},
    hub::LocalChannelId,
    options::ClientOptions,
    pace::BytePace,
    session::Share,
    session_seats::Seats,
};

use byte_budget::ByteBudget;
use room_frames::{RoomFrames, RoomSlices};

pub(crate) use queued::DividedQueue;

/// Maximum slices per write. Most frames are one slice.
const WRITE_SLICES_MAX: usize = 64;
/// Bytes after which a write includes no further frame.
const WRITE_BYTES_MAX: usize = 256 * 1024;
/// Capacity, in frames, that an empty lane keeps.
const KEPT_FRAMES: usize = 8;
/// Capacity, in frames, beyond which an empty lane frees its memory. A session that keeps up stays below it, so it does
/// not reallocate.
const BURST_FRAMES: usize = 256;

/// The frames that wait for one session's socket.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    queue: VecDeque<FrameRef>,
    latest: Option<Box<LatestLane>>,
    /// Bytes of all frames in both lanes, including the written part of the first.
    queued_bytes: usize,
    /// The number of written bytes of the first frame of `queue`.
    head_written: usize,
    /// Remaining bytes of a partly written room frame at the head of `queue`, otherwise 0. They do not count against
    /// the limits, because there is at most one such frame.
    room_bytes: usize,
    /// The number of the session's seats that are due, that is, have a newer tick to send.
    due_seats: u32,
    /// Since when a seat has been due.
    due_since_us: u64,
    /// Present while the session is in a room.
    rooms: Option<Box<RoomFrames>>,
    /// The session's generation, so that a delivery need not access the session itself.
    pub(crate) generation: u32,
    /// How many frames at the head of `queue` are parts of the partly written room frame: its head and its body are
    /// two.
    room_parts: u8,
    /// Whether a session owns this outbox.
    pub(crate) in_use: bool,
    /// Whether the caller has been notified that there is something to write. Only [`Outbox::list`] sets it.
    listed: bool,
    /// Whether the session's last frame is queued.
    pub(crate) closing: bool,
    /// Whether only the first `uncorked_frames` are offered, until the answer to `connect` is at the head.
    corked: bool,
    /// The number of frames at the head of `queue` that were queued before the cork.
    uncorked_frames: u16,
    /// Whether commands wait until the queue has drained.
    paced: Paced,
}

/// Whether the session's commands wait for its socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Paced {
    #[default]
    No,
    /// Commands wait, and nothing was written since the last check.
    Waits,
    /// Commands wait, and the socket has accepted bytes since the last check.
    Progresses,
}

/// Selects slots of the latest lane.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Slots {
    /// Slots that the next write may include. The others may be replaced before they are written.
    OfNextWrite,
    All,
}

#[derive(Debug, Default)]
struct LatestLane {
    slots: VecDeque<Slot>,
    /// Maps a key's hash to the position of its slot, counted from the first slot ever.
    places: HashMap<u64, u64, foldhash::fast::FixedState>,
    /// The number of slots removed from the front.
    left: u64,
    /// Present if the session has a pace. Here, because few sessions have one, and each pays for the fields of an outbox.
    budget: Option<ByteBudget>,
}

#[derive(Debug)]
struct Slot {
    key_hash: u64,
    channel: LocalChannelId,
    /// The newest publication of the key.
    frame: FrameRef,
    /// Since when the client has waited for news of the key: the time of the first publication that `frame` replaced.
    since_us: u64,
    /// The number of replaced older publications of this key.
    skipped: u32,
    /// Whether `frame` carries this number already.
    tagged: bool,
}

impl Outbox {
    /// Appends to the reliable lane.
    pub(crate) fn push(&mut self, frame: FrameRef) {
        self.queued_bytes += frame.len();
        self.queue.push_back(frame);
    }

    /// Inserts a frame before all frames that are not partly written.
    pub(crate) fn push_next(&mut self, frame: FrameRef) {
        self.queued_bytes += frame.len();
        self.queue.insert(self.begun_frames(), frame);
    }

    /// The number of frames at the head that are partly written, or belong to a partly written frame.
    fn begun_frames(&self) -> usize {
        usize::from(self.room_parts).max(usize::from(self.head_written > 0))
    }

    /// Puts a frame into the latest lane; returns whether it replaced a queued publication. `key_hash` is the hash of
    /// the channel and the conflation key's value. It is seeded and wide enough to identify them without a comparison.
    pub(crate) fn push_latest(&mut self, key_hash: u64, channel: LocalChannelId, frame: FrameRef) -> bool {
        let lane = self.latest.get_or_insert_default();
        self.queued_bytes += frame.len();
        if let Some(place) = lane.places.get(&key_hash) {
            let slot = &mut lane.slots[(place - lane.left) as usize];
            self.queued_bytes -= slot.frame.len();
            slot.frame = frame;
            slot.skipped += 1;
            slot.tagged = false;
            return true;
        }
        lane.places.insert(key_hash, lane.left + lane.slots.len() as u64);
        // All publications have a time.
        let since_us = frame.since_us().unwrap_or_default();
        lane.slots.push_back(Slot { key_hash, channel, frame, since_us, skipped: 0, tagged: false });
        false
    }

    /// Encodes the frames of slots that replaced others again, with `tag`, for the slots that `which` selects.
    pub(crate) fn tag_skipped(&mut self, which: Slots, mut tag: impl FnMut(&FrameRef, u32) -> Option<FrameRef>) {
        let Some(lane) = &mut self.latest else { return };
        let slots_max = match which {
            Slots::OfNextWrite => WRITE_SLICES_MAX.saturating_sub(self.queue.len()),
            Slots::All => usize::MAX,
        };
        for slot in lane.slots.iter_mut().take(slots_max).filter(|slot| slot.skipped > 0 && !slot.tagged) {
            if let Some(tagged) = tag(&slot.frame, slot.skipped) {
                self.queued_bytes = self.queued_bytes + tagged.len() - slot.frame.len();
                slot.frame = tagged;
            }
            slot.tagged = true;
        }
    }

    /// Notifies the caller that the session has something to write, unless it has been notified already. Only this
    /// function does so, so that a batch of writes never contains a session twice.
    #[inline]
    pub(crate) fn list(&mut self, index: u32, effects: &mut Effects) {
        if !self.listed && self.is_writable() {
            self.listed = true;
            effects.dirty.push(SessionKey { index, generation: self.generation });
        }
    }

    /// The caller has written everything that was offered, and drops the session until it is listed again.
    pub(crate) fn unlist(&mut self) {
        debug_assert!(!self.is_writable(), "the caller would not write the rest");
        self.listed = false;
    }

    /// Whether the next write has something to write.
    #[inline]
    pub(crate) fn is_writable(&self) -> bool {
        if self.corked {
            self.uncorked_frames > 0
        } else if self.is_held() {
            !self.queue.is_empty()
        } else {
            !self.is_empty()
        }
    }

    /// Sets the bytes per second that the session may be sent.
    pub(crate) fn set_byte_pace(&mut self, pace: Option<BytePace>, now_us: u64) {
        match pace {
            Some(pace) => match &mut self.latest.get_or_insert_default().budget {
                Some(budget) => budget.set_pace(pace, now_us),
                budget => *budget = Some(ByteBudget::new(pace, now_us)),
            },
            None => self.latest.iter_mut().for_each(|lane| lane.budget = None),
        }
    }

    fn budget(&self) -> Option<&ByteBudget> {
        self.latest.as_ref()?.budget.as_ref()
    }

    fn budget_mut(&mut self) -> Option<&mut ByteBudget> {
        self.latest.as_mut()?.budget.as_mut()
    }

    pub(crate) fn byte_pace(&self) -> Option<BytePace> {
        self.budget().map(|budget| budget.pace)
    }

    /// Whether the latest lane and room frames wait, because the session has been sent the bytes that its pace allows.
    pub(crate) fn is_held(&self) -> bool {
        self.budget().is_some_and(|budget| budget.is_held)
    }

    /// Until when it is held, if nothing more is spent.
    pub(crate) fn held_until_us(&self) -> Option<u64> {
        self.budget()?.held_until_us()
    }

    /// Adds the bytes that the session's pace allows by now.
    pub(crate) fn refill(&mut self, now_us: u64) {
        if let Some(budget) = self.budget_mut() {
            budget.refill(now_us);
        }
    }

    /// Counts bytes that were written against the session's pace. Returns until when it is held, if that begins now.
    pub(crate) fn spend(&mut self, bytes: usize, now_us: u64) -> Option<u64> {
        let budget = self.budget_mut()?;
        let was_held = budget.is_held;
        budget.refill(now_us);
        budget.spend(bytes);
        budget.held_until_us().filter(|_| !was_held)
    }

    /// Bytes after which a write includes no further frame.
    fn write_bytes_max(&self) -> usize {
        self.budget().map_or(WRITE_BYTES_MAX, |budget| budget.bytes_left().min(WRITE_BYTES_MAX))
    }

    /// Whether frames are held back until the answer to `connect` precedes them.
    pub(crate) fn is_corked(&self) -> bool {
        self.corked
    }

    /// Holds back frames that are queued from now on. Frames already queued are still offered, because the caller may
    /// be about to write them.
    pub(crate) fn cork(&mut self) {
        self.corked = true;
        self.uncorked_frames = u16::try_from(self.queue.len()).unwrap_or(u16::MAX);
    }

    /// Offers all frames again. If the outbox was corked, returns the number of frames left from before the cork.
    pub(crate) fn uncork(&mut self) -> Option<usize> {
        let before_cork = usize::from(std::mem::take(&mut self.uncorked_frames));
        std::mem::take(&mut self.corked).then_some(before_cork)
    }

    /// The slices of the next write. Room frames must have been offered, see [`Outbox::offer_room_frames`].
    pub(crate) fn outgoing<'a>(&'a self, seats: &'a Seats) -> Outgoing<'a> {
        if self.corked {
            let queue = self.queue.range(..usize::from(self.uncorked_frames));
            let (slices_left, bytes_left) = (WRITE_SLICES_MAX, WRITE_BYTES_MAX);
            return Outgoing { queue, skip_bytes: self.head_written, slices_left, bytes_left, ..Outgoing::default() };
        }
        if self.is_held() {
            let (slices_left, bytes_left) = (WRITE_SLICES_MAX, WRITE_BYTES_MAX);
            let (queue, skip_bytes) = (self.queue.range(..), self.head_written);
            return Outgoing { queue, skip_bytes, slices_left, bytes_left, ..Outgoing::default() };
        }
        Outgoing {
            queue: self.queue.iter(),
            parts: None,
            slots: self.latest.as_ref().map(|lane| lane.slots.iter()),
            rooms: self.rooms.as_ref().map(|rooms| rooms.slices(seats)),
            skip_bytes: self.head_written,
            slices_left: WRITE_SLICES_MAX,
            bytes_left: self.write_bytes_max(),
        }
    }

    /// Removes the first `bytes` bytes that [`Outbox::outgoing`] offered. Returns how many of them belong to neither
    /// lane: to room frames, or to nothing that was offered.
    pub(crate) fn wrote(&mut self, bytes: usize) -> usize {
        let mut bytes = bytes + std::mem::take(&mut self.head_written);
        while self.is_lane_offered()
            && let Some(frame) = self.queue.front()
        {
            let length = frame.len();
            if bytes < length {
                self.head_written = bytes;
                return 0;
            }
            bytes -= length;
            self.queued_bytes -= length;
            self.queue.pop_front();
            self.uncorked_frames = self.uncorked_frames.saturating_sub(1);
            if let Some(parts) = self.room_parts.checked_sub(1) {
                self.room_parts = parts;
                self.room_bytes -= length;
            }
        }
        while bytes > 0 && !self.corked && !self.is_held() {
            let Some(slot) = self.latest.as_mut().and_then(|lane| lane.pop()) else { return bytes };
            let length = slot.frame.len();
            if bytes < length {
                // Partly written, so it can no longer be replaced, and no frame may come between its parts.
                self.queue.push_front(slot.frame);
                self.head_written = bytes;
                return 0;
            }
            bytes -= length;
            self.queued_bytes -= length;
        }
        bytes
    }

    /// Whether the head of the reliable lane is offered.
    fn is_lane_offered(&self) -> bool {
        !self.corked || self.uncorked_frames > 0
    }

    /// Drops all frames that are not partly written.
    pub(crate) fn discard_unbegun(&mut self) {
        self.discard_latest_and_behind(0);
    }

    /// Drops all frames that are not partly written, except the first `frames_kept`.
    pub(crate) fn discard_latest_and_behind(&mut self, frames_kept: usize) {
        self.queue.truncate(self.begun_frames().max(frames_kept));
        self.queue.shrink_to_fit();
        self.latest = None;
        self.queued_bytes = self.queue.iter().map(FrameRef::len).sum();
    }

    /// Moves the slots to the end of the reliable lane, where they can no longer be replaced.
    pub(crate) fn settle_latest(&mut self) {
        if let Some(lane) = self.latest.take() {
            self.queue.extend(lane.slots.into_iter().map(|slot| slot.frame));
        }
    }

    /// Drops the slots of one channel.
    pub(crate) fn discard_latest(&mut self, channel: LocalChannelId) {
        let Some(lane) = &mut self.latest else { return };
        let queued_bytes = &mut self.queued_bytes;
        lane.slots.retain(|slot| {
            let stays = slot.channel != channel;
            if !stays {
                *queued_bytes -= slot.frame.len();
            }
            stays
        });
        lane.places = (0_u64..).zip(&lane.slots).map(|(place, slot)| (slot.key_hash, place)).collect();
        lane.left = 0;
    }

    /// Makes commands wait for the socket. That the session came this far counts as progress.
    pub(crate) fn pace(&mut self) {
        self.paced = Paced::Progresses;
    }

    /// No command waits any longer.
    pub(crate) fn end_pace(&mut self) {
        self.paced = Paced::No;
    }

    /// Records that the socket has accepted bytes. Returns whether commands wait for that.
    #[inline]
    pub(crate) fn on_socket_progress(&mut self) -> bool {
        let waits = self.paced != Paced::No;
        if waits {
            self.paced = Paced::Progresses;
        }
        waits
    }

    /// Whether commands wait and the socket has accepted bytes since the last call.
    pub(crate) fn take_progress(&mut self) -> bool {
        let progresses = self.paced == Paced::Progresses;
        if progresses {
            self.paced = Paced::Waits;
        }
        progresses
    }

    /// Whether the reliable lane exceeds `share` of the limits, or will with `frames_to_come`. The latest lane does not
    /// count: it is written after replies, and may never be empty.
    pub(crate) fn is_over_pace(&self, client: &ClientOptions, share: Share, frames_to_come: usize) -> bool {
        let frames = self.queue.len() - usize::from(self.room_parts) + frames_to_come;
        let bytes_max = share.of(client.queue_bytes_max);
        frames > share.of(client.queue_frames_max) || self.queued_bytes > bytes_max && self.reliable_bytes() > bytes_max
    }

    fn reliable_bytes(&self) -> usize {
        let slots = self.latest.iter().flat_map(|lane| &lane.slots);
        self.queued_bytes - self.room_bytes - slots.map(|slot| slot.frame.len()).sum::<usize>()
    }

    /// Frees the memory of a burst, if it is large.
    #[inline]
    pub(crate) fn trim_after_burst(&mut self) {
        let slots = self.latest.as_ref().map_or(0, |lane| lane.slots.capacity());
        if self.queue.capacity().max(slots) > BURST_FRAMES {
            self.trim();
        }
    }

    /// Frees the memory of a burst.
    pub(crate) fn trim(&mut self) {
        if self.queue.is_empty() && self.queue.capacity() > KEPT_FRAMES {
            self.queue.shrink_to(KEPT_FRAMES);
        }
        if let Some(lane) = self.latest.take_if(|lane| lane.slots.is_empty() && lane.slots.capacity() > KEPT_FRAMES)
            && lane.budget.is_some()
        {
            self.latest = Some(Box::new(LatestLane { budget: lane.budget, ..LatestLane::default() }));
        }
    }

    /// Whether there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.queued_bytes == 0 && self.due_seats == 0
    }

    /// Queued bytes, including those of a partly written room frame.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Queued frames, including one for each room with a new tick.
    pub(crate) fn queued_frames(&self) -> usize {
        self.lane_frames() + self.due_seats as usize
    }

    /// Whether the lanes exceed the limits. Room frames do not count, because there is at most one.
    pub(crate) fn is_too_far_behind(&self, client: &ClientOptions) -> bool {
        self.has_too_many_bytes(client)
            || self.lane_frames() - usize::from(self.room_parts > 0) > client.queue_frames_max
    }

    /// Whether more bytes are queued than `queue_bytes_max`.
    pub(crate) fn has_too_many_bytes(&self, client: &ClientOptions) -> bool {
        self.queued_bytes - self.room_bytes > client.queue_bytes_max
    }

    /// Since when the client has waited for what is queued. Looks at the first frame of each lane only, because a report
    /// asks all sessions: both lanes are in the order of arrival.
    pub(crate) fn oldest_us(&self) -> Option<u64> {
        let queued = self.queue.iter().find_map(FrameRef::since_us);
        let slot = self.latest.as_ref().and_then(|lane| lane.slots.front()).map(|slot| slot.since_us);
        let due = (self.due_seats > 0).then_some(self.due_since_us);
        [queued, slot, due].into_iter().flatten().min()
    }

    fn lane_frames(&self) -> usize {
        let slots = self.latest.as_ref().map_or(0, |lane| lane.slots.len());
        self.queue.len() + slots - usize::from(self.room_parts.saturating_sub(1))
    }

    /// The number of queued slices in the lanes, as far as one write needs it.
    fn lane_slices(&self) -> usize {
        let queued: usize = self.queue.iter().take(WRITE_SLICES_MAX).map(FrameRef::slices).sum();
        queued + self.latest.as_ref().map_or(0, |lane| lane.slots.len())
    }
}

impl LatestLane {
    fn pop(&mut self) -> Option<Slot> {
        let slot = self.slots.pop_front()?;
        self.places.remove(&slot.key_hash);
        self.left += 1;
        Some(slot)
    }
}

/// The slices of one write.
#[derive(Default)]
pub struct Outgoing<'a> {
    queue: vec_deque::Iter<'a, FrameRef>,
    /// The remaining parts of a frame that consists of several slices.
    parts: Option<Parts<'a>>,
    slots: Option<vec_deque::Iter<'a, Slot>>,
    rooms: Option<RoomSlices<'a>>,
    skip_bytes: usize,
    slices_left: usize,
    bytes_left: usize,
}

impl<'a> Outgoing<'a> {
    fn next_frame(&mut self) -> Option<&'a FrameRef> {
        let slot = |slots: &mut vec_deque::Iter<'a, Slot>| slots.next().map(|slot| &slot.frame);
        self.queue.next().or_else(|| self.slots.as_mut().and_then(slot))
    }

    /// The next part, of a frame in parts, that is neither empty nor written.
    fn next_part(&mut self) -> Option<&'a [u8]> {
        let Self { parts, skip_bytes, .. } = self;
        let part = parts.as_mut()?.find(|part| {
            let is_over = part.len() <= *skip_bytes;
            *skip_bytes -= if is_over { part.len() } else { 0 };
            !is_over
        });
        if part.is_none() {
            self.parts = None;
        }
        part
    }
}

impl<'a> Iterator for Outgoing<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.slices_left == 0 || self.bytes_left == 0 {
            return None;
        }
        let bytes = loop {
            if self.parts.is_some()
                && let Some(part) = self.next_part()
            {
                break part;
            }
            let Some(frame) = self.next_frame() else {
                // No more room frames were assembled than one write may include.
                return self.rooms.as_mut()?.next();
            };
            match frame.bytes() {
                Ok(bytes) => break bytes,
                Err(parts) => self.parts = Some(parts),
            }
        };
        let bytes = &bytes[std::mem::take(&mut self.skip_bytes)..];
        self.slices_left -= 1;
        self.bytes_left = self.bytes_left.saturating_sub(bytes.len());
        Some(bytes)
    }
}
