//! The sessions of each user.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::{SessionKey, shrink::shrink_map};

/// The authenticated sessions of each user.
pub(super) struct UserSessions(HashMap<Arc<str>, Vec<SessionKey>, foldhash::quality::FixedState>);

impl UserSessions {
    pub(super) fn new(node_seed: u64) -> Self {
        Self(HashMap::with_hasher(foldhash::quality::FixedState::with_seed(node_seed)))
    }

    /// The shared copy of a user's id on this shard.
    pub(super) fn intern(&self, user: String) -> Arc<str> {
        match self.0.get_key_value(user.as_str()) {
            Some((known, _)) => Arc::clone(known),
            None => user.into(),
        }
    }

    /// Adds a session to its user's list; returns its place there.
    pub(super) fn add(&mut self, user: &Arc<str>, key: SessionKey) -> u32 {
        // Most users have one session.
        let sessions = self.0.entry(Arc::clone(user)).or_insert_with(|| Vec::with_capacity(1));
        sessions.push(key);
        (sessions.len() - 1) as u32
    }

    /// Removes the session at `place` from its user's list. Returns the session that moved to `place`, if one did.
    pub(super) fn remove(&mut self, user: &Arc<str>, place: u32) -> Option<SessionKey> {
        let sessions = self.0.get_mut(user).expect("an authenticated session's user has a list");
        sessions.swap_remove(place as usize);
        let moved = sessions.get(place as usize).copied();
        if sessions.is_empty() {
            self.0.remove(user);
            shrink_map(&mut self.0);
        }
        moved
    }

    pub(super) fn of(&self, user: &str) -> &[SessionKey] {
        self.0.get(user).map_or(&[], Vec::as_slice)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(|user| &**user)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
