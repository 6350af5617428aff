//! What the reactor knows of each connection, and the names of its requests.

use std::{net::TcpStream, os::fd::AsRawFd as _};

use ::io_uring::types::Fd;

use super::{super::reactor::ConnectionKey, buffers::List};

/// A socket, and what is known about it.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) stream: Option<TcpStream>,
    generation: u32,
    /// What was received and not yet told.
    pub(super) received: List,
    flags: u16,
}

const _: () = assert!(size_of::<Slot>() <= 16, "an idle session pays for this");

/// A receive is with the kernel, or on its way there.
pub(super) const ARMED: u16 = 1;
/// That receive has been told to end.
pub(super) const ENDING: u16 = 1 << 1;
/// A receive is to be armed when there are buffers.
pub(super) const WAITS_TO_ARM: u16 = 1 << 2;
/// A receive was armed, and the kernel has not yet looked whether there is something.
pub(super) const FRESH: u16 = 1 << 3;
/// The shard wants nothing from it.
pub(super) const PAUSED: u16 = 1 << 4;
/// Nothing more will be received.
pub(super) const ENDED: u16 = 1 << 5;
/// Among those that have something to tell.
pub(super) const QUEUED: u16 = 1 << 6;
/// What came while it was paused is in the stash.
pub(super) const STASHED: u16 = 1 << 7;
/// The socket takes nothing for now.
pub(super) const FULL: u16 = 1 << 8;

impl Slot {
    pub(super) fn new(stream: TcpStream, generation: u32) -> Self {
        Self { stream: Some(stream), generation, ..Self::default() }
    }

    #[inline]
    pub(super) fn is_of(&self, connection: ConnectionKey) -> bool {
        self.generation == connection.generation && self.stream.is_some()
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

    pub(super) fn fd(&self) -> Option<Fd> {
        self.stream.as_ref().map(|stream| Fd(stream.as_raw_fd()))
    }

    /// Whether there is something to tell of it.
    pub(super) fn has_news(&self) -> bool {
        !self.received.is_empty() || self.has(STASHED | ENDED)
    }
}

/// The slot of a connection that is still there.
#[inline]
pub(super) fn live(slots: &mut [Slot], key: ConnectionKey) -> Option<&mut Slot> {
    slots.get_mut(key.index as usize).filter(|slot| slot.is_of(key))
}

/// What a completion is about, as its request carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// A request of which nobody waits to hear.
    Aside,
    /// The eventfd.
    Wake,
    /// Connections that were accepted.
    Accept,
    /// Somebody waits to be accepted by hand.
    Door,
    /// Bytes of a connection.
    Receive(ConnectionKey),
    /// A full socket.
    Writable(ConnectionKey),
    /// The send at this place of the batch.
    Send(u32),
}

/// Indices that fit beside the generation and the kind.
pub(super) const INDEX_MAX: u32 = (1 << 28) - 1;

impl Subject {
    #[inline]
    pub(super) fn user_data(self) -> u64 {
        let of = |kind: u64, key: ConnectionKey| kind << 60 | u64::from(key.index) << 32 | u64::from(key.generation);
        match self {
            Self::Aside => 0,
            Self::Wake => 1 << 60,
            Self::Accept => 2 << 60,
            Self::Door => 3 << 60,
            Self::Receive(key) => of(4, key),
            Self::Writable(key) => of(5, key),
            Self::Send(place) => 6 << 60 | u64::from(place),
        }
    }

    #[inline]
    pub(super) fn from_user_data(user_data: u64) -> Self {
        let key = ConnectionKey { index: (user_data >> 32) as u32 & INDEX_MAX, generation: user_data as u32 };
        match user_data >> 60 {
            1 => Self::Wake,
            2 => Self::Accept,
            3 => Self::Door,
            4 => Self::Receive(key),
            5 => Self::Writable(key),
            6 => Self::Send(user_data as u32),
            _ => Self::Aside,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_comes_back_as_it_went() {
        let key = ConnectionKey { index: INDEX_MAX, generation: u32::MAX };
        let other = ConnectionKey { index: 0, generation: 7 };
        let subjects = [Subject::Aside, Subject::Wake, Subject::Accept, Subject::Door, Subject::Send(255)];
        let of_connections = [key, other].into_iter().flat_map(|key| [Subject::Receive(key), Subject::Writable(key)]);
        for subject in subjects.into_iter().chain(of_connections) {
            assert_eq!(Subject::from_user_data(subject.user_data()), subject);
        }
    }
}
