//! Loads of clients that are ahead of this node: they come from another node, with a position that this one has not
//! reached.
//!
//! Usually the message is in flight. It is also possible that the live connection is broken and this is not detected
//! yet, or that the position comes from an attach on the other node, where nothing was published. So the channel's
//! newest message is compared, as in an audit. After that, either the position is reached, or nothing was published up
//! to it.

use std::sync::Arc;

use dunlin_engine::log::LogError;

use crate::{names::PartitionId, planted::CoreBug};

use super::{Core, Timer, channel::WaitingLoad, page::Pages};

/// A load after a position that this node has not reached.
#[derive(Debug)]
pub(super) struct AheadLoad {
    waiting: WaitingLoad,
    after: u64,
    /// The number of the comparison that covers the load; 0 while it waits for one.
    sync: u64,
    /// The sequence up to which the channel has been compared since the load arrived; 0 for none.
    compared: u64,
}

impl Core {
    /// Makes a load wait until the channel has reached its position, or nothing was published up to it.
    pub(super) fn wait_for_position(&mut self, name: &Arc<str>, waiting: WaitingLoad, after: u64) {
        let id = self.channels.get(name).map(|channel| channel.partition);
        let Some(id) = self.context.strays.expected(id, "the channel has a position") else { return };
        let load = AheadLoad { waiting, after, sync: 0, compared: 0 };
        self.context.counters.ahead += 1;
        self.ahead.entry(Arc::clone(name)).or_default().push(load);
        self.context.set_timer(waiting.due_us, Timer::Loads(Arc::clone(name)));
        self.partitions[id].channels.comparing.insert(Arc::clone(name));
        self.start_sync(id);
    }

    /// Takes the channels that the next comparison includes.
    pub(super) fn take_comparing(&mut self, id: PartitionId, sync: u64) -> Vec<Arc<str>> {
        let partition = &mut self.partitions[id];
        let names: Vec<Arc<str>> = std::mem::take(&mut partition.channels.comparing).into_iter().collect();
        for name in &names {
            let loads = self.ahead.get_mut(name).into_iter().flatten();
            loads.filter(|load| load.sync == 0).for_each(|load| load.sync = sync);
        }
        names
    }

    /// A channel was compared: up to `fence`, only the messages of a known gap are missing.
    pub(super) fn compared(&mut self, name: &Arc<str>, sync: u64, fence: u64) {
        let loads = self.ahead.get_mut(name).into_iter().flatten();
        loads.filter(|load| load.sync == sync).for_each(|load| load.compared = fence);
        self.serve_ahead(name);
    }

    /// Answers the loads whose position is reached, or never will be.
    pub(super) fn serve_ahead(&mut self, name: &Arc<str>) {
        let Some(channel) = self.channels.get(name) else { return };
        let (position, has_gap) = (channel.position, channel.gap().is_some());
        let Some(loads) = self.ahead.get_mut(name) else { return };
        let is_ready = |load: &mut AheadLoad| position >= load.after || load.compared > 0 && !has_gap;
        let ready: Vec<AheadLoad> = loads.extract_if(.., is_ready).collect();
        if loads.is_empty() {
            self.ahead.remove(name);
        }
        for load in ready {
            if position >= load.after {
                self.serve_load(name, load.waiting);
            } else if let Some(channel) = self.channels.get(name) {
                let pages = Pages::new(&self.partitions[channel.partition], channel, self.context.now);
                let page = pages.ahead(load.after, load.compared);
                self.context.effects.push(load.waiting.loaded(name, page));
            }
        }
    }

    /// Refuses the overdue loads of a channel.
    pub(super) fn refuse_ahead(&mut self, name: &Arc<str>, until_us: u64, error: LogError) {
        let Some(loads) = self.ahead.get_mut(name) else { return };
        let is_overdue = |load: &mut AheadLoad| load.waiting.due_us <= until_us;
        for load in loads.extract_if(.., is_overdue) {
            self.context.effects.push(load.waiting.refused(name, error));
        }
        if loads.is_empty() {
            self.ahead.remove(name);
        }
    }

    /// The position of a load, if the channel has not reached it.
    pub(super) fn position_ahead(&self, name: &Arc<str>, after: Option<u64>) -> Option<u64> {
        let position = self.channels.get(name)?.position;
        after.filter(|after| *after > position && !self.context.planted.is(CoreBug::PositionAheadRefused))
    }
}

#[cfg(test)]
mod tests;
