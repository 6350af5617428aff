//! A batch of sends: the requests, the memory that they need until the kernel has taken it, and the results.

use std::ptr;

use ::io_uring::{opcode, squeue::Entry};

use super::{
    super::reactor::{ConnectionKey, SEND_SLICES_MAX, SendCompletion, SendOutcome},
    slots::Subject,
    socket::Target,
};

/// Maximum number of sends in a batch. Measurements: 256 save most of the cost, 1,024 a little more.
pub(super) const BATCH_MAX: usize = 1_024;

/// Maximum number of bytes that are copied for one send. The copy costs less than the difference between `sendmsg` and
/// `send`.
const TOGETHER_BYTES_MAX: usize = 8 * 1024;

/// Bytes that one batch copies. When they are used up, the collected sends are submitted first.
const ARENA_BYTES: usize = 256 * 1024;

/// Slices that one batch passes to `sendmsg`; the same applies.
const SLICES_MAX: usize = 2_048;

/// Sends of one batch that use `sendmsg`; the same applies.
const MESSAGES_MAX: usize = 256;

/// A send never raises a signal and never blocks: data that the socket does not take is offered again later.
const FLAGS: i32 = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;

/// The current batch.
pub(super) struct Sends {
    offers: Vec<Offer>,
    /// Number of results that were fetched.
    reported: usize,
    /// Number of queued sends without a result.
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

/// The data of a send.
enum Payload {
    Bytes(*const u8, usize),
    Message(*const libc::msghdr),
}

// SAFETY: the pointers lead to memory of this value, or to slices that the caller keeps valid until the batch has
// ended. Between batches no pointer is used.
unsafe impl Send for Sends {}

impl Sends {
    pub(super) fn new() -> Self {
        let no_slice = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        // SAFETY: a header of null pointers and zeros is valid.
        let no_header: libc::msghdr = unsafe { std::mem::zeroed() };
        Self {
            offers: Vec::with_capacity(BATCH_MAX),
            reported: 0,
            outstanding: 0,
            arena: vec![0; ARENA_BYTES].into_boxed_slice(),
            arena_used: 0,
            slices: vec![no_slice; SLICES_MAX].into_boxed_slice(),
            slices_used: 0,
            headers: vec![no_header; MESSAGES_MAX].into_boxed_slice(),
            headers_used: 0,
        }
    }

    /// Whether the batch has memory for another send of several slices. If not, the collected sends must be submitted
    /// first.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.arena.len() - self.arena_used >= TOGETHER_BYTES_MAX
            && self.slices.len() - self.slices_used >= SEND_SLICES_MAX
            && self.headers_used < self.headers.len()
    }

    /// The request to send one slice.
    #[inline]
    pub(super) fn one(&mut self, connection: ConnectionKey, target: Target, slice: &[u8]) -> Entry {
        self.entry(connection, target, 1, slice.len(), &Payload::Bytes(slice.as_ptr(), slice.len()))
    }

    /// The request to send several slices, or as many of them as fit. Requires [`Self::has_room`].
    pub(super) fn several<'a>(
        &mut self,
        connection: ConnectionKey,
        target: Target,
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
                // SAFETY: the slice was stored just above and is still borrowed.
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
        self.entry(connection, target, count, bytes, &payload)
    }

    #[inline]
    fn entry(
        &mut self,
        connection: ConnectionKey,
        target: Target,
        slices: usize,
        bytes: usize,
        payload: &Payload,
    ) -> Entry {
        let place = self.offers.len() as u32;
        let offer = Offer { connection, slices: slices as u32, offered_bytes: bytes, result: -libc::ECANCELED };
        self.offers.push(offer);
        self.outstanding += 1;
        let entry = target.request(|fd| match *payload {
            // Bytes beyond the range of the field are offered again with the rest.
            Payload::Bytes(start, bytes) => {
                opcode::Send::new(fd, start, u32::try_from(bytes).unwrap_or(u32::MAX)).flags(FLAGS).build()
            }
            Payload::Message(header) => opcode::SendMsg::new(fd, header).flags(FLAGS as u32).build(),
        });
        entry.user_data(Subject::Send(place).user_data())
    }

    /// Number of queued sends without a result.
    #[inline]
    pub(super) fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Marks all sends without a result as broken.
    pub(super) fn give_up(&mut self) {
        self.outstanding = 0;
    }

    /// Frees the memory of the batch. All sends have completed.
    pub(super) fn reuse(&mut self) {
        debug_assert_eq!(self.outstanding, 0);
        (self.arena_used, self.slices_used, self.headers_used) = (0, 0, 0);
    }

    /// Stores a result.
    #[inline]
    pub(super) fn complete(&mut self, place: u32, result: i32) {
        if let Some(offer) = self.offers.get_mut(place as usize) {
            offer.result = result;
            self.outstanding -= 1;
        }
    }

    /// The next result; `None` ends the batch. All sends have completed.
    #[inline]
    pub(super) fn next(&mut self) -> Option<SendCompletion> {
        let Some(offer) = self.offers.get(self.reported) else {
            self.offers.clear();
            self.reported = 0;
            return None;
        };
        self.reported += 1;
        let Offer { connection, slices, offered_bytes, result } = *offer;
        let written_bytes = usize::try_from(result).unwrap_or(0);
        let outcome = match result {
            _ if written_bytes == offered_bytes => SendOutcome::All,
            // The kernel takes less than offered only when the socket is full.
            0.. => SendOutcome::Full,
            error if -error == libc::EAGAIN || -error == libc::EINTR => SendOutcome::Full,
            _ => SendOutcome::Broken,
        };
        Some(SendCompletion { connection, slices: slices as usize, offered_bytes, written_bytes, outcome })
    }
}
