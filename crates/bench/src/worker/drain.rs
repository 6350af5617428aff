//! The receivers of the roofline: they read bytes from the sockets and discard them.

use std::io::{self, Read};
use std::net::SocketAddr;

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use socket2::{Domain, Socket, Type};

use super::{answer, commands, poll_failed, wait_for_events};
use crate::control::{Connected, DrainRole, WorkerReply};
use crate::error::Error;

pub fn play(role: &DrainRole) -> Result<(), Error> {
    let mut poll = Poll::new().map_err(poll_failed)?;
    let mut sockets = Vec::with_capacity(role.sockets);
    for number in 0..role.sockets {
        let failed = |source| {
            Error::os(
                format!("connect socket {number} to the sender"),
                source,
                "raise the limit of open files (ulimit -n)",
            )
        };
        let mut socket = connect(role).map_err(failed)?;
        poll.registry().register(&mut socket, Token(number), Interest::READABLE).map_err(failed)?;
        sockets.push(socket);
    }
    answer(&WorkerReply::Connected(Connected { ready: sockets.len(), ..Connected::default() }));
    // There are no commands. The thread ends the process with its stdin.
    let _orders = commands(|| ());
    let mut events = Events::with_capacity(1024);
    let mut buffer = vec![0; super::BUFFER_BYTES];
    loop {
        wait_for_events(&mut poll, &mut events, None)?;
        for event in &events {
            if let Some(socket) = sockets.get(event.token().0) {
                discard(socket, &mut buffer);
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

/// Reads the available data as a client does. How soon receivers sleep again determines how often a send must wake
/// them, and wakeups are part of the cost of a send.
fn discard(socket: &TcpStream, buffer: &mut [u8]) {
    loop {
        let mut reader = socket;
        match reader.read(buffer) {
            Ok(bytes) if bytes == buffer.len() => {}
            // A short count means that the socket is empty (epoll(7)), so another read would be a wasted call. If the
            // sender is gone, this process ends with its stdin.
            _ => return,
        }
    }
}
