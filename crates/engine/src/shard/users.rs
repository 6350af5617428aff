//! Sessions by their users.
//!
//! A shard knows its own sessions of a user. Where the number of a user's sessions on the node counts, each user has a
//! *home* shard, chosen by hash as a channel's owner is, that knows all of them: it is asked before a session is let in,
//! and told when one goes. Nodes without such a limit ask nobody.

use std::sync::Arc;

use dunlin_protocol::Disconnect;

use crate::{
    Effects, Now, SessionKey, ShardIndex,
    message::{Asker, Notice, Request, ShardMessage},
    session::{Arrival, Held, Waiting},
};

use super::Shard;

impl Shard {
    /// The one copy of a user's id on this shard.
    pub(super) fn intern_user(&self, user: String) -> Arc<str> {
        match self.users.get_key_value(user.as_str()) {
            Some((known, _)) => Arc::clone(known),
            None => user.into(),
        }
    }

    pub(super) fn add_to_user(&mut self, user: &Arc<str>, key: SessionKey) -> u32 {
        // Most users have one session.
        let sessions = self.users.entry(Arc::clone(user)).or_insert_with(|| Vec::with_capacity(1));
        sessions.push(key);
        (sessions.len() - 1) as u32
    }

    /// Takes the session out of its user's list.
    pub(super) fn remove_from_user(&mut self, key: SessionKey, user: &Arc<str>, place: u32, effects: &mut Effects) {
        let sessions = self.users.get_mut(user).expect("an authenticated session's user has a list");
        sessions.swap_remove(place as usize);
        if let Some(moved) = sessions.get(place as usize) {
            self.sessions.at_mut(moved.index).user_place = place;
        } else if sessions.is_empty() {
            self.users.remove(user);
        }
        if self.counts_sessions_of(user) {
            self.leave_home(user, key, effects);
        }
    }

    /// Whether it matters how many sessions the user has on the node.
    pub(super) fn counts_sessions_of(&self, user: &str) -> bool {
        let client = &self.options.client;
        !user.is_empty() && (client.user_sessions_max > 0 || self.ends_older_sessions())
    }

    fn ends_older_sessions(&self) -> bool {
        self.options.client.personal_channel.as_ref().is_some_and(|personal| personal.single_connection)
    }

    /// Asks the user's home whether the session may come.
    pub(super) fn ask_home(&mut self, key: SessionKey, arrival: Arrival, effects: &mut Effects) {
        let user = Arc::clone(&arrival.user);
        self.hold(key, Waiting::Admission(Box::new(arrival)), effects);
        let asker = self.asker(key, 0);
        let home = self.owner(&user);
        self.send(home, ShardMessage::Request(Request::Arrive { user, asker }), effects);
    }

    fn leave_home(&mut self, user: &Arc<str>, session: SessionKey, effects: &mut Effects) {
        let request = Request::Depart { user: Arc::clone(user), shard: self.identity.index, session };
        self.send(self.owner(user), ShardMessage::Request(request), effects);
    }

    /// The home's side: one more session wants to come.
    pub(super) fn serve_arrival(&mut self, user: Arc<str>, asker: Asker, effects: &mut Effects) {
        let most = self.options.client.user_sessions_max;
        let ends_older = self.ends_older_sessions();
        let sessions = self.homes.entry(Arc::clone(&user)).or_default();
        let admitted = most == 0 || sessions.len() < most;
        let older = if admitted && ends_older { sessions.clone() } else { Vec::new() };
        if admitted {
            sessions.push((asker.shard, asker.session));
        }
        self.notify(asker.shard, Notice::Arrived { user, asker, admitted }, effects);
        for (shard, session) in older {
            self.notify(shard, Notice::Superseded { session }, effects);
        }
    }

    /// The home's side: a session has gone.
    pub(super) fn serve_departure(&mut self, user: &str, shard: ShardIndex, session: SessionKey) {
        let Some(sessions) = self.homes.get_mut(user) else { return };
        sessions.retain(|known| *known != (shard, session));
        if sessions.is_empty() {
            self.homes.remove(user);
        }
    }

    /// The home has answered.
    pub(super) fn arrived(&mut self, now: Now, user: &Arc<str>, asker: Asker, admitted: bool, effects: &mut Effects) {
        let key = asker.session;
        let waits = |waiting: &Waiting| matches!(waiting, Waiting::Admission(_));
        let held = self.sessions.get_mut(key).and_then(|session| session.held.take_if(|held| waits(&held.waiting)));
        let Some(held) = held else {
            self.counters.late_messages += 1;
            if admitted {
                self.leave_home(user, key, effects);
            }
            return;
        };
        let Held { waiting, rest } = *held;
        let Waiting::Admission(arrival) = waiting else { unreachable!("looked at above") };
        if admitted {
            self.let_in(now, key, *arrival, effects);
        } else {
            self.counters.user_sessions_refused += 1;
            self.refuse_connect(now, key, arrival.command_id, Disconnect::CONNECTION_LIMIT.into(), effects);
        }
        self.resume(now, key, rest, effects);
    }

    /// A newer session of the user has come, and there is to be one.
    pub(super) fn superseded(&mut self, now: Now, key: SessionKey, effects: &mut Effects) {
        self.close(now, key, &Disconnect::CONNECTION_LIMIT, effects);
    }

    /// How many users this shard is the home of that have sessions, where those count. 0 when everybody has left.
    pub fn users_at_home(&self) -> usize {
        self.homes.len()
    }
}
