//! Connections that are open but broken: their server is cut off from the others by a network partition. It answers
//! pings, so the client library does not notice. Missing answers reveal it: after a while, another server is tried.

use crate::{
    link::{LinkEffect, LinkName},
    planted::CoreBug,
};

use super::Context;

/// Since when requests have had no answers, by connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Silence {
    since_us: [Option<u64>; LinkName::ALL.len()],
    /// Since when reads of leases have had no answers. They are counted apart from other reads, because a lagging
    /// replica answers them, and another server has to be tried nevertheless.
    lease_reads_since_us: Option<u64>,
}

impl Silence {
    /// An answer has arrived.
    pub(super) const fn end(&mut self, link: LinkName) {
        self.since_us[link as usize] = None;
    }

    /// A read of leases was answered.
    pub(super) const fn end_of_lease_reads(&mut self) {
        self.lease_reads_since_us = None;
    }
}

impl Context {
    /// A request on a connection has had no answer.
    pub(super) fn on_silence(&mut self, link: LinkName) {
        let since_us = *self.silence.since_us[link as usize].get_or_insert(self.now.mono_us);
        self.reconnect_if_silent(link, since_us);
    }

    /// A read of leases has had no answer.
    pub(super) fn on_silent_lease_read(&mut self) {
        let since_us = *self.silence.lease_reads_since_us.get_or_insert(self.now.mono_us);
        self.reconnect_if_silent(LinkName::Read, since_us);
    }

    fn reconnect_if_silent(&mut self, link: LinkName, since_us: u64) {
        let is_long = self.now.mono_us >= since_us + self.options.limits.silence_timeout_ms * 1_000;
        if is_long && !self.planted.is(CoreBug::SilenceBorne) {
            self.silence.end(link);
            if link == LinkName::Read {
                self.silence.end_of_lease_reads();
            }
            self.counters.silences += 1;
            self.link(LinkEffect::Reconnect { link });
        }
    }
}

#[cfg(test)]
mod tests;
