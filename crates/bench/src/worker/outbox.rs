//! What a connection has to send, and the kernel has not accepted yet.
//!
//! Publications, commands and pongs all go through it in order: a frame that begins inside another one breaks the connection.

use std::io::{self, ErrorKind};

use super::dialogue::Ended;

/// Default maximum of unsent bytes. Above it, the target is considered stuck.
pub const OUT_BYTES_MAX: usize = 16 << 20;

#[derive(Debug)]
pub struct Outbox {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl Default for Outbox {
    fn default() -> Self {
        Outbox::with_max(OUT_BYTES_MAX)
    }
}

impl Outbox {
    pub fn with_max(bytes_max: usize) -> Self {
        Outbox { bytes: Vec::new(), bytes_max }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Adds bytes behind all earlier ones.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes everything out, for a sender that has its own memory. An idle session then has none here.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Sends as much as the kernel accepts. `write` returns how much that is. Fails if too much is left.
    pub fn flush(&mut self, write: impl FnOnce(&[u8]) -> io::Result<usize>) -> Result<(), Ended> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        let taken = match write(&self.bytes) {
            Ok(taken) => taken,
            Err(err) if err.kind() == ErrorKind::WouldBlock => 0,
            Err(err) => return Err(format!("write: {}", err.kind())),
        };
        self.bytes.drain(..taken);
        if self.bytes.len() > self.bytes_max {
            return Err(format!("the target has not read {} bytes", self.bytes.len()));
        }
        Ok(())
    }

    /// Sends a frame if the kernel accepts its beginning, and drops it otherwise. Returns whether it is on its way.
    pub fn offer(&mut self, frame: &[u8], mut write: impl FnMut(&[u8]) -> io::Result<usize>) -> Result<bool, Ended> {
        self.flush(&mut write)?;
        if !self.is_empty() {
            return Ok(false);
        }
        self.push(frame);
        self.flush(&mut write)?;
        if self.bytes.len() == frame.len() {
            self.bytes.clear();
            return Ok(false);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel that accepts so many bytes.
    fn accepts(bytes: usize) -> impl FnMut(&[u8]) -> io::Result<usize> {
        move |offered| if bytes == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(bytes.min(offered.len())) }
    }

    #[test]
    fn bytes_leave_in_the_order_in_which_they_came() {
        let mut outbox = Outbox::default();
        let mut sent = Vec::new();
        for part in [&b"abc"[..], b"de", b"f"] {
            outbox.push(part);
            let taken = outbox.flush(|bytes| {
                sent.extend_from_slice(&bytes[..1]);
                Ok(1)
            });
            taken.unwrap();
        }
        outbox.flush(accepts(0)).unwrap();
        assert!(!outbox.is_empty());
        let rest = outbox.flush(|bytes| {
            sent.extend_from_slice(bytes);
            Ok(bytes.len())
        });
        rest.unwrap();
        assert!(outbox.is_empty());
        assert_eq!(sent, b"abcdef");
    }

    #[test]
    fn a_target_that_does_not_read_is_stuck_one_byte_past_the_limit() {
        let mut outbox = Outbox::with_max(4);
        outbox.push(b"abcd");
        outbox.flush(accepts(0)).unwrap();
        outbox.push(b"e");
        assert_eq!(outbox.flush(accepts(0)).unwrap_err(), "the target has not read 5 bytes");
        outbox.flush(accepts(1)).unwrap();
    }

    #[test]
    fn an_offered_frame_is_sent_as_a_whole_or_not_at_all() {
        let mut outbox = Outbox::default();
        assert_eq!(outbox.offer(b"abc", accepts(0)), Ok(false));
        assert!(outbox.is_empty(), "nothing of it is left");
        assert_eq!(outbox.offer(b"abc", accepts(1)), Ok(true));
        assert_eq!(outbox.offer(b"def", accepts(0)), Ok(false));
        assert!(!outbox.is_empty(), "the rest of the first one is still to be sent");
        assert_eq!(outbox.offer(b"def", accepts(9)), Ok(true));
        assert!(outbox.is_empty());
    }
}
