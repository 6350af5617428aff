//! Where connections come from, and how many and how fast each of these places may have them. Told the time by its caller.

use std::{
    collections::{HashMap, VecDeque, hash_map},
    net::IpAddr,
};

use dunlin_engine::Pace;

/// A place that connections come from: an IPv4 address, or the /64 of an IPv6 address, which is the least that one host is
/// given. An IPv4 address counts as its 6to4 prefix (RFC 3056), which belongs to the same owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source(u64);

impl Source {
    /// The place of an address.
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(0x2002 << 48 | u64::from(address.to_bits()) << 16),
            IpAddr::V6(address) => Self((address.to_bits() >> 64) as u64),
        }
    }

    /// One of `parts` parts of a table, the same for the same place. Neighbours are spread by a multiplication (Knuth's).
    pub(super) fn part(self, parts: usize) -> usize {
        (self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % parts
    }
}

/// Why a place may have no further session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SourceRefusal {
    /// It has as many as it may.
    Sessions,
    /// It comes too fast.
    Rate,
}

/// What each place may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct SourceLimits {
    /// Sessions at a time; 0 for any number.
    pub(super) sessions_max: u32,
    /// Handshakes; `None` for any number.
    pub(super) handshakes: Option<Pace>,
    /// Places without a session that are remembered for their rate.
    pub(super) idle_max: usize,
}

/// The places that have sessions, or came lately.
///
/// A place with sessions is never forgotten, as each of these is paid for with an open file. One without is remembered until
/// its bucket is full again, when there is nothing left to know about it, or until too many came after it: the oldest is
/// forgotten first.
#[derive(Debug, Default)]
pub(super) struct Sources {
    entries: HashMap<Source, Entry>,
    /// Places that had no session when they were put here, each once.
    idle: VecDeque<Source>,
}

#[derive(Debug, Default)]
struct Entry {
    sessions: u32,
    /// State of the bucket of handshakes.
    full_at_ns: u64,
    /// Whether it is in the queue of idle places.
    queued: bool,
}

/// Idle places looked at in each call: two, so that more are forgotten than come.
const LOOKS: usize = 2;

impl Sources {
    /// Counts a handshake of `source`, and a session if it may have one.
    pub(super) fn admit(&mut self, source: Source, limits: &SourceLimits, now_us: u64) -> Result<(), SourceRefusal> {
        let entry = self.entries.entry(source).or_default();
        let outcome = entry.admit(limits, now_us);
        self.tidy(source, limits, now_us);
        outcome
    }

    /// Counts one session less.
    pub(super) fn dismiss(&mut self, source: Source, limits: &SourceLimits, now_us: u64) {
        if let Some(entry) = self.entries.get_mut(&source) {
            entry.sessions = entry.sessions.saturating_sub(1);
        }
        self.tidy(source, limits, now_us);
    }

    /// Forgets what needs not be known any more, beginning with `source`.
    fn tidy(&mut self, source: Source, limits: &SourceLimits, now_us: u64) {
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
                // Who came later is not looked at before it, so that it is the oldest that goes.
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

    /// Whether a new entry would say the same.
    fn is_blank(&self, now_us: u64) -> bool {
        self.sessions == 0 && self.full_at_ns <= now_us.saturating_mul(1_000)
    }
}

#[cfg(test)]
mod tests;
