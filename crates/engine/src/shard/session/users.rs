//! Sessions by user.
//!
//! A shard knows its own sessions of a user. If the number of a user's sessions on the node is limited, the user has a
//! *home* shard, chosen by hash like a channel's owner. The home decides whether a new session is admitted, and is
//! notified when one ends. Nodes without such a limit have no homes.

use std::sync::Arc;

use dunlin_protocol::{Disconnect, ErrorCode};
use hashbrown::HashMap;

use crate::{
    SessionKey,
    creators::ChannelCreator,
    message::{Admission, Asker, ShardRequest},
    session::{ConnectGrant, Paused, PausedOn},
    shard::hash_of,
    spare::shrink_map,
};

use super::{Context, Sessions};

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
    fn remove(&mut self, user: &Arc<str>, place: u32) -> Option<SessionKey> {
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

impl Sessions {
    /// The session's identity for the limits on channels.
    pub(super) fn creator(&self, context: &Context, key: SessionKey) -> ChannelCreator {
        let Some(session) = self.table.get(key) else { return ChannelCreator::default() };
        let hash = |what: &(u8, u64, u64)| hash_of(what, context.node_seed) | 1;
        let user = session.info.as_ref().map(|info| &*info.user).filter(|user| !user.is_empty());
        let shard = u64::from(context.identity.index.0);
        ChannelCreator {
            session: hash(&(0, shard, u64::from(key.index) << 32 | u64::from(key.generation))),
            user: user.map_or(0, |user| hash(&(1, hash_of(user, context.node_seed), 0))),
            source: session.source.map_or(0, |source| hash(&(2, source.0.get(), 0))),
        }
    }

    /// Removes the session from its user's list.
    pub(super) fn remove_from_user(&mut self, context: &mut Context, key: SessionKey, user: &Arc<str>, place: u32) {
        if let Some(moved) = self.users.remove(user, place) {
            self.table.at_mut(moved.index).user_place = place;
        }
        if context.counts_sessions_of(user) {
            context.send_depart(user, key);
        }
    }

    /// Asks the user's home to admit the session.
    pub(super) fn request_admission(&mut self, context: &mut Context, key: SessionKey, grant: ConnectGrant) {
        let user = Arc::clone(&grant.user);
        self.pause(key, PausedOn::Admission(Box::new(grant)), &mut context.effects);
        let asker = context.asker(key, 0);
        let home = context.owner(&user);
        context.request(home, ShardRequest::Arrive { user, asker });
    }

    /// The home has decided about a session.
    pub(in crate::shard) fn arrived(
        &mut self,
        context: &mut Context,
        user: &Arc<str>,
        asker: Asker,
        admission: Admission,
    ) {
        let key = asker.session;
        let waits = |paused_on: &PausedOn| matches!(paused_on, PausedOn::Admission(_));
        let paused =
            self.table.get_mut(key).and_then(|session| session.paused.take_if(|paused| waits(&paused.paused_on)));
        let Some(paused) = paused else {
            context.counters.late_messages += 1;
            if admission == Admission::Admitted {
                context.send_depart(user, key);
            }
            return;
        };
        let Paused { paused_on, unparsed } = *paused;
        let PausedOn::Admission(grant) = paused_on else { unreachable!("looked at above") };
        let refusal = match admission {
            Admission::Admitted => None,
            Admission::FullHere => Some(Disconnect::CONNECTION_LIMIT.into()),
            // The end of another node may not be known yet. The client retries later.
            Admission::FullElsewhere => Some(ErrorCode::TooManyRequests.into()),
        };
        match refusal {
            None => self.let_in(context, key, *grant),
            Some(refusal) => {
                context.counters.user_sessions_refused += 1;
                self.refuse_connect(context, key, grant.command_id, refusal);
            }
        }
        self.resume(key, unparsed);
    }

    /// A newer session of the user was admitted, and only one is allowed.
    pub(in crate::shard) fn superseded(&mut self, context: &mut Context, key: SessionKey) {
        self.close(context, key, &Disconnect::CONNECTION_LIMIT);
    }
}
impl Context {
    fn send_depart(&mut self, user: &Arc<str>, session: SessionKey) {
        let request = ShardRequest::Depart { user: Arc::clone(user), shard: self.identity.index, session };
        self.request(self.owner(user), request);
    }
}
