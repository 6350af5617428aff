//! The home of users: knows all sessions of a user on the node if their number is limited.

use std::sync::Arc;

use crate::{
    Effects, SessionKey, ShardIndex,
    message::{Asker, Notice},
    spare::shrink_map,
};

use super::{Context, Owner};

impl Owner {
    /// The home's side: one more session wants to come.
    pub(in crate::shard) fn serve_arrival(
        &mut self,
        context: &mut Context,
        user: Arc<str>,
        asker: Asker,
        effects: &mut Effects,
    ) {
        let most = context.options.client.user_sessions_max;
        let ends_older = context.ends_older_sessions();
        if !context.has_homes() {
            // The requesting shard has not yet received the options without a session limit.
            return context.notify(asker.shard, Notice::Arrived { user, asker, admitted: true }, effects);
        }
        let sessions = self.homes.entry(Arc::clone(&user)).or_default();
        let admitted = most == 0 || sessions.len() < most;
        let older = if admitted && ends_older { sessions.clone() } else { Vec::new() };
        if admitted {
            sessions.push((asker.shard, asker.session));
        }
        context.notify(asker.shard, Notice::Arrived { user, asker, admitted }, effects);
        for (shard, session) in older {
            context.notify(shard, Notice::Superseded { session }, effects);
        }
    }

    /// The home's side: a session has gone.
    pub(in crate::shard) fn serve_departure(&mut self, user: &str, shard: ShardIndex, session: SessionKey) {
        let Some(sessions) = self.homes.get_mut(user) else { return };
        sessions.retain(|known| *known != (shard, session));
        if sessions.is_empty() {
            self.homes.remove(user);
            shrink_map(&mut self.homes);
        }
    }

    /// How many users this shard is the home of that have sessions, where those count. 0 when everybody has left.
    pub(in crate::shard) fn users_at_home(&self) -> usize {
        self.homes.len()
    }
}
