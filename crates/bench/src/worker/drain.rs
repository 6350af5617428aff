//! The roofline's receivers: they take bytes off the sockets without looking at or even copying them.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use socket2::{Domain, Socket, Type};

use super::{answer, orders, poll_failed};
use crate::control::{Answer, Connected, DrainRole};
use crate::error::Error;

pub fn play(role: &DrainRole) -> Result<(), Error> {
    let mut poll = Poll::new().map_err(poll_failed)?;
    let mut sockets = Vec::with_capacity(role.sockets);
    for number in 0..role.sockets {
        let failed = |source| {
            Error::os(format!("connect socket {number} to the sender"), source, "raise the limit of open files (ulimit -n)")
        };
        let mut socket = connect(role).map_err(failed)?;
        poll.registry().register(&mut socket, Token(number), Interest::READABLE).map_err(failed)?;
        sockets.push(socket);
    }
    answer(&Answer::Connected(Connected { ready: sockets.len(), ..Connected::default() }));
    // Nothing is ordered: the thread is there to end the process with its stdin.
    let _orders = orders(|| ());
    let mut events = Events::with_capacity(1024);
    loop {
        match poll.poll(&mut events, None) {
            Err(err) if err.kind() == io::ErrorKind::Interrupted => continue,
            result => result.map_err(poll_failed)?,
        }
        for event in &events {
            if let Some(socket) = sockets.get(event.token().0) {
                discard(socket);
            }
        }
    }
}

fn connect(role: &DrainRole) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((role.source, 0)).into())?;
    socket.connect(&role.address.into())?;
    socket.set_nonblocking(true)?;
    Ok(TcpStream::from_std(socket.into()))
}

/// Takes what is there. `MSG_TRUNC` makes the kernel drop the bytes of a stream instead of copying them (tcp(7)).
fn discard(socket: &TcpStream) {
    const BYTES: usize = 1 << 20;
    loop {
        let flags = libc::MSG_TRUNC | libc::MSG_DONTWAIT;
        // SAFETY: with MSG_TRUNC on a TCP socket nothing is written to the buffer, which may then be null (tcp(7)).
        let taken = unsafe { libc::recv(socket.as_raw_fd(), std::ptr::null_mut(), BYTES, flags) };
        // A short count means that the socket is empty (epoll(7)), so that asking again would be a wasted call.
        if taken < BYTES.cast_signed() {
            return;
        }
    }
}
