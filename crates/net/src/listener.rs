//! Listening sockets: one per shard on the same port.

use std::{
    fs::File,
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::{AsRawFd as _, IntoRawFd as _, RawFd},
};

use socket2::{Domain, Protocol, Socket, Type};

/// Options of sockets. Accepted sockets inherit them from the listener, which saves a system call for each.
#[derive(Clone, Copy, Debug)]
pub struct SocketOptions {
    /// Maximum number of connections in the kernel's accept queue.
    pub backlog: u32,
    /// `TCP_NOTSENT_LOWAT` in bytes; 0 keeps the kernel's default.
    pub notsent_lowat_bytes: u32,
}

/// Binds `count` non-blocking listeners to the same address. The kernel distributes connections between them
/// (`SO_REUSEPORT`). If the port is 0, all listeners use the port that the kernel chose for the first.
///
/// # Errors
/// The error of the system call that failed; also if another process listens on this address. (The kernel alone would
/// allow that for a process of the same user that sets `SO_REUSEPORT`.)
pub fn bind(address: SocketAddr, count: u16, options: SocketOptions) -> io::Result<Vec<TcpListener>> {
    drop(bind_one(address, options, false)?);
    let mut listeners = Vec::with_capacity(usize::from(count));
    let mut address = address;
    for _ in 0..count {
        let listener = bind_one(address, options, true)?;
        address = listener.local_addr()?;
        listeners.push(listener);
    }
    for listener in &listeners {
        let backlog = i32::try_from(options.backlog).unwrap_or(i32::MAX);
        socket2::SockRef::from(listener).listen(backlog)?;
    }
    Ok(listeners)
}

fn bind_one(address: SocketAddr, options: SocketOptions, shared: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    socket.set_tcp_nodelay(true)?;
    if options.notsent_lowat_bytes > 0 {
        #[cfg(target_os = "linux")]
        socket.set_tcp_notsent_lowat(options.notsent_lowat_bytes)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Configures a socket that another listener accepted.
///
/// # Errors
/// The error of the system call.
pub fn set_up_adopted(stream: &TcpStream, notsent_lowat_bytes: u32) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    if notsent_lowat_bytes > 0 {
        #[cfg(target_os = "linux")]
        socket2::SockRef::from(stream).set_tcp_notsent_lowat(notsent_lowat_bytes)?;
    }
    Ok(())
}

/// A listener that can handle the lack of file descriptors. It keeps one in reserve, accepts a connection with it and
/// closes that connection, so that the client sees an immediate end and the accept queue keeps moving.
#[derive(Debug)]
pub(super) struct Listener {
    inner: mio::net::TcpListener,
    spare: Option<File>,
}

/// The result of an attempt to accept a connection.
#[derive(Debug)]
pub(super) enum Accept {
    Stream(TcpStream),
    /// No connection is pending.
    Nobody,
    /// The attempt failed.
    Failed {
        /// Because no file descriptors are left.
        out_of_files: bool,
        /// The next attempt would fail for the same reason.
        lasting: bool,
    },
}

impl Listener {
    pub(super) fn new(listener: TcpListener) -> io::Result<Self> {
        Ok(Self { inner: mio::net::TcpListener::from_std(listener), spare: Some(open_spare()?) })
    }

    pub(super) fn source(&mut self) -> &mut mio::net::TcpListener {
        &mut self.inner
    }

    pub(super) fn as_raw_fd(&self) -> RawFd {
        self.inner.as_raw_fd()
    }

    pub(super) fn into_raw_fd(self) -> RawFd {
        self.inner.into_raw_fd()
    }

    pub(super) fn accept(&mut self) -> Accept {
        match self.inner.accept() {
            Ok((stream, _)) => Accept::Stream(stream.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Accept::Nobody,
            Err(error) if is_out_of_files(&error) => self.drop_one(),
            Err(error) => {
                let lasting = error.kind() != io::ErrorKind::ConnectionAborted;
                Accept::Failed { out_of_files: false, lasting }
            }
        }
    }

    fn drop_one(&mut self) -> Accept {
        let had_spare = self.spare.take().is_some();
        let dropped = had_spare && self.inner.accept().is_ok();
        self.spare = open_spare().ok();
        Accept::Failed { out_of_files: true, lasting: !dropped }
    }
}

fn open_spare() -> io::Result<File> {
    File::open("/dev/null")
}

/// EMFILE is the limit of the process, ENFILE the limit of the system.
pub fn is_out_of_files(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: SocketOptions = SocketOptions { backlog: 16, notsent_lowat_bytes: 16_384 };

    #[test]
    fn listeners_of_a_node_share_the_port_exclusively() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listeners = bind(any, 3, OPTIONS).expect("a port is free");
        let address = listeners[0].local_addr().expect("bound");
        assert!(listeners.iter().all(|listener| listener.local_addr().is_ok_and(|other| other == address)));
        let error = bind(address, 1, OPTIONS).expect_err("another node listens there");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn accepted_sockets_inherit_the_options() {
        let listeners = bind(SocketAddr::from(([127, 0, 0, 1], 0)), 1, OPTIONS).expect("a port is free");
        listeners[0].set_nonblocking(false).expect("a test may block");
        let _client = TcpStream::connect(listeners[0].local_addr().expect("bound")).expect("somebody listens");
        let (stream, _) = listeners[0].accept().expect("a client waits");
        assert!(stream.nodelay().expect("a socket"));
        #[cfg(target_os = "linux")]
        assert_eq!(socket2::SockRef::from(&stream).tcp_notsent_lowat().expect("a socket"), 16_384);
    }
}
