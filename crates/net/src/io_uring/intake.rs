//! The receiving half: stores the bytes of receive completions and reports them to the shard.

use std::{
    collections::{HashMap, VecDeque},
    io,
    mem::ManuallyDrop,
};

use ::io_uring::opcode;

use super::{
    buffers::{Buffers, GROUP, List},
    ring::{Cqe, Ring},
    slots::{ARMED, ENDED, ENDING, FRESH, PAUSED, QUEUED, STASHED, Slot, Sockets, Subject, WAITS_TO_ARM},
};
use crate::{Completion, ConnectionKey};

/// Bytes reported per turn for all connections together.
const READ_BYTES_PER_TURN: usize = 1 << 20;

/// Filled buffers that one connection may hold before its receive is cancelled. The limit leaves buffers to other
/// connections.
const HELD_MAX: u16 = 16;

/// The memory that the last completion borrows.
enum BorrowedBuffer {
    Nothing,
    Buffer(u16),
}

/// The bytes that a paused connection had received, in order. The first `reported_bytes` bytes were reported.
#[derive(Debug, Default)]
struct HeldBytes {
    bytes: Vec<u8>,
    reported_bytes: usize,
}

impl HeldBytes {
    fn into_rest(mut self) -> Vec<u8> {
        self.bytes.split_off(self.reported_bytes)
    }
}

/// What was received, and the receives to be armed.
pub(super) struct Intake {
    /// The kernel uses this memory as long as the ring exists.
    buffers: ManuallyDrop<Buffers>,
    turns: ReadTurns,
    /// Connections whose receive is armed when buffers are available, or before the next wait.
    to_arm: VecDeque<ConnectionKey>,
    /// Connections whose receive is not submitted yet.
    fresh: Vec<ConnectionKey>,
    /// Data that was received before a connection was paused, by index.
    held: HashMap<u32, HeldBytes>,
    borrowed: BorrowedBuffer,
    /// A buffer to join the bytes of several buffers; reused to keep its capacity.
    together: Vec<u8>,
    /// Receives that found no free buffer.
    pub(super) buffers_ran_out: u64,
}

/// Whose turn it is to be read.
struct ReadTurns {
    /// Connections with completions, without duplicates, the longest-waiting first.
    readable: VecDeque<ConnectionKey>,
    /// How many connections at the front of `readable` have their turn in this one.
    left: usize,
    bytes_left: usize,
    /// Maximum number of bytes of one connection per turn.
    connection_bytes_max: usize,
}

impl Intake {
    /// Receives at most `read_bytes_max` bytes from one connection per turn.
    ///
    /// # Safety
    /// The ring must be dropped, with all its requests ended, before [`Self::free_buffers`].
    pub(super) unsafe fn new(ring: &Ring, read_bytes_max: usize) -> io::Result<Self> {
        // SAFETY: guaranteed by the caller.
        let buffers = unsafe { Buffers::new(ring, read_bytes_max)? };
        let turns =
            ReadTurns { readable: VecDeque::new(), left: 0, bytes_left: 0, connection_bytes_max: read_bytes_max };
        Ok(Self {
            buffers: ManuallyDrop::new(buffers),
            turns,
            to_arm: VecDeque::new(),
            fresh: Vec::new(),
            held: HashMap::new(),
            borrowed: BorrowedBuffer::Nothing,
            together: Vec::new(),
            buffers_ran_out: 0,
        })
    }

    /// Frees the buffers. Without this, they are leaked.
    ///
    /// # Safety
    /// This value is not used again, and no request is left that refers to the buffers.
    pub(super) unsafe fn free_buffers(&mut self) {
        // SAFETY: guaranteed by the caller.
        unsafe { ManuallyDrop::drop(&mut self.buffers) };
    }

    /// Each connection that is readable now has one turn.
    pub(super) fn begin_turn(&mut self) {
        self.turns.left = self.turns.readable.len();
        self.turns.bytes_left = READ_BYTES_PER_TURN;
    }

    pub(super) fn has_more(&self) -> bool {
        !self.turns.readable.is_empty()
    }

    /// The kernel has taken all queued requests.
    pub(super) fn are_submitted(&mut self, sockets: &mut Sockets) {
        for connection in self.fresh.drain(..) {
            if let Some(slot) = sockets.live(connection) {
                slot.set(FRESH, false);
            }
        }
    }

    /// The unreported bytes of a paused connection that leaves the reactor.
    pub(super) fn take_rest(&mut self, connection: ConnectionKey) -> Vec<u8> {
        self.held.remove(&connection.index).map_or_else(Vec::new, HeldBytes::into_rest)
    }

    /// Forgets the unreported bytes of a connection that is closed.
    pub(super) fn discard(&mut self, connection: ConnectionKey, received: &mut List) {
        self.buffers.discard(received);
        self.held.remove(&connection.index);
    }

    /// Processes the completion of a receive.
    pub(super) fn received(&mut self, ring: &mut Ring, sockets: &mut Sockets, connection: ConnectionKey, cqe: Cqe) {
        let Some(slot) = sockets.live(connection) else {
            // The connection was closed in the meantime.
            if let Some(buffer) = cqe.buffer() {
                self.buffers.take_alone(buffer, 0);
                self.buffers.give_back(buffer);
            }
            return;
        };
        if !cqe.has_more() {
            slot.set(ARMED | ENDING, false);
        }
        if let Some(buffer) = cqe.buffer() {
            let bytes = usize::try_from(cqe.result).unwrap_or(0);
            self.buffers.take(buffer, bytes, &mut slot.received);
        }
        match cqe.result {
            1.. => {}
            0 => slot.set(ENDED, true),
            error => match -error {
                libc::ENOBUFS => self.buffers_ran_out += 1,
                // Cancelled by this reactor, or a temporary error.
                libc::ECANCELED | libc::EAGAIN | libc::EINTR => {}
                // Treated as the end of the stream: unread data of a broken connection is lost.
                _ => slot.set(ENDED, true),
            },
        }
        if slot.has(PAUSED) {
            self.hold_bytes(sockets, connection);
        } else {
            if slot.received.len() >= HELD_MAX {
                sockets.end_receive(ring, connection);
            }
            self.queue_read(sockets, connection);
        }
        self.want_receive(sockets, connection);
    }

    /// Adds a connection with completions to the queue, unless it is queued.
    pub(super) fn queue_read(&mut self, sockets: &mut Sockets, connection: ConnectionKey) {
        let Some(slot) = sockets.live(connection) else { return };
        if slot.has_news() && !slot.has(QUEUED) && !slot.has(PAUSED) {
            slot.set(QUEUED, true);
            self.turns.readable.push_back(connection);
        }
    }

    /// Reports all bytes of the next connection, up to the limit per turn, as one completion.
    pub(super) fn read<'a>(&'a mut self, sockets: &mut Sockets) -> Option<Completion<'a>> {
        while self.turns.left > 0 && self.turns.bytes_left > 0 {
            self.turns.left -= 1;
            let connection = self.turns.readable.pop_front()?;
            let Some(slot) = sockets.live(connection) else { continue };
            slot.set(QUEUED, false);
            if slot.has(PAUSED) {
                continue;
            }
            if slot.received.is_empty() && !slot.has(STASHED) {
                if slot.has(ENDED) {
                    return Some(Completion::Ended { connection });
                }
                continue;
            }
            if slot.received.len() == 1 && !slot.has(STASHED) {
                let buffer = self.buffers.pop(&mut slot.received)?;
                self.borrowed = BorrowedBuffer::Buffer(buffer);
                self.queue_read(sockets, connection);
                self.want_receive(sockets, connection);
                let bytes = self.buffers.bytes(buffer);
                self.turns.bytes_left = self.turns.bytes_left.saturating_sub(bytes.len());
                return Some(Completion::Received { connection, bytes });
            }
            self.gather(sockets, connection);
            self.queue_read(sockets, connection);
            self.want_receive(sockets, connection);
            self.turns.bytes_left = self.turns.bytes_left.saturating_sub(self.together.len());
            return Some(Completion::Received { connection, bytes: &mut self.together });
        }
        None
    }

    /// Joins the received bytes of a connection, up to the limit per turn.
    fn gather(&mut self, sockets: &mut Sockets, connection: ConnectionKey) {
        self.together.clear();
        let bytes_max = self.turns.connection_bytes_max;
        let Some(slot) = sockets.live(connection) else { return };
        if slot.has(STASHED)
            && let Some(held_bytes) = self.held.get_mut(&connection.index)
        {
            let rest = held_bytes.bytes.get(held_bytes.reported_bytes..).unwrap_or_default();
            let (now, later) = rest.split_at(rest.len().min(bytes_max));
            self.together.extend_from_slice(now);
            held_bytes.reported_bytes += now.len();
            if later.is_empty() {
                slot.set(STASHED, false);
                self.held.remove(&connection.index);
            } else {
                return;
            }
        }
        while let Some(bytes) = self.buffers.first_bytes(slot.received)
            && self.together.len() + bytes <= bytes_max
            && let Some(buffer) = self.buffers.pop(&mut slot.received)
        {
            self.together.extend_from_slice(self.buffers.bytes(buffer));
            self.buffers.give_back(buffer);
        }
    }

    /// Copies the received bytes of a connection out of the shared buffers, because a pause can last for any time.
    pub(super) fn hold_bytes(&mut self, sockets: &mut Sockets, connection: ConnectionKey) {
        let Some(slot) = sockets.live(connection) else { return };
        if slot.received.is_empty() {
            return;
        }
        slot.set(STASHED, true);
        let held_bytes = self.held.entry(connection.index).or_default();
        self.buffers.move_to(&mut slot.received, &mut held_bytes.bytes);
    }

    /// Returns the buffer of the last completion to the ring.
    pub(super) fn give_back_lent(&mut self) {
        if let BorrowedBuffer::Buffer(buffer) = std::mem::replace(&mut self.borrowed, BorrowedBuffer::Nothing) {
            self.buffers.give_back(buffer);
        }
    }

    /// Arms the connection's receive before the next wait, if it should receive and does not.
    pub(super) fn want_receive(&mut self, sockets: &mut Sockets, connection: ConnectionKey) {
        let Some(slot) = sockets.live(connection) else { return };
        if wants_receive(slot) && !slot.has(WAITS_TO_ARM) {
            slot.set(WAITS_TO_ARM, true);
            self.to_arm.push_back(connection);
        }
    }

    /// Arms waiting receives, at most one for each free buffer.
    pub(super) fn arm_waiting(&mut self, ring: &mut Ring, sockets: &mut Sockets) {
        let mut buffers = self.buffers.free();
        while buffers > 0
            && let Some(connection) = self.to_arm.pop_front()
        {
            let Some(slot) = sockets.live(connection) else { continue };
            slot.set(WAITS_TO_ARM, false);
            if wants_receive(slot) {
                self.arm(ring, sockets, connection);
                buffers -= 1;
            }
        }
    }

    /// Arms a connection's receive.
    pub(super) fn arm(&mut self, ring: &mut Ring, sockets: &mut Sockets, connection: ConnectionKey) {
        let Some(target) = sockets.target(connection) else { return };
        let Some(slot) = sockets.live(connection) else { return };
        slot.set(ARMED | FRESH, true);
        let receive = target.request(|fd| opcode::RecvMulti::new(fd, GROUP).build());
        // SAFETY: the kernel receives into buffers that exist as long as the ring.
        unsafe { ring.push(&receive.user_data(Subject::Receive(connection).user_data())) };
        self.fresh.push(connection);
    }
}

/// Whether a receive should be armed. A connection with many unreported bytes waits until they are reported.
fn wants_receive(slot: &Slot) -> bool {
    let is_idle = !slot.has(ARMED) && !slot.has(ENDED) && !slot.has(PAUSED) && !slot.has(STASHED);
    is_idle && slot.received.len() < HELD_MAX / 2
}
