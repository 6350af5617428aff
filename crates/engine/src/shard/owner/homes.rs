//! The home of users: knows all sessions of a user on the node if their number is limited.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::{
    SessionKey, ShardIndex,
    event::Effect,
    message::{Admission, Asker, Notice},
    shrink::shrink_map,
};

use super::Context;

/// The users whose home is this shard, if sessions are counted.
pub(in crate::shard) struct UserHomes {
    /// The sessions of each user on the whole node. No list is empty.
    sessions: HashMap<Arc<str>, Vec<(ShardIndex, SessionKey)>, foldhash::quality::FixedState>,
    /// The number of the users' sessions on other nodes.
    elsewhere: HashMap<Arc<str>, u32, foldhash::quality::FixedState>,
}

impl UserHomes {
    pub(super) fn new(node_seed: u64) -> Self {
        let hasher = || foldhash::quality::FixedState::with_seed(node_seed);
        Self { sessions: HashMap::with_hasher(hasher()), elsewhere: HashMap::with_hasher(hasher()) }
    }

    /// Decides whether a user may have one more session.
    pub(in crate::shard) fn serve_arrival(&mut self, context: &mut Context, user: Arc<str>, asker: Asker) {
        let sessions_max = context.options.client.user_sessions_max;
        let ends_older = context.ends_older_sessions();
        if !context.has_homes() {
            // The requesting shard has not yet received the options without a session limit.
            return context.notify(asker.shard, Notice::Arrived { user, asker, admission: Admission::Admitted });
        }
        let elsewhere = self.elsewhere.get(&user).map_or(0, |sessions| *sessions as usize);
        let sessions = self.sessions.entry(Arc::clone(&user)).or_default();
        let admission = match sessions.len() {
            _ if sessions_max == 0 => Admission::Admitted,
            here if here >= sessions_max => Admission::FullHere,
            here if here + elsewhere >= sessions_max => Admission::FullElsewhere,
            _ => Admission::Admitted,
        };
        let admitted = admission == Admission::Admitted;
        let older = if admitted && ends_older { sessions.clone() } else { Vec::new() };
        if admitted {
            sessions.push((asker.shard, asker.session));
        }
        if sessions.is_empty() {
            // The user has no session, and the limit admits none.
            self.sessions.remove(&user);
        }
        if admitted {
            self.share(context, &user);
        }
        context.notify(asker.shard, Notice::Arrived { user, asker, admission });
        for (shard, session) in older {
            context.notify(shard, Notice::Superseded { session });
        }
    }

    /// Removes a session of a user.
    pub(in crate::shard) fn serve_departure(
        &mut self,
        context: &mut Context,
        user: &Arc<str>,
        shard: ShardIndex,
        session: SessionKey,
    ) {
        let Some(sessions) = self.sessions.get_mut(user) else { return };
        sessions.retain(|known| *known != (shard, session));
        if sessions.is_empty() {
            self.sessions.remove(user);
            shrink_map(&mut self.sessions);
        }
        self.share(context, user);
    }

    /// Tells the other nodes how many sessions of the user this node has.
    fn share(&self, context: &mut Context, user: &Arc<str>) {
        if context.options.client.shares_user_sessions {
            let sessions = self.sessions.get(user).map_or(0, |sessions| sessions.len() as u32);
            context.effects.list.push(Effect::ShareUserSessions { user: Arc::clone(user), sessions });
        }
    }

    /// Stores the number of a user's sessions on other nodes, if this shard is the user's home.
    pub(in crate::shard) fn count_elsewhere(&mut self, context: &Context, user: Arc<str>, sessions: u32) {
        if sessions > 0 && context.owner(&user) == context.identity.index {
            self.elsewhere.insert(user, sessions);
        } else if self.elsewhere.remove(&user).is_some() {
            shrink_map(&mut self.elsewhere);
        }
    }

    /// Sessions are no longer counted.
    pub(super) fn clear(&mut self) {
        self.sessions.clear();
    }

    /// The number of users with sessions. 0 when all sessions have ended.
    pub(super) fn len(&self) -> usize {
        self.sessions.len()
    }
}
