//! A channel that bounds the messages in it, and their bytes.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::mpsc;

use crate::Queue;

/// What waits in a queue, and how much may.
#[derive(Debug)]
struct Account {
    messages: AtomicUsize,
    bytes: AtomicUsize,
    messages_max: usize,
    bytes_max: usize,
}

impl Account {
    fn enter(&self, bytes: usize) -> (usize, usize) {
        (self.messages.fetch_add(1, Ordering::Relaxed), self.bytes.fetch_add(bytes, Ordering::Relaxed))
    }

    fn leave(&self, bytes: usize) {
        self.messages.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Counts a message if it fits. A message of whatever size fits into an empty queue, because it would never fit
    /// otherwise.
    fn try_enter(&self, bytes: usize) -> bool {
        let (messages_before, bytes_before) = self.enter(bytes);
        let fits = messages_before < self.messages_max
            && (messages_before == 0 || bytes_before.saturating_add(bytes) <= self.bytes_max);
        if !fits {
            self.leave(bytes);
        }
        fits
    }
}

/// The sending end.
#[derive(Debug)]
pub struct CountedSender<T> {
    sender: mpsc::UnboundedSender<(T, usize)>,
    account: Arc<Account>,
}

impl<T> Clone for CountedSender<T> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), account: Arc::clone(&self.account) }
    }
}

/// The receiving end.
#[derive(Debug)]
pub struct CountedReceiver<T> {
    receiver: mpsc::UnboundedReceiver<(T, usize)>,
    account: Arc<Account>,
}

/// Why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused<T> {
    /// It does not fit.
    Full(T),
    /// The receiver is gone.
    Closed(T),
}

pub(crate) fn channel<T>(queue: &Queue) -> (CountedSender<T>, CountedReceiver<T>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let account = Arc::new(Account {
        messages: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
        messages_max: queue.messages.max.max(1),
        bytes_max: queue.bytes_max(),
    });
    (CountedSender { sender, account: Arc::clone(&account) }, CountedReceiver { receiver, account })
}

impl<T> CountedSender<T> {
    /// Sends a message of this many bytes without waiting.
    ///
    /// # Errors
    /// It does not fit, or the receiver is gone.
    pub fn try_send(&self, message: T, bytes: usize) -> Result<(), Refused<T>> {
        if !self.account.try_enter(bytes) {
            return Err(Refused::Full(message));
        }
        self.sender.send((message, bytes)).map_err(|mpsc::error::SendError((message, _))| {
            self.account.leave(bytes);
            Refused::Closed(message)
        })
    }

    /// Sends a message for which the sender holds a place elsewhere, so that it always fits: for example an answer, if
    /// the requests are bounded. Returns whether there is a receiver.
    pub fn send_admitted(&self, message: T, bytes: usize) -> bool {
        self.account.enter(bytes);
        let is_sent = self.sender.send((message, bytes)).is_ok();
        if !is_sent {
            self.account.leave(bytes);
        }
        is_sent
    }

    /// Number of messages that wait.
    pub fn messages(&self) -> usize {
        self.account.messages.load(Ordering::Relaxed)
    }

    /// Bytes of the messages that wait.
    pub fn bytes(&self) -> usize {
        self.account.bytes.load(Ordering::Relaxed)
    }
}

impl<T> CountedReceiver<T> {
    /// The next message; `None` when all senders are dropped. Cancel-safe.
    pub async fn recv(&mut self) -> Option<T> {
        let (message, bytes) = self.receiver.recv().await?;
        self.account.leave(bytes);
        Some(message)
    }

    /// The next message, for a thread without a runtime; `None` when all senders are dropped.
    pub fn blocking_recv(&mut self) -> Option<T> {
        let (message, bytes) = self.receiver.blocking_recv()?;
        self.account.leave(bytes);
        Some(message)
    }

    /// Whether no message has arrived.
    pub fn is_empty(&self) -> bool {
        self.receiver.is_empty()
    }

    /// The next message that has already arrived.
    pub fn try_recv(&mut self) -> Option<T> {
        let (message, bytes) = self.receiver.try_recv().ok()?;
        self.account.leave(bytes);
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bound, Bytes};

    fn letters(messages: usize, bytes: usize) -> (CountedSender<char>, CountedReceiver<char>) {
        let bound = |max| Bound { max, key: None };
        let queue = Queue {
            holds: "letters",
            messages: bound(messages),
            bytes: Bytes::Counted(bound(bytes)),
            when_full: "returned",
        };
        queue.counted_channel()
    }

    #[test]
    fn the_number_of_messages_is_bounded() {
        let (sender, mut receiver) = letters(2, 100);
        assert_eq!((sender.try_send('a', 1), sender.try_send('b', 1)), (Ok(()), Ok(())), "at the limit");
        assert_eq!(sender.try_send('c', 1), Err(Refused::Full('c')), "past it");
        assert_eq!((receiver.try_recv(), sender.messages(), sender.bytes()), (Some('a'), 1, 1));
        assert_eq!(sender.try_send('d', 1), Ok(()), "there is space again");
    }

    #[test]
    fn the_bytes_of_messages_are_bounded() {
        let (sender, mut receiver) = letters(10, 100);
        assert_eq!((sender.try_send('a', 60), sender.try_send('b', 40)), (Ok(()), Ok(())), "at the limit");
        assert_eq!(sender.try_send('c', 1), Err(Refused::Full('c')), "past it");
        assert_eq!((receiver.try_recv(), sender.bytes()), (Some('a'), 40));
        assert_eq!(sender.try_send('d', 61), Err(Refused::Full('d')), "past it");
        assert_eq!(sender.try_send('e', 60), Ok(()), "there is space again");
    }

    #[test]
    fn one_message_of_any_size_fits_into_an_empty_queue() {
        let (sender, mut receiver) = letters(10, 100);
        assert_eq!(sender.try_send('a', 101), Ok(()));
        assert_eq!(sender.try_send('b', 1), Err(Refused::Full('b')));
        assert_eq!((receiver.try_recv(), receiver.try_recv()), (Some('a'), None));
    }

    #[test]
    fn admitted_messages_are_counted_and_never_refused() {
        let (sender, receiver) = letters(1, 10);
        assert!(sender.send_admitted('a', 10) && sender.send_admitted('b', 10));
        assert_eq!((sender.messages(), sender.bytes()), (2, 20));
        drop(receiver);
        assert!(!sender.send_admitted('c', 10));
        assert_eq!(sender.try_send('d', 0), Err(Refused::Full('d')), "what waits is still counted");
    }
}
