//! Selects the reactor of the shards and records the reason.

use std::{fmt, io, net::TcpListener, sync::Arc, thread};

use super::{
    Epoll, Unavailable, Uring, Waker,
    io_uring::{probe, probe_table},
};

/// The reactor that the configuration requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReactorOption {
    /// `io_uring` if the kernel supports it, otherwise epoll.
    #[default]
    Auto,
    /// Only `io_uring`: the node does not start without it.
    IoUring,
    /// Only epoll.
    Epoll,
}

/// The kernel interface that the shards use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReactorKind {
    /// `io_uring`.
    IoUring,
    /// epoll.
    Epoll,
}

impl ReactorKind {
    /// The name in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::IoUring => "io_uring",
            Self::Epoll => "epoll",
        }
    }
}

/// The selected reactor.
#[derive(Clone, Debug)]
pub struct ReactorChoice {
    /// The kernel interface.
    pub kind: ReactorKind,
    /// The reason for the selection, and what connections use, for the log.
    pub reason: Arc<str>,
    /// Maximum number of connections of each reactor; `None` if connections use file descriptors, whose limit bounds them.
    pub connections_max: Option<u32>,
}

/// Limits of each reactor.
#[derive(Clone, Copy, Debug)]
pub struct ReactorLimits {
    /// Maximum number of bytes read from one connection per turn.
    pub read_bytes_max: usize,
    /// Maximum number of connections that are kept in a table of the ring, where they use no file descriptors; 0 to use file
    /// descriptors. Reactors on epoll use file descriptors.
    pub connections_max: u32,
}

/// One reactor for each listener, all of the same kind, each with its waker.
pub enum Reactors {
    /// On `io_uring`.
    IoUring(Vec<(Uring, Arc<Waker>)>),
    /// On epoll.
    Epoll(Vec<(Epoll, Arc<Waker>)>),
}

/// Why no reactor could be created.
#[derive(Debug)]
pub enum NoReactor {
    /// The configuration requires `io_uring`, and the kernel does not provide it.
    IoUring(Unavailable),
    /// epoll failed.
    Epoll(io::Error),
}

/// Creates a reactor for each listener.
///
/// # Errors
/// [`NoReactor`]
pub fn choose(
    wish: ReactorOption,
    listeners: Vec<TcpListener>,
    limits: ReactorLimits,
) -> Result<(Reactors, ReactorChoice), NoReactor> {
    let reason = match wish {
        ReactorOption::Epoll => "configured".to_owned(),
        ReactorOption::Auto | ReactorOption::IoUring => match on_io_uring(&listeners, limits) {
            Ok(Made { reactors, set_up, sockets }) => {
                let why = if wish == ReactorOption::IoUring { "configured" } else { "supported by the kernel" };
                let reason = format!("{why}; ring mode {set_up}; {sockets}").into();
                let connections_max = sockets.connections_max();
                let choice = ReactorChoice { kind: ReactorKind::IoUring, reason, connections_max };
                return Ok((Reactors::IoUring(reactors), choice));
            }
            Err(unavailable) if wish == ReactorOption::IoUring => return Err(NoReactor::IoUring(unavailable)),
            Err(unavailable) => {
                format!("io_uring is unavailable: {unavailable}; to enable it, {}", unavailable.remedy())
            }
        },
    };
    let mut reactors = Vec::with_capacity(listeners.len());
    for listener in listeners {
        reactors.push(Epoll::new(listener, limits.read_bytes_max).map_err(NoReactor::Epoll)?);
    }
    let choice = ReactorChoice { kind: ReactorKind::Epoll, reason: reason.into(), connections_max: None };
    Ok((Reactors::Epoll(reactors), choice))
}

/// Reactors on `io_uring`.
struct Made {
    reactors: Vec<(Uring, Arc<Waker>)>,
    /// The ring mode.
    set_up: &'static str,
    sockets: SocketsKept,
}

/// Where the reactors keep the sockets of connections.
enum SocketsKept {
    /// In tables of this size.
    Tables(u32),
    /// In file descriptors, because of the configuration.
    Configured,
    /// In file descriptors, because the kernel cannot do what tables require.
    NoTables(Unavailable),
}

/// Runs on a temporary thread. The kernel ties a ring to the thread that created it, and would interrupt a system call
/// of that thread when the ring is dropped.
fn on_io_uring(listeners: &[TcpListener], limits: ReactorLimits) -> Result<Made, Unavailable> {
    let made = thread::scope(|scope| scope.spawn(|| make(listeners, limits, probe_table)).join());
    made.unwrap_or_else(|_| Err(Unavailable::new("a thread to set rings up", &io::Error::from_raw_os_error(libc::EIO))))
}

fn make(
    listeners: &[TcpListener],
    limits: ReactorLimits,
    probe_table: fn() -> Result<(), Unavailable>,
) -> Result<Made, Unavailable> {
    let set_up = probe()?;
    let reactors = || -> Result<Vec<_>, Unavailable> {
        let made: io::Result<_> =
            listeners.iter().map(|of| Uring::new(of.try_clone()?, limits.read_bytes_max)).collect();
        made.map_err(|error| Unavailable::new("a ring for each shard", &error))
    };
    let mut made = reactors()?;
    let sockets = match limits.connections_max {
        0 => SocketsKept::Configured,
        connections_max => match probe_table().and_then(|()| keep_in_tables(&mut made, connections_max)) {
            Ok(size) => SocketsKept::Tables(size),
            Err(unavailable) => {
                // Some may have a table.
                made = reactors()?;
                SocketsKept::NoTables(unavailable)
            }
        },
    };
    Ok(Made { reactors: made, set_up, sockets })
}

fn keep_in_tables(reactors: &mut [(Uring, Arc<Waker>)], connections_max: u32) -> Result<u32, Unavailable> {
    let mut size = 0;
    for (reactor, _) in reactors {
        let used = reactor.use_table(connections_max);
        size = used.map_err(|error| Unavailable::new("a table of sockets for each shard", &error))?;
    }
    Ok(size)
}

impl SocketsKept {
    fn connections_max(&self) -> Option<u32> {
        match self {
            Self::Tables(size) => Some(*size),
            Self::Configured | Self::NoTables(_) => None,
        }
    }
}

impl fmt::Display for SocketsKept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tables(size) => write!(f, "direct descriptors, {size} for each shard"),
            Self::Configured => write!(f, "file descriptors, as configured"),
            Self::NoTables(unavailable) => {
                write!(f, "file descriptors, because {unavailable}; direct descriptors need Linux 6.13 or newer")
            }
        }
    }
}

impl fmt::Display for NoReactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IoUring(unavailable) => write!(
                f,
                "reactor is \"io_uring\", but io_uring is unavailable: {unavailable}; {}, or set reactor to \"auto\"",
                unavailable.remedy()
            ),
            Self::Epoll(error) => write!(f, "cannot create an epoll instance: {error}"),
        }
    }
}

impl std::error::Error for NoReactor {}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(connections_max: u32, probe_table: fn() -> Result<(), Unavailable>) -> Option<Made> {
        let listeners = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port"));
        let limits = ReactorLimits { read_bytes_max: 4_096, connections_max };
        // `None` where all rings are forbidden.
        make(&listeners, limits, probe_table).ok()
    }

    #[test]
    fn sockets_are_in_tables_where_the_kernel_can_do_it() {
        let Some(made) = made(100, || Ok(())) else { return };
        assert_eq!((made.reactors.len(), made.sockets.connections_max()), (2, Some(100)));
        assert_eq!(made.sockets.to_string(), "direct descriptors, 100 for each shard");
    }

    #[test]
    fn sockets_have_descriptors_if_they_are_wanted() {
        let Some(made) = made(0, || unreachable!("nothing is to be tried")) else { return };
        assert_eq!((made.reactors.len(), made.sockets.connections_max()), (2, None));
        assert_eq!(made.sockets.to_string(), "file descriptors, as configured");
    }

    #[test]
    fn sockets_have_descriptors_where_the_kernel_lacks_an_operation() {
        let lacks = || Err(Unavailable::new("IORING_OP_FIXED_FD_INSTALL", &io::Error::from_raw_os_error(libc::EINVAL)));
        let Some(made) = made(100, lacks) else { return };
        assert_eq!((made.reactors.len(), made.sockets.connections_max()), (2, None));
        let reason = made.sockets.to_string();
        assert!(reason.starts_with("file descriptors, because IORING_OP_FIXED_FD_INSTALL failed: "), "{reason}");
        assert!(reason.ends_with("; direct descriptors need Linux 6.13 or newer"), "{reason}");
    }
}
