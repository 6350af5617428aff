//! Which reactor the shards get, and why.

use std::{fmt, io, net::TcpListener, sync::Arc, thread};

use super::{Epoll, Unavailable, Uring, Waker, probe};

/// What is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReactorWish {
    /// The best that the kernel offers.
    #[default]
    Auto,
    /// `io_uring`, or nothing.
    IoUring,
    /// epoll.
    Epoll,
}

/// What the shards wait on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReactorKind {
    /// `io_uring`.
    IoUring,
    /// epoll.
    Epoll,
}

impl ReactorKind {
    /// Its name, as everybody is told it.
    pub fn name(self) -> &'static str {
        match self {
            Self::IoUring => "io_uring",
            Self::Epoll => "epoll",
        }
    }
}

/// What was chosen.
#[derive(Clone, Debug)]
pub struct ReactorChoice {
    /// It.
    pub kind: ReactorKind,
    /// Why.
    pub reason: Arc<str>,
}

/// A reactor for each listener, all of one kind, each with what wakes it.
pub enum Reactors {
    /// On `io_uring`.
    IoUring(Vec<(Uring, Arc<Waker>)>),
    /// On epoll.
    Epoll(Vec<(Epoll, Arc<Waker>)>),
}

/// Why there are no reactors.
#[derive(Debug)]
pub enum NoReactor {
    /// What was asked for is not to be had.
    IoUring(Unavailable),
    /// Nor is what there is everywhere.
    Epoll(io::Error),
}

/// Makes a reactor for each listener.
///
/// # Errors
/// [`NoReactor`]
pub fn choose(
    wish: ReactorWish,
    listeners: Vec<TcpListener>,
    read_bytes_max: usize,
) -> Result<(Reactors, ReactorChoice), NoReactor> {
    let choice = |kind, reason: String| ReactorChoice { kind, reason: reason.into() };
    let reason = match wish {
        ReactorWish::Epoll => "it was asked for".to_owned(),
        ReactorWish::Auto | ReactorWish::IoUring => match on_io_uring(&listeners, read_bytes_max) {
            Ok((reactors, set_up)) => {
                let reason = match wish {
                    ReactorWish::IoUring => format!("it was asked for, and is set up {set_up}"),
                    _ => format!("the kernel has it, and it is set up {set_up}"),
                };
                return Ok((Reactors::IoUring(reactors), choice(ReactorKind::IoUring, reason)));
            }
            Err(unavailable) if wish == ReactorWish::IoUring => return Err(NoReactor::IoUring(unavailable)),
            Err(unavailable) => format!("there is no io_uring: {unavailable}; to have it, {}", unavailable.remedy()),
        },
    };
    let mut reactors = Vec::with_capacity(listeners.len());
    for listener in listeners {
        reactors.push(Epoll::new(listener, read_bytes_max).map_err(NoReactor::Epoll)?);
    }
    Ok((Reactors::Epoll(reactors), choice(ReactorKind::Epoll, reason)))
}

type UringReactors = Vec<(Uring, Arc<Waker>)>;

/// On a thread that is gone when this returns: the kernel keeps a note at the thread that sets a ring up, and would interrupt
/// whatever it waits for when the ring is given up.
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
                "reactor is \"io_uring\", and that is not to be had: {unavailable}; {}, or set reactor to \"auto\"",
                unavailable.remedy()
            ),
            Self::Epoll(error) => write!(f, "can't get an epoll instance: {error}"),
        }
    }
}

impl std::error::Error for NoReactor {}
