//! The number of sessions that users have on each node, if it is limited.
//!
//! With each heartbeat, a node publishes the counts that have changed, and in turn a part of all its counts. One round
//! of these is a *cycle*. Messages may be lost: missing counts arrive with the next cycle, and a count that did not
//! arrive for a whole cycle belongs to a user without sessions.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::link::MessageHeaders;

use super::{Context, NODE, PeerEffect, cluster_view::ClusterView};

/// Maximum number of changes in one message; further ones wait for the next.
const CHANGES_MAX: usize = 5_000;
/// Maximum number of counts that a message repeats.
const REPEATED_MAX: usize = 500;
/// Users with longer ids are counted by each node on its own.
const USER_BYTES_MAX: usize = 512;
/// Maximum bytes of one message.
const MESSAGE_BYTES_MAX: usize = 256 << 10;
/// The overhead that NATS adds to a message, and the start of the body.
const OVERHEAD_BYTES: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct SharedUsers {
    own: BTreeMap<Arc<str>, u32>,
    changed: BTreeSet<Arc<str>>,
    /// The last user that was repeated in this cycle.
    repeated: Option<Arc<str>>,
    cycle: u64,
    /// The number of messages that were sent.
    sent: u64,
    /// Whether the limit is enabled; the first count sets this.
    is_active: bool,
    by_node: BTreeMap<Box<str>, NodeUsers>,
    /// Sessions on all other nodes.
    totals: BTreeMap<Arc<str>, u32>,
    /// The number of counts of all other nodes.
    counted: usize,
    uncounted: u64,
}

/// The counts of another node.
#[derive(Debug, Default)]
struct NodeUsers {
    cycle: u64,
    /// The number of the newest message.
    number: u64,
    /// With the cycle in which each count last arrived.
    sessions: BTreeMap<Arc<str>, (u32, u64)>,
}

#[derive(Serialize, Deserialize)]
struct UserSessionsBody {
    v: u32,
    cycle: u64,
    /// The number of the message since the start of its node; 0 from earlier versions.
    #[serde(default)]
    number: u64,
    users: Vec<(Box<str>, u32)>,
}

impl SharedUsers {
    pub(super) fn set_own(&mut self, user: Arc<str>, sessions: u32) {
        self.is_active = true;
        if user.len() > USER_BYTES_MAX {
            return;
        }
        if sessions == 0 {
            self.own.remove(&user);
        } else {
            self.own.insert(Arc::clone(&user), sessions);
        }
        self.changed.insert(user);
    }

    /// Repeats all counts, because another node has none of them, or may have missed some.
    pub(super) fn repeat_all(&mut self) {
        self.changed.extend(self.own.keys().cloned());
    }

    pub(super) fn users_elsewhere(&self) -> u64 {
        self.totals.len() as u64
    }

    pub(super) const fn users_uncounted(&self) -> u64 {
        self.uncounted
    }

    /// Publishes what is due with a heartbeat.
    pub(super) fn publish(&mut self, context: &mut Context, view: &ClusterView) {
        if let Some(payload) = self.next_message(context.payload_bytes_max) {
            let headers = MessageHeaders::new().with(NODE, view.node.clone());
            context.publish(view.subjects.users.clone(), headers, payload);
        }
    }

    pub(super) fn on_message(
        &mut self,
        context: &mut Context,
        view: &mut ClusterView,
        headers: &MessageHeaders,
        payload: &Bytes,
    ) {
        let Some(node) = headers.get(NODE).filter(|node| **node != *view.node) else { return };
        if !view.table.is_known(node) {
            // Without a heartbeat, its end would not be detected. Its counts arrive again after its heartbeat.
            return;
        }
        let Ok(body) = serde_json::from_slice::<UserSessionsBody>(payload) else {
            view.counters.dropped += 1;
            return;
        };
        for user in self.take(node, body, view.limits.users_max) {
            self.report(context, user);
        }
    }

    pub(super) fn forget_node(&mut self, context: &mut Context, node: &str) {
        for user in self.forget(node) {
            self.report(context, user);
        }
    }

    fn report(&self, context: &mut Context, user: Arc<str>) {
        let sessions = self.totals.get(&user).copied().unwrap_or(0);
        context.push_peer_effect(PeerEffect::UserSessionsElsewhere { user, sessions });
    }

    /// The message to publish with a heartbeat.
    fn next_message(&mut self, payload_bytes_max: usize) -> Option<Bytes> {
        if !self.is_active {
            return None;
        }
        let mut room = payload_bytes_max.min(MESSAGE_BYTES_MAX).saturating_sub(OVERHEAD_BYTES);
        let mut users: Vec<(Box<str>, u32)> = Vec::new();
        while users.len() < CHANGES_MAX
            && let Some(user) = self.changed.first()
            && takes(&mut room, user)
            && let Some(user) = self.changed.pop_first()
        {
            users.push((user.as_ref().into(), self.own.get(&user).copied().unwrap_or(0)));
        }
        let cycle = self.cycle;
        for _ in 0..REPEATED_MAX {
            let after = self.repeated.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let Some((user, sessions)) = self.own.range::<str, _>((after, Bound::Unbounded)).next() else {
                self.repeated = None;
                self.cycle += 1;
                break;
            };
            if !takes(&mut room, user) {
                break;
            }
            users.push((user.as_ref().into(), *sessions));
            self.repeated = Some(Arc::clone(user));
        }
        self.sent += 1;
        let body = UserSessionsBody { v: 1, cycle, number: self.sent, users };
        Some(serde_json::to_vec(&body).expect("texts and numbers are JSON").into())
    }

    /// Handles the counts of another node. Returns the users whose sum has changed.
    fn take(&mut self, node: &str, body: UserSessionsBody, users_max: usize) -> BTreeSet<Arc<str>> {
        let mut changed = BTreeSet::new();
        let known =
            self.by_node.entry(node.into()).or_insert_with(|| NodeUsers { cycle: body.cycle, ..NodeUsers::default() });
        // A server that was paused delivers what it held back behind later messages.
        if body.number > 0 && body.number <= known.number {
            return changed;
        }
        known.number = body.number;
        let last_cycle = std::mem::replace(&mut known.cycle, body.cycle);
        if body.cycle != last_cycle {
            let gone = known.sessions.iter().filter(|(_, (_, seen))| *seen < last_cycle);
            for user in gone.map(|(user, _)| Arc::clone(user)).collect::<Vec<_>>() {
                self.set(node, &user, 0, 0);
                changed.insert(user);
            }
        }
        for (user, sessions) in body.users {
            let is_usable = !user.is_empty() && user.len() <= USER_BYTES_MAX;
            let user: Arc<str> = user.into();
            let is_known = self.by_node.get(node).is_some_and(|known| known.sessions.contains_key(&user));
            if is_usable && (is_known || sessions == 0 || self.counted < users_max) {
                if self.set(node, &user, sessions, body.cycle) {
                    changed.insert(user);
                }
            } else {
                self.uncounted += 1;
            }
        }
        changed
    }

    /// Sets a count of a node. Returns whether it has changed.
    fn set(&mut self, node: &str, user: &Arc<str>, sessions: u32, cycle: u64) -> bool {
        let Some(known) = self.by_node.get_mut(node) else { return false };
        let before = if sessions == 0 {
            known.sessions.remove(user)
        } else {
            known.sessions.insert(Arc::clone(user), (sessions, cycle))
        };
        self.counted = self.counted + usize::from(sessions > 0) - usize::from(before.is_some());
        let before = before.map_or(0, |(before, _)| before);
        let total = self.totals.entry(Arc::clone(user)).or_default();
        *total = total.saturating_sub(before).saturating_add(sessions);
        if *total == 0 {
            self.totals.remove(user);
        }
        before != sessions
    }

    /// Removes the counts of a node. Returns its users.
    fn forget(&mut self, node: &str) -> Vec<Arc<str>> {
        let users: Vec<Arc<str>> =
            self.by_node.get(node).map(|known| known.sessions.keys().cloned().collect()).unwrap_or_default();
        for user in &users {
            self.set(node, user, 0, 0);
        }
        self.by_node.remove(node);
        users
    }
}

/// Whether a user's count fits into a message; reserves the space.
fn takes(room: &mut usize, user: &str) -> bool {
    // The user's JSON, a number, and the punctuation.
    let escaped = user.bytes().map(|byte| if byte < 0x20 || byte == b'"' || byte == b'\\' { 6 } else { 1 });
    let bytes = escaped.sum::<usize>() + 16;
    let is_enough = bytes <= *room;
    if is_enough {
        *room -= bytes;
    }
    is_enough
}

#[cfg(test)]
mod tests;
