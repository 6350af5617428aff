//! A session's two lanes, and the bytes of them that the kernel has taken.
//!
//! The *reliable* lane is first in, first out. The *latest* lane has one slot per (channel, key). A newer publication
//! replaces the queued one in place, so a slow session needs memory for the state, not for the time that it is behind.
//! The reliable lane is written first, then the slots in the order in which they were first filled. A partly written
//! frame is completed before any other.
//!
//! The frames of the session's rooms come last. They are not queued: see [`room_frames`].

mod room_frames;

use std::collections::{VecDeque, vec_deque};

use hashbrown::HashMap;

use crate::{
    Effects, SessionKey,
    frame::{FrameRef, Parts},
    hub::LocalChannelId,
    options::ClientOptions,
    seats::Seats,
    session::Share,
};

use room_frames::{RoomFrames, RoomSlices};

/// Slices that one write may take: most frames are one.
const WRITE_SLICES_MAX: usize = 64;
/// Bytes after which a write takes no further frame.
const WRITE_BYTES_MAX: usize = 256 * 1024;
/// Capacity, in frames, that an empty lane keeps.
const KEPT_FRAMES: usize = 8;
/// Capacity, in frames, beyond which an empty lane frees its memory. It is more than a few writes take, so a session that
/// keeps up does not reach it and does not reallocate.
const BURST_FRAMES: usize = 256;

/// What waits for one session's socket.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    queue: VecDeque<FrameRef>,
    latest: Option<Box<LatestLane>>,
    /// Bytes of all frames in both lanes, the written part of the first included.
    queued_bytes: usize,
    /// Bytes of the first frame of `queue` that are written.
    head_written: usize,
    /// Bytes of what is left at the head of `queue` of a room's frame that was begun, otherwise 0. They count for no bound:
    /// there is never more than one such frame.
    room_bytes: usize,
    /// Seats of the session that are to be sent the newest tick.
    due_seats: u32,
    /// Since when there has been one.
    due_since_us: u64,
    /// There while the session is in a room.
    rooms: Option<Box<RoomFrames>>,
    /// Of the session whose outbox it is, so that a delivery need not look at the session itself.
    pub(crate) generation: u32,
    /// How many of the first in `queue` are parts of that frame: its head may be one, its body is another.
    room_parts: u8,
    /// Whether there is a session whose outbox it is.
    pub(crate) in_use: bool,
    /// Whether the caller knows that there is something to write. Only [`Outbox::list`] sets it.
    listed: bool,
    /// Whether the session's last frame is in it.
    pub(crate) closing: bool,
    /// Whether only the first `uncorked_frames` are offered until the answer to `connect` stands at the head.
    corked: bool,
    /// How many of the first in `queue` were there before the cork.
    uncorked_frames: u16,
    /// Whether commands wait for what is in it to be written.
    paced: Paced,
}

/// Whether the session's commands wait for its socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Paced {
    #[default]
    No,
    /// They wait, and nothing was written since they were last asked about.
    Waits,
    /// They wait, and the socket has taken something.
    Progresses,
}

/// Which slots of the latest lane.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Slots {
    /// Those that the next write may take. The others may be replaced before they go.
    OfNextWrite,
    All,
}

#[derive(Debug, Default)]
struct LatestLane {
    slots: VecDeque<Slot>,
    /// From a key's hash to the place of its slot, counted from the first slot ever.
    places: HashMap<u64, u64, foldhash::fast::FixedState>,
    /// Slots that have left at the front.
    left: u64,
}

#[derive(Debug)]
struct Slot {
    key_hash: u64,
    channel: LocalChannelId,
    frame: FrameRef,
    /// Older publications of this key that were replaced.
    skipped: u32,
    /// Whether `frame` says so already.
    tagged: bool,
}

impl Outbox {
    /// Adds to the reliable lane.
    pub(crate) fn push(&mut self, frame: FrameRef) {
        self.queued_bytes += frame.len();
        self.queue.push_back(frame);
    }

    /// Puts a frame before everything that has not begun to be written.
    pub(crate) fn push_next(&mut self, frame: FrameRef) {
        self.queued_bytes += frame.len();
        self.queue.insert(self.begun_frames(), frame);
    }

    /// How many of the first frames have begun to be written, or belong to one that has.
    fn begun_frames(&self) -> usize {
        usize::from(self.room_parts).max(usize::from(self.head_written > 0))
    }

    /// Puts into the latest lane; returns whether it replaced a waiting publication. `key_hash` is the hash of the channel
    /// and the conflation key's value; it is seeded, and wide enough to stand for them.
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
        lane.slots.push_back(Slot { key_hash, channel, frame, skipped: 0, tagged: false });
        false
    }

    /// Rewrites, with `tag`, the frames of slots that had others replaced before them, as far as `which` goes.
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

    /// Reports that the session has something to write, if it has and this was not reported yet. Every session is
    /// listed here and nowhere else, so that a batch of writes never has a session twice.
    #[inline]
    pub(crate) fn list(&mut self, index: u32, effects: &mut Effects) {
        if !self.listed && self.is_writable() {
            self.listed = true;
            effects.dirty.push(SessionKey { index, generation: self.generation });
        }
    }

    /// The caller has written all that it was offered, and forgets the session until it is listed again.
    pub(crate) fn unlist(&mut self) {
        debug_assert!(!self.is_writable(), "the caller would not write the rest");
        self.listed = false;
    }

    /// Whether the next write has something to take.
    #[inline]
    pub(crate) fn is_writable(&self) -> bool {
        if self.corked { self.uncorked_frames > 0 } else { !self.is_empty() }
    }

    /// Whether what waits is held back until the answer to `connect` stands before it.
    pub(crate) fn is_corked(&self) -> bool {
        self.corked
    }

    /// Holds back what comes from now on. What waits already is still offered: the caller may be about to write it.
    pub(crate) fn cork(&mut self) {
        self.corked = true;
        self.uncorked_frames = u16::try_from(self.queue.len()).unwrap_or(u16::MAX);
    }

    /// Offers everything again. Returns, if it was corked, how many frames are left from before.
    pub(crate) fn uncork(&mut self) -> Option<usize> {
        let before_cork = usize::from(std::mem::take(&mut self.uncorked_frames));
        std::mem::take(&mut self.corked).then_some(before_cork)
    }

    /// The slices of the next write. Rooms' frames have been offered, see [`Outbox::offer_room_frames`].
    pub(crate) fn outgoing<'a>(&'a self, seats: &'a Seats) -> Outgoing<'a> {
        if self.corked {
            let queue = self.queue.range(..usize::from(self.uncorked_frames));
            let (slices_left, bytes_left) = (WRITE_SLICES_MAX, WRITE_BYTES_MAX);
            return Outgoing { queue, skip_bytes: self.head_written, slices_left, bytes_left, ..Outgoing::default() };
        }
        Outgoing {
            queue: self.queue.iter(),
            parts: None,
            slots: self.latest.as_ref().map(|lane| lane.slots.iter()),
            rooms: self.rooms.as_ref().map(|rooms| rooms.slices(seats)),
            skip_bytes: self.head_written,
            slices_left: WRITE_SLICES_MAX,
            bytes_left: WRITE_BYTES_MAX,
        }
    }

    /// Takes off the first `bytes` bytes of what [`Outbox::outgoing`] offered. Returns how many of them are of neither lane:
    /// they are of rooms' frames, or were not offered.
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
        while bytes > 0 && !self.corked {
            let Some(slot) = self.latest.as_mut().and_then(|lane| lane.pop()) else { return bytes };
            let length = slot.frame.len();
            if bytes < length {
                // Begun, so it can no longer be replaced, and nothing may come between its parts.
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

    /// See [`crate::planted::Bug::LatestKeepsOlder`].
    pub(crate) fn has_slot(&self, key_hash: u64) -> bool {
        self.latest.as_ref().is_some_and(|lane| lane.places.contains_key(&key_hash))
    }

    /// See [`crate::planted::Bug::SlowCloseCutsFrame`].
    pub(crate) fn forget_begun(&mut self) {
        self.head_written = 0;
        (self.room_parts, self.room_bytes) = (0, 0);
    }

    /// Drops what has not begun to be written.
    pub(crate) fn discard_unbegun(&mut self) {
        self.discard_latest_and_behind(0);
    }

    /// Drops what has not begun to be written, but not the first `frames_kept` frames.
    pub(crate) fn discard_latest_and_behind(&mut self, frames_kept: usize) {
        self.queue.truncate(self.begun_frames().max(frames_kept));
        self.queue.shrink_to_fit();
        self.latest = None;
        self.queued_bytes = self.queue.iter().map(FrameRef::len).sum();
    }

    /// Moves the slots behind the reliable lane, where nothing replaces them any more.
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

    /// Has commands wait for the socket. That they came as far as this is progress as well.
    pub(crate) fn pace(&mut self) {
        self.paced = Paced::Progresses;
    }

    /// No command waits any more.
    pub(crate) fn end_pace(&mut self) {
        self.paced = Paced::No;
    }

    /// Notes that the socket has taken something. Returns whether commands wait for that.
    #[inline]
    pub(crate) fn on_socket_progress(&mut self) -> bool {
        let waits = self.paced != Paced::No;
        if waits {
            self.paced = Paced::Progresses;
        }
        waits
    }

    /// Whether commands wait, and the socket has taken something since this was last asked.
    pub(crate) fn take_progress(&mut self) -> bool {
        let progresses = self.paced == Paced::Progresses;
        if progresses {
            self.paced = Paced::Waits;
        }
        progresses
    }

    /// Whether more than `share` of the bounds waits in the reliable lane, or will with `frames_to_come`. The latest lane
    /// does not count: it goes behind replies, and may never be empty.
    pub(crate) fn is_over_pace(&self, client: &ClientOptions, share: Share, frames_to_come: usize) -> bool {
        let frames = self.queue.len() - usize::from(self.room_parts) + frames_to_come;
        let bytes_max = share.of(client.queue_bytes_max);
        frames > share.of(client.queue_frames_max) || self.queued_bytes > bytes_max && self.reliable_bytes() > bytes_max
    }

    fn reliable_bytes(&self) -> usize {
        let slots = self.latest.iter().flat_map(|lane| &lane.slots);
        self.queued_bytes - self.room_bytes - slots.map(|slot| slot.frame.len()).sum::<usize>()
    }

    /// Gives back what a burst left behind, if that is much.
    #[inline]
    pub(crate) fn trim_after_burst(&mut self) {
        let slots = self.latest.as_ref().map_or(0, |lane| lane.slots.capacity());
        if self.queue.capacity().max(slots) > BURST_FRAMES {
            self.trim();
        }
    }

    /// Gives back the memory that a burst left behind.
    pub(crate) fn trim(&mut self) {
        if self.queue.is_empty() && self.queue.capacity() > KEPT_FRAMES {
            self.queue.shrink_to(KEPT_FRAMES);
        }
        if self.latest.as_ref().is_some_and(|lane| lane.slots.is_empty() && lane.slots.capacity() > KEPT_FRAMES) {
            self.latest = None;
        }
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.queued_bytes == 0 && self.due_seats == 0
    }

    /// Bytes that wait, those included of a room's frame that was begun.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Frames that wait, one for each room included that has something new.
    pub(crate) fn queued_frames(&self) -> usize {
        self.lane_frames() + self.due_seats as usize
    }

    /// Whether more waits than may. What rooms show does not count: there is never more than one frame of it.
    pub(crate) fn is_too_far_behind(&self, client: &ClientOptions) -> bool {
        self.has_too_many_bytes(client)
            || self.lane_frames() - usize::from(self.room_parts > 0) > client.queue_frames_max
    }

    /// Whether more bytes are queued than `queue_bytes_max`.
    pub(crate) fn has_too_many_bytes(&self, client: &ClientOptions) -> bool {
        self.queued_bytes - self.room_bytes > client.queue_bytes_max
    }

    /// Since when the first frame that carries a time has been on its way.
    pub(crate) fn oldest_us(&self) -> Option<u64> {
        let slots = self.latest.iter().flat_map(|lane| lane.slots.iter().map(|slot| &slot.frame));
        let queued = self.queue.iter().find_map(FrameRef::since_us);
        let due = (self.due_seats > 0).then_some(self.due_since_us);
        queued.into_iter().chain(slots.filter_map(FrameRef::since_us)).chain(due).min()
    }

    fn lane_frames(&self) -> usize {
        let slots = self.latest.as_ref().map_or(0, |lane| lane.slots.len());
        self.queue.len() + slots - usize::from(self.room_parts.saturating_sub(1))
    }

    /// Slices of what waits in the lanes, as far as a write is concerned.
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
    /// What is left of a frame that goes in several slices.
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

    /// The next part of a frame in parts that is neither empty nor written.
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
                // As many as a write may take, and no more, were put together.
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
