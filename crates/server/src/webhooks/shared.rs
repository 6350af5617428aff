//! What the shards, the sender and the reporter of a node pass to each other about the channels of a cluster.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use dunlin_engine::lifecycle::Lifecycle;

use super::{
    Happened,
    counters::unix_ms,
    node_channels::{Changes, ChannelState, Cursor, NodeChannels},
};

/// Maximum number of channels that wait to be told again. Beyond it, those that were given up stay lost.
const GIVEN_UP_MAX: usize = 100_000;

/// How long the backend is not told of a channel because other nodes have not asked: they ask once a second.
pub(super) const HEARD_WAIT_MS: u64 = 3_000;

/// How far the other nodes know the channels of this one.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// The version that each of them has.
    by_nodes: BTreeMap<Box<str>, u64>,
    /// The version at each of the last rounds.
    rounds: VecDeque<(u64, u64)>,
    /// Other nodes have had the time to ask for it.
    at_least: u64,
}

impl Heard {
    /// Another node has asked for what follows a version.
    pub(super) fn asked(&mut self, node: &str, version: u64) {
        let known = self.by_nodes.entry(node.into()).or_insert(0);
        *known = (*known).max(version);
    }

    /// A round begins, with these other nodes and this version of the own channels.
    pub(super) fn begin_round(&mut self, now_ms: u64, version: u64, is_live: impl Fn(&str) -> bool) {
        self.by_nodes.retain(|node, _| is_live(node));
        self.rounds.push_back((now_ms, version));
        while let Some((_, version)) = self.rounds.pop_front_if(|(at_ms, _)| *at_ms + HEARD_WAIT_MS <= now_ms) {
            self.at_least = version;
        }
    }

    /// Whether all of these other nodes know this version.
    pub(super) fn is_known_to<'a>(&self, version: u64, mut others: impl Iterator<Item = &'a str>) -> bool {
        version <= self.at_least || others.all(|node| self.by_nodes.get(node).is_some_and(|known| version <= *known))
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct SharedChannels {
    /// The channels of this node.
    own: Mutex<NodeChannels>,
    heard: Mutex<Heard>,
    /// Channels of whose state the backend was told in vain, and the Unix time of the oldest such change.
    given_up: Mutex<BTreeMap<Arc<str>, u64>>,
    /// Changes that do not fit into the queue, and the Unix time of the oldest one; 0 if this node does not tell.
    untold: AtomicU64,
    untold_since_unix_ms: AtomicU64,
    /// The Unix times of changes that the sender has, in the queue or in a request, and how many have each. One in the queue may
    /// be older than all before it.
    sending: Mutex<BTreeMap<u64, u64>>,
}

impl SharedChannels {
    /// A channel of this node has changed. Returns whether there was space for it.
    pub(super) fn set(&self, channel: &Arc<str>, state: ChannelState) -> bool {
        lock(&self.own).set(channel, state)
    }

    pub(super) fn since(&self, cursor: Cursor, bytes_max: usize) -> Changes {
        lock(&self.own).since(cursor, bytes_max)
    }

    /// Another node asks.
    pub(super) fn answer(&self, asker: &str, cursor: Cursor, bytes_max: usize) -> Changes {
        // An answer may be lost, so only the next question tells what the node has: nothing until a full report has ended.
        if !asker.is_empty() && cursor.begun == 0 {
            lock(&self.heard).asked(asker, cursor.version);
        }
        self.since(cursor, bytes_max)
    }

    /// See [`Heard::begin_round`].
    pub(super) fn begin_round(&self, now_ms: u64, is_live: impl Fn(&str) -> bool) {
        let version = lock(&self.own).version();
        lock(&self.heard).begin_round(now_ms, version, is_live);
    }

    /// Whether these other nodes know that a channel has subscribers on this node, if it has some.
    pub(super) fn is_known_to<'a>(&self, channel: &str, others: impl Iterator<Item = &'a str>) -> bool {
        let version = lock(&self.own).occupied_at(channel);
        version.is_none_or(|version| lock(&self.heard).is_known_to(version, others))
    }

    /// The backend did not take these events in time.
    pub(super) fn give_up(&self, events: &[Happened]) {
        let mut given_up = lock(&self.given_up);
        for happened in events {
            if let Lifecycle::Occupied { channel } | Lifecycle::Vacated { channel } = &happened.event.what
                && given_up.len() < GIVEN_UP_MAX
            {
                given_up.entry(Arc::clone(channel)).or_insert(happened.event.unix_ms);
            }
        }
    }

    /// The channels whose state has to be told again, and since when. Until [`Self::set_untold`], the oldest one counts as untold.
    pub(super) fn take_given_up(&self) -> BTreeMap<Arc<str>, u64> {
        let mut given_up = lock(&self.given_up);
        if let Some(oldest_unix_ms) = given_up.values().min() {
            let since_unix_ms = self.untold_since_unix_ms.load(Ordering::Relaxed);
            let is_older = since_unix_ms == 0 || *oldest_unix_ms < since_unix_ms;
            self.untold_since_unix_ms.store(if is_older { *oldest_unix_ms } else { since_unix_ms }, Ordering::Relaxed);
        }
        std::mem::take(&mut *given_up)
    }

    /// The sender gets a change that happened at this time.
    pub(super) fn begin_sending(&self, unix_ms: u64) {
        *lock(&self.sending).entry(unix_ms).or_insert(0) += 1;
    }

    /// These events are taken or lost.
    pub(super) fn end_sending(&self, events: &[Happened]) {
        let mut sending = lock(&self.sending);
        for happened in events {
            if let Lifecycle::Occupied { .. } | Lifecycle::Vacated { .. } = &happened.event.what
                && let Some(count) = sending.get_mut(&happened.event.unix_ms)
            {
                *count -= 1;
                if *count == 0 {
                    sending.remove(&happened.event.unix_ms);
                }
            }
        }
    }

    /// What the reporter has not told yet: the number of changes, and the age of the oldest one.
    pub(super) fn set_untold(&self, changes: usize, age_ms: u64) {
        let since_unix_ms = if changes == 0 { 0 } else { unix_ms().saturating_sub(age_ms) };
        self.untold.store(changes as u64, Ordering::Relaxed);
        self.untold_since_unix_ms.store(since_unix_ms, Ordering::Relaxed);
    }

    /// The number of changes that were not told yet.
    pub(super) fn untold(&self) -> u64 {
        self.untold.load(Ordering::Relaxed)
    }

    /// Unix time of the oldest change that the backend may not have taken.
    pub(super) fn oldest_unix_ms(&self) -> Option<u64> {
        // A change goes from one of these to the next in this order. The lock keeps it from coming back to the first meanwhile.
        let given_up = lock(&self.given_up);
        let untold = Some(self.untold_since_unix_ms.load(Ordering::Relaxed)).filter(|since_unix_ms| *since_unix_ms > 0);
        let sending = lock(&self.sending).first_key_value().map(|(unix_ms, _)| *unix_ms);
        given_up.values().copied().chain(untold).chain(sending).min()
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use dunlin_engine::lifecycle::LifecycleEvent;

    use super::*;

    fn occupied(channel: &str) -> Happened {
        let what = Lifecycle::Occupied { channel: channel.into() };
        Happened { event: LifecycleEvent { unix_ms: 5, what }, traffic: None }
    }

    #[test]
    fn a_change_is_known_when_all_others_have_asked_or_have_had_the_time() {
        let mut heard = Heard::default();
        heard.begin_round(0, 5, |_| true);
        let is_known = |heard: &Heard, version| heard.is_known_to(version, ["b", "c"].into_iter());
        assert!(heard.is_known_to(5, std::iter::empty()), "there is nobody else");
        heard.asked("b", 5);
        assert!(!is_known(&heard, 5));
        heard.asked("c", 6);
        heard.asked("c", 4);
        assert!(is_known(&heard, 5) && !is_known(&heard, 6));
        heard.begin_round(1, 6, |node| node != "b");
        assert!(!is_known(&heard, 5), "another node has the place of one that has left");
        heard.begin_round(HEARD_WAIT_MS - 1, 7, |_| true);
        assert!(!is_known(&heard, 5), "at the limit");
        heard.begin_round(HEARD_WAIT_MS, 8, |_| true);
        assert!(is_known(&heard, 5) && !is_known(&heard, 6), "past it");
    }

    #[test]
    fn channels_that_were_told_in_vain_are_taken_once() {
        let shared = SharedChannels::default();
        let ended = Lifecycle::RoomOpened { channel: "room".into() };
        let of_room = Happened { event: LifecycleEvent { unix_ms: 5, what: ended }, traffic: None };
        shared.give_up(&[occupied("b"), of_room, occupied("a"), occupied("b")]);
        assert_eq!((shared.untold(), shared.oldest_unix_ms()), (0, Some(5)), "others have to remember it");
        assert_eq!(shared.take_given_up(), [("a".into(), 5), ("b".into(), 5)].into());
        assert_eq!(shared.oldest_unix_ms(), Some(5), "until the reporter says what it has not told");
        shared.set_untold(0, 0);
        assert_eq!((shared.take_given_up(), shared.oldest_unix_ms()), (BTreeMap::new(), None));
        let many: Vec<_> = (0..=GIVEN_UP_MAX).map(|number| occupied(&number.to_string())).collect();
        shared.give_up(&many[..GIVEN_UP_MAX]);
        shared.give_up(&many[GIVEN_UP_MAX..]);
        assert_eq!(shared.take_given_up().len(), GIVEN_UP_MAX, "one past the limit");
    }
}
