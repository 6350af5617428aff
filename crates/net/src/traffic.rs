//! What the kernel has counted about a socket.

use std::{
    mem::{offset_of, size_of},
    os::fd::{AsRawFd, BorrowedFd},
};

/// Bytes of a TCP connection since its beginning, with those of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes that the peer has sent.
    pub received_bytes: u64,
    /// Bytes that the peer has acknowledged. Others may still be on their way.
    pub acknowledged_bytes: u64,
}

impl Traffic {
    /// Asks the kernel, so that no shard has to count. `None` if it does not count.
    pub fn of(socket: BorrowedFd<'_>) -> Option<Self> {
        const NEEDED: usize = offset_of!(libc::tcp_info, tcpi_bytes_received) + size_of::<u64>();
        // SAFETY: all fields are integers, for which zero is valid.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut length = libc::socklen_t::try_from(size_of::<libc::tcp_info>()).ok()?;
        // SAFETY: the kernel writes at most `length` bytes, which is the size of `info`, and the new length. Both live until
        // it returns.
        let failed = unsafe {
            let info = (&raw mut info).cast();
            libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, info, &raw mut length)
        };
        let is_counted = failed == 0 && usize::try_from(length).is_ok_and(|length| length >= NEEDED);
        is_counted
            .then_some(Self { received_bytes: info.tcpi_bytes_received, acknowledged_bytes: info.tcpi_bytes_acked })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
        os::fd::AsFd,
    };

    use super::*;

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
}
