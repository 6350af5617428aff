//! What the shards, the sender and the reporter of a node pass to each other about the channels of a cluster.

use std::{
    collections::BTreeMap,
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

/// See the module.
#[derive(Debug, Default)]
pub(super) struct SharedChannels {
    /// The channels of this node.
    own: Mutex<NodeChannels>,
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
