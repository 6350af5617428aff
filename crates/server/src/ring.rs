//! Bounded rings between shards, and wakeups of sleeping threads.
//!
//! A ring has one producer and one consumer, and preserves order. If it is full, a message waits in the sender's
//! *overflow*, which moves to the ring when the receiver has made space; no thread spins and no message is lost. To
//! bound its overflow, a sender must not read input that causes messages while its overflow is not empty.

mod wake_flag;

use std::{collections::VecDeque, sync::Arc};

pub use wake_flag::WakeFlag;

/// The atomics of [`wake_flag`]; the model in `tests/wake_flag_model.rs` replaces them by loom's.
mod atomics {
    pub(super) use std::sync::atomic::{AtomicBool, Ordering, fence};
}

/// Creates a ring for `capacity` messages and returns its ends.
pub fn ring<T>(capacity: usize) -> (RingSender<T>, RingReceiver<T>) {
    let (producer, consumer) = rtrb::RingBuffer::new(capacity);
    let starved = Arc::new(WakeFlag::default());
    (
        RingSender { producer, overflow: VecDeque::new(), starved: Arc::clone(&starved) },
        RingReceiver { consumer, starved },
    )
}

/// The sending end.
#[derive(Debug)]
pub struct RingSender<T> {
    producer: rtrb::Producer<T>,
    /// Non-empty only while the ring is full, or was full at the last check.
    overflow: VecDeque<T>,
    /// Armed while there is an overflow.
    starved: Arc<WakeFlag>,
}

/// The receiving end.
#[derive(Debug)]
pub struct RingReceiver<T> {
    consumer: rtrb::Consumer<T>,
    starved: Arc<WakeFlag>,
}

/// The destination of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentTo {
    /// The ring: the receiver can read the message.
    Ring,
    /// The sender's overflow.
    Overflow,
}

impl<T> RingSender<T> {
    /// Sends `message` after all earlier ones.
    pub fn send(&mut self, message: T) -> SentTo {
        if self.overflow.is_empty() {
            match self.producer.push(message) {
                Ok(()) => return SentTo::Ring,
                Err(rtrb::PushError::Full(message)) => self.overflow.push_back(message),
            }
        } else {
            self.overflow.push_back(message);
        }
        SentTo::Overflow
    }

    /// Moves messages from the overflow to the ring while there is space. Returns their number. If some are left,
    /// [`RingReceiver::made_room`] will report it to the receiver.
    pub fn flush(&mut self) -> usize {
        let mut moved = self.move_overflow();
        if !self.overflow.is_empty() {
            self.starved.arm();
            // The receiver may have made space before it could see the armed flag.
            moved += self.move_overflow();
        }
        if self.overflow.is_empty() {
            self.starved.disarm();
            self.overflow.shrink_to(KEPT_OVERFLOW);
        }
        moved
    }

    /// Number of messages in the overflow.
    pub fn overflow_len(&self) -> usize {
        self.overflow.len()
    }

    fn move_overflow(&mut self) -> usize {
        let mut moved = 0;
        while let Some(message) = self.overflow.pop_front() {
            if let Err(rtrb::PushError::Full(message)) = self.producer.push(message) {
                self.overflow.push_front(message);
                break;
            }
            moved += 1;
        }
        moved
    }
}

/// Capacity that an empty overflow keeps, in messages.
const KEPT_OVERFLOW: usize = 64;

impl<T> RingReceiver<T> {
    /// Removes the oldest message.
    pub fn receive(&mut self) -> Option<T> {
        self.consumer.pop().ok()
    }

    /// Whether the sender waits for space that was made, and must be woken. Call this after receiving messages; it
    /// returns `true` once per wait of the sender.
    pub fn made_room(&self) -> bool {
        self.starved.try_take()
    }

    /// Whether the ring is empty.
    pub fn is_empty(&self) -> bool {
        self.consumer.is_empty()
    }

    /// Number of messages in the ring, without the overflow.
    pub fn len(&self) -> usize {
        self.consumer.slots()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn order_is_kept_through_the_overflow() {
        let (mut sender, mut receiver) = ring(2);
        assert_eq!(sender.send(0), SentTo::Ring);
        assert_eq!(sender.send(1), SentTo::Ring);
        assert_eq!(sender.send(2), SentTo::Overflow, "one past the ring");
        assert_eq!(receiver.receive(), Some(0));
        // The ring has space, but 2 must be sent before 3.
        assert_eq!(sender.send(3), SentTo::Overflow);
        assert_eq!(sender.flush(), 1);
        assert_eq!(sender.overflow_len(), 1);
        assert_eq!((receiver.receive(), receiver.receive(), receiver.receive()), (Some(1), Some(2), None));
        assert_eq!(sender.flush(), 1);
        assert_eq!(receiver.receive(), Some(3));
    }

    #[test]
    fn the_receiver_reports_a_waiting_sender_once() {
        let (mut sender, mut receiver) = ring(1);
        sender.send('a');
        assert!(!receiver.made_room(), "no sender waits");
        sender.send('b');
        assert_eq!(sender.flush(), 0);
        receiver.receive();
        assert!(receiver.made_room());
        assert!(!receiver.made_room());
        assert_eq!(sender.flush(), 1);
        receiver.receive();
        assert!(!receiver.made_room(), "the overflow is empty again");
    }

    #[test]
    fn two_threads_and_a_small_ring_lose_nothing() {
        const MESSAGES: u64 = 200_000;
        let (mut sender, mut receiver) = ring(4);
        let sending = thread::current();
        let receiving = thread::spawn(move || {
            let mut expected = 0;
            while expected < MESSAGES {
                match receiver.receive() {
                    Some(message) => {
                        assert_eq!(message, expected);
                        expected += 1;
                        if receiver.made_room() {
                            sending.unpark();
                        }
                    }
                    None => thread::yield_now(),
                }
            }
        });
        for message in 0..MESSAGES {
            sender.send(message);
            sender.flush();
            // Without the flag this would wait forever, because no other code unparks the thread.
            while sender.overflow_len() > 8 {
                thread::park();
                sender.flush();
            }
        }
        while sender.overflow_len() > 0 {
            thread::park();
            sender.flush();
        }
        receiving.join().expect("everything came in order");
    }
}
