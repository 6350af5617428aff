//! The home of users: knows all sessions of a user on the node if their number is limited.

use std::sync::Arc;

use crate::{
    SessionKey, ShardIndex,
    event::Effect,
    message::{Admission, Asker, Notice},
    spare::shrink_map,
};

use super::{Context, Owner};

impl Owner {
    /// Decides whether a user may have one more session.
    pub(in crate::shard) fn serve_arrival(&mut self, context: &mut Context, user: Arc<str>, asker: Asker) {
        let most = context.options.client.user_sessions_max;
        let ends_older = context.ends_older_sessions();
        if !context.has_homes() {
            // The requesting shard has not yet received the options without a session limit.
            return context.notify(asker.shard, Notice::Arrived { user, asker, admission: Admission::Admitted });
        }
        let elsewhere = self.elsewhere.get(&user).map_or(0, |sessions| *sessions as usize);
        let sessions = self.homes.entry(Arc::clone(&user)).or_default();
        let admission = match sessions.len() {
            _ if most == 0 => Admission::Admitted,
            here if here >= most => Admission::FullHere,
            here if here + elsewhere >= most => Admission::FullElsewhere,
            _ => Admission::Admitted,
        };
        let admitted = admission == Admission::Admitted;
        let older = if admitted && ends_older { sessions.clone() } else { Vec::new() };
        if admitted {
            sessions.push((asker.shard, asker.session));
        }
        if sessions.is_empty() {
            // The user has no session, and the limit admits none.
            self.homes.remove(&user);
        }
        if admitted {
            self.share_user_sessions(context, &user);
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
        let Some(sessions) = self.homes.get_mut(user) else { return };
        sessions.retain(|known| *known != (shard, session));
        if sessions.is_empty() {
            self.homes.remove(user);
            shrink_map(&mut self.homes);
        }
        self.share_user_sessions(context, user);
    }

    fn share_user_sessions(&self, context: &mut Context, user: &Arc<str>) {
        if context.options.client.shares_user_sessions {
            let sessions = self.homes.get(user).map_or(0, |sessions| sessions.len() as u32);
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

    /// The number of users with sessions whose home is this shard, if sessions are counted. 0 when all sessions have
    /// ended.
    pub(in crate::shard) fn users_at_home(&self) -> usize {
        self.homes.len()
    }
}
