//! Counts connections and their rates by source address. The caller supplies the time.

use std::{
    collections::{HashMap, VecDeque, hash_map},
    net::IpAddr,
    num::NonZeroU64,
};

use dunlin_engine::{RefillRate, SourceKey};
use serde::{Deserialize, Serialize};

/// A source of connections: an IPv4 address, or the /64 network of an IPv6 address, which is the smallest network that
/// a host owns. An IPv4 address is represented by its 6to4 prefix (RFC 3056), which has the same owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SourceNetwork(u64);

impl SourceNetwork {
    /// The source of an address.
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(0x2002 << 48 | u64::from(address.to_bits()) << 16),
            IpAddr::V6(address) => Self((address.to_bits() >> 64) as u64),
        }
    }

    /// The engine's key for this source.
    pub(super) fn key(self) -> SourceKey {
        // Addresses of ::/64, such as the loopback address, use a number that no other unicast address has.
        SourceKey(NonZeroU64::new(self.0).unwrap_or(NonZeroU64::MAX))
    }

    /// The part of a table for this source. Multiplicative hashing (Knuth) spreads similar addresses.
    pub(super) fn part(self, parts: usize) -> usize {
        (self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % parts
    }
}

/// Why a source gets no further session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SourceRefusal {
    /// The source has reached its limit on sessions.
    Sessions,
    /// The source has reached its limit on handshakes per second.
    Rate,
}

/// The limits of each source.
#[derive(Clone, Copy, Debug)]
pub(super) struct SourceLimits {
    /// Maximum number of concurrent sessions; 0 for no limit.
    pub(super) sessions_max: u32,
    /// Rate of handshakes; `None` for no limit.
    pub(super) handshakes: Option<RefillRate>,
    /// Maximum number of remembered sources without a session.
    pub(super) idle_max: usize,
}

/// Sources with sessions or recent handshakes.
///
/// A source with sessions is always kept, because each session occupies a file descriptor. A source without sessions is
/// kept until its token bucket is full again, when its entry has no more information, or until too many others came
/// after it: the oldest is removed first.
#[derive(Debug, Default)]
pub(super) struct Sources {
    entries: HashMap<SourceNetwork, Entry>,
    /// Sources that had no session when they were queued, without duplicates.
    idle: VecDeque<SourceNetwork>,
}

#[derive(Debug, Default)]
struct Entry {
    sessions: u32,
    /// State of the token bucket for handshakes.
    full_at_ns: u64,
    /// Whether it is in the queue of idle sources.
    queued: bool,
}

/// Idle sources examined per call: two, so that removals outpace insertions.
const LOOKS: usize = 2;

impl Sources {
    /// Counts a handshake of `source`, and a session if the limits allow it.
    pub(super) fn admit(
        &mut self,
        source: SourceNetwork,
        limits: &SourceLimits,
        now_us: u64,
    ) -> Result<(), SourceRefusal> {
        let entry = self.entries.entry(source).or_default();
        let outcome = entry.admit(limits, now_us);
        self.tidy(source, limits, now_us);
        outcome
    }

    /// Counts the end of a session.
    pub(super) fn dismiss(&mut self, source: SourceNetwork, limits: &SourceLimits, now_us: u64) {
        if let Some(entry) = self.entries.get_mut(&source) {
            entry.sessions = entry.sessions.saturating_sub(1);
        }
        self.tidy(source, limits, now_us);
    }

    /// Removes entries that are no longer needed, and queues `source` if it is idle.
    fn tidy(&mut self, source: SourceNetwork, limits: &SourceLimits, now_us: u64) {
        if let hash_map::Entry::Occupied(mut entry) = self.entries.entry(source)
            && entry.get().sessions == 0
            && !entry.get().queued
        {
            if entry.get().is_blank(now_us) {
                entry.remove();
            } else {
                entry.get_mut().queued = true;
                self.idle.push_back(source);
            }
        }
        for _ in 0..LOOKS {
            let Some(oldest) = self.idle.front() else { return };
            match self.entries.get_mut(oldest) {
                Some(entry) if entry.sessions > 0 => entry.queued = false,
                // Stop at the first entry that must be kept, so that the oldest is removed first.
                Some(entry) if !entry.is_blank(now_us) && self.idle.len() <= limits.idle_max => return,
                Some(_) => drop(self.entries.remove(oldest)),
                None => {}
            }
            self.idle.pop_front();
        }
    }
}

impl Entry {
    fn admit(&mut self, limits: &SourceLimits, now_us: u64) -> Result<(), SourceRefusal> {
        if limits.sessions_max > 0 && self.sessions >= limits.sessions_max {
            return Err(SourceRefusal::Sessions);
        }
        if let Some(pace) = limits.handshakes {
            self.full_at_ns = pace.take(self.full_at_ns, now_us).ok_or(SourceRefusal::Rate)?;
        }
        self.sessions += 1;
        Ok(())
    }

    /// Whether the entry is equivalent to a new one.
    fn is_blank(&self, now_us: u64) -> bool {
        self.sessions == 0 && self.full_at_ns <= now_us.saturating_mul(1_000)
    }
}

#[cfg(test)]
mod tests;
