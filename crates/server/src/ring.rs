//! Bounded rings between shards, and wakeups of sleeping threads.
//!
//! A ring has one producer and one consumer, and preserves order. It is bounded in messages and in their bytes. If it is
//! full, a message waits in the sender's *overflow*, which moves to the ring when the receiver has made space; no thread spins and no message is lost. To
//! bound its overflow, a sender must not read input that causes messages while its overflow is not empty.

mod wake_flag;

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use dunlin_queues::Queue;

pub use wake_flag::WakeFlag;

/// The atomics of [`wake_flag`]; the model in `tests/wake_flag_model.rs` replaces them by loom's.
mod atomics {
    pub(super) use std::sync::atomic::{AtomicBool, Ordering, fence};
}

/// A message of a ring.
pub trait RingMessage {
    /// Its bytes of variable size, which do not change while it is in the ring.
    fn bytes(&self) -> usize;
}

/// Creates a ring with the bounds of its declaration and returns its ends.
pub fn ring<T: RingMessage>(queue: &Queue) -> (RingSender<T>, RingReceiver<T>) {
    let (producer, consumer) = rtrb::RingBuffer::new(queue.messages.max.max(1));
    let state = Arc::<RingState>::default();
    let sent = SentBytes { sum: 0, taken: 0, max: queue.bytes_max() };
    let of_receiver = Arc::clone(&state);
    (
        RingSender { producer, overflow: VecDeque::new(), sent, state },
        RingReceiver { consumer, taken_bytes: 0, state: of_receiver },
    )
}

/// The state that both ends share besides the messages.
#[derive(Debug, Default)]
struct RingState {
    /// Armed while there is an overflow.
    starved: WakeFlag,
    /// The sum of the bytes of all messages that the receiver has taken, as of its last [`RingReceiver::made_room`].
    taken_bytes: AtomicUsize,
}

/// The sender's account of bytes. The ends exchange sums, which wrap: the receiver writes its sum once per turn, and the
/// sender reads it only when the bytes seem not to fit. So a message costs neither of them a shared write.
#[derive(Debug)]
struct SentBytes {
    /// The sum of the bytes of all messages that were put into the ring.
    sum: usize,
    /// The receiver's sum, when it was last read.
    taken: usize,
    max: usize,
}

impl SentBytes {
    /// Whether a message fits. One of whatever size fits into an empty ring, because it would never fit otherwise.
    fn fits(&mut self, bytes: usize, state: &RingState) -> bool {
        self.fits_as_known(bytes) || {
            self.taken = state.taken_bytes.load(Ordering::Acquire);
            self.fits_as_known(bytes)
        }
    }

    fn fits_as_known(&self, bytes: usize) -> bool {
        let waiting = self.sum.wrapping_sub(self.taken);
        waiting == 0 || waiting.saturating_add(bytes) <= self.max
    }
}

/// The sending end.
#[derive(Debug)]
pub struct RingSender<T> {
    producer: rtrb::Producer<T>,
    /// Non-empty only while the ring is full, or was full at the last check.
    overflow: VecDeque<T>,
    sent: SentBytes,
    state: Arc<RingState>,
}

/// The receiving end.
#[derive(Debug)]
pub struct RingReceiver<T> {
    consumer: rtrb::Consumer<T>,
    /// The sum of the bytes of all messages that were taken.
    taken_bytes: usize,
    state: Arc<RingState>,
}

/// The destination of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentTo {
    /// The ring: the receiver can read the message.
    Ring,
    /// The sender's overflow.
    Overflow,
}

impl<T: RingMessage> RingSender<T> {
    /// Sends `message` after all earlier ones.
    pub fn send(&mut self, message: T) -> SentTo {
        let refused = if self.overflow.is_empty() { self.push(message) } else { Err(message) };
        match refused {
            Ok(()) => SentTo::Ring,
            Err(message) => {
                self.overflow.push_back(message);
                SentTo::Overflow
            }
        }
    }

    /// Puts a message into the ring if it fits.
    fn push(&mut self, message: T) -> Result<(), T> {
        let bytes = message.bytes();
        if !self.sent.fits(bytes, &self.state) {
            return Err(message);
        }
        self.producer.push(message).map_err(|rtrb::PushError::Full(message)| message)?;
        self.sent.sum = self.sent.sum.wrapping_add(bytes);
        Ok(())
    }

    /// Moves messages from the overflow to the ring while there is space. Returns their number. If some are left,
    /// [`RingReceiver::made_room`] will report it to the receiver.
    pub fn flush(&mut self) -> usize {
        let mut moved = self.move_overflow();
        if !self.overflow.is_empty() {
            self.state.starved.arm();
            // The receiver may have made space before it could see the armed flag.
            moved += self.move_overflow();
        }
        if self.overflow.is_empty() {
            self.state.starved.disarm();
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
            if let Err(message) = self.push(message) {
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

impl<T: RingMessage> RingReceiver<T> {
    /// Removes the oldest message. Its space is free after [`RingReceiver::made_room`].
    pub fn receive(&mut self) -> Option<T> {
        let message = self.consumer.pop().ok()?;
        self.taken_bytes = self.taken_bytes.wrapping_add(message.bytes());
        Some(message)
    }

    /// Whether the sender waits for space that was made, and must be woken. Call this after receiving messages; it
    /// returns `true` once per wait of the sender.
    pub fn made_room(&self) -> bool {
        // Before the flag, as the ring's own position: a sender that arms it later sees the space.
        if self.state.taken_bytes.load(Ordering::Relaxed) != self.taken_bytes {
            self.state.taken_bytes.store(self.taken_bytes, Ordering::Release);
        }
        self.state.starved.try_take()
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

    use dunlin_queues::{Bound, Bytes};

    use super::*;

    const BYTES_MAX: usize = 1_000;

    impl RingMessage for u64 {
        fn bytes(&self) -> usize {
            1
        }
    }

    impl RingMessage for Vec<u8> {
        fn bytes(&self) -> usize {
            self.len()
        }
    }

    fn ring_of<T: RingMessage>(messages: usize) -> (RingSender<T>, RingReceiver<T>) {
        let bound = |max| Bound { max, key: None };
        let (messages, bytes) = (bound(messages), Bytes::Counted(bound(BYTES_MAX)));
        ring(&Queue { holds: "letters", messages, bytes, when_full: "wait" })
    }

    #[test]
    fn bytes_are_bounded_until_the_receiver_has_made_room() {
        let (mut sender, mut receiver) = ring_of(100);
        let letter = |bytes| vec![0_u8; bytes];
        assert_eq!((sender.send(letter(600)), sender.send(letter(400))), (SentTo::Ring, SentTo::Ring), "at the limit");
        assert_eq!(sender.send(letter(1)), SentTo::Overflow, "past it");
        assert_eq!((sender.flush(), sender.overflow_len()), (0, 1));
        assert!(receiver.receive().is_some() && receiver.made_room(), "the sender waits");
        assert_eq!((sender.flush(), sender.overflow_len()), (1, 0));
        assert_eq!(sender.send(letter(600)), SentTo::Overflow, "401 bytes are in the ring");
        assert!(receiver.receive().is_some() && receiver.receive().is_some() && receiver.receive().is_none());
        receiver.made_room();
        assert_eq!(sender.flush(), 1);
    }

    #[test]
    fn one_message_of_any_size_fits_into_an_empty_ring() {
        let (mut sender, mut receiver) = ring_of(100);
        assert_eq!(sender.send(vec![0_u8; BYTES_MAX + 1]), SentTo::Ring);
        assert_eq!(sender.send(vec![0_u8; 1]), SentTo::Overflow);
        assert!(receiver.receive().is_some());
        receiver.made_room();
        assert_eq!(sender.flush(), 1);
    }

    #[test]
    fn order_is_kept_through_the_overflow() {
        let (mut sender, mut receiver) = ring_of::<u64>(2);
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
        let (mut sender, mut receiver) = ring_of::<u64>(1);
        sender.send(1);
        assert!(!receiver.made_room(), "no sender waits");
        sender.send(2);
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
        let (mut sender, mut receiver) = ring_of::<u64>(4);
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
                    None => std::hint::spin_loop(),
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
