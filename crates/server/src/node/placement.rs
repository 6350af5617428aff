//! Chooses the shard of a new connection.
//!
//! The kernel distributes connections over the listeners by a hash of their addresses, regardless of the current load,
//! so shards drift apart when sessions end. A shard with too many more connections than the emptiest shard passes the
//! socket to that shard before reading from it. This costs one message and, if the other shard sleeps, one wakeup.

use std::{
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use tokio::sync::mpsc::error::TrySendError;

use super::{NetCounters, ShardHandle, inbox::ToShard, shard_thread::Shared};

/// The number of connections of each shard, including those on their way to it.
#[derive(Debug)]
pub(super) struct Loads {
    connections: Box<[AtomicU32]>,
    /// Maximum difference to the emptiest shard; 0 to keep the kernel's choice.
    imbalance_max: u32,
    /// Maximum number of connections of each shard.
    connections_max: u32,
}

impl Loads {
    pub(super) fn new(shard_count: u16, imbalance_max: u32, connections_max: u32) -> Self {
        Self { connections: (0..shard_count).map(|_| AtomicU32::new(0)).collect(), imbalance_max, connections_max }
    }

    /// Counts a connection that shard `here` accepted, and returns its shard; `None` if no shard has a place.
    pub(super) fn place(&self, here: u16) -> Option<u16> {
        let emptiest = self.emptiest();
        let excess = self.at(here).load(Ordering::Relaxed).saturating_sub(self.at(emptiest).load(Ordering::Relaxed));
        let is_moved = self.imbalance_max > 0 && excess >= self.imbalance_max;
        let [there, otherwise] = if is_moved { [emptiest, here] } else { [here, emptiest] };
        [there, otherwise].into_iter().find(|shard| self.enter_free(*shard))
    }

    /// Counts a connection on `shard`, unless it has as many as it may have.
    fn enter_free(&self, shard: u16) -> bool {
        let one_more = |count: u32| (count < self.connections_max).then_some(count + 1);
        self.at(shard).fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    /// Counts a connection that no shard accepted, and returns its shard, which refuses it if it is full.
    pub(super) fn place_anywhere(&self) -> u16 {
        let there = self.emptiest();
        self.enter(there);
        there
    }

    /// Maximum number of connections of each shard; `None` for no limit.
    pub(super) fn connections_max(&self) -> Option<u32> {
        Some(self.connections_max).filter(|max| *max < u32::MAX)
    }

    /// Counts a connection on `shard`.
    pub(super) fn enter(&self, shard: u16) {
        self.at(shard).fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the end of a connection on `shard`.
    pub(super) fn leave(&self, shard: u16) {
        self.at(shard).fetch_sub(1, Ordering::Relaxed);
    }

    fn emptiest(&self) -> u16 {
        let loads = self.connections.iter().map(|connections| connections.load(Ordering::Relaxed));
        loads.zip(0..).min().map_or(0, |(_, shard)| shard)
    }

    fn at(&self, shard: u16) -> &AtomicU32 {
        &self.connections[usize::from(shard)]
    }
}

/// The placement of the sockets that one shard accepts.
pub(super) struct Placement {
    here: u16,
    shared: Arc<Shared>,
    /// All shards of the node, by index.
    shards: Arc<[ShardHandle]>,
    /// Counters; see [`NetCounters`].
    placed: u64,
    refused: u64,
    wakes: u64,
}

impl Placement {
    pub(super) const fn new(here: u16, shared: Arc<Shared>, shards: Arc<[ShardHandle]>) -> Self {
        Self { here, shared, shards, placed: 0, refused: 0, wakes: 0 }
    }

    /// Passes an accepted socket to its shard. Returns the socket if it stays here. Without a shard for it, the socket is
    /// closed.
    pub(super) fn place(&mut self, stream: TcpStream) -> Option<TcpStream> {
        let Some(there) = self.shared.loads.place(self.here) else {
            self.refused += 1;
            return None;
        };
        if there == self.here {
            return Some(stream);
        }
        // Do not wait: a shard with a full inbox is a bad choice.
        let handle = &self.shards[usize::from(there)];
        match handle.inbox.try_send(ToShard::Accepted { stream }) {
            Ok(()) => {
                self.placed += 1;
                self.wakes += u64::from(handle.shard_waker.wake());
                None
            }
            Err(TrySendError::Full(message) | TrySendError::Closed(message)) => {
                self.shared.loads.leave(there);
                if !self.shared.loads.enter_free(self.here) {
                    self.refused += 1;
                    return None;
                }
                let ToShard::Accepted { stream } = message else { unreachable!("it is what was sent") };
                Some(stream)
            }
        }
    }

    pub(super) fn count_into(&self, net: &mut NetCounters) {
        net.placed += self.placed;
        net.accepts_shard_full += self.refused;
        net.wakes += self.wakes;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counts(loads: &Loads) -> Vec<u32> {
        loads.connections.iter().map(|connections| connections.load(Ordering::Relaxed)).collect()
    }

    #[test]
    fn connections_move_when_the_imbalance_is_reached() {
        let loads = Loads::new(3, 4, u32::MAX);
        assert_eq!((0..4).map(|_| loads.place(1)).collect::<Vec<_>>(), [Some(1); 4]);
        assert_eq!(loads.place(1), Some(0));
        assert_eq!(loads.place(1), Some(2));
        assert_eq!(loads.place(1), Some(1), "three more than the emptiest");
        assert_eq!(counts(&loads), [1, 5, 1]);
        assert_eq!(loads.place(0), Some(0));
        assert_eq!(loads.place_anywhere(), 2);
    }

    #[test]
    fn without_a_limit_the_kernels_placement_is_kept() {
        let loads = Loads::new(2, 0, u32::MAX);
        assert!((0..100).all(|_| loads.place(1) == Some(1)));
    }

    #[test]
    fn a_full_shard_passes_connections_on_until_all_are_full() {
        for imbalance_max in [0, 1, 2, 32] {
            let loads = Loads::new(2, imbalance_max, 5);
            assert!((0..10).all(|_| loads.place(1).is_some()), "{imbalance_max}");
            assert_eq!(counts(&loads), [5, 5]);
            assert_eq!((loads.place(0), loads.place(1)), (None, None), "one more than the limit");
            assert_eq!(counts(&loads), [5, 5]);
            loads.leave(0);
            assert_eq!((loads.place(1), loads.place(1)), (Some(0), None));
        }
    }

    proptest! {
        /// For any skew of the kernel and any departures: new connections never increase the difference beyond the
        /// limit, and as many new connections as the difference reduce it again.
        #[test]
        fn placement_keeps_the_imbalance_bounded(
            imbalance_max in 1_u32..40,
            steps in prop::collection::vec((0_u16..4, 0_u8..10), 1..800),
        ) {
            let loads = Loads::new(4, imbalance_max, u32::MAX);
            for (shard, kind) in steps {
                if kind < 3 {
                    if counts(&loads)[usize::from(shard)] > 0 {
                        loads.leave(shard);
                    }
                    continue;
                }
                let before = counts(&loads);
                // Most connections arrive at the first shard, as with a skewed hash.
                let there = loads.place(if kind < 8 { 0 } else { shard }).expect("no limit");
                let least = before.iter().min().copied().unwrap_or(0);
                prop_assert!(before[usize::from(there)] < least + imbalance_max, "{before:?} and one more on {there}");
            }
            let most = counts(&loads).into_iter().max().unwrap_or(0);
            for _ in 0..4 * most {
                loads.place(0);
            }
            let (now, least) = (counts(&loads), counts(&loads).into_iter().min().unwrap_or(0));
            prop_assert!(now.iter().all(|count| *count <= least + imbalance_max), "{now:?}");
        }
    }
}
