//! Selects the reactor of the shards and records the reason.

use std::{fmt, io, net::TcpListener, sync::Arc, thread};

use super::{Epoll, Unavailable, Uring, Waker, probe};

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
    /// The reason for the selection, for the log.
    pub reason: Arc<str>,
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
    read_bytes_max: usize,
) -> Result<(Reactors, ReactorChoice), NoReactor> {
    let choice = |kind, reason: String| ReactorChoice { kind, reason: reason.into() };
    let reason = match wish {
        ReactorOption::Epoll => "configured".to_owned(),
        ReactorOption::Auto | ReactorOption::IoUring => match on_io_uring(&listeners, read_bytes_max) {
            Ok((reactors, set_up)) => {
                let reason = match wish {
                    ReactorOption::IoUring => format!("configured; ring mode {set_up}"),
                    _ => format!("supported by the kernel; ring mode {set_up}"),
                };
                return Ok((Reactors::IoUring(reactors), choice(ReactorKind::IoUring, reason)));
            }
            Err(unavailable) if wish == ReactorOption::IoUring => return Err(NoReactor::IoUring(unavailable)),
            Err(unavailable) => {
                format!("io_uring is unavailable: {unavailable}; to enable it, {}", unavailable.remedy())
            }
        },
    };
    let mut reactors = Vec::with_capacity(listeners.len());
    for listener in listeners {
        reactors.push(Epoll::new(listener, read_bytes_max).map_err(NoReactor::Epoll)?);
    }
    Ok((Reactors::Epoll(reactors), choice(ReactorKind::Epoll, reason)))
}

type UringReactors = Vec<(Uring, Arc<Waker>)>;

/// Runs on a temporary thread. The kernel ties a ring to the thread that created it, and would interrupt a system call
/// of that thread when the ring is dropped.
fn on_io_uring(listeners: &[TcpListener], read_bytes_max: usize) -> Result<(UringReactors, &'static str), Unavailable> {
    let made = thread::scope(|scope| scope.spawn(|| make(listeners, read_bytes_max)).join());
    made.unwrap_or_else(|_| Err(Unavailable::new("a thread to set rings up", &io::Error::from_raw_os_error(libc::EIO))))
}

fn make(listeners: &[TcpListener], read_bytes_max: usize) -> Result<(UringReactors, &'static str), Unavailable> {
    let set_up = probe()?;
    let mut reactors = Vec::with_capacity(listeners.len());
    for listener in listeners {
        let made = listener.try_clone().and_then(|listener| Uring::new(listener, read_bytes_max));
        reactors.push(made.map_err(|error| Unavailable::new("a ring for each shard", &error))?);
    }
    Ok((reactors, set_up))
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
