//! What the kernel knows about a connection: how much it holds, and how the peer and the network take it.

use std::{
    mem::{MaybeUninit, offset_of, size_of},
    os::fd::{AsRawFd as _, BorrowedFd},
};

/// What the kernel knows about a TCP connection. Fields that an older kernel does not report are 0 or `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketFacts {
    /// Bytes that the kernel holds: not acknowledged by the peer, or not sent yet.
    pub kernel_bytes: u64,
    /// Of these, bytes that were not sent yet.
    pub not_sent_bytes: u64,
    /// Segments in flight.
    pub unacked_segments: u32,
    /// The smoothed round-trip time.
    pub rtt_us: u32,
    /// Its variation.
    pub rtt_var_us: u32,
    /// What was sent since the connection began.
    pub segments: SegmentCounts,
    /// Retransmissions of the same segment in a row without an acknowledgement.
    pub retransmissions_in_row: u8,
    /// Probes of a closed receive window in a row that the peer has not acknowledged.
    pub window_probes: u8,
    /// The bytes that the peer is ready to receive; `None` before Linux 5.4.
    pub receive_window_bytes: Option<u32>,
    /// Maximum bytes of data in a segment.
    pub segment_bytes_max: u32,
    /// The time since data was last sent.
    pub last_send_ms: u32,
    /// The time since the peer last acknowledged something. An acknowledgement of a window probe counts.
    pub last_ack_ms: u32,
    /// The measured rate at which the peer acknowledges bytes, per second; 0 if unknown.
    pub delivery_bytes_per_second: u64,
}

/// Segments of a TCP connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentCounts {
    /// Segments with data that were sent, including retransmissions.
    pub sent: u32,
    /// Retransmitted segments.
    pub retransmitted: u32,
}

/// Bytes of a TCP connection since its beginning, with those of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes that the peer has sent.
    pub received_bytes: u64,
    /// Bytes that the peer has acknowledged. Others may still be on their way.
    pub acknowledged_bytes: u64,
}

impl SegmentCounts {
    /// What was counted after `earlier`. The kernel's counters wrap.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            sent: self.sent.wrapping_sub(earlier.sent),
            retransmitted: self.retransmitted.wrapping_sub(earlier.retransmitted),
        }
    }
}

impl Traffic {
    /// Asks the kernel, so that no shard has to count. `None` if it does not count.
    pub fn of(socket: BorrowedFd<'_>) -> Option<Self> {
        let (info, length) = tcp_info(socket)?;
        let is_counted = length >= offset_of!(libc::tcp_info, tcpi_bytes_received) + size_of::<u64>();
        is_counted
            .then_some(Self { received_bytes: info.tcpi_bytes_received, acknowledged_bytes: info.tcpi_bytes_acked })
    }
}

impl SocketFacts {
    /// Reads them. `None` if this is not a TCP socket.
    pub fn read(socket: BorrowedFd<'_>) -> Option<Self> {
        let (info, length) = tcp_info(socket)?;
        let has_window = length >= offset_of!(libc::tcp_info, tcpi_snd_wnd) + size_of::<u32>();
        Some(Self {
            kernel_bytes: queued_bytes(socket),
            not_sent_bytes: info.tcpi_notsent_bytes.into(),
            unacked_segments: info.tcpi_unacked,
            rtt_us: info.tcpi_rtt,
            rtt_var_us: info.tcpi_rttvar,
            segments: SegmentCounts { sent: info.tcpi_data_segs_out, retransmitted: info.tcpi_total_retrans },
            retransmissions_in_row: info.tcpi_retransmits,
            window_probes: info.tcpi_probes,
            receive_window_bytes: has_window.then_some(info.tcpi_snd_wnd),
            segment_bytes_max: info.tcpi_snd_mss,
            last_send_ms: info.tcpi_last_data_sent,
            last_ack_ms: info.tcpi_last_ack_recv,
            delivery_bytes_per_second: info.tcpi_delivery_rate,
        })
    }
}

/// `TCP_INFO`, and how many bytes of it the kernel has filled in. The rest is 0.
fn tcp_info(socket: BorrowedFd<'_>) -> Option<(libc::tcp_info, usize)> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the pointers are valid for the call, and the kernel writes at most `length` bytes.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            std::ptr::from_mut(&mut length),
        )
    };
    // SAFETY: all fields are integers, for which zeros are valid.
    (outcome == 0).then(|| (unsafe { info.assume_init() }, length as usize))
}

/// `SIOCOUTQ`, which has the number of `TIOCOUTQ`; 0 if the call fails.
fn queued_bytes(socket: BorrowedFd<'_>) -> u64 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request writes one integer to the pointer, which is valid for the call.
    let outcome = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, std::ptr::from_mut(&mut bytes)) };
    if outcome == 0 { u64::try_from(bytes).unwrap_or(0) } else { 0 }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Read as _, Write as _},
        net::{TcpListener, TcpStream},
        os::{fd::AsFd as _, unix::net::UnixStream},
    };

    use super::*;

    #[test]
    fn a_socket_that_nobody_reads_has_a_closed_window_and_bytes_in_the_kernel() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
        let _client = TcpStream::connect(listener.local_addr().expect("bound")).expect("somebody listens");
        let (mut server, _) = listener.accept().expect("a client waits");
        let fresh = SocketFacts::read(server.as_fd()).expect("TCP");
        assert_eq!((fresh.kernel_bytes, fresh.not_sent_bytes), (0, 0));
        assert!(fresh.receive_window_bytes.is_some_and(|bytes| bytes > 0), "{fresh:?}");
        server.set_nonblocking(true).expect("a socket");
        let mut written = 0;
        loop {
            match server.write(&[0; 16_384]) {
                Ok(bytes) => written += bytes as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        let full = SocketFacts::read(server.as_fd()).expect("TCP");
        assert!(full.kernel_bytes > 0 && full.kernel_bytes <= written, "{full:?} of {written}");
        assert!(full.not_sent_bytes > 0 && full.rtt_us > 0 && full.segments.sent > 0, "{full:?}");
    }

    #[test]
    fn a_socket_without_tcp_has_no_facts() {
        let (socket, _other) = UnixStream::pair().expect("two sockets");
        assert_eq!(SocketFacts::read(socket.as_fd()), None);
    }

    #[test]
    fn the_kernel_counts_both_directions() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let mut client = TcpStream::connect(listener.local_addr().expect("an address")).expect("it listens");
        let (mut server, _) = listener.accept().expect("a connection");
        client.write_all(&[1; 10]).expect("sent");
        server.read_exact(&mut [0; 10]).expect("received");
        server.write_all(&[2; 300]).expect("sent");
        client.read_exact(&mut [0; 300]).expect("received");
        // The answer acknowledges what it answers.
        client.write_all(&[3; 5]).expect("sent");
        server.read_exact(&mut [0; 5]).expect("received");
        let expected = Traffic { received_bytes: 15, acknowledged_bytes: 300 };
        assert_eq!(
            Traffic::of(server.as_fd()).map(|found| Traffic { acknowledged_bytes: 300, ..found }),
            Some(expected)
        );
        // The handshake counts as one byte in some kernels.
        assert!((300..=301).contains(&Traffic::of(server.as_fd()).expect("counted").acknowledged_bytes));
    }

    #[test]
    fn counts_of_segments_may_wrap() {
        let earlier = SegmentCounts { sent: u32::MAX, retransmitted: 3 };
        let later = SegmentCounts { sent: 9, retransmitted: 4 };
        assert_eq!(later.since(earlier), SegmentCounts { sent: 10, retransmitted: 1 });
    }
}
