//! What programs and tests that start other programs share. No server needs it to run.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    ops::Range,
    os::unix::process::CommandExt as _,
    process::Command,
};

/// Linux takes ports of outgoing connections from 32768 on. No outgoing connection takes one of these between its choice and its use.
/// Another process that chooses at the same time may.
const PORTS: Range<u16> = 10_000..32_768;

/// How many ports are tried for each one that is chosen.
const ATTEMPTS_MAX: usize = 1_000;

/// Ports of the loopback address that are free now. All of them are open at the same time, so that they differ.
///
/// # Errors
/// No port is free, or the system opens no socket.
pub fn free_ports(count: usize) -> io::Result<Vec<u16>> {
    let mut listeners: Vec<TcpListener> = Vec::with_capacity(count);
    for _ in 0..count * ATTEMPTS_MAX {
        if listeners.len() == count {
            break;
        }
        match TcpListener::bind((Ipv4Addr::LOCALHOST, any_port()?)) {
            Ok(listener) => listeners.push(listener),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
    if listeners.len() < count {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, format!("{count} ports are not free")));
    }
    listeners.iter().map(|listener| listener.local_addr().map(|address| address.port())).collect()
}

/// One port of the loopback address that is free now.
///
/// # Errors
/// Those of [`free_ports`].
pub fn free_port() -> io::Result<u16> {
    free_ports(1).map(|ports| ports[0])
}

/// An address of the loopback interface at which nothing listens now.
///
/// # Errors
/// Those of [`free_ports`].
pub fn free_address() -> io::Result<SocketAddr> {
    free_port().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
}

fn any_port() -> io::Result<u16> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    let number = u32::from_le_bytes(bytes) % u32::from(PORTS.end - PORTS.start);
    Ok(PORTS.start + number as u16)
}

/// Has the kernel send a signal to the process of a command when the thread that starts it ends, in whatever way. So start it from a
/// thread that lasts as long as this process.
pub fn end_with_this(command: &mut Command, signal: libc::c_int) {
    let this = std::process::id().cast_signed();
    // SAFETY: between fork and exec two system calls are made; nothing is allocated or locked.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, signal) != 0 {
                return Err(io::Error::last_os_error());
            }
            // Before the call, this process may have ended already: then no signal comes.
            if libc::getppid() == this { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        fs,
        io::{BufRead as _, BufReader, Read as _},
        process::Stdio,
    };

    use super::*;

    #[test]
    fn free_ports_differ_and_lie_below_those_of_connections() {
        const COUNT: usize = 200;
        let ports = free_ports(COUNT).expect("so many are free");
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), COUNT);
        assert!(ports.iter().all(|port| PORTS.contains(port)), "{ports:?}");
        assert!(free_ports(0).expect("none is free as well").is_empty());
    }

    #[test]
    fn outgoing_connections_take_other_ports() {
        let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").expect("Linux has it");
        let mut bounds = text.split_whitespace().map(|bound| bound.parse::<u16>().expect("a port"));
        let (first, last) = (bounds.next().expect("a first"), bounds.next().expect("a last"));
        assert!(
            first >= PORTS.end || last < PORTS.start,
            "outgoing connections take ports from {first} to {last}: set net.ipv4.ip_local_port_range to 32768 60999"
        );
    }

    /// The role of this test's program when it starts itself: it starts a child, says so and is killed.
    #[test]
    fn parent_of_a_child() {
        if std::env::var_os("DUNLIN_PROCESSES_PARENT").is_none() {
            return;
        }
        let mut child = Command::new("sleep");
        child.arg("1000");
        end_with_this(&mut child, libc::SIGKILL);
        let mut child = child.spawn().expect("it starts");
        println!("child {}", child.id());
        let _ = child.wait();
    }

    #[test]
    fn a_child_ends_with_its_parent() {
        let this = std::env::current_exe().expect("a program");
        let mut parent = Command::new(this)
            .args(["tests::parent_of_a_child", "--exact", "--nocapture"])
            .env("DUNLIN_PROCESSES_PARENT", "1")
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut output = BufReader::new(parent.stdout.take().expect("a pipe"));
        let mut line = String::new();
        while !line.contains("child ") {
            line.clear();
            assert!(output.read_line(&mut line).expect("text") > 0, "it started no child");
        }
        parent.kill().expect("it runs");
        parent.wait().expect("it ended");
        // The child has inherited the pipe, which ends when both processes have.
        let mut rest = Vec::new();
        output.read_to_end(&mut rest).expect("the child ends");
    }
}
