//! The sender of the roofline: only sends to many sockets, one at a time or in batches.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::{answer, batches::Batches, commands};
use crate::control::{Send, SenderReport, SenderRole, Until, WorkerCommand, WorkerReply};
use crate::error::Error;
use crate::proc;
use crate::report::whole;

pub fn play(role: &SenderRole) -> Result<(), Error> {
    let failed = |source| Error::os("listen on 127.0.0.1", source, "check that loopback is up");
    let listener = listen(role.sockets).map_err(failed)?;
    answer(&WorkerReply::Listening { address: listener.local_addr().map_err(failed)? });
    let sockets = accept_all(&listener, role.sockets)
        .map_err(|source| Error::os("accept the receivers", source, "raise the limit of open files (ulimit -n)"))?;
    for command in commands(|| ()) {
        if let WorkerCommand::Send(send) = command {
            answer(&match send_rounds(&sockets, &send) {
                Ok(sent) => WorkerReply::Sent(sent),
                Err(error) => WorkerReply::NoBatches { reason: error.to_string() },
            });
        }
    }
    Ok(())
}

fn listen(sockets: usize) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
    socket.listen(i32::try_from(sockets).unwrap_or(i32::MAX))?;
    Ok(socket.into())
}

fn accept_all(listener: &TcpListener, sockets: usize) -> io::Result<Vec<TcpStream>> {
    (0..sockets)
        .map(|_| {
            let (socket, _) = listener.accept()?;
            socket.set_nodelay(true)?;
            Ok(socket)
        })
        .collect()
}

fn send_rounds(sockets: &[TcpStream], command: &Send) -> io::Result<SenderReport> {
    let mut batches = command.batch.map(Batches::new).transpose()?;
    let frame = vec![b'x'; command.frame_bytes];
    let mut sent = SenderReport::default();
    let (cpu_before, start_ns) = (proc::own_cpu_ns(), proc::now_ns());
    loop {
        let refused_before = sent.would_block;
        match &mut batches {
            Some(batches) => batches.send_round(sockets, &frame, &mut sent)?,
            None => send_round(sockets, &frame, &mut sent),
        }
        sent.rounds += 1;
        let elapsed_ns = proc::now_ns() - start_ns;
        if is_over(command.until, sent.rounds, elapsed_ns) {
            break;
        }
        match command.rounds_per_second {
            Some(rate) => {
                let next_ns = whole(sent.rounds as f64 * 1e9 / rate);
                thread::sleep(Duration::from_nanos(next_ns.saturating_sub(elapsed_ns)));
            }
            // The receivers are behind, so sending again at once would only measure refusals.
            None if sent.would_block > refused_before => thread::sleep(Duration::from_millis(1)),
            None => {}
        }
    }
    sent.cpu_ns = proc::own_cpu_ns() - cpu_before;
    sent.wall_ns = proc::now_ns() - start_ns;
    Ok(sent)
}

fn is_over(until: Until, rounds: u64, elapsed_ns: u64) -> bool {
    match until {
        Until::Rounds(max) => rounds >= max,
        Until::DurationNs(max) => elapsed_ns >= max,
    }
}

fn send_round(sockets: &[TcpStream], frame: &[u8], sent: &mut SenderReport) {
    for socket in sockets {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: the pointer and length are those of one slice, and the descriptor is open while `socket` lives.
        let taken = unsafe { libc::send(socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), flags) };
        if taken == frame.len().cast_signed() {
            sent.sends += 1;
        } else {
            sent.would_block += 1;
        }
    }
}
