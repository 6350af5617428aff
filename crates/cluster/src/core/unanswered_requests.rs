//! Connections that are open but broken: their server is cut off from the others by a network partition. It answers
//! pings, so the client library does not notice. Missing answers reveal it: after a while, another server is tried.

use crate::link::LinkName;

/// Since when requests have had no answers, by connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UnansweredRequests {
    since_us: [Option<u64>; LinkName::ALL.len()],
    /// Since when reads of leases have had no answers. They are counted apart from other reads, because a lagging
    /// replica answers them, and another server has to be tried nevertheless.
    lease_reads_since_us: Option<u64>,
}

impl UnansweredRequests {
    /// An answer has arrived.
    pub(super) const fn end(&mut self, link: LinkName) {
        self.since_us[link as usize] = None;
    }

    /// A read of leases was answered.
    pub(super) const fn end_of_lease_reads(&mut self) {
        self.lease_reads_since_us = None;
    }

    /// A request on a connection has had no answer. Returns since when none had.
    pub(super) fn begin(&mut self, link: LinkName, now_us: u64) -> u64 {
        *self.since_us[link as usize].get_or_insert(now_us)
    }

    /// A read of leases has had no answer. Returns since when none had.
    pub(super) fn begin_of_lease_reads(&mut self, now_us: u64) -> u64 {
        *self.lease_reads_since_us.get_or_insert(now_us)
    }
}

#[cfg(test)]
mod tests;
