//! Receiving: stores the bytes of receive completions and reports them to the shard.

use ::io_uring::opcode;

use super::{
    ARMED, Cqe, ENDED, ENDING, FRESH, PAUSED, Slot, Subject, Uring, WAITS_TO_ARM,
    buffers::GROUP,
    live,
    slots::{QUEUED, STASHED, target},
};
use crate::{Completion, ConnectionKey};

/// Bytes reported per turn for all connections together.
pub(super) const READ_BYTES_PER_TURN: usize = 1 << 20;

/// Filled buffers that one connection may hold before its receive is cancelled. The limit leaves buffers to other
/// connections.
const HELD_MAX: u16 = 16;

/// The memory that the last completion borrows.
pub(super) enum BorrowedBuffer {
    Nothing,
    Buffer(u16),
}

/// The bytes that a paused connection had received, in order. The first `reported_bytes` bytes were reported.
#[derive(Debug, Default)]
pub(super) struct HeldBytes {
    bytes: Vec<u8>,
    reported_bytes: usize,
}

impl HeldBytes {
    pub(super) fn into_rest(mut self) -> Vec<u8> {
        self.bytes.split_off(self.reported_bytes)
    }
}

impl Uring {
    /// Processes the completion of a receive.
    pub(super) fn received(&mut self, connection: ConnectionKey, cqe: Cqe) {
        let Some(slot) = live(&mut self.slots, connection) else {
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
                libc::ENOBUFS => self.counters.buffers_ran_out += 1,
                // Cancelled by this reactor, or a temporary error.
                libc::ECANCELED | libc::EAGAIN | libc::EINTR => {}
                // Treated as the end of the stream: unread data of a broken connection is lost.
                _ => slot.set(ENDED, true),
            },
        }
        if slot.has(PAUSED) {
            self.hold_bytes(connection);
        } else {
            if slot.received.len() >= HELD_MAX {
                self.end_receive(connection);
            }
            self.queue_read(connection);
        }
        self.want_receive(connection);
    }

    /// Adds a connection with completions to the queue, unless it is queued.
    pub(super) fn queue_read(&mut self, connection: ConnectionKey) {
        let Some(slot) = live(&mut self.slots, connection) else { return };
        if slot.has_news() && !slot.has(QUEUED) && !slot.has(PAUSED) {
            slot.set(QUEUED, true);
            self.readable.push_back(connection);
        }
    }

    /// Reports all bytes of the next connection, up to the limit per turn, as one completion.
    pub(super) fn read(&mut self) -> Option<Completion<'_>> {
        while self.reads_left > 0 && self.read_bytes_left > 0 {
            self.reads_left -= 1;
            let connection = self.readable.pop_front()?;
            let Some(slot) = live(&mut self.slots, connection) else { continue };
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
                self.queue_read(connection);
                self.want_receive(connection);
                let bytes = self.buffers.bytes(buffer);
                self.read_bytes_left = self.read_bytes_left.saturating_sub(bytes.len());
                return Some(Completion::Received { connection, bytes });
            }
            self.gather(connection);
            self.queue_read(connection);
            self.want_receive(connection);
            self.read_bytes_left = self.read_bytes_left.saturating_sub(self.together.len());
            return Some(Completion::Received { connection, bytes: &mut self.together });
        }
        None
    }

    /// Joins the received bytes of a connection, up to the limit per turn.
    fn gather(&mut self, connection: ConnectionKey) {
        self.together.clear();
        let bytes_max = self.read_bytes_max;
        let Some(slot) = live(&mut self.slots, connection) else { return };
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
    pub(super) fn hold_bytes(&mut self, connection: ConnectionKey) {
        let Some(slot) = live(&mut self.slots, connection) else { return };
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
    pub(super) fn want_receive(&mut self, connection: ConnectionKey) {
        let Some(slot) = live(&mut self.slots, connection) else { return };
        if wants_receive(slot) && !slot.has(WAITS_TO_ARM) {
            slot.set(WAITS_TO_ARM, true);
            self.to_arm.push_back(connection);
        }
    }

    /// Arms waiting receives, at most one for each free buffer.
    pub(super) fn arm_waiting(&mut self) {
        let mut buffers = self.buffers.free();
        while buffers > 0
            && let Some(connection) = self.to_arm.pop_front()
        {
            let Some(slot) = live(&mut self.slots, connection) else { continue };
            slot.set(WAITS_TO_ARM, false);
            if wants_receive(slot) {
                self.arm(connection);
                buffers -= 1;
            }
        }
    }

    /// Arms a connection's receive.
    pub(super) fn arm(&mut self, connection: ConnectionKey) {
        let Some(target) = target(&self.slots, connection) else { return };
        let Some(slot) = live(&mut self.slots, connection) else { return };
        slot.set(ARMED | FRESH, true);
        let receive = target.request(|fd| opcode::RecvMulti::new(fd, GROUP).build());
        // SAFETY: the kernel receives into buffers that exist as long as the ring.
        unsafe { self.ring.push(&receive.user_data(Subject::Receive(connection).user_data())) };
        self.fresh.push(connection);
    }

    /// Cancels a connection's receive. Its last completion confirms the end.
    pub(super) fn end_receive(&mut self, connection: ConnectionKey) {
        let Some(slot) = live(&mut self.slots, connection) else { return };
        if slot.has(ARMED) && !slot.has(ENDING) {
            slot.set(ENDING, true);
            self.ring.cancel(Subject::Receive(connection).user_data());
        }
    }
}

/// Whether a receive should be armed. A connection with many unreported bytes waits until they are reported.
fn wants_receive(slot: &Slot) -> bool {
    let is_idle = !slot.has(ARMED) && !slot.has(ENDED) && !slot.has(PAUSED) && !slot.has(STASHED);
    is_idle && slot.received.len() < HELD_MAX / 2
}
