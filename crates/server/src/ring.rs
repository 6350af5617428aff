//! Bounded rings from one shard to another, and how one thread calls another that sleeps.
//!
//! A ring is single-producer, single-consumer and keeps order. A message that finds it full waits in the sender's own
//! *overflow*, which is flushed into the ring as the receiver makes room; nothing spins and nothing is lost. What bounds
//! the overflow is the sender's duty to take in nothing that leads to messages while there is one.

mod bell;

use std::{collections::VecDeque, sync::Arc};

pub use bell::Bell;

/// What [`bell`] is made of; the model of it in `tests/bell_model.rs` puts loom's in the same place.
mod atomics {
    pub(super) use std::sync::atomic::{AtomicBool, Ordering, fence};
}

/// A ring for `capacity` messages, and its two ends.
pub fn ring<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let (producer, consumer) = rtrb::RingBuffer::new(capacity);
    let starved = Arc::new(Bell::default());
    (Sender { producer, overflow: VecDeque::new(), starved: Arc::clone(&starved) }, Receiver { consumer, starved })
}

/// The sending end.
#[derive(Debug)]
pub struct Sender<T> {
    producer: rtrb::Producer<T>,
    /// Non-empty only while the ring is full, or was at the last look.
    overflow: VecDeque<T>,
    /// Armed while there is an overflow.
    starved: Arc<Bell>,
}

/// The receiving end.
#[derive(Debug)]
pub struct Receiver<T> {
    consumer: rtrb::Consumer<T>,
    starved: Arc<Bell>,
}

/// Where a message went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Into the ring: the receiver can take it.
    Ring,
    /// Into the overflow.
    Overflow,
}

impl<T> Sender<T> {
    /// Sends `message` behind all that was sent before.
    pub fn send(&mut self, message: T) -> Sent {
        if self.overflow.is_empty() {
            match self.producer.push(message) {
                Ok(()) => return Sent::Ring,
                Err(rtrb::PushError::Full(message)) => self.overflow.push_back(message),
            }
        } else {
            self.overflow.push_back(message);
        }
        Sent::Overflow
    }

    /// Moves what waits in the overflow into the ring, as far as there is room, and returns how many messages went. If some
    /// are left, the receiver will find that out by [`Receiver::made_room`].
    pub fn flush(&mut self) -> usize {
        let mut moved = self.move_overflow();
        if !self.overflow.is_empty() {
            self.starved.arm();
            // The receiver may have made room before it could see the bell.
            moved += self.move_overflow();
        }
        if self.overflow.is_empty() {
            self.starved.disarm();
            self.overflow.shrink_to(KEPT_OVERFLOW);
        }
        moved
    }

    /// Messages that wait in the overflow.
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

/// Capacity, in messages, that an empty overflow keeps.
const KEPT_OVERFLOW: usize = 64;

impl<T> Receiver<T> {
    /// Takes the oldest message.
    pub fn receive(&mut self) -> Option<T> {
        self.consumer.pop().ok()
    }

    /// Whether the sender waits for the room that was made since it asked, and has to be woken. To be asked after
    /// messages were received; true once for each time that the sender began to wait.
    pub fn made_room(&self) -> bool {
        self.starved.answer()
    }

    /// Whether there is nothing to receive.
    pub fn is_empty(&self) -> bool {
        self.consumer.is_empty()
    }

    /// Messages in the ring, without the sender's overflow.
    pub fn len(&self) -> usize {
        self.consumer.slots()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn order_holds_through_the_overflow() {
        let (mut sender, mut receiver) = ring(2);
        assert_eq!(sender.send(0), Sent::Ring);
        assert_eq!(sender.send(1), Sent::Ring);
        assert_eq!(sender.send(2), Sent::Overflow, "one past the ring");
        assert_eq!(receiver.receive(), Some(0));
        // There is room, but 2 is still before 3.
        assert_eq!(sender.send(3), Sent::Overflow);
        assert_eq!(sender.flush(), 1);
        assert_eq!(sender.overflow_len(), 1);
        assert_eq!((receiver.receive(), receiver.receive(), receiver.receive()), (Some(1), Some(2), None));
        assert_eq!(sender.flush(), 1);
        assert_eq!(receiver.receive(), Some(3));
    }

    #[test]
    fn the_receiver_learns_once_that_the_sender_waits() {
        let (mut sender, mut receiver) = ring(1);
        sender.send('a');
        assert!(!receiver.made_room(), "nobody waits");
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
            // Without the bell this would wait for ever: nobody else unparks.
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
