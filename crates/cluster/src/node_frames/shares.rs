//! The share of each node in the queue of outgoing frames: a node that receives too much does not take the space of the
//! others.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// What waits for each node.
#[derive(Debug)]
pub(super) struct Shares {
    /// Bytes that wait. A node for which nothing waits is forgotten with the next new one.
    waiting: BTreeMap<Arc<str>, Arc<AtomicUsize>>,
    bytes_max: usize,
}

/// The part of a share that one frame takes. It is given back when this is dropped.
#[derive(Debug)]
pub(super) struct Share {
    waiting: Arc<AtomicUsize>,
    bytes: usize,
}

impl Shares {
    pub(super) const fn new(bytes_max: usize) -> Self {
        Self { waiting: BTreeMap::new(), bytes_max }
    }

    /// Takes space for a frame; `None` if the share of the node has none. A frame of whatever size fits into an empty share.
    pub(super) fn take(&mut self, node: &Arc<str>, bytes: usize) -> Option<Share> {
        if !self.waiting.contains_key(node) {
            self.waiting.retain(|_, waiting| waiting.load(Ordering::Relaxed) > 0);
            self.waiting.insert(Arc::clone(node), Arc::default());
        }
        let waiting = self.waiting.get(node)?;
        // Only this thread adds.
        let before = waiting.load(Ordering::Relaxed);
        if before > 0 && before.saturating_add(bytes) > self.bytes_max {
            return None;
        }
        waiting.fetch_add(bytes, Ordering::Relaxed);
        Some(Share { waiting: Arc::clone(waiting), bytes })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.waiting.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_slow_leaves_space_for_the_others() {
        let mut shares = Shares::new(100);
        let (slow, other): (Arc<str>, Arc<str>) = ("slow".into(), "other".into());
        let waiting: Vec<Option<Share>> = [60, 40].into_iter().map(|bytes| shares.take(&slow, bytes)).collect();
        assert!(waiting.iter().all(Option::is_some), "at the limit");
        assert!(shares.take(&slow, 1).is_none(), "past it");
        assert!(shares.take(&other, 100).is_some(), "the others have their own");
        drop(waiting);
        assert!(shares.take(&slow, 101).is_some(), "a long one fits into an empty share");
    }

    #[test]
    fn nodes_for_which_nothing_waits_are_forgotten() {
        let mut shares = Shares::new(100);
        let waits = shares.take(&"0".into(), 1);
        for node in 1..1_000 {
            assert!(shares.take(&node.to_string().into(), 1).is_some());
        }
        assert!(waits.is_some() && shares.waiting.len() <= 3, "{} nodes", shares.waiting.len());
    }
}
