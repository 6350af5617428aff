//! The second way of sending: many sends in one `io_uring` submission.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, types::Fd};

use crate::control::SenderReport;

/// A ring that takes sends in batches.
pub struct Batches {
    ring: IoUring,
    /// Number of sends per submission.
    batch: usize,
}

impl Batches {
    /// Creates a ring for batches of `batch` sends, configured as in a server.
    pub fn new(batch: usize) -> io::Result<Self> {
        let entries = u32::try_from(batch.next_power_of_two()).unwrap_or(u32::MAX);
        let mut best = IoUring::builder();
        best.setup_single_issuer().setup_defer_taskrun();
        let ring = best.build(entries).or_else(|_| IoUring::new(entries))?;
        Ok(Batches { ring, batch })
    }

    /// Sends the frame once to every socket.
    pub fn send_round(&mut self, sockets: &[TcpStream], frame: &[u8], sent: &mut SenderReport) -> io::Result<()> {
        let length = u32::try_from(frame.len()).map_err(io::Error::other)?;
        for part in sockets.chunks(self.batch) {
            for socket in part {
                let entry = opcode::Send::new(Fd(socket.as_raw_fd()), frame.as_ptr(), length);
                let entry = entry.flags(libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT).build();
                // SAFETY: the frame outlives the wait below for all that is pushed here.
                unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)?;
            }
            self.ring.submit_and_wait(part.len())?;
            for completion in self.ring.completion() {
                if u32::try_from(completion.result()) == Ok(length) {
                    sent.sends += 1;
                } else {
                    sent.would_block += 1;
                }
            }
        }
        Ok(())
    }
}
