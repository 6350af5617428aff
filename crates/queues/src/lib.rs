//! The queues between threads, and to NATS. Each is declared once, in [`declared`], with its bounds in messages and in
//! bytes, and is created from its declaration. ARCHITECTURE.md's table of queues is generated from the declarations.
//!
//! A queue holds its bounds in one of three ways:
//!
//! - [`Queue::tokio_channel`] and [`Queue::std_channel`] bound the number of messages. Either no message is larger than
//!   the declaration says, or the senders count the bytes.
//! - [`Queue::counted_channel`] counts messages and bytes.
//! - [`Queue::admitted_channel`] and [`Queue::admitted_std_channel`] bound nothing: their senders check the bounds of
//!   the declaration before they send, because a place is held for longer than the message waits, or because a shard
//!   counts bytes for other reasons.

#![forbid(unsafe_code)]

mod counted;
pub mod declared;

use tokio::sync::mpsc;

pub use counted::{CountedReceiver, CountedSender, Refused};

/// The sending end of [`Queue::admitted_channel`].
pub type AdmittedSender<T> = mpsc::UnboundedSender<T>;

/// The receiving end of [`Queue::admitted_channel`].
pub type AdmittedReceiver<T> = mpsc::UnboundedReceiver<T>;

/// The declaration of a queue between two threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// The messages that wait in it.
    pub holds: &'static str,
    /// Maximum number of messages.
    pub messages: Bound,
    /// Maximum number of their bytes.
    pub bytes: Bytes,
    /// What happens to a message that does not fit.
    pub when_full: &'static str,
}

/// A maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The default, or the value if there is no key.
    pub max: usize,
    /// The key of the configuration that changes it.
    pub key: Option<&'static str>,
}

/// The bound on the bytes of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bytes {
    /// They are counted.
    Counted(Bound),
    /// They are not counted, because no message has more than this. The queue has at most this times the number of
    /// messages.
    OfMessage(usize),
}

impl Queue {
    /// Maximum number of bytes.
    pub const fn bytes_max(&self) -> usize {
        match self.bytes {
            Bytes::Counted(bound) => bound.max,
            Bytes::OfMessage(bytes) => bytes.saturating_mul(self.messages.max),
        }
    }

    /// The queue with the configured number of messages.
    #[must_use]
    pub fn with_messages(mut self, max: usize) -> Self {
        debug_assert!(self.messages.key.is_some(), "{}: the number is fixed", self.holds);
        self.messages.max = max;
        self
    }

    /// The queue with the configured number of bytes.
    #[must_use]
    pub fn with_bytes(mut self, max: usize) -> Self {
        if let Bytes::Counted(bound) = &mut self.bytes {
            debug_assert!(bound.key.is_some(), "{}: the number of bytes is fixed", self.holds);
            bound.max = max;
        }
        self
    }

    /// A channel whose receiver is a task.
    pub fn tokio_channel<T>(&self) -> (mpsc::Sender<T>, mpsc::Receiver<T>) {
        mpsc::channel(self.messages.max.max(1))
    }

    /// A channel whose receiver is a thread.
    pub fn std_channel<T>(&self) -> (std::sync::mpsc::SyncSender<T>, std::sync::mpsc::Receiver<T>) {
        std::sync::mpsc::sync_channel(self.messages.max.max(1))
    }

    /// A channel that counts its bytes.
    pub fn counted_channel<T>(&self) -> (CountedSender<T>, CountedReceiver<T>) {
        counted::channel(self)
    }

    /// A channel whose senders check the bounds, and whose receiver is a task or a shard.
    pub fn admitted_channel<T>(&self) -> (AdmittedSender<T>, AdmittedReceiver<T>) {
        mpsc::unbounded_channel()
    }

    /// A channel whose senders check the bounds, and whose receiver is a thread.
    pub fn admitted_std_channel<T>(&self) -> (std::sync::mpsc::Sender<T>, std::sync::mpsc::Receiver<T>) {
        std::sync::mpsc::channel()
    }
}

/// A channel for the one answer to a request, which the requesting thread waits for. It is no queue: the request holds
/// the place of the answer.
pub fn answer_channel<T>() -> (std::sync::mpsc::SyncSender<T>, std::sync::mpsc::Receiver<T>) {
    std::sync::mpsc::sync_channel(1)
}

/// A channel that never carries a message: its receiver learns that all senders are dropped.
pub fn end_channel() -> (mpsc::Sender<()>, mpsc::Receiver<()>) {
    mpsc::channel(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIXED: Queue = Queue {
        holds: "letters",
        messages: Bound { max: 2, key: None },
        bytes: Bytes::OfMessage(10),
        when_full: "returned",
    };

    #[test]
    fn channels_have_the_declared_number_of_places() {
        let (sender, receiver) = FIXED.std_channel();
        assert!(sender.try_send(1).is_ok() && sender.try_send(2).is_ok(), "at the limit");
        assert!(sender.try_send(3).is_err(), "past it");
        drop(receiver);
        let (sender, _receiver) = FIXED.tokio_channel();
        assert!(sender.try_send(1).is_ok() && sender.try_send(2).is_ok(), "at the limit");
        assert!(sender.try_send(3).is_err(), "past it");
    }

    #[test]
    fn bytes_that_are_not_counted_are_the_product() {
        assert_eq!(FIXED.bytes_max(), 20);
        let keyed = Queue { messages: Bound { max: 2, key: Some("letters_limit") }, ..FIXED };
        assert_eq!(keyed.with_messages(5).bytes_max(), 50);
    }
}
