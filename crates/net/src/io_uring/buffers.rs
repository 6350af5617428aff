//! The buffers that the kernel receives into: one ring for all connections of a shard, so that an idle connection uses
//! none. A filled buffer stays in its connection's list until it is returned to the ring.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    io,
    ptr::NonNull,
    sync::atomic::{AtomicU16, Ordering},
};

use ::io_uring::types::BufRingEntry;

use super::ring::Ring;

/// Buffers of a shard.
pub(super) const BUFFERS: u16 = 512;

/// Size of one buffer. Most messages are far shorter; longer ones use several buffers.
pub(super) const BUFFER_BYTES_MAX: usize = 4_096;

/// The id of the buffer group.
pub const GROUP: u16 = 0;

/// The alignment of the ring's address that the kernel requires.
const ALIGNMENT: usize = 4_096;

/// The index that means "no buffer".
const NONE: u16 = u16::MAX;

/// The buffers and their states.
pub struct Buffers {
    entries: NonNull<BufRingEntry>,
    memory: NonNull<u8>,
    /// Bytes that the kernel may write into one buffer.
    buffer_bytes: usize,
    /// Our copy of the ring's tail.
    tail: u16,
    /// Number of buffers that the kernel may fill.
    free: u16,
    /// For each buffer, the number of bytes in it and the next buffer of its list.
    filled: Box<[Filled]>,
}

#[derive(Clone, Copy)]
struct Filled {
    bytes: u16,
    next: u16,
}

/// Filled buffers in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct List {
    first: u16,
    last: u16,
    len: u16,
}

impl Default for List {
    fn default() -> Self {
        Self { first: NONE, last: NONE, len: 0 }
    }
}

impl List {
    pub(super) fn is_empty(self) -> bool {
        self.len == 0
    }

    pub(super) fn len(self) -> u16 {
        self.len
    }
}

// SAFETY: only this value and the kernel use the memory.
unsafe impl Send for Buffers {}

impl Buffers {
    /// Creates buffers for at most `bytes_max` bytes each, and registers them with `ring`.
    ///
    /// # Safety
    /// `ring` must be dropped, with all its requests ended, before the buffers.
    ///
    /// # Errors
    /// The error of the system call that failed.
    pub unsafe fn new(ring: &Ring, bytes_max: usize) -> io::Result<Self> {
        let mut buffers = Self {
            entries: allocate(entries_layout()).cast(),
            memory: allocate(memory_layout()),
            buffer_bytes: bytes_max.clamp(1, BUFFER_BYTES_MAX),
            tail: 0,
            free: 0,
            filled: vec![Filled { bytes: 0, next: NONE }; usize::from(BUFFERS)].into_boxed_slice(),
        };
        // SAFETY: the address has `BUFFERS` entries; the caller guarantees that the ring is dropped first.
        unsafe { ring.register_buffers(buffers.entries.as_ptr() as u64, BUFFERS, GROUP)? };
        for buffer in 0..BUFFERS {
            buffers.give_back(buffer);
        }
        Ok(buffers)
    }

    /// Number of buffers that the kernel may fill.
    pub fn free(&self) -> u16 {
        self.free
    }

    /// Appends a buffer that the kernel has filled to `list`.
    pub(super) fn take(&mut self, buffer: u16, bytes: usize, list: &mut List) {
        self.take_alone(buffer, bytes);
        if list.is_empty() {
            list.first = buffer;
        } else {
            self.filled[usize::from(list.last)].next = buffer;
        }
        list.last = buffer;
        list.len += 1;
    }

    /// Takes a buffer that the kernel has filled, without a list.
    pub fn take_alone(&mut self, buffer: u16, bytes: usize) {
        self.free -= 1;
        let bytes = u16::try_from(bytes.min(self.buffer_bytes)).expect("a buffer is shorter than that");
        self.filled[usize::from(buffer)] = Filled { bytes, next: NONE };
    }

    /// Length of the first buffer of a list.
    pub(super) fn first_bytes(&self, list: List) -> Option<usize> {
        (!list.is_empty()).then(|| usize::from(self.filled[usize::from(list.first)].bytes))
    }

    /// Removes the first buffer of a list.
    pub(super) fn pop(&mut self, list: &mut List) -> Option<u16> {
        if list.is_empty() {
            return None;
        }
        let buffer = list.first;
        list.first = self.filled[usize::from(buffer)].next;
        list.len -= 1;
        Some(buffer)
    }

    /// The bytes of a filled buffer.
    pub fn bytes(&mut self, buffer: u16) -> &mut [u8] {
        let length = usize::from(self.filled[usize::from(buffer)].bytes);
        let place = usize::from(buffer) * BUFFER_BYTES_MAX;
        // SAFETY: the place lies within the memory, because the index was just checked. The kernel does not touch a
        // buffer between filling it and getting it back.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr().add(place), length) }
    }

    /// Moves all bytes of a list to the end of `to` and returns its buffers to the ring.
    pub(super) fn move_to(&mut self, list: &mut List, to: &mut Vec<u8>) {
        while let Some(buffer) = self.pop(list) {
            to.extend_from_slice(self.bytes(buffer));
            self.give_back(buffer);
        }
    }

    /// Returns all buffers of a list to the ring.
    pub(super) fn discard(&mut self, list: &mut List) {
        while let Some(buffer) = self.pop(list) {
            self.give_back(buffer);
        }
    }

    /// Returns a buffer to the ring.
    pub fn give_back(&mut self, buffer: u16) {
        let place = usize::from(self.tail % BUFFERS);
        let address = self.memory.as_ptr() as u64 + u64::from(buffer) * BUFFER_BYTES_MAX as u64;
        // SAFETY: the place lies within the ring. The kernel has consumed its entry, because there are as many places
        // as buffers.
        let entry = unsafe { &mut *self.entries.as_ptr().add(place) };
        entry.set_addr(address);
        entry.set_len(self.buffer_bytes as u32);
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
        self.free += 1;
        // SAFETY: the tail lies in the first entry and is aligned; the kernel only reads it.
        let tail = unsafe { &*BufRingEntry::tail(self.entries.as_ptr()).cast::<AtomicU16>() };
        tail.store(self.tail, Ordering::Release);
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: allocated with the same layouts; the kernel no longer uses them, see `Buffers::new`.
        unsafe {
            dealloc(self.entries.as_ptr().cast(), entries_layout());
            dealloc(self.memory.as_ptr(), memory_layout());
        }
    }
}

const _: () = assert!(BUFFERS.is_power_of_two() && BUFFER_BYTES_MAX <= u16::MAX as usize);

fn entries_layout() -> Layout {
    layout(usize::from(BUFFERS) * size_of::<BufRingEntry>())
}

fn memory_layout() -> Layout {
    layout(usize::from(BUFFERS) * BUFFER_BYTES_MAX)
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, ALIGNMENT).expect("both sizes are constants, and small")
}

fn allocate(layout: Layout) -> NonNull<u8> {
    // SAFETY: the layouts are not empty.
    NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
}
