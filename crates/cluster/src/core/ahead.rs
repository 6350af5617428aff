//! Loads of clients that are ahead of this node: they come from another node, with a position that this one has not
//! reached.
//!
//! Usually the message is in flight. It is also possible that the live connection is broken and this is not detected
//! yet, or that the position comes from an attach on the other node, where nothing was published. So the channel's
//! newest message is compared, as in an audit. After that, either the position is reached, or nothing was published up
//! to it.

use super::channel::WaitingLoad;

/// A load after a position that this node has not reached.
#[derive(Debug)]
struct AheadLoad {
    waiting: WaitingLoad,
    after: u64,
    /// The number of the comparison that covers the load; 0 while it waits for one.
    sync: u64,
    /// The sequence up to which the channel has been compared since the load arrived; 0 for none.
    compared: u64,
}

/// A load that waits no longer.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReadyLoad {
    /// The channel has reached its position.
    Reached(WaitingLoad),
    /// Nothing was published after the channel's position, up to `compared`.
    NothingBetween { waiting: WaitingLoad, after: u64, compared: u64 },
}

/// The loads of a channel that wait until it has reached their position, or nothing was published up to it.
#[derive(Debug, Default)]
pub(super) struct AheadLoads {
    list: Vec<AheadLoad>,
}

impl AheadLoads {
    pub(super) const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn push(&mut self, waiting: WaitingLoad, after: u64) {
        self.list.push(AheadLoad { waiting, after, sync: 0, compared: 0 });
    }

    /// A comparison has begun that covers the loads so far.
    pub(super) fn comparison_began(&mut self, sync: u64) {
        self.list.iter_mut().filter(|load| load.sync == 0).for_each(|load| load.sync = sync);
    }

    /// The channel was compared: up to `fence`, only the messages of a known gap are missing.
    pub(super) fn compared(&mut self, sync: u64, fence: u64) {
        self.list.iter_mut().filter(|load| load.sync == sync).for_each(|load| load.compared = fence);
    }

    /// Takes the loads whose position is reached, or never will be.
    pub(super) fn take_ready(&mut self, position: u64, has_gap: bool) -> Vec<ReadyLoad> {
        let is_ready = |load: &mut AheadLoad| position >= load.after || load.compared > 0 && !has_gap;
        let ready = |AheadLoad { waiting, after, compared, .. }| {
            if position >= after {
                ReadyLoad::Reached(waiting)
            } else {
                ReadyLoad::NothingBetween { waiting, after, compared }
            }
        };
        self.list.extract_if(.., is_ready).map(ready).collect()
    }

    /// Takes the loads that are due by then.
    pub(super) fn take_due(&mut self, until_us: u64) -> impl Iterator<Item = WaitingLoad> + '_ {
        self.list.extract_if(.., move |load| load.waiting.due_us <= until_us).map(|load| load.waiting)
    }
}

#[cfg(test)]
mod tests;
