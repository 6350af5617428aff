//! Sessions by index. Their outboxes, which every delivery touches, are stored densely in a table of their own.

use crate::{SessionKey, outbox::Outbox};

use super::{Paused, PausedOn, Session};

/// All sessions of a shard.
#[derive(Default)]
pub(crate) struct SessionTable {
    sessions: Vec<Option<Box<Session>>>,
    outboxes: Vec<Outbox>,
    count: usize,
}

impl SessionTable {
    /// Adds a session at the index of its key, which is free.
    pub(crate) fn insert(&mut self, session: Session) {
        let index = session.key.index as usize;
        if index >= self.sessions.len() {
            self.sessions.resize_with(index + 1, || None);
            self.outboxes.resize_with(index + 1, Outbox::default);
        }
        assert!(self.sessions[index].is_none(), "an index is used again only after Event::Gone");
        let outbox = &mut self.outboxes[index];
        (outbox.generation, outbox.in_use) = (session.key.generation, true);
        self.sessions[index] = Some(Box::new(session));
        self.count += 1;
    }

    /// Removes a session and its outbox.
    pub(crate) fn remove(&mut self, key: SessionKey) -> Option<Box<Session>> {
        self.get(key)?;
        self.outboxes[key.index as usize] = Outbox::default();
        self.count -= 1;
        self.sessions[key.index as usize].take()
    }

    /// The session, if it still exists.
    pub(crate) fn get(&self, key: SessionKey) -> Option<&Session> {
        self.sessions.get(key.index as usize)?.as_deref().filter(|session| session.key == key)
    }

    /// The session, if it still exists.
    pub(crate) fn get_mut(&mut self, key: SessionKey) -> Option<&mut Session> {
        self.sessions.get_mut(key.index as usize)?.as_deref_mut().filter(|session| session.key == key)
    }

    /// The session at `index`. It must exist, as it does if the hub or the user index contains it.
    pub(crate) fn at(&self, index: u32) -> &Session {
        self.sessions[index as usize].as_deref().expect("indices drop a session before it ends")
    }

    /// The session at `index`. It must exist, as it does if the hub or the user index contains it.
    pub(crate) fn at_mut(&mut self, index: u32) -> &mut Session {
        self.sessions[index as usize].as_deref_mut().expect("indices drop a session before it ends")
    }

    /// Ends the wait of a session, if it waits for this.
    pub(crate) fn take_paused(&mut self, key: SessionKey, waits: impl Fn(&PausedOn) -> bool) -> Option<Paused> {
        let paused = self.get_mut(key)?.paused.take_if(|paused| waits(&paused.paused_on))?;
        Some(*paused)
    }

    /// The outbox of the session, if it still exists.
    pub(crate) fn outbox_of(&mut self, key: SessionKey) -> Option<&mut Outbox> {
        let outbox = self.outboxes.get_mut(key.index as usize)?;
        (outbox.in_use && outbox.generation == key.generation).then_some(outbox)
    }

    /// The outbox of the session at `index`.
    pub(crate) fn outbox(&mut self, index: u32) -> &mut Outbox {
        &mut self.outboxes[index as usize]
    }

    /// All outboxes, by index.
    pub(crate) fn outboxes(&mut self) -> &mut [Outbox] {
        &mut self.outboxes
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Session> {
        self.sessions.iter().flatten().map(|session| &**session)
    }

    /// The first session at or after `index`.
    pub(crate) fn next_from(&self, index: u32) -> Option<SessionKey> {
        let rest = self.sessions.get(index as usize..)?;
        rest.iter().find_map(|session| Some(session.as_ref()?.key))
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }
}
