//! A socket of a ring: an ordinary file descriptor, or a place in the ring's table of registered files.

use std::{
    net::TcpStream,
    os::fd::{FromRawFd as _, IntoRawFd as _, RawFd},
};

use ::io_uring::{
    squeue::{Entry, Flags},
    types::Fd,
};

/// The socket of a connection, which closes a descriptor when it is dropped. An enum would take eight bytes, and each idle
/// session pays for it.
#[derive(Debug)]
pub(super) struct Socket(RawFd);

const NONE: RawFd = -1;
const REGISTERED: RawFd = -2;

/// What requests name a socket by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// An ordinary file descriptor.
    Descriptor(RawFd),
    /// A place in the ring's table.
    Registered(u32),
}

impl Default for Socket {
    fn default() -> Self {
        Self(NONE)
    }
}

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Self {
        Self(stream.into_raw_fd())
    }
}

impl Socket {
    /// The socket in the table at the connection's index.
    pub(super) const fn registered() -> Self {
        Self(REGISTERED)
    }

    #[inline]
    pub(super) const fn is_open(&self) -> bool {
        self.0 != NONE
    }

    /// The target of requests for the socket of the connection with this index.
    #[inline]
    pub(super) const fn target(&self, index: u32) -> Option<Target> {
        match self.0 {
            NONE => None,
            REGISTERED => Some(Target::Registered(index)),
            fd => Some(Target::Descriptor(fd)),
        }
    }

    /// Takes the descriptor, if it is one.
    pub(super) fn take_stream(&mut self) -> Option<TcpStream> {
        let fd @ 0.. = self.0 else { return None };
        self.0 = NONE;
        // SAFETY: the descriptor was a stream's, which this value owned until now.
        Some(unsafe { TcpStream::from_raw_fd(fd) })
    }

    /// Leaves nothing behind. The caller closes the target.
    pub(super) fn take(&mut self, index: u32) -> Option<Target> {
        let target = self.target(index);
        self.0 = NONE;
        target
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        drop(self.take_stream());
    }
}

impl Target {
    /// A request about the socket.
    #[inline]
    pub fn request(self, build: impl FnOnce(Fd) -> Entry) -> Entry {
        match self {
            Self::Descriptor(fd) => build(Fd(fd)),
            Self::Registered(place) => build(Fd(place.cast_signed())).flags(Flags::FIXED_FILE),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read as _, net::TcpListener};

    use super::*;

    #[test]
    fn a_dropped_socket_closes_its_descriptor_once() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let mut client = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (stream, _) = listener.accept().expect("a client waits");
        let mut socket = Socket::from(stream);
        let Some(Target::Descriptor(fd)) = socket.target(7) else { panic!("{socket:?}") };
        assert_eq!(socket.take(7), Some(Target::Descriptor(fd)));
        assert!(!socket.is_open() && socket.target(7).is_none());
        drop(socket);
        // SAFETY: what was taken is the caller's, and still open.
        drop(Socket::from(unsafe { TcpStream::from_raw_fd(fd) }));
        assert_eq!(client.read(&mut [0]).expect("the end"), 0);
        assert_eq!(Socket::registered().target(7), Some(Target::Registered(7)));
    }
}
