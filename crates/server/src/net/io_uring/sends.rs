//! The batch of sends: what was offered, the memory that it needs until the kernel has taken it, and the results.

use std::ptr;

use ::io_uring::{opcode, squeue::Entry, types::Fd};

use super::{
    super::reactor::{ConnectionKey, SEND_SLICES_MAX, SendOutcome, Sent},
    slots::Subject,
};

/// Sends of a batch. Measured: 256 of them already save most of what there is to save, and a thousand a little more.
pub(super) const BATCH_MAX: usize = 1_024;

/// Bytes that are copied to be sent together, for a copy costs less than what `sendmsg` does beyond a plain send.
const TOGETHER_BYTES_MAX: usize = 8 * 1024;

/// Bytes that a batch copies. When they are used up, what was collected is submitted before the rest.
const ARENA_BYTES: usize = 256 * 1024;

/// Slices that a batch refers to with `sendmsg`; as above.
const SLICES_MAX: usize = 2_048;

/// Sends of a batch that do; as above.
const MESSAGES_MAX: usize = 256;

/// Never a signal, and never a wait: what the socket does not take at once is offered again later.
const FLAGS: i32 = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;

/// The current batch.
pub(super) struct Sends {
    offers: Vec<Offer>,
    /// Results that have been asked for.
    told: usize,
    /// Sends that are pushed and have no result.
    outstanding: usize,
    arena: Box<[u8]>,
    arena_used: usize,
    slices: Box<[libc::iovec]>,
    slices_used: usize,
    headers: Box<[libc::msghdr]>,
    headers_used: usize,
}

struct Offer {
    connection: ConnectionKey,
    slices: u32,
    offered_bytes: usize,
    result: i32,
}

/// What a send refers to.
enum Payload {
    Bytes(*const u8, usize),
    Message(*const libc::msghdr),
}

// SAFETY: the pointers lead into the value's own memory, or to slices of which the one who offers them promises that they
// stay until the batch has ended; between batches there are none that are used.
unsafe impl Send for Sends {}

impl Sends {
    pub(super) fn new() -> Self {
        let no_slice = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        // SAFETY: a header of null pointers and zeros is a valid one.
        let no_header: libc::msghdr = unsafe { std::mem::zeroed() };
        Self {
            offers: Vec::with_capacity(BATCH_MAX),
            told: 0,
            outstanding: 0,
            arena: vec![0; ARENA_BYTES].into_boxed_slice(),
            arena_used: 0,
            slices: vec![no_slice; SLICES_MAX].into_boxed_slice(),
            slices_used: 0,
            headers: vec![no_header; MESSAGES_MAX].into_boxed_slice(),
            headers_used: 0,
        }
    }

    /// Whether another send of several slices finds its memory. If not, the batch so far has to be submitted first, which
    /// frees all of it.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.arena.len() - self.arena_used >= TOGETHER_BYTES_MAX
            && self.slices.len() - self.slices_used >= SEND_SLICES_MAX
            && self.headers_used < self.headers.len()
    }

    /// The request for a send of one slice.
    #[inline]
    pub(super) fn one(&mut self, connection: ConnectionKey, fd: Fd, slice: &[u8]) -> Entry {
        self.entry(connection, fd, 1, slice.len(), &Payload::Bytes(slice.as_ptr(), slice.len()))
    }

    /// The request for a send of several slices, as far as they fit into one. There is room.
    pub(super) fn several<'a>(
        &mut self,
        connection: ConnectionKey,
        fd: Fd,
        slices: impl Iterator<Item = &'a [u8]>,
    ) -> Entry {
        let first = self.slices_used;
        let (mut count, mut bytes) = (0, 0);
        for (place, slice) in self.slices[first..].iter_mut().take(SEND_SLICES_MAX).zip(slices) {
            *place = libc::iovec { iov_base: slice.as_ptr().cast_mut().cast(), iov_len: slice.len() };
            count += 1;
            bytes += slice.len();
        }
        let gathered = &mut self.slices[first..first + count];
        let payload = if bytes <= TOGETHER_BYTES_MAX {
            let start = self.arena_used;
            for slice in gathered {
                let place = &mut self.arena[self.arena_used..self.arena_used + slice.iov_len];
                // SAFETY: the slice was put down just above, from one that is still borrowed.
                place.copy_from_slice(unsafe { std::slice::from_raw_parts(slice.iov_base.cast(), slice.iov_len) });
                self.arena_used += slice.iov_len;
            }
            Payload::Bytes(self.arena[start..].as_ptr(), bytes)
        } else {
            let header = &mut self.headers[self.headers_used];
            (header.msg_iov, header.msg_iovlen) = (gathered.as_mut_ptr(), count as _);
            self.slices_used += count;
            self.headers_used += 1;
            Payload::Message(ptr::from_ref(header))
        };
        self.entry(connection, fd, count, bytes, &payload)
    }

    #[inline]
    fn entry(&mut self, connection: ConnectionKey, fd: Fd, slices: usize, bytes: usize, payload: &Payload) -> Entry {
        let place = self.offers.len() as u32;
        let offer = Offer { connection, slices: slices as u32, offered_bytes: bytes, result: -libc::ECANCELED };
        self.offers.push(offer);
        self.outstanding += 1;
        let entry = match *payload {
            // More than fits into the field is offered again with the rest.
            Payload::Bytes(start, bytes) => {
                opcode::Send::new(fd, start, u32::try_from(bytes).unwrap_or(u32::MAX)).flags(FLAGS).build()
            }
            Payload::Message(header) => opcode::SendMsg::new(fd, header).flags(FLAGS as u32).build(),
        };
        entry.user_data(Subject::Send(place).user_data())
    }

    /// Sends that are pushed and have no result.
    #[inline]
    pub(super) fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Nothing that is outstanding will have a result. Those sends count as broken.
    pub(super) fn give_up(&mut self) {
        self.outstanding = 0;
    }

    /// The memory of what was submitted is free again: there is nothing outstanding.
    pub(super) fn reuse(&mut self) {
        debug_assert_eq!(self.outstanding, 0);
        (self.arena_used, self.slices_used, self.headers_used) = (0, 0, 0);
    }

    /// Takes in a result.
    #[inline]
    pub(super) fn complete(&mut self, place: u32, result: i32) {
        if let Some(offer) = self.offers.get_mut(place as usize) {
            offer.result = result;
            self.outstanding -= 1;
        }
    }

    /// The next result; `None` ends the batch. All have come.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Sent> {
        let Some(offer) = self.offers.get(self.told) else {
            self.offers.clear();
            self.told = 0;
            return None;
        };
        self.told += 1;
        let Offer { connection, slices, offered_bytes, result } = *offer;
        let written_bytes = usize::try_from(result).unwrap_or(0);
        let outcome = match result {
            _ if written_bytes == offered_bytes => SendOutcome::All,
            // The kernel takes less than was offered only when the socket is full.
            0.. => SendOutcome::Full,
            error if -error == libc::EAGAIN || -error == libc::EINTR => SendOutcome::Full,
            _ => SendOutcome::Broken,
        };
        Some(Sent { connection, slices: slices as usize, offered_bytes, written_bytes, outcome })
    }
}
