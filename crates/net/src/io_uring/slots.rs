//! The reactor's state of each connection, and the identifiers of its requests.

use std::{io, net::TcpStream};

use super::{
    super::reactor::ConnectionKey,
    buffers::List,
    ring::{ASIDE, Ring},
    socket::{Socket, Target},
    table::{SocketTable, size_for},
};

/// A socket and its state.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) socket: Socket,
    generation: u32,
    /// Received bytes that were not reported.
    pub(super) received: List,
    flags: u16,
}

const _: () = assert!(size_of::<Slot>() <= 16, "an idle session pays for this");

/// A receive is with the kernel, or queued for submission.
pub(super) const ARMED: u16 = 1;
/// The receive is being cancelled.
pub(super) const ENDING: u16 = 1 << 1;
/// A receive is armed when buffers are available.
pub(super) const WAITS_TO_ARM: u16 = 1 << 2;
/// A receive was armed, and the kernel has not yet examined the socket.
pub(super) const FRESH: u16 = 1 << 3;
/// The shard has paused the connection.
pub(super) const PAUSED: u16 = 1 << 4;
/// The stream has ended: nothing more will be received.
pub(super) const ENDED: u16 = 1 << 5;
/// The connection is in the queue of readable connections.
pub(super) const QUEUED: u16 = 1 << 6;
/// Bytes that arrived before the pause are in `HeldBytes`.
pub(super) const STASHED: u16 = 1 << 7;
/// The socket is full.
pub(super) const FULL: u16 = 1 << 8;
/// A send was offered in the current batch.
pub(super) const OFFERED: u16 = 1 << 9;

impl Slot {
    #[inline]
    pub(super) fn is_of(&self, connection: ConnectionKey) -> bool {
        self.generation == connection.generation && self.socket.is_open()
    }

    #[inline]
    pub(super) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    #[inline]
    pub(super) fn set(&mut self, flag: u16, value: bool) {
        if value {
            self.flags |= flag;
        } else {
            self.flags &= !flag;
        }
    }

    /// Whether there is something to report.
    pub(super) fn has_news(&self) -> bool {
        !self.received.is_empty() || self.has(STASHED | ENDED)
    }
}

/// The sockets of connections, by `ConnectionKey::index`, which is also their place in the ring's table.
pub(super) struct Sockets {
    slots: Vec<Slot>,
    /// `None` if sockets use descriptors.
    table: Option<SocketTable>,
}

impl Sockets {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), table: None }
    }

    /// Keeps sockets in a table of `ring` from now on. Returns its size.
    pub(super) fn use_table(&mut self, ring: &Ring, connections_max: u32) -> io::Result<u32> {
        assert!(self.slots.is_empty(), "connections have no places in the table");
        let size = size_for(connections_max);
        self.table = Some(SocketTable::new(ring, size)?);
        Ok(size)
    }

    pub(super) fn has_table(&self) -> bool {
        self.table.is_some()
    }

    /// Takes a new connection's socket.
    pub(super) fn open(&mut self, ring: &mut Ring, connection: ConnectionKey, stream: TcpStream) -> io::Result<()> {
        assert!(connection.index <= INDEX_MAX, "there are fewer files than that");
        let index = connection.index as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, Slot::default);
        }
        let slot = self.slots.get_mut(index).expect("there are enough slots since the line before");
        assert!(!slot.socket.is_open(), "an index is used again only after its connection was closed");
        let socket = match &mut self.table {
            Some(table) => table.insert(ring, connection.index, stream.into())?,
            None => Socket::from(stream),
        };
        *slot = Slot { socket, generation: connection.generation, ..Slot::default() };
        Ok(())
    }

    /// The slot of an open connection.
    #[inline]
    pub(super) fn live(&mut self, key: ConnectionKey) -> Option<&mut Slot> {
        self.slots.get_mut(key.index as usize).filter(|slot| slot.is_of(key))
    }

    /// The slot of an open connection, to read it.
    #[inline]
    pub(super) fn get(&self, key: ConnectionKey) -> Option<&Slot> {
        self.slots.get(key.index as usize).filter(|slot| slot.is_of(key))
    }

    /// The target of requests for an open connection.
    #[inline]
    pub(super) fn target(&self, key: ConnectionKey) -> Option<Target> {
        self.get(key)?.socket.target(key.index)
    }

    /// Cancels a connection's receive. Its last completion confirms the end.
    pub(super) fn end_receive(&mut self, ring: &mut Ring, connection: ConnectionKey) {
        let Some(slot) = self.live(connection) else { return };
        if slot.has(ARMED) && !slot.has(ENDING) {
            slot.set(ENDING, true);
            ring.cancel(Subject::Receive(connection).user_data());
        }
    }
}

/// The subject of a completion, encoded in the `user_data` of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// A request whose result is ignored.
    Aside,
    /// The eventfd.
    Wake,
    /// Accepted connections.
    Accept,
    /// A connection can be accepted.
    Listener,
    /// Bytes of a connection.
    Receive(ConnectionKey),
    /// A full socket is writable again.
    Writable(ConnectionKey),
    /// The send with this index in the batch.
    Send(u32),
    /// The request whose result the reactor waits for.
    Awaited,
}

/// Maximum index that fits next to the generation and the kind.
pub(super) const INDEX_MAX: u32 = (1 << 28) - 1;

impl Subject {
    #[inline]
    pub(super) fn user_data(self) -> u64 {
        let of = |kind: u64, key: ConnectionKey| kind << 60 | u64::from(key.index) << 32 | u64::from(key.generation);
        match self {
            Self::Aside => ASIDE,
            Self::Wake => 1 << 60,
            Self::Accept => 2 << 60,
            Self::Listener => 3 << 60,
            Self::Receive(key) => of(4, key),
            Self::Writable(key) => of(5, key),
            Self::Send(place) => 6 << 60 | u64::from(place),
            Self::Awaited => 7 << 60,
        }
    }

    #[inline]
    pub(super) fn from_user_data(user_data: u64) -> Self {
        let key = ConnectionKey { index: (user_data >> 32) as u32 & INDEX_MAX, generation: user_data as u32 };
        match user_data >> 60 {
            1 => Self::Wake,
            2 => Self::Accept,
            3 => Self::Listener,
            4 => Self::Receive(key),
            5 => Self::Writable(key),
            6 => Self::Send(user_data as u32),
            7 => Self::Awaited,
            _ => Self::Aside,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_round_trip_through_user_data() {
        let key = ConnectionKey { index: INDEX_MAX, generation: u32::MAX };
        let other = ConnectionKey { index: 0, generation: 7 };
        let subjects = [Subject::Aside, Subject::Wake, Subject::Accept, Subject::Listener, Subject::Send(255)];
        let subjects = subjects.into_iter().chain([Subject::Awaited]);
        let of_connections = [key, other].into_iter().flat_map(|key| [Subject::Receive(key), Subject::Writable(key)]);
        for subject in subjects.chain(of_connections) {
            assert_eq!(Subject::from_user_data(subject.user_data()), subject);
        }
    }
}
